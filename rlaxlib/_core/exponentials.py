"""Exponentials, to the last digit where they are near 1."""

from __future__ import annotations

import math

import jax.numpy as jnp
from jax import Array


def excess(x: Array) -> Array:
    """Return :math:`e^x - 1 - x`, by its series where `x` is small."""
    small = jnp.abs(x) < 1
    series = small_excess(jnp.where(small, x, jnp.zeros_like(x)))
    return jnp.where(small, series, jnp.exp(x) - 1 - x)


def small_excess(x: Array) -> Array:
    """Return :math:`e^x - 1 - x` by its series, for `x` between -1 and 1."""
    terms = 10 if jnp.finfo(x.dtype).bits <= 32 else 16
    series = jnp.full_like(x, 1 / math.factorial(terms + 1))
    for n in range(terms, 1, -1):
        series = 1 / math.factorial(n) + series * x
    return jnp.square(x) * series
