"""Test how vectors are shortened: both ways of it, at all sizes."""

import functools

import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from rlaxlib.policies import _lengths

SHAPE = np.array([3.0, -1.0, 0.5, 2.0])


def definition(x, most):
    """Scale a vector to a length, if it is longer."""
    return x * min(1.0, most / np.linalg.norm(x)) if np.any(x) else x


@pytest.mark.parametrize("path", ["_by_units", "_by_units_if_needed"])
@pytest.mark.parametrize("most", [0.0, 1e-30, 1.0, 1e30, np.inf])
def test_every_length_is_measured_on_every_device(path, most):
    sizes = np.concatenate([[0.0], np.geomspace(1e-37, 1e38, 76)])
    x = np.asarray(sizes[:, None] * SHAPE, np.float32)
    compute = functools.partial(getattr(_lengths, path), ceiling=np.inf)
    measure = jax.jit(jax.vmap(compute, (0, None)))
    ratio = np.asarray(measure(x, jnp.sqrt(jnp.float32(most))), np.float64) ** 2
    lengths = np.linalg.norm(np.asarray(x, np.float64), axis=-1)
    np.testing.assert_array_equal(ratio[0], np.inf)
    np.testing.assert_allclose(ratio[1:], np.float32(most) / lengths[1:], rtol=1e-6)


@pytest.mark.parametrize("most", [0.0, 1e-30, 1.0, 1e30, np.inf])
def test_a_vector_keeps_its_direction_whatever_else_is_in_its_batch(most):
    sizes = np.array([1e-37, 1e-25, 1.0, 0.0, 1e20, 1e38, 7.0])
    x = np.asarray(sizes[:, None] * SHAPE, np.float32)
    shortened = jax.jit(jax.vmap(_lengths.shorten, (0, None)))(x, jnp.float32(most))
    limit = float(np.float32(most))
    expected = [definition(each, limit) for each in np.float64(x)]
    np.testing.assert_allclose(shortened, expected, rtol=2e-6, atol=1e-36)
    alone = [_lengths.shorten(each, jnp.float32(most)) for each in jnp.asarray(x)]
    np.testing.assert_allclose(shortened, alone, rtol=1e-6, atol=1e-36)


@pytest.mark.parametrize("most", [0.0, 2.0, 100.0])
def test_derivatives_are_those_of_the_definition(most):
    shorten = jax.jit(_lengths.shorten)
    with contract.x64(True):
        x, most = jnp.asarray(SHAPE), jnp.asarray(most)
        check_grads(lambda x: shorten(x, most), (x,), 2)
        if most > 0:
            check_grads(lambda most: shorten(x, most), (most,), 2)
            check_grads(shorten, (x, most), 2)


@pytest.mark.parametrize("size", [1e-30, 1e-10, 1.0, 1e10, 1e30])
def test_slopes_keep_their_digits_at_any_size(size):
    x, most = jnp.asarray(size * SHAPE, jnp.float32), jnp.float32(size)
    slope, by_most = jax.jacobian(_lengths.shorten, (0, 1))(x, most)
    direction = SHAPE / np.linalg.norm(SHAPE)
    across = np.eye(len(SHAPE)) - np.outer(direction, direction)
    np.testing.assert_allclose(by_most, direction, rtol=2e-6)
    np.testing.assert_allclose(slope, across / np.linalg.norm(SHAPE), atol=1e-6)


def test_a_vector_without_length_has_the_slope_of_one_that_is_short():
    derive = jax.jit(jax.jacobian(_lengths.shorten))
    derive_twice = jax.jit(jax.hessian(_lengths.shorten))
    for most in (0.0, 1.0, np.inf):
        slope = derive(jnp.zeros(2), jnp.float32(most))
        np.testing.assert_array_equal(slope, np.eye(2))
        hessian = derive_twice(jnp.zeros(2), jnp.float32(most))
        np.testing.assert_array_equal(hessian, np.zeros((2, 2, 2)))
