"""Rows of `offline/_support.py`, and their definitions in NumPy."""

import numpy as np
from contract import ACTIONS
from row import Gradients, Row
from rows.offline._shared import CRITICS, DIMENSIONS, SAMPLES

# --- Support of the data. ---


def edac_diversity_loss(gradients):
    """An et al. 2021: the mean cosine of two critics' gradients, times N."""
    total, count = 0.0, len(gradients)
    for i in range(count):
        for j in range(count):
            norms = np.linalg.norm(gradients[i]) * np.linalg.norm(gradients[j])
            total += (i != j) * np.dot(gradients[i], gradients[j]) / norms
    return total / (count - 1)


def bcq_action_mask(log_prob, threshold=0.3):
    """Fujimoto et al. 2019, discrete BCQ."""
    probs = np.exp(log_prob)
    return probs / np.max(probs) > threshold


def maximum_mean_discrepancy(x, y, kind="gaussian", bandwidth=1.0):
    """Gretton et al. 2012, the biased estimate."""
    kernels = {
        "gaussian": lambda d: np.exp(-(np.linalg.norm(d) ** 2) / (2 * bandwidth**2)),
        "laplacian": lambda d: np.exp(-np.linalg.norm(d, 1) / bandwidth),
        "energy": lambda d: -np.linalg.norm(d),
    }

    def mean(x, y):
        return np.mean([[kernels[kind](a - b) for b in y] for a in x])

    return mean(x, x) - 2 * mean(x, y) + mean(y, y)


# --- Arguments. ---


def make_samples(rng):
    return {
        "x": rng.normal(size=(SAMPLES, DIMENSIONS)),
        "y": rng.normal(size=(SAMPLES - 1, DIMENSIONS)),
        "bandwidth": np.asarray(rng.uniform(0.5, 2.0)),
    }


def make_energy(rng):
    drawn = make_samples(rng)
    return {"x": drawn["x"], "y": drawn["y"]}


ROWS = [
    Row(
        edac_diversity_loss,
        lambda rng: {"gradients": rng.normal(size=(CRITICS, DIMENSIONS))},
    ),
    Row(
        bcq_action_mask,
        lambda rng: {"log_prob": rng.normal(size=ACTIONS)},
        settings={"threshold": 0.3},
        gradients=Gradients(exist=False),
    ),
    *[
        Row(
            maximum_mean_discrepancy,
            make_energy if kernel == "energy" else make_samples,
            kernel,
            settings={"kind": kernel},
            gradients=Gradients(targets=("y",)),
        )
        for kernel in ("gaussian", "laplacian", "energy")
    ],
]
