"""Choose at which fractions to know a distribution of returns, and how to weigh them.

A fraction :math:`τ` of a distribution is the probability of what lies below its
quantile :math:`F⁻¹(τ)`. Random fractions, put through a network with the state, give
samples of the return (IQN). Moved by some :math:`β` before that, they give those of an
agent that fears risk or seeks it: the mean of :math:`F⁻¹(β(τ))` is a distorted
expectation.

Functions here take the fractions of one state. Use `jax.vmap` for a batch.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy import special
from jax.typing import ArrayLike, DTypeLike

from rlaxlib._core import checks, dtypes

__all__ = [
    "cosine_embedding",
    "cpw_fractions",
    "cvar_fractions",
    "power_fractions",
    "quantile_fraction_loss",
    "quantile_midpoints",
    "sample_quantile_fractions",
    "wang_fractions",
]

_GRID = 2.0**12  # A multiple of 1 / 4096 less than 4096 fits into single precision.


def quantile_midpoints(n: int, dtype: DTypeLike = jnp.float32) -> Array:
    """Return the fractions in the middle of equal parts, those of QR-DQN.

    .. math::

        τ̂_i = (2 i - 1) / (2 n),   i = 1, …, n

    As samples of equal weight, their quantiles come closest to the distribution, in the
    Wasserstein distance. Some implementations take the ends of the parts, :math:`i/n`,
    whose quantiles are all too large, the last one without bound.

    Args:
        n: Number of fractions, at least 1. A Python integer.
        dtype: Dtype of the result.

    Returns:
        Fractions, in ascending order, shape `[n]`.

    Raises:
        ArgumentError: If `n` is not a Python integer of at least 1.

    Example:
        >>> print(rlaxlib.quantile_midpoints(4))
        [0.125 0.375 0.625 0.875]

    References:
        Will Dabney, Mark Rowland, Marc G. Bellemare and Rémi Munos, *Distributional
        Reinforcement Learning with Quantile Regression*, 2017.
        https://arxiv.org/abs/1710.10044
    """
    checks.static_int(1, n=n)
    return jnp.asarray((np.arange(n) + 0.5) / n, dtype)


def sample_quantile_fractions(
    key: ArrayLike, n: int, dtype: DTypeLike = jnp.float32
) -> Array:
    """Draw fractions at random, those of IQN.

    .. math::

        τ_i ~ U[0, 1),   i = 1, …, n, each by itself

    Args:
        key: Random key, shape `[]`.
        n: Number of fractions, at least 1. A Python integer.
        dtype: Dtype of the result.

    Returns:
        Fractions, in no order, shape `[n]`.

    Raises:
        ArgumentError: If `key` is not a random key, or if `n` is not a Python integer
            of at least 1.

    Example:
        >>> fractions = rlaxlib.sample_quantile_fractions(jax.random.key(0), 8)
        >>> print(fractions.shape, jnp.all((fractions >= 0) & (fractions < 1)))
        (8,) True

    References:
        Will Dabney, Georg Ostrovski, David Silver and Rémi Munos, *Implicit Quantile
        Networks for Distributional Reinforcement Learning*, 2018.
        https://arxiv.org/abs/1806.06923
    """
    (key,) = checks.arrays(key=(key, "key[]"))
    checks.static_int(1, n=n)
    return jax.random.uniform(key, (n,), dtype)


def cosine_embedding(fractions: ArrayLike, dim: int) -> Array:
    """Write fractions in cosines, for a network to read (IQN).

    .. math::

        φ_i(τ) = cos(π i τ),   i = 0, …, D - 1

    The first feature is 1, as in the paper; several implementations begin at
    :math:`i = 1`, which makes little difference in front of a layer with a bias.

    Args:
        fractions: Fractions :math:`τ`, each in [0, 1], shape `[N]`.
        dim: Number of features :math:`D`, from 1 to 4096; 64 in the paper. A Python
            integer.

    Returns:
        Features, shape `[N, D]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if a fraction lies
            outside [0, 1], or if `dim` is not a Python integer from 1 to 4096.

    Example:
        >>> print(rlaxlib.cosine_embedding(jnp.array([0.0, 1.0]), 3))
        [[ 1.  1.  1.]
         [ 1. -1.  1.]]

    References:
        Will Dabney, Georg Ostrovski, David Silver and Rémi Munos, *Implicit Quantile
        Networks for Distributional Reinforcement Learning*, 2018.
        https://arxiv.org/abs/1806.06923
    """
    (fractions,) = checks.arrays(fractions=(fractions, "float[N]"))
    checks.within("[0, 1]", fractions=fractions)
    checks.static_int(1, int(_GRID), dim=dim)
    (tau,), narrow = dtypes.widen(fractions)
    # The cosine of a large number has lost the digits that the number has before the
    # point. Nearly all of each goes in whole turns, without rounding; a little stays.
    near = jnp.round(tau * _GRID) / _GRID
    rest = tau - near
    order = jnp.arange(dim, dtype=tau.dtype)
    half_turns = jnp.outer(near, order)
    half_turns = half_turns - 2 * jnp.round(half_turns / 2) + jnp.outer(rest, order)
    return narrow(jnp.cos(jnp.pi * half_turns))


def cvar_fractions(fractions: ArrayLike, level: ArrayLike) -> Array:
    """Move fractions into the worst share of the returns (CVaR).

    .. math::

        β(τ) = η τ

    The mean of the quantiles there is the conditional value at risk: what the worst
    share :math:`η` of the returns is worth on average.

    Args:
        fractions: Fractions :math:`τ`, each in [0, 1], shape `[N]`.
        level: Share :math:`η` in [0, 1]; 1 fears nothing, shape `[]`.

    Returns:
        Fractions, each in [0, 1], shape `[N]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or lies outside
            [0, 1].

    Example:
        >>> print(rlaxlib.cvar_fractions(jnp.array([0.25, 0.5, 1.0]), level=0.5))
        [0.125 0.25  0.5  ]

    References:
        Will Dabney, Georg Ostrovski, David Silver and Rémi Munos, *Implicit Quantile
        Networks for Distributional Reinforcement Learning*, 2018.
        https://arxiv.org/abs/1806.06923

        Yinlam Chow and Mohammad Ghavamzadeh, *Algorithms for CVaR Optimization in
        MDPs*, 2014. https://arxiv.org/abs/1406.3339
    """
    fractions, level = checks.arrays(
        fractions=(fractions, "float[N]"), level=(level, "float[]")
    )
    checks.within("[0, 1]", fractions=fractions, level=level)
    (tau, eta), narrow = dtypes.widen(fractions, level)
    return narrow(eta * tau)


def wang_fractions(fractions: ArrayLike, level: ArrayLike) -> Array:
    """Shift fractions as if the returns were Gaussian (Wang's transform).

    .. math::

        β(τ) = Φ(Φ⁻¹(τ) + η),

    with :math:`Φ` the standard normal distribution function. A Gaussian return moves by
    :math:`η` standard deviations. No return is left out of account, however unlikely,
    which distinguishes this from `cvar_fractions`.

    Args:
        fractions: Fractions :math:`τ`, each in [0, 1], shape `[N]`.
        level: Shift :math:`η`: negative fears risk, positive seeks it, shape `[]`.

    Returns:
        Fractions, each in [0, 1], shape `[N]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if a fraction lies
            outside [0, 1], or if `level` is not finite.

    Example:
        >>> fractions = jnp.array([0.0, 0.5, 1.0])
        >>> print(rlaxlib.wang_fractions(fractions, level=-1.0).round(2))
        [0.   0.16 1.  ]

    References:
        Shaun S. Wang, *A Class of Distortion Operators for Pricing Financial and
        Insurance Risks*, 2000. https://doi.org/10.2307/253675

        Will Dabney, Georg Ostrovski, David Silver and Rémi Munos, *Implicit Quantile
        Networks for Distributional Reinforcement Learning*, 2018.
        https://arxiv.org/abs/1806.06923
    """
    fractions, level = checks.arrays(
        fractions=(fractions, "float[N]"), level=(level, "float[]")
    )
    checks.within("[0, 1]", fractions=fractions)
    checks.within("(-inf, inf)", level=level)
    (tau, eta), narrow = dtypes.widen(fractions, level)
    inside, safe = _inside(tau)
    return narrow(jnp.where(inside, special.ndtr(special.ndtri(safe) + eta), tau))


def cpw_fractions(fractions: ArrayLike, level: ArrayLike) -> Array:
    """Weigh fractions as people do: the best and the worst more than what is between.

    .. math::

        β(τ) = τ^η / (τ^η + (1 - τ)^η)^{1/η}

    The probability weighting of cumulative prospect theory. With :math:`η` of 0.71 it
    is close to what human subjects do; 1 leaves fractions where they are. Below about
    0.28 it no longer ascends everywhere.

    Args:
        fractions: Fractions :math:`τ`, each in [0, 1], shape `[N]`.
        level: Exponent :math:`η`, more than 0, shape `[]`.

    Returns:
        Fractions, each in [0, 1], shape `[N]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if a fraction lies
            outside [0, 1], or if `level` is not positive and finite.

    Example:
        >>> fractions = jnp.array([0.0, 0.1, 0.5, 0.9, 1.0])
        >>> print(rlaxlib.cpw_fractions(fractions, level=0.71).round(4))
        [0.     0.1656 0.4606 0.7881 1.    ]

    References:
        Amos Tversky and Daniel Kahneman, *Advances in Prospect Theory: Cumulative
        Representation of Uncertainty*, 1992. https://doi.org/10.1007/BF00122574

        Will Dabney, Georg Ostrovski, David Silver and Rémi Munos, *Implicit Quantile
        Networks for Distributional Reinforcement Learning*, 2018.
        https://arxiv.org/abs/1806.06923
    """
    fractions, level = checks.arrays(
        fractions=(fractions, "float[N]"), level=(level, "float[]")
    )
    checks.within("[0, 1]", fractions=fractions)
    checks.within("(0, inf)", level=level)
    (tau, eta), narrow = dtypes.widen(fractions, level)
    inside, safe = _inside(tau)
    above, below = eta * jnp.log(safe), eta * jnp.log1p(-safe)
    moved = jnp.exp(above - jnp.logaddexp(above, below) / eta)
    return narrow(jnp.where(inside, moved, tau))


def power_fractions(fractions: ArrayLike, level: ArrayLike) -> Array:
    """Push fractions towards the worst or the best by a power.

    .. math::

        β(τ) = { τ^{1/(1+|η|)}             if η ≥ 0
               { 1 - (1 - τ)^{1/(1+|η|)}   otherwise

    The two cases mirror each other. One implementation has an exponent of :math:`1 - η`
    in the second, by operators that bind otherwise than meant, and so seeks risk where
    it should fear it.

    Args:
        fractions: Fractions :math:`τ`, each in [0, 1], shape `[N]`.
        level: Strength :math:`η`: negative fears risk, positive seeks it, shape `[]`.

    Returns:
        Fractions, each in [0, 1], shape `[N]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if a fraction lies
            outside [0, 1], or if `level` is not finite.

    Example:
        >>> fractions = jnp.array([0.0, 0.25, 1.0])
        >>> print(rlaxlib.power_fractions(fractions, level=1.0).round(4))
        [0.  0.5 1. ]
        >>> print(rlaxlib.power_fractions(fractions, level=-1.0).round(4))
        [0.    0.134 1.   ]

    References:
        Will Dabney, Georg Ostrovski, David Silver and Rémi Munos, *Implicit Quantile
        Networks for Distributional Reinforcement Learning*, 2018.
        https://arxiv.org/abs/1806.06923
    """
    fractions, level = checks.arrays(
        fractions=(fractions, "float[N]"), level=(level, "float[]")
    )
    checks.within("[0, 1]", fractions=fractions)
    checks.within("(-inf, inf)", level=level)
    (tau, eta), narrow = dtypes.widen(fractions, level)
    inside, safe = _inside(tau)
    seeks = eta >= 0
    exponent = 1 / (1 + jnp.where(seeks, eta, -eta))
    up = jnp.exp(exponent * jnp.log(safe))
    down = -jnp.expm1(exponent * jnp.log1p(-safe))
    return narrow(jnp.where(inside, jnp.where(seeks, up, down), tau))


def quantile_fraction_loss(
    fractions: ArrayLike,
    quantiles_at_fractions: ArrayLike,
    quantiles_at_midpoints: ArrayLike,
) -> Array:
    """Move fractions to where the quantiles tell most (FQF).

    .. math::

        L = ∑_{i=1}^{N-1} τ_i [2 F⁻¹(τ_i) - F⁻¹(τ̂_i) - F⁻¹(τ̂_{i-1})],
        τ̂_i = (τ_i + τ_{i+1}) / 2,

    with the quantiles constant under differentiation. So its gradient by the fractions
    is that of the Wasserstein distance between the distribution and the steps
    :math:`F⁻¹(τ̂_i)` over :math:`[τ_i, τ_{i+1})`; its value has no meaning. A quantile
    function that ascends is assumed, as in the paper. Some implementations turn a
    difference around where predicted quantiles cross, which moves fractions away from
    there; this does not.

    The fractions must reach their network only: give the quantile network's parameters
    no gradient through them. The paper adds a small bonus on the entropy of
    :math:`τ_{i+1} - τ_i`.

    Args:
        fractions: Fractions :math:`0 = τ_0 ≤ … ≤ τ_N = 1`, shape `[N+1]`.
        quantiles_at_fractions: Quantiles at the inner fractions,
            :math:`F⁻¹(τ_1), …, F⁻¹(τ_{N-1})`, shape `[N-1]`.
        quantiles_at_midpoints: Quantiles in the middle between fractions,
            :math:`F⁻¹(τ̂_0), …, F⁻¹(τ̂_{N-1})`, shape `[N]`.

    Returns:
        Loss, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if fractions lie
            outside [0, 1] or descend.

    Example:
        >>> fractions = jnp.array([0.0, 0.5, 1.0])
        >>> at_fractions, at_midpoints = jnp.array([4.0]), jnp.array([1.0, 5.0])
        >>> loss = rlaxlib.quantile_fraction_loss
        >>> print(loss(fractions, at_fractions, at_midpoints))
        1.0

    References:
        Derek Yang, Li Zhao, Zichuan Lin, Tao Qin, Jiang Bian and Tie-Yan Liu, *Fully
        Parameterized Quantile Function for Distributional Reinforcement Learning*,
        2019. https://arxiv.org/abs/1911.02140
    """
    fractions, at_fractions, at_midpoints = checks.arrays(
        fractions=(fractions, "float[N+1]"),
        quantiles_at_fractions=(quantiles_at_fractions, "float[N-1]"),
        quantiles_at_midpoints=(quantiles_at_midpoints, "float[N]"),
    )
    checks.within("[0, 1]", fractions=fractions)
    checks.ascending(fractions=fractions)
    (fractions, at_fractions, at_midpoints), narrow = dtypes.widen(
        fractions, at_fractions, at_midpoints
    )
    # In this order a small difference of large quantiles is not rounded away.
    slopes = (at_fractions - at_midpoints[1:]) + (at_fractions - at_midpoints[:-1])
    return narrow(jnp.sum(fractions[1:-1] * jax.lax.stop_gradient(slopes)))


def _inside(tau: Array) -> tuple[Array, Array]:
    """Tell which fractions are not at an end, and put a half for those that are."""
    inside = (tau > 0) & (tau < 1)
    return inside, jnp.where(inside, tau, 0.5 * jnp.ones_like(tau))
