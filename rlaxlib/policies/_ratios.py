"""Compare a policy with an earlier one, by the actions that the earlier one took."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib._core import derivatives, exponentials, gradients, streams


class RatioOutputs(NamedTuple):
    """How far a policy is from an earlier one, to watch while it learns.

    Attributes:
        ratio: Ratio :math:`ρ_t` of the probability of each action taken under the
            policy to that under the earlier one, shape `[T]`.
        bounded: True where the logarithm of the ratio was beyond its bound, and so has
            no gradient, shape `[T]`.
        approximate_kl: What each step adds to an estimate of the divergence of the
            policy from the earlier one, :math:`ρ_t - 1 - log ρ_t`, at least 0. Its mean
            over the actions of the earlier policy is :math:`KL(π_old ‖ π)`,
            shape `[T]`.
    """

    ratio: Array
    bounded: Array
    approximate_kl: Array


def bounded_difference(
    log_prob: Array, old_log_prob: Array, bound: Array
) -> tuple[Array, Array]:
    """Return the logarithm of a ratio of probabilities, kept within a bound.

    Args:
        log_prob: Log-probabilities under one policy, `[T]`.
        old_log_prob: The same under another, `[T]`.
        bound: The largest size of their difference, `[]`.

    Returns:
        A tuple of two: the differences, `[T]`, 0 where both policies rule an action
        out; and whether each was beyond the bound, `[T]`.
    """
    # Minus infinity less minus infinity would be no number.
    same = jnp.isinf(log_prob) & (log_prob == old_log_prob)
    log_prob, old_log_prob = streams.clean(~same, log_prob, old_log_prob)
    difference = log_prob - old_log_prob
    above, below = difference > bound, difference < -bound
    difference = jnp.where(above, bound, jnp.where(below, -bound, difference))
    return difference, above | below


def compare(
    log_prob: Array, old_log_prob: Array, bound: Array
) -> tuple[Array, RatioOutputs]:
    """Return the logarithms of ratios, and what follows from them.

    Args:
        log_prob: Log-probabilities under the policy that learns, `[T]`.
        old_log_prob: The same under the earlier one, `[T]`.
        bound: The largest size of their difference, `[]`.

    Returns:
        A tuple of two: the logarithms of the ratios, `[T]`, and a `RatioOutputs`.
    """
    log_ratio, bounded = bounded_difference(log_prob, old_log_prob, bound)
    divergence = exponentials.excess(log_ratio)
    return log_ratio, RatioOutputs(jnp.exp(log_ratio), bounded, divergence)


def hold(
    stop: ArrayLike, mask: Array | None, learned: Array, *fixed: Array
) -> tuple[Array, ...]:
    """Hold constant what does not learn, and take out the rows that do not count.

    Args:
        stop: Whether to hold it constant under differentiation.
        mask: False where a row does not count, `[T]`; or None if all do.
        learned: What learns, `[T]`.
        *fixed: What does not, each `[T]`.

    Returns:
        The arrays in their order, 0 where a row does not count.
    """
    arrays = (learned, *(gradients.stop_if(stop, each) for each in fixed))
    return streams.clean(mask, *arrays)


def clipped_objective(
    ratio: Array,
    adv: Array,
    low: Array,
    high: Array,
    ceiling: Array | None = None,
) -> Array:
    """Return what PPO maximises, the smaller of two products of ratio and advantage.

    Args:
        ratio: Ratios of probabilities, `[T]`.
        adv: Advantages, `[T]`.
        low: Ratio below which nothing is gained, `[]`.
        high: Ratio above which nothing is gained, `[]`.
        ceiling: Ratio above which nothing more is lost, `[]`; or None.

    Returns:
        Objectives, `[T]`.
    """
    # The minimum of the products: of the ratios it is one bound or the other that
    # counts, so that an infinite ratio does not meet an advantage of 0.
    gain = adv >= 0
    if ceiling is not None:
        ratio = jnp.where(~gain & (ratio > ceiling), ceiling, ratio)
    return _objective(ratio, adv, low, high)


# --- With derivatives written out. What takes fewer selects, LLVM unrolls into single
# numbers over 16 to 23 steps, which takes up to twice the time.


def _by_ratio(change: Array, y: Array, *primals: Array) -> Array:
    del y
    ratio, adv, low, high = primals
    gain, zero = adv >= 0, jnp.zeros_like(ratio)
    change = _signed(gain, change) * _signed(gain, adv)
    above = jnp.where(ratio > high, zero, change)
    return jnp.where(gain, above, jnp.where(ratio < low, zero, change))


def _by_adv(change: Array, y: Array, *primals: Array) -> Array:
    del y
    return change * _bounded(*primals)


def _by_low(change: Array, y: Array, *primals: Array) -> Array:
    del y
    ratio, adv, low, _ = primals
    return jnp.where((adv < 0) & (ratio < low), change * adv, jnp.zeros_like(adv))


def _by_high(change: Array, y: Array, *primals: Array) -> Array:
    del y
    ratio, adv, _, high = primals
    return jnp.where((adv >= 0) & (ratio > high), change * adv, jnp.zeros_like(adv))


@derivatives.derived_by(_by_ratio, _by_adv, _by_low, _by_high)
def _objective(ratio: Array, adv: Array, low: Array, high: Array) -> Array:
    """Return advantage times bounded ratio, the sign apart, which changes no number."""
    gain = adv >= 0
    return _signed(gain, _signed(gain, adv) * _bounded(ratio, adv, low, high))


def _bounded(ratio: Array, adv: Array, low: Array, high: Array) -> Array:
    """Return ratios, which gain nothing beyond one bound, and lose nothing beyond."""
    above = jnp.where(ratio > high, high, ratio)
    return jnp.where(adv >= 0, above, jnp.where(ratio < low, low, ratio))


def _signed(gain: Array, x: Array) -> Array:
    """Return a number as it is, or with its sign changed."""
    return jnp.where(gain, x, -x)
