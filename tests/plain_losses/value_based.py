"""Losses of `recipes/value_based.py` in plain `jax.numpy`."""

import jax
import jax.numpy as jnp
from recipes import value_based as recipes

from plain_losses.common import (
    ATOMS,
    ATOMS_PARAMS,
    FQF,
    FQF_PARAMS,
    KEY,
    ONE,
    PAIR_PARAMS,
    Q_PARAMS,
    QUANTILES,
    QUANTILES_PARAMS,
    SEQUENCE,
    STREAM,
    B,
    Case,
    M,
    Q,
    T,
    backward,
    both,
    cross_entropy,
    fractions,
    huber,
    implicit,
    log_prob,
    n_step,
    of,
    one_step,
    pick,
    policy_and_value,
    project,
    quantile,
    recurrent,
    rescale,
    stop,
    undo,
)


def plain_dqn(p, t):
    """google-deepmind/dqn_zoo@45061f4, dqn_zoo/dqn/agent.py."""
    target = one_step(jnp.max(Q(t, ONE.s_t), -1))
    return jnp.mean(huber(stop(target) - pick(Q(p, ONE.s_tm1), ONE.a_tm1)))


def plain_double_dqn(p, t, q=Q):
    """google-deepmind/dqn_zoo@45061f4, dqn_zoo/double_q/agent.py."""
    best = jnp.argmax(q(p, ONE.s_t), -1)
    target = one_step(pick(q(t, ONE.s_t), best))
    return jnp.mean(huber(stop(target) - pick(q(p, ONE.s_tm1), ONE.a_tm1)))


def dueling(w, s):
    advantages, v = policy_and_value(w, s)
    return v[..., None] + advantages - jnp.mean(advantages, -1, keepdims=True)


def plain_dueling_dqn(p, t):
    """openai/baselines@ea25b9e, baselines/deepq/build_graph.py."""
    return plain_double_dqn(p, t, dueling)


def plain_c51(p, t):
    """google-deepmind/dqn_zoo@45061f4, dqn_zoo/c51/agent.py."""
    atoms = jnp.linspace(-10, 10, M)
    rows = jnp.arange(B)
    probs = jax.nn.softmax(ATOMS(t, ONE.s_t))
    probs = probs[rows, jnp.argmax(probs @ atoms, -1)]
    target = project(ONE.r_t, ONE.discount_t, probs, atoms)
    logits = ATOMS(p, ONE.s_tm1)[rows, ONE.a_tm1]
    return jnp.mean(cross_entropy(stop(target), logits))


def window(n=3):
    """Return the first of streams as n-step transitions."""
    r_t, discount_t = jnp.zeros(B), jnp.ones(B)
    for k in range(n):
        r_t = r_t + discount_t * WINDOWS.r_t[:, k]
        discount_t = discount_t * WINDOWS.discount_t[:, k]
    s_t = WINDOWS.s_t[:, n - 1]
    return WINDOWS.s_tm1[:, 0], WINDOWS.a_tm1[:, 0], r_t, discount_t, s_t


def plain_rainbow(p, t):
    """google-deepmind/dqn_zoo@45061f4, dqn_zoo/rainbow/agent.py."""
    atoms, rows = jnp.linspace(-10, 10, M), jnp.arange(B)
    s_tm1, a_tm1, r, d, s_t = window()
    best = jnp.argmax(jax.nn.softmax(ATOMS(p, s_t)) @ atoms, -1)
    probs = jax.nn.softmax(ATOMS(t, s_t))[rows, best]
    target = project(r, d, probs, atoms)
    loss = cross_entropy(stop(target), ATOMS(p, s_tm1)[rows, a_tm1])
    return jnp.mean(weights(0.4) * loss)


def weights(exponent, b=STREAM):
    return (jnp.min(b.probability) / b.probability) ** exponent


def plain_qr_dqn(p, t):
    """google-deepmind/dqn_zoo@45061f4, dqn_zoo/qrdqn/agent.py."""
    rows, q_t = jnp.arange(B), QUANTILES(t, ONE.s_t)
    best = jnp.argmax(jnp.mean(q_t, axis=1), -1)
    y = ONE.r_t[:, None] + ONE.discount_t[:, None] * q_t[rows, :, best]
    x = QUANTILES(p, ONE.s_tm1)[rows, :, ONE.a_tm1]
    return quantile(x, (jnp.arange(M) + 0.5) / M, y)


def plain_iqn(p, t):
    """google-deepmind/dqn_zoo@45061f4, dqn_zoo/iqn/agent.py."""
    keys, rows = jax.random.split(KEY, 3), jnp.arange(B)
    tau, tau_t, tau_policy = (
        jax.random.uniform(k, (B, n)) for k, n in zip(keys, (6, 6, 4), strict=True)
    )
    best = jnp.argmax(jnp.mean(implicit(t, ONE.s_t, tau_policy), axis=1), -1)
    z = implicit(t, ONE.s_t, tau_t)[rows, :, best]
    y = ONE.r_t[:, None] + ONE.discount_t[:, None] * z
    return quantile(implicit(p, ONE.s_tm1, tau)[rows, :, ONE.a_tm1], tau, y)


def plain_fqf(p, t):
    rows = jnp.arange(B)
    tau, tau_t = stop(fractions(p, ONE.s_tm1)), stop(fractions(p, ONE.s_t))
    mid, mid_t = (tau[:, 1:] + tau[:, :-1]) / 2, (tau_t[:, 1:] + tau_t[:, :-1]) / 2
    q_t = FQF.quantiles(t, ONE.s_t, mid_t)
    best = jnp.argmax(jnp.einsum("bn,bna->ba", jnp.diff(tau_t), q_t), -1)
    y = ONE.r_t[:, None] + ONE.discount_t[:, None] * q_t[rows, :, best]
    return quantile(FQF.quantiles(p, ONE.s_tm1, mid)[rows, :, ONE.a_tm1], mid, y)


def plain_fqf_fractions(p, t):
    rows, tau = jnp.arange(B), fractions(p, ONE.s_tm1)
    mid = (tau[:, 1:] + tau[:, :-1]) / 2
    inner = FQF.quantiles(p, ONE.s_tm1, tau[:, 1:-1])[rows, :, ONE.a_tm1]
    outer = FQF.quantiles(p, ONE.s_tm1, mid)[rows, :, ONE.a_tm1]
    corrections = stop(2 * inner - outer[:, 1:] - outer[:, :-1])
    return jnp.mean(jnp.sum(tau[:, 1:-1] * corrections, axis=1))


def plain_munchausen(p, t):
    """google-research/google-research@0c1bbe5, munchausen_rl/agents/m_dqn.py."""
    tau, q_t = 0.03, Q(t, ONE.s_t)
    log_pi = log_prob(Q(t, ONE.s_tm1) / tau, ONE.a_tm1)
    soft = tau * jax.nn.logsumexp(q_t / tau, axis=-1)
    target = one_step(soft) + 0.9 * jnp.maximum(-1, tau * log_pi)
    return jnp.mean(huber(stop(target) - pick(Q(p, ONE.s_tm1), ONE.a_tm1)))


def plain_r2d2(p, t):
    """google-deepmind/acme@770bc75, acme/agents/jax/r2d2/learning.py: loss."""
    b = SEQUENCE
    q, target_q = (Q(w, b.s + b.state[:, None]) for w in (p, t))
    v_t = undo(pick(target_q, jnp.argmax(q, -1))[:, 1:])
    target = rescale(n_step(b.r_t, b.discount_t, v_t, 2))
    errors = (stop(target) - pick(q[:, :-1], b.a_tm1))[:, 2:]
    return jnp.mean(weights(0.6, b) * jnp.sum(0.5 * errors**2, axis=1))


def plain_ape_x(p, t):
    """kakaoenterprise/JORLDY@15a7536, jorldy/core/agent/ape_x.py: learn."""
    s_tm1, a_tm1, r, d, s_t = window()
    target = stop(r + d * pick(Q(t, s_t), jnp.argmax(Q(p, s_t), -1)))
    return jnp.mean(weights(0.4) * (target - pick(Q(p, s_tm1), a_tm1)) ** 2)


def pqn_targets(w):
    """mttga/purejaxql@47af6d7, purejaxql/pqn_atari.py: _compute_targets."""
    v_t = jnp.max(Q(w, STREAM.s_t), -1)
    return backward(STREAM.r_t, STREAM.discount_t, v_t, 0.65, v_t[:, -1])


PQN_TARGETS = pqn_targets(Q_PARAMS[1])


def plain_pqn(p, t):
    """mttga/purejaxql@47af6d7, purejaxql/pqn_atari.py: _loss_fn."""
    return 0.5 * jnp.mean((pick(Q(p, STREAM.s_tm1), STREAM.a_tm1) - PQN_TARGETS) ** 2)


def plain_mmd_dqn(p, t):
    rows, z_t = jnp.arange(B), QUANTILES(t, ONE.s_t)
    best = jnp.argmax(jnp.mean(z_t, axis=1), -1)
    y = stop(ONE.r_t[:, None] + ONE.discount_t[:, None] * z_t[rows, :, best])
    x = QUANTILES(p, ONE.s_tm1)[rows, :, ONE.a_tm1]

    def distance(x, y):
        return jnp.mean(jnp.abs(x[:, :, None] - y[:, None]))

    return 2 * distance(x, y) - distance(x, x) - distance(y, y)


def plain_advantage_learning(p, t, persistent=False):
    """chainer/chainerrl@7eed375, chainerrl/agents/al.py."""
    q_t = Q(t, ONE.s_t)
    target_q = Q(t, ONE.s_tm1)
    target = one_step(jnp.max(q_t, -1))
    gap = jnp.max(target_q, -1) - pick(target_q, ONE.a_tm1)
    repeated = one_step(pick(q_t, ONE.a_tm1))
    both = jnp.maximum(target - 0.9 * gap, repeated if persistent else -jnp.inf)
    return jnp.mean(huber(stop(both) - pick(Q(p, ONE.s_tm1), ONE.a_tm1)))


def plain_persistent_advantage_learning(p, t):
    return plain_advantage_learning(p, t, persistent=True)


def plain_deep_mellow(p, t):
    soft = jnp.log(jnp.mean(jnp.exp(5 * Q(p, ONE.s_t)), axis=-1)) / 5
    return jnp.mean(huber(stop(one_step(soft)) - pick(Q(p, ONE.s_tm1), ONE.a_tm1)))


def plain_pcl(p, t):
    b, (q_tm1, q_t) = STREAM, both(Q, p)
    v_tm1, v_t = (0.1 * jax.nn.logsumexp(q / 0.1, axis=-1) for q in (q_tm1, q_t))
    soft_r = b.r_t - 0.1 * log_prob(q_tm1 / 0.1, b.a_tm1)
    returns = n_step(soft_r, b.discount_t, v_t, T)
    return jnp.mean((returns - v_tm1) ** 2 / 2)


def plain_n_step_dqn(p, t):
    b = STREAM
    target = n_step(b.r_t, b.discount_t, jnp.max(Q(t, b.s_t), -1), 3)
    return jnp.mean(huber(stop(target) - pick(Q(p, b.s_tm1), b.a_tm1)))


FIRST = {k: x[:, :3] for k, x in vars(STREAM).items() if x is not None and x.ndim > 1}
WINDOWS = STREAM._replace(**FIRST)
WINDOWS.discount_t = WINDOWS.discount_t.at[:2].set(0.9)


def plain_munchausen_iqn(p, t):
    """google-research/google-research@0c1bbe5, munchausen_rl/agents/m_iqn.py."""
    tau = [jax.random.uniform(k, (B, 5)) for k in jax.random.split(KEY, 4)]
    x = pick(implicit(p, ONE.s_tm1, tau[0]), jnp.tile(ONE.a_tm1[:, None], 5))
    q = jnp.mean(implicit(t, ONE.s_tm1, tau[2]), axis=1)
    q_t = jnp.mean(implicit(t, ONE.s_t, tau[3]), axis=1)
    log_pi, log_pi_t = (0.1 * jax.nn.log_softmax(y / 0.1) for y in (q, q_t))
    reward = ONE.r_t + 0.9 * jnp.clip(pick(log_pi, ONE.a_tm1), -1, 0)
    z_t = implicit(t, ONE.s_t, tau[1])
    soft = jax.nn.softmax(q_t / 0.1)[:, None] * (z_t - log_pi_t[:, None])
    y = reward[:, None] + ONE.discount_t[:, None] * jnp.sum(soft, axis=2)
    return quantile(x, tau[0], y)


def plain_dqn_reg(p, t):
    """EdanToledo/Stoix@8fff19c, stoix/systems/q_learning/ff_dqn_reg.py."""
    q = pick(Q(p, ONE.s_tm1), ONE.a_tm1)
    target = one_step(jnp.max(Q(t, ONE.s_t), axis=-1))
    return jnp.mean(huber(stop(target) - q)) + 0.1 * jnp.mean(q)


CASES = {
    "munchausen_iqn": Case(
        of(recipes.munchausen_iqn, implicit, ONE, KEY, 0.1, 0.9, 5),
        plain_munchausen_iqn,
        Q_PARAMS,
    ),
    "dqn_reg": Case(of(recipes.dqn_reg, Q, ONE), plain_dqn_reg, Q_PARAMS),
    "mmd_dqn": Case(
        of(recipes.mmd_dqn, QUANTILES, ONE), plain_mmd_dqn, QUANTILES_PARAMS
    ),
    "advantage_learning": Case(
        of(recipes.advantage_learning, Q, ONE), plain_advantage_learning, Q_PARAMS
    ),
    "persistent_advantage_learning": Case(
        of(recipes.persistent_advantage_learning, Q, ONE),
        plain_persistent_advantage_learning,
        Q_PARAMS,
    ),
    "deep_mellow": Case(
        of(recipes.deep_mellow, Q, ONE, 5.0), plain_deep_mellow, Q_PARAMS
    ),
    "pcl": Case(of(recipes.pcl, Q, STREAM), plain_pcl, Q_PARAMS),
    "n_step_dqn": Case(of(recipes.n_step_dqn, Q, STREAM), plain_n_step_dqn, Q_PARAMS),
    "dqn": Case(of(recipes.dqn, Q, ONE), plain_dqn, Q_PARAMS),
    "double_dqn": Case(of(recipes.double_dqn, Q, ONE), plain_double_dqn, Q_PARAMS),
    "dueling_dqn": Case(
        of(recipes.dueling_dqn, lambda w, s: policy_and_value(w, s)[::-1], ONE),
        plain_dueling_dqn,
        PAIR_PARAMS,
    ),
    "c51": Case(of(recipes.c51, ATOMS, ONE), plain_c51, ATOMS_PARAMS),
    "qr_dqn": Case(of(recipes.qr_dqn, QUANTILES, ONE), plain_qr_dqn, QUANTILES_PARAMS),
    "iqn": Case(of(recipes.iqn, implicit, ONE, KEY, 6, 4), plain_iqn, Q_PARAMS),
    "fqf": Case(of(recipes.fqf, FQF, ONE), plain_fqf, FQF_PARAMS, "fractions"),
    "fqf_fractions": Case(
        of(recipes.fqf_fractions, FQF, ONE),
        plain_fqf_fractions,
        FQF_PARAMS,
        "quantiles",
        meaningless=True,
    ),
    "rainbow": Case(of(recipes.rainbow, ATOMS, WINDOWS), plain_rainbow, ATOMS_PARAMS),
    "munchausen_dqn": Case(
        of(recipes.munchausen_dqn, Q, ONE), plain_munchausen, Q_PARAMS
    ),
    # Two of five steps are the burn-in.
    "r2d2": Case(
        of(recipes.r2d2, recurrent, SEQUENCE, 2, 2),
        plain_r2d2,
        Q_PARAMS,
        factor=1 / 3,
    ),
    "ape_x": Case(of(recipes.ape_x, Q, WINDOWS), plain_ape_x, Q_PARAMS, factor=0.5),
    "pqn": Case(of(recipes.pqn, Q, STREAM, PQN_TARGETS), plain_pqn, Q_PARAMS),
}
