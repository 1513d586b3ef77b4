"""Policy losses with a penalty in place of PPO's clip: PPO-penalty, SPO and DPO.

Each subtracts a penalty from the importance-weighted advantage: a KL divergence
(PPO-penalty), a quadratic (SPO) or a drift function (DPO). `adaptive_kl_coefficient`
adapts the coefficient of PPO-penalty. As `ppo_clip_loss`, they take log-probabilities
of time steps on any axes, and return one loss a time step, beside diagnostics.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rlaxlib._core import devices, ratios
from rlaxlib._core.gradients import stop_if
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, AxisName, Bool, Float
from rlaxlib.policies._ppo import RatioOutputs

__all__ = [
    "adaptive_kl_coefficient",
    "discovered_policy_loss",
    "ppo_penalty_loss",
    "simple_policy_loss",
]


@checked
def ppo_penalty_loss(
    log_prob: Float[ArrayLike, "..."],
    old_log_prob: Float[ArrayLike, "..."],
    adv: Float[ArrayLike, "[] or [...]"],
    coefficient: Float[ArrayLike, "in [0, inf)"],
    *,
    kl: Float[ArrayLike, "..."] | None = None,
    stop_target_gradients: bool = True,
    sample_mask: Bool[ArrayLike, "..."] | None = None,
) -> tuple[Float[Array, "..."], RatioOutputs]:
    """Compute the PPO loss with a KL penalty (PPO-penalty).

    Takes time steps, returns the loss of each, and diagnostics.

    ::

        L_t = -ρ_t Â_t + β KL(π_old ‖ π)_t,   ρ_t = π(a_t) / π_old(a_t)

    `categorical_kl_divergence` or `multivariate_normal_kl_divergence` compute the KL,
    and `adaptive_kl_coefficient` adapts :math:`β`.

    Args:
        coefficient: Weight :math:`β` of the divergence, in [0, inf), shape `[]`.
        kl: Divergences, shape `[...]`; or None to estimate :math:`ρ_t - 1 - log ρ_t`.
        Other arguments: as `ppo_clip_loss`.

    Returns:
        A tuple of two: losses, shape `[...]`, 0 at ignored steps, and a `RatioOutputs`.

    Raises:
        ArgumentError: If a shape or dtype is wrong or a concrete scalar out of range.

    Example:
        >>> log_prob, old_log_prob = jnp.log(jnp.array([[0.5], [0.25]]))
        >>> inputs = log_prob, old_log_prob, jnp.array([1.0]), 3.0
        >>> loss, outputs = rlaxlib.ppo_penalty_loss(*inputs, kl=jnp.array([0.5]))
        >>> print(loss, outputs.ratio)
        [-0.5] [2.]

    References:
        John Schulman and others, *Proximal Policy Optimization Algorithms*, section 4,
        2017. https://arxiv.org/abs/1707.06347
    """
    old_log_prob, adv = stop_if(stop_target_gradients, (old_log_prob, adv))
    outputs = _compare(log_prob, old_log_prob)
    if kl is None:
        kl = ratios.k3(outputs.log_ratio)
    return coefficient * kl - outputs.ratio * adv, outputs


@checked
def adaptive_kl_coefficient(
    coefficient: Float[ArrayLike, "in [0, inf)"],
    kl: Float[ArrayLike, ""],
    target: Float[ArrayLike, "in (0, inf)"],
    tolerance: Float[ArrayLike, "in [1, inf)"] = 1.5,
    factor: Float[ArrayLike, "in [1, inf)"] = 2.0,
    minimum: Float[ArrayLike, "in [0, inf)"] = 1e-6,
    maximum: Float[ArrayLike, "in [minimum, inf]"] = 1e4,
    *,
    axis_name: AxisName | None = None,
) -> Float[Array, "like coefficient"]:
    """Adapt the coefficient of a KL penalty to a target KL (PPO-penalty).

    Takes the coefficient and mean divergence of one update, returns the next
    coefficient.

    ::

        β' = { 2 β   if KL > 1.5 d
             { ½ β   if KL < d/1.5
             { β     otherwise

    The result is clipped to bounds: without them, some 130 changes in one direction end
    at 0 or infinity, which no factor changes. Call it after the last epoch of
    an update. A coefficient of 0 stays 0.

    Args:
        coefficient: Coefficient :math:`β`, in [0, inf), shape `[]`.
        kl: Mean KL(policy before ‖ after the update), shape `[]`.
        target: Target divergence :math:`d`, in (0, inf), shape `[]`.
        tolerance: Tolerated ratio of KL and target, in [1, inf), 1.5 in the equation,
            shape `[]`.
        factor: Factor of a change, in [1, inf), 2 in the equation, shape `[]`.
        minimum: Lower bound of a coefficient that is not 0, in [0, inf), shape `[]`.
        maximum: Upper bound of the coefficient, in [`minimum`, inf], shape `[]`.
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
    kl = devices.mean(kl, axis_name)
    lowered = jnp.where(kl < target / tolerance, coefficient / factor, coefficient)
    changed = jnp.where(kl > target * tolerance, coefficient * factor, lowered)
    return jnp.where(coefficient == 0, 0, jnp.clip(changed, minimum, maximum))


@checked
def simple_policy_loss(
    log_prob: Float[ArrayLike, "..."],
    old_log_prob: Float[ArrayLike, "..."],
    adv: Float[ArrayLike, "[] or [...]"],
    epsilon: Float[ArrayLike, "in (0, inf]"] = 0.2,
    *,
    stop_target_gradients: bool = True,
    sample_mask: Bool[ArrayLike, "..."] | None = None,
) -> tuple[Float[Array, "..."], RatioOutputs]:
    """Compute the Simple Policy Optimization (SPO) loss.

    Takes time steps, returns the loss of each, and diagnostics.

    ::

        L_t = -[ρ_t Â_t - (|Â_t| / (2 ε)) (ρ_t - 1)²],
        ρ_t = π(a_t) / π_old(a_t)

    The loss is minimal at :math:`ρ_t = 1 + ε` for a positive advantage, and at
    :math:`1 - ε` for a negative one. Beyond, unlike in PPO, the gradient is not 0.

    Args:
        epsilon: Distance :math:`ε` of the best ratio from 1, in (0, inf], shape `[]`.
        Other arguments: as `ppo_clip_loss`.

    Returns:
        A tuple of two: losses, shape `[...]`, 0 at ignored steps, and a `RatioOutputs`.

    Raises:
        ArgumentError: If a shape or dtype is wrong or a concrete scalar out of range.

    Example:
        >>> log_probs_t = jnp.log(jnp.array([[0.5], [0.25]]))
        >>> loss, outputs = rlaxlib.simple_policy_loss(*log_probs_t, jnp.ones(1), 0.25)
        >>> print(loss, outputs.ratio)
        [0.] [2.]

    References:
        Zhengpeng Xie and others, *Simple Policy Optimization*, 2024.
        https://arxiv.org/abs/2401.16025
    """
    old_log_prob, adv = stop_if(stop_target_gradients, (old_log_prob, adv))
    outputs = _compare(log_prob, old_log_prob)
    ratio = outputs.ratio
    penalty = jnp.abs(adv) / (2 * epsilon) * jnp.square(ratio - 1)
    return penalty - ratio * adv, outputs


@checked
def discovered_policy_loss(
    log_prob: Float[ArrayLike, "..."],
    old_log_prob: Float[ArrayLike, "..."],
    adv: Float[ArrayLike, "[] or [...]"],
    alpha: Float[ArrayLike, "in (0, inf)"] = 2.0,
    beta: Float[ArrayLike, "in (0, inf)"] = 0.6,
    *,
    stop_target_gradients: bool = True,
    sample_mask: Bool[ArrayLike, "..."] | None = None,
) -> tuple[Float[Array, "..."], RatioOutputs]:
    """Compute the Discovered Policy Optimisation (DPO) loss.

    Takes time steps, returns the loss of each, and diagnostics.

    ::

        L_t = -(ρ_t Â_t - f(ρ_t, Â_t)),
        f = { [(ρ_t - 1) Â_t - α tanh((ρ_t - 1) Â_t/α)]⁺   if Â_t ≥ 0
            { [Â_t log ρ_t - β tanh(Â_t log ρ_t/β)]⁺       otherwise

    The drift :math:`f` is a smooth counterpart of PPO's clip, which was meta-learned.
    This is not direct preference optimisation.

    Args:
        adv: Advantage :math:`Â_t` of all steps, or of each, standardised for the
            defaults, shape `[]` or `[...]`.
        alpha: Threshold :math:`α` if :math:`Â_t ≥ 0`, in (0, inf), shape `[]`.
        beta: Threshold :math:`β` if :math:`Â_t < 0`, in (0, inf), shape `[]`.
        Other arguments: as `ppo_clip_loss`.

    Returns:
        A tuple of two: losses, shape `[...]`, 0 at ignored steps, and a `RatioOutputs`.

    Raises:
        ArgumentError: If a shape or dtype is wrong or a concrete scalar out of range.

    Example:
        >>> log_prob, old_log_prob = jnp.log(jnp.array([[0.5, 0.5], [0.25, 0.25]]))
        >>> adv = jnp.array([16.0, -1.0])
        >>> loss, _ = rlaxlib.discovered_policy_loss(log_prob, old_log_prob, adv)
        >>> print(loss)  # The drift of the first step is 16 - 2 tanh(8).
        [-18.   2.]

    References:
        Chris Lu and others, *Discovered Policy Optimisation*, 2022.
        https://arxiv.org/abs/2210.05639
    """
    old_log_prob, adv = stop_if(stop_target_gradients, (old_log_prob, adv))
    outputs = _compare(log_prob, old_log_prob)
    ratio, positive = outputs.ratio, adv >= 0
    x = adv * jnp.where(positive, ratio - 1, outputs.log_ratio)
    threshold = jnp.where(positive, alpha, beta)
    drift = jax.nn.relu(x - threshold * jnp.tanh(x / threshold))
    return drift - ratio * adv, outputs


def _compare(log_prob: Array, old_log_prob: Array) -> RatioOutputs:
    """Return log-ratios, and the statistics that follow from them."""
    x = ratios.log_ratio(log_prob, old_log_prob)
    return RatioOutputs(x, ratios.ratio(x), x > ratios.BOUND)
