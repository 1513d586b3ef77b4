"""Test the mix of agents' values: monotonicity, greedy actions, and the sum."""

import jax
import jax.numpy as jnp
import numpy as np
from experience import close

import rlaxlib

RANDOM = np.random.default_rng(0)
WEIGHTS = [
    RANDOM.normal(size=shape).astype(np.float32) for shape in ((3, 8), (8,), (8,), ())
]


def test_the_mix_increases_with_the_value_of_each_agent():
    gradients = jax.jit(jax.vmap(lambda q: jax.grad(rlaxlib.qmix)(q, *WEIGHTS)))
    assert np.all(gradients(RANDOM.normal(size=(50, 3)).astype(np.float32) * 10) > 0)


def test_greedy_actions_of_the_agents_maximise_the_value_of_the_team():
    q = RANDOM.normal(size=(3, 4)).astype(np.float32)
    joint = jnp.stack(jnp.meshgrid(*q, indexing="ij"), axis=-1).reshape(-1, 3)
    team = jax.jit(jax.vmap(lambda q: rlaxlib.qmix(q, *WEIGHTS)))(joint)
    greedy = np.ravel_multi_index(tuple(np.argmax(q, axis=1)), (4, 4, 4))
    assert np.argmax(team) == greedy


def test_one_unit_with_weights_of_one_sums_positive_values():
    q = np.float32([1.0, 2.0, 0.5])
    ones = np.ones((3, 1), np.float32), np.zeros(1, np.float32), np.ones(1, np.float32)
    close(rlaxlib.qmix(q, *ones, 0.0), 3.5)


def test_large_negative_values_have_finite_gradients():
    q = np.full(3, -1e30, np.float32)
    value, gradient = jax.jit(jax.value_and_grad(rlaxlib.qmix))(q, *WEIGHTS)
    assert np.isfinite(value)
    assert np.all(np.isfinite(gradient))
