"""The program of a body: convert, mask, run, mask again, and round once at the end.

A body has JAX arrays, with float32 in place of half precision (see `dtypes`). Its
result is cast back: to the dtype that the arguments promote to; or, of a state and of
what is `like` an argument, to the dtypes that it has there. A state is a record among
the arguments and in the result. A function of the user gets pytrees as they are.

Where `sample_mask` is false, floats and integers among the arguments are 0, and so are
results but for integers: a product with NaN has a NaN gradient even if it is masked.
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
from rlaxlib._core.specs import Axes, Spec


class Roles(NamedTuple):
    """What a program does with each leaf of its arguments, and their structure.

    A leaf is `"data"` if it is a float whose dtype the result has; `"state"` or
    `"tree"` if it keeps its own dtype; else nothing.
    """

    kinds: tuple[str, ...]
    masked: tuple[bool, ...]  # Whether a leaf is set to 0 at ignored steps.
    structure: Any


@dataclasses.dataclass(frozen=True)
class Program:
    """A function with its conversions, compiled."""

    function: Callable[..., Any]
    result: Spec
    states: Mapping[Any, str]  # The argument that is a state, for each class.
    steps: Axes  # Of `sample_mask`.
    wide: bool  # Whether a result of half precision stays in float32.

    @functools.cached_property
    def compiled(self) -> Callable[..., Any]:
        """The body, compiled for its static arguments."""

        def body(*args: Any) -> Any:
            return self.body(*args)

        body.__name__ = self.function.__name__  # Profilers show it.
        return jax.jit(body, static_argnums=(0, 1), inline=True)

    def body(self, static: Any, roles: Roles, leaves: Any) -> Any:
        """Convert the arguments, run the function, and cast its result.

        A program is compiled for each set of static arguments and roles.
        """
        arrays = [x if isinstance(x, Array) else _array(x) for x in leaves]
        given = roles.structure.unflatten(arrays)
        mask = given.get("sample_mask")
        real, dtype = _dtypes(roles, arrays)
        converted = roles.structure.unflatten(_convert(roles, arrays, real, mask))
        result = self.function(**dict(static), **converted)

        def finish(spec: Spec, value: Any) -> Any:
            old = spec.like or self.states.get(spec.type)
            if old and given[old] is not None:
                return jax.tree.map(dtypes.like, value, given[old])
            if parts := specs.entries("", spec, value):
                return _rebuild(value, [finish(y, x) for _, y, x in parts])
            # Integers are indices, which have no 0 that means nothing.
            begins = any(specs.begins(x, self.steps) for x in spec.shapes)
            if mask is not None and begins and spec.kind != "Int":
                value = streams.valid(value, mask)
            if self.wide or dtype is None:
                return value
            return jax.tree.map(functools.partial(dtypes.cast, dtype=dtype), value)

        return finish(self.result, result)


def _dtypes(roles: Roles, arrays: list[Array]) -> tuple[Any, Any]:
    """Return the dtype of numbers that become floats, and that of a result to cast."""
    floats = [(x, y) for x, y in zip(arrays, roles.kinds, strict=True) if y]
    is_half = any(dtypes.is_half(x) for x, _ in floats)
    data = [x for x, y in floats if y == "data" and dtypes.is_float(x)]
    own = [x.dtype for x in data if not x.weak_type]
    full = [dtype for dtype in own if dtype.itemsize >= 4]
    real = jnp.result_type(*(full or ([jnp.float32] if is_half else [float])))
    return real, jnp.result_type(*own) if is_half and own else None


def _convert(
    roles: Roles, arrays: list[Array], real: Any, mask: Array | None
) -> list[Array]:
    """Return arrays with conversions, and 0 at ignored steps.

    Integers given as real numbers, and numbers in a state of defaults, become floats of
    the dtype of the data.
    """

    def convert(x: Array, kind: str, is_masked: bool) -> Array:
        if kind:
            is_default = kind == "state" and x.weak_type
            is_real = dtypes.is_float(x) and not is_default
            x = dtypes.raised(x) if is_real else x.astype(real)
        return streams.valid(x, mask) if is_masked else x

    return [*map(convert, arrays, roles.kinds, roles.masked)]


def _rebuild(value: Any, new: list[Any]) -> Any:
    """Return a record or tuple with other fields or entries."""
    if dataclasses.is_dataclass(value):
        names = [each.name for each in dataclasses.fields(value)]
        fields: Any = dict(zip(names, new, strict=True))
        return dataclasses.replace(cast(Any, value), **fields)
    return type(value)(*new) if hasattr(value, "_fields") else type(value)(new)


def mesh_of(leaves: Sequence[Any]) -> AbstractContextManager[Any]:
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


_array = jax.jit(jnp.asarray, inline=True)  # Of a value on the host.
