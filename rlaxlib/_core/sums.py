"""Sum over the last axis, by products that a CPU computes in vectors."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array


def over_last(x: Array) -> Array:
    """Return the sum over the last axis.

    A compiler for CPUs computes what is summed inside the sum, one number at a time.
    A product with ones it leaves apart, so that the summands are computed in vectors:
    a divergence of Gaussians takes half the time.

    Args:
        x: Summands, `[..., D]`.

    Returns:
        Sums, `[...]`.
    """
    return jnp.dot(x, jnp.ones_like(x, shape=x.shape[-1:]), precision=_EXACT)


def mean_over_last(x: Array) -> Array:
    """Return the mean over the last axis, `[..., D]` to `[...]`, by such a sum."""
    return over_last(x) / x.shape[-1]


_EXACT = jax.lax.Precision.HIGHEST
