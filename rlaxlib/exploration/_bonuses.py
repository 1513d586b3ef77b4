"""Intrinsic rewards: ICM and k-NN entropy (APT, RE3).

Three more take one line:

- Random network distillation (RND): the squared errors of a predictor, divided by the
  `reward_scale` of a stream without ends.
- Visit counts: :math:`β / √(N + c)`.
- DIAYN: :math:`log q(z | s) + log Z`, by a classifier of :math:`Z` skills.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from rlaxlib import distributions
from rlaxlib._core import checks, devices
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import (
    Array,
    ArrayLike,
    AxisName,
    Float,
    Int,
    Static,
)
from rlaxlib.exploration import _shared

__all__ = [
    "IcmOutputs",
    "icm_loss",
    "knn_entropy_reward",
]


class IcmOutputs(NamedTuple):
    """Losses and the reward of an intrinsic curiosity module.

    Attributes:
        forward_loss: Loss of the forward model, shape `[]`.
        inverse_loss: Loss of the inverse model, shape `[]`.
        reward: Intrinsic reward, with its gradient stopped, shape `[]`.
    """

    forward_loss: Float[Array, ""]
    inverse_loss: Float[Array, ""]
    reward: Float[Array, ""]


@checked
def icm_loss(
    predicted_features: Float[ArrayLike, "K"],
    features: Float[ArrayLike, "K"],
    action_logits: Float[ArrayLike, "A"],
    a: Int[ArrayLike, "in [0, A)"],
    forward_weight: Float[ArrayLike, "in [0, 1]"] = 0.2,
    reward_scale: Float[ArrayLike, "in [0, inf)"] = 0.01,
) -> tuple[Float[Array, ""], IcmOutputs]:
    """Compute the loss and the reward of an intrinsic curiosity module (ICM).

    Takes one transition, returns one loss, and an intrinsic reward among diagnostics.

    ::

        L_F = ½ ‖φ̂(s_t) - φ(s_t)‖²,   L_I = -log p(a_{t-1} | φ(s_{t-1}), φ(s_t))
        L = (1 - β) L_I + β L_F,   r = η L_F

    The forward model predicts the features :math:`φ` of the next state. The inverse
    model predicts the action, which trains :math:`φ` to contain what the agent can
    influence. The gradient of the target :math:`φ(s_t)` is stopped, since the features
    would otherwise collapse.

    Args:
        predicted_features: Output :math:`φ̂(s_t)` of the forward model, shape `[K]`.
        features: Features :math:`φ(s_t)` of the next state, shape `[K]`.
        action_logits: Logits of the inverse model, shape `[A]`.
        a: Action taken, in [0, A), shape `[]`.
        forward_weight: Weight :math:`β` of the forward loss, in [0, 1], shape `[]`.
        reward_scale: Scale :math:`η` of the reward, in [0, inf), shape `[]`.

    Returns:
        A tuple of two: the loss :math:`L`, shape `[]`, and an `IcmOutputs`, which has
        the reward.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> predicted, features = jnp.array([1.0, 2.0]), jnp.array([3.0, 2.0])
        >>> loss, outputs = rlaxlib.icm_loss(predicted, features, jnp.zeros(2), 0)
        >>> print(f"{loss:.3f}", outputs.forward_loss, outputs.reward)
        0.955 2.0 0.02

    References:
        Deepak Pathak and others, *Curiosity-driven Exploration by Self-supervised
        Prediction*, section 2.2, 2017. https://arxiv.org/abs/1705.05363
    """
    beta = forward_weight
    error = predicted_features - jax.lax.stop_gradient(features)
    forward_loss = 0.5 * jnp.sum(jnp.square(error))
    inverse_loss = -distributions.softmax().log_prob(a, action_logits)
    loss = (1 - beta) * inverse_loss + beta * forward_loss
    reward = jax.lax.stop_gradient(reward_scale * forward_loss)
    return loss, IcmOutputs(forward_loss, inverse_loss, reward)


@checked
def knn_entropy_reward(
    x: Float[ArrayLike, "N, D"],
    num_neighbors: Static[int, "in [1, inf)"],
    *,
    average: Static[bool, ""] = False,
    axis_name: AxisName | None = None,
) -> Float[Array, "N"]:
    """Compute rewards that maximise the entropy of visited states (RE3, APT).

    Takes the embeddings of a batch of states, returns one reward for each.

    ::

        r_i = log(1 + d_i)

    where :math:`d_i` is the Euclidean distance of a state to its kth nearest neighbour
    in the batch (RE3), or the mean distance to its :math:`k` nearest neighbours (APT).
    Adding 1 to the entropy estimate :math:`log d` bounds the reward below by 0.

    Args:
        x: Embeddings of states, random (RE3) or trained contrastively (APT),
            shape `[N, D]`.
        num_neighbors: Number :math:`k` of neighbours, a Python integer in [1, inf) and
            less than the number of states.
        average: Whether to average the distances of all :math:`k` neighbours.
        axis_name: Mapped axis name, or names, whose batches are searched too; or None.

    Returns:
        Rewards :math:`r_i`, shape `[N]`, without a gradient.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or `num_neighbors` is out of range.

    Example:
        >>> x = jnp.array([[0.0, 0.0], [0.0, 1.0], [0.0, 3.0]])
        >>> print(jnp.expm1(rlaxlib.knn_entropy_reward(x, num_neighbors=1)).round(3))
        [1. 1. 2.]

    References:
        Younggyo Seo and others, *State Entropy Maximization with Random Encoders for
        Efficient Exploration*, 2021. https://arxiv.org/abs/2102.09430

        Hao Liu and Pieter Abbeel, *Behavior From the Void: Unsupervised Active
        Pre-Training*, 2021. https://arxiv.org/abs/2103.04551
    """
    x = jax.lax.stop_gradient(x)
    data = devices.gather(x, axis_name)
    if num_neighbors >= len(data):
        checks.fail(
            f"`num_neighbors` is {num_neighbors}, must be less than the number of "
            f"states, {len(data)}"
        )
    negated, _ = _shared.nearest(data, x, num_neighbors + 1)
    distances = jnp.sqrt(-negated[:, 1:])  # The first is the point itself.
    return jnp.log1p(jnp.mean(distances, axis=1) if average else distances[:, -1])
