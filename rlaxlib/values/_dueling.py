"""Action values of duelling networks, from a state value and advantages.

Functions take one state. Use `jax.vmap` for a batch.
"""

from __future__ import annotations

import jax.numpy as jnp

from rlaxlib import arrays
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Bool, Float

__all__ = ["dueling_q_values"]


@checked
def dueling_q_values(
    v: Float[ArrayLike, ""],
    adv: Float[ArrayLike, "A"],
    *,
    action_mask: Bool[ArrayLike, "A"] | None = None,
) -> Float[Array, "A"]:
    """Compute the action values of a duelling network (duelling DQN).

    Takes one state, returns one value for each action.

    ::

        q(a) = v + A(a) - (1/|L|) ∑_{b ∈ L} A(b),

    where :math:`L` are the legal actions. For atoms or quantiles, map over their axis:
    `jax.vmap(rlaxlib.dueling_q_values, (0, 1), 1)`.

    Args:
        v: State value, shape `[]`.
        adv: Advantages :math:`A`, shape `[A]`.
        action_mask: True for legal actions, shape `[A]`; or None if all are.

    Returns:
        Action values :math:`q`, minus infinity for illegal actions, shape `[A]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype.

    Example:
        >>> print(rlaxlib.dueling_q_values(5.0, jnp.array([1.0, 2.0, 6.0])))
        [3. 4. 8.]

    References:
        Ziyu Wang and others, *Dueling Network Architectures for Deep Reinforcement
        Learning*, equation 9, 2016. https://arxiv.org/abs/1511.06581
    """
    q = v + (adv - arrays.masked_mean(adv, mask=action_mask))
    return q if action_mask is None else jnp.where(action_mask, q, -jnp.inf)
