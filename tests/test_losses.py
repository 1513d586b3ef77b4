"""Test the losses: edge cases, extreme values and invalid arguments."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib

inf = np.inf


def derivatives(loss, *arguments):
    """Differentiate by the first argument, elementwise."""
    return jax.jit(jax.vmap(jax.grad(loss)))(*map(np.float32, arguments))


# --- Losses. ---


def test_huber_has_the_gradient_of_the_clipped_squared_error():
    x = np.linspace(-3.0, 3.0, 25)
    clipped = derivatives(lambda x: rlaxlib.l2_loss(rlaxlib.clip_gradient(x, -1, 1)), x)
    np.testing.assert_array_equal(derivatives(rlaxlib.huber_loss, x), clipped)


def test_huber_has_the_gradient_of_a_square_within_a_large_delta():
    gradient = jax.grad(lambda x: rlaxlib.huber_loss(x, 1e8))
    for x in np.float32([1e-3, -0.1, 1.0]):
        assert gradient(x) == x


def test_huber_is_quadratic_at_the_edge():
    x = [0.0, 1.0, -1.0, 1e15, -1e15]
    np.testing.assert_array_equal(derivatives(rlaxlib.huber_loss, x), [0, 1, -1, 1, -1])
    curvature = derivatives(jax.grad(rlaxlib.huber_loss), x)
    np.testing.assert_array_equal(curvature, [1, 1, 1, 0, 0])


def test_huber_gradient_by_delta_is_the_excess_over_delta():
    x, gradient = np.float32([0.5, -2, 3, -7]), jax.grad(rlaxlib.huber_loss, argnums=1)
    by_delta = jax.jit(jax.vmap(gradient, (0, None)))(x, 2.0)
    np.testing.assert_array_equal(by_delta, [0.0, 0.0, 1.0, 5.0])


log_loss, likelihood = (
    jax.jit(jax.value_and_grad(function, (0, 1)))
    for function in (rlaxlib.log_loss, rlaxlib.likelihood)
)


@pytest.mark.parametrize(
    ("p", "t", "value", "derivative"),
    [
        (0.0, 0.0, 0.0, 1.0),
        (1.0, 1.0, 0.0, -1.0),
        (0.0, 1.0, inf, -inf),
        (1.0, 0.0, inf, inf),
        (0.0, 0.5, inf, -inf),
        (1.0, 0.5, inf, inf),
    ],
)
def test_log_loss_of_certain_predictions(p, t, value, derivative):
    found, (by_p, by_t) = log_loss(p, t)
    assert found == value
    assert by_p == derivative
    assert not np.isnan(by_t)


def test_log_loss_of_a_small_probability_does_not_round_to_zero():
    np.testing.assert_allclose(log_loss(1e-9, 0.0)[0], 1e-9, 1e-5)
    assert not np.signbit(log_loss(1.0, 1.0)[0])


def test_log_loss_of_the_smallest_float16_probability():
    value, (derivative, _) = log_loss(np.float16(6e-8), np.float16(1))
    assert value == np.float16(16.64)
    assert derivative == -inf  # -1 / p overflows.


@pytest.mark.parametrize(
    ("p", "t", "value", "derivative"),
    [(0.0, 0.0, 1, -1), (1.0, 1.0, 1, 1), (0.0, 1.0, 0, 1), (1.0, 0.0, 0, -1)],
)
def test_likelihood_of_certain_predictions(p, t, value, derivative):
    found, (by_p, by_t) = likelihood(p, t)
    assert found == value
    assert by_p == derivative
    assert np.isfinite(by_t)


@pytest.mark.parametrize("certain", [0.0, 1.0])
def test_likelihood_of_a_certain_prediction_has_no_gradient_by_the_target(certain):
    gradient = jax.grad(rlaxlib.likelihood, argnums=1)
    assert gradient(jnp.float32(certain), jnp.float32(certain)) == 0


def test_log_loss_is_the_negative_log_of_the_likelihood():
    rng = np.random.default_rng(0)
    p, t = np.float32(rng.uniform(size=(2, 100)))
    both = jax.jit(lambda *x: (rlaxlib.log_loss(*x), rlaxlib.likelihood(*x)))
    losses, likelihoods = both(p, t)
    close(losses, -np.log(likelihoods))


@pytest.mark.parametrize("tau", [0.1, 0.5, 0.9])
def test_minimiser_of_the_expectile_loss_is_the_expectile(tau):
    targets = np.float32(np.random.default_rng(0).normal(size=50))

    def total(prediction):
        return jnp.sum(rlaxlib.expectile_loss(jnp.full(50, prediction), targets, tau))

    predictions = np.linspace(-2, 2, 4001, dtype=np.float32)
    best = predictions[np.argmin(jax.jit(jax.vmap(total))(predictions))]
    above = np.sum(np.maximum(targets - best, 0))
    below = np.sum(np.maximum(best - targets, 0))
    np.testing.assert_allclose(tau * above, (1 - tau) * below, rtol=0.02)


def test_expectile_loss_gradient_by_expectile_is_the_signed_square():
    predictions, targets = np.float32([0, 3, 1]), np.float32([2, 2, 1])
    by_tau = jax.jit(jax.jacrev(rlaxlib.expectile_loss, argnums=2))
    for tau in (0.0, 0.3, 1.0):
        found = by_tau(predictions, targets, tau)
        np.testing.assert_array_equal(found, [4.0, -1.0, 0.0])


# --- Clipped and scaled gradients. ---


def test_clip_gradient_takes_pytrees_and_keywords_and_keeps_values():
    tree = {"a": jnp.array([1.0, -1.0]), "b": (jnp.bfloat16(3.0),)}
    clip = functools.partial(rlaxlib.clip_gradient, gradient_min=-1.0, gradient_max=0.5)
    jax.tree.map(np.testing.assert_array_equal, clip(tree), tree)

    def loss(tree):
        tree = clip(tree)
        return 2 * jnp.sum(tree["a"] ** 2) + tree["b"][0].astype(jnp.float32)

    gradient = jax.jit(jax.grad(loss))(tree)
    np.testing.assert_array_equal(gradient["a"], [0.5, -1.0])
    assert gradient["b"][0] == 0.5
    assert gradient["b"][0].dtype == jnp.bfloat16


def test_clip_gradient_takes_traced_bounds():
    def loss(x, bound):
        return 5 * rlaxlib.clip_gradient(x, -bound, bound) ** 2

    found = jax.jit(jax.vmap(jax.grad(loss), (None, 0)))(3.0, jnp.array([1.0, 2.0]))
    np.testing.assert_array_equal(found, [1.0, 2.0])
    assert jax.jit(jax.grad(loss, argnums=1))(3.0, 1.0) == 0


def test_clip_gradient_takes_a_bound_for_each_element():
    def loss(x, low, high):
        return jnp.sum(5 * rlaxlib.clip_gradient(x, low, high) ** 2)

    x, bounds = np.float32([2, -2, 2]), np.float32([1, 3, inf])
    gradient = jax.jit(jax.grad(loss))
    found = gradient(x, -bounds, bounds)
    np.testing.assert_array_equal(found, [1.0, -3.0, 20.0])
    np.testing.assert_array_equal(gradient(x, -bounds, 2.0), [2.0, -3.0, 2.0])
    with pytest.raises(
        rlaxlib.ArgumentError,
        match=r"`gradient_max` is float32\[2\], must be float\[\] or \[\.\.\.\]",
    ):
        loss(x, -bounds, bounds[:2])


def test_clip_gradient_has_second_derivatives_but_no_forward_mode():
    def loss(x):
        return 5 * rlaxlib.clip_gradient(x, -1.0, 1.0) ** 2

    for derivative in (jax.grad(jax.grad(loss)), jax.hessian(loss)):
        found = jax.jit(jax.vmap(derivative))(np.float32([0.01, 3]))
        np.testing.assert_array_equal(found, [10.0, 0.0])
    with pytest.raises(TypeError, match="forward"):
        jax.jvp(loss, (3.0,), (1.0,))


def test_clip_gradient_keeps_a_gradient_of_zero():
    zero = jax.grad(lambda x: 0 * rlaxlib.clip_gradient(x, -1.0, 1.0))
    assert jax.jit(zero)(2.0) == 0


# --- Invalid arguments. ---


@pytest.mark.parametrize(
    "loss", [rlaxlib.l2_loss, rlaxlib.likelihood, rlaxlib.log_loss]
)
def test_predictions_and_targets_do_not_broadcast(loss):
    message = r"`targets` is float32\[3, 1\], must be float\[\.\.\.\]"
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        loss(np.float32([1, 1, 1]), np.float32([[1], [1], [1]]))
    with pytest.raises(rlaxlib.ArgumentError, match=r"`targets` is 1\.0, must be"):
        loss(np.float32([1, 1, 1]), 1.0)
