"""Rows of `values/_dueling.py`, and their definitions in NumPy."""

import numpy as np
from contract import ACTIONS
from row import Gradients, Row


def dueling_q_values(v, adv, action_mask=None):
    """Wang et al. 2016, equation 9."""
    if action_mask is None:
        return v + adv - np.mean(adv)
    q = v + adv - np.mean(adv[action_mask])
    return np.where(action_mask, q, -np.inf)


# --- Arguments. ---


def make_network(*names):
    def make(rng):
        drawn = {
            "v": np.asarray(rng.normal()),
            "adv": rng.normal(size=ACTIONS),
            "action_mask": np.arange(ACTIONS) != 1,
        }
        return {name: drawn[name] for name in names}

    return make


ROWS = [
    Row(dueling_q_values, make_network("v", "adv")),
    Row(
        dueling_q_values,
        make_network("v", "adv", "action_mask"),
        "mask",
        gradients=Gradients(exist=False),
    ),
]
