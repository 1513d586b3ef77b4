"""Corrections for tokens that another policy sampled than the one that learns.

Three policies may differ: the sampler :math:`μ`, which is the inference engine; the old
policy :math:`π_old`, which the learner computed on the same parameters or older ones;
and the policy :math:`π` that learns. `ppo_clip_loss` corrects for :math:`π / π_old`.
`importance_weights` corrects for :math:`π_old / μ`, which differ in numerics, in the
experts that a router chooses, and by stale parameters: multiply the losses by them.

Watch `importance_statistics` of the log-ratios :math:`log π_old - log μ`, with
the same `sample_mask`: the effective sample size, the :math:`χ²` divergence, and the
ratio of perplexities, `exp(mean_log_ratio)`.
"""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp

from rlaxlib._core import ratios, safe
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, AxisName, Bool, Float, Int
from rlaxlib.llm._shared import means, sums

__all__ = ["importance_weights", "off_policy_sequence_mask"]


@checked(wide=True)
def importance_weights(
    log_ratio: Float[ArrayLike, "T"],
    level: Literal["token", "sequence", "geometric"] = "token",
    kind: Literal["truncate", "mask"] = "truncate",
    minimum: Float[ArrayLike, "in [0, inf)"] | None = None,
    maximum: Float[ArrayLike, "in [0, inf] in [minimum, inf]"] | None = 2.0,
    *,
    sample_mask: Bool[ArrayLike, "T"] | None = None,
    segment_ids: Int[ArrayLike, "T in [0, T)"] | None = None,
    axis_name: AxisName | None = None,
) -> Float[Array, "T"]:
    """Compute importance weights of the sampler (TIS, MIS, IcePop).

    Takes one sequence or packed row, returns one weight for each token.

    ::

        ρ_t = { e^{l_t}   by token
              { exp(∑_j l_j)   by sequence
              { exp((1/|y|) ∑_j l_j)   by geometric mean,   l_t = log (π(a_t)/μ(a_t))

        w_t = { clip(ρ_t, c_min, c_max)   to truncate
              { ρ_t 1[c_min ≤ ρ_t ≤ c_max]   to mask

    - `"truncate"`: truncated importance sampling (TIS), of bounded variance.
    - `"mask"`: masked importance sampling (MIS), 0 for large ratios; with a `minimum`,
      IcePop, 0 for small ratios too. The paper of IcePop uses 0.5 and 5.

    Weights of sequences are unbiased, but their variance grows with the length. Weights
    of tokens ignore that prefixes differ. Geometric means have the scale of tokens. To
    reject sequences without weighting the others, use `weights > 0`.

    Args:
        log_ratio: Log-ratios :math:`l_t`, not clipped, shape `[T]`.
        level: `"token"`, `"sequence"` or `"geometric"`.
        kind: `"truncate"` or `"mask"`.
        minimum: Smallest ratio :math:`c_min`, in [0, inf), shape `[]`; or None for no
            bound.
        maximum: Largest ratio :math:`c_max`, in [0, inf] and in [`minimum`, inf],
            shape `[]`; or None for no bound.
        sample_mask: False for tokens to ignore, shape `[T]`; or None.
        segment_ids: Answer of each token of a packed row, in [0, T), shape `[T]`; or
            None for one answer.
        axis_name: Mapped axis name, or names, of the tokens; or None. With it,
            segments are in [0, T) for the T tokens of all devices.

    Returns:
        Weights :math:`w_t`, at most e^40, without a gradient, shape `[T]`, 0 for
            ignored tokens.

    Raises:
        ArgumentError: If a shape, dtype, option or concrete bound is wrong.

    Example:
        >>> log_ratio = jnp.log(jnp.array([0.25, 1.0, 4.0]))
        >>> print(rlaxlib.importance_weights(log_ratio))
        [0.25 1.   2.  ]

    References:
        Feng Yao and others, *Your Efficient RL Framework Secretly Brings You Off-Policy
        RL Training*, 2025. https://fengyao.notion.site/off-policy-rl

        Jiacai Liu and others, *When Speed Kills Stability: Demystifying RL Collapse
        from the Training-Inference Mismatch*, 2025. https://richardli.xyz/rl-collapse

        Ling Team, *Every Step Evolves: Scaling Reinforcement Learning for
        Trillion-Scale Thinking Model*, 2025. https://arxiv.org/abs/2510.18855
    """
    log_ratio = safe.floored(jax.lax.stop_gradient(log_ratio))
    if level == "sequence":
        log_ratio = sums(log_ratio, segment_ids, axis_name)
    elif level == "geometric":
        log_ratio = means(log_ratio, sample_mask, segment_ids, axis_name)
    ratio = ratios.ratio(log_ratio)
    weight = jnp.clip(ratio, minimum, maximum)
    if kind == "truncate":
        return weight
    is_outside = (ratio < weight) | (ratio > weight)
    return jnp.where(is_outside, 0, ratio)


@checked
def off_policy_sequence_mask(
    log_prob: Float[ArrayLike, "T"],
    old_log_prob: Float[ArrayLike, "T"],
    adv: Float[ArrayLike, "[] or [T]"],
    threshold: Float[ArrayLike, "in [0, inf)"],
    *,
    sample_mask: Bool[ArrayLike, "T"] | None = None,
    segment_ids: Int[ArrayLike, "T in [0, T)"] | None = None,
    axis_name: AxisName | None = None,
) -> Bool[Array, "T"]:
    """Mask negative sequences that are far from the policy (off-policy masking).

    Takes one sequence or packed row, returns True or False for each token.

    ::

        m_t = { 0   if Â_t < 0 and (1/|y|) ∑_j log (π_old(a_j)/π(a_j)) > δ
              { 1   otherwise

    It masks sequences of negative advantage that have become much less likely. Pass the
    mask to the loss as its `sample_mask`, and aggregate with that of all tokens.

    Args:
        log_prob: Log-probabilities of the tokens under the policy, shape `[T]`.
        old_log_prob: The same under the policy that sampled them, shape `[T]`.
        adv: Advantage :math:`Â_t` of all tokens, or of each, shape `[]` or `[T]`.
        threshold: Threshold :math:`δ` of the divergence, in [0, inf), shape `[]`.
        sample_mask: False for tokens to ignore, shape `[T]`; or None.
        segment_ids: Answer of each token of a packed row, in [0, T), shape `[T]`; or
            None for one answer.
        axis_name: Mapped axis name, or names, of the tokens; or None. With it,
            segments are in [0, T) for the T tokens of all devices.

    Returns:
        True for tokens to learn from, shape `[T]`, False for ignored tokens. Those
        whose traced answer is out of range remain: with `segment_ids`, the result of
        `aggregate_losses` is NaN.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> log_prob, old_log_prob = jnp.array([-3.0, -2.0]), jnp.array([-1.0, -1.0])
        >>> print(rlaxlib.off_policy_sequence_mask(log_prob, old_log_prob, -1.0, 0.5))
        [False False]

    References:
        DeepSeek-AI, *DeepSeek-V3.2: Pushing the Frontier of Open Large Language
        Models*, section 3.1, 2025. https://arxiv.org/abs/2512.02556
    """
    log_ratio = ratios.log_ratio(old_log_prob, log_prob)
    divergence = means(log_ratio, sample_mask, segment_ids, axis_name)
    return ~((adv < 0) & (divergence > threshold))
