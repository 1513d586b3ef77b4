"""Values learned with a time limit: correct, and under each mistake of the guide."""

import numpy as np
import style
from matplotlib.figure import Figure

STATES = np.arange(4.0)  # Actions are taken in the first three.
REWARDS = np.array([1.0, 2.0, 3.0, 0.0])  # The last is of the reset step.


def learn(
    next_states: list[float], discounts: list[float], extra: float = 0.0
) -> np.ndarray:
    """Return the TD fixed point for values linear in the state.

    Args:
        next_states: Assumed next state of each time step of an episode.
        discounts: Assumed discount of each time step.
        extra: Factor of the value of the last state, which is added to the last reward.

    Returns:
        The values of all states.
    """
    steps = len(next_states)
    features = np.stack([np.ones(4), STATES], 1)[:steps]
    following = np.stack([np.ones(steps), next_states], 1)
    following = following * np.asarray(discounts)[:, None]
    following[-1] += extra * features[-1]
    matrix = features.T @ (features - following)
    intercept, slope = np.linalg.solve(matrix, features.T @ REWARDS[:steps])
    return intercept + slope * STATES


CASES = {
    "correct": (learn([1, 2, 3], [0.5, 0.5, 0.5]), style.GREEN, "-"),
    "$r + \\gamma V(s)$": (learn([1, 2, 3], [0.5, 0.5, 0], 0.5), style.BLUE, "--"),
    "reset state": (learn([1, 2, 0], [0.5, 0.5, 0.5]), style.ORANGE, "-."),
    "terminated": (learn([1, 2, 3], [0.5, 0.5, 0]), style.RED, ":"),
    "no mask": (learn([1, 2, 3, 0], [0.5] * 4), style.PURPLE, (0, (5, 1, 1, 1))),
}


def draw() -> Figure:
    """Draw the learned values, as labelled lines."""
    figure = style.figure(height=3.0)
    axes = figure.subplots()
    for name, (values, color, dashes) in CASES.items():
        axes.plot(STATES, values, color=color, ls=dashes)
        axes.text(3.08, values[-1], name, color=color, va="center")
    axes.set(xlabel="state", ylabel="value", xticks=STATES, xlim=(-0.1, 4.1))
    axes.set_ylim(0, 10.8)
    axes.grid(axis="y")
    return figure
