"""Test the proximal losses: where they have a gradient, and what they equal there."""

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
    "simple_policy": rlaxlib.simple_policy_loss,
    "discovered_policy": rlaxlib.discovered_policy_loss,
}
each_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)


def slopes(loss, log_prob, *others, **settings):
    """Differentiate the loss of each step by its log-probability."""
    return jax.grad(lambda x: jnp.sum(loss(x, *others, **settings)[0]))(log_prob)


# --- What the functions compute. ---


def test_a_step_has_a_gradient_unless_it_is_told_to_be_clipped():
    settings = {"epsilon_high": 0.3, "dual_clip": 1.5, "log_ratio_bound": 0.9}
    loss = rlaxlib.ppo_clip_loss
    _, outputs = loss(LOG_PROB, OLD, ADVANTAGES, **settings)
    constant = outputs.clipped | outputs.dual_clipped | outputs.bounded
    found = slopes(loss, LOG_PROB, OLD, ADVANTAGES, **settings)
    np.testing.assert_array_equal(found == 0, constant)
    for each in outputs.clipped, outputs.dual_clipped, outputs.bounded:
        assert 0 < jnp.sum(each) < jnp.sum(constant)
    assert jnp.sum(outputs.ratio_outside) > jnp.sum(outputs.clipped)


def test_the_dual_clip_bounds_what_a_bad_step_costs():
    for ratio, expected in (1.4, 1.4), (1.6, 1.5), (100.0, 1.5):
        step = jnp.log(jnp.array([ratio])), jnp.zeros(1), -jnp.ones(1)
        loss, outputs = rlaxlib.ppo_clip_loss(*step, dual_clip=1.5)
        close(loss, [expected])
        assert outputs.dual_clipped == (ratio > 1.5)
        assert not outputs.clipped


def test_a_value_has_a_gradient_unless_it_moved_far_and_the_right_way():
    v, old_v = jnp.array([1.1, 1.3, 1.3, 0.7, 0.7]), jnp.ones(5)
    target = jnp.array([2.0, 2.0, 0.0, 2.0, 0.0])
    loss, outputs = rlaxlib.clipped_value_loss(v, old_v, target, epsilon=0.2)
    gradient = slopes(rlaxlib.clipped_value_loss, v, old_v, target, 0.2)
    close(gradient, [-0.9, 0.0, 1.3, -1.3, 0.0])
    close(loss, [0.405, 0.32, 0.845, 0.845, 0.32])
    np.testing.assert_array_equal(outputs.clipped, gradient == 0)
    np.testing.assert_array_equal(outputs.value_outside, [False] + [True] * 4)


@pytest.mark.parametrize(
    ("kl", "expected"), [(0.6, 2.0), (0.7, 4.0), (1.4, 4.0), (1.6, 8.0), (np.nan, 4.0)]
)
def test_the_coefficient_moves_if_the_divergence_is_half_again_off(kl, expected):
    assert rlaxlib.adaptive_kl_coefficient(4.0, kl, 1.0) == expected


def test_the_coefficient_moves_by_as_much_as_it_is_told_to():
    found = [
        rlaxlib.adaptive_kl_coefficient(6.0, kl, 1.0, tolerance=3.0, factor=1.5)
        for kl in (0.2, 0.5, 2.0, 4.0)
    ]
    np.testing.assert_array_equal(found, [4.0, 6.0, 6.0, 9.0])


# --- How the functions relate. ---


def test_the_mean_is_the_clipped_surrogate():
    def from_ratios(log_prob):
        ratios = jnp.exp(log_prob - OLD)
        return rlaxlib.clipped_surrogate_pg_loss(ratios, ADVANTAGES, 0.2)

    def from_log_probs(log_prob):
        return jnp.mean(rlaxlib.ppo_clip_loss(log_prob, OLD, ADVANTAGES)[0])

    for one, other in zip(
        jax.value_and_grad(from_log_probs)(LOG_PROB),
        jax.value_and_grad(from_ratios)(LOG_PROB),
        strict=True,
    ):
        close(one, other)


@each_loss
def test_where_nothing_has_moved_yet_each_is_the_policy_gradient(loss):
    np.testing.assert_array_equal(loss(OLD, OLD, ADVANTAGES)[0], -ADVANTAGES)
    close(slopes(loss, OLD, OLD, ADVANTAGES), -ADVANTAGES)


def test_decoupled_from_itself_it_is_plain_ppo():
    plain = rlaxlib.ppo_clip_loss(LOG_PROB, OLD, ADVANTAGES, dual_clip=2.0)
    loss, outputs = decoupled_ppo_loss(LOG_PROB, OLD, ADVANTAGES, dual_clip=2.0)
    jax.tree.map(close, (loss, outputs.proximal), plain)
    np.testing.assert_array_equal(outputs.weight, 1.0)


def test_without_a_clip_the_proximal_policy_does_not_matter():
    for shift in (0.0, 0.5):
        loss, _ = rlaxlib.decoupled_ppo_loss(
            LOG_PROB, OLD, OLD + shift * ADVANTAGES, ADVANTAGES, epsilon=1e6
        )
        close(loss, -jnp.exp(LOG_PROB - OLD) * ADVANTAGES)


def test_over_all_actions_the_estimate_is_the_divergence():
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
    for loss in (rlaxlib.ppo_clip_loss, rlaxlib.simple_policy_loss):
        found = jax.value_and_grad(estimated)(POLICIES[1], loss)
        jax.tree.map(close, found, expected)
    jax.tree.map(close, jax.value_and_grad(penalty)(POLICIES[1]), expected)


def test_the_simple_loss_is_lowest_at_the_bound_and_pulls_back_from_beyond():
    ratio = jnp.array([0.9, 1.25, 1.5, 1.1, 0.75, 0.5])
    adv = jnp.array([1.0, 1.0, 1.0, -1.0, -1.0, -1.0])
    gradient = slopes(
        rlaxlib.simple_policy_loss, jnp.log(ratio), jnp.zeros(6), adv, epsilon=0.25
    )
    slope_by_ratio = jnp.array([-1.4, 0.0, 1.0, 1.4, 0.0, -1.0])
    close(gradient, ratio * slope_by_ratio)


def test_the_discovered_loss_drifts_only_where_a_ratio_gains():
    ratio, adv = jnp.exp(LOG_PROB - OLD), ADVANTAGES
    loss, _ = rlaxlib.discovered_policy_loss(LOG_PROB, OLD, adv)
    gains = (ratio - 1) * adv > 0
    close(loss[~gains], -(ratio * adv)[~gains])
    assert jnp.all(loss[gains] > -(ratio * adv)[gains])


def test_with_room_to_move_the_value_loss_is_the_plain_one():
    v, old_v, target = LOG_PROB, OLD, ADVANTAGES
    for epsilon in (1e6, jnp.inf):
        loss, outputs = rlaxlib.clipped_value_loss(v, old_v, target, epsilon)
        np.testing.assert_array_equal(loss, rlaxlib.l2_loss(v, target))
        assert not jnp.any(outputs.value_outside)
    loss, _ = rlaxlib.clipped_value_loss(v, old_v, target, jnp.inf, huber=0.5)
    np.testing.assert_array_equal(loss, rlaxlib.huber_loss(v - target, 0.5))


def test_without_room_to_move_a_value_gains_nothing():
    v, old_v, target = LOG_PROB, OLD, ADVANTAGES
    loss, _ = rlaxlib.clipped_value_loss(v, old_v, target, 0.0)
    expected = jnp.maximum(rlaxlib.l2_loss(v, target), rlaxlib.l2_loss(old_v, target))
    np.testing.assert_array_equal(loss, expected)


# --- How the functions behave under JAX. ---


@each_loss
def test_a_row_that_is_no_decision_is_as_good_as_not_there(loss):
    mask = jnp.arange(64) % 3 > 0
    spoiled = [
        jnp.where(mask, each, bad)
        for each, bad in zip(
            (LOG_PROB, OLD, ADVANTAGES), (jnp.nan, -jnp.inf, jnp.inf), strict=True
        )
    ]
    value, outputs = loss(*spoiled, sample_mask=mask)
    expected, expected_outputs = loss(LOG_PROB[mask], OLD[mask], ADVANTAGES[mask])
    jax.tree.map(
        lambda one, other: close(one[mask], other),
        (value, outputs),
        (expected, expected_outputs),
    )
    np.testing.assert_array_equal(value[~mask], 0.0)
    gradient = slopes(loss, *spoiled, sample_mask=mask)
    close(gradient[mask], slopes(loss, LOG_PROB[mask], OLD[mask], ADVANTAGES[mask]))
    np.testing.assert_array_equal(gradient[~mask], 0.0)


def test_a_masked_value_or_divergence_may_be_anything():
    mask, bad = jnp.array([True, False]), jnp.array([1.0, jnp.nan])
    loss, _ = rlaxlib.clipped_value_loss(bad, bad, 2 * bad, 0.1, sample_mask=mask)
    np.testing.assert_array_equal(loss, [0.5, 0.0])
    loss, _ = rlaxlib.ppo_penalty_loss(bad, bad, bad, bad, 3.0, sample_mask=mask)
    np.testing.assert_array_equal(loss, [2.0, 0.0])


@each_loss
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_policies_however_far_apart_have_a_finite_loss_and_gradient(loss, dtype):
    far = jnp.array([0.0, -1e4, 0.0, -jnp.inf, -jnp.inf, 3e4], dtype)
    old = jnp.array([-1e4, 0.0, -jnp.inf, 0.0, -jnp.inf, 0.0], dtype)
    for adv in (-1.0, 0.0, 1.0):
        adv_t = jnp.full(6, adv, dtype)
        value, outputs = loss(far, old, adv_t)
        assert jnp.all(jnp.isfinite(value))
        assert jnp.all(jnp.isfinite(slopes(loss, far, old, adv_t)))
        for leaf in jax.tree.leaves(outputs):
            assert jnp.all(jnp.isfinite(leaf))


@each_loss
def test_the_bound_of_the_ratio_is_the_one_given(loss):
    _, outputs = loss(jnp.array([5.0, -5.0]), jnp.zeros(2), jnp.ones(2))
    outputs = getattr(outputs, "proximal", outputs)
    assert not jnp.any(outputs.bounded)
    _, outputs = loss(
        jnp.array([5.0, -5.0]), jnp.zeros(2), jnp.ones(2), log_ratio_bound=2.0
    )
    outputs = getattr(outputs, "proximal", outputs)
    close(outputs.ratio, np.exp([2.0, -2.0]))
    assert jnp.all(outputs.bounded)


def test_an_estimate_near_zero_keeps_its_digits():
    moved = jnp.full(1, 1e-4)
    _, outputs = rlaxlib.ppo_clip_loss(moved, jnp.zeros(1), jnp.ones(1))
    np.testing.assert_allclose(outputs.approximate_kl, 5.000167e-9, rtol=1e-5)


def test_devices_agree_on_a_coefficient():
    def step(kl):
        return rlaxlib.adaptive_kl_coefficient(4.0, kl, 1.0, axis_name="devices")

    # By itself, each of the two would go another way than their mean.
    kl = jnp.array([0.1, 3.1])
    np.testing.assert_array_equal(jax.vmap(step, axis_name="devices")(kl), [8.0, 8.0])


# --- What the functions refuse. ---


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda one: rlaxlib.ppo_clip_loss(one, one, one, epsilon_high=-0.1),
            r"ppo_clip_loss: `epsilon_high` must lie in \[0, inf\), but is -0.1",
        ),
        (
            lambda one: rlaxlib.ppo_clip_loss(one, one, one, dual_clip=1.0),
            r"ppo_clip_loss: `dual_clip` must lie in \(1, inf\), but is 1.0",
        ),
        (
            lambda one: rlaxlib.decoupled_ppo_loss(one, one, one, one, -0.1),
            r"decoupled_ppo_loss: `epsilon` must lie in \[0, inf\), but is -0.1",
        ),
        (
            lambda one: rlaxlib.ppo_clip_loss(one, one, one, log_ratio_bound=0.0),
            r"`log_ratio_bound` must lie in \(0, inf\], but is 0.0",
        ),
        (
            lambda one: rlaxlib.ppo_penalty_loss(one, one, one, one, -1.0),
            r"`coefficient` must lie in \[0, inf\), but is -1.0",
        ),
        (
            lambda one: rlaxlib.simple_policy_loss(one, one, one, 0.0),
            r"`epsilon` must lie in \(0, inf\), but is 0.0",
        ),
        (
            lambda one: rlaxlib.discovered_policy_loss(one, one, one, beta=0.0),
            r"`beta` must lie in \(0, inf\), but is 0.0",
        ),
        (
            lambda one: rlaxlib.clipped_value_loss(one, one, one, 0.2, huber=0.0),
            r"`huber` must lie in \(0, inf\), but is 0.0",
        ),
        (
            lambda one: rlaxlib.adaptive_kl_coefficient(1.0, 1.0, 0.0),
            r"`target` must lie in \(0, inf\), but is 0.0",
        ),
        (
            lambda one: rlaxlib.adaptive_kl_coefficient(1.0, 1.0, 1.0, factor=0.5),
            r"`factor` must lie in \[1, inf\), but is 0.5",
        ),
    ],
)
def test_says_what_is_wrong(call, message):
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        call(jnp.ones(2))
