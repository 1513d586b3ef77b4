"""Rows of `values/_dueling.py`, and their definitions in NumPy."""

import numpy as np
from contract import ACTIONS
from row import Gradients, Peer, Row


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
    Row(
        name="dueling_q_values",
        definition=dueling_q_values,
        make=make_network("v", "adv"),
        peer=Peer(why_not="rlax has no such function"),
    ),
    Row(
        name="dueling_q_values",
        case="mask",
        definition=dueling_q_values,
        make=make_network("v", "adv", "action_mask"),
        peer=Peer(why_not="rlax has no such function"),
        gradients=Gradients(exist=False),
    ),
]
