"""Specs of arguments: a kind, shapes, and rules for the values.

- `Float[ArrayLike, "T"]`, `Int`, `Bool`, `Key`, `Shaped` of any numbers, and `Real`,
  which may be given as integers and becomes floats, are arrays;
- `Tree[Any, "float like params"]` is a pytree, with the kind of its leaves in front;
- `bool` is a flag, which may be traced; `Static[int, "in [1, inf)"]` is a Python value,
  and a `Literal` one of its strings. An axis named like a static integer has its size;
- named tuples, dataclasses, tuples and sequences are what their parts are;
- names of axes and dtypes are settings;
- all else is an object, such as a function of the user.

The text of a spec has up to three parts, as in `"[] or [T] in [0, 1]"`:

- a shape, such as `T, A`, none for a scalar; or several in brackets, joined by `or`. An
  axis is a size such as `3`, or a name such as `T`, which has the same size of at least
  1 in all arguments of a call. `T+1` is one more than `T`. `...` stands for any number
  of axes, the same in all arguments, and so does a name with a star, such as `*B`. `_`
  is an axis, and `*_` are axes, that may differ between arguments;
- rules for the values: an interval such as `in [0, A)`, whose bounds are numbers, named
  axes or other arguments; `in {0, 1}`; `ascending`; or `increasing`, which excludes
  equal values;
- `like params`: of a pytree, the structure of another argument, and leaves of its
  shapes; of a result, the dtypes of floats of an argument.

The shape of a leaf of a `Tree` may be any if none is written.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Union

import jax
from jax.typing import DTypeLike

from rlaxlib._core.types import AxisName, Note

Axes = tuple[str, ...]
Shape = tuple[int, ...]
Sizes = dict[str, int | Shape]
Values = Mapping[str, Any]

_UNIONS = (Union, types.UnionType)
_SETTINGS = {types.NoneType, *typing.get_args(AxisName)}


class Interval(NamedTuple):
    """A rule such as `in [0, A)`. A bound is a number, an axis or an argument."""

    low: float | str
    high: float | str
    has_low: bool
    has_high: bool

    def __str__(self) -> str:
        low, high = (f"{x:g}" if isinstance(x, float) else x for x in self[:2])
        return f"in {'(['[self.has_low]}{low}, {high}{')]'[self.has_high]}"

    def at(self, low: Any, high: Any, *_: Any) -> Interval:
        """Return the interval with the values of its bounds, if they are not None."""
        known = {"low": low, "high": high}
        return self._replace(**{n: x for n, x in known.items() if x is not None})


class Spec(NamedTuple):
    """A spec: `Float[ArrayLike, "[] or [T]"]` has the shapes `((), ("T",))`.

    Attributes:
        kind: A kind of array, such as `Float`; `Flag` of a bool; `Static` or `Literal`;
            `Record`, `Tuple` or `Sequence` of what contains others; `Setting` of axis
            names or a dtype; or `Other`, such as a function.
        shapes: Names of axes, for each shape that is allowed.
        rules: Rules for the values.
        optional: Whether None is allowed.
        type: The type of a `Static`, and that of other arguments.
        options: The strings of a `Literal`.
        like: The argument that a pytree or a result is like.
        is_tree: Whether it is the spec of a pytree, or of a leaf of one.
        parts: The specs of fields or entries, by their names or places.
    """

    kind: str
    shapes: tuple[Axes, ...] = ()
    rules: tuple[Interval | str, ...] = ()
    optional: bool = False
    type: Any = object
    options: tuple[str, ...] = ()
    like: str = ""
    is_tree: bool = False
    parts: Mapping[Any, Spec] = types.MappingProxyType({})

    @property
    def is_static(self) -> bool:
        """Whether no value is an array."""
        return self.kind in ("Static", "Literal")

    @property
    def is_float(self) -> bool:
        """Whether arrays are floats, or become floats."""
        return self.kind in ("Float", "Real")

    @property
    def is_array(self) -> bool:
        """Whether the argument is an array: no flag, and no pytree."""
        is_other = self.is_static or self.is_tree or self.kind == "Flag"
        return bool(self.shapes) and not is_other

    @property
    def is_open(self) -> bool:
        """Whether arrays may have any number of axes."""
        return any(is_many(axis) for axes in self.shapes for axis in axes)

    @property
    def is_bare(self) -> bool:
        """Whether it describes neither arrays nor Python values."""
        return self.kind in ("Setting", "Other")

    @property
    def text(self) -> str:
        """The spec as errors show it, such as `float[] or [T] in [0, 1]`."""
        shapes = " or ".join(f"[{', '.join(map(shown, x))}]" for x in self.shapes)
        rules = "".join(f" {rule}" for rule in self.rules)
        kind = {"Flag": "bool", "Shaped": "array"}.get(self.kind, self.kind.lower())
        return kind + shapes + rules + " or None" * self.optional


@functools.cache
def read(annotation: Any) -> Spec:
    """Read the annotation of an argument, a result, a field or an entry."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    union = {*args} if origin in _UNIONS else {annotation}
    if annotation is bool:
        return Spec("Flag", ((),), type=bool)
    if origin is Literal:  # Literal["k1", "k2"].
        return Spec("Literal", options=args)
    if origin is Annotated and isinstance(note := args[1], Note):
        return _read_note(args[0], *note)  # Float[ArrayLike, "T in [0, 1]"].
    if union <= _SETTINGS or annotation == DTypeLike:  # str | Sequence[str] | None.
        return Spec("Setting")
    if len(members := union - {types.NoneType}) < len(union) == 2:  # X | None.
        return read(members.pop())._replace(optional=True)
    kind, parts = "Tuple", {}
    if dataclasses.is_dataclass(annotation) or hasattr(annotation, "_fields"):
        kind, parts = "Record", fields(annotation)
    elif origin in (tuple, Sequence):  # tuple[X, Y], Sequence[X].
        kind = "Sequence" if origin is Sequence else "Tuple"
        parts = dict(enumerate(args))
    inner = {n: read(x) for n, x in parts.items()}
    if all(x.is_bare for x in inner.values()):  # Callable[[Any], Any].
        return Spec("Other")
    return Spec(kind, type=annotation, parts=inner)


def _read_note(kept: Any, kind: str, text: str) -> Spec:
    """Read the kind and the text of an annotation, whose type is `kept`."""
    if is_tree := kind == "Tree":  # "float T like params".
        first, _, text = text.partition(" ")
        kind = first.capitalize()
    text, _, like = f" {text}".partition(" like ")  # " T in [0, 1]", "params".
    shapes, *rules = re.split(" (?=in |ascending|increasing)", text)
    shapes = _read_shapes(shapes.strip() or "..." * is_tree)
    type_ = kept if kind == "Static" else object
    rules = tuple(map(_read_rule, rules))
    return Spec(kind, shapes, rules, type=type_, like=like, is_tree=is_tree)


def _read_shapes(text: str) -> tuple[Axes, ...]:
    """Read `"T, A"`, which is one shape, or `"[] or [T]"`, which are two."""
    shapes = [each.strip("[]") for each in text.split(" or ")]
    return tuple(tuple(filter(None, each.split(", "))) for each in shapes)


def _read_rule(text: str) -> Interval | str:
    """Read a rule: `"in [0, A)"` is an interval, `"ascending"` is itself."""
    if text[:4] not in ("in [", "in ("):
        return text
    low, high = map(_read_bound, text[4:-1].split(", "))
    return Interval(low, high, text[3] == "[", text[-1] == "]")


def _read_bound(text: str) -> float | str:
    """Read `"0.5"` or `"-inf"`, which are numbers, or the name of an axis."""
    try:
        return float(text)
    except ValueError:
        return text


# --- Axes. ---


def is_many(axis: str) -> bool:
    """Return whether an axis stands for any number of axes."""
    return axis.startswith(("...", "*"))


def shown(axis: str) -> str:
    """Return an axis as errors show it."""
    return "..." if axis.startswith("...") else axis


@functools.cache
def split(axis: str) -> tuple[str, int]:
    """Split `"T+1"` into `("T", 1)`; all else is a name."""
    match = re.fullmatch(r"(\w+)([+-]\d+)", axis)
    return (match[1], int(match[2])) if match else (axis, 0)


def size_of(axis: str, sizes: Sizes) -> int | Shape | None:
    """Return the size of an axis such as `T+1`, or None if it is unknown."""
    name, extra = split(axis)
    size = int(name) if name.isdecimal() else sizes.get(name)
    return size + extra if isinstance(size, int) else size


def begins(axes: Axes, steps: Axes) -> bool:
    """Return whether axes begin with those of a mask, of one step more or less."""
    first = tuple(split(axis)[0] for axis in axes[: len(steps)])
    return first == steps != ()


# --- Annotations that contain others. ---


class TypeMismatchError(Exception):
    """A value without the fields or entries of its spec: path, spec."""


@functools.cache
def fields(record: Any) -> dict[str, Any]:
    """Return the annotations of the fields of a named tuple or a dataclass."""
    kind = typing.get_origin(record) or record  # Of a generic named tuple.
    return typing.get_type_hints(kind, include_extras=True)


@functools.cache
def settings(kind: Any) -> Spec:
    """Return the spec of an object of settings: those of its fields that are arrays."""
    hints = fields(kind) if dataclasses.is_dataclass(kind) else {}
    parts = {n: spec for n, x in hints.items() if (spec := read(x)).is_array}
    return Spec("Record", type=kind, parts=parts)


def within(spec: Spec) -> Iterator[Spec]:
    """Yield a spec, and all that it contains."""
    yield spec
    for part in spec.parts.values():
        yield from within(part)


def entries(path: str, spec: Spec, value: Any) -> list[tuple[str, Spec, Any]]:
    """Return path, spec and value of each field or entry of a value."""
    parts = spec.parts
    if not parts or (value is None and spec.optional):
        return []
    if spec.kind == "Record":
        if not all(hasattr(value, name) for name in parts):
            raise TypeMismatchError(path, spec)
        return [(f"{path}.{n}", x, getattr(value, n)) for n, x in parts.items()]
    found = value if isinstance(value, list | tuple) else None
    every = [*parts.values()] * (len(found or ()) if spec.kind == "Sequence" else 1)
    if found is None or len(found) != len(every):
        raise TypeMismatchError(path, spec)
    return [(f"{path}[{i}]", x, found[i]) for i, x in enumerate(every)]


def nodes(path: str, spec: Spec, value: Any) -> Iterator[tuple[str, Spec, Any]]:
    """Yield path, spec and value of each array, pytree and static value."""
    if not (spec.parts or spec.is_bare):
        yield path, spec, value
    for part in entries(path, spec, value):
        yield from nodes(*part)


def leaves(path: str, spec: Spec, tree: Any) -> Iterator[tuple[str, Spec, Any]]:
    """Yield path, spec and value of each leaf of a pytree, such as `params['w']`."""
    for keys, leaf in jax.tree_util.tree_leaves_with_path(tree):
        where = jax.tree_util.keystr(keys)
        own = f"...{root_of(path, spec)}{where}"
        shapes = tuple(tuple(own if x == "..." else x for x in y) for y in spec.shapes)
        yield path + where, spec._replace(shapes=shapes), leaf


def root_of(path: str, spec: Spec) -> str:
    """Return the path of the pytree that a pytree at a path is like, or its own."""
    record = path.rpartition(".")[0]
    return ".".join(filter(None, [record, spec.like])) if spec.like else path


def argument_of(path: str) -> str:
    """Return the argument of a path, such as `state` for `state.mean`."""
    return re.split(r"[.[]", path)[0]
