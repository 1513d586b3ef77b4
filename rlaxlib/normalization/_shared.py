"""What the chapters of normalization share: first states, and scales of variances."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from rlaxlib._core import checks, dtypes
from rlaxlib._core.types import Array, ArrayLike, Real


def zeros(template_tree: Any) -> Any:
    """Return zeros like the leaves of a tree, in single precision at least."""

    def zeros_like(leaf: Any) -> Array:
        x = dtypes.raised(real("template_tree", leaf))
        return jnp.zeros_like(x, dtype=x.dtype)  # Not weakly typed.

    return jax.tree.map(zeros_like, template_tree)


def scale(variance: Array, min_scale: Array) -> Array:
    """Return the standard deviation, at least `min_scale`, or 1 if it is 0."""
    varied = ~(variance <= 0)  # Or NaN.
    deviation = jnp.sqrt(jnp.where(varied, variance, 1))
    bounded = jnp.maximum(deviation, min_scale.astype(variance.dtype))
    return jnp.where(varied, bounded, 1)


def real(name: str, leaf: Any) -> Array:
    """Return a leaf of floats or integers as floats."""
    checks.fit(**{name: (leaf, Real[ArrayLike, "..."])})
    if isinstance(leaf, jax.ShapeDtypeStruct):
        leaf = jnp.zeros(leaf.shape, leaf.dtype)
    is_integer = jnp.issubdtype(jnp.result_type(leaf), jnp.integer)
    return jnp.asarray(leaf, float if is_integer else None)
