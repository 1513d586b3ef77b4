"""Rows of `bandits/_linear.py`, and their definitions in NumPy."""

import jax
import numpy as np
from row import Gradients, Precision
from rows._shared import joined
from rows.bandits._shared import ARMS, DIMENSIONS, exact, prefixed, row

# --- Linear bandits. ---


def linear_bandit_init(num_features, regularization):
    root = np.eye(num_features) / np.sqrt(regularization)
    return root[0] * 0, root, root[0] * 0, root * 0


def linucb_scores(state, contexts, bonus_scale):
    weights, root, *_ = state
    covariance = root @ root.T
    widths = [np.sqrt(x @ covariance @ x) for x in contexts]
    return contexts @ weights + bonus_scale * np.array(widths)


def linucb_update(state, context, reward):
    """Solve the normal equations; the root is one whose product is the inverse."""
    weights, root, *rests = state
    precision = np.linalg.inv(root @ root.T)
    vector = precision @ weights + reward * context
    precision = precision + np.outer(context, context)
    phi = root.T @ context
    # The symmetric square root of the inverse of 1 + φ φᵀ, by its eigenvalues.
    values, axes = np.linalg.eigh(np.eye(len(phi)) + np.outer(phi, phi))
    updated = root @ (axes / np.sqrt(values)) @ axes.T
    np.testing.assert_allclose(
        updated @ updated.T @ precision, np.eye(len(phi)), 1e-6, 1e-6
    )
    return np.linalg.solve(precision, vector), updated, *rests


def linear_thompson_sample(key, state, scale):
    weights, root, *_ = state
    noise = np.asarray(jax.random.normal(key, weights.shape), np.float64)
    return weights + scale * root @ noise


# --- What they are called with. ---


def regression(rng):
    root = np.eye(DIMENSIONS) + 0.3 * rng.normal(size=(DIMENSIONS, DIMENSIONS))
    return exact(lambda rng: {"weights": rng.normal(size=DIMENSIONS), "root": root})(
        rng
    )


ROWS = [
    row(
        linear_bandit_init,
        lambda rng: {"regularization": np.asarray(rng.uniform(0.5, 2.0))},
        settings={"num_features": DIMENSIONS},
    ),
    row(
        linucb_scores,
        joined(
            prefixed(regression),
            lambda rng: {
                "contexts": rng.normal(size=(ARMS, DIMENSIONS)),
                "bonus_scale": np.asarray(rng.uniform(0.5, 2.0)),
            },
        ),
        precision=Precision(condition=4.0),
    ),
    row(
        linucb_update,
        joined(
            prefixed(regression),
            lambda rng: {
                "context": rng.normal(size=DIMENSIONS),
                "reward": np.asarray(rng.normal()),
            },
        ),
        precision=Precision(condition=8.0),
        gradients=Gradients(constants=("state.weights_rest", "state.root_rest")),
    ),
    row(
        linear_thompson_sample,
        joined(
            prefixed(regression),
            lambda rng: {"scale": np.asarray(rng.uniform(0.5, 2.0))},
        ),
        precision=Precision(condition=4.0),
    ),
]
