"""Reductions over the devices of a mapped axis."""

from __future__ import annotations

from typing import cast

import jax
import jax.numpy as jnp

from rlaxlib._core.types import Array, AxisName


def names(axis_name: AxisName | None) -> AxisName | None:
    """Return a name of an axis, or None, as it is, and names so that they hash."""
    if axis_name is None or isinstance(axis_name, str):
        return axis_name
    return tuple(axis_name)


def total(x: Array, axis_name: AxisName | None) -> Array:
    """Sum over the devices of a mapped axis.

    Args:
        x: The array of each device, of any shape.
        axis_name: Mapped axis name, or names; or None for one device.

    Returns:
        The sum, of the same shape.
    """
    return x if axis_name is None else cast(Array, jax.lax.psum(x, axis_name))


def mean(x: Array, axis_name: AxisName | None) -> Array:
    """Average over the devices of a mapped axis.

    Args:
        x: The array of each device, of any shape.
        axis_name: As for `total`.

    Returns:
        The mean, of the same shape.
    """
    return x if axis_name is None else cast(Array, jax.lax.pmean(x, axis_name))


def own(x: Array, axis_name: AxisName | None) -> Array:
    """Return an array of each device, to differentiate by it on that device alone.

    In `jax.shard_map`, a gradient by an array that all devices share is a sum over
    devices, unlike in `jax.vmap`, `jax.pmap`, or with `check_vma=False`.

    Args:
        x: An array, shared or not, of any shape.
        axis_name: As for `total`.

    Returns:
        An array equal to `x`, which is not shared.
    """
    if axis_name is None:
        return x
    return x + (0 * jax.lax.axis_index(axis_name)).astype(x.dtype)


def maximum(x: Array, axis_name: AxisName | None) -> Array:
    """Return the elementwise maximum over devices.

    Args:
        x: The array of each device, of any shape.
        axis_name: As for `total`.

    Returns:
        The maximum, of the same shape.
    """
    return x if axis_name is None else cast(Array, jax.lax.pmax(x, axis_name))


def largest(
    x: Array, mask: Array, axis_name: AxisName | None, axis: int | None = None
) -> Array:
    """Return the largest unmasked entry of all devices, with its gradient stopped.

    Args:
        x: Values, of any shape.
        mask: True for entries to include, of a shape that broadcasts to that of `x`.
        axis_name: As for `total`.
        axis: Axis to reduce, or None for all.

    Returns:
        The largest entry, without the reduced axes; 0 if no entry is unmasked, or if it
        is infinite.
    """
    x = jax.lax.stop_gradient(x)
    greatest = maximum(jnp.max(x, axis, initial=-jnp.inf, where=mask), axis_name)
    return jnp.where(jnp.isfinite(greatest), greatest, 0)


def gather(x: Array, axis_name: AxisName | None) -> Array:
    """Concatenate the arrays of all devices.

    Args:
        x: The array of each device, shape `[N, ...]`.
        axis_name: As for `total`.

    Returns:
        The arrays of all devices, one after the other.
    """
    if axis_name is None:
        return x
    return cast(Array, jax.lax.all_gather(x, axis_name, tiled=True))


def number(axis_name: AxisName | None) -> int:
    """Return the number of devices of a mapped axis.

    Args:
        axis_name: As for `total`.

    Returns:
        The number, a Python integer.
    """
    return 1 if axis_name is None else cast(int, jax.lax.psum(1, axis_name))
