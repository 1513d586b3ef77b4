"""Make one value of the values that several critics give.

A maximum over noisy values is too large, and what is learnt from it more so each time.
Critics that learn apart from each other are wrong in different ways: the least of what
they say holds the error down.

Functions here take the critics' values of one action. Use `jax.vmap` for a batch, over
every axis but that of the critics.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib._core import checks, dtypes

__all__ = ["ensemble_value", "subset_minimum"]

_KINDS = ("min", "mean", "soft_min")


def ensemble_value(q: ArrayLike, kind: str = "min", weight: ArrayLike = 0.75) -> Array:
    """Reduce the values of several critics to one.

    .. math::

        v_min = min_i q_i,   v_mean = (1/N) ∑_i q_i,
        v_soft_min = w min_i q_i + (1 - w) max_i q_i

    The minimum is that of clipped double Q-learning (TD3, SAC), and, with many critics,
    of SAC-N: the more there are, the more careful it is. REDQ learns its policy from
    the mean, and its critics from the minimum of a few: see `subset_minimum`. The soft
    minimum is that of BCQ.

    Args:
        q: Values :math:`q_i`, one a critic, shape `[N]`.
        kind: What to make of them, `"min"`, `"mean"` or `"soft_min"`.
        weight: Weight :math:`w` of the minimum in the soft minimum, in [0, 1],
            shape `[]`. The others do not use it.

    Returns:
        Value, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if `kind` is none of
            the three, or if `weight` lies outside [0, 1].

    Example:
        >>> q = jnp.array([1.0, 5.0, 3.0])
        >>> for kind in ("min", "mean", "soft_min"):
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
    q, weight = checks.arrays(q=(q, "float[N]"), weight=(weight, "float[]"))
    checks.within("[0, 1]", weight=weight)
    if kind not in _KINDS:
        kinds = ", ".join(map(repr, _KINDS))
        checks.fail(f"`kind` must be one of {kinds}, but is {kind!r}")
    (q, weight), narrow = dtypes.widen(q, weight)
    if kind == "mean":
        return narrow(jnp.mean(q))
    least = jnp.min(q)
    if kind == "soft_min":
        least = weight * least + (1 - weight) * jnp.max(q)
    return narrow(least)


def subset_minimum(key: ArrayLike, q: ArrayLike, size: int) -> Array:
    """Take the least value of a few critics, drawn at random from all (REDQ).

    .. math::

        v = min_{i ∈ M} q_i,   M ⊆ {1, …, N},   |M| = m,

    where all subsets of :math:`m` critics are equally likely. How careful the value is
    depends on :math:`m`, and how steady on :math:`N`: the paper has 2 and 10.

    The paper draws one subset for a whole batch: there give `jax.vmap` one key, with
    `in_axes` None. With a key for each transition the targets of a batch have less
    variance.

    Args:
        key: Random key, shape `[]`.
        q: Values :math:`q_i`, one a critic, shape `[N]`.
        size: How many critics to draw, :math:`m`, from 1 to N. A Python integer.

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
    # As many in number as are drawn, and each as likely: no entry need be fetched.
    ranks = jax.random.permutation(key, q.size)
    return jnp.min(q, where=ranks < size, initial=jnp.inf)
