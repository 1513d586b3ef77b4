"""Logits of legal actions, in units of a temperature, for every softmax."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib._core import safe

ILLEGAL = -5e8  # Networks mask with -1e9, with minus infinity,
LOWEST_HALF = -65504.0  # or with the lowest float, here that of float16.


def legal(logits: Array, action_mask: Array | None = None) -> Array:
    """Return which actions are legal, `[..., A]`: NaN is."""
    legal = ~((logits < ILLEGAL) | (logits == LOWEST_HALF))
    if action_mask is None:
        return legal
    return legal & jnp.broadcast_to(action_mask, legal.shape)


def gaps(
    logits: Array, action_mask: Array | None = None, temperature: ArrayLike = 1.0
) -> tuple[Array, Array, Array]:
    """Return the logits minus the largest, divided by the temperature.

    The gaps of illegal actions are finite, and have an exponential of 0.

    Returns:
        The gaps `[..., A]`; the largest logit `[..., 1]`, or half the floor if no
        action is legal; and which actions are legal, `[..., A]`.
    """
    is_legal = legal(logits, action_mask)
    logits = jnp.where(is_legal, logits, safe.FLOOR)
    largest = jax.lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True))
    largest = jnp.maximum(largest, 0.5 * safe.FLOOR)
    return (logits - largest) / temperature, largest, is_legal
