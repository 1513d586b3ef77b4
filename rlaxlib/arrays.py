"""Handle arrays: pick, mark, mask and average, on one device or many.

Nothing in here is reinforcement learning, and everything in it is done by hand, and
wrongly, in most agents. Masks are true where an entry counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from rlaxlib._core import checks, devices, dtypes, indexing
from rlaxlib._core.devices import AxisName

__all__ = [
    "AllSum",
    "batched_index",
    "lhs_broadcast",
    "masked_mean",
    "one_hot",
    "replace_masked",
    "standardize",
]


class AllSum:
    """Sum over the entries of an array, and over devices.

    .. math::

        AllSum(x) = ∑_devices ∑_i x_i

    A loss that divides by a number of samples must count them on all devices. Made with
    the name of the axis that the devices form, an `AllSum` does; made without, it sums
    what is here.

    Args:
        axis_name: Name of the axis, or axes, that `jax.pmap`, `jax.vmap` or
            `jax.shard_map` maps over; or None to stay on one device.

    Example:
        >>> x = jnp.array([[1.0, 2.0], [3.0, 4.0]])
        >>> print(rlaxlib.AllSum()(x, axis=0))
        [4. 6.]
        >>> print(jax.vmap(rlaxlib.AllSum("batch"), axis_name="batch")(x))
        [10. 10.]

    References:
        James Bradbury and others, *JAX: Composable Transformations of Python+NumPy
        Programs*, 2018. https://docs.jax.dev/en/latest/jax.lax.html
    """

    def __init__(self, axis_name: AxisName | None = None) -> None:
        self._axis_name = axis_name

    def __call__(self, x: ArrayLike, axis: int | Sequence[int] | None = None) -> Array:
        """Sum over `axis`, and then over devices.

        Args:
            x: Numbers of any shape `[...]`.
            axis: Axis or axes to sum over; or None for all.

        Returns:
            The sum, without the axes summed over.

        Raises:
            ArgumentError: If `x` is no array, or has no such axis.
        """
        (x,) = checks.arrays(x=(x, "any[...]"))
        (wide,), narrow = dtypes.widen(x)
        total = jnp.sum(wide, axis=_axes("axis", axis, x))
        return narrow(devices.total(total, self._axis_name))


def batched_index(
    values: ArrayLike, indices: ArrayLike, keepdims: bool = False
) -> Array:
    """Pick one entry from the last axis of `values` for each index.

    .. math::

        y_i = x_{i,k_i}   for each position i of the leading axes

    So the values of the actions taken are picked from those of all actions.

    Args:
        values: Values to pick from, shape `[..., A]`.
        indices: Position of each entry, in [0, A), shape `[...]`. A traced index beyond
            that gives NaN (or the smallest integer, where values are integers): it is
            never moved to another entry.
        keepdims: Whether to keep the last axis, with a size of 1.

    Returns:
        The entries, shape `[...]`, or `[..., 1]` if `keepdims`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if an index whose
            value is known lies outside [0, A).

    Example:
        >>> q = jnp.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        >>> print(rlaxlib.batched_index(q, jnp.array([2, 0])))
        [3. 4.]

    References:
        The NumPy developers, *numpy.take_along_axis*.
        https://numpy.org/doc/stable/reference/generated/numpy.take_along_axis.html
    """
    values, indices = checks.arrays(
        values=(values, "any[..., A]"), indices=(indices, "int[...]")
    )
    checks.indices(indices=(indices, values.shape[-1]))
    picked = indexing.pick(values, indices)
    return picked[..., None] if keepdims else picked


def one_hot(
    indices: ArrayLike, num_classes: int, dtype: DTypeLike = jnp.float32
) -> Array:
    """Mark each index by a one among zeros.

    .. math::

        y_{i,k} = 1[k = x_i]

    Args:
        indices: Positions of the ones, whole numbers, shape `[...]`. One outside
            [0, num_classes) has none: its row is all zeros.
        num_classes: Number of entries in a row, at least 1.
        dtype: Dtype of the result.

    Returns:
        The marks, shape `[..., num_classes]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if `num_classes`
            is not a Python integer of at least 1.

    Example:
        >>> print(rlaxlib.one_hot(jnp.array([0, 2]), num_classes=3))
        [[1. 0. 0.]
         [0. 0. 1.]]

    References:
        Christopher M. Bishop, *Pattern Recognition and Machine Learning*, section
        4.1.3, 2006. https://www.microsoft.com/en-us/research/publication/pattern-recognition-machine-learning/
    """
    (indices,) = checks.arrays(indices=(indices, "any[...]"))
    checks.static_int(1, num_classes=num_classes)
    (indices,), _ = dtypes.widen(indices)
    if indices.dtype.itemsize < 4:  # Too small, perhaps, to number the classes.
        indices = indices.astype(jnp.int32)
    classes = jax.lax.broadcasted_iota(
        indices.dtype, (*indices.shape, num_classes), indices.ndim
    )
    return (indices[..., None] == classes).astype(dtype)


def lhs_broadcast(source: ArrayLike, target: ArrayLike) -> Array:
    """Append axes of size 1 to `source`, so that it broadcasts from the left.

    .. math::

        y_{i_1 … i_m 0 … 0} = x_{i_1 … i_m}

    NumPy lines up the last axes of two arrays. A mask or a weight for each step goes
    with the first axes of what it masks: this makes them line up.

    Args:
        source: Array whose axes are the first ones of `target`, or of size 1,
            shape `[...]`.
        target: Array that the result is to be combined with, shape `[...]`.

    Returns:
        `source` with as many axes as `target`.

    Raises:
        ArgumentError: If `source` has more axes than `target`, or others.

    Example:
        >>> weights, x = jnp.array([1.0, 2.0]), jnp.ones((2, 3))
        >>> print(rlaxlib.lhs_broadcast(weights, x) * x)
        [[1. 1. 1.]
         [2. 2. 2.]]

    References:
        The NumPy developers, *Broadcasting*.
        https://numpy.org/doc/stable/user/basics.broadcasting.html
    """
    (source,) = checks.arrays(source=(source, "any[...]"))
    (target,) = checks.arrays(target=(target, "any[...]"))
    checks.leading_axes(source=source, target=target)
    return _broadcast_left(source, target)


def replace_masked(
    data: ArrayLike, replacement: ArrayLike | None, mask: ArrayLike
) -> Array:
    """Replace entries of an array where a mask is true.

    .. math::

        y_i = { z_i   if m_i
              { x_i   otherwise

    Args:
        data: Array, some of whose entries are to be replaced, shape `[...]`.
        replacement: What to put there, of the same shape as `data`, shape `[...]`; or
            None to put zeros.
        mask: True, or 1, where to replace. Its axes are the first ones of `data`,
            shape `[...]`.

    Returns:
        The array, of the shape of `data`.

    Raises:
        ArgumentError: If an argument has the wrong shape, or if the mask holds
            something other than 0 and 1.

    Example:
        >>> x, mask = jnp.array([[1.0, 2.0], [3.0, 4.0]]), jnp.array([True, False])
        >>> print(rlaxlib.replace_masked(x, None, mask))
        [[0. 0.]
         [3. 4.]]

    References:
        The NumPy developers, *numpy.where*.
        https://numpy.org/doc/stable/reference/generated/numpy.where.html
    """
    data, replacement = checks.arrays(
        data=(data, "any[...]"), replacement=(replacement, "any[...] or None")
    )
    (mask,) = checks.arrays(mask=(mask, "any[...]"))
    checks.leading_axes(mask=mask, data=data)
    checks.binary(mask=mask)
    replacement = jnp.zeros_like(data) if replacement is None else replacement
    dtype = jnp.result_type(data, replacement)
    chosen = _broadcast_left(mask.astype(bool), data)
    return jnp.where(chosen, replacement.astype(dtype), data.astype(dtype))


def masked_mean(
    x: ArrayLike,
    mask: ArrayLike | None = None,
    axis: int | Sequence[int] | None = None,
    axis_name: AxisName | None = None,
    denominator: ArrayLike | None = None,
) -> Array:
    """Average the entries that a mask lets through.

    .. math::

        x̄ = (∑_i m_i x_i) / ∑_i m_i

    An average over a padded batch must leave the padding out of both sums: dividing by
    the number of all entries makes the loss depend on how much padding there is. Where
    a batch is spread over devices, or gradients are accumulated over parts of it, the
    mean of the parts' means is not the mean of the whole: give `axis_name`, or the
    number of entries in the whole as `denominator`.

    Args:
        x: Numbers to average, shape `[...]`. What the mask leaves out may be anything,
            NaN included; its gradient is 0.
        mask: True where an entry counts. Its axes are the first ones of `x`,
            shape `[...]`; or None to count all.
        axis: Axis or axes of `x` to average over; or None for all.
        axis_name: Name of the axis, or axes, that devices form, to average over them
            too; or None to stay on one device.
        denominator: What to divide the sum by instead of the number of entries that
            count, not 0, shape `[]`; or None.

    Returns:
        The average, without the axes averaged over; 0 where no entry counts.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if `denominator`
            is not positive.

    Example:
        >>> x, mask = jnp.array([1.0, 3.0, jnp.nan]), jnp.array([True, True, False])
        >>> print(rlaxlib.masked_mean(x, mask))
        2.0

    References:
        Qiying Yu and others, *DAPO: An Open-Source LLM Reinforcement Learning System at
        Scale*, section 3.3, 2025. https://arxiv.org/abs/2503.14476
    """
    x, denominator = checks.arrays(
        x=(x, "float[...]"), denominator=(denominator, "float[] or None")
    )
    checks.within("(0, inf)", denominator=denominator)
    mask = _mask(mask, x)
    (wide, denominator), narrow = dtypes.widen(x, denominator)
    axes = _axes("axis", axis, x)
    total = devices.total(jnp.sum(wide, axis=axes, where=mask), axis_name)
    if denominator is not None:
        return narrow(total / denominator)
    count = devices.total(jnp.sum(mask, axis=axes, dtype=wide.dtype), axis_name)
    return narrow(total / jnp.maximum(count, 1))


def standardize(
    x: ArrayLike,
    mask: ArrayLike | None = None,
    axis_name: AxisName | None = None,
) -> Array:
    """Shift and scale numbers to a mean of 0 and a standard deviation of 1.

    .. math::

        y_i = (x_i - μ) / σ,   μ = (1/n) ∑_i x_i,   σ² = (1/n) ∑_i (x_i - μ)²

    Over the entries that the mask lets through, of all axes. Equal numbers have no
    scale: they become zeros, with a gradient of 0, as does a single one.

    Args:
        x: Numbers, such as advantages, shape `[...]`.
        mask: True where an entry counts. Its axes are the first ones of `x`,
            shape `[...]`; or None to count all.
        axis_name: Name of the axis, or axes, that devices form, to take mean and
            deviation over all of them; or None to stay on one device.

    Returns:
        The numbers, of the shape of `x`; 0 where the mask is false.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype.

    Example:
        >>> print(rlaxlib.standardize(jnp.array([1.0, 3.0])))
        [-1.  1.]

    References:
        Marcin Andrychowicz and others, *What Matters in On-Policy Reinforcement
        Learning? A Large-Scale Empirical Study*, section 3.3, 2020.
        https://arxiv.org/abs/2006.05990
    """
    (x,) = checks.arrays(x=(x, "float[...]"))
    mask = _mask(mask, x)
    (x,), narrow = dtypes.widen(x)
    count = devices.total(jnp.sum(mask, dtype=x.dtype), axis_name)

    def mean(y: Array) -> Array:
        return devices.total(jnp.sum(y, where=mask), axis_name) / jnp.maximum(count, 1)

    # Less one of them, equal numbers are exactly 0, and large ones lose no digits.
    centred = jnp.where(
        mask, x - devices.largest(x, mask, axis_name), jnp.zeros_like(x)
    )
    centred = jnp.where(mask, centred - mean(centred), jnp.zeros_like(x))
    variance = mean(jnp.square(centred))
    spread = variance > 0
    scale = jax.lax.rsqrt(jnp.where(spread, variance, jnp.ones_like(variance)))
    return narrow(jnp.where(spread, centred * scale, jnp.zeros_like(x)))


def _broadcast_left(source: Array, target: Array) -> Array:
    """Append axes to `source` until it has as many as `target`."""
    return source.reshape(source.shape + (1,) * (target.ndim - source.ndim))


def _mask(mask: ArrayLike | None, x: Array) -> Array:
    """Return a mask for each entry of `x`."""
    if mask is None:
        return jnp.ones_like(x, bool)
    (mask,) = checks.arrays(mask=(mask, "bool[...]"))
    checks.leading_axes(mask=mask, x=x)
    return jnp.broadcast_to(_broadcast_left(mask, x), x.shape)


def _axes(name: str, axis: Any, x: Array) -> tuple[int, ...]:
    """Return the axes that are meant, as numbers from 0 on."""
    axes = range(x.ndim) if axis is None else np.atleast_1d(np.asarray(axis)).tolist()
    for each in axes:
        checks.static_int(-x.ndim, x.ndim - 1, **{name: each})
    return tuple(each % x.ndim for each in axes)
