"""Weigh samples by how good they turned out: the E-step of MPO and V-MPO."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax import Array

from rlaxlib._core import derivatives

_NEVER = -1e4  # Its exponential is 0 in any precision, and 0 times it is 0 as well.


def finite(values: Array) -> Array:
    """Return values of which none is infinite: the largest number stands for it."""
    largest = cast(Any, jnp.finfo(values.dtype)).max
    bounded = jnp.clip(jax.lax.stop_gradient(values), -largest, largest)
    return jnp.where(jnp.isinf(values), bounded, values)


def reweigh(
    values: Array,
    temperature: Array,
    largest: Array,
    count: Array | int,
    total: Callable[[Array], Array],
    prior: Array | None = None,
) -> tuple[Array, Array]:
    """Raise the weights of samples that are good, and average what they gain.

    Args:
        values: How good each sample is, not infinite, of any shape.
        temperature: Temperature :math:`η`, shape `[]`.
        largest: The largest of the values that count, a constant, of a shape that goes
            with theirs.
        count: Number of samples that count.
        total: Function that sums over samples, and keeps the axes it sums over.
        prior: What each sample weighs before, 0 if it does not count, of the shape of
            the values; or None if each weighs 1.

    Returns:
        A tuple of two: the weights :math:`w ∝ p exp(x/η)`, which add up to 1, or are 0
        if no sample has a weight before; and the soft maximum
        :math:`η log mean(p exp(x/η))`, or 0.
    """
    never = _NEVER * jax.lax.stop_gradient(temperature)
    raised = jnp.exp(jnp.maximum(values - largest, never) / temperature)
    if prior is None:
        mass = total(raised)
        return raised * (1 / mass), largest + temperature * jnp.log(mass / count)
    raised = prior * raised
    mass = total(raised)
    nothing = mass == 0
    mass = jnp.where(nothing, jnp.ones_like(mass), mass)
    soft_maximum = largest + temperature * jnp.log(mass / jnp.maximum(count, 1))
    soft_maximum = jnp.where(nothing, jnp.zeros_like(mass), soft_maximum)
    return raised * (1 / mass), soft_maximum


def _weighted_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (log_probs, weights), (change, by_weights) = primals, tangents
    by_weights = _heard(log_probs, weights) * by_weights
    return weighted(*primals), weights * change + by_weights


# Its derivative by the log-probabilities does not depend on them: none is computed.
@derivatives.derived(_weighted_jvp)
def weighted(log_probs: Array, weights: Array) -> Array:
    """Return log-probabilities, or surprises, times what they weigh.

    Nothing is said of a sample without weight, even if the policy rules it out: then 0
    times infinity is 0.
    """
    return weights * _heard(log_probs, weights)


def _heard(log_probs: Array, weights: Array) -> Array:
    """Return log-probabilities, 0 for what is impossible and without weight."""
    silent = (weights == 0) & jnp.isinf(log_probs)
    return jnp.where(silent, jnp.zeros_like(log_probs), log_probs)
