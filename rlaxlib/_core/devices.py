"""Reductions over the devices of a mapped axis, or axes; None stands for one device."""

from __future__ import annotations

from typing import cast

import jax
import jax.numpy as jnp

from rlaxlib._core.types import Array, Axes, AxisName


def total(x: Array, axis_name: AxisName | None) -> Array:
    """Return the sum over devices."""
    return x if axis_name is None else cast(Array, jax.lax.psum(x, axis_name))


def mean(x: Array, axis_name: AxisName | None) -> Array:
    """Return the average over devices."""
    return x if axis_name is None else cast(Array, jax.lax.pmean(x, axis_name))


def maximum(x: Array, axis_name: AxisName | None) -> Array:
    """Return the elementwise maximum over devices."""
    return x if axis_name is None else cast(Array, jax.lax.pmax(x, axis_name))


def number(axis_name: AxisName | None) -> int:
    """Return the number of devices, a Python integer."""
    return 1 if axis_name is None else cast(int, jax.lax.psum(1, axis_name))


def gather(x: Array, axis_name: AxisName | None) -> Array:
    """Concatenate the arrays of all devices along the first axis."""
    if axis_name is None:
        return x
    return cast(Array, jax.lax.all_gather(x, axis_name, tiled=True))


def largest(
    x: Array, mask: Array, axis_name: AxisName | None, axis: Axes = None
) -> Array:
    """Return the largest unmasked entry of all devices, with its gradient stopped.

    It is 0 if no entry is unmasked, or if it is infinite. Without an `axis`, all axes
    are reduced.
    """
    x = jax.lax.stop_gradient(x)
    greatest = maximum(jnp.max(x, axis, initial=-jnp.inf, where=mask), axis_name)
    return jnp.where(jnp.isfinite(greatest), greatest, 0)
