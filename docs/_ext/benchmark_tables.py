"""What the benchmarks found, from the files that they write to `benchmarks/tables`."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from library import collapsed, linked, table

TABLES = Path(__file__).parents[2] / "benchmarks" / "tables"
OURS, THEIRS = "rlaxlib", "rlax"
VERDICTS = ("faster", "even", "slower")


def device(name: str) -> str:
    """Return what was found on one device, in Markdown.

    Args:
        name: Name of its file, without an ending.
    """
    found = json.loads((TABLES / f"{name}.json").read_text(encoding="utf-8"))
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in found["rows"]:
        rows.setdefault(row["topic"], []).append(row)
    machine = found["machine"]
    kind = (
        machine["device"].upper() if machine["device"] == "cpu" else machine["device"]
    )
    about = "; ".join(f"{key} {value}" for key, value in machine.items())
    parts = [
        f"## {kind}",
        found["summary"],
        f"Measured on: {about}.",
        _summary(rows),
        *(_topic(topic, each) for topic, each in rows.items()),
        _imports(found["imports"]),
    ]
    return "\n\n".join(parts)


def devices() -> str:
    """Return what was found on all devices, the CPU first."""
    names = sorted(path.stem for path in TABLES.glob("*.json"))
    return "\n\n".join(device(name) for name in sorted(names, key="cpu".__ne__))


def compared(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows in which both libraries were timed."""
    return [row for row in rows if row["ratio"]]


def _summary(rows: dict[str, list[dict[str, Any]]]) -> str:
    """Return a line for each topic: how many are faster, and the mean ratio."""
    lines: list[str] = []
    for topic, each in rows.items():
        beside = compared(each)
        if beside:
            count = [sum(row["verdict"] == name for row in beside) for name in VERDICTS]
            ratios = [row["ratio"]["median"] for row in beside]
            mean = math.exp(np.mean(np.log(ratios)))
            lines.append("|".join([topic, *map(str, count), f"{mean:.2f}"]))
    return table("|".join(["topic", *VERDICTS, "mean ratio"]), lines)


def _topic(topic: str, rows: list[dict[str, Any]]) -> str:
    header = f"|{OURS}, µs|{THEIRS}, µs|ratio"
    return collapsed(f"{topic}: {len(rows)}", table(header, map(_line, rows)))


def _line(row: dict[str, Any]) -> str:
    costs = row["costs"]
    ours, theirs = (
        _number(1e6 * costs[name]["run"]["median"]) if name in costs else ""
        for name in (OURS, THEIRS)
    )
    ratio = f"{row['ratio']['median']:.2f}" if row["ratio"] else ""
    verdict = "same program" if row["same_program"] else row["verdict"]
    if verdict not in ("", "even"):
        ratio = f"{ratio}, {verdict}"
    what = f"{linked('`' + row['name'] + '`')} {row['direction']}, {row['size']}"
    return "|".join([what, ours, theirs, ratio])


def _imports(imports: list[dict[str, Any]]) -> str:
    rows = (
        f"`import {each['library']}`|{_number(1e3 * each['time']['median'])}"
        f"|{each['modules']}"
        for each in imports
    )
    return table("|over JAX, ms|modules", rows)


def _number(x: float) -> str:
    """Return a number with three digits that matter."""
    return f"{x:.{max(0, 2 - math.floor(math.log10(x)))}f}"
