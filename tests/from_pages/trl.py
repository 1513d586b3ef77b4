"""TRL, huggingface/trl@f2cd577.

`trl/trainer/{grpo,dpo,reward}_trainer.py`, `trl/rewards/other_rewards.py`,
`trl/experimental/{cpo,orpo,gmpo,gkd,xpo,nash_md,sdpo,sdft,gold}/*_trainer.py`,
`trl/experimental/sdpo/loss_utils.py`.
"""

import jax
import jax.numpy as jnp
import numpy as np

from from_pages import flags, integers, normal, uniform

T, V = 6, 7
stop = jax.lax.stop_gradient
INPUTS = {
    "rewards": (rewards := normal(5)),
    "other_rewards": normal(5),
    "all_rewards": jnp.append(rewards, normal(10)),
    "scored": ~flags(1, length=5),
    "lengths": jnp.array([5, 12, 15, 19, 25]),
    "adv": normal(T),
    "log_prob": (log_prob := jnp.log(uniform(T, low=0.05))),
    "data_log_prob": log_prob,
    "old_log_prob": log_prob + normal(T, scale=0.3),
    "sampler_log_prob": log_prob + normal(T, scale=0.3),
    "ref_log_prob": jnp.log(uniform(T, low=0.05)),
    "entropies": uniform(T),
    "losses": normal(4, T),
    "answer_losses": normal(4),
    "mask": jnp.arange(T) < jnp.array([3, 0, 6, 5])[:, None],
    "logits": normal(T, V),
    "teacher_logits": normal(T, V),
    "tokens": integers(V, T),
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
    *("mean_chosen", "mean_rejected", "reward_chosen", "reward_rejected"),
}


def grouped(rewards):
    return (rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-4)


def normalize_then_sum(rewards, other_rewards):
    return grouped(grouped(rewards) + grouped(other_rewards))


def of_scored(rewards, scored):
    kept = rewards[scored]
    scale = jnp.std(kept, ddof=1) + 1e-4
    return jnp.where(scored, (rewards - jnp.mean(kept)) / scale, 0.0)


def ppo(log_prob, old_log_prob, adv, low=0.2, high=0.28):
    ratio = jnp.exp(log_prob - old_log_prob)
    return -jnp.minimum(ratio * adv, jnp.clip(ratio, 1 - low, 1 + high) * adv)


def k3(data_log_prob, ref_log_prob):
    log_ratio = ref_log_prob - data_log_prob
    return jnp.exp(log_ratio) - log_ratio - 1


def gspo(log_prob, old_log_prob, adv):
    mean = jnp.mean(log_prob - old_log_prob)
    loss = ppo(mean, 0.0, adv[0], 3e-4, 4e-4)
    return jnp.broadcast_to(loss, (T,))


def cispo(log_prob, old_log_prob, adv):
    ratio = jnp.exp(log_prob - old_log_prob)
    return -stop(jnp.minimum(ratio, 5.0)) * adv * log_prob


def sapo(log_prob, old_log_prob, adv):
    tau = jnp.where(adv > 0, 1.0, 1.05)
    ratio = jnp.exp(log_prob - old_log_prob)
    return -jax.nn.sigmoid(tau * (ratio - 1)) * 4 / tau * adv


def vespo(log_prob, old_log_prob, adv):
    log_w = jnp.sum(log_prob - old_log_prob)
    k, lambda_ = jnp.where(adv[0] >= 0, jnp.array([2.0, 3.0]), jnp.array([3.0, 2.0]))
    phi = jnp.exp(lambda_ + k * log_w - lambda_ * jnp.exp(log_w))
    return -stop(phi) * adv * log_prob


def off_policy(log_prob, old_log_prob, adv):
    return (adv >= 0) | (jnp.mean(old_log_prob - log_prob) <= 0.1)


def sequence_mask(old_log_prob, sampler_log_prob):
    ratio = jnp.exp(jnp.sum(old_log_prob - sampler_log_prob))
    return jnp.broadcast_to(jnp.where(ratio <= 3.0, ratio, 0.0), (T,))


def entropy(logits):
    log_probs = jax.nn.log_softmax(logits)
    return -jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)


def chosen_log_prob(logits, tokens):
    log_probs = jax.nn.log_softmax(logits)
    chosen = jnp.take_along_axis(log_probs, tokens[:, None], axis=-1)[:, 0]
    return chosen, entropy(logits)


def delta(chosen, rejected, ref_chosen, ref_rejected):
    return (chosen - ref_chosen) - (rejected - ref_rejected)


def dpo(chosen, rejected, ref_chosen, ref_rejected):
    score = delta(chosen, rejected, ref_chosen, ref_rejected)
    return -jax.nn.log_sigmoid(0.1 * score)


def hinge(chosen, rejected, ref_chosen, ref_rejected):
    score = delta(chosen, rejected, ref_chosen, ref_rejected)
    return jax.nn.relu(1 - 0.1 * score)


def robust(chosen, rejected, ref_chosen, ref_rejected):
    score = 0.1 * delta(chosen, rejected, ref_chosen, ref_rejected)
    clean = -(1 - 0.1) * jax.nn.log_sigmoid(score)
    return (clean + 0.1 * jax.nn.log_sigmoid(-score)) / (1 - 2 * 0.1)


def ipo(mean_chosen, mean_rejected, ref_mean_chosen, ref_mean_rejected):
    score = delta(mean_chosen, mean_rejected, ref_mean_chosen, ref_mean_rejected)
    return (score - 1 / (2 * 0.1)) ** 2


def orpo(mean_chosen, mean_rejected):
    odds = jnp.log1p(-jnp.exp(mean_chosen)) - jnp.log1p(-jnp.exp(mean_rejected))
    return -0.1 * jax.nn.log_sigmoid(mean_chosen - mean_rejected - odds)


def bradley_terry(reward_chosen, reward_rejected):
    loss = -jax.nn.log_sigmoid(reward_chosen - reward_rejected - 0.2)
    return loss + 0.01 * (reward_chosen + reward_rejected) ** 2


def gmpo(log_prob, old_log_prob, adv):
    log_ratio = log_prob - old_log_prob
    near = jnp.clip(log_ratio, -0.4, 0.4)
    low, high = jnp.minimum(log_ratio, near), jnp.maximum(log_ratio, near)
    return -adv[0] * jnp.exp(jnp.mean(jnp.where(adv[0] >= 0, low, high)))


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


def answer_means(losses, mask):
    tokens = jnp.clip(jnp.sum(mask, axis=-1), 1)
    return jnp.mean(jnp.sum(losses * mask, axis=-1) / tokens)


ROWS = {
    'scale_rewards="group"': grouped,
    'scale_rewards="none"': lambda rewards: rewards - rewards.mean(),
    'scale_rewards="batch"': lambda rewards, all_rewards: (
        (rewards - rewards.mean()) / (all_rewards.std(ddof=1) + 1e-4)
    ),
    'multi_objective_aggregation="normalize_then_sum"': normalize_then_sum,
    "a reward of None": of_scored,
    "epsilon, epsilon_high": ppo,
    "beta, use_bias_correction_kl": lambda log_prob, old_log_prob, ref_log_prob: (
        jnp.exp(log_prob - old_log_prob) * k3(log_prob, ref_log_prob)
    ),
    "use_bias_correction_kl=False": k3,
    'importance_sampling_level="sequence"': gspo,
    'loss_type="cispo"': cispo,
    'loss_type="sapo"': sapo,
    'loss_type="vespo"': vespo,
    "top_entropy_quantile": lambda entropies: entropies >= jnp.quantile(entropies, 0.5),
    "off_policy_mask_threshold": off_policy,
    'vllm_importance_sampling_mode="token_truncate"': (
        lambda old_log_prob, sampler_log_prob: jnp.clip(
            jnp.exp(old_log_prob - sampler_log_prob), 0.8, 1.2
        )
    ),
    'vllm_importance_sampling_mode="sequence_mask"': sequence_mask,
    "get_soft_overlong_punishment": lambda lengths: jnp.where(
        lengths <= 12, 0.0, jnp.where(lengths <= 20, (12 - lengths) / 8, -1.0)
    ),
    "entropy_coef": lambda logits: -0.01 * jnp.mean(entropy(logits)),
    "use_adaptive_entropy: low, high entropy": lambda entropies: [
        adaptive_coefficient(entropies, target) for target in (0.9, 0.1)
    ],
    'loss_type="grpo", "sapo"': answer_means,
    'loss_type="bnpo"': lambda losses, mask: jnp.sum(losses * mask) / jnp.sum(mask),
    'loss_type="dapo", "cispo", "vespo"': lambda losses, mask: (
        jnp.sum(losses * mask) / 14
    ),
    'loss_type="dr_grpo"': lambda losses, mask: jnp.sum(losses * mask) / (4 * 10),
    'loss_type="luspo"': lambda answer_losses, mask: jnp.mean(
        answer_losses * jnp.sum(mask, axis=1)
    ),
    "DPOTrainer: sigmoid": dpo,
    "DPOTrainer: hinge": hinge,
    "DPOTrainer: robust": robust,
    "DPOTrainer: ipo": ipo,
    "CPOTrainer: sigmoid": lambda chosen, rejected: (
        -jax.nn.log_sigmoid(0.1 * (chosen - rejected))
    ),
    "CPOTrainer: simpo": lambda mean_chosen, mean_rejected: (
        -jax.nn.log_sigmoid(2.0 * (mean_chosen - mean_rejected - 0.5 / 2.0))
    ),
    "ORPOTrainer: odds ratio": orpo,
    "RewardTrainer": bradley_terry,
    "XPOTrainer": lambda chosen, rejected, ref_chosen, ref_rejected, own_chosen: (
        dpo(chosen, rejected, ref_chosen, ref_rejected)
        + 0.01 * jnp.where(own_chosen, rejected, chosen)
    ),
    "NashMDTrainer": lambda log_prob, ref_log_prob, preference: (
        0.1 * jnp.sum(stop(log_prob - ref_log_prob) * log_prob)
        - (preference - 0.5) * jnp.sum(log_prob)
    ),
    "GMPOTrainer": gmpo,
    "GKDTrainer": jsd,
    "SDPOTrainer, SDFTTrainer: full_logits": lambda logits, teacher_logits: jsd(
        logits, teacher_logits, 1.0
    ),
    "SDPOTrainer: sampled_token": sampled_token,
    "GOLDTrainer: ULD": uld,
    "GOLDTrainer: hybrid ULD": hybrid_uld,
    "selective_log_softmax, entropy_from_logits": chosen_log_prob,
}
