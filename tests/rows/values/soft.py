"""Rows of `values/_soft.py`, and their definitions in NumPy."""

import numpy as np
from contract import ACTIONS, actions
from row import Gradients, Row
from rows.values.td import td_learning


def softmax(q, temperature):
    weights = np.exp((q - np.max(q)) / temperature)
    return weights / np.sum(weights)


def soft_value(q, temperature, action_mask=None):
    """Ziebart 2010: the expected value plus the temperature times the entropy."""
    q = q if action_mask is None else q[action_mask]
    policy = softmax(q, temperature)
    return np.sum(policy * q) - temperature * np.sum(policy * np.log(policy))


def mellowmax(q, omega, action_mask=None):
    """Asadi and Littman 2017, equation 1."""
    q = q if action_mask is None else q[action_mask]
    return np.log(np.mean(np.exp(omega * q))) / omega


def soft_q_learning(q_tm1, a_tm1, r_t, discount_t, q_t, temperature):
    v_t = soft_value(q_t, temperature)
    return td_learning(q_tm1[a_tm1], r_t, discount_t, v_t)


def munchausen_q_learning(
    q_tm1,
    target_q_tm1,
    a_tm1,
    r_t,
    discount_t,
    target_q_t,
    temperature,
    munchausen_coefficient,
    min_bonus=-1.0,
):
    """Vieillard et al. 2020, section 2, with the clipping of section 4."""
    before = np.log(softmax(target_q_tm1, temperature))
    after = softmax(target_q_t, temperature)
    bonus = np.clip(temperature * before[a_tm1], min_bonus, 0.0)
    v_t = np.sum(after * (target_q_t - temperature * np.log(after)))
    r_t = r_t + munchausen_coefficient * bonus
    return td_learning(q_tm1[a_tm1], r_t, discount_t, v_t)


# --- Arguments. ---


MASK = np.array([True, False, True, True])


def maker(*names, spread=1.0):
    """Return a function that draws these arguments."""

    def make(rng):
        drawn = {
            "q": rng.normal(size=ACTIONS),
            "q_tm1": rng.normal(size=ACTIONS),
            "q_t": rng.normal(size=ACTIONS),
            "target_q_tm1": spread * rng.normal(size=ACTIONS),
            "target_q_t": rng.normal(size=ACTIONS),
            "a_tm1": actions(rng),
            "r_t": rng.normal(),
            "discount_t": rng.uniform(0.5, 1.0),
            "omega": rng.uniform(0.3, 3.0),
            "temperature": rng.uniform(0.3, 0.6),
            "munchausen_coefficient": rng.uniform(0.3, 0.9),
            "action_mask": MASK,
        }
        return {name: np.asarray(drawn[name]) for name in names}

    return make


SOFT = ("q_tm1", "a_tm1", "r_t", "discount_t", "q_t", "temperature")


MUNCHAUSEN = (
    "q_tm1",
    "target_q_tm1",
    "a_tm1",
    "r_t",
    "discount_t",
    "target_q_t",
    "temperature",
    "munchausen_coefficient",
)


TARGETS = ("r_t", "discount_t", "target_q_t", *MUNCHAUSEN[-2:])


ROWS = [
    Row(soft_value, maker("q", "temperature")),
    Row(soft_value, maker("q", "temperature", "action_mask"), "mask"),
    Row(mellowmax, maker("q", "omega")),
    Row(mellowmax, maker("q", "omega", "action_mask"), "mask"),
    Row(
        soft_q_learning,
        maker(*SOFT),
        gradients=Gradients(targets=("r_t", "discount_t", "q_t", "temperature")),
    ),
    Row(
        munchausen_q_learning,
        maker(*MUNCHAUSEN, spread=0.2),
        gradients=Gradients(targets=(*TARGETS, "target_q_tm1")),
    ),
    Row(
        munchausen_q_learning,
        maker(*MUNCHAUSEN),
        "clipped",
        settings={"min_bonus": -0.01},
        gradients=Gradients(targets=TARGETS),
    ),
]
