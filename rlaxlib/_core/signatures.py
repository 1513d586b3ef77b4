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
program it leaves no trace.

`specs` describes the annotations of arrays. `Static[int, "in [1, inf)"]` is a Python
value, a `Literal` one of its strings, and a `bool` a flag, which may be traced. Fields
of a named tuple, and entries of a tuple or sequence, have annotations of their own.

Shapes and dtypes are checked in traced programs too. Rules for values are checked where
reading the value costs nothing: on Python and NumPy values and on concrete scalars.
Traced values and arrays on a device pass.

An annotation is read at the first call of its function: importing runs none of this.
"""

from __future__ import annotations

import functools
import inspect
import re
import typing
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from rlaxlib._core import errors, rules, specs, streams
from rlaxlib._core.errors import ArgumentError
from rlaxlib._core.specs import Sizes, Spec

P = ParamSpec("P")
R = TypeVar("R")
Arguments = dict[str, Any]
Wanted = dict[str, Spec]


@overload
def checked(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def checked(
    *,
    wide: bool = ...,
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
        **options: `wide=True` leaves a result of half precision in float32.
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

    Attributes:
        half: Names of arguments to raise from half precision.
        dtype: Dtype to cast the result to, or None.
        masked: Names of arguments to set to 0 at ignored steps.
    """

    half: tuple[str, ...]
    dtype: Any
    masked: tuple[str, ...]


class Signature:
    """What a function needs of its arguments, and the program of its body.

    Attributes:
        function: The function as it was written.
        specs: The spec of each argument that has one.
        arrays: Those that are arrays.
        nested: The annotation of each argument that contains specs.
        result: The annotation of the result.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        wide: bool = False,
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
        self.specs = {name: spec for name, spec in found.items() if spec}
        self.arrays = {n: x for n, x in self.specs.items() if x.is_array}
        self.floats = {n for n, x in self.arrays.items() if x.kind == "Float"}
        self.others = {n: x for n, x in self.specs.items() if not x.is_array}
        others = hints.keys() - self.specs.keys()
        self.nested = {n: hints[n] for n in others if specs.is_nested(hints[n])}
        self.fit = functools.lru_cache(maxsize=1024)(self._fit)
        self.program = self._compile() if compiled else None

    def name(self, given: Arguments) -> str:
        """Return the public name: `softmax.probs` for that of a `_Softmax`."""
        name = self.function.__name__.removesuffix("__call__").strip("_")
        if "self" not in given:
            return name
        owner = type(given["self"]).__name__.lstrip("_")
        owner = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", owner).lower()
        return f"{owner}.{name}".rstrip(".")

    def call(self, args: tuple[Any, ...], kwargs: Arguments) -> Any:
        """Check the arguments, and run the body."""
        given = self._by_name(args, kwargs)
        try:
            casts = self.check(given)
            if self._is_complete(given, args, kwargs):
                return self._run(given, casts)
        except ArgumentError as error:
            raise errors.named(error, self.name(given)).with_traceback(None) from None
        raise errors.unbound(self.function, self.name(given), args, kwargs)

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
        types = tuple([(n, _type(values[n])) for n in wanted if n in values])
        fitted = self.fit(types, tuple(wanted.items()) if self.nested else None)
        if isinstance(fitted, str):
            raise errors.misfit(fitted, wanted, values)
        sizes, casts = fitted
        ignored = casts.masked if given.get("sample_mask") is not None else ()
        for name, spec in (wanted | self.others).items():
            for rule in spec.rules if name in values and name not in ignored else ():
                rules.check(name, values[name], rule, sizes, values)
        if self.rule is not None and given.keys() == self.names:
            self.rule(**given)
        return casts

    def unpack(self, given: Arguments) -> tuple[Arguments, Wanted]:
        """Return values and specs of arrays, with those inside of states by paths."""
        if not self.nested:
            return given, self.arrays
        values, wanted = dict(given), dict(self.arrays)
        for name in self.nested.keys() & given.keys():
            for path, spec, value in errors.leaves(self.nested, name, given):
                values[path], wanted[path] = value, spec
        return values, wanted

    def _fit(
        self, types: tuple[tuple[str, Any], ...], items: tuple[tuple[str, Spec], ...]
    ) -> tuple[Sizes, Casts] | str:
        """Fit shapes and dtypes, or return the name of one that does not fit."""
        wanted = dict(items) if items else self.arrays
        sizes: Sizes = {}
        floats: list[Any] = []
        half: list[str] = []
        masked: list[str] = []
        # Arguments of one shape say the sizes to those that may have several.
        for name, (shape, dtype, is_weak) in sorted(
            types, key=lambda each: len(wanted[each[0]].shapes)
        ):
            spec = wanted[name]
            if spec.optional and dtype is type(None):
                continue
            found = specs.fit(shape, dtype, spec, sizes)
            if found is None:
                return name
            axes, sizes = found
            if spec.kind == "Float" and not is_weak:
                floats.append(dtype)
                half += [name] if dtype.itemsize < 4 else []
            if spec.kind in ("Float", "Int") and "sample_mask" in wanted:
                steps = wanted["sample_mask"].shapes[0]
                masked += [name] if steps == axes[: len(steps)] else []
        dtype = jnp.result_type(*floats) if half and not self.wide else None
        return sizes, Casts(tuple(half), dtype, tuple(masked))

    def _run(self, given: Arguments, casts: Casts) -> Any:
        """Run the body, compiled if all that is not an array identifies a program."""
        if self.program is None:
            return self.function(**given)
        static: list[tuple[str, Any]] = []
        dynamic: Arguments = {}
        is_stable = True
        for name, value in given.items():
            spec = self.specs.get(name)
            is_array = name in self.arrays
            if is_array or isinstance(value, Array) or (not spec and is_data(value)):
                # An integer given as a float is one to JAX.
                is_integer = type(value) is int and name in self.floats
                dynamic[name] = float(value) if is_integer else value
            else:
                static.append((name, value))
                is_stable = is_stable and (spec is not None or _is_stable(value))
        run = self.program if is_stable else self._body
        return run(tuple(static), casts, dynamic)

    def _body(
        self, static: tuple[tuple[str, Any], ...], casts: Casts, dynamic: Arguments
    ) -> Any:
        """Convert the arguments, and run the body."""
        given = dict(static) | dynamic
        for name in self.arrays:
            if given[name] is not None and not isinstance(given[name], Array):
                given[name] = _array(given[name])
        for name in casts.half:
            if name in given:
                given[name] = given[name].astype(jnp.float32)
        if casts.masked and (mask := given["sample_mask"]) is not None:
            for name in casts.masked:
                given[name] = streams.valid(given[name], mask)
        result = self.function(**given)
        return result if casts.dtype is None else _narrow(result, casts.dtype)

    def _compile(self) -> Callable[..., Any]:
        def body(static: Any, casts: Casts, dynamic: Arguments) -> Any:
            return self._body(static, casts, dynamic)

        body.__name__ = self.function.__name__  # Profilers show it.
        return cast(Any, jax.jit)(body, static_argnums=(0, 1), inline=True)


def _type(value: Any) -> tuple[tuple[int, ...], Any, bool]:
    """Return shape, dtype and weakness of an array; `()` and the type of all else."""
    if hasattr(value, "dtype"):
        return value.shape, value.dtype, getattr(value, "weak_type", False)
    for scalar in (bool, int, float):
        if isinstance(value, scalar):
            return (), scalar, True
    return (), value.__class__, True


@functools.partial(cast(Any, jax.jit), inline=True)
def _array(value: Any) -> Array:
    """Return a value as a JAX array, by a program that transfer guards allow."""
    return jnp.asarray(value)


def is_data(value: Any) -> bool:
    """Return whether a value consists of arrays and scalars, at least one of them."""
    if isinstance(value, bool | int | str | None):
        return False
    leaves = jax.tree.leaves(value)
    data = (Array, np.ndarray, np.generic, bool, int, float, complex)
    return bool(leaves) and all(isinstance(leaf, data) for leaf in leaves)


def _is_stable(value: Any) -> bool:
    """Return whether a value is equal to itself in the next call, as a lambda is not.

    Then a program compiled for it can be used again.
    """
    if isinstance(value, tuple):
        return all(map(_is_stable, cast(Any, value)))
    owner = getattr(value, "__self__", None)
    if owner is not None and not inspect.ismodule(owner):  # A method.
        value = owner
    if callable(value) or owner is not None:
        name = getattr(value, "__qualname__", "<locals>")
        is_global = "<" not in name and owner is None
        return is_global or type(value).__hash__ is not object.__hash__
    return value is None or isinstance(value, str | bool | int | float | np.dtype)


def _narrow(result: Any, dtype: Any) -> Any:
    """Cast the floats of a result."""

    def cast_one(x: Any) -> Any:
        is_float = hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jnp.floating)
        return x.astype(dtype) if is_float else x

    return jax.tree.map(cast_one, result)
