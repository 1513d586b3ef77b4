"""Multi-agent reinforcement learning: mixing the values of several agents (QMIX).

`qmix` computes the value of a team from those of its agents. For VDN sum them.
Apply losses for one agent, such as `q_learning` or `ppo_clip_loss`, to each agent by
`jax.vmap`, or to the mixed value.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rlaxlib._core import safe
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Float

__all__ = ["qmix"]


@checked
def qmix(
    q: Float[ArrayLike, "N"],
    hidden_weights: Float[ArrayLike, "N, H"],
    hidden_bias: Float[ArrayLike, "H"],
    output_weights: Float[ArrayLike, "H"],
    output_bias: Float[ArrayLike, ""],
) -> Float[Array, ""]:
    """Mix the values of several agents monotonically (QMIX).

    Takes one value for each agent, returns the value of the team.

    ::

        Q = |w|ᵀ elu(|W|ᵀ q + b) + c

    The weights are outputs of hypernetworks of the state. Their absolute values make
    the mix increase with each :math:`q_i`, so that the action that maximises the value
    of an agent maximises the team's value. Then `q_learning` of the mixed values, with
    the greedy actions of each agent in the target, trains all agents. With one hidden
    unit, weights of 1 and positive values, this is the sum (VDN).

    Args:
        q: Value :math:`q_i` of the action of each agent, shape `[N]`.
        hidden_weights: Weights :math:`W` of the hidden layer, shape `[N, H]`.
        hidden_bias: Bias :math:`b` of the hidden layer, shape `[H]`.
        output_weights: Weights :math:`w` of the output, shape `[H]`.
        output_bias: Bias :math:`c` of the output, a function of the state, shape `[]`.

    Returns:
        Value of the team, shape `[]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong.

    Example:
        >>> q, w = jnp.array([1.0, 2.0]), jnp.array([-1.0])
        >>> hidden_weights = jnp.array([[1.0], [-3.0]])
        >>> print(rlaxlib.qmix(q, hidden_weights, jnp.zeros(1), w, 0.5))
        7.5

    References:
        Tabish Rashid and others, *QMIX: Monotonic Value Function Factorisation for Deep
        Multi-Agent Reinforcement Learning*, 2018. https://arxiv.org/abs/1803.11485
    """
    mixed = safe.dot(jnp.abs(hidden_weights).T, q[None])
    hidden = jax.nn.elu(mixed + hidden_bias)
    return safe.dot(jnp.abs(output_weights), hidden) + output_bias
