"""Hold the arguments of a function against the shapes that its docstring promises.

Every public function opens with one call, one line for each array argument::

    r_t, values, lambda_ = checks.arrays(
        r_t=(r_t, "float[T]"),
        values=(values, "float[T+1]"),
        lambda_=(lambda_, "float[] or [T]"),
    )

The call returns the arguments as JAX arrays, in the order given. If one does not fit,
it raises an `ArgumentError` that names the argument, its shape and the shape it must
have.

A spec is a kind (`float`, `int`, `bool`, `key`, or `any`) and one or more shapes. A
shape lists its axes: a number is a fixed size; a name such as `T` is a size that all
arguments of the call share, at least 1; `T+1` is one more than that, `T-1` one less;
`...` stands for any number of further axes, the same for all arguments of the call.
Where `or None` follows, the argument may be left out.

JAX knows shapes and dtypes while it traces, so compiled code pays nothing for this.
Values are another matter: a number out of its range is found where it is concrete, and
passes where it is traced.
"""

from __future__ import annotations

import functools
import itertools
import re
import reprlib
import sys
from collections.abc import Mapping
from types import FrameType
from typing import Any, NoReturn, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

Arguments = Mapping[str, tuple[Any, str]]
Shape = tuple[str, ...]
Sizes = dict[str, int | tuple[int, ...]]

_KINDS = {
    "any": jnp.generic,
    "bool": jnp.bool_,
    "float": jnp.floating,
    "int": jnp.integer,
    "key": jax.dtypes.prng_key,
}


class ArgumentError(ValueError, AssertionError):
    """An argument has a shape, a dtype or a value that the function cannot use.

    It is a `ValueError`. It is an `AssertionError` too, so that code written around
    libraries that assert their shapes still catches it.
    """


def arrays(**arguments: tuple[Any, str]) -> tuple[Array, ...]:
    """Check arguments against their specs, and return them as JAX arrays.

    Args:
        **arguments: For each argument, under its name, the pair of its value and its
            spec.

    Returns:
        The arguments as JAX arrays, in the order given. An argument that may be left
        out, and is, comes back as None; the type, for the sake of the others, does not
        say so.

    Raises:
        ArgumentError: If a dtype or a shape does not fit.
    """
    sizes: Sizes = {}
    checked: list[Any] = []
    for name, (value, spec) in arguments.items():
        if value is None and spec.endswith(" or None"):
            checked.append(None)
            continue
        found = _fit(value, spec, sizes)
        if found is None:
            raise ArgumentError(_explain(name, arguments, sizes))
        sizes = found
        checked.append(jnp.asarray(_as_kind(value, spec)))
    return tuple(checked)


def at_least(minimum: int, maximum: int | None = None, /, **arguments: Any) -> None:
    """Check that each argument is a Python integer, and not below `minimum`.

    Args:
        minimum: The smallest value allowed.
        maximum: The largest value allowed, if there is one.
        **arguments: The values, each under its argument's name.

    Raises:
        ArgumentError: If a value is not a Python integer, or out of bounds.
    """
    for name, value in arguments.items():
        if isinstance(value, Tracer):
            problem = "a Python integer, but is traced: mark it with static_argnames"
        elif isinstance(value, bool) or not isinstance(value, int | np.integer):
            problem = f"a Python integer, but is {reprlib.repr(value)}"
        elif value < minimum:
            problem = f"at least {minimum}, but is {value}"
        elif maximum is not None and value > maximum:
            problem = f"at most {maximum}, but is {value}"
        else:
            continue
        refuse(f"`{name}` must be {problem}")


def static(**arguments: Any) -> None:
    """Check that each argument is known while JAX traces, as a Python number is.

    Args:
        **arguments: The values, each under its argument's name.

    Raises:
        ArgumentError: If a value is traced.
    """
    for name, value in arguments.items():
        if isinstance(value, Tracer):
            problem = "a Python value, but is traced: mark it with static_argnames"
            refuse(f"`{name}` must be {problem}")


def leads(**arguments: Array) -> None:
    """Check that the axes of one array are the first ones of another, or of size 1.

    Args:
        **arguments: Two arrays, each under its argument's name: the one with fewer axes
            first.

    Raises:
        ArgumentError: If there are more axes, or others.
    """
    (name, short), (whole, long) = arguments.items()
    sizes = zip(short.shape, long.shape, strict=False)
    if short.ndim <= long.ndim and all(a in (1, b) for a, b in sizes):
        return
    refuse(
        f"the {name} shape must be that of the first axes of {whole}, or 1, but "
        f"`{name}` is {_describe(short)}, and `{whole}` is {_describe(long)}"
    )


def same_structure(**trees: Any) -> None:
    """Check that pytrees differ in nothing but their leaves.

    Args:
        **trees: Pytrees, each under its argument's name.

    Raises:
        ArgumentError: If one has another structure than the first.
    """
    (name, first), *others = trees.items()
    for other, tree in others:
        structures = [cast(Any, jax.tree.structure(each)) for each in (first, tree)]
        if structures[0] != structures[1]:
            refuse(
                f"`{name}` and `{other}` must share the same tree structure, but are "
                f"{structures[0]} and {structures[1]}"
            )


def binary(**arguments: Any) -> None:
    """Check that each argument holds nothing but 0 and 1, where its values are known.

    Args:
        **arguments: Arrays, each under its argument's name. What is traced passes.

    Raises:
        ArgumentError: If a value is another.
    """
    for name, value in arguments.items():
        known = _known(value)
        if known is None:
            continue
        _refuse((known != 0) & (known != 1), known, f"`{name}` must hold 0 or 1")


def within(interval: str, **arguments: Any) -> None:
    """Check that each argument lies in an interval, where its values are known.

    Args:
        interval: The interval as one writes it, such as `"[0, 1]"` or `"(0, inf)"`: a
            bracket includes its end, a parenthesis leaves it out.
        **arguments: Numbers or arrays, each under its argument's name. What is traced
            or None passes.

    Raises:
        ArgumentError: If a value lies outside, or is not a number.
    """
    low, high = map(float, interval[1:-1].split(","))
    for name, value in arguments.items():
        known = _known(value)
        if known is None:
            continue
        above = known >= low if interval[0] == "[" else known > low
        below = known <= high if interval[-1] == "]" else known < high
        _refuse(~(above & below), known, f"`{name}` must lie in {interval}")


def ordered(**arguments: Any) -> None:
    """Check that no argument is larger than the next, where their values are known.

    Args:
        **arguments: Numbers or arrays, each under its argument's name.

    Raises:
        ArgumentError: If they are the wrong way round.
    """
    named = {name: _known(value) for name, value in arguments.items()}
    for (name, low), (other, high) in itertools.pairwise(named.items()):
        if low is None or high is None:
            continue
        rule = f"`{other}` must be at least `{name}`"
        _refuse(~(low <= high), np.broadcast_to(high, np.shape(low <= high)), rule)


def ascending(**arguments: Any) -> None:
    """Check that no entry of an argument is below the one before, where it is known.

    Args:
        **arguments: Arrays of one axis, each under its argument's name.

    Raises:
        ArgumentError: If an entry is below the one before, or not a number.
    """
    for name, value in arguments.items():
        known = _known(value)
        if known is None:
            continue
        before, after = known[:-1], known[1:]
        rule = f"`{name}` must never decrease: no entry may be below the one before"
        _refuse(~(before <= after), after, rule)


def increasing(**arguments: Any) -> None:
    """Check that each number is more than the one before, where all are known.

    Args:
        **arguments: Numbers or arrays of one axis, each under its argument's name; the
            numbers of one come before those of the next.

    Raises:
        ArgumentError: If a number is not more than the one before.
    """
    known = [_known(value) for value in arguments.values()]
    if any(each is None for each in known):
        return
    numbers = np.concatenate([np.ravel(each) for each in known])
    names = " and ".join(f"`{name}`" for name in arguments)
    rule = f"{names} must increase: each number must be more than the one before"
    _refuse(~(numbers[:-1] < numbers[1:]), numbers[1:], rule)


def indices(**arguments: tuple[Any, int]) -> None:
    """Check that each argument points at one of `size` entries, where it is known.

    Args:
        **arguments: For each argument, under its name, the pair of its value and the
            number of entries. What is traced passes: there an index that points
            nowhere gives NaN.

    Raises:
        ArgumentError: If an index is negative, or too large.
    """
    for name, (value, size) in arguments.items():
        known = _known(value)
        if known is None:
            continue
        rule = f"`{name}` must be one of {size}, from 0 to {size - 1}"
        _refuse((known < 0) | (known >= size), known, rule)


def are_one(*arguments: Any) -> bool:
    """Tell whether arguments are numbers of Python, and 1."""
    return all(isinstance(each, float | int) and each == 1 for each in arguments)


def refuse(problem: str) -> NoReturn:
    """Raise an error that says what no other check looks for.

    Args:
        problem: What is wrong, without a full stop.

    Raises:
        ArgumentError: Always.
    """
    raise ArgumentError(f"{_caller()}: {problem}.")


def _refuse(wrong: Any, values: Any, rule: str) -> None:
    """Raise an error that shows the first value that is wrong, if there is one."""
    if np.any(wrong):
        first = np.atleast_1d(values)[np.atleast_1d(wrong)][0]
        refuse(f"{rule}, but is {first}")


def _known(value: Any) -> Any:
    """Return the values of an argument, or None if they are not at hand."""
    if value is None or isinstance(value, Tracer):
        return None
    if not getattr(value, "is_fully_addressable", True):  # Parts are on other hosts.
        return None
    return np.asarray(jax.device_get(value))


@functools.cache
def _parse(spec: str) -> tuple[str, tuple[Shape, ...]]:
    """Split `"float[] or [T]"` into its kind and its shapes, `((), ("T",))`."""
    kind, _ = spec.split("[", maxsplit=1)
    shapes: list[str] = re.findall(r"\[(.*?)\]", spec)
    return kind, tuple(tuple(filter(None, axes.split(", "))) for axes in shapes)


def _as_kind(value: Any, spec: str) -> Any:
    """Return `value`, made a float if it is a Python integer where a float goes."""
    is_float = _parse(spec)[0] == "float"
    return float(value) if is_float and type(value) is int else value


def _fit(value: Any, spec: str, sizes: Sizes) -> Sizes | None:
    """Return `sizes` with those of `value` added, or None if `value` does not fit."""
    kind, shapes = _parse(spec)
    value = _as_kind(value, spec)
    if not (isinstance(value, bool | int | float) or hasattr(value, "dtype")):
        return None
    shape = np.shape(value)
    if kind == "key" and jnp.result_type(value) == jnp.uint32 and shape:
        shape = shape[:-1]  # A key of the old kind is a row of words.
    elif not jnp.issubdtype(jnp.result_type(value), _KINDS[kind]):
        return None
    found = (_bind(shape, axes, sizes) for axes in shapes)
    return next((bound for bound in found if bound is not None), None)


def _bind(shape: tuple[int, ...], axes: Shape, sizes: Sizes) -> Sizes | None:
    """Return `sizes` with those of `shape` added, or None if they contradict."""
    bound = dict(sizes)
    if "..." in axes:
        start = axes.index("...")
        end = max(start, len(shape) - len(axes[start + 1 :]))
        further, shape = shape[start:end], shape[:start] + shape[end:]
        axes = axes[:start] + axes[start + 1 :]
        if bound.setdefault("...", further) != further:
            return None
    if len(shape) != len(axes):
        return None
    for size, axis in zip(shape, axes, strict=True):
        name, extra = (*re.split(r"(?=[+-])", axis), "0")[:2]  # `T+1` is `T` and 1.
        rest = size - int(extra)
        known = int(name) if name.isdecimal() else bound.setdefault(name, rest)
        if rest != known or rest < 1:
            return None
    return bound


def _explain(name: str, arguments: Arguments, sizes: Sizes) -> str:
    """Say which argument is wrong, what all of them are, and what may help."""
    value, spec = arguments[name]
    known = [f"{axis} = {_size(size)}" for axis, size in sizes.items() if size != ()]
    where = f", where {', '.join(known)}" if known else ""
    empty = " and not empty" if 0 in getattr(value, "shape", ()) else ""
    problem = f"`{name}` is {_describe(value)}, but must be {spec}{empty}{where}."
    table = [
        f"  {other} is {_describe(value)}, must be {spec}"
        for other, (value, spec) in arguments.items()
    ]
    return "\n".join([f"{_caller()}: {problem}", *table, *_hint(arguments)])


def _hint(arguments: Arguments) -> list[str]:
    """Point to `jax.vmap` if some arguments have one axis too many."""
    given = {name: each for name, each in arguments.items() if each[0] is not None}
    batched = [f"`{name}`" for name in given if _is_batched(*given[name])]
    single = [f"`{name}`" for name in given if f"`{name}`" not in batched]
    if not batched:
        return []
    axes = f"in_axes 0 (1 if time comes first) for {', '.join(batched)}"
    axes += f", None for {', '.join(single)}" if single else ""
    takes_one = f"This looks like a batch, but {_caller()} takes one example"
    return [f"{takes_one}: map it over the batch with jax.vmap, {axes}."]


def _is_batched(value: Any, spec: str) -> bool:
    """Return whether `value` has one axis more than the largest shape of `spec`."""
    kind, shapes = _parse(spec)
    rank = max(len(axes) for axes in shapes)
    rank += kind == "key" and getattr(value, "dtype", None) == jnp.uint32
    return hasattr(value, "dtype") and "..." not in spec and value.ndim == rank + 1


def _describe(value: Any) -> str:
    """Write an array as `float32[4, 5]`, and anything else as Python does."""
    if not hasattr(value, "dtype"):
        return reprlib.repr(value)
    return f"{value.dtype}[{_size(np.shape(value))}]"


def _size(size: int | tuple[int, ...]) -> str:
    """Write the size of one axis, or of several."""
    return str(size) if isinstance(size, int) else ", ".join(map(str, size))


def _caller() -> str:
    """Return the name of the public function that asked for a check."""
    frame = sys._getframe()
    name = _name(frame)
    while frame.f_back is not None and not name:
        frame = frame.f_back
        name = _name(frame)
    return name


def _name(frame: FrameType) -> str:
    """Return what a user calls the function of a frame, "" if it is none of his."""
    if frame.f_globals is globals():
        return ""
    outermost = frame.f_code.co_qualname.partition(".<locals>")[0]
    owner, _, name = outermost.removesuffix(".__call__").rpartition(".")
    if name.startswith("_"):
        return ""
    if not owner and name not in frame.f_globals.get("__all__", [name]):
        return ""
    if owner:  # `softmax()` makes a `_Softmax`, or a class that inherits from it.
        owner = type(frame.f_locals["self"]).__name__.lstrip("_")
        owner = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", owner).lower()
    return f"{owner}.{name}" if owner else name
