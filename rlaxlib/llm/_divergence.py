"""Trust regions for tokens and sequences: masks by divergence, and soft weights.

- `divergence_ppo_mask`: tokens whose update leaves the trust region (DPPO).
- `vespo_weight`: a smooth weight of each sequence (VESPO).

Pass the mask to the loss of the tokens as its `sample_mask`, and multiply advantages by
the weight. Unlike a clip of the ratio :math:`π/μ`, the mask
of DPPO does not treat rare and frequent tokens differently.
"""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp

from rlaxlib._core import ratios
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, AxisName, Bool, Float, Int
from rlaxlib.llm._shared import sums

__all__ = ["divergence_ppo_mask", "vespo_weight"]


@checked
def divergence_ppo_mask(
    log_prob: Float[ArrayLike, "..."],
    old_log_prob: Float[ArrayLike, "..."],
    adv: Float[ArrayLike, "[] or [...]"],
    epsilon: Float[ArrayLike, "in [0, inf]"] = 0.2,
    epsilon_high: Float[ArrayLike, "in [0, inf]"] | None = None,
    kind: Literal["tv", "kl"] = "tv",
    *,
    sample_mask: Bool[ArrayLike, "..."] | None = None,
) -> Bool[Array, "..."]:
    """Mask tokens whose update would leave the trust region (DPPO).

    Takes tokens of any shape, returns True or False for each.

    ::

        m_t = { 0   if Â_t > 0 and π_t > μ_t and D_t > δ_high
              { 0   if Â_t < 0 and π_t < μ_t and D_t > δ
              { 1   otherwise
        D_t = { |π_t - μ_t|                                                      tv
              { μ_t log (μ_t / π_t) + (1 - μ_t) log ((1 - μ_t) / (1 - π_t))    kl

    Here :math:`D_t` is the divergence of the distributions of two outcomes: this token,
    or another. The loss of DPPO is :math:`-m_t min(ρ_t, c) Â_t log π_t` with a stopped
    ratio :math:`ρ_t = π_t/μ_t`: `cispo_loss`, with the mask. The authors' runs have
    bounds of 0.15 for total variation, and of 0.05 for KL. :math:`μ` is the policy of
    the sampler, so that the mask also accounts for its numerics.

    Args:
        log_prob: Log-probabilities :math:`log π_t` of the tokens, shape `[...]`.
        old_log_prob: Log-probabilities :math:`log μ_t` under the sampler,
            shape `[...]`.
        adv: Advantage :math:`Â_t` of all tokens, or of each, shape `[]` or `[...]`.
        epsilon: Bound :math:`δ` for negative advantages, in [0, inf], shape `[]`.
        epsilon_high: Bound :math:`δ_high` for positive advantages, in [0, inf],
            shape `[]`; or None for `epsilon`.
        kind: `"tv"` for total variation or `"kl"`.
        sample_mask: False for tokens to ignore, shape `[...]`; or None.

    Returns:
        True for tokens to keep, shape `[...]`, False for ignored tokens.

    Raises:
        ArgumentError: If a shape, dtype, option or concrete bound is wrong.

    Example:
        >>> log_prob = jnp.log(jnp.array([0.9, 0.04, 0.1]))
        >>> old_log_prob = jnp.log(jnp.array([0.6, 0.01, 0.6]))
        >>> print(rlaxlib.divergence_ppo_mask(log_prob, old_log_prob, 1.0))
        [False  True  True]

    References:
        Penghui Qi and others, *Rethinking the Trust Region in LLM Reinforcement
        Learning*, 2026. https://arxiv.org/abs/2602.04879
    """
    high = epsilon if epsilon_high is None else epsilon_high
    pi, mu = jnp.exp(log_prob), jnp.exp(old_log_prob)
    if kind == "tv":
        divergence = jnp.abs(pi - mu)
    else:
        other_pi, other_mu = -jnp.expm1(log_prob), -jnp.expm1(old_log_prob)
        others = ratios.log_ratio(jnp.log(other_mu), jnp.log(other_pi))
        own = ratios.log_ratio(old_log_prob, log_prob)
        divergence = mu * own + other_mu * others
    too_likely = (adv > 0) & (pi > mu) & (divergence > high)
    too_unlikely = (adv < 0) & (pi < mu) & (divergence > epsilon)
    return ~(too_likely | too_unlikely)


@checked(wide=True)
def vespo_weight(
    log_prob: Float[ArrayLike, "T"],
    old_log_prob: Float[ArrayLike, "T"],
    adv: Float[ArrayLike, "[] or [T]"],
    k_positive: Float[ArrayLike, "in [0, inf)"] = 2.0,
    lambda_positive: Float[ArrayLike, "in (0, inf)"] = 3.0,
    k_negative: Float[ArrayLike, "in [0, inf)"] = 3.0,
    lambda_negative: Float[ArrayLike, "in (0, inf)"] = 2.0,
    *,
    sample_mask: Bool[ArrayLike, "T"] | None = None,
    segment_ids: Int[ArrayLike, "T in [0, T)"] | None = None,
    axis_name: AxisName | None = None,
) -> Float[Array, "T"]:
    """Compute the soft importance weights of sequences (VESPO).

    Takes one sequence or packed row, returns the weight of the sequence of each token.

    ::

        φ(w) = w^k e^{λ(1 - w)},   w = ∏_t π_t / μ_t

    The weight is 1 on-policy, and 0 for sequences that became much more or much less
    likely. :math:`k` and :math:`λ` depend on the sign of the advantage; above
    :math:`w = k/λ` the weight falls. The loss of a token is
    :math:`-φ(w) Â log π_t`: `reinforce_loss` with the advantage :math:`φ(w) Â`.

    Args:
        log_prob: Log-probabilities :math:`log π_t` of the tokens, shape `[T]`.
        old_log_prob: Log-probabilities :math:`log μ_t` under the sampler, shape `[T]`.
        adv: Advantage :math:`Â` of the sequence, shape `[]`; or of that of each token,
            shape `[T]`.
        k_positive: Exponent :math:`k` if :math:`Â ≥ 0`, in [0, inf), shape `[]`.
        lambda_positive: Rate :math:`λ` if :math:`Â ≥ 0`, in (0, inf), shape `[]`.
        k_negative: Exponent :math:`k` if :math:`Â < 0`, in [0, inf), shape `[]`.
        lambda_negative: Rate :math:`λ` if :math:`Â < 0`, in (0, inf), shape `[]`.
        sample_mask: False for tokens to ignore, shape `[T]`; or None.
        segment_ids: Answer of each token of a packed row, in [0, T), shape `[T]`; or
            None for one answer.
        axis_name: Mapped axis name, or names, of the tokens; or None. With it,
            segments are in [0, T) for the T tokens of all devices.

    Returns:
        Weights :math:`φ(w)`, without a gradient, shape `[T]`; 0 for ignored tokens.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> log_prob, old_log_prob = jnp.log(jnp.array([[0.5, 0.5], [0.5, 0.25]]))
        >>> weights = rlaxlib.vespo_weight(log_prob, old_log_prob, adv=1.0)
        >>> print(weights / jnp.exp(-3.0))  # 2² e³⁻⁶.
        [4. 4.]

    References:
        Guobin Shen and others, *VESPO: Variational Sequence-Level Soft Policy
        Optimization for Stable Off-Policy LLM Training*, 2026.
        https://arxiv.org/abs/2602.10693
    """
    log_ratio = ratios.log_ratio(log_prob, old_log_prob)
    log_w = jnp.minimum(sums(log_ratio, segment_ids, axis_name), ratios.BOUND)
    k = jnp.where(adv >= 0, k_positive, k_negative)
    rate = jnp.where(adv >= 0, lambda_positive, lambda_negative)
    # In logarithms: `w^k` overflows where the weight is 0.
    weight = jnp.exp(k * log_w - rate * jnp.expm1(log_w))
    return jax.lax.stop_gradient(weight)
