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
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Union, cast

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from rlaxlib._core.types import AxisName, Note

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
    r"(?: ?\blike (?P<like>[\w.]+))?"
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
        like: The argument that a pytree or a result is like.
        is_tree: Whether the argument is a pytree, of which this is a leaf.
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
    def is_array(self) -> bool:
        """Whether the argument is an array."""
        return self.kind in KINDS and not self.is_tree

    @property
    def is_flag(self) -> bool:
        """Whether the argument is a bool, which may be traced."""
        return self.kind == "Flag"

    @property
    def text(self) -> str:
        """The spec as errors show it, such as `float[] or [T] in [0, 1]`."""
        shapes = " or ".join(f"[{', '.join(map(shown, x))}]" for x in self.shapes)
        rules = "".join(f" {rule}" for rule in self.rules)
        return self.kind.lower() + shapes + rules + " or None" * self.optional


def shown(axis: str) -> str:
    """Return an axis as errors show it."""
    return "..." if axis.startswith("...") else axis


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
        return _read_note(parts[0], *note)
    return None


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
    """Read a rule; those that are no interval are told by their text."""
    if text[:4] not in ("in [", "in ("):
        return text
    ends = text[4:-1].split(", ")
    low, high = (float(x) if _NUMBER.fullmatch(x) else x for x in ends)
    return Interval(low, high, text[3] == "[", text[-1] == "]")


# --- Arguments that contain arrays, and those that have no spec. ---

_SETTINGS = {types.NoneType, *typing.get_args(AxisName), *typing.get_args(DTypeLike)}


class TypeMismatchError(Exception):
    """A value without the fields or entries of its annotation: path, annotation."""


def is_setting(hint: Any) -> bool:
    """Return whether an annotation is that of axis names or of a dtype."""
    return bool(alternatives(hint) <= _SETTINGS)


def is_callable(hint: Any) -> bool:
    """Return whether an annotation is that of a function of the user."""
    return any(typing.get_origin(x) is Callable for x in alternatives(hint))


def alternatives(hint: Any) -> set[Any]:
    """Return the members of a union, or one annotation."""
    is_union = typing.get_origin(hint) in (Union, types.UnionType)
    return set(typing.get_args(hint)) if is_union else {hint}


def is_nested(hint: Any) -> bool:
    """Return whether an annotation contains specs: a pytree, record or sequence."""
    if spec := read(hint):
        return spec.is_tree
    return any(read(part) or is_nested(part) for part in contents(hint))


def is_in(part: Any, hint: Any) -> bool:
    """Return whether an annotation is another one, or contained in it."""
    return hint is part or any(is_in(part, x) for x in contents(hint))


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
        TypeMismatchError: If the argument does not have the fields or entries.
    """
    if is_record(hint):
        if not all(hasattr(value, field) for field in _hints(hint)):
            raise TypeMismatchError(path, hint)
        return [(f"{path}.{x}", y, getattr(value, x)) for x, y in _hints(hint).items()]
    inner = contents(hint)
    if typing.get_origin(hint) in (Union, types.UnionType):
        is_tuple = type(value) is tuple
        fits = [x for x in inner if (typing.get_origin(x) is tuple) == is_tuple]
        return [] if value is None else [(path, [*fits, *inner][0], value)]
    if not inner:
        return []
    entries = list(cast(Any, value)) if isinstance(value, list | tuple) else []
    is_fixed = typing.get_origin(hint) is tuple and ... not in typing.get_args(hint)
    hints = inner if is_fixed else inner * len(entries)
    if not isinstance(value, list | tuple) or len(hints) != len(entries):
        raise TypeMismatchError(path, hint)
    names = [f"{path}[{i}]" for i in range(len(entries))]
    return list(zip(names, hints, entries, strict=True))


def nodes(path: str, hint: Any, value: Any) -> Iterator[tuple[str, Spec, Any]]:
    """Return path, spec and value of each array and pytree in an argument."""
    if spec := read(hint):
        yield path, spec, value
    else:
        for part in parts(path, hint, value):
            yield from nodes(*part)


def leaves(path: str, spec: Spec, tree: Any) -> dict[str, tuple[Spec, Any]]:
    """Return spec and value of each leaf, by paths such as `params['w']`."""
    found: dict[str, tuple[Spec, Any]] = {}
    for keys, leaf in cast(Any, jax.tree_util).tree_leaves_with_path(tree):
        where = jax.tree_util.keystr(keys)
        own = f"...{root_of(path, spec)}{where}"
        shapes = [tuple(own if x == "..." else x for x in y) for y in spec.shapes]
        found[path + where] = (
            spec._replace(shapes=tuple(shapes), is_tree=False, optional=False),
            leaf,
        )
    return found


def root_of(path: str, spec: Spec) -> str:
    """Return the path of the pytree that a pytree at a path is like, or its own."""
    record = path.rpartition(".")[0]
    return ".".join(filter(None, [record, spec.like])) if spec.like else path
