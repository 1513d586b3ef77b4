"""Errors of arguments: the function, the argument, found, expected, and the way out."""

from __future__ import annotations

import inspect
import itertools
import re
import reprlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import jax

from rlaxlib._core import binding, hints, specs, suggestions
from rlaxlib._core.batches import Call, Function
from rlaxlib._core.specs import Axes, Sizes, Spec

Arguments = Mapping[str, Any]
Wanted = Mapping[str, Spec]


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
    function: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: Arguments
) -> TypeError:
    """Return the error of a call with missing, unknown or repeated arguments."""
    signature = inspect.signature(function)
    arguments = [each for each in signature.parameters if each != "self"]
    for word in [each for each in kwargs if each not in arguments]:
        names = " and ".join(f"`{each}`" for each in suggestions.meant(word, arguments))
        is_rate = names == "`discount_t`"
        names += ", γ times `1 - terminated`, for each step" * is_rate
        see = f"see {names}" if names else f"its arguments are {', '.join(arguments)}"
        return TypeError(f"{name}() got an unexpected `{word}`: {see}")
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        return TypeError(f"{name}() {error}")
    raise AssertionError("The arguments fit.")


def misfit(
    name: str, sizes: Sizes, wanted: Wanted, given: Arguments, function: Function
) -> ArgumentError:
    """Return the error of an argument that does not fit sizes that are known."""
    wrong = [n for n in wanted if n in given and not _has_kind(wanted[n], given[n])]
    name = next(iter(wrong), name)  # A shape means little if the kind is wrong.
    spec, found = wanted[name], describe(given[name])
    call = Call(function, given, wanted)
    shown = [n for n in wanted if n in given and (n == name or call.is_set(n))]
    table = [f"  {n} is {describe(given[n])}, must be {wanted[n].text}" for n in shown]
    first = f"`{name}` is {found}, must be {specs.KINDS[spec.kind][2]}"
    if not wrong:
        shape = binding.own_shape(*binding.type_of(given[name])[:2], spec.kind)
        needed = dict.fromkeys(_needed(axes, sizes) for axes in spec.shapes)
        empty = " and not empty" if 0 in shape else ""
        first = f"`{name}` has shape {shape}, must be {' or '.join(needed)}{empty}"
        first += _match(name, sizes, wanted, given)
    lines = hints.hint(name, wanted, given, function)
    return problem("\n".join([first, *table, *lines]))


def describe(value: Any) -> str:
    """Write an array as `float32[4, 5]`, and anything else as Python does."""
    kind = cast(Any, type(value))
    if hasattr(value, "_fields"):
        return f"a `{kind.__name__}`"
    shape, dtype, _ = binding.type_of(value)
    if not isinstance(dtype, type):
        return f"{dtype}[{', '.join(map(str, shape))}]"
    if hints.is_foreign(value):
        return f"a `{kind.__module__.partition('.')[0]}.{kind.__name__}`"
    return reprlib.repr(value)


def _has_kind(spec: Spec, value: Any) -> bool:
    """Return whether a value may be one of a spec, apart from its shape."""
    is_none = spec.optional and value is None
    is_option = bool(spec.options) and isinstance(value, str)
    shape, dtype, _ = binding.type_of(value)
    return is_none or is_option or binding.has_kind(shape, dtype, spec.kind)


def check_structure(name: str, tree: Any, other: str, another: Any) -> None:
    """Check that two pytrees have the same structure."""
    structures = [cast(Any, jax.tree.structure(x)) for x in (tree, another)]
    if structures[0] != structures[1]:
        raise problem(
            f"`{name}` and `{other}` must have the same tree structure, but have "
            f"{structures[0]} and {structures[1]}"
        )


def _match(name: str, sizes: Sizes, wanted: Wanted, given: Arguments) -> str:
    """Name the arguments whose sizes an argument must have."""

    def known(axes: Iterable[str]) -> set[str]:
        return {axis for axis, _ in map(binding.split, axes)} & sizes.keys()

    own = known(itertools.chain.from_iterable(wanted[name].shapes))
    others = [n for n in wanted if n in given and n != name]
    types = {n: binding.type_of(given[n])[:2] for n in others}
    fits = {n: binding.fit(*x, wanted[n], sizes) for n, x in types.items()}
    names = [f"`{n}`" for n, x in fits.items() if x and known(x[0]) & own]
    return f" to match {', '.join(names)}" if names else ""


def _needed(axes: Axes, sizes: Sizes) -> str:
    """Write a shape as `(4, 3)` if all sizes are known, else as `[T, 3]`."""
    known = [binding.size_of(axis, sizes) for axis in axes]
    if None in known:
        sized = zip(map(specs.shown, axes), known, strict=True)
        return f"[{', '.join(str(x) if type(x) is int else a for a, x in sized)}]"
    flat = [size if isinstance(size, tuple) else (size,) for size in known]
    return str(tuple(cast(Any, itertools.chain.from_iterable(cast(Any, flat)))))


def wrong_type(
    path: str, wanted: Any, given: Arguments, function: Function
) -> ArgumentError:
    """Return the error of an argument that is no state, or no other record or tuple.

    It says the order of arguments if another one is of the type that is wanted.
    """
    name = re.split(r"[.[]", path)[0]
    kind = getattr(wanted, "__name__", "tuple")
    others = [n for n, x in given.items() if n != name and type(x).__name__ == kind]
    order = ", ".join(each for each in function.positional if each != "self")
    hint = f": `{others[0]}` is one, the order is ({order})" if others else ""
    return problem(f"`{path}` is {describe(given[name])}, must be a `{kind}`{hint}")
