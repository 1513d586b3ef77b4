"""Exponentials near 1 keep their digits."""

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
