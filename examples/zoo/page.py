"""The page of the zoo: a curve and a row of numbers for each recipe."""

import re
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from zoo.training import FAULTS, Entry

DOCS = Path(__file__).parents[2] / "docs"
PAGE, CURVES = DOCS / "zoo.md", DOCS / "zoo"
HEADER = """
| Recipe | Curve | States | Worst | Median | Falls without | Seconds |
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
        f"{_link(entry.recipe)} `{name}`",
        f"![Learning curve of {name}](zoo/{name}.svg)",
        *(f"{x:.2f}" for x in (entry.states, reached.min(), np.median(reached))),
        ", ".join(WORDS[each] for each in entry.fails),
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
    found = [line for line in tables.split("\n") if "`" in line]
    known = {re.findall("`(.+?)`", line)[0]: line for line in found} | rows
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


def _recipes() -> str:
    return (DOCS / "recipes.md").read_text(encoding="utf-8")


def _section(family: str) -> str:
    """Return the title of the section of recipes that a file has."""
    before = _recipes().partition(f"recipes/{family}.py")[0]
    return re.findall("^## (.+)", before, re.M)[-1]


def _link(recipe: str) -> str:
    """Return the title of a recipe, as a link to it."""
    file, first = re.match(r"(\w+)\.(\w+)", recipe).groups()
    before = re.split(rf"recipes/{file}\.py\n:pyobject: {first}\n", _recipes())[0]
    title = re.findall("^### (.+)", before, re.M)[-1]
    slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
    return f"[{title}](recipes.md#{slug})"
