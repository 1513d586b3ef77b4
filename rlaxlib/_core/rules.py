"""Rules for the values of arguments.

They are checked of values on the host, which are Python's and NumPy's. Arrays on a
device are never read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import jax
import numpy as np
from jax import Array
from jax.core import Tracer

from rlaxlib._core import streams
from rlaxlib._core.errors import describe, problem
from rlaxlib._core.specs import Interval, Sizes, Spec, Values, size_of

_STATIC: Mapping[Any, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "a Python bool"),
    float: ((int, float, np.number), "a Python number"),
    int: ((int, np.integer), "a Python integer"),
    int | Sequence[int]: ((int, np.integer, Sequence), "an integer, or several"),
}


def _is_cut(x: Any) -> Any:
    """Return which integers JAX would change."""
    x = np.asarray(x)
    return x != x.astype(jax.dtypes.canonicalize_dtype(x.dtype))


# Rules other than intervals: which values break them, and what they must be.
_OTHERS: Mapping[str, tuple[Callable[[Any], Any], str]] = {
    "in {0, 1}": (lambda x: (x != 0) & (x != 1), "be 0 or 1"),
    "ascending": (lambda x: np.append(False, ~(x[:-1] <= x[1:])), "not decrease"),
    "increasing": (lambda x: np.append(False, ~(x[:-1] < x[1:])), "increase"),
    "narrow": (_is_cut, "fit into 32 bits: set `jax_enable_x64`"),
}


def check(
    name: str, value: Any, spec: Spec, sizes: Sizes, given: Values, mask: Any = None
) -> None:
    """Check a value against the rules of its spec, and that its dtype can hold it.

    Bounds may be sizes of axes, or other arguments, which are `given`. Values on a
    device, and at steps that a mask ignores, break no rule.
    """
    x, valid = _concrete(value), _concrete(mask)
    if x is None or (valid is None and mask is not None):
        return
    for rule in of(spec, getattr(x, "dtype", type(x))):
        if isinstance(rule, str):
            ends, (breaks, must) = [], _OTHERS[rule]
            is_wrong = breaks(x)
        else:
            ends = [_bound(end, sizes, given) for end in rule[:2]]
            is_wrong, must = _is_outside(x, rule, *ends), ""
        if valid is not None:
            is_wrong = is_wrong & streams.of_steps(valid, is_wrong)
        if np.any(is_wrong):
            every = np.broadcast_arrays(x, *ends, is_wrong)
            first, *known = (each[is_wrong].flat[0] for each in every)
            must = must or f"be {cast(Any, rule).at(*known)}"
            raise problem(f"`{name}` is {first}, must {must}")


def of(spec: Spec, dtype: Any) -> tuple[Interval | str, ...]:
    """Return the rules of a spec for values of a dtype.

    Integers of 64 bits have to be narrow, too: JAX cuts most to 32, and they wrap.
    A Python integer in place of a float becomes one.
    """
    is_wide = dtype in (np.int64, np.uint64) or (dtype is int and not spec.is_float)
    return spec.rules + ("narrow",) * is_wide


def _is_outside(x: Any, rule: Interval, low: Any, high: Any) -> Any:
    """Return which values are outside of an interval, as far as bounds are known."""
    is_above = low is None or (x >= low if rule.has_low else x > low)
    is_below = high is None or (x <= high if rule.has_high else x < high)
    return np.logical_not(is_above & is_below)


def _bound(end: float | str, sizes: Sizes, given: Values) -> Any:
    """Return a bound on the host, or None if it is on a device."""
    if not isinstance(end, str):
        return end
    return _concrete(given[end]) if end in given else size_of(end, sizes)


def check_static(name: str, value: Any, spec: Spec) -> None:
    """Check the choice of an option, or the type of a Python value."""
    if value is None and spec.optional:
        return
    if spec.options:
        is_right = isinstance(value, str) and value in spec.options
        must = " or ".join(f'"{each}"' for each in spec.options)
    else:
        classes, must = _STATIC[spec.type]
        is_bool = isinstance(value, bool)
        is_right = isinstance(value, classes) and is_bool == (spec.type is bool)
    if isinstance(value, Tracer):
        raise problem(f"`{name}` is traced, must be a Python value: static_argnames")
    if not is_right:
        raise problem(f"`{name}` is {describe(value)}, must be {must}")


def _concrete(value: Any) -> Any:
    """Return a value that is on the host, or None for a JAX array, traced or not."""
    if isinstance(value, int | float | str | None):
        return value
    return None if isinstance(value, Array) else np.asarray(value)
