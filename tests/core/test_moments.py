"""Test sums that keep their rounding error."""

import jax
import jax.numpy as jnp
import numpy as np

from rlaxlib._core import moments


def test_a_sum_of_many_parts_has_the_precision_of_one():
    part, number = np.float32(0.1), 100_000

    def add(state, _):
        return moments.add(*state, jnp.asarray(part)), None

    (total, _), _ = jax.lax.scan(add, (jnp.zeros(()), jnp.zeros(())), length=number)
    np.testing.assert_allclose(total, number * np.float64(part), rtol=1e-7)
