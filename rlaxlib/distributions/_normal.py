"""The mathematics of Gaussians with independent dimensions, the last axis.

A standard deviation has the shape of its mean, or one that broadcasts to it.
"""

import math

import jax
import jax.numpy as jnp
from jax import Array

from rlaxlib.distributions._logits import expm1_less


def draw(key: Array, mu: Array, sigma: Array) -> Array:
    """Draw a vector, differentiable with respect to its mean and deviation."""
    noise = jax.random.normal(key, mu.shape, jnp.result_type(mu, sigma))
    return mu + _over(sigma, mu) * noise


def log_density(x: Array, mu: Array, sigma: Array) -> Array:
    """Return the logarithm of the density at `x`."""
    sigma = _over(sigma, mu)
    squares = jnp.square((x - mu) / sigma)
    logs = jnp.log(sigma) + 0.5 * math.log(2 * math.pi)
    return 0 - jnp.sum(0.5 * squares + logs, axis=-1)


def entropy(mu: Array, sigma: Array) -> Array:
    """Return the entropy."""
    return jnp.sum(
        jnp.log(_over(sigma, mu)) + 0.5 * math.log(2 * math.pi * math.e), axis=-1
    )


def divergence(mu_0: Array, sigma_0: Array, mu_1: Array, sigma_1: Array) -> Array:
    """Return the divergence of one Gaussian from another."""
    sigma_0, sigma_1 = _over(sigma_0, mu_0), _over(sigma_1, mu_0)
    # With r the logarithm of the ratio of deviations: exp(2r) - 1 - 2r, halved.
    change = (sigma_0 - sigma_1) / sigma_1
    small = jnp.abs(change) < 0.5
    log_ratio = jnp.where(
        small,
        jnp.log1p(jnp.where(small, change, 0.0)),
        jnp.log(jnp.where(small, 1.0, sigma_0 / sigma_1)),
    )
    distance = jnp.square((mu_0 - mu_1) / sigma_1)
    return 0.5 * jnp.sum(expm1_less(2 * log_ratio) + distance, axis=-1)


def _over(sigma: Array, mu: Array) -> Array:
    """Return a deviation for each entry of the mean."""
    return jnp.broadcast_to(sigma, mu.shape)
