"""Products that are 0 where a weight is 0, sums of them, roots, and what shows NaN."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike


def product(weight: Array, x: Array) -> Array:
    """Return `weight * x`, which is 0 where the weight is 0, whatever `x` is.

    Args:
        weight: Weights such as a coefficient, a mask of floats or a discount.
        x: Values, of a shape that broadcasts with that of the weights. Infinite or NaN
            ones count as 0 where the weight is 0, since `0 * inf` would be NaN.

    Returns:
        The product.
    """
    return weight * _without(weight, x)


def expectation(probs: Array, x: Array) -> Array:
    """Return `∑_i p_i x_i` over the last axis; a probability of 0 adds nothing.

    On a CPU, XLA of jaxlib 0.10.2 computes `jnp.sum(probs * x, -1)` wrongly if a large
    batch shares one factor, but not this product of vectors.

    Args:
        probs: Probabilities or weights, `[..., N]`.
        x: Values, `[..., N]`. Infinite or NaN ones count as 0 at a probability of 0.

    Returns:
        The sums, `[...]`.
    """
    return jnp.vecdot(probs, _without(probs, x), precision="highest")


def sqrt(x: Array) -> Array:
    """Return the square root, whose derivative at 0 is 0 and not infinite."""
    is_zero = x == 0
    return jnp.where(is_zero, 0, jnp.sqrt(jnp.where(is_zero, 1, x)))


def relu(x: Array) -> Array:
    """Return the positive part, NaN where `x` is, with a gradient of 0 at 0.

    Fused with a sum, `jax.nn.relu` hides NaN as `jnp.max` does: see `largest`.
    """
    return jnp.where(x <= 0, 0, x)


def largest(x: Array, axis: int | None = None) -> Array:
    """Return the maximum, NaN if an entry is NaN.

    On a CPU, XLA of jaxlib 0.10.2 ignores NaN in a maximum of a few thousand entries.

    Args:
        x: Values, of any shape.
        axis: Axis to reduce, or None for all.

    Returns:
        The maximum, without the reduced axes.
    """
    return jnp.where(jnp.any(jnp.isnan(x), axis), jnp.nan, jnp.max(x, axis))


def smallest(x: Array, axis: int | None = None) -> Array:
    """Return the minimum, NaN if an entry is NaN; as `largest`."""
    return jnp.where(jnp.any(jnp.isnan(x), axis), jnp.nan, jnp.min(x, axis))


def with_nan(x: Array, *causes: ArrayLike) -> Array:
    """Return a result of comparisons, which is NaN where a compared value is NaN.

    A comparison with NaN is false, and `argmax` and `sort` rank NaN highest.

    Args:
        x: The result, of any shape.
        *causes: Values that were compared, of shapes that broadcast to that of `x`.

    Returns:
        The result.
    """
    for cause in causes:
        x = jnp.where(jnp.isnan(cause), jnp.nan, x)
    return x


def _without(weight: Array, x: Array) -> Array:
    """Return `x`, and 0 where it is not finite and its weight is 0.

    Finite values stay, since they are the gradient of the weight.
    """
    return jnp.where((weight == 0) & ~jnp.isfinite(x), 0, x)
