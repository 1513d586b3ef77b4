"""HL-Gauss encoding of values as Gaussians over bins, and decoding by the mean.

Two-hot encoding gives probability to two bins only. HL-Gauss integrates a Gaussian
around the value over each bin, so nearby bins share probability, which makes large
value networks easier to train.

Bins are intervals between edges. Over the same range, two-hot has one bin more, because
its bins are points with the outermost at the ends of the range.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
from jax.scipy import special

from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Float, Shaped, Static
from rlaxlib.transforms import _shared

__all__ = ["transform_from_hl_gauss", "transform_to_hl_gauss"]


@checked(compiled=False)
def transform_to_hl_gauss(
    scalar: Float[ArrayLike, "..."],
    min_value: Float[ArrayLike, "in (-inf, inf)"],
    max_value: Float[ArrayLike, "in (-inf, inf) in (min_value, inf)"],
    num_bins: Static[int, "in [2, inf)"],
    stddev_ratio: Float[ArrayLike, "in (0, inf)"] = 0.75,
) -> Float[Array, "..., num_bins"]:
    """Encode values as truncated Gaussians over bins (HL-Gauss).

    Takes values of any shape, returns one distribution for each.

    ::

        p_k = (Φ(z_{k+1}) - Φ(z_k)) / (Φ(z_K) - Φ(z_0)),   z_k = (e_k - x) / σ,
        e_k = e_0 + k w,   w = (e_K - e_0) / K,   σ = s w,

    with :math:`Φ` the standard normal cumulative distribution function. The default
    :math:`s = ¾` puts most of the probability on six bins.

    Values outside the range are clipped, with gradient 0. Truncation moves the mean
    inside: by up to 0.7 :math:`w` for a value at an end of the range, and by less than
    0.0002 :math:`w` from a distance of :math:`4 σ` on.

    Args:
        scalar: Values :math:`x`, shape `[...]`.
        min_value: First edge :math:`e_0`, finite, shape `[]`.
        max_value: Last edge :math:`e_K`, finite, in (`min_value`, inf), shape `[]`.
        num_bins: Number of bins :math:`K`, in [2, inf).
        stddev_ratio: Standard deviation :math:`s`, in (0, inf), in widths of a bin,
            shape `[]`.

    Returns:
        Probabilities, shape `[..., num_bins]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

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
    edges = _shared.equal_bins(min_value, max_value, num_bins + 1)
    return _encode(scalar, edges, stddev_ratio)


@checked
def _encode(
    x: Float[ArrayLike, "..."],
    edges: Shaped[ArrayLike, "K+1"],
    ratio: Shaped[ArrayLike, ""],
) -> Float[Array, "..., K"]:
    """Return truncated Gaussians over bins, in the dtype of the values."""
    e, s = edges.astype(x.dtype), ratio.astype(x.dtype)
    x = jnp.clip(x, e[0], e[-1])
    sigma = s * (e[-1] - e[0]) / (e.size - 1)
    z = (jnp.broadcast_to(e, (*x.shape, e.size)) - x[..., None]) / sigma
    cdf = special.erf(z / math.sqrt(2))  # 2 Φ(z) - 1
    # Rounding can make erf decrease in its tails, and probabilities negative.
    mass = jnp.maximum(jnp.diff(cdf), 0)
    return mass / (cdf[..., -1:] - cdf[..., :1])


@checked(compiled=False)
def transform_from_hl_gauss(
    probs: Float[ArrayLike, "..., num_bins in [0, 1]"],
    min_value: Float[ArrayLike, "in (-inf, inf)"],
    max_value: Float[ArrayLike, "in (-inf, inf) in (min_value, inf)"],
    num_bins: Static[int, "in [2, inf)"],
) -> Float[Array, "..."]:
    """Compute the mean of an HL-Gauss distribution over bins.

    Takes distributions, returns one value for each.

    ::

        x = ∑_k p_k (e_0 + (k + ½) w),   w = (e_K - e_0) / K

    Each bin counts at its centre. It inverts `transform_to_hl_gauss`.

    Args:
        probs: Probabilities :math:`p`, in [0, 1], shape `[..., num_bins]`.
        min_value: First edge :math:`e_0`, finite, shape `[]`.
        max_value: Last edge :math:`e_K`, finite, in (`min_value`, inf), shape `[]`.
        num_bins: Number of bins :math:`K`, in [2, inf).

    Returns:
        Means :math:`x`, shape `[...]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> probs = jnp.array([0.0, 0.5, 0.5, 0.0])
        >>> print(rlaxlib.transform_from_hl_gauss(probs, -2.0, 2.0, num_bins=4))
        0.0

    References:
        Jesse Farebrother and others, *Stop Regressing: Training Value Functions via
        Classification for Scalable Deep RL*, 2024. https://arxiv.org/abs/2403.03950
    """
    edges = _shared.equal_bins(min_value, max_value, num_bins + 1)
    return _shared.decode(probs, (edges[:-1] + edges[1:]) / 2)
