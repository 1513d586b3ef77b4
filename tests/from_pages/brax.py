"""Brax, google/brax@0b96d05, below `brax/training`.

`agents/{ppo,sac,bc}/losses.py`, `distribution.py`, `acme/running_statistics.py`.
"""

import formulas as f
import jax
import jax.numpy as jnp

from from_pages import flags, normal, uniform

T, A = 6, 3
INPUTS = {
    "v_tm1": (values := normal(T)),
    "bootstrap_value": normal(),
    "r_t": normal(T),
    "discount_t": 0.9 * (1 - flags(2, length=T)),
    "lambda_": 0.8,
    "discount": 0.9,
    "termination": 1.0 * flags(2, length=T),
    "truncation": 1.0 * flags(3, length=T),
    "truncated": flags(3, length=T),
    "log_prob": (log_prob := normal(T)),
    "old_log_prob": log_prob + normal(T, scale=0.3),
    "adv": normal(T),
    "clipping_epsilon": 0.3,
    "old_v": values + normal(T, scale=0.3),
    "target": normal(T),
    "clipping_epsilon_value": 0.2,
    "quantiles": normal(5),
    "kappa": 0.7,
    "pre_tanh": normal(A),
    "mean": normal(A),
    "teacher_mean": normal(A),
    "stddev": uniform(A, low=0.5, high=2.0),
    "log_alpha": jnp.float32(-0.5),
    "alpha": jnp.float32(0.6),
    "target_entropy": -3.0,
    "q": normal(2, T),
    "next_q": normal(2, T),
    "next_log_prob": normal(T),
    "observation": 5 + normal(T, A),
}
TRAINED = {"v_tm1", "log_prob", "quantiles", "mean", "stddev", "log_alpha", "q"}


def compute_gae(
    v_tm1, r_t, discount, termination, truncation, bootstrap_value, lambda_
):
    kept, live, total, targets = 1 - truncation, 1 - termination, 0.0, []
    after = jnp.append(v_tm1[1:], bootstrap_value)
    delta = kept * (r_t + discount * live * after - v_tm1)
    for t in reversed(range(T)):
        total = delta[t] + discount * live[t] * kept[t] * lambda_ * total
        targets = [total + v_tm1[t], *targets]
    vs = jnp.stack(targets)
    after = jnp.append(vs[1:], bootstrap_value)
    # The advantages take no gradient, nor do the targets.
    return jax.lax.stop_gradient((vs, kept * (r_t + discount * live * after - v_tm1)))


def log_det(x):
    return 2 * (jnp.log(2.0) - x - jax.nn.softplus(-2 * x))


def tanh_log_prob(pre_tanh, mean, stddev):
    return f.log_normal(pre_tanh, mean, stddev) - jnp.sum(log_det(pre_tanh), axis=-1)


def tanh_entropy(pre_tanh, mean, stddev):
    entropy = 0.5 + 0.5 * jnp.log(2 * jnp.pi) + jnp.log(stddev)
    return jnp.sum(entropy + log_det(pre_tanh), axis=-1)


def critic_loss(q, target, truncated):
    return 0.5 * ((q - target) * (1.0 - truncated)) ** 2


def normalized(observation):
    # From no entries, Welford's update of all at once.
    mean = jnp.sum(observation, axis=0) / T
    variance = jnp.sum(observation * (observation - mean), axis=0) / T
    return (observation - mean) / jnp.clip(jnp.sqrt(variance), 1e-6, 1e6)


ROWS = {
    "compute_gae": compute_gae,
    "compute_ppo_loss: advantages": (f.standardized, "adv"),
    "compute_ppo_loss: policy": (
        f.clipped,
        "log_prob old_log_prob adv clipping_epsilon clipping_epsilon",
    ),
    "compute_ppo_loss: value": lambda v_tm1, target: 0.5 * (target - v_tm1) ** 2,
    "compute_ppo_loss: value, clipped": (
        f.clipped_values,
        "v_tm1 old_v target clipping_epsilon_value",
    ),
    "quantile_huber_loss": lambda quantiles, target, kappa: (
        f.quantile_huber(quantiles, f.middles(5), target[:1], kappa) / 5
    ),
    "NormalTanhDistribution.log_prob": tanh_log_prob,
    "NormalTanhDistribution.entropy": tanh_entropy,
    "alpha_loss": lambda log_alpha, log_prob, target_entropy: (
        jnp.exp(log_alpha) * jax.lax.stop_gradient(-log_prob - target_entropy)
    ),
    "critic_loss: target": lambda r_t, discount_t, next_q, next_log_prob, alpha: (
        r_t + discount_t * (jnp.min(next_q, axis=0) - alpha * next_log_prob)
    ),
    "critic_loss": critic_loss,
    "actor_loss": lambda log_prob, q, alpha: alpha * log_prob - jnp.min(q, axis=0),
    "bc_loss": lambda mean, teacher_mean: jnp.sum(
        (jnp.tanh(mean) - jnp.tanh(teacher_mean)) ** 2, axis=-1
    ),
    "running_statistics.update, normalize": normalized,
}
