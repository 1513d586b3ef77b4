"""Hints of errors: what the caller of a function meant, and how to write it.

A hint is given only if the call fits once it is followed, and no other reading of the
call does. Of a batch of streams the layouts `[B, T]` and `[T, B]` are both given.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, cast

import jax
import numpy as np
from jax.core import Tracer

from rlaxlib._core import batches, specs
from rlaxlib._core.batches import LAYOUTS, Call, Function, Shapes
from rlaxlib._core.specs import Interval, Shape, Spec

# How to convert arrays that JAX does not read, by a method that they have.
_READS = {
    "detach": "{}.detach().cpu().numpy()",
    "__jax_array__": "jnp.asarray({})",
    "__array__": "np.asarray({})",
    "__dlpack__": "jnp.from_dlpack({})",
}
# First parts of the names of quantities of a state: T+1 states have T+1 of them.
_OF_STATES = ("v", "q", "target_q", "values")
_KEYS = (
    "One key is enough for arrays of any shape. For a key each, map over the keys with "
    "jax.vmap."
)


class Change(NamedTuple):
    """A change of arguments.

    Attributes:
        names: The arguments that change.
        text: What to do.
        shapes: The shapes of all arrays after it, in each layout that they may have;
            `""` is that of one example.
    """

    names: tuple[str, ...]
    text: str
    shapes: Mapping[str, Shapes]


def hint(
    name: str, wanted: Mapping[str, Spec], given: Mapping[str, Any], function: Function
) -> list[str]:
    """Return lines that may help with an argument that does not fit.

    Args:
        name: The name of the argument.
        wanted: The specs of all arrays.
        given: All arguments.
        function: The function.

    Returns:
        Lines; none if nothing is certain.
    """
    passed = {n for n, x in given.items() if not isinstance(x, str | None)}
    call = Call(function, given, {n: x for n, x in wanted.items() if n in passed})
    if name not in call.wanted:
        return []
    is_key, wrong = wanted[name].kind == "Key", call.wrong()
    if not is_key and (way := conversion(name, given[name], given)):
        return [way]
    if wrong:
        way = _kind(name, call)
        swapped = [] if way and len(wrong) == 1 else _search(call, _exchanged(call))
        return swapped or [way] * bool(way)
    is_enough = is_key and any(map(batches.has_many, wanted.values()))
    return _search(call, _changes(call)) or [_KEYS] * is_enough


# --- The search. ---


def _search(call: Call, changes: Iterable[Change]) -> list[str]:
    """Return the one change after which the call fits, if need be as a batch."""
    every = list(changes)
    found = [(x, [x.text]) for x in every if "" in x.shapes and call.fits(x.shapes[""])]
    if not found:
        lines = [batches.lines(call, x.shapes) for x in every]
        pairs = zip(every, lines, strict=True)
        found = [(x, [x.text, *each]) for x, each in pairs if each]
    # To change more arguments than need be is no other reading.
    least = [
        [*filter(None, text)]
        for x, text in found
        if not any({*other.names} < {*x.names} for other, _ in found)
    ]
    return least[0] if len(least) == 1 else []


def _exchanged(call: Call) -> Iterator[Change]:
    """Return exchanges of two arguments."""
    order = ", ".join(n for n in call.function.positional if n != "self")
    for one, other in itertools.combinations(call.wanted, 2):
        swapped = {one: call.given[other], other: call.given[one]}
        new = call._replace(given={**call.given, **swapped})
        if call.type_of(one) != call.type_of(other) and not new.wrong():
            text = f"`{one}` and `{other}` fit if they are exchanged: the order is "
            layouts = ("", *LAYOUTS) if call.wrong() else ("",)
            shapes = dict.fromkeys(layouts, new.shapes())
            yield Change((one, other), f"{text}({order}).", shapes)


def _changes(call: Call) -> Iterator[Change]:
    """Return changes of shapes, and none at all: the call may be a batch."""
    shapes = call.shapes()
    yield Change((), "", dict.fromkeys(LAYOUTS, shapes))
    yield from _exchanged(call)
    kinds = [_squeezed(call, shapes), *_resized(call, shapes), _per_step(call, shapes)]
    for text, ways, after in kinds:
        sizes = range(1, len(ways) + 1)
        subsets = [itertools.combinations(ways, size) for size in sizes]
        for names in itertools.chain(*subsets):
            new = {
                layout: shapes | {n: x[n] for n in names}
                for layout, x in after.items()
                if {*names} <= x.keys()
            }
            yield Change(names, text.format(", ".join(ways[n] for n in names)), new)


# A text, in which `{}` stands for what to write for each argument that changes, and the
# shapes of these arguments, in each layout.
_Kind = tuple[str, Mapping[str, str], Mapping[str, Shapes]]


def _squeezed(call: Call, shapes: Shapes) -> _Kind:
    """Remove a last axis of size 1 from some arguments.

    If all have it, it may be one of the example: a batch of vectors of size 1.
    """
    wanted = call.wanted
    new = {n: x[:-1] for n, x in shapes.items() if _is_long(x, wanted[n])}
    roles = {wanted[n].shapes for n in new}
    others = [n for n, x in shapes.items() if x[-1:] != (1,) and call.is_set(n)]
    others = [n for n in others if len(wanted[n].shapes) == 1]
    if not any(shapes[n] or wanted[n].shapes in roles for n in others):
        new = {}
    ways = {n: f"`{n}[..., 0]`" for n in new}
    return "Squeeze {}.", ways, dict.fromkeys(("", *LAYOUTS), new)


def _is_long(shape: Shape, spec: Spec) -> bool:
    """Return whether an array has a last axis of size 1 that its spec does not name."""
    return shape[-1:] == (1,) and all(
        axes[-1:] == ("...",) or (len(shape) > len(axes) and "..." not in axes)
        for axes in spec.shapes
    )


def _resized(call: Call, shapes: Shapes) -> Iterator[_Kind]:
    """Slice quantities of T+1 states of which T are needed, or append the last one."""

    def resized(first: str, step: int, axis: int) -> Shapes:
        return {
            n: (*x[:axis], x[axis] + step, *x[axis + 1 :])
            for n, x in shapes.items()
            if _first_axes(call.wanted[n]) == [first] and len(x) > axis
        }

    for at, axis, layouts in (("", 0, ("", "[T, B]")), (":, ", 1, ("[B, T]",))):
        new = resized("T", -1, axis)
        ends = {n: ":-1" if n.endswith("_tm1") else "1:" for n in new}
        ways = {n: f"`{n}` is `values[{at}{end}]`" for n, end in ends.items()}
        ways = {
            n: x for n, x in ways.items() if re.sub("_t(m1)?$", "", n) in _OF_STATES
        }
        yield "With T+1 values, {}.", ways, dict.fromkeys(layouts, new)
    first, second = resized("T+1", 1, 0), resized("T+1", 1, 1)
    text = "{} has T+1 entries: append that of the last next observation."
    new = {"": first, "[T, B]": first, "[B, T]": second}
    yield text, {n: f"`{n}`" for n in first}, new


def _per_step(call: Call, shapes: Shapes) -> _Kind:
    """Give a discount for each step, where there is one for all."""
    streams = [n for n, x in call.wanted.items() if x.shapes == (("T",),)]
    like = max((shapes[n] for n in streams), key=len, default=())
    new = {n: like for n in streams if "discount" in n and shapes[n] == ()}
    text = "{} is γ times `1 - terminated`, for each step."
    return text, {n: f"`{n}`" for n in new}, dict.fromkeys(("", *LAYOUTS), new)


def _first_axes(spec: Spec) -> list[str]:
    """Return the first axis of each shape that an argument may have."""
    return ["".join(axes[:1]) for axes in spec.shapes]


# --- Types and dtypes. ---


def conversion(name: str, value: Any, others: Mapping[str, Any]) -> str:
    """Return how to convert an array that JAX would refuse or misread, else nothing.

    Args:
        name: The name of the argument.
        value: Its value.
        others: All arguments.

    Returns:
        A sentence, or nothing.
    """
    if isinstance(value, np.ma.MaskedArray):
        mask = next((x for x in ("sample_mask", "mask") if x in others), name)
        if mask == name:
            return f"Fill its gaps: `{name}.filled(...)`."
        valid = f"{mask} & " if others[mask] is not None else ""
        valid = f"{mask}={valid}~np.ma.getmaskarray({name})"
        return f"Use `{mask}`: `{name}.filled(0)` with `{valid}`."
    dtype = specs.type_of(value)[1]
    if isinstance(dtype, type):
        ways = [
            x.format(name) for method, x in _READS.items() if hasattr(value, method)
        ]
    elif not isinstance(dtype, np.dtype):  # Of a key.
        ways = []
    else:
        new = "float" if dtype.isnative else f'{name}.dtype.newbyteorder("=")'
        ways = [f"{name}.astype({new})"] * (dtype.kind in "iuf")
    return f"Convert it: `{ways[0]}`." if ways and is_foreign(value) else ""


def is_foreign(value: Any) -> bool:
    """Return whether a value holds an array that JAX does not read."""
    dtype = specs.type_of(value)[1]
    if not isinstance(dtype, type):
        return not specs.is_in_jax(dtype)
    return not isinstance(value, type) and any(hasattr(value, x) for x in _READS)


def _kind(name: str, call: Call) -> str:
    """Return how to convert a value of the wrong kind."""
    spec, value = call.wanted[name], call.given[name]
    kind = {"Real": "float"}.get(spec.kind, spec.kind.lower())
    if kind == "key":
        order = [n for n in call.function.positional if n != "self"]
        place = f"Argument {order.index(name) + 1}" if name in order else f"`{name}`"
        return f"{place} is a key: `jax.random.key(0)`."
    way = f"{name}.astype({kind})"
    if isinstance(value, list | tuple):
        try:
            value, way = np.asarray(cast(Any, value)), f"jnp.asarray({name}, {kind})"
        except jax.errors.TracerArrayConversionError:
            return f"Convert it: `jnp.asarray({name})`."
        except (TypeError, ValueError, RuntimeError):  # Such as entries of many shapes.
            return ""
        if specs.has_kind(value.shape, value.dtype, spec.kind):
            return f"Convert it: `jnp.asarray({name})`."
    shape, dtype, _ = specs.type_of(value)
    if "discount" in name and dtype in (bool, np.bool_):
        return f"`{name}` is the discount γ times `1 - terminated`."
    is_number = isinstance(dtype, np.dtype) and dtype.kind in "biufV"
    if not is_number or dtype.fields:  # A key, or an array of records.
        return ""
    ends = {rule.high for rule in spec.rules if isinstance(rule, Interval)}
    sources = [n for n, x in call.wanted.items() if {*x.shapes[0][-1:]} & ends]
    if shape != () and kind == "int" and shape in [call.type_of(n)[0] for n in sources]:
        return f"`{name}` takes indices: of one-hot vectors, `jnp.argmax({name}, -1)`."
    return f"Convert it: `{way}`." * _is_exact(value, kind)


def _is_exact(value: Any, kind: str) -> bool:
    """Return whether no value changes if it is converted, as far as it is known."""
    if kind == "float" or isinstance(value, Tracer):
        return True
    if not getattr(value, "is_fully_addressable", True):
        return True
    x = np.asarray(value)
    return bool(np.all((x == 0) | (x == 1) if kind == "bool" else x == np.round(x)))
