"""Diagnostics of values, policy divergence, networks and data.

- Values: explained variance, bias.
- Policy divergence, from log-ratios: approximate KL, clip fraction, effective sample
  size. The outputs of `ppo_clip_loss` and its variants have them as `log_ratio`.
- Networks: dormant neurons, effective rank.
- Data: consistency of a trajectory.
"""

from __future__ import annotations

import functools
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.experimental import checkify

from rlaxlib import arrays, plasticity
from rlaxlib._core import checks, devices, indexing, moments, ratios, safe, streams
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, AxisName, Bool, Float, Int, Static

__all__ = [
    "ImportanceStatistics",
    "approximate_kl",
    "check_trajectory",
    "dormant_fraction",
    "effective_rank",
    "effective_sample_size",
    "explained_variance",
    "importance_statistics",
    "value_bias",
]


# --- Values. ---


@checked
def explained_variance(
    predictions: Float[ArrayLike, "..."],
    targets: Float[ArrayLike, "..."],
    *,
    sample_mask: Bool[ArrayLike, "..."] | None = None,
    axis_name: AxisName | None = None,
    count_bias: Static[bool, ""] = False,
) -> Float[Array, ""]:
    """Compute the fraction of the variance of targets that predictions explain.

    Takes samples of any shape, returns one number.

    ::

        1 - Var[y - ŷ] / Var[y]

    It is 1 for perfect predictions, 0 for a constant, and negative for predictions that
    are worse than a constant. It ignores a constant bias, which `value_bias` measures.

    Args:
        predictions: Predictions :math:`ŷ`, such as values, shape `[...]`.
        targets: Targets :math:`y`, such as returns, shape `[...]`.
        sample_mask: False for samples to ignore, shape `[...]`; or None.
        axis_name: Mapped axis name, or names, to average over; or None.
        count_bias: Whether to use the mean squared error, which gives :math:`R²`.

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
    errors = targets - predictions
    if count_bias:
        mean = arrays.masked_mean
        left = mean(x=jnp.square(errors), mask=sample_mask, axis_name=axis_name)
    else:
        left = _variance(errors, sample_mask, axis_name)
    variance = _variance(targets, sample_mask, axis_name)
    return 1 - safe.divide(left, variance, otherwise=1)


@checked
def value_bias(
    values: Float[ArrayLike, "..."],
    returns: Float[ArrayLike, "..."],
    *,
    sample_mask: Bool[ArrayLike, "..."] | None = None,
    axis_name: AxisName | None = None,
    normalize: Static[bool, ""] = False,
) -> Float[Array, ""]:
    """Compute the mean overestimation bias of values.

    Takes samples of any shape, returns one number.

    ::

        (1/n) ∑_i (q_i - G_i)   or, normalized,
        (∑_i (q_i - G_i)) / |∑_i G_i|

    Compare with discounted returns of the same policy from the same states and actions,
    without truncation; for soft values, with entropy bonuses.

    Args:
        values: Values :math:`q_i`, shape `[...]`.
        returns: Returns :math:`G_i`, shape `[...]`.
        sample_mask: False for samples to ignore, shape `[...]`; or None.
        axis_name: Mapped axis name, or names, to average over; or None.
        normalize: Whether to divide by the magnitude of the mean return.

    Returns:
        The bias, shape `[]`, positive if values are too large; 0 if all samples are
        masked, or if `normalize` and the mean return is 0.

    Raises:
        ArgumentError: If a shape or dtype is wrong.

    Example:
        >>> values, returns = jnp.array([3.0, 5.0]), jnp.array([2.0, 4.0])
        >>> print(rlaxlib.value_bias(values, returns))
        1.0

    References:
        Xinyue Chen and others, *Randomized Ensembled Double Q-Learning: Learning Fast
        Without a Model*, section 2.1, 2021. https://arxiv.org/abs/2101.05982
    """
    mean = functools.partial(arrays.masked_mean, mask=sample_mask, axis_name=axis_name)
    bias = mean(values - returns)
    if not normalize:
        return bias
    return safe.divide(bias, jnp.abs(mean(returns)))


def _variance(x: Array, mask: Array | None, axis_name: AxisName | None) -> Array:
    """Return the variance of the unmasked entries."""
    return moments.of(x, streams.filled(mask, x), axis_name).variance


# --- Policy divergence. ---


class ImportanceStatistics(NamedTuple):
    """Statistics of importance ratios :math:`w_i`, shape `[]` each.

    Attributes:
        mean_ratio: Mean of the ratios; far from 1 if there are too few samples.
        max_log_ratio: Largest log-ratio.
        min_log_ratio: Smallest log-ratio.
        mean_log_ratio: Mean of the log-ratios; its exponential is the ratio of
            perplexities.
        stddev_log_ratio: Standard deviation of the log-ratios.
        kl: The k3 estimate of :math:`KL(μ ‖ π)` of `approximate_kl`, not negative.
        chi_squared: Estimate of :math:`χ²(π ‖ μ) = E_μ[w²] - 1`, the variance of the
            ratios. May be negative by chance.
        effective_sample_size: The result of `effective_sample_size`.
        effective_fraction: The same, divided by the number of samples.
    """

    mean_ratio: Float[Array, ""]
    max_log_ratio: Float[Array, ""]
    min_log_ratio: Float[Array, ""]
    mean_log_ratio: Float[Array, ""]
    stddev_log_ratio: Float[Array, ""]
    kl: Float[Array, ""]
    chi_squared: Float[Array, ""]
    effective_sample_size: Float[Array, ""]
    effective_fraction: Float[Array, ""]


@checked
def approximate_kl(
    log_ratio: Float[ArrayLike, "..."],
    kind: Literal["k1", "k2", "k3"] = "k3",
    *,
    sample_mask: Bool[ArrayLike, "..."] | None = None,
    axis_name: AxisName | None = None,
) -> Float[Array, ""]:
    """Estimate the KL divergence of two policies from samples (k1, k2, k3).

    Takes samples of any shape, returns one number.

    ::

        KL(μ ‖ π) ≈ (1/n) ∑_i k(l_i),   l_i = log (π(a_i) / μ(a_i)),   a_i ~ μ
        k_1 = -l,   k_2 = ½ l²,   k_3 = e^l - 1 - l

    k1 and k3 are unbiased. k3 is never negative and has the lowest variance when the
    policies are close: use it for early stopping. k2 is biased, little when they are
    close, and grows quadratically, k3 exponentially.

    Which one to differentiate depends on the policy that sampled the actions:

    - The behaviour policy :math:`μ`, as in PPO: the gradients of k1 and k3 are unbiased
      for that of :math:`KL(μ ‖ π)`.
    - The policy :math:`π` that is trained, as for a penalty :math:`KL(π ‖ ρ)` to a
      reference :math:`ρ` with :math:`l = log (ρ(a) / π(a))`: only the gradient of k2 is
      unbiased. That of k1 is 0 in expectation, that of k3 belongs to
      :math:`KL(ρ ‖ π)`.

    Args:
        log_ratio: Log-ratios :math:`l_i`, shape `[...]`.
        kind: `"k1"`, `"k2"` or `"k3"`.
        sample_mask: False for samples to ignore, shape `[...]`; or None.
        axis_name: Mapped axis name, or names, to average over; or None.

    Returns:
        The estimate in nats, shape `[]`; 0 if all samples are masked.

    Raises:
        ArgumentError: If a shape, dtype or `kind` is wrong.

    Example:
        >>> log_ratio = jnp.log(jnp.array([0.5, 2.0]))
        >>> print(rlaxlib.approximate_kl(log_ratio, "k3"))
        0.25

    References:
        John Schulman, *Approximating KL Divergence*, 2020.
        http://joschu.net/blog/kl-approx.html
    """
    x = log_ratio
    k = {"k1": -x, "k2": 0.5 * jnp.square(x), "k3": ratios.k3(x)}
    return arrays.masked_mean(x=k[kind], mask=sample_mask, axis_name=axis_name)


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
        >>> print(f"{statistics.mean_ratio:.2f} {statistics.effective_sample_size:.2f}")
        1.00 1.60

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
        effective_sample_size=size,
        effective_fraction=size / jnp.maximum(count, 1),
    )


# --- Networks. ---


@checked
def dormant_fraction(
    activations: Float[ArrayLike, "..., H"],
    threshold: Float[ArrayLike, "in [0, inf)"] = 0.025,
    *,
    sample_mask: Bool[ArrayLike, "..."] | None = None,
    axis_name: AxisName | None = None,
) -> Float[Array, ""]:
    """Compute the fraction of dormant neurons of a layer.

    Takes the activations of one layer for a batch of inputs, returns one number.

    ::

        (1/H) ∑_i 1[s_i ≤ τ],   s_i = E_x[|h_i(x)|] / ((1/H) ∑_k E_x[|h_k(x)|])

    Pass the activations after the nonlinearity. The neurons of a convolution are its
    channels: batch and space are both averaged over.

    Args:
        activations: Activations :math:`h_i(x)` of :math:`H` neurons, shape `[..., H]`.
        threshold: Largest score :math:`τ` of a dormant neuron, in [0, inf), usually
            0.025 to 0.1, shape `[]`.
        sample_mask: False for inputs to ignore, shape `[...]`; or None.
        axis_name: Mapped axis name, or names, of the inputs; or None.

    Returns:
        The fraction, shape `[]`; 1 if all activations are 0.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> activations = jnp.array([[0.0, 1.0, 5.0, 0.01], [0.0, 3.0, 7.0, 0.03]])
        >>> print(rlaxlib.dormant_fraction(activations))
        0.5

    References:
        Ghada Sokar and others, *The Dormant Neuron Phenomenon in Deep Reinforcement
        Learning*, section 3, 2023. https://arxiv.org/abs/2302.12902
    """
    dormant = plasticity.redo_mask(
        activations, threshold, sample_mask=sample_mask, axis_name=axis_name
    )
    return jnp.mean(dormant, dtype=activations.dtype)


@checked
def effective_rank(
    features: Float[ArrayLike, "B, D"],
    threshold: Float[ArrayLike, "in [0, 1)"] = 0.01,
    *,
    sample_mask: Bool[ArrayLike, "B"] | None = None,
    axis_name: AxisName | None = None,
) -> Int[Array, ""]:
    """Compute the effective rank (srank) of features.

    Takes the features of a batch of inputs, returns one number.

    ::

        srank_δ(Φ) = min {k : (∑_{i ≤ k} σ_i(Φ)) / ∑_i σ_i(Φ) ≥ 1 - δ}

    Here :math:`σ_i` are the singular values in descending order. Definitions by squared
    singular values, or by the exponential of their entropy, are not comparable. The
    time is proportional to :math:`B D min(B, D)`: some thousand inputs are enough.

    Args:
        features: Features :math:`Φ` of B inputs, such as the last hidden layer,
            shape `[B, D]`.
        threshold: Fraction :math:`δ` that may be left out, in [0, 1), shape `[]`.
        sample_mask: False for inputs to ignore, shape `[B]`; or None.
        axis_name: Mapped axis name, or names, of the inputs; or None.

    Returns:
        The rank, an integer, shape `[]`; 0 if all features are 0.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> features = jnp.diag(jnp.array([10.0, 10.0, 0.1]))
        >>> print(rlaxlib.effective_rank(features))
        2

    References:
        Aviral Kumar and others, *Implicit Under-Parameterization Inhibits
        Data-Efficient Deep Reinforcement Learning*, section 3, 2020.
        https://arxiv.org/abs/2010.14498
    """
    whole = devices.gather(features, axis_name)  # Ignored inputs are 0.
    sigma = jnp.linalg.svd(whole, compute_uv=False)
    # Sum from the smallest: `1 - sum` would lose small values by rounding.
    left = jnp.cumsum(sigma[::-1])[::-1]
    # `jax.shard_map` cannot infer that all devices have the same value.
    return devices.maximum(jnp.sum(left > threshold * left[0]), axis_name)


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
    taken for flags of ends, `done`, in their place.

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
