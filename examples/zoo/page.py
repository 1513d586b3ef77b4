"""The page of the zoo: a curve and a row of numbers for each algorithm."""

import re
import tomllib
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from zoo.training import FAULTS, Entry

DOCS = Path(__file__).parents[2] / "docs"
PAGE, CURVES = DOCS / "zoo.md", DOCS / "zoo"
FACTS = tomllib.loads((DOCS / "algorithms.toml").read_text(encoding="utf-8"))
HEADER = """
| Algorithm | Curve | At least | Worst | Median | Falls without | Seconds |
|---|---|---:|---:|---:|---|---:|
"""
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


def row(name: str, entry: Entry, curves: np.ndarray, seconds: float) -> str:
    """Return the row of a recipe."""
    reached = curves[:, -1]
    cells = [
        _link(name, entry.recipe),
        f"![Learning curve of {name}](zoo/{name}.svg)",
        *(f"{x:.2f}" for x in (entry.states, reached.min(), np.median(reached))),
        ", ".join([*(WORDS[each] for each in entry.fails), *entry.without]),
        f"{seconds:.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def task(entry: Entry) -> str:
    """Return the line about the task of an entry."""
    numbers = f"Random {entry.random:.2f}, best possible {entry.best:.2f}."
    return f"{entry.about}. {numbers}"


def write(families: dict[str, dict[str, Entry]], rows: dict[str, str]) -> None:
    """Write new rows into the page, beside those that it has already."""
    introduction, _, tables = PAGE.read_text(encoding="utf-8").partition("\n## ")
    found = re.findall(r"^(\| .*?\(algorithms/(\w+)\.md\).*)", tables, re.M)
    known = {name: line for line, name in found} | rows
    parts = [introduction]
    for family, entries in families.items():
        parts.append(f"\n## {_section(family)}\n")
        tasks: dict[str, list[str]] = {}
        for name, entry in entries.items():
            if name in known:
                tasks.setdefault(task(entry), []).append(known[name] + "\n")
        for each, lines in tasks.items():
            parts += [f"\n{each}\n{HEADER}", *lines]
    PAGE.write_text("".join(parts), encoding="utf-8")


def _section(family: str) -> str:
    """Return the title of the section of a family."""
    return FACTS["families"][family]


def _link(name: str, recipe: str) -> str:
    """Return the title of an algorithm, as a link to its page, and its functions."""
    known = {}
    for file in FACTS["algorithms"].values():
        known |= file
    title = known.get(name, {"title": name})["title"].partition(":")[0]
    functions = [each.rpartition(".")[2] for each in recipe.split(", ")]
    listed = ", ".join(f"`{each}`" for each in functions)
    return f"[{title}](algorithms/{name}.md) {listed}"
