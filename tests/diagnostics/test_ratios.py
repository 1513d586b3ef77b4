"""Test what ratios of policies tell: estimates, extremes, and what is clipped."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib

KINDS = ["k1", "k2", "k3"]
LOGITS, OTHER = jnp.array([0.5, -1.0, 0.2]), jnp.array([0.1, 0.4, -0.3])


def expected_kl(pi_logits, mu_logits, kind):
    """Weigh the estimate from each action by how likely the acting policy takes it."""
    log_pi, log_mu = jax.nn.log_softmax(pi_logits), jax.nn.log_softmax(mu_logits)
    estimates = jax.vmap(lambda x: rlaxlib.approximate_kl(x, kind))(log_pi - log_mu)
    return jnp.sum(jnp.exp(log_mu) * estimates)


def exact_kl(pi_logits, mu_logits):
    return rlaxlib.categorical_kl_divergence(mu_logits, pi_logits)


# --- What the functions compute. ---


@pytest.mark.parametrize("kind", ["k1", "k3"])
def test_estimates_of_a_divergence_are_right_in_expectation(kind):
    close(expected_kl(LOGITS, OTHER, kind), exact_kl(LOGITS, OTHER))


@pytest.mark.parametrize("kind", ["k1", "k3"])
def test_their_gradients_are_right_in_expectation_as_well(kind):
    found = jax.grad(expected_kl)(LOGITS, OTHER, kind)
    close(found, jax.grad(exact_kl)(LOGITS, OTHER))


@pytest.mark.parametrize("kind", ["k2", "k3"])
def test_estimates_that_are_squares_agree_where_policies_are_close(kind):
    near = LOGITS + 0.001 * OTHER
    exact = exact_kl(near, LOGITS)
    assert exact > 1e-8
    close(expected_kl(near, LOGITS, kind), exact, rtol=0.01, atol=0)


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_small_divergence_keeps_its_digits(sign):
    log_ratio = sign * 1e-5
    estimate = rlaxlib.approximate_kl(jnp.array([log_ratio]))
    np.testing.assert_allclose(estimate, log_ratio**2 / 2, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_an_action_that_has_become_impossible_is_infinitely_far(kind):
    log_ratios = jnp.array([0.1, -jnp.inf])
    result, gradient = jax.value_and_grad(rlaxlib.approximate_kl)(log_ratios, kind)
    assert result == jnp.inf
    assert not np.any(np.isnan(gradient))


def test_ratios_at_the_bounds_are_not_clipped():
    log_ratios = jnp.log1p(jnp.array([-0.5, 0.25]))
    assert rlaxlib.clip_fraction(log_ratios, 0.5, 0.25) == 0
    assert rlaxlib.clip_fraction(log_ratios, 0.49, 0.25) == 0.5
    assert rlaxlib.clip_fraction(log_ratios, 0.5, 0.24) == 0.5


def test_a_ratio_that_no_float_holds_is_clipped_and_a_bound_of_one_is_none():
    log_ratios = jnp.array([1000.0, -1000.0])
    assert rlaxlib.clip_fraction(log_ratios) == 1
    assert rlaxlib.clip_fraction(log_ratios, 1.0) == 0.5


def test_what_is_clipped_is_what_has_no_gradient():
    rng = np.random.default_rng(0)
    log_ratios = jnp.asarray(rng.normal(size=200), jnp.float32)
    adv_t = jnp.asarray(rng.normal(size=200), jnp.float32)

    def loss(x):
        return rlaxlib.clipped_surrogate_pg_loss(jnp.exp(x), adv_t, 0.2)

    still = jnp.mean(jax.grad(loss)(log_ratios) == 0)
    close(rlaxlib.clip_fraction(log_ratios, adv_t=adv_t), still)
    assert 0 < still < rlaxlib.clip_fraction(log_ratios)


@pytest.mark.parametrize("shift", [-1e4, 0.0, 1e4])
def test_samples_of_equal_weight_count_in_full_and_one_that_outweighs_all_as_one(shift):
    size = rlaxlib.effective_sample_size
    close(size(jnp.full(5, shift)), 5.0)
    close(size(jnp.array([0.0, 200.0, 0.0]) + shift), 1.0)
    close(size(jnp.array([shift, shift, -jnp.inf])), 2.0)


def test_where_no_sample_has_a_weight_none_counts():
    log_weights = jnp.full(3, -jnp.inf)
    size, gradient = jax.value_and_grad(rlaxlib.effective_sample_size)(log_weights)
    assert size == 0
    assert not np.any(np.isnan(gradient))


def test_the_divergence_of_importance_weights_is_their_variance():
    log_pi, log_mu = jax.nn.log_softmax(LOGITS), jax.nn.log_softmax(OTHER)
    ratios = jnp.exp(log_pi - log_mu)
    exact = jnp.sum(jnp.exp(log_mu) * ratios**2) - 1
    each = jax.vmap(rlaxlib.importance_statistics)((log_pi - log_mu)[:, None])
    close(jnp.sum(jnp.exp(log_mu) * each.chi_squared), exact)
    close(jnp.sum(jnp.exp(log_mu) * each.mean_ratio), 1.0)
    close(jnp.sum(jnp.exp(log_mu) * each.kl), exact_kl(LOGITS, OTHER))


def test_equal_policies_differ_in_nothing():
    statistics = rlaxlib.importance_statistics(jnp.zeros(4))
    np.testing.assert_array_equal(statistics, [1, 0, 0, 0, 0, 0, 0, 4, 1])


def test_ratios_that_no_float_holds_leave_the_other_statistics_finite():
    statistics = rlaxlib.importance_statistics(jnp.array([0.0, 200.0, 0.0, 0.0]))
    assert statistics.mean_ratio == jnp.inf
    assert statistics.max_log_ratio == 200
    close(statistics.mean_log_ratio, 50.0)
    close(statistics.effective_fraction, 0.25)


def test_an_impossible_action_is_told_as_such():
    statistics = rlaxlib.importance_statistics(jnp.array([-jnp.inf, 0.0]))
    assert statistics.min_log_ratio == -jnp.inf
    assert statistics.max_log_ratio == 0
    assert statistics.kl == jnp.inf
    close(statistics.mean_ratio, 0.5)
    close(statistics.effective_sample_size, 1.0)


@pytest.mark.parametrize(
    "function",
    [
        *(functools.partial(rlaxlib.approximate_kl, kind=kind) for kind in KINDS),
        rlaxlib.clip_fraction,
        rlaxlib.effective_sample_size,
        rlaxlib.importance_statistics,
    ],
)
def test_what_is_masked_is_as_if_it_were_not_there(function):
    log_ratios = jnp.array([0.5, jnp.nan, -1.0, jnp.inf])
    mask = jnp.array([True, False, True, False])

    def total(x):
        return sum(jax.tree.leaves(function(x, mask=mask)))

    jax.tree.map(close, function(log_ratios, mask=mask), function(log_ratios[mask]))
    gradient = jax.grad(total)(log_ratios)
    assert np.all(np.isfinite(gradient))
    np.testing.assert_array_equal(gradient[~mask], 0.0)
    nothing = function(log_ratios, mask=jnp.zeros_like(mask))
    np.testing.assert_array_equal(jax.tree.leaves(nothing), 0.0)


@pytest.mark.parametrize(
    "function",
    [
        *(functools.partial(rlaxlib.approximate_kl, kind=kind) for kind in KINDS),
        rlaxlib.clip_fraction,
        rlaxlib.effective_sample_size,
        lambda x: rlaxlib.importance_statistics(x).mean_ratio,
    ],
)
def test_what_is_no_number_is_told(function):
    assert jnp.isnan(jax.jit(function)(jnp.array([0.1, jnp.nan, 9.0])))


# --- How the functions behave under JAX. ---


@pytest.mark.parametrize(
    "function",
    [
        rlaxlib.approximate_kl,
        rlaxlib.clip_fraction,
        rlaxlib.effective_sample_size,
        rlaxlib.importance_statistics,
    ],
)
def test_devices_with_unequal_shares_give_what_one_gives(function):
    log_ratios = jnp.array([[0.5, 0.1], [3.0, -2.0]])
    mask = jnp.array([[True, True], [False, True]])
    function = functools.partial(function)
    whole = function(log_ratios.ravel(), mask=mask.ravel())
    parts = jax.vmap(
        lambda x, mask: function(x, mask=mask, axis_name="i"), axis_name="i"
    )(log_ratios, mask)
    jax.tree.map(lambda part, one: close(part, jnp.full(2, one)), parts, whole)


def test_statistics_have_no_gradient():
    def total(x):
        return sum(rlaxlib.importance_statistics(x))

    np.testing.assert_array_equal(jax.grad(total)(jnp.array([0.5, -0.5])), 0.0)


# --- What the functions refuse. ---


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: rlaxlib.approximate_kl(jnp.ones(2), "k4"),
            r'^approximate_kl: `kind` must be "k1", "k2" or "k3", not \'k4\'',
        ),
        (
            lambda: rlaxlib.clip_fraction(jnp.ones(2), -0.1),
            r"^clip_fraction: `epsilon` must lie in \[0, 1\]",
        ),
        (
            lambda: rlaxlib.clip_fraction(jnp.ones(2), 0.1, -0.1),
            r"`epsilon_high` must lie in \[0, inf\)",
        ),
        (
            lambda: rlaxlib.clip_fraction(jnp.ones(2), adv_t=jnp.ones((2, 2))),
            r"`adv_t` is float32\[2, 2\]",
        ),
    ],
)
def test_says_what_is_wrong(call, message):
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        call()
