"""Test SAC, discrete SAC and TD3: directions of gradients, identities and masks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib

RNG = np.random.default_rng(0)
LOGITS = jnp.asarray(RNG.normal(size=5), jnp.float32)
Q = jnp.asarray(RNG.normal(size=(3, 5)), jnp.float32)
PI, LOG_PI = jax.nn.softmax(LOGITS), jax.nn.log_softmax(LOGITS)
TEMPERATURE = jnp.float32(0.5)


# --- Targets, losses and actions. ---


def test_only_the_lowest_critic_counts():
    q = jnp.array([4.0, 2.0, 3.0])
    by_q = jax.grad(rlaxlib.sac_policy_loss, argnums=1)(-1.0, q, 0.5)
    np.testing.assert_array_equal(by_q, [0.0, -1.0, 0.0])
    for target in (
        rlaxlib.td3_critic_target(1.0, 0.5, q),
        rlaxlib.sac_critic_target(1.0, 0.5, q, -3.0, 0.0),
    ):
        assert target == 2.0


def test_gradient_of_a_target_is_stopped():
    arguments = jnp.array(1.0), jnp.array(0.5), jnp.array([4.0, 2.0]), jnp.array(-3.0)
    target = rlaxlib.sac_critic_target
    for each in jax.grad(target, argnums=(0, 1, 2, 3, 4))(*arguments, 0.5):
        np.testing.assert_array_equal(each, 0.0)


def test_entropy_after_the_end_of_an_episode_is_ignored():
    target = rlaxlib.sac_critic_target(1.0, 0.0, jnp.array([4.0]), -3.0, 0.5)
    assert target == 1.0


@pytest.mark.parametrize(("log_prob", "direction"), [(3.0, 1), (2.0, 0), (1.0, -1)])
def test_temperature_rises_while_the_entropy_is_below_its_target(log_prob, direction):
    gradient = jax.grad(rlaxlib.sac_temperature_loss)(0.7, log_prob, -2.0)
    assert jnp.sign(-gradient) == direction


def test_discrete_temperature_rises_while_the_entropy_is_below_its_target():
    entropy = -jnp.sum(PI * LOG_PI)
    for target, direction in (entropy + 0.1, 1), (entropy, 0), (entropy - 0.1, -1):
        gradient = jax.grad(rlaxlib.discrete_sac_temperature_loss)(0.7, LOGITS, target)
        assert jnp.sign(-gradient.round(6)) == direction


def test_losses_stop_the_gradients_of_what_they_do_not_train():
    q, log_prob = Q[:, 0], jnp.array(-1.0)
    by_temperature = jax.grad(rlaxlib.sac_policy_loss, argnums=2)
    assert by_temperature(log_prob, q, TEMPERATURE) == 0
    by_policy = jax.grad(rlaxlib.sac_temperature_loss, argnums=(1, 2))
    assert by_policy(0.7, log_prob, -2.0) == (0, 0)
    others = jax.grad(rlaxlib.discrete_sac_policy_loss, argnums=(1, 2))
    for each in others(LOGITS, Q, TEMPERATURE):
        np.testing.assert_array_equal(each, 0.0)
    others = jax.grad(rlaxlib.discrete_sac_temperature_loss, argnums=(1, 2))
    for each in others(0.7, LOGITS, 1.0):
        np.testing.assert_array_equal(each, 0.0)


def test_gradient_through_the_action_finds_the_optimal_policy():
    noise = jnp.asarray(RNG.normal(size=(4000, 1)), jnp.float32)

    def loss(mu, sigma):
        def one(epsilon):
            u = mu + sigma * epsilon
            log_prob = rlaxlib.tanh_normal_log_prob(u, mu, sigma)
            q = -jnp.square(jnp.tanh(u) - 0.5)
            return rlaxlib.sac_policy_loss(log_prob, q, 0.05)

        return jnp.mean(jax.vmap(one)(noise))

    gradient = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))
    mu, sigma = jnp.zeros(1), jnp.ones(1)
    first, _ = gradient(mu, sigma)
    for _ in range(300):
        value, (by_mu, by_sigma) = gradient(mu, sigma)
        mu, sigma = mu - 0.1 * by_mu, sigma - 0.1 * by_sigma
    # The optimal density is proportional to exp(q / temperature).
    actions = np.linspace(-1, 1, 20001)
    best = -0.05 * np.log(np.mean(np.exp(-((actions - 0.5) ** 2) / 0.05)) * 2)
    assert best - 1e-3 < value < first
    np.testing.assert_allclose(value, best, atol=5e-3)
    np.testing.assert_allclose(jnp.tanh(mu), [0.5], atol=0.05)


def test_smoothing_bounds_the_noise_and_the_action():
    keys = jax.random.split(jax.random.key(0), 1000)
    action = jnp.array([0.0, 0.95, -2.0])
    moved = jax.vmap(
        lambda key: rlaxlib.td3_target_action(key, action, 0.2, 0.3, -1.0, 1.0)
    )(keys)
    assert jnp.max(jnp.abs(moved)) == 1
    noise = moved[:, 0]
    np.testing.assert_allclose(jnp.max(jnp.abs(noise)), 0.3)
    inside = jnp.abs(noise) < 0.3
    # Of Gaussian noise, 13 % is beyond 1.5 standard deviations.
    np.testing.assert_allclose(jnp.mean(inside), 0.866, atol=0.04)
    np.testing.assert_array_equal(moved[:, 2], -1.0)
    assert jnp.min(moved[:, 1]) >= 0.65 - 1e-6


def test_smoothing_without_bounds_adds_gaussian_noise():
    action, stddev = jnp.zeros(2000), jnp.linspace(0.5, 2.0, 2000)
    moved = rlaxlib.td3_target_action(
        jax.random.key(1), action, stddev, jnp.inf, -jnp.inf, jnp.inf
    )
    np.testing.assert_allclose(jnp.std(moved / stddev), 1.0, atol=0.05)
    same = rlaxlib.add_gaussian_noise(jax.random.key(1), action, stddev)
    np.testing.assert_array_equal(moved, same)


# --- Identities. ---


def test_soft_target_at_temperature_zero_is_the_td3_critic_target():
    soft = rlaxlib.sac_critic_target(1.5, 0.9, Q[:, 0], -2.0, 0.0)
    close(soft, rlaxlib.td3_critic_target(1.5, 0.9, Q[:, 0]))


def test_discrete_losses_are_expectations_of_those_of_one_action():
    def mean(function):
        return jnp.sum(PI * jax.vmap(function)(LOG_PI, Q.T))

    value = rlaxlib.discrete_sac_value(LOGITS, Q, TEMPERATURE)
    soft = mean(
        lambda log_prob, q: rlaxlib.sac_critic_target(
            1.0, 0.9, q, log_prob, TEMPERATURE
        )
    )
    close(1.0 + 0.9 * value, soft)
    loss = mean(lambda log_prob, q: rlaxlib.sac_policy_loss(log_prob, q, TEMPERATURE))
    close(rlaxlib.discrete_sac_policy_loss(LOGITS, Q, TEMPERATURE), loss)
    close(loss, -value)
    loss = mean(lambda log_prob, q: rlaxlib.sac_temperature_loss(0.7, log_prob, 1.0))
    close(rlaxlib.discrete_sac_temperature_loss(0.7, LOGITS, 1.0), loss)


def test_softmax_of_the_action_values_is_optimal():
    q = jnp.min(Q, axis=0)
    best = q / TEMPERATURE
    gradient = jax.grad(rlaxlib.discrete_sac_policy_loss)(best, Q, TEMPERATURE)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-6)
    value = rlaxlib.discrete_sac_value(best, Q, TEMPERATURE)
    close(value, TEMPERATURE * jax.nn.logsumexp(q / TEMPERATURE))
    assert value > rlaxlib.discrete_sac_value(LOGITS, Q, TEMPERATURE)


def test_gradient_is_that_of_the_divergence_from_the_optimal_policy():
    def divergence(logits):
        best = jnp.min(Q, axis=0) / TEMPERATURE
        return TEMPERATURE * rlaxlib.categorical_kl_divergence(logits, best)

    expected = jax.grad(divergence)(LOGITS)
    close(jax.grad(rlaxlib.discrete_sac_policy_loss)(LOGITS, Q, TEMPERATURE), expected)


def test_value_of_one_critic_equals_an_ensemble_of_one():
    def each(q):
        return (
            rlaxlib.sac_critic_target(1.5, 0.9, q, -2.0, 0.5),
            rlaxlib.td3_critic_target(1.5, 0.9, q),
            rlaxlib.sac_policy_loss(-2.0, q, 0.5),
        )

    assert each(jnp.array(3.0)) == each(jnp.array([3.0]))


def test_redq_target_uses_the_minimum_of_a_random_subset():
    q = jnp.array([4.0, 2.0, 3.0, 5.0])

    @jax.vmap
    def redq(key):
        chosen = rlaxlib.subset_minimum(key, q, 2)
        return chosen, rlaxlib.sac_critic_target(1.0, 0.5, chosen, -3.0, 0.5)

    chosen, targets = redq(jax.random.split(jax.random.key(0), 50))
    assert set(chosen.tolist()) == {2.0, 3.0, 4.0}
    close(targets, 1.0 + 0.5 * (chosen + 1.5))


def test_one_discrete_critic_equals_an_ensemble_of_one():
    for function in rlaxlib.discrete_sac_value, rlaxlib.discrete_sac_policy_loss:
        one = function(LOGITS, Q[0], TEMPERATURE)
        np.testing.assert_array_equal(one, function(LOGITS, Q[:1], TEMPERATURE))


# --- Masks of legal actions. ---

DISCRETE = {
    "value": lambda logits, q, **mask: rlaxlib.discrete_sac_value(
        logits, q, TEMPERATURE, **mask
    ),
    "policy": lambda logits, q, **mask: rlaxlib.discrete_sac_policy_loss(
        logits, q, TEMPERATURE, **mask
    ),
    "temperature": lambda logits, q, **mask: rlaxlib.discrete_sac_temperature_loss(
        0.7, logits, 1.0, **mask
    ),
}
each_discrete = pytest.mark.parametrize("loss", DISCRETE.values(), ids=DISCRETE)


@each_discrete
@pytest.mark.parametrize("by_mask", [True, False])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_masking_an_action_equals_removing_it(loss, by_mask, bad):
    legal = jnp.arange(5) < 3
    q = jnp.where(legal, Q, bad)
    logits = LOGITS if by_mask else jnp.where(legal, LOGITS, -jnp.inf)
    mask = {"action_mask": legal} if by_mask else {}
    gradient = jax.value_and_grad(loss, argnums=(0, 1))
    value, found = gradient(logits, q, **mask)
    expected_value, expected = jax.jit(gradient)(LOGITS[:3], Q[:, :3])
    close(value, expected_value)
    for one, other in zip(found, expected, strict=True):
        close(one[..., :3], other)
        np.testing.assert_array_equal(one[..., 3:], 0.0)


def test_value_and_gradient_are_zero_if_no_action_is_legal():
    mask, q = jnp.zeros(5, bool), jnp.full((3, 5), jnp.nan)
    for function in rlaxlib.discrete_sac_value, rlaxlib.discrete_sac_policy_loss:
        value, gradient = jax.value_and_grad(function)(LOGITS, q, 0.5, action_mask=mask)
        assert value == 0
        np.testing.assert_array_equal(gradient, 0.0)
