"""Compare values with what many steps later say they should have been.

All functions here return an error for each step, the target less the prediction. The
targets are those of `rlaxlib.returns`: what stands in `lambda_returns` for the value of
a state, or as the trace in `general_off_policy_returns_from_action_values`, tells the
algorithms apart.

The clock: `*_tm1` holds the times `0` to `T - 1`, at which the actions were chosen,
`*_t` the times `1` to `T`, what came back.

Functions here take one trajectory. Use `jax.vmap` for a batch.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib import arrays, returns
from rlaxlib._core import checks, dtypes, gradients, streams

__all__ = [
    "q_lambda",
    "retrace",
    "retrace_continuous",
    "sarsa_lambda",
    "td_lambda",
]


def td_lambda(
    v_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    v_t: ArrayLike,
    lambda_: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    truncated_t: ArrayLike | None = None,
    sample_mask: ArrayLike | None = None,
) -> Array:
    """Compare state values with λ-returns (TD(λ)).

    .. math::

        e_t = G_t - v_t,
        G_t = r_{t+1} + γ_{t+1} [(1 - λ_{t+1}) v_{t+1} + λ_{t+1} G_{t+1}],
        G_T = v_T.

    Args:
        v_tm1: Values of the states acted in, :math:`v_0, …, v_{T-1}`, shape `[T]`.
        r_t: Rewards :math:`r_1, …, r_T`, shape `[T]`.
        discount_t: Discounts :math:`γ_1, …, γ_T`, each in [0, 1], shape `[T]`.
        v_t: Values of the true next observations, :math:`v_1, …, v_T`, shape `[T]`.
        lambda_: Mixing weight λ in [0, 1], shape `[]`; or one for each step,
            :math:`λ_1, …, λ_T`, shape `[T]`.
        stop_target_gradients: Whether to hold the targets constant under
            differentiation.
        truncated_t: True where the stream was cut after this step although the episode
            had not ended, shape `[T]`; or None if it was cut nowhere. The target there
            bootstraps from `v_t` of this row.
        sample_mask: False where a row is no decision of the agent, such as padding,
            shape `[T]`; or None if all are. The error there is 0, and that of the
            others is as if the row were not there.

    Returns:
        Errors :math:`e_0, …, e_{T-1}`, shape `[T]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype.

    Example:
        >>> v_tm1, v_t = jnp.array([1.0, 8.0]), jnp.array([8.0, 4.0])
        >>> r_t, discount_t = jnp.array([1.0, 2.0]), jnp.array([0.5, 0.5])
        >>> print(rlaxlib.td_lambda(v_tm1, r_t, discount_t, v_t, lambda_=0.5))
        [ 3. -4.]

    References:
        Richard S. Sutton, *Learning to Predict by the Methods of Temporal
        Differences*, Machine Learning 3, 1988. https://doi.org/10.1007/BF00115009
    """
    v_tm1, r_t, discount_t, v_t, lambda_, truncated_t, sample_mask = checks.arrays(
        v_tm1=(v_tm1, "float[T]"),
        r_t=(r_t, "float[T]"),
        discount_t=(discount_t, "float[T]"),
        v_t=(v_t, "float[T]"),
        lambda_=(lambda_, "float[] or [T]"),
        truncated_t=(truncated_t, "bool[T] or None"),
        sample_mask=(sample_mask, "bool[T] or None"),
    )
    (v_tm1, r_t, discount_t, v_t, lambda_), narrow = dtypes.widen(
        v_tm1, r_t, discount_t, v_t, lambda_
    )
    targets = returns.lambda_returns(
        r_t,
        discount_t,
        v_t,
        lambda_,
        truncated_t=truncated_t,
        sample_mask=sample_mask,
    )
    errors = gradients.error(targets, v_tm1, stop_target_gradients)
    return narrow(streams.valid(errors, sample_mask))


def sarsa_lambda(
    q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t: ArrayLike,
    a_t: ArrayLike,
    lambda_: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    truncated_t: ArrayLike | None = None,
    sample_mask: ArrayLike | None = None,
) -> Array:
    """Compare action values with λ-returns of the actions taken (Sarsa(λ)).

    .. math::

        e_t = G_t - q_t(a_t),
        G_t = r_{t+1} + γ_{t+1} [(1 - λ_{t+1}) q_{t+1}(a_{t+1}) + λ_{t+1} G_{t+1}],

    with the last return being :math:`G_T = q_T(a_T)`.

    Args:
        q_tm1: Action values in the states acted in, :math:`q_0, …, q_{T-1}`,
            shape `[T, A]`.
        a_tm1: Actions taken there, :math:`a_0, …, a_{T-1}`, each in [0, A),
            shape `[T]`.
        r_t: Rewards :math:`r_1, …, r_T`, shape `[T]`.
        discount_t: Discounts :math:`γ_1, …, γ_T`, each in [0, 1], shape `[T]`.
        q_t: Action values in the true next states, :math:`q_1, …, q_T`, shape `[T, A]`.
        a_t: Actions taken there, :math:`a_1, …, a_T`, each in [0, A), shape `[T]`.
        lambda_: Mixing weight λ in [0, 1], shape `[]`; or one for each step,
            :math:`λ_1, …, λ_T`, shape `[T]`.
        stop_target_gradients: Whether to hold the targets constant under
            differentiation.
        truncated_t: True where the stream was cut after this step although the episode
            had not ended, shape `[T]`; or None if it was cut nowhere. The target there
            bootstraps from `q_t` and `a_t` of this row.
        sample_mask: False where a row is no decision of the agent, such as padding,
            shape `[T]`; or None if all are. The error there is 0, and that of the
            others is as if the row were not there.

    Returns:
        Errors :math:`e_0, …, e_{T-1}`, shape `[T]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if an action
            whose value is known is none of the A.

    Example:
        >>> q_tm1 = jnp.array([[1.0, 0.0], [0.0, 8.0]])
        >>> q_t = jnp.array([[0.0, 8.0], [4.0, 0.0]])
        >>> a_tm1, a_t = jnp.array([0, 1]), jnp.array([1, 0])
        >>> r_t, discount_t = jnp.array([1.0, 2.0]), jnp.array([0.5, 0.5])
        >>> print(rlaxlib.sarsa_lambda(q_tm1, a_tm1, r_t, discount_t, q_t, a_t, 0.5))
        [ 3. -4.]

    References:
        Richard S. Sutton and Andrew G. Barto, *Reinforcement Learning: An
        Introduction*, second edition, section 12.7, 2018.
        http://incompleteideas.net/book/the-book-2nd.html
    """
    q_tm1, a_tm1, r_t, discount_t, q_t, a_t, lambda_, truncated_t, sample_mask = (
        checks.arrays(
            q_tm1=(q_tm1, "float[T, A]"),
            a_tm1=(a_tm1, "int[T]"),
            r_t=(r_t, "float[T]"),
            discount_t=(discount_t, "float[T]"),
            q_t=(q_t, "float[T, A]"),
            a_t=(a_t, "int[T]"),
            lambda_=(lambda_, "float[] or [T]"),
            truncated_t=(truncated_t, "bool[T] or None"),
            sample_mask=(sample_mask, "bool[T] or None"),
        )
    )
    size = q_t.shape[-1]
    a_tm1, a_t = streams.clean(sample_mask, a_tm1, a_t)
    checks.indices(a_tm1=(a_tm1, size), a_t=(a_t, size))
    return td_lambda(
        arrays.batched_index(q_tm1, a_tm1),
        r_t,
        discount_t,
        arrays.batched_index(q_t, a_t),
        lambda_,
        stop_target_gradients,
        truncated_t=truncated_t,
        sample_mask=sample_mask,
    )


def q_lambda(
    q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t: ArrayLike,
    lambda_: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    truncated_t: ArrayLike | None = None,
    sample_mask: ArrayLike | None = None,
) -> Array:
    """Compare action values with λ-returns of the best actions (Q(λ)).

    .. math::

        e_t = G_t - q_t(a_t),
        G_t = r_{t+1} + γ_{t+1} [(1 - λ_{t+1}) max_a q_{t+1}(a) + λ_{t+1} G_{t+1}],

    with the last return being :math:`G_T = max_a q_T(a)`. One λ for all steps is Peng's
    Q(λ), which does not mind that some actions explored. Setting λ to 0 where
    :math:`a_{t+1}` is not the best action is Watkins's, which does.

    Args:
        q_tm1: Action values in the states acted in, :math:`q_0, …, q_{T-1}`,
            shape `[T, A]`.
        a_tm1: Actions taken there, :math:`a_0, …, a_{T-1}`, each in [0, A),
            shape `[T]`.
        r_t: Rewards :math:`r_1, …, r_T`, shape `[T]`.
        discount_t: Discounts :math:`γ_1, …, γ_T`, each in [0, 1], shape `[T]`.
        q_t: Action values in the true next states, :math:`q_1, …, q_T`, shape `[T, A]`.
        lambda_: Mixing weight λ in [0, 1], shape `[]`; or one for each step,
            :math:`λ_1, …, λ_T`, shape `[T]`.
        stop_target_gradients: Whether to hold the targets constant under
            differentiation.
        truncated_t: True where the stream was cut after this step although the episode
            had not ended, shape `[T]`; or None if it was cut nowhere. The target there
            bootstraps from `q_t` of this row.
        sample_mask: False where a row is no decision of the agent, such as padding,
            shape `[T]`; or None if all are. The error there is 0, and that of the
            others is as if the row were not there.

    Returns:
        Errors :math:`e_0, …, e_{T-1}`, shape `[T]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if an action
            whose value is known is none of the A.

    Example:
        >>> q_tm1 = jnp.array([[1.0, 0.0], [0.0, 8.0]])
        >>> q_t = jnp.array([[0.0, 8.0], [4.0, 0.0]])
        >>> a_tm1 = jnp.array([0, 1])
        >>> r_t, discount_t = jnp.array([1.0, 2.0]), jnp.array([0.5, 0.5])
        >>> print(rlaxlib.q_lambda(q_tm1, a_tm1, r_t, discount_t, q_t, 0.5))
        [ 3. -4.]

    References:
        Christopher J. C. H. Watkins, *Learning from Delayed Rewards*, 1989.
        https://www.cs.rhul.ac.uk/~chrisw/thesis.html

        Jing Peng and Ronald J. Williams, *Incremental Multi-Step Q-Learning*, 1994.
        https://doi.org/10.1016/B978-1-55860-335-6.50035-0
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
    return td_lambda(
        arrays.batched_index(q_tm1, a_tm1),
        r_t,
        discount_t,
        jnp.max(streams.valid(q_t, sample_mask), axis=-1),
        lambda_,
        stop_target_gradients,
        truncated_t=truncated_t,
        sample_mask=sample_mask,
    )


def retrace(
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
    *,
    truncated_t: ArrayLike | None = None,
    sample_mask: ArrayLike | None = None,
) -> Array:
    """Compare action values with returns corrected for off-policy actions (Retrace).

    .. math::

        e_t = G_t - q_t(a_t),
        G_t = r_{t+1} + γ_{t+1} [∑_a π_{t+1}(a) q_{t+1}(a)
            + c_{t+1} (G_{t+1} - q_{t+1}(a_{t+1}))],
        c_t = λ min(1, π_t(a_t) / (μ_t + ε)),   c_T = 0.

    The trace lasts as long as :math:`π` would have acted alike, and never grows: the
    targets are safe for any behaviour policy, and make full use of one that is close.

    Args:
        q_tm1: Action values in the states acted in, :math:`q_0, …, q_{T-1}`,
            shape `[T, A]`.
        q_t: Action values in the true next states, :math:`q_1, …, q_T`, shape `[T, A]`.
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
        truncated_t: True where the stream was cut after this step although the episode
            had not ended, shape `[T]`; or None if it was cut nowhere. The target there
            bootstraps from `q_t` and `pi_t` of this row.
        sample_mask: False where a row is no decision of the agent, such as padding,
            shape `[T]`; or None if all are. The error there is 0, and that of the
            others is as if the row were not there.

    Returns:
        Errors :math:`e_0, …, e_{T-1}`, shape `[T]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if `eps` is
            negative, or if an action whose value is known is none of the A.

    Example:
        >>> q_tm1 = jnp.array([[1.0, 0.0], [0.0, 8.0]])
        >>> q_t = jnp.array([[2.0, 4.0], [6.0, 8.0]])
        >>> a_tm1, a_t = jnp.array([0, 1]), jnp.array([1, 0])
        >>> r_t, discount_t = jnp.array([1.0, 2.0]), jnp.array([0.5, 0.5])
        >>> pi_t, mu_t = jnp.full((2, 2), 0.5), jnp.array([0.25, 0.25])
        >>> retrace = rlaxlib.retrace
        >>> print(retrace(q_tm1, q_t, a_tm1, a_t, r_t, discount_t, pi_t, mu_t, 1.0))
        [ 2.25 -2.5 ]

    References:
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
    targets = returns.general_off_policy_returns_from_action_values(
        q_t,
        a_t,
        r_t,
        discount_t,
        retrace_weights(pi_t, a_t, mu_t, lambda_, eps),
        pi_t,
        truncated_t=truncated_t,
        sample_mask=sample_mask,
    )
    q_a_tm1 = arrays.batched_index(q_tm1, a_tm1)
    errors = gradients.error(targets, q_a_tm1, stop_target_gradients)
    return narrow(streams.valid(errors, sample_mask))


def retrace_continuous(
    q_tm1: ArrayLike,
    q_t: ArrayLike,
    v_t: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    log_rhos: ArrayLike,
    lambda_: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    truncated_t: ArrayLike | None = None,
    sample_mask: ArrayLike | None = None,
) -> Array:
    """Compare action values with Retrace returns, where actions are continuous.

    .. math::

        e_t = G_t - q_t,
        G_t = r_{t+1} + γ_{t+1} [v_{t+1} + c_{t+1} (G_{t+1} - q_{t+1})],
        c_t = λ_t min(1, exp(log ρ_t)),   c_T = 0.

    As `retrace`, but with the values of the actions taken only, and with the values of
    the states in place of the sum over actions.

    Args:
        q_tm1: Values of the actions taken, :math:`q_0, …, q_{T-1}`, shape `[T]`.
        q_t: Values of the actions taken next, :math:`q_1, …, q_{T-1}`, shape `[T-1]`;
            or one more, which is not used, shape `[T]`.
        v_t: Values of the true next states under the target policy,
            :math:`v_1, …, v_T`, shape `[T]`.
        r_t: Rewards :math:`r_1, …, r_T`, shape `[T]`.
        discount_t: Discounts :math:`γ_1, …, γ_T`, each in [0, 1], shape `[T]`.
        log_rhos: Logarithms of the importance ratios of the actions taken next,
            :math:`log ρ_1, …, log ρ_{T-1}`, shape `[T-1]`; or one more, which is not
            used, shape `[T]`.
        lambda_: Mixing weight λ in [0, 1], shape `[]`; or one for each ratio,
            shape `[T-1]`; or one more, which is not used, shape `[T]`.
        stop_target_gradients: Whether to hold the targets constant under
            differentiation.
        truncated_t: True where the stream was cut after this step although the episode
            had not ended, shape `[T]`; or None if it was cut nowhere. The target there
            bootstraps from `v_t` of this row.
        sample_mask: False where a row is no decision of the agent, such as padding,
            shape `[T]`; or None if all are. The error there is 0, and that of the
            others is as if the row were not there.

    Returns:
        Errors :math:`e_0, …, e_{T-1}`, shape `[T]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype.

    Example:
        >>> q_tm1, q_t = jnp.array([1.0, 8.0]), jnp.array([4.0])
        >>> v_t, log_rhos = jnp.array([3.0, 7.0]), jnp.array([0.5])
        >>> r_t, discount_t = jnp.array([1.0, 2.0]), jnp.array([0.5, 0.5])
        >>> retrace = rlaxlib.retrace_continuous
        >>> print(retrace(q_tm1, q_t, v_t, r_t, discount_t, log_rhos, 1.0))
        [ 2.25 -2.5 ]

    References:
        Rémi Munos, Tom Stepleton, Anna Harutyunyan and Marc G. Bellemare, *Safe and
        Efficient Off-Policy Reinforcement Learning*, 2016.
        https://arxiv.org/abs/1606.02647
    """
    *inputs, truncated_t, sample_mask = checks.arrays(
        q_tm1=(q_tm1, "float[T]"),
        v_t=(v_t, "float[T]"),
        r_t=(r_t, "float[T]"),
        discount_t=(discount_t, "float[T]"),
        q_t=(q_t, "float[T-1] or [T]"),
        log_rhos=(log_rhos, "float[T-1] or [T]"),
        lambda_=(lambda_, "float[] or [T-1] or [T]"),
        truncated_t=(truncated_t, "bool[T] or None"),
        sample_mask=(sample_mask, "bool[T] or None"),
    )
    inputs, narrow = dtypes.widen(*inputs)
    q_tm1, v_t, r_t, discount_t, q_t, log_rhos, lambda_ = inputs
    used = r_t.size - 1
    lambda_ = lambda_[:used] if lambda_.ndim else lambda_
    log_rhos = streams.valid(
        log_rhos[:used], None if sample_mask is None else sample_mask[:used]
    )
    targets = returns.general_off_policy_returns_from_q_and_v(
        q_t,
        v_t,
        r_t,
        discount_t,
        lambda_ * jnp.exp(jnp.minimum(0.0, log_rhos)),
        truncated_t=truncated_t,
        sample_mask=sample_mask,
    )
    errors = gradients.error(targets, q_tm1, stop_target_gradients)
    return narrow(streams.valid(errors, sample_mask))


def retrace_weights(
    pi_t: Array, a_t: Array, mu_t: Array, lambda_: Array, eps: Array
) -> Array:
    """Return the trace of Retrace; 0 where neither policy takes the action."""
    pi, mu = arrays.batched_index(pi_t, a_t), mu_t + eps
    safe = jnp.where((pi == 0) & (mu == 0), jnp.ones_like(mu), mu)
    return lambda_ * jnp.minimum(1.0, pi / safe)
