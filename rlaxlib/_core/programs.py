"""Compiled private functions, for cheap calls outside of `jax.jit`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import jax

P = ParamSpec("P")
R = TypeVar("R")


def compiled(*static: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Compile a function, so that an eager call runs one program and not ten.

    Within another program the function leaves no trace: it is inlined.

    Args:
        *static: Names of arguments that are not arrays.

    Returns:
        A decorator.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        return cast(Any, jax.jit)(function, static_argnames=static, inline=True)

    return decorate
