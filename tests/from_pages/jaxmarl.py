"""JaxMARL, FLAIROx/JaxMARL@c793d09, `baselines/{IPPO,MAPPO,QLearning}/*.py`."""

import jax
import jax.numpy as jnp

from from_pages import flags, integers, normal

T, N, A, H = 6, 3, 4, 5
stop = jax.lax.stop_gradient
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


def gae(v, r_t, discount_t, v_t):
    total, found = 0.0, []
    for t in reversed(range(T)):
        delta = r_t[t] + discount_t[t] * v_t[t] - v[t]
        total = delta + discount_t[t] * 0.95 * total
        found = [total, *found]
    return jnp.stack(found)


def policy_loss(log_prob, old_log_prob, adv, epsilon):
    ratio = jnp.exp(log_prob - old_log_prob)
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    return -jnp.minimum(ratio * adv, jnp.clip(ratio, 1 - epsilon, 1 + epsilon) * adv)


def value_loss(v, old_v, target, epsilon):
    near = old_v + jnp.clip(v - old_v, -epsilon, epsilon)
    return 0.5 * jnp.maximum((v - target) ** 2, (near - target) ** 2)


def statistics(log_prob, old_log_prob, epsilon):
    log_ratio = stop(log_prob) - old_log_prob  # To be logged.
    ratio = jnp.exp(log_ratio)
    clipped = jnp.mean(jnp.abs(ratio - 1) > epsilon)
    return jnp.mean(ratio - 1 - log_ratio), clipped


def chosen(q, actions):
    return jnp.take_along_axis(q, actions[:, None], axis=-1)[:, 0]


def greedy_values(q_t, target_q_t, available):
    valid = q_t - (1 - available) * 1e10
    return chosen(target_q_t, jnp.argmax(valid, axis=-1))


def mix(q, w1, b1, w2, b2):
    hidden = jax.nn.elu(q[None] @ jnp.abs(w1) + b1[None])
    return (hidden @ jnp.abs(w2)[:, None] + b2)[0, 0]


def iql(q_tm1, a_tm1, agent_r_t, agent_discount_t, q_t, target_q_t, available):
    q_next = greedy_values(q_t, target_q_t, available)
    return (chosen(q_tm1, a_tm1) - (agent_r_t + agent_discount_t * q_next)) ** 2


def vdn(q_tm1, a_tm1, r_t, discount_t, q_t, target_q_t, available):
    q_next = jnp.sum(greedy_values(q_t, target_q_t, available))
    return (jnp.sum(chosen(q_tm1, a_tm1)) - (r_t[0] + discount_t[0] * q_next)) ** 2


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
    mixed = mix(chosen(q_tm1, a_tm1), w1, b1, w2, b2)
    return (mixed - (r_t[0] + discount_t[0] * q_next)) ** 2


def vdn_ff(q_tm1, a_tm1, r_t, discount_t, target_q_t, available):
    q_next = jnp.sum(jnp.max(target_q_t - (1 - available) * 1e10, axis=-1))
    return (jnp.sum(chosen(q_tm1, a_tm1)) - (r_t[0] + discount_t[0] * q_next)) ** 2


def pqn(r_t, discount_t, v_t):
    done = discount_t == 0
    total = r_t[-1] + discount_t[-1] * v_t[-1]
    found = [total]
    for t in reversed(range(T - 1)):
        bootstrap = r_t[t] + 0.9 * (1 - done[t]) * v_t[t]
        total = bootstrap + 0.9 * 0.95 * (total - v_t[t])
        total = (1 - done[t]) * total + done[t] * r_t[t]
        found = [total, *found]
    return jnp.stack(found)


def transf_qmix(r_t, v_t):
    total, found = v_t[-1], []
    for t in reversed(range(T)):
        total = total * 0.6 * 0.9 + r_t[t] + (1 - 0.6) * 0.9 * v_t[t]
        found = [total, *found]
    return jnp.stack(found)


def exploration(q_t, available):
    valid = q_t[0] - (1 - available[0]) * 1e10
    greedy = jax.nn.one_hot(jnp.argmax(valid), A)
    return 0.9 * greedy + 0.1 * available[0] / jnp.sum(available[0])


ROWS = {
    "ippo_rnn_smax: advantages": gae,
    "ippo_rnn_smax: policy": policy_loss,
    "ippo_rnn_smax: value": value_loss,
    "approx_kl, clip_frac": statistics,
    "iql_rnn": iql,
    "vdn_rnn": vdn,
    "qmix_rnn": qmix,
    "MixingNetwork": mix,
    "vdn_ff": vdn_ff,
    "pqn_vdn_rnn, pqn_vdn_ff": pqn,
    "transf_qmix": transf_qmix,
    "eps_greedy_exploration": exploration,
}
