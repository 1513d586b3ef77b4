"""Test episodic rewards: definition, memory, non-finite embeddings, bad input."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close
from rows import exploration

import rlaxlib

SIZE, COLUMNS, NEIGHBORS = 12, 3, 4
inf, nan = jnp.inf, jnp.nan
compute = functools.partial(
    rlaxlib.episodic_memory_intrinsic_rewards, max_memory_size=SIZE
)
DEFAULTS = {
    "constant": 1e-3,
    "epsilon": 1e-4,
    "cluster_distance": 8e-3,
    "max_similarity": 8.0,
}


def sample(*shape, seed=0, scale=1.0):
    x = np.random.default_rng(seed).normal(scale=scale, size=shape)
    return jnp.asarray(x, jnp.float32)


def remember(*rows):
    """Make a memory with these rows, the others empty."""
    memory = jnp.full((SIZE, COLUMNS), inf)
    for i, row in enumerate(rows):
        memory = memory.at[i].set(jnp.asarray(row, jnp.float32))
    return rlaxlib.IntrinsicRewardState(memory, next_memory_index=len(rows))


def define(embeddings, state, neighbors=NEIGHBORS):
    """Compute rewards by the definition in NumPy, for a memory without empty rows."""
    memory = np.asarray(state.memory, np.float64)
    return exploration.episodic_memory_intrinsic_rewards(
        np.asarray(embeddings, np.float64),
        np.ones(len(embeddings)),
        memory,
        int(state.next_memory_index),
        float(state.distance_sum),
        int(state.distance_count),
        neighbors,
        max_memory_size=len(memory),
        **DEFAULTS,
    )


# --- What the function computes. ---


@pytest.mark.parametrize("scale", [1.0, 0.1, 0.03, 0.02, 0.01, 0.005])
def test_agrees_with_the_definition_at_every_scale_of_embeddings(scale):
    state = rlaxlib.IntrinsicRewardState(sample(SIZE, COLUMNS, scale=scale))
    for seed in range(1, 4):
        embeddings = sample(5, COLUMNS, seed=seed, scale=scale)
        expected, (memory, *_, distance_sum, count) = define(embeddings, state)
        rewards, state = compute(embeddings, NEIGHBORS, 1.0, state)
        np.testing.assert_allclose(rewards, expected, rtol=1e-4)
        np.testing.assert_allclose(state.distance_sum, distance_sum, rtol=1e-5)
        np.testing.assert_array_equal(state.memory, np.asarray(memory, np.float32))
        assert state.distance_count == count
        assert state.distance_sum > 0


def test_first_states_are_compared_with_the_origin_as_in_rlax():
    rewards, state = compute(jnp.array([[0.01]]), 1, 1.0)
    close(rewards, [28.004454])  # 1 / (sqrt(1e-4 / (1 / 11 - 8e-3 + 1e-4)) + 1e-3).
    close(state.distance_sum, 1e-4, atol=0)
    rewards, state = compute(jnp.zeros((2, COLUMNS)), NEIGHBORS, 1.0)
    close(rewards, 1 / (np.sqrt(NEIGHBORS) + 1e-3))
    assert state.distance_sum == 0
    np.testing.assert_array_equal(state.memory[:NEIGHBORS], 0.0)
    np.testing.assert_array_equal(state.memory[NEIGHBORS:], inf)


def test_reward_falls_with_the_number_of_visits():
    state = remember(*[[0, 0, 0]] * 5, [5, 5, 5], [-5, 5, 0], [7, -7, 7])
    embeddings = jnp.array([[0, 0, 0], [5.0, 5, 5], [-20, 30, 10]])
    rewards, _ = compute(embeddings, NEIGHBORS, 1.0, state)
    assert rewards[0] < rewards[1] < rewards[2]
    close(rewards[0], 1 / (np.sqrt(NEIGHBORS) + 1e-3))


def test_empty_rows_are_not_neighbors():
    rows = sample(2, COLUMNS)
    embeddings = sample(3, COLUMNS, seed=1)
    full = rlaxlib.IntrinsicRewardState(rows)
    expected, _ = rlaxlib.episodic_memory_intrinsic_rewards(
        embeddings, 2, 1.0, full, max_memory_size=2
    )
    rewards, state = compute(embeddings, NEIGHBORS, 1.0, remember(*rows))
    close(rewards, expected)
    assert state.distance_count == 6
    assert jnp.isfinite(state.distance_sum)
    np.testing.assert_array_equal(state.memory[:2], rows)
    np.testing.assert_array_equal(state.memory[2:5], embeddings)
    np.testing.assert_array_equal(state.memory[5:], inf)


def test_reward_is_largest_without_neighbors():
    rewards, state = compute(sample(2, COLUMNS), NEIGHBORS, 0.5, remember())
    close(rewards, 500.0)
    assert state.distance_sum == 0
    assert state.distance_count == 0


def test_memory_is_a_ring_buffer():
    state = remember()
    for step in range(5):
        embeddings = jnp.full((5, COLUMNS), float(step))
        _, state = compute(embeddings, NEIGHBORS, 1.0, state)
        assert state.next_memory_index == 5 * (step + 1) % SIZE
    expected = np.repeat([4.0, 2.0, 3.0, 4.0], [1, 2, 5, 4])
    np.testing.assert_array_equal(state.memory[:, 0], expected)


@pytest.mark.parametrize("start", [0, 7])
def test_the_last_embeddings_remain_if_there_are_more_than_rows(start):
    embeddings = sample(2 * SIZE + 5, COLUMNS)
    state = remember()._replace(next_memory_index=start)
    _, at_once = compute(embeddings, NEIGHBORS, 1.0, state)
    for embedding in embeddings:
        _, state = compute(embedding[None], NEIGHBORS, 1.0, state)
    np.testing.assert_array_equal(at_once.memory, state.memory)
    assert at_once.next_memory_index == state.next_memory_index


def test_maximum_similarity_takes_effect_from_64_neighbors():
    same = jnp.zeros((1, COLUMNS))
    for neighbors, rewarded in ((63, True), (64, False)):
        rewards, _ = rlaxlib.episodic_memory_intrinsic_rewards(
            same, neighbors, 1.0, max_memory_size=64
        )
        assert bool(rewards[0] > 0) == rewarded
    rewards, _ = compute(same, 1, 1.0, max_similarity=1.0)
    assert rewards == 0
    rewards, _ = compute(same, 1, 1.0, max_similarity=inf)
    assert rewards > 0


def test_constant_may_be_zero_if_there_are_neighbors():
    def total(embeddings):
        return jnp.sum(compute(embeddings, NEIGHBORS, 1.0, constant=0.0)[0])

    with jax.debug_nans(True):
        value, gradient = jax.value_and_grad(total)(jnp.zeros((1, COLUMNS)))
    close(value, 0.5)
    np.testing.assert_array_equal(gradient, 0.0)


def test_each_embedding_may_have_its_own_scale():
    embeddings, state = sample(3, COLUMNS), remember(*sample(6, COLUMNS, seed=1))
    one, _ = compute(embeddings, NEIGHBORS, 1.0, state)
    each, _ = compute(embeddings, NEIGHBORS, jnp.array([0.0, 1.0, 2.0]), state)
    close(each, one * jnp.array([0.0, 1.0, 2.0]))


# --- Values that are not finite. ---


@pytest.mark.parametrize("bad", [nan, inf, -inf])
def test_an_embedding_that_is_not_finite_is_neither_counted_nor_remembered(bad):
    good = sample(3, COLUMNS)
    partial = good.at[1, 2].set(bad)
    start = remember(*sample(6, COLUMNS, seed=1))
    expected, _ = compute(good[jnp.array([0, 2])], NEIGHBORS, 1.0, start)
    rewards, state = compute(partial, NEIGHBORS, 1.0, start)
    assert jnp.isnan(rewards[1])
    close(rewards[jnp.array([0, 2])], expected)
    assert state.distance_count == 2 * NEIGHBORS
    assert state.memory[7, 2] == inf  # So the row is empty.
    later, state = compute(good, NEIGHBORS, 1.0, state)
    assert jnp.all(jnp.isfinite(later))
    assert jnp.isfinite(state.distance_sum)


def test_gradients_are_finite_for_every_memory():
    def total(embeddings, memory):
        state = rlaxlib.IntrinsicRewardState(memory)
        rewards, _ = compute(embeddings, NEIGHBORS, 1.0, state)
        return jnp.sum(jnp.where(jnp.isfinite(rewards), rewards, 0))

    zeros = jnp.zeros((2, COLUMNS))
    direction = jnp.ones((SIZE, COLUMNS))
    for memory in (remember().memory, remember(*zeros).memory, sample(SIZE, COLUMNS)):
        for embeddings in (zeros, sample(2, COLUMNS, seed=1)):
            with jax.debug_nans(True):
                gradients = jax.grad(total, (0, 1))(embeddings, memory)
                tangents = jax.jvp(total, (embeddings, memory), (zeros + 1, direction))
            for each in (*gradients, *tangents):
                assert jnp.all(jnp.isfinite(each))
    partial = sample(2, COLUMNS, seed=1).at[0].set(nan)
    gradient = jax.grad(total)(partial, sample(SIZE, COLUMNS))
    assert jnp.all(jnp.isfinite(gradient))
    assert jnp.any(gradient[1] != 0)


# --- How it behaves under JAX. ---


def test_state_can_be_carried_through_a_scan():
    stream = sample(20, 2, COLUMNS)

    def step(state, embeddings):
        rewards, state = compute(embeddings, NEIGHBORS, 1.0, state)
        return state, rewards

    last, rewards = jax.lax.scan(step, remember(), stream)
    state = remember()
    for embeddings, expected in zip(stream, rewards, strict=True):
        actual, state = compute(embeddings, NEIGHBORS, 1.0, state)
        close(actual, expected)
    close(last.distance_sum, state.distance_sum)
    np.testing.assert_array_equal(last.memory, state.memory)


def test_each_actor_of_a_batch_has_its_own_memory():
    stream, memories = sample(4, 5, COLUMNS), sample(4, SIZE, COLUMNS, seed=1)

    def rewards(embeddings, memory):
        state = rlaxlib.IntrinsicRewardState(memory)
        return compute(embeddings, NEIGHBORS, 1.0, state)[0]

    together = jax.jit(jax.vmap(rewards))(stream, memories)
    for actor in range(4):
        close(together[actor], rewards(stream[actor], memories[actor]))


def test_half_precision_is_remembered_and_summed_in_single():
    embeddings = 300 * sample(3, COLUMNS).astype(jnp.float16)  # Squares overflow.
    rewards, state = compute(embeddings, NEIGHBORS, 1.0)
    assert rewards.dtype == state.memory.dtype == jnp.float16
    assert state.distance_sum.dtype == jnp.float32
    assert jnp.all(jnp.isfinite(rewards))
    assert jnp.isfinite(state.distance_sum)


def test_memory_keeps_its_dtype():
    state = rlaxlib.IntrinsicRewardState(sample(SIZE, COLUMNS).astype(jnp.bfloat16))
    with jax.numpy_dtype_promotion("standard"):
        rewards, after = compute(sample(3, COLUMNS, seed=1), NEIGHBORS, 1.0, state)
    assert rewards.dtype == jnp.float32
    assert after.memory.dtype == jnp.bfloat16


# --- Bad input. ---


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("num_neighbors", {"num_neighbors": SIZE + 1}),
        ("num_neighbors", {"num_neighbors": 0}),
        ("max_memory_size", {"max_memory_size": 0}),
        ("memory", {"max_memory_size": SIZE + 1}),
        ("memory", {"embeddings": jnp.ones((2, COLUMNS + 1))}),
        ("reward_scale", {"reward_scale": jnp.ones(3)}),
    ],
)
def test_rejects_bad_input(name, changed):
    arguments = {
        "embeddings": jnp.ones((2, COLUMNS)),
        "num_neighbors": 2,
        "reward_scale": 1.0,
        "intrinsic_reward_state": remember(),
    }
    message = f"^episodic_memory_intrinsic_rewards: `{name}` "
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        compute(**arguments | changed)
