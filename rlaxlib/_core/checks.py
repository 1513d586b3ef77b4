"""Checks of what no annotation can state: leaves of pytrees, and axes in common."""

from __future__ import annotations

from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from rlaxlib._core import binding, errors, rules, specs
from rlaxlib._core.specs import Spec
from rlaxlib._core.types import Array


def fail(problem: str) -> NoReturn:
    """Raise an error, to which the decorator adds the function and a full stop."""
    raise errors.problem(problem)


def fit(**arguments: tuple[Any, Any]) -> None:
    """Check arrays that are not arguments of their own, such as leaves of a pytree.

    Each is a pair of its value and its annotation, such as `Float[ArrayLike, "T"]`.
    """
    given = {name: value for name, (value, _) in arguments.items()}
    wanted = {name: specs.read(x) for name, (_, x) in arguments.items()}
    types = {name: binding.type_of(x) for name, x in given.items()}
    bound = binding.bind(wanted, types, {})
    if bound.misfit:
        raise errors.misfit(given, wanted, bound)
    for name, spec in wanted.items():
        rules.check(name, given[name], spec, bound.sizes, given)


def leading_axes(**arguments: Array) -> None:
    """Check that the axes of one array are the first of a second one, or of size 1."""
    (name, short), (whole, long) = arguments.items()
    sizes = zip(short.shape, long.shape, strict=False)
    if short.ndim > long.ndim or not all(a in (1, b) for a, b in sizes):
        fail(
            f"`{name}` has shape {short.shape}, must have the first axes of `{whole}`, "
            f"which has shape {long.shape}, or size 1"
        )


def same_structure(**trees: Any) -> None:
    """Check that pytrees, under their names, have the structure of the first."""
    structures = {n: jax.tree.structure(x) for n, x in trees.items()}
    (first, one), *others = structures.items()
    for name, other in others:
        if other != one:
            must = "must have the same tree structure"
            fail(f"`{first}` and `{name}` {must}, but have {one} and {other}")


def result(
    name: str, value: Any, shape: tuple[int, ...] = (), kind: str = "Float"
) -> Array:
    """Return the result of a function of the user, named like `kl(params)`, checked."""
    # A Python integer does not count as a float here.
    x = np.asarray(value) if isinstance(value, int | float) else value
    spec = Spec(kind, (tuple(map(str, shape)),))
    if binding.bind({name: spec}, {name: binding.type_of(x)}, {}).misfit:
        fail(f"`{name}` is {errors.describe(value)}, must be {spec.text}")
    return jnp.asarray(value)
