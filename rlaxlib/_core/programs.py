"""The program of a body: convert, mask, run, mask again, and round once at the end.

A body has float32 in place of half precision (see `dtypes`). Its result is cast back:
to the dtype that the arguments promote to; or, of a state and of what is `like` an
argument, to the dtypes that it has there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax import Array
from jax.core import Tracer
from jax.sharding import AxisType

from rlaxlib._core import dtypes, specs, streams
from rlaxlib._core.binding import Type
from rlaxlib._core.specs import Axes, Spec

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
        reals: Places of leaves to convert to the dtype of the other floats.
        floats: The dtypes of floats, if one of them is converted.
        masked: Places of leaves to set to 0 at ignored steps.
        structure: The arguments as a pytree.
    """

    half: tuple[int, ...]
    reals: tuple[int, ...]
    floats: tuple[Any, ...]
    masked: tuple[int, ...]
    structure: Any


class Program:
    """A function with its conversions, compiled.

    Attributes:
        function: The function as it was written.
        result: The annotation of the result.
        states: The argument that is of the class of a state, for each class.
        steps: The axes of `sample_mask`.
        wide: Whether a result of half precision stays in float32.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        result: Any,
        states: Mapping[Any, str],
        steps: Axes,
        wide: bool,
    ) -> None:
        self.function, self.result, self.states = function, result, states
        self.steps, self.wide = steps, wide

        def body(*args: Any) -> Any:
            return self._body(*args)

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
        floats = [jax.dtypes.canonicalize_dtype(x) for x in casts.floats]
        converted = casts.structure.unflatten(_convert(casts, leaves, floats, mask))
        result = self.function(**dict(static), **others, **converted)
        is_narrow = casts.half and floats and not self.wide
        dtype = jnp.result_type(*floats) if is_narrow else None

        def finish(hint: Any, value: Any) -> Any:
            spec = specs.read(hint)
            old = self.states.get(hint, spec and spec.like)
            if old and given[old] is not None:
                return jax.tree.map(dtypes.like, value, given[old])
            parts = [] if spec else specs.parts("", hint, value)
            if parts:
                return _rebuild(value, [finish(y, x) for _, y, x in parts])
            if mask is not None and spec and self._is_masked(value, spec, mask):
                value = streams.valid(value, mask)
            to = functools.partial(dtypes.cast, dtype=dtype)
            return value if dtype is None else jax.tree.map(to, value)

        return finish(self.result, result)

    def _is_masked(self, value: Any, spec: Spec, mask: Array) -> bool:
        """Return whether the axes of a result begin with those of the mask.

        Integers are indices, which have no 0 that means nothing.
        """
        begins = any(x[: len(self.steps)] == self.steps for x in spec.shapes)
        if not begins or value is None or spec.kind == "Int":
            return False
        return value.shape[: mask.ndim] == mask.shape


def _convert(
    casts: Casts, leaves: Sequence[Any], floats: list[Any], mask: Array | None
) -> list[Any]:
    """Return leaves as JAX arrays, with conversions and 0 at ignored steps."""
    full = [x for x in floats if x.itemsize >= 4]
    real = jnp.result_type(*(full or ([jnp.float32] if casts.half else [float])))

    def convert(place: int, x: Any) -> Array:
        x = x if isinstance(x, Array) else _array(x)
        if place in casts.half:
            x = x.astype(jnp.float32)
        if place in casts.reals:
            x = x.astype(real)
        if mask is None or place not in casts.masked:
            return x
        return streams.valid(x, streams.resized(mask, x))

    return [convert(*each) for each in enumerate(leaves)]


def _rebuild(value: Any, new: list[Any]) -> Any:
    """Return a record or tuple with other fields or entries."""
    if dataclasses.is_dataclass(value):
        names = [each.name for each in dataclasses.fields(value)]
        fields = dict(zip(names, new, strict=True))
        return dataclasses.replace(cast(Any, value), **fields)
    return type(value)(*new) if hasattr(value, "_fields") else type(value)(new)


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
