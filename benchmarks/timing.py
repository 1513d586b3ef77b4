"""Time two programs in turns, so that whatever slows the machine slows both."""

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax

Program = tuple[Callable[..., Any], tuple[Any, ...]]  # A function and its arguments.


class Cost(NamedTuple):
    """Seconds that a program takes: to trace and compile, and to run once."""

    compile: float
    run: float


class Comparison(NamedTuple):
    """Costs of two programs, and ratios of the first to the second.

    Attributes:
        costs: Medians, under the name of each program.
        run: Median of the ratios of run time, pair by pair.
        compile: Ratio of the medians of tracing and compilation.
    """

    costs: dict[str, Cost]
    run: float
    compile: float


def compare(
    programs: Mapping[str, Program], pairs: int = 60, compilations: int = 5
) -> Comparison:
    """Compile and run programs in turns, each time in the other order.

    Args:
        programs: Two programs, under their names.
        pairs: How often each is run.
        compilations: How often each is compiled, with JAX's caches cleared.

    Returns:
        What they cost.
    """
    compiled: dict[str, Callable[[], Any]] = {}
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for function, arguments in programs.values():  # What JAX imports at first use.
        jax.eval_shape(function, *arguments)
    for turn in range(compilations):
        for name in _order(programs, turn):
            function, arguments = programs[name]
            jax.clear_caches()
            start = time.perf_counter()
            run = jax.jit(function).lower(*arguments).compile()
            seconds[name].append(time.perf_counter() - start)
            compiled[name] = _Call(run, arguments)
    samples = run_in_turns(compiled, pairs)
    costs = {
        name: Cost(statistics.median(seconds[name]), statistics.median(samples[name]))
        for name in programs
    }
    ours, theirs = programs
    ratios = [a / b for a, b in zip(samples[ours], samples[theirs], strict=True)]
    return Comparison(
        costs,
        statistics.median(ratios),
        costs[ours].compile / costs[theirs].compile,
    )


def compiled(program: Program) -> Callable[[], Any]:
    """Return a call of a program, compiled."""
    function, arguments = program
    return _Call(jax.jit(function).lower(*arguments).compile(), arguments)


def run_in_turns(
    functions: Mapping[str, Callable[[], Any]], pairs: int
) -> dict[str, list[float]]:
    """Return the seconds that each function takes, each time it is called."""
    samples: dict[str, list[float]] = {name: [] for name in functions}
    for function in functions.values():
        jax.block_until_ready(function())
    gc.collect()
    gc.disable()
    try:
        for turn in range(pairs):
            for name in _order(functions, turn):
                start = time.perf_counter()
                jax.block_until_ready(functions[name]())
                samples[name].append(time.perf_counter() - start)
    finally:
        gc.enable()
    return samples


class _Call(NamedTuple):
    """A call of a compiled function."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]

    def __call__(self) -> Any:
        return self.function(*self.arguments)


def _order(names: Mapping[str, Any], turn: int) -> list[str]:
    return list(names) if turn % 2 == 0 else list(names)[::-1]
