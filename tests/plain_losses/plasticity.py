"""Losses of `recipes/plasticity.py` in plain `jax.numpy`."""

import jax.numpy as jnp
from recipes import plasticity as recipes

from plain_losses.common import ONE, Q_PARAMS, Case, Q


def loss(p):
    return jnp.mean(jnp.sin(Q(p, ONE.s_tm1)))


CASES = {
    "l2_init": Case(
        lambda p, t: recipes.l2_init(p, t, loss, 0.1),
        lambda p, t: loss(p) + 0.1 * jnp.sum((p - t) ** 2),
        Q_PARAMS,
    ),
}
