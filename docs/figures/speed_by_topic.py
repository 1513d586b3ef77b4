"""How fast each topic is beside rlax, on a CPU."""

import numpy as np
import speed
import style
from matplotlib.figure import Figure


def draw() -> Figure:
    """Draw a line of dots for each topic, and a mark at their mean."""
    figure = style.figure(4.2)
    axes = figure.subplots()
    rows = speed.compared()
    topics = list(dict.fromkeys(row["topic"] for row in rows))[::-1]
    axes.axvline(1, color=style.INK, linewidth=1)
    for height, topic in enumerate(topics):
        own = [row for row in rows if row["topic"] == topic]
        ratios = np.array([row["ratio"]["median"] for row in own])
        colors = [speed.COLOURS[row["direction"]] for row in own]
        apart = 0.25 * np.resize([-1, 1, 0], len(own))  # So that few dots hide others.
        axes.scatter(ratios, height + apart, s=7, c=colors, alpha=0.7, linewidth=0)
        mean = np.exp(np.log(ratios).mean())
        axes.vlines(mean, height - 0.4, height + 0.4, color=style.INK, linewidth=2)
    axes.set_xscale("log")
    axes.set_xticks(speed.TICKS, [f"{tick:g}" for tick in speed.TICKS])
    axes.minorticks_off()
    axes.set_yticks(range(len(topics)), topics)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    axes.set(xlabel="time / time of rlax; a bar is the mean")
    return figure
