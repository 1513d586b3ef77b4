"""The mathematics of Gaussians with independent dimensions, the last axis.

A standard deviation has the shape of its mean, or one that broadcasts to it.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from rlaxlib._core import derivatives, exponentials, sums

_SHORTEST = sums.Shortest(run=17, differentiated=None)


def draw(key: Array, mu: Array, sigma: Array) -> Array:
    """Draw a vector, differentiable with respect to its mean and deviation."""
    noise = jax.random.normal(key, mu.shape, jnp.result_type(mu, sigma))
    return mu + over(sigma, mu) * noise


def log_density(x: Array, mu: Array, sigma: Array) -> Array:
    """Return the logarithm of the density at `x`, one for each mean or many."""
    terms: Array = _log_exp(x, over(mu, x), over(over(sigma, mu), x))
    return jnp.sum(terms, axis=-1) - 0.5 * mu.shape[-1] * math.log(2 * math.pi)


def entropy(mu: Array, sigma: Array) -> Array:
    """Return the entropy."""
    return entropy_of_logs(_log(over(sigma, mu)))


def entropy_of_logs(logs: Array) -> Array:
    """Return the entropy, from the logarithms of deviations, one for each dimension."""
    constant = 0.5 * logs.shape[-1] * math.log(2 * math.pi * math.e)
    return jnp.sum(logs, axis=-1) + constant


def divergence(mu_0: Array, sigma_0: Array, mu_1: Array, sigma_1: Array) -> Array:
    """Return the divergence of one Gaussian from another."""
    given = mu_0, over(sigma_0, mu_0), mu_1, over(sigma_1, mu_0)
    return sums.over_last_of(_kl, _SHORTEST, *given)


def divergence_from_standard(mu: Array, sigma: Array) -> Array:
    """Return the divergence of a Gaussian from the standard normal distribution."""
    zero, one = jnp.zeros_like(mu, shape=()), jnp.ones_like(mu, shape=())
    return sums.over_last_of(_kl, _SHORTEST, mu, over(sigma, mu), zero, one)


def over(parameter: Array, x: Array) -> Array:
    """Return a parameter for each entry of another array."""
    return jnp.broadcast_to(parameter, x.shape)


# --- Of each dimension, with derivatives written out: simpler than those of steps. ---


def _quotient(x: Array, y: Array) -> Array:
    """Return `x / y`, in a way that a CPU computes in vectors.

    A loop of little but a quotient, over 16 to 33 dimensions, LLVM unrolls into single
    numbers, which takes up to twice the time.
    """
    return jnp.where(y < 0, -x, x) / jnp.abs(y)


def _log_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (x,), (change,) = primals, tangents
    return _log(x), _quotient(change, x)


@derivatives.derived(_log_jvp)
def _log(x: Array) -> Array:
    """Return the logarithm."""
    if x.shape[-1] <= sums.VECTOR:
        return jnp.log(x)
    # The floor changes no logarithm. With anything before it, XLA takes a fifth less
    # time for the sum of 16 to 20, and the same for that of others.
    return jnp.log(jnp.maximum(x, -1.0))


def _log_exp_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    x, mu, sigma = primals
    over_sigma = 1 / sigma
    z = (x - mu) * over_sigma
    # The signs apart change no number. With less to do for each, LLVM unrolls the loop
    # of the deviation's slope over 14 to 16, which takes a fifth more time.
    size = jnp.where(z < 0, -z, z)
    grown = (size - 1) * (size + 1)
    by_sigma = jnp.where(sigma < 0, -grown, grown) * jnp.abs(over_sigma)
    by_distance = over_sigma * (z * (tangents[1] - tangents[0]))
    return _log_exp(*primals), by_distance + by_sigma * tangents[2]


@derivatives.derived(_log_exp_jvp)
def _log_exp(x: Array, mu: Array, sigma: Array) -> Array:
    """Return the logarithm of a density, but for a constant."""
    over_sigma = 1 / sigma
    return -0.5 * jnp.square((x - mu) * over_sigma) - jnp.log(sigma)


def _kl_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    mu_0, sigma_0, mu_1, sigma_1 = primals
    over_sigma = 1 / sigma_1
    z, change = (mu_0 - mu_1) * over_sigma, (sigma_0 - sigma_1) * over_sigma
    grown = change * (change + 2)
    by_1 = z * (tangents[0] - tangents[2]) - (grown + jnp.square(z)) * tangents[3]
    return _kl(*primals), over_sigma * by_1 + _quotient(grown, sigma_0) * tangents[1]


@derivatives.derived(_kl_jvp)
def _kl(mu_0: Array, sigma_0: Array, mu_1: Array, sigma_1: Array) -> Array:
    """Return a divergence."""
    over_sigma = 1 / sigma_1
    # With the ratio r of deviations, half of r^2 - 1 - log r^2; by its series where r
    # is close to 1.
    ratio, change = sigma_0 * over_sigma, (sigma_0 - sigma_1) * over_sigma
    far = 0.5 * (ratio - 1) * (ratio + 1) - jnp.log(ratio)
    terms = 7 if jnp.finfo(change.dtype).bits <= 32 else 14
    series = jnp.full_like(change, 1 / terms)
    for n in range(terms - 1, 2, -1):
        series = 1 / n - series * change
    near = jnp.square(change) * (1 - change * series)
    spread = jnp.where(jnp.abs(change) < 0.0625, near, far)
    return spread + 0.5 * jnp.square((mu_0 - mu_1) * over_sigma)


def _kl_of_logs_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    mu_0, log_0, mu_1, log_1 = primals
    over_sigma, double = jnp.exp(-log_1), 2 * (log_0 - log_1)
    z, grown = (mu_0 - mu_1) * over_sigma, exponentials.less_one(double)
    change = z * over_sigma * (tangents[0] - tangents[2])
    change += grown * (tangents[1] - tangents[3]) - jnp.square(z) * tangents[3]
    return kl_of_logs(*primals), change


@derivatives.derived(_kl_of_logs_jvp)
def kl_of_logs(mu_0: Array, log_0: Array, mu_1: Array, log_1: Array) -> Array:
    """Return the divergence in one dimension, from the logarithms of deviations."""
    z = (mu_0 - mu_1) * jnp.exp(-log_1)
    return 0.5 * (exponentials.excess(2 * (log_0 - log_1)) + jnp.square(z))
