"""Further losses of RL for language models: trust regions, baselines, entropy, pass@k.

A batch of answers is that of `language.py`, which must be in the same package.
"""

import jax
import jax.numpy as jnp

import rlaxlib

from .language import (  # noqa: TID252 - Any package.
    advantages,
    answer_log_probs,
    clipped,
    log_probs,
    of_tokens,
)


def dppo(params, apply, batch, bound=0.2, max_ratio=20.0):
    """DPPO: no gradient for tokens that leave the trust region; that of prime-rl.

    Qi et al., 2026, https://arxiv.org/abs/2602.04879. Source:
    github.com/verl-project/verl@1dda039, verl/trainer/ppo/core_algos.py:
    compute_policy_loss_dppo_tv, the same loss. Usual: total variation of 0.2, ratios
    truncated at 20, Adam 1e-6.
    """
    log_prob, mask = log_probs(params, apply, batch), batch.sample_mask
    inputs = log_prob, batch.old_log_prob, advantages(batch)
    keep = rlaxlib.divergence_ppo_mask(*inputs, bound, bound, sample_mask=mask)
    loss, _ = rlaxlib.cispo_loss(*inputs, 1.0, max_ratio - 1, sample_mask=keep)
    return rlaxlib.aggregate_losses(loss, "token_mean", sample_mask=mask)


def prime_ipo(params, apply, batch, bound=0.1, kl_cost=1e-3):
    """IPO of prime-rl: no gradient for tokens whose probability moved too far.

    The region is symmetric: it does not depend on the sign of the advantage. The
    penalty is a squared log-ratio. Prime Intellect, 2026,
    https://github.com/PrimeIntellect-ai/prime-rl. Source:
    github.com/PrimeIntellect-ai/prime-rl@559b447, src/prime_rl/trainer/rl/loss.py:
    ipo_loss_fn, the same loss. Usual: a bound of 0.1, KL cost 1e-3, AdamW 1e-6; later
    versions have a bound of 0.3, and no KL cost.
    """
    log_prob, mask = log_probs(params, apply, batch), batch.sample_mask
    old_log_prob, adv_t = batch.old_log_prob, advantages(batch, scale="none")
    near = jnp.abs(jnp.exp(log_prob) - jnp.exp(old_log_prob)) <= bound
    inputs = log_prob, old_log_prob, adv_t, 0.0
    loss, _ = rlaxlib.ppo_penalty_loss(*inputs, sample_mask=mask & near)
    kl = rlaxlib.kl_loss(log_prob, old_log_prob, "k2", sample_mask=mask)
    return rlaxlib.aggregate_losses(loss + 2 * kl_cost * kl, sample_mask=mask)


def max_rl(params, apply, batch):
    """MaxRL: the likelihood of a correct answer; rewards are 0 or 1.

    On policy: one update for each batch. Tajwar et al., 2026,
    https://arxiv.org/abs/2602.02710. Source: github.com/tajwarfahim/maxrl@c0698eb,
    verl/trainer/ppo/core_algos.py, the same loss. Usual: groups of 16 with AdamW 1e-6,
    or of 128 with 1e-5, batches of 256 prompts, no KL cost.
    """
    log_prob = log_probs(params, apply, batch)
    loss = rlaxlib.reinforce_loss(log_prob, advantages(batch, scale="mean"))
    return rlaxlib.aggregate_losses(loss, "token_mean", sample_mask=batch.sample_mask)


def vespo(params, apply, batch):
    """VESPO: a smooth weight of each answer, for stale experience.

    Shen et al., 2026, https://arxiv.org/abs/2602.10693. Source:
    github.com/FloyedShen/VESPO@aa1f304, recipe/vespo/code/core_algos.py, the same loss
    as a mean over tokens, its default and that of TRL. Usual: exponents 2 and 3, rates
    3 and 2, Adam 1e-6.
    """
    log_prob, mask = log_probs(params, apply, batch), batch.sample_mask
    adv_t = advantages(batch)
    weights = jax.vmap(rlaxlib.vespo_weight)
    weights = weights(log_prob, batch.old_log_prob, adv_t, sample_mask=mask)
    loss = rlaxlib.reinforce_loss(log_prob, weights * adv_t)
    return rlaxlib.aggregate_losses(loss, "token_mean", sample_mask=mask)


def otb(params, apply, batch):
    """OTB: REINFORCE, with the baseline of least variance at each token.

    `apply` returns logits: the baseline needs the squares of all probabilities. Where
    one answer alone goes on, it is 0. Li et al., 2026,
    https://arxiv.org/abs/2602.07078. Source:
    github.com/verl-project/verl@1dda039,
    verl/trainer/ppo/core_algos.py: compute_optimal_token_baseline_advantage, the same
    advantages with its handle_zero_tail. Usual: groups of 8, on policy, Adam 1e-6.
    """
    logits = jax.lax.stop_gradient(apply(params, batch.inputs))
    squares = jnp.sum(jnp.square(jax.nn.softmax(logits)), axis=-1)
    log_prob, shape = log_probs(params, apply, batch), batch.rewards.shape
    returns = jnp.broadcast_to(batch.rewards.reshape(-1, 1), log_prob.shape)

    def baseline(returns, log_prob, squares, mask):
        return rlaxlib.optimal_token_baseline(
            returns, log_prob, squares, sample_mask=mask
        )

    inputs = returns, log_prob, squares, batch.sample_mask
    baseline = jax.vmap(baseline)(*(x.reshape(*shape, -1) for x in inputs))
    others = jnp.sum(batch.sample_mask.reshape(*shape, -1), axis=1) > 1
    adv_t = returns - jnp.repeat(jnp.where(others, baseline, 0.0), shape[1], axis=0)
    loss = rlaxlib.reinforce_loss(log_prob, adv_t)
    return rlaxlib.aggregate_losses(loss, "token_mean", sample_mask=batch.sample_mask)


def dft(params, apply, batch):
    """DFT: supervised learning, where each token is weighted by its probability.

    Wu et al., 2025, https://arxiv.org/abs/2508.05629. Source:
    github.com/yongliang-wu/DFT@e153181, verl/verl/trainer/fsdp_dft_trainer.py, the same
    loss. Usual: AdamW 5e-5, batch 256, one epoch.
    """
    log_prob, mask = log_probs(params, apply, batch), batch.sample_mask
    loss = rlaxlib.reinforce_loss(log_prob, jnp.exp(log_prob), sample_mask=mask)
    return rlaxlib.aggregate_losses(loss, "token_mean", sample_mask=mask)


def topr(params, apply, batch):
    """TOPR: truncated ratios for bad answers, and none for good ones.

    Le Roux et al., 2025, https://arxiv.org/abs/2503.14286. Source:
    github.com/alibaba/ROLL@8eb27cc, roll/pipeline/rlvr/actor_pg_worker.py, by others,
    with ratios of tokens, where these are the paper's, of answers (a cosine of 0.91 at
    random inputs). Usual (paper; the code): rewards of 1 and -1, ratios in [0, 1], Adam
    1e-6.
    """
    log_prob, mask = log_probs(params, apply, batch), batch.sample_mask
    rewards = jnp.broadcast_to(batch.rewards.reshape(-1, 1), log_prob.shape)

    def weight(log_ratio, mask):
        return rlaxlib.importance_weights(
            log_ratio, "sequence", sample_mask=mask, maximum=1.0
        )

    weights = jax.vmap(weight)(log_prob - batch.old_log_prob, mask)
    weights = jnp.where(rewards > 0, 1.0, weights)
    loss = rlaxlib.reinforce_loss(log_prob, weights * rewards)
    return rlaxlib.aggregate_losses(loss, "sequence_mean_token_sum", sample_mask=mask)


def dro(params, apply, batch, temperature=0.1):
    """DRO and Kimi k1.5: a policy gradient, and a squared log-ratio to the old policy.

    The log-ratio is that of the whole answer. Kimi Team, 2025,
    https://arxiv.org/abs/2501.12599. Source: github.com/alibaba/ROLL@8eb27cc,
    roll/pipeline/rlvr/actor_pg_worker.py, by others, with squares of the log-ratios of
    tokens (a cosine of 0.996 at random inputs). Usual: temperature 0.1, Adam 1e-6.
    """
    old_log_prob = jnp.sum(batch.old_log_prob, axis=1, where=batch.sample_mask)
    log_prob = answer_log_probs(params, apply, batch)
    loss = rlaxlib.reinforce_loss(log_prob, advantages(batch, scale="none")[:, 0])
    return jnp.mean(loss + temperature * rlaxlib.kl_loss(log_prob, old_log_prob, "k2"))


def kl_cov(params, apply, batch, fraction=2e-3, kl_cost=1.0):
    """KL-Cov: a penalty for the tokens that reduce the entropy most.

    The penalty is the size of the log-ratio, whose gradient does not vanish at a ratio
    of 1. Cui et al., 2025, https://arxiv.org/abs/2505.22617. Source:
    github.com/PRIME-RL/Entropy-Mechanism-of-RL@8850579, verl/trainer/ppo/core_algos.py:
    compute_policy_loss_kl_cov, the same loss. Usual (there; github.com/verl-project/
    verl): 0.2 % of the tokens for 7B parameters, 0.02 % for 32B, KL cost 1.
    """
    log_prob, mask = log_probs(params, apply, batch), batch.sample_mask
    adv_t = advantages(batch)

    def mean(x):
        return rlaxlib.masked_mean(x, mask=mask)

    covariance = (log_prob - mean(log_prob)) * (adv_t - mean(adv_t))
    order = jnp.argsort(jnp.where(mask, -covariance, jnp.inf), axis=None)
    is_first = jnp.arange(mask.size) < jnp.maximum(fraction * jnp.sum(mask) // 1, 1)
    chosen = jnp.zeros(mask.size, bool).at[order].set(is_first).reshape(mask.shape)
    distance = jnp.abs(log_prob - batch.old_log_prob)
    inputs = log_prob, batch.old_log_prob, adv_t, 0.0
    loss, _ = rlaxlib.ppo_penalty_loss(*inputs, sample_mask=mask)
    loss = loss + kl_cost * jnp.where(chosen, distance, 0.0)
    return rlaxlib.aggregate_losses(loss, "token_mean", sample_mask=mask)


def clip_cov(
    params, apply, batch, key, fraction=2e-4, minimum=1.0, maximum=5.0, epsilon=1.0
):
    """Clip-Cov: no gradient for a few random tokens that reduce the entropy most.

    They are chosen among those whose covariance is within bounds. Cui et al., 2025,
    https://arxiv.org/abs/2505.22617. Source:
    github.com/PRIME-RL/Entropy-Mechanism-of-RL@8850579, verl/trainer/ppo/core_algos.py:
    compute_policy_loss_clip_cov. There at least one token is chosen, and none that PPO
    clips, which has no gradient anyway. Usual (there): 0.02 % of the tokens,
    covariances of 1 to 5, clips 1, AdamW 1e-6.
    """
    log_prob, mask = log_probs(params, apply, batch), batch.sample_mask
    adv_t = advantages(batch)
    inputs = key, log_prob, adv_t, fraction, minimum, maximum
    keep = rlaxlib.clip_cov_mask(*inputs, sample_mask=mask)
    loss = jnp.where(keep, clipped(log_prob, batch, adv_t, epsilon), 0.0)
    return rlaxlib.aggregate_losses(loss, "token_mean", sample_mask=mask)


def pass_at_k(params, apply, batch, k=4):
    """PKPO: the gradient of pass@k, or of the best of k answers.

    The advantage of an answer is by how much it raises the best reward of the sets of k
    answers that it is in: the baseline is the mean of the best among the others of each
    set (equation 33), also for k = G. On policy: one update for each batch. Walder and
    Karkhanis, 2025, https://arxiv.org/abs/2505.15201. Usual (paper): groups of 16, k of
    4 or 8, which falls to 1 late in training.
    """
    size = batch.rewards.shape[1]
    others = (jnp.arange(size)[:, None] + jnp.arange(1, size)) % size

    def advantage(rewards):
        best = jax.vmap(lambda x: rlaxlib.pass_at_k_rewards(x, k - 1))(rewards[others])
        baseline = k / (k - 1) * jnp.sum(best, axis=1)
        return size * rlaxlib.pass_at_k_rewards(rewards, k) - baseline

    adv_t = of_tokens(batch, jax.vmap(advantage)(batch.rewards))
    loss = rlaxlib.reinforce_loss(log_probs(params, apply, batch), adv_t)
    mode = "sequence_mean_token_sum"
    return rlaxlib.aggregate_losses(loss, mode, sample_mask=batch.sample_mask)


def gdpo(params, apply, batch, weights, epsilon=0.2):
    """GDPO: several rewards, each standardised in its group before they are added.

    The sum is standardised over all tokens, where long answers count more. The batch
    has `all_rewards`, [K, P, G]. Liu et al., 2026, https://arxiv.org/abs/2601.05242.
    Source: github.com/verl-project/verl@1dda039, verl/trainer/ppo/core_algos.py:
    compute_gdpo_outcome_advantage, the same loss. Usual: weights 1, otherwise those of
    GRPO.
    """
    each = jax.vmap(jax.vmap(rlaxlib.group_advantages))(batch.all_rewards)
    adv_t = jnp.tensordot(weights, each, 1).reshape(-1, 1)
    adv_t = jnp.broadcast_to(adv_t, batch.tokens.shape)
    adv_t = rlaxlib.standardize(adv_t, mask=batch.sample_mask, ddof=1)
    loss = clipped(log_probs(params, apply, batch), batch, adv_t, epsilon)
    return rlaxlib.aggregate_losses(loss, "token_mean", sample_mask=batch.sample_mask)


def sequence_mask_tis(params, apply, batch, low=0.99, high=1.01, max_weight=2.0):
    """Sequence-mask TIS: weights of tokens, in answers whose mean ratio is near 1.

    The batch has `sampler_log_prob`, [B, T], of the inference engine. Liu et al., 2025,
    https://richardli.xyz/rl-collapse. Source: github.com/OpenRLHF/OpenRLHF@3c3be62,
    openrlhf/models/loss.py, the same loss for `max_weight` infinity: weights of tokens
    are not truncated there. Usual: geometric means within 1 %, weights truncated at 2
    to 5.
    """
    log_prob, mask = log_probs(params, apply, batch), batch.sample_mask
    log_ratio = batch.old_log_prob - batch.sampler_log_prob

    def weights(log_ratio, mask):
        weigh = rlaxlib.importance_weights
        near = weigh(log_ratio, "geometric", "mask", low, high, sample_mask=mask) > 0
        return jnp.where(
            near, weigh(log_ratio, sample_mask=mask, maximum=max_weight), 0.0
        )

    loss = clipped(log_prob, batch, advantages(batch), 0.2)
    loss = jax.vmap(weights)(log_ratio, mask) * loss
    return rlaxlib.aggregate_losses(loss, "token_mean", sample_mask=mask)
