"""OGBench, seohongpark/ogbench@1d41409, and FQL, seohongpark/fql@719d044.

`impls/agents/*.py` and `impls/utils/networks.py` of OGBench;
`agents/{fql,rebrac}.py` of FQL.
"""

import jax
import jax.numpy as jnp

from from_pages import flags, normal, uniform

B, D = 8, 3
stop = jax.lax.stop_gradient
INPUTS = {
    "log_prob": normal(B),
    "next_log_prob": normal(B),
    "v": normal(B),
    "next_v": normal(B),
    "v1": normal(B),
    "v2": normal(B),
    "y1": normal(B),
    "y2": normal(B),
    "adv": normal(B),
    "v_t": normal(B),
    "expectile": 0.7,
    "alpha": 3.0,
    "q1": normal(B),
    "q2": normal(B),
    "target_q1": normal(B),
    "target_q2": normal(B),
    "qs": normal(2, B),
    "r_t": normal(B),
    "discount_t": 0.9 * (1 - flags(3, length=B)),
    "logits": normal(4, 4, scale=10.0),
    "d_neg": uniform(B, high=900.0),
    "d_pos": uniform(B, high=3.0),
    "lam": jnp.float32(0.8),
    "eps": jnp.float32(0.05),
    "temperature": jnp.float32(0.4),
    "target_entropy": -3.0,
    "x": normal(4, 8),
    "y": normal(4, 8),
    "iqe_alpha": jnp.float32(0.3),
    "prediction": normal(B, D),
    "noise": normal(B, D),
    "action": normal(B, D),
    "data_action": normal(B, D),
    "flow_action": normal(B, D),
    "next_action": normal(B, D),
    "next_data_action": normal(B, D),
    "alpha_critic": 0.1,
    "alpha_actor": 0.5,
}
TRAINED = {"log_prob", "v1", "v2", "q1", "q2", "logits", "d_neg", "d_pos", "lam"} | {
    *("temperature", "x", "y", "iqe_alpha", "prediction", "action")
}


def expectile_loss(adv, difference, expectile):
    return jnp.where(adv >= 0, expectile, 1 - expectile) * difference**2


def hiql_value_loss(v1, v2, y1, y2, adv, expectile):
    first = expectile_loss(adv, y1 - v1, expectile)
    return first + expectile_loss(adv, y2 - v2, expectile)


def sac_target(r_t, discount_t, qs, next_log_prob, temperature):
    target = r_t + discount_t * jnp.min(qs, axis=0)
    return stop(target - discount_t * next_log_prob * temperature)


def awr(log_prob, adv, alpha):
    return -jnp.minimum(jnp.exp(alpha * stop(adv)), 100.0) * log_prob


def ddpg_bc(qs, log_prob, alpha):
    q = qs[0]
    scale = stop(jnp.mean(jnp.abs(q)) + 1e-6)
    return -jnp.mean(q) / scale - jnp.mean(alpha * log_prob)


def binary_cross_entropy(logits):
    identity = jnp.eye(4)
    positive = identity * jax.nn.log_sigmoid(logits)
    return -positive - (1 - identity) * jax.nn.log_sigmoid(-logits)


def qrl_constraint(d_pos, lam, eps):
    excess = jnp.mean(jax.nn.relu(d_pos - 1) ** 2)
    return excess * stop(lam), lam * (eps - stop(excess))


def sac_actor(log_prob, qs, temperature, target_entropy):
    actor = log_prob * stop(temperature) - jnp.min(qs, axis=0)
    entropy = -stop(log_prob)
    return actor + 0 * temperature, temperature * (entropy - target_entropy)


def iqe(x, y, iqe_alpha):
    """Sum the stretches of the line that an interval [x, y] covers."""
    ends = jnp.sort(jnp.concatenate([x, y], axis=-1), axis=-1)
    middle = (ends[:, 1:] + ends[:, :-1])[..., None] / 2
    inside = jnp.any((x[:, None] < middle) & (middle < y[:, None]), axis=-1)
    components = jnp.sum(jnp.diff(ends) * inside, axis=-1)
    weight = jax.nn.sigmoid(iqe_alpha)
    return weight * jnp.mean(components) + (1 - weight) * jnp.max(components)


def mrn(x, y):
    x, y = x[0], y[0]
    squared = jnp.sum((x[:4] - y[:4]) ** 2)
    quasi = jax.nn.relu(jnp.max(x[4:] - y[4:]))
    return jnp.sqrt(jnp.maximum(squared, 1e-12)) + quasi


def rebrac_target(r_t, discount_t, qs, next_action, next_data_action, alpha_critic):
    mse = jnp.sum((next_action - next_data_action) ** 2, axis=-1)
    return r_t + discount_t * (jnp.min(qs, axis=0) - alpha_critic * mse)


def rebrac_actor(q1, action, data_action, alpha_actor):
    scale = stop(1 / jnp.mean(jnp.abs(q1)))
    return -scale * q1 + alpha_actor * jnp.sum((action - data_action) ** 2, axis=-1)


ROWS = {
    "GCBCAgent.actor_loss": lambda log_prob: -log_prob,
    "GCIVLAgent.value_loss, HIQLAgent.value_loss": hiql_value_loss,
    "GCIVLAgent.actor_loss": lambda log_prob, next_v, v, alpha: awr(
        log_prob, next_v - v, alpha
    ),
    "GCIQLAgent.value_loss": lambda v1, target_q1, target_q2, expectile: expectile_loss(
        jnp.minimum(target_q1, target_q2) - v1,
        jnp.minimum(target_q1, target_q2) - v1,
        expectile,
    ),
    "GCIQLAgent.critic_loss": lambda q1, q2, r_t, discount_t, v_t: (
        (q1 - (r_t + discount_t * v_t)) ** 2 + (q2 - (r_t + discount_t * v_t)) ** 2
    ),
    "GCIQLAgent.actor_loss: awr": lambda log_prob, target_q1, target_q2, v, alpha: awr(
        log_prob, jnp.minimum(target_q1, target_q2) - v, alpha
    ),
    "GCIQLAgent.actor_loss: ddpgbc": ddpg_bc,
    "CRLAgent.contrastive_loss": binary_cross_entropy,
    "QRLAgent.value_loss: other states": lambda d_neg: (
        100 * jax.nn.softplus(5 - d_neg / 100)
    ),
    "QRLAgent.value_loss: next states": qrl_constraint,
    "SACAgent.critic_loss: target": sac_target,
    "SACAgent.actor_loss": sac_actor,
    "GCIQEValue": iqe,
    "GCMRNValue": mrn,
    "FQLAgent.critic_loss": lambda q1, r_t, discount_t, qs: (
        (q1 - (r_t + discount_t * jnp.mean(qs, axis=0))) ** 2
    ),
    "FQLAgent.actor_loss: flow": lambda prediction, data_action, noise: jnp.mean(
        (prediction - (data_action - noise)) ** 2, axis=-1
    ),
    "FQLAgent.actor_loss: distillation": lambda action, flow_action: jnp.mean(
        (action - flow_action) ** 2, axis=-1
    ),
    "FQLAgent.actor_loss: values": lambda qs: -jnp.mean(qs, axis=0),
    "ReBRACAgent.critic_loss: target": rebrac_target,
    "ReBRACAgent.actor_loss": rebrac_actor,
}
