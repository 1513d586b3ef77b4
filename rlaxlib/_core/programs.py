"""The program of a body: convert, mask, run, mask again, and round once at the end.

Half precision is for storage and matrix products. A sum of rewards, a softmax or the
difference of two large values loses most of its eight or eleven bits at each step: a
thousand ones, discounted by 0.99, add up to 64 in bfloat16. So a body has float32, and
its result is cast back: to the dtype that the arguments promote to; or, of a state and
of what is `like` an argument, to the dtypes that it has there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax import Array
from jax.core import Tracer
from jax.sharding import AxisType

from rlaxlib._core import binding, specs, streams
from rlaxlib._core.binding import Type
from rlaxlib._core.specs import Axes

Arguments = dict[str, Any]

FLOATS = ("Float", "Real")


@dataclasses.dataclass(frozen=True, slots=True)
class Leaf:
    """The place of an array among the leaves of all arguments, and its type."""

    place: int
    type: Type


class Casts(NamedTuple):
    """Conversions of the leaves of arguments, which follow from shapes and dtypes.

    They name no dtype of a result, since what dtypes promote to is a setting of JAX.

    Attributes:
        half: Places of leaves to raise from half precision to float32.
        integers: Places of leaves to convert from integers to floats.
        floats: Dtypes of the leaves that the dtype of the result follows.
        masked: Places of leaves to set to 0 at ignored steps.
        structure: The arguments as a pytree.
        steps: The axes of `sample_mask`.
    """

    half: tuple[int, ...]
    integers: tuple[int, ...]
    floats: tuple[Any, ...]
    masked: tuple[int, ...]
    structure: Any = None
    steps: Axes = ()


def casts(
    fits: Mapping[str, tuple[specs.Spec, Leaf]],
    masked: Sequence[str],
    states: Collection[str],
    trees: Collection[str],
) -> Casts:
    """Return the conversions of arrays, by their paths.

    Numbers in a state of defaults, and integers given as real numbers, become floats of
    the dtype of the data. States and pytrees keep their dtypes, and others do not
    follow them.
    """
    floats = {n: x for n, (spec, x) in fits.items() if spec.kind in FLOATS}
    half: list[int] = []
    integers: list[int] = []
    dtypes: list[Any] = []
    for path, leaf in floats.items():
        (_, dtype, is_weak), root = leaf.type, binding.root(path)
        is_float = isinstance(dtype, type) or jnp.issubdtype(dtype, jnp.floating)
        if is_float and not is_weak:
            half += [leaf.place] if dtype.itemsize < 4 else []
            dtypes += [] if root in states or root in trees else [dtype]
        elif root in states or not is_float:  # A default, or an array of integers.
            integers.append(leaf.place)
    dtypes = dtypes if half or integers else []
    at_mask = tuple(fits[n][1].place for n in masked)
    return Casts(tuple(half), tuple(integers), tuple(dtypes), at_mask)


class Program:
    """A function with its conversions, compiled.

    Attributes:
        function: The function as it was written.
        result: The annotation of the result.
        states: The argument that is of the class of a state, for each class.
        wide: Whether a result of half precision stays in float32.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        result: Any,
        states: Mapping[Any, str],
        wide: bool,
    ) -> None:
        self.function, self.result, self.wide = function, result, wide
        self.states = states

        def body(static: Any, casts: Casts, leaves: Any, others: Arguments) -> Any:
            return self._body(static, casts, leaves, others)

        body.__name__ = function.__name__  # Profilers show it.
        jit = cast(Any, jax.jit)
        self.compiled = jit(body, static_argnums=(0, 1), inline=True)

    def run(
        self,
        static: tuple[tuple[str, Any], ...],
        casts: Casts,
        leaves: list[Any],
        others: Arguments,
        is_compiled: bool,
    ) -> Any:
        """Convert the arguments, run the function, and cast its result.

        Args:
            static: Names and values of arguments for which a program is compiled.
            casts: Conversions of leaves.
            leaves: Leaves of arguments that are or contain arrays.
            others: Arguments to take as they are.
            is_compiled: Whether to compile the function.
        """
        run = self.compiled if is_compiled else self._body
        with _mesh_of(leaves + jax.tree.leaves(others)):
            return run(static, casts, leaves, others)

    def _body(self, static: Any, casts: Casts, leaves: Any, others: Arguments) -> Any:
        given = casts.structure.unflatten(leaves)
        mask = given.get("sample_mask")
        mask = None if mask is None else _array(mask)
        converted = casts.structure.unflatten(_convert(casts, leaves, mask))
        result = self.function(**dict(static), **others, **converted)
        return self._finish(self.result, result, given, casts, mask)

    def _finish(
        self, hint: Any, value: Any, given: Arguments, casts: Casts, mask: Array | None
    ) -> Any:
        """Return a result, 0 at ignored steps, and in the dtypes of its annotation."""
        spec = specs.read(hint)
        old = self.states.get(hint, spec and spec.like)
        if old and given[old] is not None:
            return jax.tree.map(like, value, given[old])
        parts = [] if spec else specs.parts("", hint, value)
        if not parts:
            if mask is not None and spec and _is_masked(value, spec, casts.steps, mask):
                value = streams.valid(value, mask)
            if self.wide or not (casts.half and casts.floats):
                return value
            dtype = jnp.result_type(*map(_canonical, casts.floats))
            return jax.tree.map(functools.partial(_narrow, dtype=dtype), value)
        new = [self._finish(y, x, given, casts, mask) for _, y, x in parts]
        return new[0] if parts[0][2] is value else _rebuild(value, new)  # Of a union.


def _convert(casts: Casts, leaves: Sequence[Any], mask: Array | None) -> list[Any]:
    """Return leaves as JAX arrays, with conversions and 0 at ignored steps."""
    full = [x for x in map(_canonical, casts.floats) if x.itemsize >= 4]
    half = [jnp.float32] if casts.half else []
    real = jnp.result_type(*(full or half or [float])) if casts.integers else None
    to = dict.fromkeys(casts.half, jnp.float32) | dict.fromkeys(casts.integers, real)

    def convert(place: int, x: Any) -> Array:
        x = x if isinstance(x, Array) else _array(x)
        x = x.astype(to[place]) if place in to else x
        if mask is None or place not in casts.masked:
            return x
        return streams.valid(x, streams.resized(mask, x))

    return [convert(*each) for each in enumerate(leaves)]


def _is_masked(value: Any, spec: specs.Spec, steps: Axes, mask: Array) -> bool:
    """Return whether the axes of a result begin with those of the mask.

    Integers are indices, which have no 0 that means nothing.
    """
    begins = any(axes[: len(steps)] == steps for axes in spec.shapes)
    is_long = begins and value is not None and value.shape[: mask.ndim] == mask.shape
    return is_long and spec.kind != "Int"


def _rebuild(value: Any, new: list[Any]) -> Any:
    """Return a record or tuple with other fields or entries."""
    if dataclasses.is_dataclass(value):
        names = [each.name for each in dataclasses.fields(value)]
        return dataclasses.replace(
            cast(Any, value), **dict(zip(names, new, strict=True))
        )
    return type(value)(*new) if hasattr(value, "_fields") else type(value)(new)


def _canonical(dtype: Any) -> Any:
    return jax.dtypes.canonicalize_dtype(dtype)


def _is_float(x: Any) -> bool:
    return hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jnp.floating)


def _narrow(x: Any, dtype: Any) -> Any:
    return x.astype(dtype) if _is_float(x) else x


def like(new: Any, old: Any) -> Any:
    """Return a float in the dtype of another, unless that is a Python number."""
    is_weak = isinstance(old, bool | int | float) or getattr(old, "weak_type", False)
    dtype = jnp.result_type(old)  # As in JAX: without double precision.
    is_float = _is_float(new) and jnp.issubdtype(dtype, jnp.floating)
    return new.astype(dtype) if is_float and not is_weak else new


def _mesh_of(leaves: Sequence[Any]) -> AbstractContextManager[Any]:
    """Set the mesh of explicit axes over which traced arguments are shared.

    Without it, JAX cannot batch a loop or a nested program whose first values are
    constants. JAX has this from 0.7.2 on.
    """
    for x in leaves:
        if isinstance(x, Tracer):
            mesh = cast(Any, x).aval.sharding.mesh
            if AxisType.Explicit in mesh.axis_types:
                use = getattr(jax.sharding, "use_abstract_mesh", None)
                return use(mesh) if use else contextlib.nullcontext()
    return contextlib.nullcontext()


@functools.partial(cast(Any, jax.jit), inline=True)
def _array(value: Any) -> Array:
    """Return a value as a JAX array, by a program that transfer guards allow."""
    return jnp.asarray(value)
