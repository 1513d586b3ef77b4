"""Returns and TD errors of transformed values.

Transformed λ-returns, n-step returns and general off-policy returns; transformed Q(λ),
transformed Retrace and transformed n-step Q-learning (R2D2).

The network predicts values :math:`q = h(Q)`, where the transform :math:`h` reduces
their scale. A return is estimated from the inverse :math:`h⁻¹(q)` and untransformed
rewards, and is then transformed. The fixed point is

::

    q = h(E[r + γ h⁻¹(q')]).

If returns are random, it is not the transformed expected return, but is close to it
where :math:`h` is nearly linear.

Arrays named `*_t` hold the times `1` to `T`. Arrays named `*_tm1` and results hold the
times `0` to `T - 1`. Functions take one trajectory. Use `jax.vmap` for a batch.
"""

from __future__ import annotations

import jax.numpy as jnp

from rlaxlib import returns
from rlaxlib._core import checks, gradients, safe
from rlaxlib._core.gradients import stop_if
from rlaxlib._core.indexing import pick
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Bool, Float, Int, Static
from rlaxlib.transforms import IDENTITY_PAIR, TxPair
from rlaxlib.values._shared import retrace_coefficients

__all__ = [
    "transformed_general_off_policy_returns_from_action_values",
    "transformed_lambda_returns",
    "transformed_n_step_q_learning",
    "transformed_n_step_returns",
    "transformed_q_lambda",
    "transformed_retrace",
]


@checked
def transformed_lambda_returns(
    tx_pair: TxPair,
    r_t: Float[ArrayLike, "T"],
    discount_t: Float[ArrayLike, "T in [-1, 1]"],
    v_t: Float[ArrayLike, "T"],
    lambda_: Float[ArrayLike, "[] or [T] in [0, 1]"] = 1.0,
    stop_target_gradients: bool = False,
    *,
    truncated_t: Bool[ArrayLike, "T"] | None = None,
    sample_mask: Bool[ArrayLike, "T"] | None = None,
) -> Float[Array, "T"]:
    """Estimate transformed λ-returns from transformed values.

    Takes one trajectory, returns one return for each time step.

    ::

        h(G_t),
        G_t = r_{t+1} + γ_{t+1} [(1 - λ_{t+1}) h⁻¹(v_{t+1}) + λ_{t+1} G_{t+1}],
        G_T = h⁻¹(v_T).

    Args:
        tx_pair: Transform :math:`h` and its inverse, such as `SIGNED_HYPERBOLIC_PAIR`.
        v_t: Transformed values :math:`v_1, …, v_T`, shape `[T]`.
        Other arguments: as `lambda_returns`.

    Returns:
        Transformed returns :math:`h(G_0), …, h(G_{T-1})`, shape `[T]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> tx_pair = rlaxlib.TxPair(jnp.sqrt, jnp.square)
        >>> r_t, discount_t, v_t = jnp.array([[1.0, 0.0], [0.5, 1.0], [9.0, 4.0]])
        >>> print(rlaxlib.transformed_lambda_returns(tx_pair, r_t, discount_t, v_t))
        [3. 4.]

    References:
        Hado van Hasselt and others, *General Non-Linear Bellman Equations*, 2019.
        https://arxiv.org/abs/1907.03687
    """
    v_t = _inverse(tx_pair, v_t)
    targets = returns.lambda_returns(
        r_t, discount_t, v_t, lambda_, truncated_t=truncated_t, sample_mask=sample_mask
    )
    return stop_if(stop_target_gradients, _applied("apply", tx_pair, targets))


@checked
def transformed_n_step_returns(
    tx_pair: TxPair,
    r_t: Float[ArrayLike, "T"],
    discount_t: Float[ArrayLike, "T in [-1, 1]"],
    v_t: Float[ArrayLike, "T"],
    n: Static[int, "in [1, inf)"],
    lambda_t: Float[ArrayLike, "[] or [T] in [0, 1]"] = 1.0,
    stop_target_gradients: bool = False,
    *,
    truncated_t: Bool[ArrayLike, "T"] | None = None,
    sample_mask: Bool[ArrayLike, "T"] | None = None,
) -> Float[Array, "T"]:
    """Estimate transformed n-step returns from transformed values.

    Takes one trajectory, returns one return :math:`h(G_t^{(n)})` for each time step.

    ::

        G_t^{(k)} = r_{t+1} + γ_{t+1} [(1 - λ_{t+1}) h⁻¹(v_{t+1})
            + λ_{t+1} G_{t+1}^{(k-1)}],
        G_t^{(0)} = h⁻¹(v_t).

    Near the end, returns have fewer steps: see `n_step_bootstrapped_returns`.

    Args:
        tx_pair: Transform :math:`h` and its inverse, such as `SIGNED_HYPERBOLIC_PAIR`.
        v_t: Transformed values :math:`v_1, …, v_T`, shape `[T]`.
        Other arguments: as `n_step_bootstrapped_returns`.

    Returns:
        Transformed returns :math:`h(G_0^{(n)}), …, h(G_{T-1}^{(n)})`, shape `[T]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> tx_pair = rlaxlib.TxPair(jnp.sqrt, jnp.square)
        >>> r_t, discount_t, v_t = jnp.array([[1.0, 0.0], [0.5, 1.0], [4.0, 6.0]])
        >>> print(rlaxlib.transformed_n_step_returns(tx_pair, r_t, discount_t, v_t, 1))
        [3. 6.]

    References:
        Hado van Hasselt and others, *General Non-Linear Bellman Equations*, 2019.
        https://arxiv.org/abs/1907.03687
    """
    v_t = _inverse(tx_pair, v_t)
    step = r_t, discount_t, v_t, n, lambda_t
    targets = returns.n_step_bootstrapped_returns(
        *step, truncated_t=truncated_t, sample_mask=sample_mask
    )
    return stop_if(stop_target_gradients, _applied("apply", tx_pair, targets))


@checked
def transformed_general_off_policy_returns_from_action_values(
    tx_pair: TxPair,
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
    """Estimate transformed off-policy returns from transformed action values.

    Takes one trajectory, returns one return for each time step.

    ::

        h(G_t),
        G_t = r_{t+1} + γ_{t+1} [∑_a π_{t+1}(a) h⁻¹(q_{t+1}(a))
            + c_{t+1} (G_{t+1} - h⁻¹(q_{t+1}(a_{t+1})))],   c_T = 0.

    `general_off_policy_returns_from_action_values` lists the traces :math:`c`.

    Args:
        tx_pair: Transform :math:`h` and its inverse, such as `SIGNED_HYPERBOLIC_PAIR`.
        q_t: Transformed action values :math:`q_1, …, q_T`, shape `[T, A]`.
        Other arguments: as `general_off_policy_returns_from_action_values`.

    Returns:
        Transformed returns, NaN for actions outside [0, A), shape `[T]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> q_t, pi_t = jnp.array([[4.0, 0.0], [0.0, 4.0]]), jnp.full((2, 2), 0.5)
        >>> r_t, discount_t, c_t = jnp.array([[0.0, 1.0], [0.5, 1.0], [0.0, 0.0]])
        >>> inputs = q_t, jnp.array([1, 0]), r_t, discount_t, c_t, pi_t
        >>> returns = rlaxlib.transformed_general_off_policy_returns_from_action_values
        >>> print(returns(rlaxlib.TxPair(jnp.sqrt, jnp.square), *inputs))
        [2. 3.]

    References:
        Hado van Hasselt and others, *General Non-Linear Bellman Equations*, 2019.
        https://arxiv.org/abs/1907.03687
    """
    q_t = _inverse(tx_pair, q_t)
    step = q_t, a_t, r_t, discount_t, c_t, pi_t
    targets = returns.general_off_policy_returns_from_action_values(
        *step, truncated_t=truncated_t, sample_mask=sample_mask
    )
    return stop_if(stop_target_gradients, _applied("apply", tx_pair, targets))


@checked
def transformed_q_lambda(
    q_tm1: Float[ArrayLike, "T, A"],
    a_tm1: Int[ArrayLike, "T in [0, A)"],
    r_t: Float[ArrayLike, "T"],
    discount_t: Float[ArrayLike, "T in [-1, 1]"],
    q_t: Float[ArrayLike, "T, A"],
    lambda_: Float[ArrayLike, "[] or [T] in [0, 1]"],
    stop_target_gradients: bool = True,
    tx_pair: TxPair = IDENTITY_PAIR,
    *,
    truncated_t: Bool[ArrayLike, "T"] | None = None,
    sample_mask: Bool[ArrayLike, "T"] | None = None,
) -> Float[Array, "T"]:
    """Compute the Q(λ) TD errors of transformed action values.

    Takes one trajectory, returns one TD error for each time step.

    ::

        e_t = h(G_t) - q_t(a_t),
        G_t = r_{t+1} + γ_{t+1} [(1 - λ_{t+1}) v_{t+1} + λ_{t+1} G_{t+1}],
        v_t = h⁻¹(max_a q_t(a)),   G_T = v_T.

    See `q_lambda` for Peng's and Watkins's Q(λ).

    Args:
        q_tm1: Transformed action values :math:`q_0, …, q_{T-1}`, shape `[T, A]`.
        q_t: Transformed values in the true next states, shape `[T, A]`.
        tx_pair: Transform :math:`h` and its inverse, such as `SIGNED_HYPERBOLIC_PAIR`.
        Other arguments: as `q_lambda`.

    Returns:
        Errors :math:`e_0, …, e_{T-1}`, NaN for actions outside [0, A), shape `[T]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> q_tm1, q_t = jnp.array([[1.0, 0.0]]), jnp.array([[2.0, 4.0]])
        >>> inputs = q_tm1, jnp.array([0]), jnp.array([1.0]), jnp.array([0.5]), q_t
        >>> tx_pair = rlaxlib.TxPair(jnp.sqrt, jnp.square)
        >>> print(rlaxlib.transformed_q_lambda(*inputs, lambda_=0.9, tx_pair=tx_pair))
        [2.]

    References:
        Hado van Hasselt and others, *General Non-Linear Bellman Equations*, 2019.
        https://arxiv.org/abs/1907.03687
    """
    step = r_t, discount_t, jnp.max(q_t, axis=-1), lambda_
    targets = transformed_lambda_returns(
        tx_pair, *step, truncated_t=truncated_t, sample_mask=sample_mask
    )
    return gradients.error(targets, pick(q_tm1, a_tm1), stop_target_gradients)


@checked
def transformed_retrace(
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
    tx_pair: TxPair = IDENTITY_PAIR,
    *,
    truncated_t: Bool[ArrayLike, "T"] | None = None,
    sample_mask: Bool[ArrayLike, "T"] | None = None,
) -> Float[Array, "T"]:
    """Compute the Retrace(λ) TD errors of transformed action values.

    Takes one trajectory, returns one TD error for each time step.

    ::

        e_t = h(G_t) - q_t(a_t),
        G_t = r_{t+1} + γ_{t+1} [∑_a π_{t+1}(a) h⁻¹(q_{t+1}(a))
            + c_{t+1} (G_{t+1} - h⁻¹(q_{t+1}(a_{t+1})))],
        c_t = λ_t min(1, π_t(a_t) / (μ_t + ε)),   c_T = 0.

    Args:
        q_tm1: Transformed action values :math:`q_0, …, q_{T-1}`, shape `[T, A]`.
        q_t: The same in the true next states, :math:`q_1, …, q_T`, shape `[T, A]`.
        tx_pair: Transform :math:`h` and its inverse, such as `SIGNED_HYPERBOLIC_PAIR`.
        Other arguments: as `retrace`.

    Returns:
        Errors :math:`e_0, …, e_{T-1}`, NaN for actions outside [0, A), shape `[T]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> q_tm1, q_t, pi_t = jnp.array([[[1.0, 0.0]], [[2.0, 4.0]], [[0.0, 1.0]]])
        >>> a_tm1, a_t, one = jnp.array([0]), jnp.array([1]), jnp.ones(1)
        >>> inputs = q_tm1, q_t, a_tm1, a_t, 9 * one, one, pi_t, one
        >>> tx_pair = rlaxlib.TxPair(jnp.sqrt, jnp.square)
        >>> print(rlaxlib.transformed_retrace(*inputs, lambda_=0.9, tx_pair=tx_pair))
        [4.]

    References:
        Rémi Munos and others, *Safe and Efficient Off-Policy Reinforcement Learning*,
        2016. https://arxiv.org/abs/1606.02647
    """
    c_t = retrace_coefficients(a_t, pi_t, mu_t, lambda_, eps)
    step = q_t, a_t, r_t, discount_t, c_t, pi_t
    targets = transformed_general_off_policy_returns_from_action_values(
        tx_pair, *step, truncated_t=truncated_t, sample_mask=sample_mask
    )
    return gradients.error(targets, pick(q_tm1, a_tm1), stop_target_gradients)


@checked
def transformed_n_step_q_learning(
    q_tm1: Float[ArrayLike, "T, A"],
    a_tm1: Int[ArrayLike, "T in [0, A)"],
    target_q_t: Float[ArrayLike, "T, A"],
    a_t: Int[ArrayLike, "T in [0, A)"],
    r_t: Float[ArrayLike, "T"],
    discount_t: Float[ArrayLike, "T in [-1, 1]"],
    n: Static[int, "in [1, inf)"],
    stop_target_gradients: bool = True,
    tx_pair: TxPair = IDENTITY_PAIR,
    *,
    truncated_t: Bool[ArrayLike, "T"] | None = None,
    sample_mask: Bool[ArrayLike, "T"] | None = None,
) -> Float[Array, "T"]:
    """Compute the n-step Q-learning TD errors of transformed action values (R2D2).

    Takes one trajectory, returns one TD error for each time step.

    ::

        e_t = h(G_t^{(n)}) - q_t(a_t),
        G_t^{(k)} = r_{t+1} + γ_{t+1} G_{t+1}^{(k-1)},   G_t^{(0)} = h⁻¹(q'_t(a_t)).

    With the greedy actions of the online network as `a_t` this is R2D2.

    Args:
        q_tm1: Transformed action values :math:`q_0, …, q_{T-1}`, shape `[T, A]`.
        target_q_t: The same in the true next states (target network), shape `[T, A]`.
        a_t: Actions to bootstrap from, :math:`a_1, …, a_T` in [0, A), shape `[T]`.
        tx_pair: Transform :math:`h` and its inverse, such as `SIGNED_HYPERBOLIC_PAIR`.
        truncated_t: True where truncated, shape `[T]`; or None.
        Other arguments: as `n_step_q_learning`.

    Returns:
        Errors :math:`e_0, …, e_{T-1}`, NaN for actions outside [0, A), shape `[T]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> q_tm1, target_q_t = jnp.array([[1.0, 0.0]]), jnp.array([[2.0, 4.0]])
        >>> a_tm1, a_t, r_t = jnp.array([0]), jnp.array([1]), jnp.array([1.0])
        >>> inputs = q_tm1, a_tm1, target_q_t, a_t, r_t, jnp.array([0.5])
        >>> tx_pair = rlaxlib.TxPair(jnp.sqrt, jnp.square)
        >>> print(rlaxlib.transformed_n_step_q_learning(*inputs, n=1, tx_pair=tx_pair))
        [2.]

    References:
        Steven Kapturowski and others, *Recurrent Experience Replay in Distributed
        Reinforcement Learning*, 2019. https://openreview.net/forum?id=r1lyTjAqYX
    """
    step = r_t, discount_t, pick(target_q_t, a_t), n
    targets = transformed_n_step_returns(
        tx_pair, *step, truncated_t=truncated_t, sample_mask=sample_mask
    )
    return gradients.error(targets, pick(q_tm1, a_tm1), stop_target_gradients)


def _inverse(tx_pair: TxPair, x: Array) -> Array:
    """Return transformed values on the original scale, none below the floor."""
    # The inverse of the floor itself would overflow.
    floor = _applied("apply", tx_pair, jnp.full_like(x, safe.FLOOR))
    return _applied("apply_inv", tx_pair, jnp.where(x < floor, floor, x))


def _applied(method: str, tx_pair: TxPair, x: Array) -> Array:
    """Return values transformed elementwise, by a pair that the user may have made."""
    return checks.result(f"tx_pair.{method}(x)", getattr(tx_pair, method)(x), x.shape)
