"""Rules for the values of arguments.

They are checked of values on the host, which are Python's and NumPy's. Arrays on a
device are never read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.core import Tracer

from rlaxlib._core import binding, streams
from rlaxlib._core.errors import describe, problem
from rlaxlib._core.specs import Interval, Sizes, Spec, size_of

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
    name: str,
    value: Any,
    spec: Spec,
    sizes: Sizes,
    given: Mapping[str, Any],
    sample_mask: Any = None,
) -> None:
    """Check a value against the rules of its spec, and that its dtype can hold it.

    Bounds may be sizes of axes, or other arguments, which are `given`. Values on a
    device, and at steps that a `sample_mask` ignores, break no rule.
    """
    x, mask = _concrete(value), _concrete(sample_mask)
    if x is None or (mask is None and sample_mask is not None):
        return
    dtype = getattr(x, "dtype", type(x))
    for rule in of(spec, dtype):
        is_wrong = _breaks(x, rule, sizes, given)
        if mask is not None:
            is_wrong = is_wrong & streams.of_steps(mask, is_wrong)
        if np.any(is_wrong):
            first = np.broadcast_to(x, np.shape(is_wrong))[is_wrong].flat[0]
            must = _must(rule, sizes, given)
            raise problem(f"`{name}` is {_shown(first)}, must {must}")


def of(spec: Spec, dtype: Any) -> tuple[Interval | str, ...]:
    """Return the rules of a spec for values of a dtype.

    Integers of 64 bits have to be narrow, too: JAX cuts most to 32, and they wrap.
    A Python integer in place of a float becomes one.
    """
    is_wide = dtype in (np.int64, np.uint64) or (dtype is int and not spec.is_float)
    return spec.rules + ("narrow",) * is_wide


def _breaks(
    x: Any, rule: Interval | str, sizes: Sizes, given: Mapping[str, Any]
) -> Any:
    """Return which values break a rule."""
    if isinstance(rule, str):
        return _OTHERS[rule][0](x)
    low, high = (_bound(end, sizes, given) for end in rule[:2])
    is_above = is_below = True
    if low is not None:
        is_above = x >= low if rule.has_low else _rounded(x) > _rounded(low)
    if high is not None:
        # A normaliser keeps the distance of a decay from 1, however small.
        is_open = rule.high == np.inf and not rule.has_high
        near = _rounded(x) if is_open else x
        is_below = near <= high if rule.has_high else near < high
    return np.logical_not(is_above & is_below)


def _rounded(x: Any) -> Any:
    """Return floats in the precision of JAX, where 1e-50 is 0 and 1e50 infinite."""
    if x is None or (not isinstance(x, float) and np.result_type(x) != np.float64):
        return x
    dtype = jax.dtypes.canonicalize_dtype(np.float64)
    if isinstance(x, float) and (x == 0 or 1e-30 < abs(x) < 1e30):
        return dtype.type(x)  # Neither 0 nor infinite; `errstate` takes microseconds.
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(x).astype(dtype)[()]


def _shown(x: Any) -> str:
    """Return a value, and what JAX rounds it to if that is a whole number."""
    near: Any = _rounded(x)
    if near != x and near == np.round(near):
        return f"{x} ({near} in {np.result_type(near)})"
    return f"{x}"


def _must(rule: Interval | str, sizes: Sizes, given: Mapping[str, Any]) -> str:
    """Describe a rule, with numbers in place of the names of scalar bounds."""
    if isinstance(rule, str):
        return _OTHERS[rule][1]
    known = [_bound(end, sizes, given) for end in rule[:2]]
    low, high = (
        str(x) if isinstance(end, str) and x is not None and not np.ndim(x) else end
        for end, x in zip(rule[:2], known, strict=True)
    )
    return f"be {rule._replace(low=low, high=high)}"


def _bound(end: float | str, sizes: Sizes, given: Mapping[str, Any]) -> Any:
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
        *most, last = [f'"{each}"' for each in spec.options]
        must = " or ".join(filter(None, [", ".join(most), last]))
    else:
        classes, must = _STATIC[spec.type]
        is_bool = isinstance(value, bool)
        is_right = isinstance(value, classes) and is_bool == (spec.type is bool)
    if isinstance(value, Tracer):
        must = "a Python value: mark it with static_argnames"
        raise problem(f"`{name}` is traced, must be {must}")
    if not is_right:
        raise problem(f"`{name}` is {describe(value)}, must be {must}")


def check_bare(name: str, value: Any, spec: Spec, result: Spec) -> None:
    """Check a function, an object of functions, or a dtype, which the result has."""
    must = ""
    if spec.kind == "Function" and not (value is None or callable(value)):
        must = "a function"
    elif spec.kind == "Object" and not all(
        hasattr(value, each) for each in spec.type._functions
    ):
        must = f"a `{spec.type.__name__}`"
    elif spec.kind == "DType":
        has = result if result.is_array else Spec("Float")  # An object has floats.
        dtype = binding.dtype_of(value)
        if dtype is None or not binding.has_kind(((), dtype, True), has):
            must = f"the dtype of {binding.KINDS[has.kind][2]}"
    if must:
        raise problem(f"`{name}` is {describe(value)}, must be {must}")


def _concrete(value: Any) -> Any:
    """Return a value that is on the host, or None for a JAX array, traced or not."""
    if isinstance(value, int | float | str | None):
        return value
    return None if isinstance(value, Array) else np.asarray(value)
