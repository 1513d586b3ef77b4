"""Estimate returns from values in another space, in which they are smaller.

A transform :math:`h` squashes values, and its inverse :math:`h⁻¹` stretches them. What
a network predicts is stretched, a return is estimated from it and from rewards as they
are, and the return is squashed, to be learnt.

Functions here take one trajectory, and the clock of `rlaxlib.returns`: arrays named
`*_t` hold the times `1` to `T`, results the times `0` to `T - 1`. Use `jax.vmap` for a
batch.
"""

from __future__ import annotations

from jax import Array
from jax.typing import ArrayLike

from rlaxlib import returns
from rlaxlib._core import checks, dtypes, streams
from rlaxlib.transforms import TxPair

__all__ = [
    "transformed_general_off_policy_returns_from_action_values",
    "transformed_lambda_returns",
    "transformed_n_step_returns",
]


def transformed_lambda_returns(
    tx_pair: TxPair,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    v_t: ArrayLike,
    lambda_: ArrayLike = 1.0,
    stop_target_gradients: bool = False,
    *,
    truncated_t: ArrayLike | None = None,
    sample_mask: ArrayLike | None = None,
) -> Array:
    """Estimate λ-returns from transformed values, and transform them.

    .. math::

        h(G_t),
        G_t = r_{t+1} + γ_{t+1} [(1 - λ_{t+1}) h⁻¹(v_{t+1}) + λ_{t+1} G_{t+1}],
        G_T = h⁻¹(v_T).

    Args:
        tx_pair: Pair of the transform :math:`h` and its inverse, such as
            `SIGNED_HYPERBOLIC_PAIR`.
        r_t: Rewards :math:`r_1, …, r_T`, shape `[T]`.
        discount_t: Discounts :math:`γ_1, …, γ_T`, each in [0, 1], shape `[T]`.
        v_t: Transformed values :math:`v_1, …, v_T`, shape `[T]`.
        lambda_: Mixing weight λ in [0, 1], shape `[]`; or one for each step,
            :math:`λ_1, …, λ_T`, shape `[T]`.
        stop_target_gradients: Whether to hold the returns constant under
            differentiation.
        truncated_t: True where the stream was cut after this step although the episode
            had not ended, shape `[T]`; or None if it was cut nowhere. The return there
            bootstraps from `v_t` of this row.
        sample_mask: False where a row is no decision of the agent, such as padding,
            shape `[T]`; or None if all are. The return there is 0, and that of the
            others is as if the row were not there.

    Returns:
        Transformed returns :math:`h(G_0), …, h(G_{T-1})`, shape `[T]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype.

    Example:
        >>> tx_pair = rlaxlib.TxPair(jnp.sqrt, jnp.square)
        >>> r_t, discount_t = jnp.array([1.0, 0.0]), jnp.array([0.5, 1.0])
        >>> v_t = jnp.array([9.0, 4.0])
        >>> print(rlaxlib.transformed_lambda_returns(tx_pair, r_t, discount_t, v_t))
        [3. 4.]

    References:
        Hado van Hasselt, John Quan, Matteo Hessel, Zhongwen Xu, Diana Borsa and André
        Barreto, *General Non-Linear Bellman Equations*, 2019.
        https://arxiv.org/abs/1907.03687
    """
    r_t, discount_t, v_t, lambda_, truncated_t, sample_mask = checks.arrays(
        r_t=(r_t, "float[T]"),
        discount_t=(discount_t, "float[T]"),
        v_t=(v_t, "float[T]"),
        lambda_=(lambda_, "float[] or [T]"),
        truncated_t=(truncated_t, "bool[T] or None"),
        sample_mask=(sample_mask, "bool[T] or None"),
    )
    (r_t, discount_t, v_t, lambda_), narrow = dtypes.widen(
        *streams.clean(sample_mask, r_t, discount_t, v_t, lambda_)
    )
    targets = returns.lambda_returns(
        r_t,
        discount_t,
        tx_pair.apply_inv(v_t),
        lambda_,
        stop_target_gradients,
        truncated_t=truncated_t,
        sample_mask=sample_mask,
    )
    return narrow(streams.valid(tx_pair.apply(targets), sample_mask))


def transformed_n_step_returns(
    tx_pair: TxPair,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    v_t: ArrayLike,
    n: int,
    lambda_t: ArrayLike = 1.0,
    stop_target_gradients: bool = False,
    *,
    truncated_t: ArrayLike | None = None,
    sample_mask: ArrayLike | None = None,
) -> Array:
    """Estimate returns of `n` steps from transformed values, and transform them.

    The return of step `t` is :math:`h(G_t^{(n)})`, where

    .. math::

        G_t^{(k)} = r_{t+1} + γ_{t+1} [(1 - λ_{t+1}) h⁻¹(v_{t+1})
            + λ_{t+1} G_{t+1}^{(k-1)}],
        G_t^{(0)} = h⁻¹(v_t).

    Near the end, a return takes the steps that are left: see
    `n_step_bootstrapped_returns`.

    Args:
        tx_pair: Pair of the transform :math:`h` and its inverse, such as
            `SIGNED_HYPERBOLIC_PAIR`.
        r_t: Rewards :math:`r_1, …, r_T`, shape `[T]`.
        discount_t: Discounts :math:`γ_1, …, γ_T`, each in [0, 1], shape `[T]`.
        v_t: Transformed values to bootstrap from, :math:`v_1, …, v_T`, shape `[T]`.
        n: Number of steps before bootstrapping, a Python integer of at least 1.
        lambda_t: Mixing weight λ in [0, 1], shape `[]`; or one for each step,
            :math:`λ_1, …, λ_T`, shape `[T]`.
        stop_target_gradients: Whether to hold the returns constant under
            differentiation.
        truncated_t: True where the stream was cut after this step although the episode
            had not ended, shape `[T]`; or None if it was cut nowhere. The returns there
            bootstraps from `v_t` of this row.
        sample_mask: False where a row is no decision of the agent, such as padding,
            shape `[T]`; or None if all are. The return there is 0, and that of the
            others is as if the row were not there.

    Returns:
        Transformed returns :math:`h(G_0^{(n)}), …, h(G_{T-1}^{(n)})`, shape `[T]`.

    Raises:
        ArgumentError: If an array argument has the wrong shape or dtype, or if `n` is
            not a Python integer of at least 1.

    Example:
        >>> tx_pair = rlaxlib.TxPair(jnp.sqrt, jnp.square)
        >>> r_t, discount_t = jnp.array([1.0, 0.0]), jnp.array([0.5, 1.0])
        >>> v_t = jnp.array([4.0, 6.0])
        >>> n_step_returns = rlaxlib.transformed_n_step_returns
        >>> print(n_step_returns(tx_pair, r_t, discount_t, v_t, n=1))
        [3. 6.]

    References:
        Steven Kapturowski, Georg Ostrovski, John Quan, Remi Munos and Will Dabney,
        *Recurrent Experience Replay in Distributed Reinforcement Learning*, 2019.
        https://openreview.net/forum?id=r1lyTjAqYX

        Hado van Hasselt, John Quan, Matteo Hessel, Zhongwen Xu, Diana Borsa and André
        Barreto, *General Non-Linear Bellman Equations*, 2019.
        https://arxiv.org/abs/1907.03687
    """
    given = lambda_t
    r_t, discount_t, v_t, lambda_t, truncated_t, sample_mask = checks.arrays(
        r_t=(r_t, "float[T]"),
        discount_t=(discount_t, "float[T]"),
        v_t=(v_t, "float[T]"),
        lambda_t=(lambda_t, "float[] or [T]"),
        truncated_t=(truncated_t, "bool[T] or None"),
        sample_mask=(sample_mask, "bool[T] or None"),
    )
    checks.static_int(1, n=n)
    (r_t, discount_t, v_t, lambda_t), narrow = dtypes.widen(
        *streams.clean(sample_mask, r_t, discount_t, v_t, lambda_t)
    )
    targets = returns.n_step_bootstrapped_returns(
        r_t,
        discount_t,
        tx_pair.apply_inv(v_t),
        n,
        # A number as it is: no value is computed that it gives no weight.
        given if isinstance(given, float | int) else lambda_t,
        stop_target_gradients,
        truncated_t=truncated_t,
        sample_mask=sample_mask,
    )
    return narrow(streams.valid(tx_pair.apply(targets), sample_mask))


def transformed_general_off_policy_returns_from_action_values(
    tx_pair: TxPair,
    q_t: ArrayLike,
    a_t: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    c_t: ArrayLike,
    pi_t: ArrayLike,
    stop_target_gradients: bool = False,
    *,
    truncated_t: ArrayLike | None = None,
    sample_mask: ArrayLike | None = None,
) -> Array:
    """Correct returns for off-policy actions, from and to transformed values.

    .. math::

        h(G_t),
        G_t = r_{t+1} + γ_{t+1} [∑_a π_{t+1}(a) h⁻¹(q_{t+1}(a))
            + c_{t+1} (G_{t+1} - h⁻¹(q_{t+1}(a_{t+1})))],

    with :math:`c_T = 0`. The trace :math:`c` decides which algorithm this is: see
    `general_off_policy_returns_from_action_values`.

    Args:
        tx_pair: Pair of the transform :math:`h` and its inverse, such as
            `SIGNED_HYPERBOLIC_PAIR`.
        q_t: Transformed action values :math:`q_1, …, q_T`, shape `[T, A]`.
        a_t: Actions taken :math:`a_1, …, a_T`, each in [0, A), shape `[T]`.
        r_t: Rewards :math:`r_1, …, r_T`, shape `[T]`.
        discount_t: Discounts :math:`γ_1, …, γ_T`, each in [0, 1], shape `[T]`.
        c_t: Traces :math:`c_1, …, c_T`, each at least 0, shape `[T]`.
        pi_t: Probabilities of the actions under the target policy, shape `[T, A]`.
        stop_target_gradients: Whether to hold the returns constant under
            differentiation.
        truncated_t: True where the stream was cut after this step although the episode
            had not ended, shape `[T]`; or None if it was cut nowhere. The return there
            bootstraps from the values of this row, and its action and trace
            are not used.
        sample_mask: False where a row is no decision of the agent, such as padding,
            shape `[T]`; or None if all are. The return there is 0, and that of the
            others is as if the row were not there.

    Returns:
        Transformed returns :math:`h(G_0), …, h(G_{T-1})`, shape `[T]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if an action
            whose value is known is none of the A.

    Example:
        >>> tx_pair = rlaxlib.TxPair(jnp.sqrt, jnp.square)
        >>> q_t, pi_t = jnp.array([[4.0, 0.0], [0.0, 4.0]]), jnp.full((2, 2), 0.5)
        >>> r_t, discount_t = jnp.array([0.0, 1.0]), jnp.array([0.5, 1.0])
        >>> a_t, c_t = jnp.array([1, 0]), jnp.array([0.0, 0.0])
        >>> make = rlaxlib.transformed_general_off_policy_returns_from_action_values
        >>> print(make(tx_pair, q_t, a_t, r_t, discount_t, c_t, pi_t))
        [2. 3.]

    References:
        Hado van Hasselt, John Quan, Matteo Hessel, Zhongwen Xu, Diana Borsa and André
        Barreto, *General Non-Linear Bellman Equations*, 2019.
        https://arxiv.org/abs/1907.03687

        Rémi Munos, Tom Stepleton, Anna Harutyunyan and Marc G. Bellemare, *Safe and
        Efficient Off-Policy Reinforcement Learning*, 2016.
        https://arxiv.org/abs/1606.02647
    """
    q_t, a_t, r_t, discount_t, c_t, pi_t, truncated_t, sample_mask = checks.arrays(
        q_t=(q_t, "float[T, A]"),
        a_t=(a_t, "int[T]"),
        r_t=(r_t, "float[T]"),
        discount_t=(discount_t, "float[T]"),
        c_t=(c_t, "float[T]"),
        pi_t=(pi_t, "float[T, A]"),
        truncated_t=(truncated_t, "bool[T] or None"),
        sample_mask=(sample_mask, "bool[T] or None"),
    )
    a_t = streams.valid(a_t, sample_mask)
    checks.indices(a_t=(a_t, q_t.shape[-1]))
    (q_t, r_t, discount_t, c_t, pi_t), narrow = dtypes.widen(
        *streams.clean(sample_mask, q_t, r_t, discount_t, c_t, pi_t)
    )
    targets = returns.general_off_policy_returns_from_action_values(
        tx_pair.apply_inv(q_t),
        a_t,
        r_t,
        discount_t,
        c_t,
        pi_t,
        stop_target_gradients,
        truncated_t=truncated_t,
        sample_mask=sample_mask,
    )
    return narrow(streams.valid(tx_pair.apply(targets), sample_mask))
