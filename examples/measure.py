"""Measure the returns of the examples over several seeds, for the table in README.md.

    python examples/measure.py                      # all; an hour on two cores
    python examples/measure.py dqn c51 --seeds=10   # some, with more seeds

Each run is a separate process with the example's command line, one after the other. The
table has the last point of the learning curves, between the two marks in `README.md`.
`curves/` gets a plot over seeds for each example. An example whose curves average many
runs is run once, and keeps its own plot.
"""

import csv
import dataclasses
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import matplotlib as mpl
import numpy as np
from absl import app, flags
from common import curves
from matplotlib.figure import Figure

FOLDER = Path(__file__).parent
README, CURVES = FOLDER / "README.md", FOLDER / "curves"
START, END = "<!-- measured: start -->\n", "<!-- measured: end -->\n"
HEADER = "| example | description | curve | median | worst | seeds | seconds |\n"
RULE = "|---|---|---|---:|---:|---:|---:|\n"

MEANS = {"bandits"}  # Examples whose curves average many runs.

SEEDS = flags.DEFINE_integer("seeds", 5, "Number of seeds per example.")


@dataclasses.dataclass(frozen=True)
class Run:
    """Learning curves and wall time of a run of an example."""

    curves: dict[str, np.ndarray]  # [points, 2]: x and evaluation return.
    x_name: str
    seconds: float
    y_name: str
    picture: bytes  # The example's own plot.


def main(argv: list[str]) -> None:
    """Measure the examples named on the command line, or all examples."""
    names = argv[1:] or sorted(path.stem for path in FOLDER.glob("*.py"))
    for name in names:
        if (FOLDER / f"{name}.py").samefile(__file__):
            continue
        seeds = 1 if name in MEANS else SEEDS.value
        runs = [run(name, seed) for seed in range(seeds)]
        plot(name, runs)
        write(name, lines(name, runs))
        print(lines(name, runs), end="", flush=True)


def run(name: str, seed: int) -> Run:
    """Run an example in a separate process."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        command = [sys.executable, FOLDER / f"{name}.py"]
        subprocess.run(
            [*command, f"--seed={seed}", f"--output={folder}"],
            check=True,
            capture_output=True,
        )
        seconds = time.perf_counter() - start
        with open(Path(folder) / "curve.csv", newline="") as file:
            header, *rows = csv.reader(file)
        picture = (Path(folder) / "curve.svg").read_bytes()
    several = header[0] == "curve"
    found: dict[str, list[list[float]]] = {}
    for row in rows:
        label = row[0] if several else ""
        found.setdefault(label, []).append([float(row[several]), float(row[-1])])
    arrays = {label: np.asarray(curve) for label, curve in found.items()}
    return Run(arrays, header[several], seconds, header[-1], picture)


@mpl.rc_context(curves.STYLE)
def plot(name: str, runs: list[Run]) -> None:
    """Plot the median over seeds, and the range from the worst to the best."""
    CURVES.mkdir(exist_ok=True)
    if name in MEANS:
        (CURVES / f"{name}.svg").write_bytes(runs[0].picture)
        return
    figure = Figure(figsize=(4, 2.5), layout="constrained")
    axes = figure.subplots()
    for label in runs[0].curves:
        seeds = np.stack([each.curves[label] for each in runs])
        x, returns = seeds[0, :, 0], seeds[:, :, 1]
        (line,) = axes.plot(x, np.median(returns, axis=0), label=label)
        low, high = returns.min(axis=0), returns.max(axis=0)
        axes.fill_between(x, low, high, alpha=0.2, color=line.get_color(), linewidth=0)
    y_name = runs[0].y_name.replace("eval", "evaluation").replace("train", "training")
    axes.set(xlabel=runs[0].x_name, ylabel=y_name.replace("_", " "))
    axes.locator_params(axis="x", nbins=5)  # Avoids overlapping tick labels.
    if len(runs[0].curves) > 1:
        axes.legend()
    curves.save(figure, CURVES / f"{name}.svg")


def lines(name: str, runs: list[Run]) -> str:
    """Return the table rows of an example, one per learning curve."""
    source = (FOLDER / f"{name}.py").read_text()
    shows = re.match(r'r?"""(.*?)\.?\n', source).group(1)
    seconds = np.median([each.seconds for each in runs])
    rows = []
    for label in runs[0].curves:
        final = [each.curves[label][-1, 1] for each in runs]
        title = f"[`{name}`]({name}.py)" + (f", {label}" if label else "")
        rows.append(
            f"| {title} | {shows} | [curve](curves/{name}.svg) "
            f"| {np.median(final):+.2f} | {min(final):+.2f} "
            f"| {len(runs)} | {seconds:.0f} |\n"
        )
    return "".join(rows)


def write(name: str, new: str) -> None:
    """Replace the rows of an example in README.md."""
    before, rest = README.read_text().split(START)
    table, after = rest.split(END)
    old = table.removeprefix("\n" + HEADER + RULE).splitlines(keepends=True)
    kept = [row for row in old if row.strip() and not row.startswith(f"| [`{name}`]")]
    rows = "".join(sorted(kept + new.splitlines(keepends=True)))
    README.write_text(f"{before}{START}\n{HEADER}{RULE}{rows}\n{END}{after}")


if __name__ == "__main__":
    app.run(main)
