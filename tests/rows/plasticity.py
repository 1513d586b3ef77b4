"""Rows of `plasticity.py`, and their definitions in NumPy."""

import numpy as np
from row import Gradients, Precision, Row

BATCH, NEURONS = 6, 5


def redo_mask(activations, threshold=0.025, sample_mask=None):
    """Sokar et al. 2023, definition 3.1."""
    inputs = activations if sample_mask is None else activations[sample_mask]
    inputs = inputs.reshape(-1, NEURONS)
    sizes = [np.mean(np.abs(inputs[:, i])) for i in range(NEURONS)]
    return np.array([size / np.mean(sizes) <= threshold for size in sizes])


def shrink_and_perturb(params, fresh_params, shrink=0.8, perturb=0.2):
    """Ash and Adams 2019, section 4."""
    return shrink * params + perturb * fresh_params


def l2_init_loss(params, initial_params):
    """Kumar et al. 2023, equation 1, without the weight."""
    return np.linalg.norm(params - initial_params) ** 2


# --- Arguments. ---


def make_activations(*names):
    def make(rng):
        scales = np.array([1.0, 0.01, 2.0, 0.3, 1e-3])
        drawn = {
            "activations": rng.normal(size=(BATCH, NEURONS)) * scales,
            "threshold": np.asarray(rng.uniform(0.02, 0.05)),
            "sample_mask": rng.permutation([True] * 4 + [False] * 2),
        }
        return {name: drawn[name] for name in names}

    return make


def make_params(*names):
    def make(rng):
        drawn = {
            "params": rng.normal(size=(3, 4)),
            "fresh_params": rng.normal(size=(3, 4)),
            "initial_params": rng.normal(size=(3, 4)),
            "shrink": np.asarray(rng.uniform(0.2, 0.9)),
            "perturb": np.asarray(rng.uniform(0.2, 0.9)),
        }
        return {name: drawn[name] for name in names}

    return make


def redo(*names, **fields):
    return Row(
        redo_mask,
        make_activations("activations", *names),
        gradients=Gradients(exist=False),
        **fields,
    )


ROWS = [
    redo("threshold", "sample_mask"),
    redo(case="defaults"),
    Row(
        shrink_and_perturb,
        make_params("params", "fresh_params", "shrink", "perturb"),
        precision=Precision(carried={"params": 0}, decisive=("params", "fresh_params")),
    ),
    Row(
        shrink_and_perturb,
        make_params("params", "fresh_params"),
        "defaults",
        precision=Precision(carried={"params": 0}),
    ),
    Row(
        l2_init_loss,
        make_params("params", "initial_params"),
        gradients=Gradients(constants=("initial_params",)),
        precision=Precision(condition=8.0, single_outputs=(0,)),
    ),
]
