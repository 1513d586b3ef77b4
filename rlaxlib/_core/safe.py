"""Sums, quotients, roots and logarithms that are finite where they should be.

The plain expression has a value or a gradient of NaN at inputs that agents meet: a
probability of 0 beside a value of minus infinity, a quotient or a root of 0.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

# Minus infinity is raised to it, once: `0 * inf` is NaN. Its square is finite.
FLOOR = -1e15


def floored(x: Array) -> Array:
    """Return logits, log-probabilities or values, with minus infinity made finite."""
    return jnp.where(x < FLOOR, FLOOR, x)  # A maximum has a longer derivative.


def divide(x: ArrayLike, y: Array, otherwise: ArrayLike = 0.0) -> Array:
    """Return `x / y`, and `otherwise` with a gradient of 0 where `y` is 0."""
    is_zero = y == 0
    return jnp.where(is_zero, otherwise, x / jnp.where(is_zero, 1, y))


def expectation(probs: Array, x: Array, axis: int = -1) -> Array:
    """Return `∑_i p_i x_i` over an axis; `0 * -inf` adds nothing."""
    return dot(probs, floored(x), axis)


def dot(x: Array, y: Array, axis: int = -1) -> Array:
    """Return `∑_i x_i y_i` over an axis, of arrays that broadcast."""
    return jnp.sum(unfused(x * y), axis)


def unfused(products: Array) -> Array:
    """Return products that XLA does not fuse with the sum over them.

    On a CPU, XLA of jaxlib 0.10.2 computes `-jnp.sum(x * y, -1)` wrongly if a large
    batch shares one factor; other versions from 0.7.0 to 0.12.0.1 are right.
    `tests/shared_product.py` is the smallest program. A `jnp.vecdot` is right
    too, but does not run over all shardings of a mesh of explicit axes.
    """
    info = jnp.finfo(products.dtype)
    return jax.lax.reduce_precision(products, info.nexp, info.nmant)


def sqrt(x: Array) -> Array:
    """Return the square root, with a derivative of 0 at 0, where it is infinite."""
    is_zero = x == 0
    return jnp.where(is_zero, 0, jnp.sqrt(jnp.where(is_zero, 1, x)))


def norm(x: Array) -> Array:
    """Return the Euclidean norms of vectors `[..., D]`, with a gradient of 0 at 0."""
    return sqrt(jnp.sum(jnp.square(x), axis=-1))


def direction(x: Array) -> Array:
    """Return the directions of vectors `[..., D]`, with a gradient of 0 at 0."""
    return divide(x, norm(x)[..., None])


def log(x: Array, otherwise: ArrayLike = -jnp.inf) -> Array:
    """Return `log(x)`, and `otherwise` where `x` is 0, with a derivative of 0 there."""
    is_zero = x == 0
    return jnp.where(is_zero, otherwise, jnp.log(jnp.where(is_zero, 1, x)))
