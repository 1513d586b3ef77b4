"""Estimate values and advantages off-policy with clipped importance ratios: V-trace.

IMPALA's actors run behind its learner, so their actions come from an older policy. Each
importance ratio is used twice: one clip decides which policy's values are learnt, the
other, on the trace, only how fast. Unlike bare importance sampling, the variance stays
bounded.

The clock: `*_tm1` holds the times `0` to `T - 1`, `*_t` the times `1` to `T`. Where the
stream was neither cut nor reset, `v_t[:-1]` equals `v_tm1[1:]`; where they differ,
these functions read `v_t`, the value of what really came next.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib._core import checks, derivatives, dtypes, gradients, recurrence, streams

__all__ = [
    "VTraceOutput",
    "leaky_vtrace",
    "leaky_vtrace_td_error_and_advantage",
    "vtrace",
    "vtrace_td_error_and_advantage",
]


class VTraceOutput(NamedTuple):
    """What V-trace tells of each step.

    Attributes:
        errors: Target of the value less the value, shape `[T]`.
        pg_advantage: Advantage for the policy gradient, shape `[T]`.
        q_estimate: Estimated value of the action taken, shape `[T]`.
    """

    errors: Array
    pg_advantage: Array
    q_estimate: Array


def vtrace(
    v_tm1: ArrayLike,
    v_t: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    rho_tm1: ArrayLike,
    lambda_: ArrayLike = 1.0,
    clip_rho_threshold: ArrayLike = 1.0,
    stop_target_gradients: bool = True,
    sample_mask: ArrayLike | None = None,
    *,
    truncated_t: ArrayLike | None = None,
) -> Array:
    """Correct multistep errors with clipped importance ratios (V-trace).

    .. math::

        e_t = ρ̄_t δ_t + γ_{t+1} c_t e_{t+1},   e_T = 0,
        δ_t = r_{t+1} + γ_{t+1} v_{t+1} - v_t,   ρ̄_t = min(ρ̄, ρ_t),
        c_t = λ_{t+1} min(1, ρ_t).

    The targets of the values are :math:`e_t + v_t`. On-policy, where all ratios are 1,
    the errors are the advantages of `generalized_advantage_estimation`.

    Args:
        v_tm1: Values of the states acted in, :math:`v_0, …, v_{T-1}`, shape `[T]`.
        v_t: Values of the true next observations, :math:`v_1, …, v_T`, shape `[T]`.
        r_t: Rewards :math:`r_1, …, r_T`, shape `[T]`.
        discount_t: Discounts :math:`γ_1, …, γ_T`, each in [0, 1], shape `[T]`.
        rho_tm1: Importance ratios :math:`ρ_0, …, ρ_{T-1}`, the probability of each
            action under the target policy over that under the behaviour policy,
            shape `[T]`.
        lambda_: Mixing weight λ in [0, 1], shape `[]`; or one for each step,
            :math:`λ_1, …, λ_T`, shape `[T]`.
        clip_rho_threshold: Largest ratio :math:`ρ̄` for the errors, at least 0,
            shape `[]`. The smaller, the closer to the behaviour policy is the policy
            whose values are learnt.
        stop_target_gradients: Whether to hold constant under differentiation what the
            values are held against, :math:`e_t + v_t`.
        sample_mask: False where a row is no decision of the agent, such as padding,
            shape `[T]`; or None if all are. All results there are 0, and those of the
            others are as if the row were not there.
        truncated_t: True where the stream was cut after this step although the episode
            had not ended, shape `[T]`; or None if it was cut nowhere. There the sum
            stops, and the bootstrap is `v_t` of this row, the value of the true next
            observation.

    Returns:
        Errors :math:`e_0, …, e_{T-1}`, shape `[T]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if a threshold is
            negative.

    Example:
        >>> v_tm1, v_t = jnp.array([1.0, 8.0]), jnp.array([8.0, 4.0])
        >>> r_t, discount_t = jnp.array([1.0, 2.0]), jnp.array([0.5, 0.5])
        >>> rho_tm1 = jnp.array([2.0, 0.5])
        >>> print(rlaxlib.vtrace(v_tm1, v_t, r_t, discount_t, rho_tm1))
        [ 3. -2.]

    References:
        Lasse Espeholt, Hubert Soyer, Remi Munos, Karen Simonyan and others, *IMPALA:
        Scalable Distributed Deep-RL with Importance Weighted Actor-Learner
        Architectures*, 2018. https://arxiv.org/abs/1802.01561
    """
    *inputs, sample_mask, truncated_t = checks.arrays(
        v_tm1=(v_tm1, "float[T]"),
        v_t=(v_t, "float[T]"),
        r_t=(r_t, "float[T]"),
        discount_t=(discount_t, "float[T]"),
        rho_tm1=(rho_tm1, "float[T]"),
        lambda_=(lambda_, "float[] or [T]"),
        clip_rho_threshold=(clip_rho_threshold, "float[]"),
        sample_mask=(sample_mask, "bool[T] or None"),
        truncated_t=(truncated_t, "bool[T] or None"),
    )
    checks.within("[0, inf]", clip_rho_threshold=clip_rho_threshold)
    inputs, narrow = dtypes.widen(*streams.clean(sample_mask, *inputs))
    v_tm1, v_t, r_t, discount_t, rho_tm1, lambda_, clip_rho = inputs
    step = _Step(v_tm1, v_t, r_t, discount_t, lambda_, truncated_t, sample_mask)
    rho, c = _clip(rho_tm1, clip_rho), _clip(rho_tm1, 1.0)
    errors = _errors(step, rho, c)
    return narrow(gradients.correction(errors, v_tm1, stop_target_gradients))


def leaky_vtrace(
    v_tm1: ArrayLike,
    v_t: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    rho_tm1: ArrayLike,
    alpha_: ArrayLike = 1.0,
    lambda_: ArrayLike = 1.0,
    clip_rho_threshold: ArrayLike = 1.0,
    stop_target_gradients: bool = True,
    sample_mask: ArrayLike | None = None,
    *,
    truncated_t: ArrayLike | None = None,
) -> Array:
    """Correct multistep errors with partly clipped importance ratios.

    .. math::

        e_t = ρ̄_t δ_t + γ_{t+1} c_t e_{t+1},   e_T = 0,
        δ_t = r_{t+1} + γ_{t+1} v_{t+1} - v_t,
        ρ̄_t = (1 - α) ρ_t + α min(ρ̄, ρ_t),

    and :math:`c_t` is λ times the same with a threshold of 1.

    At :math:`α = 1` this is V-trace, at 0 importance sampling. Clipping lowers the
    variance, and makes the values those of another policy: α trades one for the other,
    and the paper learns it by meta-gradients.

    Args:
        v_tm1: Values of the states acted in, :math:`v_0, …, v_{T-1}`, shape `[T]`.
        v_t: Values of the true next observations, :math:`v_1, …, v_T`, shape `[T]`.
        r_t: Rewards :math:`r_1, …, r_T`, shape `[T]`.
        discount_t: Discounts :math:`γ_1, …, γ_T`, each in [0, 1], shape `[T]`.
        rho_tm1: Importance ratios :math:`ρ_0, …, ρ_{T-1}`, the probability of each
            action under the target policy over that under the behaviour policy,
            shape `[T]`.
        alpha_: Share α of the clipped ratios in [0, 1], shape `[]`. It may be learnt.
        lambda_: Mixing weight λ in [0, 1], shape `[]`; or one for each step,
            :math:`λ_1, …, λ_T`, shape `[T]`.
        clip_rho_threshold: Largest ratio :math:`ρ̄` for the errors, at least 0,
            shape `[]`. The smaller, the closer to the behaviour policy is the policy
            whose values are learnt.
        stop_target_gradients: Whether to hold constant under differentiation what the
            values are held against, :math:`e_t + v_t`.
        sample_mask: False where a row is no decision of the agent, such as padding,
            shape `[T]`; or None if all are. All results there are 0, and those of the
            others are as if the row were not there.
        truncated_t: True where the stream was cut after this step although the episode
            had not ended, shape `[T]`; or None if it was cut nowhere. There the sum
            stops, and the bootstrap is `v_t` of this row, the value of the true next
            observation.

    Returns:
        Errors :math:`e_0, …, e_{T-1}`, shape `[T]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if a threshold is
            negative, or if α lies outside [0, 1].

    Example:
        >>> v_tm1, v_t = jnp.array([1.0, 8.0]), jnp.array([8.0, 4.0])
        >>> r_t, discount_t = jnp.array([1.0, 2.0]), jnp.array([0.5, 0.5])
        >>> rho_tm1 = jnp.array([2.0, 0.5])
        >>> errors = rlaxlib.leaky_vtrace(v_tm1, v_t, r_t, discount_t, rho_tm1, 0.5)
        >>> print(errors)
        [ 4.5 -2. ]

    References:
        Tom Zahavy, Zhongwen Xu, Vivek Veeriah, Matteo Hessel and others, *A Self-Tuning
        Actor-Critic Algorithm*, 2020. https://arxiv.org/abs/2002.12928

        Lasse Espeholt, Hubert Soyer, Remi Munos, Karen Simonyan and others, *IMPALA:
        Scalable Distributed Deep-RL with Importance Weighted Actor-Learner
        Architectures*, 2018. https://arxiv.org/abs/1802.01561
    """
    *inputs, sample_mask, truncated_t = checks.arrays(
        v_tm1=(v_tm1, "float[T]"),
        v_t=(v_t, "float[T]"),
        r_t=(r_t, "float[T]"),
        discount_t=(discount_t, "float[T]"),
        rho_tm1=(rho_tm1, "float[T]"),
        alpha_=(alpha_, "float[]"),
        lambda_=(lambda_, "float[] or [T]"),
        clip_rho_threshold=(clip_rho_threshold, "float[]"),
        sample_mask=(sample_mask, "bool[T] or None"),
        truncated_t=(truncated_t, "bool[T] or None"),
    )
    checks.within("[0, inf]", clip_rho_threshold=clip_rho_threshold)
    checks.within("[0, 1]", alpha_=alpha_)
    inputs, narrow = dtypes.widen(*streams.clean(sample_mask, *inputs))
    v_tm1, v_t, r_t, discount_t, rho_tm1, alpha_, lambda_, clip_rho = inputs
    step = _Step(v_tm1, v_t, r_t, discount_t, lambda_, truncated_t, sample_mask)
    rho, c = _clip(rho_tm1, clip_rho, alpha_), _clip(rho_tm1, 1.0, alpha_)
    errors = _errors(step, rho, c)
    return narrow(gradients.correction(errors, v_tm1, stop_target_gradients))


def vtrace_td_error_and_advantage(
    v_tm1: ArrayLike,
    v_t: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    rho_tm1: ArrayLike,
    lambda_: ArrayLike = 1.0,
    clip_rho_threshold: ArrayLike = 1.0,
    clip_pg_rho_threshold: ArrayLike = 1.0,
    stop_target_gradients: bool = True,
    sample_mask: ArrayLike | None = None,
    *,
    truncated_t: ArrayLike | None = None,
) -> VTraceOutput:
    """Estimate errors, advantages and action values with V-trace.

    .. math::

        e_t = ρ̄_t δ_t + γ_{t+1} c_t e_{t+1},   e_T = 0,
        δ_t = r_{t+1} + γ_{t+1} v_{t+1} - v_t,   ρ̄_t = min(ρ̄, ρ_t),
        c_t = λ_{t+1} min(1, ρ_t).
        q_t = r_{t+1} + γ_{t+1} (v_{t+1} + λ_{t+1} e_{t+1}),
        Â_t = ρ̄^pg_t (q_t - v_t).

    The estimate of the action's value takes the corrected value of the next state; the
    advantage is what :math:`∇log π` is to be weighted with. With both thresholds at 1,
    as they are by default, it is the error.

    Args:
        v_tm1: Values of the states acted in, :math:`v_0, …, v_{T-1}`, shape `[T]`.
        v_t: Values of the true next observations, :math:`v_1, …, v_T`, shape `[T]`.
        r_t: Rewards :math:`r_1, …, r_T`, shape `[T]`.
        discount_t: Discounts :math:`γ_1, …, γ_T`, each in [0, 1], shape `[T]`.
        rho_tm1: Importance ratios :math:`ρ_0, …, ρ_{T-1}`, the probability of each
            action under the target policy over that under the behaviour policy,
            shape `[T]`.
        lambda_: Mixing weight λ in [0, 1], shape `[]`; or one for each step,
            :math:`λ_1, …, λ_T`, shape `[T]`.
        clip_rho_threshold: Largest ratio :math:`ρ̄` for the errors, at least 0,
            shape `[]`. The smaller, the closer to the behaviour policy is the policy
            whose values are learnt.
        clip_pg_rho_threshold: Largest ratio :math:`ρ̄^pg` for the advantages, at least
            0, shape `[]`.
        stop_target_gradients: Whether to hold constant under differentiation what the
            values are held against, :math:`e_t + v_t`, and with it the advantages and
            the estimated action values.
        sample_mask: False where a row is no decision of the agent, such as padding,
            shape `[T]`; or None if all are. All results there are 0, and those of the
            others are as if the row were not there.
        truncated_t: True where the stream was cut after this step although the episode
            had not ended, shape `[T]`; or None if it was cut nowhere. There the sum
            stops, and the bootstrap is `v_t` of this row, the value of the true next
            observation.

    Returns:
        A `VTraceOutput`: the errors :math:`e_t`, the advantages :math:`Â_t` and the
        estimated action values :math:`q_t`, each of shape `[T]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if a threshold is
            negative.

    Example:
        >>> v_tm1, v_t = jnp.array([1.0, 8.0]), jnp.array([8.0, 4.0])
        >>> r_t, discount_t = jnp.array([1.0, 2.0]), jnp.array([0.5, 0.5])
        >>> rho_tm1 = jnp.array([2.0, 0.5])
        >>> estimate = rlaxlib.vtrace_td_error_and_advantage
        >>> print(estimate(v_tm1, v_t, r_t, discount_t, rho_tm1).q_estimate)
        [4. 4.]

    References:
        Lasse Espeholt, Hubert Soyer, Remi Munos, Karen Simonyan and others, *IMPALA:
        Scalable Distributed Deep-RL with Importance Weighted Actor-Learner
        Architectures*, 2018. https://arxiv.org/abs/1802.01561
    """
    are_one = checks.are_one(clip_rho_threshold, clip_pg_rho_threshold)
    *inputs, sample_mask, truncated_t = checks.arrays(
        v_tm1=(v_tm1, "float[T]"),
        v_t=(v_t, "float[T]"),
        r_t=(r_t, "float[T]"),
        discount_t=(discount_t, "float[T]"),
        rho_tm1=(rho_tm1, "float[T]"),
        lambda_=(lambda_, "float[] or [T]"),
        clip_rho_threshold=(clip_rho_threshold, "float[]"),
        clip_pg_rho_threshold=(clip_pg_rho_threshold, "float[]"),
        sample_mask=(sample_mask, "bool[T] or None"),
        truncated_t=(truncated_t, "bool[T] or None"),
    )
    checks.within("[0, inf]", clip_rho_threshold=clip_rho_threshold)
    checks.within("[0, inf]", clip_pg_rho_threshold=clip_pg_rho_threshold)
    inputs, narrow = dtypes.widen(*streams.clean(sample_mask, *inputs))
    v_tm1, v_t, r_t, discount_t, rho_tm1, lambda_, clip_rho, clip_pg_rho = inputs
    step = _Step(v_tm1, v_t, r_t, discount_t, lambda_, truncated_t, sample_mask)
    rho, c = _clip(rho_tm1, clip_rho), _clip(rho_tm1, 1.0)
    pg_rho = None if are_one else _clip(rho_tm1, clip_pg_rho)
    return narrow(_estimates(step, rho, c, pg_rho, stop_target_gradients))


def leaky_vtrace_td_error_and_advantage(
    v_tm1: ArrayLike,
    v_t: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    rho_tm1: ArrayLike,
    alpha: ArrayLike = 1.0,
    lambda_: ArrayLike = 1.0,
    clip_rho_threshold: ArrayLike = 1.0,
    clip_pg_rho_threshold: ArrayLike = 1.0,
    stop_target_gradients: bool = True,
    sample_mask: ArrayLike | None = None,
    *,
    truncated_t: ArrayLike | None = None,
) -> VTraceOutput:
    """Estimate errors, advantages and action values with leaky V-trace.

    .. math::

        e_t = ρ̄_t δ_t + γ_{t+1} c_t e_{t+1},   e_T = 0,
        δ_t = r_{t+1} + γ_{t+1} v_{t+1} - v_t,
        ρ̄_t = (1 - α) ρ_t + α min(ρ̄, ρ_t),

    and :math:`c_t` is λ times the same with a threshold of 1.

    .. math::

        q_t = r_{t+1} + γ_{t+1} (v_{t+1} + λ_{t+1} e_{t+1}),
        Â_t = ρ̄^pg_t (q_t - v_t).

    The clip of the advantages leaks in the same way. With both thresholds at 1, as they
    are by default, the advantage is the error.

    Args:
        v_tm1: Values of the states acted in, :math:`v_0, …, v_{T-1}`, shape `[T]`.
        v_t: Values of the true next observations, :math:`v_1, …, v_T`, shape `[T]`.
        r_t: Rewards :math:`r_1, …, r_T`, shape `[T]`.
        discount_t: Discounts :math:`γ_1, …, γ_T`, each in [0, 1], shape `[T]`.
        rho_tm1: Importance ratios :math:`ρ_0, …, ρ_{T-1}`, the probability of each
            action under the target policy over that under the behaviour policy,
            shape `[T]`.
        alpha: Share α of the clipped ratios in [0, 1], shape `[]`. It may be learnt.
        lambda_: Mixing weight λ in [0, 1], shape `[]`; or one for each step,
            :math:`λ_1, …, λ_T`, shape `[T]`.
        clip_rho_threshold: Largest ratio :math:`ρ̄` for the errors, at least 0,
            shape `[]`. The smaller, the closer to the behaviour policy is the policy
            whose values are learnt.
        clip_pg_rho_threshold: Largest ratio :math:`ρ̄^pg` for the advantages, at least
            0, shape `[]`.
        stop_target_gradients: Whether to hold constant under differentiation what the
            values are held against, :math:`e_t + v_t`, and with it the advantages and
            the estimated action values.
        sample_mask: False where a row is no decision of the agent, such as padding,
            shape `[T]`; or None if all are. All results there are 0, and those of the
            others are as if the row were not there.
        truncated_t: True where the stream was cut after this step although the episode
            had not ended, shape `[T]`; or None if it was cut nowhere. There the sum
            stops, and the bootstrap is `v_t` of this row, the value of the true next
            observation.

    Returns:
        A `VTraceOutput`: the errors :math:`e_t`, the advantages :math:`Â_t` and the
        estimated action values :math:`q_t`, each of shape `[T]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if a threshold is
            negative, or if α lies outside [0, 1].

    Example:
        >>> v_tm1, v_t = jnp.array([1.0, 8.0]), jnp.array([8.0, 4.0])
        >>> r_t, discount_t = jnp.array([1.0, 2.0]), jnp.array([0.5, 0.5])
        >>> rho_tm1 = jnp.array([2.0, 0.5])
        >>> estimate = rlaxlib.leaky_vtrace_td_error_and_advantage
        >>> print(estimate(v_tm1, v_t, r_t, discount_t, rho_tm1, 0.5).pg_advantage)
        [ 4.5 -2. ]

    References:
        Tom Zahavy, Zhongwen Xu, Vivek Veeriah, Matteo Hessel and others, *A Self-Tuning
        Actor-Critic Algorithm*, 2020. https://arxiv.org/abs/2002.12928

        Lasse Espeholt, Hubert Soyer, Remi Munos, Karen Simonyan and others, *IMPALA:
        Scalable Distributed Deep-RL with Importance Weighted Actor-Learner
        Architectures*, 2018. https://arxiv.org/abs/1802.01561
    """
    are_one = checks.are_one(clip_rho_threshold, clip_pg_rho_threshold)
    *inputs, sample_mask, truncated_t = checks.arrays(
        v_tm1=(v_tm1, "float[T]"),
        v_t=(v_t, "float[T]"),
        r_t=(r_t, "float[T]"),
        discount_t=(discount_t, "float[T]"),
        rho_tm1=(rho_tm1, "float[T]"),
        alpha=(alpha, "float[]"),
        lambda_=(lambda_, "float[] or [T]"),
        clip_rho_threshold=(clip_rho_threshold, "float[]"),
        clip_pg_rho_threshold=(clip_pg_rho_threshold, "float[]"),
        sample_mask=(sample_mask, "bool[T] or None"),
        truncated_t=(truncated_t, "bool[T] or None"),
    )
    checks.within("[0, inf]", clip_rho_threshold=clip_rho_threshold)
    checks.within("[0, inf]", clip_pg_rho_threshold=clip_pg_rho_threshold)
    checks.within("[0, 1]", alpha=alpha)
    inputs, narrow = dtypes.widen(*streams.clean(sample_mask, *inputs))
    v_tm1, v_t, r_t, discount_t, rho_tm1, alpha, lambda_, clip_rho, clip_pg_rho = inputs
    step = _Step(v_tm1, v_t, r_t, discount_t, lambda_, truncated_t, sample_mask)
    rho, c = _clip(rho_tm1, clip_rho, alpha), _clip(rho_tm1, 1.0, alpha)
    pg_rho = None if are_one else _clip(rho_tm1, clip_pg_rho, alpha)
    return narrow(_estimates(step, rho, c, pg_rho, stop_target_gradients))


class _Step(NamedTuple):
    """What happened, and where the stream is cut; the same in all four functions."""

    v_tm1: Array
    v_t: Array
    r_t: Array
    discount_t: Array
    lambda_: Array
    truncated_t: Array | None
    sample_mask: Array | None


def _clip(rho: Array, threshold: ArrayLike, alpha: Array | None = None) -> Array:
    """Clip importance ratios at a threshold, wholly or in part."""
    clipped = jnp.minimum(rho, threshold)
    if alpha is None:
        return clipped
    excess = jnp.where(rho > threshold, rho - threshold, jnp.zeros_like(rho))
    # None of an infinite excess is nothing.
    none = (alpha == 1) & jnp.isinf(excess)
    return clipped + (1 - alpha) * jnp.where(none, jnp.zeros_like(rho), excess)


def _errors(step: _Step, rho: Array, c: Array) -> Array:
    """Solve for the errors, given the clipped ratios and the trace without λ."""
    delta = step.r_t + (step.discount_t * step.v_t - step.v_tm1)
    return recurrence.corrected_errors(
        rho * delta,
        step.discount_t,
        step.lambda_ * c,
        truncated_t=step.truncated_t,
        sample_mask=step.sample_mask,
    )


def _estimates(
    step: _Step, rho: Array, c: Array, pg_rho: Array | None, stop: ArrayLike
) -> VTraceOutput:
    """Compute all that V-trace tells of a step.

    If all is clipped as the trace is, the ratios of advantages are None.
    """
    errors = _in_order(_errors(step, rho, c), step.v_tm1)
    later = streams.at_following(errors, step.truncated_t, step.sample_mask)
    ahead = step.discount_t * (step.v_t + step.lambda_ * later)
    advantage = errors
    if pg_rho is not None:
        # In this order, large values do not round a small reward away.
        advantage = pg_rho * (step.r_t + (ahead - step.v_tm1))
    q_estimate = step.r_t + ahead
    return VTraceOutput(
        gradients.correction(errors, step.v_tm1, stop),
        *(
            streams.decisions(gradients.stop_if(stop, each), step.sample_mask)
            for each in (advantage, q_estimate)
        ),
    )


def _in_order_change(change: Array, y: Array, x: Array, beside: Array) -> Array:
    del y, x, beside
    return change


@derivatives.derived_by(_in_order_change, None)
def _in_order(x: Array, beside: Array) -> Array:
    """Return `x` as it is, written anew, in the order of another array.

    The loop over time leaves its results step by step, for all streams at once. To look
    up the next step's there takes up to six times as long as when they are written anew
    stream by stream; and XLA does so if another array is read with them. The difference
    that is added is 0.
    """
    return x + (beside - beside)
