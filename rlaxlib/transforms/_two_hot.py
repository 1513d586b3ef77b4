"""Two-hot encoding of values over bins, and decoding by the mean.

A network that predicts a distribution over fixed bins learns by cross-entropy, whose
gradient does not grow with the magnitude of the target. The two-hot target shares its
probability between the two nearest bins so that its mean is the value.
"""

from __future__ import annotations

import numpy as np

from rlaxlib._core import checks
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Float, Static
from rlaxlib.transforms._shared import decode, encode, equal_bins, mean, two_hot

__all__ = [
    "transform_from_2hot",
    "transform_from_2hot_nonlinear",
    "transform_to_2hot",
    "transform_to_2hot_nonlinear",
]


@checked(compiled=False)
def transform_to_2hot(
    scalar: Float[ArrayLike, "..."],
    min_value: Float[ArrayLike, "in (-inf, inf)"],
    max_value: Float[ArrayLike, "in (-inf, inf) in (min_value, inf)"],
    num_bins: Static[int, "in [2, inf)"],
) -> Float[Array, "..., num_bins"]:
    """Encode values as two-hot distributions over evenly spaced bins.

    Takes values of any shape, returns one distribution for each.

    ::

        p_k = max(0, 1 - |x - b_k| / w),   b_k = b_0 + k w,
        w = (b_{K-1} - b_0) / (K - 1)

    Values outside the range are clipped, with gradient 0. At a bin, the gradient is the
    derivative from the right; at the outermost bins, half that from the inside.

    Args:
        scalar: Values :math:`x`, shape `[...]`.
        min_value: First bin :math:`b_0`, finite, shape `[]`.
        max_value: Last bin :math:`b_{K-1}`, finite, in (`min_value`, inf), shape `[]`.
        num_bins: Number of bins :math:`K`, in [2, inf).

    Returns:
        Probabilities, shape `[..., num_bins]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> print(rlaxlib.transform_to_2hot(0.25, -1.0, 1.0, num_bins=5))
        [0.  0.  0.5 0.5 0. ]

    References:
        Julian Schrittwieser and others, *Mastering Atari, Go, Chess and Shogi by
        Planning with a Learned Model*, appendix F, 2019.
        https://arxiv.org/abs/1911.08265
    """
    return encode(scalar, equal_bins(min_value, max_value, num_bins))


@checked(compiled=False)
def transform_from_2hot(
    probs: Float[ArrayLike, "..., num_bins in [0, 1]"],
    min_value: Float[ArrayLike, "in (-inf, inf)"],
    max_value: Float[ArrayLike, "in (-inf, inf) in (min_value, inf)"],
    num_bins: Static[int, "in [2, inf)"],
) -> Float[Array, "..."]:
    """Compute the mean of a distribution over evenly spaced bins.

    Takes distributions, returns one value for each.

    ::

        x = ∑_k p_k b_k,   b_k = b_0 + k (b_{K-1} - b_0) / (K - 1)

    It inverts `transform_to_2hot`, and decodes any predicted distribution.

    Args:
        probs: Probabilities :math:`p`, in [0, 1], shape `[..., num_bins]`.
        min_value: First bin :math:`b_0`, finite, shape `[]`.
        max_value: Last bin :math:`b_{K-1}`, finite, in (`min_value`, inf), shape `[]`.
        num_bins: Number of bins :math:`K`, in [2, inf).

    Returns:
        Means :math:`x`, shape `[...]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> probs = jnp.array([0.0, 0.0, 0.5, 0.5, 0.0])
        >>> print(rlaxlib.transform_from_2hot(probs, -1.0, 1.0, num_bins=5))
        0.25

    References:
        Julian Schrittwieser and others, *Mastering Atari, Go, Chess and Shogi by
        Planning with a Learned Model*, appendix F, 2019.
        https://arxiv.org/abs/1911.08265
    """
    return decode(probs, equal_bins(min_value, max_value, num_bins))


@checked
def transform_to_2hot_nonlinear(
    scalar: Float[ArrayLike, "..."],
    bins: Float[ArrayLike, "K increasing in (-inf, inf)"],
) -> Float[Array, "..., K"]:
    """Encode values as two-hot distributions over bins of any spacing.

    Takes values of any shape, returns one distribution for each.

    ::

        p_k = (b_{k+1} - x) / (b_{k+1} - b_k),
        p_{k+1} = (x - b_k) / (b_{k+1} - b_k),   where b_k ≤ x < b_{k+1}

    Bins that are denser near 0 resolve small values and still reach far. Values outside
    are clipped, with gradient 0. At a bin, the gradient is the derivative from the
    right; at the outermost bins, half that from the inside.

    Args:
        scalar: Values :math:`x`, shape `[...]`.
        bins: Two or more bins :math:`b`, finite and increasing, shape `[K]`.

    Returns:
        Probabilities, shape `[..., K]`.

    Raises:
        ArgumentError: If a shape, dtype or NumPy value is wrong.

    Example:
        >>> bins = jnp.array([-8.0, 0.0, 2.0, 8.0])
        >>> print(rlaxlib.transform_to_2hot_nonlinear(-6.0, bins))
        [0.75 0.25 0.   0.  ]

    References:
        Danijar Hafner and others, *Mastering Diverse Domains through World Models*,
        2023. https://arxiv.org/abs/2301.04104
    """
    check_number(bins)
    return two_hot(scalar, bins)


@checked
def transform_from_2hot_nonlinear(
    probs: Float[ArrayLike, "..., K in [0, 1]"],
    bins: Float[ArrayLike, "K increasing in (-inf, inf)"],
) -> Float[Array, "..."]:
    """Compute the mean of a distribution over bins of any spacing.

    Takes distributions, returns one value for each.

    ::

        x = ∑_k p_k b_k

    It inverts `transform_to_2hot_nonlinear`.

    Args:
        probs: Probabilities :math:`p`, in [0, 1], shape `[..., K]`.
        bins: Two or more bins :math:`b`, finite and increasing, shape `[K]`.

    Returns:
        Means :math:`x`, shape `[...]`.

    Raises:
        ArgumentError: If a shape, dtype or NumPy value is wrong.

    Example:
        >>> probs, bins = jnp.array([0.75, 0.25, 0.0]), jnp.array([-8.0, 0.0, 2.0])
        >>> print(rlaxlib.transform_from_2hot_nonlinear(probs, bins))
        -6.0

    References:
        Danijar Hafner and others, *Mastering Diverse Domains through World Models*,
        2023. https://arxiv.org/abs/2301.04104
    """
    check_number(bins)
    return mean(probs, bins)


def check_number(bins: ArrayLike) -> None:
    """Check that there are at least two bins."""
    if np.size(bins) < 2:
        checks.fail("`bins` has shape (1,), must have at least 2 entries")
