"""Checked signatures: an argument's shape, dtype and range stand in its annotation.

A public function is written for JAX arrays, and takes whatever JAX takes for one::

    @checked
    def lambda_returns(
        r_t: Float[ArrayLike, "T"],
        v_t: Float[ArrayLike, "T"],
        lambda_: Float[ArrayLike, "[] or [T] in [0, 1]"] = 1.0,
        stop_target_gradients: bool = False,
        sample_mask: Bool[ArrayLike, "T"] | None = None,
    ) -> Float[Array, "T"]:

The body has JAX arrays, raised from half precision to float32, and 0 at ignored steps.
It is compiled, so that a call outside of `jax.jit` runs one program; within another
program it leaves no trace. A body that calls a function of the user is not compiled:
what that function reads may change from call to call. The annotations alone decide.

`specs` describes the annotations of arrays. `Static[int, "in [1, inf)"]` is a Python
value, a `Literal` one of its strings, and a `bool` a flag, which may be traced. An axis
that is named like a static integer has its size. Fields of a named tuple, and entries
of a tuple or sequence, have annotations of their own. A `Real` may be given as
integers, which become floats; a `Tree` is a pytree of arrays.

Shapes and dtypes are checked in traced programs too. Ranges are checked of values on
the host, which are Python's and NumPy's, at valid steps if there is a `sample_mask`.
Arrays on a device are never read.

An annotation is read at the first call of its function: importing runs none of this.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import typing
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.sharding import AxisType

from rlaxlib._core import errors, rules, specs, streams
from rlaxlib._core.batches import Function
from rlaxlib._core.errors import ArgumentError
from rlaxlib._core.specs import Sizes, Spec

FLOATS = ("Float", "Real")

P = ParamSpec("P")
R = TypeVar("R")
Arguments = dict[str, Any]
Wanted = dict[str, Spec]


@overload
def checked(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def checked(
    *,
    wide: bool | type = ...,
    compiled: bool = ...,
    rule: Callable[..., None] | None = ...,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def checked(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Check and convert the arguments of a function, as its signature says.

    Half precision is raised to float32, and the result cast to the dtype that the
    arguments promote to. Floats and integers are 0 where `sample_mask` is false, since
    a product with NaN has a NaN gradient even where the result is masked.

    Args:
        function: The function, whose body has JAX arrays.
        **options: `wide=True` leaves a result of half precision in float32. With a
            class of states as `wide`, only its states stay so, and the dtype of other
            results does not follow from them.
            `compiled=False` only checks: the body has the arguments as they were given.
            `rule` is a function for what no annotation can state. It is called with all
            arguments, by keyword, before the body, and raises errors by `checks.fail`.

    Returns:
        The function, which takes whatever JAX takes for an array.
    """
    if function is None:
        return functools.partial(checked, **options)
    signature = functools.cache(lambda: Signature(function, **options))

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return signature().call(args, kwargs)

    cast(Any, call).signature = signature
    return call


def read(function: Any) -> Signature:
    """Return the signature of a checked function or method."""
    return function.signature()


class Casts(NamedTuple):
    """Conversions that follow from shapes and dtypes.

    They name no dtype of a result, since what dtypes promote to is a setting of JAX.

    Attributes:
        half: Names of arguments to raise from half precision to float32.
        integers: Names of arguments to convert from integers to floats.
        floats: Dtypes of the arguments that the dtype of the result follows.
        masked: Names of arguments to set to 0 at ignored steps.
    """

    half: tuple[str, ...]
    integers: tuple[str, ...]
    floats: tuple[Any, ...]
    masked: tuple[str, ...]


class Signature:
    """What a function needs of its arguments, and the program of its body.

    Attributes:
        function: The function as it was written.
        specs: The spec of each argument that has one.
        arrays: Those that are arrays.
        nested: The annotation of each argument that contains specs.
        settings: Names of arguments for each value of which a program is compiled.
        functions: Names of arguments that are functions of the user, or have some.
        result: The annotation of the result.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        wide: bool | type = False,
        compiled: bool = True,
        rule: Callable[..., None] | None = None,
    ) -> None:
        hints = typing.get_type_hints(function, include_extras=True)
        parameters = inspect.signature(function).parameters.values()
        self.function, self.wide, self.rule = function, wide, rule
        self.positional = [x.name for x in parameters if x.kind != x.KEYWORD_ONLY]
        self.defaults = {
            x.name: x.default for x in parameters if x.default is not x.empty
        }
        self.names = {x.name for x in parameters}
        self.result = hints.pop("return", None)
        found = {name: specs.read(hint) for name, hint in hints.items()}
        self.specs = {n: x for n, x in found.items() if x and x.kind != "Tree"}
        self.arrays = {n: x for n, x in self.specs.items() if x.is_array}
        self.others = {
            n: x for n, x in self.specs.items() if x.options or not x.is_array
        }
        others = {n: hints[n] for n, spec in found.items() if not spec}
        self.nested = {n: x for n, x in others.items() if specs.is_nested(x)}
        self.callables = [n for n, x in others.items() if specs.is_callable(x)]
        self.functions = [n for n, x in others.items() if specs.is_function(x)]
        static = [n for n, x in self.others.items() if not x.is_array]
        self.settings = static + [n for n, x in others.items() if specs.is_setting(x)]
        self.options = [n for n, x in self.others.items() if x.is_array or x.is_flag]
        trees = {name for name, spec in found.items() if spec and spec.kind == "Tree"}
        self.loose = trees | {n for n, x in self.nested.items() if specs.is_loose(x)}
        axes = {
            x for spec in self.arrays.values() for each in spec.shapes for x in each
        }
        self.sizes = [n for n, x in self.others.items() if x.type is int and n in axes]
        self.fit = functools.lru_cache(maxsize=1024)(self._fit)
        self.compiled = compiled
        self.program = self._compile()

    def name(self, given: Arguments) -> str:
        """Return the public name, such as `vtrace` or `Softmax.probs`."""
        name = self.function.__name__.removesuffix("__call__").strip("_")
        owner = f"{type(given['self']).__name__}." if "self" in given else ""
        return f"{owner}{name}".rstrip(".")

    def call(self, args: tuple[Any, ...], kwargs: Arguments) -> Any:
        """Check the arguments, and run the body."""
        given = self._by_name(args, kwargs)
        try:
            casts = self.check(given)
        except ArgumentError as error:
            if kwargs.keys() <= self.names:  # An unknown keyword explains more.
                named = errors.named(error, self.name(given))
                raise named.with_traceback(None) from None
            raise errors.unbound(
                self.function, self.name(given), args, kwargs
            ) from None
        if not self._is_complete(given, args, kwargs):
            raise errors.unbound(self.function, self.name(given), args, kwargs)
        try:
            return self._run(given, casts)
        except ArgumentError as error:
            errors.named(error, self.name(given))
            if self.functions or not self.compiled:
                raise  # The traceback may show a function of the user.
            raise ArgumentError(str(error)) from None

    def bind(self, args: tuple[Any, ...], kwargs: Arguments) -> Arguments:
        """Return all arguments by name, with defaults."""
        given = self._by_name(args, kwargs)
        if self._is_complete(given, args, kwargs):
            return given
        raise errors.unbound(self.function, self.name(given), args, kwargs)

    def _by_name(self, args: tuple[Any, ...], kwargs: Arguments) -> Arguments:
        return self.defaults | dict(zip(self.positional, args, strict=False)) | kwargs

    def _is_complete(
        self, given: Arguments, args: tuple[Any, ...], kwargs: Arguments
    ) -> bool:
        """Return whether each argument is given once, and no other."""
        is_once = kwargs.keys().isdisjoint(self.positional[: len(args)])
        is_known = len(args) <= len(self.positional) and given.keys() == self.names
        return is_once and is_known

    def check(self, given: Arguments) -> Casts:
        """Check arguments.

        Args:
            given: The arguments, by name. One that is missing is not checked.

        Returns:
            The conversions that the body needs.

        Raises:
            ArgumentError: If a dtype, a shape or a value does not fit.
        """
        values, wanted = self.unpack(given)
        for name, spec in self.others.items():
            if name in given:
                rules.check_static(name, given[name], spec, self.specs)
        types = tuple([(n, specs.type_of(values[n])) for n in wanted if n in values])
        known = tuple([(n, given[n]) for n in self.sizes if n in given])
        fitted = self.fit(types, known, tuple(wanted.items()) if self.nested else None)
        if isinstance(fitted, str):
            raise errors.misfit(fitted, wanted, values, self._described(given))
        for name in self.loose & given.keys():
            errors.check_leaves(name, given[name])
        sizes, casts = fitted
        if (mask := given.get("sample_mask")) is not None:
            valid = {n: rules.at_valid_steps(values[n], mask) for n in casts.masked}
            values = values | valid
        for name, spec in (wanted | self.others).items():
            for rule in spec.rules if name in values else ():
                rules.check(name, values[name], rule, sizes, values)
        for name in filter(given.__contains__, self.callables):
            if given[name] is not None and not callable(given[name]):
                raise errors.problem(
                    f"`{name}` is {errors.describe(given[name])}, must be a function"
                )
        if self.rule is not None and given.keys() == self.names:
            self.rule(**given)
        return casts

    def _described(self, given: Arguments) -> Function:
        """Return what errors say about the function."""
        return Function(self.name(given), self.positional, self.defaults, self.result)

    def unpack(self, given: Arguments) -> tuple[Arguments, Wanted]:
        """Return values and specs of arrays, with those inside of states by paths."""
        if not self.nested:
            return given, self.arrays
        values, wanted = dict(given), dict(self.arrays)
        for name in filter(given.__contains__, self.nested):
            for path, spec, value in errors.leaves(
                self.nested, name, given, self.positional
            ):
                if spec.is_array:
                    values[path], wanted[path] = value, spec
                else:
                    rules.check_static(path, value, spec, self.specs)
        return values, wanted

    def _fit(
        self,
        types: tuple[tuple[str, Any], ...],
        known: tuple[tuple[str, int], ...],
        items: tuple[tuple[str, Spec], ...],
    ) -> tuple[Sizes, Casts] | str:
        """Fit shapes and dtypes, or return the name of one that does not fit."""
        wanted = dict(items) if items else self.arrays
        sizes: Sizes = dict(known)
        floats: list[Any] = []
        half: list[str] = []
        integers: list[str] = []
        masked: list[str] = []
        # Arguments of one shape say the sizes to those that may have several.
        for name, (shape, dtype, is_weak) in sorted(
            types, key=lambda each: len(wanted[each[0]].shapes)
        ):
            spec = wanted[name]
            is_none = spec.optional and dtype is type(None)
            if is_none or (spec.options and dtype is str):
                continue
            found = specs.fit(shape, dtype, spec, sizes)
            if found is None:
                return name
            axes, sizes = found
            if spec.kind == "Real" and jnp.issubdtype(dtype, jnp.integer):
                integers += [] if isinstance(dtype, type) else [name]
            elif spec.kind in FLOATS and not is_weak:
                is_wide = self.nested.get(name.partition(".")[0]) is self.wide
                floats += [] if is_wide else [dtype]
                half += [name] if cast(Any, dtype).itemsize < 4 else []
            if spec.kind in (*FLOATS, "Int") and "sample_mask" in wanted:
                steps = wanted["sample_mask"].shapes[0]
                masked += [name] if steps == axes[: len(steps)] else []
        floats = floats if half or integers else []
        return sizes, Casts(*map(tuple, (half, integers, floats, masked)))

    def _run(self, given: Arguments, casts: Casts) -> Any:
        """Run the body, compiled unless it calls functions of the user."""
        if not self.compiled:
            return self.function(**given)
        functions = {n: given[n] for n in self.functions}
        static = functions | {n: _hashable(given[n]) for n in self.settings}
        for name in self.options:  # A flag may be traced, and an array be a string.
            static[name] = given[name]
            if not isinstance(given[name], bool | np.bool_ | str):
                del static[name]
        dynamic = {n: x for n, x in given.items() if n not in static}
        for name, spec in self.arrays.items():
            if name in dynamic:
                dynamic[name] = _as_float(name, spec, given[name])
        for name, hint in self.nested.items():
            dynamic[name] = specs.rebuild(name, hint, given[name], _as_float)
        is_ours = all(
            x is self.defaults.get(n) or getattr(x, "is_ours", False)
            for n, x in functions.items()
        )
        run = self.program if is_ours else self._body
        with _mesh_of(dynamic):
            return run(tuple(static.items()), casts, dynamic)

    def _body(
        self, static: tuple[tuple[str, Any], ...], casts: Casts, dynamic: Arguments
    ) -> Any:
        """Convert the arguments, and run the body."""
        given = dict(static) | dynamic
        mask = given.get("sample_mask")
        floats = [jax.dtypes.canonicalize_dtype(x) for x in casts.floats]
        full = [x for x in floats if x.itemsize >= 4]
        half = [jnp.float32] if casts.half else []
        to = dict.fromkeys(casts.half, jnp.float32) | dict.fromkeys(
            casts.integers, jnp.result_type(*(full or half or [float]))
        )

        def convert(name: str, spec: Spec, x: Any) -> Any:
            if isinstance(x, str | None) or not spec.is_array:
                return x
            x = x if isinstance(x, Array) else _array(x)
            x = x.astype(to[name]) if name in to else x
            is_masked = mask is not None and name in casts.masked
            return streams.valid(x, _array(mask)) if is_masked else x

        for name, spec in self.arrays.items():
            given[name] = convert(name, spec, given[name])
        for name, hint in self.nested.items():
            given[name] = specs.rebuild(name, hint, given[name], convert)
        result = self.function(**given)
        if not (casts.half and casts.floats) or self.wide is True:
            return result
        return _narrow(result, jnp.result_type(*floats), self.wide)

    def _compile(self) -> Callable[..., Any]:
        def body(static: Any, casts: Casts, dynamic: Arguments) -> Any:
            return self._body(static, casts, dynamic)

        body.__name__ = self.function.__name__  # Profilers show it.
        return cast(Any, jax.jit)(body, static_argnums=(0, 1), inline=True)


def _mesh_of(dynamic: Arguments) -> AbstractContextManager[Any]:
    """Set the mesh of explicit axes over which traced arguments are shared.

    Without it, JAX cannot batch a loop or a nested program whose first values are
    constants. JAX has this from 0.7.2 on.
    """
    for x in jax.tree.leaves(dynamic):
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


def _as_float(_: str, spec: Spec, value: Any) -> Any:
    """Return an integer given as a float, which is one to JAX, as a float."""
    return float(value) if type(value) is int and spec.kind in FLOATS else value


def _hashable(value: Any) -> Any:
    """Return a setting such as a list of axes as one that identifies a program."""
    return tuple(cast(Any, value)) if isinstance(value, list) else value


def _narrow(result: Any, dtype: Any, wide: Any) -> Any:
    """Cast the floats of a result, except states of the class `wide`."""

    def cast_one(x: Any) -> Any:
        is_float = hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jnp.floating)
        return x.astype(dtype) if is_float else x

    return jax.tree.map(cast_one, result, is_leaf=lambda x: type(x) is wide)
