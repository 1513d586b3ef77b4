"""Rows of `offline/_td3_bc.py`, and their definitions in NumPy."""

import functools

import numpy as np
from row import Gradients, Loose, Precision, Row
from rows.offline._shared import BATCH, CRITICS, DIMENSIONS

# --- Policies close to the data. ---


def td3_bc_loss(q, a, data_a, weight):
    """Fujimoto and Gu 2021, section 5."""
    return -weight * q + np.linalg.norm(a - data_a) ** 2


def td3_bc_weight(q, alpha):
    """Fujimoto and Gu 2021, section 5."""
    return alpha / np.mean(np.abs(q))


def rebrac_critic_target(r_t, discount_t, q_t, a_t, data_a_t, penalty_weight):
    """Tarasov et al. 2023."""
    distance = np.linalg.norm(a_t - data_a_t) ** 2
    return r_t + discount_t * (np.min(q_t) - penalty_weight * distance)


# --- Arguments. ---


def make_policy(rng):
    return {
        "q": np.asarray(rng.normal()),
        "a": rng.normal(size=DIMENSIONS),
        "data_a": rng.normal(size=DIMENSIONS),
        "weight": np.asarray(rng.uniform(0.5, 2.0)),
    }


def make_target(q_shape):
    def make(rng):
        return {
            "r_t": np.asarray(rng.normal()),
            "discount_t": np.asarray(rng.uniform(0.5, 1.0)),
            "q_t": rng.normal(size=q_shape),
            "a_t": rng.normal(size=DIMENSIONS),
            "data_a_t": rng.normal(size=DIMENSIONS),
            "penalty_weight": np.asarray(rng.uniform(0.1, 1.0)),
        }

    return make


TARGET = (
    "r_t",
    "discount_t",
    "q_t",
    "a_t",
    "data_a_t",
    "penalty_weight",
)


ROWS = [
    Row(
        td3_bc_loss,
        make_policy,
        gradients=Gradients(constants=("weight",)),
        precision=Precision(condition=4.0),
    ),
    Row(
        td3_bc_weight,
        lambda rng: {"q": rng.normal(size=BATCH)},
        settings={"alpha": 2.5},
        gradients=Gradients(exist=False),
        over_devices=lambda library, axis_name: functools.partial(
            library.td3_bc_weight, axis_name=axis_name
        ),
        precision=Precision(condition=4.0),
    ),
    Row(
        rebrac_critic_target,
        make_target(CRITICS),
        gradients=Gradients(targets=TARGET),
        precision=Precision(condition=4.0),
        loose=Loose(lengths=("q_t",)),
    ),
    Row(
        rebrac_critic_target,
        make_target(()),
        "one critic",
        gradients=Gradients(targets=TARGET),
        precision=Precision(condition=4.0),
    ),
]
