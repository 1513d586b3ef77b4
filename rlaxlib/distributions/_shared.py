"""What the chapters of distributions share: softmax and normal distributions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from rlaxlib._core import indexing, legality

Function = Callable[..., Array]

# --- The softmax of legal actions. ---


class LegalSoftmax(NamedTuple):
    """A softmax over legal actions.

    Attributes:
        logits: The logits, minus infinity where a mask is false, `[..., A]`.
        largest: The largest of them, `[..., 1]`.
        temperature: The temperature, `[]`.
        gaps: Logits minus the largest, divided by the temperature, `[..., A]`. Those of
            illegal actions are finite, and have an exponential of 0.
        total: The sum of their exponentials, 1 if no action is legal, `[..., 1]`.
        any_legal: Whether an action is legal, `[..., 1]`.
    """

    logits: Array
    largest: Array
    temperature: ArrayLike
    gaps: Array
    total: Array
    any_legal: Array

    @property
    def probs(self) -> Array:
        """The probabilities, 0 if no action is legal, `[..., A]`."""
        return jnp.exp(self.gaps) / self.total

    @property
    def log_probs(self) -> Array:
        """The log-probabilities, 0 if no action is legal, `[..., A]`.

        Those of illegal actions are finite, so that 0 times one is 0.
        """
        return jnp.where(self.any_legal, self.gaps - jnp.log(self.total), 0)

    def log_prob(self, sample: Array) -> Array:
        """Return log-probabilities of actions `[...]` or `[N, ...]`.

        Those of illegal actions are minus infinity, or 0 if no action is legal.
        """
        each = self.largest, jnp.log(self.total), self.any_legal
        largest, log_total, any_legal = (
            jnp.broadcast_to(x[..., 0], sample.shape) for x in each
        )
        # The logit is picked, which needs no array of all log-probabilities.
        shape = (*sample.shape, self.logits.shape[-1])
        logit = indexing.pick(jnp.broadcast_to(self.logits, shape), sample)
        log_prob = legality.gaps(logit, largest, self.temperature) - log_total
        illegal = jnp.where(any_legal, -jnp.inf, 0)
        return jnp.where(legality.legal(logit) & any_legal, log_prob, illegal)

    def entropy(self) -> Array:
        """Return the entropy `[...]`: the logarithm of the sum minus the mean gap."""
        mean = jnp.sum(jnp.exp(self.gaps) * self.gaps, axis=-1) / self.total[..., 0]
        return jnp.log(self.total[..., 0]) - mean


def legal_softmax(
    logits: Array, action_mask: Array | None, temperature: ArrayLike = 1.0
) -> LegalSoftmax:
    """Return the softmax of logits `[..., A]`, where an `action_mask` allows it."""
    logits = legality.masked(logits, action_mask)
    largest = legality.largest(logits)
    gaps = legality.gaps(logits, largest, temperature)
    total = jnp.sum(jnp.exp(gaps), axis=-1, keepdims=True)
    any_legal = total != 0  # The largest term is 1.
    total = jnp.where(any_legal, total, 1)
    return LegalSoftmax(logits, largest, temperature, gaps, total, any_legal)


def uniform(actions: Array, dtype: DTypeLike) -> Array:
    """Return the uniform distribution over some of all actions, 0 if there are none."""
    count = jnp.sum(actions, axis=-1, keepdims=True, dtype=dtype)
    return actions.astype(dtype) / jnp.maximum(count, 1)


def kl_terms(p: Array, q: Array, d: Array) -> Array:
    """Return terms whose sum is KL(p ‖ q), where `d` is `log q - log p`.

    KL = ∑ (q - p - p d), since p and q sum to 1. No term is negative, so none cancel
    where p is close to q; q - p loses precision there.
    """
    near = jnp.abs(d) < 0.5
    change = jnp.where(near, p * jnp.expm1(jnp.where(near, d, 0)), q - p)
    return change - p * d


# --- Normal distributions. A sigma has shape `[]`, `[D]` or that of its mean. ---


def normal_sample(key: Array, mu: Array, sigma: Array) -> Array:
    """Return `mu + sigma * noise`."""
    noise = jax.random.normal(key, mu.shape, jnp.result_type(mu, sigma))
    return mu + _over(sigma, mu) * noise


def normal_log_density(x: Array, mu: Array, sigma: Array) -> Array:
    """Return the log-density of `x`, which may have more leading axes."""
    mu, sigma = _over(mu, x), _over(sigma, x)
    z = (x - mu) / sigma
    terms = -0.5 * jnp.square(z) - jnp.log(sigma) - 0.5 * math.log(2 * math.pi)
    return jnp.sum(terms, axis=-1)


def normal_entropy(mu: Array, sigma: Array) -> Array:
    """Return the entropy."""
    terms = jnp.log(_over(sigma, mu)) + 0.5 * math.log(2 * math.pi * math.e)
    return jnp.sum(terms, axis=-1)


def normal_kl(
    mu_0: Array, sigma_0: Array, mu_1: ArrayLike = 0.0, sigma_1: ArrayLike = 1.0
) -> Array:
    """Return the KL divergence, to the standard normal by default."""
    sigma_0, sigma_1 = _over(sigma_0, mu_0), _over(sigma_1, mu_0)
    z = (mu_0 - mu_1) / sigma_1
    d = (sigma_0 - sigma_1) / sigma_1
    # `log1p(d)` is accurate for close sigmas, but minus infinity where d rounds to -1.
    log_ratio = jnp.where(
        d > -0.5, jnp.log1p(jnp.maximum(d, -0.5)), jnp.log(sigma_0 / sigma_1)
    )
    terms = 0.5 * (jnp.square(d) + jnp.square(z)) + (d - log_ratio)
    return jnp.sum(terms, axis=-1)


def _over(parameter: ArrayLike, x: Array) -> Array:
    """Return a parameter with the shape of `x`."""
    return jnp.broadcast_to(parameter, x.shape)
