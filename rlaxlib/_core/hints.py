"""Hints of errors: what the caller of a function meant, and how to write it.

A hint is given only if all shapes fit once it is followed, and if no other reading of
the call is possible. Where there are two, as for the layouts `[B, T]` and `[T, B]` of a
batch, both are given.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, cast

import jax
import numpy as np
from jax.core import Tracer

from rlaxlib._core import batches, specs
from rlaxlib._core.batches import LAYOUTS, Arguments, Call, Function, Shapes
from rlaxlib._core.specs import Shape, Sizes, Spec

Wanted = Mapping[str, Spec]
# A sentence, the shapes after it, and the layouts that a batch may have.
Change = tuple[str, Shapes, Mapping[str, int]]

# First parts of the names of quantities of a state: T+1 states have T+1 of them.
_OF_STATES = ("v", "q", "target_q", "values")


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
    wrong = [n for n in arrays if not specs.has_kind(*call.type_of(n), arrays[n].kind)]
    way = _kind(name, call) if wrong else ""
    swapped = _swapped(call)
    if swapped and (not way or len(wrong) > 1):  # Not where a conversion is enough.
        return [swapped]
    return [way] * bool(way) if wrong else _shape(name, call)


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
        return all(is_right) and (new.fits(shapes) or bool(batches.lines(new, shapes)))

    pairs = [
        (one, other)
        for one, other in itertools.combinations(call.wanted, 2)
        if call.type_of(one) != call.type_of(other)
        and fits({**call.given, one: call.given[other], other: call.given[one]})
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
    if not _is_whole(value, spec.kind):
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
    if any(isinstance(x, Tracer) for x in jax.tree.leaves(value)):
        return f"Convert it: `jnp.asarray({name})`."
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError):  # Such as entries of several shapes.
        return ""
    if specs.has_kind(array.shape, array.dtype, spec.kind):
        return f"Convert it: `jnp.asarray({name})`."
    kind = {"Real": "float"}.get(spec.kind, spec.kind.lower())
    is_number = array.dtype.kind in "biuf" and _is_whole(array, spec.kind)
    return f"Convert it: `jnp.asarray({name}, {kind})`." * is_number


def _is_one_hot(name: str, call: Call) -> bool:
    """Return whether an index has the shape of the array that it is an index of."""
    rules = call.wanted[name].rules
    sizes = {rule.high for rule in rules if isinstance(rule, specs.Interval)}
    ends = [n for n, spec in call.wanted.items() if {*spec.shapes[0][-1:]} & sizes]
    shape = call.type_of(name)[0]
    return shape != () and any(shape == call.type_of(other)[0] for other in ends)


def _is_whole(value: Any, kind: str) -> bool:
    """Return whether no value changes if it is converted, as far as it is known."""
    if isinstance(value, Tracer) or kind not in ("Int", "Bool"):
        return True
    if not getattr(value, "is_fully_addressable", True):
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
    if not found and (batch := batches.lines(call, shapes)):
        found = [batch]
    if not found:
        every = cast(Any, changes)
        both = [[line, *batches.lines(call, *after)] for line, *after in every]
        found = [lines for lines in both if len(lines) > 1]
    if found:
        return found[0] if len(found) == 1 else []
    spec, shape = call.wanted[name], shapes[name]
    if spec.kind == "Key" and any(map(batches.is_many, call.wanted.values())):
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
    return text, shapes | {n: shapes[n][:-1] for n in long}, LAYOUTS


def _sliced(call: Call, shapes: Shapes) -> Change | None:
    """Slice quantities of T+1 states if all other streams have T entries, or append."""
    firsts = {n: _first_axes(spec) for n, spec in call.wanted.items()}
    streams = [n for n in shapes if firsts[n] == ["T"]]
    whole = [n for n in shapes if firsts[n] == ["T+1"]]
    for layout, batch_axis in LAYOUTS.items():
        is_batch = all(len(shapes[n]) > len(call.wanted[n].shapes[0]) for n in streams)
        axis = 1 - batch_axis if is_batch else 0
        if not streams or any(len(shapes[n]) <= axis for n in streams + whole):
            return None
        steps = min(shapes[n][axis] for n in streams)
        long = [n for n in streams if shapes[n][axis] == steps + 1]
        names = {n.removesuffix("_tm1").removesuffix("_t") for n in long}
        is_pair = len(long) == 2 and len(names) == 1
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
            return text, shapes | {name: shape}, LAYOUTS
    return None


def _first_axes(spec: Spec) -> list[str]:
    """Return the first axis of each shape that an argument may have."""
    return ["".join(axes[:1]) for axes in spec.shapes]


def _resized(shape: Shape, axis: int, size: int) -> Shape:
    return (*shape[:axis], size, *shape[axis + 1 :])
