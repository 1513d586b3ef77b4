"""Checks of what no annotation can state: leaves of pytrees, and axes in common."""

from __future__ import annotations

from typing import Any, NoReturn, cast

import jax
import jax.numpy as jnp
import numpy as np

from rlaxlib._core import binding, errors, rules, specs
from rlaxlib._core.batches import Function
from rlaxlib._core.types import Array, ArrayLike, Float


def fit(**arguments: tuple[Any, Any]) -> None:
    """Check arrays that are not arguments of their own, such as leaves of a pytree.

    Args:
        **arguments: For each array, under its name, the pair of its value and its
            annotation, such as `Float[ArrayLike, "T"]`.

    Raises:
        ArgumentError: If a dtype, a shape or a value does not fit.
    """
    given = {name: value for name, (value, _) in arguments.items()}
    wanted = {name: cast(Any, specs.read(x)) for name, (_, x) in arguments.items()}
    types = {name: binding.type_of(x) for name, x in given.items()}
    bound = binding.bind(wanted, types, {})
    if bound.misfit:
        nobody = Function("", (), {}, None)
        raise errors.misfit(bound.misfit, bound.sizes, wanted, given, nobody)
    for name, spec in wanted.items():
        for rule in spec.rules:
            rules.check(name, given[name], rule, bound.sizes, given)


def leading_axes(**arguments: Array) -> None:
    """Check that the axes of one array are the first axes of another, or of size 1.

    Args:
        **arguments: Two arrays, each under its argument's name: the one with fewer axes
            first.

    Raises:
        ArgumentError: If the axes differ, or the first array has more.
    """
    (name, short), (whole, long) = arguments.items()
    sizes = zip(short.shape, long.shape, strict=False)
    if short.ndim <= long.ndim and all(a in (1, b) for a, b in sizes):
        return
    fail(
        f"`{name}` has shape {short.shape}, must have the first axes of `{whole}`, "
        f"which has shape {long.shape}, or size 1"
    )


def same_structure(**trees: Any) -> None:
    """Check that pytrees have the same structure.

    Args:
        **trees: Pytrees, each under its argument's name.

    Raises:
        ArgumentError: If one has another structure than the first.
    """
    (name, first), *others = trees.items()
    for other, tree in others:
        errors.check_structure(name, first, other, tree)


def named_leaves(name: str, tree: Any) -> list[tuple[str, Any]]:
    """Return the leaves of a pytree, each with a name such as `params['w'][0]`."""
    leaves = cast(Any, jax.tree_util).tree_leaves_with_path(tree)
    return [(name + jax.tree_util.keystr(path), leaf) for path, leaf in leaves]


def result(name: str, value: Any, kind: Any = Float[ArrayLike, ""]) -> Array:
    """Check the result of a function that the user gave.

    Args:
        name: The call, such as `kl(params)`.
        value: Its result.
        kind: What it must be, by default one float.

    Returns:
        The result, as an array.

    Raises:
        ArgumentError: If it has another shape or dtype.
    """
    try:
        fit(**{name: (_scalar(value), kind)})
    except errors.ArgumentError:  # Its hints are about arguments.
        must = cast(Any, specs.read(kind)).text
        fail(f"`{name}` is {errors.describe(value)}, must be {must}")
    return jnp.asarray(value)


def _scalar(x: Any) -> Any:
    """Return a Python number as an array, so that an integer is no float."""
    return np.asarray(x) if isinstance(x, int | float) else x


def fail(problem: str) -> NoReturn:
    """Raise an error, to which the decorator adds the name of the function.

    Args:
        problem: The argument, what was found and what is needed, without a full stop.

    Raises:
        ArgumentError: Always.
    """
    raise errors.problem(problem)
