"""Values of an ensemble of critics.

Minimum (TD3, SAC, SAC-N), mean, mix of minimum and maximum (BCQ), and minimum of a
random subset (REDQ).

Functions take the values of one action by `N` critics. Use `jax.vmap` over all other
axes.
"""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp

from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Float, Key, Static

__all__ = ["ensemble_value", "subset_minimum"]


@checked
def ensemble_value(
    q: Float[ArrayLike, "N"],
    kind: Literal["min", "mean", "min_max_mix"] = "min",
    mix: Float[ArrayLike, "in [0, 1]"] = 0.75,
) -> Float[Array, ""]:
    """Reduce the values of an ensemble to one: minimum, mean or a mix (BCQ).

    Takes one value for each critic, returns one value.

    ::

        v_min = min_i q_i,   v_mean = (1/N) ∑_i q_i,
        v_min_max_mix = w min_i q_i + (1 - w) max_i q_i

    The minimum is that of TD3, SAC and SAC-N, the mix that of BCQ. REDQ trains the
    policy on the mean, and the critics on the `subset_minimum`.

    Args:
        q: Values :math:`q_i` of the critics, shape `[N]`.
        kind: Reduction: `"min"`, `"mean"` or `"min_max_mix"`.
        mix: Weight :math:`w` of the minimum in the mix, in [0, 1], shape `[]`.

    Returns:
        Value, shape `[]`.

    Raises:
        ArgumentError: If a shape, dtype, `kind` or concrete `mix` is wrong.

    Example:
        >>> value, q = rlaxlib.ensemble_value, jnp.array([1.0, 5.0, 3.0])
        >>> print(value(q, "min"), value(q, "mean"), value(q, "min_max_mix"))
        1.0 3.0 2.0

    References:
        Scott Fujimoto, Herke van Hoof and David Meger, *Addressing Function
        Approximation Error in Actor-Critic Methods*, 2018.
        https://arxiv.org/abs/1802.09477

        Scott Fujimoto, David Meger and Doina Precup, *Off-Policy Deep Reinforcement
        Learning Without Exploration*, 2019. https://arxiv.org/abs/1812.02900
    """
    if kind == "min":
        return jnp.min(q)
    if kind == "mean":
        return jnp.mean(q)
    low, high = jnp.min(q), jnp.max(q)
    return mix * low + (1 - mix) * high


@checked
def subset_minimum(
    key: Key[ArrayLike, ""],
    q: Float[ArrayLike, "N"],
    num_members: Static[int, "in [1, N]"],
) -> Float[Array, ""]:
    """Compute the minimum over a random subset of an ensemble (REDQ).

    Takes one value for each critic, returns one value.

    ::

        v = min_{i ∈ M} q_i,   M ⊆ {1, …, N},   |M| = m,

    where all subsets are equally likely. The paper has :math:`m = 2` and
    :math:`N = 10`, and one subset for the whole batch: give `jax.vmap` one key with
    `in_axes` None. One key for each transition reduces the variance.

    Args:
        key: Random key, shape `[]`.
        q: Values :math:`q_i` of the critics, shape `[N]`.
        num_members: Number :math:`m` of critics to sample, a Python integer in [1, N].

    Returns:
        Value :math:`v`, shape `[]`.

    Raises:
        ArgumentError: If a shape, dtype or `num_members` is wrong.

    Example:
        >>> key, q = jax.random.key(0), jnp.array([3.0, 1.0, 2.0])
        >>> print(rlaxlib.subset_minimum(key, q, num_members=3))
        1.0

    References:
        Xinyue Chen and others, *Randomized Ensembled Double Q-Learning: Learning Fast
        Without a Model*, 2021. https://arxiv.org/abs/2101.05982
    """
    ranks = jnp.argsort(jax.random.bits(key, q.shape))
    return jnp.min(jnp.where(ranks < num_members, q, jnp.inf))
