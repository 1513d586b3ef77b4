"""TorchRL, pytorch/rl@ae9719f.

`torchrl/objectives/value/functional.py`, `torchrl/objectives/*.py`.
"""

import jax
import jax.numpy as jnp

from from_pages import flags, integers, normal

T, A, D = 6, 4, 3
stop = jax.lax.stop_gradient
INPUTS = {
    "v_tm1": normal(T),
    "v_t": normal(T),
    "r_t": normal(T),
    "discount_t": 0.9 * (1 - flags(4, length=T)),
    "truncated_t": flags(2, length=T),
    "row_v_t": normal(T),
    "row_discount_t": 0.9 * (1 - flags(4, length=T)),
    "log_pi": normal(T, scale=0.5),
    "log_mu": normal(T, scale=0.5),
    "log_prob": (log_prob := normal(T)),
    "old_log_prob": log_prob + normal(T, scale=0.3),
    "next_log_prob": normal(T),
    "adv": normal(T),
    "q": normal(T, A),
    "a": integers(A, T),
    "next_q": normal(T, A),
    "qs": normal(2, T),
    "next_qs": normal(2, T),
    "log_alpha": jnp.float32(-0.4),
    "v": normal(T),
    "old_v": normal(T),
    "target": normal(T),
    "action": normal(T, D),
    "data_action": normal(T, D),
}
INPUTS["row_v_t"] = INPUTS["row_v_t"].at[:-1].set(INPUTS["v_tm1"][1:])
TRAINED = {"log_prob", "q", "qs", "log_alpha", "v", "action"}


def lambda_return(r_t, discount_t, v_t, truncated_t, lambda_):
    """Compute TD(λ), which begins anew where an episode was cut."""
    total, found = v_t[-1], []
    for t in reversed(range(T)):
        total = jnp.where(truncated_t[t], v_t[t], total)
        bootstrap = (1 - lambda_) * v_t[t] + lambda_ * total
        total = r_t[t] + discount_t[t] * bootstrap
        found = [total, *found]
    return jnp.stack(found)


def gae(v_tm1, r_t, discount_t, v_t, truncated_t):
    total, found = 0.0, []
    for t in reversed(range(T)):
        delta = r_t[t] + discount_t[t] * v_t[t] - v_tm1[t]
        kept = discount_t[t] * (1 - truncated_t[t])
        total = delta + 0.95 * kept * total
        found = [total, *found]
    return jnp.stack(found)


def vtrace(v_tm1, row_v_t, r_t, row_discount_t, log_pi, log_mu):
    rho = jnp.minimum(jnp.exp(log_pi - log_mu), 1.0)
    deltas = rho * (r_t + row_discount_t * row_v_t - v_tm1)
    total, found = 0.0, []
    for t in reversed(range(T)):
        total = deltas[t] + row_discount_t[t] * rho[t] * total
        found = [total, *found]
    targets = jnp.stack(found) + v_tm1
    after = jnp.append(targets[1:], row_v_t[-1])
    return rho * (r_t + row_discount_t * after - v_tm1)


def reward2go(r_t, discount_t):
    total, found = 0.0, []
    for t in reversed(range(T)):
        total = r_t[t] + discount_t[t] * total
        found = [total, *found]
    return jnp.stack(found)


def clip_ppo(log_prob, old_log_prob, adv):
    ratio = jnp.exp(log_prob - old_log_prob)
    return -jnp.minimum(ratio * adv, jnp.clip(ratio, 0.8, 1.2) * adv)


def chosen(q, a):
    return jnp.take_along_axis(q, a[:, None], axis=-1)[:, 0]


def sac_value(qs, r_t, discount_t, next_qs, next_log_prob):
    value = jnp.min(next_qs, axis=0) - 0.2 * next_log_prob
    return jnp.sum((qs - (r_t + discount_t * value)) ** 2, axis=0)


def iql_value(v, next_qs):
    difference = jnp.min(next_qs, axis=0) - v
    return jnp.where(difference > 0, 0.7, 1 - 0.7) * difference**2


def iql_actor(log_prob, next_qs, old_v):
    weight = jnp.exp(3.0 * (jnp.min(next_qs, axis=0) - old_v))
    return -jnp.minimum(weight, 100) * log_prob


def td3_bc(v, action, data_action):
    weight = 2.5 / stop(jnp.mean(jnp.abs(v)))
    return -weight * jnp.mean(v) + jnp.mean((action - data_action) ** 2)


def distance(v, target):
    error = jnp.abs(v - target)
    return error**2, jnp.where(error < 1, 0.5 * error**2, error - 0.5)


ROWS = {
    "generalized_advantage_estimate, vec_generalized_advantage_estimate": gae,
    "td0_return_estimate": lambda r_t, discount_t, v_t: r_t + discount_t * v_t,
    "td0_advantage_estimate": lambda v_tm1, r_t, discount_t, v_t: (
        r_t + discount_t * v_t - v_tm1
    ),
    "td1_return_estimate, vec_td1_return_estimate": (
        lambda r_t, discount_t, v_t, truncated_t: lambda_return(
            r_t, discount_t, v_t, truncated_t, 1.0
        )
    ),
    "td1_advantage_estimate, vec_td1_advantage_estimate": (
        lambda v_tm1, r_t, discount_t, v_t, truncated_t: (
            lambda_return(r_t, discount_t, v_t, truncated_t, 1.0) - v_tm1
        )
    ),
    "td_lambda_return_estimate, vec_td_lambda_return_estimate": (
        lambda r_t, discount_t, v_t, truncated_t: lambda_return(
            r_t, discount_t, v_t, truncated_t, 0.95
        )
    ),
    "td_lambda_advantage_estimate, vec_td_lambda_advantage_estimate": (
        lambda v_tm1, r_t, discount_t, v_t, truncated_t: (
            lambda_return(r_t, discount_t, v_t, truncated_t, 0.95) - v_tm1
        )
    ),
    "vtrace_advantage_estimate": vtrace,
    "reward2go": reward2go,
    "ReinforceLoss, A2CLoss": lambda log_prob, adv: -log_prob * adv,
    "PPOLoss": lambda log_prob, old_log_prob, adv: (
        -jnp.exp(log_prob - old_log_prob) * adv
    ),
    "ClipPPOLoss": clip_ppo,
    "ClipPPOLoss: normalize_advantage": lambda adv: (
        (adv - adv.mean()) / adv.std(ddof=1)
    ),
    "DQNLoss": lambda q, a, r_t, discount_t, next_q: (
        (chosen(q, a) - (r_t + discount_t * jnp.max(next_q, axis=-1))) ** 2
    ),
    "SACLoss: qvalue": sac_value,
    "SACLoss: actor": lambda log_prob, qs: 0.2 * log_prob - jnp.min(qs, axis=0),
    "SACLoss: alpha": lambda log_alpha, log_prob: -log_alpha * stop(log_prob - 3.0),
    "TD3Loss: qvalue": lambda qs, r_t, discount_t, next_qs: jnp.sum(
        (qs - (r_t + discount_t * jnp.min(next_qs, axis=0))) ** 2, axis=0
    ),
    "IQLLoss: value": iql_value,
    "IQLLoss: actor": iql_actor,
    "DiscreteCQLLoss: cql": lambda q, a: jax.nn.logsumexp(q, axis=-1) - chosen(q, a),
    "TD3BCLoss: actor": td3_bc,
    "distance_loss": distance,
    "SoftUpdate": lambda q, next_q: 0.005 * q + 0.995 * next_q,
}
