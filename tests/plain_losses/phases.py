"""Losses of `recipes/phases.py` in plain `jax.numpy`."""

import jax
import jax.numpy as jnp
from recipes import phases as recipes

from plain_losses.common import (
    KEY,
    ONE,
    PAIR_PARAMS,
    Q_PARAMS,
    STREAM,
    B,
    Case,
    D,
    F,
    Q,
    T,
    cross_entropy,
    normal,
    of,
    one_step,
    pick,
    policy_and_value,
    stop,
)

ADV, TARGET = normal(B, T), normal(B, T)
STANDARD = (ADV - jnp.mean(ADV)) / jnp.std(ADV)
PARAMS = 0.3 * normal(F, 2 * D + 1), None


def gaussian_and_value(w, s):
    x = s @ w
    return x[..., :D], jax.nn.softplus(x[..., D : 2 * D]) + 0.5, x[..., -1]


def density(mean, stddev, a):
    z = (a - mean) / stddev
    return -jnp.sum(z**2 / 2 + jnp.log(stddev) + jnp.log(2 * jnp.pi) / 2, axis=-1)


ACTIONS = STREAM._replace(a_tm1=normal(B, T, D))
OLD = density(*gaussian_and_value(PARAMS[0], STREAM.s_tm1)[:2], ACTIONS.a_tm1)
ACTIONS = ACTIONS._replace(old_log_prob=OLD + 0.1 * normal(B, T))


def plain_ppg_auxiliary(p, t):
    """openai/phasic-policy-gradient@7295473, phasic_policy_gradient/ppg.py."""
    logits, v = policy_and_value(p, STREAM.s_tm1)
    log_p, log_q = map(jax.nn.log_softmax, (STREAM.logits_tm1, logits))
    kl = jnp.sum(jnp.exp(log_p) * (log_p - log_q), axis=-1)
    return jnp.mean((v - TARGET) ** 2 / 2 + kl)


def td_loss(p):
    target = one_step(jnp.max(Q(Q_PARAMS[1], ONE.s_t), axis=-1))
    return jnp.mean((stop(target) - pick(Q(p, ONE.s_tm1), ONE.a_tm1)) ** 2) / 2


def plain_qdagger(p, t):
    teacher = jax.nn.softmax(Q(t, ONE.s_tm1) / 0.5)
    return td_loss(p) + 0.7 * jnp.mean(cross_entropy(teacher, Q(p, ONE.s_tm1) / 0.5))


def ppo(mean, stddev, v):
    ratio = jnp.exp(density(mean, stddev, ACTIONS.a_tm1) - ACTIONS.old_log_prob)
    clipped = jnp.clip(ratio, 0.8, 1.2)
    policy = -jnp.minimum(ratio * STANDARD, clipped * STANDARD)
    return jnp.mean(policy + (v - TARGET) ** 2 / 4)


def plain_gaussian_ppo(p, t):
    return ppo(*gaussian_and_value(p, ACTIONS.s_tm1))


def plain_rpo(p, t):
    mean, stddev, v = gaussian_and_value(p, ACTIONS.s_tm1)
    noise = jax.random.uniform(KEY, mean.shape, minval=-0.5, maxval=0.5)
    return ppo(mean + noise, stddev, v)


CASES = {
    "ppg_auxiliary": Case(
        of(recipes.ppg_auxiliary, policy_and_value, STREAM, TARGET),
        plain_ppg_auxiliary,
        PAIR_PARAMS,
    ),
    "qdagger": Case(
        of(recipes.qdagger, Q, ONE, td_loss, 0.7, 0.5), plain_qdagger, Q_PARAMS
    ),
    "gaussian_ppo": Case(
        of(recipes.gaussian_ppo, gaussian_and_value, ACTIONS, ADV, TARGET),
        plain_gaussian_ppo,
        PARAMS,
    ),
    "rpo": Case(
        of(recipes.rpo, gaussian_and_value, ACTIONS, KEY, ADV, TARGET),
        plain_rpo,
        PARAMS,
    ),
}
