"""Rows of `losses.py`, and their definitions in NumPy."""

import numpy as np
from contract import away_from
from row import Gradients, Peer, Row

SHAPE = (5, 3)


def l2_loss(predictions, targets=0.0):
    return (predictions - targets) ** 2 / 2


def huber_loss(x, delta):
    linear = delta * (np.abs(x) - delta / 2)
    return np.where(np.abs(x) <= delta, x**2 / 2, linear)


def likelihood(predictions, targets):
    return predictions**targets * (1 - predictions) ** (1 - targets)


def log_loss(predictions, targets):
    return -targets * np.log(predictions) - (1 - targets) * np.log(1 - predictions)


def expectile_loss(predictions, targets, expectile):
    """Kostrikov et al. 2021, equation 4."""
    weight = np.abs(expectile - (targets < predictions))
    return weight * (targets - predictions) ** 2


def clip_gradient(x, gradient_min, gradient_max):
    return x


def clipped(x, constants):
    """Return a function whose gradient is the clipped weights of the contract."""
    weights = np.random.default_rng(0).normal(size=SHAPE)
    return np.clip(weights, -0.5, 0.25) / weights * x["x"]


def by_position(rlax):
    def call(x, gradient_min, gradient_max):
        return rlax.clip_gradient(x, gradient_min, gradient_max)

    return call


def make_pair(rng):
    targets = rng.normal(size=SHAPE)
    error = away_from(rng.normal(size=SHAPE), 0.0)
    return {"predictions": targets + error, "targets": targets}


def make_probabilities(rng):
    draw = {"size": SHAPE, "low": 0.1, "high": 0.9}
    return {"predictions": rng.uniform(**draw), "targets": rng.uniform(**draw)}


def make_errors(rng):
    x = 2 * rng.normal(size=SHAPE)
    for kink in (-0.75, 0.75):
        x = away_from(x, kink)
    return {"x": x}


ROWS = [
    Row(l2_loss, make_pair),
    Row(l2_loss, lambda rng: {"predictions": rng.normal(size=SHAPE)}, "no targets"),
    Row(huber_loss, make_errors, settings={"delta": 0.75}),
    Row(likelihood, make_probabilities),
    Row(log_loss, make_probabilities),
    Row(expectile_loss, make_pair, settings={"expectile": 0.75}),
    Row(
        clip_gradient,
        make_errors,
        settings={"gradient_min": -0.5, "gradient_max": 0.25},
        peer=Peer(find=by_position),
        gradients=Gradients(
            free_definition=clipped,
            first_order_only="a clipped gradient is not a derivative of the value",
        ),
        invalid=(
            {"gradient_max": np.full(SHAPE, 0.25), "gradient_min": np.full(SHAPE, 1.0)},
        ),
    ),
]
