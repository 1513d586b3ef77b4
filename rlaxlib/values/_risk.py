"""Means, risk measures and distortions: CVaR, Wang, CPW and the power distortion.

A distortion :math:`β` moves the fractions :math:`τ` of a return distribution. The mean
of the quantiles :math:`F⁻¹(β(τ))` is then the distorted expectation, which is
risk-averse or risk-seeking. IQN applies :math:`β` to its random fractions.

- `quantile_mean`: mean of quantiles, with weights (FQF);
- `conditional_value_at_risk`: CVaR of quantiles, samples or atoms;
- `cvar_fractions`, `wang_fractions`, `cpw_fractions`, `power_fractions`: distortions.

Functions here take the quantiles or fractions of one state. Use `jax.vmap` for a batch.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.scipy import special
from jax.typing import ArrayLike

from rlaxlib._core import checks

__all__ = [
    "conditional_value_at_risk",
    "cpw_fractions",
    "cvar_fractions",
    "power_fractions",
    "quantile_mean",
    "wang_fractions",
]


def quantile_mean(quantiles: ArrayLike, weights: ArrayLike | None = None) -> Array:
    """Compute the mean of a return distribution from its quantiles (FQF).

    Takes the quantiles of one state, returns one value.

    .. math::

        v = ∑_i w_i x_i

    In FQF the weights are the widths of the intervals between fractions,
    :math:`w_i = τ_{i+1} - τ_i`, and the quantiles those at their midpoints. Quantiles
    at the midpoints of equal intervals (QR-DQN), samples (IQN) and atoms of a
    categorical distribution with their probabilities (C51) are other cases.

    Args:
        quantiles: Quantiles :math:`x`, shape `[N]`.
        weights: Their weights :math:`w`, which sum to 1, shape `[N]`; or None for
            :math:`1/N`.

    Returns:
        Mean :math:`v`, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if `weights` is a
            NumPy array with values outside [0, 1].

    Example:
        >>> fractions, quantiles = jnp.array([0.0, 0.25, 1.0]), jnp.array([8.0, 4.0])
        >>> print(rlaxlib.quantile_mean(quantiles, jnp.diff(fractions)))
        5.0

    References:
        Derek Yang, Li Zhao, Zichuan Lin, Tao Qin, Jiang Bian and Tie-Yan Liu, *Fully
        Parameterized Quantile Function for Distributional Reinforcement Learning*,
        equation 1, 2019. https://arxiv.org/abs/1911.02140
    """
    x, w, narrow = checks.widened(
        quantiles=(quantiles, "float[N]"),
        weights=(weights, "float[N] in [0, 1] or None"),
    )
    return narrow(jnp.mean(x) if w is None else jnp.sum(w * x))


def conditional_value_at_risk(
    quantiles: ArrayLike, level: ArrayLike, *, probs: ArrayLike | None = None
) -> Array:
    """Compute the conditional value at risk of a return distribution (CVaR).

    Takes the quantiles of one state, returns one value.

    .. math::

        C = (1/η) ∫_0^η F⁻¹(τ) dτ,

    where :math:`F⁻¹` is a step function, with a step of width :math:`p_i` for each
    quantile :math:`x_i`. A step that reaches beyond :math:`η` counts in part, so CVaR
    is continuous in :math:`η`. It tends to the minimum as :math:`η` tends to 0, and is
    the mean for :math:`η = 1`. The tail is the lower one, since returns are to be
    large. Negate the arguments and the result for a distribution of costs.

    Args:
        quantiles: Quantiles at the midpoints of equal intervals, samples of equal
            weight, or atoms of a categorical distribution, in any order, shape `[N]`.
        level: Probability :math:`η` of the tail in (0, 1], shape `[]`.
        probs: Probabilities :math:`p` of the atoms, which sum to 1, shape `[N]`; or
            None for :math:`1/N`.

    Returns:
        Conditional value at risk :math:`C`, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if a concrete
            `level` is outside (0, 1], or if `probs` is a NumPy array with values
            outside [0, 1].

    Example:
        >>> quantiles = jnp.array([8.0, 2.0, 4.0, 6.0])
        >>> print(rlaxlib.conditional_value_at_risk(quantiles, level=0.5))
        3.0
        >>> atoms, probs = jnp.array([0.0, 1.0, 2.0]), jnp.array([0.25, 0.25, 0.5])
        >>> print(rlaxlib.conditional_value_at_risk(atoms, level=0.5, probs=probs))
        0.5

    References:
        R. Tyrrell Rockafellar and Stanislav Uryasev, *Optimization of Conditional
        Value-at-Risk*, 2000. https://doi.org/10.21314/JOR.2000.038
    """
    x, eta, p, narrow = checks.widened(
        quantiles=(quantiles, "float[N]"),
        level=(level, "float[] in (0, 1]"),
        probs=(probs, "float[N] in [0, 1] or None"),
    )
    p = jnp.full_like(x, 1 / x.size) if p is None else p
    order = jnp.argsort(x)
    x, p = x[order], p[order]
    weights = jnp.clip(eta - (jnp.cumsum(p) - p), 0, p)
    return narrow(jnp.sum(weights * x) / eta)


def cvar_fractions(fractions: ArrayLike, level: ArrayLike) -> Array:
    """Distort fractions by the conditional value at risk (CVaR).

    Takes the fractions of one state, returns one fraction for each.

    .. math::

        β(τ) = η τ

    The mean of the quantiles at these fractions is CVaR, the mean of the worst share
    :math:`η` of the returns.

    Args:
        fractions: Fractions :math:`τ`, each in [0, 1], shape `[N]`.
        level: Probability :math:`η` of the tail in [0, 1], 1 for no distortion,
            shape `[]`.

    Returns:
        Fractions, each in [0, 1], shape `[N]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if NumPy
            `fractions` or a concrete `level` are outside [0, 1].

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
    tau, eta, narrow = checks.widened(
        fractions=(fractions, "float[N] in [0, 1]"), level=(level, "float[] in [0, 1]")
    )
    return narrow(eta * tau)


def wang_fractions(fractions: ArrayLike, level: ArrayLike) -> Array:
    """Distort fractions by Wang's transform.

    Takes the fractions of one state, returns one fraction for each.

    .. math::

        β(τ) = Φ(Φ⁻¹(τ) + η),

    with :math:`Φ` the standard normal distribution function. It shifts a Gaussian
    return by :math:`η` standard deviations. Unlike `cvar_fractions`, it takes all
    returns into account.

    Args:
        fractions: Fractions :math:`τ`, each in [0, 1], shape `[N]`.
        level: Shift :math:`η`, negative to be risk-averse, positive to be risk-seeking,
            shape `[]`.

    Returns:
        Fractions, each in [0, 1], shape `[N]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if NumPy `fractions`
            are outside [0, 1], or if a concrete `level` is not finite.

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
    tau, eta, narrow = checks.widened(
        fractions=(fractions, "float[N] in [0, 1]"),
        level=(level, "float[] in (-inf, inf)"),
    )
    inside, tau_inside = _inside(tau)
    beta = special.ndtr(special.ndtri(tau_inside) + eta)
    return narrow(jnp.where(inside, beta, tau))


def cpw_fractions(fractions: ArrayLike, level: ArrayLike) -> Array:
    """Distort fractions by cumulative probability weighting (CPW).

    Takes the fractions of one state, returns one fraction for each.

    .. math::

        β(τ) = τ^η / (τ^η + (1 - τ)^η)^{1/η}

    This is the weighting function of cumulative prospect theory. For :math:`η < 1` it
    overweights both tails. Human subjects are best described by :math:`η = 0.71`, and
    :math:`η = 1` is no distortion. Below about 0.28 it is not monotonic.

    Args:
        fractions: Fractions :math:`τ`, each in [0, 1], shape `[N]`.
        level: Exponent :math:`η`, positive, shape `[]`.

    Returns:
        Fractions, each in [0, 1], shape `[N]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if NumPy `fractions`
            are outside [0, 1], or if a concrete `level` is not positive and finite.

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
    tau, eta, narrow = checks.widened(
        fractions=(fractions, "float[N] in [0, 1]"),
        level=(level, "float[] in (0, inf)"),
    )
    inside, tau_inside = _inside(tau)
    weight, complement = tau_inside**eta, (1 - tau_inside) ** eta
    beta = weight / (weight + complement) ** (1 / eta)
    return narrow(jnp.where(inside, beta, tau))


def power_fractions(fractions: ArrayLike, level: ArrayLike) -> Array:
    """Distort fractions by a power.

    Takes the fractions of one state, returns one fraction for each.

    .. math::

        β(τ) = { τ^{1/(1+|η|)}             if η ≥ 0
               { 1 - (1 - τ)^{1/(1+|η|)}   otherwise

    The two cases mirror each other. The exponent is the same in both: an implementation
    with :math:`1 - η` in the second is risk-seeking where it should be risk-averse.

    Args:
        fractions: Fractions :math:`τ`, each in [0, 1], shape `[N]`.
        level: Strength :math:`η`, negative to be risk-averse, positive to be
            risk-seeking, shape `[]`.

    Returns:
        Fractions, each in [0, 1], shape `[N]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if NumPy `fractions`
            are outside [0, 1], or if a concrete `level` is not finite.

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
    tau, eta, narrow = checks.widened(
        fractions=(fractions, "float[N] in [0, 1]"),
        level=(level, "float[] in (-inf, inf)"),
    )
    inside, tau_inside = _inside(tau)
    exponent = 1 / (1 + jnp.abs(eta))
    seeking = tau_inside**exponent
    averse = 1 - (1 - tau_inside) ** exponent
    return narrow(jnp.where(inside, jnp.where(eta >= 0, seeking, averse), tau))


def _inside(tau: Array) -> tuple[Array, Array]:
    """Return which fractions are inside (0, 1), and 1/2 in place of all others.

    Distortions leave 0 and 1 unchanged, but their formulas have infinite or NaN
    gradients there.
    """
    inside = (tau > 0) & (tau < 1)
    return inside, jnp.where(inside, tau, 0.5)
