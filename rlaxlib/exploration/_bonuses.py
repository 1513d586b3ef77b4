"""Intrinsic rewards: RND, ICM, k-NN entropy (APT, RE3), counts, DIAYN and NGU."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from rlaxlib import distributions
from rlaxlib._core import checks, devices, indexing, moments, recurrence, streams
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import (
    Array,
    ArrayLike,
    AxisName,
    Bool,
    Float,
    Int,
    Real,
    Static,
)
from rlaxlib.exploration import _shared

__all__ = [
    "IcmOutputs",
    "RndState",
    "count_bonus",
    "diayn_reward",
    "icm_loss",
    "knn_entropy_reward",
    "rnd_loss",
    "rnd_reward",
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


class RndState(NamedTuple):
    """Moments of the discounted sums of intrinsic rewards.

    `RndState()` is the state before the first reward.

    Attributes:
        num_steps: Number of time steps so far, shape `[]`.
        mean: Mean of the sums, shape `[]`.
        variance: Variance of the sums, shape `[]`.
        carried: The last sum of this stream, shape `[]`.
        num_steps_rest: Rounding error of `num_steps`, shape `[]`. Without it, the
            number would stop at 2 ** 24 in single precision.
        mean_rest: Rounding error of `mean`, likewise, shape `[]`.
        variance_rest: Rounding error of `variance`, likewise, shape `[]`.
    """

    num_steps: Float[ArrayLike, ""] = 0.0
    mean: Float[ArrayLike, ""] = 0.0
    variance: Float[ArrayLike, ""] = 0.0
    carried: Float[ArrayLike, ""] = 0.0
    num_steps_rest: Float[ArrayLike, ""] = 0.0
    mean_rest: Float[ArrayLike, ""] = 0.0
    variance_rest: Float[ArrayLike, ""] = 0.0


@checked
def rnd_loss(
    predictions: Float[ArrayLike, "K"], targets: Float[ArrayLike, "K"]
) -> Float[Array, ""]:
    """Compute the predictor's loss of random network distillation (RND).

    Takes one state, returns one loss.

    ::

        L = ∑_k (f̂_k(s) - f_k(s))²

    The target :math:`f` is a network with fixed random weights. The loss is large in
    new states. Normalise observations and clip them to [-5, 5]. The paper trains the
    predictor on a random part of the time steps if there are many actors.

    Args:
        predictions: Features :math:`f̂(s)` of the predictor, shape `[K]`.
        targets: Features :math:`f(s)` of the target network, gradient stopped, shape
            `[K]`.

    Returns:
        Loss :math:`L`, shape `[]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong.

    Example:
        >>> print(rlaxlib.rnd_loss(jnp.array([1.0, 2.0]), jnp.array([2.0, 4.0])))
        5.0

    References:
        Yuri Burda and others, *Exploration by Random Network Distillation*, section
        2.2, 2018. https://arxiv.org/abs/1810.12894
    """
    error = predictions - jax.lax.stop_gradient(targets)
    return jnp.sum(jnp.square(error))


@checked
def rnd_reward(
    state: RndState,
    predictions: Float[ArrayLike, "T, K"],
    targets: Float[ArrayLike, "T, K"],
    discount: Float[ArrayLike, "in [0, 1]"] = 0.99,
    *,
    sample_mask: Bool[ArrayLike, "T"] | None = None,
    axis_name: AxisName | None = None,
) -> tuple[Float[Array, "T"], RndState]:
    """Compute the normalised intrinsic rewards of random network distillation (RND).

    Takes one trajectory and a state, returns its rewards and the next state.

    ::

        r_t = e_t/σ,   e_t = ∑_k (f̂_k(s_t) - f_k(s_t))²
        σ² = Var(G_1, …, G_n),   G_t = e_t + γ G_{t-1}

    :math:`σ` is the running standard deviation of the discounted sums of all errors so
    far; no mean is subtracted. The intrinsic stream is not episodic: neither the sums
    nor the returns of these rewards stop where an episode ends, so use a value function
    of their own, with a discount that is never 0.

    Args:
        state: Moments so far, an `RndState`. Mapped streams differ in `carried` only.
        predictions: Features :math:`f̂(s_t)` of the predictor, shape `[T, K]`.
        targets: Features :math:`f(s_t)` of the target network, shape `[T, K]`.
        discount: Discount :math:`γ` of the intrinsic stream, in [0, 1], shape `[]`.
        sample_mask: False for time steps to ignore, shape `[T]`; or None.
        axis_name: Mapped axis name, or names, to share the moments over; or None.

    Returns:
        Rewards :math:`r_t`, shape `[T]`, 0 at ignored steps, and the next `RndState`,
        in single precision at least. They have no gradient. Rewards are not divided
        while all sums are equal.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> predictions, state = jnp.array([[2.0], [4.0]]), rlaxlib.RndState()
        >>> r_t, state = rlaxlib.rnd_reward(state, predictions, jnp.zeros((2, 1)), 0.5)
        >>> print(r_t, state.mean, state.variance)  # The sums are 4 and 18.
        [0.5714286 2.2857144] 11.0 49.0

    References:
        Yuri Burda and others, *Exploration by Random Network Distillation*, section
        2.4, 2018. https://arxiv.org/abs/1810.12894
    """
    predictions, targets = jax.lax.stop_gradient((predictions, targets))
    errors = jnp.sum(jnp.square(predictions - targets), axis=-1)
    valid = streams.filled(sample_mask, errors)
    # The carry passes through invalid steps. The recurrence runs backwards in time.
    decay = jnp.where(valid, discount, 1)
    g_t = recurrence.backward(errors[::-1], decay[::-1], state.carried)[::-1]
    updated = _update_moments(state, g_t, valid, axis_name)
    state = updated._replace(carried=g_t[-1])
    rewards = errors / jnp.sqrt(jnp.where(state.variance == 0, 1, state.variance))
    return rewards, state


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


@checked
def count_bonus(
    counts: Real[ArrayLike, "... in [0, inf)"],
    scale: Float[ArrayLike, ""] = 0.05,
    offset: Float[ArrayLike, "in [0, inf)"] = 0.01,
) -> Float[Array, "..."]:
    """Compute the count-based exploration bonus of visited states (MBIE-EB).

    Takes visit counts of any shape, returns one bonus for each.

    ::

        r = β / √(N + c)

    Args:
        counts: Visit counts or pseudo-counts :math:`N`, integers or floats,
            in [0, inf), shape `[...]`.
        scale: Scale :math:`β` of the bonus, shape `[]`.
        offset: Constant :math:`c`, in [0, inf), to bound the bonus of new states,
            shape `[]`.

    Returns:
        Bonuses :math:`r`, of the shape of `counts`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> print(rlaxlib.count_bonus(jnp.array([4.0, 16.0]), scale=1.0, offset=0.0))
        [0.5  0.25]

    References:
        Marc G. Bellemare and others, *Unifying Count-Based Exploration and Intrinsic
        Motivation*, section 5, 2016. https://arxiv.org/abs/1606.01868
    """
    return scale / jnp.sqrt(counts + offset)


@checked
def diayn_reward(
    logits: Float[ArrayLike, "Z"],
    skill: Int[ArrayLike, "in [0, Z)"],
    log_prior: Float[ArrayLike, "Z"] | None = None,
) -> Float[Array, ""]:
    """Compute the reward for states that reveal the skill (DIAYN).

    Takes one state and its skill, returns one reward.

    ::

        r = log q(z | s) - log p(z)

    The policy is conditioned on a skill :math:`z`, sampled for each episode. Train the
    classifier :math:`q` with `categorical_cross_entropy`.

    Args:
        logits: Logits of the classifier in the state reached, shape `[Z]`.
        skill: The skill :math:`z`, in [0, Z), shape `[]`.
        log_prior: Log-probabilities of the skills, shape `[Z]`; or None for equal ones.

    Returns:
        Reward :math:`r`, without a gradient, shape `[]`; NaN if traced `skill` is
        invalid.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> logits = jnp.log(jnp.array([0.5, 0.25, 0.125, 0.125]))
        >>> print(jnp.exp(rlaxlib.diayn_reward(logits, 0)).round(3))
        2.0

    References:
        Benjamin Eysenbach and others, *Diversity is All You Need: Learning Skills
        without a Reward Function*, section 3, 2018. https://arxiv.org/abs/1802.06070
    """
    log_p = -jnp.log(logits.size) if log_prior is None else log_prior
    log_ratio = jax.nn.log_softmax(logits) - log_p
    return jax.lax.stop_gradient(indexing.pick(log_ratio, skill))


def _update_moments(
    state: RndState, x: Array, mask: Array, axis_name: AxisName | None
) -> RndState:
    """Update the moments of all values so far with those of new values."""
    count, new_mean, new_variance, _ = moments.of(x, mask, axis_name)
    steps, mean, variance, _, steps_rest, *rests = state
    steps, steps_rest = moments.add(steps, steps_rest, count)
    zero = jnp.zeros_like(new_mean)
    mean, variance, mean_rest, variance_rest = moments.merge(
        (mean, variance, *rests),
        (new_mean, new_variance, zero, zero),
        count / jnp.maximum(steps, 1),
    )
    return RndState(
        steps, mean, variance, state.carried, steps_rest, mean_rest, variance_rest
    )
