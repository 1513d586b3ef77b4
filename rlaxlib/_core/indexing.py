"""Pick entries by index, in one way for the whole library."""

from __future__ import annotations

import jax
from jax import Array
from jax.lax import GatherDimensionNumbers, GatherScatterMode


def pick(values: Array, indices: Array, *, known: bool = False) -> Array:
    """Return the entry of the last axis at each index.

    Args:
        values: Values, `[..., A]`.
        indices: Index of each entry, `[...]`.
        known: Whether an index that is negative or too large is seen to elsewhere. Then
            any entry may take its place, which is faster.

    Returns:
        The entries, `[...]`. Where an index is negative or too large it is NaN: to take
        another entry in its place would hide a mistake.
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
    return _gather(values, indices, numbers, (1,) * values.ndim, known)


def pick_slice(values: Array, index: Array, axis: int = 0) -> Array:
    """Return the slice at an index of an axis.

    Args:
        values: Values, with any axes.
        index: Index of the slice, `[]`.
        axis: The axis that it is an index of.

    Returns:
        The slice, without that axis. As for `pick`, it is NaN where there is none.
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
    known: bool = False,
) -> Array:
    # NumPy's indexing would take negative indices from the end, and trace for longer.
    mode = GatherScatterMode.FILL_OR_DROP
    if known:
        mode = GatherScatterMode.PROMISE_IN_BOUNDS
    indices = jax.lax.expand_dims(indices, (indices.ndim,))
    return jax.lax.gather(values, indices, numbers, sizes, mode=mode)
