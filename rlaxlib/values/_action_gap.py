"""One-step TD errors that increase the action gap.

Persistent Q-learning, advantage learning (AL) and persistent advantage learning (PAL).

The action gap is the value of the best action minus that of another. Where it is large,
small errors of the action values do not change the policy.

Functions take one transition. Use `jax.vmap` for a batch.
"""

from __future__ import annotations

import jax.numpy as jnp

from rlaxlib._core import safe
from rlaxlib._core.gradients import td_error
from rlaxlib._core.indexing import pick
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Float, Int

__all__ = [
    "advantage_learning",
    "persistent_advantage_learning",
    "persistent_q_learning",
]


@checked
def persistent_q_learning(
    q_tm1: Float[ArrayLike, "A"],
    a_tm1: Int[ArrayLike, "in [0, A)"],
    r_t: Float[ArrayLike, ""],
    discount_t: Float[ArrayLike, "in [-1, 1]"],
    q_t: Float[ArrayLike, "A"],
    action_gap_scale: Float[ArrayLike, "in [0, 1]"],
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """Compute the persistent Q-learning TD error.

    Takes one transition, returns one TD error.

    ::

        δ = r_t + γ_t [(1 - α) max_a q_t(a) + α q_t(a_{t-1})] - q_{t-1}(a_{t-1})

    `persistent_advantage_learning` has both branches of the paper's algorithm.

    Args:
        q_t: Action values in the next state, shape `[A]`.
        action_gap_scale: Weight :math:`α` of the repeated action in [0, 1], shape `[]`.
        Other arguments: as `q_learning`.

    Returns:
        TD error :math:`δ`, shape `[]`.

    Raises:
        ArgumentError: If a shape, dtype or concrete value is wrong.

    Example:
        >>> q_tm1, q_t = jnp.array([1.0, 2.0]), jnp.array([4.0, 8.0])
        >>> print(rlaxlib.persistent_q_learning(q_tm1, 0, 1.0, 0.5, q_t, 0.5))
        3.0

    References:
        Marc G. Bellemare and others, *Increasing the Action Gap: New Operators for
        Reinforcement Learning*, 2016. https://arxiv.org/abs/1512.04860
    """
    q_a_tm1, q_t = pick(q_tm1, a_tm1), safe.floored(q_t)
    alpha, q_a_t = action_gap_scale, pick(q_t, a_tm1)
    v_t = (1 - alpha) * jnp.max(q_t) + alpha * q_a_t
    return td_error(q_a_tm1, r_t, discount_t, v_t, stop_target_gradients)


@checked
def advantage_learning(
    q_tm1: Float[ArrayLike, "A"],
    target_q_tm1: Float[ArrayLike, "A"],
    a_tm1: Int[ArrayLike, "in [0, A)"],
    r_t: Float[ArrayLike, ""],
    discount_t: Float[ArrayLike, "in [-1, 1]"],
    target_q_t: Float[ArrayLike, "A"],
    action_gap_scale: Float[ArrayLike, "in [0, 1]"] = 0.9,
    *,
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """Compute the advantage learning (AL) TD error.

    Takes one transition, returns one TD error.

    ::

        δ = r_t + γ_t max_a q̄_t(a) - α [max_a q̄_{t-1}(a) - q̄_{t-1}(a_{t-1})]
            - q_{t-1}(a_{t-1})

    At the fixed point, action gaps are :math:`1/(1 - α)` times as large as in
    `q_learning`.

    Args:
        q_tm1: Action values, shape `[A]`.
        target_q_tm1: Action values :math:`q̄_{t-1}` of the target network, shape `[A]`.
        a_tm1: Action taken, in [0, A), shape `[]`.
        r_t: Reward, shape `[]`.
        discount_t: Discount in [-1, 1], 0 where the episode ended, shape `[]`.
        target_q_t: Next values :math:`q̄_t`, minus infinity if illegal, shape `[A]`.
        action_gap_scale: Weight :math:`α` of the action gap, in [0, 1], shape `[]`.
        stop_target_gradients: Whether to stop the gradient of the target.

    Returns:
        TD error :math:`δ`, shape `[]`.

    Raises:
        ArgumentError: If a shape, dtype or concrete value is wrong.

    Example:
        >>> q_tm1, q_t = jnp.array([1.0, 2.0]), jnp.array([4.0, 8.0])
        >>> print(rlaxlib.advantage_learning(q_tm1, q_tm1, 0, 1.0, 0.5, q_t, 0.5))
        3.5

    References:
        Leemon C. Baird, *Reinforcement Learning Through Gradient Descent*, 1999.
        http://reports-archive.adm.cs.cmu.edu/anon/1999/CMU-CS-99-132.pdf

        Marc G. Bellemare and others, *Increasing the Action Gap: New Operators for
        Reinforcement Learning*, 2016. https://arxiv.org/abs/1512.04860
    """
    q_a_tm1 = pick(q_tm1, a_tm1)
    r_t = r_t - action_gap_scale * _gap(target_q_tm1, a_tm1)
    v_t = jnp.max(target_q_t)
    return td_error(q_a_tm1, r_t, discount_t, v_t, stop_target_gradients)


@checked
def persistent_advantage_learning(
    q_tm1: Float[ArrayLike, "A"],
    target_q_tm1: Float[ArrayLike, "A"],
    a_tm1: Int[ArrayLike, "in [0, A)"],
    r_t: Float[ArrayLike, ""],
    discount_t: Float[ArrayLike, "in [-1, 1]"],
    target_q_t: Float[ArrayLike, "A"],
    action_gap_scale: Float[ArrayLike, "in [0, 1]"] = 0.9,
    *,
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """Compute the persistent advantage learning (PAL) TD error.

    Takes one transition, returns one TD error.

    ::

        δ = r_t + γ_t max_a q̄_t(a) - α min(g_{t-1}, g_t) - q_{t-1}(a_{t-1}),
        g_k = max_a q̄_k(a) - q̄_k(a_{t-1})

    If the action taken is also good in the next state, the penalty is smaller, so
    policies switch actions less often. Where :math:`γ_t = 0`, :math:`g_t = 0`. As in
    the paper's experiments, :math:`g_t` is not discounted.

    Args:
        Other arguments: as `advantage_learning`.

    Returns:
        TD error :math:`δ`, shape `[]`.

    Raises:
        ArgumentError: If a shape, dtype or concrete value is wrong.

    Example:
        >>> q_tm1, q_t = jnp.array([1.0, 3.0]), jnp.array([7.0, 8.0])
        >>> td_error = rlaxlib.persistent_advantage_learning
        >>> print(td_error(q_tm1, q_tm1, 0, 1.0, 0.5, q_t, 0.5))
        3.5

    References:
        Marc G. Bellemare and others, *Increasing the Action Gap: New Operators for
        Reinforcement Learning*, 2016. https://arxiv.org/abs/1512.04860
    """
    q_a_tm1 = pick(q_tm1, a_tm1)
    gap_tm1, gap_t = _gap(target_q_tm1, a_tm1), _gap(target_q_t, a_tm1)
    gap_t = jnp.where(discount_t == 0, 0.0, gap_t)
    r_t = r_t - action_gap_scale * jnp.minimum(gap_tm1, gap_t)
    v_t = jnp.max(target_q_t)
    return td_error(q_a_tm1, r_t, discount_t, v_t, stop_target_gradients)


def _gap(q: Array, a: Array) -> Array:
    """Return the action gap, the best action value minus the one taken."""
    return jnp.max(q) - pick(q, a)
