"""Test expectations, quotients, logarithms and norms at their edges."""

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
import pytest
import shared_product
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import rlaxlib
from rlaxlib._core import safe

gradients_of_expectation = jax.jit(jax.value_and_grad(safe.expectation, (0, 1)))


def test_a_probability_of_0_beside_minus_infinity_adds_nothing():
    p, x = np.float32([0.25, 0.75, 0.0]), np.float32([1.0, 2.0, -np.inf])
    value, (by_p, by_x) = gradients_of_expectation(p, x)
    assert value == 1.75
    np.testing.assert_array_equal(by_p[:2], [1.0, 2.0])
    assert np.isfinite(by_p[2])
    np.testing.assert_array_equal(by_x, p)


def test_a_finite_value_is_the_gradient_of_a_probability_of_0():
    p, x = np.float32([1.0, 0.0, 0.0]), np.float32([3.0, -5.0, 7.0])
    np.testing.assert_array_equal(gradients_of_expectation(p, x)[1][0], x)


def test_a_floor_replaces_minus_infinity_alone():
    x = np.float32([-np.inf, -1e14, -1.0, 0.0, 1e30, np.inf, np.nan])
    value, tangent = jax.jvp(safe.floored, (x,), (np.ones_like(x),))
    np.testing.assert_array_equal(value[1:], x[1:])
    assert value[0] == np.float32(-1e15)
    np.testing.assert_array_equal(tangent, x != -np.inf)


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_sums_over_any_axis(axis):
    rng = np.random.default_rng(0)
    p, x = rng.normal(size=(2, 3, 4))
    for function in (safe.expectation, safe.dot):
        compiled = jax.jit(function, static_argnums=2)
        found = compiled(np.float32(p)[None], np.float32(x)[None], axis)
        np.testing.assert_allclose(found, np.sum((p * x)[None], axis), 1e-5, 1e-6)


# --- Sums of products on a CPU. ---

EACH = [
    (((1024, 4), (40, 1024, 4)), (0, 0)),
    (((4,), (40, 1024, 4)), (None, 0)),
    (((40, 1024, 4), (4,)), (0, None)),
]


@pytest.mark.parametrize(("shapes", "axes"), EACH)
@pytest.mark.parametrize("function", [safe.dot, safe.expectation])
def test_a_large_batch_may_share_a_factor(function, shapes, axes):
    rng = np.random.default_rng(0)
    p, q = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
    outer = [0 if x.ndim == 3 else None for x in (p, q)]

    def losses(p, q):
        one = jax.vmap(lambda p, q: -function(p, q), axes)
        return jax.vmap(one, outer)(p, q)

    def total(p, q):
        value = losses(p, q)
        return jnp.sum(value), value

    by_each, value = jax.jit(jax.grad(total, (0, 1), has_aux=True))(p, q)
    right = -np.sum(np.float64(p) * q, -1)
    for found in (value, losses(p, q), jax.jit(losses)(p, q)):
        np.testing.assert_allclose(found, right, 1e-5, 1e-5)
    for found, x, other in zip(by_each, (p, q), (q, p), strict=True):
        expected = -np.float64(np.broadcast_to(other, (40, 1024, 4)))
        expected = expected.sum(tuple(range(3 - x.ndim)))
        np.testing.assert_allclose(found, expected, 1e-4, 1e-2 if x.ndim == 1 else 1e-4)


def test_a_quotient_by_0_is_the_given_value_without_a_gradient():
    x, y = np.float32([3, 3]), np.float32([0, 2])

    def total(x, y):
        found = safe.divide(x, y, otherwise=7.0)
        return jnp.sum(found), found

    slopes, value = jax.grad(total, (0, 1), has_aux=True)(x, y)
    np.testing.assert_array_equal(value, [7, 1.5])
    np.testing.assert_array_equal(slopes, [[0, 0.5], [0, -0.75]])


@pytest.mark.parametrize("otherwise", [-np.inf, 0.5])
def test_a_logarithm_of_0_is_the_given_value_without_a_gradient(otherwise):
    x = np.float32([0, 1, 2])
    value, slopes = jax.jvp(lambda x: safe.log(x, otherwise), (x,), (np.ones_like(x),))
    np.testing.assert_allclose(value, [otherwise, 0, np.log(2)], rtol=1e-6)
    np.testing.assert_array_equal(slopes, [0, 1, 0.5])


@pytest.mark.parametrize("specs", [("x", None), (None, "x")])
def test_either_factor_may_be_sharded_over_explicit_axes(specs):
    mesh = jax.make_mesh((4,), ("x",), axis_types=(AxisType.Explicit,))
    ones = np.ones((8, 4), np.float32)
    x, y = (jax.device_put(ones, NamedSharding(mesh, P(spec))) for spec in specs)
    for function in (safe.dot, safe.expectation):
        found = function(x, y)
        assert jax.typeof(found).sharding.spec == P("x")
        np.testing.assert_array_equal(found, np.full(8, 4))


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="the fault is of CPUs")
def test_one_jaxlib_alone_sums_a_product_of_a_shared_factor_wrongly():
    is_wrong = shared_product.error() > 1e-4
    if jaxlib.__version__ == "0.10.2":
        # Not so with XLA_FLAGS=--xla_cpu_experimental_ynn_fusion_type=
        assert is_wrong
        assert shared_product.error(**shared_product.CURE) < 1e-4
    else:
        message = "this jaxlib has the fault too: name it in `safe.dot` and the guide"
        assert not is_wrong, message


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="the fault is of CPUs")
def test_some_jaxlibs_sum_a_product_of_shared_factors_wrongly():
    is_wrong = shared_product.error_of_both() > 1e-4
    assert is_wrong == (jaxlib.__version__ in shared_product.WRONG)
    if is_wrong:
        assert shared_product.error_of_both(**shared_product.CURE) < 1e-4


# --- Vectors of which only the direction counts, or that a norm measures. ---

VECTORS = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)


def mmd(kind):
    return lambda x, scale: rlaxlib.maximum_mean_discrepancy(*x, kind, scale)


# Functions of vectors and their scale, and the power of the scale in the result.
SCALED = {
    "cosine_consistency_loss": (
        lambda x, scale: rlaxlib.cosine_consistency_loss(
            *x, stop_target_gradients=False
        ),
        0,
    ),
    "edac_diversity_loss": (lambda x, scale: rlaxlib.edac_diversity_loss(x[0]), 0),
    "invert_gradients": (
        lambda x, scale: rlaxlib.invert_gradients(
            x[0, 0], x[1, 0], -5 * scale, 5 * scale
        ),
        1,
    ),
    "maximum_mean_discrepancy, energy": (mmd("energy"), 1),
    "maximum_mean_discrepancy, gaussian": (mmd("gaussian"), 0),
    "maximum_mean_discrepancy, laplacian": (mmd("laplacian"), 0),
    "mrn_distance": (
        lambda x, scale: rlaxlib.mrn_distance(x[0, 0], x[0, 1], x[1, 0], x[1, 1]),
        1,
    ),
}


@pytest.mark.parametrize("name", SCALED)
def test_vectors_count_by_their_directions_at_small_and_large_scales(name):
    function, power = SCALED[name]

    @jax.jit
    @jax.value_and_grad
    def evaluate(x, scale):
        return jnp.sum(function(scale * x, scale) / scale**power)

    value, gradient = evaluate(VECTORS, 1.0)
    for scale in (1e-10, 1e10):
        found = evaluate(VECTORS, scale)
        np.testing.assert_allclose(found[0], value, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(found[1], gradient, rtol=1e-4, atol=1e-5)


def test_a_vector_of_0_has_no_direction_and_no_gradient():
    for function, pulled in ((safe.norm, jnp.ones(())), (safe.direction, jnp.ones(3))):
        value, pull = jax.vjp(function, jnp.zeros(3))
        assert not np.any(value)
        assert not np.any(pull(pulled)[0])
