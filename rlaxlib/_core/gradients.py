"""Stopped and clipped gradients."""

from __future__ import annotations

from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from rlaxlib._core import safe


def stop_if(condition: ArrayLike, x: Array) -> Array:
    """Return `x`, with its gradient stopped if `condition` is true.

    Args:
        condition: A Python bool, or a traced bool of shape `[]`.
        x: Any array.

    Returns:
        An array equal to `x`.
    """
    if isinstance(condition, bool | np.bool_):
        return jax.lax.stop_gradient(x) if condition else x
    return jnp.where(condition, jax.lax.stop_gradient(x), x)


def stop_each(condition: ArrayLike, *arrays: Array) -> tuple[Array, ...]:
    """Return arrays with their gradients stopped if `condition` is true."""
    return tuple(stop_if(condition, x) for x in arrays)


def clip(x: Array, low: ArrayLike, high: ArrayLike) -> Array:
    """Clip an array, with the whole gradient at the bounds.

    `jnp.clip` halves the gradient there, and values meet their bounds often: they were
    clipped before, or both are coarse.

    Args:
        x: Any array.
        low: Lower bound, of a shape that broadcasts to that of `x`.
        high: Upper bound, likewise.

    Returns:
        The clipped array. The gradient of `x` is 0 beyond the bounds only.
    """
    clipped = jnp.where(x > high, high, jnp.where(x < low, low, x))
    return safe.with_nan(clipped, low, high)


def error(target: Array, prediction: Array, stop: ArrayLike) -> Array:
    """Return the error of a prediction, with the target's gradient stopped or not.

    Args:
        target: The target, of any shape.
        prediction: The prediction, of the same shape.
        stop: Whether to stop the gradient of the target.

    Returns:
        The target minus the prediction.
    """
    return stop_if(stop, target) - prediction


def td_error(
    v_tm1: Array,
    r_t: Array,
    discount_t: ArrayLike,
    v_t: Array,
    stop: ArrayLike = False,
) -> Array:
    """Return the TD error `r_t + (discount_t * v_t - v_tm1)`.

    The reward is added last: beside a large value it would lose precision.

    Args:
        v_tm1: Predicted value, of any shape.
        r_t: Reward, of the same shape.
        discount_t: Discount, of the same shape or a scalar. Where it is 0, `v_t` has no
            effect, even if it is infinite or NaN.
        v_t: Value to bootstrap from, of the same shape.
        stop: Whether to stop the gradient of the target.

    Returns:
        The error.
    """
    r_t, bootstrap = stop_each(stop, r_t, safe.product(discount_t, v_t))
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
    if isinstance(stop, bool | np.bool_):
        return stopped if stop else difference
    return jnp.where(stop, stopped, difference)


def clip_cotangent(x: Array, low: Array, high: Array) -> Array:
    """Return `x`, with its gradient clipped in the backward pass.

    Args:
        x: Any array.
        low: Lower bound of the gradient, of a shape that broadcasts to that of `x`.
        high: Upper bound of the gradient, likewise.

    Returns:
        An array equal to `x`.
    """
    low, high = low.astype(x.dtype), high.astype(x.dtype)
    return cast(Array, _clip_cotangent(x, low, high))


@jax.custom_vjp
def _clip_cotangent(x: Array, low: Array, high: Array) -> Array:
    del low, high
    return x


def _clip_cotangent_fwd(x: Array, low: Array, high: Array) -> Any:
    return x, (low, high)


def _clip_cotangent_bwd(bounds: tuple[Array, Array], cotangent: Array) -> Any:
    return jnp.clip(cotangent, *bounds), None, None


_clip_cotangent.defvjp(_clip_cotangent_fwd, _clip_cotangent_bwd)
