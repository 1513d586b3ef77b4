"""Shorten vectors, however large or small their entries are."""

from __future__ import annotations

import functools
import math
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax import Array

from rlaxlib._core import derivatives, loops


def _shorten_change(
    primals: tuple[Array, Array], tangents: tuple[Array, Array]
) -> tuple[Array, Array]:
    (x, most), (change, change_of_most) = primals, tangents
    root = _inverse_root(x)
    long = (root < jnp.inf) & (most * root * root < 1)
    root = jnp.where(long, root, jnp.zeros_like(root))
    direction = x * root * root
    across = change - direction * jnp.sum(direction * change)
    ratio = jnp.where(long, most, jnp.zeros_like(most)) * root * root
    slope = ratio * across + direction * change_of_most
    return shorten(x, most), jnp.where(long, slope, change)


@derivatives.derived(_shorten_change)
def shorten(x: Array, most: Array) -> Array:
    """Scale a vector down to a Euclidean length, unless it is shorter.

    Args:
        x: A vector, of single precision at least, shape `[D]`.
        most: Its greatest length, at least 0, of the same dtype, shape `[]`.

    Returns:
        A vector of the same direction, shape `[D]`.
    """
    # By the root, twice: what shortens a long vector much is less than any number.
    root = _root_of_ratio(x, most, 1.0)
    size = (jnp.abs(x) * root) * root
    # Neither a sign taken apart nor these bounds change a number. With less to do for
    # each, LLVM unrolls a loop over 18 to 33 into single numbers, and takes twice the
    # time.
    return jnp.clip(jnp.where(x < 0, -size, size), -most, most)


def _inverse_root_change(
    primals: tuple[Array], tangents: tuple[Array]
) -> tuple[Array, Array]:
    (x,), (change,) = primals, tangents
    root = _inverse_root(x)
    finite = jnp.where(root < jnp.inf, root, jnp.zeros_like(root))
    direction = x * finite * finite
    slope = jnp.sum(direction * change) * (-0.5 * finite * finite * finite)
    return root, slope


@derivatives.derived(_inverse_root_change)
def _inverse_root(x: Array) -> Array:
    """Return 1 over the root of a vector's length, or infinity."""
    return _root_of_ratio(x, jnp.ones_like(x, shape=()), math.inf)


def _root_of_ratio(x: Array, length: Array, ceiling: float) -> Array:
    """Return the root of a length over that of `x`, but not more than a ceiling."""
    root = jnp.sqrt(length)
    cpu = functools.partial(_by_units_if_needed, ceiling=ceiling)
    # To ask costs an accelerator more than to compute.
    default = functools.partial(_by_units, ceiling=ceiling)
    return cast(Array, jax.lax.platform_dependent(x, root, cpu=cpu, default=default))


def _by_units(x: Array, root: Array, ceiling: float) -> Array:
    """Return it in units in which no square that counts is lost."""
    power = 2.0 ** (cast(Any, jnp.finfo(x.dtype)).maxexp * 5 // 8)
    largest = jnp.max(jnp.abs(x), initial=0)
    unit = jnp.where(largest > math.sqrt(power), power, 1.0)
    unit = jnp.where(largest < 1 / math.sqrt(power), 1 / power, unit).astype(x.dtype)
    square = jnp.sum(jnp.square(x / unit))
    ratio = _over(root, jnp.where(square > 0, square, 1.0)) / jnp.sqrt(unit)
    return jnp.where(square > 0, jnp.minimum(ratio, ceiling), ceiling)


def _by_units_if_needed(x: Array, root: Array, ceiling: float) -> Array:
    """Return the same, by units only if a square of a vector of the batch is lost."""
    info = cast(Any, jnp.finfo(x.dtype))
    square = jnp.sum(jnp.square(x))
    # Where the sum is small, what underflows in it counts.
    sound = (square >= float(info.tiny / info.eps**2)) & (square <= float(info.max))
    ratio = jnp.minimum(_over(root, square), ceiling)
    by_units = functools.partial(_by_units, root=root, ceiling=ceiling)
    return loops.again_unless(sound, ratio, by_units, x)


def _over(root: Array, square: Array) -> Array:
    return root / jnp.sqrt(jnp.sqrt(square))
