"""Computation in float32 for inputs of half precision.

Half precision is for storage and matrix products. A sum of rewards, a softmax or the
difference of two large values loses most of its eight or eleven bits at each step: a
thousand ones, discounted by 0.99, add up to 64 in bfloat16. So functions raise their
arguments to float32, and round once, at the end.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array


def widen(*arguments: Array) -> tuple[tuple[Array, ...], Callable[[Any], Any]]:
    """Raise half precision to float32.

    Args:
        *arguments: Arrays of any dtype, or None.

    Returns:
        The arguments, and a function that casts the floating-point arrays of a result
        to the dtype that the arguments promote to.
    """
    half = {x.dtype for x in arguments if _is_float(x) and x.dtype.itemsize < 4}
    if not half:
        return arguments, _same
    dtype = jnp.result_type(*filter(_is_float, arguments))

    def cast(x: Array) -> Array:
        return x.astype(dtype) if _is_float(x) else x

    def narrow(result: Any) -> Any:
        return jax.tree.map(cast, result)

    return tuple(
        x.astype(jnp.float32) if _is_float(x) and x.dtype in half else x
        for x in arguments
    ), narrow


def _is_float(x: Any) -> bool:
    return hasattr(x, "dtype") and _is_floating(x.dtype)


@functools.cache
def _is_floating(dtype: Any) -> bool:
    return jnp.issubdtype(dtype, jnp.floating)


def _same(result: Any) -> Any:
    return result
