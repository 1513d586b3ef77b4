"""Test policy losses of language models: gradients, limits, masks, extreme ratios."""

import functools

import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib

RNG = np.random.default_rng(0)
OLD = np.float32(-RNG.uniform(0.5, 3.0, 6))
NEW = OLD + np.float32([0.5, -0.7, 0.1, -0.1, 0, 1.5])
MASK = np.array([True, False, True, True, False, True])


def without_outputs(function):
    """Return a function that returns losses without statistics."""
    return lambda *arguments, **settings: function(*arguments, **settings)[0]


cispo_loss = without_outputs(rlaxlib.cispo_loss)
sapo_loss = without_outputs(rlaxlib.sapo_loss)
gmpo_loss = without_outputs(rlaxlib.gmpo_loss)
LOSSES = {
    "cispo": cispo_loss,
    "sapo": sapo_loss,
    "gmpo": gmpo_loss,
    "gspo": lambda log_prob, old_log_prob, adv, **settings: (
        adv * rlaxlib.gspo_ratio(log_prob, old_log_prob, **settings)
    ),
    "gspo token": lambda log_prob, old_log_prob, adv, **settings: (
        adv * rlaxlib.gspo_ratio(log_prob, old_log_prob, "gspo_token", **settings)
    ),
    **{
        kind: lambda log_prob, old_log_prob, adv, kind=kind, **settings: (
            adv * rlaxlib.kl_loss(log_prob, old_log_prob, kind, **settings)
        )
        for kind in ("k1", "k2", "k3", "abs")
    },
}
TOKENWISE = (
    "cispo_loss",
    "generalized_jsd",
    "kl_loss",
    "sapo_loss",
    "token_log_probs",
)
KL_LOSSES = [LOSSES[kind] for kind in ("k1", "k2", "k3", "abs")]
each_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)


@functools.cache
def compiled(loss):
    """Compile the gradient of a sum of losses, with the losses."""

    def total(*arguments, **settings):
        losses = loss(*arguments, **settings)
        return jnp.sum(losses), losses

    return jax.jit(jax.grad(total, has_aux=True))


def value_and_gradient(loss, log_prob=NEW, *arguments, **settings):
    """Return losses, and the gradient of their sum."""
    gradient, losses = compiled(loss)(log_prob, *arguments, **settings)
    return np.asarray(losses), np.asarray(gradient)


def gradient(*arguments, **settings):
    return value_and_gradient(*arguments, **settings)[1]


# --- All losses. ---


@each_loss
def test_ignored_tokens_change_nothing(loss):
    def kept(log_prob, old_log_prob, mask):
        losses = loss(log_prob, old_log_prob, 2.0, sample_mask=mask)
        return jnp.sum(jnp.where(mask, losses, 0)), losses

    found = jax.jit(jax.grad(kept, has_aux=True))
    spoiled = [np.where(MASK, x, np.float32(np.nan)) for x in (NEW, OLD)]
    gradient, losses = map(np.asarray, found(*spoiled, MASK))
    alone, by_alone = value_and_gradient(loss, NEW[MASK], OLD[MASK], 2.0)
    close(losses[MASK], alone)
    assert np.isfinite(losses).all()
    np.testing.assert_array_equal(gradient[~MASK], 0.0)
    close(gradient[MASK], by_alone)
    assert np.isfinite(found(*spoiled, MASK & False)[1]).all()


@pytest.mark.parametrize(
    "row",
    {row.name: row for row in contract.collect() if row.name in TOKENWISE}.values(),
    ids=lambda row: row.id,
)
def test_tokens_may_have_any_shape(row):
    each = [row.inputs(seed) for seed in range(2)]
    numbers = {name: x for name, x in each[0].items() if not x.ndim}
    batch = contract.stack([{n: x for n, x in y.items() if x.ndim} for y in each])
    function = functools.partial(row.call(), **numbers)

    @jax.jit
    def whole_and_mapped(batch):
        return function(**batch), jax.vmap(lambda x: function(**x))(batch)

    jax.tree.map(close, *whole_and_mapped(batch))


@each_loss
@pytest.mark.parametrize("adv", [-1.0, 0.0, 1.0])
def test_tokens_that_a_policy_rules_out_give_no_nan(loss, adv):
    possible, first, every = np.float32(
        [[-1, -1, -2], [-np.inf, -1, -2], [-np.inf, -np.inf, -np.inf]]
    )
    for new, old in [
        (first, possible),
        (every, possible),
        (possible, first),
        (possible, every),
        (first, first),
        (every, every),
    ]:
        losses, gradient = value_and_gradient(loss, new, old, np.float32(adv))
        if adv or loss not in KL_LOSSES:  # `adv` times an infinite loss.
            assert not np.isnan(losses).any()
        assert np.isfinite(gradient).all()


def test_weights_without_an_upper_bound_give_no_nan():
    arguments = NEW, np.full_like(NEW, -np.inf), np.float32(0)
    losses, gradient = value_and_gradient(cispo_loss, *arguments, epsilon_high=np.inf)
    np.testing.assert_array_equal(losses, 0.0)
    np.testing.assert_array_equal(gradient, 0.0)


def test_kl_of_a_token_that_one_policy_rules_out_is_very_large():
    log_prob, reference = np.float32([[-1, -np.inf, -np.inf], [-np.inf, -1, -np.inf]])
    for kind, signs in {
        "k1": [1, -1, 0],
        "k2": [1, 1, 0],
        "k3": [1, 1, 0],
        "abs": [1, 1, 0],
    }.items():
        losses = np.asarray(rlaxlib.kl_loss(log_prob, reference, kind))
        assert np.isfinite(losses).all()
        assert (np.abs(losses[:2]) > 1e14).all()
        np.testing.assert_array_equal(np.sign(losses), signs)


@each_loss
def test_only_the_log_probabilities_of_the_policy_have_a_gradient(loss):
    def total(log_prob, old_log_prob):
        return jnp.sum(loss(log_prob, old_log_prob, 2.0))

    by_new, by_old = jax.jit(jax.grad(total, (0, 1)))(NEW, OLD)
    np.testing.assert_array_equal(by_old, 0.0)
    assert np.any(by_new)


@pytest.mark.parametrize("name", ["cispo", "sapo", "gmpo"])
def test_advantages_have_a_gradient_unless_the_flag_stops_it(name):
    def total(adv, flag):
        return jnp.sum(LOSSES[name](NEW, OLD, adv, stop_target_gradients=flag))

    by_adv = jax.jit(jax.grad(total))
    assert by_adv(2.0, True) == 0
    assert by_adv(2.0, False) != 0


@pytest.mark.parametrize("adv", [-1.0, 0.0, 1.0])
@pytest.mark.parametrize("name", ["cispo", "sapo"])
def test_extreme_ratios_give_finite_losses_and_gradients(name, adv):
    extreme = np.float32([-1e4, -200, -50, 50, 200, 1e4])
    for each in value_and_gradient(LOSSES[name], extreme, 0 * extreme, adv):
        assert np.isfinite(each).all()


@pytest.mark.parametrize("name", ["cispo", "sapo", "gmpo"])
def test_gradient_of_a_policy_that_did_not_change_is_the_policy_gradient(name):
    close(gradient(LOSSES[name], OLD, OLD, 2.0), -2.0)


# --- CISPO and SAPO. ---


def test_cispo_keeps_the_gradient_that_ppo_clips():
    adv = np.ones_like(OLD)
    clipped = gradient(lambda x: rlaxlib.ppo_clip_loss(x, OLD, adv)[0])
    kept = gradient(cispo_loss, NEW, OLD, 1.0, 0.2, 0.2)
    close(clipped[[0, 5]], 0.0)
    close(kept[[0, 5]], -1.2)
    close(kept[1], -0.8)
    close(kept[2:5], clipped[2:5])


def test_cispo_without_bounds_is_the_importance_weighted_policy_gradient():
    found = gradient(cispo_loss, NEW, OLD, 3.0, 1.0, np.inf)
    close(found, -3.0 * np.exp(NEW - OLD))


def test_sapo_fades_faster_for_negative_advantages():
    gains = -gradient(sapo_loss, NEW, OLD, 1.0, 1.0, 5.0)
    losses = gradient(sapo_loss, NEW, OLD, -1.0, 1.0, 5.0)
    assert np.all(losses[[0, 1, 5]] < gains[[0, 1, 5]])
    # The gate has derivative 1 at a ratio of 1, whatever the temperature.
    close(losses[4], 1.0)
    close(gains[4], 1.0)


# --- GSPO and GMPO. ---


@pytest.mark.parametrize("mask", [None, MASK])
def test_gspo_ratios_of_sequence_and_tokens_agree(mask):
    sequence, token = (
        functools.partial(rlaxlib.gspo_ratio, kind=kind, sample_mask=mask)
        for kind in ("gspo", "gspo_token")
    )
    one, other = (value_and_gradient(each, NEW, OLD) for each in (sequence, token))
    np.testing.assert_array_equal(one[0], other[0])
    close(one[1], other[1])
    valid = np.ones(6, bool) if mask is None else mask
    ratio = np.exp(np.mean((NEW - OLD)[valid]))
    close(one[0], np.where(valid, ratio, 0.0))


def test_far_ratios_of_tokens_cancel_in_a_sequence():
    """What is bounded is the mean, never a term of it."""
    pair = np.float32([-1.0, -50.0]), np.float32([-31.0, -20.0])
    for name in ("gspo", "gspo token"):
        ratio, found = value_and_gradient(LOSSES[name], *pair, 1.0)
        np.testing.assert_array_equal(ratio, 1.0)
        close(np.sum(found), 2.0)
    far = np.float32([1e4, -1e4 + 1])
    close(rlaxlib.gspo_ratio(far, 0 * far), np.exp(0.5), rtol=1e-3)
    loss, found = value_and_gradient(gmpo_loss, *pair, 1.0, epsilon=np.inf)
    close(loss, -1.0)
    close(np.sum(found), -2.0)


def test_gspo_token_gives_each_token_its_own_advantage():
    adv = np.arange(6, dtype=np.float32)

    def loss(log_prob):
        return -adv * rlaxlib.gspo_ratio(log_prob, OLD, "gspo_token")

    ratio = np.exp(np.mean(NEW - OLD))
    close(gradient(loss), -adv * ratio)


@jax.jit
def clipped_gradient(log_prob, adv):
    def loss(log_prob):
        ratio = rlaxlib.gspo_ratio(log_prob, OLD)
        adv_t, zeros = jnp.full(6, adv), jnp.zeros(6)
        losses, _ = rlaxlib.ppo_clip_loss(jnp.log(ratio), zeros, adv_t, 3e-4, 4e-4)
        return jnp.sum(losses) / 6

    return jax.grad(loss)(log_prob)


@pytest.mark.parametrize("adv", [-1.0, 1.0])
@pytest.mark.parametrize("shift", [-200, 200])
def test_gspo_has_no_gradient_at_extreme_ratios(adv, shift):
    np.testing.assert_array_equal(clipped_gradient(OLD + np.float32(shift), adv), 0.0)


@pytest.mark.parametrize("adv", [-1.0, 1.0])
@pytest.mark.parametrize("shift", [-1e-3, -1e-4, 1e-4, 1e-3])
def test_gspo_clips_whole_sequences(adv, shift):
    found = clipped_gradient(OLD + np.float32(6 * shift * np.eye(6)[2]), adv)
    clipped = (adv > 0 and shift > 4e-4) or (adv < 0 and shift < -3e-4)
    expected = 0.0 if clipped else -adv * np.exp(shift) / 6
    close(found, expected, rtol=1e-3)


def test_gmpo_within_its_bounds_is_the_sequence_ratio_times_the_advantage():
    found = jax.jit(gmpo_loss)(NEW, OLD, -2.0, epsilon=5.0)
    close(found, np.full(6, 2.0 * np.exp(np.mean(NEW - OLD))))


def test_gmpo_clips_tokens_on_the_side_that_the_advantage_favours():
    above, below = NEW - OLD > 0.4, NEW - OLD < -0.4
    np.testing.assert_array_equal(gradient(gmpo_loss, NEW, OLD, 1.0) == 0, above)
    np.testing.assert_array_equal(gradient(gmpo_loss, NEW, OLD, -1.0) == 0, below)


def test_losses_of_ratios_give_the_same_statistics():
    adv, settings = np.float32(1.0), {"sample_mask": MASK}
    _, expected = rlaxlib.ppo_clip_loss(NEW, OLD, np.full(6, adv), **settings)
    for name in ("cispo_loss", "sapo_loss", "gmpo_loss"):
        _, found = getattr(rlaxlib, name)(NEW, OLD, adv, **settings)
        assert type(found) is rlaxlib.RatioOutputs
        for field in ("log_ratio", "ratio"):
            close(getattr(found, field), getattr(expected, field))
        assert not np.any(found.clipped[~MASK])


def test_statistics_report_the_tokens_that_are_clipped():
    ratio = np.exp(NEW - OLD)
    _, outputs = rlaxlib.cispo_loss(NEW, OLD, 1.0, 0.4, 0.5)
    np.testing.assert_array_equal(outputs.clipped, (ratio < 0.6) | (ratio > 1.5))
    for adv in (-1.0, 1.0):
        _, outputs = rlaxlib.gmpo_loss(NEW, OLD, adv)
        clipped = gradient(gmpo_loss, NEW, OLD, adv) == 0
        np.testing.assert_array_equal(outputs.clipped, clipped)
    _, outputs = rlaxlib.sapo_loss(
        np.float32([-1.0, 0.0]), np.float32([-1.0, -50.0]), 1.0
    )
    np.testing.assert_array_equal(outputs.clipped, [False, True])


# --- KL. ---

LOGITS, REFERENCE, SAMPLER = np.float32(RNG.normal(size=(3, 5)))


def kl(logits, other):
    log_probs = jax.nn.log_softmax(logits)
    return jnp.sum(jnp.exp(log_probs) * (log_probs - jax.nn.log_softmax(other)))


def enumerate_kl(kind, logits, weight=None):
    """Average the KL loss over all tokens, sampled from fixed probabilities."""
    log_probs = jax.nn.log_softmax(logits)
    probs = jax.lax.stop_gradient(jnp.exp(log_probs)) if weight is None else weight
    loss = rlaxlib.kl_loss(log_probs, jax.nn.log_softmax(REFERENCE), kind)
    return jnp.sum(probs * loss)


mean_kl_loss = jax.jit(jax.value_and_grad(enumerate_kl, 1), static_argnums=0)
exact_kl = jax.jit(jax.value_and_grad(kl))


@pytest.mark.parametrize("kind", ["k1", "k2", "k3", "abs"])
def test_mean_gradient_of_the_kl_loss_is_that_of_the_kl(kind):
    _, found = mean_kl_loss(kind, LOGITS)
    close(found, exact_kl(LOGITS, REFERENCE)[1], atol=1e-6)


@pytest.mark.parametrize("kind", ["k1", "k2", "k3", "abs"])
def test_mean_second_derivative_of_the_kl_loss_at_the_reference_is_that_of_the_kl(kind):
    probs = np.exp(REFERENCE) / np.sum(np.exp(REFERENCE))
    found = jax.jit(jax.hessian(lambda x: enumerate_kl(kind, x)))(REFERENCE)
    close(found, np.diag(probs) - np.outer(probs, probs), atol=1e-6)


@pytest.mark.parametrize("kind", ["k1", "k3"])
def test_mean_value_of_the_kl_loss_is_the_kl(kind):
    close(mean_kl_loss(kind, LOGITS)[0], exact_kl(LOGITS, REFERENCE)[0], atol=1e-6)


def test_gradients_of_the_values_themselves_are_others():
    def mean_of(estimate):
        def mean(logits):
            log_probs = jax.nn.log_softmax(logits)
            x = log_probs - jax.nn.log_softmax(REFERENCE)
            return jnp.sum(jax.lax.stop_gradient(jnp.exp(log_probs)) * estimate(x))

        return jax.jit(jax.grad(mean))(LOGITS)

    reverse = np.asarray(jax.jit(jax.grad(kl, 1))(REFERENCE, LOGITS))
    close(mean_of(lambda x: x), 0.0, atol=1e-6)
    close(mean_of(lambda x: jnp.expm1(-x) + x), reverse, atol=1e-6)
    _, forward = exact_kl(LOGITS, REFERENCE)
    assert np.max(np.abs(reverse - np.asarray(forward))) > 0.05


@pytest.mark.parametrize("kind", ["k1", "k3"])
def test_importance_weights_correct_the_kl_loss_of_another_sampler(kind):
    probs, of_sampler = (np.exp(x) / np.sum(np.exp(x)) for x in (LOGITS, SAMPLER))
    found = mean_kl_loss(kind, LOGITS, of_sampler * (probs / of_sampler))
    for one, other in zip(found, exact_kl(LOGITS, REFERENCE), strict=True):
        close(one, other, atol=1e-6)


def test_k3_of_close_policies_is_precise():
    log_prob = np.float32([1e-4 - 1, -1e-4 - 1])
    found = jax.jit(rlaxlib.kl_loss)(log_prob, np.float32([-1, -1]))
    x = np.float64(log_prob) + 1.0
    close(found, np.expm1(-x) + x, rtol=1e-2, atol=0)


# --- Masks and penalties. ---

COVARIANT = np.float32(RNG.normal(size=(4, 50)))
ADVANTAGES = np.float32(RNG.normal(size=(4, 50)) + COVARIANT)
VALID = RNG.uniform(size=(4, 50)) < 0.7
clip_cov_mask = jax.jit(rlaxlib.clip_cov_mask)
high_entropy_mask = jax.jit(rlaxlib.high_entropy_mask)


def covariances():
    x, y = (x - np.mean(x[VALID]) for x in (COVARIANT, ADVANTAGES))
    return x * y


@jax.jit
def many_masks(fraction):
    return jax.vmap(
        lambda key: rlaxlib.clip_cov_mask(
            key, COVARIANT, ADVANTAGES, fraction, 0.5, 3.0, sample_mask=VALID
        )
    )(jax.random.split(jax.random.key(0), 500))


@pytest.mark.parametrize("fraction", [0.0, 0.008, 0.02, 0.1, 1.0])
def test_clip_cov_mask_leaves_out_a_fraction_of_the_tokens_of_high_covariance(fraction):
    masks = many_masks(fraction)
    left_out = VALID & ~np.asarray(masks)
    is_high = VALID & (covariances() >= 0.5) & (covariances() <= 3.0)
    count = min(int(fraction * np.sum(VALID)), int(np.sum(is_high)))
    np.testing.assert_array_equal(np.sum(left_out, axis=(1, 2)), count)
    assert not np.any(left_out & ~is_high)
    assert not np.any(np.asarray(masks) & ~VALID)
    if 0 < count < np.sum(is_high):  # Each of them at times.
        np.testing.assert_array_equal(np.any(left_out, axis=0), is_high)


def test_clip_cov_mask_ignores_what_is_in_ignored_tokens():
    bad = np.where(VALID, COVARIANT, np.float32(np.nan))
    key = jax.random.key(0)
    one, other = (
        clip_cov_mask(key, x, ADVANTAGES, 0.1, 0.5, 3.0, sample_mask=VALID)
        for x in (bad, COVARIANT)
    )
    np.testing.assert_array_equal(one, other)


def test_clip_cov_mask_counts_over_all_devices():
    keys = jax.random.split(jax.random.key(1), 4)
    mask = jax.vmap(
        lambda *x: rlaxlib.clip_cov_mask(*x, 0.1, 0.5, 3.0, axis_name="devices"),
        axis_name="devices",
    )
    found = jax.jit(mask)(keys, COVARIANT, ADVANTAGES)
    assert np.sum(~np.asarray(found)) == 20


@pytest.mark.parametrize("fraction", [0.0, 0.2, 0.37, 1.0])
def test_high_entropy_mask_is_that_of_the_quantile(fraction):
    for entropy in (COVARIANT, np.round(COVARIANT)):
        found = high_entropy_mask(entropy, fraction, sample_mask=VALID)
        threshold = np.quantile(entropy[VALID], 1 - fraction, method="higher")
        expected = VALID & (entropy >= threshold)
        np.testing.assert_array_equal(found, expected)


def test_high_entropy_mask_over_devices_is_that_of_the_batch():
    whole = high_entropy_mask(COVARIANT, sample_mask=VALID)
    parts = jax.vmap(
        lambda x, mask: rlaxlib.high_entropy_mask(
            x, sample_mask=mask, axis_name="devices"
        ),
        axis_name="devices",
    )
    np.testing.assert_array_equal(jax.jit(parts)(COVARIANT, VALID), whole)


def test_masks_of_no_valid_tokens_are_empty():
    nowhere, key = VALID & False, jax.random.key(0)
    entropy = high_entropy_mask(COVARIANT, sample_mask=nowhere)
    covariance = clip_cov_mask(key, COVARIANT, ADVANTAGES, sample_mask=nowhere)
    assert not np.any(entropy)
    assert not np.any(covariance)


def test_overlong_penalty_falls_from_zero_to_minus_one():
    lengths = np.arange(40)
    found = np.asarray(jax.jit(rlaxlib.overlong_penalty)(lengths, 30, 10))
    np.testing.assert_array_equal(found[:21], 0.0)
    close(np.diff(found[20:31]), -0.1)
    np.testing.assert_array_equal(found[30:], -1.0)


def test_overlong_penalty_of_lengths_of_a_small_dtype():
    lengths = np.array([70, 90, 255], np.uint8)
    for maximum, cache in ((100, 20), np.array([100, 20], np.uint8)):
        found = jax.jit(rlaxlib.overlong_penalty)(lengths, maximum, cache)
        close(found, [0, -0.5, -1])


@pytest.mark.parametrize("fraction", [0.07, 0.29, 0.53, 0.57, 0.58])
@pytest.mark.parametrize("count", [100, 200, 1000])
def test_masks_have_the_number_of_tokens_that_a_fraction_states(fraction, count):
    """The product in single precision may be just below an integer."""
    values = np.random.default_rng(0).permutation(count).astype(np.float32)
    kept = rlaxlib.clip_cov_mask(
        jax.random.key(0), values, values, fraction, minimum=-np.inf, maximum=np.inf
    )
    assert np.sum(~np.asarray(kept)) == round(fraction * count)
    values = np.append(values, np.float32(count))
    chosen = rlaxlib.high_entropy_mask(values, fraction)
    assert np.sum(chosen) == round(fraction * count) + 1
