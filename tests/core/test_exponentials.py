"""Exponentials near 1 keep their digits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import x64

from rlaxlib._core import exponentials


def excess(x):
    """The series, which converges for all numbers."""
    term, total = x * x / 2, np.zeros_like(x)
    for n in range(3, 80):
        total, term = total + term, term * x / n
    return total


@pytest.mark.parametrize("wide", [False, True])
def test_what_an_exponential_is_beyond_its_tangent_keeps_all_digits(wide):
    sizes = np.logspace(-9, 1, 300)
    with x64(wide):
        x = jnp.asarray(np.concatenate([-sizes, sizes]))
        result, eps = exponentials.excess(x), float(jnp.finfo(x.dtype).eps)
    exact = excess(np.asarray(x, np.float128))
    np.testing.assert_allclose(
        np.asarray(result, np.float128), exact, rtol=8 * eps, atol=0
    )


@pytest.mark.parametrize("wide", [False, True])
def test_an_exponential_less_one_keeps_all_digits_and_has_its_slope(wide):
    sizes = np.concatenate([[0.0], np.geomspace(1e-30, 80, 999)])
    with x64(wide):
        x = jnp.asarray(np.concatenate([-sizes, sizes]), float if wide else np.float32)
        values, slopes = jax.vmap(jax.value_and_grad(exponentials.less_one))(x)
        eps = float(jnp.finfo(x.dtype).eps)
    exact = np.asarray(x, np.float128)
    np.testing.assert_allclose(values, np.expm1(exact).astype(float), rtol=4 * eps)
    np.testing.assert_allclose(slopes, np.exp(exact).astype(float), rtol=4 * eps)


def test_an_exponential_less_one_that_overflows_is_infinite_and_so_is_its_slope():
    x = jnp.array([-jnp.inf, -1000.0, 1000.0, jnp.inf])
    values, slopes = jax.vmap(jax.value_and_grad(exponentials.less_one))(x)
    np.testing.assert_array_equal(values, [-1, -1, np.inf, np.inf])
    np.testing.assert_array_equal(slopes, [0, 0, np.inf, np.inf])
