"""Indexing that gives NaN where an index is out of range, which hides no mistake."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.lax import GatherDimensionNumbers, GatherScatterMode


def pick(values: Array, indices: Array) -> Array:
    """Return the entry of the last axis of `[..., A]` at each index `[...]`."""
    last = values.ndim - 1
    if jax.typeof(values).sharding.spec[last] is not None:
        # Devices share the axis, as the vocabulary of a large model: each has its sum.
        return pick_slice(values, jnp.expand_dims(indices, last), last)
    batch = tuple(range(last))
    numbers = GatherDimensionNumbers(
        offset_dims=(),
        collapsed_slice_dims=(last,),
        start_index_map=(last,),
        operand_batching_dims=batch,
        start_indices_batching_dims=batch,
    )
    # The gradient would drop the indices of an array too large for a narrow dtype.
    indices = jax.lax.expand_dims(widened(indices), (indices.ndim,))
    mode = GatherScatterMode.FILL_OR_DROP
    return jax.lax.gather(values, indices, numbers, (1,) * values.ndim, mode=mode)


def pick_slice(values: Array, indices: Array, axis: int = 0) -> Array:
    """Return the slice at an index of an axis, NaN if it is out of range.

    It is a sum, which compiles faster than a gather, whose transpose is a scatter.
    Indices may be an array that broadcasts with the values.
    """
    indices = widened(indices)
    entries = jax.lax.broadcasted_iota(indices.dtype, values.shape, axis)
    others = jnp.where(is_inside(indices, values.shape[axis]), 0.0, jnp.nan)
    return jnp.sum(jnp.where(entries == indices, values, others), axis)


def is_inside(indices: Array, size: int) -> Array:
    """Return which indices, of any integer dtype, are in [0, size)."""
    indices = widened(indices)
    return (indices >= 0) & (indices < size)


def widened(indices: Array) -> Array:
    """Return indices in at least 32 bits: an int8 cannot hold a size of 128."""
    return indices.astype(jnp.int32) if indices.dtype.itemsize < 4 else indices


def part(fraction: Array, count: Array) -> Array:
    """Return the floor of a fraction of a number, 53 for 0.53 of 100.

    The product in single precision is 52.999996.
    """
    eps = float(jnp.finfo(fraction.dtype).eps)
    return jnp.floor(fraction * count * (1 + 2 * eps))
