"""Losses of `recipes/constraints.py` in plain `jax.numpy`."""

import jax
import jax.numpy as jnp
from recipes import constraints as recipes

from plain_losses.common import (
    Q_PARAMS,
    STREAM,
    A,
    B,
    Case,
    Q,
    T,
    log_prob,
    normal,
    of,
    stop,
)

ADV, COST_ADV = normal(B, T), normal(B, T)
OLD = log_prob(STREAM.logits_tm1, STREAM.a_tm1)


def ratio(p):
    return jnp.exp(log_prob(Q(p, STREAM.s_tm1), STREAM.a_tm1) - OLD)


def divergence(logits, other):
    log_p, log_q = jax.nn.log_softmax(logits), jax.nn.log_softmax(other)
    return jnp.sum(jnp.exp(log_p) * (log_p - log_q), axis=-1)


PPO_LOGITS = normal(B, T, A)


# Close to the first policy at some steps, and far from it at others.
SHIFT = jnp.where(jnp.arange(T) < 3, 0.05, 2.0)[None, :, None] * normal(B, T, A)
NEAR = STREAM._replace(logits_tm1=Q(Q_PARAMS[0], STREAM.s_tm1) + SHIFT)


def plain_focops(p, t):
    """ymzhang01/focops@fc92fce, focops_main.py."""
    adv, logits = ADV - 0.5 * COST_ADV, Q(p, NEAR.s_tm1)
    log_ratio = log_prob(logits, NEAR.a_tm1) - log_prob(NEAR.logits_tm1, NEAR.a_tm1)
    moved = divergence(logits, NEAR.logits_tm1)
    losses = moved - jnp.exp(log_ratio) * adv / 1.5
    return jnp.mean(jnp.where(stop(moved) <= 0.02, losses, 0))


def plain_cup(p, t):
    """PKU-Alignment/omnisafe@15603dd.

    omnisafe/algorithms/on_policy/first_order/cup.py.
    """
    factor = 0.5 * (1 - 0.99 * 0.95) / (1 - 0.99)
    kl = divergence(Q(p, STREAM.s_tm1), PPO_LOGITS)
    return jnp.mean(kl + factor * ratio(p) * COST_ADV)


def plain_p3o(p, t):
    """PKU-Alignment/omnisafe@15603dd: _loss_pi and _loss_pi_cost.

    omnisafe/algorithms/on_policy/penalty_function/p3o.py
    """
    r = ratio(p)
    clipped = jnp.clip(r, 0.8, 1.2)
    loss = -jnp.mean(jnp.minimum(r * ADV, clipped * ADV))
    cost = jnp.mean(r * COST_ADV)
    return loss + 20 * jnp.maximum(cost + 2, 0)


CASES = {
    "focops": Case(
        of(recipes.focops, Q, NEAR, ADV, COST_ADV, 0.5), plain_focops, Q_PARAMS
    ),
    "cup": Case(
        of(recipes.cup, Q, STREAM, PPO_LOGITS, COST_ADV, 0.5), plain_cup, Q_PARAMS
    ),
    "p3o": Case(of(recipes.p3o, Q, STREAM, ADV, COST_ADV, 2.0), plain_p3o, Q_PARAMS),
}
