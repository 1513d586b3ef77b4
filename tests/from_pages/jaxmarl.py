"""JaxMARL, FLAIROx/JaxMARL@c793d09, `baselines/{IPPO,MAPPO,QLearning}/*.py`."""

import formulas as f
import jax
import jax.numpy as jnp

from from_pages import flags, integers, normal

T, N, A, H = 6, 3, 4, 5
INPUTS = {
    "v": (values := normal(T + 1))[:-1],
    "v_t": values[1:],
    "r_t": normal(T),
    "discount_t": 0.9 * (1 - flags(2, length=T)),
    "flowing_t": jnp.full(T, 0.9),
    "log_prob": (log_prob := normal(T)),
    "old_log_prob": log_prob + normal(T, scale=0.3),
    "old_v": values[:-1] + normal(T, scale=0.3),
    "adv": normal(T),
    "target": normal(T),
    "epsilon": 0.2,
    "mixing": 0.6,
    "q_tm1": normal(N, A),
    "a_tm1": integers(A, N),
    "agent_r_t": normal(N),
    "agent_discount_t": jnp.full(N, 0.9),
    "q_t": normal(N, A),
    "target_q_t": normal(N, A),
    # The best action of each agent is not always available.
    "available": jnp.array([[1, 0, 1, 1], [0, 1, 1, 0], [1, 1, 1, 0]], bool),
    "q": normal(N),
    "w1": normal(N, H),
    "b1": normal(H),
    "w2": normal(H),
    "b2": normal(),
    "target_mixer": (normal(N, H), normal(H), normal(H), normal()),
}
TRAINED = {"v", "log_prob", "q_tm1", "q", "w1", "b1", "w2", "b2"}


def greedy_values(q_t, target_q_t, available):
    valid = q_t - (1 - available) * 1e10
    return f.pick(target_q_t, jnp.argmax(valid, axis=-1))


def mix(q, w1, b1, w2, b2):
    hidden = jax.nn.elu(q[None] @ jnp.abs(w1) + b1[None])
    return (hidden @ jnp.abs(w2)[:, None] + b2)[0, 0]


def iql(q_tm1, a_tm1, agent_r_t, agent_discount_t, q_t, target_q_t, available):
    q_next = greedy_values(q_t, target_q_t, available)
    return (f.pick(q_tm1, a_tm1) - (agent_r_t + agent_discount_t * q_next)) ** 2


def vdn(q_tm1, a_tm1, r_t, discount_t, q_t, target_q_t, available):
    q_next = jnp.sum(greedy_values(q_t, target_q_t, available))
    return (jnp.sum(f.pick(q_tm1, a_tm1)) - (r_t[0] + discount_t[0] * q_next)) ** 2


def qmix(
    q_tm1,
    a_tm1,
    r_t,
    discount_t,
    q_t,
    target_q_t,
    available,
    w1,
    b1,
    w2,
    b2,
    target_mixer,
):
    q_next = mix(greedy_values(q_t, target_q_t, available), *target_mixer)
    mixed = mix(f.pick(q_tm1, a_tm1), w1, b1, w2, b2)
    return (mixed - (r_t[0] + discount_t[0] * q_next)) ** 2


def vdn_ff(q_tm1, a_tm1, r_t, discount_t, target_q_t, available):
    q_next = jnp.sum(jnp.max(target_q_t - (1 - available) * 1e10, axis=-1))
    return (jnp.sum(f.pick(q_tm1, a_tm1)) - (r_t[0] + discount_t[0] * q_next)) ** 2


def exploration(q_t, available):
    valid = q_t[0] - (1 - available[0]) * 1e10
    greedy = jax.nn.one_hot(jnp.argmax(valid), A)
    return 0.9 * greedy + 0.1 * available[0] / jnp.sum(available[0])


ROWS = {
    "ippo_rnn_smax: advantages": (f.gae, "v r_t discount_t v_t"),
    "ippo_rnn_smax: policy": lambda log_prob, old_log_prob, adv: f.clipped(
        log_prob, old_log_prob, f.standardized(adv)
    ),
    "ippo_rnn_smax: value": (f.clipped_values, "v old_v target epsilon"),
    "approx_kl, clip_frac": (f.statistics, "log_prob old_log_prob epsilon"),
    "iql_rnn": iql,
    "vdn_rnn": vdn,
    "qmix_rnn": qmix,
    "MixingNetwork": mix,
    "vdn_ff": vdn_ff,
    "pqn_vdn_rnn, pqn_vdn_ff": lambda r_t, discount_t, v_t: f.pqn(
        r_t, discount_t == 0, v_t, lambda_=0.95
    ),
    "transf_qmix": (f.lambda_returns, "r_t flowing_t v_t mixing"),
    "eps_greedy_exploration": exploration,
}
