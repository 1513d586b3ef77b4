"""Improve a policy on experience that an earlier one gathered, penalised if it strays.

These are what one may take in place of PPO's clip, `ppo_clip_loss`. They too take
log-probabilities and return one loss a step, and beside it what one should watch.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib._core import checks, devices, dtypes
from rlaxlib._core.devices import AxisName
from rlaxlib.policies import _ratios
from rlaxlib.policies._ratios import RatioOutputs

__all__ = [
    "RatioOutputs",
    "adaptive_kl_coefficient",
    "discovered_policy_loss",
    "ppo_penalty_loss",
    "simple_policy_loss",
]


def ppo_penalty_loss(
    log_prob_t: ArrayLike,
    old_log_prob_t: ArrayLike,
    adv_t: ArrayLike,
    kl_t: ArrayLike | None,
    coefficient: ArrayLike,
    log_ratio_bound: ArrayLike = 20.0,
    *,
    use_stop_gradient: bool = True,
    sample_mask: ArrayLike | None = None,
) -> tuple[Array, RatioOutputs]:
    """Improve a policy on old experience, and pay for its divergence (PPO-penalty).

    .. math::

        L_t = -ρ_t Â_t + β KL(π_old ‖ π)_t,   ρ_t = π(a_t) / π_old(a_t)

    The divergence is of the new policy **from the old**, whose actions these are. Give
    it where it can be computed, as `categorical_kl_divergence` and
    `multivariate_normal_kl_divergence` do, the old policy first. Else it is estimated
    from the actions taken, by :math:`ρ_t - 1 - log ρ_t`, which is right on average,
    never negative, and 0 with no slope where the policies agree.
    `adaptive_kl_coefficient` finds a :math:`β`.

    Args:
        log_prob_t: Log-probabilities, or log-densities, of the actions taken, under the
            policy that learns, shape `[T]`.
        old_log_prob_t: The same under the policy that took them, shape `[T]`.
        adv_t: Advantages :math:`Â_t` of those actions, shape `[T]`.
        kl_t: Divergences, shape `[T]`; or None to estimate them.
        coefficient: Weight :math:`β` of the divergence, at least 0, shape `[]`.
        log_ratio_bound: Largest size of :math:`log ρ_t`, more than 0: beyond it the
            ratio is constant, so that it never overflows, shape `[]`.
        use_stop_gradient: Whether to hold the advantages and the old log-probabilities
            constant under differentiation.
        sample_mask: False where a row is no decision of the agent, shape `[T]`; or None
            if all are. Whatever stands there, its loss is 0 and its ratio 1.

    Returns:
        A tuple of two: losses, shape `[T]`, and a `RatioOutputs`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if a number is
            out of its range.

    Example:
        >>> log_prob_t, adv_t = jnp.log(jnp.array([0.5])), jnp.array([1.0])
        >>> old_log_prob_t, kl_t = jnp.log(jnp.array([0.25])), jnp.array([0.5])
        >>> loss, outputs = rlaxlib.ppo_penalty_loss(
        ...     log_prob_t, old_log_prob_t, adv_t, kl_t, coefficient=3.0
        ... )
        >>> print(loss, outputs.ratio)
        [-0.5] [2.]

    References:
        John Schulman, Filip Wolski, Prafulla Dhariwal, Alec Radford and Oleg Klimov,
        *Proximal Policy Optimization Algorithms*, section 4, 2017.
        https://arxiv.org/abs/1707.06347

        John Schulman, *Approximating KL Divergence*, 2020.
        http://joschu.net/blog/kl-approx.html
    """
    log_prob_t, old_log_prob_t, adv_t, kl_t, coefficient, bound, mask = checks.arrays(
        log_prob_t=(log_prob_t, "float[T]"),
        old_log_prob_t=(old_log_prob_t, "float[T]"),
        adv_t=(adv_t, "float[T]"),
        kl_t=(kl_t, "float[T] or None"),
        coefficient=(coefficient, "float[]"),
        log_ratio_bound=(log_ratio_bound, "float[]"),
        sample_mask=(sample_mask, "bool[T] or None"),
    )
    checks.within("[0, inf)", coefficient=coefficient)
    checks.within("(0, inf]", log_ratio_bound=bound)
    (log_prob_t, old_log_prob_t, adv_t, kl_t, coefficient, bound), narrow = (
        dtypes.widen(log_prob_t, old_log_prob_t, adv_t, kl_t, coefficient, bound)
    )
    log_prob_t, old_log_prob_t, adv_t = _ratios.hold(
        use_stop_gradient, mask, log_prob_t, old_log_prob_t, adv_t
    )
    _, outputs = _ratios.compare(log_prob_t, old_log_prob_t, bound)
    if kl_t is None:
        kl_t = outputs.approximate_kl
    else:
        (kl_t,) = _ratios.hold(False, mask, kl_t)
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
    """Raise the price of a divergence that is too large, and lower it if too small.

    .. math::

        β' = { 2 β   if KL > 1.5 d
             { ½ β   if KL < d/1.5
             { β     otherwise

    Do so once after each policy update, that is, after all its epochs, with the mean
    divergence over the whole batch; then take the new coefficient for the next. What
    the first one is hardly matters, unless it is 0, which stays 0. RLlib multiplies by
    1.5 above twice the target, and by a half below half of it; the numbers here are the
    paper's.

    Args:
        coefficient: Coefficient :math:`β`, at least 0, shape `[]`.
        kl: Mean divergence of the policy from that before the update, shape `[]`. If it
            is not a number, the coefficient stays as it is.
        target: Divergence :math:`d` to aim at, more than 0, shape `[]`.
        tolerance: How many times too large or too small the divergence may be, at least
            1, shape `[]`.
        factor: What the coefficient is multiplied by, or divided, at least 1,
            shape `[]`.
        axis_name: Name of the axis, or axes, that devices form, if each has the mean of
            its own part of the batch, the parts being of one size; or None.

    Returns:
        Next coefficient, shape `[]`; the same on all devices.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if a number is
            out of its range.

    Example:
        >>> for kl in (0.25, 1.0, 4.0):
        ...     print(rlaxlib.adaptive_kl_coefficient(8.0, kl, target=1.0))
        4.0
        8.0
        16.0

    References:
        John Schulman, Filip Wolski, Prafulla Dhariwal, Alec Radford and Oleg Klimov,
        *Proximal Policy Optimization Algorithms*, section 4, 2017.
        https://arxiv.org/abs/1707.06347
    """
    coefficient, kl, target, tolerance, factor = checks.arrays(
        coefficient=(coefficient, "float[]"),
        kl=(kl, "float[]"),
        target=(target, "float[]"),
        tolerance=(tolerance, "float[]"),
        factor=(factor, "float[]"),
    )
    checks.within("[0, inf)", coefficient=coefficient)
    checks.within("(0, inf)", target=target)
    checks.within("[1, inf)", tolerance=tolerance, factor=factor)
    (coefficient, kl, target, tolerance, factor), narrow = dtypes.widen(
        coefficient, kl, target, tolerance, factor
    )
    mean = devices.total(kl, axis_name) / devices.number(axis_name)
    raised, lowered = coefficient * factor, coefficient / factor
    kept = jnp.where(mean * tolerance < target, lowered, coefficient)
    return narrow(jnp.where(mean > target * tolerance, raised, kept))


def simple_policy_loss(
    log_prob_t: ArrayLike,
    old_log_prob_t: ArrayLike,
    adv_t: ArrayLike,
    epsilon: ArrayLike = 0.2,
    log_ratio_bound: ArrayLike = 20.0,
    *,
    use_stop_gradient: bool = True,
    sample_mask: ArrayLike | None = None,
) -> tuple[Array, RatioOutputs]:
    """Draw each ratio to the bound that PPO clips it at (simple policy optimisation).

    .. math::

        L_t = -[ρ_t Â_t - (|Â_t| / (2 ε)) (ρ_t - 1)²],
        ρ_t = π(a_t) / π_old(a_t)

    The loss of a step is lowest at :math:`ρ_t = 1 + ε` if its advantage is positive,
    and at :math:`1 - ε` if it is negative. PPO has no gradient beyond these, and other
    steps of a batch carry ratios far across; here the gradient turns, and brings them
    back.

    Sequential Monte Carlo policy optimisation, which goes by the same three letters, is
    something else.

    Args:
        log_prob_t: Log-probabilities, or log-densities, of the actions taken, under the
            policy that learns, shape `[T]`.
        old_log_prob_t: The same under the policy that took them, shape `[T]`.
        adv_t: Advantages :math:`Â_t` of those actions, shape `[T]`.
        epsilon: How far from 1 a ratio is best, more than 0, shape `[]`.
        log_ratio_bound: Largest size of :math:`log ρ_t`, more than 0: beyond it the
            ratio is constant, so that it never overflows, shape `[]`.
        use_stop_gradient: Whether to hold the advantages and the old log-probabilities
            constant under differentiation.
        sample_mask: False where a row is no decision of the agent, shape `[T]`; or None
            if all are. Whatever stands there, its loss is 0 and its ratio 1.

    Returns:
        A tuple of two: losses, shape `[T]`, and a `RatioOutputs`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if a number is
            out of its range.

    Example:
        >>> log_prob_t, adv_t = jnp.log(jnp.array([0.5])), jnp.array([1.0])
        >>> old_log_prob_t = jnp.log(jnp.array([0.25]))
        >>> loss, outputs = rlaxlib.simple_policy_loss(
        ...     log_prob_t, old_log_prob_t, adv_t, epsilon=0.25
        ... )
        >>> print(loss, outputs.ratio)
        [0.] [2.]

    References:
        Zhengpeng Xie, Qiang Zhang, Fan Yang, Marco Hutter and Renjing Xu, *Simple
        Policy Optimization*, 2024. https://arxiv.org/abs/2401.16025
    """
    log_prob_t, old_log_prob_t, adv_t, epsilon, bound, mask = checks.arrays(
        log_prob_t=(log_prob_t, "float[T]"),
        old_log_prob_t=(old_log_prob_t, "float[T]"),
        adv_t=(adv_t, "float[T]"),
        epsilon=(epsilon, "float[]"),
        log_ratio_bound=(log_ratio_bound, "float[]"),
        sample_mask=(sample_mask, "bool[T] or None"),
    )
    checks.within("(0, inf)", epsilon=epsilon)
    checks.within("(0, inf]", log_ratio_bound=bound)
    (log_prob_t, old_log_prob_t, adv_t, epsilon, bound), narrow = dtypes.widen(
        log_prob_t, old_log_prob_t, adv_t, epsilon, bound
    )
    log_prob_t, old_log_prob_t, adv_t = _ratios.hold(
        use_stop_gradient, mask, log_prob_t, old_log_prob_t, adv_t
    )
    _, outputs = _ratios.compare(log_prob_t, old_log_prob_t, bound)
    penalty = 0.5 / epsilon * jnp.abs(adv_t) * jnp.square(outputs.ratio - 1)
    return narrow((penalty - outputs.ratio * adv_t, outputs))


def discovered_policy_loss(
    log_prob_t: ArrayLike,
    old_log_prob_t: ArrayLike,
    adv_t: ArrayLike,
    alpha: ArrayLike = 2.0,
    beta: ArrayLike = 0.6,
    log_ratio_bound: ArrayLike = 20.0,
    *,
    use_stop_gradient: bool = True,
    sample_mask: ArrayLike | None = None,
) -> tuple[Array, RatioOutputs]:
    """Improve a policy by a loss that was discovered, not designed.

    .. math::

        L_t = -(ρ_t Â_t - f(ρ_t, Â_t)),
        f = { [(ρ_t - 1) Â_t - α tanh((ρ_t - 1) Â_t/α)]⁺   if Â_t ≥ 0
            { [Â_t log ρ_t - β tanh(Â_t log ρ_t/β)]⁺       otherwise

    The drift :math:`f` does what PPO's clip does, but smoothly, and more the larger the
    advantage. The paper meta-learned a network in its place, and found this formula in
    what the network did. :math:`α` and :math:`β` are for advantages that are
    standardised. Direct preference optimisation, which goes by the same three letters,
    is something else.

    Args:
        log_prob_t: Log-probabilities, or log-densities, of the actions taken, under the
            policy that learns, shape `[T]`.
        old_log_prob_t: The same under the policy that took them, shape `[T]`.
        adv_t: Advantages :math:`Â_t` of those actions, shape `[T]`.
        alpha: How much :math:`α` may be gained freely where the advantage is not
            negative, more than 0, shape `[]`.
        beta: The same where it is negative, :math:`β`, more than 0, shape `[]`.
        log_ratio_bound: Largest size of :math:`log ρ_t`, more than 0: beyond it the
            ratio is constant, so that it never overflows, shape `[]`.
        use_stop_gradient: Whether to hold the advantages and the old log-probabilities
            constant under differentiation.
        sample_mask: False where a row is no decision of the agent, shape `[T]`; or None
            if all are. Whatever stands there, its loss is 0 and its ratio 1.

    Returns:
        A tuple of two: losses, shape `[T]`, and a `RatioOutputs`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if a number is
            out of its range.

    Example:
        >>> log_prob_t, adv_t = jnp.log(jnp.array([0.5, 0.5])), jnp.array([16.0, -1.0])
        >>> old_log_prob_t = jnp.log(jnp.array([0.25, 0.25]))
        >>> loss, outputs = rlaxlib.discovered_policy_loss(
        ...     log_prob_t, old_log_prob_t, adv_t, alpha=2.0
        ... )
        >>> print(loss)  # The first gains 16, of which only 2 are free.
        [-18.   2.]

    References:
        Chris Lu, Jakub Grudzien Kuba, Alistair Letcher, Luke Metz, Christian Schroeder
        de Witt and Jakob Foerster, *Discovered Policy Optimisation*, 2022.
        https://arxiv.org/abs/2210.05639
    """
    log_prob_t, old_log_prob_t, adv_t, alpha, beta, bound, mask = checks.arrays(
        log_prob_t=(log_prob_t, "float[T]"),
        old_log_prob_t=(old_log_prob_t, "float[T]"),
        adv_t=(adv_t, "float[T]"),
        alpha=(alpha, "float[]"),
        beta=(beta, "float[]"),
        log_ratio_bound=(log_ratio_bound, "float[]"),
        sample_mask=(sample_mask, "bool[T] or None"),
    )
    checks.within("(0, inf)", alpha=alpha, beta=beta)
    checks.within("(0, inf]", log_ratio_bound=bound)
    (log_prob_t, old_log_prob_t, adv_t, alpha, beta, bound), narrow = dtypes.widen(
        log_prob_t, old_log_prob_t, adv_t, alpha, beta, bound
    )
    log_prob_t, old_log_prob_t, adv_t = _ratios.hold(
        use_stop_gradient, mask, log_prob_t, old_log_prob_t, adv_t
    )
    log_ratio, outputs = _ratios.compare(log_prob_t, old_log_prob_t, bound)
    good = adv_t >= 0
    gain = adv_t * jnp.where(good, outputs.ratio - 1, log_ratio)
    free = jnp.where(good, alpha, beta)
    drift = jnp.maximum(gain - free * jnp.tanh(gain / free), 0.0)
    return narrow((drift - outputs.ratio * adv_t, outputs))
