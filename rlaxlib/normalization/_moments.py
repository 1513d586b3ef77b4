"""Move a mean and a variance towards those of new numbers, and keep their digits.

A variance taken as the mean square less the squared mean has no digits left where the
mean is large: at 10,000 deviations from zero, single precision gives 0. So everything
here is centred: a difference is taken first, and squared then.
"""

from __future__ import annotations

from typing import Any, cast

import jax
import jax.numpy as jnp
from jax import Array

from rlaxlib._core import dtypes


def numbers(x: Any) -> Any:
    """Return an array of whole numbers as one of floats, and all else as it is."""
    is_whole = hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jnp.integer)
    return jnp.asarray(x, float) if is_whole else x


def zeros(x: Array) -> Array:
    """Return zeros of the shape of an array, in the precision to average it in."""
    (x,), _ = dtypes.widen(x)
    return jnp.zeros_like(x)


def widest(tree: Any) -> Array:
    """Return a 0 of the highest precision that a leaf has, single at least."""
    start = jnp.zeros((), jnp.float32)
    leaf = max(cast(Any, jax.tree.leaves(tree)), key=_bits, default=start)
    return jnp.zeros_like(jnp.sum(leaf))


def _bits(x: Array) -> int:
    return cast(int, jnp.finfo(x.dtype).bits)


def scale(variance: Array, min_scale: Array) -> Array:
    """Return what to divide by: the deviation, or 1 where nothing has ever varied.

    Args:
        variance: Variance, of any shape.
        min_scale: Smallest deviation to divide by, shape `[]`.

    Returns:
        The scale, of the shape of the variance.
    """
    varied = variance > 0
    deviation = jnp.sqrt(jnp.where(varied, variance, jnp.ones_like(variance)))
    bounded = jnp.maximum(deviation, min_scale.astype(variance.dtype))
    return jnp.where(varied, bounded, jnp.ones_like(variance))


def mixed_variance(
    variance: Array, new: Array, difference: Array, weight: Array, kept: Array
) -> Array:
    """Return the variance of a mixture of two distributions.

    With a weight :math:`a` and a difference :math:`δ` of their means, it is :math:`(1 -
    a) σ² + a σ_new² + a (1 - a) δ²`.

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
