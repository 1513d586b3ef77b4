"""Products that are 0 where a weight is 0, sums of them, and square roots."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array


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
    """Return the square root, with a derivative of 0 at 0, where it is infinite."""
    is_zero = x == 0
    return jnp.where(is_zero, 0, jnp.sqrt(jnp.where(is_zero, 1, x)))


def _without(weight: Array, x: Array) -> Array:
    """Return `x`, and 0 where it is not finite and its weight is 0.

    Finite values stay, since they are the gradient of the weight.
    """
    return jnp.where((weight == 0) & ~jnp.isfinite(x), 0, x)
