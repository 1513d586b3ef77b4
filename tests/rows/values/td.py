"""Rows of `values/_td.py`, and their definitions in NumPy."""

import numpy as np
from contract import ACTIONS, actions, probabilities
from row import Gradients, Row

# --- One step. ---


def td_learning(v_tm1, r_t, discount_t, v_t):
    return r_t + discount_t * v_t - v_tm1


def sarsa(q_tm1, a_tm1, r_t, discount_t, q_t, a_t):
    return td_learning(q_tm1[a_tm1], r_t, discount_t, q_t[a_t])


def expected_sarsa(q_tm1, a_tm1, r_t, discount_t, q_t, probs_a_t):
    return td_learning(q_tm1[a_tm1], r_t, discount_t, np.sum(probs_a_t * q_t))


def q_learning(q_tm1, a_tm1, r_t, discount_t, q_t):
    return td_learning(q_tm1[a_tm1], r_t, discount_t, np.max(q_t))


def double_q_learning(q_tm1, a_tm1, r_t, discount_t, q_t_value, q_t_selector):
    v_t = q_t_value[np.argmax(q_t_selector)]
    return td_learning(q_tm1[a_tm1], r_t, discount_t, v_t)


def qv_learning(q_tm1, a_tm1, r_t, discount_t, v_t):
    return td_learning(q_tm1[a_tm1], r_t, discount_t, v_t)


def qv_max(v_tm1, r_t, discount_t, q_t):
    return td_learning(v_tm1, r_t, discount_t, np.max(q_t))


# --- Arguments. ---


def one_step(*names):
    """Return a function that draws these arguments of a one-step error."""

    def make(rng):
        drawn = {
            "v_tm1": rng.normal(),
            "v_t": rng.normal(),
            "r_t": rng.normal(),
            "discount_t": rng.uniform(0.5, 1.0),
            "reward_rate": rng.normal(),
            "q_tm1": rng.normal(size=ACTIONS),
            "q_t": rng.normal(size=ACTIONS),
            "q_t_value": rng.normal(size=ACTIONS),
            "q_t_selector": rng.normal(size=ACTIONS),
            "probs_a_t": probabilities(rng, ACTIONS),
            "a_tm1": actions(rng),
            "a_t": actions(rng),
        }
        return {name: np.asarray(drawn[name]) for name in names}

    return make


TD = ("v_tm1", "r_t", "discount_t", "v_t")


Q = ("q_tm1", "a_tm1", "r_t", "discount_t", "q_t")


ROWS = [
    Row(
        td_learning,
        one_step(*TD),
        gradients=Gradients(targets=("r_t", "discount_t", "v_t")),
    ),
    Row(
        sarsa,
        one_step(*Q, "a_t"),
        gradients=Gradients(targets=("r_t", "discount_t", "q_t")),
    ),
    Row(
        expected_sarsa,
        one_step(*Q, "probs_a_t"),
        gradients=Gradients(targets=("r_t", "discount_t", "q_t", "probs_a_t")),
    ),
    Row(
        q_learning,
        one_step(*Q),
        gradients=Gradients(targets=("r_t", "discount_t", "q_t")),
    ),
    Row(
        double_q_learning,
        one_step(*Q[:-1], "q_t_value", "q_t_selector"),
        gradients=Gradients(targets=("r_t", "discount_t", "q_t_value")),
    ),
    Row(
        qv_learning,
        one_step(*Q[:-1], "v_t"),
        gradients=Gradients(targets=("r_t", "discount_t", "v_t")),
    ),
    Row(
        qv_max,
        one_step("v_tm1", "r_t", "discount_t", "q_t"),
        gradients=Gradients(targets=("r_t", "discount_t", "q_t")),
    ),
]
