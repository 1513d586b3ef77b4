"""n-step transitions, for losses that take one-step rewards, discounts and successors.

- `n_step_transitions`: rewards, discounts and the step to bootstrap from.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from rlaxlib._core import recurrence, streams
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Bool, Float, Int, Static

__all__ = ["NStepTransitions", "n_step_transitions"]


class NStepTransitions(NamedTuple):
    """Transitions over n steps of a stream.

    Attributes:
        r_t: Discounted sums of the rewards, shape `[T]`.
        discount_t: Products of the discounts, shape `[T]`.
        indices: Last step of each window: bootstrap from the next observation of this
            step, shape `[T]`.
    """

    r_t: Float[Array, "T"]
    discount_t: Float[Array, "T"]
    indices: Int[Array, "T"]


@checked
def n_step_transitions(
    r_t: Float[ArrayLike, "T"],
    discount_t: Float[ArrayLike, "T in [-1, 1]"],
    n: Static[int, "in [1, inf)"],
    *,
    truncated_t: Bool[ArrayLike, "T"] | None = None,
    sample_mask: Bool[ArrayLike, "T"] | None = None,
) -> NStepTransitions:
    """Compute n-step transitions: rewards, discounts and the index to bootstrap from.

    Takes one trajectory, returns one n-step transition for each time step.

    ::

        R_t = ∑_{k=0}^{m-1} (∏_{j=1}^k γ_{t+j}) r_{t+1+k},
        Γ_t = ∏_{k=1}^m γ_{t+k},
        i_t = t + m - 1.

    A one-step loss of :math:`R_t`, :math:`Γ_t` and the successor of step :math:`i_t` is
    the n-step loss: categorical and quantile Q-learning, or the critics of D4PG and
    SAC. For state or action values, `n_step_bootstrapped_returns` and
    `n_step_q_learning` give the target at once.

    A window has :math:`m = n` valid steps, or fewer where the stream ends or is
    truncated. No index leads beyond the end of an episode.

    Args:
        r_t: Rewards :math:`r_1, …, r_T`, shape `[T]`.
        discount_t: Discounts :math:`γ_1, …, γ_T` in [-1, 1], shape `[T]`.
        n: Number of steps before bootstrapping, a Python integer in [1, inf).
        truncated_t: True where truncated: no window goes beyond, shape `[T]`; or None.
        sample_mask: False for time steps to ignore, shape `[T]`; or None.

    Returns:
        An `NStepTransitions`: `r_t` :math:`R`, `discount_t` :math:`Γ` and `indices`
        :math:`i`, shape `[T]` each. At ignored steps the first two are 0, and the index
        is that of the step.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> r_t, discount_t = jnp.array([1.0, 2.0, 4.0]), jnp.array([0.5, 0.5, 0.5])
        >>> r_t, discount_t, index = rlaxlib.n_step_transitions(r_t, discount_t, n=2)
        >>> print(r_t, discount_t, index)
        [2. 4. 4.] [0.25 0.25 0.5 ] [1 2 2]

    References:
        Matteo Hessel and others, *Rainbow: Combining Improvements in Deep Reinforcement
        Learning*, 2017. https://arxiv.org/abs/1710.02298
    """
    steps = jnp.arange(r_t.size)
    n = min(n, r_t.size)
    end = streams.ends(truncated_t, sample_mask)
    end = jnp.zeros_like(steps, bool) if end is None else end
    if sample_mask is not None:
        r_t, discount_t, end = (
            streams.compact(x, sample_mask) for x in (r_t, discount_t, end)
        )
    window, one = recurrence.backward_window, jnp.ones_like(r_t)
    rewards = window(r_t, discount_t, jnp.zeros_like(r_t), n, end=end)
    discounts = window(jnp.where(end, discount_t, 0), discount_t, one, n, end=end)
    is_last = end | (discount_t == 0)
    last = jax.lax.cummin(jnp.where(is_last, steps, steps.size - 1), reverse=True)
    index = jnp.minimum(last, steps + n - 1)
    rewards, discounts, index = (
        streams.restore(x, sample_mask) for x in (rewards, discounts, index)
    )
    return NStepTransitions(rewards, discounts, streams.step_of(index, sample_mask))
