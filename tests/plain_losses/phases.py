"""Losses of `recipes/phases.py` in plain `jax.numpy`."""

import formulas as f
import jax
import jax.numpy as jnp
from formulas import huber, pick
from recipes import phases as recipes

from plain_losses.common import (
    IS_VALID,
    KEY,
    ONE,
    PAIR_PARAMS,
    Q_PARAMS,
    ROLLOUTS,
    B,
    D,
    F,
    Q,
    T,
    cases,
    given,
    normal,
    policy_and_value,
    seed,
    stop,
)

seed(__name__)


ADV, TARGET = normal(B, T), normal(B, T)
PARAMS = 0.3 * normal(F, 2 * D + 1), None


def gaussian_and_value(w, s):
    x = s @ w
    return x[..., :D], jax.nn.softplus(x[..., D : 2 * D]) + 0.5, x[..., -1]


ACTIONS = ROLLOUTS._replace(a_tm1=normal(B, T, D))


@jax.jit
def old_log_prob():
    mean, stddev, _ = gaussian_and_value(PARAMS[0], ROLLOUTS.s_tm1)
    return f.log_normal(ACTIONS.a_tm1, mean, stddev) + 0.1 * normal(B, T)


ACTIONS = ACTIONS._replace(old_log_prob=old_log_prob())


def plain_ppg_auxiliary(p, t):
    """openai/phasic-policy-gradient@7295473, phasic_policy_gradient/ppg.py: aux_train.

    Without the values of the other network.
    """
    logits, vpredaux = policy_and_value(p, ROLLOUTS.s_tm1[IS_VALID])
    oldpd, pd = map(jax.nn.log_softmax, (ROLLOUTS.logits_tm1[IS_VALID], logits))
    pol_distance = jnp.mean(jnp.sum(jnp.exp(oldpd) * (oldpd - pd), axis=-1))
    vf_aux = 0.5 * jnp.mean((vpredaux - TARGET[IS_VALID]) ** 2)
    return pol_distance + vf_aux


def td_loss(p):
    target = ONE.r_t + ONE.discount_t * jnp.max(Q(Q_PARAMS[1], ONE.s_t), axis=-1)
    return jnp.mean(huber(stop(target) - pick(Q(p, ONE.s_tm1), ONE.a_tm1)))


def plain_qdagger(p, t):
    """google-research/reincarnating_rl@e9df46e.

    reincarnating_rl/qdagger_dqn_agent.py, and loss_helpers.py: distillation_loss. A
    temperature of 0.5, and a coefficient times a decay of 0.7.
    """
    target_q_values, student_q_values = Q(t, ONE.s_tm1) / 0.5, Q(p, ONE.s_tm1) / 0.5
    log_p, log_q = map(jax.nn.log_softmax, (target_q_values, student_q_values))
    policy_loss = jnp.sum(jnp.exp(log_p) * (log_p - log_q), axis=-1)
    return td_loss(p) + 0.7 * jnp.mean(policy_loss)


def ppo(mean, stddev, newvalue):
    """Return the loss of a batch."""
    actions, old, returns, values, adv = (
        x[IS_VALID]
        for x in (ACTIONS.a_tm1, ACTIONS.old_log_prob, TARGET, ROLLOUTS.v_tm1, ADV)
    )
    log_prob, adv = f.log_normal(actions, mean, stddev), f.standardized(adv, ddof=1)
    v_loss = f.clipped_values(newvalue, values, returns)
    return jnp.mean(f.clipped(log_prob, old, adv) + v_loss * 0.5)


def plain_gaussian_ppo(p, t):
    """vwxyzjn/cleanrl@fe8d8a0, cleanrl/ppo_continuous_action.py."""
    return ppo(*gaussian_and_value(p, ACTIONS.s_tm1[IS_VALID]))


def plain_rpo(p, t):
    """vwxyzjn/cleanrl@fe8d8a0, cleanrl/rpo_continuous_action.py."""
    action_mean, action_std, v = gaussian_and_value(p, ACTIONS.s_tm1)
    z = jax.random.uniform(KEY, action_mean.shape, minval=-0.5, maxval=0.5)
    return ppo(*(x[IS_VALID] for x in (action_mean + z, action_std, v)))


CASES = cases(
    recipes,
    globals(),
    {
        "ppg_auxiliary": given(PAIR_PARAMS, policy_and_value, ROLLOUTS, TARGET),
        "qdagger": given(Q_PARAMS, Q, ONE, td_loss, 0.7, 0.5),
        "gaussian_ppo": given(PARAMS, gaussian_and_value, ACTIONS, ADV, TARGET),
        "rpo": given(PARAMS, gaussian_and_value, ACTIONS, KEY, ADV, TARGET),
    },
)
