"""Test categorical distributions: masks, limits, gradients and close policies."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close
from scipy.special import log_softmax

import rlaxlib

KEY = jax.random.key(0)
SOFTMAX = rlaxlib.softmax(0.7)
POLICIES = {
    "softmax": SOFTMAX,
    "clipped": rlaxlib.clipped_entropy_softmax(0.7, 0.9),
    "greedy": rlaxlib.greedy(),
    "epsilon_greedy": rlaxlib.epsilon_greedy(0.3),
}
all_policies = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
LOGITS = np.float32([[1.0, -0.5, 3.0, 0.2], [0.0, 2.0, -1.0, 1.9]])
MASK = np.array([True, True, False, True])
LEGAL = np.array([0, 1, 3])
NONE = np.zeros(4, bool)
inf = np.inf


# --- Values. ---


@all_policies
def test_sample_frequencies_match_the_probabilities(policy):
    @jax.jit
    def sample(key):
        probs = policy.probs(LOGITS[0], action_mask=MASK)
        sample = functools.partial(policy.sample, action_mask=MASK)
        return jax.vmap(sample, (0, None))(
            jax.random.split(key, 20000), LOGITS[0]
        ), probs

    samples, probs = sample(KEY)
    frequencies = np.bincount(samples, minlength=4) / 20000
    np.testing.assert_allclose(frequencies, probs, atol=0.015)


def test_categorical_sample_frequencies_match_the_probabilities():
    @jax.jit
    def sample(key):
        sample = functools.partial(rlaxlib.categorical_sample, action_mask=MASK)
        probs = np.arange(1.0, 5.0)
        return jax.vmap(sample, (0, None))(jax.random.split(key, 20000), probs)

    frequencies = np.bincount(sample(KEY), minlength=4) / 20000
    np.testing.assert_allclose(frequencies, np.array([1, 2, 0, 4]) / 7, atol=0.015)


def test_categorical_sample_is_minus_one_for_invalid_probabilities():
    probs = np.array([[0.5, -0.5], [0.0, 0.0], [np.nan, 1.0], [inf, 1.0], [0.0, 1.0]])
    sample = jax.jit(rlaxlib.categorical_sample)
    np.testing.assert_array_equal(sample(KEY, jnp.asarray(probs)), [-1, -1, -1, -1, 1])
    mask = np.array([False, False])
    assert sample(KEY, np.ones(2), action_mask=mask) == -1


def test_categorical_sample_rejects_logits_on_the_host_and_reads_no_others():
    logits = np.array([0.5, -0.5])
    message = r"^categorical_sample: `probs` is -0\.5, must be in \[0, inf\)"
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        rlaxlib.categorical_sample(KEY, logits)
    assert rlaxlib.categorical_sample(KEY, jnp.asarray(logits)) == -1
    legal = jnp.array([True, False])
    assert rlaxlib.categorical_sample(KEY, jnp.asarray(logits), action_mask=legal) == 0


def test_entropy_of_one_legal_action_is_zero_for_any_clip():
    legal = np.array([False, True])
    for clip in (0.0, 1.0, 100.0):
        entropy = rlaxlib.clipped_entropy_softmax(entropy_clip=clip).entropy
        entropy = functools.partial(entropy, action_mask=legal)
        value, gradient = jax.jit(jax.value_and_grad(entropy))(np.float32([1, 2]))
        np.testing.assert_array_equal(value, 0)
        np.testing.assert_array_equal(gradient, 0)


@all_policies
def test_each_row_may_have_many_samples(policy):
    actions = np.array([[2, 1], [0, 3], [1, 1]])
    mask = np.stack([MASK, NONE])

    @jax.jit
    def log_probs():
        log_prob = functools.partial(policy.logprob, action_mask=mask)
        return log_prob(actions, LOGITS), [log_prob(each, LOGITS) for each in actions]

    close(*log_probs())


def test_labels_are_not_normalised():
    labels = np.array([[2.0, 0.0], [0.5, 0.0], [0.0, 0.0], [3.0, 1.0]])
    logits = np.tile(np.array([1.0, 2.0]), (4, 1))
    losses = rlaxlib.categorical_cross_entropy(labels, logits)
    close(losses, -labels @ log_softmax(logits[0]))


def test_small_temperature_does_not_overflow():
    probs = rlaxlib.softmax(1e-30).probs(np.array([1e10, 2e10, -1e10]))
    np.testing.assert_array_equal(probs, [0, 1, 0])


# --- Illegal actions. ---


@all_policies
def test_illegal_actions_have_no_influence(policy):
    logits = np.where(MASK, LOGITS, np.float32(np.nan))
    few = LOGITS[:, LEGAL]
    evaluate = jax.jit(
        lambda logits, actions, mask=None: (
            policy.probs(logits, action_mask=mask),
            policy.entropy(logits, action_mask=mask),
            policy.logprob(actions, logits, action_mask=mask),
        )
    )
    actions = np.array([3, 3])
    probs, *found = evaluate(logits, actions, MASK)
    expected_probs, *expected = evaluate(few, actions - 1)
    close(np.asarray(probs)[:, LEGAL], expected_probs)
    np.testing.assert_array_equal(np.asarray(probs)[:, 2], 0.0)
    close(found, expected)
    _, _, illegal = evaluate(logits, np.array([2, 2]), MASK)
    np.testing.assert_array_equal(illegal, -inf)


@all_policies
def test_values_and_gradients_are_zero_if_no_action_is_legal(policy):
    def results(logits):
        return (
            policy.probs(logits, action_mask=NONE),
            policy.logprob(np.array([0, 1]), logits, action_mask=NONE),
            policy.entropy(logits, action_mask=NONE),
        )

    @jax.jit
    def evaluate(logits):
        values, pullback = jax.vjp(results, logits)
        gradient = pullback(jax.tree.map(jnp.ones_like, values))
        return values, gradient, policy.sample(KEY, logits, action_mask=NONE)

    for each in jax.tree.leaves(evaluate(LOGITS)):
        np.testing.assert_array_equal(each, 0)


@pytest.mark.parametrize("policy", [SOFTMAX, POLICIES["clipped"]])
def test_nan_logits_propagate(policy):
    @jax.jit
    @jax.vmap
    def results(table, row):  # XLA drops NaN from a maximum fused with a gather.
        logits = jnp.take(table, row, axis=0)
        return [
            function(logits, mask)[..., :2]
            for function in (
                lambda x, mask: policy.probs(x, action_mask=mask),
                lambda x, mask: policy.logprob(1, x, action_mask=mask)[None],
                lambda x, mask: policy.entropy(x, action_mask=mask)[None],
            )
            for mask in (None, MASK)
        ]

    table = np.full((1, 3, 4), np.nan)
    assert all(np.all(np.isnan(x)) for x in results(table, np.array([2])))


@pytest.mark.parametrize("row", [[-inf, 0.0, 1.0, -inf], [-inf] * 4], ids=str)
def test_logits_of_minus_infinity_are_masked_logits(row):
    logits = np.float32(row)
    mask = logits != -inf
    finite = np.where(mask, logits, np.float32(0))

    def results(logits, mask=None):
        clipped = rlaxlib.clipped_entropy_softmax(entropy_clip=0.5)
        labels = np.float32([0.0, 0.3, 0.7, 0.0])
        return (
            SOFTMAX.probs(logits, action_mask=mask),
            SOFTMAX.logprob(2, logits, action_mask=mask),
            SOFTMAX.entropy(logits, action_mask=mask),
            SOFTMAX.kl(logits, logits, action_mask=mask),
            clipped.entropy(logits, action_mask=mask),
            rlaxlib.categorical_cross_entropy(labels, logits, action_mask=mask),
            rlaxlib.categorical_importance_sampling_ratios(
                logits, logits, 1, action_mask=mask
            ),
        )

    @jax.jit
    def evaluate(logits, finite, mask):
        values, pullback = jax.vjp(results, logits)
        gradient = pullback(jax.tree.map(jnp.ones_like, values))
        return values, gradient, results(finite, mask)

    values, gradient, expected = evaluate(logits, finite, mask)
    assert np.all(np.isfinite(gradient))
    jax.tree.map(np.testing.assert_array_equal, values, expected)


def test_clipped_entropy_is_a_fraction_of_that_of_the_legal_actions():
    policy = rlaxlib.clipped_entropy_softmax(entropy_clip=0.5)
    entropy = jax.jit(policy.entropy)(np.array([0.0, 0.0, -inf, -inf]))
    close(entropy, 0.5 * np.log(2))


# --- Actions that one of two policies rules out. ---


kl_and_gradients = jax.jit(
    jax.value_and_grad(rlaxlib.categorical_kl_divergence, (0, 1))
)


def test_kl_is_finite_and_large_where_only_the_second_policy_rules_an_action_out():
    one, other = np.float32([0.0, -inf, 1.0]), np.float32([0.0, 0.0, 1.0])
    p = np.exp([0, 1]) / np.sum(np.exp([0, 1]))
    value, (by_p, by_q) = kl_and_gradients(one, other)
    close(value, np.log((2 + np.e) / (1 + np.e)))
    np.testing.assert_allclose(by_p, 0.0, atol=1e-7)
    q = np.exp([0, 0, 1]) / np.sum(np.exp([0, 0, 1]))
    close(by_q, q - [p[0], 0, p[1]])
    value, (by_p, by_q) = kl_and_gradients(other, one)
    np.testing.assert_allclose(value, 1e15 * q[1], rtol=1e-6)
    # To leave the action reduces the divergence.
    np.testing.assert_allclose(by_p, 1e15 * q[1] * ([0, 1, 0] - q), rtol=1e-5)
    close(by_q, [p[0] - q[0], 0, p[1] - q[2]])


def test_cross_entropy_is_finite_and_large_where_an_illegal_action_has_a_label():
    cross_entropy = jax.jit(rlaxlib.categorical_cross_entropy)
    logits = np.float32([0.0, -inf])
    np.testing.assert_allclose(cross_entropy(np.float32([0.5, 0.5]), logits), 5e14)
    assert cross_entropy(np.float32([1, 0]), logits) == 0


def test_ratios_of_actions_that_are_ruled_out_are_finite_and_have_no_gradient():
    mu = np.float32([[0.0, -1e9], [0.0, -inf], [0.0, 0.5], [0.0, 0.0], [0.0, -inf]])
    pi = np.float32([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, -inf], [0.0, -inf]])

    def loss(pi, mu):
        ratios = rlaxlib.categorical_importance_sampling_ratios
        each = ratios(pi, mu, np.ones(5, np.int32))
        return jnp.sum(jnp.minimum(each, 1.2)), each

    gradients, each = jax.jit(jax.grad(loss, (0, 1), has_aux=True))(pi, mu)
    ratio = 0.5 * (1 + np.exp(-0.5))
    np.testing.assert_allclose(each, [np.exp(40), np.exp(40), ratio, 0, 1], rtol=1e-5)
    slope = ratio / 2 * np.array([-1, 1])
    np.testing.assert_allclose(gradients[0][2], slope, rtol=1e-6)
    for gradient in gradients:
        np.testing.assert_array_equal(np.asarray(gradient)[[0, 1, 3, 4]], 0)


def test_kl_has_no_gradient_by_q_if_p_has_no_legal_action():
    logits = np.float32([0.0, 1.0, 2.0])
    _, (_, gradient) = kl_and_gradients(np.full(3, -inf, np.float32), logits)
    np.testing.assert_array_equal(gradient, 0.0)


# --- Precision and gradients. ---


many_kl = jax.jit(
    jax.vmap(jax.value_and_grad(rlaxlib.categorical_kl_divergence, (0, 1)))
)


@pytest.mark.parametrize("size", [1e-4, 1e-2, 1.0, 10.0, 100.0, 300.0])
def test_kl_of_close_and_distant_policies(size):
    rng = np.random.default_rng(0)
    p = np.float32(rng.normal(size=(200, 8)))
    q = np.float32(p + size * rng.normal(size=(200, 8)))
    actual, gradients = many_kl(p, q)
    assert np.all(np.asarray(actual) >= 0)
    p, q = p.astype(np.longdouble), q.astype(np.longdouble)
    p, q = (x - np.log(np.sum(np.exp(x), axis=-1, keepdims=True)) for x in (p, q))
    expected = np.sum(np.exp(p) * (np.expm1(q - p) - (q - p)), axis=-1)
    # Single precision determines log(q / p) to 1e-7, which is 1e-3 of 1e-4.
    tolerance = 1e-6 + 1e-6 / size
    np.testing.assert_allclose(actual, expected.astype(float), rtol=tolerance)

    by_p = -np.exp(p) * (q - p + expected[:, None])
    by_q = np.exp(p) * np.expm1(q - p)
    for gradient, definition in zip(gradients, (by_p, by_q), strict=True):
        error = np.max(np.abs(np.asarray(gradient) - definition), axis=-1)
        assert np.all(error <= 4 * tolerance * np.max(np.abs(definition), axis=-1))


def test_gradients_of_log_probabilities_of_legal_and_illegal_actions():
    def log_prob(action, logits, temperature):
        return rlaxlib.softmax(temperature).logprob(action, logits)

    gradients = jax.jit(jax.vmap(jax.grad(log_prob, (1, 2)), (0, None, None)))
    logits = np.float32([-1.0, -inf, 2.0])
    by_logits, by_temperature = gradients(np.array([2, 1]), logits, 0.7)
    probs = np.exp(logits / 0.7) / np.sum(np.exp(logits / 0.7))
    chosen = np.array([[0, 0, 1], [0, 0, 0]])
    legal = np.array([1, 0])
    close(by_logits, legal[:, None] * (chosen - probs) / 0.7)
    mean = probs[0] * -1.0 + probs[2] * 2.0
    close(by_temperature, legal * (mean - 2.0) / 0.7**2)


def test_label_of_zero_has_a_finite_gradient():
    labels, logits = np.float32([1.0, 0.0]), np.float32([1.0, 2.0])
    gradient = jax.jit(jax.grad(rlaxlib.categorical_cross_entropy))(labels, logits)
    close(gradient, -log_softmax(logits))


def test_gradients_by_the_temperature_match_finite_differences():
    @jax.jit
    @jax.jacobian
    def derivatives(temperature):
        logits = np.where(MASK, LOGITS, np.float32(-inf))
        kl = rlaxlib.categorical_kl_divergence(*logits, temperature)
        return jnp.stack([kl, rlaxlib.softmax(temperature).entropy(logits[0])])

    def define(temperature):
        x, y = (np.exp(np.asarray(each, float)[LEGAL] / temperature) for each in LOGITS)
        p, q = x / x.sum(), y / y.sum()
        return np.array([np.sum(p * np.log(p / q)), -np.sum(p * np.log(p))])

    expected = (define(0.7 + 1e-5) - define(0.7 - 1e-5)) / 2e-5
    close(derivatives(0.7), expected)


# --- Behaviour and errors. ---


@pytest.mark.parametrize("temperature", [1e-10, 1e9])
@pytest.mark.parametrize("illegal", [-np.inf, float(np.finfo(np.float32).min)])
def test_an_illegal_action_has_probability_0_at_every_temperature(temperature, illegal):
    pi = rlaxlib.softmax(temperature)
    probs = pi.probs(np.float32([1.0, 1.0, illegal]))
    np.testing.assert_array_equal(probs, [0.5, 0.5, 0.0])
    assert not np.any(pi.probs(np.full(3, -np.inf, np.float32)))


def test_logits_that_are_all_the_lowest_float16_leave_no_action_legal():
    policy = rlaxlib.softmax()
    logits = jnp.full(3, jnp.finfo(jnp.float16).min, jnp.float16)
    for result in (
        policy.probs(logits),
        policy.logprob(1, logits),
        policy.entropy(logits),
    ):
        np.testing.assert_array_equal(result, 0)
