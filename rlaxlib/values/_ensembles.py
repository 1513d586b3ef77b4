"""Values of an ensemble of critics.

Minimum (TD3, SAC, SAC-N), mean, mix of minimum and maximum (BCQ), and minimum of a
random subset (REDQ).

A maximum over noisy values has an overestimation bias, which bootstrapping amplifies.
The minimum of several critics reduces it.

Functions take the values of one action by `N` critics. Use `jax.vmap` over all other
axes.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib._core import checks

__all__ = ["ensemble_value", "subset_minimum"]


def ensemble_value(q: ArrayLike, kind: str = "min", weight: ArrayLike = 0.75) -> Array:
    """Reduce the values of an ensemble to one: minimum, mean or a mix (BCQ).

    Takes one value for each critic, returns one value.

    .. math::

        v_min = min_i q_i,   v_mean = (1/N) ∑_i q_i,
        v_min_max_mix = w min_i q_i + (1 - w) max_i q_i

    The minimum is that of clipped double Q-learning (TD3, SAC) and SAC-N, and is more
    pessimistic the more critics there are. REDQ trains the policy on the mean, and the
    critics on the minimum of a subset: see `subset_minimum`. BCQ mixes minimum and
    maximum.

    Args:
        q: Values :math:`q_i` of the critics, shape `[N]`.
        kind: Reduction: `"min"`, `"mean"` or `"min_max_mix"`.
        weight: Weight :math:`w` of the minimum in the mix, in [0, 1], 0.75 in BCQ,
            shape `[]`.

    Returns:
        Value, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if `kind` is not one
            of the three, or if a concrete `weight` is outside [0, 1].

    Example:
        >>> q = jnp.array([1.0, 5.0, 3.0])
        >>> for kind in ("min", "mean", "min_max_mix"):
        ...     print(rlaxlib.ensemble_value(q, kind))
        1.0
        3.0
        2.0

    References:
        Scott Fujimoto, Herke van Hoof and David Meger, *Addressing Function
        Approximation Error in Actor-Critic Methods*, 2018.
        https://arxiv.org/abs/1802.09477

        Scott Fujimoto, David Meger and Doina Precup, *Off-Policy Deep Reinforcement
        Learning Without Exploration*, 2019. https://arxiv.org/abs/1812.02900

        Gaon An, Seungyong Moon, Jang-Hyun Kim and Hyun Oh Song, *Uncertainty-Based
        Offline Reinforcement Learning with Diversified Q-Ensemble*, 2021.
        https://arxiv.org/abs/2110.01548
    """
    q, weight, narrow = checks.widened(
        q=(q, "float[N]"), weight=(weight, "float[] in [0, 1]")
    )
    if kind == "min":
        return narrow(jnp.min(q))
    if kind == "mean":
        return narrow(jnp.mean(q))
    if kind == "min_max_mix":
        return narrow(weight * jnp.min(q) + (1 - weight) * jnp.max(q))
    checks.fail(f"`kind` is {kind!r}, must be 'min', 'mean' or 'min_max_mix'")


def subset_minimum(key: ArrayLike, q: ArrayLike, size: int) -> Array:
    """Compute the minimum over a random subset of an ensemble (REDQ).

    Takes one value for each critic, returns one value.

    .. math::

        v = min_{i ∈ M} q_i,   M ⊆ {1, …, N},   |M| = m,

    where all subsets of :math:`m` critics are equally likely. The pessimism depends on
    :math:`m`, and the variance on :math:`N`: the paper has 2 and 10.

    The paper samples one subset for the whole batch. For that, give `jax.vmap` one key
    with `in_axes` None. One key for each transition gives the targets of a batch less
    variance.

    Args:
        key: Random key, shape `[]`.
        q: Values :math:`q_i` of the critics, shape `[N]`.
        size: Number of critics to sample :math:`m`, a Python integer from 1 to N.

    Returns:
        Value :math:`v`, shape `[]`.

    Raises:
        ArgumentError: If an array argument has the wrong shape or dtype, or if `size`
            is not a Python integer from 1 to N.

    Example:
        >>> key, q = jax.random.key(0), jnp.array([3.0, 1.0, 2.0])
        >>> print(rlaxlib.subset_minimum(key, q, size=3))
        1.0

    References:
        Xinyue Chen, Che Wang, Zijian Zhou and Keith Ross, *Randomized Ensembled Double
        Q-Learning: Learning Fast Without a Model*, 2021.
        https://arxiv.org/abs/2101.05982
    """
    key, q = checks.arrays(key=(key, "key[]"), q=(q, "float[N]"))
    checks.static_int(1, q.size, size=size)
    ranks = jax.random.permutation(key, q.size)
    return jnp.min(q, where=ranks < size, initial=jnp.inf)
