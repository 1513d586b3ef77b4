"""Ratios of two policies, bounded so that none overflows."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from rlaxlib._core import safe

# A ratio of 2e17 is beyond any use; its square is finite: `0 * inf` is NaN.
BOUND = 40.0


def log_ratio(log_prob: Array, old_log_prob: Array) -> Array:
    """Return the difference of log-probabilities, which may be minus infinity."""
    return safe.floored(log_prob) - safe.floored(old_log_prob)


def ratio(log_ratio: Array) -> Array:
    """Return the exponential, at most `e^BOUND`, without a gradient beyond."""
    return jnp.exp(jnp.minimum(log_ratio, BOUND))


def k3(x: Array) -> Array:
    """Return `e^x - 1 - x`, an estimate of a KL divergence from log-ratios.

    The difference would lose 3e-4 at a log-ratio of 1e-3.
    """
    x = jnp.minimum(x, BOUND)
    near = jnp.abs(x) < 0.02
    small = jnp.where(near, x, 0)
    series = small * small * (0.5 + small / 6 + small * small / 24)
    return jnp.where(near, series, jnp.expm1(x) - x)
