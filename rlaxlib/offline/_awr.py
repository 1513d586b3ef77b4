"""Advantage-weighted policy learning: AWR, AWAC, IQL and CRR.

The policy maximises the log-likelihood of the data's actions, each weighted by its
advantage: it imitates the better actions, and stays in the support of the data.
"""

from __future__ import annotations

from typing import Literal

import jax.numpy as jnp
from jax.lax import stop_gradient

from rlaxlib._core import safe
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Bool, Float

__all__ = ["advantage_weighted_loss", "advantage_weights", "crr_weights"]


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

    With this weight on its log-likelihood, the data's policy :math:`μ` becomes
    :math:`π ∝ μ exp(Â/β)`. A high temperature gives behaviour cloning. IQL writes
    :math:`exp(β Â)`, so its :math:`β = 3` is a temperature of 1/3.

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
def advantage_weighted_loss(
    log_prob: Float[ArrayLike, "..."],
    adv: Float[ArrayLike, "..."],
    temperature: Float[ArrayLike, "in (0, inf)"],
    max_weight: Float[ArrayLike, "in (0, inf]"],
    *,
    sample_mask: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "..."]:
    """Compute the advantage-weighted policy loss of AWR, AWAC and IQL.

    Takes one log-probability and advantage for each action, returns one loss for each.

    ::

        L = -w log π(a),   w = min(exp(Â / β), w_max)

    The weights are those of `advantage_weights`, without a gradient.

    Args:
        log_prob: Log-probabilities or log-densities of the data's actions,
            shape `[...]`.
        adv: Advantages :math:`Â`, such as :math:`q(s, a) - v(s)`, shape `[...]`.
        temperature: Temperature :math:`β`, in (0, inf), shape `[]`.
        max_weight: Maximum weight :math:`w_max`, in (0, inf], shape `[]`.
        sample_mask: False for actions to ignore, shape `[...]`; or None.

    Returns:
        Losses, shape `[...]`, 0 for ignored actions.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> log_prob, adv = jnp.array([-1.0, -2.0]), jnp.array([0.0, 1e6])
        >>> print(rlaxlib.advantage_weighted_loss(log_prob, adv, 0.5, 20.0))
        [ 1. 40.]

    References:
        Xue Bin Peng and others, *Advantage-Weighted Regression: Simple and Scalable
        Off-Policy Reinforcement Learning*, 2019. https://arxiv.org/abs/1910.00177

        Ashvin Nair and others, *AWAC: Accelerating Online Reinforcement Learning with
        Offline Datasets*, 2020. https://arxiv.org/abs/2006.09359
    """
    weight = advantage_weights(adv, temperature=temperature, max_weight=max_weight)
    return -weight * safe.floored(log_prob)


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
