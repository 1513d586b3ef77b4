"""Give a function a derivative of its own, where that of its steps is slow or wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import jax
from jax import Array

Function = TypeVar("Function", bound=Callable[..., Any])


def derived(
    rule: Callable[..., Any],
    *,
    nondiff_argnums: tuple[int, ...] = (),
    symbolic_zeros: bool = False,
) -> Callable[[Function], Function]:
    """Give a function a derivative, as `jax.custom_jvp` does, and keep its type.

    Args:
        rule: From the arguments and how they change, the value and how it changes; see
            `jax.custom_jvp.defjvp`.
        nondiff_argnums: Positions of arguments that are no arrays: the rule takes them
            first.
        symbolic_zeros: Whether the rule is told of arguments that do not change.

    Returns:
        A decorator.
    """

    def decorate(function: Function) -> Function:
        decorated = cast(Any, jax.custom_jvp)(function, nondiff_argnums=nondiff_argnums)
        decorated.defjvp(rule, symbolic_zeros=symbolic_zeros)
        return cast(Function, decorated)

    return decorate


def derived_by(
    *rules: Callable[..., Array] | None,
) -> Callable[[Function], Function]:
    """Give a function the derivative of each of its arguments.

    Args:
        *rules: For each argument of the function, how much the value changes with it: a
            function of the argument's change, of the value and of the arguments; or
            None if the value does not.

    Returns:
        A decorator.
    """

    def decorate(function: Function) -> Function:
        decorated = cast(Any, jax.custom_jvp)(function)
        decorated.defjvps(*rules)
        return cast(Function, decorated)

    return decorate
