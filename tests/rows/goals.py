"""Rows of `goals.py`, and their definitions in NumPy."""

import itertools

import numpy as np
from contract import STEPS, away_from
from row import Gradients, Precision, Row

COMPONENTS, DIMENSIONS = 4, 3


def hiql_value_loss(v, targets, adv, expectile=0.9, sample_mask=None):
    """Park et al. 2023, equation 4."""
    weight = np.abs(expectile - (adv < 0))
    loss = weight * (targets - v) ** 2
    return loss if sample_mask is None else np.where(sample_mask, loss, 0.0)


def quasimetric_distance(embedding, goal_embedding, mix=0.5):
    """Wang and Isola 2022, equations 9 and 12: the length of a union of intervals."""
    components = []
    for x, y in zip(embedding, goal_embedding, strict=True):
        bounds = np.sort(np.concatenate([x, y]))
        covered = 0.0
        for low, high in itertools.pairwise(bounds):
            middle = (low + high) / 2
            covered += (high - low) * np.any((x < middle) & (middle < y))
        components.append(covered)
    return mix * np.max(components) + (1 - mix) * np.mean(components)


def mrn_distance(embedding, goal_embedding, residual, goal_residual):
    """Liu et al. 2022, with the norm of Wang and Isola 2022, appendix C.2."""
    excess = [u - w for u, w in zip(residual, goal_residual, strict=True)]
    return np.linalg.norm(embedding - goal_embedding) + max(0, *excess)


# --- Arguments. ---


def make_values(*names):
    def make(rng):
        drawn = {
            "v": rng.normal(size=STEPS),
            "targets": rng.normal(size=STEPS),
            "adv": away_from(rng.normal(size=STEPS), 0.0),
            "expectile": np.asarray(rng.uniform(0.1, 0.9)),
            "sample_mask": rng.permutation([True] * 4 + [False] * 2),
        }
        return {name: drawn[name] for name in names}

    return make


def make_embeddings(rng):
    # Distinct by a distance: finite differences must not change the order.
    values = rng.permutation(2 * COMPONENTS * DIMENSIONS) / 4 + rng.uniform(0.0, 0.1)
    x, y = values.reshape(2, COMPONENTS, DIMENSIONS)
    return {
        "embedding": x,
        "goal_embedding": y,
        "mix": np.asarray(rng.uniform(0.1, 0.9)),
    }


def make_residuals(rng):
    x, y = rng.normal(size=(2, DIMENSIONS))
    # Distinct by a distance: finite differences must not change the order.
    excess = rng.permutation(COMPONENTS) / 4 + rng.uniform(0.1, 0.2)
    w = rng.normal(size=COMPONENTS)
    arrays = x, y, w + excess, w
    names = "embedding", "goal_embedding", "residual", "goal_residual"
    return dict(zip(names, arrays, strict=True))


ROWS = [
    Row(
        hiql_value_loss,
        make_values("v", "targets", "adv", "expectile", "sample_mask"),
        gradients=Gradients(targets=("targets",)),
    ),
    Row(
        hiql_value_loss,
        make_values("v", "targets", "adv"),
        "no mask",
        gradients=Gradients(targets=("targets",)),
    ),
    Row(quasimetric_distance, make_embeddings, precision=Precision(condition=4.0)),
    Row(mrn_distance, make_residuals, precision=Precision(condition=4.0)),
]
