"""Errors of arguments: the function, the argument, found, expected, and the way out."""

from __future__ import annotations

import inspect
import itertools
import re
import reprlib
from collections.abc import Callable, Mapping
from typing import Any

from rlaxlib._core import binding, hints, specs, suggestions
from rlaxlib._core.batches import Call
from rlaxlib._core.binding import Bound
from rlaxlib._core.specs import Axes, Sizes, Spec


class ArgumentError(ValueError, AssertionError):
    """An argument has a shape, a dtype or a value that the function cannot use.

    It is a `ValueError`. It is an `AssertionError` too, so that code written around
    libraries that assert their shapes still catches it.
    """

    needs_name = False  # Whether the text lacks the name of the function.


def problem(text: str) -> ArgumentError:
    """Return an error to which `named` adds the function, and a full stop."""
    error = ArgumentError(text)
    error.needs_name = True
    return error


def named(error: ArgumentError, function: str) -> ArgumentError:
    """Add the name of the public function that was called, if `problem` made it."""
    if error.needs_name:
        first, *further = str(error).split("\n")
        error.args = ("\n".join([f"{function}: {first}.", *further]),)
        error.needs_name = False
    return error


def unbound(
    function: Callable[..., Any],
    name: str,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> TypeError:
    """Return the error of a call with missing, unknown or repeated arguments."""
    signature = inspect.signature(function)
    every = signature.parameters
    if unknown := [word for word in kwargs if word not in every]:
        arguments = [each for each in every if each != "self"]
        meant = suggestions.meant(unknown[0], arguments, name)
        names = " and ".join(f"`{each}`" for each in meant)
        is_rate = names == "`discount_t`"
        names += ", γ times `1 - terminated`, for each step" * is_rate
        see = f"see {names}" if names else f"its arguments are {', '.join(arguments)}"
        return TypeError(f"{name}() got an unexpected `{unknown[0]}`: {see}")
    words = [n for n, each in every.items() if each.kind is each.KEYWORD_ONLY]
    is_long = bool(words) and len(args) > len(every) - len(words)
    text = f": {', '.join(words)} by keyword" * is_long
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        text = f"{error}{text}"
    return TypeError(f"{name}() {text}")


def misfit(call: Call, bound: Bound) -> ArgumentError:
    """Return the error of an array that does not fit."""
    name, given, wanted = bound.misfit, call.given, call.wanted
    spec, type_ = wanted[name], binding.type_of(given[name])
    has_kind, shape = binding.has_kind(type_, spec), type_[0]
    must = binding.KINDS[spec.kind][2]
    first = f"`{name}` is {describe(given[name])}, must be {must}"
    if spec.kind == "Flag":
        masks = [f"`{n}`" for n, x in wanted.items() if x.kind == "Bool" and shape]
        way = f": pass {' or '.join(masks)} by keyword" if masks else ""
        return problem(first + way)
    if has_kind:
        shape = binding.own_shape(type_, spec.kind)
        needed = dict.fromkeys(_needed(axes, bound.sizes) for axes in spec.shapes)
        empty = " and not empty" if 0 in shape else ""
        first = f"`{name}` has shape {shape}, must be {' or '.join(needed)}{empty}"
        first += _match(name, call, bound)
    table = [
        f"  {n} is {describe(given[n])}, must be {wanted[n].text}"
        for n in wanted
        if n == name or (wanted[n].is_tree == spec.is_tree and call.is_set(n))
    ]
    return problem("\n".join([first, *table, *hints.hint(name, call)]))


def describe(value: Any) -> str:
    """Write an array as `float32[4, 5]`, and anything else as Python does."""
    kind = type(value)
    if hasattr(value, "_fields"):
        return f"a `{kind.__name__}`"
    shape, dtype, _ = binding.type_of(value)
    if not isinstance(dtype, type):
        return f"{dtype}[{', '.join(map(str, shape))}]"
    if hints.is_foreign(value):
        return f"a `{kind.__module__.partition('.')[0]}.{kind.__name__}`"
    return " ".join(reprlib.repr(value).split())  # In one line.


def _match(name: str, call: Call, bound: Bound) -> str:
    """Name the arguments that determined the sizes that an argument must have."""
    own = {specs.split(x)[0] for axes in call.wanted[name].shapes for x in axes}
    own &= bound.sizes.keys()
    names = [
        f"`{n}`"
        for n in call.wanted
        if own.intersection(specs.split(axis)[0] for axis in bound.axes.get(n, ()))
    ]
    return f" to match {', '.join(names)}" if names else ""


def _needed(axes: Axes, sizes: Sizes) -> str:
    """Write a shape as `(4, 3)` if all sizes are known, else as `[T, 3]`."""
    known = [specs.size_of(axis, sizes) for axis in axes]
    if None in known:
        sized = zip(map(specs.shown, axes), known, strict=True)
        return f"[{', '.join(str(x) if type(x) is int else a for a, x in sized)}]"
    flat = [size if isinstance(size, tuple) else (size,) for size in known]
    return str(tuple(itertools.chain.from_iterable(flat)))


def wrong_type(path: str, wanted: Spec, call: Call) -> ArgumentError:
    """Return the error of an argument that is not a state, record or tuple.

    It gives the order of arguments if another one has the required type.
    """
    name = specs.argument_of(path)
    kind = getattr(wanted.type, "__name__", "tuple")
    others = [n for n, x in call.given.items() if type(x).__name__ == kind]
    others = others if path == name else []
    hint = f": `{others[0]}` is one, the order is ({call.order})" if others else ""
    found = describe(_at(path, call.given[name]))
    return problem(f"`{path}` is {found}, must be a `{kind}`{hint}")


def _at(path: str, value: Any) -> Any:
    """Return the part of an argument at a path such as `constraints[0]`."""
    for field, place in re.findall(r"\.(\w+)|\[(\d+)\]", path):
        value = getattr(value, field) if field else value[int(place)]
    return value
