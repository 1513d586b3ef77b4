"""TRL, huggingface/trl@f2cd577.

`trl/trainer/{grpo,dpo,reward}_trainer.py`, `trl/rewards/other_rewards.py`,
`trl/experimental/{cpo,orpo,gmpo,gkd,xpo,nash_md,sdpo,sdft,gold}/*_trainer.py`,
`trl/experimental/sdpo/loss_utils.py`.
"""

import formulas as f
import jax
import jax.numpy as jnp
import numpy as np

from from_pages import flags, normal, of_answers, uniform

T, V = 6, 7
stop = jax.lax.stop_gradient
INPUTS = {
    **of_answers(),
    "rewards": (rewards := normal(5)),
    "other_rewards": normal(5),
    "all_rewards": jnp.append(rewards, normal(10)),
    "scored": ~flags(1, length=5),
    "entropies": uniform(T),
    "answer_losses": normal(4),
    "other_logits": normal(T, V + 3),
    "student_ids": np.array([4, 0, 2]),
    "teacher_ids": np.array([1, 3, 8]),
    "own_chosen": flags(0, 2, length=3),
    "preference": jnp.float32(0.8),
    "chosen": normal(3, scale=5.0),
    "rejected": normal(3, scale=5.0),
    "ref_chosen": normal(3, scale=5.0),
    "ref_rejected": normal(3, scale=5.0),
    "mean_chosen": -uniform(3, low=0.3, high=2.0),
    "mean_rejected": -uniform(3, low=0.3, high=2.0),
    "ref_mean_chosen": -uniform(3, low=0.3, high=2.0),
    "ref_mean_rejected": -uniform(3, low=0.3, high=2.0),
    "reward_chosen": normal(3),
    "reward_rejected": normal(3),
}
TRAINED = {"log_prob", "losses", "logits", "chosen", "rejected", "answer_losses"} | {
    *("mean_chosen", "mean_rejected", "reward_chosen", "reward_rejected")
}


def off_policy(log_prob, old_log_prob, adv):
    return (adv >= 0) | (jnp.mean(old_log_prob - log_prob) <= 0.1)


def sequence_mask(old_log_prob, sampler_log_prob):
    ratio = jnp.exp(jnp.sum(old_log_prob - sampler_log_prob))
    return jnp.broadcast_to(jnp.where(ratio <= 3.0, ratio, 0.0), (T,))


def bradley_terry(reward_chosen, reward_rejected):
    loss = -jax.nn.log_sigmoid(reward_chosen - reward_rejected - 0.2)
    return loss + 0.01 * (reward_chosen + reward_rejected) ** 2


def adaptive_coefficient(entropies, target):
    higher, lower = min(0.01 + 0.005, 1.0), max(0.01 - 0.005, 0.0)
    return jnp.where(jnp.mean(entropies) <= target, higher, lower)


def sorted_distance(q, p):
    width = max(q.shape[1], p.shape[1])
    q, p = (jnp.pad(x, ((0, 0), (0, width - x.shape[1]))) for x in (q, p))
    return jnp.sum(jnp.abs(-jnp.sort(-q) + jnp.sort(-p))) / len(q)


def uld(logits, other_logits):
    return sorted_distance(jax.nn.softmax(logits), jax.nn.softmax(other_logits))


def hybrid_uld(logits, other_logits):
    q, p = jax.nn.softmax(logits), jax.nn.softmax(other_logits)
    same = jnp.array([[4, 1], [0, 3], [2, 8]]).T
    student, teacher = jnp.log(q[:, same[0]]), jnp.log(p[:, same[1]])
    mixture = jnp.logaddexp(student + jnp.log(0.5), teacher + jnp.log(0.5))
    of_teacher = jnp.exp(teacher) * (teacher - mixture)
    of_student = jnp.exp(student) * (student - mixture)
    matched = jnp.sum(0.5 * of_teacher + 0.5 * of_student) / T
    rest = q[:, jnp.array([1, 3, 5, 6])], p[:, jnp.array([0, 2, 4, 5, 6, 7, 9])]
    share = 3 / p.shape[1]
    return share * matched + (1 - share) * sorted_distance(*rest)


def sampled_token(log_prob, old_log_prob, ref_log_prob):
    weight = stop(jnp.minimum(jnp.exp(log_prob - old_log_prob), 2.0))
    return stop(log_prob - ref_log_prob) * log_prob * weight


def jsd(logits, teacher_logits, temperature=2.0):
    student = jax.nn.log_softmax(logits / temperature)
    teacher = jax.nn.log_softmax(teacher_logits / temperature)
    mixture = jnp.logaddexp(student + jnp.log(0.7), teacher + jnp.log(0.3))
    of_teacher = jnp.exp(teacher) * (teacher - mixture)
    of_student = jnp.exp(student) * (student - mixture)
    return jnp.sum(0.3 * of_teacher + 0.7 * of_student, axis=-1)


def grouped(rewards):
    return f.standardized(rewards, ddof=1, epsilon=1e-4)


def of_scored(rewards, scored):
    kept = rewards[scored]
    scale = jnp.std(kept, ddof=1) + 1e-4
    return jnp.where(scored, (rewards - jnp.mean(kept)) / scale, 0.0)


ROWS = {
    'scale_rewards="group"': grouped,
    'scale_rewards="none"': lambda rewards: rewards - rewards.mean(),
    'scale_rewards="batch"': lambda rewards, all_rewards: (
        (rewards - rewards.mean()) / (all_rewards.std(ddof=1) + 1e-4)
    ),
    'multi_objective_aggregation="normalize_then_sum"': lambda rewards, other_rewards: (
        grouped(grouped(rewards) + grouped(other_rewards))
    ),
    "a reward of None": of_scored,
    "epsilon, epsilon_high": lambda log_prob, old_log_prob, adv: f.clipped(
        log_prob, old_log_prob, adv, 0.2, 0.28
    ),
    "beta, use_bias_correction_kl=True": lambda log_prob, old_log_prob, ref_log_prob: (
        jnp.exp(log_prob - old_log_prob) * f.k3(log_prob, ref_log_prob)
    ),
    "use_bias_correction_kl=False": (f.k3, "data_log_prob ref_log_prob"),
    'importance_sampling_level="sequence"': lambda log_prob, old_log_prob, adv: f.gspo(
        log_prob, old_log_prob, jnp.full(T, adv[0])
    ),
    'loss_type="cispo"': lambda log_prob, old_log_prob, adv: f.weighted(
        log_prob, old_log_prob, adv, 0.0, 5.0
    ),
    'loss_type="sapo"': (f.sapo, "log_prob old_log_prob adv"),
    'loss_type="vespo"': lambda log_prob, old_log_prob, adv: (
        -f.vespo_weight(jnp.sum(log_prob - old_log_prob), adv[0]) * adv * log_prob
    ),
    "top_entropy_quantile": lambda entropies: entropies >= jnp.quantile(entropies, 0.5),
    "off_policy_mask_threshold": off_policy,
    'vllm_importance_sampling_mode="token_truncate"': (
        lambda *x: jnp.clip(jnp.exp(x[0] - x[1]), 0.8, 1.2),
        "old_log_prob sampler_log_prob",
    ),
    'vllm_importance_sampling_mode="sequence_mask"': sequence_mask,
    "get_soft_overlong_punishment": lambda lengths: jnp.where(
        lengths <= 12, 0.0, jnp.where(lengths <= 20, (12 - lengths) / 8, -1.0)
    ),
    "entropy_coef": lambda logits: -0.01 * jnp.mean(f.entropy(logits)),
    "use_adaptive_entropy: low, high entropy": lambda entropies: [
        adaptive_coefficient(entropies, target) for target in (0.9, 0.1)
    ],
    'loss_type="grpo", "sapo"': lambda losses, mask: (
        f.sequence_means(losses, mask) * 3 / 4
    ),
    'loss_type="bnpo"': (f.token_mean, "losses mask"),
    'loss_type="dapo", "cispo", "vespo"': lambda losses, mask: (
        jnp.sum(losses * mask) / 14
    ),
    'loss_type="dr_grpo"': lambda losses, mask: jnp.sum(losses * mask) / (4 * 10),
    'loss_type="luspo"': lambda answer_losses, mask: jnp.mean(
        answer_losses * jnp.sum(mask, axis=1)
    ),
    "DPOTrainer: sigmoid": (f.dpo, "chosen rejected ref_chosen ref_rejected"),
    "DPOTrainer: hinge": (
        lambda *x: jax.nn.relu(1 - 0.1 * f.preference(*x)),
        "chosen rejected ref_chosen ref_rejected",
    ),
    "DPOTrainer: robust": (
        lambda *x: (0.9 * f.dpo(*x) - 0.1 * f.dpo(*x, beta=-0.1)) / (1 - 2 * 0.1),
        "chosen rejected ref_chosen ref_rejected",
    ),
    "DPOTrainer: ipo": (
        lambda *x: (f.preference(*x) - 1 / (2 * 0.1)) ** 2,
        "mean_chosen mean_rejected ref_mean_chosen ref_mean_rejected",
    ),
    "CPOTrainer: sigmoid": lambda chosen, rejected: (
        -jax.nn.log_sigmoid(0.1 * (chosen - rejected))
    ),
    "CPOTrainer: simpo": lambda mean_chosen, mean_rejected: (
        -jax.nn.log_sigmoid(2.0 * (mean_chosen - mean_rejected - 0.5 / 2.0))
    ),
    "ORPOTrainer: odds ratio": lambda mean_chosen, mean_rejected: (
        -0.1 * jax.nn.log_sigmoid(f.log_odds(mean_chosen, mean_rejected))
    ),
    "RewardTrainer": bradley_terry,
    "XPOTrainer": lambda chosen, rejected, ref_chosen, ref_rejected, own_chosen: (
        f.dpo(chosen, rejected, ref_chosen, ref_rejected)
        + 0.01 * jnp.where(own_chosen, rejected, chosen)
    ),
    "NashMDTrainer": lambda log_prob, ref_log_prob, preference: (
        0.1 * jnp.sum(stop(log_prob - ref_log_prob) * log_prob)
        - (preference - 0.5) * jnp.sum(log_prob)
    ),
    "GMPOTrainer": lambda log_prob, old_log_prob, adv: f.geometric_mean(
        log_prob, old_log_prob, adv[0]
    ),
    "GKDTrainer": jsd,
    "SDPOTrainer, SDFTTrainer: full_logits": lambda logits, teacher_logits: jsd(
        logits, teacher_logits, 1.0
    ),
    "SDPOTrainer: sampled_token": sampled_token,
    "GOLDTrainer: ULD": uld,
    "GOLDTrainer: hybrid ULD": hybrid_uld,
    "selective_log_softmax, entropy_from_logits": (
        f.log_prob_and_entropy,
        "logits tokens",
    ),
}
