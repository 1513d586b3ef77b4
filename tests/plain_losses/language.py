"""Losses of `recipes/language.py` in plain `jax.numpy`."""

import jax
import jax.numpy as jnp
import numpy as np
from formulas import pick
from recipes import language as recipes

from plain_losses.common import (
    Batch,
    Case,
    M,
    T,
    integers,
    normal,
    of,
    seed,
    stop,
)

seed(__name__)


PROMPTS, G, LAST = 2, 3, jnp.array([3, 5, 2, 4, 5, 1])
MASK = jnp.arange(T)[None] < LAST[:, None]


def answers():
    return Batch(
        inputs=integers(M, PROMPTS * G, T),
        tokens=integers(M, PROMPTS * G, T),
        sample_mask=MASK,
        old_log_prob=-2 + 0.3 * normal(PROMPTS * G, T),
        ref_log_prob=-2 + 0.3 * normal(PROMPTS * G, T),
    )


DESIRABLE = np.array([1, 0, 1, 1, 0, 0], bool)
ANSWERS = answers()._replace(
    rewards=normal(PROMPTS, G),
    greedy_rewards=normal(PROMPTS),
    values=normal(PROMPTS * G, T),
    desirable=jnp.asarray(DESIRABLE),
    mismatched=answers(),
    teacher_logits=normal(PROMPTS * G, T, M),
)
ANSWERS = ANSWERS._replace(teacher_log_prob=jnp.roll(ANSWERS.ref_log_prob, 1, axis=0))
PREFERENCES = Batch(chosen=answers(), rejected=answers())
TABLE = 0.5 * normal(M, M), None
WIDE_TABLE = 0.5 * normal(M, M + 1), None


def bigrams(w, inputs):
    return w[inputs]


def bigrams_and_values(w, inputs):
    x = w[inputs]
    return x[..., :M], x[..., M]


def logps(p, b=ANSWERS):
    """Return log-probabilities of the tokens, [B, T]."""
    return pick(jax.nn.log_softmax(p[b.inputs][..., :M]), b.tokens)


# Rewards of a verifier. Some of each prompt are 1.
VERIFIED = ANSWERS._replace(rewards=jnp.array([[1.0, 0.0, 0.0], [1.0, 0.0, 1.0]]))
# The first update of a batch, so that its ratios are 1.
# Some ratios of whole answers above 1 have positive advantages.
ABOVE = ANSWERS._replace(rewards=-ANSWERS.rewards)
ON_POLICY = ANSWERS._replace(old_log_prob=jax.jit(logps)(TABLE[0]))


def masked_mean(x, mask=MASK):
    return jnp.sum(x * mask) / jnp.sum(mask)


def seq_mean_token_mean(x):
    return jnp.mean(jnp.sum(x * MASK, axis=-1) / jnp.sum(MASK, axis=-1))


def grouped(rewards, scale=True, epsilon=1e-6):
    """Return advantages of groups, [B, 1]; the epsilon of TRL is 1e-4."""
    advantages = []
    for row in rewards:
        advantage = row - jnp.mean(row)
        if scale:
            advantage = advantage / (jnp.std(row, ddof=1) + epsilon)
        advantages.append(advantage)
    return jnp.concatenate(advantages)[:, None]


def clipped(ratio, advantages, low=0.2, high=0.2):
    per_token_loss1 = ratio * advantages
    per_token_loss2 = jnp.clip(ratio, 1 - low, 1 + high) * advantages
    return -jnp.minimum(per_token_loss1, per_token_loss2)


def coef_1(p, b=ANSWERS):
    """Return the ratios of tokens."""
    return jnp.exp(logps(p, b) - b.old_log_prob)


def plain_grpo(p, t):
    """huggingface/trl@f2cd577, trl/trainer/grpo_trainer.py: "grpo"."""
    per_token_logps, ref_per_token_logps = logps(p), ANSWERS.ref_log_prob
    per_token_loss = clipped(coef_1(p), grouped(ANSWERS.rewards))
    difference = ref_per_token_logps - per_token_logps
    per_token_loss += 0.04 * (jnp.exp(difference) - difference - 1)
    return seq_mean_token_mean(per_token_loss)


def plain_dr_grpo(p, t):
    """sail-sg/understand-r1-zero@dfca49d, train_zero_math.py.

    sail-sg/oat@c1a074c, oat/algorithms/ppo.py: learning_step, without tis_c.
    """
    pg_losses = clipped(coef_1(p), grouped(ANSWERS.rewards, scale=False))
    return jnp.mean(jnp.sum(pg_losses * MASK, axis=1) / 100)


def plain_dapo(p, t):
    """verl-project/verl@1dda039.

    verl/trainer/ppo/core_algos.py: compute_policy_loss_vanilla, and
    workers/reward_manager/dapo.py. Ratios stay below clip_ratio_c, 3.
    """
    overlong_buffer_len, max_resp_len = 2, 4
    exceed_len = LAST - (max_resp_len - overlong_buffer_len)
    overlong_reward = jnp.minimum(-exceed_len / overlong_buffer_len * 1.0, 0)
    overlong_reward = jnp.maximum(overlong_reward, -1).reshape(PROMPTS, G)
    advantages = grouped(ANSWERS.rewards + overlong_reward)
    negative_approx_kl = jnp.clip(logps(p) - ANSWERS.old_log_prob, -20.0, 20.0)
    ratio = jnp.exp(negative_approx_kl)
    clip_pg_losses1 = clipped(ratio, advantages, 0.2, 0.28)
    clip_pg_losses2 = jnp.minimum(-advantages * 3.0, clip_pg_losses1)
    losses = jnp.where(advantages < 0, clip_pg_losses2, clip_pg_losses1)
    return masked_mean(losses)


def with_kl(b, beta):
    kl = jnp.sum((b.old_log_prob - b.ref_log_prob) * MASK, axis=-1)
    return b.rewards.reshape(-1) - beta * kl


def plain_rloo(p, t):
    """huggingface/trl@f2cd577, trl/trainer/rloo_trainer.py, on policy."""
    grouped_rewards = with_kl(ON_POLICY, 0.03).reshape(PROMPTS, G)
    grouped_sum = jnp.sum(grouped_rewards, axis=1, keepdims=True)
    baselines = (grouped_sum - grouped_rewards) / (G - 1)
    advantages = (grouped_rewards - baselines).reshape(-1)
    sums = (jnp.sum(x * MASK, axis=-1) for x in (logps(p), ON_POLICY.old_log_prob))
    logps_, old_logps = sums
    return jnp.mean(clipped(jnp.exp(logps_ - old_logps), advantages))


def plain_remax(p, t):
    """liziniu/ReMax@536ba49, step3_rlhf_finetuning/remax_trainer.py, with gamma 1."""
    kl_divergence = -0.05 * (ANSWERS.old_log_prob - ANSWERS.ref_log_prob)
    reward_score = ANSWERS.rewards - ANSWERS.greedy_rewards[:, None]
    returns = kl_divergence + reward_score.reshape(-1, 1)
    return jnp.sum(-returns * logps(p) * MASK) / jnp.sum(MASK)


def plain_opo(p, t):
    """microsoft/LMOps@4f2a9de, opo/verl/trainer/ppo/core_algos.py, on policy."""
    lengths, scores = LAST.reshape(PROMPTS, G), []
    for len_tensor, score_tensor in zip(lengths, ON_POLICY.rewards, strict=True):
        bsl = jnp.sum(len_tensor * score_tensor) / jnp.sum(len_tensor)
        scores.append(score_tensor - bsl)
    scores = jnp.concatenate(scores)[:, None] * MASK
    return masked_mean(clipped(coef_1(p, ON_POLICY), scores))


def plain_reinforce_plus_plus(p, t):
    """OpenRLHF/OpenRLHF@3c3be62.

    openrlhf/trainer/ppo_utils/experience_maker.py: "reinforce", with gamma 1.
    """
    kl = ANSWERS.old_log_prob - ANSWERS.ref_log_prob
    eos_indices = jnp.sum(MASK, axis=1) - 1
    last_reward = jax.nn.one_hot(eos_indices, T) * ANSWERS.rewards.reshape(-1, 1)
    rewards, cumulative_return = (last_reward - 0.01 * kl) * MASK, jnp.zeros(len(LAST))
    returns = []
    for k in reversed(range(T)):
        cumulative_return = rewards[:, k] + 1.0 * cumulative_return
        returns.append(cumulative_return)
    advantages = jnp.stack(returns[::-1], axis=1)
    mean = jnp.sum(advantages * MASK) / jnp.sum(MASK)
    var = jnp.sum((advantages - mean) ** 2 * MASK) / jnp.sum(MASK)
    return masked_mean(clipped(coef_1(p), (advantages - mean) / jnp.sqrt(var)))


def plain_gspo(p, t):
    """verl-project/verl@1dda039.

    verl/trainer/ppo/core_algos.py: compute_policy_loss_gspo.
    """
    log_prob, advantages = logps(p), grouped(ABOVE.rewards)
    negative_approx_kl = log_prob - ABOVE.old_log_prob
    seq_lengths = jnp.sum(MASK, axis=-1)
    kl_seq = jnp.sum(negative_approx_kl * MASK, axis=-1) / seq_lengths
    log_ratio = log_prob - stop(log_prob) + stop(kl_seq)[:, None]
    ratio = jnp.exp(jnp.minimum(log_ratio, 10.0))
    return seq_mean_token_mean(clipped(ratio, advantages, 0.2, 0.5))


def plain_cispo(p, t):
    """huggingface/trl@f2cd577, trl/trainer/grpo_trainer.py: "cispo"; epsilon_high 5."""
    clamped_ratios = stop(jnp.minimum(coef_1(p), 5.0))
    return masked_mean(-clamped_ratios * grouped(ANSWERS.rewards) * logps(p))


def plain_sapo(p, t):
    """huggingface/trl@f2cd577, trl/trainer/grpo_trainer.py: "sapo"."""
    advantages = grouped(ANSWERS.rewards)
    temperatures = jnp.where(advantages > 0, 1.0, 1.05)
    soft_coef_1 = jax.nn.sigmoid(temperatures * (coef_1(p) - 1)) * 4 / temperatures
    return seq_mean_token_mean(-soft_coef_1 * advantages)


def plain_gmpo(p, t):
    """callsys/GMPO@205b2bf, train_zero_math_gmpo.py, with a cliprange of 0.4."""
    losses, advantages = [], grouped(ANSWERS.rewards, epsilon=1e-8)[:, 0]
    for i, advantage in enumerate(advantages):
        logprobs_diff = (logps(p) - ANSWERS.old_log_prob)[i]
        sgn = jnp.where(advantage >= 0, -1, 1)
        clamped = jnp.clip(sgn * logprobs_diff, -0.4, 0.4)
        logprobs_diff_max = sgn * jnp.maximum(sgn * logprobs_diff, clamped)
        ratio = jnp.exp(jnp.sum(logprobs_diff_max * MASK[i]) / jnp.sum(MASK[i]))
        losses.append(-advantage * ratio)
    return jnp.mean(jnp.stack(losses))


def plain_vapo(p, t):
    """stateset/stateset-agents@ccad233, stateset_agents/training/vapo_trainer.py.

    With alpha 0.4. The reward comes one step after the last token, whose state has a
    value too. A train_step takes the mean over prompts.
    """
    rewards = VERIFIED.rewards.reshape(-1)
    values, lasts = jnp.pad(ANSWERS.values, ((0, 0), (0, 1))), LAST.tolist()

    def compute_gae(i, last, lambda_value):
        advantages, last_gae = [0.0] * (T + 1), 0.0
        for k in reversed(range(last + 1)):
            coming = rewards[i] if k == last else 0.99 * values[i, k + 1]
            last_gae = coming - values[i, k] + 0.99 * lambda_value * last_gae
            advantages[k] = last_gae
        return jnp.stack(list(map(jnp.asarray, advantages)))

    def loss(group):
        lengths = [(i, lasts[i]) for i in group]
        mask, old_values = MASK[group], values[group, :T]
        critic = jnp.stack([compute_gae(i, n, 1.0)[:T] for i, n in lengths])
        policy = [compute_gae(i, n, 1.0 - 1.0 / (0.4 * n + 1.0)) for i, n in lengths]
        inner = [x[1 : lasts[i] + 1] for i, x in zip(group, policy, strict=True)]
        valid = jnp.concatenate(inner)
        policy = (jnp.stack(policy) - jnp.mean(valid)) / (jnp.std(valid, ddof=1) + 1e-8)
        surrogate = clipped(coef_1(p)[group], policy[:, :T], 0.2, 0.28)
        new_values = p[ANSWERS.inputs[group]][..., M]
        clipped_values = old_values + jnp.clip(new_values - old_values, -0.2, 0.2)
        errors = (
            (x - (critic + old_values)) ** 2 for x in (new_values, clipped_values)
        )
        value_loss = masked_mean(jnp.maximum(*errors), mask)
        positive_mask = mask & (rewards[group] > 0.5)[:, None]
        positive_lm_loss = -masked_mean(logps(p)[group], positive_mask)
        policy_loss = masked_mean(surrogate, mask)
        return policy_loss + 0.5 * value_loss + 0.1 * positive_lm_loss

    groups = np.arange(PROMPTS * G).reshape(PROMPTS, G)
    return jnp.mean(jnp.stack([loss(group) for group in groups]))


def plain_rlhf_ppo(p, t):
    """openai/lm-human-preferences@cbfd210, lm_human_preferences/train_policy.py.

    With whiten_rewards=False.
    """
    scores, values = ANSWERS.rewards.reshape(-1), ANSWERS.values
    kl = ANSWERS.old_log_prob - ANSWERS.ref_log_prob
    advantages = []
    for i, gen_length in enumerate(LAST.tolist()):
        rewards = (-0.03 * kl[i, :gen_length]).at[-1].add(scores[i])
        lastgaelam, row = 0.0, [0.0] * T
        for k in reversed(range(gen_length)):
            nextvalues = values[i, k + 1] if k < gen_length - 1 else 0.0
            delta = rewards[k] + 1.0 * nextvalues - values[i, k]
            lastgaelam = row[k] = delta + 1.0 * 0.95 * lastgaelam
        advantages.append(jnp.stack(list(map(jnp.asarray, row))))
    advantages = jnp.stack(advantages)
    returns, mean = advantages + values, masked_mean(advantages)
    var = masked_mean((advantages - mean) ** 2)
    advantages = (advantages - mean) * jax.lax.rsqrt(var + 1e-8)
    vpred = p[ANSWERS.inputs][..., M]
    vpredclipped = jnp.clip(vpred, values - 0.2, values + 0.2)
    vf_losses = (vpred - returns) ** 2, (vpredclipped - returns) ** 2
    vf_loss = 0.5 * masked_mean(jnp.maximum(*vf_losses))
    return masked_mean(clipped(coef_1(p), advantages)) + 0.1 * vf_loss


def sequence_logps(p, b, average=False):
    """Return log-probabilities of answers, and those of the reference."""
    sums = (jnp.sum(x * MASK, axis=-1) for x in (logps(p, b), b.ref_log_prob))
    return tuple(x / jnp.sum(MASK, axis=-1) if average else x for x in sums)


def preference_logits(p):
    """Return pi_logratios minus ref_logratios of preference_loss."""
    chosen, ref_chosen = sequence_logps(p, PREFERENCES.chosen)
    rejected, ref_rejected = sequence_logps(p, PREFERENCES.rejected)
    return (chosen - rejected) - (ref_chosen - ref_rejected)


def plain_dpo(p, t):
    """eric-mitchell/direct-preference-optimization@f8b8c0f, trainers.py."""
    return jnp.mean(-jax.nn.log_sigmoid(0.1 * preference_logits(p)))


def plain_ipo(p, t):
    """eric-mitchell/direct-preference-optimization@f8b8c0f, trainers.py: ipo."""
    return jnp.mean((preference_logits(p) - 1 / (2 * 0.1)) ** 2)


def plain_simpo(p, t):
    """princeton-nlp/SimPO@1b3e8f3, scripts/simpo_trainer.py.

    With beta 2 and a gamma_beta_ratio of ½.
    """
    chosen, rejected = (
        sequence_logps(p, x, average=True)[0] for x in vars(PREFERENCES).values()
    )
    return jnp.mean(-jax.nn.log_sigmoid(2.0 * (chosen - rejected - 0.5)))


def plain_orpo(p, t):
    """xfactlab/orpo@208d2d6, src/orpo_trainer.py: with disable_prompt_loss.

    The masks of compute_logps reach to the first token of padding.
    """
    reaching = jnp.arange(T) <= LAST[:, None]
    pos_prob, neg_prob = (
        jnp.sum(logps(p, x) * reaching, axis=1) / jnp.sum(reaching, axis=1)
        for x in vars(PREFERENCES).values()
    )
    pos_loss = -masked_mean(logps(p, PREFERENCES.chosen))
    log_odds = (pos_prob - neg_prob) - (
        jnp.log1p(-jnp.exp(pos_prob)) - jnp.log1p(-jnp.exp(neg_prob))
    )
    ratio = jnp.log(jax.nn.sigmoid(log_odds))
    return jnp.mean(pos_loss - 0.1 * ratio)


def plain_kto(p, t):
    """ContextualAI/HALOs@4831988, train/trainers.py: KTOTrainer."""
    rewards, kl_rewards = (
        x - ref
        for x, ref in (sequence_logps(p, b) for b in (ANSWERS, ANSWERS.mismatched))
    )
    kl = jnp.maximum(stop(jnp.mean(kl_rewards)), 0)
    chosen, rejected = rewards[DESIRABLE], rewards[~DESIRABLE]
    chosen_losses = 1 - jax.nn.sigmoid(0.1 * (chosen - kl))
    rejected_losses = 1 - jax.nn.sigmoid(0.1 * (kl - rejected))
    return jnp.mean(jnp.concatenate([chosen_losses, rejected_losses]))


def score(w, tokens):
    return w[tokens][..., 0]


def plain_reward_model(p, t):
    """huggingface/trl@f2cd577, trl/trainer/reward_trainer.py."""
    rewards_chosen, rewards_rejected = (
        jnp.stack([p[row[n - 1], 0] for row, n in zip(x.tokens, LAST, strict=True)])
        for x in vars(PREFERENCES).values()
    )
    loss = -jnp.mean(jax.nn.log_sigmoid(rewards_chosen - rewards_rejected))
    return loss + 0.01 * jnp.mean((rewards_chosen + rewards_rejected) ** 2)


def plain_distillation(p, t):
    """huggingface/trl@f2cd577, trl/experimental/gkd/gkd_trainer.py, with beta 1."""
    student_log_probs = jax.nn.log_softmax(p[ANSWERS.inputs])
    teacher_log_probs = jax.nn.log_softmax(ANSWERS.teacher_logits)
    jsd = jnp.exp(student_log_probs) * (student_log_probs - teacher_log_probs)
    return jnp.sum(jsd * MASK[..., None]) / jnp.sum(MASK)


def plain_sampled_distillation(p, t):
    """thinking-machines-lab/tinker-cookbook@9dfcc3a.

    tinker_cookbook/distillation/train_on_policy.py, where the loss is a sum.
    """
    reverse_kl = ANSWERS.old_log_prob - ANSWERS.teacher_log_prob
    return jnp.sum(-coef_1(p) * -reverse_kl * MASK)


def case(name, plain, *args, apply=bigrams, batch=ANSWERS, params=TABLE, **kwargs):
    return Case(
        of(getattr(recipes, name), apply, batch, *args, **kwargs), plain, params
    )


CASES = {
    "grpo": case("grpo", plain_grpo),
    "dr_grpo": case("dr_grpo", plain_dr_grpo, max_length=100),
    "dapo": case("dapo", plain_dapo, max_length=4, cache_length=2),
    "rloo": case("rloo", plain_rloo, batch=ON_POLICY),
    "remax": case("remax", plain_remax),
    "opo": case("opo", plain_opo, batch=ON_POLICY),
    "reinforce_plus_plus": case("reinforce_plus_plus", plain_reinforce_plus_plus),
    "gspo": case("gspo", plain_gspo, 0.2, 0.5, batch=ABOVE),
    "cispo": case("cispo", plain_cispo),
    "sapo": case("sapo", plain_sapo),
    "gmpo": case("gmpo", plain_gmpo),
    "vapo": case(
        "vapo",
        plain_vapo,
        0.4,
        1.0,
        apply=bigrams_and_values,
        batch=VERIFIED,
        params=WIDE_TABLE,
    ),
    "dpo": case("dpo", plain_dpo, batch=PREFERENCES),
    "ipo": case("ipo", plain_ipo, batch=PREFERENCES),
    "simpo": case("simpo", plain_simpo, batch=PREFERENCES),
    "orpo": case("orpo", plain_orpo, batch=PREFERENCES),
    "kto": case("kto", plain_kto),
    "reward_model": case(
        "reward_model", plain_reward_model, apply=score, batch=PREFERENCES
    ),
    "rlhf_ppo": case(
        "rlhf_ppo", plain_rlhf_ppo, apply=bigrams_and_values, params=WIDE_TABLE
    ),
    "sampled_distillation": case("sampled_distillation", plain_sampled_distillation),
    "on_policy_distillation": case("on_policy_distillation", plain_distillation),
}
