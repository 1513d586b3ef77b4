"""Number, mean and variance of the unmasked entries of an array, over all devices."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from rlaxlib._core import devices, safe
from rlaxlib._core.types import Array, AxisName


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
    x: Array, mask: Array, axis_name: AxisName | None = None, axis: int | None = None
) -> Moments:
    """Return the moments of the entries of `x` that are not masked.

    Args:
        x: Entries.
        mask: False for entries to ignore: of the shape of `x`, or with axes of size 1
            in place of those that are not reduced.
        axis_name: Mapped axes of the devices that share the entries.
        axis: First axis, 0, to reduce it alone; or None to reduce all axes.

    Returns:
        The moments, without the axes that are reduced.
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
