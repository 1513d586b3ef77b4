"""Test intrinsic rewards: RND, ICM, k-NN entropy, DIAYN and NGU."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import x64

import rlaxlib

rnd_reward = jax.jit(rlaxlib.rnd_reward)
knn_reward = jax.jit(
    rlaxlib.knn_entropy_reward, static_argnames=("num_neighbors", "average")
)


def features(*shape, seed=0):
    rng = np.random.default_rng(seed)
    return np.float32(rng.normal(size=(2, *shape)))


# --- RND. ---


def test_rnd_rewards_do_not_depend_on_where_the_stream_is_divided():
    prediction, target = features(12, 3)
    whole, after = rnd_reward(rlaxlib.RndState(), prediction, target)
    state, rewards = rlaxlib.RndState(), []
    for part in (slice(0, 5), slice(5, 6), slice(6, 12)):
        reward, state = rnd_reward(state, prediction[part], target[part])
        rewards.append(reward)
    for found, expected in zip(state[:4], after[:4], strict=True):  # No rests.
        np.testing.assert_allclose(found, expected, 1e-4)
    np.testing.assert_allclose(rewards[-1], whole[6:], 1e-4)


def test_rnd_moments_are_those_of_all_mapped_streams():
    predictions, targets = features(4, 10, 3)
    carried = np.arange(4, dtype=np.float32)

    def reward(prediction, target, carried):
        state = rlaxlib.RndState(carried=carried)
        return rlaxlib.rnd_reward(state, prediction, target, 0.9, axis_name="streams")

    over_streams = jax.jit(jax.vmap(reward, axis_name="streams"))
    _, states = over_streams(predictions, targets, carried)
    errors = np.sum(np.square(predictions - targets), axis=-1)
    sums = []
    for each, last in zip(errors, carried, strict=True):
        total = last
        for error in each:
            total = 0.9 * total + error
            sums.append(total)
    np.testing.assert_array_equal(states.num_steps, 40)
    np.testing.assert_allclose(states.mean, np.full(4, np.mean(sums)), 1e-4)
    np.testing.assert_allclose(states.variance, np.full(4, np.var(sums)), 1e-4)
    np.testing.assert_allclose(states.carried, sums[9::10], 1e-4)


def test_rnd_rewards_ignore_masked_steps_and_have_no_gradient():
    prediction, target = features(6, 3)
    mask = np.array([True, False, True, True, False, True])
    bad = np.where(mask[:, None], prediction, np.float32(np.nan))
    state = rlaxlib.RndState(3.0, 1.0, 2.0, 4.0)
    found, after = rnd_reward(state, bad, target, sample_mask=mask)
    expected, deleted = rnd_reward(state, prediction[mask], target[mask])
    found = np.asarray(found)
    np.testing.assert_allclose(found[mask], expected, 1e-5)
    np.testing.assert_array_equal(found[~mask], 0)
    # Each number is a sum and its rounding error.
    for field in ("num_steps", "mean", "variance"):
        one, other = (
            getattr(each, field) + getattr(each, f"{field}_rest")
            for each in (after, deleted)
        )
        np.testing.assert_allclose(one, other, 1e-5)
    np.testing.assert_allclose(after.carried, deleted.carried, 1e-5)
    _, nothing = rnd_reward(state, bad, target, sample_mask=mask & False)
    np.testing.assert_array_equal(nothing, np.float32(state))

    def total(prediction, target):
        return jnp.sum(rlaxlib.rnd_reward(state, prediction, target)[0])

    for gradient in jax.jit(jax.grad(total, (0, 1)))(prediction, target):
        np.testing.assert_array_equal(gradient, 0)


def test_first_rnd_reward_is_not_divided():
    reward, state = rnd_reward(
        rlaxlib.RndState(), np.float32([[3.0]]), np.float32([[1.0]])
    )
    assert (reward, state.variance) == (4.0, 0.0)


def test_rnd_rewards_are_proportional_to_the_losses_of_the_predictor():
    prediction, target = features(6, 3)
    rewards, _ = rnd_reward(rlaxlib.RndState(3.0, 1.0, 2.0, 4.0), prediction, target)
    losses = np.asarray(jax.jit(jax.vmap(rlaxlib.rnd_loss))(prediction, target))
    ratio = losses / np.asarray(rewards)
    np.testing.assert_allclose(ratio, ratio[0], 1e-5)


def test_rnd_moments_are_accurate_when_means_are_large():
    rng = np.random.default_rng(0)
    prediction = np.float32(np.sqrt(1e4 + rng.normal(size=(20, 500, 1))))
    target = np.zeros((500, 1), np.float32)
    state = rlaxlib.RndState()
    for each in prediction:
        _, state = rnd_reward(state, each, target, 0.0)
    exact = np.var(np.square(np.asarray(prediction, np.float64)))
    np.testing.assert_allclose(state.variance, exact, 2e-3)


# --- ICM. ---


def test_icm_trains_features_by_the_inverse_model_only():
    def loss(features_t, weight):
        logits = features_t * np.float32([1.0, -2.0, 0.5])
        ones = np.ones(3, np.float32)
        return rlaxlib.icm_loss(ones, features_t, logits, 1, weight)[0]

    x, gradient = np.float32([0.3, 0.2, -0.4]), jax.jit(jax.grad(loss))
    np.testing.assert_array_equal(gradient(x, 1.0), 0)
    assert np.all(np.asarray(gradient(x, 0.0)) != 0)


# --- Counts. ---


def test_count_bonus_halves_with_four_times_the_visits():
    counts = np.float32([1, 9, 100])
    one, four = (
        jax.jit(rlaxlib.count_bonus)(x, 0.5, 0.0) for x in (counts, 4 * counts)
    )
    np.testing.assert_allclose(four, np.asarray(one) / 2, 1e-6)


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


# --- DIAYN and NGU. ---


def test_diayn_reward_is_that_of_recognising_the_skill():
    sure, diayn_reward = np.float32([50, 0, 0, 0]), jax.jit(rlaxlib.diayn_reward)
    rewards = [diayn_reward(x, 0) for x in (np.ones_like(sure), sure)]
    np.testing.assert_allclose(rewards, [0.0, np.log(4)], 1e-6, 1e-6)
    prior = np.log(np.float32([0.7, 0.1, 0.1, 0.1]))
    np.testing.assert_allclose(diayn_reward(sure, 0, prior), -np.log(0.7), 1e-6)
    gradient = jax.jit(jax.grad(rlaxlib.diayn_reward))(sure, 1)
    np.testing.assert_array_equal(gradient, 0)
    assert np.isnan(diayn_reward(sure, 4))


def test_visit_counts_may_be_integers():
    counts = np.array([[1, 4], [9, 100]])
    expected = rlaxlib.count_bonus(np.float32(counts))
    for dtype in (np.int8, np.int32):
        np.testing.assert_array_equal(
            rlaxlib.count_bonus(counts.astype(dtype)), expected
        )
