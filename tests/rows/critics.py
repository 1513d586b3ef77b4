"""Action gaps and ensembles: definitions in NumPy, and the rows of the functions."""

import jax
import numpy as np
from contract import ACTIONS, Row, actions

from rows.values import q_learning


def gap(q, a):
    return np.max(q) - q[a]


def advantage_learning(
    q_tm1, target_q_tm1, a_tm1, r_t, discount_t, target_q_t, action_gap_scale
):
    """Bellemare et al. 2016, section on advantage learning."""
    error = q_learning(q_tm1, a_tm1, r_t, discount_t, target_q_t)
    return error - action_gap_scale * gap(target_q_tm1, a_tm1)


def persistent_advantage_learning(
    q_tm1, target_q_tm1, a_tm1, r_t, discount_t, target_q_t, action_gap_scale
):
    """Bellemare et al. 2016: the larger of two devalued errors."""
    error = q_learning(q_tm1, a_tm1, r_t, discount_t, target_q_t)
    here = error - action_gap_scale * gap(target_q_tm1, a_tm1)
    there = error - action_gap_scale * gap(target_q_t, a_tm1) * (discount_t > 0)
    return max(here, there)


def dueling_q_values(v, advantages, action_mask=None):
    """Wang et al. 2016, equation 9."""
    if action_mask is None:
        return v + advantages - np.mean(advantages)
    q = v + advantages - np.mean(advantages[action_mask])
    return np.where(action_mask, q, -np.inf)


def ensemble_value(q, weight=0.75, kind="min"):
    least, greatest = np.sort(q)[[0, -1]]
    return {
        "min": least,
        "mean": np.sum(q) / len(q),
        "min_max_mix": weight * least + (1 - weight) * greatest,
    }[kind]


def subset_minimum(key, q, num_members):
    drawn = np.argsort(jax.random.bits(key, q.shape)) < num_members
    return np.min(q[drawn])


# --- Arguments. ---

CRITICS = 5


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


def make_network(*names):
    def make(rng):
        drawn = {
            "v": np.asarray(rng.normal()),
            "advantages": rng.normal(size=ACTIONS),
            "action_mask": np.arange(ACTIONS) != 1,
        }
        return {name: drawn[name] for name in names}

    return make


def make_critics(*names):
    def make(rng):
        drawn = {"q": rng.normal(size=CRITICS), "weight": rng.uniform(0.2, 0.8)}
        return {name: np.asarray(drawn[name]) for name in names}

    return make


GAPS = "rlax has the persistent branch only"
NONE = "rlax has no ensembles"
SCALES = ({"action_gap_scale": -0.1}, {"action_gap_scale": 1.1})
TARGETS = ("r_t", "discount_t", "target_q_t", "action_gap_scale")

ROWS = [
    Row(
        name="advantage_learning",
        definition=advantage_learning,
        make=make_transition,
        peer=GAPS,
        targets=(*TARGETS, "target_q_tm1"),
        invalid=SCALES,
    ),
    Row(
        name="persistent_advantage_learning",
        case="here",
        definition=persistent_advantage_learning,
        make=make_nearer(True),
        peer=GAPS,
        targets=(*TARGETS, "target_q_tm1"),
        invalid=SCALES,
    ),
    Row(
        name="persistent_advantage_learning",
        case="there",
        definition=persistent_advantage_learning,
        make=make_nearer(False),
        peer=GAPS,
        targets=TARGETS,
    ),
    Row(
        name="dueling_q_values",
        definition=dueling_q_values,
        make=make_network("v", "advantages"),
        peer="rlax has no such function",
    ),
    Row(
        name="dueling_q_values",
        case="mask",
        definition=dueling_q_values,
        make=make_network("v", "advantages", "action_mask"),
        peer="rlax has no such function",
        differentiable=False,
    ),
    *(
        Row(
            name="ensemble_value",
            case=kind,
            definition=ensemble_value,
            make=make_critics("q", *["weight"] * (kind == "min_max_mix")),
            settings={"kind": kind},
            peer=NONE,
            invalid=({"kind": "max"}, {"kind": None}, {"weight": 1.5}),
        )
        for kind in ("min", "mean", "min_max_mix")
    ),
    Row(
        name="subset_minimum",
        definition=subset_minimum,
        make=make_critics("q"),
        settings={"num_members": 2},
        invalid=(
            {"num_members": 0},
            {"num_members": CRITICS + 1},
            {"num_members": 2.0},
        ),
        key="key",
        peer=NONE,
    ),
]
