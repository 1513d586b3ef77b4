"""Losses of `recipes/language.py` in plain `jax.numpy`."""

import formulas as f
import jax
import jax.numpy as jnp
import numpy as np
from formulas import pick
from recipes import language as recipes

from plain_losses.common import Batch, Case, M, T, integers, normal, of, seed, stop

seed(__name__)


PROMPTS, G, LAST = 2, 3, np.array([3, 5, 2, 4, 5, 1])
MASK = np.arange(T)[None] < LAST[:, None]


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
    desirable=DESIRABLE,
    mismatched=answers(),
    teacher_logits=normal(PROMPTS * G, T, M),
)
ANSWERS = ANSWERS._replace(teacher_log_prob=np.roll(ANSWERS.ref_log_prob, 1, axis=0))
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
VERIFIED = ANSWERS._replace(rewards=np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 1.0]]))
# The first update of a batch, so that its ratios are 1.
# Some ratios of whole answers above 1 have positive advantages.
ABOVE = ANSWERS._replace(rewards=-ANSWERS.rewards)
ON_POLICY = ANSWERS._replace(old_log_prob=jax.jit(logps)(TABLE[0]))


def grouped(rewards, scale=True, epsilon=1e-6):
    """Return advantages of groups, [B, 1]; the epsilon of TRL is 1e-4."""
    centered = rewards - jnp.mean(rewards, axis=1, keepdims=True)
    if scale:
        centered /= jnp.std(rewards, axis=1, ddof=1, keepdims=True) + epsilon
    return centered.reshape(-1, 1)


def ppo(p, advantages, high=0.2, group=slice(None), b=ANSWERS):
    """Return the losses of tokens."""
    tokens = logps(p, b)[group], b.old_log_prob[group]
    return f.clipped(*tokens, advantages, high=high)


def plain_grpo(p, t):
    """huggingface/trl@f2cd577, trl/trainer/grpo_trainer.py: "grpo"."""
    per_token_loss = ppo(p, grouped(ANSWERS.rewards))
    per_token_loss += 0.04 * f.k3(logps(p), ANSWERS.ref_log_prob)
    return f.sequence_means(per_token_loss, MASK)


def plain_dr_grpo(p, t):
    """sail-sg/understand-r1-zero@dfca49d, train_zero_math.py.

    sail-sg/oat@c1a074c, oat/algorithms/ppo.py: learning_step, without tis_c.
    """
    pg_losses = ppo(p, grouped(ANSWERS.rewards, scale=False))
    return jnp.mean(jnp.sum(pg_losses * MASK, axis=1) / 100)


def plain_dapo(p, t):
    """verl-project/verl@1dda039.

    verl/trainer/ppo/core_algos.py: compute_policy_loss_vanilla, and
    workers/reward_manager/dapo.py. Ratios stay below clip_ratio_c, 3.
    """
    overlong_buffer_len, max_resp_len = 2, 4
    exceed_len = LAST - (max_resp_len - overlong_buffer_len)
    overlong_reward = jnp.clip(-exceed_len / overlong_buffer_len * 1.0, -1, 0)
    advantages = grouped(ANSWERS.rewards + overlong_reward.reshape(PROMPTS, G))
    losses = f.dual_clipped(logps(p), ANSWERS.old_log_prob, advantages)
    return f.token_mean(losses, MASK)


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
    return jnp.mean(f.clipped(logps_, old_logps, advantages))


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
    return f.token_mean(ppo(p, scores, b=ON_POLICY), MASK)


def plain_reinforce_plus_plus(p, t):
    """OpenRLHF/OpenRLHF@3c3be62.

    openrlhf/trainer/ppo_utils/experience_maker.py: "reinforce", with gamma 1.
    """
    kl = ANSWERS.old_log_prob - ANSWERS.ref_log_prob
    last_reward = jax.nn.one_hot(LAST - 1, T) * ANSWERS.rewards.reshape(-1, 1)
    rewards = (last_reward - 0.01 * kl) * MASK
    advantages = jnp.cumsum(rewards[:, ::-1], axis=1)[:, ::-1]
    mean = f.token_mean(advantages, MASK)
    var = f.token_mean((advantages - mean) ** 2, MASK)
    return f.token_mean(ppo(p, (advantages - mean) / jnp.sqrt(var)), MASK)


def plain_gspo(p, t):
    """verl-project/verl@1dda039.

    verl/trainer/ppo/core_algos.py: compute_policy_loss_gspo.
    """
    negative_approx_kl = (logps(p) - ABOVE.old_log_prob) * MASK
    kl_seq = jnp.sum(negative_approx_kl, axis=-1) / jnp.sum(MASK, axis=-1)
    advantages = grouped(ABOVE.rewards)
    losses = f.gspo_token(logps(p), kl_seq[:, None], advantages, 0.2, 0.5)
    return f.sequence_means(losses, MASK)


def plain_cispo(p, t):
    """huggingface/trl@f2cd577, trl/trainer/grpo_trainer.py: "cispo"; epsilon_high 5."""
    advantages = grouped(ANSWERS.rewards)
    losses = f.weighted(logps(p), ANSWERS.old_log_prob, advantages, 0.0, 5.0)
    return f.token_mean(losses, MASK)


def plain_sapo(p, t):
    """huggingface/trl@f2cd577, trl/trainer/grpo_trainer.py: "sapo"."""
    losses = f.sapo(logps(p), ANSWERS.old_log_prob, grouped(ANSWERS.rewards))
    return f.sequence_means(losses, MASK)


def plain_gmpo(p, t):
    """callsys/GMPO@205b2bf, train_zero_math_gmpo.py, with a cliprange of 0.4."""
    losses, advantages = [], grouped(ANSWERS.rewards, epsilon=1e-8)[:, 0]
    for i, n in enumerate(LAST.tolist()):
        tokens = logps(p)[i, :n], ANSWERS.old_log_prob[i, :n]
        losses.append(f.geometric_mean(*tokens, advantages[i]))
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
        surrogate = ppo(p, policy[:, :T], 0.28, group)
        new_values = p[ANSWERS.inputs[group]][..., M]
        errors = 2 * f.clipped_values(new_values, old_values, critic + old_values)
        value_loss = f.token_mean(errors, mask)
        positive_mask = mask & (rewards[group] > 0.5)[:, None]
        positive_lm_loss = -f.token_mean(logps(p)[group], positive_mask)
        policy_loss = f.token_mean(surrogate, mask)
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
    for i, n in enumerate(LAST.tolist()):
        rewards = -0.03 * kl[i, :n]
        rewards[-1] += scores[i]
        nextvalues = jnp.append(values[i, 1:n], 0.0)
        lastgaelam = f.gae(values[i, :n], rewards, jnp.ones(n), nextvalues)
        advantages.append(jnp.pad(lastgaelam, (0, T - n)))
    advantages = jnp.stack(advantages)
    returns, mean = advantages + values, f.token_mean(advantages, MASK)
    var = f.token_mean((advantages - mean) ** 2, MASK)
    advantages = (advantages - mean) * jax.lax.rsqrt(var + 1e-8)
    vf_loss = f.clipped_values(p[ANSWERS.inputs][..., M], values, returns)
    return f.token_mean(ppo(p, advantages) + 0.1 * vf_loss, MASK)


def sequence_logps(p, b, average=False):
    """Return log-probabilities of answers, and those of the reference."""
    sums = (jnp.sum(x * MASK, axis=-1) for x in (logps(p, b), b.ref_log_prob))
    return tuple(x / jnp.sum(MASK, axis=-1) if average else x for x in sums)


def preference_log_probs(p):
    """Return log-probabilities of both answers, and those of the reference."""
    chosen, ref_chosen = sequence_logps(p, PREFERENCES.chosen)
    rejected, ref_rejected = sequence_logps(p, PREFERENCES.rejected)
    return chosen, rejected, ref_chosen, ref_rejected


def plain_dpo(p, t):
    """eric-mitchell/direct-preference-optimization@f8b8c0f, trainers.py."""
    return jnp.mean(f.dpo(*preference_log_probs(p)))


def plain_ipo(p, t):
    """eric-mitchell/direct-preference-optimization@f8b8c0f, trainers.py: ipo."""
    return jnp.mean((f.preference(*preference_log_probs(p)) - 1 / (2 * 0.1)) ** 2)


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
    pos_loss = -f.token_mean(logps(p, PREFERENCES.chosen), MASK)
    ratio = jnp.log(jax.nn.sigmoid(f.log_odds(pos_prob, neg_prob)))
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
    return jnp.sum(jnp.exp(logps(p) - ANSWERS.old_log_prob) * reverse_kl * MASK)


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
