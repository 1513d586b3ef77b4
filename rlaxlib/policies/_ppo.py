"""Improve a policy on experience that an earlier one gathered, up to a bound.

These functions take log-probabilities, not ratios, and return one loss a step, to be
averaged, with a mask if some steps do not count: see `masked_mean`. Beside it comes
what one should watch. `clipped_surrogate_pg_loss` is the plain form, of rlax.

Advantages are taken as they are. PPO standardises them over a batch: see `standardize`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib import losses
from rlaxlib._core import checks, dtypes
from rlaxlib.policies import _ratios

__all__ = [
    "ClippedValueOutputs",
    "DecoupledPpoOutputs",
    "PpoOutputs",
    "clipped_value_loss",
    "decoupled_ppo_loss",
    "ppo_clip_loss",
]


class PpoOutputs(NamedTuple):
    """How far a policy is from an earlier one, and where that was held against it.

    Attributes:
        ratio: Ratio :math:`ρ_t` of the probability of each action taken under the
            policy to that under the earlier one, shape `[T]`.
        clipped: True where the clip is active, that is, takes the gradient away: the
            ratio is outside its bounds on the side that its advantage favours,
            shape `[T]`.
        dual_clipped: True where the dual clip takes the gradient away; nowhere if there
            is none, shape `[T]`.
        ratio_outside: True where the ratio is outside its bounds, on either side. Some
            libraries call the mean of this the clip fraction; but of these steps, those
            that are not clipped have their gradient, and come back, shape `[T]`.
        bounded: True where the logarithm of the ratio was beyond its bound, and so has
            no gradient, shape `[T]`.
        approximate_kl: What each step adds to an estimate of the divergence of the
            policy from the earlier one, :math:`ρ_t - 1 - log ρ_t`, at least 0. Its mean
            over the actions of the earlier policy is :math:`KL(π_old ‖ π)`,
            shape `[T]`.
    """

    ratio: Array
    clipped: Array
    dual_clipped: Array
    ratio_outside: Array
    bounded: Array
    approximate_kl: Array


class DecoupledPpoOutputs(NamedTuple):
    """How far apart three policies are.

    Attributes:
        weight: Ratio of the probability of each action taken under the proximal policy
            to that under the one that took it, shape `[T]`.
        proximal: What `ppo_clip_loss` tells of the policy that learns and the proximal
            one, a `PpoOutputs`.
    """

    weight: Array
    proximal: PpoOutputs


class ClippedValueOutputs(NamedTuple):
    """How far values are from earlier ones, and where that was held against them.

    Attributes:
        clipped: True where the clip is active, that is, takes the gradient away: the
            value moved further than it may, and nearer to its target, shape `[T]`.
        value_outside: True where the value moved further than it may, in either
            direction, shape `[T]`.
    """

    clipped: Array
    value_outside: Array


def ppo_clip_loss(
    log_prob_t: ArrayLike,
    old_log_prob_t: ArrayLike,
    adv_t: ArrayLike,
    epsilon: ArrayLike = 0.2,
    epsilon_high: ArrayLike | None = None,
    dual_clip: ArrayLike | None = None,
    log_ratio_bound: ArrayLike = 20.0,
    *,
    use_stop_gradient: bool = True,
    sample_mask: ArrayLike | None = None,
) -> tuple[Array, PpoOutputs]:
    """Improve a policy on old experience, but not far from the old policy (PPO).

    .. math::

        L_t = -min(ρ_t Â_t, clip(ρ_t, 1 - ε, 1 + ε_high) Â_t),
        ρ_t = π(a_t) / π_old(a_t)

    The minimum takes away what could be gained by moving a ratio further than its
    bound, and nothing else: where a step made things worse, the gradient to undo it
    remains. A higher :math:`ε_high`, such as 0.28, leaves unlikely actions more room to
    become likely, and the policy its entropy (DAPO).

    A ratio may grow without bound where the advantage is negative. The dual clip
    :math:`c` ends that: there the loss is at most :math:`-c Â_t`. The paper takes 3;
    the :math:`δ` of INTELLECT-2 and TRL is the same.

    Args:
        log_prob_t: Log-probabilities, or log-densities, of the actions taken, under the
            policy that learns, shape `[T]`.
        old_log_prob_t: The same under the policy that took them, shape `[T]`.
        adv_t: Advantages :math:`Â_t` of those actions, shape `[T]`.
        epsilon: How far below 1 a ratio may gain, and how far above if there is no
            `epsilon_high`; at least 0, shape `[]`.
        epsilon_high: How far above 1 a ratio may gain, at least 0, shape `[]`; or None
            for `epsilon`.
        dual_clip: Largest ratio :math:`c` that counts where the advantage is negative,
            more than 1, shape `[]`; or None if all do.
        log_ratio_bound: Largest size of :math:`log ρ_t`, more than 0: beyond it the
            ratio is constant, so that it never overflows, shape `[]`.
        use_stop_gradient: Whether to hold the advantages and the old log-probabilities
            constant under differentiation.
        sample_mask: False where a row is no decision of the agent, shape `[T]`; or None
            if all are. Whatever stands there, its loss is 0 and its ratio 1.

    Returns:
        A tuple of two: losses, shape `[T]`, and a `PpoOutputs`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if a number is
            out of its range.

    Example:
        >>> log_prob_t, adv_t = jnp.log(jnp.array([0.5, 0.25])), jnp.array([1.0, 4.0])
        >>> old_log_prob_t = jnp.log(jnp.array([0.25, 0.25]))
        >>> loss, outputs = rlaxlib.ppo_clip_loss(
        ...     log_prob_t, old_log_prob_t, adv_t, epsilon=0.5
        ... )
        >>> print(loss, outputs.ratio, outputs.clipped)
        [-1.5 -4. ] [2. 1.] [ True False]

    References:
        John Schulman, Filip Wolski, Prafulla Dhariwal, Alec Radford and Oleg Klimov,
        *Proximal Policy Optimization Algorithms*, 2017.
        https://arxiv.org/abs/1707.06347

        Deheng Ye and others, *Mastering Complex Control in MOBA Games with Deep
        Reinforcement Learning*, 2019. https://arxiv.org/abs/1912.09729

        Qiying Yu and others, *DAPO: An Open-Source LLM Reinforcement Learning System at
        Scale*, 2025. https://arxiv.org/abs/2503.14476

        John Schulman, *Approximating KL Divergence*, 2020.
        http://joschu.net/blog/kl-approx.html
    """
    log_prob_t, old_log_prob_t, adv_t, *numbers, sample_mask = checks.arrays(
        log_prob_t=(log_prob_t, "float[T]"),
        old_log_prob_t=(old_log_prob_t, "float[T]"),
        adv_t=(adv_t, "float[T]"),
        epsilon=(epsilon, "float[]"),
        epsilon_high=(epsilon_high, "float[] or None"),
        dual_clip=(dual_clip, "float[] or None"),
        log_ratio_bound=(log_ratio_bound, "float[]"),
        sample_mask=(sample_mask, "bool[T] or None"),
    )
    _check(*numbers)
    (log_prob_t, old_log_prob_t, adv_t, *numbers), narrow = dtypes.widen(
        log_prob_t, old_log_prob_t, adv_t, *numbers
    )
    held = _ratios.hold(
        use_stop_gradient, sample_mask, log_prob_t, old_log_prob_t, adv_t
    )
    return narrow(_clip(*held, *numbers))


def decoupled_ppo_loss(
    log_prob_t: ArrayLike,
    old_log_prob_t: ArrayLike,
    proximal_log_prob_t: ArrayLike,
    adv_t: ArrayLike,
    epsilon: ArrayLike = 0.2,
    epsilon_high: ArrayLike | None = None,
    dual_clip: ArrayLike | None = None,
    log_ratio_bound: ArrayLike = 20.0,
    *,
    use_stop_gradient: bool = True,
    sample_mask: ArrayLike | None = None,
) -> tuple[Array, DecoupledPpoOutputs]:
    """Stay near a recent policy, on experience from an older one (decoupled PPO).

    .. math::

        L_t = -(π_prox(a_t) / π_old(a_t))
            min(ρ_t Â_t, clip(ρ_t, 1 - ε, 1 + ε_high) Â_t),
        ρ_t = π(a_t) / π_prox(a_t)

    In PPO one old policy does two things: it took the actions, for which the ratio
    makes up, and it is what the policy must stay close to. Here another does the
    second: the proximal policy, such as a moving average of the parameters, or those
    before the current batch. So experience may be stale, as it is where actors do not
    wait for the learner. With the policy that took the actions as the proximal one,
    this is `ppo_clip_loss`.

    Args:
        log_prob_t: Log-probabilities, or log-densities, of the actions taken, under the
            policy that learns, shape `[T]`.
        old_log_prob_t: The same under the policy that took them, shape `[T]`.
        proximal_log_prob_t: The same under the policy to stay close to, shape `[T]`.
        adv_t: Advantages :math:`Â_t` of those actions, shape `[T]`.
        epsilon: How far below 1 a ratio may gain, and how far above if there is no
            `epsilon_high`; at least 0, shape `[]`.
        epsilon_high: How far above 1 a ratio may gain, at least 0, shape `[]`; or None
            for `epsilon`.
        dual_clip: Largest ratio that counts where the advantage is negative, more than
            1, shape `[]`; or None if all do.
        log_ratio_bound: Largest size of the logarithm of either ratio, more than 0,
            shape `[]`.
        use_stop_gradient: Whether to hold the advantages, and the log-probabilities
            under the other two policies, constant under differentiation.
        sample_mask: False where a row is no decision of the agent, shape `[T]`; or None
            if all are. Whatever stands there, its loss is 0 and its ratios are 1.

    Returns:
        A tuple of two: losses, shape `[T]`, and a `DecoupledPpoOutputs`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if a number is
            out of its range.

    Example:
        >>> log_prob_t, adv_t = jnp.log(jnp.array([0.5])), jnp.array([1.0])
        >>> old_log_prob_t = jnp.log(jnp.array([0.125]))
        >>> proximal_log_prob_t = jnp.log(jnp.array([0.25]))
        >>> loss, outputs = rlaxlib.decoupled_ppo_loss(
        ...     log_prob_t, old_log_prob_t, proximal_log_prob_t, adv_t, epsilon=0.5
        ... )
        >>> print(loss, outputs.weight, outputs.proximal.ratio)
        [-3.] [2.] [2.]

    References:
        Jacob Hilton, Karl Cobbe and John Schulman, *Batch Size-Invariance for Policy
        Optimization*, 2021. https://arxiv.org/abs/2110.00641
    """
    log_prob_t, old_log_prob_t, proximal_log_prob_t, adv_t, *numbers, sample_mask = (
        checks.arrays(
            log_prob_t=(log_prob_t, "float[T]"),
            old_log_prob_t=(old_log_prob_t, "float[T]"),
            proximal_log_prob_t=(proximal_log_prob_t, "float[T]"),
            adv_t=(adv_t, "float[T]"),
            epsilon=(epsilon, "float[]"),
            epsilon_high=(epsilon_high, "float[] or None"),
            dual_clip=(dual_clip, "float[] or None"),
            log_ratio_bound=(log_ratio_bound, "float[]"),
            sample_mask=(sample_mask, "bool[T] or None"),
        )
    )
    _check(*numbers)
    (log_prob_t, old_log_prob_t, proximal_log_prob_t, adv_t, *numbers), narrow = (
        dtypes.widen(log_prob_t, old_log_prob_t, proximal_log_prob_t, adv_t, *numbers)
    )
    log_prob_t, old_log_prob_t, proximal_log_prob_t, adv_t = _ratios.hold(
        use_stop_gradient,
        sample_mask,
        log_prob_t,
        old_log_prob_t,
        proximal_log_prob_t,
        adv_t,
    )
    log_weight, _ = _ratios.bounded_difference(
        proximal_log_prob_t, old_log_prob_t, numbers[-1]
    )
    weight = jnp.exp(log_weight)
    loss, outputs = _clip(log_prob_t, proximal_log_prob_t, adv_t, *numbers)
    return narrow((weight * loss, DecoupledPpoOutputs(weight, outputs)))


def clipped_value_loss(
    v: ArrayLike,
    old_v: ArrayLike,
    target: ArrayLike,
    epsilon: ArrayLike,
    huber: ArrayLike | None = None,
    *,
    stop_target_gradients: bool = True,
    sample_mask: ArrayLike | None = None,
) -> tuple[Array, ClippedValueOutputs]:
    """Penalise values for their errors, but let none gain by moving far (PPO).

    .. math::

        L_t = max(ℓ(v_t - y_t), ℓ(v_t^old + clip(v_t - v_t^old, -ε, ε) - y_t)),
        ℓ(x) = ½ x²

    A value has no gradient once it has moved by :math:`ε` towards its target; one that
    moved away from it has. Mind that :math:`ε` is in units of the values, so that what
    is right depends on the scale of the rewards; and that in a large comparison the
    clip did not help, or did harm.

    Stable-Baselines3 leaves out the maximum, and takes the clipped error alone. A value
    that has moved away from its target then has no gradient to come back. Most others,
    OpenAI's baselines first, have the maximum, as here.

    Args:
        v: Values :math:`v_t` that are learned, shape `[T]`.
        old_v: Values :math:`v_t^old` from when the experience was gathered, not
            computed anew, shape `[T]`.
        target: Targets :math:`y_t`, shape `[T]`.
        epsilon: How far a value may move and gain, in units of the values, at least 0,
            shape `[]`.
        huber: Where :math:`ℓ` turns from the square to the size of the error, as in
            `huber_loss`, more than 0, shape `[]`; or None for the square alone.
        stop_target_gradients: Whether to hold the targets and the old values constant
            under differentiation.
        sample_mask: False where a row is no decision of the agent, shape `[T]`; or None
            if all are. Whatever stands there, its loss is 0.

    Returns:
        A tuple of two: losses, shape `[T]`, and a `ClippedValueOutputs`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if `epsilon` is
            negative, or if `huber` is not positive.

    Example:
        >>> v, old_v = jnp.array([3.0, 3.0]), jnp.array([0.0, 0.0])
        >>> loss, outputs = rlaxlib.clipped_value_loss(
        ...     v, old_v, target=jnp.array([5.0, 0.0]), epsilon=1.0
        ... )
        >>> print(loss, outputs.clipped, outputs.value_outside)
        [8.  4.5] [ True False] [ True  True]

    References:
        Logan Engstrom and others, *Implementation Matters in Deep Policy Gradients: A
        Case Study on PPO and TRPO*, 2020. https://arxiv.org/abs/2005.12729

        Marcin Andrychowicz and others, *What Matters in On-Policy Reinforcement
        Learning? A Large-Scale Empirical Study*, 2020. https://arxiv.org/abs/2006.05990
    """
    v, old_v, target, epsilon, huber, sample_mask = checks.arrays(
        v=(v, "float[T]"),
        old_v=(old_v, "float[T]"),
        target=(target, "float[T]"),
        epsilon=(epsilon, "float[]"),
        huber=(huber, "float[] or None"),
        sample_mask=(sample_mask, "bool[T] or None"),
    )
    checks.within("[0, inf]", epsilon=epsilon)
    checks.within("(0, inf)", huber=huber)
    (v, old_v, target, epsilon, huber), narrow = dtypes.widen(
        v, old_v, target, epsilon, huber
    )
    v, old_v, target = _ratios.hold(
        stop_target_gradients, sample_mask, v, old_v, target
    )
    # The larger loss is that of the larger error: there is only one to compute.
    above, below = v - old_v > epsilon, v - old_v < -epsilon
    limit = jnp.where(above, old_v + epsilon, old_v - epsilon)
    outside = above | below
    clipped = outside & (jnp.abs(limit - target) > jnp.abs(v - target))
    error = jnp.where(clipped, limit, v) - target
    loss = losses.l2_loss(error) if huber is None else losses.huber_loss(error, huber)
    return narrow((loss, ClippedValueOutputs(clipped, outside)))


def _check(
    epsilon: Array, epsilon_high: Array | None, dual_clip: Array | None, bound: Array
) -> None:
    """Check the numbers that a clipped loss takes."""
    checks.within("[0, inf)", epsilon=epsilon, epsilon_high=epsilon_high)
    checks.within("(1, inf)", dual_clip=dual_clip)
    checks.within("(0, inf]", log_ratio_bound=bound)


def _clip(
    log_prob: Array,
    old_log_prob: Array,
    adv: Array,
    epsilon: Array,
    epsilon_high: Array | None,
    dual_clip: Array | None,
    bound: Array,
) -> tuple[Array, PpoOutputs]:
    """Return the losses of PPO, and what to watch."""
    _, (ratio, bounded, divergence) = _ratios.compare(log_prob, old_log_prob, bound)
    low = 1 - epsilon
    high = 1 + (epsilon if epsilon_high is None else epsilon_high)
    loss = -_ratios.clipped_objective(ratio, adv, low, high, dual_clip)
    above, below = ratio > high, ratio < low
    dual = jnp.zeros_like(above)
    if dual_clip is not None:
        dual = (adv < 0) & (ratio > dual_clip)
    outputs = PpoOutputs(
        ratio=ratio,
        clipped=((adv > 0) & above) | ((adv < 0) & below),
        dual_clipped=dual,
        ratio_outside=above | below,
        bounded=bounded,
        approximate_kl=divergence,
    )
    return loss, outputs
