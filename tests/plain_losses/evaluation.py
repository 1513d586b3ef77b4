"""Losses of `recipes/evaluation.py` in plain `jax.numpy`."""

import jax
import jax.numpy as jnp
from formulas import huber, pick
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
    seed,
    stop,
)

seed(__name__)


K = 2
PSI, PSI_PARAMS = linear(A, K)
TASK = normal(K)
FEATURES = ONE._replace(phi_t=normal(B, K))
W_POLICY = normal(F, A)


def policy(s):
    """Return probabilities of a deterministic policy."""
    return jax.nn.one_hot(jnp.argmax(s @ W_POLICY, axis=-1), A)


def plain_fqe(p, t):
    """takuseno/d3rlpy@38c34b6.

    d3rlpy/ope/torch/fqe_impl.py: DiscreteFQEImpl, whose loss is Huber's, of
    models/torch/q_functions/mean_q_function.py.
    """
    next_actions = jnp.argmax(policy(ONE.s_t), axis=1)
    q_tpn = pick(Q(t, ONE.s_t), next_actions)
    y = stop(ONE.r_t + ONE.discount_t * q_tpn)
    value = jnp.sum(Q(p, ONE.s_tm1) * jax.nn.one_hot(ONE.a_tm1, A), axis=1)
    return jnp.mean(huber(value - y))


def plain_successor_features(p, t):
    """The paper's equation of its Bellman error, at the best action for the task."""
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
