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
from conversion import (  # noqa: F401 - Tests find all in one place.
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
        sample: Whether one row is enough for a tenth of the functions, unless
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


def of_topic(rows: Sequence[Row]) -> Sequence[Row]:
    """Return the rows of the topic of `make test TOPIC=returns`, or all rows."""
    topic = getattr(rlaxlib, os.environ.get("RLAXLIB_TOPIC", "rlaxlib"), rlaxlib)
    return [row for row in rows if row.name.partition(".")[0] in topic.__all__]


def share(things: Sequence[Any], name: str, parts: int = 10) -> Sequence[Any]:
    """Return every tenth (`parts`-th) thing, the first of which depends on a name.

    With `RLAXLIB_TRUST=1` in the environment, as `make trust` sets it, return all.
    """
    return things if TRUST else things[zlib.crc32(name.encode()) % parts :: parts]


def sampled(rows: Sequence[Row], name: str) -> Sequence[Row]:
    """Return one row of every tenth function of the topic, or all; see `share`."""
    cases: dict[str, list[Row]] = {}
    for row in of_topic(rows):
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


def peer_inputs(row: Row) -> Arguments:
    """Sample arguments for which rlax is right."""
    if row.peer.make is None:
        return row.inputs()
    return to_jax(row.peer.make(np.random.default_rng(0)), np.float32)


@contextlib.contextmanager
def refused(
    row: Row, name: str, hint: str = ""
) -> Iterator[pytest.ExceptionInfo[Exception]]:
    """Expect an error that names the function."""
    try:
        with pytest.raises(rlaxlib.ArgumentError) as error:
            yield error
    except BaseException as failure:
        failure.add_note(f"`{name}` should have been rejected{hint}.")
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
