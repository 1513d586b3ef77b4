"""n-step Q-learning and n-step double Q-learning (Ape-X).

Functions return one error for each time step, the target minus the prediction. The
targets are the n-step returns of `n_step_bootstrapped_returns`.

Arrays named `*_tm1` hold the times `0` to `T - 1`, at which the actions were chosen,
arrays named `*_t` the times `1` to `T`. Functions take one trajectory. Use `jax.vmap`
for a batch.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib import arrays, returns
from rlaxlib._core import checks, gradients, streams
from rlaxlib.values import _multistep

__all__ = ["n_step_double_q_learning", "n_step_q_learning"]


def n_step_q_learning(
    q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t: ArrayLike,
    n: int,
    stop_target_gradients: bool = True,
    *,
    truncated_t: ArrayLike | None = None,
    sample_mask: ArrayLike | None = None,
) -> Array:
    """Compute the n-step Q-learning TD errors of action values.

    Takes one trajectory, returns one TD error for each time step.

    .. math::

        e_t = G_t^{(n)} - q_t(a_t),
        G_t^{(k)} = r_{t+1} + γ_{t+1} G_{t+1}^{(k-1)},
        G_t^{(0)} = max_a q_t(a).

    The n rewards are those of the actions taken, without a correction if they are not
    greedy. Windows that reach the end of the stream have fewer steps: see
    `n_step_bootstrapped_returns`.

    Args:
        q_tm1: Action values :math:`q_0, …, q_{T-1}`, shape `[T, A]`.
        a_tm1: Actions taken, :math:`a_0, …, a_{T-1}` in [0, A), shape `[T]`.
        r_t: Rewards :math:`r_1, …, r_T`, shape `[T]`.
        discount_t: Discounts :math:`γ_1, …, γ_T` in [0, 1], shape `[T]`.
        q_t: Action values in the true next states, :math:`q_1, …, q_T`, from the target
            network if there is one, shape `[T, A]`.
        n: Number of steps before bootstrapping, a Python integer of at least 1.
        stop_target_gradients: Whether to stop the gradient of the targets.
        truncated_t: True where the stream was cut after this step although the episode
            had not ended, shape `[T]`; or None. The target bootstraps there from `q_t`.
        sample_mask: False for time steps to ignore, such as padding, shape `[T]`; or
            None.

    Returns:
        Errors :math:`e_0, …, e_{T-1}`, NaN if their actions are outside [0, A),
        shape `[T]`.

    Raises:
        ArgumentError: If an array argument has the wrong shape or dtype, or if `n` is
            not a Python integer of at least 1.

    Example:
        >>> q_tm1, a_tm1 = jnp.zeros((2, 2)), jnp.array([0, 1])
        >>> q_t = jnp.array([[0.0, 8.0], [4.0, 0.0]])
        >>> r_t, discount_t = jnp.array([1.0, 2.0]), jnp.array([0.5, 0.5])
        >>> print(rlaxlib.n_step_q_learning(q_tm1, a_tm1, r_t, discount_t, q_t, n=2))
        [3. 4.]

    References:
        Jing Peng and Ronald J. Williams, *Incremental Multi-Step Q-Learning*, 1994.
        https://doi.org/10.1016/B978-1-55860-335-6.50035-0

        Volodymyr Mnih and others, *Asynchronous Methods for Deep Reinforcement
        Learning*, section 4, 2016. https://arxiv.org/abs/1602.01783
    """
    q_tm1, a_tm1, r_t, discount_t, q_t, truncated_t, sample_mask, narrow = (
        checks.widened(
            q_tm1=(q_tm1, "float[T, A]"),
            a_tm1=(a_tm1, "int[T]"),
            r_t=(r_t, "float[T]"),
            discount_t=(discount_t, "float[T]"),
            q_t=(q_t, "float[T, A]"),
            truncated_t=(truncated_t, "bool[T] or None"),
            sample_mask=(sample_mask, "bool[T] or None"),
        )
    )
    checks.static_int(1, n=n)
    targets = returns.n_step_bootstrapped_returns(
        r_t,
        discount_t,
        _multistep.maximum(q_t, sample_mask),
        n,
        truncated_t=truncated_t,
        sample_mask=sample_mask,
    )
    q_a_tm1 = arrays.batched_index(q_tm1, a_tm1)
    errors = gradients.error(targets, q_a_tm1, stop_target_gradients)
    return narrow(streams.valid(errors, sample_mask))


def n_step_double_q_learning(
    q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t_value: ArrayLike,
    q_t_selector: ArrayLike,
    n: int,
    stop_target_gradients: bool = True,
    *,
    truncated_t: ArrayLike | None = None,
    sample_mask: ArrayLike | None = None,
) -> Array:
    """Compute the n-step double Q-learning TD errors of action values (Ape-X).

    Takes one trajectory, returns one TD error for each time step.

    .. math::

        e_t = G_t^{(n)} - q_t(a_t),
        G_t^{(k)} = r_{t+1} + γ_{t+1} G_{t+1}^{(k-1)},
        G_t^{(0)} = q_t^val(argmax_a q_t^sel(a)).

    Usually the online network selects the action to bootstrap from, and the target
    network evaluates it: see `double_q_learning`. `transformed_n_step_q_learning` is
    the form of R2D2, for transformed values.

    Args:
        q_tm1: Action values :math:`q_0, …, q_{T-1}`, shape `[T, A]`.
        a_tm1: Actions taken, :math:`a_0, …, a_{T-1}` in [0, A), shape `[T]`.
        r_t: Rewards :math:`r_1, …, r_T`, shape `[T]`.
        discount_t: Discounts :math:`γ_1, …, γ_T` in [0, 1], shape `[T]`.
        q_t_value: Action values in the true next states that evaluate the selected
            actions, :math:`q_1^val, …, q_T^val`, shape `[T, A]`.
        q_t_selector: Action values there that select the actions, the first of equal
            ones, :math:`q_1^sel, …, q_T^sel`, shape `[T, A]`.
        n: Number of steps before bootstrapping, a Python integer of at least 1.
        stop_target_gradients: Whether to stop the gradient of the targets.
        truncated_t: True where the stream was cut after this step although the episode
            had not ended, shape `[T]`; or None. The target bootstraps there from
            `q_t_value`.
        sample_mask: False for time steps to ignore, such as padding, shape `[T]`; or
            None.

    Returns:
        Errors :math:`e_0, …, e_{T-1}`, NaN if their actions are outside [0, A),
        shape `[T]`.

    Raises:
        ArgumentError: If an array argument has the wrong shape or dtype, or if `n` is
            not a Python integer of at least 1.

    Example:
        >>> q_tm1, a_tm1 = jnp.zeros((2, 2)), jnp.array([0, 1])
        >>> q_t, selector = jnp.array([[0.0, 8.0], [4.0, 0.0]]), jnp.eye(2)
        >>> r_t, discount_t = jnp.array([1.0, 2.0]), jnp.array([0.5, 0.5])
        >>> td_errors = rlaxlib.n_step_double_q_learning
        >>> print(td_errors(q_tm1, a_tm1, r_t, discount_t, q_t, selector, n=1))
        [1. 2.]

    References:
        Hado van Hasselt, Arthur Guez and David Silver, *Deep Reinforcement Learning
        with Double Q-Learning*, 2016. https://arxiv.org/abs/1509.06461

        Dan Horgan, John Quan, David Budden, Gabriel Barth-Maron, Matteo Hessel, Hado
        van Hasselt and David Silver, *Distributed Prioritized Experience Replay*,
        section 3.1, 2018. https://arxiv.org/abs/1803.00933
    """
    q_tm1, a_tm1, r_t, discount_t, value, selector, *masks, narrow = checks.widened(
        q_tm1=(q_tm1, "float[T, A]"),
        a_tm1=(a_tm1, "int[T]"),
        r_t=(r_t, "float[T]"),
        discount_t=(discount_t, "float[T]"),
        q_t_value=(q_t_value, "float[T, A]"),
        q_t_selector=(q_t_selector, "float[T, A]"),
        truncated_t=(truncated_t, "bool[T] or None"),
        sample_mask=(sample_mask, "bool[T] or None"),
    )
    truncated_t, sample_mask = masks
    checks.static_int(1, n=n)
    targets = returns.n_step_bootstrapped_returns(
        r_t,
        discount_t,
        arrays.batched_index(value, jnp.argmax(selector, axis=-1)),
        n,
        truncated_t=truncated_t,
        sample_mask=sample_mask,
    )
    q_a_tm1 = arrays.batched_index(q_tm1, a_tm1)
    errors = gradients.error(targets, q_a_tm1, stop_target_gradients)
    return narrow(streams.valid(errors, sample_mask))
