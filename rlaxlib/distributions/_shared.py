"""What the chapters of distributions share: softmax and normal distributions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib._core import indexing, legality

Function = Callable[..., Array]

# --- The softmax of legal actions. ---


class LegalSoftmax(NamedTuple):
    """A softmax over legal actions: weights, and their sum.

    Attributes:
        masked: The logits, minus infinity where a mask rules out an action, `[..., A]`.
        largest: The largest logit, `[..., 1]`.
        temperature: Temperature, `[]`.
        gaps: Logits minus the largest, divided by the temperature, so at most 0, and
            finite for illegal actions, `[..., A]`.
        legal: True for legal actions, `[..., A]`.
        total: The sum of the weights, 1 if no action is legal, `[..., 1]`.
        any_legal: Whether an action is legal, `[...]`.
    """

    masked: Array
    largest: Array
    temperature: ArrayLike
    gaps: Array
    legal: Array
    total: Array
    any_legal: Array

    @property
    def weights(self) -> Array:
        """The exponentials of the gaps, 0 for illegal actions, `[..., A]`."""
        return jnp.exp(self.gaps)

    @property
    def logits(self) -> Array:
        """The gaps, minus infinity for illegal actions, `[..., A]`."""
        return jnp.where(self.legal, self.gaps, -jnp.inf)

    @property
    def probs(self) -> Array:
        """The probabilities, 0 if no action is legal, `[..., A]`."""
        return self.weights / self.total

    @property
    def log_probs(self) -> Array:
        """The log-probabilities, 0 if no action is legal, `[..., A]`."""
        log_probs = self.logits - jnp.log(self.total)
        return jnp.where(self.any_legal[..., None], log_probs, 0)

    def log_prob(self, sample: Array) -> Array:
        """Return log-probabilities of actions `[...]` or `[N, ...]`."""
        # The logit is picked, not the gap: it needs no array of all gaps.
        each = self.masked, self.largest, jnp.log(self.total)
        masked, largest, log_total = (
            jnp.broadcast_to(x, (*sample.shape, x.shape[-1])) for x in each
        )
        picked = indexing.pick(masked, sample)
        gap, legal = legality.gap(picked, largest[..., 0], self.temperature)
        log_prob = jnp.where(legal, gap, -jnp.inf) - log_total[..., 0]
        return jnp.where(jnp.broadcast_to(self.any_legal, sample.shape), log_prob, 0)

    def entropy(self) -> Array:
        """Return the entropy `[...]`: the logarithm of the sum minus the mean gap."""
        mean = jnp.sum(self.weights * self.gaps, axis=-1) / self.total[..., 0]
        return jnp.log(self.total[..., 0]) - mean


def legal_softmax(
    logits: Array, action_mask: Array | None, temperature: ArrayLike = 1.0
) -> LegalSoftmax:
    """Return the softmax of logits `[..., A]`, where an `action_mask` allows it."""
    masked = legality.masked(logits, action_mask)
    largest = legality.largest(masked)
    gaps, legal = legality.gap(masked, largest, temperature)
    total = jnp.sum(jnp.exp(gaps), axis=-1, keepdims=True)
    any_legal = total != 0  # The largest weight is 1.
    total = jnp.where(any_legal, total, 1)
    return LegalSoftmax(
        masked, largest, temperature, gaps, legal, total, any_legal[..., 0]
    )


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
