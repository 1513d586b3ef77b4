"""Rows of `goals.py`, and their definitions in NumPy."""

import itertools

import jax
import numpy as np
from contract import STEPS, away_from, discounts
from row import Gradients, Precision, Row

COMPONENTS, DIMENSIONS = 4, 3


def geometric_hindsight_indices(
    key, discount_t, discount, kind="final", truncated_t=None, sample_mask=None
):
    """Eysenbach et al. 2022, section 3: distances of probability (1 - γ) γ^k."""
    steps = len(discount_t)
    draws = np.asarray(jax.random.uniform(key, (steps,)), np.float64)
    cut = np.zeros(steps, bool) if truncated_t is None else truncated_t
    mask = np.ones(steps, bool) if sample_mask is None else sample_mask
    goals = []
    for t in range(steps):
        future = []  # Valid steps of the episode, from this one.
        for i in range(t, steps):
            future += [i] if mask[i] else []
            if (mask[i] and discount_t[i] == 0) or cut[i]:
                break
        shares = (1 - discount) * discount ** np.arange(len(future))
        if kind == "renormalize":
            shares = shares / np.sum(shares)
        reached = np.sum(np.cumsum(shares) <= draws[t])
        goals.append(future[min(reached, len(future) - 1)] if mask[t] else t)
    return np.array(goals)


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


def make_episodes(*names):
    def make(rng):
        drawn = {
            "discount_t": discounts(rng),
            "discount": np.asarray(rng.uniform(0.3, 0.9)),
            "truncated_t": rng.permutation([True] + [False] * (STEPS - 1)),
            "sample_mask": rng.permutation([True] * 4 + [False] * 2),
        }
        return {name: drawn[name] for name in names}

    return make


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


def hindsight(names, case="", **fields):
    return Row(
        geometric_hindsight_indices,
        make_episodes("discount_t", "discount", *names),
        case,
        gradients=Gradients(exist=False),
        **fields,
        stream=None,
    )


MASKS = ("truncated_t", "sample_mask")


ROWS = [
    hindsight((), "no masks"),
    hindsight(MASKS),
    hindsight(MASKS, "renormalized", settings={"kind": "renormalize"}),
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
