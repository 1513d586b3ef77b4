"""Test the categorical distributions: masks, extremes, and digits that count."""

import functools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib


class AmongMany:
    """A policy over some actions, with eight behind them that are never legal."""

    def __init__(self, policy):
        self.policy = policy

    def sample(self, *arguments, mask=None):
        return self._ask("sample", *arguments, mask=mask)

    def probs(self, logits, *, mask=None):
        return self._ask("probs", logits, mask=mask)[..., : logits.shape[-1]]

    def logprob(self, *arguments, mask=None):
        return self._ask("logprob", *arguments, mask=mask)

    def entropy(self, *arguments, mask=None):
        return self._ask("entropy", *arguments, mask=mask)

    def _ask(self, name, *arguments, mask):
        *others, logits = arguments
        behind = [(0, 0)] * (logits.ndim - 1) + [(0, 8)]
        logits = jnp.pad(logits, behind, constant_values=-jnp.inf)
        mask = None if mask is None else jnp.pad(mask, behind[-mask.ndim :])
        return getattr(self.policy, name)(*others, logits, mask=mask)


KEY = jax.random.key(0)
SOFTMAX = rlaxlib.softmax(0.7)
POLICIES = {
    "softmax": SOFTMAX,
    "softmax_among_many": AmongMany(SOFTMAX),
    "clipped": rlaxlib.clipped_entropy_softmax(0.7, 0.9),
    "greedy": rlaxlib.greedy(),
    "epsilon_greedy": rlaxlib.epsilon_greedy(0.3),
}
all_policies = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
LOGITS = jnp.array([[1.0, -0.5, 3.0, 0.2], [0.0, 2.0, -1.0, 1.9]])
MASK = jnp.array([True, True, False, True])
LEGAL = np.array([0, 1, 3])
NONE = jnp.zeros(4, bool)


# --- What the functions compute. ---


@all_policies
def test_samples_have_the_probabilities(policy):
    keys = jax.random.split(KEY, 20000)
    samples = jax.vmap(lambda key: policy.sample(key, LOGITS[0], mask=MASK))(keys)
    frequencies = np.bincount(samples, minlength=4) / 20000
    probs = policy.probs(LOGITS[0], mask=MASK)
    np.testing.assert_allclose(frequencies, probs, atol=0.015)


@pytest.mark.parametrize("actions", [4, 12])
def test_categorical_samples_have_the_probabilities(actions):
    probs = jnp.arange(1.0, actions + 1)
    mask = jnp.arange(actions) != 2
    samples = jax.vmap(lambda key: rlaxlib.categorical_sample(key, probs, mask=mask))(
        jax.random.split(KEY, 20000)
    )
    frequencies = np.bincount(samples, minlength=actions) / 20000
    expected = np.where(mask, probs, 0) / np.sum(probs, where=mask)
    np.testing.assert_allclose(frequencies, expected, atol=0.015)


@pytest.mark.parametrize("actions", [4, 12])
def test_epsilon_greedy_samples_have_the_probabilities(actions):
    policy, preferences = rlaxlib.epsilon_greedy(0.6), jnp.linspace(1e30, 0.0, actions)
    mask = jnp.arange(actions) != 0
    samples = jax.vmap(lambda key: policy.sample(key, preferences, mask=mask))(
        jax.random.split(KEY, 20000)
    )
    frequencies = np.bincount(samples, minlength=actions) / 20000
    expected = np.where(mask, 0.6 / (actions - 1), 0)
    expected[1] += 0.4
    np.testing.assert_allclose(frequencies, expected, atol=0.015)


@pytest.mark.parametrize(
    "probs", [[0.5, -0.5], [0.0, 0.0], [jnp.nan, 1.0], [jnp.inf, 1.0]]
)
def test_where_there_is_nothing_to_draw_from_the_sample_says_so(probs):
    assert rlaxlib.categorical_sample(KEY, jnp.array(probs)) == -1
    assert rlaxlib.categorical_sample(KEY, jnp.tile(jnp.array(probs), 6)) == -1
    mask = jnp.array([False, False])
    assert rlaxlib.categorical_sample(KEY, jnp.ones(2), mask=mask) == -1


@all_policies
def test_log_probabilities_and_entropy_follow_from_the_probabilities(policy):
    probs = policy.probs(LOGITS)
    close(jnp.sum(probs, axis=-1), 1.0)
    actions = jnp.array([2, 1])
    close(policy.logprob(actions, LOGITS), jnp.log(probs[jnp.arange(2), actions]))
    entropy = -np.sum(probs * np.log(np.where(probs > 0, probs, 1)), axis=-1)
    bound = 0.9 * np.log(4) if policy is POLICIES["clipped"] else np.inf
    close(policy.entropy(LOGITS), np.minimum(entropy, bound))


@all_policies
@pytest.mark.parametrize("mask", [None, MASK, jnp.stack([MASK, NONE])], ids=str)
def test_each_row_may_have_many_actions(policy, mask):
    actions = jnp.array([[2, 1], [0, 3], [1, 1]])
    one_by_one = [policy.logprob(each, LOGITS, mask=mask) for each in actions]
    close(policy.logprob(actions, LOGITS, mask=mask), jnp.stack(one_by_one))


def test_among_equals_the_greedy_choose_evenly():
    q = jnp.array([1.0, 3.0, 3.0, -jnp.inf])
    np.testing.assert_array_equal(rlaxlib.greedy().probs(q), [0, 0.5, 0.5, 0])
    close(rlaxlib.epsilon_greedy(0.4).probs(q), [0.1, 0.4, 0.4, 0.1])


def test_epsilon_may_change_over_time():
    policy = rlaxlib.epsilon_greedy(0.4)
    for epsilon in (0.0, 0.2, 1.0):
        probs = jax.jit(policy.probs)(LOGITS, epsilon)
        np.testing.assert_array_equal(
            probs, rlaxlib.epsilon_greedy(epsilon).probs(LOGITS)
        )


# --- Masks of legal actions. ---


@all_policies
def test_an_illegal_action_is_as_good_as_not_there(policy):
    logits = LOGITS.at[:, 2].set(jnp.nan)
    few = LOGITS[:, LEGAL]
    close(policy.probs(logits, mask=MASK)[:, LEGAL], policy.probs(few))
    np.testing.assert_array_equal(policy.probs(logits, mask=MASK)[:, 2], 0.0)
    close(policy.entropy(logits, mask=MASK), policy.entropy(few))
    actions = jnp.array([3, 3])
    close(policy.logprob(actions, logits, mask=MASK), policy.logprob(actions - 1, few))
    illegal = policy.logprob(jnp.array([2, 2]), logits, mask=MASK)
    np.testing.assert_array_equal(illegal, -jnp.inf)


@all_policies
def test_where_nothing_is_legal_everything_is_zero(policy):
    def ask(logits):
        return (
            policy.probs(logits, mask=NONE),
            policy.logprob(jnp.array([0, 1]), logits, mask=NONE),
            policy.entropy(logits, mask=NONE),
        )

    values, pullback = jax.vjp(ask, LOGITS)
    (gradient,) = pullback(jax.tree.map(jnp.ones_like, values))
    for each in (*values, gradient):
        np.testing.assert_array_equal(each, 0.0)
    np.testing.assert_array_equal(policy.sample(KEY, LOGITS, mask=NONE), 0)


@all_policies
def test_logits_that_are_no_numbers_are_not_hidden(policy):
    @jax.jit
    @jax.vmap
    def ask(table, row):  # XLA drops a NaN from a maximum that it fuses with a gather.
        logits = jnp.take(table, row, axis=0)
        return [
            ask(logits, mask=mask)
            for ask in (
                policy.probs,
                functools.partial(policy.logprob, 1),
                policy.entropy,
            )
            for mask in (None, MASK)
        ]

    table = jnp.full((1, 3, 4), jnp.nan)
    assert all(np.all(np.isnan(x)) for x in ask(table, jnp.array([2])))


@pytest.mark.parametrize("row", [[-jnp.inf, 0.0, 1.0, -jnp.inf], [-jnp.inf] * 4])
def test_logits_of_minus_infinity_are_masked_logits(row):
    logits = jnp.array(row)
    mask = logits != -jnp.inf
    finite = jnp.where(mask, logits, 0.0)

    def ask(logits, mask=None):
        return (
            SOFTMAX.probs(logits, mask=mask),
            SOFTMAX.logprob(2, logits, mask=mask),
            SOFTMAX.entropy(logits, mask=mask),
            SOFTMAX.kl(logits, logits, mask=mask),
            rlaxlib.categorical_cross_entropy(
                jnp.array([0.0, 0.3, 0.7, 0.0]), logits, mask=mask
            ),
            rlaxlib.categorical_importance_sampling_ratios(
                logits, logits, 1, mask=mask
            ),
        )

    jax.tree.map(np.testing.assert_array_equal, ask(logits), ask(finite, mask))
    _, pullback = jax.vjp(ask, logits)
    (gradient,) = pullback(jax.tree.map(jnp.ones_like, ask(logits)))
    assert jnp.all(jnp.isfinite(gradient))


def test_what_only_one_policy_rules_out():
    one, other = jnp.array([0.0, -jnp.inf]), jnp.array([0.0, 0.0])
    divergence = rlaxlib.categorical_kl_divergence
    for p, q, expected in ((one, other, np.log(2)), (other, one, jnp.inf)):
        value, gradients = jax.value_and_grad(divergence, argnums=(0, 1))(p, q)
        close(value, expected)
        assert all(jnp.all(jnp.isfinite(each)) for each in gradients)
    ratios = rlaxlib.categorical_importance_sampling_ratios
    assert ratios(one, other, 1) == 0
    assert ratios(other, one, 1) == jnp.inf
    assert ratios(one, one, 1) == 0
    labels = jnp.array([0.0, 1.0])
    assert rlaxlib.categorical_cross_entropy(labels, one) == jnp.inf
    assert rlaxlib.categorical_cross_entropy(1 - labels, one) == 0


def test_a_divergence_moves_no_policy_that_it_does_not_depend_on():
    by_q = jax.grad(rlaxlib.categorical_kl_divergence, argnums=1)
    some, others = jnp.array([0.0, 1.0, 2.0]), jnp.array([1.0, -jnp.inf, 0.0])
    np.testing.assert_array_equal(by_q(jnp.full(3, -jnp.inf), some), 0.0)
    assert by_q(some, others)[1] == 0


# --- Digits that count. ---


@pytest.mark.parametrize("size", [1e-6, 1e-4, 1e-2, 1.0, 10.0, 100.0, 300.0])
def test_divergence_of_policies_however_close(size):
    rng = np.random.default_rng(0)
    p = np.float32(rng.normal(size=(200, 8)))
    q = np.float32(p + size * rng.normal(size=(200, 8)))
    ask = jax.vmap(jax.value_and_grad(rlaxlib.categorical_kl_divergence, (0, 1)))
    actual, gradients = ask(jnp.asarray(p), jnp.asarray(q))
    p, q = p.astype(np.longdouble), q.astype(np.longdouble)
    p, q = (x - np.log(np.sum(np.exp(x), axis=-1, keepdims=True)) for x in (p, q))
    # Since probabilities sum to 1, and with digits to spare where p is close to q.
    expected = np.sum(np.exp(p) * (np.expm1(q - p) - (q - p)), axis=-1)
    np.testing.assert_allclose(actual, expected.astype(float), rtol=1e-6)
    assert jnp.all(actual >= 0)

    by_p = -np.exp(p) * (q - p + expected[:, None])
    by_q = np.exp(p) * np.expm1(q - p)
    for gradient, definition in zip(gradients, (by_p, by_q), strict=True):
        error = np.max(np.abs(np.asarray(gradient) - definition), axis=-1)
        assert np.all(error <= 2e-6 * np.max(np.abs(definition), axis=-1))


@pytest.mark.parametrize("number", [2, 11])
def test_a_sure_action_leaves_others_their_digits(number):
    logits = jnp.zeros(1 + number).at[0].set(20.0)
    others = number * np.exp(-20.0)
    log_prob = functools.partial(SOFTMAX.logprob, 0)
    close(log_prob(0.7 * logits), -others, rtol=1e-5, atol=0)
    with_slope, _ = jax.value_and_grad(log_prob)(0.7 * logits)
    close(with_slope, -others, rtol=1e-5, atol=0)
    labels = jnp.zeros(1 + number).at[0].set(1.0)
    loss = rlaxlib.categorical_cross_entropy(labels, logits)
    close(loss, others, rtol=1e-5, atol=0)


@pytest.mark.parametrize("number", [3, 12])
def test_the_slope_of_a_log_probability(number):
    logits = jnp.linspace(-1.0, 2.0, number).at[1].set(-jnp.inf)

    def log_prob(logits, temperature):
        return rlaxlib.softmax(temperature).logprob(2, logits)

    by_logits = jax.grad(log_prob)(logits, 0.7)
    by_temperature = jax.grad(log_prob, 1)(logits, 0.7)
    probs = np.asarray(rlaxlib.softmax(0.7).probs(logits))
    close(by_logits, 0.7**-1 * (np.eye(number)[2] - probs))
    mean = np.sum(probs * np.where(probs > 0, logits, 0.0))
    close(by_temperature, (mean - logits[2]) / 0.7**2)


@pytest.mark.parametrize("number", [3, 12])
def test_the_slope_of_what_is_impossible_is_finite(number):
    logits = jnp.linspace(-1.0, 2.0, number).at[1].set(-jnp.inf)

    def log_prob(logits, temperature, mask=None):
        return rlaxlib.softmax(temperature).logprob(1, logits, mask=mask)

    by_logits, by_temperature = jax.grad(log_prob, (0, 1))(logits, 0.7)
    probs = np.asarray(rlaxlib.softmax(0.7).probs(logits))
    close(by_logits, 0.7**-1 * (np.eye(number)[1] - probs))
    close(by_temperature, np.sum(probs * np.where(probs > 0, logits - 2.0, 0)) / 0.7**2)

    for nothing in (jnp.full(number, -jnp.inf), jnp.zeros(number)):
        mask = jnp.zeros(number, bool)
        by_logits, by_temperature = jax.grad(log_prob, (0, 1))(nothing, 0.7, mask)
        np.testing.assert_array_equal(by_logits, 0.0)
        assert by_temperature == 0


def test_a_label_of_zero_has_a_finite_gradient():
    labels, logits = jnp.array([1.0, 0.0]), jnp.array([1.0, 2.0])
    gradient = jax.grad(rlaxlib.categorical_cross_entropy)(labels, logits)
    close(gradient, -jax.nn.log_softmax(logits))


@pytest.mark.parametrize("labels", [[2.0, 0.0], [0.5, 0.0], [0.0, 0.0], [-1.0, 1.0]])
def test_labels_are_taken_as_they_are(labels):
    logits = jnp.array([1.0, 2.0])
    loss = rlaxlib.categorical_cross_entropy(jnp.array(labels), logits)
    close(loss, -np.dot(labels, jax.nn.log_softmax(logits)))


def test_a_small_temperature_is_greedy_and_does_not_overflow():
    probs = rlaxlib.softmax(1e-30).probs(jnp.array([1e10, 2e10, -1e10]))
    np.testing.assert_array_equal(probs, [0, 1, 0])


# --- How the functions behave. ---


def test_distributions_can_be_pickled():
    for policy in POLICIES.values():
        copy = pickle.loads(pickle.dumps(policy))
        np.testing.assert_array_equal(copy.probs(LOGITS), policy.probs(LOGITS))


def test_a_divergence_has_a_slope_by_the_temperature():
    def divergence(temperature):
        kl = rlaxlib.categorical_kl_divergence
        return kl(LOGITS[0], LOGITS[1], temperature, mask=MASK)

    def define(temperature):
        x, y = (np.exp(np.asarray(each, float)[LEGAL] / temperature) for each in LOGITS)
        p, q = x / x.sum(), y / y.sum()
        return np.sum(p * np.log(p / q))

    slope = (define(0.7 + 1e-5) - define(0.7 - 1e-5)) / 2e-5
    close(jax.grad(divergence)(0.7), slope)


def test_a_temperature_may_be_learnt():
    gradient = jax.grad(lambda t: rlaxlib.softmax(t).entropy(LOGITS[0]))(0.7)
    step = 1e-2
    change = rlaxlib.softmax(0.7 + step).entropy(LOGITS[0]) - rlaxlib.softmax(
        0.7 - step
    ).entropy(LOGITS[0])
    np.testing.assert_allclose(gradient, change / (2 * step), rtol=1e-2)


# --- What the functions refuse. ---


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rlaxlib.softmax(0.0), r"^softmax: `temperature` must lie in \(0, inf"),
        (
            lambda: rlaxlib.clipped_entropy_softmax(1.0, -1.0),
            r"`entropy_clip` must lie in \[0, inf\]",
        ),
        (lambda: rlaxlib.epsilon_greedy(1.5), r"`epsilon` must lie in \[0, 1\]"),
        (
            lambda: rlaxlib.epsilon_greedy().probs(LOGITS),
            r"^epsilon_greedy.probs: `epsilon` is None, but must be float\[\]",
        ),
        (
            lambda: rlaxlib.greedy().logprob(jnp.array([0, 4]), LOGITS),
            r"^greedy.logprob: `sample` must be one of 4, from 0 to 3, but is 4",
        ),
        (
            lambda: POLICIES["clipped"].probs(jnp.array([1, 2])),
            r"^clipped_entropy_softmax.probs: `logits` is int32\[2\]",
        ),
        (
            lambda: SOFTMAX.sample(jax.random.split(KEY), LOGITS),
            r"^softmax.sample: `key` is key<fry>\[2\], but must be key\[\]",
        ),
        (
            lambda: rlaxlib.categorical_kl_divergence(LOGITS, LOGITS[0]),
            r"`q_logits` is float32\[4\], .*\.\.\. = 2, A = 4",
        ),
    ],
)
def test_says_what_is_wrong(call, message):
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        call()
