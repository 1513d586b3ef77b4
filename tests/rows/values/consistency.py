"""Rows of `values/_consistency.py`, and their definitions in NumPy."""

import numpy as np
from row import Gradients, Row

BATCH, DIMENSIONS = 6, 4


def cosine_consistency_loss(predictions, targets, sample_mask=None):
    """Schwarzer et al. 2020, equation 5."""
    losses = [
        -np.dot(x, y) / (np.linalg.norm(x) * np.linalg.norm(y))
        for x, y in zip(predictions, targets, strict=True)
    ]
    return np.where(True if sample_mask is None else sample_mask, losses, 0.0)


def make(*names):
    def sample(rng):
        drawn = {
            "predictions": rng.normal(size=(BATCH, DIMENSIONS)),
            "targets": rng.normal(size=(BATCH, DIMENSIONS)),
            "sample_mask": rng.permutation([True] * 4 + [False] * 2),
        }
        return {name: drawn[name] for name in names}

    return sample


ROWS = [
    Row(
        cosine_consistency_loss,
        make("predictions", "targets", *mask),
        case,
        gradients=Gradients(targets=("targets",)),
    )
    for case, mask in (("", ("sample_mask",)), ("no mask", ()))
]
