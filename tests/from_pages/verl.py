"""verl, verl-project/verl@1dda039.

`verl/trainer/ppo/core_algos.py` and `rollout_corr_helper.py`.
"""

import jax
import jax.numpy as jnp
import numpy as np

from from_pages import flags, integers, normal, uniform

T, G, V = 6, 5, 7
stop = jax.lax.stop_gradient
KEPT = ~flags(2, length=T)
INPUTS = {
    "rewards": jnp.array([1.0, 0.0, -1.0, 2.0, 0.0]),
    "other_rewards": normal(G),
    "greedy_reward": jnp.float32(0.5),
    "lengths": jnp.array([5, 12, 15, 19, 25]),
    "r_t": normal(T) * KEPT,
    "discount_t": jnp.full(T, 0.99),
    "sample_mask": KEPT,
    "values": (values := normal(T)),
    # The value at the next valid token.
    "v_t": jnp.array([values[1], values[3], values[3], values[4], values[5], 0.0]),
    "returns": normal(4, T),
    "log_probs": jnp.log(probs := uniform(4, T, low=0.05)),
    "sum_squared_probs": probs**2 + uniform(4, T) * (1 - probs) ** 2,
    "turns": jnp.array(
        [[1, 1, 0, 0, 1, 1], [0] * 6, [1, 0, 1, 0, 1, 0], [1, 1, 1, 0, 1, 1]], bool
    ),
    "mask": jnp.arange(T) < jnp.array([3, 0, 6, 5])[:, None],
    "losses": normal(4, T),
    "adv": normal(T),
    # The KL of the first token is beyond verl's bound.
    "log_prob": (log_prob := jnp.log(uniform(T, low=0.05)).at[0].set(-9.0)),
    "data_log_prob": log_prob,
    "old_log_prob": log_prob + normal(T, scale=0.3),
    "ref_log_prob": jnp.log(uniform(T, low=0.05)),
    "v": normal(T),
    "old_v": normal(T),
    "target": normal(T),
    "log_ratio": normal(T, scale=0.2),
    "logits": normal(T, V),
    "tokens": integers(V, T),
}
TRAINED = {"log_prob", "losses", "v", "logits"}


def reinforce(r_t):
    total, found = 0.0, []
    for t in reversed(range(T)):
        total = r_t[t] + 0.99 * total
        found = [total, *found]
    x = jnp.stack(found)
    return (x - jnp.mean(x)) / jnp.sqrt(jnp.var(x, ddof=1) + 1e-8)


def whiten(adv, sample_mask):
    kept = adv[sample_mask]
    scale = jax.lax.rsqrt(jnp.var(kept, ddof=1) + 1e-8)
    return jnp.where(sample_mask, (adv - jnp.mean(kept)) * scale, 0.0)


def passk(rewards):
    best, place = jax.lax.top_k(rewards, 2)
    lead = (best[0] - best[1]) / (rewards.std(ddof=1) + 1e-6)
    return jnp.zeros(G).at[place[0]].set(lead)


def normalized(rewards):
    return (rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-6)


def gae(values, r_t, sample_mask):
    total, following, found = 0.0, 0.0, []
    for t in reversed(range(T)):
        step = r_t[t] + 0.99 * following - values[t] + 0.99 * 0.95 * total
        following = jnp.where(sample_mask[t], values[t], following)
        total = jnp.where(sample_mask[t], step, total)
        found = [total, *found]
    return jnp.stack(found) * sample_mask


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


def ppo(log_prob, old_log_prob, adv, low=0.2, high=0.28):
    ratio = jnp.exp(log_prob - old_log_prob)
    return jnp.maximum(-adv * ratio, -adv * jnp.clip(ratio, 1 - low, 1 + high))


def vanilla(log_prob, old_log_prob, adv):
    loss = ppo(log_prob, old_log_prob, adv)
    return jnp.where(adv < 0, jnp.minimum(-3.0 * adv, loss), loss)


def gspo(log_prob, old_log_prob, adv):
    sequence = stop(jnp.mean(log_prob - old_log_prob))
    return ppo(log_prob - stop(log_prob) + sequence, 0.0, adv, 3e-4, 4e-4)


def cispo(log_prob, old_log_prob, adv):
    ratio = jnp.exp(log_prob - old_log_prob)
    return -stop(jnp.clip(ratio, 0.8, 1.28)) * adv * log_prob


def sapo(log_prob, old_log_prob, adv):
    tau = jnp.where(adv > 0, 1.0, 1.05)
    ratio = jnp.exp(log_prob - old_log_prob)
    return -jax.nn.sigmoid(tau * (ratio - 1)) * 4 / tau * adv


def geo_mean(log_prob, old_log_prob, adv):
    sign, log_ratio = jnp.sign(adv[0]), log_prob - old_log_prob
    near = jnp.clip(log_ratio, -0.3, 0.4)
    least = sign * jnp.minimum(sign * log_ratio, sign * near)
    return -adv[0] * jnp.exp(jnp.mean(least))


def kl_cov(log_prob, old_log_prob, adv):
    log_ratio = log_prob - old_log_prob
    covariance = (adv - adv.mean()) * (log_prob - log_prob.mean())
    largest = jnp.zeros(T, bool).at[jnp.argsort(-covariance)[: T // 2]].set(True)
    return -adv * jnp.exp(log_ratio) + jnp.where(largest, jnp.abs(log_ratio), 0.0)


def dppo(log_prob, old_log_prob, adv, kind="tv"):
    p, mu = jnp.exp(log_prob), jnp.exp(old_log_prob)
    kl = mu * (old_log_prob - log_prob) + (1 - mu) * jnp.log((1 - mu) / (1 - p))
    if kind == "tv":
        valid = jnp.where(adv > 0, p - mu <= 0.2, p - mu >= -0.2)
    else:
        valid = (kl <= 0.05) | jnp.where(adv > 0, p <= mu, p >= mu)
    ratio = stop(jnp.minimum(jnp.exp(log_prob - old_log_prob), 20.0))
    return -adv * ratio * log_prob * valid


def k3(log_prob, ref_log_prob):
    kl = jnp.clip(ref_log_prob - log_prob, -20, 20)
    return jnp.clip(jnp.exp(kl) - kl - 1, -10, 10)


def plus(log_prob, ref_log_prob):
    log_ratio = log_prob - ref_log_prob
    gradient = 0.5 * log_ratio**2 - stop(0.5 * log_ratio**2)
    return gradient + stop(log_ratio), gradient + stop(k3(log_prob, ref_log_prob))


def value_loss(v, old_v, target):
    near = jnp.clip(v, old_v - 0.5, old_v + 0.5)
    return 0.5 * jnp.maximum((v - target) ** 2, (near - target) ** 2)


def sequence_means(losses, mask):
    means = jnp.sum(losses * mask, axis=-1) / (jnp.sum(mask, axis=-1) + 1e-8)
    return jnp.sum(means) / valid(mask)


def valid(mask):
    return jnp.sum(jnp.sum(mask, axis=-1) > 0)


def within(k1, low, high):
    k1 = jnp.broadcast_to(k1, (T,))
    return (k1 >= jnp.log(low)) & (k1 <= jnp.log(high))


def log_probs_and_entropy(logits, tokens):
    log_probs = jax.nn.log_softmax(logits)
    chosen = jnp.take_along_axis(log_probs, tokens[:, None], axis=-1)[:, 0]
    mean = jnp.sum(jax.nn.softmax(logits) * logits, axis=-1)
    return chosen, jax.nn.logsumexp(logits, axis=-1) - mean


ROWS = {
    "grpo, grpo_vectorized": normalized,
    "rloo, rloo_vectorized": lambda rewards: (rewards - rewards.mean()) * 5 / 4,
    "remax": lambda rewards, greedy_reward: rewards - greedy_reward,
    "opo": lambda rewards, lengths: (
        rewards - jnp.sum(lengths * rewards) / jnp.sum(lengths)
    ),
    "reinforce_plus_plus": reinforce,
    "masked_whiten": whiten,
    "reinforce_plus_plus_baseline": lambda rewards: rewards - rewards.mean(),
    "gdpo": lambda rewards, other_rewards: (
        normalized(rewards) + normalized(other_rewards)
    ),
    "gae": gae,
    "gpg": lambda rewards: (rewards - rewards.mean()) * G / jnp.count_nonzero(rewards),
    "optimal_token_baseline": token_baseline,
    "tir_optimal_token_baseline": turns_baseline,
    "grpo_passk": passk,
    "overlong_buffer": lambda lengths: jnp.clip(-(lengths - 12) / 8 * 2.0, -2.0, 0.0),
    "vanilla": vanilla,
    "gspo": gspo,
    "cispo": cispo,
    "sapo": sapo,
    "geo_mean": geo_mean,
    "gpg: loss": lambda log_prob, adv: -log_prob * adv,
    "kl_cov": kl_cov,
    "dro": lambda log_prob, old_log_prob, adv: (
        -(log_prob * adv - 0.5 * 0.1 * (log_prob - old_log_prob) ** 2)
    ),
    "dppo_tv": dppo,
    "dppo_kl": lambda log_prob, old_log_prob, adv: dppo(
        log_prob, old_log_prob, adv, "kl"
    ),
    "kl_loss_type: kl+, low_var_kl+": plus,
    "kl_loss_type: mse": lambda log_prob, ref_log_prob: (
        0.5 * (log_prob - ref_log_prob) ** 2
    ),
    "kl_loss_type: abs, low_var_kl": lambda data_log_prob, ref_log_prob: (
        jnp.abs(data_log_prob - ref_log_prob),
        jnp.clip(k3(data_log_prob, ref_log_prob), -10, 10),
    ),
    "compute_value_loss": value_loss,
    "token-mean": lambda losses, mask: jnp.sum(losses * mask) / jnp.sum(mask),
    "token-sum": lambda losses, mask: jnp.sum(losses * mask),
    "seq-mean-token-mean": sequence_means,
    "seq-mean-token-sum": lambda losses, mask: jnp.sum(losses * mask) / valid(mask),
    "seq-mean-token-sum-norm": lambda losses, mask: (
        jnp.sum(losses * mask) / valid(mask) / T
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
    "logprobs_from_logits, entropy_from_logits": log_probs_and_entropy,
}
