"""Products that are 0 where a weight is 0, and sums of them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike


@jax.custom_jvp
def product(weight: ArrayLike, x: Array) -> Array:
    """Return `weight * x`, which is 0 where the weight is 0, whatever `x` is.

    Args:
        weight: Weights such as a coefficient, a mask of floats or a discount.
        x: Values, of a shape that broadcasts with that of the weights. Infinite or NaN
            ones count as 0 where the weight is 0, since `0 * inf` would be NaN.

    Returns:
        The product. The gradient of a weight of 0 is `x`, or 0 where it is infinite or
        NaN.
    """
    # `weight * without(weight, x)` has this gradient, but uses `x` twice: XLA computes
    # it twice, and four times in a product of products, which took 8 times the time.
    return jnp.where(weight == 0, 0, x * weight)


@product.defjvp
def _product_jvp(
    primals: tuple[Array, Array], tangents: tuple[Array, Array]
) -> tuple[Array, Array]:
    """Return the product, and the derivative of `weight * without(weight, x)`."""
    (weight, x), (weight_dot, x_dot) = primals, tangents
    x_dot = jnp.where(_is_unused(weight, x), 0, x_dot)
    return product(weight, x), without(weight, x) * weight_dot + x_dot * weight


def expectation(probs: Array, x: Array, axis: int = -1) -> Array:
    """Return `∑_i p_i x_i` over an axis; a probability of 0 adds nothing.

    Args:
        probs: Probabilities or weights.
        x: Values. Infinite or NaN ones count as 0 at a probability of 0. Only other
            axes broadcast.
        axis: Axis to sum over.

    Returns:
        The sums, without that axis.
    """
    return dot(probs, without(probs, x), axis)


def dot(x: Array, y: Array, axis: int = -1) -> Array:
    """Return `∑_i x_i y_i` over an axis.

    On a CPU, XLA of jaxlib 0.10.2 computes `-jnp.sum(x * y, -1)` wrongly if a large
    batch shares one of the two: `tests/shared_product.py` is the smallest program.
    Right are jaxlib 0.7.0, 0.9.2, 0.10.0, 0.10.1, 0.11.0 and 0.12.0.1, and this product
    of vectors.

    Args:
        x: An array.
        y: An array. Only other axes broadcast.
        axis: Axis to sum over.

    Returns:
        The sums, without that axis.
    """
    return jnp.vecdot(x, y, axis=axis, precision="highest")


def without(weight: ArrayLike, x: Array) -> Array:
    """Return `x`, and 0 where it is infinite or NaN and its weight is 0.

    Finite values stay, since they are the gradient of the weight.
    """
    return jnp.where(_is_unused(weight, x), 0, x)


def _is_unused(weight: ArrayLike, x: Array) -> Array:
    return (weight == 0) & ~jnp.isfinite(x)
