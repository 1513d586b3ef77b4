"""Tests of what is computed again only where a faster way did not find it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlaxlib._core import loops


@pytest.mark.parametrize(
    ("found", "expected", "computed"),
    [
        ([True, True], [[-1.0, 1.0], [-1.0, 2.0]], False),
        ([True, False], [[-1.0, 1.0], [20.0, 200.0]], True),
        ([False, False], [[10.0, 100.0], [20.0, 200.0]], True),
    ],
)
@pytest.mark.parametrize("transform", [jax.jit, lambda f: f], ids=["jit", "eager"])
def test_again_unless_of_a_batch(transform, found, expected, computed):
    rounds = []

    def compute(x):
        jax.debug.callback(lambda: rounds.append(None))
        return 10 * x, 100 * x

    def search(found, x):
        return loops.again_unless(found, (-jnp.ones_like(x), x), compute, x)

    x = jnp.array([1.0, 2.0])
    results = transform(jax.vmap(search))(jnp.array(found), x)
    jax.effects_barrier()

    np.testing.assert_array_equal(np.stack(results, axis=-1), expected)
    assert bool(rounds) == computed


@pytest.mark.parametrize("found", [True, False])
def test_again_unless_of_one(found):
    result = loops.again_unless(jnp.array(found), jnp.zeros(2), jnp.cos, jnp.ones(2))
    np.testing.assert_array_equal(
        result, np.zeros(2) if found else jnp.cos(jnp.ones(2))
    )
