"""Fit the shapes and dtypes of arrays to their specs."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from types import NoneType
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from rlaxlib._core.specs import KINDS, Axes, Shape, Sizes, Spec

Type = tuple[Shape, Any, bool]  # Shape, dtype and weakness.


class Bound(NamedTuple):
    """What the arrays of a call determine.

    Attributes:
        sizes: The sizes of axes.
        axes: The axes of each array that fits.
        misfit: The name of an array that does not fit; else nothing.
    """

    sizes: Sizes
    axes: dict[str, Axes]
    misfit: str


def bind(
    wanted: Mapping[str, Spec], types: Mapping[str, Type], sizes: Mapping[str, int]
) -> Bound:
    """Fit arrays to their specs, up to one that does not fit.

    Args:
        wanted: The spec of each array.
        types: The type of each array that is given.
        sizes: Sizes of axes that are known.

    Returns:
        Sizes, axes, and what does not fit.
    """
    bound: Sizes = dict(sizes)
    axes: dict[str, Axes] = {}
    for name in in_order(wanted):
        spec = wanted[name]
        shape, dtype, _ = types.get(name, ((), NoneType, True))
        if name not in types or (spec.optional and dtype is NoneType):
            continue
        if spec.options and dtype is str:
            continue
        found = fit(shape, dtype, spec, bound)
        if found is None:
            return Bound(bound, axes, name)
        axes[name], bound = found
    return Bound(bound, axes, "")


def in_order(wanted: Mapping[str, Spec]) -> list[str]:
    """Return the names of arrays of one shape, before those that may have several.

    The former determine the sizes that the latter need, and so do pytrees before those
    that are like them.
    """
    return sorted(wanted, key=lambda n: len(wanted[n].shapes) + bool(wanted[n].like))


def fit_shapes(
    shapes: Mapping[str, Shape], wanted: Mapping[str, Spec], sizes: Sizes
) -> Sizes | None:
    """Return `sizes` with those of all arrays added, or None if one does not fit."""
    for name in in_order({name: wanted[name] for name in shapes}):
        found = _fit_shape(shapes[name], wanted[name], sizes)
        if found is None:
            return None
        sizes = found[1]
    return sizes


def fit(
    shape: Shape, dtype: Any, spec: Spec, sizes: Sizes
) -> tuple[Axes, Sizes] | None:
    """Fit an array to its spec, given the sizes of the axes known so far.

    Returns:
        The axes, and `sizes` with those of the array added; or None if it does not fit.
    """
    if not has_kind(shape, dtype, spec.kind):
        return None
    return _fit_shape(own_shape(shape, dtype, spec.kind), spec, sizes)


def _fit_shape(shape: Shape, spec: Spec, sizes: Sizes) -> tuple[Axes, Sizes] | None:
    found = ((axes, _bind(shape, axes, sizes)) for axes in spec.shapes)
    return next(((axes, bound) for axes, bound in found if bound is not None), None)


def _bind(shape: Shape, axes: Axes, sizes: Sizes) -> Sizes | None:
    """Return `sizes` with those of `shape` added, or None if they contradict."""
    bound = dict(sizes)
    if sum(map(is_many, axes)) > 1:  # All but one of them are known.
        known: list[Any] = [bound.get(axis, axis) for axis in axes]
        each = [[x] if isinstance(x, str) else x for x in known]
        axes = tuple(str(x) for part in each for x in part)
    if many := [axis for axis in axes if is_many(axis)]:
        start = axes.index(many[0])
        end = max(start, len(shape) - len(axes[start + 1 :]))
        further, shape = shape[start:end], shape[:start] + shape[end:]
        axes = axes[:start] + axes[start + 1 :]
        if many[0] != "*_" and bound.setdefault(many[0], further) != further:
            return None
    if len(shape) != len(axes):
        return None
    for size, axis in zip(shape, axes, strict=True):
        name, extra = split(axis)
        if name.isdecimal():
            expected: Any = int(name)
        elif name == "_":
            expected = size
        else:
            expected = bound.setdefault(name, size - extra)
        if size - extra != expected or size - extra < 1:
            return None
    return bound


# --- Types. ---


@functools.lru_cache(maxsize=1024)
def _is_array(kind: type) -> bool:
    """Return whether JAX reads a type as an array, or as the shape of one."""
    arrays = (Array, Tracer, np.ndarray, np.generic, jax.ShapeDtypeStruct)
    is_array = issubclass(kind, arrays)
    return is_array and not issubclass(kind, np.ma.MaskedArray)


def type_of(value: Any) -> tuple[Shape, Any, bool]:
    """Return shape, dtype and weakness of an array; `()` and the type of all else.

    Arrays of other libraries and masked arrays do not count as arrays: JAX refuses
    them, and a compiled program would read their memory without their meaning.
    """
    if _is_array(cast(Any, type(value))):
        return value.shape, value.dtype, getattr(value, "weak_type", False)
    for scalar in (bool, int, float):
        if isinstance(value, scalar):
            return (), scalar, True
    return (), cast(Any, type(value)), True


@functools.lru_cache(maxsize=1024)
def is_in_jax(dtype: Any) -> bool:
    """Return whether JAX has a dtype: numbers in native byte order, not long double."""
    is_long = getattr(dtype, "char", "") in ("g", "G")
    is_number = any(jnp.issubdtype(dtype, each) for each in KINDS["Shaped"][0])
    return is_number and getattr(dtype, "isnative", True) and not is_long


def has_kind(shape: Shape, dtype: Any, kind: str) -> bool:
    """Return whether an array, or a scalar whose type is `dtype`, is of a kind."""
    arrays, scalars, _ = KINDS[kind]
    if isinstance(dtype, type):
        return dtype in scalars
    if not is_in_jax(dtype):
        return False
    if kind == "Key" and dtype == jnp.uint32:
        return len(shape) > 0
    return any(jnp.issubdtype(dtype, each) for each in arrays)


def own_shape(shape: Shape, dtype: Any, kind: str) -> Shape:
    """Return a shape without the last axis of a legacy key, which holds its words."""
    return shape[:-1] if kind == "Key" and dtype == jnp.uint32 else shape


# --- Axes. ---


def is_many(axis: str) -> bool:
    """Return whether an axis stands for any number of axes."""
    return axis.startswith(("...", "*"))


@functools.cache
def split(axis: str) -> tuple[str, int]:
    """Split `"T+1"` into `("T", 1)`; all else is a name."""
    match = re.fullmatch(r"(\w+)([+-]\d+)", axis)
    return (match[1], int(match[2])) if match else (axis, 0)


def size_of(axis: str, sizes: Sizes) -> int | tuple[int, ...] | None:
    """Return the size of an axis such as `T+1`, or None if it is unknown."""
    name, extra = split(axis)
    size = int(name) if name.isdecimal() else sizes.get(name)
    return cast(Any, size) + extra if isinstance(size, int) else size


def root(path: str) -> str:
    """Return the argument of a path, such as `state` for `state.mean`."""
    return re.split(r"[.[]", path)[0]
