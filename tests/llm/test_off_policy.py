"""Test weights and masks for tokens that another policy sampled."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib

RNG = np.random.default_rng(0)
LOG_RATIO = jnp.asarray(RNG.normal(size=6), jnp.float32)
MASK = jnp.array([True, False, True, True, False, True])
LEVELS = ["token", "sequence", "geometric"]
MODES = ["truncate", "mask", "band"]
POLICY, SAMPLER, REWARDS = jnp.asarray(RNG.normal(size=(3, 4)), jnp.float32)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("mode", MODES)
def test_ignored_tokens_change_nothing(level, mode):
    bad = jnp.where(MASK, LOG_RATIO, jnp.nan)
    found = rlaxlib.importance_weights(bad, MASK, level, mode)
    alone = rlaxlib.importance_weights(LOG_RATIO[MASK], None, level, mode)
    close(found[MASK], alone)
    np.testing.assert_array_equal(found[~MASK], 0.0)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("mode", MODES)
def test_weights_of_the_sampler_itself_are_one(level, mode):
    found = rlaxlib.importance_weights(jnp.zeros(6), None, level, mode)
    np.testing.assert_array_equal(found, 1.0)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("mode", MODES)
def test_extreme_ratios_give_finite_weights_within_bounds(level, mode):
    for value in (-1e4, -100.0, 100.0, 1e4):
        found = rlaxlib.importance_weights(jnp.full(6, value), None, level, mode)
        expected = 2.0 if value > 0 and mode == "truncate" else 0.0
        close(found, expected)


def test_weights_have_no_gradient():
    def total(x):
        return jnp.sum(rlaxlib.importance_weights(x, mode="mask", high=100.0))

    np.testing.assert_array_equal(jax.grad(total)(LOG_RATIO), 0.0)


def test_weights_make_estimates_from_the_sampler_unbiased():
    log_probs = [jax.nn.log_softmax(x) for x in (POLICY, SAMPLER)]
    weights = rlaxlib.importance_weights(log_probs[0] - log_probs[1], high=jnp.inf)
    found = jnp.sum(jnp.exp(log_probs[1]) * weights * REWARDS)
    close(found, jnp.sum(jnp.exp(log_probs[0]) * REWARDS))


def test_weights_of_sequences_are_unbiased_for_rewards_of_sequences():
    # Pairs of independent tokens, and a reward that depends on both.
    pairs = jnp.array(list(itertools.product(range(4), repeat=2)))
    rewards = jnp.asarray(RNG.normal(size=len(pairs)), jnp.float32)
    now, before = (jax.nn.log_softmax(x)[pairs] for x in (POLICY, SAMPLER))

    def estimate(level):
        weights = jax.vmap(
            lambda x: rlaxlib.importance_weights(x, level=level, high=jnp.inf)
        )(now - before)
        return jnp.sum(jnp.exp(jnp.sum(before, axis=1)) * weights[:, 0] * rewards)

    expected = jnp.sum(jnp.exp(jnp.sum(now, axis=1)) * rewards)
    close(estimate("sequence"), expected)
    assert abs(estimate("token") - expected) > 0.05


def test_modes_differ_in_what_they_drop():
    log_ratio = jnp.log(jnp.array([0.1, 0.5, 1.0, 2.0, 3.0]))
    truncate, mask, band = (
        rlaxlib.importance_weights(log_ratio, mode=mode, low=0.4, high=2.5)
        for mode in MODES
    )
    close(truncate, [0.1, 0.5, 1.0, 2.0, 2.5])
    close(mask, [0.1, 0.5, 1.0, 2.0, 0.0])
    close(band, [0.0, 0.5, 1.0, 2.0, 0.0])


def test_a_sequence_is_rejected_as_a_whole():
    far = LOG_RATIO.at[2].add(20.0)
    for level in ("sequence", "geometric"):
        weights = rlaxlib.importance_weights(far, None, level, "mask")
        assert not np.any(weights > 0)
    assert np.sum(rlaxlib.importance_weights(far, mode="mask") > 0) > 2


# --- Sequences that are far from the policy. ---


def test_only_negative_sequences_far_from_the_policy_are_dropped():
    old = jnp.full(6, -1.0)
    for adv, shift in itertools.product((-1.0, 0.0, 1.0), (-0.6, 0.0, 0.4, 0.6)):
        mask = rlaxlib.off_policy_sequence_mask(old - shift, old, adv, 0.5)
        np.testing.assert_array_equal(mask, not (adv < 0 and shift > 0.5))


def test_off_policy_mask_ignores_what_is_in_ignored_tokens():
    old = jnp.full(6, -1.0)
    new = jnp.where(MASK, old - 1.0, jnp.nan)
    for adv in (-1.0, 1.0):
        found = rlaxlib.off_policy_sequence_mask(new, old, adv, 0.5, sample_mask=MASK)
        np.testing.assert_array_equal(found, MASK if adv > 0 else np.zeros(6, bool))
