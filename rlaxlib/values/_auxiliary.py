"""Control what an agent observes, as a task beside its own.

A network that must also predict how to change what it sees, or how to change its own
features, learns to represent what an agent can control, before it ever meets a reward.
Each cell of the picture, or each feature, has a reward of its own; the value functions
of all of them are learnt off-policy from what the agent does anyway.

Functions here take one trajectory. Use `jax.vmap` for a batch.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib import losses
from rlaxlib._core import checks, dtypes, streams, sums
from rlaxlib.values._multistep import q_lambda

__all__ = [
    "feature_control_rewards",
    "pixel_control_loss",
    "pixel_control_rewards",
]

_CUMULANTS = ("feature", "absolute_change", "increase", "decrease", "potential")


def pixel_control_rewards(observations: ArrayLike, cell_size: int) -> Array:
    """Reward the change of what is seen, cell by cell.

    .. math::

        r_{t,i,j} = (1 / (K² C)) ∑_{(y,x,c) ∈ cell (i,j)} |o_{t,y,x,c} - o_{t-1,y,x,c}|

    Args:
        observations: Pictures :math:`o_0, …, o_T` of `H` rows, `W` columns and `C`
            channels, as numbers in [0, 1], shape `[T+1, H, W, C]`.
        cell_size: Rows and columns :math:`K` of a cell, at least 1. It must divide `H`
            and `W`: crop the pictures to fit.

    Returns:
        Rewards :math:`r_1, …, r_T`, shape `[T, H / cell_size, W / cell_size]`.

    Raises:
        ArgumentError: If `observations` has the wrong shape or dtype, or if `cell_size`
            is not a Python integer of at least 1 that divides `H` and `W`.

    Example:
        >>> observations = jnp.zeros((2, 4, 4, 1)).at[1, :2, 2:].set(0.5)
        >>> print(rlaxlib.pixel_control_rewards(observations, cell_size=2))
        [[[0.  0.5]
          [0.  0. ]]]

    References:
        Max Jaderberg, Volodymyr Mnih, Wojciech Marian Czarnecki, Tom Schaul, Joel Z.
        Leibo, David Silver and Koray Kavukcuoglu, *Reinforcement Learning with
        Unsupervised Auxiliary Tasks*, 2016. https://arxiv.org/abs/1611.05397
    """
    (observations,) = checks.arrays(observations=(observations, "float[T+1, H, W, C]"))
    _check_cells(cell_size, observations)
    (observations,), narrow = dtypes.widen(observations)
    return narrow(_cell_means(observations[1:] - observations[:-1], cell_size))


def feature_control_rewards(
    features: ArrayLike,
    cumulant_type: str = "absolute_change",
    discount: ArrayLike | None = None,
) -> Array:
    """Reward what features are, or how they change, one by one.

    .. math::

        r_t = { φ_t                 `feature`
              { |φ_t - φ_{t-1}|     `absolute_change`
              { φ_t - φ_{t-1}       `increase`
              { φ_{t-1} - φ_t       `decrease`
              { γ_t φ_t - φ_{t-1}   `potential`

    Rewards of the last kind add up, discounted by the same :math:`γ`, to what the
    feature is in the end less what it was: as a bonus they change no optimal policy.

    Args:
        features: Features :math:`φ_0, …, φ_T`, shape `[T+1, D]`.
        cumulant_type: Kind of reward: `"feature"`, `"absolute_change"`, `"increase"`,
            `"decrease"` or `"potential"`.
        discount: Discount :math:`γ` in [0, 1], shape `[]`; or one for each step,
            :math:`γ_1, …, γ_T`, shape `[T]`; or None, unless rewards are potentials,
            which need it.

    Returns:
        Rewards :math:`r_1, …, r_T`, shape `[T, D]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if there is no such
            kind of reward, or if potentials come without a discount.

    Example:
        >>> features = jnp.array([[1.0, 4.0], [3.0, 2.0]])
        >>> print(rlaxlib.feature_control_rewards(features))
        [[2. 2.]]
        >>> print(rlaxlib.feature_control_rewards(features, "potential", discount=0.5))
        [[ 0.5 -3. ]]

    References:
        Max Jaderberg, Volodymyr Mnih, Wojciech Marian Czarnecki, Tom Schaul, Joel Z.
        Leibo, David Silver and Koray Kavukcuoglu, *Reinforcement Learning with
        Unsupervised Auxiliary Tasks*, 2016. https://arxiv.org/abs/1611.05397

        Andrew Y. Ng, Daishi Harada and Stuart Russell, *Policy Invariance under Reward
        Transformations: Theory and Application to Reward Shaping*, 1999.
        https://people.eecs.berkeley.edu/~russell/papers/icml99-shaping.pdf
    """
    given = discount is not None
    features, discount = checks.arrays(
        features=(features, "float[T+1, D]"),
        discount=(discount, "float[] or [T] or None"),
    )
    if cumulant_type not in _CUMULANTS:
        kinds = ", ".join(map(repr, _CUMULANTS))
        checks.fail(f"`cumulant_type` must be one of {kinds}, but is {cumulant_type!r}")
    if cumulant_type == "potential" and not given:
        checks.fail("`discount` must be given for rewards that are potentials")
    (features, discount), narrow = dtypes.widen(features, discount)
    before, after = features[:-1], features[1:]
    if cumulant_type == "feature":
        return narrow(after)
    if cumulant_type == "absolute_change":
        return narrow(jnp.abs(after - before))
    if cumulant_type == "increase":
        return narrow(after - before)
    if cumulant_type == "decrease":
        return narrow(before - after)
    return narrow(discount.reshape(-1, 1) * after - before)


def pixel_control_loss(
    observations: ArrayLike,
    actions: ArrayLike,
    action_values: ArrayLike,
    discount_factor: ArrayLike,
    cell_size: int,
    *,
    truncated_t: ArrayLike | None = None,
    sample_mask: ArrayLike | None = None,
) -> Array:
    """Learn how to change what is seen, cell by cell, off-policy.

    .. math::

        L_{t,i,j} = ½ (G_{t,i,j} - q_{t,i,j}(a_t))²,
        G_{t,i,j} = r_{t+1,i,j} + γ_{t+1} G_{t+1,i,j},

    with rewards :math:`r` as of `pixel_control_rewards`, and with the last return being
    :math:`G_T = max_a q_T(a)`. The returns are held constant under differentiation. As
    rewards of cells that touch are much alike, a network may well predict the values by
    a transposed convolution. A discount of 0.9 is usual.

    Args:
        observations: Pictures :math:`o_0, …, o_T` of `H` rows, `W` columns and `C`
            channels, as numbers in [0, 1], shape `[T+1, H, W, C]`.
        actions: Actions taken, :math:`a_0, …, a_{T-1}`, each in [0, A), shape `[T]`.
        action_values: Action values :math:`q_0, …, q_T` of every cell, where `I` is `H`
            over `cell_size`, and `J` is `W` over it, shape `[T+1, I, J, A]`.
        discount_factor: Discount :math:`γ` in [0, 1], shape `[]`; or one for each step,
            :math:`γ_1, …, γ_T`, 0 where an episode ended, shape `[T]`.
        cell_size: Rows and columns of a cell, at least 1. It must divide `H` and `W`.
        truncated_t: True where the stream was cut after this step although the episode
            had not ended, shape `[T]`; or None if it was cut nowhere. The return there
            bootstraps from the action values that follow this row, those of the true
            next observation.
        sample_mask: False where a row is no decision of the agent, such as padding or
            the step across a reset, shape `[T]`; or None if all are. The loss there is
            0, and that of the others is as if the row were not there.

    Returns:
        Losses :math:`L_0, …, L_{T-1}`, shape `[T, I, J]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if `cell_size` is
            not a Python integer of at least 1 that divides `H` and `W`, or if an action
            whose value is known is none of the A.

    Example:
        >>> observations = jnp.zeros((2, 2, 2, 1)).at[1].set(0.5)
        >>> actions, action_values = jnp.array([0]), jnp.ones((2, 1, 1, 3))
        >>> loss = rlaxlib.pixel_control_loss
        >>> print(loss(observations, actions, action_values, 0.5, cell_size=2))
        [[[0.]]]

    References:
        Max Jaderberg, Volodymyr Mnih, Wojciech Marian Czarnecki, Tom Schaul, Joel Z.
        Leibo, David Silver and Koray Kavukcuoglu, *Reinforcement Learning with
        Unsupervised Auxiliary Tasks*, 2016. https://arxiv.org/abs/1611.05397
    """
    pictures, actions, q, discount_t, truncated_t, sample_mask = checks.arrays(
        observations=(observations, "float[T+1, H, W, C]"),
        actions=(actions, "int[T]"),
        action_values=(action_values, "float[T+1, I, J, A]"),
        discount_factor=(discount_factor, "float[] or [T]"),
        truncated_t=(truncated_t, "bool[T] or None"),
        sample_mask=(sample_mask, "bool[T] or None"),
    )
    _check_cells(cell_size, pictures)
    _, height, width, _ = pictures.shape
    cells = f"float[T+1, {height // cell_size}, {width // cell_size}, A]"
    checks.arrays(action_values=(action_values, cells))
    actions = streams.valid(actions, sample_mask)
    checks.indices(actions=(actions, q.shape[-1]))
    (pictures, q, discount_t), narrow = dtypes.widen(pictures, q, discount_t)
    rewards = _cell_means(pictures[1:] - pictures[:-1], cell_size)

    def errors(q_tm1: Array, r_t: Array, q_t: Array) -> Array:
        return q_lambda(
            q_tm1,
            actions,
            r_t,
            jnp.broadcast_to(discount_t, actions.shape),
            q_t,
            lambda_=1.0,
            truncated_t=truncated_t,
            sample_mask=sample_mask,
        )

    each_cell = jax.vmap(jax.vmap(errors, 1, 1), 1, 1)
    return narrow(losses.l2_loss(each_cell(q[:-1], rewards, q[1:])))


def _check_cells(cell_size: int, observations: Array) -> None:
    """Check that cells of a size fill the pictures."""
    checks.static_int(1, cell_size=cell_size)
    _, height, width, _ = observations.shape
    if height % cell_size or width % cell_size:
        size = f"{height} by {width}"
        checks.fail(f"`cell_size` must divide pictures of {size}, but is {cell_size}")


def _cell_means(change: Array, cell_size: int) -> Array:
    """Return the mean size of a change in every cell."""
    steps, height, width, channels = change.shape
    rows, columns = height // cell_size, width // cell_size
    size = jnp.abs(change).reshape(steps, height, columns, cell_size * channels)
    total = sums.over_last(size).reshape(steps, rows, cell_size, columns)
    return jnp.sum(total, axis=2) / (cell_size * cell_size * channels)
