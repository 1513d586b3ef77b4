"""What the chapters of exploration share: the search for nearest neighbors."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from rlaxlib._core import checks
from rlaxlib._core.types import Array

Metric = Callable[[Array, Array], Array]


def comparable(data: Array, points: Array) -> tuple[Array, Array]:
    """Return two arrays as floats of one dtype, of single precision at least."""
    floats = [x for x in (data, points) if jnp.issubdtype(x.dtype, jnp.floating)]
    dtype = jnp.result_type(*floats) if floats else jnp.result_type(float)
    dtype = jnp.float32 if jnp.finfo(dtype).bits < 32 else dtype
    return data.astype(dtype), points.astype(dtype)


def nearest(data: Array, points: Array, count: int) -> tuple[Array, Array]:
    """Find the nearest neighbours of points by squared Euclidean distance.

    Args:
        data: Points to search, of single precision at least, shape `[N, D]`.
        points: Points whose neighbours to find, of the same dtype, shape `[Q, D]`.
        count: Number of neighbours, at most `N`.

    Returns:
        Negated distances, nearest first, and indices, both of shape `[Q, count]`.
    """
    # The gradient of the search would visit all points.
    fixed = jax.lax.stop_gradient((data, points))
    found, indices = search(*fixed, count, _squared_distance)
    finite = jnp.isfinite(found)
    # Empty rows are infinite: the gradient of the square would be `0 * inf`.
    offset = jnp.where(finite[..., None], points[:, None] - data[indices], 0)
    negated = -jnp.sum(jnp.square(offset), axis=-1)
    return jnp.where(finite, negated, found), indices


def search(
    data: Array, points: Array, count: int, metric: Metric
) -> tuple[Array, Array]:
    """Return the negated distances and the indices of the nearest points."""

    def distance(x: Array, y: Array) -> Array:
        return checks.result("metric(x, y)", metric(x, y), kind="Real")

    to_all = jax.vmap(jax.vmap(distance, (None, 0)), (0, None))
    distances = to_all(points, data)
    if not jnp.issubdtype(distances.dtype, jnp.floating):
        distances = distances.astype(float)  # Unsigned integers cannot be negated.
    negated, indices = jax.lax.top_k(-distances, count)
    return negated, indices


def _squared_distance(x: Array, y: Array) -> Array:
    """Return ‖x - y‖² of two points `[D]`."""
    return jnp.sum(jnp.square(x - y))
