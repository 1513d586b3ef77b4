"""Errors with stopped gradients, and clipping with whole ones."""

from __future__ import annotations

from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib._core import safe

T = TypeVar("T")


def stop_if(condition: ArrayLike, x: T) -> T:
    """Return an array, or several, with the gradient stopped if a bool is true.

    The bool may be traced.
    """
    if isinstance(condition, bool):
        return jax.lax.stop_gradient(x) if condition else x

    def choose(x: Array) -> Array:
        return jnp.where(condition, jax.lax.stop_gradient(x), x)

    return jax.tree.map(choose, x)


def clip(x: Array, low: ArrayLike, high: ArrayLike) -> Array:
    """Clip an array, with the whole gradient at the bounds.

    `jnp.clip` halves the gradient there, and values meet their bounds often: they were
    clipped before, or both are coarse.
    """
    clipped = jnp.where(x > high, high, jnp.where(x < low, low, x))
    return safe.with_nan(clipped, low, high)


def error(target: Array, prediction: Array, stop: ArrayLike) -> Array:
    """Return `target - prediction`, with the target's gradient stopped or not."""
    return stop_if(stop, target) - prediction


def td_error(
    v_tm1: Array,
    r_t: Array,
    discount_t: ArrayLike,
    v_t: Array,
    stop: ArrayLike = False,
) -> Array:
    """Return the TD error `r_t + (discount_t * v_t - v_tm1)`.

    The reward is added last: beside a large value it would lose precision. At a
    discount of 0, `v_t` has no effect, even if it is infinite or NaN.

    Args:
        v_tm1: Predicted value, of any shape.
        r_t: Reward, of the same shape.
        discount_t: Discount, of the same shape or a scalar.
        v_t: Value to bootstrap from, of the same shape.
        stop: Whether to stop the gradient of the target.

    Returns:
        The error.
    """
    r_t, bootstrap = stop_if(stop, (r_t, safe.product(discount_t, v_t)))
    return r_t + (bootstrap - v_tm1)


def correction(difference: Array, prediction: Array, stop: ArrayLike) -> Array:
    """Return an error, with the gradient of its target stopped or not.

    Adding the prediction and subtracting it again would round the error to the
    precision of the prediction. Here the value stays exact.

    Args:
        difference: A target minus its prediction, of any shape.
        prediction: The prediction, of the same shape.
        stop: Whether to stop the gradient of the target.

    Returns:
        The error. If `stop`, it has the gradient of the negated prediction.
    """
    zero = jax.lax.stop_gradient(prediction) - prediction
    zero = jnp.where(jnp.isfinite(prediction), zero, 0)  # Infinity minus itself is NaN.
    stopped = jax.lax.stop_gradient(difference) + zero
    if isinstance(stop, bool):
        return stopped if stop else difference
    return jnp.where(stop, stopped, difference)
