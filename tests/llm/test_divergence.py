"""Test trust regions of language models: limits, rare tokens, and long sequences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("kind", ["tv", "kl"])
def test_on_policy_tokens_are_kept_and_updates_back_are_too(kind):
    p = RANDOM.uniform(0.05, 0.95, 50).astype(np.float32)
    assert np.all(
        rlaxlib.divergence_ppo_mask(np.log(p), np.log(p), 1.0, 0.0, 0.0, kind)
    )
    q = RANDOM.uniform(0.05, 0.95, 50).astype(np.float32)
    # An update that moves the policy back toward the old one.
    adv = np.where(p > q, -1, 1).astype(np.float32)
    assert np.all(
        rlaxlib.divergence_ppo_mask(np.log(p), np.log(q), adv, 0.0, 0.0, kind)
    )
    masked = rlaxlib.divergence_ppo_mask(np.log(p), np.log(q), -adv, 0.0, 0.0, kind)
    assert not np.any(masked)


def test_rare_tokens_may_change_by_a_large_ratio_and_frequent_ones_may_not():
    log_prob = np.log(np.float32([1e-3, 0.9]))
    old_log_prob = np.log(np.float32([1e-5, 0.5]))
    mask = rlaxlib.divergence_ppo_mask(log_prob, old_log_prob, 1.0)
    np.testing.assert_array_equal(mask, [True, False])


def test_certain_and_impossible_tokens_have_a_divergence():
    log_prob = np.float32([0.0, 0.0, -np.inf, -np.inf, -1.0, -1.0])
    old_log_prob = np.float32([0.0, -1.0, -np.inf, -1.0, 0.0, -np.inf])
    for kind in ("tv", "kl"):
        up = rlaxlib.divergence_ppo_mask(log_prob, old_log_prob, 1.0, kind=kind)
        down = rlaxlib.divergence_ppo_mask(log_prob, old_log_prob, -1.0, kind=kind)
        np.testing.assert_array_equal(up, [True, False, True, True, True, False])
        np.testing.assert_array_equal(down, [True, True, True, False, False, True])


def test_weights_fall_to_zero_far_from_the_sampler_without_overflow():
    old = np.zeros(1000, np.float32)
    for shift in (1.0, -1.0):
        for adv in (1.0, -1.0):
            assert not rlaxlib.vespo_weight(old + np.float32(shift), old, adv).any()
    np.testing.assert_array_equal(rlaxlib.vespo_weight(old, old, 1.0), 1)


def test_the_weight_of_a_sequence_over_devices_is_that_of_one_device():
    x = RANDOM.normal(size=(2, 4, 6)).astype(np.float32) / 10
    mapped = jax.vmap(
        lambda x, y: rlaxlib.vespo_weight(x, y, 1.0, axis_name="i"), axis_name="i"
    )
    whole = rlaxlib.vespo_weight(x[0].ravel(), x[1].ravel(), 1.0)
    close(mapped(*x), whole.reshape(4, 6))


def test_the_weight_has_no_gradient():
    x = RANDOM.normal(size=(2, 6)).astype(np.float32)

    def total(*x):
        return jnp.sum(rlaxlib.vespo_weight(*x, 1.0))

    gradients = jax.grad(total, (0, 1))(*x)
    assert not any(np.any(each) for each in gradients)
