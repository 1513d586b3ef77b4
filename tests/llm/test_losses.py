"""Test policy losses of language models: gradients, limits, masks, extreme ratios."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib

RNG = np.random.default_rng(0)
OLD = jnp.asarray(-RNG.uniform(0.5, 3.0, 6), jnp.float32)
NEW = OLD + jnp.array([0.5, -0.7, 0.1, -0.1, 0.0, 1.5])
MASK = jnp.array([True, False, True, True, False, True])
LOSSES = {
    "cispo": rlaxlib.cispo_loss,
    "sapo": rlaxlib.sapo_loss,
    "gmpo": rlaxlib.gmpo_loss,
    "gspo": lambda log_prob, old_log_prob, adv, **settings: (
        adv * rlaxlib.gspo_ratio(log_prob, old_log_prob, **settings)
    ),
    "gspo token": lambda log_prob, old_log_prob, adv, **settings: (
        adv * rlaxlib.gspo_ratio(log_prob, old_log_prob, "token", **settings)
    ),
    **{
        kind: lambda log_prob, old_log_prob, adv, kind=kind, **settings: (
            adv * rlaxlib.kl_loss(log_prob, old_log_prob, kind, **settings)
        )
        for kind in ("k1", "k2", "k3", "abs")
    },
}
each_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)


def gradient(loss, log_prob=NEW, *arguments, **settings):
    return jax.grad(lambda x: jnp.sum(loss(x, *arguments, **settings)))(log_prob)


# --- All losses. ---


@each_loss
def test_ignored_tokens_change_nothing(loss):
    def found(log_prob, old_log_prob):
        def kept(log_prob):
            losses = loss(log_prob, old_log_prob, 2.0, sample_mask=MASK)
            return jnp.sum(jnp.where(MASK, losses, 0)), losses

        return jax.grad(kept, has_aux=True)(log_prob)

    spoiled = [jnp.where(MASK, x, jnp.nan) for x in (NEW, OLD)]
    slopes, losses = found(*spoiled)
    alone = loss(NEW[MASK], OLD[MASK], 2.0)
    close(losses[MASK], alone)
    assert np.isfinite(losses).all()
    np.testing.assert_array_equal(slopes[~MASK], 0.0)
    close(slopes[MASK], gradient(loss, NEW[MASK], OLD[MASK], 2.0))
    assert np.isfinite(loss(*spoiled, 2.0, sample_mask=jnp.zeros(6, bool))).all()


@each_loss
def test_only_the_log_probabilities_of_the_policy_have_a_gradient(loss):
    def total(old_log_prob):
        return jnp.sum(loss(NEW, old_log_prob, 2.0))

    np.testing.assert_array_equal(jax.grad(total)(OLD), 0.0)
    assert np.any(gradient(loss, NEW, OLD, 2.0))


@pytest.mark.parametrize("adv", [-1.0, 0.0, 1.0])
@pytest.mark.parametrize("name", ["cispo", "sapo"])
def test_extreme_ratios_give_finite_losses_and_gradients(name, adv):
    extreme = jnp.array([-1e4, -200.0, -50.0, 50.0, 200.0, 1e4])
    losses = LOSSES[name](extreme, jnp.zeros(6), adv)
    assert np.isfinite(losses).all()
    assert np.isfinite(gradient(LOSSES[name], extreme, jnp.zeros(6), adv)).all()


@pytest.mark.parametrize("name", ["cispo", "sapo", "gmpo"])
def test_gradient_of_a_policy_that_did_not_change_is_the_policy_gradient(name):
    close(gradient(LOSSES[name], OLD, OLD, 2.0), -2.0)


# --- CISPO and SAPO. ---


def test_cispo_keeps_the_gradient_that_ppo_clips():
    clipped = gradient(lambda x: rlaxlib.ppo_clip_loss(x, OLD, jnp.ones(6))[0])
    kept = gradient(rlaxlib.cispo_loss, NEW, OLD, 1.0, 0.2, 0.2)
    close(clipped[jnp.array([0, 5])], 0.0)
    close(kept[jnp.array([0, 5])], -1.2)
    close(kept[1], -0.8)
    close(kept[2:5], clipped[2:5])


def test_cispo_without_bounds_is_the_importance_weighted_policy_gradient():
    found = gradient(rlaxlib.cispo_loss, NEW, OLD, 3.0, 1.0, jnp.inf)
    close(found, -3.0 * jnp.exp(NEW - OLD))


def test_sapo_fades_faster_for_negative_advantages():
    gains = -gradient(rlaxlib.sapo_loss, NEW, OLD, 1.0, 1.0, 5.0)
    losses = gradient(rlaxlib.sapo_loss, NEW, OLD, -1.0, 1.0, 5.0)
    assert np.all(losses[jnp.array([0, 1, 5])] < gains[jnp.array([0, 1, 5])])
    # The gate has derivative 1 at a ratio of 1, whatever the temperature.
    close(losses[4], 1.0)
    close(gains[4], 1.0)


# --- GSPO and GMPO. ---


@pytest.mark.parametrize("mask", [None, MASK])
def test_gspo_ratios_of_sequence_and_tokens_agree(mask):
    sequence, token = (
        functools.partial(rlaxlib.gspo_ratio, level=level, sample_mask=mask)
        for level in ("sequence", "token")
    )
    np.testing.assert_array_equal(sequence(NEW, OLD), token(NEW, OLD))
    close(gradient(sequence, NEW, OLD), gradient(token, NEW, OLD))
    valid = np.ones(6, bool) if mask is None else mask
    ratio = jnp.exp(jnp.mean((NEW - OLD)[valid]))
    close(sequence(NEW, OLD), jnp.where(valid, ratio, 1.0))


def test_token_level_gspo_gives_each_token_its_own_advantage():
    adv = jnp.arange(6.0)

    def loss(log_prob):
        return -adv * rlaxlib.gspo_ratio(log_prob, OLD, "token")

    ratio = jnp.exp(jnp.mean(NEW - OLD))
    close(gradient(loss), -adv * ratio)


@pytest.mark.parametrize("adv", [-1.0, 1.0])
@pytest.mark.parametrize("shift", [-1e-3, -1e-4, 1e-4, 1e-3])
def test_gspo_clips_whole_sequences(adv, shift):
    def loss(log_prob):
        ratio = rlaxlib.gspo_ratio(log_prob, OLD)
        adv_t, zeros = jnp.full(6, adv), jnp.zeros(6)
        return rlaxlib.ppo_clip_loss(jnp.log(ratio), zeros, adv_t, 3e-4, 4e-4)[0] / 6

    found = gradient(loss, OLD + 6 * shift * jnp.eye(6)[2])
    clipped = (adv > 0 and shift > 4e-4) or (adv < 0 and shift < -3e-4)
    expected = 0.0 if clipped else -adv * np.exp(shift) / 6
    close(found, expected, rtol=1e-3)


def test_gmpo_within_its_bounds_is_the_sequence_ratio_times_the_advantage():
    found = rlaxlib.gmpo_loss(NEW, OLD, -2.0, epsilon=5.0)
    close(found, 2.0 * rlaxlib.gspo_ratio(NEW, OLD))


def test_gmpo_clips_tokens_on_the_side_that_the_advantage_favours():
    above, below = NEW - OLD > 0.4, NEW - OLD < -0.4
    np.testing.assert_array_equal(
        gradient(rlaxlib.gmpo_loss, NEW, OLD, 1.0) == 0, above
    )
    np.testing.assert_array_equal(
        gradient(rlaxlib.gmpo_loss, NEW, OLD, -1.0) == 0, below
    )


# --- KL. ---

LOGITS, REFERENCE, SAMPLER = (
    jnp.asarray(RNG.normal(size=5), jnp.float32) for _ in range(3)
)


def kl(logits, other):
    log_probs = jax.nn.log_softmax(logits)
    return jnp.sum(jnp.exp(log_probs) * (log_probs - jax.nn.log_softmax(other)))


def enumerate_kl(kind, logits, weight=None):
    """Average the KL loss over all tokens, sampled from fixed probabilities."""
    log_probs = jax.nn.log_softmax(logits)
    probs = jax.lax.stop_gradient(jnp.exp(log_probs)) if weight is None else weight
    loss = rlaxlib.kl_loss(log_probs, jax.nn.log_softmax(REFERENCE), kind)
    return jnp.sum(probs * loss)


@pytest.mark.parametrize("kind", ["k1", "k2", "k3", "abs"])
def test_mean_gradient_of_the_kl_loss_is_that_of_the_kl(kind):
    found = jax.grad(functools.partial(enumerate_kl, kind))(LOGITS)
    close(found, jax.grad(kl)(LOGITS, REFERENCE), atol=1e-6)


@pytest.mark.parametrize("kind", ["k1", "k3"])
def test_mean_value_of_the_kl_loss_is_the_kl(kind):
    close(enumerate_kl(kind, LOGITS), kl(LOGITS, REFERENCE), atol=1e-6)


def test_gradients_of_the_values_themselves_are_others():
    def mean_of(estimate):
        def mean(logits):
            log_probs = jax.nn.log_softmax(logits)
            x = log_probs - jax.nn.log_softmax(REFERENCE)
            return jnp.sum(jax.lax.stop_gradient(jnp.exp(log_probs)) * estimate(x))

        return jax.grad(mean)(LOGITS)

    reverse = jax.grad(lambda logits: kl(REFERENCE, logits))(LOGITS)
    close(mean_of(lambda x: x), 0.0, atol=1e-6)
    close(mean_of(lambda x: jnp.expm1(-x) + x), reverse, atol=1e-6)
    assert np.any(np.abs(reverse - jax.grad(kl)(LOGITS, REFERENCE)) > 0.05)


@pytest.mark.parametrize("kind", ["k1", "k3"])
def test_importance_weights_correct_the_kl_loss_of_another_sampler(kind):
    log_ratio = jax.nn.log_softmax(LOGITS) - jax.nn.log_softmax(SAMPLER)
    ratio = jnp.exp(jax.lax.stop_gradient(log_ratio))
    weight = jax.nn.softmax(SAMPLER) * ratio
    value, found = jax.value_and_grad(functools.partial(enumerate_kl, kind))(
        LOGITS, weight
    )
    close(value, kl(LOGITS, REFERENCE), atol=1e-6)
    close(found, jax.grad(kl)(LOGITS, REFERENCE), atol=1e-6)


def test_k3_of_close_policies_is_precise():
    difference = jnp.array([1e-4, -1e-4])
    found = rlaxlib.kl_loss(difference - 1.0, jnp.full(2, -1.0))
    x = np.float64(difference - 1.0) + 1.0
    close(found, np.expm1(-x) + x, rtol=1e-2, atol=0)


# --- Masks and penalties. ---

COVARIANT = jnp.asarray(RNG.normal(size=(4, 50)), jnp.float32)
ADVANTAGES = jnp.asarray(RNG.normal(size=(4, 50)) + COVARIANT, jnp.float32)
VALID = RNG.uniform(size=(4, 50)) < 0.7


def covariances():
    x, y = (np.asarray(x) for x in (COVARIANT, ADVANTAGES))
    x, y = x - np.mean(x[VALID]), y - np.mean(y[VALID])
    return x * y


@pytest.mark.parametrize("fraction", [0.0, 0.02, 0.1, 1.0])
def test_clip_cov_mask_leaves_out_a_fraction_of_the_tokens_of_high_covariance(fraction):
    keys = jax.random.split(jax.random.key(0), 200)
    masks = jax.vmap(
        lambda key: rlaxlib.clip_cov_mask(
            key, COVARIANT, ADVANTAGES, fraction, 0.5, 3.0, sample_mask=VALID
        )
    )(keys)
    left_out = VALID & ~np.asarray(masks)
    is_high = VALID & (covariances() >= 0.5) & (covariances() <= 3.0)
    count = min(int(fraction * np.sum(VALID)), int(np.sum(is_high)))
    np.testing.assert_array_equal(np.sum(left_out, axis=(1, 2)), count)
    assert not np.any(left_out & ~is_high)
    assert not np.any(np.asarray(masks) & ~VALID)
    if 0 < count < np.sum(is_high):  # Each of them at times.
        np.testing.assert_array_equal(np.any(left_out, axis=0), is_high)


def test_clip_cov_mask_ignores_what_is_in_ignored_tokens():
    bad = jnp.where(VALID, COVARIANT, jnp.nan)
    key = jax.random.key(0)
    one, other = (
        rlaxlib.clip_cov_mask(key, x, ADVANTAGES, 0.1, 0.5, 3.0, sample_mask=VALID)
        for x in (bad, COVARIANT)
    )
    np.testing.assert_array_equal(one, other)


def test_clip_cov_mask_counts_over_all_devices():
    keys = jax.random.split(jax.random.key(1), 4)
    mask = jax.vmap(
        lambda *x: rlaxlib.clip_cov_mask(*x, 0.1, 0.5, 3.0, axis_name="devices"),
        axis_name="devices",
    )(keys, COVARIANT, ADVANTAGES)
    assert np.sum(~np.asarray(mask)) == 20


@pytest.mark.parametrize("fraction", [0.0, 0.2, 0.37, 1.0])
def test_high_entropy_mask_is_that_of_the_quantile(fraction):
    for entropy in (COVARIANT, jnp.round(COVARIANT)):
        found = rlaxlib.high_entropy_mask(entropy, fraction, sample_mask=VALID)
        valid = np.asarray(entropy)[VALID]
        threshold = np.quantile(valid, 1 - fraction, method="higher")
        expected = VALID & (np.asarray(entropy) >= threshold)
        np.testing.assert_array_equal(found, expected)


def test_high_entropy_mask_over_devices_is_that_of_the_batch():
    whole = rlaxlib.high_entropy_mask(COVARIANT, sample_mask=VALID)
    parts = jax.vmap(
        lambda x, mask: rlaxlib.high_entropy_mask(
            x, sample_mask=mask, axis_name="devices"
        ),
        axis_name="devices",
    )(COVARIANT, VALID)
    np.testing.assert_array_equal(parts, whole)


def test_masks_of_no_valid_tokens_are_empty():
    nowhere, key = jnp.zeros((4, 50), bool), jax.random.key(0)
    entropy = rlaxlib.high_entropy_mask(COVARIANT, sample_mask=nowhere)
    covariance = rlaxlib.clip_cov_mask(key, COVARIANT, ADVANTAGES, sample_mask=nowhere)
    assert not np.any(entropy)
    assert not np.any(covariance)


def test_overlong_penalty_falls_from_zero_to_minus_one():
    lengths = np.arange(40)
    found = rlaxlib.overlong_penalty(lengths, 30, 10)
    np.testing.assert_array_equal(found[:21], 0.0)
    close(np.diff(found[20:31]), -0.1)
    np.testing.assert_array_equal(found[30:], -1.0)
