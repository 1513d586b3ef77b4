"""States that keep their dtype, whatever the dtype of the data that update them.

A loop such as `jax.lax.scan` needs this of what it carries from step to step.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import jax
import jax.numpy as jnp
from jax import Array

from rlaxlib._core import signatures

P = ParamSpec("P")
R = TypeVar("R")


def keeps_dtype(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Cast the result of a checked function to the dtypes of one of its arguments.

    It stands above `checked`, which raises half precision before the body.

    Args:
        name: The argument that the result is the successor of: an array, a state or a
            pytree of the structure of the result.

    Returns:
        A decorator.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            result = function(*args, **kwargs)
            return like(result, signatures.read(function).bind(args, kwargs)[name])

        return call

    return decorate


def like(new: Any, old: Any) -> Any:
    """Return a pytree with its floats in the dtypes of another pytree.

    Args:
        new: A state.
        old: The state before. Python numbers in it have no dtype of their own, as in a
            state of default values.

    Returns:
        The new state.
    """
    pairs = zip(_leaves(new), _leaves(old), strict=True)
    leaves = [_cast(x, y) for x, y in pairs]
    return jax.tree.unflatten(cast(Any, jax.tree.structure(new)), leaves)


def begin(state: Any, x: Array) -> Any:
    """Return a state whose Python numbers, such as defaults, have the dtype of `x`.

    As weakly typed floats of double precision they would not fit to what follows.
    """

    def convert(y: Array) -> Array:
        return y.astype(x.dtype) if y.weak_type else y

    return jax.tree.map(convert, state)


def _leaves(tree: Any) -> list[Any]:
    return cast(Any, jax.tree.leaves(tree))


def _cast(x: Any, y: Any) -> Any:
    """Return `x` in the dtype of `y`, if both are floats."""
    is_weak = isinstance(y, bool | int | float) or getattr(y, "weak_type", False)
    dtype = jnp.result_type(
        y
    )  # As in JAX: not that of NumPy, without double precision.
    if is_weak or not all(jnp.issubdtype(z, jnp.floating) for z in (x.dtype, dtype)):
        return x
    return x.astype(dtype)
