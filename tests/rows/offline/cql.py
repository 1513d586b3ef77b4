"""Rows of `offline/_cql.py`, and their definitions in NumPy."""

import numpy as np
from contract import ACTIONS, actions, away_from
from row import Gradients, Precision, Row
from rows.offline._shared import SAMPLES

# --- Conservative Q-learning. ---


def cql_loss(q, sample_q_values, sample_log_probs, temperature=1.0, min_q=-np.inf):
    """Kumar et al. 2020, appendix F; bounded as in Nakamoto et al. 2023."""
    bounded = np.maximum(sample_q_values, min_q)
    ratios = np.exp(bounded / temperature) / np.exp(sample_log_probs)
    return temperature * np.log(np.sum(ratios)) - q


def discrete_cql_loss(q, a, action_mask=None):
    """Kumar et al. 2020, CQL(H)."""
    legal = np.ones(q.shape, bool) if action_mask is None else action_mask.copy()
    legal[a] = True
    return np.log(np.sum(np.exp(q[legal]))) - q[a]


# --- Arguments. ---


def make_cql(*names):
    def make(rng):
        drawn = {
            "q": np.asarray(rng.normal()),
            "sample_q_values": away_from(rng.normal(size=SAMPLES), 0.25),
            "sample_log_probs": rng.normal(size=SAMPLES),
            "temperature": np.asarray(rng.uniform(0.5, 2.0)),
        }
        return drawn | {name: BOUNDS[name] for name in names}

    return make


def make_discrete(*names):
    def make(rng):
        drawn = {
            "q": rng.normal(size=ACTIONS),
            "a": actions(rng),
            "action_mask": np.array([True, False, True, True]),
        }
        return {name: drawn[name] for name in names}

    return make


def make_numbers(*names):
    def make(rng):
        return {name: np.asarray(rng.normal()) for name in names}

    return make


BOUNDS = {
    "min_q": np.asarray(0.25),
    "min_qs": np.array([0.25, 0.25, 0.25, -np.inf, -np.inf]),
}


ROWS = [
    Row(
        cql_loss,
        make_cql(),
        gradients=Gradients(constants=("sample_log_probs",)),
        precision=Precision(condition=4.0),
    ),
    Row(
        cql_loss,
        make_cql("min_q"),
        "lower bound",
        gradients=Gradients(constants=("sample_log_probs", "min_q")),
        precision=Precision(condition=4.0),
    ),
    Row(discrete_cql_loss, make_discrete("q", "a")),
    Row(discrete_cql_loss, make_discrete("q", "a", "action_mask"), "masked"),
]
