"""Pick entries by index, in one way for the whole library."""

import jax.numpy as jnp
from jax import Array


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
    mode = "promise_in_bounds" if known else "fill"
    if not known:
        indices = jnp.where(indices < 0, values.shape[-1], indices)
    return jnp.take_along_axis(values, indices[..., None], axis=-1, mode=mode)[..., 0]


def pick_slice(values: Array, index: Array, axis: int = 0) -> Array:
    """Return the slice at an index of an axis.

    Args:
        values: Values, with any axes.
        index: Index of the slice, `[]`.
        axis: The axis that it is an index of.

    Returns:
        The slice, without that axis. As for `pick`, it is NaN where there is none.
    """
    beyond = jnp.where(index < 0, values.shape[axis], index)
    return jnp.take(values, beyond, axis=axis, mode="fill")
