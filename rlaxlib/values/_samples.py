"""Make of samples of returns, or quantiles, what agents learn from and act by.

Functions here take the samples of one action. Use `jax.vmap` for a batch.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib._core import checks, dtypes, gradients
from rlaxlib.values._quantile import quantile_regression_loss

__all__ = [
    "conditional_value_at_risk",
    "energy_distance_loss",
    "truncated_quantile_targets",
]


def conditional_value_at_risk(quantiles: ArrayLike, level: ArrayLike) -> Array:
    """Average the worst share of a distribution of returns (CVaR).

    .. math::

        C = (1/η) ∫_0^η F⁻¹(τ) dτ,

    where :math:`F⁻¹` steps through the quantiles, each standing for a share of
    :math:`1/N`. The last one within :math:`η` counts as far as it reaches in, so that
    this is continuous in :math:`η`: 1 gives the mean, and up to :math:`1/N` it gives
    the least. It is about the low tail, since returns are to be large; for a
    distribution of costs, negate it.

    Args:
        quantiles: Quantiles at the midpoints of equal shares, or samples of equal
            weight, in any order, shape `[N]`.
        level: Share :math:`η` in (0, 1], shape `[]`.

    Returns:
        Conditional value at risk :math:`C`, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if `level` lies
            outside (0, 1].

    Example:
        >>> quantiles = jnp.array([8.0, 2.0, 4.0, 6.0])
        >>> print(rlaxlib.conditional_value_at_risk(quantiles, level=0.5))
        3.0

    References:
        R. Tyrrell Rockafellar and Stanislav Uryasev, *Optimization of Conditional
        Value-at-Risk*, 2000. https://doi.org/10.21314/JOR.2000.038
    """
    quantiles, level = checks.arrays(
        quantiles=(quantiles, "float[N]"), level=(level, "float[]")
    )
    checks.within("(0, 1]", level=level)
    (quantiles, eta), narrow = dtypes.widen(quantiles, level)
    reach = eta * quantiles.size
    weights = jnp.clip(reach - jnp.arange(quantiles.size, dtype=reach.dtype), 0.0, 1.0)
    return narrow(jnp.sum(weights * jnp.sort(quantiles)) / reach)


def truncated_quantile_targets(dist_q_t: ArrayLike, num_dropped: int) -> Array:
    """Pool the quantiles of several critics, and drop the largest (TQC).

    .. math::

        z_{(1)} ≤ z_{(2)} ≤ … ≤ z_{(C N)}   of which the first C N - C d

    The largest of what several critics say is where they are most wrong; how many to
    drop, :math:`d` for each critic, holds overestimation down finely: the paper drops 0
    to 5 of 25. The pool is sorted as one, so that a critic may lose all of its
    quantiles and another none.

    They are samples of the return from the next state on, so that the targets are
    :math:`r + γ (z - α log π)`. Hold every critic against all of them, by
    `quantile_regression_loss` with a Huber parameter of 1. To average that loss over
    the predictions, as the authors do, in place of adding it up, scales it only.

    Args:
        dist_q_t: Quantiles of the next action's return, of each of C target critics, in
            any order, shape `[C, N]`.
        num_dropped: How many to drop for each critic, :math:`d`, from 0 to N - 1. A
            Python integer.

    Returns:
        The smallest quantiles, in ascending order, shape `[C*N - C*num_dropped]`.

    Raises:
        ArgumentError: If `dist_q_t` has the wrong shape or dtype, or if `num_dropped`
            is not a Python integer from 0 to N - 1.

    Example:
        >>> dist_q_t = jnp.array([[1.0, 4.0, 9.0], [0.0, 2.0, 5.0]])
        >>> print(rlaxlib.truncated_quantile_targets(dist_q_t, num_dropped=1))
        [0. 1. 2. 4.]

    References:
        Arsenii Kuznetsov, Pavel Shvechikov, Alexander Grishin and Dmitry Vetrov,
        *Controlling Overestimation Bias with Truncated Mixture of Continuous
        Distributional Quantile Critics*, 2020. https://arxiv.org/abs/2005.04269
    """
    (dist_q_t,) = checks.arrays(dist_q_t=(dist_q_t, "float[C, N]"))
    critics, quantiles = dist_q_t.shape
    checks.static_int(0, quantiles - 1, num_dropped=num_dropped)
    kept = critics * (quantiles - num_dropped)
    return jnp.sort(jnp.ravel(dist_q_t))[:kept]


def energy_distance_loss(
    samples: ArrayLike, targets: ArrayLike, stop_target_gradients: bool = True
) -> Array:
    """Pull samples of one distribution towards another, by their energy distance.

    .. math::

        L = (2 / (N K)) ∑_{i,j} |x_i - y_j| - (1/N²) ∑_{i,i'} |x_i - x_{i'}|
            - (1/K²) ∑_{j,j'} |y_j - y_{j'}|

    Samples are drawn to those of the target, and pushed apart from each other. It is
    the loss of MMD-DQN with the kernel :math:`k(x, y) = -|x - y|`, which has no width
    to choose, and it is twice the integral of the squared difference of the two
    distribution functions: never negative, and 0 only if they are the same. Unlike
    quantiles, samples need no fractions that they stand for; every sample counts in all
    pairs, itself included.

    Args:
        samples: Predicted samples :math:`x`, shape `[N]`.
        targets: Samples :math:`y` of the target, such as rewards plus discounted
            samples of the next state, shape `[K]`.
        stop_target_gradients: Whether to hold the targets constant under
            differentiation.

    Returns:
        Loss, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype.

    Example:
        >>> samples, targets = jnp.array([0.0, 2.0]), jnp.array([1.0])
        >>> print(rlaxlib.energy_distance_loss(samples, targets))
        1.0

    References:
        Thanh Tang Nguyen, Sunil Gupta and Svetha Venkatesh, *Distributional
        Reinforcement Learning via Moment Matching*, 2021.
        https://arxiv.org/abs/2007.12354

        Gábor J. Székely and Maria L. Rizzo, *Energy Statistics: A Class of Statistics
        Based on Distances*, 2013. https://doi.org/10.1016/j.jspi.2013.03.018
    """
    samples, targets = checks.arrays(
        samples=(samples, "float[N]"), targets=(targets, "float[K]")
    )
    (samples, targets), narrow = dtypes.widen(samples, targets)
    targets = gradients.stop_if(stop_target_gradients, targets)
    apart = _mean_distance(samples, targets)
    within = _mean_distance(samples, samples) + _mean_distance(targets, targets)
    return narrow(2 * apart - within)


def _mean_distance(x: Array, y: Array) -> Array:
    """Return the mean distance of all pairs: twice the loss of predicting medians."""
    loss = quantile_regression_loss(
        x, jnp.full_like(x, 0.5), y, stop_target_gradients=False
    )
    return 2 * loss / x.size
