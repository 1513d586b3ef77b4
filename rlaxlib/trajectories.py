"""Trajectory utilities: subsequences, interruptions, embedded transitions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from rlaxlib import arrays
from rlaxlib._core import checks
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Float, Int, Key, Shaped, Static

__all__ = [
    "embed_oar",
    "extract_subsequences",
    "fix_step_type_on_interruptions",
    "sample_start_indices",
]

_FIRST, _LAST = 0, 2  # Step types of dm_env. The type of all other steps is 1.


@checked(compiled=False)
def extract_subsequences(
    trajectories: Shaped[ArrayLike, "[T, B, ...] or [T, ...]"],
    start_indices: Int[ArrayLike, "[B, N] or [N]"],
    subsequence_len: Static[int, "in [1, T]"] = 1,
    max_valid_start_idx: Static[int, "in [0, inf)"] | None = None,
) -> Shaped[Array, "subsequence_len, *_"]:
    """Cut subsequences out of trajectories, from given start indices.

    Takes trajectories and start indices, returns one subsequence for each index.

    ::

        y_{l,b,n} = x_{s_{b,n}+l,b},   0 ≤ l < L

    `sample_start_indices` samples start indices. Subsequences may overlap.

    Args:
        trajectories: Trajectories :math:`x`, shape `[T, B, ...]`; or one trajectory,
            shape `[T, ...]`.
        start_indices: Start indices :math:`s`, in [0, T - L], shape `[B, N]`; or of one
            trajectory, shape `[N]`. A traced index outside gives NaN, or the most
            extreme integer where `trajectories` are integers.
        subsequence_len: Length :math:`L` of a subsequence, in [1, T].
        max_valid_start_idx: Largest start index allowed, in [0, inf); or None for T -
            L.

    Returns:
        Subsequences, shape `[L, B, N, ...]`; or, for one trajectory, `[L, N, ...]`.

    Raises:
        ArgumentError: If a shape, dtype, integer or NumPy index is wrong.

    Example:
        >>> stream, starts = jnp.array([0.0, 10.0, 20.0, 30.0]), jnp.array([0, 2])
        >>> print(rlaxlib.extract_subsequences(stream, starts, subsequence_len=2).T)
        [[ 0. 10.]
         [20. 30.]]

    References:
        Steven Kapturowski and others, *Recurrent Experience Replay in Distributed
        Reinforcement Learning*, 2019. https://openreview.net/forum?id=r1lyTjAqYX
    """
    shape = np.shape(trajectories)
    if len(shape) == 1 and np.ndim(start_indices) == 2:
        checks.fail(f"`trajectories` has shape {shape}, must be [T, B, ...]")
    last = shape[0] - subsequence_len
    if max_valid_start_idx is not None:
        valid = Int[ArrayLike, f"in [0, {last}]"]
        checks.fit(max_valid_start_idx=(max_valid_start_idx, valid))
        last = max_valid_start_idx
    checks.fit(start_indices=(start_indices, Int[ArrayLike, f"*_ in [0, {last}]"]))
    return _cut(trajectories, start_indices, subsequence_len, last)


@checked
def _cut(
    trajectories: Shaped[ArrayLike, "T, *_"],
    starts: Int[ArrayLike, "*_"],
    length: Static[int, ""],
    last: Static[int, ""],
) -> Shaped[Array, "*_"]:
    """Return subsequences, filled where a start is not in [0, last]."""
    starts = starts.astype(int)  # The end of a subsequence may not fit a uint8.
    is_inside = (starts >= 0) & (starts <= last)
    starts = jnp.where(is_inside, starts, trajectories.shape[0])

    def cut(trajectory: Array, starts: Array) -> Array:
        rows = jnp.arange(length)[:, None] + starts[None]
        return jnp.take(trajectory, rows, axis=0, mode="fill")

    if starts.ndim == 2:
        return jax.vmap(cut, in_axes=(1, 0), out_axes=1)(trajectories, starts)
    return cut(trajectories, starts)


@checked
def sample_start_indices(
    rng_key: Key[ArrayLike, ""],
    batch_size: Static[int, "in [1, inf)"] | None,
    num_start_indices: Static[int, "in [1, inf)"],
    max_valid_start_idx: Static[int, "in [0, inf)"],
) -> Int[Array, "[B, N] or [N]"]:
    """Sample start indices of subsequences, without replacement.

    Takes numbers of trajectories and indices, returns start indices.

    ::

        s_{b,1}, …, s_{b,N} ~ Uniform{0, …, s_max}   without replacement

    Args:
        rng_key: Random key, shape `[]`.
        batch_size: Number :math:`B` of trajectories, in [1, inf); or None for one.
        num_start_indices: Number :math:`N` of indices each, in [1, inf),
            :math:`s_max + 1` at most.
        max_valid_start_idx: Largest start index :math:`s_max`, in [0, inf): the length
            of a trajectory minus that of a subsequence.

    Returns:
        Start indices in random order, shape `[B, N]`; or, for one trajectory, `[N]`.

    Raises:
        ArgumentError: If `rng_key` is not a single key, or an integer out of range.

    Example:
        >>> starts = rlaxlib.sample_start_indices(jax.random.key(0), None, 3, 2)
        >>> print(sorted(starts.tolist()))
        [0, 1, 2]

    References:
        Steven Kapturowski and others, *Recurrent Experience Replay in Distributed
        Reinforcement Learning*, 2019. https://openreview.net/forum?id=r1lyTjAqYX
    """
    count = max_valid_start_idx + 1
    if num_start_indices > count:
        checks.fail(
            f"`num_start_indices` is {num_start_indices}, must be at most {count}"
        )

    def sample(key: Array) -> Array:
        return jax.random.choice(key, count, (num_start_indices,), replace=False)

    if batch_size is None:
        return sample(rng_key)
    return jax.vmap(sample)(jax.random.split(rng_key, batch_size))


@checked
def fix_step_type_on_interruptions(
    step_type: Int[ArrayLike, "[T] or [T, B] in [0, 3)"],
) -> Int[Array, "[T] or [T, B]"]:
    """Mark each step that is followed by a first step as a last step.

    Takes step types, returns step types of the same shape.

    ::

        y_t = { LAST   if x_{t+1} = FIRST
              { x_t    otherwise

    If an environment crashes or is reset, an episode may lack its last step. Its
    discount, which is not 0, distinguishes the interruption from termination. An
    episode interrupted after its first step becomes a single last step: reset recurrent
    states by the original step types.

    Args:
        step_type: Step types of dm_env, in [0, 3): 0 for the first step of an episode,
            2 for the last and 1 for others, shape `[T]`; or, for many trajectories,
            `[T, B]`.

    Returns:
        Step types, of the same shape. The last one is unchanged.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a NumPy step type out of range.

    Example:
        >>> print(rlaxlib.fix_step_type_on_interruptions(jnp.array([0, 1, 1, 0, 1])))
        [0 1 2 0 1]

    References:
        Alistair Muldal and others, *dm_env: A Python Interface for Reinforcement
        Learning Environments*, 2019. https://github.com/google-deepmind/dm_env
    """
    following = jnp.append(step_type[1:], jnp.full_like(step_type[:1], _LAST), axis=0)
    return jnp.where(following == _FIRST, _LAST, step_type)


@checked
def embed_oar(
    features: Float[ArrayLike, "..., D"],
    action: Int[ArrayLike, "... in [0, num_actions)"],
    reward: Float[ArrayLike, "..."],
    num_actions: Static[int, "in [1, inf)"],
) -> Float[Array, "..., F"]:
    """Embed an observation with the preceding action and reward (OAR).

    Takes one observation, action and reward, returns one vector.

    ::

        y = (x_1, …, x_D, 1[a = 1], …, 1[a = A], tanh r)

    A recurrent network can infer the task from its actions and rewards.

    Args:
        features: Features :math:`x` of the observation, shape `[..., D]`.
        action: Action :math:`a` before the observation, in [0, `num_actions`),
            shape `[...]`. A traced action outside gives a one-hot vector of NaN.
        reward: Reward :math:`r` before the observation, shape `[...]`.
        num_actions: Number :math:`A` of actions, in [1, inf).

    Returns:
        Features, one-hot action and transformed reward, shape `[..., D+A+1]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a NumPy action out of range.

    Example:
        >>> features = jnp.array([0.5, -0.5])
        >>> print(rlaxlib.embed_oar(features, action=1, reward=0.0, num_actions=3))
        [ 0.5 -0.5  0.   1.   0.   0. ]

    References:
        Steven Kapturowski and others, *Recurrent Experience Replay in Distributed
        Reinforcement Learning*, 2019. https://openreview.net/forum?id=r1lyTjAqYX
    """
    one_hot = arrays.one_hot(action, num_actions, features.dtype)
    exists = jnp.any(one_hot, axis=-1, keepdims=True)
    one_hot = jnp.where(exists, one_hot, jnp.nan)
    parts = [features, one_hot, jnp.expand_dims(jnp.tanh(reward), -1)]
    return jnp.concatenate(parts, axis=-1)
