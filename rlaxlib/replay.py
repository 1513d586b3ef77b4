"""Replay: prioritised replay (PER), burn-in, resampling and hindsight (HER).

All results are data: none of these functions has a gradient.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib import arrays
from rlaxlib._core import checks, devices, streams
from rlaxlib._core.devices import AxisName

__all__ = [
    "burn_in_mask",
    "hindsight_indices",
    "importance_sampling_weights",
    "prioritized_probabilities",
    "rank_probabilities",
    "sequence_priority",
    "stratified_sample",
    "systematic_resample",
]


def prioritized_probabilities(
    priorities: ArrayLike,
    exponent: ArrayLike = 0.6,
    *,
    sample_mask: ArrayLike | None = None,
    axis_name: AxisName | None = None,
) -> Array:
    """Compute proportional prioritised replay (PER) probabilities.

    Takes one priority for each entry of the buffer, returns one probability for each.

    .. math::

        P_i = p_i^α / ∑_j p_j^α

    The priority is the magnitude of the last TD error plus a small constant, so that
    every entry is sampled: :math:`p_i = |δ_i| + ε`, with an :math:`ε` of 0.01 according
    to the authors. The exponent applies to the sum; :math:`|δ_i|^α + ε` would be
    another distribution.

    Args:
        priorities: Priority :math:`p_i` of each entry, not negative, shape `[N]`. An
            entry of priority 0 is never sampled if :math:`α > 0`, unless all are 0:
            then all entries are equally likely.
        exponent: Exponent :math:`α ≥ 0`, shape `[]`. At 0 all entries are equally
            likely; the paper uses 0.6.
        sample_mask: False for entries that do not exist, in a buffer that is not full,
            shape `[N]`; or None.
        axis_name: Mapped axis name, or names, of the buffer; or None.

    Returns:
        Probabilities, shape `[N]`, 0 at masked entries.

    Raises:
        ArgumentError: If a shape or dtype is wrong, if a concrete `exponent` is
            negative, or if a NumPy priority is negative and there is no mask.

    Example:
        >>> print(rlaxlib.prioritized_probabilities(jnp.array([1.0, 3.0]), 1.0))
        [0.25 0.75]

    References:
        Tom Schaul and others, *Prioritized Experience Replay*, section 3.3, 2015.
        https://arxiv.org/abs/1511.05952
    """
    p, exponent, exists, narrow = checks.widened(
        priorities=(priorities, "float[N]"),
        exponent=(exponent, "float[] in [0, inf)"),
        sample_mask=(sample_mask, "bool[N] or None"),
    )
    if sample_mask is None:  # Masked entries may hold anything.
        checks.within("[0, inf)", priorities=priorities)
    p, exponent = jax.lax.stop_gradient((p, exponent))
    exists = _exists(p, exists)
    # Relative to the largest priority, no power overflows.
    largest = devices.largest(p, exists, axis_name)
    p = p / jnp.where(largest > 0, largest, 1)
    return narrow(_normalize(p**exponent, exists, axis_name))


def rank_probabilities(
    priorities: ArrayLike,
    exponent: ArrayLike = 0.7,
    *,
    sample_mask: ArrayLike | None = None,
) -> Array:
    """Compute rank-based prioritised replay (PER) probabilities.

    Takes one priority for each entry of the buffer, returns one probability for each.

    .. math::

        P_i = k_i^{-α} / ∑_j k_j^{-α},   k_i = rank of p_i, 1 for the largest

    The distribution is heavy-tailed for priorities of any magnitude, so it is
    insensitive to outliers, such as the errors of rewards that are not clipped. With
    clipped errors, the paper finds it no better than `prioritized_probabilities`.

    Args:
        priorities: Priority :math:`p_i` of each entry, of any sign, shape `[N]`. Of
            equal priorities, the first ranks highest.
        exponent: Exponent :math:`α ≥ 0`, shape `[]`. At 0 all entries are equally
            likely; the paper uses 0.7.
        sample_mask: False for entries that do not exist, which have no rank,
            shape `[N]`; or None.

    Returns:
        Probabilities, shape `[N]`, 0 at masked entries.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> print(rlaxlib.rank_probabilities(jnp.array([0.1, 9.0, 0.2, 0.0]), 0.0))
        [0.25 0.25 0.25 0.25]
        >>> print(rlaxlib.rank_probabilities(jnp.array([-1.0, 0.5, 70.0]), 1.0) * 11)
        [2. 3. 6.]

    References:
        Tom Schaul and others, *Prioritized Experience Replay*, section 3.3, 2015.
        https://arxiv.org/abs/1511.05952
    """
    p, exponent, exists, narrow = checks.widened(
        priorities=(priorities, "float[N]"),
        exponent=(exponent, "float[] in [0, inf)"),
        sample_mask=(sample_mask, "bool[N] or None"),
    )
    p, exponent = jax.lax.stop_gradient((p, exponent))
    exists = _exists(p, exists)
    order = jnp.argsort(jnp.where(exists, -p, jnp.inf))
    ranks = jnp.zeros_like(p).at[order].set(jnp.arange(1, p.size + 1, dtype=p.dtype))
    shares = jnp.where(jnp.isnan(p), p, ranks**-exponent)
    return narrow(_normalize(shares, exists, None))


def importance_sampling_weights(
    probabilities: ArrayLike,
    exponent: ArrayLike,
    normalize_by: str = "batch",
    *,
    min_probability: ArrayLike | None = None,
    sample_mask: ArrayLike | None = None,
    axis_name: AxisName | None = None,
) -> Array:
    """Compute the importance-sampling weights of prioritised replay (PER).

    Takes one probability for each sample, returns one weight for each.

    .. math::

        w_i = (N P_i)^{-β} / (max_j (N P_j)^{-β}) = ((min_j P_j) / P_i)^β

    The weights correct the bias of prioritised sampling, fully with an exponent of 1.
    The largest is 1, so that they only shorten updates; the number of entries :math:`N`
    cancels. The paper raises the exponent from 0.4 to 1 during training.

    The maximum is over the batch with `"batch"`, as the authors confirmed: a weight
    then depends on the other samples. With `"buffer"` it is over the whole buffer, as
    in OpenAI Baselines: then a single entry of low priority shortens all updates.

    Args:
        probabilities: Probability :math:`P_i` of each entry of the batch, or of the
            whole buffer, shape `[N]`. They need not sum to 1.
        exponent: Exponent :math:`β`, in [0, 1], shape `[]`.
        normalize_by: `"batch"` to divide by the largest of these weights, `"buffer"` to
            divide by the largest in the buffer.
        min_probability: For `"buffer"`, the smallest positive probability in the
            buffer, on the same scale, shape `[]`; or None if `probabilities` are those
            of the whole buffer.
        sample_mask: False for entries that do not exist, shape `[N]`; or None.
        axis_name: Mapped axis name, or names, of the batch; or None.

    Returns:
        Weights, shape `[N]`, 0 at masked entries and at entries of probability 0.

    Raises:
        ArgumentError: If a shape or dtype is wrong, if a concrete `exponent` or
            `min_probability` is out of range, if a NumPy probability is negative and
            there is no mask, if `normalize_by` is not one of the two, or if
            `min_probability` is given with `"batch"`.

    Example:
        >>> probabilities = jnp.array([0.1, 0.4])
        >>> print(rlaxlib.importance_sampling_weights(probabilities, 0.5))
        [1.  0.5]
        >>> print(rlaxlib.importance_sampling_weights(
        ...     probabilities, 0.5, "buffer", min_probability=0.025
        ... ))
        [0.5  0.25]

    References:
        Tom Schaul and others, *Prioritized Experience Replay*, section 3.4, 2015.
        https://arxiv.org/abs/1511.05952

        Yasuhiro Fujita, *Replicate Prioritized Experience Replay's reported performance
        improvements*, 2018, with the authors' answer.
        https://github.com/chainer/chainerrl/issues/278
    """
    p, exponent, smallest, exists, narrow = checks.widened(
        probabilities=(probabilities, "float[N]"),
        exponent=(exponent, "float[] in [0, 1]"),
        min_probability=(min_probability, "float[] in (0, inf) or None"),
        sample_mask=(sample_mask, "bool[N] or None"),
    )
    if sample_mask is None:  # Masked entries may hold anything.
        checks.within("[0, inf)", probabilities=probabilities)
    if normalize_by not in ("batch", "buffer"):
        checks.fail(f'`normalize_by` is {normalize_by!r}, must be "batch" or "buffer"')
    if normalize_by == "batch" and min_probability is not None:
        checks.fail('`min_probability` must be None unless `normalize_by` is "buffer"')
    p, exponent, smallest = jax.lax.stop_gradient((p, exponent, smallest))
    sampled = _exists(p, exists) & (p != 0)
    if smallest is None:
        least = jnp.min(p, initial=jnp.inf, where=sampled)
        smallest = -devices.maximum(-least, axis_name)
    ratios = smallest / jnp.where(sampled, p, 1)
    return narrow(jnp.where(sampled, ratios**exponent, 0))


def sequence_priority(
    td_errors: ArrayLike,
    eta: ArrayLike = 0.9,
    *,
    sample_mask: ArrayLike | None = None,
) -> Array:
    """Compute the replay priority of a sequence from its TD errors (R2D2).

    Takes the TD errors of one sequence, returns one priority.

    .. math::

        p = η max_t |δ_t| + (1 - η) (1/T) ∑_t |δ_t|

    The mean alone would average out the errors of long sequences, and the priorities of
    different sequences would hardly differ.

    Args:
        td_errors: TD errors :math:`δ_t`, shape `[T]`.
        eta: Weight :math:`η` of the maximum, in [0, 1], shape `[]`.
        sample_mask: False for time steps to ignore, such as padding and the burn-in
            (see `burn_in_mask`), shape `[T]`; or None.

    Returns:
        The priority, shape `[]`; 0 if all steps are masked.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> td_errors = jnp.array([9.0, 4.0, -2.0])
        >>> mask = rlaxlib.burn_in_mask(3, burn_in=1)
        >>> print(rlaxlib.sequence_priority(td_errors, eta=0.5, sample_mask=mask))
        3.5

    References:
        Steven Kapturowski, Georg Ostrovski, John Quan, Remi Munos and Will Dabney,
        *Recurrent Experience Replay in Distributed Reinforcement Learning*, section
        2.3, 2019. https://openreview.net/forum?id=r1lyTjAqYX
    """
    td_errors, eta, sample_mask, narrow = checks.widened(
        td_errors=(td_errors, "float[T]"),
        eta=(eta, "float[] in [0, 1]"),
        sample_mask=(sample_mask, "bool[T] or None"),
    )
    td_errors, eta = jax.lax.stop_gradient((td_errors, eta))
    errors = streams.valid(jnp.abs(td_errors), sample_mask)
    mean = arrays.masked_mean(errors, sample_mask)
    return narrow(eta * jnp.max(errors) + (1 - eta) * mean)


def burn_in_mask(num_steps: int, burn_in: ArrayLike) -> Array:
    """Mask the burn-in steps of a recurrent sequence (R2D2).

    Takes a number of steps, returns True or False for each.

    .. math::

        m_t = 1[t ≥ b]

    The recurrent state stored with a sequence is that of older parameters. Unrolling
    over the first steps refreshes it; their losses and priorities do not count. Pass
    the mask as `sample_mask`: the estimates of the other steps do not change.

    Args:
        num_steps: Length :math:`T` of the sequence, at least 1.
        burn_in: Number of steps to mask, :math:`b ≥ 0`, shape `[]`.

    Returns:
        False for the first `burn_in` steps, true for the others, shape `[num_steps]`.

    Raises:
        ArgumentError: If `num_steps` is not a Python integer of at least 1, if
            `burn_in` has the wrong shape or dtype, or if it is concrete and negative.

    Example:
        >>> print(rlaxlib.burn_in_mask(4, burn_in=1))
        [False  True  True  True]

    References:
        Steven Kapturowski, Georg Ostrovski, John Quan, Remi Munos and Will Dabney,
        *Recurrent Experience Replay in Distributed Reinforcement Learning*, section 3,
        2019. https://openreview.net/forum?id=r1lyTjAqYX
    """
    (burn_in,) = checks.arrays(burn_in=(burn_in, "int[] in [0, inf)"))
    checks.static_int(1, num_steps=num_steps)
    return jnp.arange(num_steps) >= burn_in.astype(int)


def stratified_sample(
    key: ArrayLike, probabilities: ArrayLike, num_samples: int
) -> Array:
    """Sample the indices of a replay batch by stratified sampling.

    Takes one probability for each entry of the buffer, returns indices.

    .. math::

        i_k = min {i : ∑_{j ≤ i} P_j > (k + u_k) / K},   u_k ~ U[0, 1)

    Prioritised replay divides the total probability into :math:`K` equal ranges and
    samples once from each. Each index has the same expected count as with independent
    samples with replacement, but a lower variance.

    With several million entries, their probabilities approach the resolution of single
    precision: sample in double precision, or in two stages.

    Args:
        key: Random key, shape `[]`.
        probabilities: Probability of each entry, not negative, shape `[N]`. They need
            not sum to 1. An entry of 0 is never sampled.
        num_samples: Number :math:`K` of samples, at least 1.

    Returns:
        Indices in ascending order, shape `[num_samples]`; the out-of-range index N if
        all probabilities are 0, or one is NaN.

    Raises:
        ArgumentError: If a shape or dtype is wrong, if a NumPy probability is negative,
            or if `num_samples` is not a Python integer of at least 1.

    Example:
        >>> probabilities = jnp.array([0.5, 0.0, 0.25, 0.25])
        >>> print(rlaxlib.stratified_sample(jax.random.key(0), probabilities, 4))
        [0 0 2 3]

    References:
        Tom Schaul and others, *Prioritized Experience Replay*, appendix B.2.1, 2015.
        https://arxiv.org/abs/1511.05952
    """
    key, p, _ = checks.widened(
        key=(key, "key[]"), probabilities=(probabilities, "float[N] in [0, inf)")
    )
    checks.static_int(1, num_samples=num_samples)
    u = jax.random.uniform(key, (num_samples,), p.dtype)
    return _invert(p, u, num_samples)


def systematic_resample(
    key: ArrayLike, weights: ArrayLike, num_samples: int | None = None
) -> Array:
    """Sample the indices of particles by systematic resampling.

    Takes one weight for each particle, returns indices.

    .. math::

        i_k = min {i : ∑_{j ≤ i} W_j > (k + u) / K},   u ~ U[0, 1),
        W_j = w_j / ∑_l w_l

    One uniform offset is shared by :math:`K` evenly spaced points. A particle gets
    :math:`K W_i` copies, rounded down or up, and that number in expectation. Resample
    when `effective_sample_size` is small, such as below N/2, and continue with equal
    weights.

    Args:
        key: Random key, shape `[]`.
        weights: Weights :math:`w_i` of the particles, not negative, shape `[N]`. They
            need not sum to 1; for log-weights, pass the softmax.
        num_samples: Number :math:`K` of particles to sample, at least 1; or None for N.

    Returns:
        Indices in ascending order, shape `[num_samples]`; the out-of-range index N if
        all weights are 0, or one is NaN.

    Raises:
        ArgumentError: If a shape or dtype is wrong, if a NumPy weight is negative, or
            if `num_samples` is not a Python integer of at least 1.

    Example:
        >>> weights = jnp.array([0.5, 0.0, 0.25, 0.25])
        >>> print(rlaxlib.systematic_resample(jax.random.key(0), weights))
        [0 0 2 3]

    References:
        Genshiro Kitagawa, *Monte Carlo Filter and Smoother for Non-Gaussian Nonlinear
        State Space Models*, 1996. https://doi.org/10.1080/10618600.1996.10474692

        Randal Douc, Olivier Cappé and Eric Moulines, *Comparison of Resampling Schemes
        for Particle Filtering*, 2005. https://arxiv.org/abs/cs/0507025
    """
    key, w, _ = checks.widened(
        key=(key, "key[]"), weights=(weights, "float[N] in [0, inf)")
    )
    num_samples = w.size if num_samples is None else num_samples
    checks.static_int(1, num_samples=num_samples)
    return _invert(w, jax.random.uniform(key, (), w.dtype), num_samples)


def hindsight_indices(
    key: ArrayLike,
    discount_t: ArrayLike,
    strategy: str = "future",
    *,
    truncated_t: ArrayLike | None = None,
    sample_mask: ArrayLike | None = None,
) -> Array:
    """Sample the goals of hindsight experience replay (HER) for each time step.

    Takes one stream, returns one index for each time step.

    .. math::

        g_t = achieved_{i_t},
        i_t ~ { U{t, …, e_t}     future
              { U{b_t, …, e_t}   episode
              { e_t              final

    Here :math:`b_t` and :math:`e_t` are the first and last step of the episode of step
    :math:`t`. An episode ends by termination, by truncation or with the stream. For
    several goals a step, map over several keys; the paper samples 4 future goals.

    An index refers to the goals achieved after a step, which have the index of `r_t`.
    So the final state may be a goal, and the outcome of a step its own goal.

    Args:
        key: Random key, shape `[]`.
        discount_t: Discounts, 0 where the episode ends, shape `[T]`.
        strategy: Steps to sample from: `"future"`, `"episode"` or `"final"`.
        truncated_t: True where the stream is cut after a step, shape `[T]`; or None.
        sample_mask: False for time steps to ignore, shape `[T]`; or None. Such steps
            are not sampled, and their discounts end no episode.

    Returns:
        Index :math:`i_t` of the goal of each step, shape `[T]`; the step's own index
        where it is masked.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or `strategy` is not one of the
            three.

    Example:
        >>> discount_t = jnp.array([0.9, 0.9, 0.0, 0.9, 0.0])
        >>> print(rlaxlib.hindsight_indices(jax.random.key(0), discount_t, "final"))
        [2 2 2 4 4]

    References:
        Marcin Andrychowicz and others, *Hindsight Experience Replay*, sections 3.3 and
        4.5, 2017. https://arxiv.org/abs/1707.01495
    """
    key, discount_t, truncated_t, sample_mask = checks.arrays(
        key=(key, "key[]"),
        discount_t=(discount_t, "float[T]"),
        truncated_t=(truncated_t, "bool[T] or None"),
        sample_mask=(sample_mask, "bool[T] or None"),
    )
    if strategy not in ("future", "episode", "final"):
        needed = 'must be "future", "episode" or "final"'
        checks.fail(f"`strategy` is {strategy!r}, {needed}")
    steps = jnp.arange(discount_t.size)
    mask = jnp.ones_like(steps, bool) if sample_mask is None else sample_mask
    end = mask & (discount_t == 0)
    end = end if truncated_t is None else end | truncated_t
    # Count the valid steps, so that the n-th of them can be sampled.
    counts = jnp.cumsum(mask)
    last = jax.lax.cummin(jnp.where(end, steps, steps.size - 1), reverse=True)
    after = counts[last]
    first = counts - 1
    if strategy == "episode":
        ended = jnp.where(end, counts, 0)
        first = jnp.append(jnp.zeros_like(ended[:1]), jax.lax.cummax(ended)[:-1])
    if strategy == "final":
        number = after - 1
    else:
        number = jax.random.randint(key, steps.shape, first, after, steps.dtype)
    goals = streams.compact(steps, mask)[number]
    return jnp.where(mask, goals, steps)


def _exists(x: Array, mask: Array | None) -> Array:
    """Return the mask of the entries of a buffer."""
    return jnp.ones_like(x, bool) if mask is None else mask


def _normalize(shares: Array, mask: Array, axis_name: AxisName | None) -> Array:
    """Return shares divided by their sum, or equal probabilities if all are 0."""
    shares = jnp.where(mask, shares, 0)
    equal = devices.total(jnp.sum(shares), axis_name) == 0
    shares = jnp.where(equal, mask.astype(shares.dtype), shares)
    total = devices.total(jnp.sum(shares), axis_name)
    return shares / jnp.where(total == 0, 1, total)


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
    weights = jax.lax.stop_gradient(weights)
    # A cumulative sum computed in parallel may decrease by rounding, and the last point
    # may round to the total. Both would select an entry of weight 0.
    cumulative = jnp.cumsum(weights)
    bounds = jax.lax.cummax(jnp.where(weights > 0, cumulative, 0))
    total = bounds[-1]
    points = (jnp.arange(num_samples, dtype=weights.dtype) + offsets) / num_samples
    points = jnp.minimum(points * total, jnp.nextafter(total, jnp.zeros_like(total)))
    indices = jnp.searchsorted(bounds, points, side="right")
    return jnp.where(jnp.isnan(cumulative[-1]), weights.size, indices)
