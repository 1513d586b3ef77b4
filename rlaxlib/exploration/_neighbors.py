"""Exact search for the nearest neighbours of points."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from rlaxlib._core import checks, dtypes
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import ArrayLike, Float, Int, Real, Shaped, Static

__all__ = ["KNNQueryResult", "knn_query"]

Metric = Callable[[Array, Array], Array]


class KNNQueryResult(NamedTuple):
    """The neighbours of each query, nearest first.

    Attributes:
        neighbors: The neighbours, shape `[Q, K, D]`.
        neighbor_indices: Their indices in the data, shape `[Q, K]`.
        neighbor_neg_distances: Their negated *squared* distances, shape `[Q, K]`.
    """

    neighbors: Shaped[Array, "Q, K, D"]
    neighbor_indices: Int[Array, "Q, K"]
    neighbor_neg_distances: Float[Array, "Q, K"]


@checked
def knn_query(
    data: Shaped[ArrayLike, "N, D"],
    query_points: Shaped[ArrayLike, "Q, D"],
    num_neighbors: Static[int, "in [1, inf)"],
    metric: Metric | None = None,
) -> KNNQueryResult:
    """Find the k nearest neighbours of each query point (k-NN).

    Takes stored points and query points, returns the neighbours of each query point.

    .. math:: i_{q,k} = index of the kth smallest of ‖y_q - x_1‖², …, ‖y_q - x_N‖²

    The search is exact. A point that is not finite is infinitely far from all others,
    so rows of infinity can mark empty slots. Of points at the same distance, the first
    comes first. Gradients flow through the neighbours only.

    Args:
        data: Points :math:`x` to search, floats or integers, shape `[N, D]`.
        query_points: Query points :math:`y`, shape `[Q, D]`.
        num_neighbors: Number of neighbours :math:`K`, a Python integer in [1, inf).
        metric: Function that returns the distance of two points, shape `[D]`; or None
            for the squared Euclidean distance. It receives integers as they are.

    Returns:
        A `KNNQueryResult` with :math:`min(K, N)` neighbours. Its distances are
        *squared* and *negative*, in single precision at least.

    Raises:
        ArgumentError: If a shape or the result of `metric` is wrong, or `num_neighbors`
            is less than 1.

    Example:
        >>> data, query_points = jnp.array([[0.0], [5.0], [9.0]]), jnp.array([[6.0]])
        >>> result = rlaxlib.knn_query(data, query_points, num_neighbors=2)
        >>> print(result.neighbor_indices, result.neighbor_neg_distances)
        [[1 2]] [[-1. -9.]]

    References:
        Evelyn Fix and Joseph L. Hodges, *Discriminatory Analysis. Nonparametric
        Discrimination: Consistency Properties*, 1951. https://doi.org/10.2307/1403797
    """
    count = min(num_neighbors, len(data))
    if metric is None:
        negated, indices = nearest(*comparable(data, query_points), count)
    else:
        (x, y), _ = dtypes.widen(data, query_points)
        negated, indices = _search(x, y, count, metric)  # Not compiled: see `checked`.
    return KNNQueryResult(data[indices], indices, negated)


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
    found, indices = _search_compiled(*fixed, count, _squared_distance)
    finite = jnp.isfinite(found)
    # Mask before the square: its gradient at infinity would be 0 * inf, which is NaN.
    offset = jnp.where(finite[..., None], points[:, None] - data[indices], 0)
    negated = -jnp.sum(jnp.square(offset), axis=-1)
    return jnp.where(finite, negated, found), indices


def _search(
    data: Array, points: Array, count: int, metric: Metric
) -> tuple[Array, Array]:
    """Return the negated distances and the indices of the nearest points."""

    def distance(x: Array, y: Array) -> Array:
        return checks.result("metric(x, y)", metric(x, y), Real[ArrayLike, ""])

    to_all = jax.vmap(jax.vmap(distance, (None, 0)), (0, None))
    distances = to_all(points, data)
    if not jnp.issubdtype(distances.dtype, jnp.floating):
        distances = distances.astype(float)  # Unsigned integers cannot be negated.
    negated, indices = jax.lax.top_k(-distances, count)
    return negated, indices


# Outside of `jax.jit` the offsets `[Q, N, D]` would be stored.
_search_compiled: Callable[..., tuple[Array, Array]] = jax.jit(
    _search, static_argnames=("count", "metric")
)


def _squared_distance(x: Array, y: Array) -> Array:
    """Return ‖x - y‖² of two points `[D]`, infinite if one of them is not finite."""
    squared = jnp.sum(jnp.square(x - y))
    return jnp.where(jnp.isnan(squared), jnp.inf, squared)
