"""Fit the dtypes and shapes of arrays to their specs."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from rlaxlib._core.specs import Axes, Shape, Sizes, Spec, is_many, size_of, split

# Of an array: shape, dtype, and whether it is on the host; of all else `()`, the Python
# type, and True.
Type = tuple[Shape, Any, bool]

# Of each kind: the dtypes of arrays, and the types of Python scalars.
KINDS: Mapping[str, tuple[tuple[Any, ...], tuple[type, ...]]] = {
    "Bool": ((jnp.bool_,), (bool,)),
    "Flag": ((jnp.bool_,), (bool,)),
    "Float": ((jnp.floating,), (int, float)),
    "Int": ((jnp.integer,), (int,)),
    "Key": ((jax.dtypes.prng_key,), ()),
    "Real": ((jnp.floating, jnp.integer), (int, float)),
    "Shaped": ((jnp.number, jnp.bool_, jax.dtypes.extended), (bool, int, float)),
}


class Bound(NamedTuple):
    """What the arrays of a call determine."""

    sizes: Sizes
    axes: dict[str, Axes]  # Of each array that fits.
    misfit: str  # The name of an array that does not fit; else nothing.


# --- Dtypes. ---


def type_of(value: Any) -> Type:
    """Return the type of an argument."""
    is_array, is_host = _where(type(value))
    is_weak = is_array and value.shape == () and getattr(value, "weak_type", False)
    if is_weak and jnp.issubdtype(value.dtype, jnp.integer):
        return (), int, False  # A Python integer, given to a compiled function.
    if is_array:
        return value.shape, value.dtype, is_host
    for scalar in (bool, int, float):
        if isinstance(value, scalar):
            return (), scalar, True
    return (), type(value), True


@functools.lru_cache(maxsize=1024)
def _where(kind: type) -> tuple[bool, bool]:
    """Return whether JAX reads a type as an array, and whether it is on the host.

    Arrays of other libraries and masked arrays do not count: JAX refuses them, and a
    compiled program would read their memory without their meaning.
    """
    is_device = issubclass(kind, Array | Tracer | jax.ShapeDtypeStruct)
    is_host = issubclass(kind, np.ndarray | np.generic)
    is_host = is_host and not issubclass(kind, np.ma.MaskedArray)
    return is_device or is_host, is_host


def has_kind(type_: Type, spec: Spec) -> bool:
    """Return whether a spec takes a value of a type, apart from its shape."""
    shape, dtype, _ = type_
    arrays, scalars = KINDS[spec.kind]
    if isinstance(dtype, type):
        return dtype in scalars or (spec.optional and dtype is type(None))
    # JAX has numbers in native byte order, and no long double.
    is_long = getattr(dtype, "char", "") in ("g", "G")
    if is_long or not getattr(dtype, "isnative", True):
        return False
    if spec.kind == "Key" and dtype == jnp.uint32:
        return len(shape) > 0
    return any(jnp.issubdtype(dtype, each) for each in arrays)


# --- Shapes. ---


def bind(wanted: Mapping[str, Spec], types: Mapping[str, Type], sizes: Sizes) -> Bound:
    """Fit arrays to their specs, up to one that does not; some sizes may be known."""
    wrong = [n for n, spec in wanted.items() if not has_kind(types[n], spec)]
    if wrong:
        return Bound(sizes, {}, wrong[0])
    passed = {n: x for n, x in types.items() if x[1] is not type(None)}
    shapes = {n: own_shape(x, wanted[n].kind) for n, x in passed.items()}
    return fit(wanted, shapes, sizes)


def fit(wanted: Mapping[str, Spec], shapes: Mapping[str, Shape], sizes: Sizes) -> Bound:
    """Fit the shapes of arrays to their specs, as `bind`.

    Arrays of one shape are first. They determine the sizes that those of several shapes
    need, and so do pytrees before those that are like them.
    """
    axes: dict[str, Axes] = {}
    order = sorted(shapes, key=lambda n: len(wanted[n].shapes) + bool(wanted[n].like))
    for name in order:
        ways = ((x, _with(sizes, shapes[name], x)) for x in wanted[name].shapes)
        found = next(((x, bound) for x, bound in ways if bound is not None), None)
        if found is None:
            return Bound(sizes, axes, name)
        axes[name], sizes = found
    return Bound(sizes, axes, "")


def own_shape(type_: Type, kind: str) -> Shape:
    """Return a shape without the last axis of a legacy key, which holds its words."""
    shape, dtype, _ = type_
    return shape[:-1] if kind == "Key" and dtype == jnp.uint32 else shape


def _with(sizes: Sizes, shape: Shape, axes: Axes) -> Sizes | None:
    """Return `sizes` with those of `shape` added, or None if they contradict."""
    bound = dict(sizes)
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
        if size - extra < 1 or size_of(axis, bound) not in (None, size):
            return None
        if name != "_" and not name.isdecimal():
            bound[name] = size - extra
    return bound
