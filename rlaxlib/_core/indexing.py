"""Indexing that gives NaN where an index is out of range."""

from __future__ import annotations

import jax
from jax import Array
from jax.lax import GatherDimensionNumbers, GatherScatterMode


def pick(values: Array, indices: Array) -> Array:
    """Return the entry of the last axis at each index.

    Args:
        values: Values, `[..., A]`.
        indices: Index of each entry, `[...]`.

    Returns:
        The entries, `[...]`, NaN where an index is negative or too large. NumPy's
        indexing would return another entry, which hides a mistake.
    """
    last = values.ndim - 1
    batch = tuple(range(last))
    numbers = GatherDimensionNumbers(
        offset_dims=(),
        collapsed_slice_dims=(last,),
        start_index_map=(last,),
        operand_batching_dims=batch,
        start_indices_batching_dims=batch,
    )
    return _gather(values, indices, numbers, (1,) * values.ndim)


def pick_slice(values: Array, index: Array, axis: int = 0) -> Array:
    """Return the slice at an index of an axis.

    Args:
        values: Values, with any axes.
        index: Index of the slice, `[]`.
        axis: The axis that it indexes.

    Returns:
        The slice, without that axis, NaN if the index is negative or too large.
    """
    numbers = GatherDimensionNumbers(
        offset_dims=tuple(range(values.ndim - 1)),
        collapsed_slice_dims=(axis,),
        start_index_map=(axis,),
    )
    sizes = (*values.shape[:axis], 1, *values.shape[axis + 1 :])
    return _gather(values, index, numbers, sizes)


def _gather(
    values: Array,
    indices: Array,
    numbers: GatherDimensionNumbers,
    sizes: tuple[int, ...],
) -> Array:
    indices = jax.lax.expand_dims(indices, (indices.ndim,))
    mode = GatherScatterMode.FILL_OR_DROP
    return jax.lax.gather(values, indices, numbers, sizes, mode=mode)
