"""Cut, mark and embed stretches of experience.

What happens to experience between the environment and the network: windows are cut out
of long streams, breaks in them are marked, and what an agent saw, did and got becomes
one vector.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from rlaxlib import arrays
from rlaxlib._core import checks, dtypes

__all__ = [
    "embed_oar",
    "extract_subsequences",
    "fix_step_type_on_interruptions",
    "sample_start_indices",
]

_FIRST, _LAST = 0, 2  # Step types of dm_env; between the two, 1, is a step midway.
_FEW = 64  # Draws that are faster one after the other than by sorting.
_TAKEN = np.uint32(2**32 - 1)  # A word larger than that of any number left to draw.


def extract_subsequences(
    trajectories: ArrayLike,
    start_indices: ArrayLike,
    subsequence_len: int = 1,
    max_valid_start_idx: int | None = None,
) -> Array:
    """Cut windows out of streams, each from a start of its own.

    .. math::

        y_{l,b,n} = x_{s_{b,n}+l,b},   0 ≤ l < L

    Windows may overlap. `sample_start_indices` draws starts for them, with
    `max_valid_start_idx` at most :math:`T - L`.

    Args:
        trajectories: Streams :math:`x`, time first, shape `[T, B, ...]`; or one stream,
            without the axis `B`.
        start_indices: Where windows start, :math:`s`, each in [0, T - L],
            shape `[B, N]`; or, in one stream, shape `[N]`. A traced start beyond that
            gives a window of NaN (or of the most extreme integer, where the streams are
            of integers): it is never moved to another place.
        subsequence_len: Length :math:`L` of a window, from 1 to T.
        max_valid_start_idx: Largest start allowed, at most T - L; or None for T - L.

    Returns:
        Windows, time first, shape `[L, B, N, ...]`; or, of one stream, `[L, N, ...]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if a start whose
            value is known lies outside its range, or if the streams are too short.

    Example:
        >>> stream = jnp.array([0.0, 10.0, 20.0, 30.0])
        >>> print(rlaxlib.extract_subsequences(stream, jnp.array([0, 2]), 2))
        [[ 0. 20.]
         [10. 30.]]

    References:
        Steven Kapturowski, Georg Ostrovski, John Quan, Remi Munos and Will Dabney,
        *Recurrent Experience Replay in Distributed Reinforcement Learning*, 2019.
        https://openreview.net/forum?id=r1lyTjAqYX
    """
    batched = np.ndim(start_indices) == 2
    trajectories, start_indices = checks.arrays(
        trajectories=(trajectories, "any[T, B, ...]" if batched else "any[T, ...]"),
        start_indices=(start_indices, "int[B, N] or [N]"),
    )
    steps = trajectories.shape[0]
    checks.static_int(1, steps, subsequence_len=subsequence_len)
    last = steps - subsequence_len
    if max_valid_start_idx is not None:
        checks.static_int(0, max_valid_start_idx=max_valid_start_idx)
        if max_valid_start_idx > last:
            checks.fail(
                "`trajectories` is too short. Expected len >= "
                f"{max_valid_start_idx + subsequence_len}, which is "
                f"`max_valid_start_idx` + `subsequence_len`, but it is {steps}"
            )
        last = max_valid_start_idx
    checks.indices(start_indices=(start_indices, last + 1))

    start = start_indices.astype(int)  # Wide enough for the end of a window as well.
    valid = (start >= 0) & (start <= last)
    offsets = jnp.arange(subsequence_len).reshape(-1, *[1] * start.ndim)
    rows = offsets + jnp.where(valid, start, 0)[None]
    streams = (jnp.arange(start.shape[0])[None, :, None],) if batched else ()
    windows = trajectories.at[(rows, *streams)].get(mode="clip")
    valid = arrays.lhs_broadcast(valid[None], windows)
    return jnp.where(valid, windows, _nothing(windows.dtype))


def sample_start_indices(
    rng_key: ArrayLike,
    batch_size: int | None,
    num_start_indices: int,
    max_valid_start_idx: int,
) -> Array:
    """Draw starts of windows, no two of a stream the same.

    .. math::

        s_{b,1}, …, s_{b,N} ~ Uniform{0, …, s_max}   without replacement

    Args:
        rng_key: Random key, shape `[]`.
        batch_size: Number :math:`B` of streams; or None for one.
        num_start_indices: Number :math:`N` of starts in each stream, at most
            :math:`s_max + 1`.
        max_valid_start_idx: Largest start :math:`s_max`: the length of a stream less
            that of a window.

    Returns:
        Starts, in random order, shape `[B, N]`; or, of one stream, `[N]`.

    Raises:
        ArgumentError: If `rng_key` is no single key, if a number is not a Python
            integer, or if there are fewer starts than are to be drawn.

    Example:
        >>> starts = rlaxlib.sample_start_indices(jax.random.key(0), None, 3, 2)
        >>> print(sorted(starts.tolist()))
        [0, 1, 2]

    References:
        Steven Kapturowski, Georg Ostrovski, John Quan, Remi Munos and Will Dabney,
        *Recurrent Experience Replay in Distributed Reinforcement Learning*, 2019.
        https://openreview.net/forum?id=r1lyTjAqYX
    """
    (rng_key,) = checks.arrays(rng_key=(rng_key, "key[]"))
    checks.static_int(0, max_valid_start_idx=max_valid_start_idx)
    count = max_valid_start_idx + 1
    checks.static_int(1, count, num_start_indices=num_start_indices)

    def draw(key: Array) -> Array:
        return _compiled(key, count, num_start_indices)

    if batch_size is None:
        return draw(rng_key)
    checks.static_int(1, batch_size=batch_size)
    return jax.vmap(draw)(jax.random.split(rng_key, batch_size))


def fix_step_type_on_interruptions(step_type: ArrayLike) -> Array:
    """Mark as last each step that a first one follows.

    .. math::

        y_t = { LAST   if x_{t+1} = FIRST
              { x_t    otherwise

    Where an environment crashes or is started anew, the last step of an episode may be
    missing: a step midway is followed by a first one, to which it does not lead. Once
    it is marked as last, whoever cuts streams after last steps does so here as well. It
    is the discount that tells an interruption, where it is not 0, from the end of an
    episode.

    An episode that is interrupted right after its first step becomes one last step: no
    decision was made in it. Reset a recurrent state by the step types as they came.

    Args:
        step_type: Step types of dm_env, 0 for the first step of an episode, 1 for one
            midway, 2 for the last, time first, shape `[T]` or, of many streams,
            `[T, B]`.

    Returns:
        Step types, of the same shape. The last row stays as it is, since what follows
        is not known.

    Raises:
        ArgumentError: If `step_type` has the wrong shape or dtype, or holds something
            other than 0, 1 and 2.

    Example:
        >>> step_type = jnp.array([0, 1, 1, 0, 1])
        >>> print(rlaxlib.fix_step_type_on_interruptions(step_type))
        [0 1 2 0 1]

    References:
        Alistair Muldal and others, *dm_env: A Python Interface for Reinforcement
        Learning Environments*, 2019. https://github.com/google-deepmind/dm_env

        Fabio Pardo, Arash Tavakoli, Vitaly Levdik and Petar Kormushev, *Time Limits in
        Reinforcement Learning*, 2017. https://arxiv.org/abs/1712.00378
    """
    (step_type,) = checks.arrays(step_type=(step_type, "int[T] or [T, B]"))
    checks.indices(step_type=(step_type, 3))
    following = jnp.append(step_type[1:], jnp.full_like(step_type[:1], _LAST), axis=0)
    # No step is later than the last. A choice would take a CPU three times as long.
    return jnp.maximum(step_type, jnp.where(following == _FIRST, _LAST, _FIRST))


def embed_oar(
    features: ArrayLike, action: ArrayLike, reward: ArrayLike, num_actions: int
) -> Array:
    """Join an observation with the action and the reward that led to it.

    .. math::

        y = (x_1, …, x_D, 1[a = 1], …, 1[a = A], tanh r)

    A recurrent network that sees what it did and what came of it can find out what
    task it is in. The hyperbolic tangent keeps large rewards from drowning the rest.

    Args:
        features: Features of the observation, shape `[..., D]`.
        action: Action that led to it, in [0, A), shape `[...]`. A traced one beyond
            that gives NaN in place of its marks.
        reward: Reward that came with it, shape `[...]`.
        num_actions: Number :math:`A` of actions, at least 1.

    Returns:
        Features, marks of the action and squashed reward, shape `[..., D+A+1]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if an action
            whose value is known is none of the A.

    Example:
        >>> features = jnp.array([0.5, -0.5])
        >>> print(rlaxlib.embed_oar(features, action=1, reward=0.0, num_actions=3))
        [ 0.5 -0.5  0.   1.   0.   0. ]

    References:
        Jane X. Wang and others, *Learning to Reinforcement Learn*, 2016.
        https://arxiv.org/abs/1611.05763

        Steven Kapturowski, Georg Ostrovski, John Quan, Remi Munos and Will Dabney,
        *Recurrent Experience Replay in Distributed Reinforcement Learning*, 2019.
        https://openreview.net/forum?id=r1lyTjAqYX
    """
    features, action, reward = checks.arrays(
        features=(features, "float[..., D]"),
        action=(action, "int[...]"),
        reward=(reward, "float[...]"),
    )
    checks.static_int(1, num_actions=num_actions)
    checks.indices(action=(action, num_actions))
    (features, reward), narrow = dtypes.widen(features, reward)
    dtype = jnp.result_type(features, reward)
    marks = arrays.one_hot(action, num_actions, dtype)
    exists = ((action >= 0) & (action < num_actions))[..., None]
    marks = jnp.where(exists, marks, jnp.nan)
    parts = features.astype(dtype), marks, jnp.tanh(reward)[..., None].astype(dtype)
    return narrow(jnp.concatenate(parts, axis=-1))


def _draw(key: Array, count: int, size: int) -> Array:
    """Draw whole numbers below `count`, no two the same.

    Each number gets a random word, and those with the smallest words are drawn. So the
    draws are the first entries of a shuffle by `jax.random`, if it needs one round
    (below 1,626 numbers): it sorts by the same words.

    Args:
        key: Random key.
        count: How many numbers there are.
        size: How many to draw, at most `count`.

    Returns:
        The numbers drawn, shape `[size]`.
    """
    _, key = jax.random.split(key)
    words = jax.random.bits(key, (count,), jnp.uint32)
    words = jnp.minimum(words, _TAKEN - np.uint32(1))  # None is as if taken.
    if size > _FEW:
        drawn = jax.lax.top_k(~words, size)[1]
    else:
        _, drawn = jax.lax.scan(_take_smallest, words, length=size)
    return drawn.astype(int)


# Compiled as one, so that a call outside of jit, too, traces and compiles only once.
_compiled: Callable[..., Array] = jax.jit(_draw, static_argnums=(1, 2), inline=True)


def _take_smallest(words: Array, _: None) -> tuple[Array, Array]:
    """Return the words with the smallest made largest, and where it stood."""
    smallest = jnp.argmin(words)
    taken = jnp.arange(words.size) == smallest
    return jnp.where(taken, _TAKEN, words), smallest


def _nothing(dtype: np.dtype[Any]) -> float:
    """Return what JAX puts where there is nothing."""
    if jnp.issubdtype(dtype, jnp.inexact):
        return jnp.nan
    if jnp.issubdtype(dtype, jnp.bool_):
        return True
    limits = jnp.iinfo(dtype)
    return limits.min or limits.max
