"""Pick entries by index, in one way for the whole library."""

import jax.numpy as jnp
from jax import Array


def pick(values: Array, indices: Array) -> Array:
    """Return the entry of the last axis at each index.

    Args:
        values: Values, `[..., A]`.
        indices: Index of each entry, `[...]`.

    Returns:
        The entries, `[...]`. Where an index is negative or too large it is NaN: to take
        another entry in its place would hide a mistake.
    """
    beyond = jnp.where(indices < 0, values.shape[-1], indices)
    return jnp.take_along_axis(values, beyond[..., None], axis=-1, mode="fill")[..., 0]
