"""Reward an agent for states that it has not yet seen in this episode."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from rlaxlib._core import checks, dtypes
from rlaxlib.exploration._neighbors import comparable, nearest

__all__ = ["IntrinsicRewardState", "episodic_memory_intrinsic_rewards"]


class IntrinsicRewardState(NamedTuple):
    """What an agent remembers of an episode.

    Attributes:
        memory: Embeddings of the states seen, shape `[N, D]`. A row that is not finite
            is empty. `IntrinsicRewardState(jnp.full((N, D), jnp.inf))` remembers
            nothing.
        next_memory_index: Row that is written next, shape `[]`.
        distance_sum: Sum of the squared distances to all neighbours so far, in single
            precision at least, shape `[]`.
        distance_count: How many distances that were, shape `[]`.
    """

    memory: ArrayLike
    next_memory_index: ArrayLike = 0
    distance_sum: ArrayLike = 0.0
    distance_count: ArrayLike = 0


def episodic_memory_intrinsic_rewards(
    embeddings: ArrayLike,
    num_neighbors: int,
    reward_scale: ArrayLike,
    intrinsic_reward_state: IntrinsicRewardState | None = None,
    constant: ArrayLike = 1e-3,
    epsilon: ArrayLike = 1e-4,
    cluster_distance: ArrayLike = 8e-3,
    max_similarity: ArrayLike = 8.0,
    max_memory_size: int = 30_000,
) -> tuple[Array, IntrinsicRewardState]:
    """Reward states that are unlike those of the same episode (Never Give Up).

    .. math::

        r = { β/s   if s ≤ s_max
            { 0     otherwise
        s = √(∑_{k=1}^K ε / (ρ_k + ε)) + c,
        ρ_k = max(d_k² / (d_m² + c) - ξ, 0)

    with the distances :math:`d_k` of an embedding to its nearest neighbours in memory,
    and the mean :math:`d_m²` of all their squares so far, those of this call included.
    The root counts, softly, how often a state was seen: a neighbour closer than
    :math:`√ξ` average distances is the same state, and adds 1. So the reward is about
    :math:`β/√K` where nothing is new, and about :math:`β/(√(K ε) + c)` where everything
    is.

    All embeddings of a call are compared with the memory as it was, then all are
    remembered, the oldest being overwritten. Reset the state, to None or to an empty
    one, where an episode begins. NGU multiplies the reward by the novelty of the state
    over all episodes, clipped to [1, 5].

    Rows of memory that are not finite are empty: they are no neighbours, and do not
    count. Without neighbours the reward is :math:`β/c`, which is large. So, as in rlax,
    a state of None begins with `num_neighbors` embeddings at the origin, which the
    first ones replace: there, they make a new state worth what it is later.

    Args:
        embeddings: Embeddings of the new states, shape `[M, D]`. One that is not finite
            gets a reward of NaN, and is neither counted nor remembered.
        num_neighbors: Number :math:`K` of neighbours to look at, at least 1 and at most
            `max_memory_size`. A Python integer, so under `jax.jit` it is to be static.
        reward_scale: Scale :math:`β` of the rewards, shape `[]`; or one for each
            embedding, shape `[M]`.
        intrinsic_reward_state: What this returned for the states before; or None at the
            start.
        constant: Constant :math:`c` that keeps divisors away from 0, at least 0,
            shape `[]`.
        epsilon: Constant :math:`ε` of the kernel, more than 0: the smaller, the more a
            new state is worth beside a known one, shape `[]`.
        cluster_distance: Distance :math:`ξ`, squared and relative to the mean, within
            which two states are the same, at least 0, shape `[]`.
        max_similarity: Similarity :math:`s_max` beyond which there is no reward, more
            than 0. No similarity is larger than :math:`√K + c`, so the default, which
            is NGU's, matters from 64 neighbours on, shape `[]`.
        max_memory_size: How many embeddings to remember, the number of rows of the
            memory.

    Returns:
        Rewards, shape `[M]`, and the state for the next call. Its memory keeps its
        dtype.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype or lies out of its
            range, or if the state is not one of `max_memory_size` embeddings of this
            size.

    Example:
        >>> reward = rlaxlib.episodic_memory_intrinsic_rewards
        >>> memory = jnp.array([[0.0, 0.0], [0.0, 0.0], [jnp.inf, jnp.inf]])
        >>> state = rlaxlib.IntrinsicRewardState(memory, next_memory_index=2)
        >>> embeddings = jnp.array([[0.0, 0.0], [3.0, 4.0]])
        >>> rewards, state = reward(embeddings, 2, 1.0, state, max_memory_size=3)
        >>> print(rewards.round(2))
        [ 0.71 90.74]
        >>> print(state.distance_sum, state.distance_count, state.next_memory_index)
        50.0 4 1

    References:
        Adrià Puigdomènech Badia and others, *Never Give Up: Learning Directed
        Exploration Strategies*, appendix A.1, 2020. https://arxiv.org/abs/2002.06038

        Adrià Puigdomènech Badia and others, *Agent57: Outperforming the Atari Human
        Benchmark*, 2020. https://arxiv.org/abs/2003.13350
    """
    embeddings, reward_scale, constant, epsilon, cluster_distance, max_similarity = (
        checks.arrays(
            embeddings=(embeddings, "float[M, D]"),
            reward_scale=(reward_scale, "float[] or [M]"),
            constant=(constant, "float[]"),
            epsilon=(epsilon, "float[]"),
            cluster_distance=(cluster_distance, "float[]"),
            max_similarity=(max_similarity, "float[]"),
        )
    )
    checks.static_int(1, max_memory_size=max_memory_size)
    checks.static_int(1, max_memory_size, num_neighbors=num_neighbors)
    checks.within("[0, inf)", constant=constant, cluster_distance=cluster_distance)
    checks.within("(0, inf)", epsilon=epsilon)
    checks.within("(0, inf]", max_similarity=max_similarity)
    state = _read(intrinsic_reward_state, embeddings, num_neighbors, max_memory_size)
    (memory, wide, beta, c, eps, xi, s_max), narrow = dtypes.widen(
        state.memory,
        embeddings,
        reward_scale,
        constant,
        epsilon,
        cluster_distance,
        max_similarity,
    )
    memory, points = comparable(memory, wide)
    negated, _ = nearest(memory, points, num_neighbors)
    found = jnp.isfinite(negated)
    squares = jnp.where(found, -negated, 0)
    total = state.distance_sum.astype(squares.dtype) + jnp.sum(squares)
    count = state.distance_count + jnp.sum(found, dtype=state.distance_count.dtype)
    mean = total / jnp.maximum(count, 1).astype(total.dtype)
    scale = mean + c
    rates = squares / jnp.where(scale > 0, scale, 1)
    rates = jnp.where(rates > xi, rates - xi, 0)
    kernel = jnp.where(found, eps / (rates + eps), 0)
    # A root of 0 has no slope; what is added to it here is lost in rounding.
    least = float(np.finfo(kernel.dtype).tiny)
    similarity = jnp.sqrt(jnp.maximum(jnp.sum(kernel, axis=-1), least)) + c
    rewards = jnp.where(similarity > s_max, 0, beta / similarity)
    finite = jnp.all(jnp.isfinite(embeddings), axis=-1)
    rewards = narrow(jnp.where(finite, rewards, jnp.nan))
    memory, index = _remember(state, embeddings)
    return rewards, IntrinsicRewardState(memory, index, total, count)


class _State(NamedTuple):
    """A state whose entries are arrays."""

    memory: Array
    next_memory_index: Array
    distance_sum: Array
    distance_count: Array


def _read(state: Any, embeddings: Array, padding: int, size: int) -> _State:
    """Check a state, or make the first one."""
    columns = embeddings.shape[-1]
    if state is None:
        shape, dtype = (size, columns), embeddings.dtype
        empty = jax.lax.broadcasted_iota(jnp.int32, shape, 0) >= padding
        state = IntrinsicRewardState(jnp.where(empty, jnp.inf, 0).astype(dtype))
    return _State(
        *checks.arrays(
            memory=(state.memory, f"float[{size}, {columns}]"),
            next_memory_index=(state.next_memory_index, "int[]"),
            distance_sum=(state.distance_sum, "any[]"),
            distance_count=(state.distance_count, "any[]"),
        )
    )


def _remember(state: _State, embeddings: Array) -> tuple[Array, Array]:
    """Write embeddings over the oldest in memory, and say where to go on."""
    memory, start = state.memory, state.next_memory_index
    size, new = len(memory), len(embeddings)
    kept = min(new, size)  # Of more than there is room for, the last ones.
    rows = embeddings[new - kept :].astype(memory.dtype)
    rows = jnp.where(jnp.isfinite(rows), rows, jnp.inf)  # Not finite, so empty.
    order = jnp.arange(new - kept, new, dtype=start.dtype)
    memory = memory.at[(start + order) % size].set(
        rows, unique_indices=True, mode="promise_in_bounds"
    )
    return memory, (start + new) % size
