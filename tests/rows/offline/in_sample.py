"""Rows of `offline/_in_sample.py`, and their definitions in NumPy."""

import numpy as np
from contract import away_from
from row import Gradients, Precision, Row
from rows.offline._shared import BATCH

# --- In-sample values. ---


def xql_value_loss(v, q, temperature, max_exponent=7.0):
    """Garg et al. 2023, Gumbel regression; with the tangent at the clip above it."""
    z = (q - v) / temperature
    c = np.minimum(z, max_exponent)
    return np.exp(c) - c - 1 + (np.exp(c) - 1) * (z - c)


def sql_value_loss(v, q, temperature):
    """Xu et al. 2023, sparse Q-learning."""
    w = 1 + (q - v) / (2 * temperature)
    return (w > 0) * w**2 + v / temperature


# --- Arguments. ---


def make_values(*kinks):
    """Return a function that draws values whose errors are away from kinks."""

    def make(rng):
        v, error = rng.normal(size=BATCH), rng.normal(size=BATCH)
        for kink in kinks:
            error = away_from(error, kink)
        return {"v": v, "q": v + error, "temperature": np.asarray(0.5)}

    return make


ROWS = [
    Row(
        xql_value_loss,
        make_values(),
        gradients=Gradients(targets=("q",)),
        precision=Precision(condition=32.0),
    ),
    Row(
        xql_value_loss,
        make_values(0.25),
        "clipped",
        settings={"max_exponent": 0.5},
        gradients=Gradients(targets=("q",)),
        precision=Precision(condition=4.0),
    ),
    Row(
        sql_value_loss,
        make_values(-1.0),
        gradients=Gradients(targets=("q",)),
        precision=Precision(condition=4.0),
    ),
]
