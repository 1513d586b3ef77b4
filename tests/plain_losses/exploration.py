"""Losses of `recipes/exploration.py` and `streaming.py` in plain `jax.numpy`."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
from recipes import exploration as recipes
from recipes import streaming

from plain_losses.common import (
    ONE,
    Q_PARAMS,
    STREAM,
    A,
    B,
    Case,
    F,
    M,
    Q,
    T,
    both,
    log_prob,
    normal,
    of,
    one_step,
    pick,
    rescale,
    retrace,
    stop,
    undo,
)

K = 2
CURIOUS = STREAM._replace(intrinsic_r_t=normal(B, T))
MASKED = ONE._replace(head_mask=jnp.asarray([[1, 0], [1, 1], [0, 0], [0, 1]], bool))
RATIOS = ONE._replace(rho=jnp.exp(normal(B)))


def features(w, s):
    return jnp.tanh(s @ w["features"])


def inverse(w, x_tm1, x_t):
    return jnp.concatenate([x_tm1, x_t], axis=-1) @ w["inverse"]


def forward(w, x_tm1, a_tm1):
    return jnp.concatenate([x_tm1, jax.nn.one_hot(a_tm1, A)], axis=-1) @ w["forward"]


def heads(w, x):
    return (x @ w["heads"]).reshape(*x.shape[:-1], K, A)


NET = SimpleNamespace(
    features=features,
    embedding=features,
    torso=features,
    inverse=inverse,
    forward=forward,
    heads=heads,
    value=lambda w, s: (s @ w["value"])[..., 0],
    correction=lambda w, s: (s @ w["correction"])[..., 0],
)
SHAPES = {"features": (F, M), "heads": (M, K * A), "inverse": (2 * M, A)}
SHAPES |= {"forward": (M + A, M), "value": (F, 1), "correction": (F, 1)}


def params(*names):
    return tuple({k: 0.5 * normal(*SHAPES[k]) for k in names} for _ in range(2))


def plain_rnd(p, t):
    """openai/random-network-distillation@f75c0f1, ppo_agent.py: aux_loss."""
    error = features(p, ONE.s_t) - features(t, ONE.s_t)
    return jnp.mean(jnp.mean(error**2, axis=-1))


def plain_ngu_embedding(p, t):
    logits = inverse(p, features(p, ONE.s_tm1), features(p, ONE.s_t))
    return -jnp.mean(log_prob(logits, ONE.a_tm1))


def plain_ngu(p, t):
    b, (q_tm1, q_t) = CURIOUS, both(Q, p)
    pi_t, target_q = jax.nn.one_hot(jnp.argmax(q_t, axis=-1), A), undo(Q(t, b.s_t))
    returns = retrace(target_q, pi_t, 0.95, b.r_t + 0.3 * b.intrinsic_r_t)
    return jnp.mean((stop(rescale(returns)) - pick(q_tm1, b.a_tm1)) ** 2 / 2)


def plain_icm(p, t):
    """pathak22/noreward-rl@3e220c2, src/model.py."""
    x_tm1, x_t = features(p, ONE.s_tm1), features(p, ONE.s_t)
    error = forward(p, x_tm1, ONE.a_tm1) - stop(x_t)
    inverse_loss = -log_prob(inverse(p, x_tm1, x_t), ONE.a_tm1)
    return jnp.mean(0.8 * inverse_loss + 0.2 * jnp.sum(error**2, axis=-1) / 2)


def plain_bootstrapped_dqn(p, t):
    """google-deepmind/bsuite@effafc0, bsuite/baselines/jax/boot_dqn/agent.py.

    With a torso, to which each head contributes 1/K of its gradient.
    """
    x = features(p, ONE.s_tm1)
    q = heads(p, x / K + stop(x - x / K))
    v_t = jnp.max(heads(t, features(t, ONE.s_t)), axis=-1)
    target = ONE.r_t[:, None] + ONE.discount_t[:, None] * v_t
    errors = stop(target) - q[jnp.arange(B), :, ONE.a_tm1]
    return jnp.mean(jnp.sum(MASKED.head_mask * errors**2, axis=-1))


def plain_tdc(p, t, second=False):
    v, v_t = NET.value(p, ONE.s_tm1), NET.value(p, ONE.s_t)
    h, rho = NET.correction(p, ONE.s_tm1), RATIOS.rho
    error = stop(one_step(v_t) - v)
    lead = stop(h) if second else error
    value_loss = -lead * v + ONE.discount_t * stop(h) * v_t
    return jnp.mean(rho * (value_loss + (error - h) ** 2 / 2))


CASES = {
    "rnd": Case(
        of(recipes.rnd, features, ONE), plain_rnd, params("features"), factor=M
    ),
    "ngu_embedding": Case(
        of(recipes.ngu_embedding, NET, ONE),
        plain_ngu_embedding,
        params("features", "inverse"),
    ),
    "ngu": Case(of(recipes.ngu, Q, CURIOUS), plain_ngu, Q_PARAMS),
    "icm": Case(
        of(recipes.icm, NET, ONE),
        plain_icm,
        params("features", "forward", "inverse"),
    ),
    "bootstrapped_dqn": Case(
        of(recipes.bootstrapped_dqn, NET, MASKED),
        plain_bootstrapped_dqn,
        params("features", "heads"),
        factor=0.5,
    ),
    "tdc": Case(
        of(streaming.tdc, NET, RATIOS),
        plain_tdc,
        params("value", "correction"),
        meaningless=True,
    ),
    "gtd2": Case(
        of(streaming.gtd2, NET, RATIOS),
        lambda p, t: plain_tdc(p, t, second=True),
        params("value", "correction"),
        meaningless=True,
    ),
}
