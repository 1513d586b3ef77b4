"""Test imitation learning: optima, stopped gradients, limits and extreme values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib

inf = np.inf
RNG = np.random.default_rng(0)
margin_loss = jax.jit(jax.value_and_grad(rlaxlib.dqfd_margin_loss))
reward = jax.jit(rlaxlib.adversarial_reward, static_argnums=1)


# --- DQfD. ---


def test_margin_loss_is_zero_if_the_expert_is_better_by_the_margin():
    value, gradient = margin_loss(np.float32([2, 1.0, -5.0]), 0)
    assert value == 0
    np.testing.assert_array_equal(gradient, 0)
    value, gradient = margin_loss(np.float32([2, 1.5, -5.0]), 0)
    close(value, 0.3)
    np.testing.assert_array_equal(gradient, [-1.0, 1.0, 0.0])
    value, gradient = margin_loss(np.float32([2, 1.5, -5.0]), 2, 0.0)
    assert value == 7
    np.testing.assert_array_equal(gradient, [1.0, 0.0, -1.0])


def test_margin_loss_of_large_values_keeps_the_margin():
    q = np.array([10_000.0, 9_999.5], np.float32)
    close(rlaxlib.dqfd_margin_loss(q, 0, 0.8), 0.3, rtol=1e-6)


@pytest.mark.parametrize("illegal", [99.0, inf, np.nan])
def test_margin_loss_ignores_illegal_actions(illegal):
    q, mask = np.float32([2, illegal, 1.5]), np.array([True, False, True])
    value, gradient = margin_loss(q, 0, action_mask=mask)
    close(value, 0.3)
    np.testing.assert_array_equal(gradient, [-1.0, 0.0, 1.0])
    # The expert's action is legal whatever the mask, as in padding.
    value, gradient = margin_loss(q, 0, action_mask=mask & False)
    assert value == 0
    np.testing.assert_array_equal(gradient, 0)


# --- Adversarial imitation. ---


def test_discriminator_is_optimal_at_the_log_ratio_of_densities():
    expert, policy = RNG.dirichlet(np.ones(4), 2)

    def loss(logits):
        pairs = jax.vmap(
            lambda e: jax.vmap(lambda p: rlaxlib.discriminator_loss(e, p))(logits)
        )(logits)
        return jnp.sum(expert[:, None] * policy[None] * pairs)

    best, gradient = np.float32(np.log(expert / policy)), jax.jit(jax.grad(loss))
    close(gradient(best), np.zeros(4))
    assert np.max(np.abs(gradient(best + np.float32(0.5)))) > 0.01


def test_discriminator_loss_of_extreme_logits_is_finite():
    logits = np.float32([-1e4, -100, 100, 1e4])
    loss = jax.value_and_grad(rlaxlib.discriminator_loss, argnums=(0, 1))
    loss = jax.jit(jax.vmap(loss))
    values, (by_expert, by_policy) = loss(logits, 0 * logits)
    close(values, np.array([1e4, 100.0, 0.0, 0.0]) + np.log(2.0))
    close(by_expert, [-1.0, -1.0, 0.0, 0.0])
    values, (by_expert, by_policy) = loss(0 * logits, logits)
    close(values, np.array([0.0, 0.0, 100.0, 1e4]) + np.log(2.0))
    close(by_policy, [0.0, 0.0, 1.0, 1.0])


def test_gradient_penalty_of_a_discriminator():
    weights = np.float32([3, 4])

    @jax.jit
    @jax.value_and_grad
    def penalty(weights):
        gradient = jax.grad(lambda x: jnp.dot(weights, x))(jnp.array([0.3, 0.7]))
        return rlaxlib.gradient_penalty(gradient)

    value, gradient = penalty(weights)
    assert value == 16
    close(gradient, 2 * (5 - 1) * weights / 5)
    value, gradient = penalty(0 * weights)
    assert value == 1
    np.testing.assert_array_equal(gradient, 0)


def test_rewards_of_extreme_logits():
    logit = np.float32([-1e4, -100, 0, 100, 1e4])
    close(reward(logit), [0.0, 0.0, np.log(2.0), 100.0, 1e4])
    assert reward(-50.0) > 0  # log(1 + exp(-50)) does not round to 0.
    np.testing.assert_array_equal(reward(logit, "airl"), logit)
    np.testing.assert_array_equal(np.asarray(reward(logit, "fairl"))[:3], 0)
    bounds = [10 * np.exp(-10.0), 0.0, -10 * np.exp(10.0)]
    found = reward(np.float32([-10, 0, 10]), "fairl")
    np.testing.assert_allclose(found, bounds, rtol=1e-5)


def test_airl_reward_is_the_difference_of_the_two_gail_rewards():
    logit = np.float32(RNG.normal(size=5))
    difference = np.asarray(reward(logit)) - np.asarray(reward(-logit))
    close(difference, reward(logit, "airl"))


def test_mean_fairl_reward_is_the_negative_forward_divergence():
    expert, policy = RNG.dirichlet(np.ones(5), 2)
    logit = np.float32(np.log(expert / policy))
    forward = np.sum(expert * np.log(expert / policy))
    close(np.sum(policy * np.asarray(reward(logit, "fairl"))), -forward)
    reverse = np.sum(policy * np.log(policy / expert))
    close(np.sum(policy * np.asarray(reward(logit, "airl"))), -reverse)


@pytest.mark.parametrize("kind", ["gail", "airl", "fairl"])
def test_gradient_of_the_reward_is_stopped(kind):
    gradient = jax.jit(jax.grad(rlaxlib.adversarial_reward), static_argnums=1)
    for logit in (-2.0, 0.5, 1000.0):
        assert gradient(logit, kind) == 0


def test_potentials_of_airl_add_up_to_those_of_the_ends():
    potential = np.float32(RNG.normal(size=5))

    @jax.jit
    def total(potential):
        discount_t, zeros = np.float32([0.9, 0.9, 0.9, 0]), jnp.zeros(4)
        shaping = rlaxlib.airl_logit(
            potential[:-1], zeros, zeros, discount_t, potential[1:]
        )
        return rlaxlib.discounted_returns(shaping, discount_t, 0.0)

    close(
        total(potential), -potential[:-1]
    )  # The potential after the end is not counted.


def test_airl_does_not_train_the_policy():
    gradient = jax.jit(jax.grad(rlaxlib.airl_logit, argnums=(0, 1, 2, 4)))
    assert gradient(2.0, -1.0, 1.0, 0.9, 3.0) == (-1, 0, 1, np.float32(0.9))


@pytest.mark.parametrize(
    ("dtype", "size"), [(np.int8, 128), (np.uint8, 256), (np.uint8, 300)]
)
def test_dqfd_action_may_have_a_dtype_that_does_not_hold_the_size(dtype, size):
    q, mask = np.linspace(-1, 1, size, dtype=np.float32), np.arange(size) < 50
    loss = jax.value_and_grad(rlaxlib.dqfd_margin_loss)
    actions = np.array(100, dtype), 100
    both = jax.jit(lambda q: [loss(q, each, action_mask=mask) for each in actions])
    found, expected = both(q)
    assert np.isfinite(found[0])
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[1], expected[1])
