"""Test discrete latent variables: unimix, straight-through and KL balancing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib

RNG = np.random.default_rng(0)
POSTERIOR = jnp.asarray(2 * RNG.normal(size=(3, 4)), jnp.float32)
PRIOR = jnp.asarray(RNG.normal(size=(3, 4)), jnp.float32)
MASK = jnp.array([True, False, True, True])
inf = jnp.inf


def by_both(**settings):
    """Return the gradient of the balanced KL by posterior and prior."""
    return jax.grad(
        lambda q, p: rlaxlib.balanced_kl(q, p, **settings)[0], argnums=(0, 1)
    )


# --- Values and gradients. ---


def test_unimix_gives_mass_to_classes_of_probability_zero():
    logits = jnp.array([0.0, -inf, -1e4, 0.0])
    mixed, pulled = jax.vjp(lambda x: rlaxlib.unimix_logits(x, 0.01), logits)
    close(jnp.exp(mixed), [0.4975, 0.0025, 0.0025, 0.4975])
    by_logits = pulled(jnp.array([1.0, 2.0, 3.0, 4.0]))[0]
    share = 0.495 * 0.5 / 0.4975
    close(by_logits, [-3 * share, 0.0, 0.0, 3 * share])


def test_unimix_is_accurate_for_small_probabilities_and_small_mixes():
    mix, gap = np.meshgrid([0.0, 1e-30, 1e-3, 1.0], [0.0, 30.0, 200.0, 1e6])
    mix, gap = mix.ravel(), gap.ravel()
    log_p = -gap - np.log1p(np.exp(-gap))
    with np.errstate(divide="ignore"):
        expected = np.logaddexp(np.log1p(-mix) + log_p, np.log(mix / 2))
    unimix = jax.value_and_grad(lambda x, mix: rlaxlib.unimix_logits(x, mix)[1])
    logits = jnp.float32(np.stack([0 * gap, -gap], axis=-1))
    found, by_logits = jax.vmap(unimix)(logits, jnp.float32(mix))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    by_logit = (1 - mix) * np.exp(log_p - expected) / (1 + np.exp(-gap))
    close(by_logits, by_logit[:, None] * [-1, 1], atol=1e-12)


def test_gradient_by_the_mix_is_right_at_zero_and_one():
    logits = jnp.log(jnp.array([0.75, 0.25]))
    by_mix = jax.jacobian(rlaxlib.unimix_logits, argnums=1)
    close(by_mix(logits, 0.0), [-0.25 / 0.75, 0.25 / 0.25])
    close(by_mix(logits, 1.0), [-0.5, 0.5])


def test_straight_through_samples_are_exactly_one_hot_and_follow_the_softmax():
    # Not compiled: XLA might cancel the terms that carry the gradient.
    logits = jnp.asarray(RNG.normal(size=(500, 4)), jnp.float32)
    samples = rlaxlib.straight_through_sample(jax.random.key(0), logits)
    assert set(np.unique(samples)) == {0.0, 1.0}
    np.testing.assert_array_equal(jnp.sum(samples, axis=-1), 1.0)
    same = jnp.broadcast_to(logits[0], (2000, 4))
    samples = rlaxlib.straight_through_sample(jax.random.key(1), same)
    probs = jax.nn.softmax(logits[0])
    np.testing.assert_allclose(jnp.mean(samples, axis=0), probs, atol=0.05)


def test_straight_through_samples_have_the_gradient_of_the_probabilities():
    def sample(logits):
        return rlaxlib.straight_through_sample(jax.random.key(0), logits)

    expected = jax.jacobian(jax.nn.softmax)(POSTERIOR)
    for mode in jax.jacrev, jax.jacfwd:
        close(mode(sample)(POSTERIOR), expected)


def test_free_nats_bound_the_sum_over_variables():
    each = rlaxlib.categorical_kl_divergence(POSTERIOR, PRIOR)
    total = float(jnp.sum(each))
    enough = (float(jnp.max(each)) + total) / 2  # More than the KL of any variable.
    loss, outputs = rlaxlib.balanced_kl(POSTERIOR, PRIOR, enough)
    close(loss, 1.1 * total)
    close(outputs.kl, total)
    assert all(
        jnp.any(each != 0) for each in by_both(free_nats=enough)(POSTERIOR, PRIOR)
    )


def test_gradient_is_zero_below_the_free_nats():
    loss, outputs = rlaxlib.balanced_kl(POSTERIOR, PRIOR, 100.0, 0.5, 0.25)
    assert loss == 75
    assert outputs.dynamics_loss == outputs.representation_loss == 100
    assert outputs.kl < 100
    for each in by_both(free_nats=100.0)(POSTERIOR, PRIOR):
        np.testing.assert_array_equal(each, 0.0)


def test_each_term_trains_one_distribution():
    by_posterior, by_prior = by_both(free_nats=0.0, representation_weight=0.0)(
        POSTERIOR, PRIOR
    )
    np.testing.assert_array_equal(by_posterior, 0.0)
    close(by_prior, jax.nn.softmax(PRIOR) - jax.nn.softmax(POSTERIOR))
    by_posterior, by_prior = by_both(dynamics_weight=0.0)(POSTERIOR, PRIOR)
    np.testing.assert_array_equal(by_prior, 0.0)
    assert jnp.any(by_posterior != 0)


def test_reported_kl_has_no_gradient():
    gradient = jax.grad(lambda q, p: rlaxlib.balanced_kl(q, p)[1].kl, argnums=(0, 1))
    for each in gradient(POSTERIOR, PRIOR):
        np.testing.assert_array_equal(each, 0.0)


def test_equal_distributions_have_zero_loss_and_gradient_without_free_nats():
    loss, _ = rlaxlib.balanced_kl(PRIOR, PRIOR, free_nats=0.0)
    assert loss == 0
    for each in by_both(free_nats=0.0)(PRIOR, PRIOR):
        np.testing.assert_allclose(each, 0.0, atol=1e-7)


# --- Identities. ---


def test_unimix_is_the_log_softmax_at_zero_and_uniform_at_one():
    close(rlaxlib.unimix_logits(PRIOR, 0.0), jax.nn.log_softmax(PRIOR))
    close(rlaxlib.unimix_logits(PRIOR, 1.0), jnp.full((3, 4), -jnp.log(4)))


def test_unimix_is_normalised_over_possible_classes():
    mixed = rlaxlib.unimix_logits(PRIOR, action_mask=MASK)
    close(mixed, jnp.log(rlaxlib.softmax().probs(mixed)))
    one = rlaxlib.unimix_logits(PRIOR[:, jnp.array([0, 2, 3])])
    close(mixed[:, jnp.array([0, 2, 3])], one)
    np.testing.assert_array_equal(mixed[:, 1], -inf)


def test_straight_through_sample_is_that_of_the_softmax_with_the_same_key():
    key = jax.random.key(3)
    for mask in (None, MASK):
        z = rlaxlib.straight_through_sample(key, POSTERIOR, action_mask=mask)
        sample = rlaxlib.softmax().sample(key, POSTERIOR, action_mask=mask)
        np.testing.assert_array_equal(jnp.argmax(z, axis=-1), sample)


@pytest.mark.parametrize("alpha", [0.8, 0.5])
def test_weights_that_sum_to_one_give_the_value_of_the_kl(alpha):
    weights = {"dynamics_weight": alpha, "representation_weight": 1 - alpha}

    def divergence(q, p):
        return jnp.sum(rlaxlib.categorical_kl_divergence(q, p))

    loss, _ = rlaxlib.balanced_kl(POSTERIOR, PRIOR, 0.0, **weights)
    close(loss, divergence(POSTERIOR, PRIOR))
    found = by_both(free_nats=0.0, **weights)(POSTERIOR, PRIOR)
    plain = jax.grad(divergence, argnums=(0, 1))(POSTERIOR, PRIOR)
    close(found[0], (1 - alpha) * plain[0])
    close(found[1], alpha * plain[1])


def test_unimix_keeps_the_kl_finite():
    certain = jnp.where(jnp.eye(4, dtype=bool)[:3], 0.0, -inf)
    other = jnp.roll(certain, 1, axis=1)
    assert rlaxlib.balanced_kl(certain, other)[0] == inf
    mixed = lambda q, p: rlaxlib.balanced_kl(  # noqa: E731
        rlaxlib.unimix_logits(q), rlaxlib.unimix_logits(p)
    )[0]
    loss, by_prior = jax.value_and_grad(mixed, argnums=1)(certain, other)
    near, far = 0.9925, 0.0025
    close(loss, 1.1 * 3 * (near - far) * np.log(near / far))
    assert jnp.all(jnp.isfinite(by_prior))


# --- No possible class. ---


def test_results_and_gradients_if_no_class_is_possible():
    nothing = jnp.zeros(4, bool)
    logits = PRIOR.at[0, 0].set(jnp.nan)
    np.testing.assert_array_equal(
        rlaxlib.unimix_logits(logits, action_mask=nothing), -inf
    )
    sample = lambda x: rlaxlib.straight_through_sample(  # noqa: E731
        jax.random.key(0), x, action_mask=nothing
    )
    np.testing.assert_array_equal(sample(logits), 0.0)
    np.testing.assert_array_equal(jax.jacobian(sample)(logits), 0.0)
    loss, _ = rlaxlib.balanced_kl(logits, PRIOR, 0.0, action_mask=nothing)
    assert loss == 0


def test_unimix_of_logits_that_are_all_minus_infinity_is_uniform():
    logits = jnp.full(4, -inf)
    close(jax.nn.softmax(rlaxlib.unimix_logits(logits)), jnp.full(4, 0.25))
    by_logits = jax.jacobian(rlaxlib.unimix_logits)(logits)
    np.testing.assert_array_equal(by_logits, 0.0)
    np.testing.assert_array_equal(rlaxlib.unimix_logits(logits, 0.0), -inf)


# --- Errors. ---


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: rlaxlib.unimix_logits(PRIOR, 1.5),
            r"^unimix_logits: `mix` is 1.5, must be in \[0, 1\]",
        ),
        (
            lambda: rlaxlib.unimix_logits(PRIOR, action_mask=MASK[:3]),
            r"^unimix_logits: `action_mask` has shape \(3,\), must be \(4,\) or \(3",
        ),
        (
            lambda: rlaxlib.balanced_kl(POSTERIOR, PRIOR, -1.0),
            r"^balanced_kl: `free_nats` is -1.0, must be in \[0, inf\)",
        ),
        (
            lambda: rlaxlib.balanced_kl(POSTERIOR[0], PRIOR[0]),
            r"^balanced_kl: `posterior_logits` has shape \(4,\), must be \[G, A\]",
        ),
    ],
)
def test_rejects_bad_arguments_in_traced_programs_too(call, message):
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        jax.eval_shape(call)
