"""tunix, google/tunix@c7d8950.

`tunix/rl/{algo_core,common}.py`, `tunix/rl/grpo/dapo_learner.py`,
`tunix/sft/dpo/dpo_trainer.py`, `tunix/distillation/strategies/logit.py`.
"""

import jax
import jax.numpy as jnp

from from_pages import flags, integers, normal, uniform

T, V = 6, 5
stop = jax.lax.stop_gradient
MASK = ~flags(2, length=T)
INPUTS = {
    "rewards": normal(5),
    "values": (values := normal(T)),
    # The value at the next valid token.
    "v_t": jnp.array([values[1], values[3], values[3], values[4], values[5], 0.0]),
    "r_t": normal(T) * MASK,
    "discount_t": jnp.full(T, 0.99),
    "sample_mask": MASK,
    "lengths": jnp.array([5, 12, 15, 19, 25]),
    "v": normal(T),
    "old_v": normal(T),
    "target": normal(T),
    "adv": normal(T),
    "log_prob": (log_prob := jnp.log(uniform(T, low=0.05))),
    "data_log_prob": log_prob,
    "old_log_prob": log_prob + normal(T, scale=0.3),
    "sampler_log_prob": jnp.log(uniform(T, low=0.05)),
    "ref_log_prob": jnp.log(uniform(T, low=0.05)),
    "losses": normal(4, T),
    "mask": jnp.arange(T) < jnp.array([3, 0, 6, 5])[:, None],
    "logits": normal(T, V),
    "teacher_logits": normal(T, V),
    "tokens": integers(V, T),
    "chosen": -uniform(3, low=0.3, high=2.0),
    "rejected": -uniform(3, low=0.3, high=2.0),
    "ref_chosen": -uniform(3, low=0.3, high=2.0),
    "ref_rejected": -uniform(3, low=0.3, high=2.0),
}
TRAINED = {"log_prob", "v", "losses", "logits", "chosen", "rejected"}


def gae(values, r_t, sample_mask):
    total, following, found = 0.0, 0.0, []
    for t in reversed(range(T)):
        step = r_t[t] + 0.99 * following - values[t] + 0.99 * 0.95 * total
        following = jnp.where(sample_mask[t], values[t], following)
        total = jnp.where(sample_mask[t], step, total)
        found = [total, *found]
    return jnp.stack(found) * sample_mask


def whiten(adv, sample_mask):
    kept = adv[sample_mask]
    scale = jax.lax.rsqrt(jnp.var(kept, ddof=1) + 1e-8)
    return jnp.where(sample_mask, (adv - jnp.mean(kept)) * scale, 0.0)


def ppo(log_prob, old_log_prob, adv, low=0.2, high=0.28):
    ratio = jnp.exp(jnp.clip(log_prob - old_log_prob, -20, 20))
    return jnp.maximum(-adv * ratio, -adv * jnp.clip(ratio, 1 - low, 1 + high))


def dual_clip(log_prob, old_log_prob, adv):
    loss = ppo(log_prob, old_log_prob, adv)
    return jnp.where(adv < 0, jnp.minimum(-3.0 * adv, loss), loss)


def gspo(log_prob, old_log_prob, adv, sample_mask):
    log_ratio = (log_prob - old_log_prob) * sample_mask
    mean = jnp.sum(log_ratio) / jnp.sum(sample_mask)
    ratio = log_prob - stop(log_prob) + stop(mean)
    return ppo(ratio, 0.0, adv, 3e-4, 4e-4) * sample_mask


def kl(data_log_prob, ref_log_prob):
    difference = ref_log_prob - data_log_prob
    return jnp.stack([-difference, jnp.exp(difference) - difference - 1])


def value_loss(v, old_v, target):
    near = jnp.clip(v, old_v - 0.2, old_v + 0.2)
    return 0.5 * jnp.maximum((v - target) ** 2, (near - target) ** 2)


def entropy(logits):
    log_probs = jax.nn.log_softmax(logits)
    return -jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)


def chosen_log_prob(logits, tokens):
    chosen = jnp.take_along_axis(logits, tokens[:, None], axis=-1)[:, 0]
    return chosen - jax.nn.logsumexp(logits, axis=-1), entropy(logits)


def sequence_means(losses, mask):
    tokens = jnp.sum(mask, axis=-1)
    means = jnp.sum(losses * mask, axis=-1) / jnp.clip(tokens, 1)
    return jnp.sum(means) / jnp.sum(tokens > 0)


def dpo(chosen, rejected, ref_chosen, ref_rejected):
    delta = 0.1 * (chosen - ref_chosen - (rejected - ref_rejected))
    likely, unlikely = jax.nn.log_sigmoid(delta), jax.nn.log_sigmoid(-delta)
    return -likely * (1 - 0.05) - unlikely * 0.05


def orpo(chosen, rejected):
    odds = jnp.log1p(-jnp.exp(chosen)) - jnp.log1p(-jnp.exp(rejected))
    return -chosen - 0.1 * jax.nn.log_sigmoid(chosen - rejected - odds)


def distillation(logits, teacher_logits):
    log_student = jax.nn.log_softmax(logits / 2)
    log_teacher = jax.nn.log_softmax(teacher_logits / 2)
    return 4 * jnp.sum(jnp.exp(log_teacher) * (log_teacher - log_student), axis=-1)


def valid(mask):
    return jnp.sum(jnp.sum(mask, axis=-1) > 0)


ROWS = {
    "grpo": lambda rewards: (rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-6),
    "drgrpo": lambda rewards: rewards - rewards.mean(),
    "rloo": lambda rewards: rewards - (jnp.sum(rewards) - rewards) / 4,
    "gae": gae,
    "masked_whiten": whiten,
    "overlong_buffer of DAPOConfig": lambda lengths: jnp.minimum(
        -(lengths - 12) / 8 * 1.0, 0
    ),
    "epsilon, epsilon_high, epsilon_c": dual_clip,
    'loss_algo="gspo-token"': gspo,
    'kl_loss_mode="mse_kl"': lambda log_prob, ref_log_prob: (
        0.5 * (log_prob - ref_log_prob) ** 2
    ),
    'kl_loss_mode="kl", kl_loss_mode="low_var_kl"': kl,
    'sampler_is="token"': lambda old_log_prob, sampler_log_prob: jnp.minimum(
        jnp.exp(old_log_prob - sampler_log_prob), 2.0
    ),
    "clip_range_value": value_loss,
    "entropy_coef": lambda logits: -0.01 * jnp.mean(entropy(logits)),
    "token-mean": lambda losses, mask: jnp.sum(losses * mask) / jnp.sum(mask),
    "sequence-mean-token-mean": sequence_means,
    "sequence-mean-token-scale": lambda losses, mask: (
        jnp.sum(losses * mask) / T / valid(mask)
    ),
    "seq-mean-token-sum": lambda losses, mask: jnp.sum(losses * mask) / valid(mask),
    "sequence-mean-token-sum-norm": lambda losses, mask: jnp.sum(losses * mask) / 4,
    "DPOTrainingConfig": dpo,
    'algorithm="orpo"': orpo,
    "LogitStrategy": distillation,
    "selective_log_softmax, compute_entropy_from_logits": chosen_log_prob,
}
