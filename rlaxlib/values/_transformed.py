"""Learn values in another space than that of returns, in which they are smaller.

A transform :math:`h` squashes values, and its inverse :math:`h⁻¹` stretches them. What
the network predicts is stretched, a return is estimated from it and from rewards as
they are, and the return is squashed: a fixed point of

.. math::

    Q = h(E[r + γ h⁻¹(Q')]).

So rewards need no clipping, and errors are of the same size in all games. Where returns
are random, the fixed point is not the squashed mean return, but close to it where
:math:`h` is nearly linear.

Functions here take one trajectory, and the clock of `rlaxlib.returns`: arrays named
`*_t` hold the times `1` to `T`, those named `*_tm1`, and results, the times `0` to
`T - 1`. Use `jax.vmap` for a batch.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib import arrays
from rlaxlib._core import checks, dtypes, gradients, streams
from rlaxlib.transforms import IDENTITY_PAIR, TxPair
from rlaxlib.values import _multistep
from rlaxlib.values._nonlinear_returns import (
    transformed_general_off_policy_returns_from_action_values,
    transformed_lambda_returns,
    transformed_n_step_returns,
)

__all__ = [
    "transformed_n_step_q_learning",
    "transformed_q_lambda",
    "transformed_retrace",
]


def transformed_q_lambda(
    q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t: ArrayLike,
    lambda_: ArrayLike,
    stop_target_gradients: bool = True,
    tx_pair: TxPair = IDENTITY_PAIR,
    *,
    truncated_t: ArrayLike | None = None,
    sample_mask: ArrayLike | None = None,
) -> Array:
    """Compare transformed action values with λ-returns of the best actions (Q(λ)).

    .. math::

        e_t = h(G_t) - q_t(a_t),
        G_t = r_{t+1} + γ_{t+1} [(1 - λ_{t+1}) v_{t+1} + λ_{t+1} G_{t+1}],
        v_t = h⁻¹(max_a q_t(a)),

    with the last return being :math:`G_T = v_T`. One λ for all steps is Peng's Q(λ);
    with λ set to 0 where :math:`a_{t+1}` is not the best action, it is Watkins's: see
    `q_lambda`.

    Args:
        q_tm1: Transformed action values in the states acted in,
            :math:`q_0, …, q_{T-1}`, shape `[T, A]`.
        a_tm1: Actions taken there, :math:`a_0, …, a_{T-1}`, each in [0, A),
            shape `[T]`.
        r_t: Rewards :math:`r_1, …, r_T`, shape `[T]`.
        discount_t: Discounts :math:`γ_1, …, γ_T`, each in [0, 1], shape `[T]`.
        q_t: Transformed action values in the true next states, :math:`q_1, …, q_T`,
            shape `[T, A]`.
        lambda_: Mixing weight λ in [0, 1], shape `[]`; or one for each step,
            :math:`λ_1, …, λ_T`, shape `[T]`.
        stop_target_gradients: Whether to hold the targets constant under
            differentiation.
        tx_pair: Pair of the transform :math:`h` and its inverse, such as
            `SIGNED_HYPERBOLIC_PAIR`.
        truncated_t: True where the stream was cut after this step although the episode
            had not ended, shape `[T]`; or None if it was cut nowhere. The target there
            bootstraps from `q_t` of this row.
        sample_mask: False where a row is no decision of the agent, such as padding,
            shape `[T]`; or None if all are. The error there is 0, and that of the
            others is as if the row were not there.

    Returns:
        Errors :math:`e_0, …, e_{T-1}`, of transformed values, shape `[T]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if an action
            whose value is known is none of the A.

    Example:
        >>> tx_pair = rlaxlib.TxPair(jnp.sqrt, jnp.square)
        >>> q_tm1, q_t = jnp.array([[1.0, 0.0]]), jnp.array([[2.0, 4.0]])
        >>> a_tm1, r_t, discount_t = jnp.array([0]), jnp.array([1.0]), jnp.array([0.5])
        >>> q_lambda = rlaxlib.transformed_q_lambda
        >>> print(q_lambda(q_tm1, a_tm1, r_t, discount_t, q_t, 0.9, tx_pair=tx_pair))
        [2.]

    References:
        Hado van Hasselt, John Quan, Matteo Hessel, Zhongwen Xu, Diana Borsa and André
        Barreto, *General Non-Linear Bellman Equations*, 2019.
        https://arxiv.org/abs/1907.03687
    """
    q_tm1, a_tm1, r_t, discount_t, q_t, lambda_, truncated_t, sample_mask = (
        checks.arrays(
            q_tm1=(q_tm1, "float[T, A]"),
            a_tm1=(a_tm1, "int[T]"),
            r_t=(r_t, "float[T]"),
            discount_t=(discount_t, "float[T]"),
            q_t=(q_t, "float[T, A]"),
            lambda_=(lambda_, "float[] or [T]"),
            truncated_t=(truncated_t, "bool[T] or None"),
            sample_mask=(sample_mask, "bool[T] or None"),
        )
    )
    a_tm1 = streams.valid(a_tm1, sample_mask)
    checks.indices(a_tm1=(a_tm1, q_tm1.shape[-1]))
    (q_tm1, r_t, discount_t, q_t, lambda_), narrow = dtypes.widen(
        q_tm1, r_t, discount_t, q_t, lambda_
    )
    targets = transformed_lambda_returns(
        tx_pair,
        r_t,
        discount_t,
        jnp.max(streams.valid(q_t, sample_mask), axis=-1),
        lambda_,
        truncated_t=truncated_t,
        sample_mask=sample_mask,
    )
    q_a_tm1 = arrays.batched_index(q_tm1, a_tm1)
    errors = gradients.error(targets, q_a_tm1, stop_target_gradients)
    return narrow(streams.valid(errors, sample_mask))


def transformed_retrace(
    q_tm1: ArrayLike,
    q_t: ArrayLike,
    a_tm1: ArrayLike,
    a_t: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    pi_t: ArrayLike,
    mu_t: ArrayLike,
    lambda_: ArrayLike,
    eps: ArrayLike = 1e-8,
    stop_target_gradients: bool = True,
    tx_pair: TxPair = IDENTITY_PAIR,
    *,
    truncated_t: ArrayLike | None = None,
    sample_mask: ArrayLike | None = None,
) -> Array:
    """Compare transformed action values with off-policy returns (Retrace).

    .. math::

        e_t = h(G_t) - q_t(a_t),
        G_t = r_{t+1} + γ_{t+1} [∑_a π_{t+1}(a) h⁻¹(q_{t+1}(a))
            + c_{t+1} (G_{t+1} - h⁻¹(q_{t+1}(a_{t+1})))],
        c_t = λ min(1, π_t(a_t) / (μ_t + ε)),   c_T = 0.

    Without a transform this is `retrace`, which says more about the trace.

    Args:
        q_tm1: Transformed action values in the states acted in,
            :math:`q_0, …, q_{T-1}`, shape `[T, A]`.
        q_t: Transformed action values in the true next states, :math:`q_1, …, q_T`,
            shape `[T, A]`.
        a_tm1: Actions taken, :math:`a_0, …, a_{T-1}`, each in [0, A), shape `[T]`.
        a_t: Actions taken next, :math:`a_1, …, a_T`, each in [0, A), shape `[T]`.
        r_t: Rewards :math:`r_1, …, r_T`, shape `[T]`.
        discount_t: Discounts :math:`γ_1, …, γ_T`, each in [0, 1], shape `[T]`.
        pi_t: Probabilities of all actions in the next states under the target policy,
            shape `[T, A]`.
        mu_t: Probabilities of the actions `a_t` under the behaviour policy,
            shape `[T]`.
        lambda_: Mixing weight λ in [0, 1], shape `[]`; or one for each step,
            :math:`λ_1, …, λ_T`, shape `[T]`.
        eps: What is added to `mu_t` so as not to divide by 0, at least 0, shape `[]`.
        stop_target_gradients: Whether to hold the targets constant under
            differentiation.
        tx_pair: Pair of the transform :math:`h` and its inverse, such as
            `SIGNED_HYPERBOLIC_PAIR`.
        truncated_t: True where the stream was cut after this step although the episode
            had not ended, shape `[T]`; or None if it was cut nowhere. The target there
            bootstraps from `q_t` and `pi_t` of this row.
        sample_mask: False where a row is no decision of the agent, such as padding,
            shape `[T]`; or None if all are. The error there is 0, and that of the
            others is as if the row were not there.

    Returns:
        Errors :math:`e_0, …, e_{T-1}`, of transformed values, shape `[T]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if `eps` is
            negative, or if an action whose value is known is none of the A.

    Example:
        >>> q_tm1, q_t = jnp.array([[1.0, 0.0]]), jnp.array([[2.0, 4.0]])
        >>> a_tm1, a_t, mu_t = jnp.array([0]), jnp.array([1]), jnp.array([0.5])
        >>> r_t, discount_t, pi_t = jnp.ones(1), jnp.ones(1), jnp.array([[0.0, 1.0]])
        >>> inputs = q_tm1, q_t, a_tm1, a_t, r_t, discount_t, pi_t, mu_t
        >>> tx_pair = rlaxlib.SIGNED_HYPERBOLIC_PAIR
        >>> error = rlaxlib.transformed_retrace(*inputs, lambda_=0.9, tx_pair=tx_pair)
        >>> squashed = tx_pair.apply(1.0 + tx_pair.apply_inv(4.0))
        >>> print(error.round(4) == (squashed - 1.0).round(4))
        [ True]

    References:
        Steven Kapturowski, Georg Ostrovski, John Quan, Remi Munos and Will Dabney,
        *Recurrent Experience Replay in Distributed Reinforcement Learning*, 2019.
        https://openreview.net/forum?id=r1lyTjAqYX

        Rémi Munos, Tom Stepleton, Anna Harutyunyan and Marc G. Bellemare, *Safe and
        Efficient Off-Policy Reinforcement Learning*, 2016.
        https://arxiv.org/abs/1606.02647
    """
    *inputs, a_tm1, a_t, truncated_t, sample_mask = checks.arrays(
        q_tm1=(q_tm1, "float[T, A]"),
        q_t=(q_t, "float[T, A]"),
        r_t=(r_t, "float[T]"),
        discount_t=(discount_t, "float[T]"),
        pi_t=(pi_t, "float[T, A]"),
        mu_t=(mu_t, "float[T]"),
        lambda_=(lambda_, "float[] or [T]"),
        eps=(eps, "float[]"),
        a_tm1=(a_tm1, "int[T]"),
        a_t=(a_t, "int[T]"),
        truncated_t=(truncated_t, "bool[T] or None"),
        sample_mask=(sample_mask, "bool[T] or None"),
    )
    checks.within("[0, inf)", eps=eps)
    inputs, narrow = dtypes.widen(*streams.clean(sample_mask, *inputs))
    q_tm1, q_t, r_t, discount_t, pi_t, mu_t, lambda_, eps = inputs
    size = q_t.shape[-1]
    a_tm1, a_t = streams.clean(sample_mask, a_tm1, a_t)
    checks.indices(a_tm1=(a_tm1, size), a_t=(a_t, size))
    targets = transformed_general_off_policy_returns_from_action_values(
        tx_pair,
        q_t,
        a_t,
        r_t,
        discount_t,
        _multistep.retrace_weights(pi_t, a_t, mu_t, lambda_, eps),
        pi_t,
        truncated_t=truncated_t,
        sample_mask=sample_mask,
    )
    q_a_tm1 = arrays.batched_index(q_tm1, a_tm1)
    errors = gradients.error(targets, q_a_tm1, stop_target_gradients)
    return narrow(streams.valid(errors, sample_mask))


def transformed_n_step_q_learning(
    q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    target_q_t: ArrayLike,
    a_t: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    n: int,
    stop_target_gradients: bool = True,
    tx_pair: TxPair = IDENTITY_PAIR,
    *,
    truncated_t: ArrayLike | None = None,
    sample_mask: ArrayLike | None = None,
) -> Array:
    """Compare transformed action values with returns of `n` steps (R2D2).

    .. math::

        e_t = h(G_t^{(n)}) - q_t(a_t),
        G_t^{(k)} = r_{t+1} + γ_{t+1} G_{t+1}^{(k-1)},
        G_t^{(0)} = h⁻¹(q'_t(a_t)).

    Which actions the targets bootstrap from is up to the agent: the best by
    `target_q_t` itself make it Q-learning, the best by the online network double
    Q-learning, as in R2D2.

    Args:
        q_tm1: Transformed action values in the states acted in,
            :math:`q_0, …, q_{T-1}`, shape `[T, A]`.
        a_tm1: Actions taken there, :math:`a_0, …, a_{T-1}`, each in [0, A),
            shape `[T]`.
        target_q_t: Transformed action values in the true next states by the target
            network, :math:`q'_1, …, q'_T`, shape `[T, A]`.
        a_t: Actions to bootstrap from, :math:`a_1, …, a_T`, each in [0, A),
            shape `[T]`.
        r_t: Rewards :math:`r_1, …, r_T`, shape `[T]`.
        discount_t: Discounts :math:`γ_1, …, γ_T`, each in [0, 1], shape `[T]`.
        n: Number of steps before bootstrapping, a Python integer of at least 1.
        stop_target_gradients: Whether to hold the targets constant under
            differentiation.
        tx_pair: Pair of the transform :math:`h` and its inverse, such as
            `SIGNED_HYPERBOLIC_PAIR`.
        truncated_t: True where the stream was cut after this step although the episode
            had not ended, shape `[T]`; or None if it was cut nowhere. The targets there
            bootstraps from `target_q_t` and `a_t` of this row.
        sample_mask: False where a row is no decision of the agent, such as padding,
            shape `[T]`; or None if all are. The error there is 0, and that of the
            others is as if the row were not there.

    Returns:
        Errors :math:`e_0, …, e_{T-1}`, of transformed values, shape `[T]`.

    Raises:
        ArgumentError: If an array argument has the wrong shape or dtype, if an action
            whose value is known is none of the A, or if `n` is not a Python integer of
            at least 1.

    Example:
        >>> tx_pair = rlaxlib.TxPair(jnp.sqrt, jnp.square)
        >>> q_tm1, target_q_t = jnp.array([[1.0, 0.0]]), jnp.array([[2.0, 4.0]])
        >>> a_tm1, a_t = jnp.array([0]), jnp.array([1])
        >>> r_t, discount_t = jnp.array([1.0]), jnp.array([0.5])
        >>> inputs = q_tm1, a_tm1, target_q_t, a_t, r_t, discount_t
        >>> print(rlaxlib.transformed_n_step_q_learning(*inputs, n=1, tx_pair=tx_pair))
        [2.]

    References:
        Steven Kapturowski, Georg Ostrovski, John Quan, Remi Munos and Will Dabney,
        *Recurrent Experience Replay in Distributed Reinforcement Learning*, 2019.
        https://openreview.net/forum?id=r1lyTjAqYX

        Tobias Pohlen and others, *Observe and Look Further: Achieving Consistent
        Performance on Atari*, 2018. https://arxiv.org/abs/1805.11593
    """
    *inputs, a_tm1, a_t, truncated_t, sample_mask = checks.arrays(
        q_tm1=(q_tm1, "float[T, A]"),
        target_q_t=(target_q_t, "float[T, A]"),
        r_t=(r_t, "float[T]"),
        discount_t=(discount_t, "float[T]"),
        a_tm1=(a_tm1, "int[T]"),
        a_t=(a_t, "int[T]"),
        truncated_t=(truncated_t, "bool[T] or None"),
        sample_mask=(sample_mask, "bool[T] or None"),
    )
    checks.static_int(1, n=n)
    (q_tm1, target_q_t, r_t, discount_t), narrow = dtypes.widen(*inputs)
    size = q_tm1.shape[-1]
    a_tm1, a_t = streams.clean(sample_mask, a_tm1, a_t)
    checks.indices(a_tm1=(a_tm1, size), a_t=(a_t, size))
    targets = transformed_n_step_returns(
        tx_pair,
        r_t,
        discount_t,
        arrays.batched_index(target_q_t, a_t),
        n,
        truncated_t=truncated_t,
        sample_mask=sample_mask,
    )
    q_a_tm1 = arrays.batched_index(q_tm1, a_tm1)
    errors = gradients.error(targets, q_a_tm1, stop_target_gradients)
    return narrow(streams.valid(errors, sample_mask))
