"""Logits of legal actions, in units of a temperature, for every softmax."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib._core import safe, streams

# The lowest float16 masks actions too. Its exponential is 0 already.
LOWEST_HALF = -65504.0

# A gap of this size marks an illegal action. Minus infinity would not do: `0 * inf` is
# NaN.
LOWEST = -1e30


def gaps(
    logits: Array, action_mask: Array | None = None, temperature: ArrayLike = 1.0
) -> tuple[Array, Array]:
    """Return the gaps of logits to the largest, and which actions are legal.

    An action is illegal if its mask is false, or its logit is minus infinity, the
    lowest float16 or, in units of the temperature, more than 1e30 below the largest:
    the lowest float of a dtype, the usual mask of networks, becomes infinite in later
    operations.

    A gap is a logit minus the largest, divided by the temperature. Those of illegal
    actions are finite, and have an exponential and a gradient of 0.
    """
    logits = masked(logits, action_mask)
    return gap(logits, largest(logits), temperature)


def masked(logits: Array, action_mask: Array | None) -> Array:
    """Return logits, minus infinity where a mask is false."""
    return jnp.where(streams.filled(action_mask, logits), logits, -jnp.inf)


def largest(logits: Array) -> Array:
    """Return the largest logit, 0 if none is legal, `[..., 1]`."""
    highest = jax.lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True))
    is_lowest = (highest < LOWEST) | (highest == LOWEST_HALF)
    return jnp.where(is_lowest, 0, highest)


def unless(weight: Array, logits: Array) -> Array:
    """Return logits, without a gradient if they are NaN and their softmax has weight 0.

    The weight has the shape `[]` or `[..., 1]`.
    """
    return safe.unless(weight, safe.largest(logits, -1)[..., None], logits)


def gap(logits: Array, highest: Array, temperature: ArrayLike) -> tuple[Array, Array]:
    """Return the gaps of any logits to the highest, and which are legal, as `gaps`.

    The highest is subtracted before the division by the temperature: a quotient of
    large values would round their differences away.
    """
    # The lowest float, divided by a higher temperature, would not be far below 0.
    temperature = safe.at_most(jnp.asarray(temperature), 1e36)
    # One array of the size of the logits less than a gap of 0 and a mask would take.
    floor = jax.lax.stop_gradient(2 * LOWEST * temperature)
    floor = safe.at_least(floor, float(jnp.finfo(logits.dtype).min))
    gap = logits - highest
    gap = jnp.where(gap <= floor, floor, gap) / temperature
    is_low = gap <= 0.5 * floor / temperature  # NaN stays legal.
    return gap, ~is_low & (logits != LOWEST_HALF) & (logits != -jnp.inf)


def legal(logits: Array, action_mask: Array | None = None) -> Array:
    """Return which actions are legal, as `gaps` does, `[..., A]`."""
    return gaps(logits, action_mask)[1]
