"""Losses of RL for language models: GRPO and its kin, preferences, distillation.

`apply(params, inputs)` returns hidden states, [B, T, D], and the weights of the output
layer, [D, V], so that logits are never held; or the logits, [B, T, V]. A batch of B
answers, G to each of P prompts, has the fields

    inputs            tokens that the model reads, [B, T],
    tokens            tokens that follow them, `inputs` one step later, [B, T],
    sample_mask       True for tokens that the policy chose, [B, T],
    old_log_prob      log-probabilities of the tokens when they were sampled, [B, T],
    ref_log_prob      log-probabilities under the reference policy, [B, T],
    rewards           rewards of the answers, [P, G].

A batch of preferences has the fields `chosen` and `rejected`, each a batch of B answers
with the first three fields and `ref_log_prob`.
"""

import jax
import jax.numpy as jnp

import rlaxlib

# --- What the recipes share. ---


def log_probs(params, apply, batch):
    """Return the log-probabilities of the tokens, [B, T], from logits or a head."""
    output = apply(params, batch.inputs)
    if not isinstance(output, tuple):
        return rlaxlib.token_log_probs(output, batch.tokens).log_prob
    hidden, head = output
    inputs = hidden.reshape(-1, hidden.shape[-1]), head, batch.tokens.reshape(-1)
    found = rlaxlib.linear_token_log_probs(*inputs)
    return found.log_prob.reshape(batch.tokens.shape)


def advantages(batch, baseline="mean", scale="stddev"):
    """Return the advantage of each answer in its group, for each token, [B, T]."""

    def group(rewards):
        return rlaxlib.group_advantages(rewards, baseline=baseline, scale=scale)

    return of_tokens(batch, jax.vmap(group)(batch.rewards))


def of_tokens(batch, x):
    """Return a number of each answer, [P, G], for each of its tokens, [B, T]."""
    return jnp.broadcast_to(x.reshape(-1, 1), batch.tokens.shape)


def clipped(log_prob, batch, adv_t, epsilon, epsilon_high=None):
    """Return the clipped surrogate loss of the tokens, [B, T]."""
    inputs = log_prob, batch.old_log_prob, adv_t, epsilon, epsilon_high
    loss = jax.vmap(rlaxlib.ppo_clip_loss, (0, 0, 0, None, None))
    return loss(*inputs, sample_mask=batch.sample_mask)[0]


def reference(batch, log_prob, coefficient):
    """Return log-probabilities of the reference policy, or `log_prob` without a cost.

    Where the reference rules out a token, a cost of 0 times the divergence is NaN.
    """
    return jnp.where(coefficient == 0, log_prob, batch.ref_log_prob)


def with_kl(batch, coefficient):
    """Return the batch, with the KL penalty of each answer in its reward.

    With a coefficient of 0, the reference policy may be missing: NaN.
    """
    log_ratio = batch.old_log_prob - reference(batch, batch.old_log_prob, coefficient)
    kl = jnp.sum(log_ratio, axis=1, where=batch.sample_mask)
    rewards = batch.rewards - coefficient * kl.reshape(batch.rewards.shape)
    return batch._replace(rewards=rewards)


# --- Groups of answers. ---


def grpo(params, apply, batch, epsilon=0.2, kl_cost=0.04, differentiate_k3=True):
    """GRPO: PPO's clip, with standardised rewards of a group as advantages.

    The paper differentiates the estimator k3, which has the gradient of KL(π_ref ‖ π).
    With `differentiate_k3=False` it is that of KL(π ‖ π_ref), as that of `kl_loss` is.
    Shao et al., 2024, https://arxiv.org/abs/2402.03300. Source:
    github.com/huggingface/trl@f2cd577, trl/trainer/grpo_trainer.py, the same loss; its
    standard deviations have an epsilon of 1e-4, these 1e-6. Usual: groups of 8, KL cost
    0.04 in its first versions and 0 later, one update a batch, AdamW 1e-6.
    """
    log_prob, mask = log_probs(params, apply, batch), batch.sample_mask
    loss = clipped(log_prob, batch, advantages(batch), epsilon)
    ref_log_prob = reference(batch, log_prob, kl_cost)
    if differentiate_k3:
        log_ratio = jnp.where(mask, ref_log_prob - log_prob, 0.0)
        kl = jnp.expm1(log_ratio) - log_ratio
    else:
        kl_loss = jax.vmap(rlaxlib.kl_loss)
        kl = kl_loss(log_prob, ref_log_prob, sample_mask=mask)
    mode = "sequence_mean_token_mean"
    return rlaxlib.aggregate_losses(loss + kl_cost * kl, mode, sample_mask=mask)


def dr_grpo(params, apply, batch, epsilon=0.2, max_length=3000):
    """Dr. GRPO: no division by the standard deviation or by the length of answers.

    The divisor is the maximal length, so that padding has no effect. Liu et al., 2025,
    https://arxiv.org/abs/2503.20783. Source:
    github.com/sail-sg/understand-r1-zero@dfca49d, train_zero_math.py, and
    github.com/sail-sg/oat@c1a074c, oat/algorithms/ppo.py, the same loss; the latter now
    has weights for the mismatch with the sampler too, tis_c. Usual: groups of 8, 3,000
    tokens, no KL cost, 8 updates for each batch of 1,024 answers, Adam 1e-6.
    """
    log_prob, mask = log_probs(params, apply, batch), batch.sample_mask
    loss = clipped(log_prob, batch, advantages(batch, scale="none"), epsilon)
    denominator = len(mask) * max_length
    return rlaxlib.aggregate_losses(
        loss, "constant", sample_mask=mask, denominator=denominator
    )


def dapo(params, apply, batch, max_length=20480, cache_length=4096):
    """DAPO: a higher upper clip, a mean over all tokens, a penalty for long answers.

    The caller leaves groups with equal rewards out of the batch, and sets the lengths.
    Yu et al., 2025, https://arxiv.org/abs/2503.14476. Source:
    github.com/verl-project/verl@1dda039, verl/trainer/ppo/core_algos.py, the same loss,
    but for its bound of 3 on ratios of negative advantages (clip_ratio_c). Usual
    (paper, section 4.1; the code): clips 0.2 and 0.28, groups of 16, 20,480 tokens of
    which the last 4,096 are penalised, no KL cost, 16 updates for each batch of 512
    prompts, AdamW 1e-6.
    """
    lengths = jnp.sum(batch.sample_mask, axis=1).reshape(batch.rewards.shape)
    penalty = rlaxlib.overlong_penalty(lengths, max_length, cache_length)
    batch = batch._replace(rewards=batch.rewards + penalty)
    log_prob = log_probs(params, apply, batch)
    policy_loss = clipped(log_prob, batch, advantages(batch), 0.2, 0.28)
    return rlaxlib.aggregate_losses(
        policy_loss, "token_mean", sample_mask=batch.sample_mask
    )


def rloo(params, apply, batch, kl_cost=0.03):
    """RLOO: REINFORCE, where the mean of the other answers is the baseline.

    Without an importance ratio: one update for each batch. Ahmadian et al., 2024,
    https://arxiv.org/abs/2402.14740. Source: github.com/huggingface/trl@f2cd577,
    trl/trainer/rloo_trainer.py, the same gradient at ratios of 1. Usual (there; section
    C of the paper): groups of 2 to 4, KL cost 0.03, AdamW 1e-6.
    """
    adv_t = advantages(with_kl(batch, kl_cost), "leave_one_out", "none")
    log_prob = log_probs(params, apply, batch)
    loss = jax.vmap(rlaxlib.reinforce_loss)(log_prob, adv_t)
    mode = "sequence_mean_token_sum"
    return rlaxlib.aggregate_losses(loss, mode, sample_mask=batch.sample_mask)


def remax(params, apply, batch, kl_cost=0.05):
    """ReMax: REINFORCE, where the reward of the greedy answer is the baseline.

    The batch has `greedy_rewards`, [P]. One update for each batch. Li et al., 2023,
    https://arxiv.org/abs/2310.10505. Source: github.com/liziniu/ReMax@536ba49,
    step3_rlhf_finetuning/remax_trainer.py, a mean over tokens: this loss is as many
    times that as answers have tokens. There a token bears its own KL alone, and the
    difference of the rewards, clipped at 5 and discounted by 0.99; here the KL of the
    answer (a cosine of 0.9999 at random inputs without a discount). Usual: one answer
    for each prompt, KL cost 0.05, Adam 1e-6.
    """
    rewards = with_kl(batch, kl_cost).rewards
    adv_t = of_tokens(batch, rewards - batch.greedy_rewards[:, None])
    log_prob = log_probs(params, apply, batch)
    loss = jax.vmap(rlaxlib.reinforce_loss)(log_prob, adv_t)
    mode = "sequence_mean_token_sum"
    return rlaxlib.aggregate_losses(loss, mode, sample_mask=batch.sample_mask)


def opo(params, apply, batch):
    """OPO: REINFORCE on policy, with the baseline of least variance.

    One update for each batch. Hao et al., 2025, https://arxiv.org/abs/2505.23585.
    Source: github.com/microsoft/LMOps@4f2a9de, opo/verl/trainer/ppo/core_algos.py, the
    same gradient at ratios of 1. Usual (paper; the code): groups of 16, no KL cost and
    no entropy bonus, Adam 1e-6.
    """
    lengths = jnp.sum(batch.sample_mask, axis=1).reshape(batch.rewards.shape)
    baseline = jax.vmap(rlaxlib.length_weighted_baseline)(batch.rewards, lengths)
    log_prob = log_probs(params, apply, batch)
    adv_t = of_tokens(batch, batch.rewards - baseline[:, None])
    loss = jax.vmap(rlaxlib.reinforce_loss)(log_prob, adv_t)
    return rlaxlib.aggregate_losses(loss, "token_mean", sample_mask=batch.sample_mask)


def reinforce_plus_plus(params, apply, batch, epsilon=0.2, kl_cost=0.01):
    """REINFORCE++: returns of tokens, standardised over the batch, not in groups.

    Hu et al., 2025, https://arxiv.org/abs/2501.03262. Source:
    github.com/OpenRLHF/OpenRLHF@3c3be62,
    openrlhf/trainer/ppo_utils/experience_maker.py, the same loss, but for its clips of
    rewards and log-ratios to the reference at 10. Usual: one answer for each prompt,
    discount 1, KL cost 0.01, 8 updates for each batch of 1,024 answers, Adam 5e-7.
    """
    mask = batch.sample_mask
    r_t = shaped_rewards(batch, batch.ref_log_prob, kl_cost)
    returns = jax.vmap(rlaxlib.discounted_returns, (0, 0, None))
    adv_t = rlaxlib.standardize(returns(r_t, jnp.ones_like(r_t), 0.0), mask=mask)
    policy_loss = clipped(log_probs(params, apply, batch), batch, adv_t, epsilon)
    return rlaxlib.aggregate_losses(policy_loss, "token_mean", sample_mask=mask)


def gspo(params, apply, batch, epsilon=3e-4, epsilon_high=4e-4):
    """GSPO: the clip applies to the ratio of the whole answer.

    Zheng et al., 2025, https://arxiv.org/abs/2507.18071. Source:
    github.com/verl-project/verl@1dda039, verl/trainer/ppo/core_algos.py:
    compute_policy_loss_gspo, the same loss. Usual (paper, section 5.1; the code): clips
    3e-4 and 4e-4, 4 minibatches for each batch, no KL cost, groups of 16, AdamW 1e-6.
    """

    def log_ratio(log_prob, old_log_prob, mask):
        ratio = rlaxlib.gspo_ratio(log_prob, old_log_prob, sample_mask=mask)
        return jnp.log(ratio)

    log_prob = log_probs(params, apply, batch)
    ratio = jax.vmap(log_ratio)(log_prob, batch.old_log_prob, batch.sample_mask)
    old = batch._replace(old_log_prob=jnp.zeros_like(ratio))
    policy_loss = clipped(ratio, old, advantages(batch), epsilon, epsilon_high)
    mode = "sequence_mean_token_mean"
    return rlaxlib.aggregate_losses(policy_loss, mode, sample_mask=batch.sample_mask)


def cispo(params, apply, batch, epsilon=1.0, epsilon_high=4.0):
    """CISPO: REINFORCE with clipped importance weights, which keeps all tokens.

    MiniMax, 2025, https://arxiv.org/abs/2506.13585. Source:
    github.com/huggingface/trl@f2cd577, trl/trainer/grpo_trainer.py, the same loss.
    Usual (paper; the code): only the upper clip, a ratio of 5 in the code, no KL cost,
    Adam with epsilon 1e-15.
    """
    log_prob = log_probs(params, apply, batch)
    inputs = log_prob, batch.old_log_prob, advantages(batch), epsilon, epsilon_high
    loss = jax.vmap(rlaxlib.cispo_loss, (0, 0, 0, None, None))
    loss, _ = loss(*inputs, sample_mask=batch.sample_mask)
    return rlaxlib.aggregate_losses(loss, "token_mean", sample_mask=batch.sample_mask)


def sapo(params, apply, batch):
    """SAPO: a sigmoid of the ratio in place of the clip.

    Gao et al., 2025, https://arxiv.org/abs/2511.20347. Source:
    github.com/huggingface/trl@f2cd577, trl/trainer/grpo_trainer.py, the same loss.
    Usual (paper; the code): temperature 1 for positive and 1.05 for negative
    advantages.
    """
    log_prob = log_probs(params, apply, batch)
    adv_t, mask = advantages(batch), batch.sample_mask
    loss = jax.vmap(rlaxlib.sapo_loss)
    loss, _ = loss(log_prob, batch.old_log_prob, adv_t, sample_mask=mask)
    return rlaxlib.aggregate_losses(loss, "sequence_mean_token_mean", sample_mask=mask)


def gmpo(params, apply, batch):
    """GMPO: the geometric mean of the clipped ratios of an answer.

    Zhao et al., 2025, https://arxiv.org/abs/2507.20673. Source:
    github.com/callsys/GMPO@205b2bf, train_zero_math_gmpo.py, the same loss. Usual:
    clips of the log-ratio at 0.4, groups of 8, no KL cost, 8 updates for each batch of
    1,024 answers, Adam 1e-6.
    """

    def loss(log_prob, old_log_prob, adv, mask):
        return rlaxlib.gmpo_loss(log_prob, old_log_prob, adv, sample_mask=mask)[0]

    log_prob, adv = log_probs(params, apply, batch), advantages(batch)[:, 0]
    loss = jax.vmap(loss)(log_prob, batch.old_log_prob, adv, batch.sample_mask)
    mode = "sequence_mean_token_mean"
    return rlaxlib.aggregate_losses(loss, mode, sample_mask=batch.sample_mask)


def following(x, mask):
    """Return the entry of one answer at the next valid token; at the last, its own."""
    ones = jnp.ones(len(x))
    return x[rlaxlib.n_step_transitions(ones, ones, 2, sample_mask=mask).indices]


def shaped_rewards(batch, ref_log_prob, kl_cost):
    """Return the rewards of tokens: KL penalties, and that of the answer; [B, T]."""
    inputs = batch.rewards.reshape(-1), batch.old_log_prob, ref_log_prob
    shaped = jax.vmap(rlaxlib.kl_shaped_rewards, (0, 0, 0, None))
    return shaped(*inputs, kl_cost, sample_mask=batch.sample_mask)


def token_advantages(batch, r_t, lambda_):
    """Return advantages by GAE, with a λ of each answer or one, and returns; [B, T]."""

    def one(v_tm1, r_t, lambda_, mask):
        discount_t = 1.0 * (jnp.cumsum(mask[::-1])[::-1] > 1)  # 0 at the last token.
        inputs = v_tm1, r_t, discount_t, following(v_tm1, mask), lambda_
        return rlaxlib.generalized_advantage_estimation(*inputs, sample_mask=mask)

    v_tm1 = jnp.where(batch.sample_mask, batch.values, 0.0)
    lambda_ = jnp.broadcast_to(lambda_, (len(v_tm1),))
    adv_t = jax.vmap(one)(v_tm1, r_t, lambda_, batch.sample_mask)
    return adv_t, adv_t + v_tm1


def rlhf_ppo(params, apply, batch, kl_cost=0.03, value_cost=0.1, lambda_=0.95):
    """PPO with values of tokens and a KL penalty in the rewards, as RLHF began.

    `apply` returns values, [B, T], too, and `values` are those when the tokens were
    sampled. Ziegler et al., 2019, https://arxiv.org/abs/1909.08593. Source:
    github.com/openai/lm-human-preferences@cbfd210, lm_human_preferences/
    train_policy.py, the same loss with whiten_rewards=False, as for summaries: answers
    have one length there, and to whiten rewards would favour short or long ones. Usual
    (launch.py): 4 epochs on each batch, clips 0.2 for policy and values. Summaries:
    batch 32, KL cost 0.03 for TL;DR and 0.01 for CNN/DM, Adam 2e-6. Books: batch 512,
    KL cost 0.15, controlled with a target of 6, Adam 1e-5.
    """
    mask = batch.sample_mask
    r_t = shaped_rewards(batch, batch.ref_log_prob, kl_cost)
    adv_t, target = token_advantages(batch, r_t, lambda_)
    v = apply(params, batch.inputs)[1]
    log_prob = log_probs(params, lambda *args: apply(*args)[0], batch)
    loss = clipped(log_prob, batch, rlaxlib.standardize(adv_t, mask=mask), 0.2)
    inputs = v, batch.values, target, 0.2
    value_loss, _ = rlaxlib.ppo_value_loss(*inputs, sample_mask=mask)
    loss = loss + value_cost * value_loss
    return rlaxlib.aggregate_losses(loss, "token_mean", sample_mask=mask)


def vapo_targets(batch, alpha):
    """Return VAPO's advantages, with λ by length, and returns, with λ = 1; [B, T]."""
    length = jnp.sum(batch.sample_mask, axis=1)
    lambda_ = jnp.maximum(0.0, 1 - 1 / (alpha * jnp.maximum(1, length)))
    r_t = shaped_rewards(batch, batch.old_log_prob, 0.0)
    adv_t, _ = token_advantages(batch, r_t, lambda_)
    return adv_t, token_advantages(batch, r_t, 1.0)[1]


def vapo(params, apply, batch, alpha=0.05, value_cost=1.0, imitation_cost=0.1):
    """VAPO: PPO with values of tokens, and imitation of correct answers.

    `apply` returns values, [B, T], too, and `values` are those when the tokens were
    sampled. Answers of positive reward are the correct ones. The λ of answers of up to
    1/`alpha` tokens is 0. Yue et al., 2025, https://arxiv.org/abs/2504.05118. Source:
    github.com/stateset/stateset-agents@ccad233,
    stateset_agents/training/vapo_trainer.py, by others (a cosine of 0.91 at random
    inputs): λ of 1 - 1/(αl + 1) for l tokens, where this is the paper's 1 - 1/(αl), a
    discount of 0.99, the reward one step after the last token, standardised advantages
    and means of tokens for each prompt, clipped values, and squares without ½, so that
    a `value_cost` of 1 is its 0.5. Usual: clips 0.2 and 0.28, `alpha` 0.05, groups of
    16, Adam 1e-6 for the policy and 2e-6 for the values, which learn alone for 50 steps
    first.
    """
    adv_t, target = vapo_targets(batch, alpha)
    v, mask = apply(params, batch.inputs)[1], batch.sample_mask
    log_prob = log_probs(params, lambda *args: apply(*args)[0], batch)
    adv_t = rlaxlib.standardize(adv_t, mask=mask, ddof=1)
    loss = clipped(log_prob, batch, adv_t, 0.2, 0.28)
    loss = loss + value_cost * rlaxlib.l2_loss(v, target)
    correct = mask & (batch.rewards.reshape(-1, 1) > 0)
    imitation = rlaxlib.masked_mean(-log_prob, mask=correct)
    loss = rlaxlib.aggregate_losses(loss, "token_mean", sample_mask=mask)
    return loss + imitation_cost * imitation


# --- Preferences. ---


def answer_log_probs(params, apply, batch, ref=False):
    """Return the log-probability of each answer, or that of the reference, [B]."""
    log_prob = batch.ref_log_prob if ref else log_probs(params, apply, batch)
    return jnp.sum(log_prob, axis=1, where=batch.sample_mask)


def dpo(params, apply, batch, beta=0.1, kind="sigmoid"):
    """DPO, direct preference optimisation: the log-ratios are the rewards.

    Rafailov et al., 2023, https://arxiv.org/abs/2305.18290. Source:
    github.com/eric-mitchell/direct-preference-optimization@f8b8c0f, trainers.py, the
    same loss. Usual (paper, appendix B; the code): beta 0.1, 0.5 for summaries, RMSProp
    1e-6 in the paper and 5e-7 in the code, batch 64.
    """
    pair = batch.chosen, batch.rejected
    log_prob = (answer_log_probs(params, apply, x) for x in pair)
    ref = (answer_log_probs(params, apply, x, ref=True) for x in pair)
    return jnp.mean(rlaxlib.dpo_loss(*log_prob, *ref, beta, kind))


def ipo(params, apply, batch, beta=0.1):
    """IPO: DPO with a squared loss, which does not overfit to certain preferences.

    Azar et al., 2023, https://arxiv.org/abs/2310.12036. Source:
    github.com/eric-mitchell/direct-preference-optimization@f8b8c0f, trainers.py, by
    others, the same loss. Usual: beta 0.1 to 1; TRL divides the log-probabilities by
    the lengths of the answers.
    """
    return dpo(params, apply, batch, beta, kind="ipo")


def simpo(params, apply, batch, beta=2.0, margin=1.0):
    """SimPO: mean log-probabilities of tokens are the rewards, without a reference.

    Meng et al., 2024, https://arxiv.org/abs/2405.14734. Source:
    github.com/princeton-nlp/SimPO@1b3e8f3, scripts/simpo_trainer.py, the same loss;
    `margin` is beta times its gamma_beta_ratio. Usual: beta 2 to 2.5, margin 0.25 to
    1.6, Adam 3e-7 to 1e-6, batch 128.
    """
    log_prob = (
        rlaxlib.masked_mean(log_probs(params, apply, x), mask=x.sample_mask, axis=1)
        for x in (batch.chosen, batch.rejected)
    )
    return jnp.mean(rlaxlib.simpo_loss(*log_prob, beta, margin))


def orpo(params, apply, batch, coefficient=0.1):
    """ORPO: supervised learning of the chosen answer, and an odds ratio.

    Hong et al., 2024, https://arxiv.org/abs/2403.07691. Source:
    github.com/xfactlab/orpo@208d2d6, src/orpo_trainer.py, whose likelihood is a mean
    over all tokens, of the prompt too by default, where this is a mean over answers,
    and whose odds count the first token of padding too (a cosine of 0.89 at random
    inputs without prompts). Usual (paper; the code): coefficient 0.1, AdamW 8e-6, in
    the code 5e-6, no reference.
    """
    log_prob = (
        rlaxlib.masked_mean(log_probs(params, apply, x), mask=x.sample_mask, axis=1)
        for x in (batch.chosen, batch.rejected)
    )
    return jnp.mean(rlaxlib.orpo_loss(*log_prob, coefficient))


def kto(params, apply, batch, beta=0.1):
    """KTO: answers that are desirable or not, without pairs.

    The batch has `desirable`, [B], and `mismatched`, a batch of the same prompts with
    answers to others. Ethayarajh et al., 2024, https://arxiv.org/abs/2402.01306.
    Source: github.com/ContextualAI/HALOs@4831988, train/trainers.py, the same loss.
    Usual: beta 0.1, AdamW 5e-6, in first versions RMSProp 5e-7, weights that balance
    both kinds.
    """

    def both(x):
        return (answer_log_probs(params, apply, x, ref) for ref in (False, True))

    log_prob, ref_log_prob = both(batch.mismatched)
    kl = jnp.mean(log_prob - ref_log_prob)
    return jnp.mean(rlaxlib.kto_loss(*both(batch), batch.desirable, kl, beta))


def reward_model(params, apply, batch, centering=0.01):
    """Reward model: Bradley-Terry, by the score of the last token of each answer.

    `apply` takes all tokens, [B, T+1], and returns a score for each. Ouyang et al.,
    2022, https://arxiv.org/abs/2203.02155. Source: github.com/huggingface/trl@f2cd577,
    trl/trainer/reward_trainer.py, the same loss. Usual: one epoch, AdamW 1e-5, centring
    0.01.
    """

    def reward(x):
        tokens = jnp.concatenate([x.inputs[:, :1], x.tokens], axis=1)
        last = jnp.argmax(jnp.cumsum(x.sample_mask, axis=1), axis=1)  # Of the tokens.
        return rlaxlib.batched_index(apply(params, tokens), last + 1)

    rewards = reward(batch.chosen), reward(batch.rejected)
    return jnp.mean(rlaxlib.bradley_terry_loss(*rewards, centering=centering))


# --- Distillation. ---


def on_policy_distillation(params, apply, batch, beta=1.0):
    """On-policy distillation (GKD): the student's answers, the teacher's logits.

    `apply` returns logits: the divergence is one of all tokens of the vocabulary; and
    the batch has `teacher_logits`, [B, T, V]. With `beta=1` it is the reverse KL
    divergence. Agarwal et al., 2023, https://arxiv.org/abs/2306.13649. Source:
    github.com/huggingface/trl@f2cd577, trl/experimental/gkd/gkd_trainer.py, the same
    loss. Usual (paper; the code): beta 0.5 to 1, temperature 1 of the student; in the
    code 0.5 and 0.9, and half of the answers from the data.
    """
    mask = batch.sample_mask
    teacher_logits = jnp.where(mask[..., None], batch.teacher_logits, 0.0)
    divergence = jax.vmap(jax.vmap(rlaxlib.generalized_jsd, (0, 0, None)), (0, 0, None))
    loss = divergence(apply(params, batch.inputs), teacher_logits, beta)
    return rlaxlib.aggregate_losses(loss, "token_mean", sample_mask=mask)


def sampled_distillation(params, apply, batch, kl_cost=1.0):
    """On-policy distillation by sampled tokens: the teacher scores the student's.

    The advantage of a token is the teacher's log-probability minus that with which it
    was sampled: a policy gradient of the reverse KL divergence of the next token. The
    batch has `teacher_log_prob`, [B, T]. Lu et al., 2025,
    https://thinkingmachines.ai/blog/on-policy-distillation. Source:
    github.com/thinking-machines-lab/tinker-cookbook@9dfcc3a,
    tinker_cookbook/distillation/train_on_policy.py, a sum over tokens: this loss is a
    mean. Usual: KL cost 1, no rewards, groups of 4, LoRA with Adam 1e-4.
    """
    log_prob, mask = log_probs(params, apply, batch), batch.sample_mask
    adv_t = kl_cost * (batch.teacher_log_prob - batch.old_log_prob)
    inputs = log_prob, batch.old_log_prob, adv_t, 0.0
    loss, _ = rlaxlib.ppo_penalty_loss(*inputs, sample_mask=mask)
    return rlaxlib.aggregate_losses(loss, "token_mean", sample_mask=mask)
