"""Predict the quantiles of returns, and not only their mean.

The quantiles :math:`x_1, …, x_N` of an action's return stand for its distribution:
below :math:`x_i` lies a share of :math:`τ_i`. QR-DQN learns those of the midpoints
:math:`τ_i = (2 i - 1)/(2 N)`, which as samples of equal weight come closest to it; IQN
those of random :math:`τ_i`.

All functions here return a loss to be minimised, the sum over the predicted quantiles
of the mean over the target's samples.

Functions here take one transition. Use `jax.vmap` for a batch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib._core import checks, dtypes, gradients, indexing
from rlaxlib.values import _regression

__all__ = [
    "quantile_expected_sarsa",
    "quantile_q_learning",
    "quantile_regression_loss",
]


def quantile_regression_loss(
    dist_src: ArrayLike,
    tau_src: ArrayLike,
    dist_target: ArrayLike,
    huber_param: ArrayLike = 0.0,
    stop_target_gradients: bool = True,
    *,
    normalize_huber: bool = False,
) -> Array:
    """Pull predictions towards the quantiles of samples (quantile regression).

    .. math::

        L = ∑_i (1/K) ∑_j |τ_i - 1[y_j < x_i]| ρ_κ(y_j - x_i),
        ρ_0(u) = |u|,
        ρ_κ(u) = { ½ u²            if |u| ≤ κ
                 { κ (|u| - ½ κ)   otherwise

    With :math:`κ = 0` this is the plain quantile loss, and what does best are the
    quantiles. With :math:`κ > 0`, 1 in QR-DQN, errors smaller than that count by their
    squares: the gradient is smooth, and what does best lies between quantiles and
    expectiles.

    Papers and libraries do not agree on whether to divide :math:`ρ_κ` by :math:`κ`.
    Equation 10 of QR-DQN does not, and neither does this function as it stands: so the
    loss vanishes as :math:`κ` does, and is not the plain one in the limit. Equation 3
    of IQN does, as does `normalize_huber` here: then errors larger than :math:`κ` pull
    as hard as in the plain loss, which is the limit. With :math:`κ = 1` they are the
    same.

    Args:
        dist_src: Predictions :math:`x`, shape `[N]`.
        tau_src: Which quantile each is to be, :math:`τ`, each in [0, 1], shape `[N]`.
        dist_target: Samples :math:`y`, such as the quantiles of another distribution,
            shape `[K]`.
        huber_param: Size :math:`κ` of the error where the square ends, at least 0,
            shape `[]`; 0 for no square.
        stop_target_gradients: Whether to hold the samples constant under
            differentiation.
        normalize_huber: Whether to divide the loss by a :math:`κ` that is not 0.

    Returns:
        Loss, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if one of `tau_src`
            lies outside [0, 1], if `huber_param` is negative, or if `normalize_huber`
            is traced.

    Example:
        >>> dist_src, tau_src = jnp.array([0.0, 3.0]), jnp.array([0.25, 0.75])
        >>> dist_target = jnp.array([2.0, 4.0])
        >>> print(rlaxlib.quantile_regression_loss(dist_src, tau_src, dist_target))
        1.25

    References:
        Roger Koenker and Gilbert Bassett, *Regression Quantiles*, 1978.
        https://doi.org/10.2307/1913643

        Will Dabney, Mark Rowland, Marc G. Bellemare and Rémi Munos, *Distributional
        Reinforcement Learning with Quantile Regression*, 2017.
        https://arxiv.org/abs/1710.10044

        Will Dabney, Georg Ostrovski, David Silver and Rémi Munos, *Implicit Quantile
        Networks for Distributional Reinforcement Learning*, 2018.
        https://arxiv.org/abs/1806.06923
    """
    dist_src, tau_src, dist_target, huber_param = checks.arrays(
        dist_src=(dist_src, "float[N]"),
        tau_src=(tau_src, "float[N]"),
        dist_target=(dist_target, "float[K]"),
        huber_param=(huber_param, "float[]"),
    )
    checks.within("[0, 1]", tau_src=tau_src)
    checks.within("[0, inf)", huber_param=huber_param)
    checks.static(normalize_huber=normalize_huber)
    (dist_src, tau_src, dist_target, huber_param), narrow = dtypes.widen(
        dist_src, tau_src, dist_target, huber_param
    )
    dist_target = gradients.stop_if(stop_target_gradients, dist_target)
    loss = _loss(normalize_huber)
    return narrow(loss(huber_param, dist_src, tau_src, dist_target))


def quantile_q_learning(
    dist_q_tm1: ArrayLike,
    tau_q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    dist_q_t_selector: ArrayLike,
    dist_q_t: ArrayLike,
    huber_param: ArrayLike = 0.0,
    stop_target_gradients: bool = True,
    *,
    normalize_huber: bool = False,
) -> Array:
    """Hold an action's quantiles against the best next action's (QR-DQN, IQN).

    .. math::

        L = ∑_i (1/K) ∑_j |τ_i - 1[y_j < x_i(a_{t-1})]| ρ_κ(y_j - x_i(a_{t-1})),
        y_j = r_t + γ_t x'_j(a^*),   a^* = argmax_a (1/M) ∑_m s_m(a),

    with :math:`ρ_κ` as in `quantile_regression_loss`. The best action is that of the
    largest mean. To give the online network's quantiles to choose by makes this double
    Q-learning; IQN chooses by samples of its own.

    Args:
        dist_q_tm1: Quantiles :math:`x` of each action's return, shape `[N, A]`.
        tau_q_tm1: Which quantiles they are, :math:`τ`, each in [0, 1], shape `[N]`.
        a_tm1: Action taken, in [0, A), shape `[]`.
        r_t: Reward, shape `[]`.
        discount_t: Discount in [0, 1], 0 where the episode ended, shape `[]`.
        dist_q_t_selector: Samples :math:`s` of each action's return in the next state,
            to choose the action by, shape `[M, A]`.
        dist_q_t: Samples :math:`x'` of each action's return in the next state, such as
            the quantiles of a target network, shape `[K, A]`.
        huber_param: Size :math:`κ` of the error where the square ends, at least 0,
            shape `[]`; 0 for no square.
        stop_target_gradients: Whether to hold the target constant under
            differentiation.
        normalize_huber: Whether to divide the loss by a :math:`κ` that is not 0.

    Returns:
        Loss, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if one of
            `tau_q_tm1` lies outside [0, 1], if `huber_param` is negative, if an action
            whose value is known is none of the A, or if `normalize_huber` is traced.

    Example:
        >>> dist_q_tm1, tau_q_tm1 = jnp.array([[0.0, 9.0]]), jnp.array([0.25])
        >>> dist_q_t = jnp.array([[8.0, 1.0], [4.0, 1.0]])
        >>> learn = rlaxlib.quantile_q_learning
        >>> print(learn(dist_q_tm1, tau_q_tm1, 0, 1.0, 0.5, dist_q_t, dist_q_t))
        1.0

    References:
        Will Dabney, Mark Rowland, Marc G. Bellemare and Rémi Munos, *Distributional
        Reinforcement Learning with Quantile Regression*, 2017.
        https://arxiv.org/abs/1710.10044

        Will Dabney, Georg Ostrovski, David Silver and Rémi Munos, *Implicit Quantile
        Networks for Distributional Reinforcement Learning*, 2018.
        https://arxiv.org/abs/1806.06923
    """
    *inputs, a_tm1 = checks.arrays(
        dist_q_tm1=(dist_q_tm1, "float[N, A]"),
        tau_q_tm1=(tau_q_tm1, "float[N]"),
        r_t=(r_t, "float[]"),
        discount_t=(discount_t, "float[]"),
        dist_q_t_selector=(dist_q_t_selector, "float[M, A]"),
        dist_q_t=(dist_q_t, "float[K, A]"),
        huber_param=(huber_param, "float[]"),
        a_tm1=(a_tm1, "int[]"),
    )
    inputs, narrow = dtypes.widen(*inputs)
    dist_q_tm1, tau_q_tm1, r_t, discount_t, selector, dist_q_t, huber_param = inputs
    checks.within("[0, 1]", tau_q_tm1=tau_q_tm1)
    checks.within("[0, inf)", huber_param=huber_param)
    checks.static(normalize_huber=normalize_huber)
    checks.indices(a_tm1=(a_tm1, dist_q_tm1.shape[-1]))
    a_t = jnp.argmax(jnp.mean(selector, axis=0))
    target = r_t + discount_t * indexing.pick_slice(dist_q_t, a_t, axis=1)
    target = gradients.stop_if(stop_target_gradients, target)
    taken = indexing.pick_slice(dist_q_tm1, a_tm1, axis=1)
    loss = _loss(normalize_huber)
    return narrow(loss(huber_param, taken, tau_q_tm1, target))


def quantile_expected_sarsa(
    dist_q_tm1: ArrayLike,
    tau_q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    dist_q_t: ArrayLike,
    probs_a_t: ArrayLike,
    huber_param: ArrayLike = 0.0,
    stop_target_gradients: bool = True,
    *,
    normalize_huber: bool = False,
) -> Array:
    """Hold an action's quantiles against those of all next actions of a policy.

    .. math::

        L = ∑_a π_t(a) ∑_i (1/K) ∑_j |τ_i - 1[y_{j,a} < x_i(a_{t-1})]|
            ρ_κ(y_{j,a} - x_i(a_{t-1})),
        y_{j,a} = r_t + γ_t x'_j(a),

    with :math:`ρ_κ` as in `quantile_regression_loss`. The target is the mixture of all
    actions' returns, each as likely as the policy makes it.

    Args:
        dist_q_tm1: Quantiles :math:`x` of each action's return, shape `[N, A]`.
        tau_q_tm1: Which quantiles they are, :math:`τ`, each in [0, 1], shape `[N]`.
        a_tm1: Action taken, in [0, A), shape `[]`.
        r_t: Reward, shape `[]`.
        discount_t: Discount in [0, 1], 0 where the episode ended, shape `[]`.
        dist_q_t: Samples :math:`x'` of each action's return in the next state, such as
            the quantiles of a target network, shape `[K, A]`.
        probs_a_t: Probabilities :math:`π_t` of all actions there, shape `[A]`.
        huber_param: Size :math:`κ` of the error where the square ends, at least 0,
            shape `[]`; 0 for no square.
        stop_target_gradients: Whether to hold the target, the probabilities included,
            constant under differentiation.
        normalize_huber: Whether to divide the loss by a :math:`κ` that is not 0.

    Returns:
        Loss, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if one of
            `tau_q_tm1` lies outside [0, 1], if `huber_param` is negative, if an action
            whose value is known is none of the A, or if `normalize_huber` is traced.

    Example:
        >>> dist_q_tm1, tau_q_tm1 = jnp.array([[0.0, 9.0]]), jnp.array([0.25])
        >>> dist_q_t, probs_a_t = jnp.array([[6.0, 2.0]]), jnp.array([0.5, 0.5])
        >>> sarsa = rlaxlib.quantile_expected_sarsa
        >>> print(sarsa(dist_q_tm1, tau_q_tm1, 0, 1.0, 0.5, dist_q_t, probs_a_t))
        0.75

    References:
        Will Dabney, Mark Rowland, Marc G. Bellemare and Rémi Munos, *Distributional
        Reinforcement Learning with Quantile Regression*, 2017.
        https://arxiv.org/abs/1710.10044

        Harm van Seijen, Hado van Hasselt, Shimon Whiteson and Marco Wiering, *A
        Theoretical and Empirical Analysis of Expected Sarsa*, 2009.
        https://doi.org/10.1109/ADPRL.2009.4927542
    """
    *inputs, a_tm1 = checks.arrays(
        dist_q_tm1=(dist_q_tm1, "float[N, A]"),
        tau_q_tm1=(tau_q_tm1, "float[N]"),
        r_t=(r_t, "float[]"),
        discount_t=(discount_t, "float[]"),
        dist_q_t=(dist_q_t, "float[K, A]"),
        probs_a_t=(probs_a_t, "float[A]"),
        huber_param=(huber_param, "float[]"),
        a_tm1=(a_tm1, "int[]"),
    )
    inputs, narrow = dtypes.widen(*inputs)
    dist_q_tm1, tau_q_tm1, r_t, discount_t, dist_q_t, probs_a_t, huber_param = inputs
    checks.within("[0, 1]", tau_q_tm1=tau_q_tm1)
    checks.within("[0, inf)", huber_param=huber_param)
    checks.static(normalize_huber=normalize_huber)
    checks.indices(a_tm1=(a_tm1, probs_a_t.size))
    target = gradients.stop_if(stop_target_gradients, r_t + discount_t * dist_q_t)
    probs_a_t = gradients.stop_if(stop_target_gradients, probs_a_t)
    taken = indexing.pick_slice(dist_q_tm1, a_tm1, axis=1)
    of_each_action = jax.vmap(_loss(normalize_huber), in_axes=(None, None, None, 1))
    losses = of_each_action(huber_param, taken, tau_q_tm1, target)
    return narrow(jnp.sum(probs_a_t * losses))


def _loss(normalize_huber: bool) -> Callable[..., Array]:
    """Return the loss whose penalty is divided by its parameter, or not."""
    penalty = _normalized_huber if normalize_huber else _huber
    return functools.partial(_regression.asymmetric_loss, penalty)


def _huber(error: Array, huber_param: Array) -> Array:
    """Penalise an error; by its size if there is no parameter."""
    size, clipped = _sizes(error, huber_param)
    penalty = 0.5 * clipped * clipped + huber_param * (size - clipped)
    return jnp.where(huber_param > 0, penalty, size)


def _normalized_huber(error: Array, huber_param: Array) -> Array:
    """Penalise an error, a large one by its size, but for a constant."""
    size, clipped = _sizes(error, huber_param)
    # At most 1, however small the parameter.
    share = clipped / jnp.where(huber_param > 0, huber_param, 1)
    return 0.5 * share * clipped + (size - clipped)


def _sizes(error: Array, huber_param: Array) -> tuple[Array, Array]:
    """Return the size of an error, and as much of it as counts by its square."""
    # Not `jnp.abs`, whose derivative at 0 is 1: there is nothing to correct.
    size = error * jnp.sign(error)
    return size, jnp.minimum(size, huber_param)
