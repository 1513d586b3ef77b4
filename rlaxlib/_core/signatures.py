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

The body has JAX arrays, raised from half precision to float32, and 0 at ignored steps;
its result is cast back, and is 0 there, too. It is compiled, so that a call outside of
`jax.jit` runs one program; within another program it leaves no trace. A body that calls
a function of the user is not compiled: what that function reads may change from call to
call. The annotations alone decide.

`specs` describes the annotations of arrays. `Static[int, "in [1, inf)"]` is a Python
value, a `Literal` one of its strings, and a `bool` a flag, which may be traced. An axis
that is named like a static integer has its size. Fields of a named tuple, and entries
of a tuple or sequence, have annotations of their own. A `Real` may be given as
integers, which become floats; a `Tree` is a pytree of arrays, each of which is checked
and converted, under its path.

Shapes and dtypes are checked in traced programs too. Ranges are checked of values on
the host, which are Python's and NumPy's, at valid steps if there is a `sample_mask`.
Arrays on a device are never read.

An annotation is read at the first call of its function: importing runs none of this.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast, overload

import jax
import numpy as np

from rlaxlib._core import binding, errors, functions, programs, rules, specs
from rlaxlib._core.batches import Function
from rlaxlib._core.binding import Bound
from rlaxlib._core.errors import ArgumentError
from rlaxlib._core.programs import Casts, Leaf
from rlaxlib._core.specs import Axes, Spec

NUMBERS = ("Float", "Real", "Int")

P = ParamSpec("P")
R = TypeVar("R")
Arguments = dict[str, Any]


@overload
def checked(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def checked(
    *, wide: bool = ..., compiled: bool = ..., rule: Callable[..., None] | None = ...
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def checked(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Check and convert the arguments of a function, as its signature says.

    Half precision is raised to float32, and the result cast to the dtype that the
    arguments promote to. A state, which is a record among the arguments and in the
    result, keeps its own dtypes, and so does a result that is `like` an argument.
    Floats and integers are 0 where `sample_mask` is false, in arguments and in results:
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
    """What follows from the shapes and dtypes of a call.

    Attributes:
        bound: Axes of arrays and their sizes, and what does not fit.
        places: Spec and leaf of each array, by its path.
        casts: The conversions of leaves.
        ruled: The specs of arguments with rules.
        numbers: The places of Python integers that are floats.
        masked: The paths of arrays that are 0 at ignored steps.
    """

    bound: Bound
    places: dict[str, tuple[Spec, Any]]
    casts: Casts
    ruled: dict[str, Spec]
    numbers: list[int]
    masked: list[str]


class Checked(NamedTuple):
    """A call whose arguments fit.

    Attributes:
        static: The arguments for each value of which a program is compiled.
        leaves: The leaves of all arrays.
        fitted: What follows from their shapes and dtypes.
    """

    static: Arguments
    leaves: list[Any]
    fitted: Fitted


class Plan:
    """What a function needs of its arguments, and the program of its body.

    Attributes:
        function: The function as it was written.
        specs: The spec of each argument that has one.
        arrays: Those that are arrays.
        nested: The annotation of each argument that contains arrays.
        others: The specs of flags, options and Python values.
        static: Names of arguments for each value of which a program is compiled.
        functions: Names of arguments that are functions of the user, or have some.
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
        self.function, self.compiled, self.rule = function, compiled, rule
        self.positional = [x.name for x in parameters if x.kind != x.KEYWORD_ONLY]
        self.defaults = {
            x.name: x.default for x in parameters if x.default is not x.empty
        }
        self.names = {x.name for x in parameters}
        self.result = hints.pop("return", None)
        found = {name: specs.read(hint) for name, hint in hints.items()}
        self.nested = {n: x for n, x in hints.items() if specs.is_nested(x)}
        self.specs = {n: x for n, x in found.items() if x and n not in self.nested}
        self.arrays = {n: x for n, x in self.specs.items() if x.is_array}
        self.others = {
            n: x for n, x in self.specs.items() if x.options or not x.is_array
        }
        bare = {
            n: hints[n] for n in hints.keys() - self.nested.keys() - self.specs.keys()
        }
        self.callables = [n for n, x in bare.items() if specs.is_callable(x)]
        self.functions = [n for n, x in bare.items() if not specs.is_setting(x)]
        self.options = [n for n, x in self.others.items() if x.is_array or x.is_flag]
        self.static = self.others.keys() - self.options | bare.keys()
        axes = {
            x for spec in self.arrays.values() for each in spec.shapes for x in each
        }
        known = {*self.static, *self.arrays, *self.nested}
        self.loose = [n for n in self.names if n not in known]
        self.sizes = [n for n, x in self.others.items() if x.type is int and n in axes]
        mask = self.arrays.get("sample_mask")
        self.steps = mask.shapes[0] if mask else ()
        self.ruled = {n: x for n, x in self.others.items() if x.rules}
        states = {
            x: name
            for name, hint in self.nested.items()
            for x in specs.alternatives(hint)
            if specs.is_record(x) and specs.is_in(x, self.result)
        }
        self.trees = {n for n, x in found.items() if x and x.is_tree}
        self.states = {*states.values()}
        self.program = programs.Program(function, self.result, states, wide)
        self.fit = functools.lru_cache(maxsize=1024)(self._fit)

    def name(self, given: Arguments) -> str:
        """Return the public name, such as `vtrace` or `Softmax.probs`."""
        name = self.function.__name__.removesuffix("__call__").strip("_")
        owner = f"{type(given['self']).__name__}." if "self" in given else ""
        return f"{owner}{name}".rstrip(".")

    def call(self, args: tuple[Any, ...], kwargs: Arguments) -> Any:
        """Check the arguments, and run the body."""
        given = self.bind(args, kwargs)
        try:
            call = self.check(given)
        except ArgumentError as error:
            if kwargs.keys() <= self.names:  # An unknown keyword explains more.
                named = errors.named(error, self.name(given))
                raise named.with_traceback(None) from None
            raise errors.unbound(
                self.function, self.name(given), args, kwargs
            ) from None
        is_once = kwargs.keys().isdisjoint(self.positional[: len(args)])
        is_known = len(args) <= len(self.positional) and given.keys() == self.names
        if not (is_once and is_known):
            raise errors.unbound(self.function, self.name(given), args, kwargs)
        try:
            return self._run(given, call)
        except ArgumentError as error:
            errors.named(error, self.name(given))
            if self.functions or not self.compiled:
                raise  # The traceback may show a function of the user.
            raise ArgumentError(str(error)) from None

    def bind(self, args: tuple[Any, ...], kwargs: Arguments) -> Arguments:
        """Return arguments by name, with defaults."""
        return self.defaults | dict(zip(self.positional, args, strict=False)) | kwargs

    def check(self, given: Arguments) -> Checked:
        """Check arguments.

        Args:
            given: The arguments, by name. One that is missing is not checked.

        Returns:
            What the body needs of them.

        Raises:
            ArgumentError: If a dtype, a shape or a value does not fit.
        """
        for name, spec in self.others.items():
            if name in given:
                rules.check_static(name, given[name], spec, self.specs)
        static: Arguments = {
            n: x
            for n, x in given.items()
            if n in self.static
            or (n in self.options and isinstance(x, bool | np.bool_ | str))
        }
        traced = {
            n: x
            for n, x in given.items()
            if (n in self.arrays or n in self.nested) and n not in static
        }
        leaves, structure = cast(Any, jax.tree.flatten(traced))
        types = tuple(map(binding.type_of, leaves))
        known = tuple([(n, given[n]) for n in self.sizes if n in given])
        try:
            fitted = self.fit(structure, types, known)
        except specs.TypeMismatchError as error:
            path, hint = error.args
            raise errors.wrong_type(path, hint, given, self.described(given)) from None
        if fitted.bound.misfit:
            raise self._misfit(given, leaves, fitted)
        self._check_values(given, leaves, fitted)
        for place in fitted.numbers:
            leaves[place] = float(leaves[place])
        return Checked(static, leaves, fitted)

    def described(self, given: Arguments) -> Function:
        """Return what errors say about the function."""
        return Function(self.name(given), self.positional, self.defaults, self.result)

    def _misfit(
        self, given: Arguments, leaves: list[Any], fitted: Fitted
    ) -> ArgumentError:
        """Return the error of an array that does not fit."""
        values = given | {n: _at(x, leaves) for n, (_, x) in fitted.places.items()}
        # Hints about a batch do not see the leaves of pytrees, which have any axes.
        in_tree = binding.root(fitted.bound.misfit) in self.trees
        places = [
            n for n in fitted.places if in_tree or binding.root(n) not in self.trees
        ]
        wanted = {n: fitted.places[n][0] for n in places}
        function = self.described(given)
        function = function._replace(name="") if in_tree else function
        misfit, sizes = fitted.bound.misfit, fitted.bound.sizes
        return errors.misfit(misfit, sizes, wanted, values, function)

    def _check_values(
        self, given: Arguments, leaves: list[Any], fitted: Fitted
    ) -> None:
        """Check the rules of values on the host, and that functions are some."""
        places = fitted.places
        at = {n: _at(places[n][1], leaves) for n in fitted.ruled if n in places}
        values = given | at
        if fitted.ruled and (mask := given.get("sample_mask")) is not None:
            masked = {n: _at(places[n][1], leaves) for n in fitted.masked}
            values |= {n: rules.at_valid_steps(x, mask) for n, x in masked.items()}
        for name, spec in fitted.ruled.items():
            for rule in spec.rules if name in values else ():
                rules.check(name, values[name], rule, fitted.bound.sizes, values)
            if name in places and not spec.is_array:
                rules.check_static(name, values[name], spec, self.specs)
        for name in filter(given.__contains__, self.callables):
            if given[name] is not None and not callable(given[name]):
                found = errors.describe(given[name])
                raise errors.problem(f"`{name}` is {found}, must be a function")
        if self.rule is not None and given.keys() == self.names:
            self.rule(**given)

    def _fit(
        self, structure: Any, types: tuple[Any, ...], known: tuple[tuple[str, int], ...]
    ) -> Fitted:
        """Fit the shapes and dtypes of arguments to their annotations."""
        leaves = [Leaf(place, each) for place, each in enumerate(types)]
        places = self._places(structure.unflatten(leaves))
        wanted = {n: spec for n, (spec, _) in places.items() if spec.is_array}
        found = {n: _type(places[n][1]) for n in wanted}
        bound = binding.bind(wanted, found, dict(known))
        numbers = {n: x for n, x in bound.axes.items() if wanted[n].kind in NUMBERS}
        masked = [n for n, axes in numbers.items() if self._is_masked(axes)]
        fits = {n: (wanted[n], places[n][1]) for n in bound.axes}
        casts = programs.casts(fits, masked, self.states, self.trees)
        casts = casts._replace(structure=structure, steps=self.steps)
        ruled = {n: x for n, (x, _) in places.items() if x.rules or not x.is_array}
        whole = [
            x.place
            for spec, x in fits.values()
            if spec.kind in programs.FLOATS and x.type[1] is int
        ]
        return Fitted(bound, places, casts, ruled | self.ruled, whole, masked)

    def _is_masked(self, axes: Axes) -> bool:
        """Return whether axes begin with those of the mask, or T+1 or T-1 steps do."""
        first = tuple(binding.split(axis)[0] for axis in axes[: len(self.steps)])
        return bool(first) and first == self.steps

    def _places(self, given: Arguments) -> dict[str, tuple[Spec, Any]]:
        """Return spec and place of each array, and check the structures of pytrees."""
        places = {n: (spec, given[n]) for n, spec in self.arrays.items() if n in given}
        trees: dict[str, Any] = {}
        for name in filter(given.__contains__, self.nested):
            for path, spec, value in specs.nodes(name, self.nested[name], given[name]):
                if not spec.is_tree:
                    places[path] = spec, value
                elif value is not None or not spec.optional:
                    trees[path] = spec, value
                    places |= specs.leaves(path, spec, value)
        for path, (spec, value) in trees.items():
            root = specs.root_of(path, spec)
            if root in trees:
                errors.check_structure(root, trees[root][1], path, value)
        for path, (spec, value) in list(places.items()):
            if not (isinstance(value, Leaf) or spec.is_array):  # Of a static field.
                rules.check_static(path, value, spec, self.specs)
                del places[path]
        return places

    def _run(self, given: Arguments, call: Checked) -> Any:
        """Run the body, compiled unless it calls functions of the user."""
        if not self.compiled:
            return self.function(**given)
        is_ours = all(
            given[n] is self.defaults.get(n) or functions.is_ours(given[n])
            for n in self.functions
        )
        others = {n: given[n] for n in self.loose if n not in call.static}
        static = tuple([(n, _hashable(x)) for n, x in call.static.items()])
        casts = call.fitted.casts
        return self.program.run(static, casts, call.leaves, others, is_ours)


def _type(part: Any) -> binding.Type:
    """Return the type of a leaf; the type of a list or tuple in place of an array."""
    return part.type if isinstance(part, Leaf) else binding.type_of(part)


def _at(part: Any, leaves: list[Any]) -> Any:
    """Return the values of a part of the arguments that was fitted."""
    if isinstance(part, Leaf):
        return leaves[part.place]
    return jax.tree.map(functools.partial(_at, leaves=leaves), part)


def _hashable(value: Any) -> Any:
    """Return a setting such as a list of axes as one that identifies a program."""
    return tuple(cast(Any, value)) if isinstance(value, list) else value
