"""SkyRL, NovaSky-AI/SkyRL@a956457.

`skyrl/backends/skyrl_train/utils/ppo_utils.py` and `off_policy_correction_utils.py`.
"""

import formulas as f
import jax
import jax.numpy as jnp

from from_pages import normal, of_answers

T = 6
stop = jax.lax.stop_gradient
INPUTS = {
    **of_answers(),
    "correct": jnp.array([1.0, 0.0, 0.0, 1.0, 0.0]),
    "values": (values := jnp.append(normal(T), 0.0))[:-1],
    "v_t": values[1:],
    "r_t": normal(T),
    "discount_t": jnp.full(T, 0.99),
    "log_ratio": normal(T, scale=0.2),
}
TRAINED = {"log_prob", "v", "losses"}


def dppo(log_prob, sampler_log_prob, adv, within=f.within_tv):
    ratio = jnp.exp(log_prob - sampler_log_prob)
    return -ratio * adv * within(log_prob, sampler_log_prob, adv)


def rollout_is(log_prob, sampler_log_prob, adv):
    ratio = jnp.exp(log_prob - sampler_log_prob)
    calibrated = jnp.where((ratio > 0.8) & (ratio < 1.28), ratio, 0.0)
    return -stop(calibrated) * adv * log_prob


def band(ratio, low, high):
    return jnp.broadcast_to((ratio >= low) & (ratio <= high), (T,))


def prompt_mean(losses, mask):
    tokens = jnp.sum(mask.reshape(2, -1), axis=1)
    return jnp.sum(jnp.sum((losses * mask).reshape(2, -1), axis=1) / (2 * tokens))


ROWS = {
    "grpo": lambda rewards: f.standardized(rewards, ddof=1, epsilon=1e-6),
    "rloo": lambda rewards: (rewards - rewards.mean()) * 5 / 4,
    "maxrl": lambda correct: (correct - correct.mean()) / (correct.mean() + 1e-6),
    "gae": lambda r_t, values, v_t: f.whiten(
        f.gae(values, r_t, jnp.full(T, 0.99), v_t)
    ),
    "reinforce++": lambda r_t: f.whiten(f.backwards(r_t, jnp.full(T, 0.99))),
    "regular": lambda log_prob, old_log_prob, adv: f.clipped(
        log_prob, old_log_prob, adv, 0.2, 0.28
    ),
    "dual_clip": (f.dual_clipped, "log_prob old_log_prob adv"),
    "gspo": lambda log_prob, old_log_prob, adv: f.gspo_token(
        log_prob, jnp.mean(log_prob - old_log_prob), adv
    ),
    "cispo": lambda log_prob, old_log_prob, adv: f.weighted(
        log_prob, old_log_prob, adv, 0.8, 1.28
    ),
    "sapo": (f.sapo, "log_prob old_log_prob adv"),
    "dppo: binary_tv": (dppo, "log_prob sampler_log_prob adv"),
    "dppo: binary_kl": lambda log_prob, sampler_log_prob, adv: dppo(
        log_prob, sampler_log_prob, adv, f.within_kl
    ),
    "rollout_is": rollout_is,
    "importance_sampling": lambda log_prob, old_log_prob, adv: (
        -jnp.exp(log_prob - old_log_prob) * adv
    ),
    "kl_cov": lambda log_prob, old_log_prob, adv: f.kl_cov(
        log_prob, old_log_prob, adv, T // 2
    ),
    "cross_entropy": lambda log_prob: -log_prob,
    "ppo_critic_loss": (f.clipped_values, "v old_v target"),
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
    "token_mean": (f.token_mean, "losses mask"),
    "sequence_mean": lambda losses, mask: jnp.sum(
        losses * mask / (4 * jnp.clip(jnp.sum(mask, axis=-1, keepdims=True), 1))
    ),
    "seq_mean_token_sum_norm": lambda losses, mask: jnp.sum(losses * mask) / (4 * T),
    "prompt_mean": prompt_mean,
}
