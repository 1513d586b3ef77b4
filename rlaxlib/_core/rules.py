"""Rules for the values of arguments.

They are checked of values on the host, which are Python's and NumPy's. Arrays on a
device are never read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jax import Array
from jax.core import Tracer

from rlaxlib._core.binding import size_of, type_of
from rlaxlib._core.errors import describe, problem
from rlaxlib._core.specs import Interval, Sizes, Spec

_STATIC: Mapping[Any, tuple[tuple[type, ...], str]] = {
    bool: ((bool, np.bool_), "a Python bool"),
    float: ((int, float, np.number), "a Python number"),
    int: ((int, np.integer), "a Python integer"),
    int | Sequence[int]: ((int, Sequence), "an integer, or several"),
}
# Rules other than intervals: which values break them, and what they must be.
_OTHERS: Mapping[str, tuple[Callable[[Any], Any], str]] = {
    "in {0, 1}": (lambda x: (x != 0) & (x != 1), "must be 0 or 1"),
    "ascending": (lambda x: np.append(False, ~(x[:-1] <= x[1:])), "must not decrease"),
    "increasing": (lambda x: np.append(False, ~(x[:-1] < x[1:])), "must increase"),
}


def check(
    name: str,
    value: Any,
    rule: Interval | str,
    sizes: Sizes,
    given: Mapping[str, Any],
) -> None:
    """Check a value against a rule.

    Args:
        name: The name of the argument.
        value: Its value.
        rule: The rule.
        sizes: The sizes of axes.
        given: All arguments, which may be bounds.

    Raises:
        ArgumentError: If a value on the host breaks the rule.
    """
    x = concrete(value)
    if x is None:
        return
    if isinstance(rule, Interval):
        low, high = (_bound(x, sizes, given) for x in (rule.low, rule.high))
        is_above = low is None or (x >= low if rule.has_low else x > low)
        is_below = high is None or (x <= high if rule.has_high else x < high)
        if np.all(is_above & is_below):
            return
        is_wrong = np.logical_not(is_above & is_below)
        low, high = _shown(rule.low, low), _shown(rule.high, high)
        must = f"must be {rule._replace(low=low, high=high)}"
    else:
        find, must = _OTHERS[rule]
        is_wrong = find(x)
    if np.any(is_wrong):
        first = np.broadcast_to(x, np.shape(is_wrong))[is_wrong].flat[0]
        raise problem(f"`{name}` is {first}, {must}")


def _bound(end: float | str, sizes: Sizes, given: Mapping[str, Any]) -> Any:
    """Return a bound on the host, or None if it is on a device."""
    if not isinstance(end, str):
        return end
    return concrete(given[end]) if end in given else size_of(end, sizes)


def _shown(end: float | str, bound: Any) -> float | str:
    """Return a bound for errors: the value of an argument if it is one number."""
    is_value = isinstance(end, str) and bound is not None and not np.ndim(bound)
    return str(bound) if is_value else end


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
        raise problem(f"`{name}` is {found}, must be {must}")


def concrete(value: Any) -> Any:
    """Return a value that is on the host, or None for a JAX array, traced or not."""
    if isinstance(value, int | float | str | None):
        return value
    return None if isinstance(value, Array) else np.asarray(value)


def at_valid_steps(value: Any, sample_mask: Any) -> Any:
    """Return an argument at valid steps, or None if it or the mask is on a device."""
    x, mask = concrete(value), concrete(sample_mask)
    if x is None or mask is None:
        return None
    if mask.ndim == 1 and len(x) > mask.size:  # States, as in `streams.resized`.
        mask = np.pad(mask, (0, 1)) | np.pad(mask, (1, 0))
    return x[mask[: len(x)]]
