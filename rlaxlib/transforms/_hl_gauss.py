"""Write a number as a Gaussian over bins, and read it back as the mean.

Two-hot gives a number to the two bins that it lies between, and says nothing of how
near the others are. Here a Gaussian around the number is cut up by the edges of the
bins: neighbours get their share, which is what made large networks learn values well.

The bins are intervals, and reach from the first edge to the last. So a range has one
bin more in two-hot, whose bins are points, the outermost at its ends.
"""

from __future__ import annotations

import math
from typing import Any, cast

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy import special
from jax.typing import ArrayLike, DTypeLike

from rlaxlib._core import checks, dtypes
from rlaxlib.transforms import _two_hot

__all__ = ["transform_from_hl_gauss", "transform_to_hl_gauss"]

_SIGMA = 0.75  # In widths of a bin, as Farebrother and others recommend it.
_WIDE = 4.0  # From how many widths on the density is summed, not its integral.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(5)


def transform_to_hl_gauss(
    scalar: ArrayLike,
    min_value: ArrayLike,
    max_value: ArrayLike,
    num_bins: int,
    sigma: ArrayLike | None = None,
) -> Array:
    """Share the probability of a number among bins, as a Gaussian does (HL-Gauss).

    .. math::

        p_k = (Φ(z_{k+1}) - Φ(z_k)) / (Φ(z_K) - Φ(z_0)),   z_k = (e_k - x) / σ,
        e_k = e_0 + k w,   w = (e_K - e_0) / K,

    with :math:`Φ` the cumulative distribution function of the standard normal
    distribution. With the :math:`σ` of 0.75 widths, most of the probability lies on six
    bins. Much less, and only the bin that the number is in has any, wherever in it the
    number is; much more, and all numbers look alike.

    The Gaussian is cut off at the ends, and what is left of it scaled up. So the mean
    of the probabilities, which `transform_from_hl_gauss` reads back, is the number only
    where the ends are far: from :math:`4 σ` on it is so within 0.0002 widths, but of a
    number at an end it is 0.7 widths inside. Let the range reach further than the
    numbers do.

    A number beyond the range becomes its end, with a slope of 0. Taken as it is, as
    some implementations do, it makes the quotient 0 / 0 when it is far enough.

    Args:
        scalar: Numbers :math:`x`, shape `[...]`.
        min_value: The first edge :math:`e_0`, shape `[]`.
        max_value: The last edge :math:`e_K`, more than `min_value`, shape `[]`.
        num_bins: Number of bins :math:`K`, at least 2.
        sigma: Standard deviation :math:`σ` of the Gaussian, in the unit of the numbers,
            more than 0, shape `[]`; or None for 0.75 widths of a bin.

    Returns:
        Probabilities, shape `[..., num_bins]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if `num_bins` is not
            a Python integer of at least 2, if `max_value` is not more than `min_value`,
            or if `sigma` is not positive.

    Example:
        >>> probs = rlaxlib.transform_to_hl_gauss(0.0, -2.0, 2.0, num_bins=4)
        >>> print([f"{p:.3f}" for p in probs])
        ['0.088', '0.412', '0.412', '0.088']

    References:
        Ehsan Imani and Martha White, *Improving Regression Performance with
        Distributional Losses*, 2018. https://arxiv.org/abs/1806.04613

        Jesse Farebrother and others, *Stop Regressing: Training Value Functions via
        Classification for Scalable Deep RL*, 2024. https://arxiv.org/abs/2403.03950
    """
    x, *_ = checks.arrays(
        scalar=(scalar, "float[...]"),
        min_value=(min_value, "float[]"),
        max_value=(max_value, "float[]"),
        sigma=(sigma, "float[] or None"),
    )
    _two_hot.check_range(min_value, max_value, num_bins)
    checks.within("(0, inf)", sigma=sigma)
    (x,), narrow = dtypes.widen(x)
    anchor, origin, offset, width = _two_hot.grid(
        min_value, max_value, num_bins + 1, x.dtype
    )
    bounds = (_two_hot.number(each, x.dtype) for each in (min_value, max_value))
    x = _two_hot.within(x, *bounds)
    position = (x - anchor) * (1 / width) + offset
    below, above = 0 - origin, num_bins - origin
    position = _two_hot.rounded_within(position, below, above)
    distance = _two_hot.places(x, num_bins) + (0.5 - origin) - position[..., None]
    ends = position - below, above - position
    return narrow(_share(distance, ends, _steepness(sigma, width, x.dtype)))


def transform_from_hl_gauss(
    probs: ArrayLike, min_value: ArrayLike, max_value: ArrayLike, num_bins: int
) -> Array:
    """Return the mean of a distribution over bins, as if all lay in their middles.

    .. math::

        x = ∑_k p_k (e_0 + (k + ½) w),   w = (e_K - e_0) / K

    This reads back what `transform_to_hl_gauss` wrote, and what a network predicts.

    Args:
        probs: Probabilities :math:`p`, shape `[..., num_bins]`.
        min_value: The first edge :math:`e_0`, shape `[]`.
        max_value: The last edge :math:`e_K`, more than `min_value`, shape `[]`.
        num_bins: Number of bins :math:`K`, at least 2.

    Returns:
        Means :math:`x`, shape `[...]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if `num_bins` is not
            a Python integer of at least 2, or if `max_value` is not more than
            `min_value`.

    Example:
        >>> probs = jnp.array([0.0, 0.5, 0.5, 0.0])
        >>> print(rlaxlib.transform_from_hl_gauss(probs, -2.0, 2.0, num_bins=4))
        0.0

    References:
        Jesse Farebrother and others, *Stop Regressing: Training Value Functions via
        Classification for Scalable Deep RL*, 2024. https://arxiv.org/abs/2403.03950
    """
    probs, *_ = checks.arrays(
        probs=(probs, f"float[..., {num_bins}]"),
        min_value=(min_value, "float[]"),
        max_value=(max_value, "float[]"),
    )
    _two_hot.check_range(min_value, max_value, num_bins)
    (probs,), narrow = dtypes.widen(probs)
    low, high = (_two_hot.number(each, probs.dtype) for each in (min_value, max_value))
    half = 0.5 * (high - low) / num_bins
    middles = _two_hot.equal_bins(low + half, high - half, num_bins, probs.dtype)
    return narrow(_two_hot.mean(probs, middles))


# --- How a Gaussian is shared. ---


def _steepness(sigma: ArrayLike | None, width: Any, dtype: DTypeLike) -> Any:
    """Return the width of a bin in standard deviations, a float if it is known."""
    if sigma is None:
        return 1 / _SIGMA
    # Bounded, so that no slope overflows. What is less looks the same.
    least = width * float(cast(Any, jnp.finfo(dtype).eps)) ** 1.5
    spread = _two_hot.number(sigma, dtype)
    known = isinstance(spread, float) and isinstance(least, float)
    return width / (max(spread, least) if known else jnp.maximum(spread, least))


def _share(distance: Array, ends: tuple[Array, Array], steepness: Any) -> Array:
    """Share a Gaussian among bins.

    Args:
        distance: From the middle of the Gaussian to that of each bin, in widths,
            `[..., K]`.
        ends: From either end of the range to the middle of the Gaussian, at least 0,
            each `[...]`.
        steepness: Width of a bin, in standard deviations.

    Returns:
        Probabilities, `[..., K]`.
    """
    known, is_wide = isinstance(steepness, float), steepness * _WIDE <= 1
    if known and not is_wide:
        # Cheaper than the sum, before which a compiler computes all shares twice.
        low, high = (special.erf(each * (math.sqrt(0.5) * steepness)) for each in ends)
        return _integrals(distance, steepness) / (low + high)[..., None]
    shares = _densities(distance, steepness)
    if not known:
        shares = jnp.where(is_wide, shares, _integrals(distance, steepness))
    return shares / jnp.sum(shares, axis=-1, keepdims=True)


def _integrals(distance: Array, steepness: Any) -> Array:
    """Return shares as differences of the cumulative distribution function."""
    # Both of a tail, and of the same one, where they have all their digits.
    distance = distance * jnp.where(distance < 0, -1.0, 1.0).astype(distance.dtype)
    scale = math.sqrt(0.5) * steepness
    return special.erfc((distance - 0.5) * scale) - special.erfc(
        (distance + 0.5) * scale
    )


def _densities(distance: Array, steepness: Any) -> Array:
    """Return shares as sums over the density, in which nothing cancels.

    Of a wide Gaussian, a bin gets so little that a difference has no digits left.
    """
    total = jnp.zeros_like(distance)
    for node, weight in zip(0.5 * _NODES, _WEIGHTS, strict=True):
        place = (distance + float(node)) * steepness
        total = total + float(weight) * jnp.exp(-0.5 * jnp.square(place))
    return total
