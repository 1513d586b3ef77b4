"""Array utilities: indices, one-hot vectors, masks, means and standardisation.

A mask is true at the entries to use, or for `replace_masked`, to replace.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from rlaxlib._core import checks, devices, dtypes, indexing, moments, safe
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import (
    Array,
    ArrayLike,
    AxisName,
    Bool,
    Float,
    Int,
    Shaped,
    Static,
)

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
    """Sum an array over its axes, and over the devices of a mapped axis.

    ::

        AllSum(x) = ∑_devices ∑_i x_i

    A loss that divides by a number of samples must count those on all devices.

    Args:
        axis_name: Mapped axis name, or names, of the devices; or None for one device.

    Example:
        >>> print(rlaxlib.AllSum()(jnp.array([[1.0, 2.0], [3.0, 4.0]]), axis=0))
        [4. 6.]
        >>> print(jax.vmap(rlaxlib.AllSum("i"), axis_name="i")(jnp.array([1.0, 2.0])))
        [3. 3.]

    References:
        James Bradbury and others, *JAX: Composable Transformations of Python+NumPy
        Programs*, 2018. https://docs.jax.dev/en/latest/jax.lax.html
    """

    def __init__(self, axis_name: AxisName | None = None) -> None:
        self._axis_name = axis_name

    @checked(compiled=False)
    def __call__(
        self,
        x: Shaped[ArrayLike, "..."],
        axis: Static[int | Sequence[int], ""] | None = None,
    ) -> Array:
        """Sum over `axis`, and then over devices.

        Args:
            x: Array to sum, shape `[...]`.
            axis: Axis or axes to sum over; or None for all.

        Returns:
            The sum, without the axes summed over.

        Raises:
            ArgumentError: If `x` is not an array, or has no such axis.
        """
        x = jnp.asarray(x)
        total = jnp.sum(dtypes.raised(x), axis=_axes(axis, x))
        return dtypes.like(devices.total(total, self._axis_name), x)


@checked
def batched_index(
    values: Shaped[ArrayLike, "..., A"],
    indices: Int[ArrayLike, "... in [0, A)"],
    keepdims: Static[bool, ""] = False,
) -> Shaped[Array, "[...] or [..., 1]"]:
    """Pick one entry from the last axis of an array for each index.

    Takes arrays of values and of indices, returns one value for each index.

    ::

        y_i = x_{i,k_i}   for each position i of the leading axes

    Args:
        values: Values to pick from, shape `[..., A]`.
        indices: Index :math:`k` of each entry, in [0, A), shape `[...]`. A traced index
            outside gives NaN; of integers, the value of `jnp.take(mode="fill")`.
        keepdims: Whether to keep the last axis, with size 1.

    Returns:
        The entries, shape `[...]`, or `[..., 1]` if `keepdims`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a NumPy index out of range.

    Example:
        >>> q = jnp.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        >>> print(rlaxlib.batched_index(q, jnp.array([2, 0])))
        [3. 4.]

    References:
        The NumPy developers, *numpy.take_along_axis*.
        https://numpy.org/doc/stable/reference/generated/numpy.take_along_axis.html
    """
    picked = indexing.pick(values, indices)
    return jnp.expand_dims(picked, -1) if keepdims else picked


@checked
def one_hot(
    indices: Int[ArrayLike, "..."],
    num_classes: Static[int, "in [1, inf)"],
    dtype: DTypeLike = jnp.float32,
) -> Shaped[Array, "..., num_classes"]:
    """Encode indices as one-hot vectors.

    Takes indices of any shape, returns one vector for each.

    ::

        y_{i,k} = 1[k = x_i]

    Args:
        indices: Index :math:`x` of each one, of any integer dtype, shape `[...]`. An
            index outside [0, num_classes) gives a vector of zeros.
        num_classes: Length of the vectors, in [1, inf).
        dtype: Dtype of the result.

    Returns:
        One-hot vectors, shape `[..., num_classes]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or `num_classes` is less than 1.

    Example:
        >>> print(rlaxlib.one_hot(jnp.array([2, 3]), num_classes=3))
        [[0. 0. 1.]
         [0. 0. 0.]]

    References:
        Christopher M. Bishop, *Pattern Recognition and Machine Learning*, section
        4.1.3, 2006. https://www.microsoft.com/en-us/research/publication/pattern-recognition-machine-learning/
    """
    # An int8 cannot hold the index of class 128.
    indices = indexing.widened(indices)
    classes = jax.lax.broadcasted_iota(
        indices.dtype, (*indices.shape, num_classes), indices.ndim
    )
    return (jnp.expand_dims(indices, -1) == classes).astype(dtype)


@checked
def lhs_broadcast(
    source: Shaped[ArrayLike, "*S"], target: Shaped[ArrayLike, "*T"]
) -> Shaped[Array, "*_"]:
    """Append axes of size 1 to an array, so that it broadcasts from the left.

    Takes two arrays, returns the first with as many axes as the second.

    ::

        y_{i_1 … i_m 0 … 0} = x_{i_1 … i_m}

    NumPy aligns the last axes of two arrays; a mask or a weight for each time step
    belongs to the first ones.

    Args:
        source: Array :math:`x` of the first axes of `target`, or of size 1,
            shape `[...]`.
        target: Array to combine the result with, shape `[...]`.

    Returns:
        `source` with as many axes as `target`.

    Raises:
        ArgumentError: If `source` has more axes than `target`, or axes of other sizes.

    Example:
        >>> print(rlaxlib.lhs_broadcast(jnp.ones(2), jnp.ones((2, 3))).shape)
        (2, 1)

    References:
        The NumPy developers, *Broadcasting*.
        https://numpy.org/doc/stable/user/basics.broadcasting.html
    """
    checks.leading_axes(source=source, target=target)
    return _broadcast_left(source, target)


@checked
def replace_masked(
    data: Shaped[ArrayLike, "..."],
    replacement: Shaped[ArrayLike, "..."] | None,
    mask: Shaped[ArrayLike, "*M in {0, 1}"],
) -> Shaped[Array, "..."]:
    """Replace the entries of an array where a mask is true.

    Takes two arrays and a mask, returns an array.

    ::

        y_i = { z_i   if m_i
              { x_i   otherwise

    Args:
        data: Array :math:`x`, shape `[...]`.
        replacement: Array :math:`z`, shape `[...]`; or None for zeros.
        mask: True, or 1, to replace, in {0, 1}; its axes are the first of `data`,
            shape `[...]`.

    Returns:
        The array, of the shape of `data`.

    Raises:
        ArgumentError: If a shape is wrong, or a NumPy mask is not of 0 and 1.

    Example:
        >>> x, mask = jnp.array([[1.0, 2.0], [3.0, 4.0]]), jnp.array([True, False])
        >>> print(rlaxlib.replace_masked(x, None, mask).ravel())
        [0. 0. 3. 4.]

    References:
        The NumPy developers, *numpy.where*.
        https://numpy.org/doc/stable/reference/generated/numpy.where.html
    """
    checks.leading_axes(mask=mask, data=data)
    other = jnp.zeros_like(data) if replacement is None else replacement
    return jnp.where(_broadcast_left(mask.astype(bool), data), other, data)


@checked
def masked_mean(
    x: Float[ArrayLike, "..."],
    *,
    mask: Bool[ArrayLike, "*M"] | None = None,
    axis: Static[int | Sequence[int], ""] | None = None,
    axis_name: AxisName | None = None,
) -> Float[Array, "*R"]:
    """Compute the mean of the unmasked entries of an array.

    Takes an array, returns its mean over the given axes.

    ::

        x̄ = (∑_i m_i x_i) / ∑_i m_i

    The mean does not depend on the amount of padding. If a batch is spread over
    devices, the mean of the parts' means is not the mean of the batch: pass
    `axis_name`. If gradients accumulate over parts, divide the sum of each,
    `jnp.sum(x, where=mask)`, by the number of unmasked entries of the batch.

    Args:
        x: Array, shape `[...]`. Masked entries may be NaN, and have a gradient of 0.
        mask: False to ignore; its axes are the first of `x`, shape `[...]`; or None.
        axis: Axis or axes of `x` to average over; or None for all.
        axis_name: Mapped axis name, or names, to average over as well; or None.

    Returns:
        The mean, without the axes averaged over; 0 if all entries are masked.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> x, mask = jnp.array([1.0, 3.0, jnp.nan]), jnp.array([True, True, False])
        >>> print(rlaxlib.masked_mean(x, mask=mask))
        2.0

    References:
        Qiying Yu and others, *DAPO: An Open-Source LLM Reinforcement Learning System at
        Scale*, section 3.3, 2025. https://arxiv.org/abs/2503.14476
    """
    mask = None if mask is None else _mask(mask, x)
    axes = _axes(axis, x)
    total = devices.total(jnp.sum(x, axis=axes, where=mask), axis_name)
    if mask is None:
        count = x.size / max(total.size, 1) * devices.number(axis_name)
    else:
        count = devices.total(jnp.sum(mask, axis=axes, dtype=x.dtype), axis_name)
    return total / jnp.maximum(count, 1)


@checked
def standardize(
    x: Float[ArrayLike, "..."],
    *,
    mask: Bool[ArrayLike, "*M"] | None = None,
    ddof: Static[int, "in [0, inf)"] = 0,
    epsilon: Float[ArrayLike, "in [0, inf)"] = 0.0,
    axis_name: AxisName | None = None,
) -> Float[Array, "..."]:
    """Standardise an array to mean 0 and standard deviation 1.

    Takes an array, returns an array of the same shape.

    ::

        y_i = (x_i - μ) / (σ + ε),   μ = (1/n) ∑_i x_i,
        σ² = (1/(n - ddof)) ∑_i (x_i - μ)²

    PPO in PyTorch has a `ddof` of 1, and :math:`ε = 10⁻⁸`. If all unmasked entries are
    equal, the result is 0, and so is its gradient if :math:`ε = 0`.

    Args:
        x: Array, such as advantages, shape `[...]`.
        mask: False to ignore; its axes are the first of `x`, shape `[...]`; or None.
        ddof: Python integer in [0, inf), as in `jnp.std`.
        epsilon: Constant :math:`ε` added to the divisor, in [0, inf), shape `[]`.
        axis_name: Mapped axis name, or names, to average over as well; or None.

    Returns:
        The standardised array, of the shape of `x`; 0 at masked entries.

    Raises:
        ArgumentError: If a shape, dtype or concrete value is wrong.

    Example:
        >>> print(rlaxlib.standardize(jnp.array([1.0, 3.0])))
        [-1.  1.]

    References:
        Marcin Andrychowicz and others, *What Matters in On-Policy Reinforcement
        Learning? A Large-Scale Empirical Study*, section 3.3, 2020.
        https://arxiv.org/abs/2006.05990
    """
    mask = jnp.ones_like(x, bool) if mask is None else _mask(mask, x)
    found = moments.of(x, mask, axis_name)
    return safe.divide(found.deviations, found.stddev(ddof) + epsilon)


def _broadcast_left(source: Array, target: Array) -> Array:
    """Append axes to `source` until it has as many as `target`."""
    return source.reshape(source.shape + (1,) * (target.ndim - source.ndim))


def _mask(mask: Array, x: Array) -> Array:
    """Return a mask of the shape of `x`."""
    checks.leading_axes(mask=mask, x=x)
    return jnp.broadcast_to(_broadcast_left(mask, x), x.shape)


def _axes(axis: Any, x: Array) -> Any:
    """Return an axis, a tuple of axes, or None for all."""
    if axis is None:
        return None
    axes = (axis,) if isinstance(axis, int) else tuple(np.ravel(axis).tolist())
    for each in axes:
        if type(each) is not int or not -x.ndim <= each < x.ndim:
            rule = f"must be an integer in [{-x.ndim}, {x.ndim})"
            checks.fail(f"`axis` is {each!r}, {rule}")
    return axis if isinstance(axis, int) else axes
