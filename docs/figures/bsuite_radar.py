"""The scores of agents on bsuite, averaged by tag, beside those of bsuite.

An agent is left out while its sweep is not complete.
"""

import json
from pathlib import Path

import numpy as np
import style
from matplotlib.figure import Figure

FOLDER = Path(__file__).parents[2] / "examples" / "bsuite_sweep"


Experiments = dict[str, list[str]]  # Their tags.


def draw() -> Figure:
    """Draw two polygons for each agent, with a corner for each tag."""
    scores, published = (
        json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("scores", "published")
    )
    experiments = {name: x["tags"] for name, x in scores["dqn"].items()}
    tags = sorted({tag for each in experiments.values() for tag in each})
    angles = 2 * np.pi * np.arange(len(tags) + 1) / len(tags)
    figure = Figure(figsize=(style.WIDTH, 3.7))
    axes = figure.subplots(subplot_kw={"polar": True})
    for name, runs in scores.items():
        if len(runs) < len(experiments):
            continue  # Averages would be those of other experiments.
        ours = {experiment: x["score"] for experiment, x in runs.items()}
        corners = averages(ours, experiments, tags)
        [line] = axes.plot(angles, corners, label=name.replace("_", " "))
        color = line.get_color()
        axes.fill(angles, corners, color=(color, 0.12), lw=0)
        corners = averages(published[name], experiments, tags)
        axes.plot(angles, corners, ":", color=color, lw=1.5)
    axes.set(ylim=(0, 1), yticks=(0.25, 0.5, 0.75, 1.0))
    labels = [tag.replace("_", "\n") for tag in tags]
    axes.set_thetagrids(np.rad2deg(angles[:-1]), labels)
    axes.tick_params("x", pad=8)
    axes.tick_params("y", labelsize="x-small")
    axes.grid(color=style.INK, alpha=0.3)
    axes.set_position((0.2, 0.12, 0.5, 0.76))
    figure.legend(loc="lower right", fontsize="small")
    return figure


def averages(
    scores: dict[str, float], experiments: Experiments, tags: list[str]
) -> list[float]:
    """Return the average score of each tag, and the first once more."""
    corners = [
        float(np.mean([scores[name] for name, x in experiments.items() if tag in x]))
        for tag in tags
    ]
    return [*corners, corners[0]]
