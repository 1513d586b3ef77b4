"""Multistep TD errors.

TD(λ), Sarsa(λ), Q(λ), the trace of Watkins's Q(λ), Retrace and Retrace for continuous
actions.

All functions return one error for each time step, the target minus the prediction. The
targets are returns of `rlaxlib.returns`: λ-returns, which differ in the value that they
bootstrap from, and general off-policy returns with the trace coefficients of Retrace.

Arrays named `*_tm1` hold the times `0` to `T - 1`, at which the actions were chosen,
arrays named `*_t` the times `1` to `T`.

Functions take one trajectory. Use `jax.vmap` for a batch.
"""

from __future__ import annotations

import jax.numpy as jnp

from rlaxlib import distributions, returns
from rlaxlib._core import gradients
from rlaxlib._core.indexing import pick
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Bool, Float, Int
from rlaxlib.values._shared import retrace_coefficients

__all__ = [
    "q_lambda",
    "retrace",
    "retrace_continuous",
    "sarsa_lambda",
    "td_lambda",
    "watkins_trace",
]


@checked
def td_lambda(
    v_tm1: Float[ArrayLike, "T"],
    r_t: Float[ArrayLike, "T"],
    discount_t: Float[ArrayLike, "T in [-1, 1]"],
    v_t: Float[ArrayLike, "T"],
    lambda_: Float[ArrayLike, "[] or [T] in [0, 1]"],
    stop_target_gradients: bool = True,
    *,
    truncated_t: Bool[ArrayLike, "T"] | None = None,
    sample_mask: Bool[ArrayLike, "T"] | None = None,
) -> Float[Array, "T"]:
    """Compute the TD(λ) errors of state values.

    Takes one trajectory, returns one TD error for each time step.

    ::

        e_t = G_t - v_t,
        G_t = r_{t+1} + γ_{t+1} [(1 - λ_{t+1}) v_{t+1} + λ_{t+1} G_{t+1}],
        G_T = v_T.

    Args:
        v_tm1: Values of the states, :math:`v_0, …, v_{T-1}`, shape `[T]`.
        r_t: Rewards :math:`r_1, …, r_T`, shape `[T]`.
        discount_t: Discounts :math:`γ_1, …, γ_T` in [-1, 1], shape `[T]`.
        v_t: Values :math:`v_1, …, v_T` of the true next observations, shape `[T]`.
        lambda_: Mixing weights :math:`λ_1, …, λ_T` in [0, 1], shape `[]` or `[T]`.
        stop_target_gradients: Whether to stop the gradient of the targets.
        truncated_t: True where truncated: bootstraps from `v_t`, shape `[T]`; or None.
        sample_mask: False for time steps to ignore, shape `[T]`; or None.

    Returns:
        Errors :math:`e_0, …, e_{T-1}`, shape `[T]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> v_tm1, v_t, r_t = jnp.array([[1.0, 8.0], [8.0, 4.0], [1.0, 2.0]])
        >>> print(rlaxlib.td_lambda(v_tm1, r_t, jnp.full(2, 0.5), v_t, lambda_=0.5))
        [ 3. -4.]

    References:
        Richard S. Sutton, *Learning to Predict by the Methods of Temporal Differences*,
        1988. https://doi.org/10.1007/BF00115009
    """
    targets = returns.lambda_returns(
        r_t, discount_t, v_t, lambda_, truncated_t=truncated_t, sample_mask=sample_mask
    )
    return gradients.error(targets, v_tm1, stop_target_gradients)


@checked
def sarsa_lambda(
    q_tm1: Float[ArrayLike, "T, A"],
    a_tm1: Int[ArrayLike, "T in [0, A)"],
    r_t: Float[ArrayLike, "T"],
    discount_t: Float[ArrayLike, "T in [-1, 1]"],
    q_t: Float[ArrayLike, "T, A"],
    a_t: Int[ArrayLike, "T in [0, A)"],
    lambda_: Float[ArrayLike, "[] or [T] in [0, 1]"],
    stop_target_gradients: bool = True,
    *,
    truncated_t: Bool[ArrayLike, "T"] | None = None,
    sample_mask: Bool[ArrayLike, "T"] | None = None,
) -> Float[Array, "T"]:
    """Compute the Sarsa(λ) TD errors of action values.

    Takes one trajectory, returns one TD error for each time step.

    ::

        e_t = G_t - q_t(a_t),
        G_t = r_{t+1} + γ_{t+1} [(1 - λ_{t+1}) q_{t+1}(a_{t+1}) + λ_{t+1} G_{t+1}],
        G_T = q_T(a_T).

    Args:
        q_tm1: Action values :math:`q_0, …, q_{T-1}`, shape `[T, A]`.
        a_tm1: Actions taken, :math:`a_0, …, a_{T-1}` in [0, A), shape `[T]`.
        r_t: Rewards :math:`r_1, …, r_T`, shape `[T]`.
        discount_t: Discounts :math:`γ_1, …, γ_T` in [-1, 1], shape `[T]`.
        q_t: Action values in the true next states, :math:`q_1, …, q_T`, shape `[T, A]`.
        a_t: Actions taken next, :math:`a_1, …, a_T` in [0, A), shape `[T]`.
        lambda_: Mixing weights :math:`λ_1, …, λ_T` in [0, 1], shape `[]` or `[T]`.
        stop_target_gradients: Whether to stop the gradient of the targets.
        truncated_t: True where truncated: bootstraps from `q_t`, shape `[T]`; or None.
        sample_mask: False for time steps to ignore, shape `[T]`; or None.

    Returns:
        Errors :math:`e_0, …, e_{T-1}`, NaN for actions outside [0, A), shape `[T]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> q_tm1, q_t = jnp.array([[[1.0, 0.0], [0.0, 8.0]], [[0.0, 8.0], [4.0, 0.0]]])
        >>> (a_tm1, a_t), r_t = jnp.array([[0, 1], [1, 0]]), jnp.array([1.0, 2.0])
        >>> inputs = q_tm1, a_tm1, r_t, jnp.full(2, 0.5), q_t, a_t
        >>> print(rlaxlib.sarsa_lambda(*inputs, lambda_=0.5))
        [ 3. -4.]

    References:
        Richard S. Sutton and Andrew G. Barto, *Reinforcement Learning: An
        Introduction*, 2018. http://incompleteideas.net/book/the-book-2nd.html
    """
    v_t = pick(q_t, a_t)
    targets = returns.lambda_returns(
        r_t, discount_t, v_t, lambda_, truncated_t=truncated_t, sample_mask=sample_mask
    )
    return gradients.error(targets, pick(q_tm1, a_tm1), stop_target_gradients)


@checked
def q_lambda(
    q_tm1: Float[ArrayLike, "T, A"],
    a_tm1: Int[ArrayLike, "T in [0, A)"],
    r_t: Float[ArrayLike, "T"],
    discount_t: Float[ArrayLike, "T in [-1, 1]"],
    q_t: Float[ArrayLike, "T, A"],
    lambda_: Float[ArrayLike, "[] or [T] in [0, 1]"],
    stop_target_gradients: bool = True,
    *,
    truncated_t: Bool[ArrayLike, "T"] | None = None,
    sample_mask: Bool[ArrayLike, "T"] | None = None,
) -> Float[Array, "T"]:
    """Compute the Q(λ) TD errors of action values (Peng's and Watkins's Q(λ)).

    Takes one trajectory, returns one TD error for each time step.

    ::

        e_t = G_t - q_t(a_t),
        G_t = r_{t+1} + γ_{t+1} [(1 - λ_{t+1}) max_a q_{t+1}(a) + λ_{t+1} G_{t+1}],
        G_T = max_a q_T(a).

    This is Peng's Q(λ). For Watkins's Q(λ), multiply λ by `watkins_trace(q_t, a_t)`.

    Args:
        Other arguments: as `sarsa_lambda`.

    Returns:
        Errors :math:`e_0, …, e_{T-1}`, NaN for actions outside [0, A), shape `[T]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> q_tm1, q_t = jnp.array([[[1.0, 0.0], [0.0, 8.0]], [[0.0, 8.0], [4.0, 0.0]]])
        >>> r_t, discount_t = jnp.array([[1.0, 2.0], [0.5, 0.5]])
        >>> print(rlaxlib.q_lambda(q_tm1, jnp.arange(2), r_t, discount_t, q_t, 0.5))
        [ 3. -4.]

    References:
        Christopher J. C. H. Watkins, *Learning from Delayed Rewards*, 1989.
        https://www.cs.rhul.ac.uk/~chrisw/thesis.html

        Jing Peng and Ronald J. Williams, *Incremental Multi-Step Q-Learning*, 1994.
        https://doi.org/10.1016/B978-1-55860-335-6.50035-0
    """
    v_t = jnp.max(q_t, axis=-1)
    targets = returns.lambda_returns(
        r_t, discount_t, v_t, lambda_, truncated_t=truncated_t, sample_mask=sample_mask
    )
    return gradients.error(targets, pick(q_tm1, a_tm1), stop_target_gradients)


@checked
def watkins_trace(
    q_t: Float[ArrayLike, "T, A"], a_t: Int[ArrayLike, "T in [0, A)"]
) -> Float[Array, "T"]:
    """Compute the trace coefficients of Watkins's Q(λ).

    Takes one trajectory, returns one trace coefficient for each time step.

    ::

        c_t = { 1   if q_t(a_t) = max_a q_t(a)
              { 0   otherwise

    Pass :math:`λ c` as the λ of `q_lambda` or `transformed_q_lambda`.

    Args:
        q_t: Action values in the true next states, :math:`q_1, …, q_T`, shape `[T, A]`.
        a_t: Actions taken next, :math:`a_1, …, a_T` in [0, A), shape `[T]`.

    Returns:
        Trace coefficients :math:`c_t`, shape `[T]`; in a JAX array, an action out of
        range gives NaN.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> q_t, a_t = jnp.array([[0.0, 8.0], [4.0, 0.0]]), jnp.array([1, 1])
        >>> print(rlaxlib.watkins_trace(q_t, a_t))
        [1. 0.]

    References:
        Christopher J. C. H. Watkins, *Learning from Delayed Rewards*, 1989.
        https://www.cs.rhul.ac.uk/~chrisw/thesis.html
    """
    is_best = distributions.greedy().probs(preferences=q_t) > 0
    return pick(is_best.astype(q_t.dtype), a_t)


@checked
def retrace(
    q_tm1: Float[ArrayLike, "T, A"],
    q_t: Float[ArrayLike, "T, A"],
    a_tm1: Int[ArrayLike, "T in [0, A)"],
    a_t: Int[ArrayLike, "T"],
    r_t: Float[ArrayLike, "T"],
    discount_t: Float[ArrayLike, "T in [-1, 1]"],
    pi_t: Float[ArrayLike, "T, A in [0, 1]"],
    mu_t: Float[ArrayLike, "T in [0, 1]"],
    lambda_: Float[ArrayLike, "[] or [T] in [0, 1]"],
    eps: Float[ArrayLike, "in [0, inf)"] = 1e-8,
    stop_target_gradients: bool = True,
    *,
    truncated_t: Bool[ArrayLike, "T"] | None = None,
    sample_mask: Bool[ArrayLike, "T"] | None = None,
) -> Float[Array, "T"]:
    """Compute the Retrace(λ) TD errors of action values, corrected off-policy.

    Takes one trajectory, returns one TD error for each time step.

    ::

        e_t = G_t - q_t(a_t),
        G_t = r_{t+1} + γ_{t+1} [∑_a π_{t+1}(a) q_{t+1}(a)
            + c_{t+1} (G_{t+1} - q_{t+1}(a_{t+1}))],
        c_t = λ_t min(1, π_t(a_t) / (μ_t + ε)),   c_T = 0.

    Args:
        q_tm1: Action values :math:`q_0, …, q_{T-1}`, shape `[T, A]`.
        q_t: Action values in the true next states, :math:`q_1, …, q_T`, shape `[T, A]`.
        a_tm1: Actions taken, :math:`a_0, …, a_{T-1}` in [0, A), shape `[T]`.
        a_t: Actions taken next, :math:`a_1, …, a_T`, shape `[T]`. The last one is not
            used.
        r_t: Rewards :math:`r_1, …, r_T`, shape `[T]`.
        discount_t: Discounts :math:`γ_1, …, γ_T` in [-1, 1], shape `[T]`.
        pi_t: Probabilities :math:`π_t` of all next actions, target policy, in [0, 1],
            shape `[T, A]`.
        mu_t: Probabilities of `a_t` under the behaviour policy, in [0, 1], shape `[T]`.
        lambda_: Mixing weights :math:`λ_1, …, λ_T` in [0, 1], shape `[]` or `[T]`.
        eps: Constant :math:`ε` in [0, inf) that avoids division by 0, shape `[]`.
        stop_target_gradients: Whether to stop the gradient of the targets.
        truncated_t: True where truncated: bootstraps from `q_t`, shape `[T]`; or None.
        sample_mask: False for time steps to ignore, shape `[T]`; or None.

    Returns:
        Errors :math:`e_0, …, e_{T-1}`, NaN for actions outside [0, A), shape `[T]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> q_tm1, q_t = jnp.array([[[1.0, 0.0], [0.0, 8.0]], [[2.0, 4.0], [6.0, 8.0]]])
        >>> (a_tm1, a_t), pi_t = jnp.array([[0, 1], [1, 0]]), jnp.full((2, 2), 0.5)
        >>> r_t, discount_t, mu_t = jnp.array([[1.0, 2.0], [0.5, 0.5], [0.25, 0.25]])
        >>> inputs = q_tm1, q_t, a_tm1, a_t, r_t, discount_t, pi_t, mu_t
        >>> print(rlaxlib.retrace(*inputs, lambda_=1.0))
        [ 2.25 -2.5 ]

    References:
        Rémi Munos and others, *Safe and Efficient Off-Policy Reinforcement Learning*,
        2016. https://arxiv.org/abs/1606.02647
    """
    c_t = retrace_coefficients(a_t, pi_t, mu_t, lambda_, eps)
    step = q_t, a_t, r_t, discount_t, c_t, pi_t
    targets = returns.general_off_policy_returns_from_action_values(
        *step, truncated_t=truncated_t, sample_mask=sample_mask
    )
    return gradients.error(targets, pick(q_tm1, a_tm1), stop_target_gradients)


@checked
def retrace_continuous(
    q_tm1: Float[ArrayLike, "T"],
    q_t: Float[ArrayLike, "[T-1] or [T]"],
    v_t: Float[ArrayLike, "T"],
    r_t: Float[ArrayLike, "T"],
    discount_t: Float[ArrayLike, "T in [-1, 1]"],
    log_rhos: Float[ArrayLike, "[T-1] or [T]"],
    lambda_: Float[ArrayLike, "[] or [T-1] or [T] in [0, 1]"],
    stop_target_gradients: bool = True,
    *,
    truncated_t: Bool[ArrayLike, "T"] | None = None,
    sample_mask: Bool[ArrayLike, "T"] | None = None,
) -> Float[Array, "T"]:
    """Compute the Retrace(λ) TD errors for continuous actions.

    Takes one trajectory, returns one TD error for each time step.

    ::

        e_t = G_t - q_t,
        G_t = r_{t+1} + γ_{t+1} [v_{t+1} + c_{t+1} (G_{t+1} - q_{t+1})],
        c_t = λ_t min(1, exp(log ρ_t)),   c_T = 0.

    A state value replaces the expectation of `retrace`. A last entry, of time `T`, in
    `q_t`, `log_rhos` and `lambda_` is ignored.

    Args:
        q_tm1: Values of the actions taken, :math:`q_0, …, q_{T-1}`, shape `[T]`.
        q_t: Values :math:`q_1, …, q_{T-1}` of the next actions, shape `[T-1]` or `[T]`.
        v_t: State values :math:`v_1, …, v_T` under the target policy, shape `[T]`.
        log_rhos: Log ratios :math:`log ρ_t` of next actions, shape `[T-1]` or `[T]`.
        lambda_: Mixing weights :math:`λ_t` in [0, 1], shape `[]`, `[T-1]` or `[T]`.
        truncated_t: True where truncated: bootstraps from `v_t`, shape `[T]`; or None.
        Other arguments: as `retrace`.

    Returns:
        Errors :math:`e_0, …, e_{T-1}`, shape `[T]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> q_tm1, v_t, r_t = jnp.array([[1.0, 8.0], [3.0, 7.0], [1.0, 2.0]])
        >>> q_t, log_rhos = jnp.array([4.0]), jnp.array([0.5])
        >>> inputs = q_tm1, q_t, v_t, r_t, jnp.full(2, 0.5), log_rhos
        >>> print(rlaxlib.retrace_continuous(*inputs, lambda_=1.0))
        [ 2.25 -2.5 ]

    References:
        Rémi Munos and others, *Safe and Efficient Off-Policy Reinforcement Learning*,
        2016. https://arxiv.org/abs/1606.02647
    """
    last = r_t.size - 1
    log_rhos = log_rhos[:last]
    lambda_ = lambda_[:last] if lambda_.ndim else lambda_
    c_t = lambda_ * jnp.exp(jnp.minimum(log_rhos, 0.0))
    step = q_t, v_t, r_t, discount_t, c_t
    targets = returns.general_off_policy_returns_from_q_and_v(
        *step, truncated_t=truncated_t, sample_mask=sample_mask
    )
    return gradients.error(targets, q_tm1, stop_target_gradients)
