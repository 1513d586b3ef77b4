"""Make the programs that are measured: a function over many streams, and its gradient.

Both libraries get the same arrays in the same order.
"""

import contextlib
import importlib
import re
import warnings
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.case import Case, MissingFunctionError
from benchmarks.inputs import Size

# Outputs that are further apart, relative to the largest, count as different. What is
# smaller than `NOTHING` is rounding: some losses are 0, and only their gradient is not.
TOLERANCE = 1e-3
NOTHING = 1e-4


class Program(NamedTuple):
    """A function to compile, and what to call it with."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]

    def lower(self) -> Any:
        """Trace the program, as if it had never been seen."""

        def fresh(*arguments: Any) -> Any:
            return self.function(*arguments)

        return jax.jit(fresh).lower(*self.arguments)


@contextlib.contextmanager
def plain_jax() -> Generator[None]:
    """Have JAX as it comes, whatever its settings are, and rlax without its warnings.

    Many functions of rlax announce that they will be deprecated one day.
    """
    with (
        jax.numpy_rank_promotion("allow"),
        jax.numpy_dtype_promotion("standard"),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def of(case: Case, size: Size, library: Any) -> dict[str, Program]:
    """Return the programs of a case, under the names of the passes.

    Args:
        case: What to measure.
        size: At which size.
        library: From which library.

    Returns:
        The forward pass, and the gradient if there is one; or the step, if the case is
        one.

    Raises:
        MissingFunctionError: If the library does not have the function.
    """
    function = _find(case, library)
    rng = np.random.default_rng(0)
    drawn = [each.batch(rng, size) for each in case.inputs.values()]
    arrays: tuple[Any, ...] = tuple(jax.tree.map(jnp.asarray, drawn))
    if case.step is not None:
        return {"step": Program(function, arrays)}
    batched = jax.vmap(function)
    forward = Program(batched, arrays)
    gradient = _gradient(forward, rng) if case.smooth else None
    return {"forward": forward} | ({"gradient": gradient} if gradient else {})


def difference(ours: Any, theirs: Any) -> float:
    """Return how far apart two outputs are, relative to the largest number in them.

    Args:
        ours: Any pytree of arrays.
        theirs: Another.

    Returns:
        The largest difference; infinity if the shapes differ, or if a number is finite
        in one of them only.
    """
    pairs = list(zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=False))
    if len(pairs) != len(jax.tree.leaves(ours)):
        return float("inf")
    return max((_apart(np.asarray(a), np.asarray(b)) for a, b in pairs), default=0.0)


def fingerprint(compiled: Any) -> str:
    """Return what a compiled program does, without the names that it uses.

    Args:
        compiled: What `jax.stages.Lowered.compile` returns.

    Returns:
        A text that two programs share if they are the same.
    """
    names: dict[str, str] = {}

    def number(match: re.Match[str]) -> str:
        return names.setdefault(match[0], f"%{len(names)}")

    # A computation starts with a line `%name (parameters) -> type {`, and its
    # instructions are indented; all else is where they came from.
    text = re.sub(r",? metadata=\{[^}]*\}", "", compiled.as_text())
    text = re.sub(r"(?m)^((?:ENTRY )?%[\w.-]+) \(.*$", r"  \1", text)
    lines = [line for line in text.splitlines() if line.startswith("  ")]
    return re.sub(r"%[\w.-]+", number, "\n".join(lines))


def _find(case: Case, library: Any) -> Callable[..., Any]:
    """Return the case's function, from where the library keeps it."""
    try:
        return case.function(library)
    except MissingFunctionError:
        if library.__name__ != "rlax" or not case.peer:
            raise
        return case.function(importlib.import_module(case.peer))


def _gradient(forward: Program, rng: np.random.Generator) -> Program | None:
    """Return the pullback of all float outputs to all float inputs, if there is one."""
    inputs = [i for i, x in enumerate(forward.arguments) if _is_float(x)]

    def pullback(arrays: tuple[Any, ...], cotangents: list[Any]) -> Any:
        def floats_of(*floats: Any) -> list[Any]:
            full = list(arrays)
            for i, x in zip(inputs, floats, strict=True):
                full[i] = x
            return [x for x in jax.tree.leaves(forward.function(*full)) if _is_float(x)]

        _, pull = jax.vjp(floats_of, *(arrays[i] for i in inputs))
        return pull(cotangents)

    outputs = jax.tree.leaves(jax.eval_shape(forward.function, *forward.arguments))
    outputs = [each for each in outputs if _is_float(each)]
    if not inputs or not outputs:
        return None
    # Ones would let the compiler simplify what no training loop would let it simplify.
    cotangents = [jnp.asarray(rng.normal(size=o.shape), o.dtype) for o in outputs]
    return Program(pullback, (forward.arguments, cotangents))


def _is_float(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating)


def _apart(a: np.ndarray, b: np.ndarray) -> float:
    """Return the relative difference of two arrays."""
    if a.shape != b.shape:
        return float("inf")
    a, b = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return float("inf")
    a, b = a[finite], b[finite]
    largest = np.max(np.abs(b), initial=NOTHING)
    return float(np.max(np.abs(a - b), initial=0.0) / largest)
