"""Scale rewards, or temporal-difference errors, by how large returns are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib._core import checks, recurrence, streams
from rlaxlib._core.devices import AxisName
from rlaxlib.normalization import _moments
from rlaxlib.normalization._running_moments import RunningMomentsState, running_moments

__all__ = [
    "ReturnScaleState",
    "RewardScaleState",
    "return_based_scale",
    "reward_scale",
]


class RewardScaleState(NamedTuple):
    """What is carried from one stretch of a stream to the next.

    Attributes:
        moments: What is known of the discounted sums of past rewards.
        carried: What the next reward is added to: the discounted sum so far in this
            episode, shape `[]`. It belongs to one stream.
    """

    moments: RunningMomentsState
    carried: Array


class ReturnScaleState(NamedTuple):
    """What is known of rewards, discounts and returns.

    Attributes:
        steps: Moments of the rewards and of the discounts, a pair of numbers, each of
            shape `[]`.
        returns: Moments of the returns, numbers of shape `[]`.
    """

    steps: RunningMomentsState
    returns: RunningMomentsState


def reward_scale(
    epsilon: ArrayLike = 1e-8, axis_name: AxisName | None = None
) -> tuple[
    Callable[[Any], RewardScaleState],
    Callable[..., tuple[Array, RewardScaleState]],
]:
    """Make a scale for rewards: the deviation of discounted sums of past ones.

    .. math::

        R_t = r_t + γ_{t-1} R_{t-1},   σ_n = √(Var(R_1, …, R_n) + ε)

    where an episode starts from :math:`R = 0`. Divide rewards by it, and take no mean
    off: that would change what is best to do. So value functions have targets of about
    1, whatever the rewards are. The sum runs forwards, so that one need not wait for an
    episode to end; its variance is near that of the returns if rewards are alike over
    an episode, and the discount is less than 1.

    An end counts after its own step, as everywhere in this library: the last reward of
    an episode is added to those before it, and the first one of the next to nothing.
    A discount of 0 after a termination does that, and `truncated_t` after a time limit.
    Gymnasium 1.3 and PureJaxRL reset *before* they add, so that the last sum has no
    past and the next episode starts from its reward; Gymnasium leaves out truncations,
    too, across which the sum goes on. OpenAI's Baselines and Stable-Baselines3 reset
    after the step, at both kinds of ends.

    Args:
        epsilon: What is added to the variance, :math:`ε ≥ 0`, shape `[]`.
        axis_name: Name of the axis, or axes, that devices or streams form, to take in
            the sums of all of them; or None for one stream alone.

    Returns:
        Two functions. `init_state(r_t)` returns the `RewardScaleState` that knows
        nothing, for rewards like those given. `update_scale(r_t, discount_t, state)`
        returns the scale that takes in rewards, of shape `[T]`, and the discounts that
        follow them, of shape `[T]`; and the next state, with which the stream goes on.
        It also takes, by name, `truncated_t` and `sample_mask`, bools of shape `[T]`,
        as `lambda_returns` does, but the end of a stretch that goes on in the next is
        no cut. The scale, of shape `[]`, is constant under differentiation; it is 1 as
        long as all sums have been equal, for there is no scale yet.

        Under `jax.vmap` over streams, give its axis a name, and have it map over the
        state as well: each stream has its own sum, and all have the same moments.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if `epsilon` is
            negative.

    Example:
        >>> init_state, update_scale = rlaxlib.reward_scale()
        >>> r_t, discount_t = jnp.array([1.0, 2.0]), jnp.array([0.5, 0.0])
        >>> scale, state = update_scale(r_t, discount_t, init_state(r_t))
        >>> print(scale, state.moments.mean)
        0.75 1.75

    References:
        Logan Engstrom and others, *Implementation Matters in Deep Policy Gradients: A
        Case Study on PPO and TRPO*, section 3, 2020. https://arxiv.org/abs/2005.12729

        Marcin Andrychowicz and others, *What Matters in On-Policy Reinforcement
        Learning? A Large-Scale Empirical Study*, 2020.
        https://arxiv.org/abs/2006.05990
    """
    checks.arrays(epsilon=(epsilon, "float[]"))
    checks.within("[0, inf)", epsilon=epsilon)
    start, take_in = running_moments(axis_name)

    def init_state(r_t: ArrayLike) -> RewardScaleState:
        """Return the state of a scale that has seen no rewards.

        Args:
            r_t: Rewards like those to come.

        Returns:
            The state.
        """
        zero = _zero(r_t)
        return RewardScaleState(start(zero), zero)

    def update_scale(
        r_t: ArrayLike,
        discount_t: ArrayLike,
        state: RewardScaleState,
        *,
        truncated_t: ArrayLike | None = None,
        sample_mask: ArrayLike | None = None,
    ) -> tuple[Array, RewardScaleState]:
        """Take in the rewards of a stretch of one stream.

        Args:
            r_t: Rewards, `[T]`.
            discount_t: Discounts that follow them, 0 where an episode ends, `[T]`.
            state: What has been carried so far.
            truncated_t: True where the stream is cut after a step though the episode
                goes on, `[T]`; or None if it is nowhere.
            sample_mask: False where a row is no step, such as that of a reset, `[T]`;
                or None if all are.

        Returns:
            The scale, and what to carry to the next stretch.
        """
        r_t, discount_t, truncated_t, sample_mask = checks.arrays(
            r_t=(_moments.numbers(r_t), "float[T]"),
            discount_t=(discount_t, "float[T]"),
            truncated_t=(truncated_t, "bool[T] or None"),
            sample_mask=(sample_mask, "bool[T] or None"),
        )
        sums, carried = _past(r_t, discount_t, state.carried, truncated_t, sample_mask)
        moments, known = take_in(sums, state.moments, mask=sample_mask)
        variance = moments.variance + jnp.asarray(epsilon, moments.variance.dtype)
        varied = moments.variance > 0
        scale = jnp.sqrt(jnp.where(varied, variance, jnp.ones_like(variance)))
        return scale, RewardScaleState(known, carried)

    return init_state, update_scale


def return_based_scale(
    min_scale: ArrayLike = 1e-2, axis_name: AxisName | None = None
) -> tuple[
    Callable[[Any], ReturnScaleState],
    Callable[..., tuple[Array, ReturnScaleState]],
]:
    """Make a scale for temporal-difference errors, out of rewards and returns.

    .. math::

        σ² = Var[R] + Var[γ] E[G²],   δ̄ = δ / σ

    over all rewards R, discounts :math:`γ` and returns G so far. Once values are right,
    that is about how large errors are that no network can do away with; and it rests on
    what the environment does, not on what a network says of it. Dividing the errors by
    it makes losses of about the same size, across tasks and discounts, while values
    stay as they are. The discounts vary because they are 0 where an episode ends. It is
    the mean square of the returns that counts, not their variance: an end that comes
    unforeseen costs all of a return.

    The moments are of all numbers so far, which makes the scale almost constant after
    a while. A running mean of squares that follows recent ones only, as some
    implementations have it, follows the learning policy instead.

    Args:
        min_scale: Smallest scale, more than 0, shape `[]`. Where the first reward
            comes after very many steps, a smaller one would blow its error up.
        axis_name: Name of the axis, or axes, that devices form, to take in the numbers
            on all of them; or None to stay on one device.

    Returns:
        Two functions. `init_state(r_t)` returns the `ReturnScaleState` that knows
        nothing, for rewards like those given. `update_scale(r_t, discount_t, returns,
        state)` returns the scale that takes in rewards, discounts of the same shape,
        and returns of any shape, such as those of `discounted_returns`; and the next
        state. It also takes, by name, a `mask`: true where a reward and its discount
        count; and a `returns_mask`: true where a return counts, as one of an episode
        not yet at its end may not. They are of the shape of what they tell of; what
        they leave out may be anything, NaN included. The scale, of shape `[]`, is
        constant under differentiation; it is 1 as long as nothing has varied.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if `min_scale`
            is not positive.

    Example:
        >>> init_state, update_scale = rlaxlib.return_based_scale()
        >>> r_t, discount_t = jnp.array([0.0, 6.0]), jnp.array([1.0, 0.0])
        >>> returns = jnp.array([6.0, 10.0])
        >>> scale, state = update_scale(r_t, discount_t, returns, init_state(r_t))
        >>> print(scale**2)
        26.0

    References:
        Tom Schaul, Georg Ostrovski, Iurii Kemaev and Diana Borsa, *Return-based
        Scaling: Yet Another Normalisation Trick for Deep RL*, 2021.
        https://arxiv.org/abs/2105.05347
    """
    checks.arrays(min_scale=(min_scale, "float[]"))
    checks.within("(0, inf)", min_scale=min_scale)
    start, take_in = running_moments(axis_name)

    def init_state(r_t: ArrayLike) -> ReturnScaleState:
        """Return the state of a scale that has seen nothing.

        Args:
            r_t: Rewards like those to come.

        Returns:
            The state.
        """
        zero = _zero(r_t)
        return ReturnScaleState(start((zero, zero)), start(zero))

    def update_scale(
        r_t: ArrayLike,
        discount_t: ArrayLike,
        returns: ArrayLike,
        state: ReturnScaleState,
        *,
        mask: ArrayLike | None = None,
        returns_mask: ArrayLike | None = None,
    ) -> tuple[Array, ReturnScaleState]:
        """Take in steps, and returns.

        Args:
            r_t: Rewards, of any shape.
            discount_t: Discounts that follow them, of the same shape.
            returns: Returns, of any shape.
            state: What has been carried so far.
            mask: True where a reward and its discount count, of their shape; or None to
                count all.
            returns_mask: True where a return counts, of their shape; or None to count
                all.

        Returns:
            The scale, and what to carry to the next update.
        """
        r_t, discount_t, mask = checks.arrays(
            r_t=(_moments.numbers(r_t), "float[...]"),
            discount_t=(discount_t, "float[...]"),
            mask=(mask, "bool[...] or None"),
        )
        returns, returns_mask = checks.arrays(
            returns=(_moments.numbers(returns), "float[...]"),
            returns_mask=(returns_mask, "bool[...] or None"),
        )
        steps, known = take_in((r_t, discount_t), state.steps, mask=mask)
        seen, known_returns = take_in(returns, state.returns, mask=returns_mask)
        reward, discount = steps.variance
        square = seen.variance + jnp.square(seen.mean)
        scale = _moments.scale(reward + discount * square, jnp.asarray(min_scale))
        return scale, ReturnScaleState(known, known_returns)

    return init_state, update_scale


def _zero(r_t: ArrayLike) -> Array:
    """Return a 0, in the precision to average rewards in."""
    (x,) = checks.arrays(r_t=(_moments.numbers(r_t), "float[...]"))
    return jnp.sum(_moments.zeros(x))


def _past(
    r_t: Array,
    discount_t: Array,
    carried: Array,
    truncated_t: Array | None,
    sample_mask: Array | None,
) -> tuple[Array, Array]:
    """Return discounted sums of past rewards, `[T]`, and what is carried on."""
    if sample_mask is not None:  # A row that is no step passes on what it is given.
        r_t = streams.valid(r_t, sample_mask)
        discount_t = jnp.where(sample_mask, discount_t, jnp.ones_like(discount_t))
    r_t, discount_t = (
        jax.lax.stop_gradient(x).astype(carried.dtype) for x in (r_t, discount_t)
    )
    if truncated_t is not None:
        discount_t = jnp.where(truncated_t, jnp.zeros_like(discount_t), discount_t)
    kept = jnp.append(jnp.ones_like(discount_t[:1]), discount_t[:-1])
    # The recurrence runs backwards in time, so time is turned round.
    sums = recurrence.backward(r_t[::-1], kept[::-1], carried)[::-1]
    return sums, discount_t[-1] * sums[-1]
