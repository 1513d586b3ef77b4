"""Stacks for language models.

OpenRLHF/OpenRLHF@3c3be62, `openrlhf/models/{loss,utils}.py` and
`openrlhf/trainer/ppo_utils/`; NVIDIA-NeMo/RL@7ea279a,
`nemo_rl/algorithms/{utils,grpo}.py` and `loss/loss_functions.py`; THUDM/slime@624b824,
`slime/utils/ppo_utils.py` and `slime/backends/megatron_utils/loss.py`;
inclusionAI/AReaL@4aef98d, `areal/utils/functional/functional.py`; alibaba/ROLL@8eb27cc,
`roll/utils/functionals.py`, `roll/utils/train_infer_corrections.py`,
`roll/pipeline/agentic/utils.py` and `roll/pipeline/rlvr/actor_pg_worker.py`;
erfanzar/EasyDeL@090a03b, `gfpo_trainer.py`.
"""

import formulas as f
import jax
import jax.numpy as jnp
import numpy as np

from from_pages import flags, normal, uniform

T, V = 6, 7
stop = jax.lax.stop_gradient
INPUTS = {
    "rewards": normal(5),
    "step_rewards": normal(5),
    "prompts": jnp.array([0, 1, 0, 1, 1]),
    "states": jnp.array([2, 2, 0, 0, 2]),
    "shortest": flags(0, 2, 3, length=5),
    "scores": (uniform(8, 4) < uniform(8, 1)).astype(jnp.float32),
    "adv": normal(T),
    "log_prob": (log_prob := jnp.log(uniform(T, low=0.01))),
    "data_log_prob": log_prob,
    "old_log_prob": (old_log_prob := log_prob + normal(T, scale=0.3)),
    "sampler_log_prob": (sampler := old_log_prob + normal(T, scale=0.4)),
    "ref_log_prob": jnp.log(uniform(T, low=0.05)),
    "log_ratio": old_log_prob - sampler,
    "turns": jnp.array([0, 0, 0, 1, 1, 1]),
    "logits": normal(T, V),
    "kept": (uniform(T, V) < 0.5) | (jnp.arange(V) == 3),
    "tokens": jnp.full(T, 3),
    "losses": normal(4, T),
    "mask": jnp.arange(T) < jnp.array([3, 0, 6, 5])[:, None],
}
TRAINED = {"log_prob", "logits", "losses"}


dual = f.dual_clipped, "log_prob old_log_prob adv"


def leave_one_out(rewards):
    return rewards - (rewards.sum() - rewards) / 4


def bounded_k3(data_log_prob, ref_log_prob):
    return jnp.clip(f.k3(data_log_prob, ref_log_prob), -10, 10)


def reinforce(log_prob, adv):
    return -log_prob * adv


def nemo_kl(log_prob, ref_log_prob):
    weights = jnp.exp(log_prob - stop(log_prob))
    return jnp.clip(weights * f.k3(log_prob, ref_log_prob), -10, 10)


def nemo_top_p(logits, kept, tokens, old_log_prob, adv, ref_log_prob):
    filtered, whole = (
        f.pick(jax.nn.log_softmax(x), tokens)
        for x in (jnp.where(kept, logits, -jnp.inf), logits)
    )
    weights = jnp.exp(whole - stop(whole))
    loss = f.clipped(filtered, old_log_prob, adv)
    return loss + 0.01 * weights * f.k3(whole, ref_log_prob)


def slime_kl(log_prob, old_log_prob, ref_log_prob):
    ratio = jnp.exp(log_prob - old_log_prob)
    return jnp.clip(ratio * f.k3(log_prob, ref_log_prob), -10, 10)


def clamp(log_ratio, low, high):
    return jnp.clip(jnp.exp(log_ratio), low, high)


def icepop(log_ratio, low, high):
    ratio = jnp.exp(log_ratio)
    return jnp.where((ratio >= low) & (ratio <= high), ratio, 0.0)


def geometric(log_ratio, low, high):
    mean = jnp.exp(jnp.mean(log_ratio))
    return jnp.full(T, jnp.where((mean >= low) & (mean <= high), mean, 0.0))


def normalize(rewards, prompts):
    found = jnp.zeros_like(rewards)
    for each in set(prompts.tolist()):
        of = np.asarray(prompts) == each
        group = rewards[of]
        scaled = (rewards - group.mean()) / (group.std(ddof=1) + 1e-6)
        found = jnp.where(of, scaled, found)
    return found


def centered(rewards, ids):
    means = {
        each: rewards[np.asarray(ids) == each].mean() for each in set(ids.tolist())
    }
    return rewards - jnp.stack([means[each] for each in ids.tolist()])


def segments(old_log_prob, sampler_log_prob):
    parts = jnp.split(old_log_prob - sampler_log_prob, 2)
    means = [jnp.full(3, jnp.exp(part.mean())) for part in parts]
    return jnp.minimum(jnp.concatenate(means), 1.2)


ROWS = {
    "OpenRLHF: group_norm": lambda rewards: f.standardized(
        rewards, ddof=1, epsilon=1e-9
    ),
    "OpenRLHF: rloo": leave_one_out,
    "OpenRLHF: reinforce_baseline, dr_grpo": lambda rewards: rewards - rewards.mean(),
    "NeMo-RL: use_leave_one_out_baseline=False": lambda rewards: f.standardized(
        rewards, ddof=1, epsilon=1e-6
    ),
    "NeMo-RL: normalize_rewards=False": leave_one_out,
    "slime: grpo": lambda rewards: f.standardized(rewards, ddof=1, epsilon=1e-6),
    'ROLL: norm_mean_type="group", norm_std_type="group"': normalize,
    'ROLL: norm_mean_type="group", norm_std_type="batch"': lambda rewards, prompts: (
        centered(rewards, prompts) / (rewards.std(ddof=1) + 1e-6)
    ),
    "ROLL: gigpo": lambda rewards, step_rewards, prompts, states: (
        0.5 * normalize(rewards, prompts) + 2.0 * normalize(step_rewards, states)
    ),
    "EasyDeL: GFPOTrainer": lambda rewards, shortest: jnp.where(
        shortest,
        (rewards - rewards[shortest].mean()) / (rewards[shortest].std(ddof=1) + 1e-6),
        0.0,
    ),
    "OpenRLHF: dynamic_filtering_range": lambda scores: (
        (scores.mean(axis=1) > 0.1) & (scores.mean(axis=1) < 0.9)
    ),
    "ROLL: difficulty_low_threshold, difficulty_high_threshold": lambda scores: (
        jnp.abs(scores.mean(axis=1) - 0.525) < 0.425
    ),
    "OpenRLHF: clip_eps_low, clip_eps_high": lambda log_prob, old_log_prob, adv: (
        f.clipped(log_prob, old_log_prob, adv, 0.2, 0.28)
    ),
    "OpenRLHF: dual_clip": dual,
    'OpenRLHF: policy_loss_type="gspo"': (f.gspo, "log_prob old_log_prob adv"),
    "NeMo-RL: ratio_clip_min, ratio_clip_max, ratio_clip_c": dual,
    "NeMo-RL: use_cispo": lambda log_prob, old_log_prob, adv: f.weighted(
        log_prob, old_log_prob, adv, 0.8, 1.28
    ),
    "NeMo-RL: disable_ppo_ratio": reinforce,
    "NeMo-RL: sequence_level_importance_ratios": (f.gspo, "log_prob old_log_prob adv"),
    "slime: eps_clip, eps_clip_high, eps_clip_c": dual,
    "slime: cispo": lambda log_prob, old_log_prob, adv: f.weighted(
        log_prob, old_log_prob, adv, 0.0, 5.0
    ),
    "slime: use_opsm": lambda log_prob, old_log_prob, adv: jnp.full(
        T, ~((adv[0] < 0) & (jnp.mean(old_log_prob - log_prob) > 0.1))
    ),
    "AReaL: eps_clip, eps_clip_higher, c_clip": dual,
    'AReaL: decoupled, action="clamp"': (
        lambda log_prob, old_log_prob, sampler_log_prob, adv: (
            f.clipped(log_prob, old_log_prob, adv)
            * clamp(old_log_prob - sampler_log_prob, 0.5, 5.0)
        )
    ),
    "ROLL: dual_clip_loss": lambda log_prob, old_log_prob, adv: f.dual_clipped(
        log_prob, old_log_prob, adv, 0.2, 0.2, 1.4
    ),
    "ROLL: vanilla": reinforce,
    "ROLL: tis": lambda log_prob, old_log_prob, adv: f.weighted(
        log_prob, old_log_prob, adv, 0.0, 1.0
    ),
    'OpenRLHF: kl_estimator="k3"': bounded_k3,
    "NeMo-RL: kl_output_clamp_value": nemo_kl,
    "NeMo-RL: top_p, top_k": nemo_top_p,
    "slime: use_unbiased_kl, low_var_kl": slime_kl,
    'ROLL: kl_penalty="k3"': bounded_k3,
    "OpenRLHF: tis": lambda log_ratio: clamp(log_ratio, 0.5, 5.0),
    "OpenRLHF: icepop": lambda log_ratio: icepop(log_ratio, 0.5, 5.0),
    "OpenRLHF: seq-mask-tis": lambda log_ratio: (
        jnp.exp(log_ratio) * (geometric(log_ratio, 0.9, 1.1) > 0)
    ),
    "NeMo-RL: truncated_importance_sampling_ratio_min": lambda log_ratio: clamp(
        log_ratio, 0.5, 2.0
    ),
    'NeMo-RL: truncated_importance_sampling_type="icepop"': lambda log_ratio: icepop(
        log_ratio, 0.5, 5.0
    ),
    "NeMo-RL: seq_logprob_error_threshold": lambda old_log_prob, sampler_log_prob: (
        jnp.sum(jnp.exp(jnp.abs(sampler_log_prob - old_log_prob))) / T <= 1.2
    ),
    "slime: tis_clip_low, tis_clip": lambda log_ratio: clamp(log_ratio, 0.5, 2.0),
    "slime: icepop_function": lambda log_ratio: icepop(log_ratio, 0.5, 2.0),
    'AReaL: metric="ratio", agg="mean"': lambda log_ratio: geometric(
        log_ratio, 0.9, 1.1
    ),
    'AReaL: metric="kl_k3", agg="mean"': lambda old_log_prob, sampler_log_prob: (
        jnp.mean(f.k3(old_log_prob, sampler_log_prob)) <= 0.02
    ),
    'ROLL: weight_type="segment"': segments,
    "ROLL: diff_low, diff_high": lambda old_log_prob, sampler_log_prob: (
        jnp.abs(jnp.exp(old_log_prob) - jnp.exp(sampler_log_prob)) <= 0.3
    ),
    "OpenRLHF: token_level_loss": (f.token_mean, "losses mask"),
    "OpenRLHF: token_level_loss=False": (f.sequence_means, "losses mask"),
    "ROLL: seq-mean-token-sum": lambda losses, mask: jnp.sum(losses * mask) / 4,
    "ROLL: seq-mean-token-sum-norm": lambda losses, mask: jnp.sum(losses * mask) / T,
}
