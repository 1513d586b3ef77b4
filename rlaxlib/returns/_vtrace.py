"""V-trace and leaky V-trace: off-policy TD errors, advantages and action values.

- `vtrace`, `leaky_vtrace`: TD errors of the values.
- `vtrace_td_error_and_advantage`, `leaky_vtrace_td_error_and_advantage`: advantages and
  action-value estimates as well.

V-trace clips each importance ratio twice: the clip of the TD error decides which
policy's values are learnt, and the clip of the trace only how fast.

Arrays named `*_tm1` hold the times `0` to `T - 1`, arrays named `*_t` the times `1` to
`T`. `v_t[:-1]` and `v_tm1[1:]` differ only where the stream is cut or the environment
was reset.
"""

from __future__ import annotations

from typing import NamedTuple

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
    """V-trace estimates at each time step.

    Attributes:
        errors: TD error, the target of the value minus the value, shape `[T]`.
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
    clip_c_threshold: ArrayLike = 1.0,
) -> Array:
    """Compute V-trace TD errors.

    Takes one trajectory, returns one TD error for each time step.

    .. math::

        e_t = ρ̄_t δ_t + γ_{t+1} c_t e_{t+1},   e_T = 0,
        δ_t = r_{t+1} + γ_{t+1} v_{t+1} - v_t,
        ρ̄_t = min(ρ̄, ρ_t),   c_t = λ_{t+1} min(c̄, ρ_t).

    The targets of the values are :math:`e_t + v_t`. With all :math:`ρ_t = 1` this is
    `generalized_advantage_estimation`. Infinite ratios are clipped too.

    Args:
        v_tm1: Values of the states acted in, :math:`v_0, …, v_{T-1}`, shape `[T]`.
        v_t: Values of the true next observations, :math:`v_1, …, v_T`, shape `[T]`.
        r_t: Rewards :math:`r_1, …, r_T`, shape `[T]`.
        discount_t: Discounts :math:`γ_1, …, γ_T` in [0, 1], shape `[T]`.
        rho_tm1: Importance ratios :math:`ρ_t`, target to behaviour policy, shape `[T]`.
        lambda_: Mixing weights :math:`λ_1, …, λ_T` in [0, 1], shape `[]` or `[T]`.
        clip_rho_threshold: Bound :math:`ρ̄` of the ratios, at least 0, shape `[]`. A
            smaller one evaluates a policy closer to the behaviour policy.
        stop_target_gradients: Whether to stop the gradient of :math:`e_t + v_t`.
        sample_mask: False for time steps to ignore, shape `[T]`; or None.
        truncated_t: True where truncated: bootstraps from `v_t`, shape `[T]`; or None.
        clip_c_threshold: Bound :math:`c̄` of the ratios, at least 0, shape `[]`. It
            affects the variance, not which policy is evaluated.

    Returns:
        TD errors :math:`e_0, …, e_{T-1}`, shape `[T]`, 0 at ignored steps.

    Raises:
        ArgumentError: If a shape or dtype is wrong or a concrete threshold negative.

    Example:
        >>> v_tm1, v_t, r_t = jnp.array([[1.0, 8.0], [8.0, 4.0], [1.0, 2.0]])
        >>> discount_t, rho_tm1 = jnp.array([[0.5, 0.5], [2.0, 0.5]])
        >>> print(rlaxlib.vtrace(v_tm1, v_t, r_t, discount_t, rho_tm1))
        [ 3. -2.]

    References:
        Lasse Espeholt and others, *IMPALA: Scalable Distributed Deep-RL with Importance
        Weighted Actor-Learner Architectures*, 2018. https://arxiv.org/abs/1802.01561
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
        clip_c_threshold,
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
        clip_c_threshold=(clip_c_threshold, "float[] in [0, inf]"),
    )
    inputs = streams.clean(sample_mask, v_tm1, v_t, r_t, discount_t, rho_tm1, lambda_)
    stream = _Stream(*inputs, truncated_t=truncated_t, sample_mask=sample_mask)
    rho = jnp.minimum(stream.rho_tm1, clip_rho_threshold)
    c = stream.lambda_ * jnp.minimum(stream.rho_tm1, clip_c_threshold)
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
    clip_c_threshold: ArrayLike = 1.0,
) -> Array:
    """Compute leaky V-trace TD errors.

    Takes one trajectory, returns one TD error for each time step.

    .. math::

        e_t = ρ̄_t δ_t + γ_{t+1} c_t e_{t+1},   e_T = 0,
        δ_t = r_{t+1} + γ_{t+1} v_{t+1} - v_t,
        ρ̄_t = (1 - α) ρ_t + α min(ρ̄, ρ_t),
        c_t = λ_{t+1} [(1 - α) ρ_t + α min(c̄, ρ_t)].

    :math:`α = 1` gives `vtrace`, :math:`α = 0` importance sampling. The paper learns
    :math:`α` by meta-gradients.

    Args:
        v_tm1: Values of the states acted in, :math:`v_0, …, v_{T-1}`, shape `[T]`.
        v_t: Values of the true next observations, :math:`v_1, …, v_T`, shape `[T]`.
        r_t: Rewards :math:`r_1, …, r_T`, shape `[T]`.
        discount_t: Discounts :math:`γ_1, …, γ_T` in [0, 1], shape `[T]`.
        rho_tm1: Importance ratios :math:`ρ_t`, target to behaviour policy, shape `[T]`.
        alpha_: Share α of the clipped ratios in [0, 1], shape `[]`; may be learnt.
        lambda_: Mixing weights :math:`λ_1, …, λ_T` in [0, 1], shape `[]` or `[T]`.
        clip_rho_threshold: Bound :math:`ρ̄` of the ratios, at least 0, shape `[]`.
        stop_target_gradients: Whether to stop the gradient of :math:`e_t + v_t`.
        sample_mask: False for time steps to ignore, shape `[T]`; or None.
        truncated_t: True where truncated: bootstraps from `v_t`, shape `[T]`; or None.
        clip_c_threshold: Bound :math:`c̄` of the ratios, at least 0, shape `[]`.

    Returns:
        TD errors :math:`e_0, …, e_{T-1}`, shape `[T]`, 0 at ignored steps.

    Raises:
        ArgumentError: If a shape, dtype or concrete value is wrong.

    Example:
        >>> v_tm1, v_t, r_t = jnp.array([[1.0, 8.0], [8.0, 4.0], [1.0, 2.0]])
        >>> discount_t, rho_tm1 = jnp.array([[0.5, 0.5], [2.0, 0.5]])
        >>> print(rlaxlib.leaky_vtrace(v_tm1, v_t, r_t, discount_t, rho_tm1, 0.5))
        [ 4.5 -2. ]

    References:
        Tom Zahavy and others, *A Self-Tuning Actor-Critic Algorithm*, 2020.
        https://arxiv.org/abs/2002.12928
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
        clip_c_threshold,
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
        clip_c_threshold=(clip_c_threshold, "float[] in [0, inf]"),
    )
    inputs = streams.clean(sample_mask, v_tm1, v_t, r_t, discount_t, rho_tm1, lambda_)
    stream = _Stream(*inputs, truncated_t=truncated_t, sample_mask=sample_mask)
    rho = _leaky_clip(stream.rho_tm1, clip_rho_threshold, alpha_)
    c = stream.lambda_ * _leaky_clip(stream.rho_tm1, clip_c_threshold, alpha_)
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
    clip_c_threshold: ArrayLike = 1.0,
) -> VTraceOutput:
    """Compute the V-trace TD errors and policy-gradient advantages.

    Takes one trajectory, returns three numbers for each time step.

    .. math::

        e_t = ρ̄_t δ_t + γ_{t+1} c_t e_{t+1},   e_T = 0,
        δ_t = r_{t+1} + γ_{t+1} v_{t+1} - v_t,
        ρ̄_t = min(ρ̄, ρ_t),   c_t = λ_{t+1} min(c̄, ρ_t),
        q_t = r_{t+1} + γ_{t+1} (v_{t+1} + λ_{t+1} e_{t+1}),
        Â_t = min(ρ̄^pg, ρ_t) (q_t - v_t).

    With equal thresholds the advantage equals the TD error.

    Args:
        v_tm1: Values of the states acted in, :math:`v_0, …, v_{T-1}`, shape `[T]`.
        v_t: Values of the true next observations, :math:`v_1, …, v_T`, shape `[T]`.
        r_t: Rewards :math:`r_1, …, r_T`, shape `[T]`.
        discount_t: Discounts :math:`γ_1, …, γ_T` in [0, 1], shape `[T]`.
        rho_tm1: Importance ratios :math:`ρ_t`, target to behaviour policy, shape `[T]`.
        lambda_: Mixing weights :math:`λ_1, …, λ_T` in [0, 1], shape `[]` or `[T]`.
        clip_rho_threshold: Bound :math:`ρ̄` of the ratios, at least 0, shape `[]`.
        clip_pg_rho_threshold: Bound :math:`ρ̄^pg` of ratios, at least 0, shape `[]`.
        stop_target_gradients: Whether to stop the gradients of targets and estimates.
        sample_mask: False for time steps to ignore, shape `[T]`; or None.
        truncated_t: True where truncated: bootstraps from `v_t`, shape `[T]`; or None.
        clip_c_threshold: Bound :math:`c̄` of the ratios, at least 0, shape `[]`.

    Returns:
        A `VTraceOutput` of :math:`e_t, Â_t, q_t`, shape `[T]`, 0 at ignored steps.

    Raises:
        ArgumentError: If a shape or dtype is wrong or a concrete threshold negative.

    Example:
        >>> v_tm1, v_t, r_t = jnp.array([[1.0, 8.0], [8.0, 4.0], [1.0, 2.0]])
        >>> discount_t, rho_tm1 = jnp.array([[0.5, 0.5], [2.0, 0.5]])
        >>> estimate = rlaxlib.vtrace_td_error_and_advantage
        >>> print(estimate(v_tm1, v_t, r_t, discount_t, rho_tm1).q_estimate)
        [4. 4.]

    References:
        Lasse Espeholt and others, *IMPALA: Scalable Distributed Deep-RL with Importance
        Weighted Actor-Learner Architectures*, 2018. https://arxiv.org/abs/1802.01561
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
        clip_c_threshold,
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
        clip_c_threshold=(clip_c_threshold, "float[] in [0, inf]"),
    )
    inputs = streams.clean(sample_mask, v_tm1, v_t, r_t, discount_t, rho_tm1, lambda_)
    stream = _Stream(*inputs, truncated_t=truncated_t, sample_mask=sample_mask)
    rho = jnp.minimum(stream.rho_tm1, clip_rho_threshold)
    pg_rho = jnp.minimum(stream.rho_tm1, clip_pg_rho_threshold)
    c = stream.lambda_ * jnp.minimum(stream.rho_tm1, clip_c_threshold)
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
    clip_c_threshold: ArrayLike = 1.0,
) -> VTraceOutput:
    """Compute the leaky V-trace TD errors and policy-gradient advantages.

    Takes one trajectory, returns three numbers for each time step.

    .. math::

        e_t = ρ̄_t δ_t + γ_{t+1} c_t e_{t+1},   e_T = 0,
        δ_t = r_{t+1} + γ_{t+1} v_{t+1} - v_t,
        ρ̄_t = (1 - α) ρ_t + α min(ρ̄, ρ_t),
        c_t = λ_{t+1} [(1 - α) ρ_t + α min(c̄, ρ_t)],
        q_t = r_{t+1} + γ_{t+1} (v_{t+1} + λ_{t+1} e_{t+1}),
        Â_t = [(1 - α) ρ_t + α min(ρ̄^pg, ρ_t)] (q_t - v_t).

    :math:`α = 1` gives V-trace, :math:`α = 0` importance sampling.

    Args:
        v_tm1: Values of the states acted in, :math:`v_0, …, v_{T-1}`, shape `[T]`.
        v_t: Values of the true next observations, :math:`v_1, …, v_T`, shape `[T]`.
        r_t: Rewards :math:`r_1, …, r_T`, shape `[T]`.
        discount_t: Discounts :math:`γ_1, …, γ_T` in [0, 1], shape `[T]`.
        rho_tm1: Importance ratios :math:`ρ_t`, target to behaviour policy, shape `[T]`.
        alpha: Share α of the clipped ratios in [0, 1], shape `[]`; may be learnt.
        lambda_: Mixing weights :math:`λ_1, …, λ_T` in [0, 1], shape `[]` or `[T]`.
        clip_rho_threshold: Bound :math:`ρ̄` of the ratios, at least 0, shape `[]`.
        clip_pg_rho_threshold: Bound :math:`ρ̄^pg` of ratios, at least 0, shape `[]`.
        stop_target_gradients: Whether to stop the gradients of targets and estimates.
        sample_mask: False for time steps to ignore, shape `[T]`; or None.
        truncated_t: True where truncated: bootstraps from `v_t`, shape `[T]`; or None.
        clip_c_threshold: Bound :math:`c̄` of the ratios, at least 0, shape `[]`.

    Returns:
        A `VTraceOutput` of :math:`e_t, Â_t, q_t`, shape `[T]`, 0 at ignored steps.

    Raises:
        ArgumentError: If a shape, dtype or concrete value is wrong.

    Example:
        >>> v_tm1, v_t, r_t = jnp.array([[1.0, 8.0], [8.0, 4.0], [1.0, 2.0]])
        >>> discount_t, rho_tm1 = jnp.array([[0.5, 0.5], [2.0, 0.5]])
        >>> estimate = rlaxlib.leaky_vtrace_td_error_and_advantage
        >>> print(estimate(v_tm1, v_t, r_t, discount_t, rho_tm1, 0.5).pg_advantage)
        [ 4.5 -2. ]

    References:
        Tom Zahavy and others, *A Self-Tuning Actor-Critic Algorithm*, 2020.
        https://arxiv.org/abs/2002.12928
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
        clip_c_threshold,
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
        clip_c_threshold=(clip_c_threshold, "float[] in [0, inf]"),
    )
    inputs = streams.clean(sample_mask, v_tm1, v_t, r_t, discount_t, rho_tm1, lambda_)
    stream = _Stream(*inputs, truncated_t=truncated_t, sample_mask=sample_mask)
    rho = _leaky_clip(stream.rho_tm1, clip_rho_threshold, alpha)
    pg_rho = _leaky_clip(stream.rho_tm1, clip_pg_rho_threshold, alpha)
    c = stream.lambda_ * _leaky_clip(stream.rho_tm1, clip_c_threshold, alpha)
    return narrow(_estimates(stream, rho, pg_rho, c, stop_target_gradients))


class _Stream(NamedTuple):
    """A stream of experience, 0 at ignored steps."""

    v_tm1: Array
    v_t: Array
    r_t: Array
    discount_t: Array
    rho_tm1: Array
    lambda_: Array
    truncated_t: Array | None
    sample_mask: Array | None


def _leaky_clip(rho: Array, threshold: ArrayLike, alpha: Array) -> Array:
    """Return (1 - α) ρ + α min(ρ, threshold), finite at α = 1 if ρ is infinite."""
    excess = jnp.where(rho > threshold, rho - threshold, 0)
    excess = jnp.where((alpha == 1) & jnp.isinf(excess), 0, excess)  # 0 * inf is NaN.
    return jnp.minimum(rho, threshold) + (1 - alpha) * excess


def _errors(stream: _Stream, rho: Array, c: Array) -> Array:
    """Solve e_t = ρ̄_t δ_t + γ_{t+1} c_t e_{t+1} for the TD errors."""
    # The reward is added last: beside a large value it would lose precision.
    delta = stream.r_t + (stream.discount_t * stream.v_t - stream.v_tm1)
    return recurrence.backward(
        rho * delta,
        stream.discount_t * c,
        0.0,
        truncated_t=stream.truncated_t,
        sample_mask=stream.sample_mask,
    )


def _estimates(
    stream: _Stream, rho: Array, pg_rho: Array, c: Array, stop: ArrayLike
) -> VTraceOutput:
    """Return TD errors, advantages and action values, given the clipped ratios."""
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
