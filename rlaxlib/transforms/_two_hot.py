"""Write a number as a distribution over bins, and read it back as the mean.

A network that predicts a distribution over fixed numbers, the bins, learns by
cross-entropy, whose gradients do not grow with the size of what is predicted. What is
to be learnt becomes two-hot: its probability is shared among the two bins that it lies
between, such that their mean is the number.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike, DTypeLike

from rlaxlib._core import checks, derivatives, dtypes

__all__ = [
    "transform_from_2hot",
    "transform_from_2hot_nonlinear",
    "transform_to_2hot",
    "transform_to_2hot_nonlinear",
]


def transform_to_2hot(
    scalar: ArrayLike, min_value: ArrayLike, max_value: ArrayLike, num_bins: int
) -> Array:
    """Share the probability of a number among two bins, which lie evenly.

    .. math::

        p_k = max(0, 1 - |x - b_k| / w),   b_k = b_0 + k w,
        w = (b_{K-1} - b_0) / (K - 1)

    A number beyond the bins becomes the outermost, with a slope of 0: let the bins
    reach far enough. On a bin, the slope is that of its right side; on the last, that
    of its left.

    Args:
        scalar: Numbers :math:`x`, shape `[...]`.
        min_value: The first bin :math:`b_0`, shape `[]`.
        max_value: The last bin :math:`b_{K-1}`, more than `min_value`, shape `[]`.
        num_bins: Number of bins :math:`K`, at least 2.

    Returns:
        Probabilities, shape `[..., num_bins]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if `num_bins` is not
            a Python integer of at least 2, or if `max_value` is not more than
            `min_value`.

    Example:
        >>> print(rlaxlib.transform_to_2hot(0.25, -1.0, 1.0, num_bins=5))
        [0.  0.  0.5 0.5 0. ]

    References:
        Julian Schrittwieser and others, *Mastering Atari, Go, Chess and Shogi by
        Planning with a Learned Model*, appendix F, 2019.
        https://arxiv.org/abs/1911.08265
    """
    x, *_ = checks.arrays(
        scalar=(scalar, "float[...]"),
        min_value=(min_value, "float[]"),
        max_value=(max_value, "float[]"),
    )
    check_range(min_value, max_value, num_bins)
    (x,), narrow = dtypes.widen(x)
    anchor, origin, offset, width = grid(min_value, max_value, num_bins, x.dtype)
    x = within(x, *(number(each, x.dtype) for each in (min_value, max_value)))
    last = num_bins - 1 - origin
    position = (x - anchor) * (1 / width) + offset
    position = rounded_within(position, 0 - origin, last)
    index = _at_most(jnp.floor(position), last - 1)
    lower, upper = index + 1 - position, position - index
    return narrow(_place(num_bins, index + origin, lower, upper))


def transform_from_2hot(
    probs: ArrayLike, min_value: ArrayLike, max_value: ArrayLike, num_bins: int
) -> Array:
    """Return the mean of a distribution over bins, which lie evenly.

    .. math::

        x = ∑_k p_k b_k,   b_k = b_0 + k (b_{K-1} - b_0) / (K - 1)

    This reads back what `transform_to_2hot` wrote, and as well what a network predicts,
    whose probabilities may lie on all bins.

    Args:
        probs: Probabilities :math:`p`, shape `[..., num_bins]`.
        min_value: The first bin :math:`b_0`, shape `[]`.
        max_value: The last bin :math:`b_{K-1}`, more than `min_value`, shape `[]`.
        num_bins: Number of bins :math:`K`, at least 2.

    Returns:
        Means :math:`x`, shape `[...]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if `num_bins` is not
            a Python integer of at least 2, or if `max_value` is not more than
            `min_value`.

    Example:
        >>> probs = jnp.array([0.0, 0.0, 0.5, 0.5, 0.0])
        >>> print(rlaxlib.transform_from_2hot(probs, -1.0, 1.0, num_bins=5))
        0.25

    References:
        Julian Schrittwieser and others, *Mastering Atari, Go, Chess and Shogi by
        Planning with a Learned Model*, appendix F, 2019.
        https://arxiv.org/abs/1911.08265
    """
    probs, *_ = checks.arrays(
        probs=(probs, f"float[..., {num_bins}]"),
        min_value=(min_value, "float[]"),
        max_value=(max_value, "float[]"),
    )
    check_range(min_value, max_value, num_bins)
    (probs,), narrow = dtypes.widen(probs)
    bins = equal_bins(min_value, max_value, num_bins, probs.dtype)
    return narrow(mean(probs, bins))


def transform_to_2hot_nonlinear(scalar: ArrayLike, bins: ArrayLike) -> Array:
    """Share the probability of a number among two bins, which lie anywhere.

    .. math::

        p_k = (b_{k+1} - x) / (b_{k+1} - b_k),
        p_{k+1} = (x - b_k) / (b_{k+1} - b_k),   where b_k ≤ x < b_{k+1}

    Bins that lie the denser, the nearer they are to 0, keep small numbers apart and
    reach far, with no squashing function between the number and the mean. A number
    beyond the bins becomes the outermost, with a slope of 0. On a bin, the slope is
    that of its right side; on the last, that of its left.

    Args:
        scalar: Numbers :math:`x`, shape `[...]`.
        bins: Bins :math:`b`, two at least, each more than the one before, shape `[K]`.

    Returns:
        Probabilities, shape `[..., K]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if the bins do
            not increase.

    Example:
        >>> bins = jnp.array([-8.0, 0.0, 2.0, 8.0])
        >>> print(rlaxlib.transform_to_2hot_nonlinear(-6.0, bins))
        [0.75 0.25 0.   0.  ]

    References:
        Danijar Hafner, Jurgis Pasukonis, Jimmy Ba and Timothy Lillicrap, *Mastering
        Diverse Domains through World Models*, 2023. https://arxiv.org/abs/2301.04104
    """
    x, b = checks.arrays(scalar=(scalar, "float[...]"), bins=(bins, "float[K]"))
    check_bins(bins)
    (x, b), narrow = dtypes.widen(x, b)
    x = within(x, b[0], b[-1])
    # So that the table varies over the same devices as the numbers.
    table = b[1:-1] + jnp.zeros_like(x, shape=())
    index = jnp.searchsorted(table, x, side="right")
    low, high = b[index], b[index + 1]
    lower, upper = (high - x) / (high - low), (x - low) / (high - low)
    return narrow(_place(b.size, index.astype(x.dtype), lower, upper))


def transform_from_2hot_nonlinear(probs: ArrayLike, bins: ArrayLike) -> Array:
    """Return the mean of a distribution over bins, which lie anywhere.

    .. math::

        x = ∑_k p_k b_k

    This reads back what `transform_to_2hot_nonlinear` wrote, and what a network
    predicts.

    Args:
        probs: Probabilities :math:`p`, shape `[..., K]`.
        bins: Bins :math:`b`, two at least, each more than the one before, shape `[K]`.

    Returns:
        Means :math:`x`, shape `[...]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if the bins do
            not increase.

    Example:
        >>> probs, bins = jnp.array([0.75, 0.25, 0.0]), jnp.array([-8.0, 0.0, 2.0])
        >>> print(rlaxlib.transform_from_2hot_nonlinear(probs, bins))
        -6.0

    References:
        Danijar Hafner, Jurgis Pasukonis, Jimmy Ba and Timothy Lillicrap, *Mastering
        Diverse Domains through World Models*, 2023. https://arxiv.org/abs/2301.04104
    """
    p, b = checks.arrays(probs=(probs, "float[..., K]"), bins=(bins, "float[K]"))
    check_bins(bins)
    (p, b), narrow = dtypes.widen(p, b)
    return narrow(mean(p, b))


def equal_bins(
    min_value: ArrayLike, max_value: ArrayLike, num_bins: int, dtype: DTypeLike
) -> Array:
    """Return bins that lie evenly, shape `[num_bins]`."""
    anchor, origin, offset, width = grid(min_value, max_value, num_bins, dtype)
    # Not a table: a compiler computes them where they are used, faster than it reads.
    positions = jnp.arange(num_bins, dtype=dtype) - origin
    return anchor + (positions - offset) * width


# --- What is refused. ---


def check_range(min_value: ArrayLike, max_value: ArrayLike, num_bins: int) -> None:
    """Check that a first and a last bin have room for the others between them."""
    checks.static_int(2, num_bins=num_bins)
    checks.within("(-inf, inf)", min_value=min_value, max_value=max_value)
    checks.increasing(min_value=min_value, max_value=max_value)


def check_bins(bins: ArrayLike) -> None:
    """Check that there are bins to lie between."""
    checks.static_int(2, **{"bins.size": np.size(bins)})
    checks.within("(-inf, inf)", bins=bins)
    checks.increasing(bins=bins)


# --- From a number to bins, and back. ---


def number(value: Any, dtype: DTypeLike) -> Any:
    """Return a bound as a Python number, or if it is traced, as an array."""
    return value.astype(dtype) if isinstance(value, Tracer) else float(value)


def within(x: Array, low: Any, high: Any) -> Array:
    """Return numbers moved to the bounds, with a slope of 1 there, and of 0 beyond."""
    x = jnp.where(x < low, low, x)
    return jnp.where(x > high, high, x)


def grid(
    min_value: ArrayLike, max_value: ArrayLike, num_bins: int, dtype: DTypeLike
) -> tuple[Any, Any, Any, Any]:
    """Return where positions among the bins are counted from, and the bins' width.

    Positions are counted from the bin next to 0, or to the end that is nearest to it:
    so they have as many digits as the numbers themselves, which they would not have,
    were they counted from the first.

    Args:
        min_value: The first bin.
        max_value: The last bin.
        num_bins: Number of bins.
        dtype: The dtype of what is traced.

    Returns:
        The number among the bins that is nearest to 0; the index of the bin next to it;
        how far from that bin it lies, in widths; and the width.
    """
    low, high = (number(each, dtype) for each in (min_value, max_value))
    known = isinstance(low, float) and isinstance(high, float)
    anchor = min(max(0.0, low), high) if known else jnp.clip(0, low, high)
    width = (high - low) / (num_bins - 1)
    position = (anchor - low) * (num_bins - 1) / (high - low)
    origin = round(position) if known else jnp.round(position)
    return anchor, origin, position - origin, width


def _at_most(x: Array, most: Any) -> Array:
    """Return numbers up to a largest, which stands for NaN as well."""
    return jnp.where(x < most, x, most)


def _same_change(change: Array, y: Array, x: Array, low: Any, high: Any) -> Array:
    del y, x, low, high
    return change


@derivatives.derived_by(_same_change, None, None)
def rounded_within(x: Array, low: Any, high: Any) -> Array:
    """Return numbers that rounding may have left beyond, moved, with their slope."""
    return jnp.clip(x, low, high)


def _place_jvp(
    num_bins: int, primals: tuple[Array, ...], tangents: tuple[Any, ...]
) -> tuple[Array, Array]:
    """Change the rows, by a scatter: so the gradient is two entries, looked up.

    The transpose of a comparison would be a sum over all entries of a row.
    """
    index, lower, _ = primals
    _, *changes = tangents
    positions, each = index.reshape(-1).astype(jnp.int32), jnp.arange(index.size)
    rows = jnp.zeros_like(lower, shape=(index.size, num_bins))
    for offset, change in enumerate(changes):
        place = rows.at[each, positions + offset]
        rows = place.add(change.reshape(-1), mode="promise_in_bounds")
    return _place(num_bins, *primals), rows.reshape(*lower.shape, num_bins)


@derivatives.derived(_place_jvp, nondiff_argnums=(0,))
def _place(num_bins: int, index: Array, lower: Array, upper: Array) -> Array:
    """Return rows that are 0, but for two numbers side by side.

    Args:
        num_bins: Length of a row.
        index: Where the first of the two stands, a float, `[...]`. To compare floats
            with floats takes a CPU less time than to convert them.
        lower: The first, `[...]`.
        upper: The second, `[...]`.

    Returns:
        The rows, `[..., num_bins]`.
    """
    bins = places(index, num_bins)
    index, lower, upper = (each[..., None] for each in (index, lower, upper))
    return jnp.where(bins == index, lower, jnp.where(bins == index + 1, upper, 0))


def places(x: Array, num_bins: int) -> Array:
    """Return 0, 1, 2 and so on for each number, as floats, `[..., num_bins]`."""
    # Integers first: of XLA's own, of 64 bits, not every CPU makes floats in vectors.
    shape = (*x.shape, num_bins)
    return jax.lax.broadcasted_iota(jnp.int32, shape, x.ndim).astype(x.dtype)


def mean(probs: Array, bins: Array) -> Array:
    """Return means of bins, without the rounding of fast matrix products."""
    return jnp.matmul(probs, bins, precision=jax.lax.Precision.HIGHEST)
