"""SkyRL, NovaSky-AI/SkyRL@a956457.

`skyrl/backends/skyrl_train/utils/ppo_utils.py` and `off_policy_correction_utils.py`.
"""

import jax
import jax.numpy as jnp

from from_pages import normal, uniform

T = 6
stop = jax.lax.stop_gradient
INPUTS = {
    "rewards": normal(5),
    "correct": jnp.array([1.0, 0.0, 0.0, 1.0, 0.0]),
    "v": normal(T),
    "values": (values := jnp.append(normal(T), 0.0))[:-1],
    "v_t": values[1:],
    "r_t": normal(T),
    "discount_t": jnp.full(T, 0.99),
    "old_v": values[:-1] + normal(T, scale=0.3),
    "target": normal(T),
    "adv": normal(T),
    "log_prob": (log_prob := jnp.log(uniform(T, low=0.05))),
    "old_log_prob": log_prob + normal(T, scale=0.3),
    "sampler_log_prob": jnp.log(uniform(T, low=0.05)),
    "ref_log_prob": jnp.log(uniform(T, low=0.05)),
    "log_ratio": normal(T, scale=0.2),
    "losses": normal(4, T),
    "mask": jnp.arange(T) < jnp.array([3, 0, 6, 5])[:, None],
}
TRAINED = {"log_prob", "v", "losses"}


def whiten(x):
    return (x - jnp.mean(x)) / jnp.sqrt(jnp.var(x, ddof=1) + 1e-8)


def gae(r_t, values, v_t):
    total, found = 0.0, []
    for t in reversed(range(T)):
        total = r_t[t] + 0.99 * v_t[t] - values[t] + 0.99 * 0.95 * total
        found = [total, *found]
    return whiten(jnp.stack(found))


def reinforce(r_t):
    total, found = 0.0, []
    for t in reversed(range(T)):
        total = r_t[t] + 0.99 * total
        found = [total, *found]
    return whiten(jnp.stack(found))


def ppo(log_prob, old_log_prob, adv, low=0.2, high=0.28):
    ratio = jnp.exp(log_prob - old_log_prob)
    return -jnp.minimum(ratio * adv, jnp.clip(ratio, 1 - low, 1 + high) * adv)


def dual_clip(log_prob, old_log_prob, adv):
    loss = ppo(log_prob, old_log_prob, adv)
    return jnp.where(adv < 0, jnp.minimum(-3.0 * adv, loss), loss)


def gspo(log_prob, old_log_prob, adv):
    sequence = stop(jnp.mean(log_prob - old_log_prob))
    log_weights = log_prob - stop(log_prob) + sequence
    return ppo(log_weights, 0.0, adv, 3e-4, 4e-4)


def cispo(log_prob, old_log_prob, adv):
    ratio = jnp.exp(log_prob - old_log_prob)
    return -adv * stop(jnp.clip(ratio, 0.8, 1.28)) * log_prob


def sapo(log_prob, old_log_prob, adv):
    tau = jnp.where(adv > 0, 1.0, 1.05)
    ratio = jnp.exp(log_prob - old_log_prob)
    return -jax.nn.sigmoid(tau * (ratio - 1)) * 4 / tau * adv


def dppo(log_prob, sampler_log_prob, adv, kind="tv"):
    change = jnp.exp(log_prob) - jnp.exp(sampler_log_prob)
    mu, p = jnp.exp(sampler_log_prob), jnp.exp(log_prob)
    kl = mu * (sampler_log_prob - log_prob) + (1 - mu) * jnp.log((1 - mu) / (1 - p))
    beyond = jnp.abs(change) > 0.2 if kind == "tv" else kl > 0.05
    masked = jnp.where(adv > 0, change > 0, change < 0) & beyond
    return -jnp.exp(log_prob - sampler_log_prob) * adv * ~masked


def rollout_is(log_prob, sampler_log_prob, adv):
    ratio = jnp.exp(log_prob - sampler_log_prob)
    calibrated = jnp.where((ratio > 0.8) & (ratio < 1.28), ratio, 0.0)
    return -stop(calibrated) * adv * log_prob


def kl_cov(log_prob, old_log_prob, adv):
    log_ratio = log_prob - old_log_prob
    covariance = (adv - adv.mean()) * (log_prob - log_prob.mean())
    largest = jnp.zeros(T, bool).at[jnp.argsort(-covariance)[: T // 2]].set(True)
    return -adv * jnp.exp(log_ratio) + jnp.where(largest, jnp.abs(log_ratio), 0.0)


def value_loss(v, old_v, target):
    near = old_v + jnp.clip(v - old_v, -0.2, 0.2)
    return 0.5 * jnp.maximum((near - target) ** 2, (v - target) ** 2)


def band(ratio, low, high):
    return jnp.broadcast_to((ratio >= low) & (ratio <= high), (T,))


def prompt_mean(losses, mask):
    tokens = jnp.sum(mask.reshape(2, -1), axis=1)
    return jnp.sum(jnp.sum((losses * mask).reshape(2, -1), axis=1) / (2 * tokens))


ROWS = {
    "grpo": lambda rewards: (rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-6),
    "rloo": lambda rewards: (rewards - rewards.mean()) * 5 / 4,
    "maxrl": lambda correct: (correct - correct.mean()) / (correct.mean() + 1e-6),
    "gae": gae,
    "reinforce++": reinforce,
    "regular": ppo,
    "dual_clip": dual_clip,
    "gspo": gspo,
    "cispo": cispo,
    "sapo": sapo,
    "dppo: binary_tv": dppo,
    "dppo: binary_kl": lambda log_prob, sampler_log_prob, adv: dppo(
        log_prob, sampler_log_prob, adv, "kl"
    ),
    "rollout_is": rollout_is,
    "importance_sampling": lambda log_prob, old_log_prob, adv: (
        -jnp.exp(log_prob - old_log_prob) * adv
    ),
    "kl_cov": kl_cov,
    "cross_entropy": lambda log_prob: -log_prob,
    "ppo_critic_loss": value_loss,
    "kl_estimator_type: k2": lambda log_prob, ref_log_prob: (
        0.5 * (log_prob - ref_log_prob) ** 2
    ),
    'tis_ratio_type="token"': lambda log_ratio: jnp.minimum(jnp.exp(log_ratio), 1.2),
    'tis_ratio_type="sequence"': lambda log_ratio: jnp.broadcast_to(
        jnp.minimum(jnp.exp(jnp.sum(log_ratio)), 1.2), (T,)
    ),
    'sequence_mask_metric="geometric"': lambda log_ratio: band(
        jnp.exp(jnp.mean(log_ratio)), 0.99, 1.3
    ),
    'sequence_mask_metric="product"': lambda log_ratio: band(
        jnp.exp(jnp.sum(log_ratio)), 0.5, 2.0
    ),
    "token_mask_is_threshold_low, token_mask_is_threshold_high": lambda log_ratio: band(
        jnp.exp(log_ratio), 0.8, 1.2
    ),
    "outlier_token_is_threshold_low, outlier_token_is_threshold_high": (
        lambda log_ratio: jnp.all(band(jnp.exp(log_ratio), 0.8, 1.2))
    ),
    "token_mean": lambda losses, mask: jnp.sum(losses * mask) / jnp.sum(mask),
    "sequence_mean": lambda losses, mask: jnp.sum(
        losses * mask / (4 * jnp.clip(jnp.sum(mask, axis=-1, keepdims=True), 1))
    ),
    "seq_mean_token_sum_norm": lambda losses, mask: jnp.sum(losses * mask) / (4 * T),
    "prompt_mean": prompt_mean,
}
