"""Logits of legal actions, in units of a temperature, for every softmax."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib._core import safe, streams

# A gap this far below 0 marks an illegal action, as minus infinity does: half of it or
# ten times as much is no infinity, and `0 * inf` would be NaN.
LOWEST = -1e30


def gaps(
    logits: Array, action_mask: Array | None = None, temperature: ArrayLike = 1.0
) -> tuple[Array, Array]:
    """Return the gaps of logits to the largest, and which actions are legal.

    An action is illegal if its mask is false, or its logit is minus infinity or, in
    units of the temperature, more than 1e30 below the largest: the lowest float of a
    dtype, the usual mask of networks, becomes infinite in later operations.

    Args:
        logits: Logits, `[..., A]`.
        action_mask: True for legal actions, of a shape that broadcasts to that of the
            logits; or None.
        temperature: Temperature, `[]`.

    Returns:
        The logits minus the largest, divided by the temperature, so at most 0, and 0
        for illegal actions, `[..., A]`; and True for legal actions, `[..., A]`.
    """
    logits = jnp.where(streams.filled(action_mask, logits), logits, -jnp.inf)
    possible = logits != -jnp.inf
    largest = jax.lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True))
    gap = jnp.where(possible, logits - largest, 0)
    # After the division, which makes the lowest float infinite. NaN stays legal.
    legal = possible & ~(gap / temperature <= LOWEST)
    return jnp.where(legal, gap, 0) / temperature, legal


def legal(logits: Array, action_mask: Array | None = None) -> Array:
    """Return which actions are legal, as `gaps` does, `[..., A]`."""
    return gaps(logits, action_mask)[1]


def softmax(logits: Array, temperature: ArrayLike = 1.0) -> Array:
    """Return the softmax over the last axis, 0 if all logits are minus infinity.

    The largest logit is subtracted before the division by the temperature: a quotient
    of large values would round their differences away.
    """
    gap, possible = gaps(logits, temperature=temperature)
    weights = jnp.where(possible, jnp.exp(gap), 0)
    total = jnp.sum(weights, axis=-1, keepdims=True)
    return safe.divide(weights, total)
