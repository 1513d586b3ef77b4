"""Test goals: distributions of distances, expectiles and axioms of quasimetrics."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib

RANDOM = np.random.default_rng(0)


# --- Hindsight. ---


@functools.partial(jax.jit, static_argnums=3)  # A traced factor may be 1.
def sample_goals(keys, discount_t, gamma, beyond, **masks):
    sample = functools.partial(rlaxlib.geometric_hindsight_indices, **masks)
    return jax.vmap(sample, (0, None, None, None))(keys, discount_t, gamma, beyond)


@pytest.mark.parametrize("beyond", ["final", "renormalize"])
def test_distances_have_the_frequencies_of_a_geometric_distribution(beyond):
    gamma, steps, count = 0.6, 4, 20_000
    discount_t = np.float32([0.9] * (steps - 1) + [0.0])
    keys = jax.random.split(jax.random.key(0), count)
    goals = np.asarray(sample_goals(keys, discount_t, gamma, beyond))
    for t in range(steps):
        shares = (1 - gamma) * gamma ** np.arange(steps - t)
        if beyond == "final":
            shares[-1] = 1 - np.sum(shares[:-1])
        found = np.bincount(goals[:, t], minlength=steps)[t:] / count
        np.testing.assert_allclose(found, shares / np.sum(shares), atol=0.015)
        assert np.all(goals[:, t] >= t)


@pytest.mark.parametrize("gamma", [0.9999, 1 - 1e-6, 1 - 1e-7, 1.0])
def test_renormalized_distances_with_a_factor_near_one_are_uniform(gamma):
    keys = jax.random.split(jax.random.key(0), 20_000)
    discount_t = np.full(5, 0.9, np.float32)
    goals = np.asarray(sample_goals(keys, discount_t, gamma, "renormalize"))
    found = np.bincount(goals[:, 0], minlength=5) / 20_000
    np.testing.assert_allclose(found, 0.2, atol=0.015)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_a_traced_factor_of_one_gives_the_end_of_the_episode(dtype):
    keys = jax.random.split(jax.random.key(0), 500)
    discount_t = jnp.asarray([0.9, 0.9, 0.0, 0.9], dtype)
    sample = jax.vmap(rlaxlib.geometric_hindsight_indices, (0, None, None))
    goals = jax.jit(sample)(keys, discount_t, jnp.ones((), dtype))
    np.testing.assert_array_equal(goals, np.broadcast_to([2, 2, 2, 3], goals.shape))


def test_goals_stay_in_the_episode_and_are_valid_steps():
    discount_t = np.float32([0.9, 0.9, 0.0, 0.9, 0.9, 0.9, 0.9, 0.9])
    truncated_t = np.array([0, 0, 0, 0, 1, 0, 0, 0], bool)
    sample_mask = np.array([1, 0, 1, 1, 1, 1, 0, 0], bool)
    keys = jax.random.split(jax.random.key(0), 500)
    masks = {"truncated_t": truncated_t, "sample_mask": sample_mask}
    for beyond in ("final", "renormalize"):
        goals = np.asarray(sample_goals(keys, discount_t, 0.7, beyond, **masks))
        reached = [set(np.unique(each).tolist()) for each in goals.T]
        assert reached == [{0, 2}, {1}, {2}, {3, 4}, {4}, {5}, {6}, {7}]


# --- Expectiles. ---


def test_an_advantage_equal_to_the_error_gives_the_loss_of_iql():
    v, target = RANDOM.normal(size=(2, 20)).astype(np.float32)
    loss = rlaxlib.hiql_value_loss(v, target, target - v, 0.7)
    close(loss, rlaxlib.expectile_loss(v, target, 0.7))


def test_advantages_have_no_gradient():
    x = RANDOM.normal(size=(3, 20)).astype(np.float32)

    def total(*x):
        return jnp.sum(rlaxlib.hiql_value_loss(*x))

    _, target, adv = jax.jit(jax.grad(total, (0, 1, 2)))(*x)
    assert not np.any(target)
    assert not np.any(adv)


# --- Distances. ---


def mrn(x, y):
    return rlaxlib.mrn_distance(x[0], y[0], x[1], y[1])


DISTANCES = pytest.mark.parametrize("distance", [rlaxlib.quasimetric_distance, mrn])


@DISTANCES
def test_distances_obey_the_axioms_of_a_quasimetric(distance):
    x, y, z = RANDOM.normal(size=(3, 200, 4, 6)).astype(np.float32)
    distance = jax.jit(jax.vmap(distance))
    np.testing.assert_array_equal(distance(x, x), 0)
    assert np.all(distance(x, y) >= 0)
    assert np.all(distance(x, y) <= distance(x, z) + distance(z, y) + 1e-5)
    assert not np.allclose(distance(x, y), distance(y, x))


def test_a_state_that_is_the_goal_has_no_gradient():
    x = RANDOM.normal(size=(4, 6)).astype(np.float32)
    gradients = jax.jit(jax.grad(rlaxlib.quasimetric_distance, (0, 1)))(x, x)
    assert not any(np.any(each) for each in gradients)


def test_equal_embeddings_have_no_gradient_and_residuals_have_theirs():
    x, u, w = np.float32([[2, 7], [1, 4], [0, 1]])
    gradients = jax.jit(jax.grad(rlaxlib.mrn_distance, (0, 1, 2, 3)))(x, x, u, w)
    close(gradients, [[0, 0], [0, 0], [0, 1], [0, -1]])


def test_one_dimension_gives_the_positive_part_of_the_difference():
    x, y = RANDOM.normal(size=(2, 5, 1)).astype(np.float32)
    relu = np.maximum(y - x, 0)
    close(rlaxlib.quasimetric_distance(x, y, 0.0), np.mean(relu))
    close(rlaxlib.quasimetric_distance(x, y, 1.0), np.max(relu))
