"""Policy losses with a penalty in place of PPO's clip: PPO-penalty, SPO and DPO.

Each subtracts a penalty from the importance-weighted advantage: a KL divergence
(PPO-penalty), a quadratic (SPO) or a drift function (DPO). `adaptive_kl_coefficient`
adapts the coefficient of PPO-penalty. As `ppo_clip_loss`, they take log-probabilities
and return one loss a time step, beside diagnostics.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib._core import checks, streams
from rlaxlib._core.devices import AxisName
from rlaxlib.policies._ppo import bounded_log_ratio, prepare

__all__ = [
    "RatioOutputs",
    "adaptive_kl_coefficient",
    "discovered_policy_loss",
    "ppo_penalty_loss",
    "spo_loss",
]


class RatioOutputs(NamedTuple):
    """Diagnostics of a policy update: ratios and approximate KL.

    Attributes:
        log_ratio: Bounded log-ratios :math:`log ρ_t`, for diagnostics, shape `[T]`.
        ratio: Ratios :math:`ρ_t = π(a_t)/π_old(a_t)`, 1 at ignored steps, shape `[T]`.
        bounded: True where :math:`log ρ_t` exceeds its bound: no gradient, shape `[T]`.
        approximate_kl: Estimates :math:`ρ_t - 1 - log ρ_t` of the KL, shape `[T]`.
    """

    log_ratio: Array
    ratio: Array
    bounded: Array
    approximate_kl: Array


def ppo_penalty_loss(
    log_prob_t: ArrayLike,
    old_log_prob_t: ArrayLike,
    adv_t: ArrayLike,
    kl_t: ArrayLike | None,
    coefficient: ArrayLike,
    log_ratio_bound: ArrayLike = 20.0,
    *,
    stop_target_gradients: bool = True,
    sample_mask: ArrayLike | None = None,
) -> tuple[Array, RatioOutputs]:
    """Compute the PPO loss with a KL penalty (PPO-penalty).

    Takes one trajectory, returns the loss of each time step, and diagnostics.

    .. math:: L_t = -ρ_t Â_t + β KL(π_old ‖ π)_t,   ρ_t = π(a_t) / π_old(a_t)

    `categorical_kl_divergence` or `multivariate_normal_kl_divergence` compute the KL,
    and `adaptive_kl_coefficient` adapts :math:`β`.

    Args:
        log_prob_t: Log-probabilities or log-densities :math:`log π(a_t)`, shape `[T]`.
        old_log_prob_t: The same of :math:`π_old`, the policy that acted, shape `[T]`.
        adv_t: Advantages :math:`Â_t`, shape `[T]`.
        kl_t: Divergences, shape `[T]`; or None for :math:`ρ_t - 1 - log ρ_t`, unbiased.
        coefficient: Weight :math:`β` of the divergence, at least 0, shape `[]`.
        log_ratio_bound: Bound of :math:`|log ρ_t|` against overflow, shape `[]`.
        stop_target_gradients: Whether `old_log_prob_t` and `adv_t` get no gradient.
        sample_mask: False for time steps to ignore, shape `[T]`; or None.

    Returns:
        A tuple of two: losses, shape `[T]`, 0 at ignored steps, and a `RatioOutputs`.

    Raises:
        ArgumentError: If a shape or dtype is wrong or a concrete scalar out of range.

    Example:
        >>> log_prob_t, old_log_prob_t = jnp.log(jnp.array([[0.5], [0.25]]))
        >>> inputs = log_prob_t, old_log_prob_t, jnp.array([1.0]), jnp.array([0.5])
        >>> loss, outputs = rlaxlib.ppo_penalty_loss(*inputs, coefficient=3.0)
        >>> print(loss, outputs.ratio)
        [-0.5] [2.]

    References:
        John Schulman and others, *Proximal Policy Optimization Algorithms*, section 4,
        2017. https://arxiv.org/abs/1707.06347
    """
    log_prob_t, old_log_prob_t, adv_t, kl_t, coefficient, bound, mask, narrow = (
        checks.widened(
            log_prob_t=(log_prob_t, "float[T]"),
            old_log_prob_t=(old_log_prob_t, "float[T]"),
            adv_t=(adv_t, "float[T]"),
            kl_t=(kl_t, "float[T] or None"),
            coefficient=(coefficient, "float[] in [0, inf)"),
            log_ratio_bound=(log_ratio_bound, "float[] in (0, inf]"),
            sample_mask=(sample_mask, "bool[T] or None"),
        )
    )
    log_prob_t, old_log_prob_t, adv_t = prepare(
        stop_target_gradients, mask, log_prob_t, old_log_prob_t, adv_t
    )
    outputs = _compare(log_prob_t, old_log_prob_t, bound)
    kl_t = outputs.approximate_kl if kl_t is None else streams.valid(kl_t, mask)
    return narrow((coefficient * kl_t - outputs.ratio * adv_t, outputs))


def adaptive_kl_coefficient(
    coefficient: ArrayLike,
    kl: ArrayLike,
    target: ArrayLike,
    *,
    tolerance: ArrayLike = 1.5,
    factor: ArrayLike = 2.0,
    axis_name: AxisName | None = None,
) -> Array:
    """Adapt the coefficient of a KL penalty to a target KL (PPO-penalty).

    Takes the coefficient and mean divergence of one update, returns the next
    coefficient.

    .. math::

        β' = { 2 β   if KL > 1.5 d
             { ½ β   if KL < d/1.5
             { β     otherwise

    Call it after the last epoch of an update. A coefficient of 0 stays 0.

    Args:
        coefficient: Coefficient :math:`β`, at least 0, shape `[]`.
        kl: Mean KL(policy before ‖ after the update), shape `[]`. NaN changes nothing.
        target: Target divergence :math:`d`, more than 0, shape `[]`.
        tolerance: Tolerated ratio of KL and target, 1.5 in the equation, shape `[]`.
        factor: Factor of a change, 2 in the equation, shape `[]`.
        axis_name: Mapped axis name, or names, to average the divergence over; or None.

    Returns:
        Next coefficient, shape `[]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong or a concrete scalar out of range.

    Example:
        >>> adapt = rlaxlib.adaptive_kl_coefficient
        >>> print(*(adapt(8.0, kl, target=1.0) for kl in (0.25, 1.0, 4.0)))
        4.0 8.0 16.0

    References:
        John Schulman and others, *Proximal Policy Optimization Algorithms*, section 4,
        2017. https://arxiv.org/abs/1707.06347
    """
    coefficient, kl, target, tolerance, factor, narrow = checks.widened(
        coefficient=(coefficient, "float[] in [0, inf)"),
        kl=(kl, "float[]"),
        target=(target, "float[] in (0, inf)"),
        tolerance=(tolerance, "float[] in [1, inf)"),
        factor=(factor, "float[] in [1, inf)"),
    )
    kl = kl if axis_name is None else jax.lax.pmean(kl, axis_name)
    lowered = jnp.where(kl < target / tolerance, coefficient / factor, coefficient)
    return narrow(jnp.where(kl > target * tolerance, coefficient * factor, lowered))


def spo_loss(
    log_prob_t: ArrayLike,
    old_log_prob_t: ArrayLike,
    adv_t: ArrayLike,
    epsilon: ArrayLike = 0.2,
    log_ratio_bound: ArrayLike = 20.0,
    *,
    stop_target_gradients: bool = True,
    sample_mask: ArrayLike | None = None,
) -> tuple[Array, RatioOutputs]:
    """Compute the Simple Policy Optimization (SPO) loss.

    Takes one trajectory, returns the loss of each time step, and diagnostics.

    .. math::

        L_t = -[ρ_t Â_t - (|Â_t| / (2 ε)) (ρ_t - 1)²],
        ρ_t = π(a_t) / π_old(a_t)

    The loss is minimal at :math:`ρ_t = 1 + ε` for a positive advantage, and at
    :math:`1 - ε` for a negative one. Beyond, unlike in PPO, the gradient is not 0.

    Args:
        log_prob_t: Log-probabilities or log-densities :math:`log π(a_t)`, shape `[T]`.
        old_log_prob_t: The same of :math:`π_old`, the policy that acted, shape `[T]`.
        adv_t: Advantages :math:`Â_t`, shape `[T]`.
        epsilon: Distance :math:`ε` of the best ratio from 1, more than 0, shape `[]`.
        log_ratio_bound: Bound of :math:`|log ρ_t|` against overflow, shape `[]`.
        stop_target_gradients: Whether `old_log_prob_t` and `adv_t` get no gradient.
        sample_mask: False for time steps to ignore, shape `[T]`; or None.

    Returns:
        A tuple of two: losses, shape `[T]`, 0 at ignored steps, and a `RatioOutputs`.

    Raises:
        ArgumentError: If a shape or dtype is wrong or a concrete scalar out of range.

    Example:
        >>> log_probs_t = jnp.log(jnp.array([[0.5], [0.25]]))
        >>> loss, outputs = rlaxlib.spo_loss(*log_probs_t, jnp.ones(1), epsilon=0.25)
        >>> print(loss, outputs.ratio)
        [0.] [2.]

    References:
        Zhengpeng Xie and others, *Simple Policy Optimization*, 2024.
        https://arxiv.org/abs/2401.16025
    """
    log_prob_t, old_log_prob_t, adv_t, epsilon, bound, mask, narrow = checks.widened(
        log_prob_t=(log_prob_t, "float[T]"),
        old_log_prob_t=(old_log_prob_t, "float[T]"),
        adv_t=(adv_t, "float[T]"),
        epsilon=(epsilon, "float[] in (0, inf)"),
        log_ratio_bound=(log_ratio_bound, "float[] in (0, inf]"),
        sample_mask=(sample_mask, "bool[T] or None"),
    )
    log_prob_t, old_log_prob_t, adv_t = prepare(
        stop_target_gradients, mask, log_prob_t, old_log_prob_t, adv_t
    )
    outputs = _compare(log_prob_t, old_log_prob_t, bound)
    ratio = outputs.ratio
    penalty = jnp.abs(adv_t) / (2 * epsilon) * jnp.square(ratio - 1)
    return narrow((penalty - ratio * adv_t, outputs))


def discovered_policy_loss(
    log_prob_t: ArrayLike,
    old_log_prob_t: ArrayLike,
    adv_t: ArrayLike,
    alpha: ArrayLike = 2.0,
    beta: ArrayLike = 0.6,
    log_ratio_bound: ArrayLike = 20.0,
    *,
    stop_target_gradients: bool = True,
    sample_mask: ArrayLike | None = None,
) -> tuple[Array, RatioOutputs]:
    """Compute the Discovered Policy Optimisation (DPO) loss.

    Takes one trajectory, returns the loss of each time step, and diagnostics.

    .. math::

        L_t = -(ρ_t Â_t - f(ρ_t, Â_t)),
        f = { [(ρ_t - 1) Â_t - α tanh((ρ_t - 1) Â_t/α)]⁺   if Â_t ≥ 0
            { [Â_t log ρ_t - β tanh(Â_t log ρ_t/β)]⁺       otherwise

    The drift :math:`f` is a smooth counterpart of PPO's clip, which was meta-learned.
    This is not direct preference optimisation.

    Args:
        log_prob_t: Log-probabilities or log-densities :math:`log π(a_t)`, shape `[T]`.
        old_log_prob_t: The same of :math:`π_old`, the policy that acted, shape `[T]`.
        adv_t: Advantages :math:`Â_t`; the defaults suit standardised ones, shape `[T]`.
        alpha: Threshold :math:`α` if :math:`Â_t ≥ 0`, positive, shape `[]`.
        beta: Threshold :math:`β` if :math:`Â_t < 0`, positive, shape `[]`.
        log_ratio_bound: Bound of :math:`|log ρ_t|` against overflow, shape `[]`.
        stop_target_gradients: Whether `old_log_prob_t` and `adv_t` get no gradient.
        sample_mask: False for time steps to ignore, shape `[T]`; or None.

    Returns:
        A tuple of two: losses, shape `[T]`, 0 at ignored steps, and a `RatioOutputs`.

    Raises:
        ArgumentError: If a shape or dtype is wrong or a concrete scalar out of range.

    Example:
        >>> log_prob_t, old_log_prob_t = jnp.log(jnp.array([[0.5, 0.5], [0.25, 0.25]]))
        >>> adv_t = jnp.array([16.0, -1.0])
        >>> loss, _ = rlaxlib.discovered_policy_loss(log_prob_t, old_log_prob_t, adv_t)
        >>> print(loss)  # The drift of the first step is 16 - 2 tanh(8).
        [-18.   2.]

    References:
        Chris Lu and others, *Discovered Policy Optimisation*, 2022.
        https://arxiv.org/abs/2210.05639
    """
    log_prob_t, old_log_prob_t, adv_t, alpha, beta, bound, mask, narrow = (
        checks.widened(
            log_prob_t=(log_prob_t, "float[T]"),
            old_log_prob_t=(old_log_prob_t, "float[T]"),
            adv_t=(adv_t, "float[T]"),
            alpha=(alpha, "float[] in (0, inf)"),
            beta=(beta, "float[] in (0, inf)"),
            log_ratio_bound=(log_ratio_bound, "float[] in (0, inf]"),
            sample_mask=(sample_mask, "bool[T] or None"),
        )
    )
    log_prob_t, old_log_prob_t, adv_t = prepare(
        stop_target_gradients, mask, log_prob_t, old_log_prob_t, adv_t
    )
    outputs = _compare(log_prob_t, old_log_prob_t, bound)
    ratio, positive = outputs.ratio, adv_t >= 0
    x = adv_t * jnp.where(positive, ratio - 1, outputs.log_ratio)
    threshold = jnp.where(positive, alpha, beta)
    drift = jax.nn.relu(x - threshold * jnp.tanh(x / threshold))
    return narrow((drift - ratio * adv_t, outputs))


def _compare(log_prob: Array, old_log_prob: Array, bound: Array) -> RatioOutputs:
    """Return log-ratios, and the diagnostics that follow from them."""
    log_ratio, bounded = bounded_log_ratio(log_prob, old_log_prob, bound)
    kl = jnp.expm1(log_ratio) - log_ratio
    return RatioOutputs(log_ratio, jnp.exp(log_ratio), bounded, kl)
