"""Statistics of arms: counts, means and variances, discounted or in a sliding window.

`ucb_scores`, `ucb_tuned_scores`, `kl_ucb_scores` and Thompson sampling take them.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from rlaxlib._core import moments, safe
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Float, Int, Static
from rlaxlib.bandits._shared import one_hot

__all__ = [
    "BanditState",
    "SlidingWindowState",
    "bandit_init",
    "bandit_update",
    "sliding_window_init",
    "sliding_window_update",
]


class BanditState(NamedTuple):
    """Statistics of the rewards of each arm.

    Attributes:
        counts: Number :math:`N_a` of pulls, in [0, inf), fractional if discounted,
            shape `[A]`.
        means: Mean rewards :math:`μ̂_a`, 0 before the first pull, shape `[A]`.
        variances: Variances of the rewards, divided by :math:`N_a`, in [0, inf),
            shape `[A]`.
        counts_rest: Rounding errors of `counts`, 0 at first, shape `[A]`. Without them,
            a count would stop at 2 ** 24 in single precision.
        means_rest: Rounding errors of `means`, likewise, shape `[A]`.
        variances_rest: Rounding errors of `variances`, likewise, shape `[A]`.
    """

    counts: Float[Array, "A in [0, inf)"]
    means: Float[Array, "A"]
    variances: Float[Array, "A in [0, inf)"]
    counts_rest: Float[Array, "A"]
    means_rest: Float[Array, "A"]
    variances_rest: Float[Array, "A"]


class SlidingWindowState(NamedTuple):
    """Statistics of the rewards of each arm over the last `W` pulls.

    Attributes:
        counts: Number :math:`N_a` of pulls in the window, in [0, inf), shape `[A]`.
        means: Mean rewards :math:`μ̂_a` in the window, 0 without a pull, shape `[A]`.
        variances: Variances of the rewards, divided by :math:`N_a`, in [0, inf),
            shape `[A]`.
        arms: Arms pulled, the latest last, -1 before the first pull, shape `[W]`.
        rewards: Their rewards, shape `[W]`.
    """

    counts: Float[Array, "A in [0, inf)"]
    means: Float[Array, "A"]
    variances: Float[Array, "A in [0, inf)"]
    arms: Int[Array, "W"]
    rewards: Float[Array, "W"]


@checked
def bandit_init(num_arms: Static[int, "in [1, inf)"]) -> BanditState:
    """Return the statistics of arms that have not been pulled.

    Takes a number of arms, returns a state.

    ::

        N_a = 0,   μ̂_a = 0

    Args:
        num_arms: Number of arms, a Python integer in [1, inf).

    Returns:
        A `BanditState` of zeros.

    Raises:
        ArgumentError: If `num_arms` is not a Python integer of at least 1.

    Example:
        >>> print(rlaxlib.bandit_init(2).counts)
        [0. 0.]

    References:
        Richard S. Sutton and Andrew G. Barto, *Reinforcement Learning: An
        Introduction*, second edition, section 2.4, 2018.
        http://incompleteideas.net/book/the-book-2nd.html
    """
    return BanditState(*(jnp.zeros(num_arms) for _ in BanditState._fields))


@checked
def bandit_update(
    state: BanditState,
    arm: Int[ArrayLike, "in [0, A)"],
    reward: Float[ArrayLike, ""],
    discount: Float[ArrayLike, "in [0, 1]"] = 1.0,
) -> BanditState:
    """Update the statistics of the arms with one reward, discounted or not.

    Takes a state and one pull, returns the next state.

    ::

        N_a' = γ N_a + 1[a = A]
        μ̂_a' = μ̂_a + 1[a = A] (R - μ̂_a) / N_a'

    A discount :math:`γ < 1` tracks rewards that change over time: the statistics are
    those of about the last :math:`1/(1 - γ)` pulls. With `ucb_scores` this is
    discounted UCB.

    Args:
        state: Statistics of the arms, a `BanditState`.
        arm: Arm :math:`A` that was pulled, in [0, A), shape `[]`.
        reward: Its reward :math:`R`, shape `[]`.
        discount: Discount :math:`γ` of past pulls, in [0, 1], shape `[]`.

    Returns:
        Next `BanditState`; NaN if a traced `arm` is out of range.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> state = rlaxlib.bandit_update(rlaxlib.bandit_init(2), 0, 1.0)
        >>> state = rlaxlib.bandit_update(state, 0, 4.0)
        >>> print(state.counts, state.means, state.variances)
        [2. 0.] [2.5 0. ] [2.25 0.  ]

    References:
        Aurélien Garivier and Eric Moulines, *On Upper-Confidence Bound Policies for
        Non-Stationary Bandit Problems*, section 2, 2008.
        https://arxiv.org/abs/0805.3415
    """
    counts, means, variances, counts_rest, *rests = state
    pulled = one_hot(arm, counts)
    counts, rest = moments.add(discount * counts, discount * counts_rest, pulled)
    one, other = (means, variances, *rests), (reward, 0.0, 0.0, 0.0)
    weight = safe.divide(pulled, counts)
    means, variances, *rests = moments.merge(one, other, weight)
    return BanditState(counts, means, variances, rest, *rests)


@checked
def sliding_window_init(
    num_arms: Static[int, "in [1, inf)"], window: Static[int, "in [1, inf)"]
) -> SlidingWindowState:
    """Return the statistics of an empty sliding window over pulls.

    Takes numbers of arms and of pulls, returns a state.

    ::

        N_a = 0,   μ̂_a = 0

    Args:
        num_arms: Number of arms, a Python integer in [1, inf).
        window: Number :math:`W` of pulls in the window, a Python integer in [1, inf).

    Returns:
        A `SlidingWindowState`.

    Raises:
        ArgumentError: If an argument is not a Python integer of at least 1.

    Example:
        >>> print(rlaxlib.sliding_window_init(2, window=3).arms)
        [-1 -1 -1]

    References:
        Aurélien Garivier and Eric Moulines, *On Upper-Confidence Bound Policies for
        Non-Stationary Bandit Problems*, section 2, 2008.
        https://arxiv.org/abs/0805.3415
    """
    arms, rewards = jnp.full(window, -1, int), jnp.zeros(window)
    return SlidingWindowState(*bandit_init(num_arms)[:3], arms, rewards)


@checked
def sliding_window_update(
    state: SlidingWindowState,
    arm: Int[ArrayLike, "in [0, A)"],
    reward: Float[ArrayLike, ""],
) -> SlidingWindowState:
    """Update the statistics of the arms over a sliding window with one reward.

    Takes a state and one pull, returns the next state.

    ::

        N_a = ∑_{s=t-W+1}^t 1[A_s = a],   μ̂_a = (1/N_a) ∑_{s=t-W+1}^t 1[A_s = a] R_s

    An arm that has left the window counts as not yet pulled, so `ucb_scores` pulls it
    again. This is sliding-window UCB, the meta-controller of Agent57, with windows of
    90 and 160 episodes.

    Args:
        state: Statistics and pulls of the window, a `SlidingWindowState`.
        arm: Arm :math:`A_t` that was pulled, in [0, A), shape `[]`.
        reward: Its reward :math:`R_t`, shape `[]`.

    Returns:
        Next `SlidingWindowState`, computed afresh; NaN if a traced `arm` is invalid.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> state = rlaxlib.sliding_window_init(2, window=2)
        >>> for arm, reward in ((1, 5.0), (0, 1.0), (0, 2.0)):
        ...     state = rlaxlib.sliding_window_update(state, arm, reward)
        >>> print(state.counts, state.means)
        [2. 0.] [1.5 0. ]

    References:
        Aurélien Garivier and Eric Moulines, *On Upper-Confidence Bound Policies for
        Non-Stationary Bandit Problems*, section 2, 2008.
        https://arxiv.org/abs/0805.3415
    """
    counts, _, _, arms, rewards = state
    in_range = jnp.sum(one_hot(arm, counts))
    arms = jnp.append(arms[1:], arm.astype(arms.dtype))
    rewards = jnp.append(rewards[1:], reward.astype(rewards.dtype))
    index = jnp.arange(counts.size, dtype=arms.dtype)
    pulled, each = arms[None] == index[:, None], rewards[None]
    counts = jnp.sum(pulled, axis=1, dtype=counts.dtype) * in_range
    size = jnp.maximum(counts, 1)
    means = jnp.sum(jnp.where(pulled, each, 0), axis=1) / size
    errors = jnp.where(pulled, each - means[:, None], 0)
    variances = jnp.sum(jnp.square(errors), axis=1) / size
    return SlidingWindowState(counts, means, variances, arms, rewards)
