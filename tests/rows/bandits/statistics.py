"""Rows of `bandits/_statistics.py`, and their definitions in NumPy."""

import numpy as np
from row import Gradients, Loose, Precision
from rows._shared import joined
from rows.bandits._shared import (
    ARMS,
    WINDOW,
    exact,
    prefixed,
    pull,
    row,
    statistics,
)

# --- Statistics. ---


def bandit_init(num_arms):
    return [np.zeros(num_arms)] * 6


def bandit_update(state, arm, reward, discount):
    """Add a reward to a weighted mean and variance, by their sums of powers."""
    counts, means, variances, *rests = state
    weight = np.arange(len(counts)) == arm
    total = discount * counts * means + weight * reward
    squares = discount * counts * (variances + means**2) + weight * reward**2
    counts = discount * counts + weight
    means, squares = total / counts, squares / counts
    return counts, means, squares - means**2, *rests  # Those of double precision.


def sliding_window_init(num_arms, window):
    return [*[np.zeros(num_arms)] * 3, np.full(window, -1), np.zeros(window)]


def sliding_window_update(state, arm, reward):
    counts, _, _, arms, rewards = state
    arms, rewards = np.append(arms[1:], arm), np.append(rewards[1:], reward)
    of_arms = [rewards[arms == a] for a in range(len(counts))]
    means = [np.mean(each) if each.size else 0.0 for each in of_arms]
    variances = [np.var(each) if each.size else 0.0 for each in of_arms]
    counts = np.array([each.size for each in of_arms], float)
    return counts, np.array(means), np.array(variances), arms, rewards


# --- What they are called with. ---


RESTS = ("state.counts_rest", "state.means_rest", "state.variances_rest")
ROWS = [
    row(
        bandit_init,
        lambda rng: {},
        settings={"num_arms": ARMS},
        gradients=Gradients(exist=False),
    ),
    row(
        bandit_update,
        joined(
            prefixed(exact(statistics)),
            pull,
            lambda rng: {"discount": np.asarray(rng.uniform(0.6, 0.9))},
        ),
        precision=Precision(condition=4.0),
        gradients=Gradients(constants=RESTS),
    ),
    row(
        sliding_window_init,
        lambda rng: {},
        settings={"num_arms": ARMS, "window": WINDOW},
        gradients=Gradients(exist=False),
    ),
    row(
        sliding_window_update,
        joined(
            prefixed(statistics),
            lambda rng: {
                "state.arms": rng.integers(-1, ARMS, WINDOW),
                "state.rewards": rng.uniform(0.0, 1.0, WINDOW),
            },
            pull,
        ),
        loose=Loose(lengths=("state.counts",)),
    ),
]
