"""Test episodic rewards: definition, memory, gradients, bad input."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close
from rows.exploration import episodic

import rlaxlib

SIZE, COLUMNS, NEIGHBORS = 12, 3, 4
inf = np.inf
eager = functools.partial(
    rlaxlib.episodic_memory_intrinsic_rewards, max_memory_size=SIZE
)
compute = jax.jit(eager, static_argnums=1)
DEFAULTS = {
    "constant": 1e-3,
    "epsilon": 1e-4,
    "cluster_distance": 8e-3,
    "max_similarity": 8.0,
}


def sample(*shape, seed=0, scale=1.0):
    x = np.random.default_rng(seed).normal(scale=scale, size=shape)
    return np.float32(x)


def remember(*rows):
    """Make a memory with these rows, the others empty."""
    memory = np.full((SIZE, COLUMNS), inf, np.float32)
    if rows:
        memory[: len(rows)] = rows
    return rlaxlib.IntrinsicRewardState(memory, next_memory_index=len(rows))


def define(embeddings, state, neighbors=NEIGHBORS):
    """Compute rewards by the definition in NumPy, for a memory without empty rows."""
    memory = np.asarray(state.memory, np.float64)
    return episodic.episodic_memory_intrinsic_rewards(
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
        expected, (memory, _, distance_sum, count, _) = define(embeddings, state)
        rewards, state = compute(embeddings, NEIGHBORS, 1.0, state)
        np.testing.assert_allclose(rewards, expected, rtol=1e-4)
        np.testing.assert_allclose(state.distance_sum, distance_sum, rtol=1e-5)
        np.testing.assert_array_equal(state.memory, np.asarray(memory, np.float32))
        assert state.distance_count == count
        assert state.distance_sum > 0


def test_first_states_are_compared_with_the_origin_as_in_rlax():
    rewards, state = compute(np.float32([[0.01]]), 1, 1.0)
    close(rewards, [28.004454])  # 1 / (sqrt(1e-4 / (1 / 11 - 8e-3 + 1e-4)) + 1e-3).
    close(state.distance_sum, 1e-4, atol=0)
    rewards, state = compute(np.zeros((2, COLUMNS), np.float32), NEIGHBORS, 1.0)
    close(rewards, 1 / (np.sqrt(NEIGHBORS) + 1e-3))
    assert state.distance_sum == 0
    np.testing.assert_array_equal(state.memory[:NEIGHBORS], 0.0)
    np.testing.assert_array_equal(state.memory[NEIGHBORS:], inf)


def test_reward_falls_with_the_number_of_visits():
    state = remember(*[[0, 0, 0]] * 5, [5, 5, 5], [-5, 5, 0], [7, -7, 7])
    embeddings = np.float32([[0, 0, 0], [5, 5, 5], [-20, 30, 10]])
    rewards, _ = compute(embeddings, NEIGHBORS, 1.0, state)
    assert rewards[0] < rewards[1] < rewards[2]
    close(rewards[0], 1 / (np.sqrt(NEIGHBORS) + 1e-3))


def test_empty_rows_are_not_neighbors():
    rows = sample(2, COLUMNS)
    embeddings = sample(3, COLUMNS, seed=1)
    full = rlaxlib.IntrinsicRewardState(rows)
    small = jax.jit(lambda x, state: eager(x, 2, 1.0, state, max_memory_size=2)[0])
    expected = small(embeddings, full)
    rewards, state = compute(embeddings, NEIGHBORS, 1.0, remember(*rows))
    close(rewards, expected)
    assert state.distance_count == 6
    assert np.isfinite(state.distance_sum)
    np.testing.assert_array_equal(state.memory[:2], rows)
    np.testing.assert_array_equal(state.memory[2:5], embeddings)
    np.testing.assert_array_equal(state.memory[5:], inf)


def test_reward_is_largest_without_neighbors():
    rewards, state = compute(sample(3, COLUMNS), NEIGHBORS, 0.5, remember())
    close(rewards, 500.0)
    assert state.distance_sum == 0
    assert state.distance_count == 0


def test_at_the_end_of_its_count_the_mean_distance_is_that_of_the_latest():
    memory = sample(SIZE, COLUMNS)
    state = rlaxlib.IntrinsicRewardState(memory, distance_sum=np.float32(500))
    embeddings = sample(5, COLUMNS, seed=1)

    def after(count):
        counted = state._replace(distance_count=count)
        return compute(embeddings, NEIGHBORS, 1.0, counted)[1]

    whole, small = after(np.int32(125)), after(np.int8(125))
    assert small.distance_count == 127 < whole.distance_count
    left_out = 500 / 125 * (int(whole.distance_count) - 127)
    close(small.distance_sum, whole.distance_sum - left_out, rtol=1e-6)


def test_memory_is_a_ring_buffer():
    state = remember()
    for step in range(5):
        embeddings = np.full((5, COLUMNS), step, np.float32)
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
    same = np.zeros((1, COLUMNS), np.float32)
    for neighbors, rewarded in ((63, True), (64, False)):
        wide = jax.jit(lambda x, k=neighbors: eager(x, k, 1.0, max_memory_size=64)[0])
        assert (wide(same) > 0) == rewarded
    rewards, _ = compute(same, 1, 1.0, max_similarity=1.0)
    assert rewards == 0
    rewards, _ = compute(same, 1, 1.0, max_similarity=inf)
    assert rewards > 0


def test_constant_may_be_zero_if_there_are_neighbors():
    def total(embeddings):
        return jnp.sum(compute(embeddings, NEIGHBORS, 1.0, constant=0.0)[0])

    with jax.debug_nans(True):
        zeros = np.zeros((1, COLUMNS), np.float32)
        value, gradient = jax.jit(jax.value_and_grad(total))(zeros)
    close(value, 0.5)
    np.testing.assert_array_equal(gradient, 0.0)


def test_each_embedding_may_have_its_own_scale():
    embeddings, state = sample(3, COLUMNS), remember(*sample(6, COLUMNS, seed=1))
    one, _ = compute(embeddings, NEIGHBORS, 1.0, state)
    scales = np.float32([0, 1, 2])
    each, _ = compute(embeddings, NEIGHBORS, scales, state)
    close(each, one * scales)


def test_gradients_are_finite_for_every_memory():
    def total(embeddings, memory):
        state = rlaxlib.IntrinsicRewardState(memory)
        rewards, _ = compute(embeddings, NEIGHBORS, 1.0, state)
        return jnp.sum(jnp.where(jnp.isfinite(rewards), rewards, 0))

    @jax.jit
    def derivatives(embeddings, memory):
        ones = jnp.ones_like(embeddings), jnp.ones_like(memory)
        gradients = jax.grad(total, (0, 1))(embeddings, memory)
        return gradients, jax.jvp(total, (embeddings, memory), ones)

    zeros = np.zeros((2, COLUMNS), np.float32)
    for memory in (remember().memory, remember(*zeros).memory, sample(SIZE, COLUMNS)):
        for embeddings in (zeros, sample(2, COLUMNS, seed=1)):
            with jax.debug_nans(True):
                found = derivatives(embeddings, memory)
            for each in jax.tree.leaves(found):
                assert np.isfinite(each).all()


# --- How it behaves under JAX. ---


def test_state_can_be_carried_through_a_scan():
    stream = sample(20, 2, COLUMNS)

    def step(state, embeddings):
        rewards, state = compute(embeddings, NEIGHBORS, 1.0, state)
        return state, rewards

    last, rewards = jax.jit(lambda x: jax.lax.scan(step, remember(), x))(stream)
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
    for one, *alone in zip(together, stream, memories, strict=True):
        close(one, rewards(*alone))


def test_half_precision_is_remembered_and_summed_in_single():
    embeddings = np.float16(300 * sample(3, COLUMNS))  # Squares overflow.
    rewards, state = compute(embeddings, NEIGHBORS, 1.0)
    assert rewards.dtype == state.memory.dtype == jnp.float16
    assert state.distance_sum.dtype == jnp.float32
    assert np.isfinite(rewards).all()
    assert np.isfinite(state.distance_sum)


def test_double_precision_of_numpy_is_read_in_single():
    rewards, state = rlaxlib.episodic_memory_intrinsic_rewards(np.ones((2, 3)), 1, 1.0)
    assert rewards.dtype == state.memory.dtype == np.float32  # Without a warning.


def test_memory_keeps_its_dtype():
    state = rlaxlib.IntrinsicRewardState(jnp.bfloat16(sample(SIZE, COLUMNS)))
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
        ("intrinsic_reward_state.memory", {"max_memory_size": SIZE + 1}),
        (
            "intrinsic_reward_state.memory",
            {"embeddings": np.ones((2, COLUMNS + 1), np.float32)},
        ),
        ("reward_scale", {"reward_scale": np.ones(3, np.float32)}),
    ],
)
def test_rejects_bad_input(name, changed):
    arguments = {
        "embeddings": np.ones((2, COLUMNS), np.float32),
        "num_neighbors": 2,
        "reward_scale": 1.0,
        "intrinsic_reward_state": remember(),
    }
    message = f"^episodic_memory_intrinsic_rewards: `{name}` "
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        eager(**arguments | changed)
