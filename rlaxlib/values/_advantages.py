"""Widen the gap between the best action and the others.

Where two actions are nearly as good, small errors of their values decide which one is
taken. Operators that devalue an action by its own advantage keep the best policy what
it is, and make the others' values smaller.

All functions here return an error, the target less the prediction. They take one
transition. Use `jax.vmap` for a batch.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib import arrays
from rlaxlib._core import checks, dtypes, gradients

__all__ = ["advantage_learning", "persistent_advantage_learning"]


def advantage_learning(
    q_tm1: ArrayLike,
    target_q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    target_q_t: ArrayLike,
    action_gap_scale: ArrayLike,
    *,
    stop_target_gradients: bool = True,
) -> Array:
    """Devalue an action by how much worse than the best it is (advantage learning).

    .. math::

        δ = r_t + γ_t max_a q̄_t(a) - α [max_a q̄_{t-1}(a) - q̄_{t-1}(a_{t-1})]
            - q_{t-1}(a_{t-1})

    The gap is that of the target network in the state acted in. In the limit the gaps
    between actions are :math:`1/(1 - α)` times what they are in Q-learning, and the
    best action's value is the same.

    Args:
        q_tm1: Action values, shape `[A]`.
        target_q_tm1: Action values :math:`q̄_{t-1}` of the target network in the same
            state, shape `[A]`.
        a_tm1: Action taken, in [0, A), shape `[]`.
        r_t: Reward, shape `[]`.
        discount_t: Discount in [0, 1], 0 where the episode ended, shape `[]`.
        target_q_t: Action values :math:`q̄_t` of the target network in the next state,
            minus infinity where an action is not legal, shape `[A]`.
        action_gap_scale: Weight :math:`α` of the gap in [0, 1]; 0 is Q-learning,
            shape `[]`.
        stop_target_gradients: Whether to hold the target constant under
            differentiation.

    Returns:
        Error :math:`δ`, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if
            `action_gap_scale` lies outside [0, 1], or if an action whose value is known
            is none of the A.

    Example:
        >>> q_tm1, q_t = jnp.array([1.0, 2.0]), jnp.array([4.0, 8.0])
        >>> print(rlaxlib.advantage_learning(q_tm1, q_tm1, 0, 1.0, 0.5, q_t, 0.5))
        3.5

    References:
        Leemon C. Baird, *Reinforcement Learning Through Gradient Descent*, 1999.
        http://reports-archive.adm.cs.cmu.edu/anon/1999/CMU-CS-99-132.pdf

        Marc G. Bellemare, Georg Ostrovski, Arthur Guez, Philip S. Thomas and Rémi
        Munos, *Increasing the Action Gap: New Operators for Reinforcement Learning*,
        2016. https://arxiv.org/abs/1512.04860
    """
    *inputs, a_tm1 = checks.arrays(
        q_tm1=(q_tm1, "float[A]"),
        target_q_tm1=(target_q_tm1, "float[A]"),
        r_t=(r_t, "float[]"),
        discount_t=(discount_t, "float[]"),
        target_q_t=(target_q_t, "float[A]"),
        action_gap_scale=(action_gap_scale, "float[]"),
        a_tm1=(a_tm1, "int[]"),
    )
    inputs, narrow = dtypes.widen(*inputs)
    q_tm1, target_q_tm1, r_t, discount_t, target_q_t, scale = inputs
    checks.indices(a_tm1=(a_tm1, q_tm1.size))
    checks.within("[0, 1]", action_gap_scale=scale)
    gap = _gap(target_q_tm1, a_tm1)
    target, reward = discount_t * jnp.max(target_q_t), r_t - scale * gap
    q_a_tm1 = arrays.batched_index(q_tm1, a_tm1)
    return narrow(gradients.error(target, q_a_tm1, stop_target_gradients, reward))


def persistent_advantage_learning(
    q_tm1: ArrayLike,
    target_q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    target_q_t: ArrayLike,
    action_gap_scale: ArrayLike,
    *,
    stop_target_gradients: bool = True,
) -> Array:
    """Devalue an action by its gap in this state or the next, whichever is smaller.

    .. math::

        δ = r_t + γ_t max_a q̄_t(a) - α min(g_{t-1}, g_t) - q_{t-1}(a_{t-1}),
        g_k = max_a q̄_k(a) - q̄_k(a_{t-1})

    Both gaps are those of the action taken: an action is spared as far as it would be
    worth repeating, so that policies switch between actions less often. Where the
    episode ended no state follows, and there is no gap: :math:`g_t = 0` where
    :math:`γ_t = 0`.

    The gap in the next state is not discounted, as in the paper's experiments;
    `persistent_q_learning`, which has that branch alone, discounts it. To look in the
    next state at the best action there, and not at the one taken, as some
    implementations do, leaves nothing of the method: that gap is 0.

    Args:
        q_tm1: Action values, shape `[A]`.
        target_q_tm1: Action values :math:`q̄_{t-1}` of the target network in the same
            state, shape `[A]`.
        a_tm1: Action taken, in [0, A), shape `[]`.
        r_t: Reward, shape `[]`.
        discount_t: Discount in [0, 1], 0 where the episode ended, shape `[]`.
        target_q_t: Action values :math:`q̄_t` of the target network in the next state,
            minus infinity where an action is not legal, shape `[A]`.
        action_gap_scale: Weight :math:`α` of the gap in [0, 1]; 0 is Q-learning,
            shape `[]`.
        stop_target_gradients: Whether to hold the target constant under
            differentiation.

    Returns:
        Error :math:`δ`, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if
            `action_gap_scale` lies outside [0, 1], or if an action whose value is known
            is none of the A.

    Example:
        >>> q_tm1, q_t = jnp.array([1.0, 3.0]), jnp.array([7.0, 8.0])
        >>> learn = rlaxlib.persistent_advantage_learning
        >>> print(learn(q_tm1, q_tm1, 0, 1.0, 0.5, q_t, 0.5))
        3.5

    References:
        Marc G. Bellemare, Georg Ostrovski, Arthur Guez, Philip S. Thomas and Rémi
        Munos, *Increasing the Action Gap: New Operators for Reinforcement Learning*,
        2016. https://arxiv.org/abs/1512.04860
    """
    *inputs, a_tm1 = checks.arrays(
        q_tm1=(q_tm1, "float[A]"),
        target_q_tm1=(target_q_tm1, "float[A]"),
        r_t=(r_t, "float[]"),
        discount_t=(discount_t, "float[]"),
        target_q_t=(target_q_t, "float[A]"),
        action_gap_scale=(action_gap_scale, "float[]"),
        a_tm1=(a_tm1, "int[]"),
    )
    inputs, narrow = dtypes.widen(*inputs)
    q_tm1, target_q_tm1, r_t, discount_t, target_q_t, scale = inputs
    checks.indices(a_tm1=(a_tm1, q_tm1.size))
    checks.within("[0, 1]", action_gap_scale=scale)
    after = _gap(target_q_t, a_tm1)
    after = jnp.where(discount_t == 0, jnp.zeros_like(after), after)
    gap = jnp.minimum(_gap(target_q_tm1, a_tm1), after)
    target, reward = discount_t * jnp.max(target_q_t), r_t - scale * gap
    q_a_tm1 = arrays.batched_index(q_tm1, a_tm1)
    return narrow(gradients.error(target, q_a_tm1, stop_target_gradients, reward))


def _gap(q: Array, a: Array) -> Array:
    """Return how much worse than the best action this one is."""
    return jnp.max(q) - arrays.batched_index(q, a)
