"""Regret over time, and samples: shared by the tests of bandits."""

import functools

import jax
import numpy as np

SEEDS = 64


def growth(regret):
    """Return the exponent with which the mean regret grows over the last decade."""
    steps = regret.shape[1]
    t = np.arange(steps // 10, steps)
    return np.polyfit(np.log(t + 1), np.log(regret.mean(axis=0)[t]), 1)[0]


def many_samples(sample, count=20_000):
    keys = jax.random.split(jax.random.key(0), count)
    return np.asarray(jax.jit(jax.vmap(sample))(keys))


@functools.partial(jax.jit, static_argnums=0)
def run_updates(update, state, arms, rewards):
    return jax.lax.scan(lambda s, x: (update(s, *x), None), state, (arms, rewards))[0]
