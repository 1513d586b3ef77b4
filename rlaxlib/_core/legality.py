"""Logits of legal actions, in units of a temperature, for every softmax."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib._core import safe

ILLEGAL = -5e8  # Networks mask with -1e9, with minus infinity,
LOWEST_HALF = -65504.0  # or with the lowest float, here that of float16.


def masked(logits: Array, action_mask: Array | None) -> Array:
    """Return logits, minus infinity where a mask, if there is one, is false."""
    if action_mask is None:
        return logits
    return jnp.where(jnp.broadcast_to(action_mask, logits.shape), logits, -jnp.inf)


def legal(logits: Array, action_mask: Array | None = None) -> Array:
    """Return which actions are legal, `[..., A]`: NaN is."""
    logits = masked(logits, action_mask)
    return ~((logits < ILLEGAL) | (logits == LOWEST_HALF))


def largest(logits: Array) -> Array:
    """Return the largest logit, 0 if no action is legal, `[..., 1]`."""
    highest = jax.lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True))
    return jnp.where(legal(highest), highest, 0)


def gaps(logits: Array, highest: Array, temperature: ArrayLike) -> Array:
    """Return logits minus the highest one, divided by the temperature.

    Those of illegal actions are finite, and have an exponential of 0.
    """
    logits = jnp.where(logits < ILLEGAL, safe.FLOOR, logits)
    return (logits - highest) / temperature
