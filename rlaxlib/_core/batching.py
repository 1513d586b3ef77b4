"""Map functions of one example over a batch, by what their signatures say."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar, cast

import jax
import numpy as np

from rlaxlib._core import signatures, specs
from rlaxlib._core.errors import ArgumentError
from rlaxlib._core.signatures import Signature
from rlaxlib._core.specs import Axes, Spec

P = ParamSpec("P")
R = TypeVar("R")
Arguments = dict[str, Any]


def batched(
    function: Callable[P, R],
    *,
    time_major: bool = False,
    axis_name: str | None = None,
) -> Callable[P, R]:
    """Map a function of rlaxlib over a batch.

    Takes a function of one example, returns a function of a batch.

    .. math:: y_i = f(x_i, c)   for each example i

    Every argument that has one axis more than its signature says is mapped over that
    axis. All others, such as settings, are the same for all examples. It is `jax.vmap`
    with `in_axes` read from the shapes: for other functions, and where an argument fits
    both ways, use `jax.vmap`.

    An argument of shape `[] or [T]`, given as `[B]`, is mapped if all other arrays are.
    So is one that may have any number of axes.

    Args:
        function: A function of rlaxlib, of its states or of its distributions; or the
            `batched` of one, for two axes of a batch.
        time_major: Whether the time axis of streams comes before that of the batch:
            `[T, B]`, while one number a stream is `[B]`. The result has the same order.
        axis_name: Name of the batch axis, for arguments such as `axis_name`; or None.

    Returns:
        A function with the same arguments, of which those to map have one axis more.

    Raises:
        ArgumentError: If `function` is not one of rlaxlib's; or when called, if it is
            ambiguous whether to map an argument, or no argument has one axis more.

    Example:
        >>> r_t, v_t = jnp.array([[1.0, 1.0], [0.0, 2.0]]), jnp.zeros((2, 2))
        >>> print(rlaxlib.batched(rlaxlib.lambda_returns)(r_t, jnp.ones((2, 2)), v_t))
        [[2. 1.]
         [2. 2.]]

    References:
        The JAX authors, *Automatic vectorization*.
        https://docs.jax.dev/en/latest/automatic-vectorization.html
    """
    checked: Any = function
    if not hasattr(checked, "signature"):
        raise ArgumentError(
            "batched: `function` is not a function of rlaxlib, must be one: use "
            "jax.vmap for others."
        )
    is_method = inspect.ismethod(checked)
    owner = (checked.__self__,) if is_method else getattr(checked, "owner", ())
    one: Any = checked.__func__ if is_method else checked
    level = getattr(checked, "level", 0) + 1
    signature = signatures.read(checked)

    def inner(given: Arguments) -> Any:
        return one.of_arguments(given) if level > 1 else one(**given)

    def of_arguments(given: Arguments) -> Any:
        axes = _axes(signature, given, level, time_major)
        whole = {name: value for name, value in given.items() if name not in axes}
        mapped = {name: given[name] for name in axes}
        if not mapped:
            return inner(given)

        def example(mapped: Arguments) -> Any:
            return inner(whole | mapped)

        out_axes = _out_axes(signature.result) if time_major else 0
        over = cast(Any, jax.vmap)(example, (axes,), out_axes, axis_name=axis_name)
        return over(mapped)

    def call(*args: Any, **kwargs: Any) -> Any:
        return of_arguments(signature.bind((*owner, *args), kwargs))

    call = functools.wraps(checked)(call)
    attributes = {"owner": owner, "level": level, "of_arguments": of_arguments}
    vars(call).update(attributes, signature=lambda: signature)
    return call


def _axes(
    signature: Signature, given: Arguments, level: int, time_major: bool
) -> Arguments:
    """Return the axis to map over, or a tree of them, for each mapped argument."""
    values, wanted = signature.unpack(given)
    ways = {
        path: _ways(values[path], spec, level, time_major)
        for path, spec in wanted.items()
        if np.ndim(values[path]) or spec.kind == "Key"
    }
    mapped = {path: each[0] for path, each in ways.items() if None not in each}
    whole = [path for path, each in ways.items() if each == [None]]
    both = {path: each[0] for path, each in ways.items() if len(each) > 1}
    name = f"batched({signature.name(given)})"
    if mapped and both and not whole:
        mapped |= both
    elif mapped and both:
        raise ArgumentError(
            f"{name}: it is ambiguous whether to map `{next(iter(both))}`, since "
            f"`{whole[0]}` is not mapped: use jax.vmap with in_axes."
        )
    elif not mapped and not both:
        raise ArgumentError(
            f"{name}: no argument has one axis more than its signature says: call the "
            "function without batched."
        )
    states = {name for name in signature.nested if _is_in(name, mapped)}
    axes: dict[str, Any] = {n: mapped[n] for n in signature.arrays if n in mapped}
    axes |= {n: _tree(n, signature.nested[n], given[n], mapped) for n in states}
    if states:  # Data of any structure belong to the states.
        known = signature.specs.keys() | signature.nested.keys() | {"self"}
        free = given.keys() - known
        axes |= {name: 0 for name in free if signatures.is_data(given[name])}
    return axes


def _ways(value: Any, spec: Spec, level: int, time_major: bool) -> list[int | None]:
    """Return the axes that may be mapped over, and None if `value` may be whole."""
    shape = np.shape(value)
    ndim = len(specs.own_shape(shape, getattr(value, "dtype", None), spec.kind))
    mapped = [
        int(time_major and _is_stream(axes))
        for axes in spec.shapes
        if _has_rank(axes, ndim - level)
    ]
    is_whole = any(
        _has_rank(axes, ndim - further)
        for axes in spec.shapes
        for further in range(level)
    )
    return [*mapped[:1], *[None] * is_whole] or [None]


def _has_rank(axes: Axes, ndim: int) -> bool:
    """Return whether a shape may have a number of axes."""
    number = sum(not specs.is_many(axis) for axis in axes)
    return ndim == number if number == len(axes) else ndim >= number


def _is_stream(axes: Axes) -> bool:
    """Return whether the first axis of a shape is time."""
    return bool(axes) and specs.split(axes[0])[0] == "T"


def _is_in(name: str, paths: Iterable[str]) -> bool:
    """Return whether an argument contains one of some paths."""
    return any(path.startswith((f"{name}.", f"{name}[")) for path in paths)


def _tree(path: str, hint: Any, value: Any, mapped: Mapping[str, int | None]) -> Any:
    """Return the axes of a state: a tree like the state."""
    parts = specs.parts(path, hint, value)
    if path in mapped or not parts:
        spec = specs.read(hint)
        if spec and not spec.is_array:
            return value
        # What has no spec is mapped with the rest of the state.
        return mapped.get(path, None if spec else 0)
    found = [_tree(*each, mapped) for each in parts]
    if parts[0][0] == path:  # An argument that may be None.
        return found[0]
    return hint(*found) if specs.is_record(hint) else type(value)(found)


def _out_axes(hint: Any) -> Any:
    """Return the axis of the batch in a result: 1 in streams, else 0."""
    if spec := specs.read(hint):
        return int(_is_stream(spec.shapes[0]))
    if hasattr(hint, "_fields"):
        hints = typing.get_type_hints(hint, include_extras=True)
        return hint(*map(_out_axes, hints.values()))
    if typing.get_origin(hint) is tuple:
        return tuple(map(_out_axes, typing.get_args(hint)))
    return 0
