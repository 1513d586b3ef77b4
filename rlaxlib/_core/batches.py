"""The calls of `jax.vmap` that the arguments of a call need, if they are a batch."""

from __future__ import annotations

import itertools
import re
import types
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax

from rlaxlib._core import binding, specs
from rlaxlib._core.binding import Type
from rlaxlib._core.specs import Axes, Shape, Sizes, Spec, is_many, split

Shapes = dict[str, Shape]
Mapped = Mapping[str, int | None]

# Axes of a batch, and the position of the batch axis in a stream.
LAYOUTS = {"[B, T]": 0, "[T, B]": 1}
# First axes that others put before that of a batch: time, samples, critics, groups.
_FIRST = ("T", "N", "C", "G")
_OF_DATA = (
    "This looks like a batch, but the function takes one example. Map it over the "
    "batch with jax.vmap"
)
# Parts of the names of what all examples may share: supports, levels, standard
# deviations, times of flows.
_SHARED = re.compile("atoms|bins|tau|stddev|next_t|z_[pq]")
_OF_STATES = (
    ", with a state for each, or, if examples follow one another, call it in turn, "
    "with jax.lax.scan."
)
_OF_SETTINGS = (
    "Data such as logits belong to the methods of the result. For a batch of settings, "
    "map the function over it with jax.vmap"
)


class Call(NamedTuple):
    """A call that does not fit, and the plan of its function.

    Arrays inside of states and pytrees are among the arguments, by their path.

    Attributes:
        given: All arguments.
        wanted: The specs of those that are arrays.
        name: The public name of the function; empty for arrays in a body.
        positional: Names of its positional arguments, in their order.
        defaults: The default of each argument that has one.
        result: The spec of its result.
        states: Names of states that it returns anew.
    """

    given: Mapping[str, Any]
    wanted: Mapping[str, Spec]
    name: str = ""
    positional: Sequence[str] = ()
    defaults: Mapping[str, Any] = types.MappingProxyType({})
    result: Spec = Spec("Other")
    states: Collection[str] = ()

    @property
    def order(self) -> str:
        """The names of positional arguments."""
        return ", ".join(n for n in self.positional if n != "self")

    def fits(self, shapes: Shapes) -> bool:
        """Return whether shapes fit."""
        sizes: Sizes = {n: x for n, x in self.given.items() if type(x) is int}
        return not binding.fit(self.wanted, shapes, sizes).misfit

    def is_set(self, name: str) -> bool:
        """Return whether an argument is not its default, as far as can be seen."""
        defaults = self.defaults
        return name not in defaults or self.given[name] is not defaults[name]

    def type_of(self, name: str) -> Type:
        """Return the type of an argument."""
        return binding.type_of(self.given[name])

    def wrong(self) -> list[str]:
        """Return the names of arrays of the wrong kind."""
        wanted = self.wanted.items()
        return [n for n, x in wanted if not binding.has_kind(self.type_of(n), x)]

    def shapes(self) -> Shapes:
        """Return the shapes of all arrays."""
        wanted = self.wanted.items()
        return {n: binding.own_shape(self.type_of(n), x.kind) for n, x in wanted}


def lines(call: Call, shapes: Mapping[str, Shapes]) -> list[str]:
    """Return the calls of `jax.vmap` that take arrays of these shapes in each layout.

    There are none if the arguments are not a batch, and no call to paste in a layout in
    which they may be read in more than two ways.
    """
    if not call.name or not call.given.keys() >= {*call.positional}:
        return []
    every = [axes for spec in call.wanted.values() for axes in spec.shapes]
    first = _first(every)
    found: dict[str, list[Mapped]] = {}
    level = 0
    while not found and level < (1 if first == "T" else 2):
        level += 1
        for layout in [x for x in LAYOUTS if x in shapes][: 3 - level]:
            new = [*_mappings(call, shapes[layout], first, LAYOUTS[layout], level)]
            found |= {layout: new} if new and new not in found.values() else {}
    if not found:
        return []
    text = _OF_SETTINGS if call.result.kind == "Object" else _OF_DATA
    shared = [n for ways in found.values() for n, x in ways[0].items() if x is None]
    if not {*call.states}.isdisjoint(map(specs.argument_of, shared)):
        if "axis_name" in call.defaults:
            return [f"{text}, and give both an `axis_name` to update one state."]
        return [f"{text}{_OF_STATES}"]
    labels = {x: x.replace("T", first) for x in found}
    if len(found) > 1:
        one, other = labels.values()
        text += f", in_axes 0 if the arrays are {one}, 1 if they are {other}"
    calls: list[str] = []
    for layout, ways in found.items():
        for axes in ways if len(ways) < 3 else ():
            is_one = first != "T" and len(found) == len(ways) == 1
            note = "" if is_one else f"  # {labels[layout]}{_reading(axes, ways)}"
            if line := _line(call, shapes[layout], axes, level):
                calls.append(f"  {line}{note}")
    return [f"{text}:" if calls else f"{text}.", *calls]


def _reading(axes: Mapped, ways: Iterable[Mapped]) -> str:
    """Describe the arguments that one way maps differently from another."""
    others = [n for n in axes if any(each[n] != axes[n] for each in ways)]
    whose = {n: "all" if axes[n] is None else "each example" for n in others}
    return "".join(f", `{n}` for {whose[n]}" for n in others)


def _first(every: Sequence[Axes]) -> str:
    """Return the axis that may stand before that of a batch, or nothing.

    It is time in any array, but others only if all arrays begin with it.
    """
    firsts = {split(axes[0])[0] for axes in every if axes}
    is_one = len(firsts) == 1 and firsts <= {*_FIRST}
    return "T" if "T" in firsts else firsts.pop() if is_one else ""


def _mappings(
    call: Call, shapes: Shapes, first: str, axis: int, level: int
) -> Iterator[Mapped]:
    """Return the ways to map arguments, whose streams have the batch at an axis."""
    ways = [_places(shapes[n], call.wanted[n], first, axis, level) for n in shapes]
    has_any, defaults = any(map(has_many, call.wanted.values())), call.defaults.keys()
    for each in itertools.product(*ways):
        axes = dict(zip(shapes, each, strict=True))
        mapped = {n: x for n, x in axes.items() if x is not None}
        sizes = {shapes[n][x : x + level] for n, x in mapped.items()}
        one = {n: shapes[n][:x] + shapes[n][x + level :] for n, x in mapped.items()}
        required = mapped.keys() - defaults
        fixed = [n for n in required if not has_many(call.wanted[n])]
        roles = {call.wanted[n].shapes for n in fixed}
        is_shared = all(_is_shared(call, n, roles) for n in axes.keys() - mapped.keys())
        # Arrays of any shape, and what may be the mean of a batch, are a batch only if
        # others are.
        is_key = any(call.wanted[n].kind == "Key" for n in required)
        may_be_alone = is_key or axes.keys() <= defaults or _has_others(call, axes)
        may_be_alone = may_be_alone and not has_any
        is_sure = len(fixed) > 1 or any(map(any, roles)) or may_be_alone
        if len(sizes) == 1 and is_shared and is_sure and call.fits(shapes | one):
            yield axes


def _places(
    shape: Shape, spec: Spec, first: str, axis: int, level: int
) -> list[int | None]:
    """Return the batch axes that an argument may have; None if it may be shared."""
    found: dict[int | None, None] = {}
    for axes in spec.shapes:
        count = sum(not is_many(each) for each in axes)
        further = len(shape) - count
        is_free = count < len(axes) and further >= 0
        found |= {None: None} if is_free or further == 0 else {}
        is_mapped = further == level or (is_free and further > level)
        found |= {axis * _begins(axes, first): None} if is_mapped else {}
    return list(found)


def _is_shared(call: Call, name: str, roles: set[tuple[Axes, ...]]) -> bool:
    """Return whether all examples of a batch may have an argument in common.

    Settings, states and tables may be, such as a temperature or atoms. The data of a
    step may not, such as an action: nobody has the same for all. But a value may be 0.
    """
    spec, value = call.wanted[name], call.given[name]
    is_setting = name in call.defaults or spec.kind == "Key" or "." in name
    is_zero = type(value) is float and value == 0
    if is_setting or is_zero or has_many(spec) or _SHARED.search(name):
        return True
    is_of_step = spec.kind == "Int" or name.endswith(("_t", "_tm1"))
    is_stream = _begins(spec.shapes[0], "T") or spec.shapes in roles
    return not (is_stream if spec.shapes[0] else is_of_step)


def _line(call: Call, shapes: Shapes, axes: Mapped, level: int) -> str:
    """Write a call of `jax.vmap`, to paste; nothing if settings contain arrays.

    It has a lambda if there are arguments by keyword, which `jax.vmap` would map over
    their first axis.
    """
    given = call.given
    size = next(shapes[n][x] for n, x in axes.items() if x is not None)
    whole: dict[str, set[int | None]] = {}
    for path, axis in axes.items():
        whole.setdefault(specs.argument_of(path), set()).add(axis)
    if any(len(each) > 1 for each in whole.values()):
        return ""
    axes = {n: each.pop() for n, each in whole.items()}
    order = dict.fromkeys([*call.positional, *given])
    passed = [n for n in order if n.isidentifier() and call.is_set(n)]
    if not call.name.isidentifier() or _has_others(call, axes):
        return ""
    keys = [n for n in axes if n in call.wanted and call.wanted[n].kind == "Key"]
    split = [n for n in keys if axes[n] is None]
    axes = {**axes, **dict.fromkeys(split, 0)}
    mapped = [n for n in passed if axes.get(n) is not None]
    scalars = str | int | float | None
    text = {n: repr(given[n]) if isinstance(given[n], scalars) else n for n in passed}
    text |= {n: n for n in mapped}
    name = f"rlaxlib.{call.name}"
    if passed != [*call.positional[: len(passed)]]:
        inner = ", ".join(f"{n}={text[n]}" for n in passed)
        name, passed = f"lambda {', '.join(mapped)}: {name}({inner})", mapped
    places = tuple([axes.get(n) for n in passed])
    out = ", out_axes=1" * (1 in places and _is_of_streams(call.result))
    for _ in range(level):
        name = f"jax.vmap({name}, in_axes={places}{out})"
    text |= {n: f"jax.random.split({n}, {size})" for n in split}
    rates = [n for n in mapped if "discount" in n and not call.type_of(n)[0]]
    text |= {n: f"{n} * (1 - terminated)" for n in rates}
    return f"{name}({', '.join(text[n] for n in passed)})"


def _has_others(call: Call, known: Iterable[str]) -> bool:
    """Return whether arguments but these contain arrays, such as pytrees."""
    names = {*map(specs.argument_of, known)}
    others = [x for n, x in call.given.items() if specs.argument_of(n) not in names]
    return any(hasattr(leaf, "shape") for leaf in jax.tree.leaves(others))


def _begins(axes: Axes, *names: str) -> bool:
    """Return whether the first axis is one of these, or one more or less."""
    return bool(axes) and split(axes[0])[0] in names


def _is_of_streams(result: Spec) -> bool:
    """Return whether all that a function returns begins as its streams do."""
    leaves = [x for x in specs.within(result) if not x.parts]
    places = {
        _begins(axes, *_FIRST) for x in leaves if not has_many(x) for axes in x.shapes
    }
    return all(x.is_array for x in leaves) and places == {True}


def has_many(spec: Spec) -> bool:
    """Return whether an argument may have any number of axes."""
    return any(map(is_many, itertools.chain(*spec.shapes)))
