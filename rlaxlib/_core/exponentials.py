"""Exponentials and what is made of them, to the last digit."""

from __future__ import annotations

import math
from typing import Any, cast

import jax.numpy as jnp
from jax import Array

from rlaxlib._core import derivatives


def excess(x: Array) -> Array:
    """Return :math:`e^x - 1 - x`, by its series where `x` is small."""
    small = jnp.abs(x) < 1
    series = small_excess(jnp.where(small, x, jnp.zeros_like(x)))
    return jnp.where(small, series, jnp.exp(x) - 1 - x)


def small_excess(x: Array, most: float = 1.0) -> Array:
    """Return :math:`e^x - 1 - x` by its series, for `x` of a size up to `most`."""
    terms, eps = 1, float(cast(Any, jnp.finfo(x.dtype).eps))
    while 2 * most**terms / math.factorial(terms + 2) > eps / 8:
        terms += 1
    series = jnp.full_like(x, 1 / math.factorial(terms + 1))
    for n in range(terms, 1, -1):
        series = 1 / math.factorial(n) + series * x
    return jnp.square(x) * series


def _less_one_change(change: Array, y: Array, x: Array) -> Array:
    del y
    return change * jnp.exp(x)


@derivatives.derived_by(_less_one_change)
def less_one(x: Array) -> Array:
    """Return :math:`e^x - 1`, without a branch: a CPU computes it in vectors."""
    return jnp.tanh(0.5 * x) * (jnp.exp(x) + 1)


def sigmoid_slope(x: Array) -> Array:
    """Return the derivative of the logistic function, however flat it is."""
    small = jnp.exp(-jnp.abs(x))
    return small / jnp.square(1 + small)
