"""Test SAC, discrete SAC and TD3: directions of gradients, identities and masks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close
from scipy.special import log_softmax, logsumexp, softmax

import rlaxlib

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=5).astype(np.float32)
Q = RNG.normal(size=(3, 5)).astype(np.float32)
PI, LOG_PI = softmax(LOGITS), log_softmax(LOGITS)
TEMPERATURE = np.float32(0.5)


# --- Targets, losses and actions. ---


def test_only_the_lowest_critic_counts():
    @jax.jit
    def evaluate(q):
        by_q = jax.grad(rlaxlib.sac_policy_loss, argnums=1)(-1.0, q, 0.5)
        return by_q, rlaxlib.sac_critic_target(1.0, 0.5, q, -3.0, 0.0)

    by_q, target = evaluate(np.array([4.0, 2.0, 3.0]))
    np.testing.assert_array_equal(by_q, [0.0, -1.0, 0.0])
    assert target == 2


def test_gradient_of_a_target_is_stopped():
    gradient = jax.jit(jax.grad(rlaxlib.sac_critic_target, argnums=(0, 1, 2, 3, 4)))
    for each in gradient(1.0, 0.5, np.array([4.0, 2.0]), -3.0, 0.5):
        np.testing.assert_array_equal(each, 0.0)


def test_entropy_after_the_end_of_an_episode_is_ignored():
    target = rlaxlib.sac_critic_target(1.0, 0.0, np.array([4.0]), -3.0, 0.5)
    assert target == 1.0


def test_temperature_rises_while_the_entropy_is_below_its_target():
    gradient = jax.jit(jax.grad(rlaxlib.sac_temperature_loss))
    for log_prob, direction in (3.0, 1), (2.0, 0), (1.0, -1):
        assert np.sign(-gradient(0.7, log_prob, -2.0)) == direction


def discrete_temperature_loss(log_temperature, logits, target_entropy, **mask):
    """The loss of discrete SAC, in the line of the docstring."""
    log_prob = -rlaxlib.softmax().entropy(logits, **mask)
    return rlaxlib.sac_temperature_loss(log_temperature, log_prob, target_entropy)


def test_discrete_temperature_rises_while_the_entropy_is_below_its_target():
    entropy = -np.sum(PI * LOG_PI)
    gradient = jax.jit(jax.grad(discrete_temperature_loss))
    for target, direction in (entropy + 0.1, 1), (entropy, 0), (entropy - 0.1, -1):
        found = np.asarray(gradient(0.7, LOGITS, np.float32(target)))
        assert np.sign(-found.round(6)) == direction


def test_losses_stop_the_gradients_of_what_they_do_not_train():
    @jax.jit
    def gradients():
        by_temperature = jax.grad(rlaxlib.sac_policy_loss, argnums=2)
        by_policy = jax.grad(rlaxlib.sac_temperature_loss, argnums=(1, 2))
        by_critic = jax.grad(rlaxlib.discrete_sac_policy_loss, argnums=(1, 2))
        return (
            by_temperature(-1.0, Q[:, 0], TEMPERATURE),
            by_policy(0.7, -1.0, -2.0),
            by_critic(LOGITS, Q, TEMPERATURE),
        )

    for each in jax.tree.leaves(gradients()):
        np.testing.assert_array_equal(each, 0.0)


def test_gradient_through_the_action_finds_the_optimal_policy():
    noise = RNG.normal(size=(4000, 1)).astype(np.float32)

    def loss(mu, sigma):
        def one(epsilon):
            u = mu + sigma * epsilon
            log_prob = rlaxlib.tanh_normal_log_prob(u, mu, sigma)
            q = -jnp.square(jnp.tanh(u) - 0.5)
            return rlaxlib.sac_policy_loss(log_prob, q, 0.05)

        return jnp.mean(jax.vmap(one)(noise))

    @jax.jit
    def descend(mu, sigma):
        value, gradients = jax.value_and_grad(loss, argnums=(0, 1))(mu, sigma)
        return value, mu - 0.1 * gradients[0], sigma - 0.1 * gradients[1]

    first, mu, sigma = descend(np.zeros(1), np.ones(1))
    for _ in range(300):
        value, mu, sigma = descend(mu, sigma)
    # The optimal density is proportional to exp(q / temperature).
    actions = np.linspace(-1, 1, 20001)
    best = -0.05 * np.log(np.mean(np.exp(-((actions - 0.5) ** 2) / 0.05)) * 2)
    assert best - 1e-3 < value < first
    np.testing.assert_allclose(value, best, atol=5e-3)
    np.testing.assert_allclose(np.tanh(mu), [0.5], atol=0.05)


def test_smoothing_bounds_the_noise_and_the_action():
    action = np.array([0.0, 0.95, -2.0])

    @jax.jit
    def move(key):
        return jax.vmap(
            lambda key: rlaxlib.td3_target_action(key, action, 0.2, 0.3, -1.0, 1.0)
        )(jax.random.split(key, 1000))

    moved = np.asarray(move(jax.random.key(0)))
    assert np.max(np.abs(moved)) == 1
    noise = moved[:, 0]
    np.testing.assert_allclose(np.max(np.abs(noise)), 0.3)
    inside = np.abs(noise) < 0.3
    # Of Gaussian noise, 13 % is beyond 1.5 standard deviations.
    np.testing.assert_allclose(np.mean(inside), 0.866, atol=0.04)
    np.testing.assert_array_equal(moved[:, 2], -1.0)
    assert np.min(moved[:, 1]) >= 0.65 - 1e-6


def test_smoothing_without_bounds_adds_gaussian_noise():
    action, stddev = np.zeros(2000), np.linspace(0.5, 2.0, 2000, dtype=np.float32)

    @jax.jit
    def move(key):
        bounds = np.inf, -np.inf, np.inf
        moved = rlaxlib.td3_target_action(key, action, stddev, *bounds)
        return moved, rlaxlib.add_gaussian_noise(key, action, stddev)

    moved, same = move(jax.random.key(1))
    np.testing.assert_allclose(np.std(moved / stddev), 1.0, atol=0.05)
    np.testing.assert_array_equal(moved, same)


# --- Identities. ---


def test_discrete_losses_are_expectations_of_those_of_one_action():
    @jax.jit
    def evaluate():
        discrete = (
            1.0 + 0.9 * rlaxlib.discrete_sac_value(LOGITS, Q, TEMPERATURE),
            rlaxlib.discrete_sac_policy_loss(LOGITS, Q, TEMPERATURE),
            discrete_temperature_loss(0.7, LOGITS, 1.0),
        )

        def one(log_prob, q):
            return (
                rlaxlib.sac_critic_target(1.0, 0.9, q, log_prob, TEMPERATURE),
                rlaxlib.sac_policy_loss(log_prob, q, TEMPERATURE),
                rlaxlib.sac_temperature_loss(0.7, log_prob, 1.0),
            )

        return discrete, jax.vmap(one)(LOG_PI, Q.T)

    discrete, each = evaluate()
    close(discrete, np.sum(PI * np.asarray(each), axis=1))
    close(discrete[0], 1.0 - 0.9 * float(discrete[1]))


def test_softmax_of_the_action_values_is_optimal():
    q = np.min(Q, axis=0)
    value = jax.jit(rlaxlib.discrete_sac_value)
    gradient = jax.jit(jax.grad(rlaxlib.discrete_sac_policy_loss))
    best = q / TEMPERATURE
    np.testing.assert_allclose(gradient(best, Q, TEMPERATURE), 0.0, atol=1e-6)
    highest = value(best, Q, TEMPERATURE)
    close(highest, TEMPERATURE * logsumexp(q / TEMPERATURE))
    assert highest > value(LOGITS, Q, TEMPERATURE)


def test_gradient_is_that_of_the_divergence_from_the_optimal_policy():
    def divergence(logits):
        best = np.min(Q, axis=0) / TEMPERATURE
        return TEMPERATURE * rlaxlib.categorical_kl_divergence(logits, best)

    def loss(logits):
        return rlaxlib.discrete_sac_policy_loss(logits, Q, TEMPERATURE)

    both = jax.jit(lambda x: [jax.grad(f)(x) for f in (loss, divergence)])
    close(*both(LOGITS))


def test_value_of_one_critic_equals_an_ensemble_of_one():
    @jax.jit
    def each(q):
        return (
            rlaxlib.sac_critic_target(1.5, 0.9, q, -2.0, 0.5),
            rlaxlib.sac_policy_loss(-2.0, q, 0.5),
        )

    assert each(3.0) == each(np.array([3.0]))


def test_redq_target_uses_the_minimum_of_a_random_subset():
    q = np.array([4.0, 2.0, 3.0, 5.0])

    def redq(key):
        chosen = rlaxlib.subset_minimum(key, q, 2)
        return chosen, rlaxlib.sac_critic_target(1.0, 0.5, chosen, -3.0, 0.5)

    sample = jax.jit(lambda key: jax.vmap(redq)(jax.random.split(key, 50)))
    chosen, targets = map(np.asarray, sample(jax.random.key(0)))
    assert set(chosen.tolist()) == {2.0, 3.0, 4.0}
    close(targets, 1.0 + 0.5 * (chosen + 1.5))


def test_one_discrete_critic_equals_an_ensemble_of_one():
    for function in rlaxlib.discrete_sac_value, rlaxlib.discrete_sac_policy_loss:
        both = jax.jit(
            lambda *critics, f=function: [f(LOGITS, q, 0.5) for q in critics]
        )
        np.testing.assert_array_equal(*both(Q[0], Q[:1]))


# --- Masks of legal actions. ---

DISCRETE = {
    "value": lambda logits, q, **mask: rlaxlib.discrete_sac_value(
        logits, q, TEMPERATURE, **mask
    ),
    "policy": lambda logits, q, **mask: rlaxlib.discrete_sac_policy_loss(
        logits, q, TEMPERATURE, **mask
    ),
}
each_discrete = pytest.mark.parametrize("loss", DISCRETE.values(), ids=DISCRETE)


@each_discrete
def test_masking_an_action_equals_removing_it(loss):
    legal = np.arange(5) < 3
    gradient = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))
    expected_value, expected = gradient(LOGITS[:3], Q[:, :3])
    excluded = np.where(legal, LOGITS, np.float32(-np.inf))
    masked = {"action_mask": legal}
    cases = [(LOGITS, bad, masked) for bad in (np.nan, np.inf, -np.inf)]
    for logits, bad, mask in (*cases, (excluded, -np.inf, {}), (excluded, 9.0, {})):
        value, found = gradient(logits, np.where(legal, Q, np.float32(bad)), **mask)
        close(value, expected_value)
        for one, other in zip(map(np.asarray, found), expected, strict=True):
            close(one[..., :3], other)
            np.testing.assert_array_equal(one[..., 3:], 0.0)


@each_discrete
def test_value_and_gradient_are_zero_if_no_action_is_legal(loss):
    mask, q = np.zeros(5, bool), np.full((3, 5), np.nan)
    value, gradients = jax.jit(jax.value_and_grad(loss, (0, 1)))(
        LOGITS, q, action_mask=mask
    )
    assert value == 0
    for gradient in gradients:
        np.testing.assert_array_equal(gradient, 0.0)


# --- Masks. ---

NAN_AT_1 = np.float32([1.0, np.nan, 2.0])
LOGITS_AT_1 = np.stack([LOGITS, np.full_like(LOGITS, np.nan), -LOGITS])
LOSSES = {
    "policy": lambda x, **mask: rlaxlib.sac_policy_loss(x, Q[:, :3], 0.5, **mask),
    "critics": lambda x, **mask: rlaxlib.sac_policy_loss(Q[0, :3], x, 0.5, **mask),
    "temperature": lambda x, **mask: rlaxlib.sac_temperature_loss(0.5, x, 0.5, **mask),
    "discrete policy": lambda x, **mask: rlaxlib.discrete_sac_policy_loss(
        x, Q, 0.5, **mask
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_ignored_actions_have_neither_a_loss_nor_a_gradient(name):
    x = LOGITS_AT_1 if "discrete" in name else NAN_AT_1
    mask = np.array([True, False, True])

    def total(x, mask):
        losses = LOSSES[name](x, sample_mask=mask)
        return jnp.sum(losses), losses

    @jax.jit
    def both(x, clean):
        return jax.grad(total, has_aux=True)(x, mask), total(clean, None)

    (gradient, losses), (_, expected) = both(x, np.where(np.isnan(x), 0, x))
    close(losses, np.where(mask, expected, 0.0))
    assert np.isfinite(gradient).all()
    assert not np.any(np.asarray(gradient)[1])
