"""n-step Q-learning and n-step double Q-learning (Ape-X).

Functions return one error for each time step, the target minus the prediction. The
targets are the n-step returns of `n_step_bootstrapped_returns`.

Arrays named `*_tm1` hold the times `0` to `T - 1`, at which the actions were chosen,
arrays named `*_t` the times `1` to `T`. Functions take one trajectory. Use `jax.vmap`
for a batch.
"""

from __future__ import annotations

import jax.numpy as jnp

from rlaxlib import returns
from rlaxlib._core import gradients
from rlaxlib._core.indexing import pick
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Bool, Float, Int, Static

__all__ = ["n_step_double_q_learning", "n_step_q_learning"]


@checked
def n_step_q_learning(
    q_tm1: Float[ArrayLike, "T, A"],
    a_tm1: Int[ArrayLike, "T in [0, A)"],
    r_t: Float[ArrayLike, "T"],
    discount_t: Float[ArrayLike, "T in [-1, 1]"],
    q_t: Float[ArrayLike, "T, A"],
    n: Static[int, "in [1, inf)"],
    *,
    stop_target_gradients: bool = True,
    truncated_t: Bool[ArrayLike, "T"] | None = None,
    sample_mask: Bool[ArrayLike, "T"] | None = None,
) -> Float[Array, "T"]:
    """Compute the n-step Q-learning TD errors of action values.

    Takes one trajectory, returns one TD error for each time step.

    ::

        e_t = G_t^{(n)} - q_t(a_t),
        G_t^{(k)} = r_{t+1} + γ_{t+1} G_{t+1}^{(k-1)},   G_t^{(0)} = max_a q_t(a).

    Windows at the end have fewer steps: see `n_step_bootstrapped_returns`.

    Args:
        q_tm1: Action values :math:`q_0, …, q_{T-1}`, shape `[T, A]`.
        a_tm1: Actions taken, :math:`a_0, …, a_{T-1}` in [0, A), shape `[T]`.
        r_t: Rewards :math:`r_1, …, r_T`, shape `[T]`.
        discount_t: Discounts :math:`γ_1, …, γ_T` in [-1, 1], shape `[T]`.
        q_t: Action values in the true next states, :math:`q_1, …, q_T`, shape `[T, A]`.
        n: Number of steps before bootstrapping, a Python integer in [1, inf).
        stop_target_gradients: Whether to stop the gradient of the targets.
        truncated_t: True where truncated: bootstraps from `q_t`, shape `[T]`; or None.
        sample_mask: False for time steps to ignore, shape `[T]`; or None.

    Returns:
        Errors :math:`e_0, …, e_{T-1}`, NaN for actions outside [0, A), shape `[T]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> q_t, (r_t, discount_t) = jnp.array([[[0, 8], [4, 0]], [[1, 2], [0.5, 0.5]]])
        >>> inputs = jnp.zeros((2, 2)), jnp.arange(2), r_t, discount_t, q_t
        >>> print(rlaxlib.n_step_q_learning(*inputs, n=2))
        [3. 4.]

    References:
        Volodymyr Mnih and others, *Asynchronous Methods for Deep Reinforcement
        Learning*, section 4, 2016. https://arxiv.org/abs/1602.01783
    """
    v_t = jnp.max(q_t, axis=-1)
    targets = returns.n_step_bootstrapped_returns(
        r_t, discount_t, v_t, n, truncated_t=truncated_t, sample_mask=sample_mask
    )
    return gradients.error(targets, pick(q_tm1, a_tm1), stop_target_gradients)


@checked
def n_step_double_q_learning(
    q_tm1: Float[ArrayLike, "T, A"],
    a_tm1: Int[ArrayLike, "T in [0, A)"],
    r_t: Float[ArrayLike, "T"],
    discount_t: Float[ArrayLike, "T in [-1, 1]"],
    q_t_value: Float[ArrayLike, "T, A"],
    q_t_selector: Float[ArrayLike, "T, A"],
    n: Static[int, "in [1, inf)"],
    *,
    stop_target_gradients: bool = True,
    truncated_t: Bool[ArrayLike, "T"] | None = None,
    sample_mask: Bool[ArrayLike, "T"] | None = None,
) -> Float[Array, "T"]:
    """Compute the n-step double Q-learning TD errors of action values (Ape-X).

    Takes one trajectory, returns one TD error for each time step.

    ::

        e_t = G_t^{(n)} - q_t(a_t),
        G_t^{(k)} = r_{t+1} + γ_{t+1} G_{t+1}^{(k-1)},
        G_t^{(0)} = q_t^val(argmax_a q_t^sel(a)).

    The online network selects, the target network evaluates: see `double_q_learning`.

    Args:
        q_t_value: Action values :math:`q^val` in the true next states, shape `[T, A]`.
        q_t_selector: The same, :math:`q^sel`, to select by, shape `[T, A]`.
        truncated_t: True where truncated, shape `[T]`; or None.
        Other arguments: as `n_step_q_learning`.

    Returns:
        Errors :math:`e_0, …, e_{T-1}`, NaN for actions outside [0, A), shape `[T]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> q_t, (r_t, discount_t) = jnp.array([[[0, 8], [4, 0]], [[1, 2], [0.5, 0.5]]])
        >>> inputs = jnp.zeros((2, 2)), jnp.arange(2), r_t, discount_t, q_t, jnp.eye(2)
        >>> print(rlaxlib.n_step_double_q_learning(*inputs, n=1))
        [1. 2.]

    References:
        Dan Horgan and others, *Distributed Prioritized Experience Replay*, section 3.1,
        2018. https://arxiv.org/abs/1803.00933
    """
    v_t = pick(q_t_value, jnp.argmax(q_t_selector, axis=-1))
    targets = returns.n_step_bootstrapped_returns(
        r_t, discount_t, v_t, n, truncated_t=truncated_t, sample_mask=sample_mask
    )
    return gradients.error(targets, pick(q_tm1, a_tm1), stop_target_gradients)
