"""Checked signatures: an argument's shape, dtype and range stand in its annotation.

A public function is written for JAX arrays, and takes all that JAX converts to one::

    @checked
    def lambda_returns(
        r_t: Float[ArrayLike, "T"],
        v_t: Float[ArrayLike, "T"],
        lambda_: Float[ArrayLike, "[] or [T] in [0, 1]"] = 1.0,
        stop_target_gradients: bool = False,
        sample_mask: Bool[ArrayLike, "T"] | None = None,
    ) -> Float[Array, "T"]:

The annotations alone decide what is checked, converted and compiled. The body is one
compiled program, which leaves no trace in another one (see `programs`). A body that
calls a function of the user is not compiled: what that function reads may change from
call to call.

`specs` describes annotations. Shapes and dtypes are checked in traced programs too;
ranges, of values on the host, which are Python's and NumPy's, at valid steps if there
is a `sample_mask`. Arrays on a device are never read.

An annotation is read at the first call of its function: importing runs none of this.
"""

from __future__ import annotations

import copy
import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast, overload

import jax

from rlaxlib._core import binding, checks, errors, programs, rules, specs
from rlaxlib._core.batches import Call
from rlaxlib._core.binding import Bound, Type
from rlaxlib._core.errors import ArgumentError
from rlaxlib._core.functions import is_ours
from rlaxlib._core.programs import Roles
from rlaxlib._core.specs import Axes, Sizes, Spec

P = ParamSpec("P")
R = TypeVar("R")
Arguments = dict[str, Any]
Options = tuple[tuple[str, Any], ...]


@overload
def checked(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def checked(
    *, wide: bool = ..., compiled: bool = ...
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def checked(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Check and convert the arguments of a function, as its annotations require.

    With `wide=True` a result of half precision stays in float32. With `compiled=False`
    the body has the arguments as they were given, as that of a factory of objects has.
    """
    if function is None:
        return functools.partial(checked, **options)
    signature = functools.cache(lambda: Plan(function, **options))

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return signature().call(args, kwargs)

    cast(Any, call).signature = signature
    return call


def read(function: Any) -> Plan:
    """Return the plan of a checked function or method."""
    return function.signature()


class Fitted(NamedTuple):
    """What follows from the types of arrays and the values of static arguments."""

    bound: Bound
    roles: Roles
    ruled: list[tuple[str, int, Spec]]  # Path, place, spec of values on the host.


class Plan:
    """What a function needs of its arguments, and the program of its body.

    Attributes:
        function: The function as it was written.
        specs: The spec of each array, flag, option and Python value.
        arrays: Those that are arrays.
        nested: The spec of each argument that contains arrays, such as a state.
        checked: Both, in the order in which they are fitted.
        options: Names of options, flags and Python values. A flag may be traced.
        bare: The specs of settings and functions.
        functions: Names of arguments that are functions of the user, or have some.
        result: The spec of the result.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        wide: bool = False,
        compiled: bool = True,
    ) -> None:
        hints = typing.get_type_hints(function, include_extras=True)
        parameters = inspect.signature(function).parameters.values()
        self.function = function
        self.positional = [x.name for x in parameters if x.kind != x.KEYWORD_ONLY]
        self.names = {x.name for x in parameters}
        self.defaults = {
            x.name: x.default for x in parameters if x.default is not x.empty
        }
        self.result = specs.read(hints.pop("return", None))
        self.is_factory = self.result.kind == "Object"
        self.compiled = compiled and not self.is_factory
        found = {n: specs.read(x) for n, x in hints.items()}
        self.bare = {n: x for n, x in found.items() if x.is_bare}
        self.nested = {n: x for n, x in found.items() if x.parts or x.is_tree}
        self.specs = {
            n: x for n, x in found.items() if n not in self.bare | self.nested
        }
        self.arrays = {n: x for n, x in self.specs.items() if x.is_array}
        # An error blames a state for a size in which it differs from the data.
        self.checked = self.specs | self.nested
        self.options = [n for n in self.specs if n not in self.arrays]
        settings = "Setting", "DType"
        self.functions = [n for n, x in self.bare.items() if x.kind not in settings]
        mask = self.arrays.get("sample_mask")
        self.steps = mask.shapes[0] if mask else ()
        returned = [x.type for x in specs.within(self.result) if x.kind == "Record"]
        self.states = {x.type: n for n, x in self.nested.items() if x.type in returned}
        args = function, self.result, self.states, self.steps, wide
        self.program = programs.Program(*args)
        self.fit = functools.lru_cache(maxsize=1024)(self._fit)

    def name(self, given: Arguments) -> str:
        """Return the public name, such as `vtrace` or `Softmax.probs`."""
        name = self.function.__name__.removesuffix("__call__").strip("_")
        owner = f"{type(given['self']).__name__}." if "self" in given else ""
        return f"{owner}{name}".rstrip(".")

    def call(self, args: tuple[Any, ...], kwargs: Arguments) -> Any:
        """Check the arguments, and run the body."""
        given = self.bind(args, kwargs)
        is_once = kwargs.keys().isdisjoint(self.positional[: len(args)])
        is_known = len(args) <= len(self.positional) and kwargs.keys() <= self.names
        if not (is_once and is_known):
            raise errors.unbound(self.function, self.name(given), args, kwargs)
        try:
            static, leaves, fitted = self.check(given)
        except ArgumentError as error:
            named = errors.named(error, self.name(given))
            raise named.with_traceback(None) from None
        if len(given) < len(self.names):  # A wrong argument explains more.
            raise errors.unbound(self.function, self.name(given), args, kwargs)
        try:
            return self._run(given, static, leaves, fitted.roles)
        except ArgumentError as error:
            errors.named(error, self.name(given))
            if self.functions or not self.compiled:
                raise  # The traceback may show a function of the user.
            raise ArgumentError(str(error)) from None

    def bind(self, args: tuple[Any, ...], kwargs: Arguments) -> Arguments:
        """Return arguments by name, with defaults."""
        return self.defaults | dict(zip(self.positional, args, strict=False)) | kwargs

    def check(self, given: Arguments) -> tuple[Options, list[Any], Fitted]:
        """Check all arguments that are given, by their names.

        Return the static ones, the leaves of all others but settings and functions, and
        what follows from both.
        """
        known = {
            n: given[n]
            for n in filter(given.__contains__, self.options)
            if self.specs[n].is_static or isinstance(given[n], bool)
        }
        for name, value in known.items():
            rules.check_static(name, value, self.specs[name])
        static = tuple([(n, _hashable(x)) for n, x in known.items()])
        # An object with traced settings cannot be part of a key: it has no equal.
        among = self.checked if not self.compiled else given.keys() - self.bare.keys()
        traced = {n: x for n, x in given.items() if n in among and n not in known}
        leaves, structure = jax.tree.flatten(traced)
        types = tuple(map(binding.type_of, leaves))
        try:
            fitted = self.fit(structure, types, static)
        except specs.TypeMismatchError as error:
            path, spec = error.args
            call = self._described(given, {}, {})
            raise errors.wrong_type(path, spec, call) from None
        if fitted.bound.misfit:
            call = self._described(given, *self._places(given))
            raise errors.misfit(call, fitted.bound)
        self._check_values(given, leaves, fitted)
        leaves = [
            float(x) if type(x) is int and kind else x
            for x, kind in zip(leaves, fitted.roles.kinds, strict=True)
        ]
        return static, leaves, fitted

    def _described(
        self, given: Arguments, wanted: Mapping[str, Spec], found: Arguments
    ) -> Call:
        """Describe a call for errors, with the arrays in its arguments."""
        about = self.name(given), self.positional, self.defaults, self.result
        states = {*self.states.values()}
        return Call(given | found, wanted, *about, states)

    def _check_values(
        self, given: Arguments, leaves: list[Any], fitted: Fitted
    ) -> None:
        """Check the rules of values on the host, and the types of bare ones."""
        sizes, mask = fitted.bound.sizes, given.get("sample_mask")
        for path, place, spec in fitted.ruled:
            own = mask if fitted.roles.masked[place] else None
            rules.check(path, leaves[place], spec, sizes, given, own)
        for name in filter(given.__contains__, self.bare):
            rules.check_bare(name, given[name], self.bare[name], self.result)

    def _fit(self, structure: Any, types: tuple[Type, ...], static: Options) -> Fitted:
        """Fit arguments to their annotations."""
        wanted, places = self._places(structure.unflatten(range(len(types))))
        found = {
            path: types[x] if type(x) is int else binding.type_of(x)
            for path, x in places.items()
        }
        sizes: Sizes = {n: x for n, x in static if type(x) is int}
        bound = binding.bind(wanted, found, sizes)
        for name, value in static if not bound.misfit else ():
            rules.check(name, value, self.specs[name], bound.sizes, dict(static))
        kinds, masked = [""] * len(types), [False] * len(types)
        ruled: list[tuple[str, int, Spec]] = []
        for path, axes in bound.axes.items():
            spec, place = wanted[path], int(places[path])
            kinds[place] = self._kind(path, spec)
            masked[place] = self._is_masked(spec, axes)
            _, dtype, is_host = types[place]
            if is_host and rules.of(spec, dtype):
                ruled.append((path, place, spec))
        return Fitted(bound, Roles(tuple(kinds), tuple(masked), structure), ruled)

    def _kind(self, path: str, spec: Spec) -> str:
        """Return the kind of a leaf. Functions of the user get pytrees as they are."""
        if not spec.is_float:
            return ""
        if specs.argument_of(path) in self.states.values():
            return "state"
        return "data" if not spec.is_tree else "" if self.functions else "tree"

    def _is_masked(self, spec: Spec, axes: Axes) -> bool:
        """Return whether axes begin with those of the mask, or T+1 or T-1 steps do."""
        is_number = spec.is_float or spec.kind == "Int"
        return is_number and specs.begins(axes, self.steps)

    def _places(self, given: Arguments) -> tuple[dict[str, Spec], Arguments]:
        """Return specs and values of arrays, and check the structures of pytrees."""
        wanted: dict[str, Spec] = {}
        found: Arguments = {}
        trees: dict[str, tuple[Spec, Any]] = {}
        for name in filter(given.__contains__, self.checked):
            for path, spec, value in specs.nodes(name, self.checked[name], given[name]):
                if spec.is_static:
                    rules.check_static(path, value, spec)
                elif spec.is_tree:
                    trees[path] = spec, value
                    for each, own, leaf in specs.leaves(path, spec, value):
                        wanted[each], found[each] = own, leaf
                else:
                    wanted[path], found[path] = spec, value
        for path, (spec, value) in trees.items():
            root = specs.root_of(path, spec)
            if root in trees and value is not None:
                checks.same_structure(**{root: trees[root][1], path: value})
        return wanted, found

    def _run(
        self, given: Arguments, static: Options, leaves: list[Any], roles: Roles
    ) -> Any:
        """Run the body, compiled unless it calls functions of the user."""
        if not self.compiled:
            passed = roles.structure.unflatten(leaves)  # Floats in place of integers.
            given = {n: passed[n] if n in self.arrays else x for n, x in given.items()}
            if self.is_factory:  # An array may change once it is a setting.
                given = {n: copy.copy(_hashable(x)) for n, x in given.items()}
            return self.function(**given)
        has_ours = all(
            given[n] is self.defaults.get(n) or is_ours(given[n])
            for n in self.functions
        )
        bare = tuple([(n, _hashable(given[n])) for n in self.bare])
        run = self.program.compiled if has_ours else self.program.body
        with programs.mesh_of(leaves):
            return run(static + bare, roles, leaves)


def _hashable(value: Any) -> Any:
    """Return a setting such as a list of axes as one that identifies a program."""
    return tuple(value) if isinstance(value, list) else value
