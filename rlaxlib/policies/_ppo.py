"""Proximal policy optimisation (PPO): clipped, decoupled and value losses.

`ppo_clip_loss` and its variants take log-probabilities of time steps on any axes, and
return one loss a time step, beside diagnostics. Average them with `masked_mean` if
steps are masked. `clipped_surrogate_pg_loss` takes the probability ratios of one
trajectory and returns the mean.

Advantages are used as they are; PPO standardises them over the batch with
`standardize`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from rlaxlib import losses
from rlaxlib._core import ratios, safe
from rlaxlib._core.gradients import stop_if
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Bool, Float

__all__ = [
    "PpoValueOutputs",
    "RatioOutputs",
    "clipped_surrogate_pg_loss",
    "decoupled_ppo_loss",
    "ppo_clip_loss",
    "ppo_value_loss",
]


class RatioOutputs(NamedTuple):
    """Statistics of a policy update by probability ratios.

    All losses of ratios return them: PPO and its variants, CISPO, SAPO and GMPO. The
    mean of `kl_loss(old_log_prob, log_prob)` estimates :math:`KL(π_old ‖ π)`.

    Attributes:
        log_ratio: Log-ratios :math:`log ρ_t`, shape `[...]`.
        ratio: Ratios :math:`ρ_t = π(a_t)/π_old(a_t)`, at most :math:`e^40`, 0 if
            ignored, shape `[...]`.
        clipped: True where the loss clips the ratio, shape `[...]`.
    """

    log_ratio: Float[Array, "..."]
    ratio: Float[Array, "..."]
    clipped: Bool[Array, "..."]


class PpoValueOutputs(NamedTuple):
    """Diagnostics of a clipped value loss.

    Attributes:
        clipped: True where the clip removes the gradient, shape `[...]`.
        value_outside: True where the value moved more than :math:`ε`, shape `[...]`.
    """

    clipped: Bool[Array, "..."]
    value_outside: Bool[Array, "..."]


@checked
def ppo_clip_loss(
    log_prob: Float[ArrayLike, "..."],
    old_log_prob: Float[ArrayLike, "..."],
    adv: Float[ArrayLike, "[] or [...]"],
    epsilon: Float[ArrayLike, "in [0, inf]"] = 0.2,
    epsilon_high: Float[ArrayLike, "in [0, inf]"] | None = None,
    dual_clip: Float[ArrayLike, "in (1, inf]"] | None = None,
    *,
    stop_target_gradients: bool = True,
    sample_mask: Bool[ArrayLike, "..."] | None = None,
) -> tuple[Float[Array, "..."], RatioOutputs]:
    """Compute the clipped PPO surrogate loss.

    Takes time steps, returns the loss of each, and diagnostics.

    ::

        L_t = -min(ρ_t Â_t, clip(ρ_t, 1 - ε, 1 + ε_high) Â_t),
        ρ_t = π(a_t) / π_old(a_t)

    The clip removes the gradient where a ratio is beyond its bound on the side that its
    advantage favours. A larger :math:`ε_high`, such as 0.28, preserves entropy (DAPO).
    The dual clip :math:`c`, such as 3, bounds the loss of negative advantages by
    :math:`-c Â_t`.

    Args:
        log_prob: Log-probabilities or -densities :math:`log π(a_t)`, shape `[...]`.
        old_log_prob: The same of :math:`π_old`, the policy that acted, shape `[...]`.
        adv: Advantage :math:`Â_t` of all steps, or of each, shape `[]` or `[...]`.
        epsilon: Clipping range :math:`ε`, in [0, inf], shape `[]`.
        epsilon_high: Upper range :math:`ε_high`, in [0, inf], shape `[]`; or None for
            `epsilon`.
        dual_clip: Maximum ratio :math:`c` if :math:`Â_t < 0`, in (1, inf], shape `[]`;
            or None.
        stop_target_gradients: Whether `old_log_prob` and `adv` get no gradient.
        sample_mask: False for time steps to ignore, shape `[...]`; or None.

    Returns:
        A tuple of two: losses, shape `[...]`, 0 at ignored steps, and a `RatioOutputs`.
        `clipped` is true where the clip, or the dual clip, removes the gradient.

    Raises:
        ArgumentError: If a shape or dtype is wrong or a concrete scalar out of range.

    Example:
        >>> log_prob, old_log_prob = jnp.log(jnp.array([[0.5, 0.25], [0.25, 0.25]]))
        >>> inputs = log_prob, old_log_prob, jnp.array([1.0, 4.0])
        >>> loss, outputs = rlaxlib.ppo_clip_loss(*inputs, epsilon=0.5)
        >>> print(loss, outputs.ratio, outputs.clipped)
        [-1.5 -4. ] [2. 1.] [ True False]

    References:
        John Schulman and others, *Proximal Policy Optimization Algorithms*, 2017.
        https://arxiv.org/abs/1707.06347

        Deheng Ye and others, *Mastering Complex Control in MOBA Games with Deep
        Reinforcement Learning*, 2019. https://arxiv.org/abs/1912.09729

        Qiying Yu and others, *DAPO: An Open-Source LLM Reinforcement Learning System at
        Scale*, 2025. https://arxiv.org/abs/2503.14476
    """
    old_log_prob, adv = stop_if(stop_target_gradients, (old_log_prob, adv))
    log_ratio = ratios.log_ratio(log_prob, old_log_prob)
    ratio = ratios.ratio(log_ratio)
    low, high = 1 - epsilon, 1 + (epsilon if epsilon_high is None else epsilon_high)
    loss = -_clipped_objective(ratio, adv, low, high, dual_clip)
    clipped = ((adv > 0) & (ratio > high)) | ((adv < 0) & (ratio < low))
    if dual_clip is not None:
        clipped |= (adv < 0) & (ratio > dual_clip)
    return loss, RatioOutputs(log_ratio, ratio, clipped)


@checked
def clipped_surrogate_pg_loss(
    prob_ratios_t: Float[ArrayLike, "T in [0, inf]"],
    adv_t: Float[ArrayLike, "T"],
    epsilon: Float[ArrayLike, "in [0, inf]"],
    use_stop_gradient: bool = True,
) -> Float[Array, ""]:
    """Compute the clipped PPO surrogate loss from probability ratios.

    Takes one trajectory, returns its mean loss.

    ::

        L = -(1/T) ∑_t min(ρ_t Â_t, clip(ρ_t, 1 - ε, 1 + ε) Â_t)

    `ppo_clip_loss` takes log-probabilities, and has further options.

    Args:
        prob_ratios_t: Probability ratios :math:`ρ_t = π(a_t)/π_old(a_t)`, in [0, inf],
            shape `[T]`.
        adv_t: Advantages :math:`Â_t`, shape `[T]`.
        epsilon: Clipping range :math:`ε`, in [0, inf], shape `[]`.
        use_stop_gradient: Whether to stop the gradient of the advantages.

    Returns:
        Loss, shape `[]`. A step of advantage 0 adds 0, even if its ratio is infinite.

    Raises:
        ArgumentError: If a shape or dtype is wrong or a concrete `epsilon` negative.

    Example:
        >>> ratios_t, adv_t = jnp.array([2.0, 0.5]), jnp.array([1.0, 1.0])
        >>> print(rlaxlib.clipped_surrogate_pg_loss(ratios_t, adv_t, epsilon=0.5))
        -1.0

    References:
        John Schulman and others, *Proximal Policy Optimization Algorithms*, 2017.
        https://arxiv.org/abs/1707.06347
    """
    adv_t = stop_if(use_stop_gradient, adv_t)
    low, high = 1 - epsilon, 1 + epsilon
    objective = _clipped_objective(prob_ratios_t, adv_t, low, high)
    return -jnp.mean(safe.unfused(objective))


@checked
def decoupled_ppo_loss(
    log_prob: Float[ArrayLike, "..."],
    old_log_prob: Float[ArrayLike, "..."],
    proximal_log_prob: Float[ArrayLike, "..."],
    adv: Float[ArrayLike, "[] or [...]"],
    epsilon: Float[ArrayLike, "in [0, inf]"] = 0.2,
    epsilon_high: Float[ArrayLike, "in [0, inf]"] | None = None,
    dual_clip: Float[ArrayLike, "in (1, inf]"] | None = None,
    max_weight: Float[ArrayLike, "in (0, inf]"] | None = None,
    *,
    stop_target_gradients: bool = True,
    sample_mask: Bool[ArrayLike, "..."] | None = None,
) -> tuple[Float[Array, "..."], RatioOutputs]:
    """Compute the decoupled PPO loss.

    Takes time steps, returns the loss of each, and diagnostics.

    ::

        L_t = -w_t min(ρ_t Â_t, clip(ρ_t, 1 - ε, 1 + ε_high) Â_t),
        w_t = π_prox(a_t) / π_old(a_t),   ρ_t = π(a_t) / π_prox(a_t)

    The policy stays close to a proximal policy, such as a moving average of the
    parameters, and not to the one that acted, so that experience may be stale. With
    :math:`π_prox = π_old` this is `ppo_clip_loss`. `max_weight` truncates :math:`w_t`
    at :math:`c`.

    Args:
        proximal_log_prob: The same of the proximal policy, shape `[...]`.
        dual_clip: Maximum ratio if :math:`Â_t < 0`, in (1, inf], shape `[]`; or None.
        max_weight: Maximum weight :math:`c`, in (0, inf], shape `[]`; or None.
        stop_target_gradients: Whether `adv` and the other policies get no gradient.
        Other arguments: as `ppo_clip_loss`.

    Returns:
        A tuple of two: losses, shape `[...]`, 0 at ignored steps, and the
        `RatioOutputs` of :math:`ρ_t`.

    Raises:
        ArgumentError: If a shape or dtype is wrong or a concrete scalar out of range.

    Example:
        >>> log_probs_t = jnp.log(jnp.array([[0.5], [0.125], [0.25]]))
        >>> loss, outputs = rlaxlib.decoupled_ppo_loss(*log_probs_t, jnp.ones(1), 0.5)
        >>> print(loss, outputs.ratio)
        [-3.] [2.]

    References:
        Jacob Hilton, Karl Cobbe and John Schulman, *Batch Size-Invariance for Policy
        Optimization*, 2021. https://arxiv.org/abs/2110.00641
    """
    proximal, old = stop_if(stop_target_gradients, (proximal_log_prob, old_log_prob))
    loss, outputs = ppo_clip_loss(
        log_prob=log_prob,
        old_log_prob=proximal,
        adv=adv,
        epsilon=epsilon,
        epsilon_high=epsilon_high,
        dual_clip=dual_clip,
        stop_target_gradients=stop_target_gradients,
        sample_mask=sample_mask,
    )
    weight = ratios.ratio(ratios.log_ratio(proximal, old))
    if max_weight is not None:
        weight = jnp.minimum(weight, max_weight)
    return weight * loss, outputs


@checked
def ppo_value_loss(
    v: Float[ArrayLike, "..."],
    old_v: Float[ArrayLike, "..."],
    targets: Float[ArrayLike, "..."],
    epsilon: Float[ArrayLike, "in [0, inf]"] = 0.2,
    huber_delta: Float[ArrayLike, "in (0, inf)"] | None = None,
    *,
    stop_target_gradients: bool = True,
    sample_mask: Bool[ArrayLike, "..."] | None = None,
) -> tuple[Float[Array, "..."], PpoValueOutputs]:
    """Compute the clipped value loss of PPO.

    Takes time steps, returns the loss of each, and diagnostics.

    ::

        L_t = max(ℓ(v_t - y_t), ℓ(clip(v_t, v_t^old - ε, v_t^old + ε) - y_t)),
        ℓ(x) = ½ x²

    The clip removes the gradient of a value that has moved by more than :math:`ε`
    towards its target. In the comparison of Andrychowicz and others it did not help.

    Args:
        v: Values :math:`v_t`, shape `[...]`.
        old_v: Values :math:`v_t^old` when the experience was gathered, shape `[...]`.
        targets: Targets :math:`y_t`, shape `[...]`.
        epsilon: Clipping range :math:`ε`, in [0, inf], in units of the values,
            shape `[]`.
        huber_delta: `delta` of `huber_loss` as :math:`ℓ`, in (0, inf), shape `[]`; or
            None.
        stop_target_gradients: Whether to stop the gradients of `old_v` and `targets`.
        sample_mask: False for time steps to ignore, shape `[...]`; or None.

    Returns:
        A tuple of two: losses, shape `[...]`, and a `PpoValueOutputs`.

    Raises:
        ArgumentError: If a shape or dtype is wrong or a concrete scalar out of range.

    Example:
        >>> v, old_v, targets = jnp.array([[3.0, 3.0], [0.0, 0.0], [5.0, 0.0]])
        >>> loss, outputs = rlaxlib.ppo_value_loss(v, old_v, targets, epsilon=1.0)
        >>> print(loss, outputs.clipped, outputs.value_outside)
        [8.  4.5] [ True False] [ True  True]

    References:
        Logan Engstrom and others, *Implementation Matters in Deep Policy Gradients: A
        Case Study on PPO and TRPO*, 2020. https://arxiv.org/abs/2005.12729

        Marcin Andrychowicz and others, *What Matters in On-Policy Reinforcement
        Learning? A Large-Scale Empirical Study*, 2020. https://arxiv.org/abs/2006.05990
    """
    old_v, targets = stop_if(stop_target_gradients, (old_v, targets))

    def penalty(error: Array) -> Array:
        if huber_delta is None:
            return losses.l2_loss(error)
        return losses.huber_loss(error, huber_delta)

    near_v = jnp.clip(v, old_v - epsilon, old_v + epsilon)
    loss, near_loss = penalty(v - targets), penalty(near_v - targets)
    outputs = PpoValueOutputs(near_loss > loss, jnp.abs(v - old_v) > epsilon)
    return jnp.maximum(loss, near_loss), outputs


def _clipped_objective(
    ratio: Array, adv: Array, low: Array, high: Array, dual_clip: Array | None = None
) -> Array:
    """Return the clipped PPO objective, `min(ratio adv, clip(ratio, low, high) adv)`.

    An infinite ratio adds nothing to an advantage of 0.

    Args:
        ratio: Probability ratios, `[...]`.
        adv: Advantages, `[...]`.
        low: Lower bound of the ratio, `[]`.
        high: Upper bound of the ratio, `[]`.
        dual_clip: Maximum ratio where the advantage is negative, `[]`; or None.

    Returns:
        Objectives, `[...]`.
    """
    upper = jnp.minimum(ratio, high)
    if dual_clip is not None:
        ratio = jnp.minimum(ratio, dual_clip)
    return adv * jnp.where(adv >= 0, upper, jnp.maximum(ratio, low))
