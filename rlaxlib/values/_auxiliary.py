"""Auxiliary control tasks (UNREAL).

Pixel control rewards and loss, feature control rewards.

An auxiliary task gives each cell of the observation, or each feature of the network, a
reward and a value function of its own, learned off-policy from the agent's experience.

Functions take one trajectory. Use `jax.vmap` for a batch.
"""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp

from rlaxlib import losses
from rlaxlib._core import checks
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Bool, Float, Int, Static
from rlaxlib.values._multistep import q_lambda

__all__ = ["feature_control_rewards", "pixel_control_loss", "pixel_control_rewards"]


@checked
def pixel_control_rewards(
    observations: Float[ArrayLike, "T+1, H, W, C"],
    cell_size: Static[int, "in [1, inf)"],
) -> Float[Array, "T, I, J"]:
    """Compute the pixel control rewards: the mean absolute change of each cell.

    Takes the images of one trajectory, returns one reward for each step and cell.

    ::

        r_{t,i,j} = (1 / (K² C)) ∑_{(y,x,c) ∈ cell (i,j)} |o_{t,y,x,c} - o_{t-1,y,x,c}|

    Args:
        observations: Images :math:`o_0, …, o_T`, shape `[T+1, H, W, C]`, such as pixels
            in [0, 1].
        cell_size: Size :math:`K` of a cell, a Python integer in [1, inf) that divides
            `H` and `W`.

    Returns:
        Rewards :math:`r_1, …, r_T`, shape `[T, I, J]`, with `I = H / cell_size` and
        `J = W / cell_size`.

    Raises:
        ArgumentError: If a shape, dtype or `cell_size` is wrong.

    Example:
        >>> observations = jnp.zeros((2, 4, 4, 1)).at[1, :2, 2:].set(0.5)
        >>> print(rlaxlib.pixel_control_rewards(observations, cell_size=2))
        [[[0.  0.5]
          [0.  0. ]]]

    References:
        Max Jaderberg and others, *Reinforcement Learning with Unsupervised Auxiliary
        Tasks*, 2016. https://arxiv.org/abs/1611.05397
    """
    rows, columns = _cells(observations, cell_size)
    change = jnp.mean(jnp.abs(observations[1:] - observations[:-1]), axis=-1)
    steps, _, width = change.shape
    change = jnp.mean(change.reshape(steps, rows, cell_size, width), axis=2)
    return jnp.mean(change.reshape(steps, rows, columns, cell_size), axis=3)


@checked
def feature_control_rewards(
    features: Float[ArrayLike, "T+1, D"],
    cumulant_type: Literal[
        "feature", "absolute_change", "increase", "decrease", "potential"
    ] = "absolute_change",
    discount: Float[ArrayLike, "[] or [T] in [0, 1]"] | None = None,
) -> Float[Array, "T, D"]:
    """Compute the feature control rewards, for one of several cumulants.

    Takes the features of one trajectory, returns one reward for each step and feature.

    ::

        r_t = { φ_t                 `feature`
              { |φ_t - φ_{t-1}|     `absolute_change`
              { φ_t - φ_{t-1}       `increase`
              { φ_{t-1} - φ_t       `decrease`
              { γ_t φ_t - φ_{t-1}   `potential`

    Args:
        features: Features :math:`φ_0, …, φ_T`, shape `[T+1, D]`.
        cumulant_type: Kind of reward, one of the names in the equation.
        discount: Discounts :math:`γ_1, …, γ_T` in [0, 1], shape `[]` or `[T]`; or None.

    Returns:
        Rewards :math:`r_1, …, r_T`, shape `[T, D]`.

    Raises:
        ArgumentError: If a shape, dtype or `cumulant_type` is wrong or `discount` None.

    Example:
        >>> features = jnp.array([[1.0, 4.0], [3.0, 2.0]])
        >>> print(rlaxlib.feature_control_rewards(features, "potential", discount=0.5))
        [[ 0.5 -3. ]]

    References:
        Max Jaderberg and others, *Reinforcement Learning with Unsupervised Auxiliary
        Tasks*, 2016. https://arxiv.org/abs/1611.05397

        Andrew Y. Ng, Daishi Harada and Stuart Russell, *Policy Invariance under Reward
        Transformations: Theory and Application to Reward Shaping*, 1999.
        https://people.eecs.berkeley.edu/~russell/papers/icml99-shaping.pdf
    """
    phi_tm1, phi_t = features[:-1], features[1:]
    if cumulant_type == "feature":
        return phi_t
    if cumulant_type == "absolute_change":
        return jnp.abs(phi_t - phi_tm1)
    if cumulant_type == "increase":
        return phi_t - phi_tm1
    if cumulant_type == "decrease":
        return phi_tm1 - phi_t
    if discount is None:
        checks.fail('`discount` is None, must be given for "potential"')
    return discount.reshape(-1, 1) * phi_t - phi_tm1


@checked
def pixel_control_loss(
    observations: Float[ArrayLike, "T+1, H, W, C"],
    actions: Int[ArrayLike, "T in [0, A)"],
    action_values: Float[ArrayLike, "T+1, I, J, A"],
    discount_factor: Float[ArrayLike, "[] or [T] in [0, 1]"],
    cell_size: Static[int, "in [1, inf)"],
    *,
    truncated_t: Bool[ArrayLike, "T"] | None = None,
    sample_mask: Bool[ArrayLike, "T"] | None = None,
) -> Float[Array, "T, I, J"]:
    """Compute the pixel control loss, a multistep Q-learning loss of each cell.

    Takes one trajectory, returns one loss for each time step and cell.

    ::

        L_{t,i,j} = ½ (G_{t,i,j} - q_{t,i,j}(a_t))²,
        G_{t,i,j} = r_{t+1,i,j} + γ_{t+1} G_{t+1,i,j},
        G_{T,i,j} = max_a q_{T,i,j}(a)

    The rewards are `pixel_control_rewards`. The gradient of :math:`G` is stopped. The
    paper has a discount of 0.9, and a transposed convolution for the action values.

    Args:
        observations: Images :math:`o_0, …, o_T`, shape `[T+1, H, W, C]`, such as pixels
            in [0, 1].
        actions: Actions taken, :math:`a_0, …, a_{T-1}` in [0, A), shape `[T]`.
        action_values: Values :math:`q_0, …, q_T` of each cell, shape `[T+1, I, J, A]`,
            with `I = H / cell_size` and `J = W / cell_size`.
        discount_factor: Discounts :math:`γ_1, …, γ_T` in [0, 1], shape `[]` or `[T]`.
        cell_size: Size of a cell, a Python integer in [1, inf) that divides `H` and
            `W`.
        truncated_t: True where truncated, shape `[T]`; or None.
        sample_mask: False for time steps to ignore, shape `[T]`; or None.

    Returns:
        Losses :math:`L_t`, NaN for actions outside [0, A), shape `[T, I, J]`.

    Raises:
        ArgumentError: If a shape, dtype or `cell_size` is wrong, or a NumPy action is
            outside [0, A) without `sample_mask`.

    Example:
        >>> images, q = jnp.zeros((2, 2, 2, 1)).at[1].set(0.5), jnp.ones((2, 1, 1, 3))
        >>> print(rlaxlib.pixel_control_loss(images, jnp.array([0]), q, 0.5, 2))
        [[[0.]]]

    References:
        Max Jaderberg and others, *Reinforcement Learning with Unsupervised Auxiliary
        Tasks*, 2016. https://arxiv.org/abs/1611.05397
    """
    q = action_values
    cells = _cells(observations, cell_size)
    if q.shape[1:3] != cells:
        needed = (q.shape[0], *cells, q.shape[3])
        checks.fail(f"`action_values` has shape {q.shape}, must be {needed}")

    discount_t = jnp.broadcast_to(discount_factor, actions.shape)

    def td_errors(q_tm1: Array, r_t: Array, q_t: Array) -> Array:
        step = q_tm1, actions, r_t, discount_t, q_t
        return q_lambda(*step, 1.0, truncated_t=truncated_t, sample_mask=sample_mask)

    r_t = pixel_control_rewards(observations, cell_size)
    each_cell = jax.vmap(jax.vmap(td_errors, 1, 1), 1, 1)
    return losses.l2_loss(each_cell(q[:-1], r_t, q[1:]))


def _cells(observations: Array, cell_size: int) -> tuple[int, int]:
    """Return the numbers of rows and columns of cells, which must fill the images."""
    _, height, width, _ = observations.shape
    if height % cell_size or width % cell_size:
        size = f"{height} by {width}"
        checks.fail(f"`cell_size` is {cell_size}, must divide images of {size}")
    return height // cell_size, width // cell_size
