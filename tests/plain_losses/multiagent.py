"""Losses of `recipes/multiagent.py` in plain `jax.numpy`."""

import jax.numpy as jnp
from recipes import multiagent as recipes

from plain_losses.common import (
    Q_PARAMS,
    A,
    B,
    Batch,
    Case,
    F,
    Q,
    huber,
    integers,
    log_prob,
    mean_entropy,
    normal,
    of,
    one_step,
    pick,
    stop,
)

N, H = 3, 2
TEAM = Batch(
    s_tm1=normal(B, N, F),
    s_t=normal(B, N, F),
    a_tm1=integers(A, B, N),
    r_t=normal(B),
    discount_t=jnp.array([0.9, 0.0, 0.9, 0.9]),
    old_log_prob=-1 + 0.3 * normal(B, N),
)
ADV, TARGET, RATIO = normal(B), 20 * normal(B), jnp.exp(0.1 * normal(B))


def values_and_mix(w, s):
    team = jnp.mean(s, axis=1) @ w["mix"]
    return (
        Q(w["q"], s),
        team[:, : N * H].reshape(-1, N, H),
        team[:, N * H : N * H + H],
        team[:, N * H + H : N * H + 2 * H],
        team[:, -1],
    )


MIX_PARAMS = tuple({"q": q, "mix": normal(F, N * H + 2 * H + 1)} for q in Q_PARAMS)


def logits_and_value(w, s):
    return Q(w["q"], s), jnp.mean(s, axis=1) @ w["mix"][:, 0]


def plain_vdn(p, t):
    team = jnp.sum(pick(Q(p, TEAM.s_tm1), TEAM.a_tm1), axis=1)
    target = one_step(jnp.sum(jnp.max(Q(t, TEAM.s_t), axis=-1), axis=1), TEAM)
    return jnp.mean((stop(target) - team) ** 2) / 2


def mixed(q, weights, bias, output, offset):
    hidden = jnp.einsum("bn,bnh->bh", q, jnp.abs(weights)) + bias
    hidden = jnp.where(hidden > 0, hidden, jnp.exp(hidden) - 1)
    return jnp.sum(jnp.abs(output) * hidden, axis=-1) + offset


def plain_qmix(p, t):
    (q, *weights), (q_t, *weights_t) = (
        values_and_mix(p, TEAM.s_tm1),
        values_and_mix(t, TEAM.s_t),
    )
    a_t = jnp.argmax(values_and_mix(p, TEAM.s_t)[0], axis=-1)
    target = one_step(mixed(pick(q_t, a_t), *weights_t), TEAM)
    return jnp.mean((stop(target) - mixed(pick(q, TEAM.a_tm1), *weights)) ** 2) / 2


def clip_loss(log_ratio, adv):
    ratio = jnp.exp(log_ratio)
    return -jnp.mean(jnp.minimum(ratio * adv, jnp.clip(ratio, 0.8, 1.2) * adv))


STANDARD = (ADV - jnp.mean(ADV)) / jnp.std(ADV)


def plain_mappo(p, t):
    logits, v = logits_and_value(p, TEAM.s_tm1)
    log_ratio = log_prob(logits, TEAM.a_tm1) - TEAM.old_log_prob
    error = v - TARGET
    # A Huber loss of 10 is 100 times one of a tenth of the error.
    value = 100 * jnp.mean(huber(error / 10))
    policy = clip_loss(log_ratio, STANDARD[:, None])
    return policy + value - 0.01 * mean_entropy(logits)


def plain_happo(p, t):
    log_pi = log_prob(Q(p, TEAM.s_tm1[:, 1]), TEAM.a_tm1[:, 1])
    return clip_loss(log_pi - TEAM.old_log_prob[:, 1], RATIO * STANDARD)


CASES = {
    "vdn": Case(of(recipes.vdn, Q, TEAM), plain_vdn, Q_PARAMS),
    "qmix": Case(of(recipes.qmix, values_and_mix, TEAM), plain_qmix, MIX_PARAMS),
    "mappo": Case(
        of(recipes.mappo, logits_and_value, TEAM, ADV, TARGET), plain_mappo, MIX_PARAMS
    ),
    "happo": Case(of(recipes.happo, Q, TEAM, ADV, RATIO, 1), plain_happo, Q_PARAMS),
}
