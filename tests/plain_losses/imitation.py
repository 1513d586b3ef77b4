"""Losses of `recipes/imitation.py` in plain `jax.numpy`."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
from recipes import imitation as recipes

from plain_losses.common import (
    ACTION,
    KEY,
    ONE,
    Q_PARAMS,
    STREAM,
    A,
    B,
    Case,
    D,
    F,
    Q,
    both,
    log_prob,
    n_step,
    normal,
    of,
    pick,
    stop,
)

EXPERT = ACTION._replace(s_tm1=normal(B, F), a_tm1=jnp.tanh(normal(B, D)))
IS_EXPERT = jnp.array([True, False, True, False])
MIXED, MIXED_STREAM = (x._replace(is_expert=IS_EXPERT) for x in (ONE, STREAM))
JUDGED, JUDGED_EXPERT = (
    ONE._replace(s_tm1=normal(B, F), log_prob=-jnp.exp(normal(B))) for _ in range(2)
)


def plain_bc(p, t):
    return -jnp.mean(log_prob(Q(p, ONE.s_tm1), ONE.a_tm1))


def plain_dqfd(p, t):
    b, (q, q_t) = STREAM, both(Q, p)
    v_t = pick(Q(t, b.s_t), jnp.argmax(q_t, -1))
    chosen = pick(q, b.a_tm1)
    margin = 0.8 * (1 - jax.nn.one_hot(b.a_tm1, A))
    loss = IS_EXPERT[:, None] * (jnp.max(q + margin, -1) - chosen)
    for n in (1, 3):
        target = n_step(b.r_t, b.discount_t, v_t, n)
        loss = loss + (stop(target) - chosen) ** 2 / 2
    return jnp.mean(loss)


def judge(w, s, a):
    return jnp.sum(jnp.tanh(jnp.concatenate([s, a], axis=-1) @ w), axis=-1)


def two_classes(expert_logit, policy_logit):
    d_expert, d_policy = jax.nn.sigmoid(expert_logit), jax.nn.sigmoid(policy_logit)
    return -jnp.mean(jnp.log(d_expert) + jnp.log(1 - d_policy))


def plain_gail(p, t):
    """google-research/google-research@0c1bbe5, dac/gail.py."""
    u = jax.random.uniform(KEY, (B, 1))
    s = u * EXPERT.s_tm1 + (1 - u) * ACTION.s_tm1
    a = u * EXPERT.a_tm1 + (1 - u) * ACTION.a_tm1
    loss = two_classes(*(judge(p, x.s_tm1, x.a_tm1) for x in (EXPERT, ACTION)))
    gradients = jax.grad(lambda s, a: jnp.sum(judge(p, s, a)), (0, 1))(s, a)
    norms = jnp.sqrt(sum(jnp.sum(x**2, axis=-1) for x in gradients))
    return loss + 10 * jnp.mean((norms - 1) ** 2)


def inverse(w, s):
    return jnp.tanh(s @ w["reward"])[:, 0], jnp.tanh(s @ w["potential"])[:, 0]


AIRL = SimpleNamespace(
    reward=lambda w, s: inverse(w, s)[0], potential=lambda w, s: inverse(w, s)[1]
)


def advantage(p, b):
    (reward, v_tm1), (_, v_t) = inverse(p, b.s_tm1), inverse(p, b.s_t)
    return reward + b.discount_t * v_t - v_tm1


def plain_airl(p, t):
    expert, policy = (
        jnp.exp(f) / (jnp.exp(f) + jnp.exp(b.log_prob))
        for f, b in ((advantage(p, b), b) for b in (JUDGED_EXPERT, JUDGED))
    )
    return -jnp.mean(jnp.log(expert) + jnp.log(1 - policy))


def plain_sqil(p, t):
    soft = jnp.log(jnp.sum(jnp.exp(Q(t, ONE.s_t)), axis=-1))
    target = 1.0 * IS_EXPERT + ONE.discount_t * soft
    return jnp.mean((stop(target) - pick(Q(p, ONE.s_tm1), ONE.a_tm1)) ** 2 / 2)


AIRL_PARAMS = {"reward": normal(F, 1), "potential": normal(F, 1)}
CASES = {
    "bc": Case(of(recipes.bc, Q, ONE), plain_bc, Q_PARAMS),
    "dqfd": Case(of(recipes.dqfd, Q, MIXED_STREAM, 3), plain_dqfd, Q_PARAMS),
    "gail": Case(
        of(recipes.gail, judge, ACTION, EXPERT, KEY),
        plain_gail,
        (0.5 * normal(F + D, 3), None),
    ),
    "airl": Case(
        of(recipes.airl, AIRL, JUDGED, JUDGED_EXPERT),
        plain_airl,
        (AIRL_PARAMS, None),
    ),
    "sqil": Case(of(recipes.sqil, Q, MIXED), plain_sqil, Q_PARAMS),
}
