"""Hints of errors: what the caller of a function meant, and how to write it.

A hint is given only if the call fits once it is followed, and no other reading of the
call does. Of a batch of streams the layouts `[B, T]` and `[T, B]` are both given.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.core import Tracer

from rlaxlib._core import batches, binding, specs
from rlaxlib._core.batches import Call, Shapes
from rlaxlib._core.specs import Interval, Shape, is_many

# How to convert arrays that JAX does not read, by a method that they have.
_READS = {
    "detach": "{}.detach().cpu().numpy()",
    "__jax_array__": "jnp.asarray({})",
    "__array__": "np.asarray({})",
    "__dlpack__": "jnp.from_dlpack({})",
}
# First parts of the names of quantities of a state: T+1 states have T+1 of them.
_VALUES = ("v", "q", "target_q", "values")
# The axis of time of a stream: in one example, and in the layouts of a batch.
_TIME = {"": 0} | {layout: 1 - axis for layout, axis in batches.LAYOUTS.items()}
_KEYS = (
    "One key is enough for arrays of any shape. For a key each, map over the keys with "
    "jax.vmap."
)


class Change(NamedTuple):
    """Arguments to change, how, and the shapes of all arrays after it, by layout."""

    names: tuple[str, ...]
    text: str
    shapes: Mapping[str, Shapes]


def hint(name: str, call: Call) -> list[str]:
    """Return lines that may help with an argument that does not fit; or none."""
    spec = call.wanted[name]
    passed = {
        n: x
        for n, x in call.wanted.items()
        if not (x.is_tree or x.kind == "Flag" or isinstance(call.given[n], str | None))
    }
    if spec.is_tree:
        alone = call._replace(wanted={name: spec})
        return [x for x in [_conversion(name, alone)] if x and alone.wrong()]
    call = call._replace(wanted=passed)
    if name not in passed:
        return []
    if wrong := call.wrong():
        way = _conversion(name, call)
        exchange = _search(call, _exchanges(call))
        if way and len(wrong) == 1 and _fits_after(way, name, call, _TIME):
            return [*exchange, f"Or {way[0].lower()}{way[1:]}" if exchange else way]
        alone = call._replace(wanted={name: spec})
        is_right = len(wrong) > 1 and bool(way) and _fits_after(way, name, alone, [""])
        return exchange or [way] * is_right
    is_key = spec.kind == "Key" and any(map(batches.has_many, passed.values()))
    return _search(call, _changes(call)) or [_KEYS] * is_key


# --- Shapes. ---


def _search(call: Call, changes: Iterable[Change]) -> list[str]:
    """Return the one change after which the call fits, if need be as a batch."""
    every = list(changes)
    found = [(x, [x.text]) for x in every if "" in x.shapes and call.fits(x.shapes[""])]
    if not found:
        lines = [batches.lines(call, x.shapes) for x in every]
        found = [(x, [x.text, *y]) for x, y in zip(every, lines, strict=True) if y]
    names = [{*x.names} for x, _ in found]
    # A change of more arguments than necessary does not count as another reading.
    least = [y for x, y in found if not any(each < {*x.names} for each in names)]
    return [*filter(None, least[0])] if len(least) == 1 else []


def _exchanges(call: Call) -> Iterator[Change]:
    """Return exchanges of two arguments, neither of which fits where it is."""
    shapes, wrong = call.shapes(), call.wrong()
    rest = {n: {k: x for k, x in shapes.items() if k != n} for n in shapes}
    counts = {n for n in shapes if binding.has_kind(call.type_of(n), specs.Spec("Int"))}
    needed = [n for n in shapes if wrong or not call.fits(rest[n])]
    for one, other in itertools.combinations(needed, 2):
        swapped = {one: call.given[other], other: call.given[one]}
        new = call._replace(given={**call.given, **swapped})
        # One integer in the place of another explains nothing.
        is_same = {one, other} <= counts and shapes[one] == shapes[other]
        if not is_same and not new.wrong():
            text = f"`{one}` and `{other}` fit if they are exchanged: the order is "
            # By shapes alone, an exchange in a batch is too uncertain.
            after = dict.fromkeys(_TIME if wrong else [""], new.shapes())
            yield Change((one, other), f"{text}({_order(one, other, call)}).", after)


def _order(one: str, other: str, call: Call) -> str:
    """Return the order of arguments, or that of the fields of a state."""
    root = specs.argument_of(one)
    if root not in (one, other) and root == specs.argument_of(other):
        return ", ".join(specs.fields(type(call.given[root])))
    return call.order


def _changes(call: Call) -> Iterator[Change]:
    """Return changes of shapes, and none at all: the call may be a batch."""
    shapes = call.shapes()
    yield Change((), "", dict.fromkeys(batches.LAYOUTS, shapes))
    yield from _exchanges(call)
    found: dict[Any, dict[str, Shapes]] = {}
    for layout, axis in _TIME.items():
        new: dict[str, dict[str, tuple[str, Shape]]] = {}
        for name in shapes:
            for text, way, shape in _alternatives(name, call, shapes, axis):
                new.setdefault(text, {})[name] = (way, shape)
        for text, each in new.items():
            sizes = range(1, len(each) + 1)
            subsets = (itertools.combinations(each, size) for size in sizes)
            for names in itertools.chain(*subsets):
                line = text.format(", ".join(each[n][0] for n in names))
                after = shapes | {n: each[n][1] for n in names}
                found.setdefault((names, line), {})[layout] = after
    for (names, line), after in found.items():
        yield Change(names, line, after)


def _alternatives(
    name: str, call: Call, shapes: Shapes, time: int
) -> Iterator[tuple[str, str, Shape]]:
    """Return changes of an argument: a text, what to write in it, and the shape."""
    shape, wanted = shapes[name], call.wanted[name].shapes
    is_one = shape[-1:] == (1,) and all(
        x[-1:] == ("...",) or (len(shape) > len(x) and not any(map(is_many, x)))
        for x in wanted
    )
    # If all have a last axis of size 1, it may be one of the example.
    forms = {n: x.shapes for n, x in call.wanted.items()}
    roles = {forms[n] for n, x in shapes.items() if x[-1:] == (1,)}
    others = [n for n, x in shapes.items() if x[-1:] != (1,) and call.is_set(n)]
    others = [n for n in others if len(forms[n]) == 1]
    if is_one and any(shapes[n] or forms[n] in roles for n in others):
        yield "Squeeze {}.", f"`{name}[..., 0]`", shape[:-1]
    first = [axes[:1] for axes in wanted] if len(shape) > time else []
    before, size, after = shape[:time], shape[time : time + 1], shape[time + 1 :]
    if first == [("T",)] and re.sub("_t(m1)?$", "", name) in _VALUES:
        part = ":, " * time + (":-1" if name.endswith("_tm1") else "1:")
        way = f"`{name}` is `values[{part}]`"
        yield "With T+1 values, {}.", way, (*before, size[0] - 1, *after)
    if first == [("T+1",)]:
        text = "{} has T+1 entries: append that of the last next observation."
        yield text, f"`{name}`", (*before, size[0] + 1, *after)
    if "discount" in name and shape == () and wanted in ((("T",),), ((),)):
        like = [x for n, x in shapes.items() if forms[n] == wanted]
        text = "{} is γ times `1 - terminated`, for each step."
        yield text, f"`{name}`", max(like, key=len)


# --- Types and dtypes. ---


def _fits_after(way: str, name: str, call: Call, layouts: Iterable[str]) -> bool:
    """Return whether the call fits after a conversion, in one of the layouts.

    An array that JAX does not read has to be converted in any case.
    """
    is_one_hot = "jnp.argmax" in way
    if is_foreign(call.given[name]) or not (is_one_hot or way.startswith("Convert")):
        return True
    shapes = call.shapes() | {n: _shape(call.given[n]) for n in call.wrong()}
    if is_one_hot:
        shapes[name] = shapes[name][:-1]
    return bool(_search(call, [Change((name,), way, dict.fromkeys(layouts, shapes))]))


def _shape(value: Any) -> Shape:
    """Return the shape of a value once it is an array."""
    if type(value) not in (list, tuple):
        return tuple(getattr(value, "shape", ()))
    return (len(value), *_shape(next(iter(value), None)))


def is_foreign(value: Any) -> bool:
    """Return whether a value holds an array that JAX does not read."""
    dtype = binding.type_of(value)[1]
    if not isinstance(dtype, type):
        return not binding.is_in_jax(dtype)
    return not isinstance(value, type) and any(hasattr(value, x) for x in _READS)


def _conversion(name: str, call: Call) -> str:
    """Return how to convert a value of the wrong kind, or nothing."""
    spec, value = call.wanted[name], call.given[name]
    kind = {"Real": "float"}.get(spec.kind, spec.kind.lower())
    if kind == "key":
        return f"`{name}` is a key: `jax.random.key(0)`. The order is ({call.order})."
    if isinstance(value, np.ma.MaskedArray):
        return _filling(name, call)
    if hasattr(value, "_fields"):
        return f"Its fields are {', '.join(value._fields)}."
    way = f"{name}.astype({kind})"
    if isinstance(value, list | tuple):
        try:
            value, way = np.asarray(value), f"jnp.asarray({name}, {kind})"
        except jax.errors.TracerArrayConversionError:
            return f"Convert it: `jnp.asarray({name})`."
        except (TypeError, ValueError, RuntimeError):  # Such as entries of many shapes.
            return ""
        if binding.has_kind(binding.type_of(value), spec):
            return f"Convert it: `jnp.asarray({name})`."
    shape, dtype, _ = binding.type_of(value)
    # Integers may be γ, or the ends of episodes.
    rate = f"`{name}` is the discount γ times `1 - terminated`." * ("discount" in name)
    if rate and dtype in (bool, np.bool_):
        return rate
    if isinstance(dtype, type):
        reads = [
            x.format(name) for method, x in _READS.items() if hasattr(value, method)
        ]
        return f"Convert it: `{reads[0]}`." if is_foreign(value) else ""
    if not getattr(dtype, "isnative", True):
        return f'Convert it: `{name}.astype({name}.dtype.newbyteorder("="))`.'
    ends = {rule.high for rule in spec.rules if isinstance(rule, Interval)}
    sources = [n for n, x in call.wanted.items() if {*x.shapes[0][-1:]} & ends]
    if kind == "int" and shape and shape in [call.type_of(n)[0] for n in sources]:
        return f"`{name}` takes indices: of one-hot vectors, `jnp.argmax({name}, -1)`."
    # Not a key, nor an array of records.
    is_number = isinstance(dtype, np.dtype) and dtype.kind in "biufV"
    if not is_number or dtype.fields or not _is_exact(value, kind):
        return ""
    about = f"{rate} If so, convert" if rate and dtype.kind in "iu" else "Convert"
    return f"{about} it: `{way}`."


def _filling(name: str, call: Call) -> str:
    """Return how to pass a masked array of NumPy."""
    mask = next((x for x in ("sample_mask", "mask") if x in call.given), name)
    if mask == name:
        return f"Fill its gaps: `{name}.filled(...)`."
    both = f"{mask} & " * (call.given[mask] is not None)
    valid = f"{mask}={both}~np.ma.getmaskarray({name})"
    return f"Use `{mask}`: `{name}.filled(0)` with `{valid}`."


def _is_exact(value: Any, kind: str) -> bool:
    """Return whether no value changes if it is converted, as far as it is known."""
    is_known = not isinstance(value, Tracer)
    is_known = is_known and getattr(value, "is_fully_addressable", True)
    if kind == "float" or not is_known:
        return True
    x = np.asarray(value)
    return bool(np.all((x == 0) | (x == 1) if kind == "bool" else x == np.round(x)))
