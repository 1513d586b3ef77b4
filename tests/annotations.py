"""What the annotations of a function say about its arguments."""

import functools
import inspect
import math
import re
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from rlaxlib._core import specs
from rlaxlib._core.specs import Interval, Spec


@functools.cache
def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of a function, or of the function that it wraps."""
    try:
        return typing.get_type_hints(inspect.unwrap(function), include_extras=True)
    except TypeError:  # A `functools.partial`.
        return {}


def specs_of(function: Callable[..., Any], paths: Iterable[str]) -> dict[str, Spec]:
    """Return the specs of arguments, or of their parts such as `penalties[0].alpha`."""
    found = {path: _spec(function, path) for path in paths}
    return {n: x for n, x in found.items() if not (x.parts or x.is_bare)}


def _spec(function: Callable[..., Any], path: str) -> Spec:
    name, *steps = re.findall(r"\w+", path)
    return functools.reduce(_part, steps, specs.read(hints_of(function).get(name)))


def _part(spec: Spec, step: str) -> Spec:
    """Return the spec of a field or an entry."""
    key = int(step) % max(len(spec.parts), 1) if step.isdecimal() else step
    return spec.parts.get(key, specs.read(Any))


def has_leading_axes(spec: Spec) -> bool:
    """Return whether an argument may have any number of axes."""
    return spec.is_tree or any(
        axis.startswith(("...", "*")) for axes in spec.shapes for axis in axes
    )


# --- Values that an annotation excludes. ---


def sizes_of(
    found: Mapping[str, Spec], arrays: Mapping[str, np.ndarray]
) -> dict[str, int]:
    """Return the sizes of the axes of arguments."""
    return {
        axis: size
        for name, spec in found.items()
        for axes in spec.shapes
        if len(axes) == arrays[name].ndim
        for axis, size in zip(axes, arrays[name].shape, strict=True)
    }


def least(spec: Spec, sizes: Mapping[str, int]) -> np.ndarray:
    """Return an array of the least shape; an axis of unknown size has 3 entries."""
    axes = min(spec.shapes, key=len, default=())
    named = [axis for axis in axes if not axis.startswith(("...", "*"))]
    shape = [int(x) if x.isdecimal() else sizes.get(x, 3) for x in named]
    return np.linspace(0.0, 1.0, math.prod(shape)).reshape(shape)


def excluded(
    spec: Spec, valid: np.ndarray, bounds: Mapping[str, float]
) -> Iterator[Any]:
    """Yield Python scalars or arrays like `valid` that the rules of a spec exclude."""
    is_integer = spec.kind == "Int" or spec.type is int
    for rule in spec.rules:
        if isinstance(rule, Interval):
            bad = [*beyond(rule, 1.0 if is_integer else 0.1, bounds), np.nan]
            if is_integer:
                bad = [int(x) for x in bad if np.isfinite(x)]
            yield from (with_last(valid, x) for x in bad)
        elif rule == "in {0, 1}":
            yield from (with_last(valid, x) for x in (0.5, 2.0))
        elif valid.ndim and valid.shape[-1] > 1:
            yield np.flip(valid, -1)
            if rule == "increasing":
                yield np.concatenate([valid[..., :-1], valid[..., -2:-1]], -1)


def beyond(rule: Interval, step: float, bounds: Mapping[str, float]) -> Iterator[float]:
    """Yield a number below and one above an interval, an open bound itself."""
    ends = (rule.low, rule.has_low, -step), (rule.high, rule.has_high, step)
    for end, is_inside, way in ends:
        bound = bounds.get(end) if isinstance(end, str) else end
        if bound is not None and not (is_inside and np.isinf(bound)):
            yield bound + way * is_inside


def with_last(valid: np.ndarray, x: float) -> Any:
    """Return an array with another last entry, or a Python scalar in its place."""
    if not valid.ndim:
        return x
    changed = np.array(valid, type(x))
    changed.flat[-1] = x
    return changed
