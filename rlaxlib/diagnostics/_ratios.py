"""Tell how far a policy is from the one that acted, by its ratios to it."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib._core import checks, devices, dtypes, exponentials, streams
from rlaxlib._core.devices import AxisName
from rlaxlib.diagnostics import _means

__all__ = [
    "ImportanceStatistics",
    "approximate_kl",
    "clip_fraction",
    "effective_sample_size",
    "importance_statistics",
]


class ImportanceStatistics(NamedTuple):
    """How far the policy that learns is from the one that acted.

    All are of the ratios :math:`w_i` of the first to the second, shape `[]` each.

    Attributes:
        mean_ratio: Their mean. It is 1 in expectation: how far it is from that tells
            how many samples are wanting.
        max_log_ratio: Logarithm of the largest.
        min_log_ratio: Logarithm of the smallest.
        mean_log_ratio: Mean of their logarithms: how much larger the log-likelihood of
            the data is under the policy that learns. Its exponential is the ratio of
            the perplexities, the acting policy's to the other's.
        std_log_ratio: Standard deviation of their logarithms.
        kl: Estimate of the divergence :math:`KL(μ ‖ π)`, as `approximate_kl` makes it,
            never negative.
        chi_squared: Estimate of the divergence :math:`χ²(π ‖ μ) = E_μ[w²] - 1`, the
            variance of the ratios. May be negative by chance.
        effective_sample_size: How many samples of :math:`π` they are worth, as
            `effective_sample_size` tells.
        effective_fraction: The same, as a fraction of the samples there are.
    """

    mean_ratio: Array
    max_log_ratio: Array
    min_log_ratio: Array
    mean_log_ratio: Array
    std_log_ratio: Array
    kl: Array
    chi_squared: Array
    effective_sample_size: Array
    effective_fraction: Array


def approximate_kl(
    log_ratios: ArrayLike,
    kind: str = "k3",
    mask: ArrayLike | None = None,
    axis_name: AxisName | None = None,
) -> Array:
    """Estimate how far a policy is from the one that acted, from its actions.

    .. math::

        KL(μ ‖ π) ≈ (1/n) ∑_i k(l_i),   l_i = log (π(a_i) / μ(a_i)),   a_i ~ μ
        k_1 = -l,   k_2 = ½ l²,   k_3 = e^l - 1 - l

    The first and third are right in expectation; the third is never negative, and
    varies least where the policies are close. The second is biased, though little where
    they are close, and does not grow beyond bounds where they are not. Early stopping
    should go by the third: the first may be negative by chance.

    As the actions do not depend on the policy :math:`π` that learns, the gradients of
    the first and third are, in expectation, that of the divergence. If it is :math:`π`
    itself that acts, as where a language model is held close to a reference, none of
    them has the right gradient: what is differentiated leaves out that other actions
    would be drawn.

    Args:
        log_ratios: Log-ratios :math:`l_i`, of the policy that learns to the one that
            acted, shape `[...]`.
        kind: `"k1"`, `"k2"` or `"k3"`.
        mask: True where an entry counts, of the same shape, shape `[...]`; or None to
            count all.
        axis_name: Name of the axis, or axes, that devices form; or None to stay on one
            device.

    Returns:
        The estimate, in nats, shape `[]`; 0 where no entry counts.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if `kind` is none
            of the three.

    Example:
        >>> log_ratios = jnp.log(jnp.array([0.5, 2.0]))
        >>> print(rlaxlib.approximate_kl(log_ratios, "k1"))
        0.0
        >>> print(rlaxlib.approximate_kl(log_ratios))
        0.25

    References:
        John Schulman, *Approximating KL Divergence*, 2020.
        http://joschu.net/blog/kl-approx.html
    """
    log_ratios, mask = checks.arrays(
        log_ratios=(log_ratios, "float[...]"), mask=(mask, "bool[...] or None")
    )
    if kind not in ("k1", "k2", "k3"):
        checks.fail(f'`kind` must be "k1", "k2" or "k3", not {kind!r}')
    (log_ratios,), narrow = dtypes.widen(streams.valid(log_ratios, mask))
    if kind == "k1":
        estimates = -log_ratios
    elif kind == "k2":
        estimates = 0.5 * jnp.square(log_ratios)
    else:
        estimates = exponentials.excess(log_ratios)
    return narrow(_means.mean(estimates, mask, axis_name))


def clip_fraction(
    log_ratios: ArrayLike,
    epsilon: ArrayLike = 0.2,
    epsilon_high: ArrayLike | None = None,
    *,
    adv_t: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    axis_name: AxisName | None = None,
) -> Array:
    """Tell what fraction of the ratios is clipped.

    .. math::

        (1/n) ∑_i 1[w_i > 1 + ε_high or w_i < 1 - ε],   w_i = e^{l_i}

    With advantages, only those count where clipping stops the gradient:
    :math:`w_i > 1 + ε_high` with an advantage above 0, or :math:`w_i < 1 - ε` with one
    below 0. Implementations differ: some count all that lie outside (Stable-Baselines3,
    CleanRL), some those that are clipped (verl). The second is how much of a batch has
    no effect; the first is never less.

    Args:
        log_ratios: Log-ratios :math:`l_i`, of the policy that learns to the one that
            acted, shape `[...]`.
        epsilon: How far a ratio may go below 1, and above, from 0 to 1, shape `[]`.
        epsilon_high: How far a ratio may go above 1, not negative, shape `[]`; or None
            for as far as below.
        adv_t: Advantages, of the shape of `log_ratios`, to count what is clipped,
            shape `[...]`; or None to count all that lies outside.
        mask: True where an entry counts, of the same shape, shape `[...]`; or None to
            count all.
        axis_name: Name of the axis, or axes, that devices form; or None to stay on one
            device.

    Returns:
        The fraction, shape `[]`; 0 where no entry counts.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if a bound is
            known and out of range.

    Example:
        >>> log_ratios = jnp.log(jnp.array([0.5, 1.0, 1.1, 1.5]))
        >>> print(rlaxlib.clip_fraction(log_ratios))
        0.5
        >>> adv_t = jnp.array([1.0, 1.0, 1.0, 1.0])
        >>> print(rlaxlib.clip_fraction(log_ratios, adv_t=adv_t))
        0.25

    References:
        John Schulman, Filip Wolski, Prafulla Dhariwal, Alec Radford and Oleg Klimov,
        *Proximal Policy Optimization Algorithms*, 2017.
        https://arxiv.org/abs/1707.06347
    """
    log_ratios, epsilon, epsilon_high, adv_t, mask = checks.arrays(
        log_ratios=(log_ratios, "float[...]"),
        epsilon=(epsilon, "float[]"),
        epsilon_high=(epsilon_high, "float[] or None"),
        adv_t=(adv_t, "float[...] or None"),
        mask=(mask, "bool[...] or None"),
    )
    checks.within("[0, 1]", epsilon=epsilon)
    checks.within("[0, inf)", epsilon_high=epsilon_high)
    epsilon_high = epsilon if epsilon_high is None else epsilon_high
    (log_ratios, low, high, adv_t), narrow = dtypes.widen(
        log_ratios, epsilon, epsilon_high, adv_t
    )
    # Compared as logarithms, no ratio is too large to be told.
    above, below = log_ratios > jnp.log1p(high), log_ratios < jnp.log1p(-low)
    if adv_t is not None:
        above, below = above & (adv_t > 0), below & (adv_t < 0)
    outside = (above | below).astype(log_ratios.dtype)
    outside = jnp.where(jnp.isnan(log_ratios), log_ratios, outside)
    return narrow(_means.mean(outside, mask, axis_name))


def effective_sample_size(
    log_weights: ArrayLike,
    mask: ArrayLike | None = None,
    axis_name: AxisName | None = None,
) -> Array:
    """Tell how many samples weighted ones are worth.

    .. math::

        ESS = (∑_i w_i)² / ∑_i w_i² = exp(2 logsumexp_i l_i - logsumexp_i 2 l_i),
        w_i = e^{l_i}

    From 1, where one weight outweighs all others, to their number, where all are equal.
    The size of the weights does not matter, so that they need not be normalised; clip
    them first if it is clipped ones that are used, and give the weights of whole
    sequences if it is those that are weighted.

    Args:
        log_weights: Logarithms :math:`l_i` of the weights, shape `[N]`; minus infinity
            for a weight of 0.
        mask: True where an entry counts, shape `[N]`; or None to count all.
        axis_name: Name of the axis, or axes, that devices form; or None to stay on one
            device.

    Returns:
        The number of samples, shape `[]`; 0 where no entry has a weight.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype.

    Example:
        >>> weights = jnp.array([1.0, 1.0, 2.0, 0.0])
        >>> print(f"{rlaxlib.effective_sample_size(jnp.log(weights)):.4f}")
        2.6667

    References:
        Augustine Kong, *A Note on Importance Sampling using Standardized Weights*,
        1992. https://victorelvira.github.io/papers/kong92.pdf
    """
    log_weights, mask = checks.arrays(
        log_weights=(log_weights, "float[N]"), mask=(mask, "bool[N] or None")
    )
    (log_weights,), narrow = dtypes.widen(streams.valid(log_weights, mask))
    return narrow(_sample_size(log_weights, mask, axis_name))


def importance_statistics(
    log_ratios: ArrayLike,
    mask: ArrayLike | None = None,
    axis_name: AxisName | None = None,
) -> ImportanceStatistics:
    """Tell how far the policy that learns is from the one that acted.

    .. math::

        l_i = log (π(a_i) / μ(a_i)),   w_i = e^{l_i},   a_i ~ μ

    What to look at: a mean ratio far from 1, or an effective fraction far below it,
    says that the data no longer tell what :math:`π` would do; a largest ratio far above
    the others, that one sample outweighs them. Ratios near 1 all over, with a few far
    off, mean that the two policies were computed differently, in another precision for
    example, rather than that one has learned.

    Some libraries clip log-ratios to ±20 before they take these, which hides what is to
    be seen: here a number that is too large for its dtype is infinite, and the
    effective sample size is exact whatever the ratios are.

    Args:
        log_ratios: Log-ratios :math:`l_i`, one for each action, token or sequence,
            finite, shape `[...]`. They are held constant under differentiation.
        mask: True where an entry counts, of the same shape, shape `[...]`; or None to
            count all.
        axis_name: Name of the axis, or axes, that devices form; or None to stay on one
            device.

    Returns:
        The statistics, shape `[]` each; all are 0 where no entry counts.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype.

    Example:
        >>> statistics = rlaxlib.importance_statistics(jnp.log(jnp.array([0.5, 1.5])))
        >>> print(f"{statistics.mean_ratio:.2f} {statistics.chi_squared:.2f}")
        1.00 0.25
        >>> print(f"{statistics.effective_sample_size:.2f}")
        1.60

    References:
        Jiacai Liu and others, *When Speed Kills Stability: Demystifying RL Collapse
        from the Training-Inference Mismatch*, 2025. https://richardli.xyz/rl-collapse
    """
    log_ratios, mask = checks.arrays(
        log_ratios=(log_ratios, "float[...]"), mask=(mask, "bool[...] or None")
    )
    constant = jax.lax.stop_gradient(streams.valid(log_ratios, mask))
    (x,), narrow = dtypes.widen(constant)
    mask = jnp.ones_like(x, bool) if mask is None else mask
    count = devices.total(jnp.sum(mask, dtype=x.dtype), axis_name)
    size = _sample_size(x, mask, axis_name)

    def mean(y: Array) -> Array:
        return _means.mean(y, mask, axis_name)

    def largest(y: Array) -> Array:
        known = jnp.max(y, initial=-jnp.inf, where=mask)
        known = devices.maximum(known, axis_name)
        return jnp.where(count > 0, known, jnp.zeros_like(known))

    statistics = ImportanceStatistics(
        mean_ratio=mean(jnp.exp(x)),
        max_log_ratio=largest(x),
        min_log_ratio=-largest(-x),
        mean_log_ratio=mean(x),
        std_log_ratio=jnp.sqrt(_means.variance(x, mask, axis_name)),
        kl=mean(exponentials.excess(x)),
        chi_squared=mean(jnp.expm1(2 * x)),
        effective_sample_size=size,
        effective_fraction=size / jnp.maximum(count, 1),
    )
    return narrow(statistics)


def _sample_size(x: Array, mask: Array | None, axis_name: AxisName | None) -> Array:
    """Return the effective sample size for log-weights."""
    mask = jnp.ones_like(x, bool) if mask is None else mask
    weights = streams.valid(jnp.exp(x - devices.largest(x, mask, axis_name)), mask)
    total = devices.total(jnp.sum(weights), axis_name)
    squares = devices.total(jnp.sum(jnp.square(weights)), axis_name)
    return jnp.square(total) / jnp.where(squares > 0, squares, jnp.ones_like(squares))
