"""Losses of `recipes/exploration.py` and `streaming.py` in plain `jax.numpy`."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
from formulas import pick
from recipes import exploration as recipes
from recipes import streaming

from plain_losses.common import (
    GAMMA,
    IS_CUT,
    IS_END,
    IS_VALID,
    ONE,
    Q_PARAMS,
    ROLLOUTS,
    A,
    B,
    Case,
    F,
    M,
    Q,
    T,
    cases,
    given,
    normal,
    of,
    pool,
    rescale,
    seed,
    stop,
    undo,
)

seed(__name__)


K = 2
CURIOUS = ROLLOUTS._replace(intrinsic_r_t=normal(B, T))
MASKED = ONE._replace(head_mask=np.array([[1, 0], [1, 1], [0, 0], [0, 1]], bool))
RATIOS = ONE._replace(rho=np.exp(normal(B)))


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
    """openai/random-network-distillation@f75c0f1.

    policies/cnn_policy_param_matched.py: aux_loss, on all steps.
    """
    targets, x_r_hat = stop(features(t, ONE.s_t)), features(p, ONE.s_t)
    aux_loss, mask = jnp.mean((targets - x_r_hat) ** 2, axis=-1), jnp.ones(B)
    return jnp.sum(mask * aux_loss) / jnp.maximum(jnp.sum(mask), 1.0)


def three(w, s):
    """Return logits and two values."""
    x = s @ w
    return x[..., :A], x[..., A], x[..., A + 1]


def plain_rnd_ppo(p, t):
    """openai/random-network-distillation@f75c0f1, ppo_agent.py, of the valid steps.

    With use_news False: the intrinsic returns go on over ends and cuts.
    """
    b = jax.tree.map(np.asarray, NOVEL)
    advs_int, advs_ext = np.zeros((B, T)), np.zeros((B, T))
    for i in range(B):
        steps = np.flatnonzero(IS_VALID[i])
        lastgaelam = 0.0
        for k in steps[::-1]:
            nextvals = b.intrinsic_v_t[i, k]
            delta = b.intrinsic_r_t[i, k] + 0.99 * nextvals - b.intrinsic_v_tm1[i, k]
            advs_int[i, k] = lastgaelam = delta + 0.99 * 0.95 * lastgaelam
        lastgaelam = 0.0
        for k in steps[::-1]:
            if IS_CUT[i, k]:
                lastgaelam = 0.0
            gamma = GAMMA * (1 - IS_END[i, k])
            delta = b.r_t[i, k] + gamma * b.v_t[i, k] - b.v_tm1[i, k]
            advs_ext[i, k] = lastgaelam = delta + gamma * 0.95 * lastgaelam
    rets_int, rets_ext = advs_int + b.intrinsic_v_tm1, advs_ext + b.v_tm1
    adv = (1.0 * advs_int + 2.0 * advs_ext)[IS_VALID]
    logits, vpred_ext, vpred_int = (x[IS_VALID] for x in three(p, b.s_tm1))
    log_pi, a = jax.nn.log_softmax(logits), b.a_tm1[IS_VALID]
    oldlogp = pick(jax.nn.log_softmax(b.logits_tm1[IS_VALID]), a)
    ratio = jnp.exp(pick(log_pi, a) - oldlogp)
    pg_loss = jnp.mean(jnp.maximum(-adv * ratio, -adv * jnp.clip(ratio, 0.9, 1.1)))
    vf_loss_int = 0.5 * jnp.mean((vpred_int - rets_int[IS_VALID]) ** 2)
    vf_loss_ext = 0.5 * jnp.mean((vpred_ext - rets_ext[IS_VALID]) ** 2)
    ent = -jnp.mean(jnp.sum(jnp.exp(log_pi) * log_pi, axis=-1))
    return pg_loss - 0.001 * ent + vf_loss_int + vf_loss_ext


def plain_ngu_embedding(p, t):
    """michaelnny/deep_rl_zoo@19e3844, deep_rl_zoo/ngu/agent.py: of one step."""
    embedding_s_tm1, embedding_s_t = features(p, ONE.s_tm1), features(p, ONE.s_t)
    pi_logits = inverse(p, embedding_s_tm1, embedding_s_t)
    return jnp.mean(-pick(jax.nn.log_softmax(pi_logits), ONE.a_tm1))


def plain_ngu(p, t):
    """michaelnny/deep_rl_zoo@19e3844.

    deep_rl_zoo/ngu/agent.py: _calc_retrace_loss, and nonlinear_bellman.py.
    """

    def retrace(b):
        q_tm1, q_t = Q(p, b.s_tm1), Q(t, b.obs[1:])
        mu = jnp.exp(pick(jax.nn.log_softmax(b.logits_tm1), b.a_tm1))
        pi_t, q_t = jax.nn.softmax(q_t), undo(q_t)
        r_t = b.r_t + 0.3 * b.intrinsic_r_t
        exp_q_t, g = jnp.sum(pi_t * q_t, axis=-1), None
        returns, n = [], len(b.r_t)
        for k in reversed(range(n)):
            value = exp_q_t[k]
            if k < n - 1:
                a = b.a_tm1[k + 1]
                c_t = jnp.minimum(1.0, pi_t[k, a] / (mu[k + 1] + 1e-8)) * 0.95
                value = exp_q_t[k] - c_t * q_t[k, a] + c_t * g
            g = r_t[k] + GAMMA * (1 - b.dones[k]) * value
            returns.append(g)
        target_tm1 = stop(rescale(jnp.stack(returns[::-1])))
        td_error = target_tm1 - pick(q_tm1, b.a_tm1)
        return (jnp.sum(0.5 * td_error**2)[None],)

    return jnp.sum(*pool(retrace, CURIOUS)) / B


def plain_icm(p, t):
    """pathak22/noreward-rl@3e220c2, src/model.py and src/a3c.py.

    The number of features, 288, is M.
    """
    phi1, phi2 = features(p, ONE.s_tm1), features(p, ONE.s_t)
    logits = inverse(p, phi1, phi2)
    invloss = jnp.mean(-pick(jax.nn.log_softmax(logits), ONE.a_tm1))
    forwardloss = 0.5 * jnp.mean((forward(p, phi1, ONE.a_tm1) - phi2) ** 2) * M
    return invloss * (1 - 0.2) + forwardloss * 0.2


def plain_bootstrapped_dqn(p, t):
    """google-deepmind/bsuite@effafc0, bsuite/baselines/jax/boot_dqn/agent.py.

    Without noise on rewards, and with a torso of all heads, to which each contributes
    1/K of its gradient.
    """

    def loss(k):
        x = features(p, ONE.s_tm1)
        q_tm1 = heads(p, x / K + stop(x - x / K))[:, k]
        q_t = heads(t, features(t, ONE.s_t))[:, k]
        target = stop(ONE.r_t + ONE.discount_t * jnp.max(q_t, axis=-1))
        td_error = target - pick(q_tm1, ONE.a_tm1)
        return jnp.mean(MASKED.head_mask[:, k] * td_error**2)

    return sum(loss(k) for k in range(K))


def plain_tdc(p, t, second=False):
    """The paper's equations 8 to 10, as gradients of a loss: -δ∇v + γ(∇φ·w)∇v'."""
    v, v_t = NET.value(p, ONE.s_tm1), NET.value(p, ONE.s_t)
    h, rho = NET.correction(p, ONE.s_tm1), RATIOS.rho
    error = stop(ONE.r_t + ONE.discount_t * v_t - v)
    lead = stop(h) if second else error
    value_loss = -lead * v + ONE.discount_t * stop(h) * v_t
    return jnp.mean(rho * (value_loss + (error - h) ** 2 / 2))


CASES = cases(
    recipes,
    globals(),
    {
        "rnd": given(params("features"), features, ONE),
        "ngu_embedding": given(params("features", "inverse"), NET, ONE),
        "ngu": given(Q_PARAMS, Q, CURIOUS),
        "icm": given(params("features", "forward", "inverse"), NET, ONE),
        "bootstrapped_dqn": given(params("features", "heads"), NET, MASKED),
    },
)
CASES |= {
    "tdc": Case(
        of(streaming.tdc, NET, RATIOS), plain_tdc, params("value", "correction")
    ),
    "gtd2": Case(
        of(streaming.gtd2, NET, RATIOS),
        lambda p, t: plain_tdc(p, t, second=True),
        params("value", "correction"),
    ),
}

NOVEL = ROLLOUTS._replace(
    intrinsic_r_t=np.abs(normal(B, T)),
    intrinsic_v_tm1=normal(B, T),
    intrinsic_v_t=normal(B, T),
)

CASES["rnd_ppo"] = Case(
    of(recipes.rnd_ppo, three, NOVEL), plain_rnd_ppo, (0.5 * normal(F, A + 2), None)
)
