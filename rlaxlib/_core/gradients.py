"""Errors, and gradients that a flag stops."""

from __future__ import annotations

from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib._core import streams

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


def error(target: Array, prediction: Array, stop: ArrayLike) -> Array:
    """Return `target - prediction`, with the target's gradient stopped or not."""
    return stop_if(stop, target) - prediction


def td_error(
    v_tm1: Array, r_t: Array, discount_t: Array, v_t: Array, stop: ArrayLike = False
) -> Array:
    """Return the TD error `r_t + (discount_t * v_t - v_tm1)`.

    The reward is added last: beside a large value it would lose precision.
    """
    r_t, bootstrap = stop_if(stop, (r_t, streams.bootstrap(discount_t, v_t)))
    return r_t + (bootstrap - v_tm1)


def correction(difference: Array, prediction: Array, stop: ArrayLike) -> Array:
    """Return `error` of a target that is given by its difference to the prediction.

    Adding the prediction and subtracting it again would round the difference.
    """
    zero = jax.lax.stop_gradient(prediction) - prediction
    stopped = jax.lax.stop_gradient(difference) + zero
    if isinstance(stop, bool):
        return stopped if stop else difference
    return jnp.where(stop, stopped, difference)
