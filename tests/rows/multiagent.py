"""Rows of `multiagent.py`, and their definitions in NumPy."""

import numpy as np
from contract import away_from
from row import Precision, Row

AGENTS, HIDDEN = 4, 3


def qmix(q, hidden_weights, hidden_bias, output_weights, output_bias):
    """Rashid et al. 2018, section 4 and figure 2."""
    total = output_bias
    for j, weight in enumerate(output_weights):
        x = hidden_bias[j] + sum(
            abs(hidden_weights[i, j]) * value for i, value in enumerate(q)
        )
        total = total + abs(weight) * (x if x > 0 else np.exp(x) - 1)
    return np.asarray(total)


def make_mix(rng):
    return {
        "q": rng.normal(size=AGENTS),
        "hidden_weights": away_from(rng.normal(size=(AGENTS, HIDDEN)), 0.0),
        "hidden_bias": rng.normal(size=HIDDEN),
        "output_weights": away_from(rng.normal(size=HIDDEN), 0.0),
        "output_bias": np.asarray(rng.normal()),
    }


ROWS = [
    Row(qmix, make_mix, precision=Precision(condition=8.0)),
]
