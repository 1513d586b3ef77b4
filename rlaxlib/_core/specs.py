"""Specs of arguments: a kind, shapes, and rules for the values.

The text of a spec has up to two parts, as in `"[] or [T] in [0, 1]"`:

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

A `Tree` has the kind of its leaves in front, as in `"float like params"`. Its `...` is
the shape of each leaf by itself, which needs not be written.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Union, cast

import jax
from jax.typing import DTypeLike

from rlaxlib._core.types import AxisName, Note

Axes = tuple[str, ...]
Shape = tuple[int, ...]
Sizes = dict[str, int | Shape]

_TEXT = re.compile(
    r"(?P<shapes>\[.*?\](?: or \[.*?\])*|[^\[{]*?)"
    r"(?P<rules>(?: ?(?:\bin [\[(][^\])]+[\])]|\bin \{0, 1\}|ascending|increasing))*)"
    r"(?: ?\blike (?P<like>[\w.]+))?"
)
_NUMBER = re.compile(r"-?(inf|[\d.]+(e-?\d+)?)")
_UNIONS = (Union, types.UnionType)


class Interval(NamedTuple):
    """A rule such as `in [0, A)`. A bound is a number, an axis or an argument."""

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
        kind: A kind of array, such as `Float`, or of a flag, which is `Flag`; or
            `Static` or `Literal`.
        shapes: Names of axes, for each shape that is allowed.
        rules: Rules for the values.
        optional: Whether None is allowed.
        type: The type of a `Static`.
        options: The strings of a `Literal`.
        like: The argument that a pytree or a result is like.
        is_tree: Whether it is the spec of a pytree, or of a leaf of one.
    """

    kind: str
    shapes: tuple[Axes, ...] = ()
    rules: tuple[Interval | str, ...] = ()
    optional: bool = False
    type: type = object
    options: tuple[str, ...] = ()
    like: str = ""
    is_tree: bool = False

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
        return not (self.is_static or self.is_tree or self.kind == "Flag")

    @property
    def text(self) -> str:
        """The spec as errors show it, such as `float[] or [T] in [0, 1]`."""
        shapes = " or ".join(f"[{', '.join(map(shown, x))}]" for x in self.shapes)
        rules = "".join(f" {rule}" for rule in self.rules)
        return self.kind.lower() + shapes + rules + " or None" * self.optional


@functools.cache
def read(annotation: Any) -> Spec | None:
    """Read the annotation of an argument, or return None if it has no spec."""
    if annotation is bool:
        return Spec("Flag", ((),), type=bool)
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return Spec("Literal", options=parts)
    if origin is Annotated and isinstance(note := parts[1], Note):
        return _read_note(parts[0], *note)
    members = contents(annotation) if origin in _UNIONS else ()
    spec = read(members[0]) if len(members) == 1 else None  # Or None.
    return spec and spec._replace(optional=True)


def _read_note(kept: Any, kind: str, text: str) -> Spec:
    """Read the kind and the text of an annotation, whose type is `kept`."""
    if is_tree := kind == "Tree":
        kind, _, text = text.partition(" ")
        kind = kind.capitalize()
    match = _TEXT.fullmatch(text)
    assert match is not None, text
    shapes: list[str] = re.findall(r"\[(.*?)\]", match["shapes"])
    shapes = shapes or [match["shapes"].strip() or "..." * is_tree]
    axes = tuple(tuple(filter(None, each.split(", "))) for each in shapes)
    rules = tuple(map(_rule, re.findall(r"in \S+ \S+|\w+", match["rules"])))
    kept = kept if kind == "Static" else object
    like = match["like"] or ""
    return Spec(kind, axes, rules, type=kept, like=like, is_tree=is_tree)


def _rule(text: str) -> Interval | str:
    """Read a rule: an interval, or the text of another one."""
    if text[:4] not in ("in [", "in ("):
        return text
    ends = text[4:-1].split(", ")
    low, high = (float(x) if _NUMBER.fullmatch(x) else x for x in ends)
    return Interval(low, high, text[3] == "[", text[-1] == "]")


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


# --- Annotations of functions and settings, which have no spec. ---

_SETTINGS = {types.NoneType, *typing.get_args(AxisName), *typing.get_args(DTypeLike)}


def is_setting(hint: Any) -> bool:
    """Return whether an annotation is that of axis names or of a dtype."""
    return alternatives(hint) <= _SETTINGS


def is_callable(hint: Any) -> bool:
    """Return whether an annotation is that of a function of the user."""
    return any(typing.get_origin(x) is Callable for x in alternatives(hint))


def alternatives(hint: Any) -> set[Any]:
    """Return the members of a union, or one annotation."""
    is_union = typing.get_origin(hint) in _UNIONS
    return set(typing.get_args(hint)) if is_union else {hint}


# --- Annotations that contain others. ---


class TypeMismatchError(Exception):
    """A value without the fields or entries of its annotation: path, annotation."""


def contents(hint: Any) -> tuple[Any, ...]:
    """Return the annotations that an annotation contains."""
    if is_record(hint):
        return tuple(fields(hint).values())
    if typing.get_origin(hint) in (tuple, Sequence, *_UNIONS):
        return tuple(x for x in typing.get_args(hint) if x not in (..., type(None)))
    return ()


def is_nested(hint: Any) -> bool:
    """Return whether an annotation contains specs: a pytree, record or sequence."""
    if spec := read(hint):
        return spec.is_tree
    return any(read(part) or is_nested(part) for part in contents(hint))


def is_in(part: Any, hint: Any) -> bool:
    """Return whether an annotation is another one, or contained in it."""
    return hint is part or any(is_in(part, x) for x in contents(hint))


def is_record(hint: Any) -> bool:
    """Return whether an annotation is a named tuple or a dataclass of arrays."""
    if dataclasses.is_dataclass(hint):
        return any(map(read, fields(hint).values()))
    return hasattr(hint, "_fields")


@functools.cache
def fields(record: Any) -> dict[str, Any]:
    """Return the annotations of the fields of a record."""
    kind = typing.get_origin(record) or record  # Of a generic named tuple.
    return typing.get_type_hints(kind, include_extras=True)


def parts(path: str, hint: Any, value: Any) -> list[tuple[str, Any, Any]]:
    """Return path, annotation and value of each field or entry of a value.

    Raises:
        TypeMismatchError: If the value does not have the fields or entries.
    """
    hints, origin = contents(hint), typing.get_origin(hint)
    if origin in _UNIONS:  # Or None.
        return [] if value is None else parts(path, hints[0], value)
    if is_record(hint):
        if not all(hasattr(value, name) for name in fields(hint)):
            raise TypeMismatchError(path, hint)
        return [(f"{path}.{n}", x, getattr(value, n)) for n, x in fields(hint).items()]
    if not hints:
        return []
    entries = cast(Any, value) if isinstance(value, list | tuple) else None
    if entries is not None and (origin is not tuple or ... in typing.get_args(hint)):
        hints *= len(entries)
    if entries is None or len(hints) != len(entries):
        raise TypeMismatchError(path, hint)
    return [(f"{path}[{i}]", x, entries[i]) for i, x in enumerate(hints)]


def nodes(path: str, hint: Any, value: Any) -> Iterator[tuple[str, Spec, Any]]:
    """Yield path, spec and value of whatever has a spec in an argument."""
    if spec := read(hint):
        yield path, spec, value
    else:
        for part in parts(path, hint, value):
            yield from nodes(*part)


def leaves(path: str, spec: Spec, tree: Any) -> Iterator[tuple[str, Spec, Any]]:
    """Yield path, spec and value of each leaf, such as `params['w']`."""
    for keys, leaf in cast(Any, jax.tree_util).tree_leaves_with_path(tree):
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
