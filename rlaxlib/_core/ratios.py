"""Log-ratios of two policies, bounded so that no ratio overflows."""

from __future__ import annotations

import math
from typing import Any, cast

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib._core import gradients

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


def bounded_log_ratio(
    log_prob: Array, old_log_prob: Array, bound: ArrayLike = BOUND
) -> tuple[Array, Array]:
    """Return log-ratios in `[-bound, bound]`, and whether a bound is active.

    The square of a ratio stays far from infinite, whatever the bound: `inf * 0` is NaN.
    """
    x = log_ratio(log_prob, old_log_prob)
    bound = jnp.minimum(bound, math.log(cast(Any, jnp.finfo(x.dtype)).max) / 3)
    return gradients.clip(x, -bound, bound), jnp.abs(x) > bound


def k3(x: Array) -> Array:
    """Return `e^x - 1 - x`, an estimate of a KL divergence from log-ratios."""
    return jnp.expm1(x) - jnp.minimum(x, 1e30)  # Not the difference of infinities.
