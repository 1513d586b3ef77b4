"""What the chapters of bandits share: the pulled arm as a vector."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from rlaxlib import arrays
from rlaxlib._core import indexing


def one_hot(arm: Array, like: Array) -> Array:
    """Return 1 for the arm and 0 for all others, or NaN if it is out of range."""
    pulled = arrays.one_hot(arm, like.size, like.dtype)
    return jnp.where(indexing.is_inside(arm, like.size), pulled, jnp.nan)
