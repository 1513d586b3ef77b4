"""Rows of `exploration/_noise.py`, and their definitions in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
from contract import ACTIONS, probabilities
from row import Loose, Peer, Precision, Row

BATCH, DIMENSIONS, SEEN = 5, 3, 7


# --- Noise, from the same samples. ---


def normal(key, shape):
    return np.asarray(jax.random.normal(key, shape), np.float64)


def add_gaussian_noise(key, action, stddev):
    return action + stddev * normal(key, action.shape)


def ornstein_uhlenbeck_noise(key, noise_tm1, damping=0.15, stddev=0.2):
    return (1 - damping) * noise_tm1 + stddev * normal(key, noise_tm1.shape)


def add_ornstein_uhlenbeck_noise(key, action, noise_tm1, damping, stddev):
    return action + ornstein_uhlenbeck_noise(key, noise_tm1, damping, stddev)


def add_dirichlet_noise(key, prior, dirichlet_fraction, dirichlet_alpha):
    alphas = jnp.full(prior.shape[-1], dirichlet_alpha)
    noise = np.asarray(jax.random.dirichlet(key, alphas, prior.shape[:-1]), np.float64)
    return (1 - dirichlet_fraction) * prior + dirichlet_fraction * noise


# --- Arguments. ---


def make_noise(*names):
    def make(rng):
        drawn = {
            "action": rng.normal(size=(BATCH, ACTIONS)),
            "noise_tm1": rng.normal(size=(BATCH, ACTIONS)),
            "damping": rng.uniform(0.1, 0.9),
            "stddev": rng.uniform(0.5, 2.0, ACTIONS),
        }
        return {name: np.asarray(drawn[name]) for name in names}

    return make


ROWS = [
    Row(
        add_gaussian_noise,
        make_noise("action", "stddev"),
        loose=Loose(lengths=("action",)),
    ),
    Row(
        ornstein_uhlenbeck_noise,
        make_noise("noise_tm1", "damping", "stddev"),
        peer=Peer(why_not="rlax does not return the noise"),
        precision=Precision(carried={"noise_tm1": 0}),
        loose=Loose(lengths=("noise_tm1",)),
    ),
    Row(
        add_ornstein_uhlenbeck_noise,
        make_noise("action", "noise_tm1", "damping", "stddev"),
        peer=Peer(why_not="rlax takes one vector only: see test_noise.py"),
    ),
    Row(
        add_dirichlet_noise,
        lambda rng: {
            "prior": probabilities(rng, BATCH, ACTIONS),
            "dirichlet_fraction": np.asarray(rng.uniform(0.2, 0.8)),
        },
        settings={"dirichlet_alpha": 0.3},
    ),
]
