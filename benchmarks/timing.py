"""Time programs side by side, so that whatever slows the machine slows all of them.

The programs take turns: one sample of the first, one of the second, then the second
again and the first. A sample is as many calls as take a millisecond or two, since a
clock and a scheduler are too coarse for one. What is compared are the two samples of
each pair, taken within milliseconds of one another; the medians of two libraries
measured one after the other say more about the minutes in which they were measured.
And there are pairs from each time that the programs are compiled: one of 20
microseconds may take 30 when it is compiled again.
"""

import gc
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from benchmarks.programs import Program


class Effort(NamedTuple):
    """How much time to spend on a measurement.

    Attributes:
        pairs: Samples of each program, shared out among its compilations.
        sample: Seconds that a sample takes at least.
        compilations: How often each program is traced and compiled at most.
        patience: Seconds spent on compiling, after which no further round begins.
    """

    pairs: int = 30
    sample: float = 2e-3
    compilations: int = 3
    patience: float = 2.0


class Quartiles(NamedTuple):
    """Where the middle half of the samples lies."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> "Quartiles":
        """Summarise samples."""
        return cls(*(float(each) for each in np.quantile(samples, (0.25, 0.5, 0.75))))


class Compiled(NamedTuple):
    """A compiled program, the seconds that it took, and the bytes that it needs."""

    run: Any
    trace: float
    compile: float
    memory: int | None


def compile_all(
    programs: Mapping[str, Program], effort: Effort
) -> dict[str, list[Compiled]]:
    """Trace and compile programs in turns, each time from nothing.

    Args:
        programs: The programs, under the names of their libraries.
        effort: How often to do it.

    Returns:
        Each program as often as it was compiled, under the same names.
    """
    for program in programs.values():  # What JAX imports at first use is nobody's cost.
        jax.eval_shape(program.function, *program.arguments)
    compiled: dict[str, list[Compiled]] = {name: [] for name in programs}
    begin = time.perf_counter()
    for turn in range(effort.compilations):
        if turn and time.perf_counter() - begin > effort.patience:
            break
        for name in _turn(programs, turn):
            jax.clear_caches()
            start = time.perf_counter()
            lowered = programs[name].lower()
            traced = time.perf_counter()
            run = lowered.compile()
            seconds = traced - start, time.perf_counter() - traced
            compiled[name].append(Compiled(run, *seconds, _memory(run)))
    return compiled


def side_by_side(
    rounds: Sequence[Mapping[str, Callable[[], Any]]], effort: Effort
) -> dict[str, list[float]]:
    """Time functions in turns.

    Args:
        rounds: One round after the other, functions without arguments, each of which
            returns arrays. Rounds hold the same functions, compiled anew: short ones
            are faster or slower from one compilation to the next.
        effort: How many samples to take, and how long ones.

    Returns:
        Seconds a call of each function, one for each sample. The samples of two
        functions that stand at the same place make a pair.
    """
    samples: dict[str, list[float]] = {name: [] for name in rounds[0]}
    for runs in rounds:
        for run in runs.values():
            jax.block_until_ready(run())
        calls = _calls(runs, effort.sample)
        gc.collect()
        gc.disable()
        try:
            for turn in range(math.ceil(effort.pairs / len(rounds))):
                for name in _turn(runs, turn):
                    samples[name].append(_sample(runs[name], calls) / calls)
        finally:
            gc.enable()
    return samples


def _calls(runs: Mapping[str, Callable[[], Any]], seconds: float) -> int:
    """Return how many calls of the fastest function take so many seconds."""
    calls = 1
    while True:
        fastest = min(_sample(run, calls) for run in runs.values())
        if fastest >= seconds:
            return calls
        calls = max(2 * calls, int(0.8 * calls * seconds / max(fastest, 1e-9)))


def _sample(run: Callable[[], Any], calls: int) -> float:
    """Return the seconds that so many calls take.

    An accelerator runs its calls one after the other, so it is enough to wait for the
    last, and its kernels rather than the waiting are measured. A CPU may run calls that
    do not depend on one another at the same time, so there each is waited for.
    """
    wait = jax.block_until_ready if jax.default_backend() == "cpu" else _pass
    start = time.perf_counter()
    for _ in range(calls - 1):
        wait(run())
    jax.block_until_ready(run())
    return time.perf_counter() - start


def _pass(x: Any) -> Any:
    return x


def _turn(names: Mapping[str, Any], turn: int) -> list[str]:
    """Return the order of a turn: the one that was last is first in the next."""
    order = list(names)
    return order if turn % 2 == 0 else order[::-1]


def _memory(compiled: Any) -> int | None:
    """Return the bytes that a program needs beside its arguments and its results."""
    analysis = compiled.memory_analysis()
    return None if analysis is None else int(analysis.temp_size_in_bytes)
