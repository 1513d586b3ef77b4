"""Preference losses, reward models, and distillation.

- Preferences between two answers: `dpo_loss` (DPO, IPO, SLiC, robust DPO),
  `simpo_loss`, `orpo_loss`.
- Answers that are desirable or not: `kto_loss`.
- Reward models: `bradley_terry_loss`.
- Distillation from a teacher: `generalized_jsd`.

Preference losses are elementwise: they take one pair of answers, or arrays of pairs.
The log-probability of an answer is the sum of those of its tokens, or for `simpo_loss`
and `orpo_loss` their mean. The tokens of the prompt are not included.
"""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient

from rlaxlib._core import ratios, safe
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Bool, Float, Static
from rlaxlib.distributions._shared import kl_terms

__all__ = [
    "bradley_terry_loss",
    "dpo_loss",
    "generalized_jsd",
    "kto_loss",
    "orpo_loss",
    "simpo_loss",
]


@checked(wide=True)
def dpo_loss(
    log_prob_chosen: Float[ArrayLike, "..."],
    log_prob_rejected: Float[ArrayLike, "..."],
    ref_log_prob_chosen: Float[ArrayLike, "..."],
    ref_log_prob_rejected: Float[ArrayLike, "..."],
    beta: Float[ArrayLike, "in (0, inf)"] = 0.1,
    kind: Literal["sigmoid", "ipo", "hinge", "robust"] = "sigmoid",
    label_smoothing: Float[ArrayLike, "in [0, 0.5)"] = 0.0,
    *,
    sample_mask: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "..."]:
    """Compute the direct preference optimisation loss (DPO, IPO, SLiC, cDPO).

    Takes pairs of answers, returns one loss for each.

    ::

        L = (1 - ε) f(Δ) + ε f(-Δ),
        Δ = log (π(y_w)/π_ref(y_w)) - log (π(y_l)/π_ref(y_l))

    The function :math:`f` depends on the kind:

    - `"sigmoid"`: :math:`-log σ(β Δ)` (DPO; cDPO if :math:`ε > 0`).
    - `"ipo"`: :math:`(Δ - 1/(2 β))²` (IPO).
    - `"hinge"`: :math:`max(0, 1 - β Δ)` (SLiC).
    - `"robust"`: that of `"sigmoid"`, but the loss is
      :math:`((1 - ε) f(Δ) - ε f(-Δ)) / (1 - 2 ε)`. Its mean over labels of which a
      fraction :math:`ε` is wrong is that of `"sigmoid"` over the right ones.

    Args:
        log_prob_chosen: :math:`log π(y_w)`, summed over the tokens, shape `[...]`.
        log_prob_rejected: :math:`log π(y_l)` of the rejected answer, shape `[...]`.
        ref_log_prob_chosen: :math:`log π_ref(y_w)`, gradient stopped, shape `[...]`.
        ref_log_prob_rejected: :math:`log π_ref(y_l)`, gradient stopped, shape `[...]`.
        beta: Coefficient :math:`β` of the implicit KL penalty, in (0, inf), shape `[]`.
        kind: `"sigmoid"`, `"ipo"`, `"hinge"` or `"robust"`.
        label_smoothing: Probability :math:`ε` of a wrong label, in [0, 0.5),
            shape `[]`.
        sample_mask: False for pairs to ignore, shape `[...]`; or None.

    Returns:
        Loss of each pair, shape `[...]`, 0 for ignored pairs.

    Raises:
        ArgumentError: If a shape, dtype, `kind` or concrete value is wrong.

    Example:
        >>> chosen, rejected = jnp.log(0.75), jnp.log(0.25)
        >>> loss = rlaxlib.dpo_loss(chosen, rejected, 0.0, 0.0, beta=1.0)
        >>> print(jnp.exp(-loss).round(4))  # The probability of the preference.
        0.75

    References:
        Rafael Rafailov and others, *Direct Preference Optimization: Your Language Model
        is Secretly a Reward Model*, 2023. https://arxiv.org/abs/2305.18290

        Mohammad Gheshlaghi Azar and others, *A General Theoretical Paradigm to
        Understand Learning from Human Preferences*, 2023.
        https://arxiv.org/abs/2310.12036

        Yao Zhao and others, *SLiC-HF: Sequence Likelihood Calibration with Human
        Feedback*, 2023. https://arxiv.org/abs/2305.10425

        Sayak Ray Chowdhury, Anush Kini and Nagarajan Natarajan, *Provably Robust DPO:
        Aligning Language Models with Noisy Feedback*, 2024.
        https://arxiv.org/abs/2403.00409
    """
    chosen = ratios.log_ratio(log_prob_chosen, stop_gradient(ref_log_prob_chosen))
    rejected = ratios.log_ratio(log_prob_rejected, stop_gradient(ref_log_prob_rejected))
    delta = chosen - rejected

    def loss(delta: Array) -> Array:
        if kind == "ipo":
            return jnp.square(delta - 1 / (2 * beta))
        if kind == "hinge":
            return jax.nn.relu(1 - beta * delta)
        return -jax.nn.log_sigmoid(beta * delta)

    epsilon = label_smoothing
    if kind == "robust":
        unbiased = (1 - epsilon) * loss(delta) - epsilon * loss(-delta)
        return unbiased / (1 - 2 * epsilon)
    return (1 - epsilon) * loss(delta) + epsilon * loss(-delta)


@checked(wide=True)
def simpo_loss(
    mean_log_prob_chosen: Float[ArrayLike, "..."],
    mean_log_prob_rejected: Float[ArrayLike, "..."],
    beta: Float[ArrayLike, "in (0, inf)"] = 2.0,
    margin: Float[ArrayLike, ""] = 1.0,
    *,
    sample_mask: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "..."]:
    """Compute the simple preference optimisation loss (SimPO).

    Takes pairs of answers, returns one loss for each.

    ::

        L = -log σ(β (l_w - l_l) - γ),   l = (1/|y|) log π(y)

    There is no reference policy, and the mean over tokens does not favour long answers.

    Args:
        mean_log_prob_chosen: Mean log-probability :math:`l_w` of its tokens,
            shape `[...]`.
        mean_log_prob_rejected: The same of the rejected answer, shape `[...]`.
        beta: Coefficient :math:`β`, in (0, inf), shape `[]`. The paper uses 2 to 2.5.
        margin: Margin :math:`γ` of rewards :math:`β l`, 0.3 to 1.6 in the paper,
            shape `[]`.
        sample_mask: False for pairs to ignore, shape `[...]`; or None.

    Returns:
        Loss of each pair, shape `[...]`, 0 for ignored pairs.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> loss = rlaxlib.simpo_loss(-1.0, -1.5, beta=2.0, margin=1.0)
        >>> print(jnp.exp(-loss).round(4))
        0.5

    References:
        Yu Meng, Mengzhou Xia and Danqi Chen, *SimPO: Simple Preference Optimization
        with a Reference-Free Reward*, 2024. https://arxiv.org/abs/2405.14734
    """
    difference = ratios.log_ratio(mean_log_prob_chosen, mean_log_prob_rejected)
    return -jax.nn.log_sigmoid(beta * difference - margin)


@checked(wide=True)
def orpo_loss(
    mean_log_prob_chosen: Float[ArrayLike, "..."],
    mean_log_prob_rejected: Float[ArrayLike, "..."],
    coefficient: Float[ArrayLike, "in [0, inf)"] = 0.1,
    *,
    sample_mask: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "..."]:
    """Compute the odds-ratio preference optimisation loss (ORPO).

    Takes pairs of answers, returns one loss for each.

    ::

        L = -l_w - λ log σ(log (odds_w / odds_l)),
        odds = p / (1 - p),   p = e^l,   l = (1/|y|) log π(y)

    The first term is the supervised loss of the chosen answer, so that neither a
    supervised phase nor a reference policy is needed.

    Args:
        mean_log_prob_chosen: Mean log-probability :math:`l_w`, shape `[...]`.
        mean_log_prob_rejected: The same of the rejected answer, shape `[...]`.
        coefficient: Coefficient :math:`λ`, in [0, inf), shape `[]`.
        sample_mask: False for pairs to ignore, shape `[...]`; or None.

    Returns:
        Loss of each pair, shape `[...]`, 0 for ignored pairs. If a log-probability
        rounds to 0, the odds are those of the largest probability below 1.

    Raises:
        ArgumentError: If a shape, dtype, scalar or NumPy value is wrong.

    Example:
        >>> loss = rlaxlib.orpo_loss(jnp.log(0.75), jnp.log(0.5), coefficient=1.0)
        >>> print(jnp.exp(-loss).round(4))  # 3/4 of the first term, 3/4 of the second.
        0.5625

    References:
        Jiwoo Hong, Noah Lee and James Thorne, *ORPO: Monolithic Preference Optimization
        without Reference Model*, 2024. https://arxiv.org/abs/2403.07691
    """

    def log_odds(log_prob: Array) -> Array:
        # The logarithm of `1 - p` is infinite at a probability of 1.
        margin = float(jnp.finfo(log_prob.dtype).epsneg)
        log_prob -= stop_gradient(jax.nn.relu(log_prob + margin))
        return log_prob - jnp.log(-jnp.expm1(log_prob))

    log_ratio = log_odds(mean_log_prob_chosen) - log_odds(mean_log_prob_rejected)
    return -mean_log_prob_chosen - coefficient * jax.nn.log_sigmoid(log_ratio)


@checked(wide=True)
def kto_loss(
    log_prob: Float[ArrayLike, "..."],
    ref_log_prob: Float[ArrayLike, "..."],
    desirable: Bool[ArrayLike, "..."],
    kl: Float[ArrayLike, ""],
    beta: Float[ArrayLike, "in (0, inf)"] = 0.1,
    desirable_weight: Float[ArrayLike, "in [0, inf)"] = 1.0,
    undesirable_weight: Float[ArrayLike, "in [0, inf)"] = 1.0,
    *,
    sample_mask: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "..."]:
    """Compute the Kahneman-Tversky optimisation loss (KTO).

    Takes answers, desirable or not, returns one loss for each.

    ::

        L = { λ_D (1 - σ(β (r - z)))   if the answer is desirable
            { λ_U (1 - σ(β (z - r)))   otherwise,   r = log (π(y)/π_ref(y)),
        z = max(0, KL(π ‖ π_ref))

    To estimate the KL divergence, pair each prompt of the batch with the answer to
    another prompt, and average :math:`r` over these pairs.

    Args:
        log_prob: Log-probability of an answer, summed over its tokens, shape `[...]`.
        ref_log_prob: The same under the reference policy, shape `[...]`. No gradient.
        desirable: Whether the answer is desirable, shape `[...]`.
        kl: Estimate of the KL divergence over all devices, gradient stopped,
            shape `[]`.
        beta: Coefficient :math:`β`, in (0, inf), shape `[]`.
        desirable_weight: Weight :math:`λ_D`, in [0, inf), shape `[]`.
        undesirable_weight: Weight :math:`λ_U`, in [0, inf), shape `[]`. Choose weights
            with which both kinds of answers have about the same sum.
        sample_mask: False for answers to ignore, shape `[...]`; or None.

    Returns:
        Loss of each answer, shape `[...]`, 0 for ignored answers.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> log_prob, ref_log_prob = jnp.log(jnp.array([[0.3, 0.3], [0.1, 0.1]]))
        >>> desirable = jnp.array([True, False])
        >>> loss = rlaxlib.kto_loss(log_prob, ref_log_prob, desirable, kl=0.0, beta=1.0)
        >>> print(loss.round(4))
        [0.25 0.75]

    References:
        Kawin Ethayarajh and others, *KTO: Model Alignment as Prospect Theoretic
        Optimization*, 2024. https://arxiv.org/abs/2402.01306
    """
    z = stop_gradient(jax.nn.relu(kl))
    weight = jnp.where(desirable, desirable_weight, undesirable_weight)
    log_ratio = ratios.log_ratio(log_prob, stop_gradient(ref_log_prob))
    gain = beta * (log_ratio - z)
    loss = jax.nn.sigmoid(jnp.where(desirable, -gain, gain))  # 1 - σ(x) = σ(-x)
    return weight * loss


@checked(wide=True)
def bradley_terry_loss(
    reward_chosen: Float[ArrayLike, "..."],
    reward_rejected: Float[ArrayLike, "..."],
    margin: Float[ArrayLike, "[] or [...]"] = 0.0,
    centering: Float[ArrayLike, "in [0, inf)"] = 0.0,
    *,
    sample_mask: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "..."]:
    """Compute the Bradley-Terry loss of a reward model.

    Takes pairs of answers, returns one loss for each.

    ::

        L = -log σ(r_w - r_l - m) + c (r_w + r_l)²

    Preferences determine rewards only up to a constant for each prompt. Centring moves
    their sum towards 0.

    Args:
        reward_chosen: Reward :math:`r_w` of the chosen answer, shape `[...]`.
        reward_rejected: Reward :math:`r_l` of the rejected answer, shape `[...]`.
        margin: Margin :math:`m`, larger for clear preferences, shape `[]` or `[...]`.
        centering: Coefficient :math:`c`, in [0, inf), such as 0.01, shape `[]`.
        sample_mask: False for pairs to ignore, shape `[...]`; or None.

    Returns:
        Loss of each pair, shape `[...]`, 0 for ignored pairs.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> loss = rlaxlib.bradley_terry_loss(2.0, 1.0, margin=1.0, centering=0.5)
        >>> print((loss - 0.5 * 9.0).round(4), jnp.log(2.0).round(4))
        0.6931 0.6931

    References:
        Hugo Touvron and others, *Llama 2: Open Foundation and Fine-Tuned Chat Models*,
        section 3.2.2, 2023. https://arxiv.org/abs/2307.09288

        Jacob Eisenstein and others, *Helping or Herding? Reward Model Ensembles
        Mitigate but do not Eliminate Reward Hacking*, 2023.
        https://arxiv.org/abs/2312.09244
    """
    loss = -jax.nn.log_sigmoid(reward_chosen - reward_rejected - margin)
    total = reward_chosen + reward_rejected
    return loss + centering * jnp.square(total)


@checked(wide=True)
def generalized_jsd(
    student_logits: Float[ArrayLike, "..., V"],
    teacher_logits: Float[ArrayLike, "..., V"],
    mix: Float[ArrayLike, "in [0, 1]"] = 0.5,
    top_k: Static[int, "in [1, V-1]"] | None = None,
    *,
    sample_mask: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "..."]:
    """Compute the generalised Jensen-Shannon divergence of distillation (GKD).

    Takes the logits of student and teacher for tokens of any shape, returns one
    divergence for each.

    ::

        D = { KL(p ‖ q)   if β = 0
            { KL(q ‖ p)   if β = 1
            { β KL(p ‖ m) + (1 - β) KL(q ‖ m)   otherwise,
        m = β p + (1 - β) q

    Here :math:`p` is the teacher and :math:`q` the student. The forward and the reverse
    KL divergence are the limits of :math:`D/β` and :math:`D/(1 - β)`. On-policy
    distillation, of tokens that the student samples, mostly uses :math:`β = 1`.

    With `top_k`, the outcomes are the k tokens that are most likely under the teacher,
    and all others together as one more: a lower bound of the divergence.

    Args:
        student_logits: Logits of the student; minus infinity is allowed,
            shape `[..., V]`.
        teacher_logits: Logits of the teacher, without a gradient, shape `[..., V]`.
        mix: Weight :math:`β` of the teacher, in [0, 1], shape `[]`.
        top_k: Number of tokens, a Python integer in [1, V-1]; or None for all.
        sample_mask: False for tokens to ignore, shape `[...]`; or None.

    Returns:
        Divergences, at least 0, shape `[...]`, 0 for ignored tokens.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> student_logits = jnp.log(jnp.array([0.25, 0.5, 0.25]))
        >>> teacher_logits = jnp.log(jnp.array([0.5, 0.25, 0.25]))
        >>> kl = rlaxlib.generalized_jsd(student_logits, teacher_logits, mix=1.0)
        >>> print(kl.round(4), (0.25 * jnp.log(2.0)).round(4))
        0.1733 0.1733

    References:
        Rishabh Agarwal and others, *On-Policy Distillation of Language Models: Learning
        from Self-Generated Mistakes*, 2023. https://arxiv.org/abs/2306.13649
    """
    log_q = jax.nn.log_softmax(safe.floored(student_logits))
    log_p = jax.nn.log_softmax(safe.floored(stop_gradient(teacher_logits)))
    if top_k is not None:
        _, top = jax.lax.top_k(log_p, top_k)
        log_p, log_q = _bucketed(log_p, top), _bucketed(log_q, top)
    log_m = jnp.logaddexp(jnp.log(mix) + log_p, jnp.log1p(-mix) + log_q)
    # At the limits, m is q or p, and one of the divergences is 0.
    teacher_weight = jnp.where(mix == 0, 1, mix)
    student_weight = jnp.where(mix == 1, 1, 1 - mix)
    return teacher_weight * _kl(log_p, log_m) + student_weight * _kl(log_q, log_m)


def _kl(log_p: Array, log_q: Array) -> Array:
    """Compute KL(p ‖ q) of log-probabilities, which are normalised and finite."""
    terms = kl_terms(jnp.exp(log_p), jnp.exp(log_q), log_q - log_p)
    return jnp.sum(terms, axis=-1)


def _bucketed(log_probs: Array, top: Array) -> Array:
    """Return the log-probabilities of some outcomes, and of all others together."""
    some = jnp.take_along_axis(log_probs, top, axis=-1)
    rest = jnp.put_along_axis(log_probs, top, -jnp.inf, axis=-1, inplace=False)
    others = jax.nn.logsumexp(rest, axis=-1, keepdims=True)
    return jnp.concatenate([some, others], axis=-1)
