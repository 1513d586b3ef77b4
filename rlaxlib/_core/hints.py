"""Hints of errors: what the caller of a function meant, and how to write it.

A hint is given only if all shapes fit once it is followed, and if no other reading of
the call is possible. Where there are two, as for the layouts `[B, T]` and `[T, B]` of a
batch, both are given.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from jax.core import Tracer

from rlaxlib._core import specs
from rlaxlib._core.specs import Axes, Shape, Sizes, Spec

Arguments = Mapping[str, Any]
Wanted = Mapping[str, Spec]
Shapes = dict[str, Shape]
MappedAxes = dict[str, int | None]
# A sentence, the shapes after it, and the layouts that a batch may have.
Change = tuple[str, Shapes, Mapping[str, int]]

# Axes of a batch, and the position of the batch axis in a stream.
_LAYOUTS = {"[B, T]": 0, "[T, B]": 1}
# First parts of the names of quantities of a state: T+1 states have T+1 of them.
_OF_STATES = ("v", "q", "target_q", "values")


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


def hint(name: str, wanted: Wanted, given: Arguments, function: Function) -> list[str]:
    """Return lines that may help.

    Args:
        name: The name of an argument that does not fit.
        wanted: The specs of all arrays.
        given: All arguments.
        function: The function.

    Returns:
        Lines; none if nothing is certain.
    """
    passed = {n for n, x in given.items() if not isinstance(x, str | None)}
    arrays = {n: spec for n, spec in wanted.items() if n in passed}
    sizes: Sizes = {n: x for n, x in given.items() if type(x) is int}
    call = Call(function, given, arrays, sizes)
    if name not in arrays:
        return []
    way = conversion(name, given[name], given)
    if way and wanted[name].kind != "Key":
        return [way]
    if swapped := _swapped(call):
        return [swapped]
    if not specs.has_kind(*call.type_of(name), wanted[name].kind):
        return list(filter(None, [_kind(name, call)]))
    return _shape(name, call)


# --- Types and dtypes. ---


def conversion(name: str, value: Any, others: Arguments) -> str:
    """Return how to convert an array that JAX would refuse or misread, else nothing.

    Args:
        name: The name of the argument.
        value: Its value.
        others: All arguments.

    Returns:
        A sentence, or nothing.
    """
    if isinstance(value, np.ma.MaskedArray):
        mask = next((x for x in ("sample_mask", "mask") if x in others), None)
        valid = f"{mask}=~np.ma.getmaskarray({name})"
        use = f"Use `{mask}`: `{name}.filled(0)` with `{valid}`."
        return use if mask else f"Fill its gaps: `{name}.filled(...)`."
    dtype = specs.type_of(value)[1]
    if not isinstance(dtype, type) and not specs.is_in_jax(dtype):
        long = {"g": "np.float64", "G": "np.complex128"}.get(dtype.char, "")
        new = long if dtype.isnative else f'{name}.dtype.newbyteorder("=")'
        return f"Convert it: `{name}.astype({new})`." * bool(new)
    ways = {
        "detach": f"{name}.detach().cpu().numpy()",
        "todense": f"{name}.todense()",
        "__jax_array__": f"jnp.asarray({name})",
        "__array__": f"np.asarray({name})",
        "__dlpack__": f"jnp.from_dlpack({name})",
    }
    known = [way for method, way in ways.items() if hasattr(value, method)]
    return f"Convert it: `{known[0]}`." if known and is_foreign(value) else ""


def is_foreign(value: Any) -> bool:
    """Return whether a value holds an array that JAX does not read."""
    dtype = specs.type_of(value)[1]
    if not isinstance(dtype, type):
        return not specs.is_in_jax(dtype)
    reads = ("__array__", "__jax_array__", "__dlpack__")
    return not isinstance(value, type) and any(hasattr(value, x) for x in reads)


def _swapped(call: Call) -> str:
    """Return the two arguments that fit if they are exchanged, if all others fit."""

    def fits(given: Arguments) -> bool:
        new = call._replace(given=given)
        is_right = (
            specs.has_kind(*new.type_of(n), x.kind) for n, x in new.wanted.items()
        )
        shapes = new.shapes()
        return all(is_right) and (new.fits(shapes) or bool(_batch(new, shapes)))

    pairs = [
        (one, other)
        for one, other in itertools.combinations(call.wanted, 2)
        if fits({**call.given, one: call.given[other], other: call.given[one]})
    ]
    if len(pairs) != 1 or fits(call.given):
        return ""
    order = ", ".join(n for n in call.function.positional if n != "self")
    one, other = pairs[0]
    return f"`{one}` and `{other}` fit if they are exchanged: the order is ({order})."


def _kind(name: str, call: Call) -> str:
    """Return how to convert a value of the wrong kind."""
    spec, value = call.wanted[name], call.given[name]
    kind = {"Real": "float", "Shaped": ""}.get(spec.kind, spec.kind.lower())
    if spec.kind == "Key":
        return _key(name, call.function)
    if isinstance(value, list | tuple):
        return _listed(name, spec, cast(Any, value))
    dtype = call.type_of(name)[1]
    if "discount" in name and dtype in (bool, np.bool_):
        return f"`{name}` is the discount γ times `1 - terminated`."
    if isinstance(dtype, type) or dtype.kind not in "biufV":
        return ""
    if spec.kind == "Int" and _is_one_hot(name, call):
        return f"`{name}` takes indices: of one-hot vectors, `jnp.argmax({name}, -1)`."
    if spec.kind in ("Int", "Bool") and not _is_whole(value, spec.kind):
        return ""
    return f"Convert it: `{name}.astype({kind})`."


def _key(name: str, function: Function) -> str:
    """Say which argument is a key."""
    order = [each for each in function.positional if each != "self"]
    place = order.index(name) if name in order else 3
    which = ["The first argument", "The second argument", "The third argument"]
    return f"{[*which, f'`{name}`'][min(place, 3)]} is a key: `jax.random.key(0)`."


def _listed(name: str, spec: Spec, value: Sequence[Any]) -> str:
    """Return how to convert a list."""
    try:
        array = np.asarray(value)
    except ValueError:  # Entries of several shapes.
        return ""
    kind = {"Real": "float"}.get(spec.kind, spec.kind.lower())
    if specs.has_kind(array.shape, array.dtype, spec.kind):
        return f"Convert it: `jnp.asarray({name})`."
    is_number = array.dtype.kind in "biuf" and _is_whole(array, spec.kind)
    return f"Convert it: `jnp.asarray({name}, {kind})`." * is_number


def _is_one_hot(name: str, call: Call) -> bool:
    """Return whether an index has the shape of the array that it is an index of."""
    ends = [rule.rpartition(", ")[2].rstrip(")") for rule in call.wanted[name].rules]
    shape = np.shape(call.given[name])
    return len(shape) > 0 and any(
        shape == np.shape(call.given[other])
        for other, spec in call.wanted.items()
        if spec.shapes[0][-1:] and spec.shapes[0][-1] in ends
    )


def _is_whole(value: Any, kind: str) -> bool:
    """Return whether no value changes if it is converted, as far as it is known."""
    if isinstance(value, Tracer) or kind not in ("Int", "Bool"):
        return True
    x = np.asarray(value)
    return bool(np.all((x == 0) | (x == 1) if kind == "Bool" else x == np.round(x)))


# --- Shapes. ---


def _shape(name: str, call: Call) -> list[str]:
    """Return the one change after which all shapes fit, a batch, or both."""
    shapes = call.shapes()
    changes = [
        x for x in (f(call, shapes) for f in (_squeezed, _sliced, _per_step)) if x
    ]
    found = [[line] for line, new, _ in changes if call.fits(new)]
    if not found:
        found = list(filter(None, [_batch(call, shapes)]))
    if not found:
        both = [[line, *_batch(call, *after)] for line, *after in cast(Any, changes)]
        found = [lines for lines in both if len(lines) > 1]
    if found:
        return found[0] if len(found) == 1 else []
    spec, shape = call.wanted[name], shapes[name]
    if spec.kind == "Key" and any(map(_is_many, call.wanted.values())):
        return [
            "One key is enough for arrays of any shape. For a key each, map over the "
            "keys with jax.vmap."
        ]
    is_stream = shape == () and _first_axes(spec) == ["T"]
    return [f"`{name}` is a stream, with an entry for each time step."] * is_stream


def _squeezed(call: Call, shapes: Shapes) -> Change | None:
    """Remove a last axis of size 1 from arguments that have it, unlike others.

    If all have it, it may be an axis of the example: a batch of vectors of size 1.
    """
    fixed = {
        n: sum(not specs.is_many(axis) for axis in spec.shapes[0])
        for n, spec in call.wanted.items()
    }
    free = [
        n
        for n, spec in call.wanted.items()
        if all(any(map(specs.is_many, axes)) for axes in spec.shapes)
    ]
    least = min((len(shapes[n]) - fixed[n] for n in free), default=0)

    def further(name: str) -> int:
        """Return how many axes an argument has more than it may have."""
        if name in free:  # A last axis of the example may have size 1.
            return 0 if fixed[name] else len(shapes[name]) - least
        ranks = map(len, call.wanted[name].shapes)
        return min((len(shapes[name]) - rank for rank in ranks), key=abs)

    extra = {name: further(name) for name in shapes}
    most = max(extra.values(), default=0)
    long = [n for n, x in extra.items() if x == most > 0 and shapes[n][-1] == 1]
    roles = {call.wanted[n].shapes for n in long}
    less = [n for n, x in extra.items() if x < most and call.is_set(n)]
    less = [n for n in less if len(call.wanted[n].shapes) == 1]
    if not long or not any(shapes[n] or call.wanted[n].shapes in roles for n in less):
        return None
    ways = ", ".join(f"`{n}[..., 0]`" for n in long)
    text = f"Squeeze {'it' if len(long) == 1 else 'them'}: {ways}."
    return text, shapes | {n: shapes[n][:-1] for n in long}, _LAYOUTS


def _sliced(call: Call, shapes: Shapes) -> Change | None:
    """Slice quantities of T+1 states if all other streams have T entries, or append."""
    firsts = {n: _first_axes(spec) for n, spec in call.wanted.items()}
    streams = [n for n in shapes if firsts[n] == ["T"]]
    whole = [n for n in shapes if firsts[n] == ["T+1"]]
    for layout, batch_axis in _LAYOUTS.items():
        is_batch = all(len(shapes[n]) > len(call.wanted[n].shapes[0]) for n in streams)
        axis = 1 - batch_axis if is_batch else 0
        if not streams or any(len(shapes[n]) <= axis for n in streams + whole):
            return None
        steps = min(shapes[n][axis] for n in streams)
        long = [n for n in streams if shapes[n][axis] == steps + 1]
        others = [n for n in streams if shapes[n][axis] == steps]
        names = {n.removesuffix("_tm1").removesuffix("_t") for n in long}
        is_pair = len(long) == 2 and len(names) == 1
        if len(long) + len(others) < len(streams):
            continue
        if long and (is_pair or names <= {*_OF_STATES}):
            at = ":, " * axis
            ends = {n: ":-1" if n.endswith("_tm1") else "1:" for n in long}
            cuts = " and ".join(f"`{n}` is `values[{at}{ends[n]}]`" for n in long)
            new = {n: _resized(shapes[n], axis, steps) for n in long}
            return f"With T+1 values, {cuts}.", shapes | new, {layout: batch_axis}
        if whole and not long and all(shapes[n][axis] == steps for n in whole):
            new = {n: _resized(shapes[n], axis, steps + 1) for n in whole}
            ways = ", ".join(f"`{n}`" for n in whole)
            text = f"{ways} has T+1 entries: append that of the last next observation."
            return text, shapes | new, {layout: batch_axis}
    return None


def _per_step(call: Call, shapes: Shapes) -> Change | None:
    """Say what the discount of a step is, if one is given for all steps."""
    for name, spec in call.wanted.items():
        is_stream = _first_axes(spec) == ["T"]
        if "discount" in name and shapes[name] == () and is_stream:
            like = [
                n for n, other in call.wanted.items() if other.shapes == spec.shapes
            ]
            shape = max((shapes[n] for n in like), key=len)
            text = f"`{name}` is γ times `1 - terminated`, for each step."
            return text, shapes | {name: shape}, _LAYOUTS
    return None


def _first_axes(spec: Spec) -> list[str]:
    """Return the first axis of each shape that an argument may have."""
    return ["".join(axes[:1]) for axes in spec.shapes]


def _resized(shape: Shape, axis: int, size: int) -> Shape:
    return (*shape[:axis], size, *shape[axis + 1 :])


def _is_many(spec: Spec) -> bool:
    """Return whether an argument may have any number of axes."""
    return any(map(specs.is_many, itertools.chain(*spec.shapes)))


# --- Batches. ---


def _batch(
    call: Call, shapes: Shapes, layouts: Mapping[str, int] = _LAYOUTS
) -> list[str]:
    """Return the calls of `jax.vmap` that take these arguments, one for each layout."""
    is_plain = call.function.name.isidentifier() and all(map(str.isidentifier, shapes))
    if not is_plain or any(map(_is_many, call.wanted.values())):
        return []
    is_timed = any(_is_time(axes) for x in call.wanted.values() for axes in x.shapes)
    for level in (1,) if is_timed else (1, 2):
        found = _readings(call, shapes, level, layouts)
        if any(len(each) > 1 for each in found.values()):
            return []
        if lines := [
            f"  {_vmap(call, shapes, each[0], level)}{f'  # {layout}' * is_timed}"
            for layout, each in found.items()
            if each
        ]:
            axes = ", in_axes 0 if the arrays are [B, T], 1 if they are [T, B]"
            return [
                "This looks like a batch, but the function takes one example. Map it "
                f"over the batch with jax.vmap{axes * (len(lines) > 1)}:",
                *lines,
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
        if len(shape) == len(axes):
            yield None
        elif len(shape) == len(axes) + level:
            yield axis if _is_time(axes) else 0


def _is_batch(call: Call, shapes: Shapes, axes: MappedAxes, level: int) -> bool:
    """Return whether all arguments fit if these are mapped."""
    mapped = {n: x for n, x in axes.items() if x is not None}
    lengths = {shapes[n][x : x + level] for n, x in mapped.items()}
    one = {n: shapes[n][:x] + shapes[n][x + level :] for n, x in mapped.items()}
    roles = {call.wanted[n].shapes for n in mapped}
    is_shared = all(_is_shared(call, n, roles) for n in axes if n not in mapped)
    return len(lengths) == 1 and is_shared and call.fits(shapes | one)


def _is_shared(call: Call, name: str, roles: set[tuple[Axes, ...]]) -> bool:
    """Return whether all examples of a batch may have an argument in common.

    Settings and tables may be, such as a temperature or the atoms of a distribution.
    The data of a step may not, such as an action: nobody has the same for all.
    """
    spec = call.wanted[name]
    axes = spec.shapes[0]
    if name in call.function.defaults or len(spec.shapes) > 1 or spec.kind == "Key":
        return True
    if not axes:
        return spec.kind != "Int" and not name.endswith(("_t", "_tm1"))
    return not _is_time(axes) and spec.shapes not in roles


def _is_time(axes: Axes) -> bool:
    """Return whether the first axis is time."""
    return bool(axes) and specs.split(axes[0])[0] == "T"


def _vmap(call: Call, shapes: Shapes, axes: MappedAxes, level: int) -> str:
    """Write a call of `jax.vmap`, to paste.

    It has a lambda if there are arguments by keyword, which `jax.vmap` would map over
    their first axis.
    """
    function, given = call.function, call.given
    passed = [
        n for n in {**dict.fromkeys(function.positional), **given} if call.is_set(n)
    ]
    size = next(shapes[n][x] for n, x in axes.items() if x is not None)
    split = [n for n, x in axes.items() if x is None and call.wanted[n].kind == "Key"]
    axes = axes | dict.fromkeys(split, 0)
    mapped = [n for n in passed if axes.get(n) is not None]
    plain = str | int | float | None
    scalars = {n: repr(x) for n, x in given.items() if isinstance(x, plain)}
    shared = {n: scalars.get(n, n) for n in passed} | {n: n for n in mapped}
    text = shared | {n: f"jax.random.split({n}, {size})" for n in split}
    name = f"rlaxlib.{function.name}"
    if passed != [*function.positional[: len(passed)]] or not {*passed} <= axes.keys():
        inner = ", ".join(f"{n}={shared[n]}" for n in passed)
        name, passed = f"lambda {', '.join(mapped)}: {name}({inner})", mapped
    places = tuple([axes[n] for n in passed])
    out = ", out_axes=1" * (1 in places and _is_of_streams(function.result))
    for _ in range(level):
        name = f"jax.vmap({name}, in_axes={places}{out})"
    return f"{name}({', '.join(text[n] for n in passed)})"


def _is_of_streams(hint: Any) -> bool:
    """Return whether time is the first axis of all that a function returns."""
    if spec := specs.read(hint):
        return spec.is_array and all(map(_is_time, spec.shapes))
    parts = specs.contents(hint)
    return bool(parts) and all(map(_is_of_streams, parts))
