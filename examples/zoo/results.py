"""What the algorithms of the zoo reach: a curve and numbers of each.

The manual shows them by `docs/_templates/zoo.md`.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from zoo.training import FAULTS, Entry

CURVES = Path(__file__).parents[2] / "docs/zoo"
RESULTS = Path(__file__).parent / "results.json"
WORDS = {"reward": "reward", "bootstrap": "bootstrap", "gradient": "stop-gradient"}
assert WORDS.keys() == FAULTS.keys()

STYLE = {"svg.fonttype": "none", "svg.hashsalt": "zoo", "figure.facecolor": "none"}
BLUE, INK = "#2f7fd6", "#787b83"  # Legible on light pages and on dark ones.


def draw(name: str, entry: Entry, curves: np.ndarray) -> None:
    """Draw the curves of the seeds, [5, points], into a small picture."""
    CURVES.mkdir(exist_ok=True)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(1.6, 0.7))
        axes = figure.add_axes((0, 0.04, 1, 0.92))
        axes.set_axis_off()
        axes.axhline(entry.random, color=INK, linestyle=":", linewidth=1)
        axes.axhline(entry.best, color=INK, linestyle="--", linewidth=1)
        x = np.arange(curves.shape[1])
        axes.fill_between(x, curves.min(0), curves.max(0), color=BLUE, alpha=0.25, lw=0)
        axes.plot(x, np.median(curves, axis=0), color=BLUE, linewidth=1.5)
        figure.savefig(CURVES / f"{name}.svg", metadata={"Date": None})


def about(family: str, entry: Entry) -> dict[str, Any]:
    """Return what an entry states of itself."""
    file = entry.recipe.partition(".")[0]
    names = [each.rpartition(".")[2] for each in entry.recipe.split(", ")]
    numbers = f"Random {entry.random:.2f}, best possible {entry.best:.2f}."
    return {
        "family": family,
        "functions": [f"{file}.{name}" for name in names],
        "task": f"{entry.about}. {numbers}",
        "fails": [*(WORDS[each] for each in entry.fails), *entry.without],
        "states": entry.states,
    }


def reached(curves: np.ndarray, seconds: float) -> dict[str, Any]:
    """Return what the seeds reached, and in what time."""
    last = curves[:, -1]
    return {
        "worst": round(float(last.min()), 2),
        "median": round(float(np.median(last)), 2),
        "seconds": round(seconds),
    }


def write(names: Iterable[str], results: dict[str, Any]) -> None:
    """Write new results beside those that are known, a line each, in order."""
    known = json.loads(RESULTS.read_text(encoding="utf-8")) | results
    lines = [
        f'"{name}": {json.dumps(known[name], ensure_ascii=False)}'
        for name in names
        if name in known
    ]
    RESULTS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
