"""Diagnostics of values, importance ratios and data.

- Values: explained variance.
- Importance ratios: effective sample size, and statistics of log-ratios, which the
  outputs of `ppo_clip_loss` and its variants have as `log_ratio`.
- Data: consistency of a trajectory.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.experimental import checkify

from rlaxlib import arrays
from rlaxlib._core import checks, devices, indexing, moments, ratios, safe, streams
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, AxisName, Bool, Float

__all__ = [
    "ImportanceStatistics",
    "check_trajectory",
    "effective_sample_size",
    "explained_variance",
    "importance_statistics",
]


# --- Values. ---


@checked
def explained_variance(
    predictions: Float[ArrayLike, "..."],
    targets: Float[ArrayLike, "..."],
    *,
    sample_mask: Bool[ArrayLike, "..."] | None = None,
    axis_name: AxisName | None = None,
) -> Float[Array, ""]:
    """Compute the fraction of the variance of targets that predictions explain.

    Takes samples of any shape, returns one number.

    ::

        1 - Var[y - ŷ] / Var[y]

    It is 1 for perfect predictions, 0 for a constant, and negative for predictions that
    are worse than a constant. It ignores a constant bias: the mean error of the
    predictions shows overestimation.

    Args:
        predictions: Predictions :math:`ŷ`, such as values, shape `[...]`.
        targets: Targets :math:`y`, such as returns, shape `[...]`.
        sample_mask: False for samples to ignore, shape `[...]`; or None.
        axis_name: Mapped axis name, or names, to average over; or None.

    Returns:
        The fraction, shape `[]`; 0 if all targets are equal.

    Raises:
        ArgumentError: If a shape or dtype is wrong.

    Example:
        >>> predictions, targets = jnp.array([2.0, 3.0]), jnp.array([1.0, 3.0])
        >>> print(rlaxlib.explained_variance(predictions, targets))
        0.75

    References:
        Antonin Raffin and others, *Stable-Baselines3: Reliable Reinforcement Learning
        Implementations*, 2021. https://jmlr.org/papers/v22/20-1364.html
    """
    left = _variance(targets - predictions, sample_mask, axis_name)
    variance = _variance(targets, sample_mask, axis_name)
    return 1 - safe.divide(left, variance, otherwise=1)


def _variance(x: Array, mask: Array | None, axis_name: AxisName | None) -> Array:
    """Return the variance of the unmasked entries."""
    return moments.of(x, streams.filled(mask, x), axis_name).variance


# --- Importance ratios. ---


class ImportanceStatistics(NamedTuple):
    """Statistics of importance ratios :math:`w_i`, shape `[]` each.

    Attributes:
        mean_ratio: Mean of the ratios; far from 1 if there are too few samples.
        max_log_ratio: Largest log-ratio.
        min_log_ratio: Smallest log-ratio.
        mean_log_ratio: Mean of the log-ratios; its exponential is the ratio of
            perplexities.
        stddev_log_ratio: Standard deviation of the log-ratios.
        kl: Mean of `kl_loss` of :math:`μ` and :math:`π`, an estimate of
            :math:`KL(μ ‖ π)`.
        chi_squared: Estimate of :math:`χ²(π ‖ μ) = E_μ[w²] - 1`, the variance of the
            ratios. May be negative by chance.
        effective_fraction: Their `effective_sample_size`, divided by the number of
            samples.
    """

    mean_ratio: Float[Array, ""]
    max_log_ratio: Float[Array, ""]
    min_log_ratio: Float[Array, ""]
    mean_log_ratio: Float[Array, ""]
    stddev_log_ratio: Float[Array, ""]
    kl: Float[Array, ""]
    chi_squared: Float[Array, ""]
    effective_fraction: Float[Array, ""]


@checked
def effective_sample_size(
    log_weights: Float[ArrayLike, "..."],
    *,
    sample_mask: Bool[ArrayLike, "..."] | None = None,
    axis_name: AxisName | None = None,
) -> Float[Array, ""]:
    """Compute the effective sample size (ESS) of importance weights.

    Takes samples of any shape, returns one number.

    ::

        ESS = (∑_i w_i)² / ∑_i w_i²,   w_i = e^{l_i}

    It ranges from 1, if one weight dominates, to the number of samples, if all are
    equal. The weights need not be normalised.

    Args:
        log_weights: Log-weights :math:`l_i`, `-inf` for a weight of 0, shape `[...]`.
        sample_mask: False for samples to ignore, shape `[...]`; or None.
        axis_name: Mapped axis name, or names, to sum over; or None.

    Returns:
        The effective sample size, shape `[]`; 0 if all weights are 0.

    Raises:
        ArgumentError: If a shape or dtype is wrong.

    Example:
        >>> weights = jnp.array([1.0, 1.0, 2.0, 0.0])
        >>> print(f"{rlaxlib.effective_sample_size(jnp.log(weights)):.4f}")
        2.6667

    References:
        Augustine Kong, *A Note on Importance Sampling using Standardized Weights*,
        1992. https://victorelvira.github.io/papers/kong92.pdf
    """
    mask = streams.filled(sample_mask, log_weights)
    # Relative to the largest, no weight overflows.
    largest = devices.largest(log_weights, mask, axis_name)
    weights = streams.valid(jnp.exp(log_weights - largest), sample_mask)
    total = devices.total(jnp.sum(weights), axis_name)
    squares = devices.total(jnp.sum(jnp.square(weights)), axis_name)
    return safe.divide(jnp.square(total), squares)


@checked
def importance_statistics(
    log_ratio: Float[ArrayLike, "..."],
    *,
    sample_mask: Bool[ArrayLike, "..."] | None = None,
    axis_name: AxisName | None = None,
) -> ImportanceStatistics:
    """Compute statistics of the importance ratios of two policies.

    Takes samples of any shape, returns one number for each statistic.

    ::

        l_i = log (π(a_i) / μ(a_i)),   w_i = e^{l_i},   a_i ~ μ

    If the mean ratio is far from 1, or the effective fraction far below 1, the samples
    of :math:`μ` do not represent :math:`π`. A few outliers among ratios close to 1 mean
    that the policies were computed differently, for example in another precision.

    Args:
        log_ratio: Log-ratios :math:`l_i` of actions, tokens or sequences, not clipped,
            shape `[...]`. Their gradient is stopped.
        sample_mask: False for samples to ignore, shape `[...]`; or None.
        axis_name: Mapped axis name, or names, to average over; or None.

    Returns:
        An `ImportanceStatistics`; all are 0 if all samples are masked.

    Raises:
        ArgumentError: If a shape or dtype is wrong.

    Example:
        >>> statistics = rlaxlib.importance_statistics(jnp.log(jnp.array([0.5, 1.5])))
        >>> print(f"{statistics.mean_ratio:.2f} {statistics.effective_fraction:.2f}")
        1.00 0.80

    References:
        Jiacai Liu and others, *When Speed Kills Stability: Demystifying RL Collapse
        from the Training-Inference Mismatch*, 2025. https://richardli.xyz/rl-collapse
    """
    x = jax.lax.stop_gradient(log_ratio)
    mask = streams.filled(sample_mask, x)
    count = devices.total(jnp.sum(mask, dtype=x.dtype), axis_name)
    size = effective_sample_size(x, sample_mask=mask, axis_name=axis_name)
    mean = functools.partial(arrays.masked_mean, mask=mask, axis_name=axis_name)

    def largest(y: Array) -> Array:
        most = jnp.max(jnp.where(mask, y, -jnp.inf))
        return jnp.where(count > 0, devices.maximum(most, axis_name), 0)

    return ImportanceStatistics(
        mean_ratio=mean(jnp.exp(x)),
        max_log_ratio=largest(x),
        min_log_ratio=-largest(-x),
        mean_log_ratio=mean(x),
        stddev_log_ratio=jnp.sqrt(_variance(x, mask, axis_name)),
        kl=mean(ratios.k3(x)),
        chi_squared=mean(jnp.expm1(2 * x)),
        effective_fraction=size / jnp.maximum(count, 1),
    )


# --- Data. ---


@checked(compiled=False)
def check_trajectory(
    r_t: Float[ArrayLike, "T"],
    discount_t: Float[ArrayLike, "T"],
    *,
    truncated_t: Bool[ArrayLike, "T"] | None = None,
    sample_mask: Bool[ArrayLike, "T"] | None = None,
    v_t: Float[ArrayLike, "T"] | None = None,
) -> Bool[Array, "T"]:
    """Check that a stream of experience is consistent.

    Takes one stream, returns True or False for each time step.

    ::

        r_t, v_t ∈ ℝ,   -1 ≤ γ_t ≤ 1,   truncated_t ⇒ γ_t ≠ 0,   γ_t = 0 ⇒ m_t

    An episode either terminates or is truncated, and the step that ends it is valid: if
    a mask hides that step, the estimates of the episode run into the next one. The same
    happens if the step before a masked one neither terminates nor is truncated: where
    the last observation of an episode is lost, mask its step and mark it as truncated.
    Other masked steps may hold anything. Discounts of 0 and 1 that are mostly 0 are
    reported as `done` flags.

    Outside `jax.jit`, an inconsistent stream raises an error that lists all problems.
    Inside, `jax.experimental.checkify` reports the first one::

        error, loss = jax.jit(checkify.checkify(loss_function))(...)
        error.throw()

    The error reports which streams of a batch are inconsistent, and where::

        check = checkify.checkify(jax.vmap(rlaxlib.check_trajectory))
        error, ok = check(r_t, discount_t)
        print(error.get(), jnp.argwhere(~ok))  # Rows of stream and step.

    Args:
        r_t: Rewards, shape `[T]`.
        discount_t: Discounts, shape `[T]`.
        truncated_t: True where the stream is cut after a step, shape `[T]`; or None.
        sample_mask: False for time steps to ignore, shape `[T]`; or None.
        v_t: Values of the next observations, shape `[T]`; or None. Where an episode
            terminates, minus infinity is valid, too.

    Returns:
        True for each consistent step, shape `[T]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete stream inconsistent.

    Example:
        >>> r_t, discount_t = jnp.array([0.0, 1.0]), jnp.array([1.0, 0.0])
        >>> print(rlaxlib.check_trajectory(r_t, discount_t))
        [ True  True]

    References:
        Fabio Pardo and others, *Time Limits in Reinforcement Learning*, 2017.
        https://arxiv.org/abs/1712.00378
    """
    r_t, discount_t = jnp.asarray(r_t), jnp.asarray(discount_t)
    v_t = jnp.zeros_like(r_t) if v_t is None else jnp.asarray(v_t)
    mask = streams.filled(sample_mask, r_t)
    cut = jnp.broadcast_to(False if truncated_t is None else truncated_t, r_t.shape)
    in_range, ended = jnp.abs(discount_t) <= 1, discount_t == 0
    # The largest value of a terminal state without legal actions is minus infinity.
    is_value = jnp.isfinite(v_t) | (ended & (v_t == -jnp.inf))
    at = "is {value} at step {step}"
    problems = [
        (mask & ~jnp.isfinite(r_t), f"`r_t` {at}, must be finite", r_t),
        (mask & ~is_value, f"`v_t` {at}, must be finite", v_t),
        (mask & ~in_range, f"`discount_t` {at}, must be in [-1, 1]", discount_t),
        (
            mask & cut & ended,
            f"`truncated_t` {at}, must be False where `discount_t` is 0",
            cut,
        ),
        (
            _lost_ends(ended, cut, mask),
            f"`discount_t` {at}, but `sample_mask` is False: the end of the episode is "
            "lost, and its estimates run into the next one",
            discount_t,
        ),
        (
            _missing_ends(ended, cut, mask),
            f"`sample_mask` {at}, but no step before it ends the episode: if the next "
            "valid step begins another one, set `truncated_t`, or the estimates run "
            "into it",
            mask,
        ),
        (
            _like_done(discount_t, mask),
            f"`discount_t` {at} and 0 at most others, like `done`: it must be the "
            "discount times `1 - terminated`",
            discount_t,
        ),
        (~jnp.any(mask) & ~mask, f"`sample_mask` {at}, and at all others", mask),
    ]
    _report(problems)
    return ~functools.reduce(jnp.logical_or, [wrong for wrong, _, _ in problems])


def _lost_ends(ended: Array, cut: Array, mask: Array) -> Array:
    """Return which masked steps hide the end of an episode.

    No end is lost if the previous valid step ended the episode, if the stream is cut in
    between, or if no valid step comes before or after.
    """
    steps = jnp.arange(mask.size)
    last_valid = jax.lax.cummax(jnp.where(mask, steps, -1))
    last_end = jax.lax.cummax(jnp.where((mask & ended) | cut, steps, -1))
    is_followed = streams.next_valid(mask) < mask.size
    return ~mask & ended & (last_end < last_valid) & is_followed


def _missing_ends(ended: Array, cut: Array, mask: Array) -> Array:
    """Return the first masked step of each gap before which no episode ended."""
    steps = jnp.arange(mask.size)
    last_valid = jax.lax.cummax(jnp.where(mask, steps, -1))
    last_end = jax.lax.cummax(jnp.where(ended | cut, steps, -1))
    following = streams.next_valid(mask)
    # A cut may be marked at any masked step of the gap.
    end_of_gap = last_end[jnp.maximum(following - 1, 0)]
    is_first = ~mask & jnp.pad(mask[:-1], (1, 0))
    is_ended = (last_end >= last_valid) | (end_of_gap >= last_valid)
    return is_first & (following < mask.size) & ~is_ended


def _like_done(discount_t: Array, mask: Array) -> Array:
    """Return the steps of discount 1, if all others are 0 and the majority."""
    ones, zeros = mask & (discount_t == 1), mask & (discount_t == 0)
    flags = jnp.all(ones | zeros | ~mask)
    return ones & flags & (jnp.sum(zeros) > jnp.sum(ones))


def _report(problems: list[tuple[Array, str, Array]]) -> None:
    """Raise an error, directly or through checkify, for each problem found."""
    found: list[str] = []
    for wrong, message, values in problems:
        step = jnp.argmax(wrong)
        value = indexing.pick(values, step)
        if isinstance(wrong, Tracer):
            text = f"check_trajectory: {message}."
            checkify.check(~jnp.any(wrong), text, step=step, value=value)
        elif jnp.any(wrong):
            found.append(message.format(step=step, value=value))
    if found:
        checks.fail(". ".join(found))
