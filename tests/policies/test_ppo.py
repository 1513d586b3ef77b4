"""Test PPO: where its losses have a gradient, identities, masks and extreme inputs.

Tests that all losses of log-probabilities share, those of `_ppo_penalty` included, are
in this file.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib

RNG = np.random.default_rng(0)
OLD = jnp.asarray(-RNG.uniform(0.5, 2.0, 64), jnp.float32)
LOG_PROB = OLD + jnp.asarray(RNG.normal(scale=0.5, size=64), jnp.float32)
ADVANTAGES = jnp.asarray(RNG.normal(size=64), jnp.float32)
POLICIES = jnp.asarray(RNG.normal(size=(2, 5)), jnp.float32)


def ppo_penalty_loss(log_prob_t, old_log_prob_t, adv_t, **settings):
    return rlaxlib.ppo_penalty_loss(
        log_prob_t, old_log_prob_t, adv_t, None, 0.5, **settings
    )


def decoupled_ppo_loss(log_prob_t, old_log_prob_t, adv_t, **settings):
    return rlaxlib.decoupled_ppo_loss(
        log_prob_t, old_log_prob_t, old_log_prob_t, adv_t, **settings
    )


LOSSES = {
    "ppo_clip": rlaxlib.ppo_clip_loss,
    "decoupled_ppo": decoupled_ppo_loss,
    "ppo_penalty": ppo_penalty_loss,
    "spo": rlaxlib.spo_loss,
    "discovered_policy": rlaxlib.discovered_policy_loss,
}
each_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)


def gradient(loss, log_prob, *others, **settings):
    """Return the gradient of each time step's loss by its log-probability."""
    return jax.grad(lambda x: jnp.sum(loss(x, *others, **settings)[0]))(log_prob)


# --- Losses of log-probabilities. ---


@each_loss
def test_on_policy_each_loss_is_the_policy_gradient(loss):
    np.testing.assert_array_equal(loss(OLD, OLD, ADVANTAGES)[0], -ADVANTAGES)
    close(gradient(loss, OLD, OLD, ADVANTAGES), -ADVANTAGES)


@each_loss
def test_masking_a_step_equals_removing_it(loss):
    mask = jnp.arange(64) % 3 > 0
    invalid = [
        jnp.where(mask, each, bad)
        for each, bad in zip(
            (LOG_PROB, OLD, ADVANTAGES), (jnp.nan, -jnp.inf, jnp.inf), strict=True
        )
    ]
    found, expected = (
        (*loss(*steps, **masks), gradient(loss, *steps, **masks))
        for steps, masks in [
            (invalid, {"sample_mask": mask}),
            ([LOG_PROB[mask], OLD[mask], ADVANTAGES[mask]], {}),
        ]
    )
    jax.tree.map(lambda one, other: close(one[mask], other), found, expected)
    value, _, by_log_prob = found
    np.testing.assert_array_equal(value[~mask], 0.0)
    np.testing.assert_array_equal(by_log_prob[~mask], 0.0)


@each_loss
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_distant_policies_have_a_finite_loss_and_gradient(loss, dtype):
    far = jnp.array([0.0, -1e4, 0.0, -jnp.inf, -jnp.inf, 3e4], dtype)
    old = jnp.array([-1e4, 0.0, -jnp.inf, 0.0, -jnp.inf, 0.0], dtype)

    @jax.jit
    @jax.vmap
    def compute(adv):
        adv_t = jnp.full(6, adv)
        return loss(far, old, adv_t), gradient(loss, far, old, adv_t)

    for leaf in jax.tree.leaves(compute(jnp.array([-1.0, 0.0, 1.0], dtype))):
        assert jnp.all(jnp.isfinite(leaf))


@each_loss
def test_log_ratio_is_bounded_by_its_argument(loss):
    steps = jnp.array([5.0, -5.0]), jnp.zeros(2), jnp.ones(2)
    for bound, ratio in (20.0, np.exp([5.0, -5.0])), (2.0, np.exp([2.0, -2.0])):
        _, outputs = loss(*steps, log_ratio_bound=bound)
        outputs = getattr(outputs, "proximal", outputs)
        np.testing.assert_allclose(outputs.ratio, ratio, rtol=1e-6)
        np.testing.assert_array_equal(outputs.bounded, bound < 5)


@each_loss
def test_diagnostics_take_the_log_ratio_of_the_outputs(loss):
    mask = jnp.arange(32) > 4
    steps = [x.reshape(2, 32) for x in (LOG_PROB, OLD, ADVANTAGES)]
    _, outputs = jax.vmap(lambda *step: loss(*step, sample_mask=mask))(*steps)
    settings = {"sample_mask": jnp.stack([mask, mask])}
    ratio = jnp.exp(LOG_PROB - OLD).reshape(2, 32)[:, mask]
    statistics = rlaxlib.importance_statistics(outputs.log_ratio, **settings)
    close(statistics.mean_ratio, jnp.mean(ratio))
    size = rlaxlib.effective_sample_size(outputs.log_ratio, **settings)
    close(size, jnp.sum(ratio) ** 2 / jnp.sum(ratio**2))
    fraction = rlaxlib.clip_fraction(outputs.log_ratio, 0.2, **settings)
    close(fraction, jnp.mean(jnp.abs(ratio - 1) > 0.2))
    kl = rlaxlib.approximate_kl(outputs.log_ratio, **settings)
    close(kl, jnp.mean(ratio - 1 - jnp.log(ratio)), rtol=1e-5)
    _, outputs = loss(OLD, OLD, ADVANTAGES)
    assert rlaxlib.clip_fraction(outputs.log_ratio) == 0


def test_expected_approximate_kl_is_the_divergence():
    old_log_prob, old = jax.nn.log_softmax(POLICIES[0]), jax.nn.softmax(POLICIES[0])

    def exact(logits):
        return rlaxlib.categorical_kl_divergence(POLICIES[0], logits)

    def estimated(logits, loss):
        log_prob = jax.nn.log_softmax(logits)
        _, outputs = loss(log_prob, old_log_prob, jnp.zeros(5))
        return jnp.sum(old * outputs.approximate_kl)

    def penalty(logits):
        log_prob = jax.nn.log_softmax(logits)
        loss, _ = ppo_penalty_loss(log_prob, old_log_prob, jnp.zeros(5))
        return jnp.sum(old * loss) / 0.5

    expected = jax.value_and_grad(exact)(POLICIES[1])
    for loss in (rlaxlib.ppo_clip_loss, rlaxlib.spo_loss):
        found = jax.value_and_grad(estimated)(POLICIES[1], loss)
        jax.tree.map(close, found, expected)
    jax.tree.map(close, jax.value_and_grad(penalty)(POLICIES[1]), expected)


def test_approximate_kl_is_accurate_and_never_negative():
    moved = np.float32(np.outer([1.0, -1.0], np.geomspace(1e-8, 1.0, 100)).ravel())
    for loss in (rlaxlib.ppo_clip_loss, rlaxlib.spo_loss):
        _, outputs = loss(jnp.asarray(moved), jnp.zeros(200), jnp.ones(200))
        assert jnp.all(outputs.approximate_kl >= 0)
        # `exp(x) - 1 - x` errs by 1e-3 at 0.01.
        far = np.abs(moved) >= 0.01
        exact = np.expm1(np.float64(moved)) - moved
        np.testing.assert_allclose(outputs.approximate_kl[far], exact[far], rtol=1e-4)


# --- The clip. ---


def test_gradient_is_zero_exactly_where_the_outputs_report_a_clip():
    settings = {"epsilon_high": 0.3, "dual_clip": 1.5, "log_ratio_bound": 0.9}
    _, outputs = rlaxlib.ppo_clip_loss(LOG_PROB, OLD, ADVANTAGES, **settings)
    constant = outputs.clipped | outputs.dual_clipped | outputs.bounded
    found = gradient(rlaxlib.ppo_clip_loss, LOG_PROB, OLD, ADVANTAGES, **settings)
    np.testing.assert_array_equal(found == 0, constant)
    for each in outputs.clipped, outputs.dual_clipped, outputs.bounded:
        assert 0 < jnp.sum(each) < jnp.sum(constant)
    assert jnp.sum(outputs.ratio_outside) > jnp.sum(outputs.clipped)


def test_dual_clip_bounds_the_loss_of_negative_advantages():
    ratio, adv_t = jnp.array([1.4, 1.6, 100.0]), -jnp.ones(3)
    loss, outputs = rlaxlib.ppo_clip_loss(
        jnp.log(ratio), jnp.zeros(3), adv_t, dual_clip=1.5
    )
    close(loss, [1.4, 1.5, 1.5])
    np.testing.assert_array_equal(outputs.dual_clipped, [False, True, True])
    assert not jnp.any(outputs.clipped)


@pytest.mark.parametrize("ratio", [0.8, 1.2])
@pytest.mark.parametrize("adv", [1.0, -1.0])
def test_gradient_is_not_halved_at_the_edge_of_the_clip(ratio, adv):
    found = jax.grad(rlaxlib.clipped_surrogate_pg_loss)(
        jnp.array([ratio]), jnp.array([adv]), 0.2
    )
    np.testing.assert_array_equal(found, [-adv])


def test_gradient_remains_where_a_ratio_moved_against_its_advantage():
    ratios = jnp.array([0.5, 2.0, 0.5, 2.0])
    advantages = jnp.array([1.0, 1.0, -1.0, -1.0])
    found = jax.grad(rlaxlib.clipped_surrogate_pg_loss)(ratios, advantages, 0.1)
    np.testing.assert_array_equal(found, [-0.25, 0.0, 0.0, 0.25])


def test_gradient_by_epsilon_is_the_advantage_of_clipped_steps():
    ratios = jnp.array([0.5, 0.5, 1.0, 1.0, 2.0, 2.0])
    advantages = jnp.array([3.0, -5.0, 7.0, -11.0, 13.0, -17.0])
    by_epsilon = jax.grad(rlaxlib.clipped_surrogate_pg_loss, argnums=2)
    close(by_epsilon(ratios, advantages, 0.25), -(5.0 + 13.0) / 6)


def test_infinite_ratio_of_zero_advantage_has_zero_loss_and_gradient():
    loss, found = jax.value_and_grad(rlaxlib.clipped_surrogate_pg_loss)(
        jnp.array([jnp.inf]), jnp.zeros(1), 0.2
    )
    assert loss == 0
    np.testing.assert_array_equal(found, 0.0)


def test_mean_loss_equals_the_clipped_surrogate():
    def from_ratios(log_prob):
        ratios = jnp.exp(log_prob - OLD)
        return rlaxlib.clipped_surrogate_pg_loss(ratios, ADVANTAGES, 0.2)

    def from_log_probs(log_prob):
        return jnp.mean(rlaxlib.ppo_clip_loss(log_prob, OLD, ADVANTAGES)[0])

    jax.tree.map(
        close,
        jax.value_and_grad(from_log_probs)(LOG_PROB),
        jax.value_and_grad(from_ratios)(LOG_PROB),
    )


# --- Decoupled PPO. ---


def test_decoupled_loss_with_the_old_policy_as_proximal_is_ppo():
    plain = rlaxlib.ppo_clip_loss(LOG_PROB, OLD, ADVANTAGES, dual_clip=2.0)
    loss, outputs = decoupled_ppo_loss(LOG_PROB, OLD, ADVANTAGES, dual_clip=2.0)
    jax.tree.map(close, (loss, outputs.proximal), plain)
    np.testing.assert_array_equal(outputs.weight, 1.0)


def test_decoupled_loss_without_a_clip_does_not_depend_on_the_proximal_policy():
    for shift in (0.0, 0.5):
        loss, _ = rlaxlib.decoupled_ppo_loss(
            LOG_PROB, OLD, OLD + shift * ADVANTAGES, ADVANTAGES, epsilon=1e6
        )
        close(loss, -jnp.exp(LOG_PROB - OLD) * ADVANTAGES)


def test_decoupled_loss_truncates_the_importance_weights():
    shifted = OLD + jnp.asarray(RNG.normal(size=64), jnp.float32)
    steps = LOG_PROB, OLD, shifted, ADVANTAGES
    plain, outputs = rlaxlib.decoupled_ppo_loss(*steps)
    loss, truncated = rlaxlib.decoupled_ppo_loss(*steps, max_weight=1.5)
    assert 0 < jnp.sum(outputs.weight > 1.5) < 64
    close(truncated.weight, jnp.minimum(1.5, outputs.weight))
    close(loss, plain * truncated.weight / outputs.weight)
    jax.tree.map(close, truncated.proximal, outputs.proximal)


# --- Clipped values. ---


def test_value_has_a_gradient_unless_it_moved_far_towards_its_target():
    v, old_v = jnp.array([1.1, 1.3, 1.3, 0.7, 0.7]), jnp.ones(5)
    target = jnp.array([2.0, 2.0, 0.0, 2.0, 0.0])
    loss, outputs = rlaxlib.ppo_value_loss(v, old_v, target, epsilon=0.2)
    found = gradient(rlaxlib.ppo_value_loss, v, old_v, target, 0.2)
    close(found, [-0.9, 0.0, 1.3, -1.3, 0.0])
    close(loss, [0.405, 0.32, 0.845, 0.845, 0.32])
    np.testing.assert_array_equal(outputs.clipped, found == 0)
    np.testing.assert_array_equal(outputs.value_outside, [False] + [True] * 4)


def test_value_loss_with_a_wide_clip_is_the_unclipped_loss():
    v, old_v, target = LOG_PROB, OLD, ADVANTAGES
    for epsilon in (1e6, jnp.inf):
        loss, outputs = rlaxlib.ppo_value_loss(v, old_v, target, epsilon)
        np.testing.assert_array_equal(loss, rlaxlib.l2_loss(v, target))
        assert not jnp.any(outputs.value_outside | outputs.clipped)
    loss, _ = rlaxlib.ppo_value_loss(v, old_v, target, jnp.inf, huber_delta=0.5)
    np.testing.assert_array_equal(loss, rlaxlib.huber_loss(v - target, 0.5))


def test_value_loss_with_a_clip_of_zero_is_the_larger_of_two_losses():
    v, old_v, target = LOG_PROB, OLD, ADVANTAGES
    loss, _ = rlaxlib.ppo_value_loss(v, old_v, target, 0.0)
    expected = jnp.maximum(rlaxlib.l2_loss(v, target), rlaxlib.l2_loss(old_v, target))
    np.testing.assert_array_equal(loss, expected)


def test_gradient_of_an_unmoved_value_is_its_error():
    v, target = LOG_PROB, ADVANTAGES
    found = gradient(rlaxlib.ppo_value_loss, v, v, target, 0.2)
    close(found, v - target)


def test_masked_values_may_be_nan():
    mask, bad = jnp.array([True, False]), jnp.array([1.0, jnp.nan])
    loss, _ = rlaxlib.ppo_value_loss(bad, bad, 2 * bad, 0.1, sample_mask=mask)
    np.testing.assert_array_equal(loss, [0.5, 0.0])
    found = gradient(rlaxlib.ppo_value_loss, bad, bad, 2 * bad, 0.1, sample_mask=mask)
    np.testing.assert_array_equal(found, [-1.0, 0.0])
