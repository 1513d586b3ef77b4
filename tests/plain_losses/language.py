"""Losses of `recipes/language.py` in plain `jax.numpy`."""

import jax
import jax.numpy as jnp
from recipes import language as recipes

from plain_losses.common import Batch, Case, M, T, integers, log_prob, normal, of, stop

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


ANSWERS = answers()._replace(
    rewards=normal(PROMPTS, G),
    greedy_rewards=normal(PROMPTS),
    values=normal(PROMPTS * G, T),
    desirable=jnp.array([1, 0, 1, 1, 0, 0], bool),
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


def log_pi(p, b=ANSWERS):
    return log_prob(p[b.inputs][..., :M], b.tokens)


def ratios(p):
    return jnp.exp(log_pi(p) - ANSWERS.old_log_prob)


def of_groups(rewards, baseline=None, std=False):
    mean = jnp.mean(rewards, axis=1, keepdims=True)
    adv = rewards - (mean if baseline is None else baseline)
    if std:
        adv = adv / (jnp.std(rewards, axis=1, ddof=1, keepdims=True) + 1e-6)
    return jnp.broadcast_to(adv.reshape(-1, 1), MASK.shape)


def clip(ratio, adv, low, high):
    return -jnp.minimum(ratio * adv, jnp.clip(ratio, 1 - low, 1 + high) * adv)


def total(x):
    return jnp.sum(jnp.where(MASK, x, 0), axis=1)


def mean_of_tokens(x):
    return jnp.sum(total(x)) / jnp.sum(MASK)


def mean_of_answers(x):
    return jnp.mean(total(x) / LAST)


GROUPS = of_groups(ANSWERS.rewards, std=True)


def plain_grpo(p, t):
    """huggingface/trl@f2cd577, trl/trainer/grpo_trainer.py."""
    l = log_pi(p) - ANSWERS.ref_log_prob
    kl = jnp.exp(-l) - 1 + l
    return mean_of_answers(clip(ratios(p), GROUPS, 0.2, 0.2) + 0.04 * kl)


def plain_dr_grpo(p, t):
    """sail-sg/understand-r1-zero@dfca49d, train_zero_math.py."""
    loss = clip(ratios(p), of_groups(ANSWERS.rewards), 0.2, 0.2)
    return jnp.sum(total(loss)) / (PROMPTS * G * 100)


def plain_dapo(p, t):
    """verl-project/verl@1dda039, verl/trainer/ppo/core_algos.py."""
    penalty = jnp.clip((2 - LAST) / 2, -1, 0)
    rewards = ANSWERS.rewards + penalty.reshape(PROMPTS, G)
    return mean_of_tokens(clip(ratios(p), of_groups(rewards, std=True), 0.2, 0.28))


def shaped(coefficient):
    kl = total(ANSWERS.old_log_prob - ANSWERS.ref_log_prob)
    return ANSWERS.rewards - coefficient * kl.reshape(PROMPTS, G)


def plain_rloo(p, t):
    """huggingface/trl@f2cd577, trl/trainer/rloo_trainer.py."""
    rewards = shaped(0.03)
    others = (jnp.sum(rewards, axis=1, keepdims=True) - rewards) / (G - 1)
    return jnp.mean(total(-of_groups(rewards, others) * log_pi(p)))


def plain_remax(p, t):
    adv = of_groups(shaped(0.05), ANSWERS.greedy_rewards[:, None])
    return jnp.mean(total(-adv * log_pi(p)))


def plain_opo(p, t):
    lengths = LAST.reshape(PROMPTS, G)
    baseline = jnp.sum(lengths * ANSWERS.rewards, axis=1) / jnp.sum(lengths, axis=1)
    return mean_of_tokens(-of_groups(ANSWERS.rewards, baseline[:, None]) * log_pi(p))


def plain_reinforce_plus_plus(p, t):
    r = at_the_end() - 0.01 * (ANSWERS.old_log_prob - ANSWERS.ref_log_prob)
    returns = jnp.cumsum(jnp.where(MASK, r, 0)[:, ::-1], axis=1)[:, ::-1]
    adv = (returns - jnp.mean(returns[MASK])) / jnp.std(returns[MASK])
    return mean_of_tokens(clip(ratios(p), adv, 0.2, 0.2))


def plain_gspo(p, t):
    """verl-project/verl@1dda039, verl/trainer/ppo/core_algos.py."""
    ratio = jnp.exp(total(jnp.log(ratios(p))) / LAST)[:, None]
    return mean_of_answers(clip(ratio, GROUPS, 3e-4, 4e-4))


def plain_cispo(p, t):
    """huggingface/trl@f2cd577, trl/trainer/grpo_trainer.py."""
    weights = stop(jnp.clip(ratios(p), 0, 5))
    return mean_of_tokens(-weights * GROUPS * log_pi(p))


def plain_sapo(p, t):
    """huggingface/trl@f2cd577, trl/trainer/grpo_trainer.py."""
    tau = jnp.where(GROUPS > 0, 1, 1.05)
    return mean_of_answers(-4 / tau * jax.nn.sigmoid(tau * (ratios(p) - 1)) * GROUPS)


def plain_gmpo(p, t):
    """callsys/GMPO@205b2bf, train_zero_math_gmpo.py."""
    l = jnp.log(ratios(p))
    l = jnp.where(GROUPS >= 0, jnp.minimum(l, 0.4), jnp.maximum(l, -0.4))
    return -jnp.mean(GROUPS[:, 0] * jnp.exp(total(l) / LAST))


def at_the_end():
    rewards = ANSWERS.rewards.reshape(-1, 1)
    return jnp.where(jnp.arange(T) == LAST[:, None] - 1, rewards, 0)


def gae(r, lambda_):
    """Return the advantages of the tokens, with a λ by the length of the answer."""
    v, adv = ANSWERS.values, [[0.0] * T for _ in LAST]
    for i, last in enumerate(LAST.tolist()):
        carry, v_t = 0.0, 0.0
        for k in reversed(range(last)):
            carry = adv[i][k] = r[i, k] + v_t - v[i, k] + lambda_(last) * carry
            v_t = v[i, k]
    return jnp.array(adv)


def whiten(x):
    return (x - jnp.mean(x[MASK])) / jnp.std(x[MASK])


def plain_rlhf_ppo(p, t):
    """openai/lm-human-preferences@cbfd210, lm_human_preferences/train_policy.py.

    With whiten_rewards=False.
    """
    b = ANSWERS
    r = at_the_end() - 0.05 * (b.old_log_prob - b.ref_log_prob)
    adv = gae(r, lambda last: 0.95)
    target, v = adv + b.values, p[b.inputs][..., M]
    near = jnp.clip(v, b.values - 0.2, b.values + 0.2)
    value_loss = jnp.maximum((v - target) ** 2, (near - target) ** 2) / 2
    return mean_of_tokens(clip(ratios(p), whiten(adv), 0.2, 0.2) + 0.1 * value_loss)


def plain_vapo(p, t):
    b, rewards = ANSWERS, ANSWERS.rewards.reshape(-1)
    adv = whiten(gae(at_the_end(), lambda last: max(0.0, 1 - 1 / (0.4 * last))))
    value_loss = (p[b.inputs][..., M] - rewards[:, None]) ** 2 / 2
    loss = mean_of_tokens(clip(ratios(p), adv, 0.2, 0.28) + 0.5 * value_loss)
    correct = MASK & (rewards > 0)[:, None]
    return loss - 0.1 * jnp.sum(correct * log_pi(p)) / jnp.sum(correct)


def margin(p):
    chosen, rejected = (
        total(log_pi(p, x) - x.ref_log_prob)
        for x in (PREFERENCES.chosen, PREFERENCES.rejected)
    )
    return chosen - rejected


def plain_dpo(p, t):
    """eric-mitchell/direct-preference-optimization@f8b8c0f, trainers.py."""
    return -jnp.mean(jnp.log(jax.nn.sigmoid(0.1 * margin(p))))


def plain_ipo(p, t):
    return jnp.mean((margin(p) - 5) ** 2)


def means(p):
    return (total(log_pi(p, x)) / LAST for x in vars(PREFERENCES).values())


def plain_simpo(p, t):
    """princeton-nlp/SimPO@1b3e8f3, scripts/simpo_trainer.py."""
    chosen, rejected = means(p)
    return -jnp.mean(jnp.log(jax.nn.sigmoid(2 * (chosen - rejected) - 1)))


def plain_orpo(p, t):
    chosen, rejected = means(p)
    odds = [jnp.exp(x) / (1 - jnp.exp(x)) for x in (chosen, rejected)]
    ratio = jnp.log(jax.nn.sigmoid(jnp.log(odds[0] / odds[1])))
    return -jnp.mean(chosen + 0.1 * ratio)


def plain_kto(p, t):
    """ContextualAI/HALOs@4831988, train/trainers.py."""
    r, others = (
        total(log_pi(p, x) - x.ref_log_prob) for x in (ANSWERS, ANSWERS.mismatched)
    )
    z = stop(jnp.maximum(jnp.mean(others), 0))
    sign = jnp.where(ANSWERS.desirable, 1, -1)
    return jnp.mean(1 - jax.nn.sigmoid(0.1 * sign * (r - z)))


def score(w, tokens):
    return w[tokens][..., 0]


def plain_reward_model(p, t):
    """huggingface/trl@f2cd577, trl/trainer/reward_trainer.py."""
    rows, pair = jnp.arange(len(LAST)), vars(PREFERENCES).values()
    good, bad = (p[x.tokens[rows, LAST - 1], 0] for x in pair)
    return jnp.mean(-jnp.log(jax.nn.sigmoid(good - bad)) + 0.01 * (good + bad) ** 2)


def plain_distillation(p, t):
    log_q = jax.nn.log_softmax(p[ANSWERS.inputs])
    log_p = jax.nn.log_softmax(ANSWERS.teacher_logits)
    return mean_of_tokens(jnp.sum(jnp.exp(log_q) * (log_q - log_p), axis=-1))


def plain_sampled_distillation(p, t):
    """thinking-machines-lab/tinker-cookbook@9dfcc3a.

    tinker_cookbook/distillation/train_on_policy.py, where the loss is a sum.
    """
    adv = ANSWERS.teacher_log_prob - ANSWERS.old_log_prob
    return jnp.sum(total(-ratios(p) * adv))


def case(
    name, plain, *args, apply=bigrams, batch=ANSWERS, params=TABLE, factor=1.0, **kwargs
):
    loss = of(getattr(recipes, name), apply, batch, *args, **kwargs)
    return Case(loss, plain, params, factor=factor)


CASES = {
    "grpo": case("grpo", plain_grpo),
    "dr_grpo": case("dr_grpo", plain_dr_grpo, max_length=100),
    "dapo": case("dapo", plain_dapo, max_length=4, cache_length=2),
    "rloo": case("rloo", plain_rloo),
    "remax": case("remax", plain_remax),
    "opo": case("opo", plain_opo),
    "reinforce_plus_plus": case("reinforce_plus_plus", plain_reinforce_plus_plus),
    "gspo": case("gspo", plain_gspo),
    "cispo": case("cispo", plain_cispo),
    "sapo": case("sapo", plain_sapo),
    "gmpo": case("gmpo", plain_gmpo),
    "rlhf_ppo": case(
        "rlhf_ppo", plain_rlhf_ppo, apply=bigrams_and_values, params=WIDE_TABLE
    ),
    "vapo": case("vapo", plain_vapo, 0.4, apply=bigrams_and_values, params=WIDE_TABLE),
    "dpo": case("dpo", plain_dpo, batch=PREFERENCES),
    "ipo": case("ipo", plain_ipo, batch=PREFERENCES),
    "simpo": case("simpo", plain_simpo, batch=PREFERENCES),
    "orpo": case("orpo", plain_orpo, batch=PREFERENCES),
    "kto": case("kto", plain_kto),
    "reward_model": case(
        "reward_model", plain_reward_model, apply=score, batch=PREFERENCES
    ),
    "on_policy_distillation": case("on_policy_distillation", plain_distillation),
    "sampled_distillation": case(
        "sampled_distillation", plain_sampled_distillation, factor=1 / 20
    ),
}
