"""Argument checks: shapes, dtypes and ranges, with errors that name the argument.

Every public function opens with one call, one line for each array argument::

    r_t, values, lambda_, narrow = checks.widened(
        r_t=(r_t, "float[T]"),
        values=(values, "float[T+1]"),
        lambda_=(lambda_, "float[] or [T] in [0, 1]"),
    )

The call returns JAX arrays in the order of the arguments, half precision raised to
float32, and `narrow`, which casts a result back. `checks.arrays` does the same without
changing dtypes.

A spec has up to four parts:

- a kind: `float`, `int`, `bool`, `key` or `any`;
- one or more shapes, joined by `or`. An axis is a size such as `3`, or a name such as
  `T`, which has the same size of at least 1 in all arguments of a call. `T+1` is one
  more than `T`. `...` stands for any number of axes, the same in all arguments;
- a rule for the values: an interval such as `in [0, A)`, whose bounds are numbers or
  named axes; `in {0, 1}`; `ascending`; or `increasing`, which excludes equal values;
- `or None` for an argument that may be None.

Shapes and dtypes are checked in traced programs too. Rules are checked where reading
the value costs nothing: on Python and NumPy values and on concrete scalars. Traced
values and arrays on a device pass.
"""

from __future__ import annotations

import functools
import itertools
import re
import reprlib
import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, NamedTuple, NoReturn, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from rlaxlib._core import dtypes, errors, rules, specs
from rlaxlib._core.errors import ArgumentError, NamedError
from rlaxlib._core.programs import compiled

Arguments = Mapping[str, tuple[Any, str]]
Shape = tuple[str, ...]
Sizes = dict[str, int | tuple[int, ...]]
Narrow = Callable[[Any], Any]

# The dtype of arrays, the types of Python scalars, and a description.
_KINDS: Mapping[str, tuple[Any, tuple[type, ...], str]] = {
    "any": (jnp.generic, (bool, int, float), "an array"),
    "bool": (jnp.bool_, (bool,), "a bool array"),
    "float": (jnp.floating, (int, float), "a floating-point array"),
    "int": (jnp.integer, (int,), "an integer array"),
    "key": (jax.dtypes.prng_key, (), "a PRNG key such as `jax.random.key(0)`"),
}
_SPEC = re.compile(
    r"(?P<kind>\w+)(?P<shapes>\[.*?\](?: or \[.*?\])*)"
    r"(?: (?P<rule>in [\[(].+?, .+?[\])]|in \{0, 1\}|ascending|increasing))?"
    r"(?P<optional> or None)?"
)


def arrays(**arguments: tuple[Any, str]) -> tuple[Array, ...]:
    """Check arguments against their specs, and return them as JAX arrays.

    Args:
        **arguments: For each argument, under its name, the pair of its value and its
            spec.

    Returns:
        The arguments as JAX arrays, in the order given. An argument that is None stays
        None, although the return type does not include it.

    Raises:
        ArgumentError: If a dtype, a shape or a value does not fit.
    """
    given = [(spec, *_type(value)) for value, spec in arguments.values()]
    sizes, fitting = _fit(tuple(given))
    if fitting < len(given):
        raise NamedError(_explain([*arguments][fitting], arguments, sizes))
    for name, (value, spec) in arguments.items():
        if rule := _parse(spec).rule:
            _check_rule(name, value, rule, sizes)
    return tuple([_convert(value, spec) for value, spec in arguments.values()])


def widened(**arguments: tuple[Any, str]) -> tuple[*tuple[Array, ...], Narrow]:
    """Do what `arrays` does, and raise half precision to float32.

    Args:
        **arguments: As for `arrays`.

    Returns:
        The arguments as JAX arrays, in the order given; and last a function that casts
        the floating-point arrays of a result to the dtype that the arguments promote
        to.

    Raises:
        ArgumentError: If a dtype, a shape or a value does not fit.
    """
    wide, narrow = dtypes.widen(*arrays(**arguments))
    return *wide, narrow


def fit(**arguments: tuple[Any, Any]) -> None:
    """Check arrays that are not arguments of their own, such as leaves of a pytree.

    Args:
        **arguments: For each array, under its name, the pair of its value and its
            annotation, such as `Float[ArrayLike, "T"]`.

    Raises:
        ArgumentError: If a dtype, a shape or a value does not fit.
    """
    given = {name: value for name, (value, _) in arguments.items()}
    wanted = {name: cast(Any, specs.read(x)) for name, (_, x) in arguments.items()}
    sizes: specs.Sizes = {}
    for name in sorted(wanted, key=lambda each: len(wanted[each].shapes)):
        found = specs.fit(*_type(given[name]), wanted[name], sizes)
        if found is None:
            raise errors.misfit(name, wanted, given)
        sizes = found[1]
    for name, spec in wanted.items():
        for rule in spec.rules:
            rules.check(name, given[name], rule, sizes, given)


def static_int(minimum: int, maximum: int | None = None, /, **arguments: Any) -> None:
    """Check that each argument is a Python integer in a range.

    Args:
        minimum: The smallest value allowed.
        maximum: The largest value allowed, or None for no bound.
        **arguments: The values, each under its argument's name.

    Raises:
        ArgumentError: If a value is not a Python integer, or out of range.
    """
    for name, value in arguments.items():
        if isinstance(value, Tracer):
            problem = "traced, must be a Python integer: mark it with static_argnames"
        elif isinstance(value, bool) or not isinstance(value, int | np.integer):
            problem = f"{reprlib.repr(value)}, must be a Python integer"
        elif value < minimum:
            problem = f"{value}, must be at least {minimum}"
        elif maximum is not None and value > maximum:
            problem = f"{value}, must be at most {maximum}"
        else:
            continue
        fail(f"`{name}` is {problem}")


def static(**arguments: Any) -> None:
    """Check that no argument is traced.

    Args:
        **arguments: The values, each under its argument's name.

    Raises:
        ArgumentError: If a value is traced.
    """
    for name, value in arguments.items():
        if isinstance(value, Tracer):
            problem = "traced, must be a Python value: mark it with static_argnames"
            fail(f"`{name}` is {problem}")


def leading_axes(**arguments: Array) -> None:
    """Check that the axes of one array are the first axes of another, or of size 1.

    Args:
        **arguments: Two arrays, each under its argument's name: the one with fewer axes
            first.

    Raises:
        ArgumentError: If the axes differ, or the first array has more.
    """
    (name, short), (whole, long) = arguments.items()
    sizes = zip(short.shape, long.shape, strict=False)
    if short.ndim <= long.ndim and all(a in (1, b) for a, b in sizes):
        return
    fail(
        f"`{name}` has shape {short.shape}, must have the first axes of `{whole}`, "
        f"which has shape {long.shape}, or size 1"
    )


def same_structure(**trees: Any) -> None:
    """Check that pytrees have the same structure.

    Args:
        **trees: Pytrees, each under its argument's name.

    Raises:
        ArgumentError: If one has another structure than the first.
    """
    (name, first), *others = trees.items()
    for other, tree in others:
        structures = [cast(Any, jax.tree.structure(each)) for each in (first, tree)]
        if structures[0] != structures[1]:
            fail(
                f"`{name}` and `{other}` must have the same tree structure, but have "
                f"{structures[0]} and {structures[1]}"
            )


def within(interval: str, **arguments: Any) -> None:
    """Check that values that are not arguments of their own lie in an interval.

    Args:
        interval: The interval, such as `"[0, 1]"` or `"(0, inf)"`.
        **arguments: Scalars or arrays, each under its name. None passes.

    Raises:
        ArgumentError: If a concrete value is outside, or NaN.
    """
    for name, value in arguments.items():
        _check_rule(name, value, f"in {interval}", {})


def ordered(**arguments: Any) -> None:
    """Check that no argument is larger than the next.

    Args:
        **arguments: Scalars or arrays, each under its argument's name.

    Raises:
        ArgumentError: If a concrete value is larger than the next, or NaN.
    """
    _check_order(np.less_equal, "must be at least", arguments)


def increasing(**arguments: Any) -> None:
    """Check that each argument is less than the next.

    Args:
        **arguments: Scalars or arrays, each under its argument's name.

    Raises:
        ArgumentError: If a concrete value is not less than the next, or NaN.
    """
    _check_order(np.less, "must be more than", arguments)


def fail(problem: str) -> NoReturn:
    """Raise an error that names the public function that was called.

    Args:
        problem: The argument, what was found and what is needed, without a full stop.

    Raises:
        ArgumentError: Always.
    """
    caller = _caller()
    raise NamedError(f"{caller}: {problem}.") if caller else ArgumentError(problem)


class _Spec(NamedTuple):
    """A spec, parsed: `"float[] or [T] in [0, 1]"` has shapes `((), ("T",))`."""

    kind: str
    shapes: tuple[Shape, ...]
    rule: str | None
    optional: bool


@functools.cache
def _parse(spec: str) -> _Spec:
    """Split a spec into its parts."""
    match = _SPEC.fullmatch(spec)
    assert match is not None, spec
    shapes: list[str] = re.findall(r"\[(.*?)\]", match["shapes"])
    axes = tuple(tuple(filter(None, each.split(", "))) for each in shapes)
    return _Spec(match["kind"], axes, match["rule"], match["optional"] is not None)


def _convert(value: Any, spec: str) -> Any:
    """Return `value` as a JAX array, concrete in a traced program if it was."""
    if value is None or isinstance(value, Array):
        return value
    if type(value) is int and _parse(spec).kind == "float":
        value = float(value)
    with jax.ensure_compile_time_eval():
        return _scalar(value) if isinstance(value, int | float) else jnp.asarray(value)


@compiled()
def _scalar(value: float) -> Array:
    """Return a Python scalar as a JAX array."""
    return jnp.asarray(value)


def _type(value: Any) -> tuple[tuple[int, ...], Any]:
    """Return the shape and dtype of an array, or `()` and the type of anything else."""
    if hasattr(value, "dtype"):
        return value.shape, value.dtype
    for scalar in (bool, int, float):
        if isinstance(value, scalar):
            return (), scalar
    return (), value.__class__


@functools.lru_cache(maxsize=4096)
def _fit(given: tuple[tuple[str, tuple[int, ...], Any], ...]) -> tuple[Sizes, int]:
    """Fit arguments, each a spec, a shape and a dtype or type, to their specs.

    Returns:
        The sizes of axes, and how many arguments fit before the first that does not.
    """
    sizes: Sizes = {}
    for count, (spec, shape, dtype) in enumerate(given):
        kind, shapes, _, optional = _parse(spec)
        if optional and dtype is type(None):
            continue
        shapes = shapes if _has_kind(shape, dtype, kind) else ()
        found = [_bind(_shape(shape, dtype, kind), axes, sizes) for axes in shapes]
        fitting = [bound for bound in found if bound is not None]
        if not fitting:
            return sizes, count
        sizes = fitting[0]
    return sizes, len(given)


def _has_kind(shape: tuple[int, ...], dtype: Any, kind: str) -> bool:
    """Return whether an array, or a scalar whose type is `dtype`, is of a kind."""
    array, scalars, _ = _KINDS[kind]
    if isinstance(dtype, type):
        return dtype in scalars
    if kind == "key" and dtype == jnp.uint32:
        return len(shape) > 0
    return jnp.issubdtype(dtype, array)


def _shape(shape: tuple[int, ...], dtype: Any, kind: str) -> tuple[int, ...]:
    """Return a shape without the last axis of a legacy key, which holds its words."""
    return shape[:-1] if kind == "key" and dtype == jnp.uint32 else shape


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
        name, extra = _split(axis)
        expected = (
            int(name) if name.isdecimal() else bound.setdefault(name, size - extra)
        )
        if size - extra != expected or size - extra < 1:
            return None
    return bound


def _split(axis: str) -> tuple[str, int]:
    """Split `"T+1"` into `("T", 1)`."""
    name, extra = (*re.split(r"(?=[+-])", axis), "0")[:2]
    return name, int(extra)


# --- Rules for values. ---


def _check_rule(name: str, value: Any, rule: str, sizes: Sizes) -> None:
    """Raise an error if a concrete value breaks a rule."""
    x = _concrete(value)
    if x is None:
        return
    if rule == "in {0, 1}":
        _fail_if((x != 0) & (x != 1), x, f"`{name}`", "must be 0 or 1")
    elif rule == "ascending":
        _fail_if(~(x[:-1] <= x[1:]), x[1:], f"`{name}`", "must not decrease")
    elif rule == "increasing":
        _fail_if(~(x[:-1] < x[1:]), x[1:], f"`{name}`", "must increase")
    else:
        first, last = rule.removeprefix("in ")[1:-1].split(", ")
        low, high = (cast(float, sizes.get(end, end)) for end in (first, last))
        below = x < float(low) if "[" in rule else x <= float(low)
        above = x > float(high) if "]" in rule else x >= float(high)
        interval = f"in {rule[3]}{low}, {high}{rule[-1]}"
        _fail_if(below | above | (x != x), x, f"`{name}`", f"must be {interval}")


def _check_order(
    is_right: Callable[[Any, Any], Any], rule: str, arguments: Mapping[str, Any]
) -> None:
    """Raise an error if a concrete argument and the next are in the wrong order."""
    named = {name: _concrete(value) for name, value in arguments.items()}
    for (name, low), (other, high) in itertools.pairwise(named.items()):
        if low is not None and high is not None:
            wrong = ~is_right(low, high)
            values = np.broadcast_to(high, np.shape(wrong))
            _fail_if(wrong, values, f"`{other}`", f"{rule} `{name}`")


def _concrete(value: Any) -> Any:
    """Return a concrete scalar or NumPy array, or None for a traced or large one."""
    if isinstance(value, int | float | None):
        return value
    if isinstance(value, Tracer):
        return None
    if isinstance(value, Array) and (value.ndim or not value.is_fully_addressable):
        return None  # Reading it would copy it from the device.
    return np.asarray(value)


def _fail_if(wrong: Any, values: Any, name: str, rule: str) -> None:
    """Raise an error that shows the first wrong value, if there is one."""
    if np.any(wrong) if getattr(wrong, "ndim", 0) else wrong:
        first = np.atleast_1d(values)[np.atleast_1d(wrong)][0]
        fail(f"{name} is {first}, {rule}")


# --- Texts of errors. ---


def _explain(name: str, arguments: Arguments, sizes: Sizes) -> str:
    """Describe the argument that does not fit, all others, and what may help."""
    table = [
        f"  {other} is {_describe(value)}, must be {spec}"
        for other, (value, spec) in arguments.items()
    ]
    problem = f"`{name}` {_problem(name, arguments, sizes)}."
    return "\n".join([f"{_caller()}: {problem}", *table, *_hint(arguments)])


def _problem(name: str, arguments: Arguments, sizes: Sizes) -> str:
    """Describe why one argument does not fit."""
    value, spec = arguments[name]
    kind, shapes, _, _ = _parse(spec)
    shape, dtype = _type(value)
    if not _has_kind(shape, dtype, kind):
        return f"is {_describe(value)}, must be {_KINDS[kind][2]}"
    shape = _shape(shape, dtype, kind)
    needed = " or ".join(dict.fromkeys(_needed(axes, sizes) for axes in shapes))
    empty = " and not empty" if 0 in shape else ""
    before = itertools.takewhile(lambda other: other != name, arguments)
    match = [
        f"`{other}`" for other in before if _names(spec) & _names(arguments[other][1])
    ]
    return f"has shape {shape}, must be {needed}{empty}" + (
        f" to match {', '.join(match)}" if match else ""
    )


def _names(spec: str) -> set[str]:
    """Return the names of the axes of a spec."""
    axes = itertools.chain.from_iterable(_parse(spec).shapes)
    return {name for name, _ in map(_split, axes) if not name.isdecimal()}


def _needed(axes: Shape, sizes: Sizes) -> str:
    """Write a shape as `(4, 3)` where all sizes are known, else as `[T, 3]`."""
    known: list[int] = []
    for axis in axes:
        name, extra = _split(axis)
        size = int(name) if name.isdecimal() else sizes.get(name)
        if size is None:
            return f"[{', '.join(axes)}]"
        known.extend(size if isinstance(size, tuple) else (size + extra,))
    return str(tuple(known))


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
    kind, shapes, _, _ = _parse(spec)
    if not hasattr(value, "dtype") or any("..." in axes for axes in shapes):
        return False
    return len(_shape(*_type(value), kind)) == max(map(len, shapes)) + 1


def _describe(value: Any) -> str:
    """Write an array as `float32[4, 5]`, and anything else as Python does."""
    if not hasattr(value, "dtype"):
        return reprlib.repr(value)
    return f"{value.dtype}[{', '.join(map(str, np.shape(value)))}]"


def _caller() -> str:
    """Return the name of the public function that asked for a check."""
    frame = sys._getframe()
    name = _name(frame)
    while frame.f_back is not None and not name:
        frame = frame.f_back
        if frame.f_globals.get("__name__") == "rlaxlib._core.signatures":
            return ""  # The decorator adds the name.
        name = _name(frame)
    return name


def _name(frame: FrameType) -> str:
    """Return the public name of a frame's function, or "" if it is private."""
    module = frame.f_globals.get("__name__", "")
    if frame.f_globals is globals() or module.partition(".")[0] == "jax":
        return ""
    outermost = frame.f_code.co_qualname.partition(".<locals>")[0]
    owner, _, name = outermost.removesuffix(".__call__").rpartition(".")
    if name.startswith("_"):
        return ""
    if not owner and name not in frame.f_globals.get("__all__", [name]):
        return ""
    if owner and "self" not in frame.f_locals:  # A function nested in a method.
        return ""
    if owner:  # `softmax()` makes a `_Softmax`, or a class that inherits from it.
        owner = type(frame.f_locals["self"]).__name__.lstrip("_")
        owner = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", owner).lower()
    return f"{owner}.{name}" if owner else name
