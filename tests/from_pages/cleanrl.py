"""CleanRL, vwxyzjn/cleanrl@fe8d8a0, `cleanrl/*.py`."""

import formulas as f
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


def distillation(q, next_q):
    log_student, log_teacher = jax.nn.log_softmax(q), jax.nn.log_softmax(next_q)
    return jnp.sum(-jax.nn.softmax(next_q) * (log_student - log_teacher))


ROWS = {
    "dqn_jax": lambda q, a, r_t, discount_t, next_q: (
        (q[a] - (r_t + discount_t * jnp.max(next_q))) ** 2
    ),
    "c51_jax": (f.c51, "atoms logits a r_t discount_t next_logits"),
    "td3_continuous_action_jax: action": (f.td3_action, "key next_action"),
    "td3_continuous_action_jax: target": lambda r_t, discount_t, next_qs: (
        r_t + discount_t * jnp.minimum(*next_qs)
    ),
    "td3_continuous_action_jax: critic": lambda qs, target: (
        (qs[0] - target[0]) ** 2 + (qs[1] - target[0]) ** 2
    ),
    "ppo_atari_envpool_xla_jax_scan: advantages": (
        f.gae,
        "values rewards discounts next_values",
    ),
    "norm_adv": (f.standardized, "adv"),
    "ppo_loss: policy": lambda log_prob, old_log_prob, adv: f.clipped(
        log_prob, old_log_prob, adv, 0.1, 0.1
    ),
    "ppo_loss: value": lambda v, target: 0.5 * (v - target) ** 2,
    "clip_vloss": lambda v, old_v, target: f.clipped_values(v, old_v, target, 0.1),
    "approx_kl": lambda log_prob, old_log_prob: jnp.mean(
        f.k3(old_log_prob, stop(log_prob))
    ),
    "sac_continuous_action: alpha_loss": lambda log_alpha, next_log_prob: (
        -jnp.exp(log_alpha) * stop(next_log_prob - 3.0)
    ),
    "qdagger_dqn_atari_jax_impalacnn: distillation": distillation,
    "rainbow_atari": (f.c51, "atoms logits a r_t discount_t next_logits selector"),
}
