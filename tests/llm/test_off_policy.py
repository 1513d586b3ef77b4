"""Test weights and masks for tokens that another policy sampled."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib

RNG = np.random.default_rng(0)
LOG_RATIO = np.float32(RNG.normal(size=6))
MASK = np.array([True, False, True, True, False, True])
LEVELS = ["token", "sequence", "geometric"]
MODES = ["truncate", "mask"]
POLICY, SAMPLER, REWARDS = RNG.normal(size=(3, 4))
importance_weights = jax.jit(
    rlaxlib.importance_weights, static_argnames=("level", "kind")
)
off_policy_sequence_mask = jax.jit(rlaxlib.off_policy_sequence_mask)


def log_softmax(x):
    return x - np.log(np.sum(np.exp(x)))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("mode", MODES)
def test_ignored_tokens_change_nothing(level, mode):
    bad = np.where(MASK, LOG_RATIO, np.float32(np.nan))
    found = np.asarray(importance_weights(bad, level, mode, sample_mask=MASK))
    alone = importance_weights(LOG_RATIO[MASK], level, mode, sample_mask=None)
    close(found[MASK], alone)
    np.testing.assert_array_equal(found[~MASK], 0.0)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("mode", MODES)
def test_weights_of_the_sampler_itself_are_one(level, mode):
    found = importance_weights(0 * LOG_RATIO, level, mode, sample_mask=None)
    np.testing.assert_array_equal(found, 1.0)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("mode", MODES)
def test_extreme_ratios_give_finite_weights_within_bounds(level, mode):
    for value in (-1e4, -100.0, 100.0, 1e4):
        found = importance_weights(
            np.full(6, value, np.float32), level, mode, sample_mask=None
        )
        expected = 2.0 if value > 0 and mode == "truncate" else 0.0
        close(found, expected)


def test_far_ratios_of_tokens_cancel_in_a_sequence():
    """What is bounded is the sum, never a term of it."""
    log_ratio = np.float32([30.0, -30.0, 0.0, 1e4, -1e4, 0.0])
    for level in ("sequence", "geometric"):
        np.testing.assert_array_equal(importance_weights(log_ratio, level), 1.0)
    log_ratio[0] = -np.inf
    np.testing.assert_array_equal(importance_weights(log_ratio, "sequence"), 0.0)


def test_weights_have_no_gradient():
    def total(x):
        return jnp.sum(importance_weights(x, kind="mask", maximum=100.0))

    np.testing.assert_array_equal(jax.jit(jax.grad(total))(LOG_RATIO), 0.0)


def test_weights_make_estimates_from_the_sampler_unbiased():
    now, before = log_softmax(POLICY), log_softmax(SAMPLER)
    weights = importance_weights(np.float32(now - before), maximum=np.inf)
    found = np.sum(np.exp(before) * np.asarray(weights) * REWARDS)
    close(found, np.sum(np.exp(now) * REWARDS))


def test_weights_of_sequences_are_unbiased_for_rewards_of_sequences():
    # Pairs of independent tokens, and a reward that depends on both.
    pairs = np.array(list(itertools.product(range(4), repeat=2)))
    rewards = RNG.normal(size=len(pairs))
    now, before = (log_softmax(x)[pairs] for x in (POLICY, SAMPLER))

    def estimate(level):
        each = jax.vmap(lambda x: importance_weights(x, level=level, maximum=jnp.inf))
        weights = np.asarray(jax.jit(each)(np.float32(now - before)))
        return np.sum(np.exp(np.sum(before, axis=1)) * weights[:, 0] * rewards)

    expected = np.sum(np.exp(np.sum(now, axis=1)) * rewards)
    close(estimate("sequence"), expected)
    assert abs(estimate("token") - expected) > 0.05


def test_modes_differ_in_what_they_drop():
    log_ratio = np.log(np.float32([0.1, 0.5, 1, 2, 3]))
    bounds = {(0.4, 2.5): [], (None, 2.5): [0], (0.4, None): [4], (None, None): [0, 4]}
    for (minimum, maximum), free in bounds.items():
        truncate, mask = (
            importance_weights(log_ratio, kind=mode, minimum=minimum, maximum=maximum)
            for mode in MODES
        )
        is_free = np.isin(np.arange(5), free)
        close(truncate, np.where(is_free, np.exp(log_ratio), [0.4, 0.5, 1, 2, 2.5]))
        close(mask, np.where(is_free, np.exp(log_ratio), [0.0, 0.5, 1, 2, 0.0]))


def test_a_sequence_is_rejected_as_a_whole():
    far = LOG_RATIO + 20 * np.eye(6, dtype=np.float32)[2]
    for level in ("sequence", "geometric"):
        weights = importance_weights(far, level, "mask", sample_mask=None)
        assert np.max(weights) == 0
    assert np.count_nonzero(importance_weights(far, kind="mask")) > 2


@pytest.mark.parametrize("mode", MODES)
def test_a_maximum_must_not_be_below_0_or_the_minimum(mode):
    with pytest.raises(rlaxlib.ArgumentError, match=r"`maximum` is -0\.1, must be "):
        rlaxlib.importance_weights(LOG_RATIO, "token", mode, maximum=-0.1)
    with pytest.raises(rlaxlib.ArgumentError, match=r"`maximum` is 0\.5, must be "):
        rlaxlib.importance_weights(LOG_RATIO, "token", mode, 0.9, 0.5)


@pytest.mark.parametrize("mode", MODES)
def test_a_segment_out_of_range_gives_nan(mode):
    ids = jnp.array([0, 0, 1, 1, 6, -1])
    found = importance_weights(LOG_RATIO, "sequence", mode, segment_ids=ids)
    np.testing.assert_array_equal(np.isnan(found), np.asarray(ids) % 7 > 1)


# --- Sequences that are far from the policy. ---


def test_only_negative_sequences_far_from_the_policy_are_dropped():
    old = np.full(6, -1, np.float32)
    shifts = np.float32([-0.6, 0, 0.4, 0.6])
    for adv, shift in itertools.product((-1.0, 0.0, 1.0), shifts):
        mask = off_policy_sequence_mask(old - shift, old, adv, 0.5)
        np.testing.assert_array_equal(mask, not (adv < 0 and shift > 0.5))


def test_off_policy_mask_ignores_what_is_in_ignored_tokens():
    old = np.full(6, -1, np.float32)
    new = np.where(MASK, 2 * old, np.float32(np.nan))
    for adv in (-1.0, 1.0):
        found = off_policy_sequence_mask(new, old, adv, 0.5, sample_mask=MASK)
        np.testing.assert_array_equal(found, MASK if adv > 0 else np.zeros(6, bool))
