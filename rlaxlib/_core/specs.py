"""Specs of arguments: a kind, shapes, and rules for the values.

The text of a spec has up to two parts, as in `"[] or [T] in [0, 1]"`:

- a shape, such as `T, A`, none for a scalar; or several in brackets, joined by `or`. An
  axis is a size such as `3`, or a name such as `T`, which has the same size of at least
  1 in all arguments of a call. `T+1` is one more than `T`. `...` stands for any number
  of axes, the same in all arguments, and so does a name with a star, such as `*B`. `*_`
  are axes that may differ between arguments;
- rules for the values: an interval such as `in [0, A)`, whose bounds are numbers, named
  axes or other arguments; `in {0, 1}`; `ascending`; or `increasing`, which excludes
  equal values.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Union, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import DTypeLike

from rlaxlib._core.devices import AxisName
from rlaxlib._core.types import Note

Axes = tuple[str, ...]
Shape = tuple[int, ...]
Sizes = dict[str, int | tuple[int, ...]]

# The dtypes of arrays, the types of Python scalars, and a description.
KINDS: Mapping[str, tuple[tuple[Any, ...], tuple[type, ...], str]] = {
    "Bool": ((jnp.bool_,), (bool,), "a bool array"),
    "Float": ((jnp.floating,), (int, float), "a floating-point array"),
    "Int": ((jnp.integer,), (int,), "an integer array"),
    "Key": ((jax.dtypes.prng_key,), (), "a PRNG key such as `jax.random.key(0)`"),
    "Real": (
        (jnp.floating, jnp.integer),
        (int, float),
        "a floating-point or integer array",
    ),
    "Shaped": (
        (jnp.number, jnp.bool_, jax.dtypes.extended),
        (bool, int, float),
        "an array of numbers",
    ),
}
_TEXT = re.compile(
    r"(?P<shapes>\[.*?\](?: or \[.*?\])*|[^\[{]*?)"
    r"(?P<rules>(?: ?(?:\bin [\[(][^\])]+[\])]|\bin \{0, 1\}|ascending|increasing))*)"
)


_NUMBER = re.compile(r"-?(inf|[\d.]+(e-?\d+)?)")


class Interval(NamedTuple):
    """A rule such as `in [0, A)`.

    Attributes:
        low: Lower bound: a number, or the name of an axis or of an argument.
        high: Upper bound, likewise.
        has_low: Whether the lower bound is in the interval.
        has_high: Whether the upper bound is.
    """

    low: float | str
    high: float | str
    has_low: bool
    has_high: bool

    def __str__(self) -> str:
        low, high = (f"{x:g}" if isinstance(x, float) else x for x in self[:2])
        return f"in {'(['[self.has_low]}{low}, {high}{')]'[self.has_high]}"


class Spec(NamedTuple):
    """A spec: `Float[ArrayLike, "[] or [T]"]` has the shapes `((), ("T",))`.

    Attributes:
        kind: A name of `KINDS`; or `Flag`, `Static`, `Literal` or `Tree`.
        shapes: Names of axes, for each shape that is allowed.
        rules: Rules for the values.
        optional: Whether None is allowed.
        type: The type of a `Static`.
        options: The strings of a `Literal`, or those that an array may be instead.
    """

    kind: str
    shapes: tuple[Axes, ...] = ()
    rules: tuple[Interval | str, ...] = ()
    optional: bool = False
    type: type = object
    options: tuple[str, ...] = ()

    @property
    def is_array(self) -> bool:
        """Whether the argument is an array."""
        return self.kind in KINDS

    @property
    def is_flag(self) -> bool:
        """Whether the argument is a bool, which may be traced."""
        return self.kind == "Flag"

    @property
    def text(self) -> str:
        """The spec as errors show it, such as `float[] or [T] in [0, 1]`."""
        shapes = " or ".join(f"[{', '.join(axes)}]" for axes in self.shapes)
        rules = "".join(f" {rule}" for rule in self.rules)
        return self.kind.lower() + shapes + rules + " or None" * self.optional


@functools.cache
def read(annotation: Any) -> Spec | None:
    """Read the annotation of an argument, or return None if it has no spec."""
    if annotation is bool:
        return Spec("Flag", ((),))
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (Union, types.UnionType):
        *literals, last = [read(part) for part in parts if part is not type(None)]
        if last is None or None in literals:
            return None
        options = literals[0].options if literals and literals[0] else last.options
        return last._replace(optional=type(None) in parts, options=options)
    if origin is Literal:
        return Spec("Literal", options=parts)
    if origin is Annotated and isinstance(note := parts[1], Note):
        match = _TEXT.fullmatch(note.text)
        assert match is not None, note.text
        shapes: list[str] = re.findall(r"\[(.*?)\]", match["shapes"])
        shapes = shapes or [match["shapes"]]
        axes = tuple(tuple(filter(None, each.split(", "))) for each in shapes)
        rules = tuple(map(_rule, re.findall(r"in \S+ \S+|\w+", match["rules"])))
        kept = parts[0] if note.kind == "Static" else object
        return Spec(note.kind, axes, rules, type=kept)
    return None


def _rule(text: str) -> Interval | str:
    """Read a rule; those that are no interval are told by their text."""
    if text[:4] not in ("in [", "in ("):
        return text
    ends = text[4:-1].split(", ")
    low, high = (float(x) if _NUMBER.fullmatch(x) else x for x in ends)
    return Interval(low, high, text[3] == "[", text[-1] == "]")


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


def fit(
    shape: Shape, dtype: Any, spec: Spec, sizes: Sizes
) -> tuple[Axes, Sizes] | None:
    """Fit an array to its spec, given the sizes of the axes known so far.

    Returns:
        The axes of the array and `sizes` with those of the array added, or None if the
        array does not fit.
    """
    if not has_kind(shape, dtype, spec.kind):
        return None
    return _fit_shape(own_shape(shape, dtype, spec.kind), spec, sizes)


def fit_shapes(
    shapes: Mapping[str, Shape], wanted: Mapping[str, Spec], sizes: Sizes
) -> Sizes | None:
    """Return `sizes` with those of all arrays added, or None if one does not fit."""
    for name in in_order(shapes, wanted):
        found = _fit_shape(shapes[name], wanted[name], sizes)
        if found is None:
            return None
        sizes = found[1]
    return sizes


def in_order(names: Iterable[str], wanted: Mapping[str, Spec]) -> list[str]:
    """Return the names of arrays of one shape, before those that may have several.

    The former determine the sizes that the latter need.
    """
    return sorted(names, key=lambda name: len(wanted[name].shapes))


def _fit_shape(shape: Shape, spec: Spec, sizes: Sizes) -> tuple[Axes, Sizes] | None:
    found = ((axes, _bind(shape, axes, sizes)) for axes in spec.shapes)
    return next(((axes, bound) for axes, bound in found if bound is not None), None)


def _bind(shape: Shape, axes: Axes, sizes: Sizes) -> Sizes | None:
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
        if name.isdecimal():
            expected: Any = int(name)
        else:
            expected = bound.setdefault(name, size - extra)
        if size - extra != expected or size - extra < 1:
            return None
    return bound


def is_many(axis: str) -> bool:
    """Return whether an axis stands for any number of axes."""
    return axis == "..." or axis.startswith("*")


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


# --- Arguments that have no spec. ---

_SETTINGS = {types.NoneType, *typing.get_args(AxisName), *typing.get_args(DTypeLike)}


def is_setting(hint: Any) -> bool:
    """Return whether an annotation is that of axis names or of a dtype."""
    return bool(_alternatives(hint) <= _SETTINGS)


def is_callable(hint: Any) -> bool:
    """Return whether an annotation is that of a function of the user."""
    return any(typing.get_origin(x) is Callable for x in _alternatives(hint))


def is_function(hint: Any) -> bool:
    """Return whether an argument is a function of the user, or an object with some.

    All other arguments without a spec are axis names, dtypes, or pytrees of arrays: a
    state, or what a type variable stands for.
    """
    is_tree = isinstance(hint, typing.TypeVar) or is_nested(hint)
    return not (is_setting(hint) or is_tree)


def _alternatives(hint: Any) -> set[Any]:
    """Return the members of a union, or one annotation."""
    is_union = typing.get_origin(hint) in (Union, types.UnionType)
    return set(typing.get_args(hint)) if is_union else {hint}


def is_nested(hint: Any) -> bool:
    """Return whether an annotation contains specs: a record, tuple or sequence."""
    return any(read(part) or is_nested(part) for part in contents(hint))


def is_loose(hint: Any) -> bool:
    """Return whether an annotation contains values of which it says nothing."""
    return not read(hint) and (not contents(hint) or any(map(is_loose, contents(hint))))


def contents(hint: Any) -> tuple[Any, ...]:
    """Return the annotations that an annotation contains."""
    if is_record(hint):
        return tuple(_hints(hint).values())
    origin = typing.get_origin(hint)
    if origin in (tuple, Sequence, Union, types.UnionType):
        return tuple(x for x in typing.get_args(hint) if x not in (..., type(None)))
    return ()


def is_record(hint: Any) -> bool:
    """Return whether an annotation is a named tuple or a dataclass of arrays."""
    if dataclasses.is_dataclass(hint):
        return any(map(read, _hints(hint).values()))
    return hasattr(hint, "_fields")


@functools.cache
def _hints(hint: Any) -> dict[str, Any]:
    """Return the annotations of the fields of a record."""
    kind = typing.get_origin(hint) or hint  # Of a generic named tuple.
    return typing.get_type_hints(kind, include_extras=True)


def parts(path: str, hint: Any, value: Any) -> list[tuple[str, Any, Any]]:
    """Return path, annotation and value of each field or entry of an argument.

    Raises:
        TypeError: If the argument does not have the fields or entries, with the path
            and the annotation.
    """
    if is_record(hint):
        if not all(hasattr(value, field) for field in _hints(hint)):
            raise TypeError(path, hint)
        return [(f"{path}.{x}", y, getattr(value, x)) for x, y in _hints(hint).items()]
    if typing.get_origin(hint) in (Union, types.UnionType):
        return [] if value is None else [(path, contents(hint)[0], value)]
    if not (inner := contents(hint)):
        return []
    entries = list(cast(Any, value)) if isinstance(value, list | tuple) else []
    is_fixed = typing.get_origin(hint) is tuple and ... not in typing.get_args(hint)
    hints = inner if is_fixed else inner * len(entries)
    if not isinstance(value, list | tuple) or len(hints) != len(entries):
        raise TypeError(path, hint)
    names = [f"{path}[{i}]" for i in range(len(entries))]
    return list(zip(names, hints, entries, strict=True))


def leaves(path: str, hint: Any, value: Any) -> Iterator[tuple[str, Spec, Any]]:
    """Return path, spec and value of each array that an argument contains."""
    if spec := read(hint):
        yield path, spec, value
    else:
        for part in parts(path, hint, value):
            yield from leaves(*part)


def rebuild(
    path: str, hint: Any, value: Any, change: Callable[[str, Spec, Any], Any]
) -> Any:
    """Return an argument with each array that it contains changed.

    Args:
        path: Its name.
        hint: Its annotation.
        value: Its value.
        change: A function of the path, the spec and the value of an array.

    Returns:
        The argument.
    """
    if spec := read(hint):
        return change(path, spec, value)
    inner = [rebuild(*part, change) for part in parts(path, hint, value)]
    if is_record(hint):
        return hint(*inner)
    if not inner:
        return value
    is_union = typing.get_origin(hint) in (Union, types.UnionType)
    return inner[0] if is_union else type(value)(inner)
