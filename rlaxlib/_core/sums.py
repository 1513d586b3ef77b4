"""Sums and moments of very many terms, with their rounding errors carried on."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
from jax import Array

from rlaxlib._core import safe


def add(total: Array, rest: Array, x: Array) -> tuple[Array, Array]:
    """Add `x` to a sum of which `rest` is the rounding error so far.

    Single precision alone rounds away every term of less than 6e-8 of the sum, which
    after millions of terms are all of them.

    Returns:
        The next sum, and its rounding error: the exact sum minus the rounded one.
    """
    rounded = total + x
    added = rounded - total
    rest = rest + ((total - (rounded - added)) + (x - added))
    total = rounded + rest
    return total, rest - (total - rounded)


def merge(
    one: Sequence[Array], other: Sequence[Array], weight: Array
) -> tuple[Array, ...]:
    """Return the moments of two samples together.

    Args:
        one: Mean and variance of the first, and their rounding errors.
        other: The same of the second.
        weight: Share of the second in the number of entries.

    Returns:
        Mean and variance, and their rounding errors.
    """
    mean, variance, mean_rest, variance_rest = one
    a = weight.astype(mean.dtype)
    d_mean, d_variance, d_mean_rest, d_variance_rest = (
        y - x for x, y in zip(one, other, strict=True)
    )
    step = variance_step(d_variance, d_mean + d_mean_rest, a)
    mean, mean_rest = add(mean, mean_rest + a * d_mean_rest, a * d_mean)
    variance, variance_rest = add(variance, variance_rest + a * d_variance_rest, step)
    return mean, variance, mean_rest, variance_rest


def variance_step(growth: Array, difference: Array, weight: Array) -> Array:
    """Return by how much a variance grows in a mixture of two distributions.

    Args:
        growth: Variance of the second minus variance of the first.
        difference: Mean of the second minus mean of the first.
        weight: Weight of the second in [0, 1].
    """
    # A small weight would be rounded away in `(1 - weight) * variance`.
    return safe.product(weight, growth + (1 - weight) * jnp.square(difference))
