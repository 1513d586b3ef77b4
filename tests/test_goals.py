"""Test goals: expectiles and axioms of quasimetrics."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib

RANDOM = np.random.default_rng(0)


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
