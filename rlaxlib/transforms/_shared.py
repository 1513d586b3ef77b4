"""What the chapters of transforms share: bins, their means, two-hot encoding."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from rlaxlib._core import safe
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Float, Shaped


def equal_bins(low: ArrayLike, high: ArrayLike, num_bins: int) -> Any:
    """Return evenly spaced bins, `[num_bins]`, in NumPy if the bounds are concrete.

    Within a program, bins may round differently at each use, which makes probabilities
    negative. If the bounds are symmetric, so are the bins.
    """
    weight = np.linspace(0, 1, num_bins)
    if not isinstance(low, Tracer) and not isinstance(high, Tracer):
        return np.float64(low) * weight[::-1] + np.float64(high) * weight
    low, high = jnp.asarray(low), jnp.asarray(high)
    place = jnp.asarray(weight - weight[::-1], jnp.result_type(low, high))
    # A fused multiply-add of `low` and `high` would not be symmetric.
    return (low / 2 + high / 2) + (high / 2 - low / 2) * place


@checked
def encode(
    x: Float[ArrayLike, "..."], bins: Shaped[ArrayLike, "K"]
) -> Float[Array, "..., K"]:
    """Return the two-hot distributions of values over bins of any dtype."""
    return two_hot(x, bins.astype(x.dtype))


@checked
def decode(
    probs: Float[ArrayLike, "..., K"], bins: Shaped[ArrayLike, "K"]
) -> Float[Array, "..."]:
    """Return the means of distributions over bins of any dtype."""
    return mean(probs, bins.astype(probs.dtype))


def mean(probs: Array, bins: Array) -> Array:
    """Return the mean of bins of shape `[K]` under probabilities `[..., K]`."""
    # Symmetric probabilities of symmetric bins then have a mean of 0: large bins would
    # leave a rounding error.
    half = 0.5 * (bins == -bins[::-1]).astype(probs.dtype)
    half, bins = (jnp.broadcast_to(x, probs.shape) for x in (half, bins))
    return safe.dot(probs - half * (probs + probs[..., ::-1]), bins)


def two_hot(x: Array, b: Array) -> Array:
    """Return the two-hot distributions of values, `[..., K]`, over bins `[K]`."""
    x = jnp.clip(x, b[0], b[-1])[..., None]
    low, high = (
        jnp.broadcast_to(each, (*x.shape[:-1], b.size - 1)) for each in (b[:-1], b[1:])
    )
    start, end = low.at[..., 0].set(-jnp.inf), high.at[..., -1].set(jnp.inf)
    outside = (x < start) | (x >= end)
    lower = jnp.where(outside, 0, (high - x) / (high - low))
    upper = jnp.where(outside, 0, (x - low) / (high - low))
    none = jnp.zeros_like(x)
    return jnp.append(lower, none, axis=-1) + jnp.append(none, upper, axis=-1)


def number(x: Any) -> Any:
    """Return a concrete scalar as a Python number, which can be hashed."""
    return x if isinstance(x, Tracer) else float(x)


def beyond(x: Array, low: ArrayLike, high: ArrayLike) -> Array:
    """Return which values are outside a range, rounded to their dtype, or NaN."""
    low, high = (jnp.asarray(bound, x.dtype) for bound in (low, high))
    return ~((x >= low) & (x <= high))
