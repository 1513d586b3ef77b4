"""Test intrinsic rewards: ICM and k-NN entropy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import x64

import rlaxlib

knn_reward = jax.jit(
    rlaxlib.knn_entropy_reward, static_argnames=("num_neighbors", "average")
)


def features(*shape, seed=0):
    rng = np.random.default_rng(seed)
    return np.float32(rng.normal(size=(2, *shape)))


# --- ICM. ---


def test_icm_trains_features_by_the_inverse_model_only():
    def loss(features_t, weight):
        logits = features_t * np.float32([1.0, -2.0, 0.5])
        ones = np.ones(3, np.float32)
        return rlaxlib.icm_loss(ones, features_t, logits, 1, weight)[0]

    x, gradient = np.float32([0.3, 0.2, -0.4]), jax.jit(jax.grad(loss))
    np.testing.assert_array_equal(gradient(x, 1.0), 0)
    assert np.all(np.asarray(gradient(x, 0.0)) != 0)


# --- k-NN entropy. ---


def test_knn_reward_of_duplicates_is_zero():
    x = np.float32([[1.0, 2.0]] * 3 + [[4.0, 6.0]])
    np.testing.assert_allclose(knn_reward(x, 2), [0, 0, 0, np.log(6)], 1e-6)
    mean = np.asarray(knn_reward(x, 3, average=True))
    np.testing.assert_allclose(mean[0], np.log1p(5 / 3), 1e-6)


@pytest.mark.parametrize("number", [3, 4])
def test_knn_reward_needs_more_states_than_neighbours(number):
    with pytest.raises(rlaxlib.ArgumentError, match="number of states, 3"):
        rlaxlib.knn_entropy_reward(jnp.zeros((3, 2)), number)


def test_knn_reward_has_no_gradient_and_is_accurate_far_from_the_origin():
    x, _ = features(6, 2)

    def total(x):
        return jnp.sum(rlaxlib.knn_entropy_reward(x, 2))

    x[1] = x[0]
    np.testing.assert_array_equal(jax.jit(jax.grad(total))(x), 0)
    shifted = x + np.float32(1000)
    with x64(True):
        exact = knn_reward(np.float64(shifted), 2)
    np.testing.assert_allclose(knn_reward(shifted, 2), exact, 1e-5)


def test_knn_reward_is_larger_where_points_are_rare():
    x, _ = features(400, 2)
    rewards = np.asarray(knn_reward(x, 5))
    radius = np.linalg.norm(x, axis=1)
    assert np.corrcoef(rewards, radius)[0, 1] > 0.7
