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

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp

from rlaxlib._core import gradients, safe, streams
from rlaxlib._core.gradients import stop_if
from rlaxlib._core.recurrence import backward, carried
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Bool, Float

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

    errors: Float[Array, "T"]
    pg_advantage: Float[Array, "T"]
    q_estimate: Float[Array, "T"]


@checked
def vtrace(
    v_tm1: Float[ArrayLike, "T"],
    v_t: Float[ArrayLike, "T"],
    r_t: Float[ArrayLike, "T"],
    discount_t: Float[ArrayLike, "T in [-1, 1]"],
    rho_tm1: Float[ArrayLike, "T in [0, inf]"],
    lambda_: Float[ArrayLike, "[] or [T] in [0, 1]"] = 1.0,
    clip_rho_threshold: Float[ArrayLike, "in [0, inf]"] = 1.0,
    stop_target_gradients: bool = True,
    sample_mask: Bool[ArrayLike, "T"] | None = None,
    *,
    truncated_t: Bool[ArrayLike, "T"] | None = None,
    clip_c_threshold: Float[ArrayLike, "in [0, inf]"] = 1.0,
) -> Float[Array, "T"]:
    """Compute V-trace TD errors.

    Takes one trajectory, returns one TD error for each time step.

    ::

        e_t = ρ̄_t δ_t + γ_{t+1} c_t e_{t+1},   e_T = 0,
        δ_t = r_{t+1} + γ_{t+1} v_{t+1} - v_t,
        ρ̄_t = min(ρ̄, ρ_t),   c_t = λ_{t+1} min(c̄, ρ_t).

    The targets of the values are :math:`e_t + v_t`. With all :math:`ρ_t = 1` this is
    `generalized_advantage_estimation`. Infinite ratios are clipped too.

    Args:
        v_tm1: Values of the states acted in, :math:`v_0, …, v_{T-1}`, shape `[T]`.
        v_t: Values of the true next observations, :math:`v_1, …, v_T`, shape `[T]`.
        r_t: Rewards :math:`r_1, …, r_T`, shape `[T]`.
        discount_t: Discounts :math:`γ_1, …, γ_T` in [-1, 1], shape `[T]`.
        rho_tm1: Importance ratios :math:`ρ_t = π(a_t)/μ(a_t)`, in [0, inf],
            shape `[T]`.
        lambda_: Mixing weights :math:`λ_1, …, λ_T` in [0, 1], shape `[]` or `[T]`.
        clip_rho_threshold: Bound :math:`ρ̄` of the ratios, in [0, inf], shape `[]`. A
            smaller one evaluates a policy closer to the behaviour policy.
        stop_target_gradients: Whether to stop the gradient of :math:`e_t + v_t`.
        sample_mask: False for time steps to ignore, shape `[T]`; or None.
        truncated_t: True where truncated: bootstraps from `v_t`, shape `[T]`; or None.
        clip_c_threshold: Bound :math:`c̄` of the ratios, in [0, inf], shape `[]`. It
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
    step = v_tm1, v_t, r_t, discount_t
    clips = clip_rho_threshold, clip_rho_threshold, clip_c_threshold
    ratios = [jnp.minimum(rho_tm1, clip) for clip in clips]
    masks = truncated_t, sample_mask
    return _vtrace(step, ratios, masks, lambda_, stop_target_gradients).errors


@checked
def leaky_vtrace(
    v_tm1: Float[ArrayLike, "T"],
    v_t: Float[ArrayLike, "T"],
    r_t: Float[ArrayLike, "T"],
    discount_t: Float[ArrayLike, "T in [-1, 1]"],
    rho_tm1: Float[ArrayLike, "T in [0, inf]"],
    alpha_: Float[ArrayLike, "in [0, 1]"] = 1.0,
    lambda_: Float[ArrayLike, "[] or [T] in [0, 1]"] = 1.0,
    clip_rho_threshold: Float[ArrayLike, "in [0, inf]"] = 1.0,
    stop_target_gradients: bool = True,
    sample_mask: Bool[ArrayLike, "T"] | None = None,
    *,
    truncated_t: Bool[ArrayLike, "T"] | None = None,
    clip_c_threshold: Float[ArrayLike, "in [0, inf]"] = 1.0,
) -> Float[Array, "T"]:
    """Compute leaky V-trace TD errors.

    Takes one trajectory, returns one TD error for each time step.

    ::

        e_t = ρ̄_t δ_t + γ_{t+1} c_t e_{t+1},   e_T = 0,
        δ_t = r_{t+1} + γ_{t+1} v_{t+1} - v_t,
        ρ̄_t = (1 - α) ρ_t + α min(ρ̄, ρ_t),
        c_t = λ_{t+1} [(1 - α) ρ_t + α min(c̄, ρ_t)].

    :math:`α = 1` gives `vtrace`, :math:`α = 0` importance sampling. The paper learns
    :math:`α` by meta-gradients.

    Args:
        alpha_: Share α of the clipped ratios in [0, 1], shape `[]`; may be learnt.
        clip_rho_threshold: Bound :math:`ρ̄` of the ratios, in [0, inf], shape `[]`.
        clip_c_threshold: Bound :math:`c̄` of the ratios, in [0, inf], shape `[]`.
        Other arguments: as `vtrace`.

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
    step = v_tm1, v_t, r_t, discount_t
    clips = clip_rho_threshold, clip_rho_threshold, clip_c_threshold
    ratios = [_leaky_clip(rho_tm1, clip, alpha_) for clip in clips]
    masks = truncated_t, sample_mask
    return _vtrace(step, ratios, masks, lambda_, stop_target_gradients).errors


@checked
def vtrace_td_error_and_advantage(
    v_tm1: Float[ArrayLike, "T"],
    v_t: Float[ArrayLike, "T"],
    r_t: Float[ArrayLike, "T"],
    discount_t: Float[ArrayLike, "T in [-1, 1]"],
    rho_tm1: Float[ArrayLike, "T in [0, inf]"],
    lambda_: Float[ArrayLike, "[] or [T] in [0, 1]"] = 1.0,
    clip_rho_threshold: Float[ArrayLike, "in [0, inf]"] = 1.0,
    clip_pg_rho_threshold: Float[ArrayLike, "in [0, inf]"] = 1.0,
    stop_target_gradients: bool = True,
    sample_mask: Bool[ArrayLike, "T"] | None = None,
    *,
    truncated_t: Bool[ArrayLike, "T"] | None = None,
    clip_c_threshold: Float[ArrayLike, "in [0, inf]"] = 1.0,
) -> VTraceOutput:
    """Compute the V-trace TD errors and policy-gradient advantages.

    Takes one trajectory, returns three numbers for each time step.

    ::

        e_t = ρ̄_t δ_t + γ_{t+1} c_t e_{t+1},   e_T = 0,
        δ_t = r_{t+1} + γ_{t+1} v_{t+1} - v_t,
        ρ̄_t = min(ρ̄, ρ_t),   c_t = λ_{t+1} min(c̄, ρ_t),
        q_t = r_{t+1} + γ_{t+1} (v_{t+1} + λ_{t+1} e_{t+1}),
        Â_t = min(ρ̄^pg, ρ_t) (q_t - v_t).

    With equal thresholds the advantage equals the TD error.

    Args:
        clip_rho_threshold: Bound :math:`ρ̄` of the ratios, in [0, inf], shape `[]`.
        clip_pg_rho_threshold: Bound :math:`ρ̄^pg` of ratios, in [0, inf], shape `[]`.
        stop_target_gradients: Whether to stop the gradients of targets and estimates.
        clip_c_threshold: Bound :math:`c̄` of the ratios, in [0, inf], shape `[]`.
        Other arguments: as `vtrace`.

    Returns:
        A `VTraceOutput`: `errors` :math:`e_t`, `pg_advantage` :math:`Â_t` and
        `q_estimate` :math:`q_t`, shape `[T]` each, 0 at ignored steps.

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
    step = v_tm1, v_t, r_t, discount_t
    clips = clip_rho_threshold, clip_pg_rho_threshold, clip_c_threshold
    ratios = [jnp.minimum(rho_tm1, clip) for clip in clips]
    masks = truncated_t, sample_mask
    return _vtrace(step, ratios, masks, lambda_, stop_target_gradients)


@checked
def leaky_vtrace_td_error_and_advantage(
    v_tm1: Float[ArrayLike, "T"],
    v_t: Float[ArrayLike, "T"],
    r_t: Float[ArrayLike, "T"],
    discount_t: Float[ArrayLike, "T in [-1, 1]"],
    rho_tm1: Float[ArrayLike, "T in [0, inf]"],
    alpha: Float[ArrayLike, "in [0, 1]"] = 1.0,
    lambda_: Float[ArrayLike, "[] or [T] in [0, 1]"] = 1.0,
    clip_rho_threshold: Float[ArrayLike, "in [0, inf]"] = 1.0,
    clip_pg_rho_threshold: Float[ArrayLike, "in [0, inf]"] = 1.0,
    stop_target_gradients: bool = True,
    sample_mask: Bool[ArrayLike, "T"] | None = None,
    *,
    truncated_t: Bool[ArrayLike, "T"] | None = None,
    clip_c_threshold: Float[ArrayLike, "in [0, inf]"] = 1.0,
) -> VTraceOutput:
    """Compute the leaky V-trace TD errors and policy-gradient advantages.

    Takes one trajectory, returns three numbers for each time step.

    ::

        e_t = ρ̄_t δ_t + γ_{t+1} c_t e_{t+1},   e_T = 0,
        δ_t = r_{t+1} + γ_{t+1} v_{t+1} - v_t,
        ρ̄_t = (1 - α) ρ_t + α min(ρ̄, ρ_t),
        c_t = λ_{t+1} [(1 - α) ρ_t + α min(c̄, ρ_t)],
        q_t = r_{t+1} + γ_{t+1} (v_{t+1} + λ_{t+1} e_{t+1}),
        Â_t = [(1 - α) ρ_t + α min(ρ̄^pg, ρ_t)] (q_t - v_t).

    :math:`α = 1` gives V-trace, :math:`α = 0` importance sampling.

    Args:
        alpha: Share α of the clipped ratios in [0, 1], shape `[]`; may be learnt.
        Other arguments: as `vtrace_td_error_and_advantage`.

    Returns:
        A `VTraceOutput`: `errors` :math:`e_t`, `pg_advantage` :math:`Â_t` and
        `q_estimate` :math:`q_t`, shape `[T]` each, 0 at ignored steps.

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
    step = v_tm1, v_t, r_t, discount_t
    clips = clip_rho_threshold, clip_pg_rho_threshold, clip_c_threshold
    ratios = [_leaky_clip(rho_tm1, clip, alpha) for clip in clips]
    masks = truncated_t, sample_mask
    return _vtrace(step, ratios, masks, lambda_, stop_target_gradients)


def _vtrace(
    step: tuple[Array, Array, Array, Array],
    ratios: Sequence[Array],
    masks: tuple[Array | None, Array | None],
    lambda_: Array,
    stop: bool,
) -> VTraceOutput:
    """Return the outputs of V-trace.

    Args:
        step: `v_tm1`, `v_t`, `r_t` and `discount_t`.
        ratios: Clipped ratios in TD errors, in advantages and in traces.
        masks: `truncated_t` and `sample_mask`.
        lambda_: As for `vtrace`.
        stop: Whether to stop the gradients of the estimates.

    Returns:
        Errors, advantages and estimates of action values.
    """
    v_tm1, v_t, r_t, discount_t = step
    rho, pg_rho, c = ratios
    delta = gradients.td_error(v_tm1, r_t, discount_t, v_t)
    errors = backward(rho * delta, discount_t * lambda_ * c, 0.0, *masks)
    e_t = streams.at_next_valid(errors, *masks)
    # Without the reward, which is added last.
    q = carried(discount_t, v_t + lambda_ * e_t)
    estimates = stop_if(stop, (pg_rho * (r_t + (q - v_tm1)), r_t + q))
    errors = gradients.correction(errors, v_tm1, stop)
    return VTraceOutput(errors, *estimates)


def _leaky_clip(rho: Array, threshold: Array, alpha: ArrayLike) -> Array:
    """Return `α min(ρ, threshold) + (1 - α) ρ`."""
    rho = jnp.minimum(rho, -safe.FLOOR)  # At α = 1, `0 * inf` would be NaN.
    return (1 - alpha) * rho + alpha * jnp.minimum(rho, threshold)
