"""The mathematics of Gaussians with independent dimensions, the last axis.

A standard deviation has the shape of its mean, or one that broadcasts to it.
"""

import math

import jax
import jax.numpy as jnp
from jax import Array


def draw(key: Array, mu: Array, sigma: Array) -> Array:
    """Draw a vector, differentiable with respect to its mean and deviation."""
    noise = jax.random.normal(key, mu.shape, jnp.result_type(mu, sigma))
    return mu + _over(sigma, mu) * noise


def log_density(x: Array, mu: Array, sigma: Array) -> Array:
    """Return the logarithm of the density at `x`."""
    sigma = _over(sigma, mu)
    terms = jnp.log(sigma) + 0.5 * jnp.square((x - mu) / sigma)
    return -jnp.sum(terms, axis=-1) - 0.5 * mu.shape[-1] * math.log(2 * math.pi)


def entropy(mu: Array, sigma: Array) -> Array:
    """Return the entropy."""
    logs = jnp.sum(jnp.log(_over(sigma, mu)), axis=-1)
    return logs + 0.5 * mu.shape[-1] * math.log(2 * math.pi * math.e)


def divergence(mu_0: Array, sigma_0: Array, mu_1: Array, sigma_1: Array) -> Array:
    """Return the divergence of one Gaussian from another."""
    sigma_0, sigma_1 = _over(sigma_0, mu_0), _over(sigma_1, mu_0)
    # With the ratio r of deviations, half of r^2 - 1 - log r^2; by its series where r
    # is close to 1.
    change = (sigma_0 - sigma_1) / sigma_1
    close = jnp.abs(change) < 0.0625
    near = jnp.where(close, change, 0.0)
    far = jnp.where(close, 1.0, sigma_0 / sigma_1)
    terms = 7 if jnp.finfo(mu_0.dtype).bits <= 32 else 14
    series = jnp.full_like(near, 1 / terms)
    for n in range(terms - 1, 1, -1):
        series = 1 / n - series * near
    spread = jnp.where(
        close,
        0.5 * jnp.square(near) * (1 + 2 * series),
        0.5 * (far - 1) * (far + 1) - jnp.log(far),
    )
    return jnp.sum(spread + 0.5 * jnp.square((mu_0 - mu_1) / sigma_1), axis=-1)


def _over(sigma: Array, mu: Array) -> Array:
    """Return a deviation for each entry of the mean."""
    return jnp.broadcast_to(sigma, mu.shape)
