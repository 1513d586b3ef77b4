"""The contract of every public function: one row a function, all tested alike.

A row has the arguments of a function, its definition in NumPy, and its exceptions.
`rows/` has the rows, in files that mirror the package, each below its definition;
`test_contract.py` and its neighbours have the tests, each of which runs on every row
that it fits.
"""

import contextlib
import dataclasses
import functools
import importlib
import inspect
import operator
import os
import pathlib
import typing
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conversion import (  # noqa: F401 - Tests find all in one place.  # noqa: F401 - Tests find all in one place.  # noqa: F401 - Tests find all in one place.  # noqa: F401 - Tests find all in one place.  # noqa: F401 - Tests find all in one place.  # noqa: F401 - Tests find all in one place.  # noqa: F401 - Tests find all in one place.  # noqa: F401 - Tests find all in one place.  # noqa: F401 - Tests find all in one place.
    Arguments,
    assert_close,
    is_float,
    is_key,
    leaves,
    stack,
    to_jax,
    to_numpy,
    x64,
)
from row import Row

import rlaxlib
from rlaxlib._core.functions import FunctionTuple

STEPS, ACTIONS = 6, 4

# Whether all tests run on all rows, as in `make trust`.
TRUST = bool(os.environ.get("RLAXLIB_TRUST"))
SINGLE = 64 * float(np.finfo(np.float32).eps)  # What single precision may lose.

# Values out of range, of one step and of a stream.
BAD_DISCOUNT = ({"discount_t": -0.1}, {"discount_t": 1.1})
BAD_DISCOUNTS = tuple({"discount_t": np.full(STEPS, x)} for x in (-0.1, 1.1, np.nan))
BAD_RATIOS = ({"rho_tm1": np.full(STEPS, -0.1)}, {"rho_tm1": np.full(STEPS, np.nan)})
BAD_TRACES = ({"c_t": np.full(STEPS, -0.1)},)
BAD_POLICY = tuple({"pi_t": np.full((STEPS, ACTIONS), x)} for x in (-0.1, 1.1))
BAD_PROBABILITIES = ({"mu_t": np.full(STEPS, -0.1)}, {"mu_t": np.full(STEPS, 1.1)})
BAD_LAMBDA = ({"lambda_": -0.1}, {"lambda_": np.full(STEPS, 1.1)})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """A public function, its definition, and its exceptions.

    Attributes:
        name: The function's name, `softmax.entropy` for one inside a distribution.
        definition: The function in NumPy, with arguments of the same names; or the
            reason why there is none.
        make: Samples arguments from a NumPy generator: floats in double precision and
            away from kinks, integers, booleans; not the key.
        settings: Further arguments, Python values.
        case: The case that this row tests, if the function has several rows.
        of: Finds the function in a library, by default under its name.
        key: Name of the argument that is a random key.
        peer: The reason why the function is not compared with rlax.
        peer_of: Finds the function in rlax, by default as `of` does.
        peer_make: Samples arguments for which rlax is right, by default `make`.
        peer_gradient: The reason why gradients are not compared with rlax, for a flag
            that is true, false, or None if there is no flag.
        targets: Arguments whose gradient the flag stops.
        flagged: The function to differentiate if the flag is set, of the arguments and
            of the same arguments with their gradient stopped. By default the gradient
            of `targets` is stopped.
        unflagged: The same if the flag is not set. By default no gradient is stopped.
        differences: The reason why second derivatives are not compared with finite
            differences.
        constant: Float arguments without a derivative.
        differentiable: Whether the function maps floats to floats.
        condition: Magnitude of intermediate values divided by that of the arguments.
        follows: Float arguments that determine the dtype, by default all.
        single_precision: Positions of outputs that are at least float32.
        carried: Arguments that a loop carries on, each with the position of the output
            that is its next value, in its dtype.
        elementwise: Whether arguments may have any number of leading axes.
        any_length: Arguments that may have any length.
        any_dtype: Arguments that may have another dtype.
        spare: Arguments that may have one more entry.
        optional: Arguments that may be None, beside those of the signature.
        trees: Arguments that may be any pytree.
        numbers: Arguments that may be a scalar for all steps, likewise.
        multistep: Whether the function takes `truncated_t` and `sample_mask`.
        rows: Samples arguments that all have `T` time steps, by default `make`.
        assemble: Converts these into the function's arguments, in NumPy or JAX.
        over_devices: Returns the function with the name of a mapped axis.
        invalid: Values out of range, each a mapping from an argument to a Python value
            that the function must reject, in traced programs too.
    """

    name: str
    definition: Callable[..., Any] | str
    make: Callable[[np.random.Generator], Arguments]
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    case: str = ""
    of: Callable[[Any], Callable[..., Any]] | None = None
    key: str | None = None
    peer: str = ""
    peer_of: Callable[[Any], Callable[..., Any]] | None = None
    peer_make: Callable[[np.random.Generator], Arguments] | None = None
    peer_gradient: Mapping[bool | None, str] = dataclasses.field(default_factory=dict)
    targets: tuple[str, ...] = ()
    flagged: Callable[[Arguments, Arguments], Any] | None = None
    unflagged: Callable[[Arguments, Arguments], Any] | None = None
    differences: str = ""
    constant: tuple[str, ...] = ()
    differentiable: bool = True
    condition: float = 1.0
    follows: tuple[str, ...] = ()
    single_precision: tuple[int, ...] = ()
    carried: Mapping[str, int] = dataclasses.field(default_factory=dict)
    elementwise: bool = False
    any_length: tuple[str, ...] = ()
    any_dtype: tuple[str, ...] = ()
    spare: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    trees: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    multistep: bool = False
    rows: Callable[[np.random.Generator], Arguments] | None = None
    assemble: Callable[[Arguments, Any], Arguments] = lambda rows, xp: rows
    over_devices: Callable[[Any, str], Callable[..., Any]] | None = None
    invalid: tuple[Arguments, ...] = ()

    @property
    def id(self) -> str:
        return f"{self.name}:{self.case}" if self.case else self.name

    @property
    def shown(self) -> tuple[str, ...]:
        """The names that errors show: of the function, or of the object it makes."""
        factory = getattr(rlaxlib, self.name.partition(".")[0])
        made = typing.get_type_hints(factory).get("return")
        owner = type(getattr(self.function(rlaxlib), "__self__", None))
        kinds = [kind for kind in (made, owner) if inspect.isclass(kind)]
        names = [x.__name__ for x in kinds if issubclass(x, FunctionTuple)]
        return (self.name, *names)

    @property
    def specs(self) -> Mapping[str, specs.Spec]:
        """The specs of the arrays that the signature of the public function states."""
        factory, _, method = self.name.partition(".")
        function = getattr(rlaxlib, factory)
        function = getattr(function(), method) if method else function
        has_specs = hasattr(function, "signature")
        return signatures.read(function).arrays if has_specs else {}

    @property
    def may_be_none(self) -> set[str]:
        """Names of the arguments that may be None."""
        stated = {name for name, spec in self.specs.items() if spec.optional}
        return stated | set(self.optional)

    @property
    def may_be_scalars(self) -> set[str]:
        """Names of the arguments that may be a scalar for all steps."""
        shapes = {(), ("T",)}
        stated = {n for n, spec in self.specs.items() if set(spec.shapes) == shapes}
        return (stated & set(self.floats)) | set(self.numbers)

    @property
    def defined(self) -> bool:
        return callable(self.definition)

    @property
    def undefined(self) -> bool:
        return not self.defined

    @property
    def deterministic(self) -> bool:
        """Whether there is a definition and no key: samples depend on the dtype."""
        return self.defined and self.key is None

    @property
    def compared(self) -> bool:
        return not self.peer

    @property
    def given(self) -> bool:
        """Whether the function takes an array."""
        return self.key is not None or bool(self.make(np.random.default_rng(0)))

    @property
    def sized(self) -> tuple[str, ...]:
        """Names of arrays whose lengths must agree."""
        drawn = self.make(np.random.default_rng(0))
        names = tuple(name for name, value in drawn.items() if np.ndim(value))
        return names if len(names) > 1 or self.multistep else ()

    @property
    def spreads(self) -> tuple[str, ...]:
        """Names of the arguments that may have size 1."""
        masks = () if self.multistep else ("sample_mask",)
        names = SPREADS + masks
        return tuple(name for name in self.sized if name.rpartition(".")[2] in names)

    @property
    def picks(self) -> tuple[str, ...]:
        """Names of the arguments that index another array."""
        drawn = self.make(np.random.default_rng(0))
        ints = [name for name, x in drawn.items() if np.asarray(x).dtype.kind == "i"]
        return tuple(name for name in ints if name in INDICES)

    @property
    def stops(self) -> bool:
        return bool(self.targets)

    @property
    def floats(self) -> tuple[str, ...]:
        """Names of the float arguments."""
        drawn = self.make(np.random.default_rng(0))
        return tuple(name for name, value in drawn.items() if is_float(value))

    @property
    def moving(self) -> tuple[str, ...]:
        """Names of the arguments with a derivative."""
        return tuple(name for name in self.floats if name not in self.constant)

    @property
    def twice_differentiable(self) -> bool:
        return self.differentiable and not self.differences

    @property
    def mixes(self) -> bool:
        return len(self.follows or self.floats) > 1

    @property
    def single(self) -> bool:
        return not self.elementwise

    @property
    def flags(self) -> tuple[bool | None, ...]:
        """Values of the stop-gradient flag, or None if there is none."""
        return (True, False) if self.stops else (None,)

    def setting(self, flag: bool | None) -> Arguments:
        """Return the setting of the flag."""
        if flag is None:
            return {}
        parameters = inspect.signature(self.function(rlaxlib)).parameters
        return {name: flag for name in FLAGS if name in parameters}

    def function(self, library: Any) -> Callable[..., Any]:
        find = self.of or operator.attrgetter(self.name)
        return find(library)

    def call(self, library: Any = rlaxlib, **settings: Any) -> Callable[..., Any]:
        """Return the function with its settings."""
        return functools.partial(
            self.function(library), **{**self.settings, **settings}
        )

    def peer_call(self, rlax: Any, **settings: Any) -> Callable[..., Any]:
        """Return the function of rlax, which may promote, broadcast and warn."""

        def call(**arguments: Any) -> Any:
            with (
                warnings.catch_warnings(),
                jax.numpy_dtype_promotion("standard"),
                jax.numpy_rank_promotion("allow"),
            ):
                warnings.simplefilter("ignore")
                function = (self.peer_of or self.function)(rlax)
                return function(**arguments, **{**self.settings, **settings})

        return call

    def define(self, arguments: Arguments) -> list[np.ndarray]:
        """Evaluate the definition in double precision."""
        assert callable(self.definition)
        inputs = {name: to_numpy(value) for name, value in arguments.items()}
        with np.errstate(divide="ignore"):
            return leaves(self.definition(**inputs, **self.settings))

    def held(self, flag: bool | None) -> Callable[[Arguments, Arguments], Any]:
        """Return the function to differentiate, of `(x, constants)`."""
        special = self.flagged if flag else self.unflagged
        if special is not None:
            return lambda x, constants: leaves(special(x, constants))
        kept = self.targets if flag else ()
        return lambda x, constants: self.define(
            x | {name: constants[name] for name in kept}
        )

    def inputs(self, seed: int = 0, dtype: Any = np.float32) -> Arguments:
        """Sample arguments as JAX arrays, and a key if there is one."""
        arguments = to_jax(self.make(np.random.default_rng(seed)), dtype)
        if self.key is not None:
            arguments = {self.key: jax.random.key(seed), **arguments}
        return arguments

    def scale(self, arguments: Arguments) -> float:
        """Return the magnitude of intermediate values."""
        sizes = [np.abs(to_numpy(x)).max() for x in arguments.values() if is_float(x)]
        return self.condition * max([1.0, *sizes])


@functools.cache
def collect() -> list[Row]:
    """Read the rows of all topics."""
    return [row for file in row_files() for row in file.ROWS]


def row_files() -> list[Any]:
    """Import the modules that have the rows of a file of the package each."""
    folder = pathlib.Path(__file__).parent
    files = sorted((folder / "rows").rglob("[a-z]*.py"))
    names = [".".join(file.relative_to(folder).with_suffix("").parts) for file in files]
    return [importlib.import_module(name) for name in names]


def each_row(*attributes: str, sample: bool = False) -> Callable[[Any], Any]:
    """Run a test on every row of which these attributes are true.

    Args:
        *attributes: Names of attributes of `Row`.
        sample: Whether one row is enough for a third of the functions, unless
            everything is asked for.

    Returns:
        A decorator.
    """
    getters = [operator.attrgetter(name) for name in attributes]

    def decorate(test: Any) -> Any:
        rows = [row for row in collect() if all(get(row) for get in getters)]
        test.rows = rows
        rows = sampled(rows, test.__name__) if sample else of_topic(rows)
        ids = [row.id for row in rows]
        return pytest.mark.parametrize("row", rows, ids=ids)(test)

    return decorate


def sampled(rows: Sequence[Row], name: str) -> Sequence[Row]:
    """Return the rows of the topic of a third of the functions; see `share`."""
    return covering_third(of_topic(rows), name)


def of_topic(rows: Sequence[Row]) -> Sequence[Row]:
    """Return the rows of the topic of `make test TOPIC=returns`, or all rows."""
    topic = getattr(rlaxlib, os.environ.get("RLAXLIB_TOPIC", "rlaxlib"), rlaxlib)
    return [row for row in rows if row.name.partition(".")[0] in topic.__all__]


def share(things: Sequence[Any], name: str, parts: int = 3) -> Sequence[Any]:
    """Return every third (`parts`-th) thing, the first of which depends on a name.

    With `RLAXLIB_TRUST=1` in the environment, as `make trust` sets it, return all.
    """
    return things if TRUST else things[zlib.crc32(name.encode()) % parts :: parts]


def covering_third(rows: Sequence[Row], name: str) -> Sequence[Row]:
    """Return one row of every third function, or all rows if `share` returns all."""
    cases: dict[str, list[Row]] = {}
    for row in rows:
        cases.setdefault(row.name, []).append(row)
    chosen = [share(each, name, parts=len(each)) for each in cases.values()]
    return [row for each in share(chosen, name) for row in each]


# --- Public functions. ---


def public_functions() -> Iterator[str]:
    """Yield the names of all public functions and methods of distributions."""
    for name in rlaxlib.__all__:
        thing = getattr(rlaxlib, name)
        if inspect.isclass(thing):
            is_data = issubclass(thing, tuple | Exception | FunctionTuple)
            if not is_data and not dataclasses.is_dataclass(thing):
                yield name
        elif inspect.isfunction(thing):
            yield from (
                (f"{name}.{part}" for part in _parts(thing))
                if _makes_functions(thing)
                else [name]
            )


def _makes_functions(thing: Callable[..., Any]) -> bool:
    """Return whether a function returns a distribution."""
    return hasattr(typing.get_type_hints(thing).get("return"), "logprob")


def _parts(factory: Callable[..., Any]) -> list[str]:
    made = factory()
    return [name for name in made._functions if getattr(made, name) is not None]


def fields(state: Any, start: int = 0, name: str = "state") -> dict[str, int]:
    """Return the positions of the fields of a state that a function carries on."""
    return {f"{name}.{field}": start + i for i, field in enumerate(state._fields)}


# --- Comparisons. ---


@contextlib.contextmanager
def refused(row: Row, name: str) -> Iterator[pytest.ExceptionInfo[Exception]]:
    """Expect an error that names the function."""
    try:
        with pytest.raises(rlaxlib.ArgumentError) as error:
            yield error
    except BaseException as failure:
        failure.add_note(f"`{name}` should have been rejected.")
        raise
    assert str(error.value).startswith(row.shown)


# --- Random arguments. ---


def discounts(rng: np.random.Generator, steps: int = STEPS) -> np.ndarray:
    """Sample discounts, one of which is 0, as at the end of an episode."""
    drawn = rng.uniform(0.5, 1.0, steps)
    drawn[rng.integers(steps)] = 0.0
    return drawn


def probabilities(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.dirichlet(np.full(shape[-1], 2.0), shape[:-1])


def actions(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(ACTIONS, size=shape)


def away_from(x: np.ndarray, kink: float, distance: float = 0.05) -> np.ndarray:
    """Move values away from a point without a derivative."""
    side = np.where(x < kink, -1.0, 1.0)
    return np.where(np.abs(x - kink) < distance, kink + side * distance, x)


# --- Derivatives of a definition. ---


def direction(arguments: Arguments, names: tuple[str, ...], seed: int) -> Arguments:
    """Sample a direction in the space of some arguments."""
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=np.shape(arguments[name])) for name in names}


def weigh(outputs: Any, seed: int, xp: Any = jnp) -> Any:
    """Sum all floats of an output with random weights."""
    rng = np.random.default_rng(seed)
    total = xp.zeros(())
    for leaf in jax.tree.leaves(outputs):
        if is_float(leaf):
            weights = xp.asarray(rng.normal(size=leaf.shape), dtype=leaf.dtype)
            total = total.astype(leaf.dtype) + xp.sum(weights * leaf)
    return total


def gradient(
    row: Row, function: Callable[..., Any], inputs: Arguments, seed: int = 0
) -> tuple[Arguments, Any]:
    """Differentiate a weighted sum of the outputs by all arguments.

    Args:
        row: The function's row.
        function: The function, with its settings.
        inputs: Its arguments.
        seed: Determines the weights.

    Returns:
        The gradient, empty if the function has none, and the outputs.
    """
    moved = {name: inputs[name] for name in row.variables}

    def total(moved: Arguments) -> tuple[Any, Any]:
        outputs = function(**inputs | moved)
        return weigh(outputs, seed), outputs

    return jax.grad(total, has_aux=True)(moved)


def directional_derivative(
    function: Callable[[Arguments], Any], at: Arguments, along: Arguments
) -> float:
    """Differentiate a function in NumPy along a direction, by a central difference."""
    step = 1e-5

    def moved(sign: int) -> Arguments:
        return at | {name: at[name] + sign * step * along[name] for name in along}

    ahead, behind = function(moved(1)), function(moved(-1))
    return float(ahead - behind) / (2 * step)


def project(gradient: Arguments, along: Arguments) -> float:
    """Return the directional derivative, from a gradient."""
    return float(sum(np.sum(to_numpy(gradient[name]) * along[name]) for name in along))


# --- Streams with truncation and masks. ---


def split(truncated: np.ndarray, mask: np.ndarray) -> list[list[int]]:
    """Return the valid steps of each segment of a stream."""
    pieces: list[list[int]] = [[]]
    for t, (cut, kept) in enumerate(zip(truncated, mask, strict=True)):
        if kept:
            pieces[-1].append(t)
        if cut:
            pieces.append([])
    return [piece for piece in pieces if piece]


def define_stream(
    row: Row, rows: Arguments, truncated: np.ndarray, mask: np.ndarray
) -> list[np.ndarray]:
    """Delete masked steps, evaluate each segment alone, and join the results."""
    outputs: list[np.ndarray] | None = None
    for piece in split(truncated, mask):
        taken = {name: np.asarray(x) for name, x in rows.items()}
        taken = {name: x[piece] if x.ndim else x for name, x in taken.items()}
        found = row.define(row.stream.assemble(taken, np))
        if outputs is None:
            shape = (len(mask),)
            outputs = [np.zeros(shape + each.shape[1:], each.dtype) for each in found]
        for output, part in zip(outputs, found, strict=True):
            output[piece] = part
    assert outputs is not None
    return outputs
