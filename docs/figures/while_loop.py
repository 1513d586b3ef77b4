"""Steps used and wasted by a batch of episodes of different lengths."""

import numpy as np
import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

STREAMS, ROOMS = 16, 8


def draw() -> Figure:
    """Draw episodes that wait for the longest one, and streams with resets."""
    random = np.random.default_rng(0)
    first = [walk(random) for _ in range(STREAMS)]
    steps = max(first)
    figure = style.figure(2.6)
    left, right = figure.subplots(1, 2, sharex=True, sharey=True)
    for stream, length in enumerate(first):
        bar(left, stream, 0, length, style.BLUE)
        bar(left, stream, length, steps, (style.INK, 0.15))
    used = np.sum(first) / (steps * STREAMS)
    left.set_title(f"while_loop: {used:.0%} of steps used")
    for stream, length in enumerate(first):
        start, end, color = 0, length, style.BLUE
        while start < steps:
            bar(right, stream, start, min(end, steps), color)
            start, end = end, end + walk(random)
            color = style.GREEN if color == style.BLUE else style.BLUE
    right.set_title("scan with resets: 100%")
    left.set(ylabel="stream", xlim=(0, steps), ylim=(STREAMS - 0.5, -0.5), yticks=[])
    for axes in (left, right):
        axes.set_xlabel("step")
    return figure


def walk(random: np.random.Generator) -> int:
    """Return the number of steps of a random walk to the last room."""
    room, steps = 0, 0
    while room < ROOMS - 1:
        room = max(0, room + random.choice([-1, 1]))
        steps += 1
    return steps


def bar(axes: Axes, stream: int, start: int, end: int, color: object) -> None:
    """Draw a segment of a stream."""
    axes.barh(stream, end - start, left=start, height=0.75, color=color)
