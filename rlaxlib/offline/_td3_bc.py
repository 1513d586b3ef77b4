"""Actor-critic with behaviour cloning: TD3+BC and ReBRAC.

A deterministic policy maximises the critic and stays close to the data's actions.
ReBRAC lowers the critic's target by the distance to the data's next action as well:
:math:`y = r_t + γ_t (min_i q_i(s_t, a'_t) - β_2 ‖a'_t - a_t‖²)`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rlaxlib import arrays
from rlaxlib._core import safe
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, AxisName, Float

__all__ = ["td3_bc_loss", "td3_bc_weight"]


@checked
def td3_bc_loss(
    q: Float[ArrayLike, ""],
    a: Float[ArrayLike, "D"],
    data_a: Float[ArrayLike, "D"],
    weight: Float[ArrayLike, "in [0, inf)"],
) -> Float[Array, ""]:
    """Compute the policy loss of TD3+BC and ReBRAC.

    Takes one action of the policy and one of the data, returns one loss.

    ::

        L = -λ q(s, π(s)) + ‖π(s) - a‖²

    The gradient flows through :math:`q` and the policy's action, not the weight. For
    ReBRAC, whose loss is :math:`-λ q + β_1 ‖π(s) - a‖²`, divide the weight by
    :math:`β_1`. The authors' code averages over the D dimensions of an action: for the
    same balance, multiply :math:`α` of `td3_bc_weight` by D.

    Args:
        q: Value :math:`q(s, π(s))` of the policy's action, shape `[]`.
        a: Action :math:`π(s)` of the policy, shape `[D]`.
        data_a: Action :math:`a` in the data, shape `[D]`.
        weight: Weight :math:`λ` of the value, in [0, inf), such as `td3_bc_weight`,
            shape `[]`.

    Returns:
        Loss, shape `[]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> a, data_a = jnp.array([0.5, 1.0]), jnp.array([0.0, 0.0])
        >>> print(rlaxlib.td3_bc_loss(4.0, a, data_a, weight=0.5))
        -0.75

    References:
        Scott Fujimoto and Shixiang Shane Gu, *A Minimalist Approach to Offline
        Reinforcement Learning*, 2021. https://arxiv.org/abs/2106.06860

        Denis Tarasov and others, *Revisiting the Minimalist Approach to Offline
        Reinforcement Learning*, 2023. https://arxiv.org/abs/2305.09836
    """
    distance = jnp.sum(jnp.square(a - data_a))
    return distance - jax.lax.stop_gradient(weight) * q


@checked
def td3_bc_weight(
    q: Float[ArrayLike, "N"],
    alpha: Float[ArrayLike, "in [0, inf)"],
    *,
    axis_name: AxisName | None = None,
) -> Float[Array, ""]:
    """Compute the weight of the values in the policy loss of TD3+BC.

    Takes the values of a batch of actions, returns one weight.

    ::

        λ = α / ((1/N) ∑_i |q_i|)

    It makes the balance of value and cloning independent of the scale of the rewards.

    Args:
        q: Values :math:`q(s_i, π(s_i))` of the policy's actions, shape `[N]`.
        alpha: Weight :math:`α` of normalised values, in [0, inf), shape `[]`. The paper
            uses 2.5, with a mean over the dimensions of actions: see `td3_bc_loss`.
        axis_name: Mapped axis name, or names, to average over as well; or None.

    Returns:
        Weight :math:`λ`, without a gradient, shape `[]`; :math:`α` if all values are 0.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> print(rlaxlib.td3_bc_weight(jnp.array([-2.0, 8.0]), alpha=2.5))
        0.5

    References:
        Scott Fujimoto and Shixiang Shane Gu, *A Minimalist Approach to Offline
        Reinforcement Learning*, 2021. https://arxiv.org/abs/2106.06860
    """
    scale = arrays.masked_mean(jnp.abs(q), axis_name=axis_name)
    # Values are all 0 where the last layer is initialised to 0.
    return jax.lax.stop_gradient(safe.divide(alpha, scale, otherwise=alpha))
