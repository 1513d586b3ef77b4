"""CleanRL, vwxyzjn/cleanrl@fe8d8a0, `cleanrl/*.py`."""

import jax
import jax.numpy as jnp

from from_pages import flags, normal

A, M, T, D = 4, 11, 6, 3
stop = jax.lax.stop_gradient
INPUTS = {
    "q": normal(A),
    "a": jnp.int32(2),
    "r_t": jnp.float32(0.3),
    "discount_t": jnp.float32(0.9),
    "next_q": normal(A),
    "atoms": jnp.linspace(-2.0, 2.0, M),
    "logits": normal(A, M),
    "next_logits": normal(A, M),
    "selector": normal(A),
    "key": jax.random.key(0),
    "next_action": normal(D),
    "qs": normal(2),
    "next_qs": normal(2),
    "values": (values := normal(T + 1))[:-1],
    "next_values": values[1:],
    "rewards": normal(T),
    "discounts": 0.9 * (1 - flags(2, length=T)),
    "adv": normal(T),
    "log_prob": (log_prob := normal(T)),
    "old_log_prob": log_prob + normal(T, scale=0.3),
    "next_log_prob": normal(T),
    "v": (v := normal(T)),
    "old_v": v + normal(T, scale=0.3),
    "target": normal(T),
    "log_alpha": jnp.float32(-0.4),
}
TRAINED = {"q", "logits", "qs", "log_prob", "v", "log_alpha"}


def c51(atoms, logits, a, r_t, discount_t, next_logits, best=None):
    pmfs = jax.nn.softmax(next_logits)
    best = jnp.argmax(pmfs @ atoms) if best is None else best
    b = (jnp.clip(r_t + discount_t * atoms, -2, 2) + 2) / (atoms[1] - atoms[0])
    low, high = jnp.floor(b).astype(int), jnp.ceil(b).astype(int)
    to_low = (high + (low == high) - b) * pmfs[best]
    to_high = (b - low) * pmfs[best]
    target = jnp.zeros(M).at[low].add(to_low).at[high].add(to_high)
    old = jnp.clip(jax.nn.softmax(logits[a]), 1e-5, 1 - 1e-5)
    return -jnp.sum(target * jnp.log(old))


def rainbow(atoms, logits, a, r_t, discount_t, next_logits, selector):
    best = jnp.argmax(selector)
    return c51(atoms, logits, a, r_t, discount_t, next_logits, best)


def td3_action(key, next_action):
    noise = jnp.clip(0.2 * jax.random.normal(key, (D,)), -0.5, 0.5)
    return jnp.clip(next_action + noise, -1, 1)


def gae(values, rewards, discounts, next_values):
    total, found = 0.0, []
    for t in reversed(range(T)):
        delta = rewards[t] + discounts[t] * next_values[t] - values[t]
        total = delta + 0.95 * discounts[t] * total
        found = [total, *found]
    return jnp.stack(found)


def policy_loss(log_prob, old_log_prob, adv):
    ratio = jnp.exp(log_prob - old_log_prob)
    return jnp.maximum(-adv * ratio, -adv * jnp.clip(ratio, 0.9, 1.1))


def clipped_value_loss(v, old_v, target):
    near = old_v + jnp.clip(v - old_v, -0.1, 0.1)
    return 0.5 * jnp.maximum((v - target) ** 2, (near - target) ** 2)


def distillation(q, next_q):
    log_student, log_teacher = jax.nn.log_softmax(q), jax.nn.log_softmax(next_q)
    return jnp.sum(-jax.nn.softmax(next_q) * (log_student - log_teacher))


def approx_kl(log_prob, old_log_prob):
    log_ratio = stop(log_prob) - old_log_prob  # The loss returns it to be logged.
    return jnp.mean(jnp.exp(log_ratio) - 1 - log_ratio)


ROWS = {
    "dqn_jax": lambda q, a, r_t, discount_t, next_q: (
        (q[a] - (r_t + discount_t * jnp.max(next_q))) ** 2
    ),
    "c51_jax": c51,
    "td3_continuous_action_jax: action": td3_action,
    "td3_continuous_action_jax: target": lambda r_t, discount_t, next_qs: (
        r_t + discount_t * jnp.minimum(*next_qs)
    ),
    "td3_continuous_action_jax: critic": lambda qs, target: (
        (qs[0] - target[0]) ** 2 + (qs[1] - target[0]) ** 2
    ),
    "ppo_atari_envpool_xla_jax_scan: advantages": gae,
    "norm_adv": lambda adv: (adv - adv.mean()) / (adv.std() + 1e-8),
    "ppo_loss: policy": policy_loss,
    "ppo_loss: value": lambda v, target: 0.5 * (v - target) ** 2,
    "clip_vloss": clipped_value_loss,
    "approx_kl": approx_kl,
    "sac_continuous_action: alpha_loss": lambda log_alpha, next_log_prob: (
        -jnp.exp(log_alpha) * stop(next_log_prob - 3.0)
    ),
    "qdagger_dqn_atari_jax_impalacnn: distillation": distillation,
    "rainbow_atari": rainbow,
}
