"""What is learned from a time limit: rightly, and under each mistake of the guide."""

import numpy as np
import style
from matplotlib.figure import Figure

STATES = np.arange(4.0)  # Of which a walk acts in three; a reset row also in the last.
REWARDS = np.array([1.0, 2.0, 3.0, 0.0])  # The last is that of the reset row.


def learn(
    next_states: list[float], discounts: list[float], extra: float = 0.0
) -> np.ndarray:
    """Return where temporal differences come to rest, for values on a line.

    Args:
        next_states: Next state of each row of an episode, as it is taken to be.
        discounts: Discount of each row, as it is taken to be.
        extra: How often, discounted, the value of the state that the last row acts in
            is added to its reward.

    Returns:
        The values of all states.
    """
    rows = len(next_states)
    features = np.stack([np.ones(4), STATES], 1)[:rows]
    following = np.stack([np.ones(rows), next_states], 1)
    following = following * np.asarray(discounts)[:, None]
    following[-1] += extra * features[-1]
    matrix = features.T @ (features - following)
    intercept, slope = np.linalg.solve(matrix, features.T @ REWARDS[:rows])
    return intercept + slope * STATES


CASES = {
    "as it is": (learn([1, 2, 3], [0.5, 0.5, 0.5]), style.GREEN, "-"),
    "$r + \\gamma V(s)$": (learn([1, 2, 3], [0.5, 0.5, 0], 0.5), style.BLUE, "--"),
    "after a reset": (learn([1, 2, 0], [0.5, 0.5, 0.5]), style.ORANGE, "-."),
    "as the end": (learn([1, 2, 3], [0.5, 0.5, 0]), style.RED, ":"),
    "reset row kept": (learn([1, 2, 3, 0], [0.5] * 4), style.PURPLE, (0, (5, 1, 1, 1))),
}


def draw() -> Figure:
    """Draw the values that are learned, each as a line with its name at the end."""
    figure = style.figure(height=3.0)
    axes = figure.subplots()
    for name, (values, color, dashes) in CASES.items():
        axes.plot(STATES, values, color=color, ls=dashes)
        axes.text(3.08, values[-1], name, color=color, va="center")
    axes.set(xlabel="state", ylabel="value", xticks=STATES, xlim=(-0.1, 4.1))
    axes.set_ylim(0, 10.8)
    axes.grid(axis="y")
    return figure
