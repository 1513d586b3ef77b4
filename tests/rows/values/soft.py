"""Rows of `values/_soft.py`, and their definitions in NumPy."""

import numpy as np
from contract import ACTIONS, actions
from row import Gradients, Peer, Row
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


NONE = "rlax has no soft values"


COLD = ({"temperature": 0.0}, {"temperature": -1.0}, {"temperature": np.nan})


TARGETS = ("r_t", "discount_t", "target_q_t", *MUNCHAUSEN[-2:])


ROWS = [
    Row(
        name="soft_value",
        definition=soft_value,
        make=maker("q", "temperature"),
        peer=Peer(why_not=NONE),
        invalid=COLD,
    ),
    Row(
        name="soft_value",
        case="mask",
        definition=soft_value,
        make=maker("q", "temperature", "action_mask"),
        peer=Peer(why_not=NONE),
    ),
    Row(
        name="mellowmax",
        definition=mellowmax,
        make=maker("q", "omega"),
        peer=Peer(why_not=NONE),
        invalid=({"omega": np.inf}, {"omega": -np.inf}, {"omega": np.nan}),
    ),
    Row(
        name="mellowmax",
        case="mask",
        definition=mellowmax,
        make=maker("q", "omega", "action_mask"),
        peer=Peer(why_not=NONE),
    ),
    Row(
        name="soft_q_learning",
        definition=soft_q_learning,
        make=maker(*SOFT),
        peer=Peer(why_not=NONE),
        gradients=Gradients(targets=("r_t", "discount_t", "q_t", "temperature")),
        invalid=COLD,
    ),
    Row(
        name="munchausen_q_learning",
        definition=munchausen_q_learning,
        make=maker(*MUNCHAUSEN, spread=0.2),
        peer=Peer(why_not=NONE),
        gradients=Gradients(targets=(*TARGETS, "target_q_tm1")),
        invalid=(
            {"temperature": 0.0},
            {"munchausen_coefficient": -0.5},
            {"munchausen_coefficient": 1.5},
            {"min_bonus": 0.5},
        ),
    ),
    Row(
        name="munchausen_q_learning",
        case="clipped",
        definition=munchausen_q_learning,
        make=maker(*MUNCHAUSEN),
        settings={"min_bonus": -0.01},
        peer=Peer(why_not=NONE),
        gradients=Gradients(targets=TARGETS),
    ),
]
