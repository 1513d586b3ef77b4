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
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast, overload

import jax
import jax.numpy as jnp

from rlaxlib._core import binding, checks, errors, programs, rules, specs
from rlaxlib._core.binding import Bound, Type, type_of
from rlaxlib._core.errors import ArgumentError
from rlaxlib._core.functions import FunctionTuple, is_ours
from rlaxlib._core.programs import Program, Roles
from rlaxlib._core.specs import Sizes, Spec

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


class Fitted(NamedTuple):
    """What follows from the types of arrays and the values of static arguments."""

    bound: Bound
    roles: Roles
    ruled: list[tuple[str, int, Spec]]  # Path, place, spec of values on the host.


class Plan:
    """What a function needs of its arguments, and the program of its body.

    Attributes:
        function: The function as it was written.
        specs: The spec of each argument.
        arrays: Names of arrays.
        options: Names of options, flags and Python values. A flag may be traced.
        bare: Names of settings and functions.
        functions: Names of functions of the user, and of what may have some.
        checked: Names of all but bare ones, states and pytrees at the end: an error
            blames a state for a size in which it differs from the data.
        traced: Names of all that may be traced, `self` among them.
        result: The spec of the result.
        positional: Names of positional arguments.
        names: Names of all arguments, `self` among them.
        defaults: The default of each argument that has one.
        is_factory: Whether the function makes an object of several functions.
        compiled: Whether the body is compiled.
        steps: The axes of `sample_mask`.
        states: Of each class of states that the function updates, the argument.
        program: The body with its conversions.
    """

    def __init__(
        self, function: Callable[..., Any], wide: bool = False, compiled: bool = True
    ) -> None:
        hints = typing.get_type_hints(function, include_extras=True)
        made = hints.pop("return", None)
        own = inspect.signature(function).parameters.values()
        self.function = function
        self.specs = {n: specs.read(x) for n, x in hints.items()}
        self.result = specs.read(made)
        self.positional = [x.name for x in own if x.kind != x.KEYWORD_ONLY]
        self.names = {x.name for x in own}
        self.defaults = {x.name: x.default for x in own if x.default is not x.empty}
        self.is_factory = inspect.isclass(made) and issubclass(made, FunctionTuple)
        self.compiled = compiled and not self.is_factory
        self.steps = self.specs.get("sample_mask", Spec("Bool", ((),))).shapes[0]
        returned = [x.type for x in specs.within(self.result) if x.kind == "Record"]
        self.states = {x.type: n for n, x in self.specs.items() if x.type in returned}
        self.program = Program(function, self.result, self.states, self.steps, wide)
        self.fit = functools.lru_cache(maxsize=1024)(self._fit)
        every = self.specs.items()
        self.arrays = [n for n, x in every if x.is_array]
        self.options = [n for n, x in every if x.is_static or x.kind == "Flag"]
        self.bare = [n for n, x in every if x.is_bare]
        self.functions = [n for n, x in every if x.kind == "Other"]
        nested = [n for n, x in every if x.parts or x.is_tree]
        self.checked = [*self.arrays, *self.options, *nested]
        # An object with traced settings cannot be part of a key: it has no equal.
        of_body = {*self.checked, "self"} & self.names
        self.traced = self.names - {*self.bare} if self.compiled else of_body

    def name(self, given: Arguments) -> str:
        """Return the public name, such as `vtrace` or `Softmax.probs`."""
        name = self.function.__name__.removesuffix("__call__").strip("_")
        owner = f"{type(given['self']).__name__}." if "self" in given else ""
        return f"{owner}{name}".rstrip(".")

    def call(self, args: tuple[Any, ...], kwargs: Arguments) -> Any:
        """Check the arguments, and run the body."""
        given = self.bind(args, kwargs)
        first = self.positional[: len(args)]
        is_once = len(args) == len(first) and kwargs.keys().isdisjoint(first)
        if not is_once or given.keys() != self.names:
            raise errors.unbound(self.function, self.name(given), args, kwargs)
        is_hidden = True
        try:
            static, leaves, fitted = self.check(given)
            # The traceback may show a function of the user.
            is_hidden = self.compiled and not self.functions
            return self._run(given, static, leaves, fitted.roles)
        except ArgumentError as error:
            errors.named(error, self.name(given))
            if is_hidden:
                raise ArgumentError(str(error)) from None
            raise

    def bind(self, args: tuple[Any, ...], kwargs: Arguments) -> Arguments:
        """Return arguments by name, with defaults."""
        return self.defaults | dict(zip(self.positional, args, strict=False)) | kwargs

    def check(self, given: Arguments) -> tuple[Options, list[Any], Fitted]:
        """Check all arguments, by their names.

        Return the static ones, the leaves of all others but settings and functions, and
        what follows from both.
        """
        known = {
            n: given[n]
            for n in self.options
            if self.specs[n].is_static or isinstance(given[n], bool)
        }
        for name, value in known.items():
            rules.check_static(name, value, self.specs[name])
        if "dtype" in given and not jnp.issubdtype(given["dtype"], jnp.floating):
            raise errors.problem(f"`dtype` is {given['dtype']}, must be one of floats")
        static = tuple([(n, _hashable(x)) for n, x in known.items()])
        traced = {n: given[n] for n in self.traced if n not in known}
        leaves, structure = jax.tree.flatten(traced)
        types = tuple(map(type_of, leaves))
        try:
            fitted = self.fit(structure, types, static)
        except specs.TypeMismatchError as error:
            path, spec = error.args
            raise errors.wrong_type(path, spec, given) from None
        if fitted.bound.misfit:
            wanted, found = self._places(given)
            raise errors.misfit(found, wanted, fitted.bound, self, given)
        sizes, mask = fitted.bound.sizes, given.get("sample_mask")
        ends = getattr(given.get("self"), "__dict__", {}) | given
        for path, place, spec in fitted.ruled:
            own = mask if fitted.roles.masked[place] else None
            rules.check(path, leaves[place], spec, sizes, ends, own)
        every = zip(leaves, types, fitted.roles.kinds, strict=True)
        leaves = [x * 1.0 if t[1] is int and kind else x for x, t, kind in every]
        return static, leaves, fitted

    def _fit(self, structure: Any, types: tuple[Type, ...], static: Options) -> Fitted:
        """Fit arguments to their annotations."""
        wanted, places = self._places(structure.unflatten(range(len(types))))
        own = {n: types[x] if type(x) is int else type_of(x) for n, x in places.items()}
        sizes: Sizes = {n: x for n, x in static if type(x) is int}
        bound = binding.bind(wanted, own, sizes)
        for name, value in static if not bound.misfit else ():
            rules.check(name, value, self.specs[name], bound.sizes, dict(static))
        kinds, masked = [""] * len(types), [False] * len(types)
        ruled: list[tuple[str, int, Spec]] = []
        for path, axes in bound.axes.items():
            spec, place = wanted[path], int(places[path])
            kinds[place] = self._kind(path, spec)
            # Arrays of T+1 or T-1 steps, too.
            is_number = spec.is_float or spec.kind == "Int"
            masked[place] = is_number and specs.begins(axes, self.steps)
            _, dtype, is_host = types[place]
            if is_host and rules.of(spec, dtype):
                ruled.append((path, place, spec))
        return Fitted(bound, Roles(tuple(kinds), tuple(masked), structure), ruled)

    def _kind(self, path: str, spec: Spec) -> str:
        """Return the kind of a leaf. Functions of the user get pytrees as they are."""
        if not spec.is_float or specs.argument_of(path) == "self":
            return ""
        if specs.argument_of(path) in self.states.values():
            return "state"
        return "data" if not spec.is_tree else "" if self.functions else "tree"

    def _places(self, given: Arguments) -> tuple[dict[str, Spec], Arguments]:
        """Return specs and values of arrays, and check the structures of pytrees."""
        wanted: dict[str, Spec] = {}
        found: Arguments = {}
        trees: dict[str, tuple[Spec, Any]] = {}
        every = {n: self.specs[n] for n in self.checked if n in given}
        settings = specs.settings(type(given.get("self")))
        every |= {"self": settings} if settings.parts else {}
        for name, whole in every.items():
            for path, spec, value in specs.nodes(name, whole, given[name]):
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
            given = given | {n: passed[n] for n in self.arrays}
            if self.is_factory:  # An array may change once it is a setting.
                given = {n: copy.copy(_hashable(x)) for n, x in given.items()}
            return self.function(**given)
        own = self.defaults.get
        has_ours = all(given[n] is own(n) or is_ours(given[n]) for n in self.functions)
        bare = tuple([(n, _hashable(given[n])) for n in self.bare])
        run = self.program.compiled if has_ours else self.program.body
        with programs.mesh_of(leaves):
            return run(static + bare, roles, leaves)


def _hashable(value: Any) -> Any:
    """Return a setting such as a list of axes as one that identifies a program."""
    return tuple(value) if isinstance(value, list) else value
