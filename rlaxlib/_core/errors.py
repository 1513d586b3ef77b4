"""Errors of arguments: the function, the argument, found, expected, and the way out."""

from __future__ import annotations

import inspect
import itertools
import reprlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import numpy as np

from rlaxlib._core import specs
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
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        return TypeError(f"{name}() {error}")
    raise AssertionError("The arguments fit.")


def misfit(name: str, wanted: Wanted, given: Arguments) -> ArgumentError:
    """Return the error of an argument that does not fit.

    Args:
        name: The name of the argument.
        wanted: The specs of all arrays.
        given: All arguments.

    Returns:
        An error that describes the argument, all others, and what may help.
    """
    table = [
        f"  {other} is {describe(given[other])}, must be {spec.text}"
        for other, spec in wanted.items()
        if other in given
    ]
    first = f"`{name}` {_problem(name, wanted, given)}"
    return problem("\n".join([first, *table, *_hint(name, wanted, given)]))


def describe(value: Any) -> str:
    """Write an array as `float32[4, 5]`, and anything else as Python does."""
    if hasattr(value, "_fields"):
        return f"a `{type(value).__name__}`"
    if not hasattr(value, "dtype"):
        return reprlib.repr(value)
    return f"{value.dtype}[{', '.join(map(str, np.shape(value)))}]"


def _problem(name: str, wanted: Wanted, given: Arguments) -> str:
    """Describe why one argument does not fit."""
    spec, value = wanted[name], given[name]
    shape, dtype = type_of(value)
    if not specs.has_kind(shape, dtype, spec.kind):
        return f"is {describe(value)}, must be {specs.KINDS[spec.kind][2]}"
    # Arguments of one shape say the sizes to those that may have several.
    order = sorted(wanted, key=lambda other: len(wanted[other].shapes))
    before = {
        other: wanted[other]
        for other in itertools.takewhile(lambda other: other != name, order)
        if given.get(other) is not None
    }
    sizes = _sizes(before, given)
    shape = specs.own_shape(shape, dtype, spec.kind)
    needed = " or ".join(dict.fromkeys(_needed(axes, sizes) for axes in spec.shapes))
    empty = " and not empty" if 0 in shape else ""
    match = [f"`{x}`" for x, each in before.items() if _names(spec) & _names(each)]
    return f"has shape {shape}, must be {needed}{empty}" + (
        f" to match {', '.join(match)}" if match else ""
    )


def type_of(value: Any) -> tuple[tuple[int, ...], Any]:
    """Return shape and dtype of an array, or `()` and the type of anything else."""
    is_array = hasattr(value, "dtype")
    return (value.shape, value.dtype) if is_array else ((), cast(Any, type(value)))


def _sizes(wanted: Wanted, given: Arguments) -> Sizes:
    """Return the sizes of axes that arguments have, as far as they fit."""
    sizes: Sizes = {name: x for name, x in given.items() if type(x) is int}
    for name, spec in wanted.items():
        if found := specs.fit(*type_of(given[name]), spec, sizes):
            sizes = found[1]
    return sizes


def _names(spec: Spec) -> set[str]:
    """Return the names of the axes of a spec."""
    axes = itertools.chain.from_iterable(spec.shapes)
    return {name for name, _ in map(specs.split, axes) if not name.isdecimal()}


def _needed(axes: Axes, sizes: Sizes) -> str:
    """Write a shape as `(4, 3)` if all sizes are known, else as `[T, 3]`."""
    known = [specs.size_of(axis, sizes) for axis in axes]
    if None in known:
        sized = zip(axes, known, strict=True)
        return f"[{', '.join(str(x) if type(x) is int else a for a, x in sized)}]"
    flat = [size if isinstance(size, tuple) else (size,) for size in known]
    return str(tuple(cast(Any, itertools.chain.from_iterable(cast(Any, flat)))))


# --- Hints. ---


def _hint(name: str, wanted: Wanted, given: Arguments) -> list[str]:
    """Return what may help, at most one line."""
    spec, value = wanted[name], given[name]
    shape, dtype = type_of(value)
    some = {n: x for n, x in wanted.items() if not isinstance(given.get(n), str | None)}
    if not specs.has_kind(shape, dtype, spec.kind):
        hint = _conversion(name, spec, value)
    elif len(shape) > 1 and shape[-1] == 1 and _fits(name, some, given, shape[:-1]):
        hint = f"Squeeze it: `{name}[..., 0]`."
    elif pair := _unsliced(name, some, given):
        now, then = pair
        hint = f"With T+1 values, `{now}` is `values[:-1]` and `{then}` `values[1:]`."
    else:
        hint = _batch(some, given)
    return [hint] if hint else []


def _conversion(name: str, spec: Spec, value: Any) -> str:
    """Say how to convert a value of the wrong kind."""
    if isinstance(value, list | tuple):
        return f"Convert it: `jnp.asarray({name})`."
    if not hasattr(value, "dtype"):
        return ""
    if spec.kind == "Float" and "discount" in name and value.dtype == np.bool_:
        return f"`{name}` is the discount γ times `1 - terminated`."
    if spec.kind in ("Float", "Real"):
        return f"Convert it: `{name}.astype(float)`."
    if spec.kind == "Int" and np.ndim(value) > max(map(len, spec.shapes)):
        return f"`{name}` takes indices: of one-hot vectors, `jnp.argmax({name}, -1)`."
    return f"Convert it: `{name}.astype({spec.kind.lower()})`."


def _fits(name: str, wanted: Wanted, given: Arguments, shape: tuple[int, ...]) -> bool:
    """Return whether an argument would fit if it had another shape."""
    sizes = _sizes({n: x for n, x in wanted.items() if n != name}, given)
    return specs.fit(shape, type_of(given[name])[1], wanted[name], sizes) is not None


def _unsliced(name: str, wanted: Wanted, given: Arguments) -> tuple[str, str] | None:
    """Return the two arguments that have one entry more than another, `T+1` values."""
    for now in wanted:
        then = f"{now.removesuffix('_tm1')}_t"
        if now.endswith("_tm1") and then in wanted and name not in (now, then):
            long = np.shape(given[now])
            is_longer = long and np.shape(given[name])[:1] == (long[0] - 1,)
            if is_longer and np.shape(given[then]) == long:
                return now, then
    return None


def _batch(wanted: Wanted, given: Arguments) -> str:
    """Point to `jax.vmap` if one more axis is all that does not fit."""
    for axis in (0, 1):
        if batched := _batched(axis, wanted, given):
            names = ", ".join(f"`{name}`" for name in batched)
            others = ", ".join(f"`{name}`" for name in wanted if name not in batched)
            return (
                "This looks like a batch, but the function takes one example: map it "
                f"over the batch with jax.vmap, in_axes {axis} for {names}"
                f"{', None for ' * bool(others)}{others}; or with rlaxlib.batched."
            )
    return ""


def _batched(axis: int, wanted: Wanted, given: Arguments) -> list[str]:
    """Return the arguments that have one axis too many, if all others fit."""
    sizes: Sizes = {}
    lengths: dict[str, int] = {}
    for name, spec in sorted(wanted.items(), key=lambda each: len(each[1].shapes)):
        shape, dtype = type_of(given[name])
        found = specs.fit(shape, dtype, spec, sizes)
        if not found and not any(map(specs.is_many, itertools.chain(*spec.shapes))):
            at = min(axis, len(specs.own_shape(shape, dtype, spec.kind)) - 1)
            one = shape[:at] + shape[at + 1 :]
            found = specs.fit(one, dtype, spec, sizes) if at >= 0 else None
            lengths[name] = shape[at] if at >= 0 else 0
        if not found:
            return []
        sizes = found[1]
    return [name for name in wanted if name in lengths] * (
        len({*lengths.values()}) == 1
    )


def leaves(
    hints: Mapping[str, Any], name: str, given: Arguments, order: list[str]
) -> Iterator[tuple[str, Spec, Any]]:
    """Return path, spec and value of each array that an argument contains.

    Args:
        hints: The annotations of arguments that contain arrays.
        name: The name of the argument.
        given: All arguments.
        order: The names of positional arguments, in their order.

    Raises:
        ArgumentError: If the argument is of another type.
    """
    try:
        yield from specs.leaves(name, hints[name], given[name])
    except TypeError as error:
        path, wanted = error.args
        kind = getattr(wanted, "__name__", "tuple")
        others = [n for n, x in given.items() if type(x).__name__ == kind]
        others = [n for n in others if n not in hints]
        names = ", ".join(each for each in order if each != "self")
        hint = f": `{others[0]}` is one, the order is ({names})" if others else ""
        found = describe(given[name])
        raise problem(f"`{path}` is {found}, must be a `{kind}`{hint}") from None
