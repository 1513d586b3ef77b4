"""Write what was measured: as tables to read, and as JSON to compute with."""

import dataclasses
import json
import math
import pathlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.imports import Import
from benchmarks.measure import OURS, THEIRS, Row
from benchmarks.timing import Effort

NO_PEER = (
    f"**{THEIRS} is not installed: these are the times of {OURS} alone, and there is "
    "nothing to compare them with.**"
)

_HEADER = (
    "function",
    "size",
    "pass",
    "run, µs",
    "ratio",
    "quartiles",
    "trace, ms",
    "compile, ms",
    "temporary, KiB",
    "",
)


@dataclass
class Report:
    """All that a run of the benchmarks has found.

    Attributes:
        machine: On what, with what and when it was measured.
        effort: How much time was spent on each row.
        peer: Whether rlax was there to compare with.
        rows: What was measured.
        imports: What importing the libraries costs.
        skipped: Cases that were not measured, and why.
    """

    machine: Mapping[str, str]
    effort: Effort
    peer: bool
    rows: list[Row] = field(default_factory=list[Row])
    imports: list[Import] = field(default_factory=list[Import])
    skipped: dict[str, str] = field(default_factory=dict[str, str])

    def summary(self) -> str:
        """Return the whole run in one line."""
        measured = f"{len(self.rows)} rows"
        if self.skipped:
            measured += f", {len(self.skipped)} skipped"
        compared = [row for row in self.rows if row.ratio is not None]
        if not compared:
            return f"{measured}; nothing to compare with."
        count = {
            verdict: sum(row.verdict == verdict for row in compared)
            for verdict in ("faster", "even", "slower")
        }
        pairs = [(row.costs[OURS], row.costs[THEIRS]) for row in compared]
        run = _mean(row.ratio.median for row in compared if row.ratio)
        trace = _mean(ours.trace / theirs.trace for ours, theirs in pairs)
        compiling = _mean(ours.compile / theirs.compile for ours, theirs in pairs)
        return (
            f"{measured}; {len(compared)} beside {THEIRS}: {count['faster']} faster, "
            f"{count['even']} even, {count['slower']} slower; on average {run:.2f} "
            f"of {THEIRS}'s time to run, {trace:.2f} to trace and {compiling:.2f} to "
            "compile."
        )

    def markdown(self) -> str:
        """Return the tables."""
        about = [f"- {name}: {value}" for name, value in self.machine.items()]
        parts = [
            f"# {OURS} beside {THEIRS}, on {self.machine['device']}",
            *([] if self.peer else [NO_PEER]),
            self.summary(),
            "\n".join(about),
            f"A cell with two numbers holds {OURS}'s first and {THEIRS}'s second. A "
            f"ratio is {OURS}'s time over {THEIRS}'s: the median over "
            f"{self.effort.pairs} pairs, and its quartiles. A row is called *faster* "
            "or *slower* if both quartiles lie on that side of 1.",
        ]
        for topic in dict.fromkeys(row.topic for row in self.rows):
            rows = [row for row in self.rows if row.topic == topic]
            parts += [f"## {topic.capitalize()}", _table(_HEADER, map(_cells, rows))]
        if self.imports:
            header = ("library", "over JAX, ms", "quartiles", "modules")
            parts += ["## Import", _table(header, map(_import_cells, self.imports))]
        if self.skipped:
            lines = [f"- `{name}`: {why}" for name, why in self.skipped.items()]
            parts += ["## Skipped", "\n".join(lines)]
        return "\n\n".join(parts) + "\n"

    def json(self) -> str:
        """Return everything as JSON; times are in seconds, memory in bytes."""
        content = {
            "summary": self.summary(),
            "machine": dict(self.machine),
            "effort": self.effort._asdict(),
            "peer": self.peer,
            "rows": [_plain(row) for row in self.rows],
            "imports": [
                {**dataclasses.asdict(each), "time": each.time._asdict()}
                for each in self.imports
            ],
            "skipped": self.skipped,
        }
        return json.dumps(content, indent=1) + "\n"

    def write(self, folder: pathlib.Path, name: str) -> None:
        """Write the tables and the JSON.

        Args:
            folder: Where to; made if it is not there.
            name: Name of both files, without an ending.
        """
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.md").write_text(self.markdown(), encoding="utf-8")
        (folder / f"{name}.json").write_text(self.json(), encoding="utf-8")


def line(row: Row) -> str:
    """Return a row as one line for a terminal."""
    name, size, direction, run, ratio, quartiles, _, compiling, _, note = _cells(row)
    return (
        f"{name.strip('`'):52} {size:18} {direction:8} run {run:>13} µs {ratio:>6} "
        f"{quartiles:>10}  compile {compiling:>12} ms  {note.replace('*', '')}"
    )


def _cells(row: Row) -> tuple[str, ...]:
    costs = [row.costs[name] for name in (OURS, THEIRS) if name in row.costs]
    memory = [each.memory for each in costs]
    return (
        f"`{row.name}`",
        row.size,
        row.direction,
        " / ".join(_number(each.run.median * 1e6) for each in costs),
        f"{row.ratio.median:.2f}" if row.ratio else "",
        f"{row.ratio.low:.2f}-{row.ratio.high:.2f}" if row.ratio else "",
        " / ".join(_number(each.trace * 1e3) for each in costs),
        " / ".join(_number(each.compile * 1e3) for each in costs),
        " / ".join("?" if m is None else _number(m / 1024) for m in memory),
        _note(row),
    )


def _note(row: Row) -> str:
    """Return what else there is to say of a row."""
    notes: list[str] = []
    if row.verdict == "slower":
        notes.append("**slower**")
    elif row.verdict == "faster":
        notes.append("faster")
    if row.same_program:
        notes.append("same program")
    if not row.agrees:
        notes.append("results differ")
    return ", ".join(notes)


def _import_cells(each: Import) -> tuple[str, ...]:
    low, median, high = (_number(1e3 * time) for time in each.time)
    return f"`import {each.library}`", median, f"{low}-{high}", str(each.modules)


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table in Markdown."""
    header = list(header)
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _number(x: float) -> str:
    """Return a number with three digits that matter."""
    digits = max(0, 2 - math.floor(math.log10(x))) if x > 0 else 0
    return f"{x:.{min(digits, 2)}f}"


def _mean(ratios: Iterable[float]) -> float:
    """Return the geometric mean, in which 2 and 1/2 cancel."""
    return float(np.exp(np.mean(np.log(list(ratios)))))


def _plain(row: Row) -> dict[str, Any]:
    """Return a row as JSON can hold it."""
    costs = {
        name: {**dataclasses.asdict(cost), "run": cost.run._asdict()}
        for name, cost in row.costs.items()
    }
    infinite = row.difference is not None and math.isinf(row.difference)
    return {
        **dataclasses.asdict(row),
        "costs": costs,
        "ratio": row.ratio._asdict() if row.ratio else None,
        "difference": "inf" if infinite else row.difference,
        "verdict": row.verdict,
    }
