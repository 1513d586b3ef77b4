"""Rules for the values of arguments.

They are checked where reading the value costs nothing: on Python and NumPy values and
on concrete scalars. Traced values and arrays on a device pass.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jax import Array
from jax.core import Tracer

from rlaxlib._core.errors import ArgumentError, describe
from rlaxlib._core.specs import Sizes, Spec, size_of, type_of

_STATIC: Mapping[Any, tuple[tuple[type, ...], str]] = {
    bool: ((bool, np.bool_), "a Python bool"),
    float: ((int, float, np.number), "a Python number"),
    int: ((int, np.integer), "a Python integer"),
    int | Sequence[int]: ((int, Sequence), "an integer, or several"),
}
_NUMBER = re.compile(r"-?(inf|[\d.]+(e-?\d+)?)")


def check(
    name: str, value: Any, rule: str, sizes: Sizes, given: Mapping[str, Any]
) -> None:
    """Check a value against a rule.

    Args:
        name: The name of the argument.
        value: Its value.
        rule: The rule, such as `in [0, A)`.
        sizes: The sizes of axes.
        given: All arguments, which may be bounds.

    Raises:
        ArgumentError: If a concrete value breaks the rule.
    """
    x = concrete(value)
    if x is None:
        return
    if rule == "in {0, 1}":
        fail_if((x != 0) & (x != 1), x, name, "must be 0 or 1")
    elif rule == "ascending":
        fail_if(~(x[:-1] <= x[1:]), x[1:], name, "must not decrease")
    elif rule == "increasing":
        fail_if(~(x[:-1] < x[1:]), x[1:], name, "must increase")
    else:
        ends = rule.removeprefix("in ")[1:-1].split(", ")
        _check_interval(name, x, rule, ends, [_bound(x, sizes, given) for x in ends])


def _bound(end: str, sizes: Sizes, given: Mapping[str, Any]) -> Any:
    """Return a bound: a number, the size of an axis, or another argument's value."""
    if _NUMBER.fullmatch(end):
        return end
    return concrete(given[end]) if end in given else size_of(end, sizes)


def _check_interval(
    name: str, x: Any, rule: str, ends: list[str], bounds: list[Any]
) -> None:
    """Raise an error if a concrete value is outside of an interval, or NaN.

    A bound that is traced is None.
    """
    low, high = (float(each) if isinstance(each, str) else each for each in bounds)
    is_above = low is None or (x >= low if rule[3] == "[" else x > low)
    is_below = high is None or (x <= high if rule[-1] == "]" else x < high)
    first, last = (
        end if each is None or getattr(each, "ndim", 0) else each
        for end, each in zip(ends, bounds, strict=True)
    )
    must = f"must be in {rule[3]}{first}, {last}{rule[-1]}"
    fail_if(np.logical_not(is_above & is_below), x, name, must)


def check_static(
    name: str, value: Any, spec: Spec, all_specs: Mapping[str, Spec]
) -> None:
    """Check a flag, an option or a Python value.

    Args:
        name: The name of the argument.
        value: Its value.
        spec: Its spec.
        all_specs: The specs of all arguments.

    Raises:
        ArgumentError: If the type or the value is wrong.
    """
    if (spec.optional and value is None) or (spec.is_array and type(value) is not str):
        return
    found = describe(value)
    if spec.kind == "Flag":
        shape, dtype, _ = type_of(value)
        is_right, must = shape == () and dtype in (bool, np.bool_), "a bool"
        masks = [f"`{n}`" for n, x in all_specs.items() if x.kind == "Bool"]
        if shape and masks:
            must += f": pass {' or '.join(masks)} by keyword"
    elif isinstance(value, Tracer):
        is_right, found = False, "traced"
        must = "a Python value: mark it with static_argnames"
    elif spec.options:
        is_right = isinstance(value, str) and value in spec.options
        *most, last = [f'"{each}"' for each in spec.options]
        must = " or ".join(filter(None, [", ".join(most), last]))
        must += f", or a {spec.kind.lower()} array" * spec.is_array
    else:
        classes, must = _STATIC[spec.type]
        is_bool = isinstance(value, bool)
        is_right = isinstance(value, classes) and is_bool == (spec.type is bool)
    if not is_right:
        raise ArgumentError(f"`{name}` is {found}, must be {must}")


def concrete(value: Any) -> Any:
    """Return a concrete scalar or NumPy array, or None for a traced or large one."""
    if isinstance(value, int | float | str | None):
        return value
    if isinstance(value, Tracer):
        return None
    if isinstance(value, Array) and (value.ndim or not value.is_fully_addressable):
        return None  # Reading it would copy it from the device.
    return np.asarray(value)


def fail_if(wrong: Any, values: Any, name: str, rule: str) -> None:
    """Raise an error that shows the first wrong value, if there is one."""
    if np.any(wrong) if getattr(wrong, "ndim", 0) else wrong:
        first = np.broadcast_to(values, np.shape(wrong))[wrong].flat[0]
        raise ArgumentError(f"`{name}` is {first}, {rule}")
