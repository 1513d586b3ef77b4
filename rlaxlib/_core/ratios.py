"""Log-ratios of two policies, bounded so that no ratio overflows."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from rlaxlib._core import safe

BOUND = 20.0  # A ratio of 5e8 is beyond any use; its products stay finite.


def log_ratio(log_prob: Array, old_log_prob: Array) -> Array:
    """Return `log_prob - old_log_prob`, 0 where both are the same infinity.

    An action that is impossible under both policies has a ratio of 1.
    """
    impossible = jnp.isinf(log_prob) & (log_prob == old_log_prob)
    return jnp.where(impossible, 0, log_prob - old_log_prob)


def below(x: Array) -> Array:
    """Return log-ratios of at most `BOUND`, without a gradient beyond.

    A ratio stays 0 where the policy rules out an action.
    """
    return jnp.where(x > BOUND, BOUND, x)


def bounded_log_ratio(log_prob: Array, old_log_prob: Array) -> tuple[Array, Array]:
    """Return log-ratios in `[-BOUND, BOUND]`, and whether a bound is active.

    The square of a ratio stays far from infinite: `inf * 0` is NaN.
    """
    x = log_ratio(log_prob, old_log_prob)
    return safe.clip(x, -BOUND, BOUND), jnp.abs(x) > BOUND


def k3(x: Array) -> Array:
    """Return `e^x - 1 - x`, an estimate of a KL divergence from log-ratios.

    The difference would lose 3e-4 at a log-ratio of 1e-3, as between a sampler and a
    learner, and its gradient 1e-3 at 1e-5.
    """
    near = jnp.abs(x) < 0.02
    small = jnp.where(near, x, 0)
    series = jnp.ones_like(x)
    for n in range(7, 2, -1):
        series = 1 + small / n * series
    far = jnp.expm1(x) - jnp.minimum(x, 1e30)  # Not the difference of infinities.
    return jnp.where(near, 0.5 * small * small * series, far)
