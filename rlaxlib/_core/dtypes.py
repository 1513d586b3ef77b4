"""Half precision: raised to float32 for computation, and cast back at the end.

Half precision is for storage and matrix products. A sum of rewards, a softmax or the
difference of two large values loses most of its eight or eleven bits at each step: a
thousand ones, discounted by 0.99, add up to 64 in bfloat16.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array


def raised(x: Array) -> Array:
    """Return an array of half precision in float32, and all others as they are."""
    return x.astype(jnp.float32) if is_half(x) else x


def is_half(x: Any) -> bool:
    """Return whether a value is an array of floats of half precision, or less."""
    return is_float(x) and x.dtype.itemsize < 4


def like(new: Any, old: Any) -> Any:
    """Return a float in the dtype of another, unless that is a Python number."""
    is_weak = isinstance(old, bool | int | float) or getattr(old, "weak_type", False)
    dtype = jnp.result_type(old)  # As in JAX: without double precision.
    is_floating = jnp.issubdtype(dtype, jnp.floating)
    is_cast = is_float(new) and is_floating and not is_weak
    return new.astype(dtype) if is_cast else new


def cast(x: Any, dtype: Any) -> Any:
    """Return a float in another dtype, and all else as it is."""
    return x.astype(dtype) if is_float(x) else x


def is_float(x: Any) -> bool:
    """Return whether a value is an array of floats."""
    return hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jnp.floating)
