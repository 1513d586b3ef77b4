"""Value losses of in-sample Q-learning: XQL and SQL; that of IQL is `expectile_loss`.

Each loss fits a state value to the values of the data's actions, and its minimiser lies
between their mean and their maximum. So the value of the best action in the data is
estimated without evaluating an action that is not in it. The critic then learns from
:math:`r + γ v(s')`, and the policy by `advantage_weights`.

For several critics, pass the minimum of their values. Functions are elementwise.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rlaxlib._core import ratios
from rlaxlib._core.gradients import stop_if
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Bool, Float

__all__ = ["sql_value_loss", "xql_value_loss"]


@checked
def xql_value_loss(
    v: Float[ArrayLike, "..."],
    q: Float[ArrayLike, "..."],
    temperature: Float[ArrayLike, "in (0, inf)"],
    max_exponent: Float[ArrayLike, "in (0, inf]"] = 7.0,
    *,
    stop_target_gradients: bool = True,
    sample_mask: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "..."]:
    """Compute the Gumbel-regression value loss of extreme Q-learning (XQL).

    Takes one state value and action value for each step, returns one loss for each.

    ::

        L = { e^z - z - 1                          if z ≤ c
            { e^c - c - 1 + (e^c - 1) (z - c)      otherwise,   z = (q - v) / β

    While all :math:`z ≤ c`, the minimiser is the soft value :math:`β log E[exp(q/β)]`
    of the data's actions, which tends to their maximum as :math:`β` tends to 0, and to
    their mean as it grows. Above :math:`c`, or 40 if that is less, the loss is linear,
    so that outliers do not overflow and have a gradient, but count for less.

    Args:
        v: State values :math:`v(s)`, shape `[...]`.
        q: Values :math:`q(s, a)` of the data's actions, target critic, shape `[...]`.
        temperature: Temperature :math:`β`, in (0, inf), in the unit of the values,
            shape `[]`.
        max_exponent: Error :math:`c`, in (0, inf], in temperatures, from which it is
            linear, shape `[]`.
        stop_target_gradients: Whether to stop the gradient of `q`.
        sample_mask: False for steps to ignore, shape `[...]`; or None.

    Returns:
        Losses, shape `[...]`, 0 for ignored steps.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> gradient = jax.grad(rlaxlib.xql_value_loss)
        >>> print(f"{gradient(-1000.0, 0.0, 1.0, max_exponent=jnp.log(4.0)):.3f}")
        -3.000

    References:
        Divyansh Garg and others, *Extreme Q-Learning: MaxEnt RL without Entropy*, 2023.
        https://arxiv.org/abs/2301.02328
    """
    z = (stop_if(stop_target_gradients, q) - v) / temperature
    c = jnp.minimum(max_exponent, ratios.BOUND)
    # Equal to both cases: e^z would overflow in the one that is not chosen.
    return ratios.k3(jnp.where(z <= c, z, c)) + jnp.expm1(c) * jax.nn.relu(z - c)


@checked
def sql_value_loss(
    v: Float[ArrayLike, "..."],
    q: Float[ArrayLike, "..."],
    temperature: Float[ArrayLike, "in (0, inf)"],
    *,
    stop_target_gradients: bool = True,
    sample_mask: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "..."]:
    """Compute the value loss of sparse Q-learning (SQL).

    Takes one state value and action value for each step, returns one loss for each.

    ::

        L = max(0, w)² + v / α,   w = 1 + (q - v) / (2 α)

    At the minimum the mean of :math:`max(0, w)` over the data's actions is 1. The
    minimiser tends to the maximum of the values as :math:`α` tends to 0. The policy's
    loss is :math:`-max(0, w) log π(a)`, with the gradient of :math:`w` stopped.

    Args:
        v: State values :math:`v(s)`, shape `[...]`.
        q: Values :math:`q(s, a)` of the data's actions, target critic, shape `[...]`.
        temperature: Temperature :math:`α`, in (0, inf), in the unit of the values,
            shape `[]`.
        stop_target_gradients: Whether to stop the gradient of `q`.
        sample_mask: False for steps to ignore, shape `[...]`; or None.

    Returns:
        Losses, shape `[...]`, 0 for ignored steps.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> v, q = jnp.array([1.0, 3.0]), jnp.array([2.0, 0.0])
        >>> print(rlaxlib.sql_value_loss(v, q, temperature=0.5))
        [6. 6.]

    References:
        Haoran Xu and others, *Offline RL with No OOD Actions: In-Sample Learning via
        Implicit Value Regularization*, 2023. https://arxiv.org/abs/2303.15810
    """
    w = 1 + (stop_if(stop_target_gradients, q) - v) / (2 * temperature)
    return jnp.square(jax.nn.relu(w)) + v / temperature
