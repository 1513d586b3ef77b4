"""What the chapters of normalization share: first states, and scales of variances."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from rlaxlib._core import dtypes
from rlaxlib._core.types import Array


def zeros(template_tree: Any) -> Any:
    """Return zeros like the leaves of a tree, in single precision at least."""

    def zeros_like(leaf: Any) -> Array:
        dtype = jnp.result_type(leaf)
        dtype = float if jnp.issubdtype(dtype, jnp.integer) else dtype
        return dtypes.raised(jnp.zeros_like(leaf, dtype))  # Not weakly typed.

    return jax.tree.map(zeros_like, template_tree)


def scale(variance: Array, min_scale: Array) -> Array:
    """Return the standard deviation, at least `min_scale`, or 1 if it is 0."""
    is_zero = variance == 0
    stddev = jnp.sqrt(jnp.where(is_zero, 1, variance))
    bounded = jnp.maximum(stddev, min_scale.astype(variance.dtype))
    return jnp.where(is_zero, 1, bounded)
