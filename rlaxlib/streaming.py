"""Streaming RL: one update a time step, without a replay buffer.

Eligibility traces (accumulating and replacing), true online TD(λ), emphatic
TD(λ), gradient TD (TDC and GTD2) and the step size of stream-x (ObGD).

A function takes one transition: arrays named `*_tm1` belong to the state and its
action, arrays named `*_t` to the next state. A discount of 0 ends the episode, and cuts
the traces before the next update.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from rlaxlib._core import safe, streams
from rlaxlib._core.gradients import td_error
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Bool, Float, Static, Tree

__all__ = [
    "EmphaticTraceState",
    "GradientTdOutputs",
    "TrueOnlineTdState",
    "eligibility_trace",
    "emphatic_trace",
    "emphatic_trace_init",
    "gtd2_loss",
    "obgd_step_size",
    "tdc_loss",
    "true_online_td_init",
    "true_online_td_lambda",
]

ArrayTree = Any


class EmphaticTraceState(NamedTuple):
    """An emphatic trace, and the scalars that the next update needs.

    `emphatic_trace_init` returns the first.

    Attributes:
        trace: Eligibility trace :math:`z`, a pytree like the parameters.
        followon: Followon trace :math:`F`, shape `[]`.
        rho: Importance ratio of the last action, in [0, inf), shape `[]`.
        discount: Discount of the last transition, in [-1, 1], 0 if the stream was cut,
            shape `[]`.
    """

    trace: Tree[ArrayTree, "float"]
    followon: Float[ArrayLike, ""]
    rho: Float[ArrayLike, "in [0, inf)"]
    discount: Float[ArrayLike, "in [-1, 1]"]


class TrueOnlineTdState(NamedTuple):
    """Weights of a linear value function, and the trace of the next update.

    `true_online_td_init` returns the first.

    Attributes:
        weights: Weights :math:`w`, shape `[D]`.
        trace: Dutch trace :math:`z`, shape `[D]`.
        value: Value of the last next state, before the last update, shape `[]`.
        discount: Discount of the last transition, in [-1, 1], 0 if the stream was cut,
            shape `[]`.
    """

    weights: Float[ArrayLike, "D"]
    trace: Float[ArrayLike, "D"]
    value: Float[ArrayLike, ""]
    discount: Float[ArrayLike, "in [-1, 1]"]


class GradientTdOutputs(NamedTuple):
    """Statistics of a gradient-TD method.

    Attributes:
        value_loss: Loss :math:`L_v`, of which only the gradient has a meaning,
            shape `[]`.
        correction_loss: Loss :math:`L_h` of the correction :math:`h`, shape `[]`.
        td_error: TD error :math:`δ`, shape `[]`.
    """

    value_loss: Float[Array, ""]
    correction_loss: Float[Array, ""]
    td_error: Float[Array, ""]


# --- Eligibility traces. ---


@checked
def eligibility_trace(
    trace: Tree[ArrayTree, "float"],
    gradient: Tree[ArrayTree, "float like trace"],
    decay: Float[ArrayLike, "in [0, inf)"],
    kind: Literal["accumulating", "replacing"] = "accumulating",
) -> Tree[ArrayTree, "float like trace"]:
    """Update an accumulating or replacing eligibility trace.

    Takes one trace and one gradient, returns the next trace.

    ::

        z_t = { γ_t λ z_{t-1} + ∇v(s_t)   accumulating
              { ∇v(s_t)                   replacing, ∇v(s_t) ≠ 0
              { γ_t λ z_{t-1}             replacing, ∇v(s_t) = 0,   for each element

    The update :math:`w ← w + α δ z` is TD(λ). The discount belongs to the transition
    *to* :math:`s_t`: it is 0 if an episode starts there. Replacing traces are for
    tabular values and binary features: a state that is visited often does not raise
    them above 1. With :math:`γ = λ = 1` and updates at the end of each episode, their
    values are first-visit Monte Carlo estimates, those of accumulating traces
    every-visit estimates. The dutch trace is that of `true_online_td_lambda`.

    Args:
        trace: Trace :math:`z_{t-1}`, zeros at first, shape `[...]`; or a pytree.
        gradient: Gradient of the value of the state, shape `[...]`; or a pytree.
        decay: Decay :math:`γ_t λ`, in [0, inf), shape `[]`.
        kind: `"accumulating"` or `"replacing"`.

    Returns:
        Trace :math:`z_t`, like `trace`.

    Raises:
        ArgumentError: If a structure, shape, dtype or `kind` is wrong, or `decay`
            negative.

    Example:
        >>> trace, gradient = jnp.array([1.0, 2.0]), jnp.array([0.0, 1.0])
        >>> print(rlaxlib.eligibility_trace(trace, gradient, decay=0.5))
        [0.5 2. ]
        >>> print(rlaxlib.eligibility_trace(trace, gradient, 0.5, "replacing"))
        [0.5 1. ]

    References:
        Richard S. Sutton and Andrew G. Barto, *Reinforcement Learning: An
        Introduction*, second edition, section 12.2, 2018.
        http://incompleteideas.net/book/the-book-2nd.html

        Satinder P. Singh and Richard S. Sutton, *Reinforcement Learning with Replacing
        Eligibility Traces*, 1996. https://doi.org/10.1007/BF00114726
    """

    def update(z: Array, g: Array) -> Array:
        if kind == "replacing":
            return jnp.where(g != 0, g, decay * z)
        return decay * z + g

    return jax.tree.map(update, trace, gradient)


@checked(compiled=False)
def emphatic_trace_init(params: Tree[ArrayTree, "float"]) -> EmphaticTraceState:
    """Return the emphatic trace before the first transition.

    Takes the parameters of a value function, returns a state.

    ::

        z = 0,   F = 0

    Args:
        params: Parameters, a pytree.

    Returns:
        An `EmphaticTraceState` with a `trace` of zeros like the parameters.

    Raises:
        ArgumentError: If a leaf is not of floats.

    Example:
        >>> print(rlaxlib.emphatic_trace_init(jnp.ones(2)).trace)
        [0. 0.]

    References:
        Richard S. Sutton, A. Rupam Mahmood and Martha White, *An Emphatic Approach to
        the Problem of Off-policy Temporal-Difference Learning*, 2015.
        https://arxiv.org/abs/1503.04269
    """
    state = EmphaticTraceState(jax.tree.map(jnp.zeros_like, params), 0.0, 1.0, 0.0)
    return jax.tree.map(jnp.asarray, state)


@checked
def emphatic_trace(
    state: EmphaticTraceState,
    gradient: Tree[ArrayTree, "float like state.trace"],
    rho_tm1: Float[ArrayLike, "in [0, inf)"],
    discount_t: Float[ArrayLike, "in [-1, 1]"],
    lambda_: Float[ArrayLike, "in [0, 1]"],
    interest: Float[ArrayLike, "in [0, inf)"] = 1.0,
    *,
    truncated_t: Bool[ArrayLike, ""] | None = None,
) -> EmphaticTraceState:
    """Update the trace of emphatic TD(λ) (ETD).

    Takes one state and gradient, returns the next state.

    ::

        F_t = ρ_{t-1} γ_t F_{t-1} + i_t
        M_t = λ i_t + (1 - λ) F_t
        z_t = ρ_t (γ_t λ z_{t-1} + M_t ∇v(s_t))

    The update :math:`w ← w + α δ z` is stable off-policy with linear values: the
    emphasis :math:`M_t` weighs a state by how often the target policy comes there from
    states of interest. :math:`F_t` has the ratio and the discount of the *last*
    transition, which the state carries. The variance of :math:`F` can be infinite.

    Args:
        state: Last trace, an `EmphaticTraceState`.
        gradient: Gradient of the value of the state, a pytree like `state.trace`.
        rho_tm1: Importance ratio :math:`ρ_t` of the action, in [0, inf), shape `[]`.
        discount_t: Discount :math:`γ_{t+1}` in [-1, 1], 0 where the episode ends,
            shape `[]`.
        lambda_: Trace parameter :math:`λ`, in [0, 1], shape `[]`.
        interest: Interest :math:`i_t` in the state, in [0, inf), shape `[]`.
        truncated_t: True if the stream is cut after the step, shape `[]`; or None.

    Returns:
        Next `EmphaticTraceState`. Its `trace` is :math:`z_t`.

    Raises:
        ArgumentError: If a structure, shape, dtype or concrete value is wrong.

    Example:
        >>> state = rlaxlib.EmphaticTraceState(jnp.zeros(1), 1.0, rho=2.0, discount=0.5)
        >>> state = rlaxlib.emphatic_trace(state, jnp.ones(1), 3.0, 0.5, lambda_=0.0)
        >>> print(state.followon, state.trace)
        2.0 [6.]

    References:
        Richard S. Sutton, A. Rupam Mahmood and Martha White, *An Emphatic Approach to
        the Problem of Off-policy Temporal-Difference Learning*, 2015.
        https://arxiv.org/abs/1503.04269
    """
    trace, followon, rho, discount = state
    followon = discount * rho * followon + interest
    emphasis = lambda_ * interest + (1 - lambda_) * followon
    decay = discount * lambda_

    def update(z: Array, g: Array) -> Array:
        return rho_tm1 * (decay * z + emphasis * g)

    trace = jax.tree.map(update, trace, gradient)
    return EmphaticTraceState(
        trace, followon, rho_tm1, _unless(truncated_t, discount_t)
    )


# --- TD learning. ---


@checked
def true_online_td_init(num_features: Static[int, "in [1, inf)"]) -> TrueOnlineTdState:
    """Return the state of true online TD(λ) before the first transition.

    Takes a number of features, returns a state.

    ::

        w = 0,   z = 0

    Args:
        num_features: Number :math:`D` of features, a Python integer in [1, inf).

    Returns:
        A `TrueOnlineTdState` of zeros.

    Raises:
        ArgumentError: If `num_features` is not a Python integer of at least 1.

    Example:
        >>> print(rlaxlib.true_online_td_init(2).weights)
        [0. 0.]

    References:
        Harm van Seijen and others, *True Online Temporal-Difference Learning*, 2015.
        https://arxiv.org/abs/1512.04087
    """
    return TrueOnlineTdState(jnp.zeros(num_features), jnp.zeros(num_features), 0.0, 0.0)


@checked
def true_online_td_lambda(
    state: TrueOnlineTdState,
    x_tm1: Float[ArrayLike, "D"],
    r_t: Float[ArrayLike, ""],
    discount_t: Float[ArrayLike, "in [-1, 1]"],
    x_t: Float[ArrayLike, "D"],
    lambda_: Float[ArrayLike, "in [0, 1]"],
    step_size: Float[ArrayLike, "in [0, inf)"],
    *,
    truncated_t: Bool[ArrayLike, ""] | None = None,
) -> TrueOnlineTdState:
    """Update the weights of a linear value function by true online TD(λ).

    Takes one transition and a state, returns the next state.

    ::

        δ = r_t + γ_t v_t - v_{t-1},   v = wᵀ x
        z ← γ_{t-1} λ z + (1 - α γ_{t-1} λ zᵀ x_{t-1}) x_{t-1}
        w ← w + α (δ + v_{t-1} - v_old) z - α (v_{t-1} - v_old) x_{t-1}

    where :math:`v_old` is the value that :math:`v_{t-1}` had before the last update.
    After every step, the online λ-return algorithm would have the same weights.

    Args:
        state: Weights and trace, a `TrueOnlineTdState`.
        x_tm1: Features of the state, shape `[D]`.
        r_t: Reward, shape `[]`.
        discount_t: Discount :math:`γ_t` in [-1, 1], 0 where the episode ends,
            shape `[]`.
        x_t: Features of the true next state, shape `[D]`.
        lambda_: Trace parameter :math:`λ`, in [0, 1], shape `[]`.
        step_size: Step size :math:`α`, in [0, inf), shape `[]`.
        truncated_t: True if the stream is cut after the step, shape `[]`; or None.

    Returns:
        Next `TrueOnlineTdState`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> state = rlaxlib.true_online_td_init(2)
        >>> x_tm1, x_t = jnp.array([1.0, 0.0]), jnp.array([0.0, 1.0])
        >>> state = rlaxlib.true_online_td_lambda(state, x_tm1, 1.0, 1.0, x_t, 1.0, 0.5)
        >>> state = rlaxlib.true_online_td_lambda(state, x_t, 2.0, 0.0, x_tm1, 1.0, 0.5)
        >>> print(state.weights)
        [1.5 1. ]

    References:
        Harm van Seijen and others, *True Online Temporal-Difference Learning*, 2015.
        https://arxiv.org/abs/1512.04087
    """
    w, z, v_old, discount = state
    v_tm1, v_t = safe.dot(w, x_tm1), safe.dot(w, x_t)
    delta = td_error(v_tm1, r_t, discount_t, v_t)
    decay, alpha = discount * lambda_, step_size
    overlap = alpha * decay * safe.dot(z, x_tm1)
    z = decay * z + (1 - overlap) * x_tm1
    # After the end of an episode the trace is the features, and `v_old` has no effect.
    w = w + alpha * (delta * z + (z - x_tm1) * (v_tm1 - v_old))
    return TrueOnlineTdState(w, z, v_t, _unless(truncated_t, discount_t))


@checked
def tdc_loss(
    v_tm1: Float[ArrayLike, ""],
    h_tm1: Float[ArrayLike, ""],
    r_t: Float[ArrayLike, ""],
    discount_t: Float[ArrayLike, "in [-1, 1]"],
    v_t: Float[ArrayLike, ""],
    *,
    rho_tm1: Float[ArrayLike, "in [0, inf)"] = 1.0,
) -> tuple[Float[Array, ""], GradientTdOutputs]:
    """Compute the loss of TD with gradient correction (TDC).

    Takes one transition, returns one loss, and diagnostics.

    ::

        -∂L_v / ∂w = ρ (δ ∇v_{t-1} - γ_t h ∇v_t)
        L_h = ½ ρ (δ - h)²,   δ = r_t + γ_t v_t - v_{t-1}

    Semi-gradient TD with a correction, which converges off-policy: for linear values,
    to the minimum of the projected Bellman error. The correction :math:`h(s)` is a
    second function that learns the expected TD error, usually linear in the same
    features, with the larger step size.

    Args:
        v_tm1: Value :math:`v_{t-1}` of the state, shape `[]`.
        h_tm1: Correction :math:`h` of the state, shape `[]`.
        r_t: Reward, shape `[]`.
        discount_t: Discount :math:`γ_t` in [-1, 1], 0 where the episode ended,
            shape `[]`.
        v_t: Value :math:`v_t` of the next state by the same function, shape `[]`.
        rho_tm1: Importance ratio :math:`ρ` of the action, in [0, inf), shape `[]`.

    Returns:
        A tuple of two: the loss :math:`L_v + L_h`, shape `[]`, and a
        `GradientTdOutputs`. The gradient of :math:`L_v` with respect to `h_tm1` and
        that of :math:`L_h` with respect to the values are 0.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> def loss(v_tm1, v_t):
        ...     return rlaxlib.tdc_loss(v_tm1, 4.0, 1.0, 0.5, v_t)[0]
        >>> print(*jax.grad(loss, (0, 1))(1.0, 4.0))
        -2.0 2.0

    References:
        Richard S. Sutton and others, *Fast Gradient-Descent Methods for
        Temporal-Difference Learning with Linear Function Approximation*, 2009.
        https://doi.org/10.1145/1553374.1553501
    """
    delta = td_error(v_tm1, r_t, discount_t, v_t)
    stop = jax.lax.stop_gradient
    h, rho = stop(h_tm1), stop(rho_tm1)
    value = rho * (streams.bootstrap(stop(discount_t), v_t) * h - stop(delta) * v_tm1)
    correction = _correction(delta, h_tm1, rho_tm1)
    return value + correction, GradientTdOutputs(value, correction, delta)


@checked
def gtd2_loss(
    v_tm1: Float[ArrayLike, ""],
    h_tm1: Float[ArrayLike, ""],
    r_t: Float[ArrayLike, ""],
    discount_t: Float[ArrayLike, "in [-1, 1]"],
    v_t: Float[ArrayLike, ""],
    *,
    rho_tm1: Float[ArrayLike, "in [0, inf)"] = 1.0,
) -> tuple[Float[Array, ""], GradientTdOutputs]:
    """Compute the loss of gradient TD, second version (GTD2).

    Takes one transition, returns one loss, and diagnostics.

    ::

        -∂L_v / ∂w = ρ h (∇v_{t-1} - γ_t ∇v_t)
        L_h = ½ ρ (δ - h)²,   δ = r_t + γ_t v_t - v_{t-1}

    A stochastic gradient of the projected Bellman error. `tdc_loss` usually learns
    faster. The correction :math:`h(s)` is a second function that learns the expected TD
    error, usually linear in the same features.

    Args:
        Other arguments: as `tdc_loss`.

    Returns:
        A tuple of two: the loss :math:`L_v + L_h`, shape `[]`, and a
        `GradientTdOutputs`. The gradient of :math:`L_v` with respect to `h_tm1` and
        that of :math:`L_h` with respect to the values are 0.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> def loss(v_tm1, v_t):
        ...     return rlaxlib.gtd2_loss(v_tm1, 4.0, 1.0, 0.5, v_t)[0]
        >>> print(*jax.grad(loss, (0, 1))(1.0, 4.0))
        -4.0 2.0

    References:
        Richard S. Sutton and others, *Fast Gradient-Descent Methods for
        Temporal-Difference Learning with Linear Function Approximation*, 2009.
        https://doi.org/10.1145/1553374.1553501
    """
    delta = td_error(v_tm1, r_t, discount_t, v_t)
    stop = jax.lax.stop_gradient
    h = stop(h_tm1)
    gap = streams.bootstrap(stop(discount_t), v_t) - v_tm1
    value = stop(rho_tm1) * (h * gap)
    correction = _correction(delta, h_tm1, rho_tm1)
    return value + correction, GradientTdOutputs(value, correction, delta)


@checked
def obgd_step_size(
    trace: Tree[ArrayTree, "float"],
    td_error: Float[ArrayLike, ""],
    step_size: Float[ArrayLike, "in [0, inf)"] = 1.0,
    kappa: Float[ArrayLike, "in [0, inf)"] = 2.0,
) -> Float[Array, ""]:
    """Compute the step size of overshooting-bounded gradient descent (ObGD, stream-x).

    Takes one trace and TD error, returns one step size.

    ::

        α' = α / max(1, M),   M = α κ max(|δ|, 1) ‖z‖_1

    The update :math:`w ← w + α' δ z` then rarely overshoots its target. Stream-x uses
    :math:`α = 1`, with :math:`κ = 2` for values and 3 for policies.

    Args:
        trace: Eligibility trace :math:`z`, shape `[...]`; or a pytree of such.
        td_error: TD error :math:`δ`, shape `[]`.
        step_size: Largest step size :math:`α`, in [0, inf), shape `[]`.
        kappa: Safety factor :math:`κ`, in [0, inf), shape `[]`.

    Returns:
        Step size :math:`α'`, shape `[]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> trace = {"weights": jnp.array([1.0, -1.0]), "bias": jnp.array(2.0)}
        >>> print(rlaxlib.obgd_step_size(trace, td_error=-2.0))
        0.0625

    References:
        Mohamed Elsayed, Gautham Vasan and A. Rupam Mahmood, *Streaming Deep
        Reinforcement Learning Finally Works*, 2024. https://arxiv.org/abs/2410.14606
    """
    norm = sum(jnp.sum(jnp.abs(z)) for z in jax.tree.leaves(trace))
    m = step_size * kappa * jnp.maximum(jnp.abs(td_error), 1) * norm
    return step_size / jnp.maximum(1, m)


def _correction(delta: Array, h_tm1: Array, rho_tm1: Array) -> Array:
    """Return the loss of the correction."""
    delta, rho_tm1 = jax.lax.stop_gradient((delta, rho_tm1))
    return 0.5 * rho_tm1 * jnp.square(delta - h_tm1)


def _unless(cut: Array | None, discount: Array) -> Array:
    """Return a discount, or 0 if the stream is cut."""
    return discount if cut is None else jnp.where(cut, 0, discount)
