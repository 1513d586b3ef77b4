"""What moments need in single precision.

- `of`: moments relative to an entry, exact for equal entries, and precise far from 0.
- `merge`: moments of two samples, by differences of means, not of squares.
- `add`: a sum that carries its rounding error on. Single precision alone rounds away
  every term of less than 6e-8 of a sum, which after millions of terms are all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp

from rlaxlib._core import devices, safe
from rlaxlib._core.types import Array, Axes, AxisName


class Moments(NamedTuple):
    """Statistics of entries.

    Attributes:
        number: Number of entries.
        mean: Their mean, 0 if there are none.
        variance: Their variance, exactly 0 of equal entries, and 0 if there are none.
        deviations: Entries minus their mean, of the shape of the entries, 0 if masked.
    """

    number: Array
    mean: Array
    variance: Array
    deviations: Array

    def stddev(self, ddof: int) -> Array:
        """Return the standard deviation, with a divisor that is smaller by `ddof`."""
        divisor = jnp.maximum(self.number - ddof, 1)
        return safe.sqrt(self.variance * self.number / divisor)


def of(
    x: Array, mask: Array, axis_name: AxisName | None = None, axis: Axes = None
) -> Moments:
    """Return the moments over axes, or over all, of unmasked entries.

    The mask has the shape of `x`, or axes of size 1 in place of those that are kept.
    """

    def total(y: Array) -> Array:
        return devices.total(jnp.sum(y, axis), axis_name)

    def along(y: Array) -> Array:
        return y if axis is None else jnp.expand_dims(y, axis)

    # Relative to one of them, equal entries have a mean without rounding error.
    shift = devices.largest(x, mask, axis_name, axis)
    x = jnp.where(mask, x - along(shift), 0)
    number = devices.total(jnp.sum(mask, axis, dtype=x.dtype), axis_name)
    size = jnp.maximum(number, 1)
    mean = total(x) / size
    deviations = jnp.where(mask, x - along(mean), 0)
    variance = total(jnp.square(deviations)) / size
    return Moments(number, shift + mean, variance, deviations)


def add(total: Array, rest: Array, x: Array) -> tuple[Array, Array]:
    """Return a sum with `x` added, and its rounding error, which was `rest` before.

    The error is the exact sum minus the rounded one.
    """
    rounded = total + x
    added = rounded - total
    rest = rest + ((total - (rounded - added)) + (x - added))
    total = rounded + rest
    return total, rest - (total - rounded)


def merge(
    one: Sequence[Array], other: Sequence[Array | float], weight: Array
) -> tuple[Array, ...]:
    """Return the moments of two samples, of which the other has a weight in [0, 1].

    ::

        μ' = μ + a δ,   σ'² = σ² + a [s² - σ² + (1 - a) δ²],   δ = x̄ - μ

    Moments are a mean, a variance, and their rounding errors.
    """
    mean, variance, mean_rest, variance_rest = one
    a = weight.astype(mean.dtype)
    delta, growth, delta_rest, growth_rest = (
        y - x for x, y in zip(one, other, strict=True)
    )
    step = a * (growth + (1 - a) * jnp.square(delta + delta_rest))
    mean, mean_rest = add(mean, mean_rest + a * delta_rest, a * delta)
    variance, variance_rest = add(variance, variance_rest + a * growth_rest, step)
    return mean, variance, mean_rest, variance_rest
