"""Scales to divide rewards, TD errors, returns or advantages by.

- `reward_scale`: for rewards, by the standard deviation of discounted reward sums.
- `return_based_scale`: for TD errors, by the variances of rewards and returns.
- `percentile_scale`: for returns or advantages, by a range of percentiles.

Each has two methods: `init` returns an initial state, `update` the scale and the next
state.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rlaxlib import arrays
from rlaxlib._core import checks, devices, recurrence, streams
from rlaxlib._core.functions import FunctionTuple
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, AxisName, Bool, Float, Real
from rlaxlib.normalization import _shared
from rlaxlib.normalization._moments import (
    Ema,
    EmaState,
    RunningMomentsState,
    create_ema,
    running_moments,
)

__all__ = [
    "PercentileScale",
    "ReturnBasedScale",
    "ReturnRange",
    "ReturnScaleState",
    "RewardScale",
    "RewardScaleState",
    "percentile_scale",
    "return_based_scale",
    "reward_scale",
]


class RewardScaleState(NamedTuple):
    """State of `reward_scale` between two chunks of a stream.

    Attributes:
        moments: Moments of the discounted sums of past rewards.
        carried: Discounted sum so far in the current episode of the stream, shape `[]`.
        largest: Largest magnitude of the sums, shape `[]`.
    """

    moments: RunningMomentsState
    carried: Float[Array, ""]
    largest: Float[Array, ""]


class ReturnScaleState(NamedTuple):
    """State of `return_based_scale`.

    Attributes:
        steps: Moments of the rewards and the discounts, a pair of scalars, shape `[]`.
        returns: Moments of the returns, scalars of shape `[]`.
    """

    steps: RunningMomentsState
    returns: RunningMomentsState


class ReturnRange(NamedTuple):
    """Range between two percentiles of the returns.

    Attributes:
        lower: Lower percentile, shape `[]`.
        spread: Higher percentile minus the lower one, shape `[]`.
    """

    lower: Float[Array, ""]
    spread: Float[Array, ""]


@checked
def reward_scale(
    epsilon: Float[ArrayLike, "in [0, inf)"] = 1e-8,
    max_return: Float[ArrayLike, "in (0, inf]"] = jnp.inf,
    *,
    axis_name: AxisName | None = None,
) -> RewardScale:
    """Create a scale for rewards: the standard deviation of discounted reward sums.

    Takes settings, returns a normaliser: `init` makes a state, `update` updates it.

    ::

        R_t = r_t + γ_{t-1} R_{t-1},
        σ_n = max(√(Var(R_1, …, R_n) + ε), max(|R_1|, …, |R_n|) / R_max),

    where an episode starts from :math:`R = 0`. Divide rewards by the scale, so that
    targets of value functions are of the order of 1. SimBaV2 bounds them, too, by
    :math:`R_max = 5`, for the atoms of a categorical critic. Do not subtract a mean:
    that would change the optimal policy. The variance is close to the variance of the
    returns if rewards are stationary over an episode and the discount is less than 1.

    Args:
        epsilon: Constant :math:`ε` added to the variance, in [0, inf), shape `[]`.
        max_return: Bound :math:`R_max` of the sums of scaled rewards, in (0, inf],
            shape `[]`.
        axis_name: Mapped axis name, or names, whose sums count too; or None.

    Returns:
        A `RewardScale`. `init(r_t)` returns the initial `RewardScaleState` for
        rewards like the template. `update(state, r_t, discount_t)` takes rewards and
        the discounts that follow them, each of shape `[T]`, and the keywords
        `truncated_t` and `sample_mask` of `lambda_returns`. It returns the scale, of
        shape `[]`, and the next state. The end of a chunk that the next one continues
        is not a truncation. The scale has no gradient. While all sums are equal, it is
        1, or the largest sum divided by `max_return` if that is more. With `jax.vmap`
        and `axis_name`, map the state too.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> init, update = rlaxlib.reward_scale()
        >>> r_t, discount_t = jnp.array([1.0, 2.0]), jnp.array([0.5, 0.0])
        >>> scale, state = update(init(r_t), r_t, discount_t)
        >>> print(scale, state.moments.mean)
        0.75 1.75

    References:
        Logan Engstrom and others, *Implementation Matters in Deep Policy Gradients: A
        Case Study on PPO and TRPO*, section 3, 2020. https://arxiv.org/abs/2005.12729

        Hojoon Lee and others, *Hyperspherical Normalization for Scalable Deep
        Reinforcement Learning*, 2025. https://arxiv.org/abs/2502.15280
    """
    return RewardScale(epsilon, max_return, axis_name)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class RewardScale(FunctionTuple):
    """A scale for rewards, which `reward_scale` makes.

    Attributes:
        epsilon: Constant added to the variance, in [0, inf), shape `[]`.
        max_return: Bound of the sums of scaled rewards, in (0, inf], shape `[]`.
        axis_name: Mapped axis name, or names, whose sums count too; or None.
    """

    epsilon: Float[ArrayLike, "in [0, inf)"]
    max_return: Float[ArrayLike, "in (0, inf]"]
    axis_name: AxisName | None = dataclasses.field(metadata={"static": True})
    _functions = ("init", "update")

    @checked(compiled=False)
    def init(self, r_t: Real[ArrayLike, "..."]) -> RewardScaleState:
        """Return the initial state, which has seen no rewards.

        Args:
            r_t: Rewards as in updates, shape `[...]`.

        Returns:
            The state.

        Raises:
            ArgumentError: If the rewards are neither floats nor integers.
        """
        moments = running_moments().init(_zero(r_t))
        return RewardScaleState(moments, _zero(r_t), _zero(r_t))

    @checked(wide=True)
    def update(
        self,
        state: RewardScaleState,
        r_t: Real[ArrayLike, "T"],
        discount_t: Float[ArrayLike, "T in [-1, 1]"],
        *,
        truncated_t: Bool[ArrayLike, "T"] | None = None,
        sample_mask: Bool[ArrayLike, "T"] | None = None,
    ) -> tuple[Float[Array, ""], RewardScaleState]:
        """Include the rewards of a chunk of one stream.

        Args:
            state: State of the scale.
            r_t: Rewards, shape `[T]`.
            discount_t: Discounts that follow them, in [-1, 1], 0 where an episode
                terminates, shape `[T]`.
            truncated_t: True where the stream is cut after a step although the episode
                had not ended, shape `[T]`; or None.
            sample_mask: False for time steps to ignore, such as resets, shape `[T]`; or
                None.

        Returns:
            The scale, shape `[]`, and the next state.

        Raises:
            ArgumentError: If a shape or dtype is wrong.
        """
        sums, carried = _past_sums(
            r_t, discount_t, state.carried, truncated_t, sample_mask
        )
        moments, moments_state = running_moments(axis_name=self.axis_name).update(
            state.moments, sums, sample_mask=sample_mask
        )
        variance = moments.variance
        epsilon, max_return = (
            jnp.asarray(x, variance.dtype) for x in (self.epsilon, self.max_return)
        )
        largest = jnp.max(streams.valid(jnp.abs(sums), sample_mask))
        largest = devices.maximum(largest, self.axis_name)
        largest = jnp.maximum(state.largest, largest)
        stddev = jnp.sqrt(jnp.where(variance == 0, 1, variance + epsilon))
        scale = jnp.maximum(stddev, largest / max_return)
        return scale, RewardScaleState(moments_state, carried, largest)


@checked
def return_based_scale(
    min_scale: Float[ArrayLike, "in (0, inf)"] = 1e-2,
    *,
    axis_name: AxisName | None = None,
) -> ReturnBasedScale:
    """Create a return-based scale for TD errors.

    Takes settings, returns a normaliser: `init` makes a state, `update` updates it.

    ::

        σ² = Var[R] + Var[γ] E[G²],   δ̄ = δ / σ

    over all rewards R, discounts :math:`γ` and returns G so far. Once the values are
    accurate, this is about the variance of the TD errors that no network can reduce.
    Dividing TD errors by the scale gives losses of similar magnitude across tasks and
    discounts. The discounts vary because they are 0 where an episode ends. The mean
    square of the returns counts, as an unforeseen end loses the whole return.

    Args:
        min_scale: Lower bound of the scale, for sparse rewards, in (0, inf),
            shape `[]`.
        axis_name: Mapped axis name, or names, whose numbers count too; or None.

    Returns:
        A `ReturnBasedScale`. `init(r_t)` returns the initial `ReturnScaleState` for
        rewards like the template. `update(state, r_t, discount_t, returns)` takes
        rewards, discounts of the same shape, and returns of any shape, such as those of
        `discounted_returns`. It returns the scale, of shape `[]`, and the next state.
        The keyword `sample_mask` is false for rewards and discounts to ignore,
        `returns_mask` for returns to ignore, such as those of unfinished episodes.
        Masked numbers may be NaN. The scale has no gradient. It is 1 while all numbers
        are equal.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> init, update = rlaxlib.return_based_scale()
        >>> r_t, discount_t = jnp.array([0.0, 6.0]), jnp.array([1.0, 0.0])
        >>> scale, state = update(init(r_t), r_t, discount_t, jnp.array([6.0, 10.0]))
        >>> print(scale**2)
        26.0

    References:
        Tom Schaul and others, *Return-based Scaling: Yet Another Normalisation Trick
        for Deep RL*, 2021. https://arxiv.org/abs/2105.05347
    """
    return ReturnBasedScale(min_scale, axis_name)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ReturnBasedScale(FunctionTuple):
    """A return-based scale for TD errors, which `return_based_scale` makes.

    Attributes:
        min_scale: Lower bound of the scale, in (0, inf), shape `[]`.
        axis_name: Mapped axis name, or names, whose numbers count too; or None.
    """

    min_scale: Float[ArrayLike, "in (0, inf)"]
    axis_name: AxisName | None = dataclasses.field(metadata={"static": True})
    _functions = ("init", "update")

    @checked(compiled=False)
    def init(self, r_t: Real[ArrayLike, "..."]) -> ReturnScaleState:
        """Return the initial state.

        Args:
            r_t: Rewards as in updates, shape `[...]`.

        Returns:
            The state.

        Raises:
            ArgumentError: If the rewards are neither floats nor integers.
        """
        zero, (init, _) = _zero(r_t), running_moments()
        return ReturnScaleState(init((zero, zero)), init(zero))

    @checked(wide=True)
    def update(
        self,
        state: ReturnScaleState,
        r_t: Real[ArrayLike, "..."],
        discount_t: Float[ArrayLike, "... in [-1, 1]"],
        returns: Real[ArrayLike, "*R"],
        *,
        sample_mask: Bool[ArrayLike, "..."] | None = None,
        returns_mask: Bool[ArrayLike, "*R"] | None = None,
    ) -> tuple[Float[Array, ""], ReturnScaleState]:
        """Include rewards, discounts and returns.

        Args:
            state: State of the scale.
            r_t: Rewards, shape `[...]`.
            discount_t: Discounts that follow them, in [-1, 1], shape `[...]`.
            returns: Returns of any other shape, shape `[...]`.
            sample_mask: False for rewards and discounts to ignore, shape `[...]`; or
                None.
            returns_mask: False for the returns to ignore, shape `[...]`; or None.

        Returns:
            The scale, shape `[]`, and the next state.

        Raises:
            ArgumentError: If a shape or dtype is wrong.
        """
        _, update = running_moments(axis_name=self.axis_name)
        steps, steps_state = update(
            state.steps, (r_t, discount_t), sample_mask=sample_mask
        )
        g, returns_state = update(state.returns, returns, sample_mask=returns_mask)
        reward_variance, discount_variance = steps.variance
        mean_square = g.variance + jnp.square(g.mean)
        variance = reward_variance + discount_variance * mean_square
        scale = _shared.scale(variance, jnp.asarray(self.min_scale))
        return scale, ReturnScaleState(steps_state, returns_state)


@checked
def percentile_scale(
    decay: Float[ArrayLike, "in [0, 1)"] = 0.99,
    low_percentile: Float[ArrayLike, "in [0, 100]"] = 5.0,
    high_percentile: Float[ArrayLike, "in [low_percentile, 100]"] = 95.0,
    min_scale: Float[ArrayLike, "in (0, inf)"] = 1.0,
    *,
    axis_name: AxisName | None = None,
) -> PercentileScale:
    """Create a scale for returns: an EMA of a percentile range (DreamerV3).

    Takes settings, returns a normaliser: `init` makes a state, `update` updates it.

    ::

        S_n = max(S_min, (1 / (1 - d^n)) ∑_{i=1}^n (1 - d) d^{n-i} Δ_i),
        Δ_i = P_{95}(G_i) - P_5(G_i)

    with percentiles over the returns of one update, on all devices, interpolated
    linearly. DreamerV3 divides advantages by this scale, so that one weight of the
    entropy bonus fits rewards of any magnitude. The bound :math:`S_min = 1`, on the
    average, avoids amplifying small returns where rewards are sparse.

    Args:
        decay: Decay :math:`d`, in [0, 1), shape `[]`.
        low_percentile: Lower percentile, in [0, 100], shape `[]`.
        high_percentile: Higher percentile, in [`low_percentile`, 100], shape `[]`.
        min_scale: Lower bound :math:`S_min` of the scale, in (0, inf), shape `[]`.
        axis_name: Mapped axis name, or names, whose returns count too; or None.

    Returns:
        A `PercentileScale`. `init(returns)` returns the initial `EmaState` of a
        `ReturnRange`, for returns like the template. `init(returns, 1.0)` starts from a
        range of 1, without the correction of the bias, as TD-MPC2 does, which bounds
        the range in place of the average; the code of DreamerV3 starts from 0.
        `update(state, returns)` takes returns, floats or integers of any shape, and
        returns the scale, of shape `[]`, and the next state.
        The keyword `sample_mask` is false for returns to ignore, which may be NaN; its
        axes are the first of the returns. If it excludes all, the state stays the same.
        The scale has no gradient. DreamerV3 subtracts `state.mean.lower`.

    Raises:
        ArgumentError: If a setting is out of range, or the returns or mask do not fit.

    Example:
        >>> init, update = rlaxlib.percentile_scale(decay=0.5)
        >>> returns = jnp.arange(101.0)
        >>> scale, state = update(init(returns), returns)
        >>> print(scale, state.mean.lower)
        90.0 5.0

    References:
        Danijar Hafner and others, *Mastering Diverse Domains through World Models*,
        2023. https://arxiv.org/abs/2301.04104
    """
    ema = create_ema(decay)
    return PercentileScale(ema, low_percentile, high_percentile, min_scale, axis_name)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PercentileScale(FunctionTuple):
    """An EMA of a percentile range of returns, which `percentile_scale` makes.

    Attributes:
        ema: Moving average of the range.
        low_percentile: Lower percentile, in [0, 100], shape `[]`.
        high_percentile: Higher percentile, in [`low_percentile`, 100], shape `[]`.
        min_scale: Lower bound of the scale, in (0, inf), shape `[]`.
        axis_name: Mapped axis name, or names, whose returns count too; or None.
    """

    ema: Ema
    low_percentile: Float[ArrayLike, "in [0, 100]"]
    high_percentile: Float[ArrayLike, "in [low_percentile, 100]"]
    min_scale: Float[ArrayLike, "in (0, inf)"]
    axis_name: AxisName | None = dataclasses.field(metadata={"static": True})
    _functions = ("init", "update")

    @checked(compiled=False)
    def init(
        self,
        returns: Real[ArrayLike, "..."],
        spread: Float[ArrayLike, "in [0, inf)"] | None = None,
    ) -> EmaState:
        """Return the initial state, which has seen no returns.

        Args:
            returns: Returns as in updates, shape `[...]`.
            spread: First value of the range, in [0, inf), without the factor
                :math:`1 / (1 - d^n)`, shape `[]`; or None.

        Returns:
            The state.

        Raises:
            ArgumentError: If the returns are neither floats nor integers, or `spread`
                is negative.
        """
        state = self.ema.init(ReturnRange(_zero(returns), _zero(returns)))
        if spread is None:
            return state
        lower, zero = state.mean
        mean = ReturnRange(lower, zero + jnp.asarray(spread, zero.dtype))
        return state._replace(mean=mean, weight=jnp.ones_like(state.weight))

    @checked(wide=True)
    def update(
        self,
        state: EmaState,
        returns: Real[ArrayLike, "..."],
        *,
        sample_mask: Bool[ArrayLike, "*M"] | None = None,
    ) -> tuple[Float[Array, ""], EmaState]:
        """Include returns.

        Args:
            state: State of the scale.
            returns: Returns, shape `[...]`.
            sample_mask: False for the returns to ignore, shape `[...]`. Its axes are
                the first ones of the returns; or None.

        Returns:
            The scale, shape `[]`, and the next state.

        Raises:
            ArgumentError: If a shape or dtype is wrong.
        """
        dtype = state.mean.lower.dtype
        percentiles = self.low_percentile, self.high_percentile
        low, high, min_scale = (
            jnp.asarray(x, dtype) for x in (*percentiles, self.min_scale)
        )
        ranked, count = _rank(returns, sample_mask, dtype, self.axis_name)
        bottom, top = (_percentile(ranked, count, q) for q in (low, high))
        # The same on all devices, which `maximum` shows to the compiler.
        bottom, top = (devices.maximum(x, self.axis_name) for x in (bottom, top))
        found = ReturnRange(bottom, top - bottom)
        moments, state = self.ema.update(found, state, sample_mask=count > 0)
        return jnp.maximum(moments.mean.spread, min_scale), state


def _zero(template: Any) -> Array:
    """Return a zero like an array, in single precision at least."""
    return jnp.sum(_shared.zeros(template))


def _past_sums(
    r_t: Array,
    discount_t: Array,
    carried: Array,
    truncated_t: Array | None,
    sample_mask: Array | None,
) -> tuple[Array, Array]:
    """Return the discounted sums of past rewards, `[T]`, and the sum to carry on."""
    if sample_mask is not None:  # The sum passes through ignored steps.
        discount_t = jnp.where(sample_mask, discount_t, 1)
    if truncated_t is not None:
        discount_t = jnp.where(truncated_t, 0, discount_t)
    r_t, discount_t = (
        jax.lax.stop_gradient(x).astype(carried.dtype) for x in (r_t, discount_t)
    )
    before = jnp.pad(discount_t[:-1], (1, 0), constant_values=1)
    # The recurrence runs backwards in time, so time is reversed.
    sums = recurrence.backward(r_t[::-1], before[::-1], carried)[::-1]
    return sums, discount_t[-1] * sums[-1]


def _rank(
    x: Array, mask: Array | None, dtype: Any, axis_name: AxisName | None
) -> tuple[Array, Array]:
    """Return the sorted returns of all devices, and how many are not masked."""
    if mask is not None:
        checks.leading_axes(sample_mask=mask, returns=x)
        mask = arrays.lhs_broadcast(mask, x)
    mask = streams.filled(mask, x)
    count = devices.total(jnp.sum(mask, dtype=jnp.int32), axis_name)
    x = jnp.where(mask, jax.lax.stop_gradient(x), jnp.inf).astype(dtype).ravel()
    x = jnp.pad(x, (0, 1), constant_values=jnp.inf)  # So that there is an entry.
    ranked = jnp.sort(devices.gather(x, axis_name))
    return jnp.where(count > 0, ranked, 0), count


def _percentile(ranked: Array, count: Array, percentage: Array) -> Array:
    """Return a percentile of the first `count` of sorted values."""
    last = jnp.maximum(count - 1, 0)
    position = percentage * last.astype(ranked.dtype) / 100
    index = jnp.minimum(jnp.floor(position).astype(jnp.int32), last)
    below, above = ranked[index], ranked[jnp.minimum(index + 1, last)]
    share = position - index.astype(position.dtype)
    return below + share * (above - below)
