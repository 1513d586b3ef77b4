"""Test the values of ensembles: limits, sampled subsets, and gradients."""

import collections
import itertools

import jax
import jax.numpy as jnp
import numpy as np
from experience import close

import rlaxlib

Q = jnp.array([3.0, -1.0, 2.0, 5.0])


def test_the_mix_of_bcq_interpolates_between_maximum_and_minimum():
    for weight, expected in ((0.0, 5.0), (1.0, -1.0), (0.75, 0.5)):
        close(rlaxlib.ensemble_value(Q, "min_max_mix", weight), expected)


def test_one_critic_gives_its_own_value():
    for kind in ("min", "mean", "min_max_mix"):
        assert rlaxlib.ensemble_value(Q[:1], kind) == 3.0
    assert rlaxlib.subset_minimum(jax.random.key(0), Q[:1], 1) == 3.0


def test_a_subset_may_be_all_critics_or_any_single_one():
    keys = jax.random.split(jax.random.key(0), 64)
    whole = jax.vmap(lambda key: rlaxlib.subset_minimum(key, Q, 4))(keys)
    np.testing.assert_array_equal(whole, jnp.full(64, -1.0))
    single = jax.vmap(lambda key: rlaxlib.subset_minimum(key, Q, 1))(keys)
    assert set(single.tolist()) == set(Q.tolist())


def test_all_subsets_are_equally_likely():
    draws = 6000
    keys = jax.random.split(jax.random.key(1), draws)
    # A critic is in the subset if lowering its value lowers the minimum.
    drawn = jax.vmap(
        lambda key: jax.vmap(
            lambda i: rlaxlib.subset_minimum(
                key, jnp.where(i == jnp.arange(4), -9.0, 0.0), 2
            )
        )(jnp.arange(4))
    )(keys)
    counts = collections.Counter(tuple(np.flatnonzero(row)) for row in drawn < 0)
    assert set(counts) == set(itertools.combinations(range(4), 2))
    # Five standard deviations of a frequency of 1/6.
    for count in counts.values():
        assert abs(count / draws - 1 / 6) < 5 * np.sqrt(5 / 36 / draws)


def test_one_key_draws_one_subset_for_a_whole_batch():
    batch = jnp.tile(Q, (32, 1))
    draw = jax.vmap(lambda key, q: rlaxlib.subset_minimum(key, q, 2), (None, 0))
    assert len(set(draw(jax.random.key(3), batch).tolist())) == 1


def test_only_the_minimum_of_the_subset_gets_a_gradient():
    for seed in range(8):
        key = jax.random.key(seed)
        value, gradient = jax.value_and_grad(
            lambda q, key=key: rlaxlib.subset_minimum(key, q, 2)
        )(Q)
        np.testing.assert_array_equal(gradient, value == Q)
