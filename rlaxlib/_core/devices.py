"""Reduce over devices, where the entries of an array are spread over an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import jax
import jax.numpy as jnp
from jax import Array

AxisName = str | Sequence[str]


def total(x: Array, axis_name: AxisName | None) -> Array:
    """Sum over the devices along an axis.

    Args:
        x: What each device has, of any shape.
        axis_name: Name of the axis, or axes; or None to stay on one device.

    Returns:
        The sum, of the same shape.
    """
    return x if axis_name is None else cast(Array, jax.lax.psum(x, axis_name))


def largest(
    x: Array, mask: Array, axis_name: AxisName | None, axis: int | None = None
) -> Array:
    """Return the largest entry that counts, held constant under differentiation.

    Args:
        x: Numbers, of any shape.
        mask: Whether each counts, of the same shape, or of one that broadcasts to it.
        axis_name: As for `total`.
        axis: Axis to look along; or None for all.

    Returns:
        The largest, without the axes looked along; 0 if none counts, or if it is
        infinite.
    """
    x = jax.lax.stop_gradient(x)
    greatest = jnp.max(x, axis=axis, initial=-jnp.inf, where=mask)
    if axis_name is not None:
        greatest = cast(Array, jax.lax.pmax(greatest, axis_name))
    return jnp.where(jnp.isfinite(greatest), greatest, jnp.zeros_like(greatest))


def gather(x: Array, axis_name: AxisName | None) -> Array:
    """Join what the devices along an axis have.

    Args:
        x: What each device has, shape `[N, ...]`.
        axis_name: As for `total`.

    Returns:
        The arrays of all devices, one after the other.
    """
    if axis_name is None:
        return x
    return cast(Array, jax.lax.all_gather(x, axis_name, tiled=True))


def number(axis_name: AxisName | None) -> int:
    """Return how many devices there are along an axis.

    Args:
        axis_name: As for `total`.

    Returns:
        Their number, which is known while JAX traces.
    """
    return 1 if axis_name is None else cast(int, jax.lax.psum(1, axis_name))


def maximum(x: Array, axis_name: AxisName | None) -> Array:
    """Return the largest that devices have, element by element.

    Args:
        x: What each device has, of any shape.
        axis_name: As for `total`.

    Returns:
        The largest, of the same shape.
    """
    return x if axis_name is None else cast(Array, jax.lax.pmax(x, axis_name))
