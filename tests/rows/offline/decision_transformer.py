"""Rows of `offline/_decision_transformer.py`, and their definitions in NumPy."""

import numpy as np
from contract import STEPS, discounts
from row import Row

# --- Decision transformer. ---


def returns_to_go(r_t, discount_t):
    """Chen et al. 2021."""
    weights = [
        [np.prod(discount_t[t:k]) if k >= t else 0.0 for k in range(len(r_t))]
        for t in range(len(r_t))
    ]
    return np.asarray(weights) @ r_t


# --- Arguments. ---


def make_stream(rng):
    return {"r_t": rng.normal(size=STEPS), "discount_t": discounts(rng)}


ROWS = [
    Row(returns_to_go, make_stream),
]
