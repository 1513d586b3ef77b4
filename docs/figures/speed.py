"""How fast everything is beside rlax, on a CPU: all ratios, sorted."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import style
from matplotlib.figure import Figure

TABLE = Path(__file__).parents[2] / "benchmarks" / "tables" / "cpu.json"
COLOURS = {"forward": style.BLUE, "gradient": style.ORANGE, "step": style.PURPLE}
TICKS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)


def compared() -> list[dict[str, Any]]:
    """Return the rows in which both libraries were timed."""
    rows = json.loads(TABLE.read_text(encoding="utf-8"))["rows"]
    return [row for row in rows if row["ratio"]]


def draw() -> Figure:
    """Draw a dot for each ratio, with a line between its quartiles."""
    figure = style.figure(3.2)
    axes = figure.subplots()
    rows = sorted(compared(), key=lambda row: row["ratio"]["median"])
    axes.axhline(1, color=style.INK, linewidth=1)
    for direction, color in COLOURS.items():
        chosen = [i for i, row in enumerate(rows) if row["direction"] == direction]
        low, median, high = np.array(
            [
                [rows[i]["ratio"][key] for key in ("low", "median", "high")]
                for i in chosen
            ]
        ).T
        axes.vlines(chosen, low, high, color=color, linewidth=0.8, alpha=0.6)
        axes.scatter(chosen, median, s=5, color=color, linewidth=0, label=direction)
    axes.set_yscale("log")
    axes.set_yticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axes.minorticks_off()
    axes.set(xlabel=f"{len(rows)} comparisons, sorted", ylabel="time / time of rlax")
    axes.text(0, 1.1, "slower than rlax", va="bottom")
    axes.text(len(rows), 0.9, "faster", va="top", ha="right")
    axes.legend(loc="lower right", markerscale=2)
    return figure
