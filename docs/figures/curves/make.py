"""Measure the returns of the examples over several seeds, and draw their curves.

    python docs/figures/curves/make.py                      # Draw all curves.
    python docs/figures/curves/make.py --seeds 5            # Run what is missing, too.
    python docs/figures/curves/make.py --names dqn --seeds 10

Each run is a separate process, one after the other. `NAME.csv` beside this script has
the curves of an example, for each variant and seed, and `NAME.svg` their median and
range over seeds. The table of `examples/README.md` has the last points.
"""

import csv
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib as mpl
import numpy as np
import tyro
from matplotlib.figure import Figure

FOLDER = Path(__file__).parent
EXAMPLES = FOLDER.parents[2] / "examples"
NAMES = tuple(sorted(path.stem for path in EXAMPLES.glob("*.py")))
README = EXAMPLES / "README.md"
START, END = "<!-- measured: start -->\n", "<!-- measured: end -->\n"
HEADER = "| example | median | worst | seeds |\n|---|---:|---:|---:|\n"
LOSSES = {"QR-DQN": ("qr_dqn", "21"), "ER-DQN": ("er_dqn", "11")}
METHODS = {"RND": "rnd", "NGU": "ngu", "counts": "count"}

# Flags of the variants of an example; by default there is one without flags.
VARIANTS = {
    "deep_sea_bonuses": {name: ("--method", x) for name, x in METHODS.items()},
    "distributional_dqn": {"C51": ()}
    | {name: ("--loss", x, "--num-outputs", n) for name, (x, n) in LOSSES.items()},
    "iql_agent": {"IQL": (), "BC": ("--bc",)},
    "pop_art": {"with PopArt": (), "without": ("--no-popart",)},
    "qmix": {"QMIX": (), "VDN": ("--mixing-units", "0")},
}


def main(names: tuple[str, ...] = NAMES, seeds: int = 0) -> None:
    """Run what is missing up to a number of seeds, draw the curves, write the table.

    Args:
        names: Examples.
        seeds: Number of seeds, from 0. `bandits`, an average of many runs, needs one.
    """
    for seed in range(seeds):
        for name in names:
            for variant, flags in VARIANTS.get(name, {"": ()}).items():
                known = {(row[0], row[1]) for row in read(name)[1:]}
                once = name == "bandits" and known
                if not once and (variant, str(seed)) not in known:
                    run(name, variant, flags, seed)
    for name in names:
        if path(name, "csv").exists():
            draw(name)
    write_table()


def path(name: str, kind: str) -> Path:
    """Return the path of the curves of an example."""
    return FOLDER / f"{name}.{kind}"


def read(name: str) -> list[list[str]]:
    """Return the header and the rows of the curves of an example, if there are any."""
    if not path(name, "csv").exists():
        return []
    with open(path(name, "csv"), newline="") as file:
        return list(csv.reader(file))


def run(name: str, variant: str, flags: tuple[str, ...], seed: int) -> None:
    """Run an example in an empty folder, and add its curve to its file."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, EXAMPLES / f"{name}.py", "--seed", str(seed), *flags]
        subprocess.run(command, check=True, capture_output=True, cwd=folder)
        with open(Path(folder) / f"{name}.csv", newline="") as file:
            (x_name, *columns), *rows = csv.reader(file)
    header = ["variant", "seed", x_name, columns[0]]
    lines = [[variant, seed, row[0], row[1]] for row in rows]
    if name == "bandits":
        header[-1] = "regret"
        lines = [
            [policy, seed, row[0], row[1 + i]]
            for i, policy in enumerate(columns)
            for row in rows
        ]
    old = read(name) or [header]
    with open(path(name, "csv"), "w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([*old, *lines])
    print(name, variant, seed, lines[-1][-1], flush=True)


def curves(name: str) -> dict[str, np.ndarray]:
    """Return the curves of an example by variant, [seeds, points, 2]."""
    found: dict[str, dict[str, list[list[float]]]] = {}
    for variant, seed, x, y in read(name)[1:]:
        points = found.setdefault(variant, {}).setdefault(seed, [])
        points.append([float(x), float(y)])
    return {key: np.array(list(each.values())) for key, each in found.items()}


def draw(name: str) -> None:
    """Draw the median over seeds, and the range from the worst to the best."""
    sys.path.insert(0, str(FOLDER.parent))
    import style  # noqa: PLC0415 - From the folder above.

    with mpl.rc_context({**mpl.rcParamsDefault, **style.SETTINGS}):
        figure = Figure(figsize=(4, 2.5), layout="constrained")
        axes = figure.subplots()
        if name == "bandits":
            figure.set_figwidth(style.WIDTH)
            axes.set(xscale="log", yscale="log", xlim=(10, 10_000), ylim=(1, 1000))
            # The theoretical rates come last.
            colors = [*style.COLORS, "#a87b4f", "#d66bb0", "#2fa5a5", *3 * [style.INK]]
            axes.set_prop_cycle(color=colors, linestyle=[*8 * ["-"], "--", ":", "-."])
        for label, seeds in curves(name).items():
            x, y = seeds[0, :, 0], seeds[:, :, 1]
            (line,) = axes.plot(x, np.median(y, axis=0), label=label)
            color = line.get_color()
            axes.fill_between(
                x, y.min(0), y.max(0), alpha=0.2, color=color, linewidth=0
            )
        *_, x_name, y_name = read(name)[0]
        axes.set(xlabel=x_name, ylabel=y_name)
        if name == "bandits":
            figure.legend(fontsize="small", loc="outside right center")
        else:
            axes.locator_params(axis="x", nbins=5)  # Avoids overlapping tick labels.
            if len(axes.lines) > 1:
                axes.legend(fontsize="small")
        figure.savefig(path(name, "svg"), metadata={"Date": None})


def write_table() -> None:
    """Write the last points of all curves into the README of the examples."""
    rows = []
    for name in NAMES:
        for variant, seeds in curves(name).items():
            last = seeds[:, -1, 1]
            title = f"[`{name}`]({name}.py)" + f", {variant}" * bool(variant)
            median, worst = f"{np.median(last):.4g}", f"{np.min(last):.4g}"
            rows.append(f"| {title} | {median} | {worst} | {len(last)} |\n")
    before, rest = README.read_text("utf-8").split(START)
    _, after = rest.split(END)
    table = "".join([HEADER, *rows])
    README.write_text(f"{before}{START}\n{table}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    tyro.cli(main)
