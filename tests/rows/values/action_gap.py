"""Rows of `values/_action_gap.py`, and their definitions in NumPy."""

import numpy as np
from contract import ACTIONS, actions
from row import Gradients, Peer, Row
from rows.values.td import Q, one_step, q_learning, td_learning


def gap(q, a):
    return np.max(q) - q[a]


def advantage_learning(
    q_tm1, target_q_tm1, a_tm1, r_t, discount_t, target_q_t, action_gap_scale=0.9
):
    """Bellemare et al. 2016, section on advantage learning."""
    error = q_learning(q_tm1, a_tm1, r_t, discount_t, target_q_t)
    return error - action_gap_scale * gap(target_q_tm1, a_tm1)


def persistent_advantage_learning(
    q_tm1, target_q_tm1, a_tm1, r_t, discount_t, target_q_t, action_gap_scale=0.9
):
    """Bellemare et al. 2016: the larger of two devalued errors."""
    error = q_learning(q_tm1, a_tm1, r_t, discount_t, target_q_t)
    here = error - action_gap_scale * gap(target_q_tm1, a_tm1)
    there = error - action_gap_scale * gap(target_q_t, a_tm1) * (discount_t != 0)
    return max(here, there)


# --- Arguments. ---


def make_transition(rng):
    """Draw a transition whose action is not the best one, by a margin."""
    drawn = {
        "q_tm1": rng.normal(size=ACTIONS),
        "target_q_tm1": rng.normal(size=ACTIONS),
        "a_tm1": actions(rng),
        "r_t": rng.normal(),
        "discount_t": rng.uniform(0.5, 1.0),
        "target_q_t": rng.normal(size=ACTIONS),
        "action_gap_scale": rng.uniform(0.2, 0.9),
    }
    for name in ("target_q_tm1", "target_q_t"):
        drawn[name][drawn["a_tm1"]] -= 2.0 + rng.uniform()
    return {name: np.asarray(x) for name, x in drawn.items()}


def make_nearer(first):
    """Return a function that draws a transition with one smaller gap of the two."""

    def make(rng):
        drawn = make_transition(rng)
        drawn["target_q_tm1" if first else "target_q_t"][drawn["a_tm1"]] += 1.5
        return drawn

    return make


GAPS = "rlax has the persistent branch only"


TARGETS = ("r_t", "discount_t", "target_q_t", "action_gap_scale")


# --- One step. ---


def persistent_q_learning(q_tm1, a_tm1, r_t, discount_t, q_t, action_gap_scale):
    """Bellemare et al. 2016: the action is repeated with some weight."""
    v_t = (1 - action_gap_scale) * np.max(q_t) + action_gap_scale * q_t[a_tm1]
    return td_learning(q_tm1[a_tm1], r_t, discount_t, v_t)


ROWS = [
    Row(
        advantage_learning,
        make_transition,
        peer=Peer(why_not=GAPS),
        gradients=Gradients(targets=(*TARGETS, "target_q_tm1")),
    ),
    Row(
        persistent_advantage_learning,
        make_nearer(True),
        "here",
        peer=Peer(why_not=GAPS),
        gradients=Gradients(targets=(*TARGETS, "target_q_tm1")),
    ),
    Row(
        persistent_advantage_learning,
        make_nearer(False),
        "there",
        peer=Peer(why_not=GAPS),
        gradients=Gradients(targets=TARGETS),
    ),
    Row(
        persistent_q_learning,
        one_step(*Q),
        settings={"action_gap_scale": 0.25},
        gradients=Gradients(targets=("r_t", "discount_t", "q_t")),
    ),
]
