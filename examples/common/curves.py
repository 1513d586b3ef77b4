"""Output of learning curves: a table, a CSV file and a plot."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from cycler import cycler
from matplotlib.figure import Figure

INK = "#787b83"
COLORS = (
    *("#2f7fd6", "#d97b1f", "#2f9467", "#d6455d", "#8f6bd6"),
    *("#a8763e", "#d06bb0", "#2a9fb0"),
)
STYLE = {  # Transparent, and legible on light pages and on dark ones.
    "axes.edgecolor": INK,
    "axes.facecolor": "none",
    "axes.labelcolor": INK,
    "axes.prop_cycle": cycler(color=COLORS),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "figure.facecolor": "none",
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "savefig.facecolor": "none",
    "svg.fonttype": "path",
    "svg.hashsalt": "rlaxlib",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}

Curve = Sequence[Any]  # Named tuples of one type, with fields x, y, y, ...


def report(
    curves: Curve | Mapping[str, Curve],
    title: str,
    folder: str,
    ylabel: str = "average return",
    figure: Figure | None = None,
) -> None:
    """Print learning curves, and write them as CSV and as a plot.

    Args:
        curves: A curve, or a dictionary of named curves.
        title: Title of the plot.
        folder: Folder for `curve.csv` and `curve.svg`, created if missing.
        ylabel: Label of the vertical axis.
        figure: Plot to write; or None for lines over the first field.
    """
    named = curves if isinstance(curves, Mapping) else {"": curves}
    rows = [(name, *row) for name, curve in named.items() for row in curve]
    header = ["curve", *next(iter(named.values()))[0]._fields]
    if not isinstance(curves, Mapping):  # A single curve has no name.
        header, rows = header[1:], [row[1:] for row in rows]

    _print(header, rows)
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    with open(path / "curve.csv", "w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    figure = figure or _plot(named, title, ylabel)
    save(figure, path / "curve.svg")
    print(f"Learning curve: {path / 'curve.csv'}, {path / 'curve.svg'}")


def save(figure: Figure, path: Path) -> None:
    """Write a figure as SVG, which is the same each time."""
    with mpl.rc_context(STYLE):
        figure.savefig(path, metadata={"Date": None})


def _print(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    cells = [header, *([_format(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        print("  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)))


def _format(value: Any) -> str:
    return f"{value:+.2f}" if isinstance(value, float) else str(value)


@mpl.rc_context(STYLE)
def _plot(curves: Mapping[str, Curve], title: str, ylabel: str) -> Figure:
    figure = Figure(layout="constrained")  # Without pyplot, no display is needed.
    axes = figure.subplots()
    for name, curve in curves.items():
        (x_name, *y_names), (x, *ys) = curve[0]._fields, zip(*curve, strict=True)
        for y_name, y in zip(y_names, ys, strict=True):
            label = ", ".join(filter(None, [name, y_name.replace("_", " ")]))
            axes.plot(x, y, label=label)
        axes.set_xlabel(x_name)
    axes.set(ylabel=ylabel, title=title)
    axes.legend()
    return figure
