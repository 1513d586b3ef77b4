"""tunix, google/tunix@c7d8950.

`tunix/rl/{algo_core,common}.py`, `tunix/rl/grpo/dapo_learner.py`,
`tunix/sft/dpo/dpo_trainer.py`, `tunix/distillation/strategies/logit.py`.
"""

import formulas as f
import jax
import jax.numpy as jnp

from from_pages import of_answers, uniform, with_a_gap

T = 6
INPUTS = {
    **of_answers(),
    **with_a_gap(),
    "chosen": -uniform(3, low=0.3, high=2.0),
    "rejected": -uniform(3, low=0.3, high=2.0),
    "ref_chosen": -uniform(3, low=0.3, high=2.0),
    "ref_rejected": -uniform(3, low=0.3, high=2.0),
}
TRAINED = {"log_prob", "v", "losses", "logits", "chosen", "rejected"}


def gspo(log_prob, old_log_prob, adv, sample_mask):
    mean = f.token_mean(log_prob - old_log_prob, sample_mask)
    return f.gspo_token(log_prob, mean, adv) * sample_mask


def dpo(*log_probs):
    return 0.95 * f.dpo(*log_probs) + 0.05 * f.dpo(*log_probs, beta=-0.1)


def distillation(logits, teacher_logits):
    log_student = jax.nn.log_softmax(logits / 2)
    log_teacher = jax.nn.log_softmax(teacher_logits / 2)
    return 4 * jnp.sum(jnp.exp(log_teacher) * (log_teacher - log_student), axis=-1)


ROWS = {
    "grpo": lambda rewards: f.standardized(rewards, ddof=1, epsilon=1e-6),
    "drgrpo": lambda rewards: rewards - rewards.mean(),
    "rloo": lambda rewards: rewards - (jnp.sum(rewards) - rewards) / 4,
    "gae": (f.masked_gae, "values r_t sample_mask"),
    "masked_whiten": (f.masked_whiten, "adv sample_mask"),
    "overlong_buffer of DAPOConfig": lambda lengths: jnp.minimum(
        -(lengths - 12) / 8 * 1.0, 0
    ),
    "epsilon, epsilon_high, epsilon_c": (f.dual_clipped, "log_prob old_log_prob adv"),
    'loss_algo="gspo-token"': gspo,
    'kl_loss_mode="mse_kl"': lambda log_prob, ref_log_prob: (
        0.5 * (log_prob - ref_log_prob) ** 2
    ),
    'kl_loss_mode="kl", kl_loss_mode="low_var_kl"': (
        lambda *x: jnp.stack([x[0] - x[1], f.k3(*x)]),
        "data_log_prob ref_log_prob",
    ),
    'sampler_is="token"': lambda old_log_prob, sampler_log_prob: jnp.minimum(
        jnp.exp(old_log_prob - sampler_log_prob), 2.0
    ),
    "clip_range_value": (f.clipped_values, "v old_v target"),
    "entropy_coef": lambda logits: -0.01 * jnp.mean(f.entropy(logits)),
    "token-mean": (f.token_mean, "losses mask"),
    "sequence-mean-token-mean": (f.sequence_means, "losses mask"),
    "sequence-mean-token-scale": lambda losses, mask: (
        jnp.sum(losses * mask) / T / f.answers(mask)
    ),
    "seq-mean-token-sum": lambda losses, mask: jnp.sum(losses * mask) / f.answers(mask),
    "sequence-mean-token-sum-norm": lambda losses, mask: jnp.sum(losses * mask) / 4,
    "DPOTrainingConfig": (dpo, "chosen rejected ref_chosen ref_rejected"),
    'algorithm="orpo"': lambda chosen, rejected: (
        -chosen - 0.1 * jax.nn.log_sigmoid(f.log_odds(chosen, rejected))
    ),
    "LogitStrategy": distillation,
    "selective_log_softmax, compute_entropy_from_logits": (
        f.log_prob_and_entropy,
        "logits tokens",
    ),
}
