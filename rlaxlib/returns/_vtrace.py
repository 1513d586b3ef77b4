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

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib._core import checks, gradients, recurrence, streams

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
    (
        v_tm1,
        v_t,
        r_t,
        discount_t,
        rho_tm1,
        lambda_,
        clip_rho_threshold,
        sample_mask,
        truncated_t,
        narrow,
    ) = checks.widened(
        v_tm1=(v_tm1, "float[T]"),
        v_t=(v_t, "float[T]"),
        r_t=(r_t, "float[T]"),
        discount_t=(discount_t, "float[T]"),
        rho_tm1=(rho_tm1, "float[T]"),
        lambda_=(lambda_, "float[] or [T]"),
        clip_rho_threshold=(clip_rho_threshold, "float[] in [0, inf]"),
        sample_mask=(sample_mask, "bool[T] or None"),
        truncated_t=(truncated_t, "bool[T] or None"),
    )
    stream = _clean_stream(
        v_tm1, v_t, r_t, discount_t, rho_tm1, lambda_, truncated_t, sample_mask
    )
    rho, c = (
        jnp.minimum(stream.rho_tm1, clip_rho_threshold),
        jnp.minimum(stream.rho_tm1, 1),
    )
    errors = _errors(stream, rho, c)
    return narrow(gradients.correction(errors, stream.v_tm1, stop_target_gradients))


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
    (
        v_tm1,
        v_t,
        r_t,
        discount_t,
        rho_tm1,
        alpha_,
        lambda_,
        clip_rho_threshold,
        sample_mask,
        truncated_t,
        narrow,
    ) = checks.widened(
        v_tm1=(v_tm1, "float[T]"),
        v_t=(v_t, "float[T]"),
        r_t=(r_t, "float[T]"),
        discount_t=(discount_t, "float[T]"),
        rho_tm1=(rho_tm1, "float[T]"),
        alpha_=(alpha_, "float[] in [0, 1]"),
        lambda_=(lambda_, "float[] or [T]"),
        clip_rho_threshold=(clip_rho_threshold, "float[] in [0, inf]"),
        sample_mask=(sample_mask, "bool[T] or None"),
        truncated_t=(truncated_t, "bool[T] or None"),
    )
    stream = _clean_stream(
        v_tm1, v_t, r_t, discount_t, rho_tm1, lambda_, truncated_t, sample_mask
    )
    rho = _leaky_clip(stream.rho_tm1, clip_rho_threshold, alpha_)
    c = _leaky_clip(stream.rho_tm1, 1.0, alpha_)
    errors = _errors(stream, rho, c)
    return narrow(gradients.correction(errors, stream.v_tm1, stop_target_gradients))


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
    (
        v_tm1,
        v_t,
        r_t,
        discount_t,
        rho_tm1,
        lambda_,
        clip_rho_threshold,
        clip_pg_rho_threshold,
        sample_mask,
        truncated_t,
        narrow,
    ) = checks.widened(
        v_tm1=(v_tm1, "float[T]"),
        v_t=(v_t, "float[T]"),
        r_t=(r_t, "float[T]"),
        discount_t=(discount_t, "float[T]"),
        rho_tm1=(rho_tm1, "float[T]"),
        lambda_=(lambda_, "float[] or [T]"),
        clip_rho_threshold=(clip_rho_threshold, "float[] in [0, inf]"),
        clip_pg_rho_threshold=(clip_pg_rho_threshold, "float[] in [0, inf]"),
        sample_mask=(sample_mask, "bool[T] or None"),
        truncated_t=(truncated_t, "bool[T] or None"),
    )
    stream = _clean_stream(
        v_tm1, v_t, r_t, discount_t, rho_tm1, lambda_, truncated_t, sample_mask
    )
    rho, pg_rho, c = (
        jnp.minimum(stream.rho_tm1, threshold)
        for threshold in (clip_rho_threshold, clip_pg_rho_threshold, 1.0)
    )
    return narrow(_estimates(stream, rho, pg_rho, c, stop_target_gradients))


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
    (
        v_tm1,
        v_t,
        r_t,
        discount_t,
        rho_tm1,
        alpha,
        lambda_,
        clip_rho_threshold,
        clip_pg_rho_threshold,
        sample_mask,
        truncated_t,
        narrow,
    ) = checks.widened(
        v_tm1=(v_tm1, "float[T]"),
        v_t=(v_t, "float[T]"),
        r_t=(r_t, "float[T]"),
        discount_t=(discount_t, "float[T]"),
        rho_tm1=(rho_tm1, "float[T]"),
        alpha=(alpha, "float[] in [0, 1]"),
        lambda_=(lambda_, "float[] or [T]"),
        clip_rho_threshold=(clip_rho_threshold, "float[] in [0, inf]"),
        clip_pg_rho_threshold=(clip_pg_rho_threshold, "float[] in [0, inf]"),
        sample_mask=(sample_mask, "bool[T] or None"),
        truncated_t=(truncated_t, "bool[T] or None"),
    )
    stream = _clean_stream(
        v_tm1, v_t, r_t, discount_t, rho_tm1, lambda_, truncated_t, sample_mask
    )
    rho, pg_rho, c = (
        _leaky_clip(stream.rho_tm1, threshold, alpha)
        for threshold in (clip_rho_threshold, clip_pg_rho_threshold, 1.0)
    )
    return narrow(_estimates(stream, rho, pg_rho, c, stop_target_gradients))


class _Stream(NamedTuple):
    """A stream of experience."""

    v_tm1: Array
    v_t: Array
    r_t: Array
    discount_t: Array
    rho_tm1: Array
    lambda_: Array
    truncated_t: Array | None
    sample_mask: Array | None


def _clean_stream(*fields: Any) -> _Stream:
    """Return a stream with 0 at invalid steps."""
    *inputs, truncated_t, sample_mask = fields
    return _Stream(
        *streams.clean(sample_mask, *inputs),
        truncated_t=truncated_t,
        sample_mask=sample_mask,
    )


def _leaky_clip(rho: Array, threshold: ArrayLike, alpha: Array) -> Array:
    """Return (1 - α) ρ + α min(ρ, threshold)."""
    excess = jnp.where(rho > threshold, rho - threshold, 0)
    excess = jnp.where((alpha == 1) & jnp.isinf(excess), 0, excess)  # 0 * inf is NaN.
    return jnp.minimum(rho, threshold) + (1 - alpha) * excess


def _errors(stream: _Stream, rho: Array, c: Array) -> Array:
    """Solve for the errors, given the clipped ratios and the traces without λ."""
    # In this order, large values do not round a small reward away.
    delta = stream.r_t + (stream.discount_t * stream.v_t - stream.v_tm1)
    return recurrence.backward(
        rho * delta,
        stream.discount_t * stream.lambda_ * c,
        0.0,
        truncated_t=stream.truncated_t,
        sample_mask=stream.sample_mask,
    )


def _estimates(
    stream: _Stream, rho: Array, pg_rho: Array, c: Array, stop: ArrayLike
) -> VTraceOutput:
    """Return errors, advantages and action values, given the clipped ratios."""
    v_tm1, v_t, r_t, discount_t, _, lambda_, truncated_t, sample_mask = stream
    errors = _errors(stream, rho, c)
    e_t = streams.at_next_valid(errors, truncated_t, sample_mask)
    bootstrap = discount_t * (v_t + lambda_ * e_t)
    advantage = pg_rho * (r_t + (bootstrap - v_tm1))
    q_estimate = r_t + bootstrap
    return VTraceOutput(
        gradients.correction(errors, v_tm1, stop),
        streams.valid(gradients.stop_if(stop, advantage), sample_mask),
        streams.valid(gradients.stop_if(stop, q_estimate), sample_mask),
    )
