"""prime-rl, PrimeIntellect-ai/prime-rl@559b447.

`src/prime_rl/trainer/rl/loss.py`, `src/prime_rl/orchestrator/algo/{grpo,max_rl}.py`.
"""

import formulas as f
import jax
import jax.numpy as jnp

from from_pages import flags, integers, normal, uniform

T, V = 8, 5
INPUTS = {
    "log_prob": jnp.log(uniform(T, low=0.05)),
    "old_log_prob": jnp.log(uniform(T, low=0.05)),
    "ref_log_prob": jnp.log(uniform(T, low=0.05)),
    "adv": normal(T),
    "sample_mask": ~flags(2, 5, length=T),
    "kl_tau": 1e-3,
    "rewards": jnp.array([1.0, 0.0, 0.0, 1.0, 0.0]),
    "logits": normal(T, V),
    "tokens": integers(V, T),
}
TRAINED = {"log_prob", "logits"}
stop = jax.lax.stop_gradient


def clipped(log_prob, old_log_prob, adv, sample_mask, masked, kl_tau):
    log_ratio = log_prob - old_log_prob
    loss = jnp.where(sample_mask & ~masked, -adv * jnp.exp(log_ratio), 0.0)
    return loss + kl_tau * sample_mask * log_ratio**2


def ipo(log_prob, old_log_prob, adv, sample_mask):
    masked = jnp.abs(jnp.exp(log_prob) - jnp.exp(old_log_prob)) > 0.3
    return clipped(log_prob, old_log_prob, adv, sample_mask, masked, 0.0)


def dppo(log_prob, old_log_prob, adv, sample_mask, kl_tau):
    change = jnp.exp(log_prob) - jnp.exp(old_log_prob)
    masked = jnp.where(adv > 0, change > 0.2, change < -0.2)
    return clipped(log_prob, old_log_prob, adv, sample_mask, masked, kl_tau)


def ref_kl(log_prob, old_log_prob, ref_log_prob, sample_mask):
    masked = jnp.exp(log_prob) - jnp.exp(old_log_prob) < -0.2
    adv = stop(ref_log_prob - log_prob)
    return clipped(log_prob, old_log_prob, adv, sample_mask, masked, 1e-3)


ROWS = {
    "ipo_loss_fn": ipo,
    "default_loss_fn": dppo,
    "ref_kl_loss_fn": ref_kl,
    "ce_loss_fn": lambda log_prob, sample_mask: -log_prob * sample_mask,
    "max_rl": lambda rewards: (rewards - rewards.mean()) / rewards.mean(),
    "grpo": lambda rewards: rewards - rewards.mean(),
    "compute_importance_ratio_and_mismatch_kl": lambda log_prob, old_log_prob: stop(
        f.k3(old_log_prob, log_prob)
    ),
    "selective_log_softmax, compute_entropy": (f.log_prob_and_entropy, "logits tokens"),
}
