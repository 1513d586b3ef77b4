"""Test diagnostics: expectations, extreme values, masks and invalid arguments."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close
from jax.experimental import checkify

import rlaxlib

KINDS = ["k1", "k2", "k3"]
LOGITS, OTHER = jnp.array([0.5, -1.0, 0.2]), jnp.array([0.1, 0.4, -0.3])
TARGETS = jnp.array([1.0, 2.0, 4.0, 9.0])
OF_VALUES = [
    rlaxlib.explained_variance,
    functools.partial(rlaxlib.explained_variance, count_bias=True),
    rlaxlib.value_bias,
    functools.partial(rlaxlib.value_bias, normalize=True),
]
OF_RATIOS = [
    *(functools.partial(rlaxlib.approximate_kl, kind=kind) for kind in KINDS),
    rlaxlib.clip_fraction,
    rlaxlib.effective_sample_size,
    rlaxlib.importance_statistics,
]


# --- Values. ---


@pytest.mark.parametrize("count_bias", [False, True])
def test_explained_variance_is_one_for_perfect_and_zero_for_constant_values(count_bias):
    explained = functools.partial(rlaxlib.explained_variance, count_bias=count_bias)
    assert explained(TARGETS, TARGETS) == 1
    close(explained(jnp.full(4, 4.0), TARGETS), 0.0)


def test_explained_variance_counts_a_constant_bias_only_if_asked():
    close(rlaxlib.explained_variance(TARGETS + 3, TARGETS), 1.0)
    explained = rlaxlib.explained_variance(TARGETS + 3, TARGETS, count_bias=True)
    close(explained, 1 - 9 / jnp.var(TARGETS))


@pytest.mark.parametrize("value", [0.0, 0.1, -1e6])
@pytest.mark.parametrize("count_bias", [False, True])
def test_explained_variance_of_equal_targets_is_zero(value, count_bias):
    explained = functools.partial(rlaxlib.explained_variance, count_bias=count_bias)
    targets = jnp.full(7, value)
    for predictions in (targets, jnp.arange(7.0)):
        result, gradients = jax.value_and_grad(explained, (0, 1))(predictions, targets)
        assert result == 0
        np.testing.assert_array_equal(gradients, 0.0)


def test_explained_variance_is_precise_far_from_zero():
    rng = np.random.default_rng(0)
    targets = np.float32(1e6 + rng.normal(size=1000))
    predictions = np.float32(targets + 0.5 * rng.normal(size=1000))
    errors = targets.astype(float) - predictions
    expected = 1 - np.var(errors) / np.var(targets.astype(float))
    close(rlaxlib.explained_variance(predictions, targets), expected, rtol=1e-4)


def test_value_bias_is_positive_if_values_are_too_large():
    values, returns = jnp.array([1.0, 3.0]), jnp.array([-2.0, -2.0])
    close(rlaxlib.value_bias(values, returns), 4.0)
    close(rlaxlib.value_bias(values, returns, normalize=True), 2.0)
    close(rlaxlib.value_bias(-values, -returns, normalize=True), -2.0)


def test_normalized_value_bias_is_zero_if_the_mean_return_is():
    values, returns = jnp.array([1.0, 3.0]), jnp.array([-2.0, 2.0])
    assert rlaxlib.value_bias(values, returns, normalize=True) == 0


@pytest.mark.parametrize("function", OF_VALUES)
def test_value_diagnostics_ignore_masked_entries(function):
    predictions = jnp.array([[0.5, jnp.nan], [3.0, 2.0]])
    targets = jnp.array([[1.0, 2.0], [jnp.inf, 4.0]])
    mask = jnp.array([[True, False], [False, True]])
    result, gradients = jax.value_and_grad(function, (0, 1))(
        predictions, targets, sample_mask=mask
    )
    close(result, function(predictions[mask], targets[mask]))
    assert np.all(np.isfinite(gradients))
    np.testing.assert_array_equal(np.asarray(gradients)[:, ~mask], 0.0)
    assert function(predictions, targets, sample_mask=jnp.zeros_like(mask)) == 0


@pytest.mark.parametrize("function", OF_VALUES)
def test_value_diagnostics_do_not_hide_nan(function):
    bad = TARGETS.at[2].set(jnp.nan)
    assert jnp.isnan(function(bad, TARGETS))
    assert jnp.isnan(function(TARGETS, bad))


@pytest.mark.parametrize("function", OF_VALUES)
def test_value_diagnostics_over_devices_equal_those_of_one_device(function):
    predictions = jnp.array([[0.5, 7.0], [3.0, 2.0]])
    targets, mask = TARGETS.reshape(2, 2), jnp.array([[True, True], [False, True]])
    over = jax.vmap(functools.partial(function, axis_name="i"), axis_name="i")
    parts = over(predictions, targets, sample_mask=mask)
    close(parts, jnp.full(2, function(predictions, targets, sample_mask=mask)))


# --- Policy divergence. ---


def expected_kl(pi_logits, mu_logits, kind):
    """Return the expected estimate of KL(μ ‖ π) over actions of μ."""
    log_pi, log_mu = jax.nn.log_softmax(pi_logits), jax.nn.log_softmax(mu_logits)
    estimates = jax.vmap(lambda x: rlaxlib.approximate_kl(x, kind))(log_pi - log_mu)
    return jnp.sum(jnp.exp(log_mu) * estimates)


def exact_kl(pi_logits, mu_logits):
    return rlaxlib.categorical_kl_divergence(mu_logits, pi_logits)


@pytest.mark.parametrize("kind", ["k1", "k3"])
def test_k1_and_k3_and_their_gradients_are_unbiased_for_actions_of_mu(kind):
    found = jax.value_and_grad(expected_kl)(LOGITS, OTHER, kind)
    expected = jax.value_and_grad(exact_kl)(LOGITS, OTHER)
    jax.tree.map(close, found, expected)


def test_only_the_gradient_of_k2_is_unbiased_for_actions_of_the_trained_policy():
    def expected_gradient(logits, kind):
        # The policy that samples is not differentiated.
        probs = jax.nn.softmax(jax.lax.stop_gradient(logits))
        log_ratio = jax.nn.log_softmax(OTHER) - jax.nn.log_softmax(logits)
        estimates = jax.vmap(lambda x: rlaxlib.approximate_kl(x, kind))(log_ratio)
        return jnp.sum(probs * estimates)

    k1, k2, k3 = (jax.grad(expected_gradient)(LOGITS, kind) for kind in KINDS)
    close(k1, jnp.zeros(3), atol=1e-6)
    close(k2, jax.grad(rlaxlib.categorical_kl_divergence)(LOGITS, OTHER))
    close(k3, jax.grad(rlaxlib.categorical_kl_divergence, 1)(OTHER, LOGITS))


@pytest.mark.parametrize("kind", ["k2", "k3"])
def test_k2_and_k3_are_close_to_the_kl_of_close_policies(kind):
    near = LOGITS + 0.01 * OTHER
    exact = exact_kl(near, LOGITS)
    assert exact > 1e-6
    close(expected_kl(near, LOGITS, kind), exact, rtol=0.01, atol=0)


@pytest.mark.parametrize("log_ratio", [-0.01, 0.01])
def test_k3_is_precise_for_small_log_ratios(log_ratio):
    estimate = rlaxlib.approximate_kl(jnp.array([log_ratio]))
    exact = np.expm1(np.float32(log_ratio).astype(float)) - np.float32(log_ratio)
    np.testing.assert_allclose(estimate, exact, rtol=1e-4)


def test_k3_is_never_negative():
    sizes = np.logspace(-8, 1, 100_000)
    log_ratio = jnp.asarray(np.concatenate([sizes, -sizes]), jnp.float32)
    assert jnp.min(jax.vmap(rlaxlib.approximate_kl)(log_ratio)) >= 0


@pytest.mark.parametrize("kind", KINDS)
def test_kl_of_an_impossible_action_is_infinite(kind):
    log_ratio = jnp.array([0.1, -jnp.inf])
    result, gradient = jax.value_and_grad(rlaxlib.approximate_kl)(log_ratio, kind)
    assert result == jnp.inf
    assert not np.any(np.isnan(gradient))


def test_ratios_at_the_bounds_are_not_clipped():
    log_ratio = jnp.log1p(jnp.array([-0.5, 0.25]))
    assert rlaxlib.clip_fraction(log_ratio, 0.5, 0.25) == 0
    assert rlaxlib.clip_fraction(log_ratio, 0.49, 0.25) == 0.5
    assert rlaxlib.clip_fraction(log_ratio, 0.5, 0.24) == 0.5


def test_ratios_that_overflow_are_clipped_and_none_is_below_a_bound_of_zero():
    log_ratio = jnp.array([1000.0, -1000.0])
    assert rlaxlib.clip_fraction(log_ratio) == 1
    assert rlaxlib.clip_fraction(log_ratio, 1.0) == 0.5


def test_clip_fraction_with_advantages_counts_zero_gradients_of_ppo():
    rng = np.random.default_rng(0)
    log_ratio = jnp.asarray(rng.normal(size=200), jnp.float32)
    adv_t = jnp.asarray(rng.normal(size=200), jnp.float32)

    def loss(x):
        return rlaxlib.clipped_surrogate_pg_loss(jnp.exp(x), adv_t, 0.2)

    still = jnp.mean(jax.grad(loss)(log_ratio) == 0)
    close(rlaxlib.clip_fraction(log_ratio, adv_t=adv_t), still)
    assert 0 < still < rlaxlib.clip_fraction(log_ratio)


@pytest.mark.parametrize("shift", [-1e4, 0.0, 1e4])
def test_effective_sample_size_ranges_from_one_to_the_number_of_samples(shift):
    size = rlaxlib.effective_sample_size
    close(size(jnp.full(5, shift)), 5.0)
    close(size(jnp.array([0.0, 200.0, 0.0]) + shift), 1.0)
    close(size(jnp.array([shift, shift, -jnp.inf])), 2.0)


def test_effective_sample_size_of_zero_weights_is_zero():
    log_weights = jnp.full(3, -jnp.inf)
    size, gradient = jax.value_and_grad(rlaxlib.effective_sample_size)(log_weights)
    assert size == 0
    assert not np.any(np.isnan(gradient))


def test_importance_statistics_are_unbiased():
    log_pi, log_mu = jax.nn.log_softmax(LOGITS), jax.nn.log_softmax(OTHER)
    ratios = jnp.exp(log_pi - log_mu)
    exact = jnp.sum(jnp.exp(log_mu) * ratios**2) - 1
    each = jax.vmap(rlaxlib.importance_statistics)((log_pi - log_mu)[:, None])
    close(jnp.sum(jnp.exp(log_mu) * each.chi_squared), exact)
    close(jnp.sum(jnp.exp(log_mu) * each.mean_ratio), 1.0)
    close(jnp.sum(jnp.exp(log_mu) * each.kl), exact_kl(LOGITS, OTHER))


def test_importance_statistics_of_equal_policies():
    statistics = rlaxlib.importance_statistics(jnp.zeros(4))
    np.testing.assert_array_equal(statistics, [1, 0, 0, 0, 0, 0, 0, 4, 1])


def test_ratio_that_overflows_leaves_other_statistics_finite():
    statistics = rlaxlib.importance_statistics(jnp.array([0.0, 200.0, 0.0, 0.0]))
    assert statistics.mean_ratio == jnp.inf
    assert statistics.max_log_ratio == 200
    close(statistics.mean_log_ratio, 50.0)
    close(statistics.effective_fraction, 0.25)


def test_importance_statistics_of_an_impossible_action():
    statistics = rlaxlib.importance_statistics(jnp.array([-jnp.inf, 0.0]))
    assert statistics.min_log_ratio == -jnp.inf
    assert statistics.max_log_ratio == 0
    assert statistics.kl == jnp.inf
    close(statistics.mean_ratio, 0.5)
    close(statistics.effective_sample_size, 1.0)


@pytest.mark.parametrize("function", OF_RATIOS)
def test_ratio_diagnostics_ignore_masked_entries(function):
    log_ratio = jnp.array([0.5, jnp.nan, -1.0, jnp.inf])
    mask = jnp.array([True, False, True, False])

    def total(x):
        return sum(jax.tree.leaves(function(x, sample_mask=mask)))

    jax.tree.map(
        close, function(log_ratio, sample_mask=mask), function(log_ratio[mask])
    )
    gradient = jax.grad(total)(log_ratio)
    assert np.all(np.isfinite(gradient))
    np.testing.assert_array_equal(gradient[~mask], 0.0)
    nothing = function(log_ratio, sample_mask=jnp.zeros_like(mask))
    np.testing.assert_array_equal(jax.tree.leaves(nothing), 0.0)


@pytest.mark.parametrize("function", OF_RATIOS)
def test_ratio_diagnostics_do_not_hide_nan(function):
    result = function(jnp.array([0.1, jnp.nan, 9.0]))
    assert jnp.isnan(jax.tree.leaves(result)[0])


@pytest.mark.parametrize("function", OF_RATIOS)
def test_ratio_diagnostics_over_devices_equal_those_of_one_device(function):
    log_ratio = jnp.array([[0.5, 0.1], [3.0, -2.0]])
    mask = jnp.array([[True, True], [False, True]])
    whole = function(log_ratio.ravel(), sample_mask=mask.ravel())
    parts = jax.vmap(
        lambda x, mask: function(x, sample_mask=mask, axis_name="i"), axis_name="i"
    )(log_ratio, mask)
    jax.tree.map(lambda part, one: close(part, jnp.full(2, one)), parts, whole)


def test_importance_statistics_have_no_gradient():
    def total(x):
        return sum(rlaxlib.importance_statistics(x))

    np.testing.assert_array_equal(jax.grad(total)(jnp.array([0.5, -0.5])), 0.0)


# --- Networks. ---


def test_dormant_neurons_are_scored_relative_to_the_layer():
    activations = jnp.array([[1.0, -1.0, 0.01, 0.0], [-1.0, 1.0, -0.01, 0.0]])
    for scale in (1e-20, 1.0, 1e20):
        assert rlaxlib.dormant_fraction(scale * activations) == 0.5
    assert rlaxlib.dormant_fraction(activations, 0.0) == 0.25
    assert rlaxlib.dormant_fraction(activations, 2.0) == 1


def test_layer_of_zeros_is_dormant_and_layer_of_ones_is_not():
    assert rlaxlib.dormant_fraction(jnp.zeros((3, 4))) == 1
    assert rlaxlib.dormant_fraction(jnp.ones((3, 4))) == 0


def test_neurons_of_a_convolution_are_its_channels():
    images = jnp.zeros((2, 5, 5, 3)).at[..., 0].set(1.0).at[0, 2, 2, 1].set(9.0)
    close(rlaxlib.dormant_fraction(images), 1 / 3)
    close(rlaxlib.dormant_fraction(images, 0.6), 2 / 3)
    close(rlaxlib.dormant_fraction(images[0, 2, 2]), 1 / 3)


@pytest.mark.parametrize("rank", [1, 3, 5])
def test_effective_rank_of_orthogonal_features_is_their_rank(rank):
    rng = np.random.default_rng(rank)
    base, _ = np.linalg.qr(rng.normal(size=(20, rank)))
    features = jnp.asarray(base @ rng.permutation(np.eye(6)[:rank]), jnp.float32)
    assert rlaxlib.effective_rank(features) == rank
    assert rlaxlib.effective_rank(features.T) == rank
    assert rlaxlib.effective_rank(1e-6 * features) == rank


def test_effective_rank_leaves_out_a_fraction_delta_of_the_singular_values():
    features = jnp.diag(jnp.array([4.0, 3.0, 2.0, 1.0]))
    ranks = {0.0: 4, 0.05: 4, 0.2: 3, 0.4: 2, 0.9: 1}
    for delta, rank in ranks.items():
        assert rlaxlib.effective_rank(features, delta) == rank
    # Squared singular values would give 1.
    assert rlaxlib.effective_rank(jnp.diag(jnp.array([10.0, 1.0])), 0.05) == 2


def test_effective_rank_of_zeros_is_zero():
    assert rlaxlib.effective_rank(jnp.zeros((3, 4))) == 0
    assert rlaxlib.effective_rank(jnp.zeros((3, 4)), 0.0) == 0


def test_network_diagnostics_ignore_masked_inputs():
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(6, 4)), jnp.float32).at[1].set(jnp.nan)
    x = x.at[:, 2].set(0.0).at[1, 2].set(jnp.inf)
    mask = jnp.array([True, False, True, True, False, True])
    assert rlaxlib.dormant_fraction(x, sample_mask=mask) == 0.25
    assert rlaxlib.effective_rank(x, sample_mask=mask) == 3


def test_network_diagnostics_do_not_hide_nan():
    x = jnp.ones((3, 4)).at[1, 1].set(jnp.nan)
    assert jnp.isnan(rlaxlib.dormant_fraction(x))
    assert rlaxlib.effective_rank(x) == 0


def test_network_diagnostics_over_devices_equal_those_of_one_device():
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(2, 3, 8)), jnp.float32).at[..., 5].set(0.0)
    mask = jnp.array([[True, True, True], [True, False, False]])
    for function in (rlaxlib.dormant_fraction, rlaxlib.effective_rank):
        parts = jax.vmap(
            lambda x, mask, function=function: function(
                x, sample_mask=mask, axis_name="i"
            ),
            axis_name="i",
        )(x, mask)
        whole = function(x.reshape(6, 8), sample_mask=mask.ravel())
        np.testing.assert_array_equal(parts, whole)
    assert whole == 4


# --- Trajectories. ---

GOOD = {
    "r_t": jnp.array([0.0, 1.0, 2.0, 3.0]),
    "discount_t": jnp.array([0.5, 0.0, 1.0, 0.5]),
    "truncated_t": jnp.array([False, False, False, True]),
    "sample_mask": jnp.array([True, True, False, True]),
}


def change(**changes):
    """Change entries of a consistent stream: `r_t={0: nan}`."""
    stream = dict(GOOD)
    for name, entries in changes.items():
        for step, value in entries.items():
            stream[name] = stream[name].at[step].set(value)
    return stream


BAD = {
    "reward": (
        change(r_t={0: jnp.nan}),
        [0],
        "`r_t` is nan at step 0, must be finite",
    ),
    "infinite reward": (
        change(r_t={3: -jnp.inf}),
        [3],
        "`r_t` is -inf at step 3, must be finite",
    ),
    "discount": (
        change(discount_t={0: 1.25}),
        [0],
        "`discount_t` is 1.25 at step 0, must be in [0, 1]",
    ),
    "negative discount": (
        change(discount_t={3: -0.5, 0: jnp.nan}),
        [0, 3],
        "`discount_t` is nan at step 0, must be in [0, 1]",
    ),
    "terminated and truncated": (
        change(truncated_t={1: True}),
        [1],
        "`truncated_t` is True at step 1, must be False where `discount_t` is 0",
    ),
    "lost end": (
        change(discount_t={1: 0.5, 2: 0.0}),
        [2],
        "`discount_t` is 0.0 at step 2, but `sample_mask` is False: the end of the "
        "episode is lost, and its estimates run into the next one",
    ),
    "no valid step": (
        GOOD | {"sample_mask": jnp.zeros(4, bool)},
        [0, 1, 2, 3],
        "`sample_mask` is False at step 0, and at all others",
    ),
}
every_bad = pytest.mark.parametrize("case", BAD)
CHECK = jax.jit(checkify.checkify(lambda x: rlaxlib.check_trajectory(**x)))

# Streams as in the tests of multistep estimates, and the steps whose end is lost.
ENDS = [
    ("..0..", "11011", [2]),
    ("..0..", "11111", []),
    (".00..", "11011", []),  # The previous valid step has terminated already.
    (".x0..", "11011", []),
    ("..0..", "11000", []),  # Padding.
    ("..0..", "00011", []),
    ("..00.", "11001", [2, 3]),
    ("..0x0", "11001", [2]),  # Reported, although the cut prevents harm.
    ("0.0.0", "10101", []),
    (".0.0.", "10101", [1, 3]),
]


def test_consistent_stream_passes():
    np.testing.assert_array_equal(rlaxlib.check_trajectory(**GOOD), True)
    for name in ("truncated_t", "sample_mask"):
        assert rlaxlib.check_trajectory(**GOOD | {name: None}).all()


def test_masked_steps_may_hold_anything():
    stream = change(r_t={2: jnp.nan}, discount_t={2: 7.0}, truncated_t={2: True})
    assert rlaxlib.check_trajectory(**stream).all()


@every_bad
def test_inconsistency_is_reported_directly_and_through_checkify(case):
    stream, steps, message = BAD[case]
    with pytest.raises(rlaxlib.ArgumentError) as raised:
        rlaxlib.check_trajectory(**stream)
    assert str(raised.value) == f"check_trajectory: {message}."
    error, consistent = CHECK(stream)
    assert error.get().startswith(f"check_trajectory: {message}.")
    assert np.flatnonzero(~consistent).tolist() == steps


def test_checkify_reports_nothing_for_a_consistent_stream():
    error, consistent = CHECK(GOOD)
    assert error.get() is None
    assert consistent.all()


def test_all_inconsistencies_are_reported_at_once():
    stream = change(r_t={0: jnp.nan}, discount_t={3: 2.0}, truncated_t={1: True})
    with pytest.raises(rlaxlib.ArgumentError) as error:
        rlaxlib.check_trajectory(**stream)
    parts = str(error.value).split(". ")
    names = [part.split("`")[1] for part in parts]
    assert names == ["r_t", "discount_t", "truncated_t"]


def test_end_is_lost_where_estimates_would_run_into_the_next_episode():
    ends, valid = (np.array([list(each[i]) for each in ENDS]) for i in range(2))
    batch = {
        "r_t": jnp.ones(ends.shape),
        "discount_t": jnp.where(ends == "0", 0.0, 0.5),
        "truncated_t": jnp.asarray(ends == "x"),
        "sample_mask": jnp.asarray(valid == "1"),
    }
    check = checkify.checkify(jax.vmap(lambda x: rlaxlib.check_trajectory(**x)))
    _, consistent = jax.jit(check)(batch)
    lost = [np.flatnonzero(~each).tolist() for each in np.asarray(consistent)]
    assert lost == [expected for _, _, expected in ENDS]


def test_batch_is_checked_stream_by_stream():
    streams = [GOOD, BAD["discount"][0], GOOD]
    batch = jax.tree.map(lambda *each: jnp.stack(each), *streams)
    function = jax.vmap(lambda x: rlaxlib.check_trajectory(**x))
    error, consistent = jax.jit(checkify.checkify(function))(batch)
    assert "is 1.25 at step 0" in error.get()
    assert consistent.all(axis=1).tolist() == [True, False, True]


def test_loss_that_checks_its_stream_keeps_its_gradient():
    def loss(x):
        rlaxlib.check_trajectory(x, GOOD["discount_t"])
        return jnp.sum(x)

    error, gradient = jax.jit(checkify.checkify(jax.grad(loss)))(GOOD["r_t"])
    assert error.get() is None
    np.testing.assert_array_equal(gradient, 1.0)


# --- Invalid arguments. ---


@pytest.mark.parametrize(
    ("call", "message"),
    [
        *(
            (
                lambda function=function: function(
                    TARGETS, TARGETS, sample_mask=np.ones(2, bool)
                ),
                r"`sample_mask` has shape \(2,\), must be \(4,\) to match",
            )
            for function in OF_VALUES
        ),
        (
            lambda: rlaxlib.approximate_kl(jnp.ones(2), "k4"),
            r"^approximate_kl: `kind` is 'k4', must be \"k1\", \"k2\" or \"k3\"",
        ),
        (
            lambda: rlaxlib.clip_fraction(jnp.ones(2), adv_t=jnp.ones((2, 2))),
            r"`adv_t` has shape \(2, 2\), must be \(2,\)",
        ),
        (
            lambda: rlaxlib.dormant_fraction(
                jnp.ones((2, 3)), sample_mask=jnp.ones(3, bool)
            ),
            r"`sample_mask` has shape \(3,\), must be \(2,\)",
        ),
        (
            lambda: rlaxlib.effective_rank(jnp.ones(3)),
            r"`features` has shape \(3,\), must be \[B, D\]",
        ),
    ],
)
def test_error_names_the_argument_and_what_it_must_be(call, message):
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        call()
