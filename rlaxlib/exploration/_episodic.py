"""Episodic intrinsic rewards for novel states, as in Never Give Up (NGU)."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlaxlib._core import checks, meshes, moments, safe
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Float, Int, Real, Static
from rlaxlib.exploration import _shared

__all__ = ["IntrinsicRewardState", "episodic_memory_intrinsic_rewards"]


class IntrinsicRewardState(NamedTuple):
    """Episodic memory and running mean distance of an agent.

    Attributes:
        memory: Embeddings of the states seen, shape `[N, D]`. Rows of infinity are
            empty: `IntrinsicRewardState(jnp.full((N, D), jnp.inf))` has no memory.
        next_memory_index: Row to write next, shape `[]`.
        distance_sum: Sum of all squared distances, in single precision, shape `[]`.
        distance_count: Number of these distances, shape `[]`. At the largest number of
            its dtype it stops, and the sum is of as many distances.
        distance_sum_rest: Rounding error of `distance_sum`, shape `[]`. Without it, the
            sum would stop after some hundred million distances.
    """

    memory: Float[ArrayLike, "N, D"]
    next_memory_index: Int[ArrayLike, ""] = 0
    distance_sum: Real[ArrayLike, ""] = np.float32(0)
    distance_count: Int[ArrayLike, ""] = 0
    distance_sum_rest: Real[ArrayLike, ""] = np.float32(0)


@checked(compiled=False)
def episodic_memory_intrinsic_rewards(
    embeddings: Float[ArrayLike, "T, D"],
    num_neighbors: Static[int, "in [1, inf)"],
    reward_scale: Float[ArrayLike, "[] or [T] in [0, inf)"],
    intrinsic_reward_state: IntrinsicRewardState | None = None,
    constant: Float[ArrayLike, "in [0, inf)"] = 1e-3,
    epsilon: Float[ArrayLike, "in (0, inf)"] = 1e-4,
    cluster_distance: Float[ArrayLike, "in [0, inf)"] = 8e-3,
    max_similarity: Float[ArrayLike, "in (0, inf]"] = 8.0,
    max_memory_size: Static[int, "in [1, inf)"] = 30_000,
) -> tuple[Float[Array, "T"], IntrinsicRewardState]:
    """Compute the episodic novelty rewards of Never Give Up (NGU).

    Takes one trajectory and a state, returns its rewards and the next state.

    ::

        r = { β/s   if s ≤ s_max
            { 0     otherwise
        s = √(∑_{k=1}^K ε / (ρ_k + ε)) + c,
        ρ_k = max(d_k² / (d_m² + c) - ξ, 0)

    with the distances :math:`d_k` of an embedding to its nearest neighbours in memory,
    and the mean :math:`d_m²` of all their squares so far, including this call. The
    square root is a soft count of visits: a neighbour with :math:`d_k² < ξ (d_m² + c)`
    is the same state and counts 1.

    All embeddings of a call are compared with the memory as it was, then replace its
    oldest rows. Empty rows are not neighbours; without neighbours, the reward is
    :math:`β/c`. A state of None therefore starts with `num_neighbors` embeddings at the
    origin, which are overwritten first. Reset the state at the start of an episode.
    In Never Give Up, multiply the reward by lifelong novelty, clipped to [1, 5].

    Args:
        embeddings: Embeddings, shape `[T, D]`.
        num_neighbors: Number :math:`K` of neighbours, in [1, inf) and at most
            `max_memory_size`.
        reward_scale: Scale :math:`β`, in [0, inf), shape `[]`; or that of each
            embedding, shape `[T]`.
        intrinsic_reward_state: The state of the previous call; or None to start.
        constant: Constant :math:`c` that avoids division by 0, in [0, inf), shape `[]`.
        epsilon: Constant :math:`ε` of the kernel, in (0, inf); a smaller one rewards
            novelty more, shape `[]`.
        cluster_distance: Squared distance :math:`ξ`, in [0, inf), relative to the mean,
            within which two states are the same, shape `[]`.
        max_similarity: Similarity :math:`s_max` above which the reward is 0,
            in (0, inf], shape `[]`; as :math:`s ≤ √K + c`, the default has an effect
            from 64 neighbours on.
        max_memory_size: Number :math:`N` of rows of the memory, in [1, inf).

    Returns:
        Rewards, shape `[T]`, and the next state. Its memory keeps its dtype.

    Raises:
        ArgumentError: If a shape, dtype, integer or concrete value is wrong.

    Example:
        >>> memory = jnp.array([[0.0, 0.0], [0.0, 0.0], [jnp.inf, jnp.inf]])
        >>> state = rlaxlib.IntrinsicRewardState(memory, next_memory_index=2)
        >>> embeddings = jnp.array([[0.0, 0.0], [3.0, 4.0]])
        >>> print(rlaxlib.episodic_memory_intrinsic_rewards(
        ...     embeddings, 2, 1.0, state, max_memory_size=3)[0].round(2))
        [ 0.71 90.74]

    References:
        Adrià Puigdomènech Badia and others, *Never Give Up: Learning Directed
        Exploration Strategies*, appendix A.1, 2020. https://arxiv.org/abs/2002.06038
    """
    if num_neighbors > max_memory_size:
        must = f"must be at most `max_memory_size`, {max_memory_size}"
        checks.fail(f"`num_neighbors` is {num_neighbors}, {must}")
    shape = (max_memory_size, embeddings.shape[1])
    state = intrinsic_reward_state
    if state is None:
        memory = jnp.full(shape, jnp.inf, jnp.result_type(embeddings))
        state = IntrinsicRewardState(memory.at[:num_neighbors].set(0))
    if state.memory.shape != shape:
        found = f"`intrinsic_reward_state.memory` has shape {state.memory.shape}"
        checks.fail(f"{found}, must be {shape} to match `max_memory_size`")
    numbers = reward_scale, constant, epsilon, cluster_distance, max_similarity
    return _rewards(state, embeddings, num_neighbors, *numbers)


@checked
def _rewards(
    state: IntrinsicRewardState,
    embeddings: Float[ArrayLike, "T, D"],
    num_neighbors: Static[int, ""],
    beta: Float[ArrayLike, "[] or [T]"],
    c: Float[ArrayLike, ""],
    epsilon: Float[ArrayLike, ""],
    xi: Float[ArrayLike, ""],
    s_max: Float[ArrayLike, ""],
) -> tuple[Float[Array, "T"], IntrinsicRewardState]:
    """Return the rewards and the next state."""
    negated, _ = _shared.nearest(state.memory, embeddings, num_neighbors)
    is_found = jnp.isfinite(negated)  # Empty rows are not.
    squares = jnp.where(is_found, -negated, 0)  # d_k²
    total, rest, count = _accumulate(state, squares, is_found)
    scale = total / jnp.maximum(count, 1).astype(total.dtype) + c
    rho = jax.nn.relu(safe.divide(squares, scale) - xi)
    kernel = jnp.where(is_found, epsilon / (rho + epsilon), 0)
    s = safe.sqrt(jnp.sum(kernel, axis=-1)) + c
    rewards = jnp.where(s > s_max, 0, beta / s)
    memory, index = _remember(state, embeddings)
    state = IntrinsicRewardState(memory, index, total, count, rest)
    return rewards, state


def _accumulate(
    state: IntrinsicRewardState, squares: Array, is_found: Array
) -> tuple[Array, Array, Array]:
    """Return the sum of all squared distances, its rounding error, and their number."""
    count = state.distance_count
    number = jnp.sum(is_found, dtype=count.dtype)
    counted = jnp.minimum(number, jnp.iinfo(count.dtype).max - count)
    # What a count at its end leaves out is replaced: the mean is of the latest ones.
    dtype = state.distance_sum.dtype
    mean = state.distance_sum / jnp.maximum(count, 1).astype(dtype)
    added = jnp.sum(squares) - (number - counted).astype(dtype) * mean
    total, rest = moments.add(state.distance_sum, state.distance_sum_rest, added)
    return total, rest, count + counted


def _remember(state: IntrinsicRewardState, embeddings: Array) -> tuple[Array, Array]:
    """Write embeddings over the oldest rows, and return the memory and next index."""
    size, new = len(state.memory), len(embeddings)
    kept = min(new, size)  # The last embeddings, as no row may be written twice.
    rows, start = embeddings[new - kept :], state.next_memory_index
    memory = meshes.write(state.memory, rows, (start + (new - kept)) % size)
    return memory, (start + new) % size
