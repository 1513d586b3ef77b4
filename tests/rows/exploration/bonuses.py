"""Rows of `exploration/_bonuses.py`, and their definitions in NumPy."""

import numpy as np
from contract import ACTIONS, STEPS, fields
from row import Gradients, Loose, Precision, Row
from rows._shared import of_fields, with_state

import rlaxlib

FEATURES, HEADS, BATCH = 3, 3, 6


# --- Intrinsic rewards. ---


def rnd_loss(predictions, targets):
    return np.linalg.norm(predictions - targets) ** 2


def rnd_reward(
    predictions, targets, discount, num_steps, mean, variance, carried, sample_mask=None
):
    """Burda et al. 2018: a running deviation of sums that no episode interrupts."""
    errors = np.linalg.norm(predictions - targets, axis=1) ** 2
    valid = np.ones(len(errors), bool) if sample_mask is None else sample_mask
    sums, power, total = [], (variance + mean**2) * num_steps, mean * num_steps
    for error in errors[valid]:
        carried = discount * carried + error
        sums.append(carried)
    num_steps, total = num_steps + len(sums), total + np.sum(sums)
    mean, square = total / num_steps, (power + np.sum(np.square(sums))) / num_steps
    variance = square - mean**2
    rewards = np.where(valid, errors, 0.0) / np.sqrt(variance)
    rests = (0.0, 0.0, 0.0)  # Of sums in double precision.
    return [
        np.asarray(x) for x in (rewards, num_steps, mean, variance, carried, *rests)
    ]


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


def count_bonus(counts, scale, offset):
    return scale * (counts + offset) ** -0.5


def diayn_reward(logits, skill, log_prior=None):
    log_q = logits[skill] - np.log(np.sum(np.exp(logits)))
    prior = -np.log(len(logits)) if log_prior is None else log_prior[skill]
    return log_q - prior


# --- What they are called with. ---


def scalar(rng, low=0.2, high=0.9):
    return np.asarray(rng.uniform(low, high))


def make_rnd(rng):
    return {
        "predictions": rng.normal(size=(STEPS, FEATURES)),
        "targets": rng.normal(size=(STEPS, FEATURES)),
        "discount": scalar(rng),
        "state.num_steps": np.asarray(7.0),
        "state.mean": np.asarray(rng.uniform(2.0, 3.0)),
        "state.variance": np.asarray(rng.uniform(2.0, 3.0)),
        "state.carried": np.asarray(rng.uniform(2.0, 3.0)),
    }


def make_modulation(rng):
    return {
        "episodic": rng.uniform(0.1, 1.0, (2, 3)),
        "modulation": np.array([[0.2, 0.5, 1.5], [2.5, 3.5, 6.0]]),
        "max_modulation": np.asarray(3.0),
    }


ROWS = [
    Row(
        rnd_loss,
        lambda rng: {
            "predictions": rng.normal(size=FEATURES),
            "targets": rng.normal(size=FEATURES),
        },
        gradients=Gradients(
            free_definition=lambda x, held: [
                rnd_loss(x["predictions"], held["targets"])
            ],
            first_order_only="the gradient of the target is stopped",
        ),
        precision=Precision(condition=4.0),
    ),
    Row(
        of_fields(rnd_reward),
        make_rnd,
        find=with_state("rnd_reward", "RndState"),
        gradients=Gradients(exist=False),
        precision=Precision(
            decisive=("predictions", "targets", "discount"),
            single_outputs=(5, 6, 7),
            carried=fields(rlaxlib.RndState, 1),
            condition=16.0,
        ),
    ),
    Row(
        of_fields(rnd_reward),
        make_rnd,
        case="with a mask",
        settings={"sample_mask": np.arange(STEPS) % 3 > 0},
        find=with_state("rnd_reward", "RndState"),
        gradients=Gradients(exist=False),
        precision=Precision(
            decisive=("predictions", "targets", "discount"),
            single_outputs=(5, 6, 7),
            carried=fields(rlaxlib.RndState, 1),
            condition=16.0,
        ),
    ),
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
        loose=Loose(lengths=("action_logits",)),
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
    Row(
        count_bonus,
        lambda rng: {
            "counts": rng.uniform(1.0, 9.0, (2, 3)),
            "scale": scalar(rng),
            "offset": scalar(rng),
        },
    ),
    Row(
        diayn_reward,
        lambda rng: {
            "logits": rng.normal(size=ACTIONS),
            "skill": np.asarray(rng.integers(ACTIONS)),
        },
        gradients=Gradients(exist=False),
    ),
    Row(
        diayn_reward,
        lambda rng: {
            "logits": rng.normal(size=ACTIONS),
            "skill": np.asarray(rng.integers(ACTIONS)),
            "log_prior": np.log(rng.dirichlet(np.ones(ACTIONS))),
        },
        case="of a prior",
        gradients=Gradients(exist=False),
    ),
]
