"""Test the loss of self-prediction: scale, bounds and vectors of zero."""

import jax
import jax.numpy as jnp
import numpy as np
from experience import close

import rlaxlib

RANDOM = np.random.default_rng(0)
X, Y = RANDOM.normal(size=(2, 20, 5)).astype(np.float32)
loss = jax.jit(rlaxlib.cosine_consistency_loss)


def test_the_loss_does_not_depend_on_scale_and_is_that_of_normalised_vectors():
    close(loss(3 * X, 0.1 * Y), loss(X, Y))
    close(loss(X, X), -1.0)
    close(loss(X, -X), 1.0)
    unit = [x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (X, Y)]
    close(np.sum((unit[0] - unit[1]) ** 2, axis=-1), 2 + 2 * loss(X, Y))


def test_gradients_are_orthogonal_to_the_prediction():
    gradient = jax.grad(lambda x: jnp.sum(loss(x, Y)))(X)
    close(np.sum(gradient * X, axis=-1), 0.0)


def test_vectors_of_zero_have_no_loss_and_finite_gradients():
    for x, y in ((np.zeros_like(X), Y), (X, np.zeros_like(X))):
        value, gradient = jax.value_and_grad(lambda x, y: jnp.sum(loss(x, y)))(x, y)
        assert value == 0
        assert np.all(np.isfinite(gradient))


def test_the_hessian_at_equal_vectors_is_a_projection():
    x = np.random.default_rng(0).normal(size=(50, 16)).astype(np.float32)
    hessian = jax.hessian(rlaxlib.cosine_consistency_loss)
    found = jax.jit(jax.vmap(hessian))(x, x)
    square = np.sum(np.float64(x) ** 2, axis=-1)[:, None, None]
    projection = np.eye(16) - x[:, :, None] * np.float64(x[:, None, :]) / square
    np.testing.assert_allclose(found, projection / square, atol=1e-6)
