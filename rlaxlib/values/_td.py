"""One-step TD errors.

TD(0), Sarsa, expected Sarsa, Q-learning, double Q-learning, QV-learning and QVMAX.

The differential TD error, for average rewards in continuing tasks, is
`td_learning(v_tm1, r_t - reward_rate, 1.0, v_t)`. Times a step size, it updates the
rate as well.

All functions return a TD error, the target minus the prediction. Square it for a loss,
pass it to `huber_loss`, or use its magnitude as a priority for replay.

Arrays named `*_tm1` belong to the step at which the action was chosen, arrays named
`*_t` to the next one. A discount of 0 ends the episode: the next state has no value.

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
    "double_q_learning",
    "expected_sarsa",
    "q_learning",
    "qv_learning",
    "qv_max",
    "sarsa",
    "td_learning",
]


@checked
def td_learning(
    v_tm1: Float[ArrayLike, ""],
    r_t: Float[ArrayLike, ""],
    discount_t: Float[ArrayLike, "in [-1, 1]"],
    v_t: Float[ArrayLike, ""],
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """Compute the TD(0) error of a state value.

    Takes one transition, returns one TD error.

    ::

        δ = r_t + γ_t v_t - v_{t-1}

    Args:
        v_tm1: Value of the state, shape `[]`.
        r_t: Reward, shape `[]`.
        discount_t: Discount in [-1, 1], 0 where the episode ended, shape `[]`.
        v_t: Value of the next state, shape `[]`.
        stop_target_gradients: Whether to stop the gradient of the target.

    Returns:
        TD error :math:`δ`, shape `[]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> print(rlaxlib.td_learning(v_tm1=1.0, r_t=2.0, discount_t=0.5, v_t=4.0))
        3.0

    References:
        Richard S. Sutton, *Learning to Predict by the Methods of Temporal Differences*,
        1988. https://doi.org/10.1007/BF00115009
    """
    return td_error(v_tm1, r_t, discount_t, v_t, stop_target_gradients)


@checked
def sarsa(
    q_tm1: Float[ArrayLike, "A"],
    a_tm1: Int[ArrayLike, "in [0, A)"],
    r_t: Float[ArrayLike, ""],
    discount_t: Float[ArrayLike, "in [-1, 1]"],
    q_t: Float[ArrayLike, "A"],
    a_t: Int[ArrayLike, "in [0, A)"],
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """Compute the Sarsa TD error.

    Takes one transition, returns one TD error.

    ::

        δ = r_t + γ_t q_t(a_t) - q_{t-1}(a_{t-1})

    Args:
        q_tm1: Action values, shape `[A]`.
        a_tm1: Action taken, in [0, A), shape `[]`.
        r_t: Reward, shape `[]`.
        discount_t: Discount in [-1, 1], 0 where the episode ended, shape `[]`.
        q_t: Action values in the next state, shape `[A]`.
        a_t: Action taken in the next state, in [0, A), shape `[]`.
        stop_target_gradients: Whether to stop the gradient of the target.

    Returns:
        TD error :math:`δ`, shape `[]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong or a concrete action outside [0, A).

    Example:
        >>> q_tm1, q_t = jnp.array([1.0, 2.0]), jnp.array([4.0, 8.0])
        >>> print(rlaxlib.sarsa(q_tm1, 0, 1.0, 0.5, q_t, 0))
        2.0

    References:
        G. A. Rummery and M. Niranjan, *On-Line Q-Learning Using Connectionist Systems*,
        1994. http://mi.eng.cam.ac.uk/reports/svr-ftp/auto-pdf/rummery_tr166.pdf
    """
    q_a_tm1, v_t = pick(q_tm1, a_tm1), pick(q_t, a_t)
    return td_error(q_a_tm1, r_t, discount_t, v_t, stop_target_gradients)


@checked
def expected_sarsa(
    q_tm1: Float[ArrayLike, "A"],
    a_tm1: Int[ArrayLike, "in [0, A)"],
    r_t: Float[ArrayLike, ""],
    discount_t: Float[ArrayLike, "in [-1, 1]"],
    q_t: Float[ArrayLike, "A"],
    probs_a_t: Float[ArrayLike, "A in [0, 1]"],
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """Compute the expected Sarsa TD error.

    Takes one transition, returns one TD error.

    ::

        δ = r_t + γ_t ∑_a π_t(a) q_t(a) - q_{t-1}(a_{t-1})

    The policy :math:`π` may differ from the policy that acted.

    Args:
        probs_a_t: Next action probabilities :math:`π_t`, in [0, 1], shape `[A]`.
        Other arguments: as `sarsa`.

    Returns:
        TD error :math:`δ`, shape `[]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong or a concrete action outside [0, A).

    Example:
        >>> q_tm1, q_t, probs_a_t = jnp.array([[1.0, 2.0], [4.0, 8.0], [0.5, 0.5]])
        >>> print(rlaxlib.expected_sarsa(q_tm1, 0, 1.0, 0.5, q_t, probs_a_t))
        3.0

    References:
        Harm van Seijen and others, *A Theoretical and Empirical Analysis of Expected
        Sarsa*, 2009. https://doi.org/10.1109/ADPRL.2009.4927542
    """
    q_a_tm1, v_t = pick(q_tm1, a_tm1), safe.expectation(probs_a_t, q_t)
    return td_error(q_a_tm1, r_t, discount_t, v_t, stop_target_gradients)


@checked
def q_learning(
    q_tm1: Float[ArrayLike, "A"],
    a_tm1: Int[ArrayLike, "in [0, A)"],
    r_t: Float[ArrayLike, ""],
    discount_t: Float[ArrayLike, "in [-1, 1]"],
    q_t: Float[ArrayLike, "A"],
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """Compute the Q-learning TD error.

    Takes one transition, returns one TD error.

    ::

        δ = r_t + γ_t max_a q_t(a) - q_{t-1}(a_{t-1})

    Args:
        q_tm1: Action values, shape `[A]`.
        a_tm1: Action taken, in [0, A), shape `[]`.
        r_t: Reward, shape `[]`.
        discount_t: Discount in [-1, 1], 0 where the episode ended, shape `[]`.
        q_t: Next action values, minus infinity for illegal actions, shape `[A]`.
        stop_target_gradients: Whether to stop the gradient of the target.

    Returns:
        TD error :math:`δ`, shape `[]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong or a concrete action outside [0, A).

    Example:
        >>> q_tm1, q_t = jnp.array([1.0, 2.0]), jnp.array([4.0, 8.0])
        >>> print(rlaxlib.q_learning(q_tm1, 0, 1.0, 0.5, q_t))
        4.0

    References:
        Christopher J. C. H. Watkins and Peter Dayan, *Q-Learning*, 1992.
        https://doi.org/10.1007/BF00992698
    """
    q_a_tm1, v_t = pick(q_tm1, a_tm1), jnp.max(q_t)
    return td_error(q_a_tm1, r_t, discount_t, v_t, stop_target_gradients)


@checked
def double_q_learning(
    q_tm1: Float[ArrayLike, "A"],
    a_tm1: Int[ArrayLike, "in [0, A)"],
    r_t: Float[ArrayLike, ""],
    discount_t: Float[ArrayLike, "in [-1, 1]"],
    q_t_value: Float[ArrayLike, "A"],
    q_t_selector: Float[ArrayLike, "A"],
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """Compute the double Q-learning TD error (double DQN).

    Takes one transition, returns one TD error.

    ::

        δ = r_t + γ_t q_t(argmax_a q_t^sel(a)) - q_{t-1}(a_{t-1})

    The online network selects the action, which reduces the overestimation bias.

    Args:
        q_t_value: Next action values :math:`q_t` of the target network, shape `[A]`.
        q_t_selector: Next action values :math:`q_t^sel` to select by, shape `[A]`.
        Other arguments: as `q_learning`.

    Returns:
        TD error :math:`δ`, shape `[]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong or a concrete action outside [0, A).

    Example:
        >>> q_tm1, q_t, q_t_selector = jnp.array([[1.0, 2.0], [4.0, 8.0], [1.0, 0.0]])
        >>> print(rlaxlib.double_q_learning(q_tm1, 0, 1.0, 0.5, q_t, q_t_selector))
        2.0

    References:
        Hado van Hasselt, Arthur Guez and David Silver, *Deep Reinforcement Learning
        with Double Q-Learning*, 2016. https://arxiv.org/abs/1509.06461
    """
    q_a_tm1, v_t = pick(q_tm1, a_tm1), pick(q_t_value, jnp.argmax(q_t_selector))
    return td_error(q_a_tm1, r_t, discount_t, v_t, stop_target_gradients)


@checked
def qv_learning(
    q_tm1: Float[ArrayLike, "A"],
    a_tm1: Int[ArrayLike, "in [0, A)"],
    r_t: Float[ArrayLike, ""],
    discount_t: Float[ArrayLike, "in [-1, 1]"],
    v_t: Float[ArrayLike, ""],
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """Compute the QV-learning TD error of an action value.

    Takes one transition, returns one TD error.

    ::

        δ = r_t + γ_t v_t - q_{t-1}(a_{t-1})

    `td_learning` learns the state values at the same time.

    Args:
        q_tm1: Action values, shape `[A]`.
        a_tm1: Action taken, in [0, A), shape `[]`.
        r_t: Reward, shape `[]`.
        discount_t: Discount in [-1, 1], 0 where the episode ended, shape `[]`.
        v_t: Value of the next state, shape `[]`.
        stop_target_gradients: Whether to stop the gradient of the target.

    Returns:
        TD error :math:`δ`, shape `[]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong or a concrete action outside [0, A).

    Example:
        >>> print(rlaxlib.qv_learning(jnp.array([1.0, 2.0]), 0, 1.0, 0.5, 4.0))
        2.0

    References:
        Marco A. Wiering and Hado van Hasselt, *Two Novel On-Policy Reinforcement
        Learning Algorithms Based on TD(λ)-Methods*, 2007.
        https://doi.org/10.1109/ADPRL.2007.368200
    """
    q_a_tm1 = pick(q_tm1, a_tm1)
    return td_error(q_a_tm1, r_t, discount_t, v_t, stop_target_gradients)


@checked
def qv_max(
    v_tm1: Float[ArrayLike, ""],
    r_t: Float[ArrayLike, ""],
    discount_t: Float[ArrayLike, "in [-1, 1]"],
    q_t: Float[ArrayLike, "A"],
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """Compute the QVMAX TD error of a state value.

    Takes one transition, returns one TD error.

    ::

        δ = r_t + γ_t max_a q_t(a) - v_{t-1}

    `qv_learning` learns the action values at the same time.

    Args:
        v_tm1: Value of the state, shape `[]`.
        r_t: Reward, shape `[]`.
        discount_t: Discount in [-1, 1], 0 where the episode ended, shape `[]`.
        q_t: Action values in the next state, shape `[A]`.
        stop_target_gradients: Whether to stop the gradient of the target.

    Returns:
        TD error :math:`δ`, shape `[]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> print(rlaxlib.qv_max(1.0, 1.0, 0.5, jnp.array([4.0, 8.0])))
        4.0

    References:
        Marco A. Wiering and Hado van Hasselt, *The QV Family Compared to Other
        Reinforcement Learning Algorithms*, 2009.
        https://doi.org/10.1109/ADPRL.2009.4927532
    """
    v_t = jnp.max(q_t)
    return td_error(v_tm1, r_t, discount_t, v_t, stop_target_gradients)
