"""Truncation and masks of a stream of experience.

Row `t` of a stream is one time step. Two masks mark truncation and steps to ignore:

- `truncated_t` is true where the stream was cut after the step although the episode had
  not ended: a time limit, an automatic reset, the end of a window.
- `sample_mask` is false for time steps to ignore: padding, reset steps, tokens that the
  policy did not choose. Estimates are the same as if these steps were deleted.

A valid step is the last of its segment if the stream is truncated between it and the
next valid step, or if no valid step follows.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from rlaxlib._core import safe

Mask = Array | None


def ends(truncated_t: Mask, sample_mask: Mask) -> Mask:
    """Return which valid steps are the last of their segments, `[T]`.

    It is false at invalid steps, and None if both masks are None. Without
    `sample_mask` it is `truncated_t`, also at the last step.
    """
    if sample_mask is None:
        return truncated_t
    steps = jnp.arange(sample_mask.shape[0])
    if truncated_t is None:
        return steps == jnp.max(jnp.where(sample_mask, steps, -1))
    cut = jnp.where(truncated_t, steps, steps.size - 1)
    return sample_mask & (jax.lax.cummin(cut, reverse=True) < next_valid(sample_mask))


def cut_traces(trace: Array, truncated_t: Mask, sample_mask: Mask) -> Array:
    """Return a trace such as λ, `[T]` or `[]`, for each step, 0 where a segment ends.

    It is unchanged if both masks are None.
    """
    end = ends(truncated_t, sample_mask)
    return trace if end is None else jnp.where(end, 0, trace)


def next_valid(sample_mask: Array) -> Array:
    """Return the index of the next valid step after each step, or `T`."""
    steps = sample_mask.shape[0]
    here = jnp.where(sample_mask, jnp.arange(steps), steps)
    later = jax.lax.cummin(here, reverse=True)[1:]
    return jnp.pad(later, (0, 1), constant_values=steps)


def at_next_valid(x: Array, truncated_t: Mask, sample_mask: Mask) -> Array:
    """Return `x` at the next valid step after each step, and 0 where a segment ends."""
    if sample_mask is None:
        later = jnp.pad(x[1:], (0, 1))
    else:
        later = x[jnp.minimum(next_valid(sample_mask), x.shape[0] - 1)]
    return cut_traces(later, truncated_t, sample_mask)


def of_steps(sample_mask: Array, x: Array) -> Array:
    """Return the mask of an array `x` of `T-1`, `T` or `T+1` entries, to broadcast.

    Of `T-1` entries, each belongs to a step, but the last. Of `T+1` states, those
    count that are before or after a valid step.
    """
    mask: Any = sample_mask
    if not mask.ndim:  # Of all of `x`.
        return mask
    if x.shape[0] > mask.shape[0]:
        library: Any = np if isinstance(mask, np.ndarray) else jnp
        mask = library.pad(mask, (0, 1)) | library.pad(mask, (1, 0))
    elif x.shape[0] < mask.shape[0]:
        mask = mask[: x.shape[0]]
    return mask.reshape(mask.shape + (1,) * (x.ndim - mask.ndim))


def valid(x: Array, sample_mask: Mask) -> Array:
    """Return `x`, whose first axes are those of the mask, and 0 at invalid steps.

    A product with NaN has a NaN gradient even where the result is masked, so functions
    have arguments that are masked, too.
    """
    if sample_mask is None:
        return x
    return jnp.where(of_steps(sample_mask, x), x, jnp.zeros_like(x))


def bootstrap(discount_t: Array, v_t: Array) -> Array:
    """Return `discount_t * v_t`, 0 at a terminal state without a legal action.

    There `v_t` is minus infinity.
    """
    return discount_t * safe.floored(v_t)


def filled(mask: Mask, like: Array) -> Array:
    """Return the mask of the shape of `like`, true everywhere if there is none."""
    # By `like`, which devices may share.
    mask = jnp.ones_like(like, bool) if mask is None else mask
    return jnp.broadcast_to(mask, like.shape)


def segments(
    discount_t: Array, truncated_t: Mask, sample_mask: Mask
) -> tuple[Array, Array, Array]:
    """Number the valid steps of a stream, and find where segments end.

    A segment ends with a discount of 0 at a valid step, or where the stream is cut.

    Returns:
        The number of each valid step, counted from 0; that of the last valid step of
        its segment; and whether a segment ends at a step; each `[T]`.
    """
    valid = filled(sample_mask, discount_t)
    end = valid & (discount_t == 0)
    end = end if truncated_t is None else end | truncated_t
    number = jnp.cumsum(valid) - 1
    last = jax.lax.cummin(jnp.where(end, number, number[-1]), reverse=True)
    return number, last, end


def first_of(number: Array, end: Array) -> Array:
    """Return the number of the first valid step of the segment of each valid step."""
    after = jax.lax.cummax(jnp.where(end, number + 1, 0))
    return jnp.pad(after[:-1], (1, 0))


def step_of(number: Array, sample_mask: Mask) -> Array:
    """Return the index of the valid step of a number, each its own where masked."""
    if sample_mask is None:
        return number
    steps = jnp.arange(sample_mask.size)
    # Shared over devices like the number, if it is.
    places = compact(steps + 0 * number, sample_mask)
    return jnp.where(sample_mask, places[number], steps)


def compact(x: Array, sample_mask: Array) -> Array:
    """Move the valid steps of a stream to its front, followed by zeros."""
    valid = jnp.where(sample_mask, x, jnp.zeros_like(x))
    return jnp.zeros_like(x).at[_ranks(sample_mask)].set(valid)


def restore(x: Array, sample_mask: Mask) -> Array:
    """Move the valid steps from the front of a stream back to their places."""
    if sample_mask is None:
        return x
    return jnp.where(sample_mask, x[_ranks(sample_mask)], jnp.zeros_like(x))


def _ranks(sample_mask: Array) -> Array:
    """Number the valid steps from 0, and then all others."""
    number = jnp.cumsum(sample_mask)
    others = number[-1] + jnp.cumsum(~sample_mask)
    return jnp.where(sample_mask, number, others) - 1
