"""Losses of `recipes/constraints.py` in plain `jax.numpy`."""

import jax
import jax.numpy as jnp
import numpy as np
from formulas import pick
from recipes import constraints as recipes

from plain_losses.common import (
    IS_VALID,
    Q_PARAMS,
    ROLLOUTS,
    A,
    B,
    Q,
    T,
    cases,
    given,
    normal,
    seed,
    stop,
)

seed(__name__)


ADV, COST_ADV = normal(B, T), normal(B, T)


def flat(*arrays):
    """Return valid steps only."""
    return (x[IS_VALID] for x in arrays)


def ratio_and_distribution(p, b=ROLLOUTS):
    """Return ratios to the policy that acted, and log-probabilities of all actions."""
    s, a, old = flat(b.s_tm1, b.a_tm1, b.logits_tm1)
    logp_, logp = jax.nn.log_softmax(Q(p, s)), jax.nn.log_softmax(old)
    return jnp.exp(pick(logp_, a) - pick(logp, a)), logp_


PPO_LOGITS = normal(B, T, A)
# Close to the first policy at some steps, and far from it at others.
SHIFT = np.where(np.arange(T) < 3, 0.05, 2.0)[None, :, None] * normal(B, T, A)
NEAR = ROLLOUTS._replace(logits_tm1=Q(Q_PARAMS[0], ROLLOUTS.s_tm1) + SHIFT)


def plain_focops(p, t):
    """ymzhang01/focops@fc92fce, focops_main.py: of a categorical policy."""
    ratio, logp = ratio_and_distribution(p, NEAR)
    adv_b, cadv_b, old = flat(ADV, COST_ADV, jax.nn.log_softmax(NEAR.logits_tm1))
    kl_new_old = jnp.sum(jnp.exp(logp) * (logp - old), axis=-1)
    pi_loss = kl_new_old - (1 / 1.5) * ratio * (adv_b - 0.5 * cadv_b)
    return jnp.mean(pi_loss * (stop(kl_new_old) <= 0.02))


def plain_cup(p, t):
    """PKU-Alignment/omnisafe@15603dd.

    omnisafe/algorithms/on_policy/first_order/cup.py: _loss_pi_cost.
    """
    ratio, logp = ratio_and_distribution(p)
    adv_c, p_dist = flat(COST_ADV, jax.nn.log_softmax(PPO_LOGITS))
    kl = jnp.sum(jnp.exp(logp) * (logp - p_dist), axis=-1)
    coef = (1 - 0.99 * 0.95) / (1 - 0.99)
    return jnp.mean(0.5 * coef * ratio * adv_c + kl)


def plain_p3o(p, t):
    """PKU-Alignment/omnisafe@15603dd: _loss_pi and _loss_pi_cost.

    omnisafe/algorithms/on_policy/penalty_function/p3o.py
    """
    ratio, _ = ratio_and_distribution(p)
    adv_r, adv_c = flat(ADV, COST_ADV)
    ratio_cliped = jnp.clip(ratio, 1 - 0.2, 1 + 0.2)
    loss_reward = -jnp.mean(jnp.minimum(ratio * adv_r, ratio_cliped * adv_r))
    surr_cadv, jc = jnp.mean(ratio * adv_c), 2.0
    return loss_reward + 20 * jax.nn.relu(surr_cadv + jc)


CASES = cases(
    recipes,
    globals(),
    {
        "focops": given(Q_PARAMS, Q, NEAR, ADV, COST_ADV, 0.5),
        "cup": given(Q_PARAMS, Q, ROLLOUTS, PPO_LOGITS, COST_ADV, 0.5),
        "p3o": given(Q_PARAMS, Q, ROLLOUTS, ADV, COST_ADV, 2.0),
    },
)
