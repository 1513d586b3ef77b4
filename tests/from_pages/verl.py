"""verl, verl-project/verl@1dda039.

`verl/trainer/ppo/core_algos.py` and `rollout_corr_helper.py`.
"""

import formulas as f
import jax
import jax.numpy as jnp
import numpy as np

from from_pages import normal, of_answers, uniform, with_a_gap

T, G = 6, 5
stop = jax.lax.stop_gradient
INPUTS = {
    # The KL of the first token is beyond verl's bound.
    **of_answers(first=-9.0),
    **with_a_gap(),
    "rewards": jnp.array([1.0, 0.0, -1.0, 2.0, 0.0]),
    "other_rewards": normal(G),
    "greedy_reward": jnp.float32(0.5),
    "returns": normal(4, T),
    "log_probs": jnp.log(probs := uniform(4, T, low=0.05)),
    "sum_squared_probs": probs**2 + uniform(4, T) * (1 - probs) ** 2,
    "turns": jnp.array(
        [[1, 1, 0, 0, 1, 1], [0] * 6, [1, 0, 1, 0, 1, 0], [1, 1, 1, 0, 1, 1]], bool
    ),
    "log_ratio": normal(T, scale=0.2),
}
TRAINED = {"log_prob", "losses", "v", "logits"}


def passk(rewards):
    best, place = jax.lax.top_k(rewards, 2)
    lead = (best[0] - best[1]) / (rewards.std(ddof=1) + 1e-6)
    return jnp.zeros(G).at[place[0]].set(lead)


def token_baseline(returns, log_probs, sum_squared_probs, mask):
    steps = (1 - 2 * jnp.exp(log_probs) + sum_squared_probs) * mask
    weights = jnp.cumsum(steps, axis=-1) * mask
    total = jnp.sum(weights, axis=0) + 1e-8
    second = jnp.sort(jnp.sum(mask, axis=-1))[-2]
    baseline = jnp.sum(returns * weights, axis=0) / total
    return jnp.where(jnp.arange(T) < second, baseline, 0.0)


def turns_baseline(returns, log_probs, sum_squared_probs, turns):
    """Return the baseline of the k-th valid tokens, as if they stood side by side."""
    packed, turns = [], np.asarray(turns)
    for x in (returns, log_probs, sum_squared_probs):
        answers = [x[i][turns[i]] for i in range(len(x))]
        padded = [jnp.pad(answer, (0, T - len(answer))) for answer in answers]
        packed.append(jnp.stack(padded))
    lengths = turns.sum(axis=1, keepdims=True)
    return token_baseline(*packed, jnp.arange(T) < lengths)


def normalized(rewards):
    return f.standardized(rewards, ddof=1, epsilon=1e-6)


def dppo(log_prob, old_log_prob, adv, within=f.within_tv):
    loss = f.weighted(log_prob, old_log_prob, adv, 0.0, 20.0)
    return loss * within(log_prob, old_log_prob, adv)


def bounded_k3(log_prob, ref_log_prob):
    return jnp.clip(f.k3(log_prob, ref_log_prob), -10, 10)


def plus(log_prob, ref_log_prob):
    log_ratio = log_prob - ref_log_prob
    gradient = 0.5 * log_ratio**2 - stop(0.5 * log_ratio**2)
    return gradient + stop(log_ratio), gradient + stop(
        bounded_k3(log_prob, ref_log_prob)
    )


def within(k1, low, high):
    k1 = jnp.broadcast_to(k1, (T,))
    return (k1 >= jnp.log(low)) & (k1 <= jnp.log(high))


ROWS = {
    "grpo, grpo_vectorized": normalized,
    "rloo, rloo_vectorized": lambda rewards: (rewards - rewards.mean()) * 5 / 4,
    "remax": lambda rewards, greedy_reward: rewards - greedy_reward,
    "opo": lambda rewards, lengths: (
        rewards - jnp.sum(lengths * rewards) / jnp.sum(lengths)
    ),
    "reinforce_plus_plus": lambda r_t: f.whiten(f.backwards(r_t, jnp.full(T, 0.99))),
    "masked_whiten": (f.masked_whiten, "adv sample_mask"),
    "reinforce_plus_plus_baseline": lambda rewards: rewards - rewards.mean(),
    "gdpo": lambda rewards, other_rewards: (
        normalized(rewards) + normalized(other_rewards)
    ),
    "gae": (f.masked_gae, "values r_t sample_mask"),
    "gpg": lambda rewards: (rewards - rewards.mean()) * G / jnp.count_nonzero(rewards),
    "optimal_token_baseline": token_baseline,
    "tir_optimal_token_baseline": turns_baseline,
    "grpo_passk": passk,
    "overlong_buffer": lambda lengths: jnp.clip(-(lengths - 12) / 8 * 2.0, -2.0, 0.0),
    "vanilla": (f.dual_clipped, "log_prob old_log_prob adv"),
    "gspo": lambda log_prob, old_log_prob, adv: f.gspo_token(
        log_prob, jnp.mean(log_prob - old_log_prob), adv
    ),
    "cispo": lambda log_prob, old_log_prob, adv: f.weighted(
        log_prob, old_log_prob, adv, 0.8, 1.28
    ),
    "sapo": (f.sapo, "log_prob old_log_prob adv"),
    "geo_mean": lambda log_prob, old_log_prob, adv: f.geometric_mean(
        log_prob, old_log_prob, adv[0], 0.3, 0.4
    ),
    "gpg: loss": lambda log_prob, adv: -log_prob * adv,
    "kl_cov": lambda log_prob, old_log_prob, adv: f.kl_cov(
        log_prob, old_log_prob, adv, T // 2
    ),
    "dro": lambda log_prob, old_log_prob, adv: (
        -(log_prob * adv - 0.5 * 0.1 * (log_prob - old_log_prob) ** 2)
    ),
    "dppo_tv": (dppo, "log_prob old_log_prob adv"),
    "dppo_kl": lambda log_prob, old_log_prob, adv: dppo(
        log_prob, old_log_prob, adv, f.within_kl
    ),
    "kl_loss_type: kl+, low_var_kl+": plus,
    "kl_loss_type: mse": lambda log_prob, ref_log_prob: (
        0.5 * (log_prob - ref_log_prob) ** 2
    ),
    "kl_loss_type: abs, low_var_kl": lambda data_log_prob, ref_log_prob: (
        jnp.abs(data_log_prob - ref_log_prob),
        bounded_k3(data_log_prob, ref_log_prob),
    ),
    "compute_value_loss": lambda v, old_v, target: f.clipped_values(
        v, old_v, target, 0.5
    ),
    "token-mean": (f.token_mean, "losses mask"),
    "token-sum": lambda losses, mask: jnp.sum(losses * mask),
    "seq-mean-token-mean": (f.sequence_means, "losses mask"),
    "seq-mean-token-sum": lambda losses, mask: jnp.sum(losses * mask) / f.answers(mask),
    "seq-mean-token-sum-norm": lambda losses, mask: (
        jnp.sum(losses * mask) / f.answers(mask) / T
    ),
    "rollout_is=token": lambda log_ratio: jnp.minimum(jnp.exp(log_ratio), 1.2),
    "rollout_is=sequence": lambda log_ratio: jnp.broadcast_to(
        jnp.minimum(jnp.exp(jnp.sum(log_ratio)), 1.2), (T,)
    ),
    'rollout_is_threshold="0.8_1.2"': lambda log_ratio: jnp.where(
        (jnp.exp(log_ratio) >= 0.8) & (jnp.exp(log_ratio) <= 1.2),
        jnp.exp(log_ratio),
        0.0,
    ),
    "rollout_is_batch_normalize": lambda log_ratio: (
        jnp.minimum(jnp.exp(log_ratio), 1.2)
        / jnp.mean(jnp.minimum(jnp.exp(log_ratio), 1.2))
    ),
    "rollout_rs=token_k1": lambda log_ratio: within(-log_ratio, 0.8, 1.3),
    "rollout_rs=seq_sum_k1": lambda log_ratio: within(-jnp.sum(log_ratio), 0.5, 3.0),
    "rollout_rs=seq_mean_k1": lambda log_ratio: within(-jnp.mean(log_ratio), 0.9, 1.3),
    "rollout_rs=token_k2, token_k3": lambda log_ratio: (
        0.5 * log_ratio**2 <= 0.02,
        jnp.exp(log_ratio) - 1 - log_ratio <= 0.02,
    ),
    "rollout_rs=seq_max_k3": lambda log_ratio: (
        jnp.max(jnp.exp(log_ratio) - 1 - log_ratio) <= 0.02
    ),
    "logprobs_from_logits, entropy_from_logits": (
        f.log_prob_and_entropy,
        "logits tokens",
    ),
}
