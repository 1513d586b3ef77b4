"""Evaluation: values of policies from logged data, and statistics of several runs.

- `off_policy_evaluation`: the value of a policy from trajectories of another, by
  importance sampling (IS), per-decision (PDIS) and doubly robust (DR), each also
  self-normalised (WIS, WPDIS, WDR).
- `interquartile_mean` (IQM), `probability_of_improvement`: statistics of the scores of
  several runs on several tasks, as rliable has them. The optimality gap is
  `jnp.mean(jax.nn.relu(target - scores))`.
- `bootstrap_interval`: a confidence interval of any of these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from rlaxlib._core import checks, devices, ratios, safe, streams
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import (
    Array,
    ArrayLike,
    AxisName,
    Bool,
    Float,
    Key,
    Shaped,
    Static,
    Tree,
)

__all__ = [
    "BootstrapInterval",
    "bootstrap_interval",
    "interquartile_mean",
    "off_policy_evaluation",
    "probability_of_improvement",
]


class BootstrapInterval(NamedTuple):
    """The ends of a confidence interval.

    Attributes:
        lower: Lower end, shape `[]`.
        upper: Upper end, shape `[]`.
    """

    lower: Float[Array, ""]
    upper: Float[Array, ""]


@checked
def off_policy_evaluation(
    rho_tm1: Float[ArrayLike, "N, T in [0, inf)"],
    r_t: Float[ArrayLike, "N, T"],
    discount_t: Float[ArrayLike, "N, T in [0, 1]"],
    kind: Literal["is", "wis", "pdis", "wpdis", "dr", "wdr"] = "wpdis",
    *,
    q_tm1: Float[ArrayLike, "N, T"] | None = None,
    v_tm1: Float[ArrayLike, "N, T"] | None = None,
    sample_mask: Bool[ArrayLike, "N, T"] | None = None,
    axis_name: AxisName | None = None,
) -> Float[Array, ""]:
    """Estimate the value of a policy from trajectories of another (IS, PDIS, DR).

    Takes N trajectories, returns one value.

    ::

        V = ∑_i ∑_t Γ_{i,t} (w_{i,t} (r_{i,t} - q_{i,t}) + w_{i,t-1} v_{i,t})
        Γ_{i,t} = ∏_{k < t} γ_{i,k},   w_{i,-1} = 1/N
        w_{i,t} = { P_{i,t} / N              pdis, dr
                  { P_{i,t} / ∑_j P_{j,t}    wpdis, wdr
        P_{i,t} = ∏_{k ≤ t} ρ_{i,k}

    - `"is"`, `"wis"`: as `"pdis"` and `"wpdis"`, with :math:`w_{i,T-1}` at all steps.
    - `"pdis"`, `"wpdis"`: per-decision weights, of lower variance.
    - `"dr"`, `"wdr"`: doubly robust, with the values :math:`q, v` of a model or critic;
      elsewhere these are 0.

    Without self-normalisation an estimate is unbiased, given the behaviour's
    probabilities, and its variance grows exponentially with :math:`T`. With it, it is
    consistent, and often far more accurate. Discount rewards by the discount of the
    task, or 1. `bootstrap_interval` gives an interval.

    Args:
        rho_tm1: Ratios :math:`ρ = π(a)/μ(a)` of the actions' probabilities,
            in [0, inf), shape `[N, T]`. The gradient by a ratio of exactly 0 is 0:
            products of ratios are exponentials of sums.
        r_t: Rewards :math:`r`, shape `[N, T]`.
        discount_t: Discounts :math:`γ` in [0, 1], 0 where the episode ended; later
            steps are ignored, shape `[N, T]`.
        kind: `"is"`, `"wis"`, `"pdis"`, `"wpdis"`, `"dr"` or `"wdr"`.
        q_tm1: Values of the actions for :math:`π`, shape `[N, T]`; or None.
        v_tm1: Values of the states for :math:`π`, shape `[N, T]`; or None.
        sample_mask: False for time steps to ignore, as if they were deleted, such as
            padding and reset steps, shape `[N, T]`; or None. Trajectories without a
            valid step do not count in :math:`N`.
        axis_name: Mapped axis name, or names, of the trajectories; or None.

    Returns:
        Estimated value, shape `[]`. Without self-normalisation, a product of ratios and
        discounts is at most :math:`e^{40}`.

    Raises:
        ArgumentError: If a shape, dtype, option or concrete value is wrong, or values
            are missing for `"dr"` and `"wdr"`, or given for others.

    Example:
        >>> r_t, discount_t = jnp.array([[1.0], [3.0]]), jnp.zeros((2, 1))
        >>> data = jnp.array([[0.5], [1.5]]), r_t, discount_t
        >>> print(rlaxlib.off_policy_evaluation(*data, kind="pdis"))
        2.5

    References:
        Doina Precup, Richard S. Sutton and Satinder Singh, *Eligibility Traces for
        Off-Policy Policy Evaluation*, 2000.
        https://scholarworks.umass.edu/cs_faculty_pubs/80

        Nan Jiang and Lihong Li, *Doubly Robust Off-policy Value Evaluation for
        Reinforcement Learning*, 2015. https://arxiv.org/abs/1511.03722

        Philip S. Thomas and Emma Brunskill, *Data-Efficient Off-Policy Policy
        Evaluation for Reinforcement Learning*, 2016. https://arxiv.org/abs/1604.00923
    """
    needs_values = kind in ("dr", "wdr")
    if (q_tm1 is not None, v_tm1 is not None) != (needs_values,) * 2:
        must = "are needed" if needs_values else "must be None"
        checks.fail(f'`q_tm1` and `v_tm1` {must} with the kind "{kind}"')
    q, v = (jnp.zeros_like(r_t) if x is None else x for x in (q_tm1, v_tm1))
    data, valid = (r_t, discount_t, rho_tm1, q, v), jnp.ones_like(r_t, bool)
    if sample_mask is not None:  # Delete ignored steps.
        compact = jax.vmap(streams.compact)
        data = tuple(compact(x, sample_mask) for x in data)
        valid = compact(sample_mask, sample_mask)
    r, gamma, rho, q, v = data
    is_given = valid[:, 0]  # False for a trajectory without a valid step.
    first = jnp.ones_like(r[:, :1])
    gamma = jnp.concatenate([first, gamma[:, :-1]], axis=1)  # Before each step.
    valid &= jnp.cumprod(gamma != 0, axis=1) == 1
    # A step after an end may be NaN, and so would be gradients of the products.
    rho, gamma = (jnp.where(valid, x, 1) for x in (rho, gamma))
    r, q, v = (streams.valid(x, valid) for x in (r, q, v))
    w, count = _weights(rho, gamma, is_given, kind, axis_name)
    w_before = gamma * jnp.concatenate([first / count, w[:, :-1]], axis=1)
    return devices.total(jnp.sum(w * (r - q) + w_before * v), axis_name)


@checked
def interquartile_mean(scores: Float[ArrayLike, "..."]) -> Float[Array, ""]:
    """Compute the interquartile mean (IQM) of scores.

    Takes scores of any shape, returns one number.

    ::

        IQM = (1/(n - 2 m)) ∑_{m < i ≤ n - m} x_i,   m = ⌊n/4⌋

    Here :math:`x_1 ≤ … ≤ x_n` are the sorted scores of all runs and tasks. It is less
    sensitive to outliers than the mean, and more efficient than the median.

    Args:
        scores: Normalised scores of runs and tasks, shape `[...]`.

    Returns:
        The mean of the middle half, shape `[]`; NaN if a score is NaN.

    Raises:
        ArgumentError: If a dtype is wrong.

    Example:
        >>> print(rlaxlib.interquartile_mean(jnp.array([-9.0, 1.0, 3.0, 70.0])))
        2.0

    References:
        Rishabh Agarwal and others, *Deep Reinforcement Learning at the Edge of the
        Statistical Precipice*, 2021. https://arxiv.org/abs/2108.13264
    """
    cut = scores.size // 4
    middle = jnp.sort(scores.ravel())[cut : scores.size - cut]
    # Sorted, NaN would be cut as one of the highest scores.
    return jnp.where(jnp.any(jnp.isnan(scores)), jnp.nan, jnp.mean(middle))


@checked
def probability_of_improvement(
    scores: Float[ArrayLike, "R, M"], other_scores: Float[ArrayLike, "S, M"]
) -> Float[Array, ""]:
    """Estimate the probability that one algorithm improves on another.

    Takes the scores of two algorithms, returns one probability.

    ::

        (1/(M R S)) ∑_m ∑_i ∑_j (1[x_{i,m} > y_{j,m}] + ½ 1[x_{i,m} = y_{j,m}])

    It is the mean over tasks of the Mann-Whitney U statistic divided by its maximum.
    The size of the improvement has no influence.

    Args:
        scores: Scores :math:`x` of R runs on M tasks, shape `[R, M]`.
        other_scores: Scores :math:`y` of S runs of the other one, shape `[S, M]`.

    Returns:
        The probability, shape `[]`; NaN if a score is NaN.

    Raises:
        ArgumentError: If a shape or dtype is wrong.

    Example:
        >>> x, y = jnp.array([[1.0], [3.0]]), jnp.array([[1.0], [2.0]])
        >>> print(rlaxlib.probability_of_improvement(x, y))
        0.625

    References:
        Rishabh Agarwal and others, *Deep Reinforcement Learning at the Edge of the
        Statistical Precipice*, 2021. https://arxiv.org/abs/2108.13264
    """
    x, y = scores[:, None], other_scores[None]
    return jnp.mean((1 + jnp.sign(x - y)) / 2)


@checked
def bootstrap_interval(
    key: Key[ArrayLike, ""],
    data: Tree[Any, "shaped _, *_"],
    statistic: Callable[[Any], Array],
    confidence: Static[float, "in (0, 1)"] = 0.95,
    num_samples: Static[int, "in [1, inf)"] = 2000,
    *,
    stratified: Static[bool, ""] = False,
) -> BootstrapInterval:
    """Estimate a confidence interval by the percentile bootstrap.

    Takes data and a statistic of it, returns both ends of an interval.

    ::

        [F⁻¹(½ (1 - c)), F⁻¹(½ (1 + c))]

    Here :math:`F` is the distribution of the statistic of data resampled with
    replacement.

    - Trajectories, for `off_policy_evaluation`: entries of the first axis are
      resampled, the same in all arrays.
    - Scores of runs and tasks, `[R, M]`: with `stratified`, the runs of each task are
      resampled independently, and those of each array, as rliable does.

    Args:
        key: Random key, shape `[]`.
        data: Array, or pytree of arrays, each with a first axis of the same N entries;
            or of shapes `[R, M]` with `stratified`.
        statistic: Function from resampled `data` to one number, shape `[]`.
        confidence: Probability :math:`c` in (0, 1), a Python number.
        num_samples: Number of times to resample, a Python integer in [1, inf); 50,000
            in rliable.
        stratified: Whether to resample each column by itself.

    Returns:
        A `BootstrapInterval`: its `lower` and `upper` end.

    Raises:
        ArgumentError: If a shape, dtype, integer or concrete value is wrong, in `data`
            and in the result of `statistic` too.

    Example:
        >>> key, scores = jax.random.key(0), jnp.array([[1.0, 2.0], [1.0, 2.0]])
        >>> ends = rlaxlib.bootstrap_interval(key, scores, jnp.mean, stratified=True)
        >>> print(ends.lower, ends.upper)
        1.5 1.5

    References:
        Bradley Efron, *Bootstrap Methods: Another Look at the Jackknife*, 1979.
        https://doi.org/10.1214/aos/1176344552

        Rishabh Agarwal and others, *Deep Reinforcement Learning at the Edge of the
        Statistical Precipice*, 2021. https://arxiv.org/abs/2108.13264
    """
    leaves, structure = jax.tree.flatten(data)
    if not leaves:
        checks.fail("`data` has no arrays")
    axes: Any = Shaped[ArrayLike, "R, M" if stratified else "N, *_"]
    paths = jax.tree_util.tree_leaves_with_path(data)
    named = {f"data{jax.tree_util.keystr(path)}": (x, axes) for path, x in paths}
    for each in [{n: x} for n, x in named.items()] if stratified else [named]:
        checks.fit(**each)

    def resample(key: Array) -> list[Array]:
        if not stratified:
            rows = jax.random.randint(key, leaves[0].shape[:1], 0, len(leaves[0]))
            return [x[rows] for x in leaves]
        keys = jax.random.split(key, len(leaves))
        rows = [
            jax.random.randint(key, x.shape, 0, len(x))
            for key, x in zip(keys, leaves, strict=True)
        ]
        return [jnp.take_along_axis(*x, 0) for x in zip(leaves, rows, strict=True)]

    def evaluate(key: Array) -> Array:
        value = statistic(jax.tree.unflatten(structure, resample(key)))
        return checks.result("statistic(data)", value, kind="Real")

    # One sample at a time: all samples of large data would not fit in memory.
    values = jax.lax.map(evaluate, jax.random.split(key, num_samples))
    tail = (1 - confidence) / 2
    ends = (jnp.quantile(values, each) for each in (tail, 1 - tail))
    return BootstrapInterval(*ends)


def _weights(
    rho: Array, gamma: Array, is_given: Array, kind: str, axis_name: AxisName | None
) -> tuple[Array, Array]:
    """Return the discounted weight of each step, `[N, T]`, and the number N.

    Args:
        rho: Ratios, 1 at ignored steps, `[N, T]`.
        gamma: Discounts before the steps, 1 at ignored steps, `[N, T]`.
        is_given: False for trajectories to ignore, `[N]`.
        kind: As for `off_policy_evaluation`.
        axis_name: As for `off_policy_evaluation`.
    """
    number = jnp.sum(is_given, dtype=rho.dtype)
    number = jnp.maximum(devices.total(number, axis_name), 1)
    log_ratio = jnp.cumsum(safe.log(rho), axis=1)
    if kind in ("is", "wis"):
        log_ratio = jnp.broadcast_to(log_ratio[:, -1:], log_ratio.shape)
    # The product of ratios alone may overflow where that with the discounts does not.
    log_discount = jnp.cumsum(jnp.log(gamma), axis=1)
    if not kind.startswith("w"):
        return ratios.ratio(log_ratio + log_discount) / number, number
    # Relative to the largest, products of a thousand ratios do not overflow.
    largest = devices.largest(log_ratio, is_given[:, None], axis_name, axis=0)
    ratio = jnp.where(is_given[:, None], jnp.exp(log_ratio - largest[None]), 0)
    total = devices.total(jnp.sum(ratio, axis=0), axis_name)
    return jnp.exp(log_discount) * safe.divide(ratio, total[None]), number
