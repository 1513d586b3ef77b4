"""Sums over whole answers: over a sequence, or over each segment of a packed row.

Segments are gathered and scattered. The sums of `indexing` would take `T * T` memory.
"""

from __future__ import annotations

import jax.numpy as jnp

from rlaxlib._core import devices, indexing, streams
from rlaxlib._core.types import Array, AxisName


def totals(x: Array, segment_ids: Array, number: int = 1) -> Array:
    """Return the sum of the entries of each segment, 0 without entries.

    Args:
        x: Values, `[T]`.
        segment_ids: Segment of each entry, `[T]`. Entries out of range are left out.
        number: Number of devices. Segments are in [0, T * number).
    """
    zeros = jnp.tile(jnp.zeros_like(x), number)
    return zeros.at[_places(segment_ids, zeros.size)].add(x, mode="drop")


def latest(steps: Array, segment_ids: Array) -> Array:
    """Return the largest step of the segment of each entry, `[T]`.

    Args:
        steps: Steps, and -1 at ignored tokens, `[T]`.
        segment_ids: Segment of each entry, in [0, T), `[T]`. Others get -2.
    """
    places = _places(segment_ids, steps.size)
    largest = jnp.full_like(steps, -1).at[places].max(steps, mode="drop")
    return largest.at[places].get(mode="fill", fill_value=-2)


def at(x: Array, segment_ids: Array) -> Array:
    """Return the value of the segment of each entry, NaN if it is out of range."""
    return x.at[_places(segment_ids, x.size)].get(mode="fill", fill_value=jnp.nan)


def _places(segment_ids: Array, size: int) -> Array:
    """Return segments as indices, of which those below 0 would wrap."""
    segments = indexing.widened(segment_ids)
    return jnp.where(segments < 0, size, segments)


def sums(x: Array, segment_ids: Array | None, axis_name: AxisName | None) -> Array:
    """Return the sum over the answer of each token, `[T]`.

    Args:
        x: Values, 0 at ignored tokens, `[T]`.
        segment_ids: Answer of each token, `[T]`; or None for one answer. There may be
            as many as tokens on all devices.
        axis_name: Mapped axis name, or names, of the tokens; or None.
    """
    if segment_ids is None:
        total = devices.total(jnp.sum(x), axis_name)
        return jnp.broadcast_to(total, x.shape)
    own = totals(x, segment_ids, devices.number(axis_name))
    return at(devices.total(own, axis_name), segment_ids)


def means(
    x: Array,
    sample_mask: Array | None,
    segment_ids: Array | None,
    axis_name: AxisName | None,
) -> Array:
    """Return the mean over the valid tokens of the answer of each token, as `sums`."""
    valid = streams.filled(sample_mask, x).astype(x.dtype)
    count = sums(valid, segment_ids, axis_name)
    return sums(x, segment_ids, axis_name) / jnp.maximum(count, 1)
