"""Return-conditioned policies: decision transformer."""

from __future__ import annotations

import jax.numpy as jnp

from rlaxlib import returns
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Bool, Float

__all__ = ["returns_to_go"]


@checked
def returns_to_go(
    r_t: Float[ArrayLike, "T"],
    discount_t: Float[ArrayLike, "T in [-1, 1]"],
    *,
    truncated_t: Bool[ArrayLike, "T"] | None = None,
    sample_mask: Bool[ArrayLike, "T"] | None = None,
) -> Float[Array, "T"]:
    """Compute the returns-to-go that a decision transformer is conditioned on.

    Takes one trajectory, returns one return for each time step.

    ::

        G_t = r_{t+1} + γ_{t+1} G_{t+1},   G_T = 0

    It is `discounted_returns` without bootstrapping, also where the stream is cut. The
    paper does not discount: discounts are 1, and 0 where an episode ended. The policy
    is then trained on the actions by `-log_prob`.

    Args:
        r_t: Rewards :math:`r_1, …, r_T`, shape `[T]`.
        discount_t: Discounts :math:`γ_1, …, γ_T`, each in [-1, 1], shape `[T]`.
        truncated_t: True where the stream is cut after a step, shape `[T]`; or None.
        sample_mask: False for time steps to ignore, shape `[T]`; or None.

    Returns:
        Returns-to-go :math:`G_0, …, G_{T-1}`, shape `[T]`; 0 at steps to ignore.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> r_t, discount_t = jnp.array([1.0, 2.0, 4.0]), jnp.array([1.0, 0.0, 1.0])
        >>> print(rlaxlib.returns_to_go(r_t, discount_t))
        [3. 2. 4.]

    References:
        Lili Chen and others, *Decision Transformer: Reinforcement Learning via Sequence
        Modeling*, 2021. https://arxiv.org/abs/2106.01345
    """
    step = r_t, discount_t, jnp.zeros_like(r_t)
    return returns.discounted_returns(
        *step, truncated_t=truncated_t, sample_mask=sample_mask
    )
