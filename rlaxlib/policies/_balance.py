"""Generative flow networks (GFlowNets): trajectory and sub-trajectory balance.

A GFlowNet samples objects in proportion to a reward. Its policy builds an object step
by step, and a backward policy takes it apart again. If both losses are 0 for all
trajectories, it does so, and the backward policy is its reverse.
"""

from __future__ import annotations

import jax.numpy as jnp

from rlaxlib._core import safe, streams
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Bool, Float

__all__ = ["sub_trajectory_balance_loss", "trajectory_balance_loss"]


@checked
def trajectory_balance_loss(
    log_partition: Float[ArrayLike, ""],
    log_prob: Float[ArrayLike, "T"],
    backward_log_prob: Float[ArrayLike, "T"],
    log_reward: Float[ArrayLike, ""],
    *,
    sample_mask: Bool[ArrayLike, "T"] | None = None,
) -> Float[Array, ""]:
    """Compute the trajectory balance loss of a GFlowNet (TB).

    Takes one trajectory, returns one loss.

    ::

        L = (log Z + ∑_t log P_F(a_t) - log R - ∑_t log P_B(a_t))²

    :math:`log Z` is a parameter with a learning rate of its own, 10 to 100 times
    higher. Its best value for a group of trajectories is the mean of
    :math:`log R + ∑_t log P_B - ∑_t log P_F`: with that, stopped, the loss is VarGrad.

    Args:
        log_partition: Logarithm :math:`log Z` of the sum of all rewards, shape `[]`.
        log_prob: Log-probabilities :math:`log P_F` of the steps under the policy,
            shape `[T]`.
        backward_log_prob: The same of reversed steps, :math:`log P_B`, shape `[T]`.
        log_reward: Logarithm of the reward :math:`R` of the object, shape `[]`.
        sample_mask: False for time steps to ignore, shape `[T]`; or None.

    Returns:
        Loss, shape `[]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong.

    Example:
        >>> log_probs = jnp.log(jnp.array([[0.5, 0.5], [1.0, 0.5]]))
        >>> print(rlaxlib.trajectory_balance_loss(jnp.log(2.0), *log_probs, 0.0))
        0.0

    References:
        Nikolay Malkin and others, *Trajectory Balance: Improved Credit Assignment in
        GFlowNets*, 2022. https://arxiv.org/abs/2201.13259
    """
    ratio = log_prob - backward_log_prob
    return jnp.square(log_partition + jnp.sum(ratio) - log_reward)


@checked
def sub_trajectory_balance_loss(
    log_flow: Float[ArrayLike, "T+1"],
    log_prob: Float[ArrayLike, "T"],
    backward_log_prob: Float[ArrayLike, "T"],
    lambda_: Float[ArrayLike, "in (0, inf)"] = 0.9,
    *,
    sample_mask: Bool[ArrayLike, "T"] | None = None,
) -> Float[Array, ""]:
    """Compute the sub-trajectory balance loss of a GFlowNet (SubTB).

    Takes one trajectory, returns one loss.

    ::

        L = (∑_{i < j} λ^{j-i} δ_{i,j}²) / ∑_{i < j} λ^{j-i}
        δ_{i,j} = log F_i + ∑_{i ≤ t < j} (log P_F(a_t) - log P_B(a_t)) - log F_j

    Each pair of states must balance. With a small :math:`λ` only neighbours count
    (detailed balance), with a large one the whole trajectory (trajectory balance).

    Args:
        log_flow: Logarithms :math:`log F_i` of the flows of the states, shape `[T+1]`:
            first the log-partition function, last the log-reward of the object.
        log_prob: Log-probabilities :math:`log P_F` of the steps under the policy,
            shape `[T]`.
        backward_log_prob: The same of reversed steps, :math:`log P_B`, shape `[T]`.
        lambda_: Weight :math:`λ` of each further step, in (0, inf), shape `[]`.
        sample_mask: False for time steps to ignore, with the states before them, shape
            `[T]`; or None. The state after the last valid step is the object.

    Returns:
        Loss, shape `[]`, 0 without a valid step.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> log_flow, log_prob = jnp.array([1.0, 1.0, 0.0]), jnp.array([0.0, -1.0])
        >>> loss = rlaxlib.sub_trajectory_balance_loss
        >>> print(loss(log_flow, log_prob, jnp.zeros(2), lambda_=1.0))
        0.0

    References:
        Kanika Madan and others, *Learning GFlowNets from Partial Episodes for Improved
        Convergence and Stability*, 2022. https://arxiv.org/abs/2209.12782
    """
    ratio = log_prob - backward_log_prob
    valid = streams.filled(sample_mask, ratio)
    number = jnp.pad(jnp.cumsum(valid), (1, 0))  # Of valid steps before each state.
    is_last = jnp.pad(valid, (1, 0)) & (number == number[-1])
    exists = jnp.pad(valid, (0, 1)) | is_last
    # The balance of a pair is the difference of sums up to each of its states.
    sums = jnp.pad(jnp.cumsum(ratio), (1, 0))
    balance = jnp.where(exists, log_flow - sums, 0)
    squares = jnp.square(balance[:, None] - balance[None])
    distance = number[None] - number[:, None]
    # Only ratios of weights count: without powers above 1, none overflows.
    power = distance - jnp.where(lambda_ > 1, number[-1], 1)
    is_pair = (distance > 0) & exists[:, None] & exists[None]
    power = jnp.where(is_pair, power, 0).astype(balance.dtype)
    weights = jnp.where(is_pair, lambda_**power, 0)
    return safe.divide(jnp.sum(safe.dot(weights, squares)), jnp.sum(weights))
