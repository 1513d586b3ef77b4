"""Move a mean and a variance towards those of new numbers, and keep their digits.

A variance taken as the mean square less the squared mean has no digits left where the
mean is large: at 10,000 deviations from zero, single precision gives 0. So everything
here is centred: a difference is taken first, and squared then.
"""

from typing import Any

import jax.numpy as jnp
from jax import Array


def numbers(x: Any) -> Any:
    """Return an array of whole numbers as one of floats, and all else as it is."""
    is_whole = hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jnp.integer)
    return jnp.asarray(x, float) if is_whole else x


def mixed_variance(
    variance: Array, new: Array, difference: Array, weight: Array, kept: Array
) -> Array:
    r"""Return the variance of a mixture of two distributions.

    With a weight :math:`a` and a difference :math:`\delta` of their means, it is
    :math:`(1 - a) \sigma^2 + a \sigma_{\text{new}}^2 + a (1 - a) \delta^2`.

    Args:
        variance: Variance of the first, of any shape.
        new: Variance of the second, of the same shape.
        difference: Mean of the second less mean of the first, of the same shape.
        weight: Weight of the second, of the same shape or a scalar.
        kept: Weight of the first, 1 less the other, though that may round to 0.

    Returns:
        The variance, of the same shape.
    """
    between = kept * jnp.square(difference)
    # A small weight would vanish beside 1, and a large variance cover a small one: so
    # each form where it rounds least.
    moved = variance + weight * ((new - variance) + between)
    mixed = kept * variance + weight * (new + between)
    return jnp.where(weight < 0.5, moved, mixed)


def add(total: Array, rest: Array, x: Array) -> tuple[Array, Array]:
    """Add to a number that is kept in two parts, of twice the precision together.

    Args:
        total: The number, rounded.
        rest: What rounding took off it.
        x: What to add.

    Returns:
        The sum, in two such parts.
    """
    rounded = total + x
    added = rounded - total
    rest = rest + ((total - (rounded - added)) + (x - added))
    total = rounded + rest
    return total, rest - (total - rounded)
