"""Test exploration noise: distributions, legal actions, edge cases, bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close
from scipy import stats

import rlaxlib

KEY = jax.random.key(0)
MANY = np.zeros((2000, 2), np.float32)
ONES = np.ones(3, np.float32)
add_dirichlet_noise = jax.jit(rlaxlib.add_dirichlet_noise)
add_ornstein_uhlenbeck_noise = jax.jit(rlaxlib.add_ornstein_uhlenbeck_noise)
ornstein_uhlenbeck_noise = jax.jit(rlaxlib.ornstein_uhlenbeck_noise)


# --- What the functions compute. ---


def test_gaussian_noise_has_the_standard_deviation_of_each_dimension():
    add = jax.jit(rlaxlib.add_gaussian_noise)
    noise = add(KEY, MANY + 3, np.float32([0.5, 2]))
    for column, stddev in zip(np.asarray(noise).T, [0.5, 2.0], strict=True):
        assert stats.kstest(column, stats.norm(3, stddev).cdf).pvalue > 1e-3


@pytest.mark.parametrize("damping", [0.15, 1.0, 1.5])
def test_ornstein_uhlenbeck_noise_reaches_its_stationary_distribution(damping):
    noise = MANY
    for key in jax.random.split(KEY, 30):
        before, noise = noise, ornstein_uhlenbeck_noise(key, noise, damping, 0.5)
    stddev = 0.5 / np.sqrt(damping * (2 - damping))
    distribution = stats.norm(0, stddev)
    assert stats.kstest(np.ravel(noise), distribution.cdf).pvalue > 1e-3
    correlation = np.corrcoef(np.ravel(before), np.ravel(noise))[0, 1]
    np.testing.assert_allclose(correlation, 1 - damping, atol=0.05)


def test_carried_noise_equals_the_noise_that_is_added():
    actions = np.float32(np.random.default_rng(0).normal(size=(5, 3)))
    keys = jax.random.split(KEY, 5)

    def step(noise, inputs):
        key, action = inputs
        noise = rlaxlib.ornstein_uhlenbeck_noise(key, noise, 0.15, 0.2)
        return noise, action + noise

    run = jax.jit(lambda *inputs: jax.lax.scan(step, 0 * ONES, inputs)[1])
    noise = 0 * ONES
    for key, action, carried in zip(keys, actions, run(keys, actions), strict=True):
        added = add_ornstein_uhlenbeck_noise(key, action, noise, 0.15, 0.2)
        close(carried, added)
        noise = np.asarray(added) - action


def test_ornstein_uhlenbeck_noise_equals_that_of_rlax(rlax):
    action, noise = np.float32(np.random.default_rng(0).normal(size=(2, 3)))
    arguments = (KEY, action, noise, 0.15, 0.2)
    theirs = jax.jit(rlax.add_ornstein_uhlenbeck_noise)(*arguments)
    close(add_ornstein_uhlenbeck_noise(*arguments), theirs, rtol=1e-6)


def test_dirichlet_noise_has_the_mean_and_variance_of_its_distribution():
    prior = np.full((4000, 4), 0.25, np.float32)
    for alpha in np.float32([[0.3, 0.3, 0.3, 0.3], [0.3, 0.6, 2.0, 1.0]]):
        noise = np.asarray(add_dirichlet_noise(KEY, prior, alpha, 1.0))
        distribution = stats.dirichlet(alpha)
        np.testing.assert_allclose(np.mean(noise, 0), distribution.mean(), atol=0.02)
        np.testing.assert_allclose(np.var(noise, 0), distribution.var(), atol=0.01)
        close(np.sum(noise, -1), 1.0)


def test_dirichlet_noise_is_distributed_over_legal_actions_only():
    prior = np.tile(np.float32([0.5, 0, 0.25, 0.25]), (4000, 1))
    noisy = add_dirichlet_noise(KEY, prior, np.full(4, 0.5, np.float32), 1.0)
    noisy = np.asarray(noisy)
    assert not np.any(noisy[:, 1])
    close(np.sum(noisy, -1), 1.0)
    marginal = stats.beta(0.5, 1.0)  # One action's share of three.
    assert stats.kstest(noisy[:, 0], marginal.cdf).pvalue > 1e-3


def test_mask_selects_the_actions_that_get_dirichlet_noise():
    prior = np.float32([[0, 0, 1], [0.5, 0.25, 0.25]])
    mask = np.array([True, True, False])
    both = np.stack([mask, mask])
    noisy = add_dirichlet_noise(KEY, prior, 0.3, 0.25, action_mask=both)
    noisy = np.asarray(noisy)
    assert np.all(noisy[:, :2] > 0)  # Legal, with a prior of 0 or not.
    assert not np.any(noisy[:, 2])
    close(np.sum(noisy[0]), 0.25)
    each = np.stack([mask, ~mask])
    noisy = add_dirichlet_noise(KEY, prior, 0.3, 0.25, action_mask=each)
    np.testing.assert_array_equal(np.asarray(noisy) > 0, each)


def test_result_is_zero_without_legal_actions():
    def total(prior, fraction):
        return jnp.sum(add_dirichlet_noise(KEY, prior, 0.3, fraction) ** 2)

    with jax.debug_nans(True):
        zeros = np.zeros((2, 3), np.float32)
        value, gradients = jax.jit(jax.value_and_grad(total, (0, 1)))(zeros, 0.25)
    assert value == 0
    for each in gradients:
        np.testing.assert_array_equal(each, 0.0)


def test_a_single_prior_gets_the_noise_of_a_batch_of_one_in_rlax(rlax):
    prior = np.float32([0.5, 0.25, 0.25])
    (theirs,) = jax.jit(rlax.add_dirichlet_noise)(KEY, prior[None], 0.3, 0.25)
    close(add_dirichlet_noise(KEY, prior, 0.3, 0.25), theirs, rtol=1e-6)


def test_a_mask_of_all_actions_agrees_with_rlax_if_a_prior_is_zero(rlax):
    prior = np.float32([[0.5, 0.5, 0]])
    ours = add_dirichlet_noise(KEY, prior, 0.3, 0.25, action_mask=np.ones(3, bool))
    theirs = np.asarray(jax.jit(rlax.add_dirichlet_noise)(KEY, prior, 0.3, 0.25))
    assert theirs[0, 2] > 0  # Noise on an illegal action.
    close(ours, theirs, rtol=1e-6)


# --- Edge cases. ---


def test_actions_may_be_scalars():
    assert rlaxlib.add_gaussian_noise(KEY, 1.0, 0.0) == 1
    assert rlaxlib.add_gaussian_noise(KEY, jnp.float32(1.0), 0.5).shape == ()
    assert rlaxlib.add_ornstein_uhlenbeck_noise(KEY, 1.0, 0.5, 1.0, 0.0) == 1
    assert rlaxlib.add_ornstein_uhlenbeck_noise(KEY, 1.0, 0.5, 0, 0.0) == 1.5
    assert rlaxlib.ornstein_uhlenbeck_noise(KEY, 2.0, 0.5, 0.0) == 1


def test_dirichlet_parameters_may_be_integers():
    prior = ONES / np.float32(3)
    one = jax.jit(lambda key: rlaxlib.add_dirichlet_noise(key, prior, 1, 1))(KEY)
    close(one, add_dirichlet_noise(KEY, prior, 1.0, 1.0))


@pytest.mark.parametrize("alpha", [1e-3, 1e3])
def test_dirichlet_noise_is_finite_for_extreme_concentrations(alpha):
    prior = np.full((4000, 4), 0.25, np.float32)
    alpha = np.full(4, alpha, np.float32)
    noisy = np.asarray(add_dirichlet_noise(KEY, prior, alpha, 1.0))
    assert np.isfinite(noisy).all()
    close(np.sum(noisy, -1), 1.0)


def test_standard_deviation_and_damping_may_be_differentiated():
    def total(damping, stddev):
        noise = rlaxlib.ornstein_uhlenbeck_noise(KEY, jnp.ones(3), damping, stddev)
        return jnp.sum(noise)

    gradients = jax.jit(jax.grad(total, (0, 1)))(0.5, 0.0)
    epsilon = np.asarray(jax.random.normal(KEY, (3,)))
    close(gradients, (-3, np.sum(epsilon)))


def test_illegal_prior_may_hold_anything_for_the_gradient_of_the_fraction():
    def noisy(fraction, illegal):
        prior, mask = jnp.array([0.5, 0.5, illegal]), np.array([True, True, False])
        noise = rlaxlib.add_dirichlet_noise
        return noise(KEY, prior, 1.0, fraction, action_mask=mask)[0]

    found, expected = (jax.grad(noisy)(0.25, each) for each in (jnp.nan, 0.0))
    close(found, expected)


# --- Bad input. ---


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("stddev", lambda: rlaxlib.add_gaussian_noise(KEY, 1.0, ONES)),
        (
            "noise_tm1",
            lambda: rlaxlib.add_ornstein_uhlenbeck_noise(KEY, ONES, 0.0, 0.5, 1.0),
        ),
        (
            "noise_tm1",
            lambda: rlaxlib.add_ornstein_uhlenbeck_noise(KEY, 0.0, ONES, 0.5, 1.0),
        ),
    ],
)
def test_rejects_bad_input(name, call):
    with pytest.raises(rlaxlib.ArgumentError, match=f"`{name}` ") as error:
        call()
    assert "noise: " in str(error.value)
