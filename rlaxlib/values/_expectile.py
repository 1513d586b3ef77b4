"""Predict the expectiles of returns, of which the mean is one.

As a quantile does best where errors up and down cost their size, :math:`τ` and
:math:`1 - τ` times, an expectile does where they cost their square. The expectile at
:math:`τ = ½` is the mean, so have it among those predicted: to act, nothing else is
needed.

Expectiles are no samples: those of a distribution are drawn in towards its mean. Taken
for samples again and again, step by step, they lose its width. What has them as its
expectiles is to be found first: `impute_expectile_samples`.

Functions here take one transition. Use `jax.vmap` for a batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from rlaxlib._core import checks, dtypes, gradients, indexing
from rlaxlib.values import _regression

__all__ = [
    "expectile_q_learning",
    "expectile_regression_loss",
    "impute_expectile_samples",
    "imputed_expectile_q_learning",
]

# Means tried at once in search for the right one: as many on either side of the best.
_TRIALS = 16


def expectile_regression_loss(
    dist_src: ArrayLike,
    tau_src: ArrayLike,
    dist_target: ArrayLike,
    stop_target_gradients: bool = True,
) -> Array:
    """Pull predictions towards the expectiles of samples (expectile regression).

    .. math::

        L = ∑_i (1/K) ∑_j |τ_i - 1[y_j < x_i]| (y_j - x_i)²

    What does best are the expectiles :math:`x_i` of the samples at :math:`τ_i`. To have
    those of a return, give samples of it, not other expectiles: see
    `impute_expectile_samples`.

    Args:
        dist_src: Predictions :math:`x`, shape `[N]`.
        tau_src: Which expectile each is to be, :math:`τ`, each in [0, 1], shape `[N]`.
        dist_target: Samples :math:`y`, shape `[K]`.
        stop_target_gradients: Whether to hold the samples constant under
            differentiation.

    Returns:
        Loss, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if one of
            `tau_src` lies outside [0, 1].

    Example:
        >>> dist_src, tau_src = jnp.array([0.0, 3.0]), jnp.array([0.25, 0.75])
        >>> dist_target = jnp.array([2.0, 4.0])
        >>> print(rlaxlib.expectile_regression_loss(dist_src, tau_src, dist_target))
        3.0

    References:
        Whitney K. Newey and James L. Powell, *Asymmetric Least Squares Estimation and
        Testing*, 1987. https://doi.org/10.2307/1911031

        Mark Rowland, Robert Dadashi, Saurabh Kumar, Rémi Munos, Marc G. Bellemare and
        Will Dabney, *Statistics and Samples in Distributional Reinforcement Learning*,
        2019. https://arxiv.org/abs/1902.08102
    """
    dist_src, tau_src, dist_target = checks.arrays(
        dist_src=(dist_src, "float[N]"),
        tau_src=(tau_src, "float[N]"),
        dist_target=(dist_target, "float[K]"),
    )
    checks.within("[0, 1]", tau_src=tau_src)
    (dist_src, tau_src, dist_target), narrow = dtypes.widen(
        dist_src, tau_src, dist_target
    )
    return narrow(_loss(dist_src, tau_src, dist_target, stop_target_gradients))


def expectile_q_learning(
    dist_q_tm1: ArrayLike,
    tau_q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    dist_q_t_selector: ArrayLike,
    dist_q_t: ArrayLike,
    stop_target_gradients: bool = True,
) -> Array:
    """Hold an action's expectiles against the best next action's samples.

    .. math::

        L = ∑_i (1/K) ∑_j |τ_i - 1[y_j < x_i(a_{t-1})]| (y_j - x_i(a_{t-1}))²,
        y_j = r_t + γ_t x'_j(a^*),   a^* = argmax_a (1/M) ∑_m s_m(a).

    Given expectiles in place of samples, it is the naive form of expectile regression,
    whose distributions get narrower with every step back from a reward. To learn with
    expectiles from end to end see `imputed_expectile_q_learning`.

    Args:
        dist_q_tm1: Expectiles :math:`x` of each action's return, shape `[N, A]`.
        tau_q_tm1: Which expectiles they are, :math:`τ`, each in [0, 1], shape `[N]`.
        a_tm1: Action taken, in [0, A), shape `[]`.
        r_t: Reward, shape `[]`.
        discount_t: Discount in [0, 1], 0 where the episode ended, shape `[]`.
        dist_q_t_selector: Samples :math:`s` of each action's return in the next state,
            to choose the action by, shape `[M, A]`.
        dist_q_t: Samples :math:`x'` of each action's return in the next state,
            shape `[K, A]`.
        stop_target_gradients: Whether to hold the target constant under
            differentiation.

    Returns:
        Loss, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if one of
            `tau_q_tm1` lies outside [0, 1], or if an action whose value is known is
            none of the A.

    Example:
        >>> dist_q_tm1, tau_q_tm1 = jnp.array([[0.0, 9.0]]), jnp.array([0.25])
        >>> dist_q_t = jnp.array([[6.0, 1.0], [2.0, 1.0]])
        >>> learn = rlaxlib.expectile_q_learning
        >>> print(learn(dist_q_tm1, tau_q_tm1, 0, 1.0, 0.5, dist_q_t, dist_q_t))
        2.5

    References:
        Mark Rowland, Robert Dadashi, Saurabh Kumar, Rémi Munos, Marc G. Bellemare and
        Will Dabney, *Statistics and Samples in Distributional Reinforcement Learning*,
        2019. https://arxiv.org/abs/1902.08102
    """
    *inputs, a_tm1 = checks.arrays(
        dist_q_tm1=(dist_q_tm1, "float[N, A]"),
        tau_q_tm1=(tau_q_tm1, "float[N]"),
        r_t=(r_t, "float[]"),
        discount_t=(discount_t, "float[]"),
        dist_q_t_selector=(dist_q_t_selector, "float[M, A]"),
        dist_q_t=(dist_q_t, "float[K, A]"),
        a_tm1=(a_tm1, "int[]"),
    )
    inputs, narrow = dtypes.widen(*inputs)
    dist_q_tm1, tau_q_tm1, r_t, discount_t, selector, dist_q_t = inputs
    checks.within("[0, 1]", tau_q_tm1=tau_q_tm1)
    checks.indices(a_tm1=(a_tm1, dist_q_tm1.shape[-1]))
    a_t = jnp.argmax(jnp.mean(selector, axis=0))
    target = r_t + discount_t * indexing.pick_slice(dist_q_t, a_t, axis=1)
    taken = indexing.pick_slice(dist_q_tm1, a_tm1, axis=1)
    return narrow(_loss(taken, tau_q_tm1, target, stop_target_gradients))


def impute_expectile_samples(
    expectiles: ArrayLike, tau: ArrayLike, num_samples: int | None = None
) -> Array:
    """Find samples that have the given expectiles.

    .. math::

        ∑_i |τ_k - 1[z_i < e_k]| (z_i - e_k) = 0   for all k

    is to hold of the samples :math:`z`, of equal weight. With their mean :math:`m` and
    :math:`P(x) = ∑_i (x - z_i)⁺`, their distribution function summed up, that is

    .. math::

        (1 - 2 τ_k) P(e_k) = n τ_k (m - e_k).

    So where the mean is known, :math:`P` is at each expectile. It is convex, and those
    convex functions whose slopes are whole numbers are those of samples: they are the
    steps of its convex conjugate, :math:`z_i = P^*(i) - P^*(i - 1)`. No root has to be
    found but the mean; and not even that if :math:`½` is among the :math:`τ_k`.

    If there are `num_samples` samples with these expectiles, samples are found that
    reproduce them, up to rounding. That there are samples, if not that many, does not
    mean that so few can do: those found miss the expectiles of 11 midpoints of a normal
    distribution by some 1e-3 of its deviation with 11 samples, and not at all with 22.
    Where no distribution has them, as of a network that has yet to learn, the samples
    are finite, ascending, and of the right mean. Expectiles that cross are put in
    order first.

    The time is in :math:`O(N n)` if the mean is known, and some hundred times as much
    if it is not.

    Args:
        expectiles: Expectiles :math:`e`, shape `[N]`.
        tau: Which they are, :math:`τ`, each in [0, 1], in any order, shape `[N]`.
        num_samples: Number :math:`n` of samples, at least 1; or None for `N`.

    Returns:
        Samples :math:`z`, in ascending order, shape `[num_samples]`. They carry no
        gradient.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if one of `tau` lies
            outside [0, 1], or if `num_samples` is not a Python integer of at least 1.

    Example:
        >>> expectiles, tau = jnp.array([1.0, 2.0, 3.0]), jnp.array([0.25, 0.5, 0.75])
        >>> print(rlaxlib.impute_expectile_samples(expectiles, tau))
        [-0.5  2.   4.5]

    References:
        Mark Rowland, Robert Dadashi, Saurabh Kumar, Rémi Munos, Marc G. Bellemare and
        Will Dabney, *Statistics and Samples in Distributional Reinforcement Learning*,
        section 3.3, 2019. https://arxiv.org/abs/1902.08102

        R. Tyrrell Rockafellar, *Convex Analysis*, section 12, 1970.
        https://doi.org/10.1515/9781400873173
    """
    expectiles, tau = checks.arrays(
        expectiles=(expectiles, "float[N]"), tau=(tau, "float[N]")
    )
    checks.within("[0, 1]", tau=tau)
    number = expectiles.size if num_samples is None else num_samples
    checks.static_int(1, num_samples=number)
    (expectiles, tau), narrow = dtypes.widen(expectiles, tau)
    return narrow(_impute_compiled(expectiles, tau, number))


def imputed_expectile_q_learning(
    dist_q_tm1: ArrayLike,
    tau_q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    dist_q_t_selector: ArrayLike,
    dist_q_t: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    num_samples: int | None = None,
) -> Array:
    """Hold an action's expectiles against the best next action's (ER-DQN).

    .. math::

        L = ∑_i (1/n) ∑_j |τ_i - 1[y_j < x_i(a_{t-1})]| (y_j - x_i(a_{t-1}))²,
        y_j = r_t + γ_t z_j,   a^* = argmax_a s_{1/2}(a),

    where the samples :math:`z` are those whose expectiles are :math:`x'(a^*)`: see
    `impute_expectile_samples`, which also says what it costs. The best action is that
    of the largest mean, which is the expectile at :math:`τ = ½`. Have it among those
    predicted: else it is taken between those next to it. To give the online network's
    expectiles to choose by makes this double Q-learning.

    Args:
        dist_q_tm1: Expectiles :math:`x` of each action's return, shape `[N, A]`.
        tau_q_tm1: Which expectiles they are, and those of the next state, :math:`τ`,
            each in [0, 1], shape `[N]`.
        a_tm1: Action taken, in [0, A), shape `[]`.
        r_t: Reward, shape `[]`.
        discount_t: Discount in [0, 1], 0 where the episode ended, shape `[]`.
        dist_q_t_selector: Expectiles :math:`s` of each action's return in the next
            state, to choose the action by, shape `[N, A]`.
        dist_q_t: Expectiles :math:`x'` of each action's return in the next state, such
            as those of a target network, shape `[N, A]`. They get no gradient.
        stop_target_gradients: Whether to hold the target constant under
            differentiation.
        num_samples: Number :math:`n` of samples, at least 1; or None for `N`.

    Returns:
        Loss, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if one of
            `tau_q_tm1` lies outside [0, 1], if an action whose value is known is none
            of the A, or if `num_samples` is not a Python integer of at least 1.

    Example:
        >>> tau_q_tm1 = jnp.array([0.25, 0.5, 0.75])
        >>> dist_q_tm1 = jnp.array([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0]])
        >>> dist_q_t = jnp.array([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]])
        >>> learn = rlaxlib.imputed_expectile_q_learning
        >>> print(learn(dist_q_tm1, tau_q_tm1, 0, 0.0, 1.0, dist_q_t, dist_q_t))
        6.25

    References:
        Mark Rowland, Robert Dadashi, Saurabh Kumar, Rémi Munos, Marc G. Bellemare and
        Will Dabney, *Statistics and Samples in Distributional Reinforcement Learning*,
        2019. https://arxiv.org/abs/1902.08102
    """
    *inputs, a_tm1 = checks.arrays(
        dist_q_tm1=(dist_q_tm1, "float[N, A]"),
        tau_q_tm1=(tau_q_tm1, "float[N]"),
        r_t=(r_t, "float[]"),
        discount_t=(discount_t, "float[]"),
        dist_q_t_selector=(dist_q_t_selector, "float[N, A]"),
        dist_q_t=(dist_q_t, "float[N, A]"),
        a_tm1=(a_tm1, "int[]"),
    )
    inputs, narrow = dtypes.widen(*inputs)
    dist_q_tm1, tau_q_tm1, r_t, discount_t, selector, dist_q_t = inputs
    checks.within("[0, 1]", tau_q_tm1=tau_q_tm1)
    checks.indices(a_tm1=(a_tm1, dist_q_tm1.shape[-1]))
    number = tau_q_tm1.size if num_samples is None else num_samples
    checks.static_int(1, num_samples=number)
    a_t = jnp.argmax(_means(selector, tau_q_tm1))
    expectiles_t = indexing.pick_slice(dist_q_t, a_t, axis=1)
    target = r_t + discount_t * _impute_compiled(expectiles_t, tau_q_tm1, number)
    taken = indexing.pick_slice(dist_q_tm1, a_tm1, axis=1)
    return narrow(_loss(taken, tau_q_tm1, target, stop_target_gradients))


def _loss(dist_src: Array, tau: Array, dist_target: Array, stop: ArrayLike) -> Array:
    dist_target = gradients.stop_if(stop, dist_target)
    nothing = jnp.zeros_like(tau[0])
    return _regression.asymmetric_loss(_square, nothing, dist_src, tau, dist_target)


def _square(error: Array, nothing: Array) -> Array:
    del nothing
    return jnp.square(error)


def _means(dist: Array, tau: Array) -> Array:
    """Return the expectile at 1/2 of each column, between those next to it."""
    order = jnp.argsort(tau)
    between = jax.vmap(jnp.interp, in_axes=(None, None, 1))
    return between(jnp.full_like(tau, 0.5, shape=()), tau[order], dist[order])


def _impute(expectiles: Array, tau: Array, number: int) -> Array:
    """Return samples with these expectiles, or nearly, as constants."""
    tau = jnp.sort(jax.lax.stop_gradient(tau))
    expectiles = jnp.sort(jax.lax.stop_gradient(expectiles))
    # Less one of them, so that what they have in common costs no digits.
    centre = expectiles[expectiles.size // 2]
    expectiles -= centre
    mean = _mean(expectiles, tau, number)
    conjugate = _conjugate(mean, expectiles, tau, number)
    return jnp.diff(conjugate) + centre


# Compiled as one, so that a call outside of jit, too, traces and compiles only once.
_impute_compiled: Callable[..., Array] = jax.jit(_impute, static_argnums=2, inline=True)


def _half(tau: Array) -> Array:
    """Return whether each is 1/2, up to rounding."""
    return jnp.abs(1 - 2 * tau) <= 8 * float(cast(Any, jnp.finfo(tau.dtype).eps))


def _mean(expectiles: Array, tau: Array, number: int) -> Array:
    """Return the mean of the samples: the expectile at 1/2, or the one that fits."""
    half = _half(tau)
    weights = half.astype(tau.dtype)
    known = jnp.sum(weights * expectiles) / jnp.maximum(1, jnp.sum(weights))

    def search() -> Array:
        """Try means, and then others around the best, closer and closer."""

        def closer(_: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
            fraction, step = state
            tried = jnp.clip(fraction + step * offsets, 0.0, 0.999)
            means = _place_mean(tried, expectiles, tau)
            misfits = jax.vmap(_misfit, (0, None, None, None))(
                means, expectiles, tau, number
            )
            return tried[jnp.argmin(misfits)], step * (1.5 / _TRIALS)

        # The nearest first, so that where all are equally good none is moved.
        steps = sorted(range(-_TRIALS, _TRIALS + 1), key=abs)
        offsets = jnp.array(np.array(steps) / _TRIALS, tau.dtype)
        # So that what the loop carries varies over the same devices as what it finds.
        middle = jnp.zeros_like(expectiles[0] + tau[0]) + 0.5
        rounds = 7 if jnp.finfo(tau.dtype).bits <= 32 else 16
        start = middle, middle
        fraction, _ = cast(Any, jax.lax.fori_loop)(0, rounds, closer, start)
        return _place_mean(fraction, expectiles, tau)

    return cast(Array, jax.lax.cond(jnp.any(half), lambda: known, search))


def _place_mean(fraction: Array, expectiles: Array, tau: Array) -> Array:
    """Return the mean that lies so far on the way, between 0 and 1."""
    smallest, largest = expectiles[0], expectiles[-1]
    below, above = tau < 0.5, tau > 0.5
    low = jnp.max(jnp.where(below, expectiles, smallest))
    high = jnp.min(jnp.where(above, expectiles, largest))
    # It lies between the expectiles below 1/2 and those above; with none on one side,
    # at any distance there.
    far = (largest - smallest) * fraction / (1 - fraction)
    beyond = jnp.where(jnp.any(below), low + far, high - far)
    between = low + (high - low) * fraction
    return jnp.where(jnp.any(below) & jnp.any(above), between, beyond)


def _misfit(mean: Array, expectiles: Array, tau: Array, number: int) -> Array:
    """Return by how much samples of this mean miss the expectiles."""
    conjugate = _conjugate(mean, expectiles, tau, number)
    slopes = jnp.arange(number + 1, dtype=tau.dtype)
    values = jnp.max(expectiles[:, None] * slopes[None, :] - conjugate[None, :], axis=1)
    errors = number * tau * (mean - expectiles) - (1 - 2 * tau) * values
    return jnp.sum(jnp.abs(errors))


def _conjugate(mean: Array, expectiles: Array, tau: Array, number: int) -> Array:
    """Return the conjugate :math:`P^*(0), …, P^*(n)`, given the mean.

    All that is known of :math:`P` are its values at the expectiles. Between them it is
    taken to be straight. Beyond them it goes on with a slope that is a whole number,
    the next one, until it meets its asymptotes, 0 and :math:`n (x - m)`.
    """
    half = _half(tau)
    known = ~half | jnp.all(half)
    values = number * tau * (mean - expectiles) / jnp.where(half, 1.0, 1 - 2 * tau)
    first, last = jnp.argmax(known), known.size - 1 - jnp.argmax(known[::-1])
    excess = values - number * (expectiles - mean)
    left = expectiles[first] - _tail(
        expectiles - expectiles[first], values, known, first, number
    )
    right = expectiles[last] + _tail(
        expectiles[last] - expectiles, excess, known, last, number
    )

    slopes = jnp.arange(1, number, dtype=tau.dtype)
    lines = expectiles[:, None] * slopes[None, :] - values[:, None]
    inner = jnp.max(jnp.where(known[:, None], lines, -jnp.inf), axis=0)
    inner = jnp.maximum(inner, slopes * left)
    inner = jnp.maximum(inner, slopes * right - number * (right - mean))
    return jnp.concatenate([jnp.zeros_like(mean)[None], inner, (number * mean)[None]])


def _tail(
    distances: Array, heights: Array, known: Array, index: Array, number: int
) -> Array:
    """Return how far beyond an outermost expectile the samples beyond it lie.

    The more they are, the less far that is. There are as many as the slope leaves room
    for, between this expectile and the others.
    """
    others = known & (distances > 0)
    rises = (heights - heights[index]) / jnp.where(others, distances, 1.0)
    slope = jnp.min(jnp.where(others, rises, jnp.inf))
    slope = jnp.where(jnp.any(others), slope, 0.5 * number)
    count = jnp.clip(jnp.floor(slope), 1, max(1, number - 1))
    return heights[index] / count
