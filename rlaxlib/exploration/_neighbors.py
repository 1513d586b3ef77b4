"""Exact search for the nearest neighbours of points."""

from __future__ import annotations

from typing import NamedTuple

from rlaxlib._core import dtypes
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Float, Int, Shaped, Static
from rlaxlib.exploration._shared import Metric, comparable, nearest, search

__all__ = ["KNNQueryResult", "knn_query"]


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

    ::

        i_{q,k} = index of the kth smallest of ‖y_q - x_1‖², …, ‖y_q - x_N‖²

    The search is exact. Of points at the same distance, the first comes first. Rows of
    infinity can mark empty slots: they are infinitely far from all finite points.
    Gradients flow through the neighbours only.

    Args:
        data: Points :math:`x` to search, floats or integers, shape `[N, D]`.
        query_points: Query points :math:`y`, shape `[Q, D]`.
        num_neighbors: Number of neighbours :math:`K`, a Python integer in [1, inf).
        metric: Function that returns the distance of two points, shape `[D]`; or None
            for the squared Euclidean distance. It receives integers as they are.

    Returns:
        A `KNNQueryResult`: `neighbors`, `neighbor_indices` and `neighbor_neg_distances`
        of :math:`min(K, N)` neighbours. The distances are *squared* and *negative*, in
        single precision at least.

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
        points = dtypes.raised(data), dtypes.raised(query_points)
        negated, indices = search(*points, count, metric)
    return KNNQueryResult(data[indices], indices, negated)
