"""What the chapters of bandits share: the pulled arm as a vector."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from rlaxlib._core import indexing


def one_hot(arm: Array, like: Array) -> Array:
    """Return 1 for the arm and 0 for all others, or NaN if it is out of range."""
    arm = indexing.widened(arm)
    pulled = jnp.arange(like.size, dtype=arm.dtype) == arm
    pulled = pulled.astype(like.dtype)
    return jnp.where(indexing.is_inside(arm, like.size), pulled, jnp.nan)
