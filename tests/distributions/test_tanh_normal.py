"""Test the densities of a squashed Gaussian: near the bounds, where they are hard."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib

MU, SIGMA = jnp.array([0.3, -0.7]), jnp.array([0.5, 1.5])


# --- What the functions compute. ---


def test_the_density_adds_up_to_one():
    actions = (np.arange(20000) + 0.5) / 10000 - 1

    def density(action):
        log_prob = rlaxlib.tanh_normal_log_prob_of_action(action, MU[:1], SIGMA[:1])
        return jnp.exp(log_prob)

    total = jnp.mean(jax.vmap(density)(jnp.asarray(actions, jnp.float32)[:, None])) * 2
    np.testing.assert_allclose(total, 1.0, rtol=1e-4)


@pytest.mark.parametrize("u", [-80.0, -20.0, -10.0, -1e-3, 0.0, 1e-3, 9.0, 20.0, 80.0])
def test_value_and_gradients_are_right_however_far_the_tanh_saturates(u):
    x, sigma = jnp.full(1, u), jnp.ones(1)
    value, (by_u, by_mu) = jax.value_and_grad(
        rlaxlib.tanh_normal_log_prob, argnums=(0, 1)
    )(x, x, sigma)
    # The logarithm of cosh u, which is large where u is.
    log_cosh = np.logaddexp(np.float64(u), -np.float64(u)) - np.log(2)
    expected = 2 * log_cosh - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    np.testing.assert_allclose(by_u, [2 * np.tanh(u)], rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(by_mu, 0.0)
    curvature = jax.grad(
        lambda u: jax.grad(rlaxlib.tanh_normal_log_prob)(u, x, sigma)[0]
    )(x)
    expected = 2 / np.cosh(np.float64(u)) ** 2 - 1
    np.testing.assert_allclose(curvature, [expected], rtol=1e-5)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32])
def test_an_action_at_its_bound_has_a_finite_density_and_no_gradient(dtype):
    mu, sigma = MU.astype(dtype), SIGMA.astype(dtype)
    at_bounds, beyond = jnp.array([1, -1], dtype), jnp.array([3, -jnp.inf], dtype)
    log_prob = rlaxlib.tanh_normal_log_prob_of_action
    gradient = jax.value_and_grad(log_prob, argnums=(0, 1, 2))
    value, (by_action, *others) = gradient(at_bounds, mu, sigma)
    assert jnp.isfinite(value)
    np.testing.assert_array_equal(by_action, 0.0)
    for each in others:
        assert jnp.all(jnp.isfinite(each))
        assert jnp.all(each != 0)
    assert log_prob(beyond, mu, sigma) == value
    within = jnp.nextafter(at_bounds, jnp.zeros(2, dtype))
    assert jnp.all(jnp.abs(within) < 1)
    np.testing.assert_allclose(log_prob(within, mu, sigma), value, rtol=0.3)


# --- How the functions relate. ---


def test_an_action_has_the_density_of_what_it_is_the_tanh_of():
    u = jnp.array([[0.5, -1.0], [2.0, 3.0], [-2.5, 0.0]])
    for each in u:
        expected = rlaxlib.tanh_normal_log_prob(each, MU, SIGMA)
        action = jnp.tanh(each)
        found = rlaxlib.tanh_normal_log_prob_of_action(action, MU, SIGMA)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_it_is_the_squashed_gaussian_with_its_mean_and_deviation():
    policy, action = rlaxlib.squashed_gaussian(), jnp.array([0.2, -0.9])
    mean, deviation = jnp.tanh(MU), jnp.exp(-4 + 2 * (jnp.tanh(SIGMA) + 1))
    found = rlaxlib.tanh_normal_log_prob_of_action(action, mean, deviation)
    close(found, policy.logprob(action, MU, SIGMA, None))


# --- What the functions refuse. ---


@pytest.mark.parametrize(
    "function", [rlaxlib.tanh_normal_log_prob, rlaxlib.tanh_normal_log_prob_of_action]
)
def test_a_deviation_must_be_positive(function):
    message = rf"{function.__name__}: `sigma` must lie in \(0, inf\), but is 0.0"
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        function(MU, MU, jnp.zeros(2))
