"""Tell how good values are."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib._core import checks, dtypes, streams
from rlaxlib._core.devices import AxisName
from rlaxlib.diagnostics import _means

__all__ = [
    "explained_variance",
    "value_bias",
]


def explained_variance(
    predictions: ArrayLike,
    targets: ArrayLike,
    mask: ArrayLike | None = None,
    axis_name: AxisName | None = None,
    *,
    count_bias: bool = False,
) -> Array:
    """Tell how much of the variance of the targets is in the predictions.

    .. math::

        1 - Var[y - ŷ] / Var[y]

    1 for perfect values, 0 for values that say no more than a constant, negative for
    those that are worse. It does not see a constant bias: with `count_bias` the
    numerator is the mean square of the errors, and the result the coefficient of
    determination :math:`R²`; `value_bias` tells the difference.

    Args:
        predictions: Predictions :math:`ŷ`, such as values, shape `[...]`.
        targets: What they should have been, :math:`y`, such as returns, of the same
            shape, shape `[...]`.
        mask: True where an entry counts, of the same shape, shape `[...]`; or None to
            count all.
        axis_name: Name of the axis, or axes, that devices form; or None to stay on one
            device.
        count_bias: Whether a constant bias counts as an error.

    Returns:
        The fraction, shape `[]`. Where all targets are equal there is nothing to
        explain: 0. Other libraries return NaN there (Stable-Baselines3), or 1 or 0
        (scikit-learn).

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype.

    Example:
        >>> predictions = jnp.array([2.0, 3.0, 4.0])
        >>> targets = jnp.array([1.0, 2.0, 3.0])
        >>> print(rlaxlib.explained_variance(predictions, targets))
        1.0
        >>> print(rlaxlib.explained_variance(predictions, targets, count_bias=True))
        -0.5

    References:
        Antonin Raffin and others, *Stable-Baselines3: Reliable Reinforcement Learning
        Implementations*, 2021. https://jmlr.org/papers/v22/20-1364.html
    """
    predictions, targets, mask = checks.arrays(
        predictions=(predictions, "float[...]"),
        targets=(targets, "float[...]"),
        mask=(mask, "bool[...] or None"),
    )
    predictions, targets = (streams.valid(x, mask) for x in (predictions, targets))
    (predictions, targets), narrow = dtypes.widen(predictions, targets)
    errors = targets - predictions
    if count_bias:
        left = _means.mean(jnp.square(errors), mask, axis_name)
    else:
        left = _means.variance(errors, mask, axis_name)
    variance = _means.variance(targets, mask, axis_name)
    varied = variance != 0
    left = left / jnp.where(varied, variance, jnp.ones_like(variance))
    return narrow(jnp.where(varied, 1 - left, jnp.zeros_like(left)))


def value_bias(
    values: ArrayLike,
    returns: ArrayLike,
    mask: ArrayLike | None = None,
    axis_name: AxisName | None = None,
    *,
    normalize: bool = False,
) -> Array:
    """Tell by how much values are too large on average.

    .. math::

        (1/n) ∑_i (q_i - G_i)   or, normalized,
        (∑_i (q_i - G_i)) / |∑_i G_i|

    Values that bootstrap from the largest of several estimates are too large, those
    from the smallest too small. Compare them with the discounted returns of the policy
    that they are values of, from the same states and actions on; the return of a
    soft value has its entropies in it. Returns that were cut are too small themselves.

    Args:
        values: Values :math:`q_i`, shape `[...]`.
        returns: Returns :math:`G_i` that followed, of the same shape, shape `[...]`.
        mask: True where an entry counts, of the same shape, shape `[...]`; or None to
            count all.
        axis_name: Name of the axis, or axes, that devices form; or None to stay on one
            device.
        normalize: Whether to divide by the size of the mean return, so that one can
            compare across tasks, and over training.

    Returns:
        The bias, shape `[]`, positive if values are too large; 0 where no entry counts,
        or where it is to be normalised and the mean return is 0.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype.

    Example:
        >>> values, returns = jnp.array([3.0, 5.0]), jnp.array([2.0, 2.0])
        >>> print(rlaxlib.value_bias(values, returns))
        2.0
        >>> print(rlaxlib.value_bias(values, returns, normalize=True))
        1.0

    References:
        Xinyue Chen, Che Wang, Zijian Zhou and Keith Ross, *Randomized Ensembled Double
        Q-Learning: Learning Fast Without a Model*, section 2.1, 2021.
        https://arxiv.org/abs/2101.05982
    """
    values, returns, mask = checks.arrays(
        values=(values, "float[...]"),
        returns=(returns, "float[...]"),
        mask=(mask, "bool[...] or None"),
    )
    (values, returns), narrow = dtypes.widen(values, returns)
    bias = _means.mean(values - returns, mask, axis_name)
    if not normalize:
        return narrow(bias)
    size = jnp.abs(_means.mean(returns.astype(bias.dtype), mask, axis_name))
    known = size != 0
    bias = bias / jnp.where(known, size, jnp.ones_like(size))
    return narrow(jnp.where(known, bias, jnp.zeros_like(bias)))
