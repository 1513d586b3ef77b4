"""Off-policy multistep returns and TD errors, corrected with traces or ratios.

- `general_off_policy_returns_from_action_values` and
  `general_off_policy_returns_from_q_and_v`: returns with a trace :math:`c_t`, of which
  Retrace, tree backup, Q(λ) and importance sampling are special cases.
- `importance_corrected_td_errors`: TD errors weighted by importance ratios.
- `tree_backup`: TD errors of the tree-backup algorithm.

A behaviour policy :math:`μ` chose the actions, and a target policy :math:`π` is
evaluated. Arrays named `*_tm1` hold the times `0` to `T - 1`, arrays named `*_t` the
times `1` to `T`; results belong to the times `0` to `T - 1`. The action and the trace
of the last state are never used.
"""

from __future__ import annotations

import jax.numpy as jnp

from rlaxlib._core import gradients, safe, streams
from rlaxlib._core.gradients import stop_if
from rlaxlib._core.indexing import pick
from rlaxlib._core.recurrence import backward
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Bool, Float, Int

__all__ = [
    "general_off_policy_returns_from_action_values",
    "general_off_policy_returns_from_q_and_v",
    "importance_corrected_td_errors",
    "tree_backup",
]


@checked
def general_off_policy_returns_from_action_values(
    q_t: Float[ArrayLike, "T, A"],
    a_t: Int[ArrayLike, "T"],
    r_t: Float[ArrayLike, "T"],
    discount_t: Float[ArrayLike, "T in [-1, 1]"],
    c_t: Float[ArrayLike, "T in [0, inf)"],
    pi_t: Float[ArrayLike, "T, A in [0, 1]"],
    stop_target_gradients: bool = False,
    *,
    truncated_t: Bool[ArrayLike, "T"] | None = None,
    sample_mask: Bool[ArrayLike, "T"] | None = None,
) -> Float[Array, "T"]:
    """Compute off-policy returns with traces, from the values of all actions.

    Takes one trajectory, returns one return for each time step.

    ::

        G_t = r_{t+1} + γ_{t+1} [∑_a π_{t+1}(a) q_{t+1}(a)
            + c_{t+1} (G_{t+1} - q_{t+1}(a_{t+1}))],   c_T = 0.

    The trace :math:`c` selects the algorithm:

    - :math:`π(a)/μ(a)`, importance sampling: unbiased, high variance;
    - :math:`λ`, Q(λ) of Harutyunyan et al.: for policies that are close;
    - :math:`λ π(a)`, tree backup: :math:`μ` need not be known;
    - :math:`λ min(1, π(a)/μ(a))`, Retrace: the usual choice.

    Args:
        q_t: Action values :math:`q_1, …, q_T`, shape `[T, A]`.
        a_t: Actions taken next, :math:`a_1, …, a_T`, shape `[T]`. The last one is not
            used.
        r_t: Rewards :math:`r_1, …, r_T`, shape `[T]`.
        discount_t: Discounts :math:`γ_1, …, γ_T` in [-1, 1], shape `[T]`.
        c_t: Traces :math:`c_1, …, c_T`, in [0, inf), shape `[T]`.
        pi_t: Action probabilities :math:`π_t` of the target policy, in [0, 1],
            shape `[T, A]`.
        stop_target_gradients: Whether to stop the gradient of the returns.
        truncated_t: True where truncated: bootstraps from `q_t`, shape `[T]`; or None.
        sample_mask: False for time steps to ignore, shape `[T]`; or None.

    Returns:
        Returns :math:`G_0, …, G_{T-1}`, shape `[T]`, 0 at ignored steps.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> q_t, pi_t = jnp.array([[2.0, 4.0], [6.0, 8.0]]), jnp.full((2, 2), 0.5)
        >>> r_t, discount_t, c_t = jnp.array([[1.0, 2.0], [0.5, 0.5], [1.0, 1.0]])
        >>> returns = rlaxlib.general_off_policy_returns_from_action_values
        >>> print(returns(q_t, jnp.array([1, 0]), r_t, discount_t, c_t, pi_t))
        [3.25 5.5 ]

    References:
        Rémi Munos and others, *Safe and Efficient Off-Policy Reinforcement Learning*,
        2016. https://arxiv.org/abs/1606.02647

        Anna Harutyunyan and others, *Q(λ) with Off-Policy Corrections*, 2016.
        https://arxiv.org/abs/1602.04951
    """
    step = pick(q_t, a_t), safe.expectation(pi_t, q_t), r_t, discount_t, c_t
    returns = general_off_policy_returns_from_q_and_v(
        *step, truncated_t=truncated_t, sample_mask=sample_mask
    )
    return stop_if(stop_target_gradients, returns)


@checked
def general_off_policy_returns_from_q_and_v(
    q_t: Float[ArrayLike, "[T-1] or [T]"],
    v_t: Float[ArrayLike, "T"],
    r_t: Float[ArrayLike, "T"],
    discount_t: Float[ArrayLike, "T in [-1, 1]"],
    c_t: Float[ArrayLike, "[T-1] or [T] in [0, inf)"],
    stop_target_gradients: bool = False,
    *,
    truncated_t: Bool[ArrayLike, "T"] | None = None,
    sample_mask: Bool[ArrayLike, "T"] | None = None,
) -> Float[Array, "T"]:
    """Compute off-policy returns with traces, from the values of actions taken.

    Takes one trajectory, returns one return for each time step.

    ::

        G_t = r_{t+1} + γ_{t+1} [v_{t+1} + c_{t+1} (G_{t+1} - q_{t+1})],   c_T = 0.

    Use it for continuous actions. `general_off_policy_returns_from_action_values` lists
    the traces :math:`c`. A last entry, of time `T`, in `q_t` and `c_t` is ignored.

    Args:
        q_t: Values :math:`q_1, …, q_{T-1}` of actions taken, shape `[T-1]` or `[T]`.
        v_t: State values :math:`v_1, …, v_T` under the target policy, shape `[T]`.
        c_t: Traces :math:`c_1, …, c_{T-1}`, in [0, inf), shape `[T-1]` or `[T]`.
        truncated_t: True where truncated: bootstraps from `v_t`, shape `[T]`; or None.
        Other arguments: as `general_off_policy_returns_from_action_values`.

    Returns:
        Returns :math:`G_0, …, G_{T-1}`, shape `[T]`, 0 at ignored steps.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> r_t, discount_t, v_t = jnp.array([[1.0, 2.0], [0.5, 0.5], [3.0, 7.0]])
        >>> returns = rlaxlib.general_off_policy_returns_from_q_and_v
        >>> print(returns(jnp.array([4.0]), v_t, r_t, discount_t, c_t=jnp.ones(1)))
        [3.25 5.5 ]

    References:
        Rémi Munos and others, *Safe and Efficient Off-Policy Reinforcement Learning*,
        2016. https://arxiv.org/abs/1606.02647
    """

    def cut(x: Array) -> Array:  # The entry of time `T` may be missing.
        x = jnp.pad(x[: r_t.size - 1], (0, 1))
        return streams.cut_traces(x, truncated_t, sample_mask)

    q_t, c_t = safe.floored(cut(q_t)), cut(c_t)
    a = discount_t * c_t
    b = r_t + (streams.bootstrap(discount_t, v_t) - a * q_t)
    returns = backward(b, a, 0.0, truncated_t, sample_mask)
    return stop_if(stop_target_gradients, returns)


@checked
def importance_corrected_td_errors(
    r_t: Float[ArrayLike, "T"],
    discount_t: Float[ArrayLike, "T in [-1, 1]"],
    rho_tm1: Float[ArrayLike, "T in [0, inf)"],
    lambda_: Float[ArrayLike, "[] or [T] in [0, 1]"],
    values: Float[ArrayLike, "T+1"],
    stop_target_gradients: bool = False,
    *,
    v_t: Float[ArrayLike, "T"] | None = None,
    truncated_t: Bool[ArrayLike, "T"] | None = None,
    sample_mask: Bool[ArrayLike, "T"] | None = None,
) -> Float[Array, "T"]:
    """Compute TD errors corrected with per-decision importance sampling.

    Takes one trajectory, returns one TD error for each time step.

    ::

        e_t = ρ_t (δ_t + γ_{t+1} λ_{t+1} e_{t+1}),   e_T = 0,
        δ_t = r_{t+1} + γ_{t+1} v_{t+1} - v_t.

    With all :math:`ρ_t = 1` this is `truncated_generalized_advantage_estimation`.
    Unlike in `vtrace`, products of ratios may grow large.

    Args:
        r_t: Rewards :math:`r_1, …, r_T`, shape `[T]`.
        discount_t: Discounts :math:`γ_1, …, γ_T` in [-1, 1], shape `[T]`.
        rho_tm1: Importance ratios :math:`ρ_t = π(a_t)/μ(a_t)`, in [0, inf),
            shape `[T]`.
        lambda_: Mixing weights :math:`λ_1, …, λ_T` in [0, 1], shape `[]` or `[T]`.
        values: State values at all times, :math:`v_0, …, v_T`, shape `[T+1]`.
        stop_target_gradients: Whether to stop the gradient of :math:`e_t + v_t`.
        v_t: Values of true next observations, shape `[T]`; or None for `values[1:]`.
        truncated_t: True where truncated, which ends the sum, shape `[T]`; or None.
        sample_mask: False for time steps to ignore, shape `[T]`; or None.

    Returns:
        TD errors :math:`e_0, …, e_{T-1}`, shape `[T]`, 0 at ignored steps.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> r_t, discount_t, rho_tm1 = jnp.array([[1.0, 2.0], [0.5, 0.5], [2.0, 0.5]])
        >>> errors = rlaxlib.importance_corrected_td_errors
        >>> print(errors(r_t, discount_t, rho_tm1, 1.0, jnp.array([1.0, 8.0, 4.0])))
        [ 6. -2.]

    References:
        Richard S. Sutton and others, *A New Q(λ) with Interim Forward View and Monte
        Carlo Equivalence*, 2014. https://proceedings.mlr.press/v32/sutton14.html
    """
    v_tm1, following = values[:-1], values[1:] if v_t is None else v_t
    delta = gradients.td_error(v_tm1, r_t, discount_t, following)
    b, a = rho_tm1 * delta, discount_t * lambda_ * rho_tm1
    errors = backward(b, a, 0.0, truncated_t, sample_mask)
    return gradients.correction(errors, v_tm1, stop_target_gradients)


@checked
def tree_backup(
    q_tm1: Float[ArrayLike, "T, A"],
    a_tm1: Int[ArrayLike, "T in [0, A)"],
    r_t: Float[ArrayLike, "T"],
    discount_t: Float[ArrayLike, "T in [-1, 1]"],
    q_t: Float[ArrayLike, "T, A"],
    a_t: Int[ArrayLike, "T"],
    pi_t: Float[ArrayLike, "T, A in [0, 1]"],
    lambda_: Float[ArrayLike, "[] or [T] in [0, 1]"],
    *,
    stop_target_gradients: bool = True,
    truncated_t: Bool[ArrayLike, "T"] | None = None,
    sample_mask: Bool[ArrayLike, "T"] | None = None,
) -> Float[Array, "T"]:
    """Compute tree-backup TD errors, which need no behaviour policy.

    Takes one trajectory, returns one TD error for each time step.

    ::

        e_t = G_t - q_t(a_t),
        G_t = r_{t+1} + γ_{t+1} [∑_a π_{t+1}(a) q_{t+1}(a)
            + c_{t+1} (G_{t+1} - q_{t+1}(a_{t+1}))],
        c_t = λ_t π_t(a_t),   c_T = 0.

    The behaviour policy need not be known. The traces are shorter than in `retrace`.

    Args:
        Other arguments: as `retrace`.

    Returns:
        Errors :math:`e_0, …, e_{T-1}`, NaN for actions outside [0, A), shape `[T]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> q_tm1, q_t = jnp.array([[[1.0, 0.0], [0.0, 8.0]], [[2.0, 4.0], [6.0, 8.0]]])
        >>> (a_tm1, a_t), pi_t = jnp.array([[0, 1], [1, 0]]), jnp.full((2, 2), 0.5)
        >>> r_t, discount_t = jnp.array([1.0, 2.0]), jnp.array([0.5, 0.5])
        >>> inputs = q_tm1, a_tm1, r_t, discount_t, q_t, a_t, pi_t
        >>> print(rlaxlib.tree_backup(*inputs, lambda_=1.0))
        [ 1.875 -2.5  ]

    References:
        Doina Precup, Richard S. Sutton and Satinder Singh, *Eligibility Traces for
        Off-Policy Policy Evaluation*, 2000.
        https://scholarworks.umass.edu/cs_faculty_pubs/80
    """
    c_t = lambda_ * pick(pi_t, a_t)
    step = q_t, a_t, r_t, discount_t, c_t, pi_t
    targets = general_off_policy_returns_from_action_values(
        *step, truncated_t=truncated_t, sample_mask=sample_mask
    )
    return gradients.error(targets, pick(q_tm1, a_tm1), stop_target_gradients)
