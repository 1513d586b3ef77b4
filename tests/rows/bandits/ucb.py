"""Rows of `bandits/_ucb.py`, and their definitions in NumPy."""

import numpy as np
from row import Gradients
from rows._shared import joined
from rows.bandits._shared import ARMS, row, statistics, take
from scipy import optimize

# --- Scores. ---


def ucb_scores(counts, means, bonus_scale):
    return means + bonus_scale * np.sqrt(np.log(counts.sum()) / counts)


def ucb_tuned_scores(counts, means, variances):
    rate = np.log(counts.sum()) / counts
    bound = np.minimum(0.25, variances + np.sqrt(2 * rate))
    return means + np.sqrt(rate * bound)


def kl_ucb_scores(counts, means, log_log_scale):
    log_t = np.log(counts.sum())
    budgets = (log_t + log_log_scale * np.log(log_t)) / counts

    def excess(q, p, budget):
        return p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q)) - budget

    return np.array(
        [
            optimize.brentq(excess, p, 1 - 1e-15, (p, budget), xtol=1e-15)
            for p, budget in zip(means, budgets, strict=True)
        ]
    )


ROWS = [
    row(
        ucb_scores,
        joined(
            take(statistics, "counts", "means"),
            lambda rng: {"bonus_scale": np.asarray(rng.uniform(0.5, 2.0))},
        ),
    ),
    row(
        ucb_tuned_scores,
        joined(
            statistics,
            lambda rng: {"counts": rng.uniform(2.0, 4.0, ARMS) ** [1, 1, 6, 6]},
        ),
    ),
    row(
        kl_ucb_scores,
        joined(
            take(statistics, "counts", "means"),
            lambda rng: {"log_log_scale": np.asarray(rng.uniform(0.0, 3.0))},
        ),
        gradients=Gradients(exist=False),
    ),
]
