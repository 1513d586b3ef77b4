"""Products, quotients, sums, roots and logarithms that are finite where they should be.

The plain expression has a value or a gradient of NaN at inputs that agents meet: a
weight of 0 times infinity, a quotient or a root of 0.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike


def product(weight: ArrayLike, x: Array) -> Array:
    """Return `weight * x`, which is 0 where the weight is 0, for any `x`.

    Infinite or NaN values count as 0 there, since `0 * inf` would be NaN. The gradient
    of a weight of 0 is `x`, or 0 where it is infinite or NaN.
    """
    return without(weight, x) * weight


def weighted(ratio: Array, x: Array) -> Array:
    """Return `ratio * x` as `product` does, but a ratio of 0 has a gradient of 0.

    The exponential of a log-ratio of minus infinity has a derivative of 0 anyway. It
    uses `x` once, where XLA would compute it twice in each of several products.
    """
    return ratio * jnp.where(ratio == 0, 0, x)


def divide(x: ArrayLike, y: Array, otherwise: ArrayLike = 0.0) -> Array:
    """Return `x / y`, and `otherwise` with a gradient of 0 where `y` is 0."""
    is_zero = y == 0
    return jnp.where(is_zero, otherwise, x / jnp.where(is_zero, 1, y))


def asymmetric(u: Array, tau: ArrayLike, loss: Callable[[Array], Array]) -> Array:
    """Return `|tau - 1{u < 0}| loss(u)`, 0 where the weight is 0, for any `u`.

    The errors are targets minus predictions. The loss of an error is its square for
    expectiles, and its magnitude for quantiles.
    """
    weight = with_nan(jnp.where(u < 0, 1 - tau, tau), u)
    return weight * loss(without(weight, u))


def expectation(probs: Array, x: Array, axis: int = -1) -> Array:
    """Return `∑_i p_i x_i` over an axis; a probability of 0 adds nothing."""
    return dot(probs, without(probs, x), axis)


def dot(x: Array, y: Array, axis: int = -1) -> Array:
    """Return `∑_i x_i y_i` over an axis, of arrays that broadcast.

    On a CPU, XLA of jaxlib 0.10.2 computes `-jnp.sum(x * y, -1)` wrongly if a large
    batch shares one factor; other versions from 0.7.0 to 0.12.0.1 are right.
    `tests/shared_product.py` is the smallest program. A `jnp.vecdot` is right
    too, but does not run over all shardings of a mesh of explicit axes.
    """
    terms = x * y
    info = jnp.finfo(terms.dtype)
    # It changes no value, but keeps XLA from fusing the product with the sum.
    terms = jax.lax.reduce_precision(terms, info.nexp, info.nmant)
    return jnp.sum(terms, axis)


def absolute(x: Array) -> Array:
    """Return the magnitude, with a derivative of 0 at 0, where that of JAX is 1.

    By that, equal samples would all move in one direction.
    """
    return jnp.where(x == 0, 0, jnp.abs(x))


def sqrt(x: Array) -> Array:
    """Return the square root, with a derivative of 0 at 0, where it is infinite."""
    is_zero = x == 0
    return jnp.where(is_zero, 0, jnp.sqrt(jnp.where(is_zero, 1, x)))


def norm(x: Array) -> Array:
    """Return the Euclidean norms of vectors `[..., D]`, with a gradient of 0 at 0."""
    return polar(x)[0][..., 0]


def polar(x: Array) -> tuple[Array, Array]:
    """Return norms `[..., 1]` and directions of vectors `[..., D]`.

    Both and their gradients are 0 at 0. The squares of small or large entries
    themselves would underflow or overflow.
    """
    largest = jax.lax.stop_gradient(jnp.max(jnp.abs(x), axis=-1, keepdims=True))
    scale = jnp.where((largest > 0) & (largest < jnp.inf), largest, 1)
    x = x / scale
    length = sqrt(jnp.sum(jnp.square(x), axis=-1, keepdims=True))
    return scale * length, divide(x, length)


def expm1(x: Array) -> Array:
    """Return `exp(x) - 1`, for `x` up to 88, with the derivative `exp(x)`.

    JAX computes the derivative as `expm1(x) + 1`, which rounds a small one to 0.
    """
    exp = jnp.exp(x)
    stop = jax.lax.stop_gradient
    return stop(jnp.expm1(x)) + (exp - stop(exp))


def log(x: Array, otherwise: ArrayLike = -jnp.inf) -> Array:
    """Return `log(x)`, and `otherwise` where `x` is 0, with a derivative of 0 there."""
    is_zero = x == 0
    return jnp.where(is_zero, otherwise, jnp.log(jnp.where(is_zero, 1, x)))


def relu(x: Array) -> Array:
    """Return the positive part, NaN where `x` is, with a gradient of 0 at 0.

    Fused with a sum, `jax.nn.relu` hides NaN as `jnp.max` does: see `largest`.
    """
    return jnp.where(x <= 0, 0, x)


def at_most(x: Array, bound: ArrayLike) -> Array:
    """Return the minimum of `x` and a bound, NaN where one is.

    Fused with a sum, `jnp.minimum` hides NaN as `jnp.max` does: see `largest`. At the
    bound, the gradient is that of `x`.
    """
    return jnp.where((x <= bound) | jnp.isnan(x), x, bound)


def at_least(x: Array, bound: ArrayLike) -> Array:
    """Return the maximum of `x` and a bound, as `at_most`."""
    return jnp.where((x >= bound) | jnp.isnan(x), x, bound)


def clip(x: Array, low: ArrayLike, high: ArrayLike) -> Array:
    """Return `x` within bounds, as `at_most`.

    At a bound `jnp.clip` halves the gradient, and values meet their bounds often: they
    were clipped before, or both are coarse.
    """
    return at_most(at_least(x, low), high)


def largest(x: Array, axis: int | None = None) -> Array:
    """Return the maximum over an axis, or over all, NaN if an entry is NaN.

    On a CPU, XLA of jaxlib 0.10.2 to 0.12.0.1 ignores NaN among a few thousand entries.
    """
    return jnp.where(jnp.any(jnp.isnan(x), axis), jnp.nan, jnp.max(x, axis))


def smallest(x: Array, axis: int | None = None) -> Array:
    """Return the minimum as `largest` does the maximum."""
    return jnp.where(jnp.any(jnp.isnan(x), axis), jnp.nan, jnp.min(x, axis))


def with_nan(x: Array, *causes: ArrayLike) -> Array:
    """Return a result of comparisons, NaN where a value that was compared is NaN.

    A comparison with NaN is false, and `argmax` and `sort` rank NaN highest.
    """
    for cause in causes:
        x = jnp.where(jnp.isnan(cause), jnp.nan, x)
    return x


def unless(weight: ArrayLike, peak: Array, x: Array) -> Array:
    """Return `x`, without a gradient where its weight is 0 and its peak not finite.

    It is for what has a weight only after a function that is not linear: its derivative
    at NaN, times 0, would be NaN.
    """
    is_bad = (weight == 0) & ~jnp.isfinite(peak)
    return jnp.where(is_bad, jax.lax.stop_gradient(x), x)


def without(weight: ArrayLike, x: Array) -> Array:
    """Return `x`, and 0 where it is infinite or NaN and its weight is 0.

    Finite values stay, since they are the gradient of the weight.
    """
    return jnp.where((weight == 0) & ~jnp.isfinite(x), 0, x)
