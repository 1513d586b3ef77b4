"""Test the nearest-neighbour search: exactness, special points, gradients, input."""

import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close
from jax.sharding import NamedSharding, PartitionSpec

import rlaxlib

POINTS, QUERIES, NEIGHBORS, SIZE = 100, 6, 4, 5
knn_query = jax.jit(rlaxlib.knn_query, static_argnums=(2, 3))


def sample(seed=0, points=POINTS, queries=QUERIES, size=SIZE):
    rng = np.random.default_rng(seed)
    data = rng.normal(size=(points, size))
    query_points = rng.normal(size=(queries, size))
    return np.float32(data), np.float32(query_points)


def search(data, query_points, neighbors=NEIGHBORS):
    """Find neighbours in NumPy, in double precision."""
    data, query_points = (np.asarray(x, np.float64) for x in (data, query_points))
    distances = np.sum((query_points[:, None] - data) ** 2, axis=-1)
    indices = np.argsort(distances, axis=-1, kind="stable")[:, :neighbors]
    return indices, -np.take_along_axis(distances, indices, axis=-1)


def assert_exact(data, query_points, result=None):
    """Compare a result with the search in NumPy."""
    result = result or knn_query(data, query_points, NEIGHBORS)
    indices, negated = search(data, query_points)
    np.testing.assert_array_equal(result.neighbor_indices, indices)
    np.testing.assert_allclose(result.neighbor_neg_distances, negated, rtol=1e-5)
    np.testing.assert_array_equal(result.neighbors, np.asarray(data)[indices])


# --- What the function computes. ---


@pytest.mark.parametrize(("points", "queries"), [(1, 1), (3, 6), (100, 40), (5000, 4)])
def test_finds_the_nearest_points(points, queries):
    assert_exact(*sample(points=points, queries=queries))


def test_distinguishes_close_points_far_from_the_origin():
    assert_exact(*(x + np.float32(1e4) for x in sample()))


def test_points_at_the_same_distance_keep_their_order():
    rng = np.random.default_rng(0)
    grid = np.stack(np.meshgrid(np.arange(10.0), np.arange(10.0)), axis=-1)
    points = np.float32(rng.permutation(grid.reshape(-1, 2)))
    assert_exact(points, points[:QUERIES])  # One at distance 0, and four at 1.


def test_rows_of_infinity_are_infinitely_far():
    data, query_points = sample()
    partial = data.copy()
    partial[:3] = np.inf
    assert_exact(partial, query_points)
    empty = np.full_like(data, np.inf)
    empty[5] = 0.0
    result = jax.tree.map(np.asarray, knn_query(empty, query_points, NEIGHBORS))
    np.testing.assert_array_equal(result.neighbor_indices[:, 0], 5)
    np.testing.assert_array_equal(result.neighbor_neg_distances[:, 1:], -np.inf)


@pytest.mark.parametrize("dtype", [jnp.uint8, jnp.int8, jnp.int32])
def test_integers_do_not_wrap(dtype):
    data, query_points = np.array([[0], [3]], dtype), np.array([[10]], dtype)
    result = knn_query(data, query_points, 2)
    np.testing.assert_array_equal(result.neighbor_indices, [[1, 0]])
    np.testing.assert_array_equal(result.neighbor_neg_distances, [[-49.0, -100.0]])
    assert result.neighbors.dtype == dtype


def test_large_integers_do_not_wrap():
    far = knn_query(np.array([[0]]), np.array([[100_000]]), 1)
    assert far.neighbor_neg_distances == -1e10


def test_half_precision_does_not_overflow():
    data, query_points = np.float16([[-300], [0]]), np.float16([[300]])
    result = knn_query(data, query_points, 2)
    np.testing.assert_array_equal(result.neighbor_neg_distances, [[-9e4, -3.6e5]])
    assert result.neighbor_neg_distances.dtype == jnp.float32
    assert result.neighbors.dtype == jnp.float16


def test_double_precision_is_kept():
    with contract.x64(True):
        data, query_points = (np.float64(x) + 1e6 for x in sample())
        result = knn_query(data, query_points, NEIGHBORS)
        assert result.neighbor_neg_distances.dtype == jnp.float64
        _, negated = search(data, query_points)
        np.testing.assert_allclose(result.neighbor_neg_distances, negated, rtol=1e-12)


def test_a_metric_may_return_integers():
    data = np.array([[0, 1, 1], [1, 1, 1]], np.uint8)

    def hamming(x, y):
        return jnp.sum(x != y, dtype=jnp.uint8)

    result = knn_query(data, data[:1], 2, hamming)
    np.testing.assert_array_equal(result.neighbor_neg_distances, [[0.0, -1.0]])


# --- How it behaves under JAX. ---


def test_gradient_flows_through_the_neighbors_only():
    data, query_points = sample()
    data[POINTS - 1] = np.inf
    weights = np.float32(1 + np.arange(QUERIES * NEIGHBORS)).reshape(QUERIES, NEIGHBORS)

    def total(data, query_points):
        result = knn_query(data, query_points, NEIGHBORS)
        return jnp.sum(weights * result.neighbor_neg_distances)

    by_data, by_queries = jax.jit(jax.grad(total, (0, 1)))(data, query_points)
    indices, _ = search(data, query_points)
    expected = np.zeros_like(data)
    for query, row in enumerate(indices):
        for rank, index in enumerate(row):
            offset = query_points[query] - data[index]
            expected[index] += 2 * weights[query, rank] * offset
    close(by_data, expected)
    close(np.sum(by_queries, 0), -expected.sum(0), rtol=1e-4)


def test_empty_rows_have_no_gradient():
    data = np.float32([[1, 2], [np.inf, np.inf]])

    def total(data, query_points):
        result = knn_query(data, query_points, 2)
        negated = result.neighbor_neg_distances
        return jnp.sum(jnp.where(jnp.isfinite(negated), negated, 0))

    with jax.debug_nans(True):
        gradients = jax.jit(jax.grad(total, (0, 1)))(data, np.float32([[0, 0]]))
    np.testing.assert_array_equal(gradients[0], [[-2, -4], [0, 0]])
    np.testing.assert_array_equal(gradients[1], [[2, 4]])


def test_devices_may_share_the_queries():
    data, query_points = sample(queries=16)
    mesh, spec = jax.make_mesh((4,), ("devices",)), PartitionSpec("devices")
    sharded = jax.device_put(query_points, NamedSharding(mesh, spec))

    def on_each(query_points):
        return rlaxlib.knn_query(data, query_points, NEIGHBORS)

    together = jax.shard_map(on_each, mesh=mesh, in_specs=spec, out_specs=spec)
    result = jax.tree.map(np.asarray, jax.jit(together)(sharded))
    assert_exact(data, query_points, result)


def test_a_call_stores_no_array_of_all_offsets():
    inputs = sample(points=1000)
    query = jax.jit(rlaxlib.knn_query, static_argnums=2)
    memory = query.lower(*inputs, NEIGHBORS).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 4 * QUERIES * 1000 * SIZE


# --- Bad input. ---


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("query_points", (np.ones((3, 2)), np.ones((3, 4)), 1)),
    ],
)
def test_rejects_bad_input(name, arguments):
    with pytest.raises(rlaxlib.ArgumentError, match=f"^knn_query: `{name}` "):
        rlaxlib.knn_query(*arguments)


def test_rejects_a_traced_number_of_neighbors():
    with pytest.raises(rlaxlib.ArgumentError, match="static_argnames"):
        jax.jit(rlaxlib.knn_query)(np.ones((3, 2)), np.ones((3, 2)), 1)
