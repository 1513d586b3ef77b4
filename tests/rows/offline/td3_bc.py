"""Rows of `offline/_td3_bc.py`, and their definitions in NumPy."""

import functools

import numpy as np
from row import Gradients, Precision, Row
from rows.offline._shared import BATCH, DIMENSIONS

# --- Policies close to the data. ---


def td3_bc_loss(q, a, data_a, weight):
    """Fujimoto and Gu 2021, section 5."""
    return -weight * q + np.linalg.norm(a - data_a) ** 2


def td3_bc_weight(q, alpha):
    """Fujimoto and Gu 2021, section 5."""
    return alpha / np.mean(np.abs(q))


# --- Arguments. ---


def make_policy(rng):
    return {
        "q": np.asarray(rng.normal()),
        "a": rng.normal(size=DIMENSIONS),
        "data_a": rng.normal(size=DIMENSIONS),
        "weight": np.asarray(rng.uniform(0.5, 2.0)),
    }


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
]
