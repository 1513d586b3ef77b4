"""Average what counts."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from rlaxlib import arrays
from rlaxlib._core import devices, streams
from rlaxlib._core.devices import AxisName


def mean(x: Array, mask: Array | None, axis_name: AxisName | None) -> Array:
    """Average what counts, over devices as well; 0 if nothing does."""
    return arrays.masked_mean(x, mask, axis_name=axis_name)


def variance(x: Array, mask: Array | None, axis_name: AxisName | None) -> Array:
    """Return the variance of what counts, which is exactly 0 for equal numbers."""
    counts = jnp.ones_like(x, bool) if mask is None else mask
    # Less one of them, large numbers lose no digits, and equal ones are 0.
    x = streams.valid(x - devices.largest(x, counts, axis_name), mask)
    return mean(jnp.square(x - mean(x, mask, axis_name)), mask, axis_name)
