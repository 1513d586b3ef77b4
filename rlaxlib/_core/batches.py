"""The calls of `jax.vmap` that the arguments of a call need, if they are a batch."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import jax

from rlaxlib._core import specs
from rlaxlib._core.specs import Axes, Shape, Sizes, Spec

Arguments = Mapping[str, Any]
Wanted = Mapping[str, Spec]
Shapes = dict[str, Shape]
MappedAxes = dict[str, int | None]

# Axes of a batch, and the position of the batch axis in a stream.
LAYOUTS = {"[B, T]": 0, "[T, B]": 1}
_LOOKS = "This looks like a batch, but the function takes one example."


class Function(NamedTuple):
    """What a hint says about a function.

    Attributes:
        name: Its public name.
        positional: Names of its positional arguments, in their order.
        defaults: The default of each argument that has one.
        result: The annotation of its result.
    """

    name: str
    positional: Sequence[str]
    defaults: Arguments
    result: Any


class Call(NamedTuple):
    """A call whose arguments do not fit.

    Attributes:
        function: The function.
        given: All arguments, also those inside of states.
        wanted: The specs of those that are arrays.
        sizes: Sizes that are arguments.
    """

    function: Function
    given: Arguments
    wanted: Wanted
    sizes: Sizes

    def fits(self, shapes: Shapes) -> bool:
        """Return whether shapes fit."""
        return specs.fit_shapes(shapes, self.wanted, self.sizes) is not None

    def is_set(self, name: str) -> bool:
        """Return whether an argument is not its default, as far as can be seen."""
        defaults = self.function.defaults
        return name not in defaults or self.given[name] is not defaults[name]

    def type_of(self, name: str) -> tuple[Shape, Any]:
        """Return shape and dtype of an argument."""
        return specs.type_of(self.given[name])[:2]

    def shapes(self) -> Shapes:
        """Return the shapes of all arrays."""
        kinds = {name: spec.kind for name, spec in self.wanted.items()}
        return {n: specs.own_shape(*self.type_of(n), kinds[n]) for n in kinds}


def lines(
    call: Call, shapes: Shapes, layouts: Mapping[str, int] = LAYOUTS
) -> list[str]:
    """Return the calls of `jax.vmap` that take the arguments, one for each layout.

    Args:
        call: The call.
        shapes: The shapes of its arrays, or those after a change.
        layouts: The layouts that a batch of streams may have.

    Returns:
        Lines; none if the arguments are not a batch, or may be read in several ways.
    """
    if not call.function.name:  # The leaves of a pytree.
        return []
    is_timed = any(_is_time(axes) for x in call.wanted.values() for axes in x.shapes)
    fixed = [n for n, spec in call.wanted.items() if not is_many(spec)]
    for level in (1,) if is_timed else (1, 2):
        found = _readings(call, shapes, level, layouts)
        # Arguments with any number of axes may be mapped or not: then there is no line.
        ways = [{tuple(axes[n] for n in fixed) for axes in x} for x in found.values()]
        if any(len(each) > 1 for each in ways):
            return []
        if read := {layout: each for layout, each in found.items() if each}:
            one = next(iter(read.values()))[0]
            if any(x is None and _is_updated(call, n) for n, x in one.items()):
                return [
                    f"{_LOOKS} With a state for each, map over the batch with "
                    "jax.vmap; with one for all, update it in turn, with jax.lax.scan."
                ]
            calls = {
                layout: _vmap(call, shapes, each[0], level) * (len(each) == 1)
                for layout, each in read.items()
            }
            both = ", in_axes 0 if the arrays are [B, T], 1 if they are [T, B]"
            return [
                f"{_LOOKS} Map it over the batch with jax.vmap{both * (len(read) > 1)}"
                f"{':' if any(calls.values()) else '.'}",
                *[f"  {x}{f'  # {n}' * is_timed}" for n, x in calls.items() if x],
            ]
    return []


def _readings(
    call: Call, shapes: Shapes, level: int, layouts: Mapping[str, int]
) -> dict[str, list[MappedAxes]]:
    """Return the ways to map arguments over a batch, for each layout."""
    found: dict[str, list[MappedAxes]] = {}
    for layout, axis in layouts.items():
        ways = [
            dict.fromkeys(_ways(shapes[n], call.wanted[n], axis, level)) for n in shapes
        ]
        each = (dict(zip(shapes, way, strict=True)) for way in itertools.product(*ways))
        new = [x for x in each if _is_batch(call, shapes, x, level)]
        found[layout] = [] if new in found.values() else new  # No stream is mapped.
    return found


def _ways(shape: Shape, spec: Spec, axis: int, level: int) -> Iterator[int | None]:
    """Return the batch axes that an argument may have, None if it may be shared."""
    for axes in spec.shapes:
        number = sum(not specs.is_many(axis) for axis in axes)
        is_free = number < len(axes)
        if len(shape) == number or (is_free and len(shape) > number):
            yield None
        if len(shape) == number + level or (is_free and len(shape) > number + level):
            yield axis if _is_time(axes) else 0


def _is_batch(call: Call, shapes: Shapes, axes: MappedAxes, level: int) -> bool:
    """Return whether all arguments fit if these are mapped."""
    mapped = {n: x for n, x in axes.items() if x is not None}
    lengths = {shapes[n][x : x + level] for n, x in mapped.items()}
    one = {n: shapes[n][:x] + shapes[n][x + level :] for n, x in mapped.items()}
    required = [n for n in mapped if n not in call.function.defaults]
    roles = {call.wanted[n].shapes for n in required if not is_many(call.wanted[n])}
    is_shared = all(_is_shared(call, n, roles) for n in axes if n not in mapped)
    is_free = any(map(is_many, call.wanted.values()))
    is_certain = not is_free or any(axes for role in roles for axes in role)
    are_equal = len(lengths) == 1 and is_certain
    return are_equal and is_shared and call.fits(shapes | one)


def _is_shared(call: Call, name: str, roles: set[tuple[Axes, ...]]) -> bool:
    """Return whether all examples of a batch may have an argument in common.

    Settings and tables may be, such as a temperature or the atoms of a distribution.
    The data of a step may not, such as an action: nobody has the same for all.
    """
    spec = call.wanted[name]
    axes, is_of_step = spec.shapes[0], name.endswith(("_t", "_tm1"))
    if name in call.function.defaults or spec.kind == "Key" or is_many(spec):
        return True
    if not axes or len(spec.shapes) > 1:
        return spec.kind != "Int" and not is_of_step
    return not _is_time(axes) and spec.shapes not in roles


def _root(path: str) -> str:
    """Return the argument that contains an array, such as `state` for `state.mean`."""
    return re.split(r"[.[]", path)[0]


def _is_updated(call: Call, path: str) -> bool:
    """Return whether an array is in a state that the function returns anew."""
    kind: Any = cast(Any, type(call.given[_root(path)]))

    def returns(hint: Any) -> bool:
        return hint is kind or any(map(returns, specs.contents(hint)))

    return _root(path) != path and returns(call.function.result)


def _is_time(axes: Axes) -> bool:
    """Return whether the first axis is time."""
    return bool(axes) and specs.split(axes[0])[0] == "T"


def _vmap(call: Call, shapes: Shapes, axes: MappedAxes, level: int) -> str:
    """Write a call of `jax.vmap`, to paste; nothing if one line cannot say it.

    It has a lambda if there are arguments by keyword, which `jax.vmap` would map over
    their first axis.
    """
    function, given = call.function, call.given
    order = dict.fromkeys([*function.positional, *given])
    passed = [n for n in order if n.isidentifier() and call.is_set(n)]
    size = next(shapes[n][x] for n, x in axes.items() if x is not None)
    split = [n for n, x in axes.items() if x is None and call.wanted[n].kind == "Key"]
    whole = _whole(axes | dict.fromkeys(split, 0))
    mapped = [n for n in passed if whole.get(n) is not None]
    if not _is_plain(call, passed, whole):
        return ""
    scalars = str | int | float | None
    shared = {n: repr(x) if isinstance(x, scalars) else n for n, x in given.items()}
    shared |= {n: n for n in mapped}
    text = shared | {n: f"jax.random.split({n}, {size})" for n in split}
    name = f"rlaxlib.{function.name}"
    if passed != [*function.positional[: len(passed)]] or not {*passed} <= whole.keys():
        inner = ", ".join(f"{n}={shared[n]}" for n in passed)
        name, passed = f"lambda {', '.join(mapped)}: {name}({inner})", mapped
    places = tuple([whole[n] for n in passed])
    out = ", out_axes=1" * (1 in places and _is_of_streams(function.result))
    for _ in range(level):
        name = f"jax.vmap({name}, in_axes={places}{out})"
    return f"{name}({', '.join(text[n] for n in passed)})"


def _whole(axes: MappedAxes) -> dict[str, Any]:
    """Return the axis of each argument, -1 for a state whose fields have several."""
    found: dict[str, Any] = {}
    for path, axis in axes.items():
        name = _root(path)
        found[name] = axis if found.get(name, axis) == axis else -1
    return found


def _is_plain(call: Call, passed: Sequence[str], axes: Mapping[str, Any]) -> bool:
    """Return whether `jax.vmap` can map the arguments as they are.

    It cannot map a state with settings in it. Of a pytree without a spec it is not
    known whether it has an axis of the batch.
    """
    if not call.function.name.isidentifier() or -1 in axes.values():
        return False
    for name in passed:
        leaves = jax.tree.leaves(call.given[name])
        arrays = [not isinstance(specs.type_of(x)[1], type) for x in leaves]
        is_mapped = axes.get(name) is not None and name not in call.wanted
        if (name not in axes and any(arrays)) or (is_mapped and not all(arrays)):
            return False
    return True


def _is_of_streams(hint: Any) -> bool:
    """Return whether time is the first axis of all that a function returns."""
    if spec := specs.read(hint):
        return spec.is_array and all(map(_is_time, spec.shapes))
    parts = specs.contents(hint)
    return bool(parts) and all(map(_is_of_streams, parts))


def is_many(spec: Spec) -> bool:
    """Return whether an argument may have any number of axes."""
    return any(map(specs.is_many, itertools.chain(*spec.shapes)))
