"""Rows of `exploration/_bonuses.py`, and their definitions in NumPy."""

import numpy as np
from contract import ACTIONS
from row import Gradients, Precision, Row

FEATURES, HEADS, BATCH = 3, 3, 6


# --- Intrinsic rewards. ---


def icm_loss(
    predicted_features, features, action_logits, a, forward_weight, reward_scale
):
    forward = 0.5 * np.linalg.norm(predicted_features - features) ** 2
    inverse = np.log(np.sum(np.exp(action_logits))) - action_logits[a]
    loss = (1 - forward_weight) * inverse + forward_weight * forward
    return [np.asarray(x) for x in (loss, forward, inverse, reward_scale * forward)]


def icm_moved(x, held):
    """Differentiate neither the target of the forward model nor the reward."""
    fixed = {"features": held["features"]}
    return [*icm_loss(**x | fixed)[:3], icm_loss(**held)[3]]


def knn_entropy_reward(x, num_neighbors, average=False):
    distances = np.linalg.norm(x[:, None] - x, axis=-1)
    nearest = np.sort(distances, axis=1)[:, 1 : num_neighbors + 1]
    return np.log(1 + (nearest.mean(axis=1) if average else nearest[:, -1]))


# --- What they are called with. ---


def scalar(rng, low=0.2, high=0.9):
    return np.asarray(rng.uniform(low, high))


ROWS = [
    Row(
        icm_loss,
        lambda rng: {
            "predicted_features": rng.normal(size=FEATURES),
            "features": rng.normal(size=FEATURES),
            "action_logits": rng.normal(size=ACTIONS),
            "a": np.asarray(rng.integers(ACTIONS)),
            "forward_weight": scalar(rng),
            "reward_scale": scalar(rng),
        },
        gradients=Gradients(
            free_definition=icm_moved,
            first_order_only="the gradient of the target is stopped",
        ),
        precision=Precision(condition=4.0),
    ),
    Row(
        knn_entropy_reward,
        lambda rng: {"x": rng.normal(size=(BATCH, FEATURES))},
        settings={"num_neighbors": 2},
        gradients=Gradients(exist=False),
        over_devices=lambda library, name: (
            lambda **more: library.knn_entropy_reward(axis_name=name, **more)
        ),
        invalid=(
            {"num_neighbors": 0},
            {"num_neighbors": BATCH},
        ),
    ),
    Row(
        knn_entropy_reward,
        lambda rng: {"x": rng.normal(size=(BATCH, FEATURES))},
        case="of the average",
        settings={"num_neighbors": 3, "average": True},
        gradients=Gradients(exist=False),
    ),
]
