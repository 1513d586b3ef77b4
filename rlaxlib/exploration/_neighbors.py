"""Find the points that are nearest to others, as a memory of states needs it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from rlaxlib._core import checks, derivatives, dtypes, loops

__all__ = ["KNNQueryResult", "knn_query"]

Metric = Callable[[Array, Array], Array]

_FEW = 4  # Queries fewer than these are answered faster without a matrix product,
_SMALL = 128  # and so are those of data not so many times larger than the candidates.
_SPARE = 8  # Candidates for neighbours, beyond those that are wanted.


class KNNQueryResult(NamedTuple):
    """The neighbours of each query, the nearest first.

    Attributes:
        neighbors: The neighbours, shape `[Q, K, D]`.
        neighbor_indices: Their positions in the data, shape `[Q, K]`.
        neighbor_neg_distances: Their *squared* distances, each times -1: 0 or less, the
            largest first, shape `[Q, K]`.
    """

    neighbors: Array
    neighbor_indices: Array
    neighbor_neg_distances: Array


def knn_query(
    data: ArrayLike,
    query_points: ArrayLike,
    num_neighbors: int,
    metric: Metric | None = None,
) -> KNNQueryResult:
    """Find the points of a set that are nearest to each of some queries.

    .. math::

        i_{q,k} = index of the kth smallest of ‖y_q - x_1‖², …, ‖y_q - x_N‖²

    The search is exact, whatever the points are: many queries of much data go through a
    matrix product, which finds candidates and proves that no other point is nearer,
    or else gives way to the plain computation. A point that is not finite is infinitely
    far from all others, so rows of infinity stand for what is not there yet. The
    gradient goes through the neighbours alone, and costs no more than they do.

    Args:
        data: Points :math:`x` to search, floats or integers, shape `[N, D]`.
        query_points: Points :math:`y` whose neighbours are wanted, shape `[Q, D]`.
        num_neighbors: How many neighbours :math:`K` to find, at least 1; if there are
            fewer points, all are found. A Python integer, so under `jax.jit` it is to
            be static.
        metric: Function of two points, of shape `[D]`, that gives their distance; or
            None for the square of the Euclidean one. Integers are given to it as they
            are.

    Returns:
        A `KNNQueryResult`, with :math:`K` neighbours, or :math:`N` if that is less. Its
        distances are *squared* and *negative*, as the name in rlax has it, and in
        single precision at least, since squares of half-precision numbers overflow.

    Raises:
        ArgumentError: If an argument has the wrong shape, or if `num_neighbors` is not
            a Python integer of at least 1.

    Example:
        >>> data, query_points = jnp.array([[0.0], [5.0], [9.0]]), jnp.array([[6.0]])
        >>> result = rlaxlib.knn_query(data, query_points, num_neighbors=2)
        >>> print(result.neighbor_indices, result.neighbor_neg_distances)
        [[1 2]] [[-1. -9.]]

    References:
        Evelyn Fix and Joseph L. Hodges, *Discriminatory Analysis. Nonparametric
        Discrimination: Consistency Properties*, 1951.
        https://doi.org/10.2307/1403797
    """
    data, query_points = checks.arrays(
        data=(data, "any[N, D]"), query_points=(query_points, "any[Q, D]")
    )
    checks.static_int(1, num_neighbors=num_neighbors)
    count = min(num_neighbors, len(data))
    if metric is None:
        negated, indices = nearest(*comparable(data, query_points), count)
    else:
        (x, y), _ = dtypes.widen(data, query_points)
        negated, indices = _nearest_by(metric, x, y, count)
    return KNNQueryResult(_take(data, indices), indices, negated)


def comparable(data: Array, points: Array) -> tuple[Array, Array]:
    """Return two sets of points as floats of the same dtype, in which squares fit."""
    floats = [x for x in (data, points) if jnp.issubdtype(x.dtype, jnp.floating)]
    dtype = jnp.result_type(*floats) if floats else jnp.result_type(float)
    dtype = jnp.float32 if jnp.finfo(dtype).bits < 32 else dtype
    return data.astype(dtype), points.astype(dtype)


def nearest(data: Array, points: Array, count: int) -> tuple[Array, Array]:
    """Return the negated squared distances of the nearest points, and their indices.

    Args:
        data: Points to search, of single precision at least, shape `[N, D]`. Those that
            are not finite are infinitely far.
        points: Points whose neighbours are wanted, of the same dtype, shape `[Q, D]`.
        count: How many neighbours to find, at most `N`.

    Returns:
        Squared distances times -1, the nearest first, and indices, both of shape
        `[Q, count]`. Of points at the same distance, the first comes first.
    """
    held = (jax.lax.stop_gradient(each) for each in (data, points))
    negated, indices = _compiled(*held, count)
    return _follow(data, points, indices, negated), indices


def _search(data: Array, points: Array, count: int) -> tuple[Array, Array]:
    """Find the nearest points in the way that is faster for these sizes."""
    candidates = count + _SPARE
    if len(points) < _FEW or len(data) < _SMALL * candidates:
        return _search_all(data, points, count)
    found = _search_candidates(data, points, count, candidates)

    search_all = functools.partial(_search_all, data, count=count)
    return loops.again_unless(*found, search_all, points)


def _search_all(data: Array, points: Array, count: int) -> tuple[Array, Array]:
    """Compute all distances, and choose."""
    negated, indices = jax.lax.top_k(-_distances(points, data[None]), count)
    return negated, indices


def _search_candidates(
    data: Array, points: Array, count: int, candidates: int
) -> tuple[Array, tuple[Array, Array]]:
    """Choose among few, and say whether it is sure that no other is nearer.

    The product :math:`|x|² - 2 x y` is the distance less :math:`|y|²`, which is the
    same for all; but for points that are close together and far from 0 it is all
    rounding errors. With the bound :math:`γ (|x|² + |y|²)` on these it becomes a lower
    bound of the distance. The candidates are the points with the lowest; if the last
    neighbour is no farther than the lower bound of the last candidate, it is no farther
    than any point that was left out.
    """
    bound = data.shape[-1] * float(np.finfo(data.dtype).eps)
    size = jnp.sum(jnp.square(data), axis=-1)
    # The data first: read row by row, they are read once.
    product = jax.lax.dot_general(
        data, points, (((1,), (1,)), ((), ())), precision=jax.lax.Precision.HIGHEST
    )
    lower = (1 - bound) * size[:, None] - 2 * product
    lower = jnp.where(jnp.isfinite(size)[:, None], lower, jnp.inf)
    lower, indices = jax.lax.top_k(-lower.T, candidates)
    indices = jnp.sort(indices, axis=-1)  # Of equal points, the first comes first.
    negated, order = jax.lax.top_k(-_distances(points, _take(data, indices)), count)
    reach = jnp.sum(jnp.square(points), axis=-1)
    # The last of each row, but not by its index: for that, XLA sorts all the data.
    others = jnp.maximum((1 - bound) * reach - jnp.min(lower, axis=-1), 0)
    last = -jnp.min(negated, axis=-1)
    # Where many are as far as the last neighbour, any of them will do.
    sure = jnp.all((last * (1 - 4 * bound) <= others) & jnp.isfinite(reach))
    return sure, (negated, jnp.take_along_axis(indices, order, axis=-1))


def _distances(points: Array, others: Array) -> Array:
    """Return the squared distance of each point, `[Q, D]`, from others, `[..., K, D]`.

    Where one of the two is not finite the distance is infinite.
    """
    squared = jnp.sum(jnp.square(points[:, None] - others), axis=-1)
    return jnp.where(jnp.isnan(squared), jnp.inf, squared)


def _take(data: Array, indices: Array) -> Array:
    """Return the rows of these indices, all of which exist."""
    return data.at[indices].get(mode="promise_in_bounds")


def _measure(
    metric: Metric, data: Array, points: Array, count: int
) -> tuple[Array, Array]:
    """Find the nearest points by any measure of distance."""
    to_all = jax.vmap(jax.vmap(metric, (None, 0)), (0, None))
    distances = to_all(points, data)
    if not jnp.issubdtype(distances.dtype, jnp.floating):
        distances = distances.astype(float)  # Which has a sign to change.
    negated, indices = jax.lax.top_k(-distances, count)
    return negated, indices


# Compiled as one, so that a call outside of jit, too, traces and compiles only once.
_compiled: Callable[..., tuple[Array, Array]] = jax.jit(
    _search, static_argnums=2, inline=True
)
_nearest_by: Callable[..., tuple[Array, Array]] = jax.jit(
    _measure, static_argnums=(0, 3), inline=True
)


def _follow_jvp(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> Any:
    """Differentiate the distances of those that are nearest, and of no others."""
    data, points, indices, negated = primals
    finite = jnp.isfinite(negated)[..., None]
    offset = jnp.where(finite, points[:, None] - _take(data, indices), 0)
    change = tangents[1][:, None] - _take(tangents[0], indices)
    return _follow(*primals), -2 * jnp.sum(offset * change, axis=-1)


# The indices come in and do not go out: what goes out has a tangent, and under
# `jax.shard_map` that of an integer fails.
@derivatives.derived(_follow_jvp)
def _follow(data: Array, points: Array, indices: Array, negated: Array) -> Array:
    """Return the negated distances as they are, with the slope that they have."""
    del data, points, indices
    return negated
