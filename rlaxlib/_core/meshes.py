"""Operations that JAX cannot map or differentiate on a mesh of explicit axes.

Each function names its plain form, which JAX does not run there unless users call
`jax.set_mesh`; that of `search` it runs from 0.12 on, and of the others up to 0.12.0.1
none. `tests/core/test_meshes.py` fails for each that a later version runs.
"""

from __future__ import annotations

from typing import Any, cast

import jax
import jax.numpy as jnp
from jax import Array

from rlaxlib._core import indexing


def search(bounds: Array, points: Array) -> Array:
    """Return `jnp.searchsorted(bounds, points, "right")`, by bisection."""

    def halve(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = (low + high) // 2
        is_below = (low < high) & ~(bounds[middle] > points)
        return jnp.where(is_below, middle + 1, low), jnp.where(is_below, high, middle)

    low = jnp.zeros_like(points, int)
    ends = (low, low + bounds.size)
    return cast(Array, jax.lax.fori_loop(0, bounds.size.bit_length(), halve, ends)[0])


def take(x: Array, indices: Array) -> Array:
    """Return `x.at[indices].get(mode="fill", fill_value=nan)` of a vector, by a sum."""
    entries = jnp.broadcast_to(x, (*indices.shape, x.size))
    return indexing.pick_slice(entries, jnp.expand_dims(indices, -1), indices.ndim)


def unsort(order: Array, x: Array) -> Array:
    """Return `jnp.zeros_like(x).at[order].set(x)` of a permutation, by a sort."""
    return jax.lax.sort((order, x), num_keys=1)[1]


def write(memory: Array, rows: Array, start: Array) -> Array:
    """Return `memory.at[(start + jnp.arange(n)) % size].set(rows)`, by a gather.

    The memory is a ring of `size` rows, of which at most all are written.
    """
    size = len(memory)
    place = (jnp.arange(size, dtype=start.dtype) + (size - start)) % size
    new = jnp.take(rows, place, axis=0, mode="clip")
    is_new = place < len(rows)
    return jnp.where(is_new.reshape(-1, *[1] * (rows.ndim - 1)), new, memory)
