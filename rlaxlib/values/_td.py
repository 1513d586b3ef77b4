"""Compare a value with what one step later says it should have been.

All functions here return an error, the target less the prediction, and leave it to the
agent what to make of it: half its square, a Huber loss, a priority in a replay buffer.

The clock: `*_tm1` is what was known when the action was chosen, `*_t` what came back. A
discount of 0 says that the episode ended there, and what would have followed, whatever
it is, has no worth.

Functions here take one transition. Use `jax.vmap` for a batch.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib import arrays
from rlaxlib._core import checks, dtypes, gradients

__all__ = [
    "differential_td_learning",
    "double_q_learning",
    "expected_sarsa",
    "persistent_q_learning",
    "q_learning",
    "qv_learning",
    "qv_max",
    "sarsa",
    "td_learning",
]


def td_learning(
    v_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    v_t: ArrayLike,
    stop_target_gradients: bool = True,
) -> Array:
    """Compare the value of a state with that of the next (TD(0)).

    .. math::

        δ = r_t + γ_t v_t - v_{t-1}

    Args:
        v_tm1: Value of the state, shape `[]`.
        r_t: Reward, shape `[]`.
        discount_t: Discount in [0, 1], 0 where the episode ended, shape `[]`.
        v_t: Value of the next state, shape `[]`.
        stop_target_gradients: Whether to hold the target constant under
            differentiation.

    Returns:
        Error :math:`δ`, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype.

    Example:
        >>> print(rlaxlib.td_learning(v_tm1=1.0, r_t=2.0, discount_t=0.5, v_t=4.0))
        3.0

    References:
        Richard S. Sutton, *Learning to Predict by the Methods of Temporal
        Differences*, Machine Learning 3, 1988. https://doi.org/10.1007/BF00115009
    """
    v_tm1, r_t, discount_t, v_t = checks.arrays(
        v_tm1=(v_tm1, "float[]"),
        r_t=(r_t, "float[]"),
        discount_t=(discount_t, "float[]"),
        v_t=(v_t, "float[]"),
    )
    return _error(v_tm1, r_t, discount_t, v_t, stop_target_gradients)


def differential_td_learning(
    v_tm1: ArrayLike,
    r_t: ArrayLike,
    v_t: ArrayLike,
    reward_rate: ArrayLike,
    stop_target_gradients: bool = True,
) -> Array:
    """Compare the value of a state with that of the next, where no end comes.

    .. math::

        δ = r_t - r̄ + v_t - v_{t-1}

    For tasks that go on for ever and are judged by their average reward, with no
    discount. The values are differential ones: how much more than the average follows a
    state, known up to a constant. The same error learns the rate of reward, by steps

    .. math::

        r̄ ← r̄ + η α δ,

    with :math:`α` the step size of the values, and :math:`η` that of the rate relative
    to it. Off-policy, too, with both steps times the importance ratio; to move the rate
    towards the rewards instead, by :math:`r_t - r̄`, is right on-policy only.

    Args:
        v_tm1: Differential value of the state, shape `[]`.
        r_t: Reward, shape `[]`.
        v_t: Differential value of the next state, shape `[]`.
        reward_rate: Average reward of a step :math:`r̄`, as estimated so far,
            shape `[]`.
        stop_target_gradients: Whether to hold the target, the rate included, constant
            under differentiation.

    Returns:
        Error :math:`δ`, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype.

    Example:
        >>> learn = rlaxlib.differential_td_learning
        >>> print(learn(v_tm1=1.0, r_t=2.0, v_t=4.0, reward_rate=0.5))
        4.5

    References:
        Yi Wan, Abhishek Naik and Richard S. Sutton, *Learning and Planning in
        Average-Reward Markov Decision Processes*, 2021.
        https://arxiv.org/abs/2006.16318
    """
    v_tm1, r_t, v_t, reward_rate = checks.arrays(
        v_tm1=(v_tm1, "float[]"),
        r_t=(r_t, "float[]"),
        v_t=(v_t, "float[]"),
        reward_rate=(reward_rate, "float[]"),
    )
    (v_tm1, r_t, v_t, reward_rate), narrow = dtypes.widen(v_tm1, r_t, v_t, reward_rate)
    one = jnp.ones_like(v_t)
    return narrow(_error(v_tm1, r_t - reward_rate, one, v_t, stop_target_gradients))


def sarsa(
    q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t: ArrayLike,
    a_t: ArrayLike,
    stop_target_gradients: bool = True,
) -> Array:
    """Compare the value of an action with that of the next one taken (Sarsa).

    .. math::

        δ = r_t + γ_t q_t(a_t) - q_{t-1}(a_{t-1})

    Args:
        q_tm1: Action values, shape `[A]`.
        a_tm1: Action taken, in [0, A), shape `[]`.
        r_t: Reward, shape `[]`.
        discount_t: Discount in [0, 1], 0 where the episode ended, shape `[]`.
        q_t: Action values in the next state, shape `[A]`.
        a_t: Action taken there, in [0, A), shape `[]`.
        stop_target_gradients: Whether to hold the target constant under
            differentiation.

    Returns:
        Error :math:`δ`, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if an action
            whose value is known is none of the A.

    Example:
        >>> q_tm1, q_t = jnp.array([1.0, 2.0]), jnp.array([4.0, 8.0])
        >>> print(rlaxlib.sarsa(q_tm1, 0, 1.0, 0.5, q_t, 0))
        2.0

    References:
        G. A. Rummery and M. Niranjan, *On-Line Q-Learning Using Connectionist Systems*,
        1994. http://mi.eng.cam.ac.uk/reports/svr-ftp/auto-pdf/rummery_tr166.pdf

        Richard S. Sutton and Andrew G. Barto, *Reinforcement Learning: An
        Introduction*, second edition, section 6.4, 2018.
        http://incompleteideas.net/book/the-book-2nd.html
    """
    q_tm1, a_tm1, r_t, discount_t, q_t, a_t = checks.arrays(
        q_tm1=(q_tm1, "float[A]"),
        a_tm1=(a_tm1, "int[]"),
        r_t=(r_t, "float[]"),
        discount_t=(discount_t, "float[]"),
        q_t=(q_t, "float[A]"),
        a_t=(a_t, "int[]"),
    )
    checks.indices(a_tm1=(a_tm1, q_tm1.size), a_t=(a_t, q_t.size))
    q_a_tm1, q_a_t = arrays.batched_index(q_tm1, a_tm1), arrays.batched_index(q_t, a_t)
    return _error(q_a_tm1, r_t, discount_t, q_a_t, stop_target_gradients)


def expected_sarsa(
    q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t: ArrayLike,
    probs_a_t: ArrayLike,
    stop_target_gradients: bool = True,
) -> Array:
    """Compare the value of an action with those expected next (expected Sarsa).

    .. math::

        δ = r_t + γ_t ∑_a π_t(a) q_t(a) - q_{t-1}(a_{t-1})

    The average over the next actions has less variance than the one action that Sarsa
    looks at, and lets the policy to be valued be another than the one that acted.

    Args:
        q_tm1: Action values, shape `[A]`.
        a_tm1: Action taken, in [0, A), shape `[]`.
        r_t: Reward, shape `[]`.
        discount_t: Discount in [0, 1], 0 where the episode ended, shape `[]`.
        q_t: Action values in the next state, shape `[A]`.
        probs_a_t: Probability of each action there, shape `[A]`.
        stop_target_gradients: Whether to hold the target constant under
            differentiation.

    Returns:
        Error :math:`δ`, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if an action
            whose value is known is none of the A.

    Example:
        >>> q_tm1, q_t = jnp.array([1.0, 2.0]), jnp.array([4.0, 8.0])
        >>> probs_a_t = jnp.array([0.5, 0.5])
        >>> print(rlaxlib.expected_sarsa(q_tm1, 0, 1.0, 0.5, q_t, probs_a_t))
        3.0

    References:
        Harm van Seijen, Hado van Hasselt, Shimon Whiteson and Marco Wiering, *A
        Theoretical and Empirical Analysis of Expected Sarsa*, 2009.
        https://doi.org/10.1109/ADPRL.2009.4927542
    """
    q_tm1, a_tm1, r_t, discount_t, q_t, probs_a_t = checks.arrays(
        q_tm1=(q_tm1, "float[A]"),
        a_tm1=(a_tm1, "int[]"),
        r_t=(r_t, "float[]"),
        discount_t=(discount_t, "float[]"),
        q_t=(q_t, "float[A]"),
        probs_a_t=(probs_a_t, "float[A]"),
    )
    checks.indices(a_tm1=(a_tm1, q_tm1.size))
    (q_tm1, r_t, discount_t, q_t, probs_a_t), narrow = dtypes.widen(
        q_tm1, r_t, discount_t, q_t, probs_a_t
    )
    q_a_tm1, v_t = arrays.batched_index(q_tm1, a_tm1), jnp.sum(probs_a_t * q_t)
    return narrow(_error(q_a_tm1, r_t, discount_t, v_t, stop_target_gradients))


def q_learning(
    q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t: ArrayLike,
    stop_target_gradients: bool = True,
) -> Array:
    """Compare the value of an action with the best of the next ones (Q-learning).

    .. math::

        δ = r_t + γ_t max_a q_t(a) - q_{t-1}(a_{t-1})

    Where not every action is legal, give those that are not a value of minus infinity
    in `q_t`.

    Args:
        q_tm1: Action values, shape `[A]`.
        a_tm1: Action taken, in [0, A), shape `[]`.
        r_t: Reward, shape `[]`.
        discount_t: Discount in [0, 1], 0 where the episode ended, shape `[]`.
        q_t: Action values in the next state, of the target network if there is one,
            shape `[A]`.
        stop_target_gradients: Whether to hold the target constant under
            differentiation.

    Returns:
        Error :math:`δ`, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if an action
            whose value is known is none of the A.

    Example:
        >>> q_tm1, q_t = jnp.array([1.0, 2.0]), jnp.array([4.0, 8.0])
        >>> print(rlaxlib.q_learning(q_tm1, 0, 1.0, 0.5, q_t))
        4.0

    References:
        Christopher J. C. H. Watkins and Peter Dayan, *Q-Learning*, 1992.
        https://doi.org/10.1007/BF00992698
    """
    q_tm1, a_tm1, r_t, discount_t, q_t = checks.arrays(
        q_tm1=(q_tm1, "float[A]"),
        a_tm1=(a_tm1, "int[]"),
        r_t=(r_t, "float[]"),
        discount_t=(discount_t, "float[]"),
        q_t=(q_t, "float[A]"),
    )
    checks.indices(a_tm1=(a_tm1, q_tm1.size))
    q_a_tm1, v_t = arrays.batched_index(q_tm1, a_tm1), jnp.max(q_t)
    return _error(q_a_tm1, r_t, discount_t, v_t, stop_target_gradients)


def double_q_learning(
    q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t_value: ArrayLike,
    q_t_selector: ArrayLike,
    stop_target_gradients: bool = True,
) -> Array:
    """Let one network choose the next action and another value it (double Q-learning).

    .. math::

        δ = r_t + γ_t q_t(argmax_a q_t^sel(a)) - q_{t-1}(a_{t-1})

    The best of noisy values is too large on average; a value that took no part in the
    choice is not. In double DQN the target network values, the online network selects.

    Args:
        q_tm1: Action values, shape `[A]`.
        a_tm1: Action taken, in [0, A), shape `[]`.
        r_t: Reward, shape `[]`.
        discount_t: Discount in [0, 1], 0 where the episode ended, shape `[]`.
        q_t_value: Action values in the next state that the target takes, shape `[A]`.
        q_t_selector: Action values in the next state that choose the action; of equal
            ones the first, shape `[A]`.
        stop_target_gradients: Whether to hold the target constant under
            differentiation.

    Returns:
        Error :math:`δ`, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if an action
            whose value is known is none of the A.

    Example:
        >>> q_tm1, q_t = jnp.array([1.0, 2.0]), jnp.array([4.0, 8.0])
        >>> q_t_selector = jnp.array([1.0, 0.0])
        >>> print(rlaxlib.double_q_learning(q_tm1, 0, 1.0, 0.5, q_t, q_t_selector))
        2.0

    References:
        Hado van Hasselt, *Double Q-Learning*, 2010.
        https://papers.nips.cc/paper/3964-double-q-learning

        Hado van Hasselt, Arthur Guez and David Silver, *Deep Reinforcement Learning
        with Double Q-Learning*, 2016. https://arxiv.org/abs/1509.06461
    """
    q_tm1, a_tm1, r_t, discount_t, q_t_value, q_t_selector = checks.arrays(
        q_tm1=(q_tm1, "float[A]"),
        a_tm1=(a_tm1, "int[]"),
        r_t=(r_t, "float[]"),
        discount_t=(discount_t, "float[]"),
        q_t_value=(q_t_value, "float[A]"),
        q_t_selector=(q_t_selector, "float[A]"),
    )
    checks.indices(a_tm1=(a_tm1, q_tm1.size))
    q_a_tm1 = arrays.batched_index(q_tm1, a_tm1)
    v_t = arrays.batched_index(q_t_value, jnp.argmax(q_t_selector))
    return _error(q_a_tm1, r_t, discount_t, v_t, stop_target_gradients)


def persistent_q_learning(
    q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t: ArrayLike,
    action_gap_scale: ArrayLike,
    stop_target_gradients: bool = True,
) -> Array:
    """Favour repeating the action, to widen the gap between good and bad ones.

    .. math::

        δ = r_t + γ_t [(1 - α) max_a q_t(a) + α q_t(a_{t-1})] - q_{t-1}(a_{t-1})

    This is the persistent branch alone of the paper's persistent advantage learning,
    whose operator takes the larger of this and the one of advantage learning.

    Args:
        q_tm1: Action values, shape `[A]`.
        a_tm1: Action taken, in [0, A), shape `[]`.
        r_t: Reward, shape `[]`.
        discount_t: Discount in [0, 1], 0 where the episode ended, shape `[]`.
        q_t: Action values in the next state, shape `[A]`.
        action_gap_scale: Weight :math:`α` of persisting in [0, 1]; 0 is Q-learning,
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
        >>> print(rlaxlib.persistent_q_learning(q_tm1, 0, 1.0, 0.5, q_t, 0.5))
        3.0

    References:
        Marc G. Bellemare, Georg Ostrovski, Arthur Guez, Philip S. Thomas and Rémi
        Munos, *Increasing the Action Gap: New Operators for Reinforcement Learning*,
        2016. https://arxiv.org/abs/1512.04860
    """
    q_tm1, a_tm1, r_t, discount_t, q_t, action_gap_scale = checks.arrays(
        q_tm1=(q_tm1, "float[A]"),
        a_tm1=(a_tm1, "int[]"),
        r_t=(r_t, "float[]"),
        discount_t=(discount_t, "float[]"),
        q_t=(q_t, "float[A]"),
        action_gap_scale=(action_gap_scale, "float[]"),
    )
    checks.indices(a_tm1=(a_tm1, q_tm1.size))
    checks.within("[0, 1]", action_gap_scale=action_gap_scale)
    (q_tm1, r_t, discount_t, q_t, scale), narrow = dtypes.widen(
        q_tm1, r_t, discount_t, q_t, action_gap_scale
    )
    q_a_tm1 = arrays.batched_index(q_tm1, a_tm1)
    v_t = (1 - scale) * jnp.max(q_t) + scale * arrays.batched_index(q_t, a_tm1)
    return narrow(_error(q_a_tm1, r_t, discount_t, v_t, stop_target_gradients))


def qv_learning(
    q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    v_t: ArrayLike,
    stop_target_gradients: bool = True,
) -> Array:
    """Compare the value of an action with that of the next state (QV-learning).

    .. math::

        δ = r_t + γ_t v_t - q_{t-1}(a_{t-1})

    The state values are learnt beside the action values, by `td_learning`.

    Args:
        q_tm1: Action values, shape `[A]`.
        a_tm1: Action taken, in [0, A), shape `[]`.
        r_t: Reward, shape `[]`.
        discount_t: Discount in [0, 1], 0 where the episode ended, shape `[]`.
        v_t: Value of the next state, shape `[]`.
        stop_target_gradients: Whether to hold the target constant under
            differentiation.

    Returns:
        Error :math:`δ`, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if an action
            whose value is known is none of the A.

    Example:
        >>> print(rlaxlib.qv_learning(jnp.array([1.0, 2.0]), 0, 1.0, 0.5, 4.0))
        2.0

    References:
        Marco A. Wiering and Hado van Hasselt, *Two Novel On-Policy Reinforcement
        Learning Algorithms Based on TD(λ)-Methods*, 2007.
        https://doi.org/10.1109/ADPRL.2007.368200
    """
    q_tm1, a_tm1, r_t, discount_t, v_t = checks.arrays(
        q_tm1=(q_tm1, "float[A]"),
        a_tm1=(a_tm1, "int[]"),
        r_t=(r_t, "float[]"),
        discount_t=(discount_t, "float[]"),
        v_t=(v_t, "float[]"),
    )
    checks.indices(a_tm1=(a_tm1, q_tm1.size))
    q_a_tm1 = arrays.batched_index(q_tm1, a_tm1)
    return _error(q_a_tm1, r_t, discount_t, v_t, stop_target_gradients)


def qv_max(
    v_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t: ArrayLike,
    stop_target_gradients: bool = True,
) -> Array:
    """Compare the value of a state with the best of the next actions (QVMAX).

    .. math::

        δ = r_t + γ_t max_a q_t(a) - v_{t-1}

    The action values are learnt beside the state values, by `qv_learning`.

    Args:
        v_tm1: Value of the state, shape `[]`.
        r_t: Reward, shape `[]`.
        discount_t: Discount in [0, 1], 0 where the episode ended, shape `[]`.
        q_t: Action values in the next state, shape `[A]`.
        stop_target_gradients: Whether to hold the target constant under
            differentiation.

    Returns:
        Error :math:`δ`, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype.

    Example:
        >>> print(rlaxlib.qv_max(1.0, 1.0, 0.5, jnp.array([4.0, 8.0])))
        4.0

    References:
        Marco A. Wiering and Hado van Hasselt, *The QV Family Compared to Other
        Reinforcement Learning Algorithms*, 2009.
        https://doi.org/10.1109/ADPRL.2009.4927532
    """
    v_tm1, r_t, discount_t, q_t = checks.arrays(
        v_tm1=(v_tm1, "float[]"),
        r_t=(r_t, "float[]"),
        discount_t=(discount_t, "float[]"),
        q_t=(q_t, "float[A]"),
    )
    return _error(v_tm1, r_t, discount_t, jnp.max(q_t), stop_target_gradients)


def _error(
    prediction: Array, r_t: Array, discount_t: Array, v_t: Array, stop: ArrayLike
) -> Array:
    """Return the one-step target less the prediction, rounded once."""
    (prediction, r_t, discount_t, v_t), narrow = dtypes.widen(
        prediction, r_t, discount_t, v_t
    )
    return narrow(gradients.error(discount_t * v_t, prediction, stop, r_t))
