"""Losses of `recipes/plasticity.py` in plain `jax.numpy`."""

import jax.numpy as jnp
from recipes import plasticity as recipes

from plain_losses.common import ONE, Q_PARAMS, Case, Q


def loss(p):
    return jnp.mean(jnp.sin(Q(p, ONE.s_tm1)))


def plain_l2_init(p, t):
    """skumar9876/L2_Init@3f86d26, agents/agents.py: L2InitAgent, l2_weight 0.2."""
    return loss(p) + 0.2 * 0.5 * jnp.sum((p - t) ** 2)


CASES = {
    "l2_init": Case(
        lambda p, t: recipes.l2_init(p, t, loss, 0.1), plain_l2_init, Q_PARAMS
    )
}
