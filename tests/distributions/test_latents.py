"""Test discrete latent variables: unimix, straight-through and KL balancing."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close
from scipy.special import log_softmax, softmax

import rlaxlib

RNG = np.random.default_rng(0)
POSTERIOR = 2 * RNG.normal(size=(3, 4)).astype(np.float32)
PRIOR = RNG.normal(size=(3, 4)).astype(np.float32)
MASK = np.array([True, False, True, True])
inf = np.inf
unimix = jax.jit(rlaxlib.unimix_logits)


@jax.jit
@functools.partial(jax.value_and_grad, argnums=(0, 1), has_aux=True)
def categorical_kl(q, p):
    """Return the sum of the KL, with its gradients, and the KL of each variable."""
    kl = rlaxlib.categorical_kl_divergence(q, p)
    return jnp.sum(kl), kl


@jax.jit
def balanced(q, p, free_nats=1.0, dynamics_weight=1.0, representation_weight=0.1):
    """Return loss, outputs, and the gradient of the loss by posterior and prior."""

    def loss(q, p):
        weights = dynamics_weight, representation_weight
        return rlaxlib.balanced_kl(q, p, free_nats, *weights)

    gradient = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)
    (value, outputs), gradients = gradient(q, p)
    return value, outputs, gradients


# --- Values and gradients. ---


def test_unimix_gives_mass_to_classes_of_probability_zero():
    @jax.jit
    def evaluate(logits):
        mixed, pulled = jax.vjp(lambda x: rlaxlib.unimix_logits(x, 0.01), logits)
        return mixed, pulled(jnp.array([1.0, 2.0, 3.0, 4.0]))[0]

    mixed, by_logits = evaluate(np.array([0.0, -inf, -1e4, 0.0]))
    close(np.exp(mixed), [0.4975, 0.0025, 0.0025, 0.4975])
    share = 0.495 * 0.5 / 0.4975
    close(by_logits, [-3 * share, 0.0, 0.0, 3 * share])


def test_unimix_is_accurate_for_small_probabilities_and_small_mixes():
    mix, gap = np.meshgrid([1e-30, 1e-3, 1.0], [0.0, 30.0, 200.0, 1e6])
    mix, gap = mix.ravel(), gap.ravel()
    log_p = -gap - np.log1p(np.exp(-gap))
    with np.errstate(divide="ignore"):
        expected = np.logaddexp(np.log1p(-mix) + log_p, np.log(mix / 2))
    evaluate = jax.value_and_grad(lambda x, mix: rlaxlib.unimix_logits(x, mix)[1])
    logits = np.float32(np.stack([0 * gap, -gap], axis=-1))
    found, by_logits = jax.jit(jax.vmap(evaluate))(logits, np.float32(mix))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    by_logit = (1 - mix) * np.exp(log_p - expected) / (1 + np.exp(-gap))
    close(by_logits, by_logit[:, None] * [-1, 1], atol=1e-12)


def test_gradient_by_the_mix_is_right_at_zero_and_one():
    logits = np.log([0.75, 0.25])
    by_mix = jax.jit(jax.jacobian(rlaxlib.unimix_logits, argnums=1))
    close(by_mix(logits, 0.0), [-0.25 / 0.75, 0.25 / 0.25])
    close(by_mix(logits, 1.0), [-0.5, 0.5])


def test_straight_through_samples_are_exactly_one_hot_and_follow_the_softmax():
    # Not compiled: XLA might cancel the terms that carry the gradient.
    logits = RNG.normal(size=(2000, 4)).astype(np.float32)
    samples = rlaxlib.straight_through_sample(jax.random.key(0), logits)
    assert set(np.unique(samples)) == {0.0, 1.0}
    np.testing.assert_array_equal(np.sum(samples, axis=-1), 1.0)
    same = np.tile(logits[0], (2000, 1))
    samples = rlaxlib.straight_through_sample(jax.random.key(1), same)
    probs = softmax(logits[0])
    np.testing.assert_allclose(np.mean(samples, axis=0), probs, atol=0.05)


def test_straight_through_samples_have_the_gradient_of_the_probabilities():
    def sample(logits):
        return rlaxlib.straight_through_sample(jax.random.key(0), logits)

    @jax.jit
    def jacobians(logits):
        samples = [jax.jacrev(sample)(logits), jax.jacfwd(sample)(logits)]
        return samples, jax.jacobian(jax.nn.softmax)(logits)

    found, expected = jacobians(POSTERIOR)
    for each in found:
        close(each, expected)


def test_free_nats_bound_the_sum_over_variables():
    (total, each), _ = categorical_kl(POSTERIOR, PRIOR)
    # More than the KL of any variable.
    enough = (float(np.max(each)) + float(total)) / 2
    loss, outputs, gradients = balanced(POSTERIOR, PRIOR, enough)
    close(loss, 1.1 * float(total))
    close(outputs.kl, total)
    assert all(np.any(each) for each in gradients)


def test_gradient_is_zero_below_the_free_nats():
    loss, outputs, gradients = balanced(POSTERIOR, PRIOR, 100.0, 0.5, 0.25)
    assert loss == 75
    assert outputs.dynamics_loss == outputs.representation_loss == 100
    assert outputs.kl < 100
    for each in gradients:
        np.testing.assert_array_equal(each, 0.0)


def test_each_term_trains_one_distribution():
    *_, (by_posterior, by_prior) = balanced(POSTERIOR, PRIOR, 0.0, 1.0, 0.0)
    np.testing.assert_array_equal(by_posterior, 0.0)
    close(by_prior, softmax(PRIOR, axis=-1) - softmax(POSTERIOR, axis=-1))
    *_, (by_posterior, by_prior) = balanced(POSTERIOR, PRIOR, 1.0, 0.0, 0.1)
    np.testing.assert_array_equal(by_prior, 0.0)
    assert np.any(by_posterior)


def test_reported_kl_has_no_gradient():
    gradient = jax.grad(lambda q, p: rlaxlib.balanced_kl(q, p)[1].kl, argnums=(0, 1))
    for each in jax.jit(gradient)(POSTERIOR, PRIOR):
        np.testing.assert_array_equal(each, 0.0)


def test_equal_distributions_have_zero_loss_and_gradient_without_free_nats():
    loss, _, gradients = balanced(PRIOR, PRIOR, 0.0)
    assert loss == 0
    for each in gradients:
        np.testing.assert_allclose(each, 0.0, atol=1e-7)


# --- Identities. ---


def test_unimix_is_the_log_softmax_at_zero_and_uniform_at_one():
    close(unimix(PRIOR, 0.0), log_softmax(PRIOR, axis=-1))
    close(unimix(PRIOR, 1.0), np.full((3, 4), -np.log(4)))


def test_unimix_is_normalised_over_possible_classes():
    mixed = np.asarray(unimix(PRIOR, 0.01, action_mask=MASK))
    close(np.sum(np.exp(mixed), axis=-1), np.ones(3))
    close(mixed[:, MASK], unimix(PRIOR[:, MASK], 0.01))
    np.testing.assert_array_equal(mixed[:, 1], -inf)


def test_straight_through_sample_is_that_of_the_softmax_with_the_same_key():
    @jax.jit
    def both(key, mask=None):
        z = rlaxlib.straight_through_sample(key, POSTERIOR, action_mask=mask)
        return z, rlaxlib.softmax().sample(key, POSTERIOR, action_mask=mask)

    for mask in (None, MASK):
        z, sample = both(jax.random.key(3), mask)
        np.testing.assert_array_equal(np.argmax(z, axis=-1), sample)


@pytest.mark.parametrize("alpha", [0.8, 0.5])
def test_weights_that_sum_to_one_give_the_value_of_the_kl(alpha):
    loss, _, found = balanced(POSTERIOR, PRIOR, 0.0, alpha, 1 - alpha)
    (total, _), plain = categorical_kl(POSTERIOR, PRIOR)
    close(loss, total)
    close(found[0], (1 - alpha) * np.asarray(plain[0]))
    close(found[1], alpha * np.asarray(plain[1]))


def test_unimix_keeps_the_kl_finite():
    certain = np.where(np.eye(4, dtype=bool)[:3], np.float32(0), np.float32(-inf))
    other = np.roll(certain, 1, axis=1)
    assert balanced(certain, other)[0] > 1e15
    assert balanced(certain, other, 1.0, 0.0, 0.0)[0] == 0

    def mixed(q, p):
        q, p = rlaxlib.unimix_logits(q), rlaxlib.unimix_logits(p)
        return rlaxlib.balanced_kl(q, p)[0]

    loss, by_prior = jax.jit(jax.value_and_grad(mixed, argnums=1))(certain, other)
    near, far = 0.9925, 0.0025
    close(loss, 1.1 * 3 * (near - far) * np.log(near / far))
    assert np.all(np.isfinite(by_prior))


# --- No possible class. ---


def test_results_and_gradients_if_no_class_is_possible():
    nothing, logits = np.zeros(4, bool), PRIOR.copy()
    logits[0, 0] = np.nan

    @jax.jit
    def evaluate(logits):
        def sample(logits):
            key = jax.random.key(0)
            return rlaxlib.straight_through_sample(key, logits, action_mask=nothing)

        loss, _ = rlaxlib.balanced_kl(logits, PRIOR, 0.0, action_mask=nothing)
        mixed = rlaxlib.unimix_logits(logits, action_mask=nothing)
        return mixed, sample(logits), jax.jacobian(sample)(logits), loss

    mixed, *others = evaluate(logits)
    np.testing.assert_array_equal(mixed, -inf)
    for each in others:
        np.testing.assert_array_equal(each, 0.0)


def test_unimix_of_logits_that_are_all_minus_infinity_is_uniform():
    logits = np.full(4, -inf)
    close(softmax(unimix(logits)), np.full(4, 0.25))
    by_logits = jax.jit(jax.jacobian(rlaxlib.unimix_logits))(logits)
    np.testing.assert_array_equal(by_logits, 0.0)
    np.testing.assert_array_equal(unimix(logits, 0.0), -inf)
