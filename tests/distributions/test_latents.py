"""Test discrete latent variables: what is mixed in, and which way gradients go."""

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
    """Return the gradient of a balanced divergence by posterior and prior."""
    return jax.grad(
        lambda q, p: rlaxlib.balanced_kl(q, p, **settings)[0], argnums=(0, 1)
    )


# --- What the functions compute. ---


def test_a_class_that_the_logits_rule_out_gets_its_share():
    logits = jnp.array([0.0, -inf, -1e4, 0.0])
    mixed, pulled = jax.vjp(lambda x: rlaxlib.unimix_logits(x, 0.01), logits)
    close(jnp.exp(mixed), [0.4975, 0.0025, 0.0025, 0.4975])
    by_logits = pulled(jnp.array([1.0, 2.0, 3.0, 4.0]))[0]
    share = 0.495 * 0.5 / 0.4975
    close(by_logits, [-3 * share, 0.0, 0.0, 3 * share])


@pytest.mark.parametrize("mix", [0.0, 1e-30, 1e-3, 1.0])
@pytest.mark.parametrize("gap", [0.0, 30.0, 200.0, 1e6])
def test_however_small_a_part_is_its_logarithm_is_right(mix, gap):
    log_p = -gap - np.log1p(np.exp(-gap))
    with np.errstate(divide="ignore"):
        expected = np.logaddexp(np.log1p(-mix) + log_p, np.log(mix / 2))
    logits = jnp.array([0.0, -gap])
    found, by_logits = jax.value_and_grad(lambda x: rlaxlib.unimix_logits(x, mix)[1])(
        logits
    )
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert jnp.all(jnp.isfinite(by_logits))


def test_the_slope_by_the_share_is_right_at_both_ends():
    logits = jnp.log(jnp.array([0.75, 0.25]))
    slopes = jax.jacobian(rlaxlib.unimix_logits, argnums=1)
    close(slopes(logits, 0.0), [-0.25 / 0.75, 0.25 / 0.25])
    close(slopes(logits, 1.0), [-0.5, 0.5])


def test_a_draw_is_one_hot_to_the_last_digit_and_as_likely_as_it_should_be():
    # Compiled, what is added and taken away might cancel.
    logits = jnp.asarray(RNG.normal(size=(500, 4)), jnp.float32)
    drawn = rlaxlib.straight_through_sample(jax.random.key(0), logits)
    assert set(np.unique(drawn)) == {0.0, 1.0}
    np.testing.assert_array_equal(jnp.sum(drawn, axis=-1), 1.0)
    same = jnp.broadcast_to(logits[0], (2000, 4))
    drawn = rlaxlib.straight_through_sample(jax.random.key(1), same)
    likely = jax.nn.softmax(logits[0])
    np.testing.assert_allclose(jnp.mean(drawn, axis=0), likely, atol=0.05)


def test_a_draw_has_the_gradient_of_the_probabilities():
    def drawn(logits):
        return rlaxlib.straight_through_sample(jax.random.key(0), logits)

    expected = jax.jacobian(jax.nn.softmax)(POSTERIOR)
    for mode in jax.jacrev, jax.jacfwd:
        close(mode(drawn)(POSTERIOR), expected)


def test_free_nats_are_free_of_the_sum_and_not_of_each_variable():
    each = rlaxlib.categorical_kl_divergence(POSTERIOR, PRIOR)
    total = float(jnp.sum(each))
    enough = (float(jnp.max(each)) + total) / 2  # More than any variable has.
    loss, outputs = rlaxlib.balanced_kl(POSTERIOR, PRIOR, enough)
    close(loss, 1.1 * total)
    close(outputs.kl, total)
    assert all(
        jnp.any(each != 0) for each in by_both(free_nats=enough)(POSTERIOR, PRIOR)
    )


def test_below_the_free_nats_there_is_no_gradient_and_the_divergence_is_told():
    loss, outputs = rlaxlib.balanced_kl(POSTERIOR, PRIOR, 100.0, 0.5, 0.25)
    assert loss == 75
    assert outputs.dynamics_loss == outputs.representation_loss == 100
    assert outputs.kl < 100
    for each in by_both(free_nats=100.0)(POSTERIOR, PRIOR):
        np.testing.assert_array_equal(each, 0.0)


def test_each_term_teaches_one_distribution():
    by_posterior, by_prior = by_both(free_nats=0.0, representation_weight=0.0)(
        POSTERIOR, PRIOR
    )
    np.testing.assert_array_equal(by_posterior, 0.0)
    close(by_prior, jax.nn.softmax(PRIOR) - jax.nn.softmax(POSTERIOR))
    by_posterior, by_prior = by_both(dynamics_weight=0.0)(POSTERIOR, PRIOR)
    np.testing.assert_array_equal(by_prior, 0.0)
    assert jnp.any(by_posterior != 0)


def test_a_divergence_that_is_told_has_no_gradient():
    gradient = jax.grad(lambda q, p: rlaxlib.balanced_kl(q, p)[1].kl, argnums=(0, 1))
    for each in gradient(POSTERIOR, PRIOR):
        np.testing.assert_array_equal(each, 0.0)


def test_equal_distributions_have_no_loss_and_no_gradient_without_free_nats():
    loss, _ = rlaxlib.balanced_kl(PRIOR, PRIOR, free_nats=0.0)
    assert loss == 0
    for each in by_both(free_nats=0.0)(PRIOR, PRIOR):
        np.testing.assert_allclose(each, 0.0, atol=1e-7)


# --- How the functions relate. ---


def test_without_a_share_the_logits_are_those_of_the_softmax_and_with_all_uniform():
    close(rlaxlib.unimix_logits(PRIOR, 0.0), jax.nn.log_softmax(PRIOR))
    close(rlaxlib.unimix_logits(PRIOR, 1.0), jnp.full((3, 4), -jnp.log(4)))


def test_logits_that_are_mixed_are_normalised():
    mixed = rlaxlib.unimix_logits(PRIOR, mask=MASK)
    close(mixed, jnp.log(rlaxlib.softmax().probs(mixed)))
    one = rlaxlib.unimix_logits(PRIOR[:, jnp.array([0, 2, 3])])
    close(mixed[:, jnp.array([0, 2, 3])], one)
    np.testing.assert_array_equal(mixed[:, 1], -inf)


def test_a_draw_is_that_of_the_softmax_with_the_same_key():
    key = jax.random.key(3)
    for mask in (None, MASK):
        drawn = rlaxlib.straight_through_sample(key, POSTERIOR, mask=mask)
        same = rlaxlib.softmax().sample(key, POSTERIOR, mask=mask)
        np.testing.assert_array_equal(jnp.argmax(drawn, axis=-1), same)


@pytest.mark.parametrize("alpha", [0.8, 0.5])
def test_weights_that_add_up_to_one_balance_one_divergence(alpha):
    weights = {"dynamics_weight": alpha, "representation_weight": 1 - alpha}

    def divergence(q, p):
        return jnp.sum(rlaxlib.categorical_kl_divergence(q, p))

    loss, _ = rlaxlib.balanced_kl(POSTERIOR, PRIOR, 0.0, **weights)
    close(loss, divergence(POSTERIOR, PRIOR))
    found = by_both(free_nats=0.0, **weights)(POSTERIOR, PRIOR)
    plain = jax.grad(divergence, argnums=(0, 1))(POSTERIOR, PRIOR)
    close(found[0], (1 - alpha) * plain[0])
    close(found[1], alpha * plain[1])


def test_a_share_of_the_uniform_keeps_a_divergence_finite():
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


# --- How the functions behave where nothing is possible. ---


def test_where_nothing_is_possible_nothing_is_drawn_and_nothing_learned():
    nothing = jnp.zeros(4, bool)
    logits = PRIOR.at[0, 0].set(jnp.nan)
    np.testing.assert_array_equal(rlaxlib.unimix_logits(logits, mask=nothing), -inf)
    draw = lambda x: rlaxlib.straight_through_sample(  # noqa: E731
        jax.random.key(0), x, mask=nothing
    )
    np.testing.assert_array_equal(draw(logits), 0.0)
    np.testing.assert_array_equal(jax.jacobian(draw)(logits), 0.0)
    loss, _ = rlaxlib.balanced_kl(logits, PRIOR, 0.0, mask=nothing)
    assert loss == 0


def test_logits_that_rule_everything_out_are_mixed_to_the_uniform_distribution():
    logits = jnp.full(4, -inf)
    close(rlaxlib.unimix_logits(logits), jnp.full(4, -jnp.log(4)))
    by_logits = jax.jacobian(rlaxlib.unimix_logits)(logits)
    np.testing.assert_array_equal(by_logits, 0.0)
    np.testing.assert_array_equal(rlaxlib.unimix_logits(logits, 0.0), -inf)


# --- What the functions refuse. ---


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: rlaxlib.unimix_logits(PRIOR, 1.5),
            r"^unimix_logits: `mix` must lie in \[0, 1\], but is 1.5",
        ),
        (
            lambda: rlaxlib.unimix_logits(PRIOR, mask=MASK[:3]),
            r"^unimix_logits: `mask` is bool\[3\], .*A = 4",
        ),
        (
            lambda: rlaxlib.balanced_kl(POSTERIOR, PRIOR, -1.0),
            r"^balanced_kl: `free_nats` must lie in \[0, inf\), but is -1.0",
        ),
        (
            lambda: rlaxlib.balanced_kl(POSTERIOR[0], PRIOR[0]),
            r"^balanced_kl: `posterior_logits` is float32\[4\], .*\[G, A\]",
        ),
    ],
)
def test_says_what_is_wrong(call, message):
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        call()
