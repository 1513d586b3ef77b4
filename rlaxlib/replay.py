"""Replay: prioritised replay (PER), resampling and hindsight (HER).

All results are data: none of these functions has a gradient.
"""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient

from rlaxlib import arrays
from rlaxlib._core import devices, meshes, safe, streams
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import (
    Array,
    ArrayLike,
    AxisName,
    Bool,
    Float,
    Int,
    Key,
    Static,
)

__all__ = [
    "hindsight_indices",
    "importance_sampling_weights",
    "prioritized_probabilities",
    "rank_probabilities",
    "sequence_priority",
    "stratified_sample",
    "systematic_resample",
]


@checked
def prioritized_probabilities(
    priorities: Float[ArrayLike, "N in [0, inf)"],
    exponent: Float[ArrayLike, "in [0, inf)"] = 0.6,
    *,
    sample_mask: Bool[ArrayLike, "N"] | None = None,
    axis_name: AxisName | None = None,
) -> Float[Array, "N"]:
    """Compute proportional prioritised replay (PER) probabilities.

    Takes one priority for each entry of the buffer, returns one probability for each.

    ::

        P_i = p_i^α / ∑_j p_j^α

    The usual priority is :math:`|δ_i| + ε`, the magnitude of the last TD error plus a
    small constant such as 0.01. The exponent applies to this sum.

    Args:
        priorities: Priority :math:`p_i` of each entry, in [0, inf), shape `[N]`. With
            :math:`α > 0`, an entry of 0 is not sampled, unless all are 0: then sampling
            is uniform.
        exponent: Exponent :math:`α`, in [0, inf), shape `[]`. At 0, sampling is
            uniform.
        sample_mask: False for entries that do not exist, shape `[N]`; or None.
        axis_name: Mapped axis name, or names, of the buffer; or None.

    Returns:
        Probabilities, shape `[N]`, 0 at masked entries.

    Raises:
        ArgumentError: If a shape, dtype, scalar or (unmasked) NumPy value is wrong.

    Example:
        >>> print(rlaxlib.prioritized_probabilities(jnp.array([1.0, 3.0]), 1.0))
        [0.25 0.75]

    References:
        Tom Schaul and others, *Prioritized Experience Replay*, section 3.3, 2015.
        https://arxiv.org/abs/1511.05952
    """
    p, alpha = stop_gradient((priorities, exponent))
    exists = streams.filled(sample_mask, p)
    # Relative to the largest priority, no power overflows.
    largest = devices.largest(p, exists, axis_name)
    p = p / jnp.where(largest > 0, largest, 1)
    return _normalize(p**alpha, exists, axis_name)


@checked
def rank_probabilities(
    priorities: Float[ArrayLike, "N"],
    exponent: Float[ArrayLike, "in [0, inf)"] = 0.7,
    *,
    sample_mask: Bool[ArrayLike, "N"] | None = None,
) -> Float[Array, "N"]:
    """Compute rank-based prioritised replay (PER) probabilities.

    Takes one priority for each entry of the buffer, returns one probability for each.

    ::

        P_i = k_i^{-α} / ∑_j k_j^{-α},   k_i = rank of p_i, 1 for the largest

    Outliers, such as the errors of rewards that are not clipped, have little influence.
    With clipped errors, the paper finds no advantage over `prioritized_probabilities`.

    Args:
        priorities: Priority :math:`p_i` of any sign, shape `[N]`; the first of equals
            is higher.
        exponent: Exponent :math:`α`, in [0, inf), shape `[]`. At 0, sampling is
            uniform.
        sample_mask: False for entries that do not exist, shape `[N]`; or None.

    Returns:
        Probabilities, shape `[N]`, 0 at masked entries.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> print(rlaxlib.rank_probabilities(jnp.array([-1.0, 0.5, 70.0]), 1.0) * 11)
        [2. 3. 6.]

    References:
        Tom Schaul and others, *Prioritized Experience Replay*, section 3.3, 2015.
        https://arxiv.org/abs/1511.05952
    """
    p, alpha = stop_gradient((priorities, exponent))
    exists = streams.filled(sample_mask, p)
    order = jnp.argsort(jnp.where(exists, -p, jnp.inf))
    ranks = meshes.unsort(order, jnp.arange(1, p.size + 1, dtype=p.dtype))
    return _normalize(ranks**-alpha, exists, None)


@checked
def importance_sampling_weights(
    probs: Float[ArrayLike, "N in [0, inf)"],
    exponent: Float[ArrayLike, "in [0, inf)"],
    *,
    sample_mask: Bool[ArrayLike, "N"] | None = None,
    axis_name: AxisName | None = None,
) -> Float[Array, "N"]:
    """Compute the importance-sampling weights of prioritised replay (PER).

    Takes one probability for each sample, returns one weight for each.

    ::

        w_i = (N P_i)^{-β} / (max_j (N P_j)^{-β}) = ((min_j P_j) / P_i)^β

    An exponent of 1 corrects the bias of prioritised sampling fully; the paper raises
    it from 0.4 to 1. The largest weight of the batch is 1, as the authors confirmed.
    OpenAI Baselines divides by the largest of the buffer, where one entry of low
    priority shortens all updates: pass the whole buffer, and index the result.

    Args:
        probs: Probability :math:`P_i` of each entry of the batch or buffer,
            in [0, inf), shape `[N]`. They need not sum to 1.
        exponent: Exponent :math:`β`, in [0, inf), shape `[]`.
        sample_mask: False for entries that do not exist, shape `[N]`; or None.
        axis_name: Mapped axis name, or names, of the batch; or None.

    Returns:
        Weights, shape `[N]`, 0 at entries that are masked or of probability 0.

    Raises:
        ArgumentError: If a shape, dtype, scalar or NumPy value is wrong.

    Example:
        >>> print(rlaxlib.importance_sampling_weights(jnp.array([0.1, 0.4]), 0.5))
        [1.  0.5]

    References:
        Tom Schaul and others, *Prioritized Experience Replay*, section 3.4, 2015.
        https://arxiv.org/abs/1511.05952

        Yasuhiro Fujita, *Replicate Prioritized Experience Replay's reported performance
        improvements*, 2018, with the authors' answer.
        https://github.com/chainer/chainerrl/issues/278
    """
    p, beta = stop_gradient((probs, exponent))
    sampled = p != 0  # Masked entries are 0.
    least = jnp.min(jnp.where(sampled, p, jnp.inf))
    smallest = -devices.maximum(-least, axis_name)
    ratios = smallest / jnp.where(sampled, p, 1)
    return jnp.where(sampled, ratios**beta, 0)


@checked
def sequence_priority(
    td_errors: Float[ArrayLike, "T"],
    mix: Float[ArrayLike, "in [0, 1]"] = 0.9,
    *,
    sample_mask: Bool[ArrayLike, "T"] | None = None,
) -> Float[Array, ""]:
    """Compute the replay priority of a sequence from its TD errors (R2D2).

    Takes the TD errors of one sequence, returns one priority.

    ::

        p = η max_t |δ_t| + (1 - η) (1/T) ∑_t |δ_t|

    The mean alone would average out the errors of long sequences.

    Args:
        td_errors: TD errors :math:`δ_t`, shape `[T]`.
        mix: Weight :math:`η` of the maximum, in [0, 1], shape `[]`.
        sample_mask: False for steps to ignore, such as those of the burn-in,
            `jnp.arange(T) >= burn_in`, shape `[T]`; or None.

    Returns:
        The priority, shape `[]`; 0 if all steps are masked.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> mask = jnp.arange(3) >= 1  # The first step is the burn-in.
        >>> td_errors = jnp.array([9.0, 4.0, -2.0])
        >>> print(rlaxlib.sequence_priority(td_errors, mix=0.5, sample_mask=mask))
        3.5

    References:
        Steven Kapturowski and others, *Recurrent Experience Replay in Distributed
        Reinforcement Learning*, section 2.3, 2019.
        https://openreview.net/forum?id=r1lyTjAqYX
    """
    errors, mix = stop_gradient((jnp.abs(td_errors), mix))
    mean = arrays.masked_mean(errors, mask=sample_mask)
    return mix * jnp.max(errors) + (1 - mix) * mean


@checked
def stratified_sample(
    key: Key[ArrayLike, ""],
    probs: Float[ArrayLike, "N in [0, inf)"],
    num_samples: Static[int, "in [1, inf)"],
) -> Int[Array, "num_samples"]:
    """Sample the indices of a replay batch by stratified sampling.

    Takes one probability for each entry of the buffer, returns indices.

    ::

        i_k = min {i : ∑_{j ≤ i} P_j > (k + u_k) / K},   u_k ~ U[0, 1)

    Indices have the expected counts of independent samples, with a lower variance. In
    single precision, cumulative sums are rounded by 6e-8 of the total: an average one
    of a million probabilities is off by some percent. With more entries, sample in
    double precision or in two stages.

    Args:
        key: Random key, shape `[]`.
        probs: Probability :math:`P_i` of each entry, in [0, inf), shape `[N]`.
            They need not sum to 1. An entry of 0 is never sampled.
        num_samples: Number :math:`K` of samples, in [1, inf).

    Returns:
        Indices in ascending order, shape `[num_samples]`; the out-of-range N if all
        probabilities are 0.

    Raises:
        ArgumentError: If a shape, dtype, integer or NumPy value is wrong.

    Example:
        >>> probs = jnp.array([0.5, 0.0, 0.25, 0.25])
        >>> print(rlaxlib.stratified_sample(jax.random.key(0), probs, 4))
        [0 0 2 3]

    References:
        Tom Schaul and others, *Prioritized Experience Replay*, appendix B.2.1, 2015.
        https://arxiv.org/abs/1511.05952
    """
    u = jax.random.uniform(key, (num_samples,), probs.dtype)
    return _invert(probs, u, num_samples)


@checked
def systematic_resample(
    key: Key[ArrayLike, ""],
    weights: Float[ArrayLike, "N in [0, inf)"],
    num_samples: Static[int, "in [1, inf)"] | None = None,
) -> Int[Array, "num_samples"]:
    """Sample the indices of particles by systematic resampling.

    Takes one weight for each particle, returns indices.

    ::

        i_k = min {i : ∑_{j ≤ i} W_j > (k + u) / K},   u ~ U[0, 1),
        W_j = w_j / ∑_l w_l

    A particle gets :math:`K W_i` copies, rounded down or up, and that number in
    expectation. Resample if `effective_sample_size` is small, then reset the weights.

    Args:
        key: Random key, shape `[]`.
        weights: Weight :math:`w_i` of each particle, in [0, inf), of any sum,
            shape `[N]`.
        num_samples: Number :math:`K` of samples, in [1, inf); or None for N.

    Returns:
        Indices in ascending order, shape `[num_samples]`; the out-of-range N if all
        weights are 0.

    Raises:
        ArgumentError: If a shape, dtype, integer or NumPy value is wrong.

    Example:
        >>> weights = jnp.array([0.5, 0.0, 0.25, 0.25])
        >>> print(rlaxlib.systematic_resample(jax.random.key(0), weights))
        [0 0 2 3]

    References:
        Randal Douc, Olivier Cappé and Eric Moulines, *Comparison of Resampling Schemes
        for Particle Filtering*, 2005. https://arxiv.org/abs/cs/0507025
    """
    u = jax.random.uniform(key, (), weights.dtype)
    return _invert(weights, u, weights.size if num_samples is None else num_samples)


@checked
def hindsight_indices(
    key: Key[ArrayLike, ""],
    discount_t: Float[ArrayLike, "T in [-1, 1]"],
    kind: Literal[
        "future", "episode", "final", "geometric", "truncated_geometric"
    ] = "future",
    discount: Float[ArrayLike, "in [0, 1]"] = 0.99,
    *,
    truncated_t: Bool[ArrayLike, "T"] | None = None,
    sample_mask: Bool[ArrayLike, "T"] | None = None,
) -> Int[Array, "T"]:
    """Sample the goals of hindsight experience replay (HER) for each time step.

    Takes one stream, returns one index for each time step.

    ::

        g_t = achieved_{i_t},
        i_t ~ { U{t, …, e_t}      future
              { U{b_t, …, e_t}    episode
              { e_t               final
              { min(t + k, e_t)   geometric
              { t + k ≤ e_t       truncated geometric,   P(k) ∝ γ^k

    Here :math:`b_t` and :math:`e_t` are the first and last step of the episode of step
    :math:`t`, which ends by termination, by truncation or with the stream. HER samples
    4 future goals a step: map over several keys. OGBench has geometric distances, which
    beyond the episode become the final goal. Truncated ones follow the discounted
    distribution of future states, which contrastive RL estimates.

    An index refers to the goals achieved after a step, which have the index of `r_t`.
    The final state may be a goal, and the outcome of a step its own goal.

    Args:
        key: Random key, shape `[]`.
        discount_t: Discounts in [-1, 1], 0 where the episode ends, shape `[T]`.
        kind: Steps to sample from: `"future"`, `"episode"`, `"final"`, `"geometric"` or
            `"truncated_geometric"`.
        discount: Factor :math:`γ` in [0, 1] of geometric distances, such as the
            discount of the agent, shape `[]`.
        truncated_t: True where the stream is cut after a step, shape `[T]`; or None.
        sample_mask: False for time steps to ignore, shape `[T]`; or None. Such steps
            are not sampled, and their discounts end no episode.

    Returns:
        Index :math:`i_t` of the goal of each step, shape `[T]`; its own where masked.

    Raises:
        ArgumentError: If a shape, dtype or `kind` is wrong, or a concrete value out
            of range.

    Example:
        >>> discount_t = jnp.array([0.9, 0.9, 0.0, 0.9, 0.0])
        >>> print(rlaxlib.hindsight_indices(jax.random.key(0), discount_t, "final"))
        [2 2 2 4 4]

    References:
        Marcin Andrychowicz and others, *Hindsight Experience Replay*, sections 3.3 and
        4.5, 2017. https://arxiv.org/abs/1707.01495

        Benjamin Eysenbach and others, *Contrastive Learning as Goal-Conditioned
        Reinforcement Learning*, 2022. https://arxiv.org/abs/2206.07568

        Seohong Park and others, *OGBench: Benchmarking Offline Goal-Conditioned RL*,
        2024. https://arxiv.org/abs/2410.20092
    """
    number, last, end = streams.segments(discount_t, truncated_t, sample_mask)
    left = last - number
    if kind == "final":
        number = last
    elif kind in ("future", "episode"):
        first = streams.first_of(number, end) if kind == "episode" else number
        number = jax.random.randint(key, last.shape, first, last + 1, last.dtype)
    else:
        u = jax.random.uniform(key, left.shape, discount_t.dtype)
        # The logarithm of 1 is 0, and distances divided by it would be NaN.
        largest = 1 - float(jnp.finfo(discount.dtype).epsneg)
        log_gamma = jnp.log(jnp.minimum(discount, largest))
        if kind == "truncated_geometric":
            u = u * -jnp.expm1((left + 1).astype(u.dtype) * log_gamma)
        # The inverse of the distribution function, 1 - γ^(k+1).
        distance = jnp.floor(jnp.log1p(-u) / log_gamma)
        distance = jnp.minimum(distance, left.astype(u.dtype)).astype(number.dtype)
        number = number + distance
    return streams.step_of(number, sample_mask)


def _normalize(shares: Array, mask: Array, axis_name: AxisName | None) -> Array:
    """Return shares divided by their sum, or equal probabilities if all are 0."""
    shares = jnp.where(mask, shares, 0)
    equal = devices.total(jnp.sum(shares), axis_name) == 0
    shares = jnp.where(equal, mask.astype(shares.dtype), shares)
    total = devices.total(jnp.sum(shares), axis_name)
    return safe.divide(shares, total)


def _invert(weights: Array, offsets: Array, num_samples: int) -> Array:
    """Invert the cumulative distribution at evenly spaced points.

    Args:
        weights: Weight of each entry, shape `[N]`.
        offsets: Offset of each point within its range, in [0, 1), shape `[num_samples]`
            or `[]`.
        num_samples: Number of points.

    Returns:
        Indices of entries, shape `[num_samples]`.
    """
    weights = stop_gradient(weights)
    # A cumulative sum computed in parallel may decrease by rounding, and the last point
    # may round to the total. Both would select an entry of weight 0.
    cumulative = jnp.cumsum(weights)
    bounds = jax.lax.cummax(jnp.where(weights > 0, cumulative, 0))
    total = bounds[-1]
    points = (jnp.arange(num_samples, dtype=weights.dtype) + offsets) / num_samples
    points = jnp.minimum(points * total, jnp.nextafter(total, jnp.zeros_like(total)))
    return meshes.search(bounds, points)
