"""PureJaxRL, PureJaxQL and Rejax.

luchris429/purejaxrl@31756b1, `purejaxrl/{ppo,ppo_rnn,dqn,dpo_continuous_action}.py` and
`wrappers.py`; mttga/purejaxql@47af6d7, `purejaxql/{pqn_gymnax,pqn_rnn_gymnax}.py`;
keraJLi/rejax@d751095, `src/rejax/algos/{pqn,iqn,dqn,sac,td3}.py`.
"""

import jax
import jax.numpy as jnp

from from_pages import flags, integers, normal, uniform

T, A, N, M = 8, 4, 5, 1000
stop = jax.lax.stop_gradient
INPUTS = {
    "values": (values := normal(T + 1))[:-1],
    "v_t": values[1:],
    "r_t": normal(T),
    "discount_t": 0.9 * (1 - flags(2, length=T)),
    "done": flags(3, length=T + 1).astype(jnp.float32),
    "adv": normal(T),
    "log_prob": (log_prob := normal(T)),
    "old_log_prob": log_prob + normal(T, scale=0.3),
    "v": (v := normal(T)),
    "old_v": v + normal(T, scale=0.3),
    "target": normal(T),
    "q": normal(T, A),
    "a": integers(A, T),
    "next_q": normal(T, A),
    "observation": 3 + normal(M, 3),
    "quantiles": normal(N, A),
    "next_quantiles": normal(N, A),
    "tau": uniform(N),
    "logits": normal(T, A),
    "qs": normal(2, T, A),
    "log_alpha": jnp.float32(-0.4),
}
TRAINED = {"log_prob", "v", "q", "quantiles", "logits", "log_alpha"}


def gae(values, r_t, discount_t, v_t):
    total, found = 0.0, []
    for t in reversed(range(T)):
        delta = r_t[t] + discount_t[t] * v_t[t] - values[t]
        total = delta + 0.95 * discount_t[t] * total
        found = [total, *found]
    return jnp.stack(found)


def standardized(adv):
    return (adv - adv.mean()) / (adv.std() + 1e-8)


def policy_loss(log_prob, old_log_prob, adv):
    ratio, adv = jnp.exp(log_prob - old_log_prob), standardized(adv)
    return -jnp.minimum(ratio * adv, jnp.clip(ratio, 0.8, 1.2) * adv)


def value_loss(v, old_v, target):
    near = old_v + jnp.clip(v - old_v, -0.2, 0.2)
    return 0.5 * jnp.maximum((v - target) ** 2, (near - target) ** 2)


def dpo(log_prob, old_log_prob, adv):
    log_ratio, adv = log_prob - old_log_prob, standardized(adv)
    x, y = (jnp.exp(log_ratio) - 1) * adv, log_ratio * adv
    positive = jax.nn.relu(x - 2.0 * jnp.tanh(x / 2.0))
    negative = jax.nn.relu(y - 0.6 * jnp.tanh(y / 0.6))
    drift = jnp.where(adv >= 0, positive, negative)
    return -(jnp.exp(log_ratio) * adv - drift)


def chosen(q, a):
    return jnp.take_along_axis(q, a[:, None], axis=-1)[:, 0]


def td_error(q, a, r_t, discount_t, next_q):
    return chosen(q, a) - (r_t + discount_t * jnp.max(next_q, axis=-1))


def normalized(observation):
    total = 1e-4 + M
    mean = jnp.mean(observation, axis=0) * M / total
    m_2 = 1e-4 + jnp.var(observation, axis=0) * M
    m_2 += jnp.mean(observation, axis=0) ** 2 * 1e-4 * M / total
    return (observation - mean) / jnp.sqrt(m_2 / total + 1e-8)


def pqn(r_t, discount_t, v_t, late=False):
    """Return the targets, of which one bootstraps too late in `pqn_gymnax`."""
    done, total = discount_t == 0, r_t[-1] + discount_t[-1] * v_t[-1]
    next_q, found = v_t[-1] if late else v_t[-2], [total]
    for t in reversed(range(T - 1)):
        total = r_t[t] + 0.9 * (1 - done[t]) * next_q + 0.9 * 0.65 * (total - next_q)
        total = (1 - done[t]) * total + done[t] * r_t[t]
        found, next_q = [total, *found], v_t[t - 1]  # The value at step t.
    return jnp.stack(found)


def rejax_pqn(r_t, discount_t, v_t):
    total, next_q = r_t[-1] + 0.9 * v_t[-1], v_t[-1]
    found = [total]
    for t in reversed(range(T - 1)):
        bootstrap = next_q + 0.65 * (total - next_q)
        total = r_t[t] + discount_t[t] * bootstrap
        found, next_q = [total, *found], v_t[t]  # The value after step t.
    return jnp.stack(found)


def iqn(quantiles, tau, a, r_t, discount_t, next_quantiles):
    best = jnp.argmax(jnp.mean(next_quantiles, axis=0))
    target = r_t[0] + discount_t[0] * next_quantiles[:, best]
    error = target[None, :] - quantiles[:, a[0]][:, None]
    size = jnp.abs(error)
    huber = jnp.where(size <= 0.5, 0.5 * error**2, 0.5 * (size - 0.25))
    loss = jnp.abs(tau[:, None] - (error < 0)) * huber / 0.5
    return jnp.mean(jnp.sum(loss, axis=0))


def sac_target(r_t, discount_t, logits, qs):
    log_prob = jax.nn.log_softmax(logits)
    value = jnp.min(qs, axis=0) - 0.2 * log_prob
    return r_t + discount_t * jnp.sum(jnp.exp(log_prob) * value, axis=1)


def sac_actor(logits, qs):
    log_prob = jax.nn.log_softmax(logits)
    loss = 0.2 * log_prob - jnp.min(qs, axis=0)
    return jnp.sum(jnp.exp(log_prob) * loss, axis=1)


ROWS = {
    "ppo: advantages": gae,
    "ppo: policy": policy_loss,
    "ppo: value": value_loss,
    "ppo_rnn: advantages": lambda values, r_t, done, v_t: gae(
        values, r_t, 0.9 * (1 - done[1:]), v_t
    ),
    "dpo_continuous_action": dpo,
    "dqn": lambda q, a, r_t, discount_t, next_q: (
        td_error(q, a, r_t, discount_t, next_q) ** 2
    ),
    "NormalizeVecObservation": normalized,
    "pqn_rnn_gymnax: targets": pqn,
    "pqn_gymnax: targets": lambda r_t, discount_t, v_t: pqn(
        r_t, discount_t, v_t, late=True
    ),
    "pqn_gymnax: loss": lambda q, a, target: 0.5 * (chosen(q, a) - target) ** 2,
    "PQN.calculate_targets": rejax_pqn,
    "IQN.update": iqn,
    "DQN: loss": lambda q, a, r_t, discount_t, next_q: (
        0.5 * td_error(q, a, r_t, discount_t, next_q) ** 2
    ),
    "SAC: discrete target": sac_target,
    "SAC: discrete actor": sac_actor,
    "SAC: alpha": lambda log_alpha, log_prob: (
        -jnp.exp(log_alpha) * stop(log_prob - 3.0)
    ),
    "TD3: target": lambda r_t, discount_t, next_q: (
        r_t + discount_t * jnp.minimum(next_q[:, 0], next_q[:, 1])
    ),
}
