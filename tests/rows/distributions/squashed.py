"""Rows of `distributions/_squashed.py`, and their definitions in NumPy."""

from typing import NamedTuple

import numpy as np
from row import Precision, Row
from rows.distributions._shared import made
from rows.distributions.gaussian import SAMPLED, continuous, make_normal, normal_logprob

DIMENSIONS = 4


# --- Continuous actions. ---


def tanh_normal_log_prob(pre_tanh, mean, stddev):
    """Haarnoja et al. 2018, appendix C; 1 - tanh^2 is 1 / cosh^2."""
    z = (pre_tanh - mean) / stddev
    normal = -0.5 * z**2 - np.log(stddev) - 0.5 * np.log(2 * np.pi)
    return np.sum(normal + 2 * np.log(np.cosh(pre_tanh)))


def tanh_normal_log_prob_of_action(a, mean, stddev):
    return tanh_normal_log_prob(np.arctanh(a), mean, stddev)


# --- Arguments. ---


def make_vectors(name, draw):
    def make(rng):
        return {
            name: draw(rng),
            "mean": rng.normal(size=DIMENSIONS),
            "stddev": rng.uniform(0.5, 2.0, DIMENSIONS),
        }

    return make


# --- Continuous distributions. ---


class Spec(NamedTuple):
    """Bounds of an action, as environments give them."""

    minimum: float
    maximum: float


BOUNDS = Spec(-2.0, 3.0)


def activate(mu, sigma):
    """Return mean and standard deviation, with log-bounds of -4 and 0."""
    return np.tanh(mu), np.exp(-4 + 4 * (np.tanh(sigma) + 1) / 2)


def squashed_logprob(sample, mu, sigma, action_spec):
    """Return the log-density before squashing, minus that of the Jacobian."""
    low, high = (-1.0, 1.0) if action_spec is None else action_spec
    y = 2 * (sample - low) / (high - low) - 1
    jacobian = (high - low) / 2 * (1 - y**2)
    before = normal_logprob(np.arctanh(y), *activate(mu, sigma))
    return before - np.sum(np.log(jacobian), axis=-1)


ROWS = [
    Row(
        tanh_normal_log_prob,
        make_vectors("pre_tanh", lambda rng: rng.normal(size=DIMENSIONS)),
        precision=Precision(condition=4.0),
    ),
    Row(
        tanh_normal_log_prob,
        make_vectors("pre_tanh", lambda rng: rng.normal(scale=6.0, size=DIMENSIONS)),
        case="far",
        precision=Precision(condition=32.0),
    ),
    Row(
        tanh_normal_log_prob_of_action,
        make_vectors("a", lambda rng: rng.uniform(-0.9, 0.9, DIMENSIONS)),
        precision=Precision(condition=4.0),
    ),
    *continuous(
        "squashed_gaussian",
        make_normal(*SAMPLED, bounds=BOUNDS),
        squashed_logprob,
        activate,
        {"action_spec": BOUNDS},
    ),
    Row(
        squashed_logprob,
        make_normal(*SAMPLED, bounds=(-1.0, 1.0)),
        "no bounds",
        name="squashed_gaussian.logprob",
        settings={"action_spec": None},
        find=made("squashed_gaussian")("logprob"),
        precision=Precision(condition=16.0),
    ),
]
