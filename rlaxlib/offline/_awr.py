"""Advantage-weighted policy learning: AWR, AWAC, IQL and CRR.

The policy maximises the log-likelihood of the data's actions, each weighted by its
advantage: it imitates the better actions, and stays in the support of the data.
"""

from __future__ import annotations

from typing import Literal

import jax.numpy as jnp
from jax.lax import stop_gradient

from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Float

__all__ = ["advantage_weights", "crr_weights"]


@checked
def advantage_weights(
    adv: Float[ArrayLike, "..."],
    temperature: Float[ArrayLike, "in (0, inf)"],
    max_weight: Float[ArrayLike, "in (0, inf]"],
) -> Float[Array, "..."]:
    """Compute the exponential advantage weights of AWR, AWAC and IQL.

    Takes one advantage for each action, returns one weight for each.

    ::

        w = min(exp(Â / β), w_max)

    The loss of the policy is `reinforce_loss(log_prob, weights)`, which turns the
    data's policy :math:`μ` into :math:`π ∝ μ exp(Â/β)`. A high temperature gives
    behaviour cloning. IQL writes :math:`exp(β Â)`, so its :math:`β = 3` is a
    temperature of 1/3.

    Args:
        adv: Advantages :math:`Â` of the data's actions, shape `[...]`.
        temperature: Temperature :math:`β`, in (0, inf), in the unit of advantages,
            shape `[]`.
        max_weight: Maximum :math:`w_max`, in (0, inf], 20 in AWR and 100 in IQL,
            shape `[]`.

    Returns:
        Weights :math:`w`, without a gradient, shape `[...]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> adv = jnp.array([-1e6, 0.0, 1e6])
        >>> print(rlaxlib.advantage_weights(adv, temperature=0.5, max_weight=20.0))
        [ 0.  1. 20.]

    References:
        Xue Bin Peng and others, *Advantage-Weighted Regression: Simple and Scalable
        Off-Policy Reinforcement Learning*, 2019. https://arxiv.org/abs/1910.00177

        Ashvin Nair and others, *AWAC: Accelerating Online Reinforcement Learning with
        Offline Datasets*, 2020. https://arxiv.org/abs/2006.09359
    """
    return stop_gradient(jnp.minimum(jnp.exp(adv / temperature), max_weight))


@checked
def crr_weights(
    q: Float[ArrayLike, ""],
    sample_q_values: Float[ArrayLike, "N"],
    kind: Literal["exp", "binary"] = "exp",
    baseline: Literal["mean", "max"] = "mean",
    temperature: Float[ArrayLike, "in (0, inf)"] = 1.0,
    max_weight: Float[ArrayLike, "in (0, inf]"] = 20.0,
) -> Float[Array, ""]:
    """Compute the policy weight of critic-regularised regression (CRR).

    Takes the value of one action and N others, returns one weight.

    ::

        w_exp = min(exp(Â / β), w_max),   w_binary = 1[Â > 0],
        Â_mean = q(s, a) - (1/N) ∑_j q(s, a_j),
        Â_max = q(s, a) - max_j q(s, a_j),   a_j ~ π(· | s)

    The policy's loss is :math:`-w log π(a | s)`. The maximum is the more pessimistic
    baseline, for data of low quality.

    Args:
        q: Value :math:`q(s, a)` of the data's action, shape `[]`.
        sample_q_values: Values :math:`q(s, a_j)` of N actions, 4 in the paper, shape
            `[N]`.
        kind: Weight: `"exp"` or `"binary"`.
        baseline: Baseline: `"mean"` or `"max"`.
        temperature: Temperature :math:`β` of the exponential weight, in (0, inf),
            shape `[]`.
        max_weight: Maximum :math:`w_max` of the exponential weight, in (0, inf],
            shape `[]`.

    Returns:
        Weight :math:`w`, without a gradient, shape `[]`.

    Raises:
        ArgumentError: If a shape, dtype, option or concrete value is wrong.

    Example:
        >>> print(rlaxlib.crr_weights(4.0, jnp.array([1.0, 5.0]), "binary", "mean"))
        1.0

    References:
        Ziyu Wang and others, *Critic Regularized Regression*, 2020.
        https://arxiv.org/abs/2006.15134
    """
    reduce = jnp.mean if baseline == "mean" else jnp.max
    adv = q - reduce(sample_q_values)
    if kind == "binary":
        return (adv > 0).astype(adv.dtype)
    return advantage_weights(adv, temperature=temperature, max_weight=max_weight)
