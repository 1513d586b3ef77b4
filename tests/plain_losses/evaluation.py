"""Losses of `recipes/evaluation.py` in plain `jax.numpy`."""

import jax
import jax.numpy as jnp
from recipes import evaluation as recipes

from plain_losses.common import (
    ONE,
    Q_PARAMS,
    A,
    B,
    Case,
    F,
    Q,
    linear,
    normal,
    one_step,
    pick,
    stop,
)

K = 2
PSI, PSI_PARAMS = linear(A, K)
TASK = normal(K)
FEATURES = ONE._replace(phi_t=normal(B, K))
W_POLICY = normal(F, A)


def policy(s):
    return jax.nn.softmax(s @ W_POLICY)


def plain_fqe(p, t):
    target = one_step(jnp.sum(policy(ONE.s_t) * Q(t, ONE.s_t), axis=-1))
    return jnp.mean((stop(target) - pick(Q(p, ONE.s_tm1), ONE.a_tm1)) ** 2) / 2


def plain_successor_features(p, t):
    b, loss = FEATURES, 0.0
    for i in range(B):
        psi, psi_t = PSI(p, b.s_tm1[i]), PSI(t, b.s_t[i])
        best = psi_t[jnp.argmax(psi_t @ TASK)]
        target = stop(b.phi_t[i] + b.discount_t[i] * best)
        loss += jnp.sum((target - psi[b.a_tm1[i]]) ** 2) / 2
    return loss / B


CASES = {
    "fqe": Case(lambda p, t: recipes.fqe(p, t, Q, policy, ONE), plain_fqe, Q_PARAMS),
    "successor_features": Case(
        lambda p, t: recipes.successor_features(p, t, PSI, FEATURES, TASK),
        plain_successor_features,
        PSI_PARAMS,
    ),
}
