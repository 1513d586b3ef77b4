"""Rows of `bandits/_thompson.py`, and their definitions in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
from row import Gradients
from rows._shared import joined
from rows.bandits._shared import row, statistics, take

# --- Samples, from the same random numbers. ---


def thompson_beta(key, counts, means, prior_alpha, prior_beta):
    successes = prior_alpha + counts * means
    failures = prior_beta + counts * (1 - means)
    a, b = (jnp.asarray(each, float) for each in (successes, failures))
    return np.asarray(jax.random.beta(key, a, b), np.float64)


def thompson_gaussian(key, counts, means, stddev, prior_mean, prior_stddev):
    variance = 1 / (1 / prior_stddev**2 + counts / stddev**2)
    mean = variance * (prior_mean / prior_stddev**2 + counts * means / stddev**2)
    noise = np.asarray(jax.random.normal(key, means.shape), np.float64)
    return mean + np.sqrt(variance) * noise


ROWS = [
    row(
        thompson_beta,
        joined(
            take(statistics, "counts", "means"),
            lambda rng: {
                "prior_alpha": np.asarray(rng.uniform(1.0, 2.0)),
                "prior_beta": np.asarray(rng.uniform(1.0, 2.0)),
            },
        ),
        gradients=Gradients(exist=False),
    ),
    row(
        thompson_gaussian,
        joined(
            take(statistics, "counts", "means"),
            lambda rng: {
                "stddev": np.asarray(rng.uniform(0.5, 2.0)),
                "prior_mean": np.asarray(rng.normal()),
                "prior_stddev": np.asarray(rng.uniform(0.5, 2.0)),
            },
        ),
    ),
]
