"""Losses of preferences beyond DPO: SPPO, BCO, APO, NCA, EXO, f-DPO.

Compositions of `dpo_loss` and `kto_loss`, with the log-ratios of both answers. A batch
of preferences is that of `language.py`. Needs `language.py` in the same package.
"""

import jax
import jax.numpy as jnp

import rlaxlib

from .language import answer_log_probs  # noqa: TID252 - Any package.


def log_ratios(params, apply, batch):
    """Return the log-ratios to the reference, of chosen and of rejected answers."""
    return (
        answer_log_probs(params, apply, x)
        - answer_log_probs(params, apply, x, ref=True)
        for x in (batch.chosen, batch.rejected)
    )


def sppo(params, apply, batch, beta=1e-3):
    """SPPO, hard labels: the reward of each answer is regressed to ½ or -½.

    Wu et al., 2024, https://arxiv.org/abs/2405.00675. Source:
    github.com/uclaml/SPPO@5e61c4e, sppo/trainer.py, half of this loss at probabilities
    of 1 and 0. Usual: beta 1e-3 in the units of DPO, RMSProp 5e-7, answers of the
    policy itself.
    """
    good, bad = log_ratios(params, apply, batch)
    zero = jnp.zeros_like(good)
    losses = rlaxlib.dpo_loss(good, zero, zero, zero, beta, "ipo")
    return jnp.mean(losses + rlaxlib.dpo_loss(zero, bad, zero, zero, beta, "ipo"))


def bco(params, apply, batch, shift=0.0, beta=0.1):
    """BCO: a classifier of single answers, whose logit is the reward minus a shift.

    `shift` is a moving average of the rewards, beta times log-ratios, of both answers.
    Jung et al., 2024, https://arxiv.org/abs/2404.04656. Source:
    github.com/huggingface/trl@f2cd577, trl/experimental/bco/bco_trainer.py, a mean over
    both answers: half of this loss. Usual: beta 0.1, or 0.01 as in the paper, Adam
    5e-7, batch 128.
    """
    good, bad = log_ratios(params, apply, batch)
    zero = jnp.zeros_like(good)
    shift = jnp.full_like(good, shift / beta)
    losses = rlaxlib.dpo_loss(good, shift, zero, zero, beta)
    return jnp.mean(losses + rlaxlib.dpo_loss(shift, bad, zero, zero, beta))


def apo_zero(params, apply, batch, beta=0.1):
    """APO-zero: chosen answers become more likely, and rejected ones less.

    D'Oosterlinck et al., 2024, https://arxiv.org/abs/2408.06266. Source:
    github.com/huggingface/trl@f2cd577, trl/trainer/dpo_trainer.py, the same loss. Usual
    (there; section 5.2 of the paper): beta 0.1, learning rate 2e-7, batch 64.
    """
    good, bad = log_ratios(params, apply, batch)
    zero, yes = jnp.zeros_like(good), jnp.ones_like(good, bool)
    losses = rlaxlib.kto_loss(good, zero, yes, 0.0, beta)
    return jnp.mean(losses + rlaxlib.kto_loss(bad, zero, ~yes, 0.0, beta))


def nca(params, apply, batch, beta=0.01):
    """NCA: noise contrastive alignment, which keeps the likelihood of chosen answers.

    Chen et al., 2024, https://arxiv.org/abs/2402.05369. Source:
    github.com/thu-ml/Noise-Contrastive-Alignment@cbb9248, preference_trainer.py, the
    same loss. Usual: beta 0.01, AdamW 5e-6, one epoch.
    """
    good, bad = log_ratios(params, apply, batch)
    zero = jnp.zeros_like(good)
    losses = rlaxlib.dpo_loss(good, zero, zero, zero, beta)
    for each in (good, bad):
        losses += 0.5 * rlaxlib.dpo_loss(zero, each, zero, zero, beta)
    return jnp.mean(losses)


def exo(params, apply, batch, beta=0.1, label_smoothing=1e-3):
    """EXO: the reverse KL divergence of the preference, which seeks modes.

    Ji et al., 2024, https://arxiv.org/abs/2402.00856. Source:
    github.com/huggingface/trl@f2cd577, trl/trainer/dpo_trainer.py, the same loss.
    Usual: beta 0.1, label smoothing 1e-3, RMSProp 1e-6.
    """
    good, bad = log_ratios(params, apply, batch)
    logits = jnp.stack([beta * (good - bad), jnp.zeros_like(good)], axis=-1)
    smooth = jnp.log(jnp.array([1 - label_smoothing, label_smoothing]))
    smooth = jnp.broadcast_to(smooth, logits.shape)
    return jnp.mean(rlaxlib.categorical_kl_divergence(logits, smooth))


def f_dpo(params, apply, batch, beta=0.1):
    """f-DPO, Jensen-Shannon: DPO of the derivative of an f-divergence at the ratio.

    With :math:`f'(u) = log u` it is DPO. Wang et al., 2023,
    https://arxiv.org/abs/2309.16240. Source: github.com/huggingface/trl@f2cd577,
    trl/trainer/dpo_trainer.py, the same loss. Usual: those of DPO there, beta 0.1,
    AdamW 1e-6.
    """
    slopes = (x - jax.nn.softplus(x) for x in log_ratios(params, apply, batch))
    good, bad = slopes
    zero = jnp.zeros_like(good)
    return jnp.mean(rlaxlib.dpo_loss(good, bad, zero, zero, beta))
