"""Choose what to learn from once more, and how much to trust it.

A replay buffer stores; these functions say what to take out of it: with which
probabilities, which entries, at which weights, and for which goals.

What is replayed is data: no result of these functions carries a gradient.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib._core import checks, devices, dtypes, streams
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
    mask: ArrayLike | None = None,
    axis_name: AxisName | None = None,
) -> Array:
    """Say how likely each entry of a buffer is to be drawn, by its priority.

    .. math::

        P_i = p_i^α / ∑_j p_j^α

    The priority is how wrong the last prediction was, and a little more, so that
    nothing is forgotten: :math:`p_i = |δ_i| + ε`, with an :math:`ε` of 0.01, as the
    authors have told. The exponent comes after that: some implementations add :math:`ε`
    to :math:`|δ_i|^α`, which is another distribution. With an exponent of 0 all entries
    are as likely; 0.6 is the paper's choice for priorities of this kind.

    Args:
        priorities: Priority :math:`p_i` of each entry, not negative, shape `[N]`. One
            of 0 is never drawn, unless all are 0 or the exponent is: then all entries
            are as likely.
        exponent: How much priorities matter, :math:`α ≥ 0`, shape `[]`.
        mask: False where there is no entry: a buffer that is not full, shape `[N]`; or
            None if there is one everywhere.
        axis_name: Name of the axis, or axes, that devices form, where the buffer is
            spread over them; or None to stay on one device.

    Returns:
        Probabilities, shape `[N]`: 0 where there is no entry.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if a priority or
            the exponent is known and negative.

    Example:
        >>> print(rlaxlib.prioritized_probabilities(jnp.array([1.0, 3.0]), 1.0))
        [0.25 0.75]

    References:
        Tom Schaul, John Quan, Ioannis Antonoglou and David Silver, *Prioritized
        Experience Replay*, section 3.3, 2015. https://arxiv.org/abs/1511.05952
    """
    priorities, exponent, mask = checks.arrays(
        priorities=(priorities, "float[N]"),
        exponent=(exponent, "float[]"),
        mask=(mask, "bool[N] or None"),
    )
    checks.within("[0, inf)", exponent=exponent)
    priorities = streams.valid(_constant(priorities), mask)
    checks.within("[0, inf)", priorities=priorities)
    (p, exponent), narrow = dtypes.widen(priorities, _constant(exponent))
    mask = jnp.ones_like(p, bool) if mask is None else mask
    largest = devices.largest(p, mask, axis_name)
    relative = p / jnp.where(largest > 0, largest, jnp.ones_like(largest))
    powers = jnp.where(largest > 0, relative**exponent, 1 + p)  # 1 where all are 0.
    return narrow(_normalize(powers, mask, axis_name))


def rank_probabilities(
    priorities: ArrayLike,
    exponent: ArrayLike = 0.7,
    *,
    mask: ArrayLike | None = None,
) -> Array:
    """Say how likely each entry of a buffer is to be drawn, by its rank.

    .. math::

        P_i = k_i^{-α} / ∑_j k_j^{-α},   k_i = rank of p_i, 1 for the largest

    Priorities that are much larger than others, such as errors of rewards that are not
    clipped, have no more weight than their rank gives them: the distribution has the
    same heavy tail whatever their size. The paper finds it no better than
    `prioritized_probabilities` where errors are clipped.

    Args:
        priorities: Priority :math:`p_i` of each entry, of any sign, shape `[N]`. Of
            equal ones the earlier ranks higher.
        exponent: How much ranks matter, :math:`α ≥ 0`, shape `[]`: 0.7 is the paper's
            choice.
        mask: False where there is no entry, shape `[N]`; or None if there is one
            everywhere. Such places have no rank.

    Returns:
        Probabilities, shape `[N]`: 0 where there is no entry.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if the exponent
            is known and negative.

    Example:
        >>> print(rlaxlib.rank_probabilities(jnp.array([0.1, 9.0, 0.2, 0.0]), 0.0))
        [0.25 0.25 0.25 0.25]
        >>> print(rlaxlib.rank_probabilities(jnp.array([-1.0, 0.5, 70.0]), 1.0) * 11)
        [2. 3. 6.]

    References:
        Tom Schaul, John Quan, Ioannis Antonoglou and David Silver, *Prioritized
        Experience Replay*, section 3.3, 2015. https://arxiv.org/abs/1511.05952
    """
    priorities, exponent, mask = checks.arrays(
        priorities=(priorities, "float[N]"),
        exponent=(exponent, "float[]"),
        mask=(mask, "bool[N] or None"),
    )
    checks.within("[0, inf)", exponent=exponent)
    (p, exponent), narrow = dtypes.widen(_constant(priorities), _constant(exponent))
    mask = jnp.ones_like(p, bool) if mask is None else mask
    order = jnp.argsort(jnp.where(mask, -p, jnp.inf), stable=True)
    ranks = jnp.arange(1, p.size + 1, dtype=p.dtype)
    ranks = jnp.zeros_like(p).at[order].set(ranks, unique_indices=True)
    shares = jnp.where(jnp.isnan(p), p, ranks**-exponent)
    return narrow(_normalize(shares, mask, None))


def importance_sampling_weights(
    probabilities: ArrayLike,
    exponent: ArrayLike,
    normalize_by: str = "batch",
    *,
    min_probability: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    axis_name: AxisName | None = None,
) -> Array:
    """Weigh what was drawn more often than others less.

    .. math::

        w_i = (N P_i)^{-β} / (max_j (N P_j)^{-β}) = ((min_j P_j) / P_i)^β

    Updates by entries that a priority chose are biased towards them; these weights take
    the bias out, all of it with an exponent of 1. The largest is 1, so that no step
    becomes longer than without them, and :math:`N`, the number of entries, cancels out.
    The paper raises the exponent from 0.4 to 1 in the course of learning.

    Implementations differ in what :math:`j` runs over, and the paper does not say. With
    `"batch"` it is the batch, as the authors have confirmed that they do: the size of a
    step then depends on what else is drawn. With `"max"` it is the whole buffer, as in
    OpenAI's Baselines: then it does not, but one entry of low priority makes all steps
    short.

    Args:
        probabilities: Probability :math:`P_i` of each entry of the batch, or for
            `"max"` perhaps of the whole buffer, shape `[N]`. They need not add up to 1.
        exponent: How much of the bias to take out, :math:`β`, from 0 to 1, shape `[]`.
        normalize_by: `"batch"` for the largest weight among those given, `"max"` for
            the largest in the buffer.
        min_probability: Smallest probability in the buffer that is not 0, of the same
            scale, for `"max"`, shape `[]`; or None if `probabilities` are those of the
            whole buffer.
        mask: False where there is no entry, shape `[N]`; or None if there is one
            everywhere.
        axis_name: Name of the axis, or axes, that devices form, where the batch is
            spread over them; or None to stay on one device.

    Returns:
        Weights, shape `[N]`: 0 where there is no entry, and where one has a probability
        of 0, which is never drawn.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if a probability or
            the exponent is known and out of range, if `normalize_by` is none of the
            two, or if there is a `min_probability` that it does not use.

    Example:
        >>> probabilities = jnp.array([0.1, 0.4])
        >>> print(rlaxlib.importance_sampling_weights(probabilities, 0.5))
        [1.  0.5]
        >>> print(rlaxlib.importance_sampling_weights(
        ...     probabilities, 0.5, "max", min_probability=0.025
        ... ))
        [0.5  0.25]

    References:
        Tom Schaul, John Quan, Ioannis Antonoglou and David Silver, *Prioritized
        Experience Replay*, section 3.4, 2015. https://arxiv.org/abs/1511.05952

        Yasuhiro Fujita, *Replicate Prioritized Experience Replay's reported performance
        improvements*, 2018, where the authors' answer stands.
        https://github.com/chainer/chainerrl/issues/278
    """
    probabilities, exponent, min_probability, mask = checks.arrays(
        probabilities=(probabilities, "float[N]"),
        exponent=(exponent, "float[]"),
        min_probability=(min_probability, "float[] or None"),
        mask=(mask, "bool[N] or None"),
    )
    if normalize_by not in ("batch", "max"):
        checks.fail(f'`normalize_by` must be "batch" or "max", not {normalize_by!r}')
    if normalize_by == "batch" and min_probability is not None:
        checks.fail('`min_probability` is for `normalize_by="max"` only')
    probabilities = streams.valid(probabilities, mask)
    checks.within("[0, inf)", probabilities=probabilities)
    checks.within("[0, 1]", exponent=exponent)
    checks.within("(0, inf)", min_probability=min_probability)
    constants = map(_constant, (probabilities, exponent, min_probability))
    (p, exponent, smallest), narrow = dtypes.widen(*constants)
    drawn = p != 0
    if smallest is None:
        least = jnp.min(p, initial=jnp.inf, where=drawn)
        smallest = -devices.maximum(-least, axis_name)
    ratios = smallest / jnp.where(drawn, p, jnp.ones_like(p))
    return narrow(jnp.where(drawn, ratios**exponent, jnp.zeros_like(ratios)))


def sequence_priority(
    td_errors: ArrayLike, mask: ArrayLike | None = None, eta: ArrayLike = 0.9
) -> Array:
    """Give a sequence one priority for all its steps.

    .. math::

        p = η max_t |δ_t| + (1 - η) (1/T) ∑_t |δ_t|

    A mean alone would even out the errors of long sequences, and priorities would
    hardly differ. Steps of the burn-in and padding belong in neither of the two:
    `burn_in_mask` masks the first.

    Args:
        td_errors: TD errors :math:`δ_t`, shape `[T]`.
        mask: True where a step counts, shape `[T]`; or None to count all.
        eta: Weight :math:`η` of the largest, from 0 to 1, shape `[]`.

    Returns:
        The priority, shape `[]`; 0 where no step counts.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if `eta` is known
            and out of range.

    Example:
        >>> td_errors = jnp.array([9.0, 4.0, -2.0])
        >>> mask = rlaxlib.burn_in_mask(3, burn_in=1)
        >>> print(rlaxlib.sequence_priority(td_errors, mask, eta=0.5))
        3.5

    References:
        Steven Kapturowski, Georg Ostrovski, John Quan, Remi Munos and Will Dabney,
        *Recurrent Experience Replay in Distributed Reinforcement Learning*, section
        2.3, 2019. https://openreview.net/forum?id=r1lyTjAqYX
    """
    td_errors, mask, eta = checks.arrays(
        td_errors=(td_errors, "float[T]"),
        mask=(mask, "bool[T] or None"),
        eta=(eta, "float[]"),
    )
    checks.within("[0, 1]", eta=eta)
    (errors, eta), narrow = dtypes.widen(_constant(td_errors), _constant(eta))
    mask = jnp.ones_like(errors, bool) if mask is None else mask
    sizes = jnp.where(mask, jnp.abs(errors), jnp.zeros_like(errors))
    mean = jnp.sum(sizes) / jnp.maximum(jnp.sum(mask, dtype=sizes.dtype), 1)
    return narrow(eta * jnp.max(sizes) + (1 - eta) * mean)


def burn_in_mask(num_steps: int, burn_in: ArrayLike) -> Array:
    """Mask the first steps of a sequence, which only warm up a recurrent state.

    .. math::

        m_t = 1[t ≥ b]

    The state that was stored with a sequence came from older parameters. Unrolled over
    the first steps it recovers; the losses and priorities of these do not count. Use
    the mask as `sample_mask`, and the estimates of the other steps stay what they are.

    Args:
        num_steps: Length :math:`T` of the sequence, at least 1.
        burn_in: How many steps do not count, :math:`b ≥ 0`, shape `[]`.

    Returns:
        False for the first steps and true for the others, shape `[num_steps]`.

    Raises:
        ArgumentError: If `num_steps` is not a Python integer of at least 1, if
            `burn_in` has the wrong shape or dtype, or if it is known and negative.

    Example:
        >>> print(rlaxlib.burn_in_mask(4, burn_in=1))
        [False  True  True  True]

    References:
        Steven Kapturowski, Georg Ostrovski, John Quan, Remi Munos and Will Dabney,
        *Recurrent Experience Replay in Distributed Reinforcement Learning*, section 3,
        2019. https://openreview.net/forum?id=r1lyTjAqYX
    """
    (burn_in,) = checks.arrays(burn_in=(burn_in, "int[]"))
    checks.static_int(1, num_steps=num_steps)
    checks.within("[0, inf)", burn_in=burn_in)
    return jnp.arange(num_steps) >= burn_in.astype(int)


def stratified_sample(
    key: ArrayLike, probabilities: ArrayLike, num_samples: int
) -> Array:
    """Draw entries, one from each of as many equal parts of the distribution.

    .. math::

        i_k = min {i : ∑_{j ≤ i} P_j > (k + u_k) / K},   u_k ~ U[0, 1)

    Entries are drawn with replacement, each as often in expectation as if the draws
    were independent; but a batch is balanced: one draw is from the first :math:`1/K` of
    the probability, one from the second, and so on. So does prioritized replay draw its
    batches.

    In single precision a number between 0 and 1 has 24 bits. Where a buffer has many
    millions of entries, their probabilities are not much larger than the last of these:
    draw from such a buffer in double precision, or in two stages.

    Args:
        key: Random key, shape `[]`.
        probabilities: Probability of each entry, or numbers in proportion to it, not
            negative, shape `[N]`. An entry of 0 is never drawn.
        num_samples: Number :math:`K` of entries to draw, at least 1.

    Returns:
        Indices of the entries drawn, in ascending order, shape `[num_samples]`; N,
        which is none, if all probabilities are 0, or one is no number.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if a probability is
            known and negative, or if `num_samples` is not a Python integer of at least
            1.

    Example:
        >>> probabilities = jnp.array([0.5, 0.0, 0.25, 0.25])
        >>> print(rlaxlib.stratified_sample(jax.random.key(0), probabilities, 4))
        [0 0 2 3]

    References:
        Tom Schaul, John Quan, Ioannis Antonoglou and David Silver, *Prioritized
        Experience Replay*, appendix B.2.1, 2015. https://arxiv.org/abs/1511.05952
    """
    key, probabilities = checks.arrays(
        key=(key, "key[]"), probabilities=(probabilities, "float[N]")
    )
    checks.static_int(1, num_samples=num_samples)
    checks.within("[0, inf)", probabilities=probabilities)
    (p,), _ = dtypes.widen(_constant(probabilities))
    offsets = jax.random.uniform(key, (num_samples,), p.dtype)
    return _invert(p, offsets, num_samples)


def systematic_resample(
    key: ArrayLike, weights: ArrayLike, num_samples: int | None = None
) -> Array:
    """Replace weighted particles by copies, as evenly as can be.

    .. math::

        i_k = min {i : ∑_{j ≤ i} W_j > (k + u) / K},   u ~ U[0, 1),
        W_j = w_j / ∑_l w_l

    One random number places a comb of :math:`K` teeth over the distribution. A particle
    gets :math:`K W_i` copies, rounded down or up, and that many in expectation; so
    equal weights give each one copy. Resample when `effective_sample_size` has become
    small, half of N say, and go on with equal weights.

    Args:
        key: Random key, shape `[]`.
        weights: Weights :math:`w_i` of the particles, not negative, shape `[N]`. They
            need not add up to 1; of log-weights, give the softmax.
        num_samples: Number :math:`K` of particles to have afterwards, at least 1; or
            None for as many as before.

    Returns:
        Index of the particle that each is a copy of, in ascending order, shape
        `[num_samples]`; N, which is none, if all weights are 0, or one is no number.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if a weight is known
            and negative, or if `num_samples` is not a Python integer of at least 1.

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
    key, weights = checks.arrays(key=(key, "key[]"), weights=(weights, "float[N]"))
    num_samples = weights.size if num_samples is None else num_samples
    checks.static_int(1, num_samples=num_samples)
    checks.within("[0, inf)", weights=weights)
    (w,), _ = dtypes.widen(_constant(weights))
    return _invert(w, jax.random.uniform(key, (), w.dtype), num_samples)


def hindsight_indices(
    key: ArrayLike,
    discount_t: ArrayLike,
    strategy: str = "future",
    *,
    truncated_t: ArrayLike | None = None,
    sample_mask: ArrayLike | None = None,
) -> Array:
    """Choose for each step a goal that its own episode reached.

    .. math::

        g_t = achieved_{i_t},
        i_t ~ { U{t, …, e_t}     future
              { U{b_t, …, e_t}   episode
              { e_t              final

    Here :math:`b_t` and :math:`e_t` are the first and last step of the episode that
    step :math:`t` belongs to: no goal ever comes from another one. Both ways of ending
    count, and so does the end of the stream. For several goals a step, map over several
    keys; the paper takes 4, all from the future.

    An index points into what came of a step: `achieved_goal_t`, with the clock of
    `r_t`. So the last step of an episode has a goal, the state that it led to, and a
    step's own outcome may be its goal. Implementations that take goals from before the
    step instead never choose the final state, and have to invent one for the last
    step.

    Args:
        key: Random key, shape `[]`.
        discount_t: Discounts, 0 where the episode ends, shape `[T]`.
        strategy: Where goals come from: `"future"`, `"episode"` or `"final"`.
        truncated_t: True where the stream was cut after this step, shape `[T]`; or None
            if nowhere.
        sample_mask: False where a row is no decision, shape `[T]`; or None if all are.
            None of these is chosen; a cut in one counts, a discount does not.

    Returns:
        Row :math:`i_t` of each step's goal, shape `[T]`; the row itself where it is no
        decision.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if `strategy` is
            none of the three.

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
        checks.fail(
            f'`strategy` must be "future", "episode" or "final", not {strategy!r}'
        )
    rows = jnp.arange(discount_t.size)
    mask = jnp.ones_like(rows, bool) if sample_mask is None else sample_mask
    end = mask & (discount_t == 0)
    end = end if truncated_t is None else end | truncated_t
    # Decisions are counted through, so that one is drawn by its number.
    counted = jnp.cumsum(mask)
    last = jax.lax.cummin(jnp.where(end, rows, rows.size - 1), reverse=True)
    after = counted[last]
    first = counted - 1
    if strategy == "episode":
        ended = jnp.where(end, counted, jnp.zeros_like(counted))
        first = jnp.append(jnp.zeros_like(ended[:1]), jax.lax.cummax(ended)[:-1])
    if strategy == "final":
        number = after - 1
    else:
        number = jax.random.randint(key, rows.shape, first, after, rows.dtype)
    chosen = streams.compact(rows, sample_mask)[number]
    return jnp.where(mask, chosen, rows)


def _constant(x: Array) -> Array:
    """Return an array, or None, as a constant under differentiation."""
    return x if x is None else jax.lax.stop_gradient(x)


def _normalize(x: Array, mask: Array, axis_name: AxisName | None) -> Array:
    """Divide what the mask lets through by its sum, and put 0 in place of the rest."""
    x = jnp.where(mask, x, jnp.zeros_like(x))
    total = devices.total(jnp.sum(x), axis_name)
    return x / jnp.where(total == 0, jnp.ones_like(total), total)


def _invert(weights: Array, offsets: Array, num_samples: int) -> Array:
    """Return the entries that the teeth of a comb hit.

    Args:
        weights: Weight of each entry, shape `[N]`.
        offsets: Where each tooth stands in its part, in [0, 1), shape `[num_samples]`
            or `[]`.
        num_samples: Number of teeth.

    Returns:
        Indices, shape `[num_samples]`.
    """
    # A sum taken in parallel may fall by a rounding, and a last tooth rise to the total
    # by one: neither may hit an entry without weight, or none.
    summed = jnp.cumsum(weights)
    sums = jax.lax.cummax(jnp.where(weights > 0, summed, jnp.zeros_like(summed)))
    teeth = jnp.arange(num_samples, dtype=weights.dtype) + offsets
    teeth = teeth / num_samples * sums[-1]
    below = jnp.nextafter(sums[-1], jnp.zeros_like(sums[-1]))
    hit = jnp.searchsorted(sums, jnp.minimum(teeth, below), side="right")
    return jnp.where(jnp.isnan(summed[-1]), weights.size, hit)
