"""Test PPO: where its losses have a gradient, identities, masks and extreme inputs.

Tests that all losses of log-probabilities share, those of `_ppo_penalty` included, are
in this file.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close
from scipy.special import log_softmax, softmax

import rlaxlib

RNG = np.random.default_rng(0)
OLD = -RNG.uniform(0.5, 2.0, 64).astype(np.float32)
LOG_PROB = OLD + RNG.normal(scale=0.5, size=64).astype(np.float32)
ADVANTAGES = RNG.normal(size=64).astype(np.float32)
POLICIES = RNG.normal(size=(2, 5)).astype(np.float32)


def ppo_penalty_loss(log_prob_t, old_log_prob_t, adv_t, **settings):
    return rlaxlib.ppo_penalty_loss(
        log_prob_t, old_log_prob_t, adv_t, 0.5, kl=None, **settings
    )


def decoupled_ppo_loss(log_prob_t, old_log_prob_t, adv_t, **settings):
    return rlaxlib.decoupled_ppo_loss(
        log_prob_t, old_log_prob_t, old_log_prob_t, adv_t, **settings
    )


LOSSES = {
    "ppo_clip": rlaxlib.ppo_clip_loss,
    "decoupled_ppo": decoupled_ppo_loss,
    "ppo_penalty": ppo_penalty_loss,
    "spo": rlaxlib.simple_policy_loss,
    "discovered_policy": rlaxlib.discovered_policy_loss,
}
each_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)


@functools.partial(jax.jit, static_argnums=0)
def evaluate(loss, log_prob, *others, **settings):
    """Return losses, outputs, and the gradient of each loss by its first argument."""

    def total(log_prob):
        losses, outputs = loss(log_prob, *others, **settings)
        return jnp.sum(losses), (losses, outputs)

    gradient, (losses, outputs) = jax.grad(total, has_aux=True)(log_prob)
    return losses, outputs, gradient


def tiled(*arrays):
    """Return as many steps of each array as the programs of most tests have."""
    return [np.resize(np.asarray(x), 64) for x in arrays]


# --- Losses of log-probabilities. ---


@each_loss
def test_on_policy_each_loss_is_the_policy_gradient(loss):
    value, _, gradient = evaluate(loss, OLD, OLD, ADVANTAGES)
    np.testing.assert_array_equal(value, -ADVANTAGES)
    close(gradient, -ADVANTAGES)


@each_loss
def test_one_advantage_for_all_steps_is_that_of_each(loss):
    one, each = (evaluate(loss, LOG_PROB, OLD, x)[0] for x in (-2.0, 0 * OLD - 2))
    close(one, each)


@each_loss
def test_a_masked_step_has_no_influence_and_no_loss(loss):
    mask = np.arange(64) % 3 > 0
    invalid = np.where(
        mask, (LOG_PROB, OLD, ADVANTAGES), [[np.nan], [-np.inf], [np.inf]]
    )
    found = evaluate(loss, *np.float32(invalid), sample_mask=mask)
    expected = evaluate(loss, LOG_PROB, OLD, ADVANTAGES)
    jax.tree.map(
        lambda one, other: close(np.asarray(one)[mask], np.asarray(other)[mask]),
        found,
        expected,
    )
    value, _, by_log_prob = found
    np.testing.assert_array_equal(np.asarray(value)[~mask], 0.0)
    np.testing.assert_array_equal(np.asarray(by_log_prob)[~mask], 0.0)


@each_loss
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_distant_policies_have_a_finite_loss_and_gradient(loss, dtype):
    far = np.array([0.0, -1e4, 0.0, -np.inf, -np.inf, 3e4], dtype)
    old = np.array([-1e4, 0.0, -np.inf, 0.0, -np.inf, 0.0], dtype)
    adv = np.repeat(np.array([-1.0, 0.0, 1.0], dtype), 6)
    for leaf in jax.tree.leaves(evaluate(loss, *tiled(far, old, adv))):
        assert np.all(np.isfinite(leaf))


@each_loss
def test_ratio_is_bounded_and_its_logarithm_is_not(loss):
    (log_ratio,) = tiled(np.float32([50.0, 5.0, -5.0, -50.0]))
    _, outputs, _ = evaluate(loss, log_ratio, 0 * OLD, 0 * OLD)
    np.testing.assert_array_equal(outputs.log_ratio, log_ratio)
    np.testing.assert_allclose(outputs.ratio, np.exp(np.minimum(log_ratio, 40)), 1e-5)


@each_loss
def test_outputs_have_the_log_ratio_that_diagnostics_take(loss):
    found = evaluate(loss, LOG_PROB, OLD, ADVANTAGES)[1].log_ratio
    np.testing.assert_allclose(found, LOG_PROB - OLD, rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(evaluate(loss, OLD, OLD, OLD)[1].log_ratio, 0.0)


def test_diagnostics_take_the_log_ratio_of_a_loss():
    mask = np.arange(64) > 8

    @jax.jit
    def diagnose():
        _, outputs = rlaxlib.ppo_clip_loss(LOG_PROB, OLD, ADVANTAGES, sample_mask=mask)
        settings = {"sample_mask": mask}
        return (
            rlaxlib.importance_statistics(outputs.log_ratio, **settings).mean_ratio,
            rlaxlib.effective_sample_size(outputs.log_ratio, **settings),
        )

    mean, size = diagnose()
    ratio = np.exp(np.float64(LOG_PROB - OLD))[mask]
    close(mean, np.mean(ratio))
    close(size, np.sum(ratio) ** 2 / np.sum(ratio**2))


def test_expected_penalty_is_the_divergence():
    old_log_prob, old = log_softmax(POLICIES[0]), softmax(POLICIES[0])

    def exact(logits):
        return rlaxlib.categorical_kl_divergence(POLICIES[0], logits)

    def penalty(logits):
        log_prob = jax.nn.log_softmax(logits)
        loss, _ = ppo_penalty_loss(log_prob, old_log_prob, np.zeros(5))
        return jnp.sum(old * loss) / 0.5

    @jax.jit
    def evaluate(logits):
        return [jax.value_and_grad(each)(logits) for each in (exact, penalty)]

    jax.tree.map(close, *evaluate(POLICIES[1]))


def test_kl_of_an_update_is_accurate_and_never_negative():
    moved = np.float32(np.outer([1.0, -1.0], np.geomspace(1e-8, 1.0, 100)).ravel())
    zeros = np.zeros(200, np.float32)
    # `exp(x) - 1 - x` errs by 1e-3 at 0.01.
    far = np.abs(moved) >= 0.01
    exact = np.expm1(np.float64(moved)) - moved
    for kl in (
        rlaxlib.kl_loss(zeros, moved),
        rlaxlib.ppo_penalty_loss(moved, zeros, zeros, 1.0)[0],
    ):
        assert np.all(np.asarray(kl) >= 0)
        np.testing.assert_allclose(np.asarray(kl)[far], exact[far], rtol=1e-4)


# --- The clip. ---


def test_gradient_is_zero_exactly_where_the_outputs_report_a_clip():
    steps = rlaxlib.ppo_clip_loss, LOG_PROB, OLD, ADVANTAGES
    _, plain, _ = evaluate(*steps, epsilon_high=0.3, dual_clip=1e6)
    _, outputs, found = evaluate(*steps, epsilon_high=0.3, dual_clip=1.5)
    np.testing.assert_array_equal(np.asarray(found) == 0, outputs.clipped)
    assert 0 < np.sum(plain.clipped) < np.sum(outputs.clipped) < 64


def test_an_infinite_dual_clip_is_none():
    losses = [
        rlaxlib.ppo_clip_loss(LOG_PROB, OLD, ADVANTAGES, dual_clip=clip)
        for clip in (np.inf, None)
    ]
    jax.tree.map(np.testing.assert_array_equal, *losses)


def test_dual_clip_bounds_the_loss_of_negative_advantages():
    steps = tiled(np.log(np.float32([1.4, 1.6, 100.0])), 0 * OLD, 0 * OLD - 1)
    settings = {"epsilon_high": 0.2, "dual_clip": 1.5}
    loss, outputs, _ = evaluate(rlaxlib.ppo_clip_loss, *steps, **settings)
    close(loss, *tiled([1.4, 1.5, 1.5]))
    np.testing.assert_array_equal(outputs.clipped, *tiled([False, True, True]))


surrogate = jax.jit(jax.value_and_grad(rlaxlib.clipped_surrogate_pg_loss, (0, 2)))


def test_gradient_remains_where_a_ratio_moved_against_its_advantage():
    steps = tiled(np.float32([0.5, 2.0, 0.5, 2.0]), np.float32([1.0, 1.0, -1.0, -1.0]))
    _, (found, _) = surrogate(*steps, 0.1)
    np.testing.assert_array_equal(64 * found, *tiled([-1.0, 0.0, 0.0, 1.0]))


def test_gradient_by_epsilon_is_the_advantage_of_clipped_steps():
    ratios = np.float32([0.5, 0.5, 1.0, 1.0, 1.0, 1.0, 2.0, 2.0])
    advantages = np.float32([3.0, -5.0, 7.0, -11.0, 7.0, -11.0, 13.0, -17.0])
    _, (_, by_epsilon) = surrogate(*tiled(ratios, advantages), 0.25)
    close(by_epsilon, -(5.0 + 13.0) / 8)


def test_infinite_ratio_of_zero_advantage_has_zero_loss_and_gradient():
    loss, (found, _) = surrogate(np.full_like(OLD, np.inf), 0 * OLD, 0.2)
    assert loss == 0
    np.testing.assert_array_equal(found, 0.0)


@each_loss
def test_infinite_ratios_have_a_finite_loss_and_gradient(loss):
    log_prob = np.float32([0.0, 80.0, 300.0, np.inf])
    log_prob, adv = tiled(log_prob, np.repeat(np.float32([-1.0, 0.0, 1.0]), 4))
    losses, _, gradient = evaluate(loss, log_prob, 0 * OLD, adv)
    assert np.all(np.isfinite(losses))
    assert np.all(np.isfinite(gradient))
    np.testing.assert_array_equal(gradient[log_prob > 0], 0.0)


def test_clipped_surrogate_of_infinite_ratios_has_no_gradient():
    mu, a = np.float32([[0.0, -1e9], [0.0, 0.5]]), np.array([1, 1])

    @jax.jit
    @jax.grad
    def gradient(pi):
        ratios = rlaxlib.categorical_importance_sampling_ratios(pi, mu, a)
        return rlaxlib.clipped_surrogate_pg_loss(ratios, np.ones(2), 0.2)

    # ρ = π(a)/μ(a) = ½ (1 + e^-½), and the gradient of log π is ½ (-1, 1).
    slope = 0.25 * 0.5 * (1 + np.exp(-0.5))
    found = gradient(np.zeros((2, 2), np.float32))
    close(found, [[0.0, 0.0], [slope, -slope]])


def test_mean_loss_equals_the_clipped_surrogate():
    loss, (by_ratio, _) = surrogate(np.exp(LOG_PROB - OLD), ADVANTAGES, 0.2)
    losses, _, found = evaluate(rlaxlib.ppo_clip_loss, LOG_PROB, OLD, ADVANTAGES)
    close(np.mean(losses), loss)
    close(np.asarray(found) / 64, np.asarray(by_ratio) * np.exp(LOG_PROB - OLD))


# --- Decoupled PPO. ---


def test_decoupled_loss_with_the_old_policy_as_proximal_is_ppo():
    steps = LOG_PROB, OLD, ADVANTAGES
    settings = {"epsilon_high": 0.2, "dual_clip": 2.0}
    plain = evaluate(rlaxlib.ppo_clip_loss, *steps, **settings)
    jax.tree.map(close, evaluate(decoupled_ppo_loss, *steps, **settings), plain)


def test_decoupled_loss_without_a_clip_does_not_depend_on_the_proximal_policy():
    for shift in (0.0, 0.5):
        proximal = OLD + np.float32(shift) * ADVANTAGES
        loss, *_ = evaluate(
            rlaxlib.decoupled_ppo_loss, LOG_PROB, OLD, proximal, ADVANTAGES, epsilon=1e6
        )
        close(loss, -np.exp(LOG_PROB - OLD) * ADVANTAGES)


def test_decoupled_loss_truncates_the_importance_weights():
    shifted = OLD + RNG.normal(size=64).astype(np.float32)
    steps = rlaxlib.decoupled_ppo_loss, LOG_PROB, OLD, shifted, ADVANTAGES
    plain, outputs, _ = evaluate(*steps)
    loss, truncated, _ = evaluate(*steps, max_weight=1.5)
    weight = np.exp(shifted - OLD)
    assert 0 < np.sum(weight > 1.5) < 64
    close(loss, np.asarray(plain) * np.minimum(1.5, weight) / weight)
    jax.tree.map(close, truncated, outputs)


# --- Clipped values. ---


def test_value_has_a_gradient_unless_it_moved_far_towards_its_target():
    v, old_v = np.float32([1.1, 1.3, 1.3, 0.7, 0.7]), np.float32([1.0])
    steps = tiled(v, old_v, np.float32([2.0, 2.0, 0.0, 2.0, 0.0]))
    loss, outputs, found = evaluate(rlaxlib.ppo_value_loss, *steps, 0.2)
    close(found, *tiled([-0.9, 0.0, 1.3, -1.3, 0.0]))
    close(loss, *tiled([0.405, 0.32, 0.845, 0.845, 0.32]))
    np.testing.assert_array_equal(outputs.clipped, np.asarray(found) == 0)
    outside = tiled([False, True, True, True, True])
    np.testing.assert_array_equal(outputs.value_outside, *outside)


def test_value_loss_with_a_wide_clip_is_the_unclipped_loss():
    v, old_v, target = LOG_PROB, OLD, ADVANTAGES
    for epsilon in (1e6, np.inf):
        loss, outputs, _ = evaluate(rlaxlib.ppo_value_loss, v, old_v, target, epsilon)
        close(loss, 0.5 * (v - target) ** 2, rtol=1e-6, atol=0)
        assert not np.any(outputs.value_outside)
        assert not np.any(outputs.clipped)
    loss, *_ = evaluate(
        rlaxlib.ppo_value_loss, v, old_v, target, np.inf, huber_delta=0.5
    )
    np.testing.assert_array_equal(loss, jax.jit(rlaxlib.huber_loss)(v - target, 0.5))


def test_value_loss_with_a_clip_of_zero_is_the_larger_of_two_losses():
    v, old_v, target = LOG_PROB, OLD, ADVANTAGES
    loss, *_ = evaluate(rlaxlib.ppo_value_loss, v, old_v, target, 0.0)
    expected = 0.5 * np.maximum((v - target) ** 2, (old_v - target) ** 2)
    np.testing.assert_allclose(loss, expected, rtol=1e-6)


def test_gradient_of_an_unmoved_value_is_its_error():
    v, target = LOG_PROB, ADVANTAGES
    *_, found = evaluate(rlaxlib.ppo_value_loss, v, v, target, 0.2)
    close(found, v - target)


def test_masked_values_may_be_nan():
    mask, bad = np.array([True, False]), np.array([1.0, np.nan])
    steps = rlaxlib.ppo_value_loss, bad, bad, 2 * bad, 0.1
    loss, _, found = evaluate(*steps, sample_mask=mask)
    np.testing.assert_array_equal(loss, [0.5, 0.0])
    np.testing.assert_array_equal(found, [-1.0, 0.0])
