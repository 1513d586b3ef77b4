"""Test the values of ensembles: limits, sampled subsets, and gradients."""

import collections
import itertools

import jax
import jax.numpy as jnp
import numpy as np
from experience import close

import rlaxlib

Q = np.float32([3.0, -1.0, 2.0, 5.0])


def test_the_mix_of_bcq_interpolates_between_maximum_and_minimum():
    for weight, expected in ((0.0, 5.0), (1.0, -1.0), (0.75, 0.5)):
        close(rlaxlib.ensemble_value(Q, "min_max_mix", weight), expected)


def test_one_critic_gives_its_own_value():
    for kind in ("min", "mean", "min_max_mix"):
        assert rlaxlib.ensemble_value(Q[:1], kind) == 3.0
    assert rlaxlib.subset_minimum(jax.random.key(0), Q[:1], 1) == 3.0


def test_a_subset_may_be_all_critics_or_any_single_one():
    @jax.jit
    def sample(key):
        subset = jax.vmap(rlaxlib.subset_minimum, (0, None, None))
        keys = jax.random.split(key, 64)
        return subset(keys, Q, 4), subset(keys, Q, 1)

    whole, single = map(np.asarray, sample(jax.random.key(0)))
    np.testing.assert_array_equal(whole, np.full(64, -1.0))
    assert set(single.tolist()) == set(Q.tolist())


def test_all_subsets_are_equally_likely():
    draws = 6000
    # A critic is in the subset if lowering its value lowers the minimum.
    lowered = np.where(np.eye(4, dtype=bool), np.float32(-9), np.float32(0))

    @jax.jit
    def sample(key):
        subset = jax.vmap(rlaxlib.subset_minimum, (None, 0, None))
        keys = jax.random.split(key, draws)
        return jax.vmap(subset, (0, None, None))(keys, lowered, 2)

    drawn = np.asarray(sample(jax.random.key(1)))
    counts = collections.Counter(tuple(np.flatnonzero(row)) for row in drawn < 0)
    assert set(counts) == set(itertools.combinations(range(4), 2))
    # Five standard deviations of a frequency of 1/6.
    for count in counts.values():
        assert abs(count / draws - 1 / 6) < 5 * np.sqrt(5 / 36 / draws)


def test_one_key_draws_one_subset_for_a_whole_batch():
    draw = jax.jit(
        jax.vmap(lambda key, q: rlaxlib.subset_minimum(key, q, 2), (None, 0))
    )
    found = np.asarray(draw(jax.random.key(3), np.tile(Q, (32, 1))))
    assert len(set(found.tolist())) == 1


def test_only_the_minimum_of_the_subset_gets_a_gradient():
    @jax.jit
    def evaluate(key):
        def one(key):
            minimum = jax.value_and_grad(rlaxlib.subset_minimum, argnums=1)
            return minimum(key, jnp.asarray(Q), 2)

        return jax.vmap(one)(jax.random.split(key, 8))

    values, gradients = map(np.asarray, evaluate(jax.random.key(0)))
    np.testing.assert_array_equal(gradients, values[:, None] == Q)
