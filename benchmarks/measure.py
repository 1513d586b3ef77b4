"""Measure one case at one size, from every library that has it."""

import contextlib
import dataclasses
import functools
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType

import numpy as np

from benchmarks import programs, timing
from benchmarks.case import Case, MissingFunctionError
from benchmarks.inputs import Size
from benchmarks.timing import Effort, Quartiles

OURS, THEIRS = "rlaxlib", "rlax"


@dataclass(frozen=True)
class Cost:
    """What a program of one library costs.

    Attributes:
        run: Seconds a call.
        trace: Seconds to trace it.
        compile: Seconds to compile it.
        memory: Bytes that it needs beside its arguments and results, if known.
    """

    run: Quartiles
    trace: float
    compile: float
    memory: int | None


@dataclass(frozen=True)
class Row:
    """A line of the table.

    Attributes:
        topic: Topic of the function.
        name: Title of the case.
        size: Its size, as text.
        direction: Which pass: `forward`, `gradient` or `step`.
        costs: Cost from each library, under its name.
        ratio: Time from rlaxlib over time from rlax, pair by pair, if both were timed.
        same_program: Whether both compile to the very same program.
        difference: How far apart the results are, if they can be compared.
    """

    topic: str
    name: str
    size: str
    direction: str
    costs: Mapping[str, Cost]
    ratio: Quartiles | None = None
    same_program: bool = False
    difference: float | None = None

    @property
    def verdict(self) -> str:
        """Return `faster`, `slower` or `even`, or nothing where there is no peer.

        Faster or slower is what lies beyond the noise: three pairs out of four say so.
        The same program is as fast as itself, whatever a clock says.
        """
        if self.ratio is None:
            return ""
        if self.same_program:
            return "even"
        if self.ratio.low > 1:
            return "slower"
        return "faster" if self.ratio.high < 1 else "even"

    @property
    def agrees(self) -> bool:
        """Tell whether the libraries compute the same, as far as is known."""
        return self.difference is None or self.difference <= programs.TOLERANCE


def rows(
    topic: str,
    case: Case,
    size: Size,
    libraries: Mapping[str, ModuleType],
    effort: Effort,
) -> Iterator[Row]:
    """Measure a case at one size, in all its passes.

    Args:
        topic: Topic of the case.
        case: What to measure.
        size: At which size.
        libraries: The libraries at hand, under their names.
        effort: How much time to spend.

    Yields:
        A row for each pass.

    Raises:
        MissingFunctionError: If rlaxlib does not have the function.
    """
    by_library = {OURS: programs.of(case, size, libraries[OURS])}
    for library in libraries.keys() - {OURS}:
        with contextlib.suppress(MissingFunctionError):
            by_library[library] = programs.of(case, size, libraries[library])
    for direction in by_library[OURS]:
        beside = {name: each[direction] for name, each in by_library.items()}
        compiled = timing.compile_all(beside, effort)
        rounds = [
            {
                name: functools.partial(each.run, *beside[name].arguments)
                for name, each in zip(compiled, turn, strict=True)
            }
            for turn in zip(*compiled.values(), strict=True)
        ]
        seconds = timing.side_by_side(rounds, effort)
        costs = {
            name: Cost(
                Quartiles.of(seconds[name]),
                statistics.median(each.trace for each in turns),
                statistics.median(each.compile for each in turns),
                turns[0].memory,
            )
            for name, turns in compiled.items()
        }
        row = Row(topic, case.title, size.label(case.axes), direction, costs)
        if THEIRS not in beside:
            yield row
            continue
        prints = {programs.fingerprint(turns[0].run) for turns in compiled.values()}
        runs = rounds[0]
        ratios = np.divide(seconds[OURS], seconds[THEIRS])
        yield dataclasses.replace(
            row,
            ratio=Quartiles.of(ratios.tolist()),
            same_program=len(prints) == 1,
            difference=None
            if case.random
            else programs.difference(runs[OURS](), runs[THEIRS]()),
        )
