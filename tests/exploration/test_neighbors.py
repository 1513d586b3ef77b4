"""Test the search for neighbours: that it is exact, however it is done."""

import functools

import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close
from jax.sharding import NamedSharding, PartitionSpec

import rlaxlib
from rlaxlib.exploration import _neighbors

POINTS, QUERIES, WANTED, SIZE = 1600, 6, 4, 5  # Enough for a matrix product.


def draw(seed=0, points=POINTS, queries=QUERIES, size=SIZE):
    rng = np.random.default_rng(seed)
    data, query_points = (
        rng.normal(size=(points, size)),
        rng.normal(size=(queries, size)),
    )
    return jnp.asarray(data, jnp.float32), jnp.asarray(query_points, jnp.float32)


def search(data, query_points, wanted=WANTED):
    """Find neighbours in NumPy, in double precision."""
    data, query_points = (np.asarray(x, np.float64) for x in (data, query_points))
    distances = np.sum((query_points[:, None] - data) ** 2, axis=-1)
    distances = np.where(np.isnan(distances), np.inf, distances)
    indices = np.argsort(distances, axis=-1, kind="stable")[:, :wanted]
    return indices, -np.take_along_axis(distances, indices, axis=-1)


def assert_found(data, query_points, result=None):
    """Hold a result to what NumPy finds."""
    result = result or rlaxlib.knn_query(data, query_points, WANTED)
    indices, negated = search(data, query_points)
    np.testing.assert_array_equal(result.neighbor_indices, indices)
    np.testing.assert_allclose(result.neighbor_neg_distances, negated, rtol=1e-5)
    np.testing.assert_array_equal(result.neighbors, np.asarray(data)[indices])


def is_sure(data, query_points):
    """Tell whether the matrix product was enough."""
    count = WANTED + _neighbors._SPARE
    return bool(_neighbors._search_candidates(data, query_points, WANTED, count)[0])


# --- What the function computes. ---


@pytest.mark.parametrize("queries", [1, 3, 4, 40])
@pytest.mark.parametrize("points", [1, 5, 100, POINTS])
def test_finds_the_nearest_at_any_size(points, queries):
    data, query_points = draw(points=points, queries=queries)
    result = rlaxlib.knn_query(data, query_points, WANTED)
    indices, negated = search(data, query_points)
    np.testing.assert_array_equal(result.neighbor_indices, indices)
    close(result.neighbor_neg_distances, negated)


@pytest.mark.parametrize(
    ("points", "queries", "product"),
    [(POINTS, QUERIES, True), (POINTS, 1, False), (100, QUERIES, False)],
)
def test_many_queries_of_much_data_go_through_a_matrix_product(
    points, queries, product
):
    find = functools.partial(rlaxlib.knn_query, num_neighbors=WANTED)
    program = jax.make_jaxpr(find)(*draw(points=points, queries=queries))
    assert ("dot_general" in str(program)) == product


def test_points_around_zero_need_the_matrix_product_alone():
    data, query_points = draw()
    assert is_sure(data, query_points)
    assert_found(data, query_points)


@pytest.mark.parametrize("offset", [1e3, 1e4])
def test_points_far_from_zero_and_close_together_are_told_apart(offset):
    data, query_points = (x + offset for x in draw())
    assert not is_sure(data, query_points)
    assert_found(data, query_points)


def test_points_closer_than_rounding_errors_are_told_apart():
    data, _ = draw()
    query_points = data[:QUERIES]
    for query in range(QUERIES):
        scale = 1 + 1e-6 * jnp.arange(20.0, 0.0, -1.0)
        near = jnp.outer(scale, query_points[query])
        data = data.at[50 + 20 * query + jnp.arange(20)].set(near)
    assert not is_sure(data, query_points)
    assert_found(data, query_points)


def test_of_points_at_the_same_distance_the_first_comes_first():
    rng = np.random.default_rng(0)
    grid = np.stack(np.meshgrid(np.arange(40.0), np.arange(40.0)), axis=-1)
    points = jnp.asarray(rng.permutation(grid.reshape(-1, 2)), jnp.float32)
    query_points = points[:QUERIES]  # One is at distance 0, and four at distance 1.
    assert is_sure(points, query_points)
    assert_found(points, query_points)


def test_many_copies_of_one_point_do_not_need_a_second_search():
    data = jnp.repeat(jnp.array([0.1, 9.0]), POINTS // 2)
    data = jnp.tile(data[:, None], SIZE)
    query_points = jnp.full((QUERIES, SIZE), 1.7)
    assert is_sure(data, query_points)
    result = rlaxlib.knn_query(data, query_points, WANTED)
    close(result.neighbor_neg_distances, -SIZE * 1.6**2)


@pytest.mark.parametrize("points", [20, POINTS])
def test_a_point_that_is_not_finite_is_infinitely_far(points):
    data, query_points = draw(points=points)
    spoiled = data.at[:3].set(jnp.array([[jnp.nan], [jnp.inf], [-jnp.inf]]))
    assert_found(spoiled, query_points)
    empty = jnp.full_like(data, jnp.inf).at[5].set(0.0)
    assert is_sure(empty, query_points)
    result = rlaxlib.knn_query(empty, query_points, WANTED)
    np.testing.assert_array_equal(result.neighbor_indices[:, 0], 5)
    np.testing.assert_array_equal(result.neighbor_neg_distances[:, 1:], -jnp.inf)
    lost = query_points.at[1, 0].set(jnp.nan).at[2, 0].set(jnp.inf)
    result = rlaxlib.knn_query(spoiled, lost, WANTED)
    np.testing.assert_array_equal(result.neighbor_neg_distances[1:3], -jnp.inf)
    np.testing.assert_array_equal(
        result.neighbor_indices[3:], search(spoiled, query_points)[0][3:]
    )


def test_points_whose_squares_overflow_are_still_told_apart():
    data, query_points = (x * jnp.float32(1e18) for x in draw())
    data = data.at[7].set(2e19)
    query_points = query_points.at[0].set(2e19)
    result = rlaxlib.knn_query(data, query_points, 1)
    assert result.neighbor_indices[0, 0] == 7
    assert result.neighbor_neg_distances[0, 0] == 0


@pytest.mark.parametrize("dtype", [jnp.uint8, jnp.int8, jnp.int32])
def test_integers_do_not_wrap(dtype):
    data, query_points = jnp.array([[0], [3]], dtype), jnp.array([[10]], dtype)
    result = rlaxlib.knn_query(data, query_points, 2)
    np.testing.assert_array_equal(result.neighbor_indices, [[1, 0]])
    np.testing.assert_array_equal(result.neighbor_neg_distances, [[-49.0, -100.0]])
    assert result.neighbors.dtype == dtype
    far = rlaxlib.knn_query(jnp.array([[0]]), jnp.array([[100_000]]), 1)
    assert far.neighbor_neg_distances == -1e10


def test_half_precision_does_not_overflow():
    data, query_points = jnp.array([[-300.0], [0.0]]), jnp.array([[300.0]])
    result = rlaxlib.knn_query(
        data.astype(jnp.float16), query_points.astype(jnp.float16), 2
    )
    np.testing.assert_array_equal(result.neighbor_neg_distances, [[-9e4, -3.6e5]])
    assert result.neighbor_neg_distances.dtype == jnp.float32
    assert result.neighbors.dtype == jnp.float16


def test_a_metric_may_count_in_integers():
    data = jnp.array([[0, 1, 1], [1, 1, 1]], jnp.uint8)

    def hamming(x, y):
        return jnp.sum(x != y, dtype=jnp.uint8)

    result = rlaxlib.knn_query(data, data[:1], 2, hamming)
    np.testing.assert_array_equal(result.neighbor_neg_distances, [[0.0, -1.0]])


# --- How it behaves under JAX. ---


def test_the_gradient_goes_through_the_neighbours_alone():
    data, query_points = draw()
    spoiled = data.at[POINTS - 1].set(jnp.inf)
    weights = jnp.arange(1.0, 1 + QUERIES * WANTED).reshape(QUERIES, WANTED)

    def total(data, query_points):
        result = rlaxlib.knn_query(data, query_points, WANTED)
        return jnp.sum(weights * result.neighbor_neg_distances)

    by_data, by_queries = jax.jit(jax.grad(total, (0, 1)))(spoiled, query_points)
    indices, _ = search(spoiled, query_points)
    expected = np.zeros_like(data)
    for query, row in enumerate(indices):
        for rank, index in enumerate(row):
            offset = query_points[query] - data[index]
            expected[index] += 2 * weights[query, rank] * offset
    close(by_data, expected)
    close(jnp.sum(by_queries, 0), -expected.sum(0), rtol=1e-4)


def test_rows_that_are_empty_have_no_gradient():
    data = jnp.array([[1.0, 2.0], [jnp.inf, jnp.inf]])

    def total(data, query_points):
        result = rlaxlib.knn_query(data, query_points, 2)
        negated = result.neighbor_neg_distances
        return jnp.sum(jnp.where(jnp.isfinite(negated), negated, 0))

    with jax.debug_nans(True):
        gradients = jax.grad(total, (0, 1))(data, jnp.zeros((1, 2)))
    np.testing.assert_array_equal(gradients[0], [[-2, -4], [0, 0]])
    np.testing.assert_array_equal(gradients[1], [[2, 4]])


@pytest.mark.parametrize("offsets", [(0.0, 0.0), (0.0, 1e4), (1e4, 1e4)])
def test_a_batch_finds_what_each_finds_alone(offsets):
    batch = [draw(seed) for seed in range(2)]
    data, query_points = (
        jnp.stack([x + offset for x, offset in zip(each, offsets, strict=True)])
        for each in zip(*batch, strict=True)
    )
    find = functools.partial(rlaxlib.knn_query, num_neighbors=WANTED)
    results = jax.jit(jax.vmap(find))(data, query_points)
    for each in range(2):
        alone = jax.tree.map(lambda x, each=each: x[each], results)
        assert_found(data[each], query_points[each], alone)


def test_devices_may_share_the_queries():
    data, _ = draw()
    query_points = draw(queries=16)[1]
    mesh, spec = jax.make_mesh((4,), ("devices",)), PartitionSpec("devices")
    query_points = jax.device_put(query_points, NamedSharding(mesh, spec))

    def here(query_points):
        return rlaxlib.knn_query(data, query_points, WANTED)

    there = jax.shard_map(here, mesh=mesh, in_specs=spec, out_specs=spec)
    result = jax.tree.map(np.asarray, jax.jit(there)(query_points))
    assert_found(data, np.asarray(query_points), result)


@pytest.mark.parametrize("queries", [1, QUERIES])
@pytest.mark.parametrize("metric", [None, lambda x, y: jnp.max(jnp.abs(x - y))])
def test_an_eager_call_compiles_nothing_the_second_time(caplog, queries, metric):
    inputs = draw(queries=queries)
    rlaxlib.knn_query(*inputs, WANTED, metric)
    with jax.log_compiles():
        rlaxlib.knn_query(*inputs, WANTED, metric)
    assert "Compiling" not in caplog.text


def test_double_precision_stays():
    with contract.x64(True):
        data, query_points = (
            jnp.asarray(np.asarray(x), jnp.float64) + 1e6 for x in draw()
        )
        result = rlaxlib.knn_query(data, query_points, WANTED)
        assert result.neighbor_neg_distances.dtype == jnp.float64
        _, negated = search(data, query_points)
        np.testing.assert_allclose(result.neighbor_neg_distances, negated, rtol=1e-12)


# --- What it refuses. ---


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("query_points", (jnp.ones((3, 2)), jnp.ones((3, 4)), 1)),
        ("data", (jnp.ones((0, 2)), jnp.ones((3, 2)), 1)),
        ("num_neighbors", (jnp.ones((3, 2)), jnp.ones((3, 2)), 0)),
        ("num_neighbors", (jnp.ones((3, 2)), jnp.ones((3, 2)), 1.0)),
    ],
)
def test_refuses(name, arguments):
    with pytest.raises(rlaxlib.ArgumentError, match=f"^knn_query: .*`{name}` "):
        rlaxlib.knn_query(*arguments)


def test_refuses_a_traced_number_of_neighbors():
    with pytest.raises(rlaxlib.ArgumentError, match="static_argnames"):
        jax.jit(rlaxlib.knn_query)(jnp.ones((3, 2)), jnp.ones((3, 2)), 1)
