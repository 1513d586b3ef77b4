"""Test what is made of samples: how the functions relate, and their edges."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib

SAMPLES = jnp.array([3.0, -1.0, 2.0, 5.0])


# --- What the functions compute. ---


def test_the_worst_share_goes_from_the_least_to_the_mean():
    for level in (1e-30, 0.01, 0.25):
        close(rlaxlib.conditional_value_at_risk(SAMPLES, level), -1.0)
    close(rlaxlib.conditional_value_at_risk(SAMPLES, 0.5), 0.5)
    close(rlaxlib.conditional_value_at_risk(SAMPLES, 0.375), 0.0)
    close(rlaxlib.conditional_value_at_risk(SAMPLES, 1.0), jnp.mean(SAMPLES))


def test_the_worst_share_is_what_the_convex_programme_finds():
    """Rockafellar and Uryasev 2000, theorem 1, for gains in place of losses."""
    for level in (0.1, 0.3, 0.6, 0.9):
        threshold = np.asarray(SAMPLES)[:, None]
        short = np.mean(np.maximum(threshold - np.asarray(SAMPLES), 0), axis=1)
        expected = np.max(threshold[:, 0] - short / level)
        close(rlaxlib.conditional_value_at_risk(SAMPLES, level), expected)


def test_the_pool_is_sorted_as_one():
    pools = jnp.array([[9.0, 8.0, 7.0], [1.0, 3.0, 2.0]])
    for dropped, expected in (
        (0, [1.0, 2.0, 3.0, 7.0, 8.0, 9.0]),
        (1, [1.0, 2.0, 3.0, 7.0]),
        (2, [1.0, 2.0]),
    ):
        actual = rlaxlib.truncated_quantile_targets(pools, dropped)
        np.testing.assert_array_equal(actual, expected)


def test_energy_distance_is_twice_the_integral_of_the_squared_difference():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=7), 0.5 + rng.normal(size=4)
    grid = np.sort(np.concatenate([x, y]))
    below = [np.mean(each[:, None] <= grid[:-1], axis=0) for each in (x, y)]
    integral = np.sum(np.square(below[0] - below[1]) * np.diff(grid))
    x, y = jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)
    close(rlaxlib.energy_distance_loss(x, y), 2 * integral)


def test_samples_of_the_same_distribution_are_at_no_distance_and_stay():
    order = jnp.array([2, 0, 3, 1])
    for targets in (SAMPLES[order], jnp.tile(SAMPLES, 2)):
        loss, gradient = jax.value_and_grad(rlaxlib.energy_distance_loss)(
            SAMPLES, targets
        )
        close(loss, 0.0)
        close(gradient, jnp.zeros(4))


def test_one_sample_for_each_is_twice_the_distance():
    close(rlaxlib.energy_distance_loss(jnp.array([3.0]), jnp.array([-1.0])), 8.0)


# --- How the functions relate. ---


def test_quantiles_at_fractions_of_the_worst_share_average_to_what_it_is_worth():
    n, level = 64, 0.25
    normal = jax.scipy.stats.norm.ppf
    fractions = rlaxlib.quantile_midpoints(n)
    moved = jnp.mean(normal(rlaxlib.cvar_fractions(fractions, level)))
    fine = rlaxlib.quantile_midpoints(n * 4)
    close(rlaxlib.conditional_value_at_risk(normal(fine), level), moved)
    exact = -jax.scipy.stats.norm.pdf(normal(level)) / level
    close(moved, exact, rtol=1e-2)


def test_with_nothing_dropped_the_targets_keep_their_mean():
    pools = SAMPLES.reshape(2, 2)
    close(jnp.mean(rlaxlib.truncated_quantile_targets(pools, 0)), jnp.mean(SAMPLES))


# --- How the functions behave under JAX. ---


def test_samples_that_meet_push_each_other_nowhere():
    samples, targets = jnp.array([1.0, 1.0]), jnp.array([4.0])
    gradient = jax.grad(rlaxlib.energy_distance_loss)(samples, targets)
    close(gradient, [-1.0, -1.0])


def test_the_gradient_of_the_worst_share_is_its_weights():
    gradient = jax.grad(rlaxlib.conditional_value_at_risk)(SAMPLES, 0.375)
    close(gradient, [0.0, 2 / 3, 1 / 3, 0.0])


# --- What the functions refuse. ---


@pytest.mark.parametrize("level", [0.0, 1.5, -0.5])
def test_a_share_is_more_than_nothing_and_no_more_than_all(level):
    with pytest.raises(rlaxlib.ArgumentError, match="`level` must lie in"):
        rlaxlib.conditional_value_at_risk(SAMPLES, level)


@pytest.mark.parametrize("dropped", [-1, 2, 1.0])
def test_something_must_be_left_of_each_critic(dropped):
    with pytest.raises(rlaxlib.ArgumentError, match="`num_dropped` must be"):
        rlaxlib.truncated_quantile_targets(SAMPLES.reshape(2, 2), dropped)
