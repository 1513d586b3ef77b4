"""Risk measures and distortions: CVaR, Wang, CPW and the power distortion.

- `conditional_value_at_risk`: CVaR of quantiles, samples or atoms;
- `distorted_fractions`: Wang's transform, CPW and the power.

A distortion :math:`β` moves the fractions :math:`τ` of a return distribution. The mean
of the quantiles :math:`F⁻¹(β(τ))` is then risk-averse or risk-seeking. IQN applies
:math:`β` to its random fractions. The distortion of CVaR is `eta * fractions`.

Functions here take the quantiles or fractions of one state. Use `jax.vmap` for a batch.
"""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
from jax.scipy import special

from rlaxlib._core import checks, safe
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Float

__all__ = ["conditional_value_at_risk", "distorted_fractions"]


@checked
def conditional_value_at_risk(
    quantiles: Float[ArrayLike, "N"],
    fraction: Float[ArrayLike, "in (0, 1]"],
    *,
    probs: Float[ArrayLike, "N in [0, 1]"] | None = None,
) -> Float[Array, ""]:
    """Compute the conditional value at risk of a return distribution (CVaR).

    Takes the quantiles of one state, returns one value.

    ::

        C = (1/η) ∫_0^η F⁻¹(τ) dτ,

    where :math:`F⁻¹` has a step of width :math:`p_i` for each quantile :math:`x_i`.
    CVaR is the mean for :math:`η = 1`, and tends to the minimum as :math:`η` tends to
    0. The tail is the lower one: for costs, negate the quantiles and the result.

    Args:
        quantiles: Quantiles at midpoints, samples, or atoms, in any order, shape `[N]`.
        fraction: Probability :math:`η` of the tail in (0, 1], shape `[]`.
        probs: Probabilities :math:`p`, in [0, 1], of sum 1, shape `[N]`; or None for
            :math:`1/N`.

    Returns:
        Conditional value at risk :math:`C`, shape `[]`.

    Raises:
        ArgumentError: If a shape, dtype or concrete value is wrong.

    Example:
        >>> quantiles = jnp.array([8.0, 2.0, 4.0, 6.0])
        >>> print(rlaxlib.conditional_value_at_risk(quantiles, fraction=0.5))
        3.0

    References:
        R. Tyrrell Rockafellar and Stanislav Uryasev, *Optimization of Conditional
        Value-at-Risk*, 2000. https://doi.org/10.21314/JOR.2000.038
    """
    p = jnp.full_like(quantiles, 1 / quantiles.size) if probs is None else probs
    x, p = jax.lax.sort_key_val(quantiles, p)
    weights = jnp.clip(fraction - (jnp.cumsum(p) - p), 0, p)
    return safe.expectation(weights, x) / fraction


@checked(compiled=False)
def distorted_fractions(
    fractions: Float[ArrayLike, "N in [0, 1]"],
    eta: Float[ArrayLike, "in (-inf, inf)"],
    kind: Literal["wang", "cpw", "power"],
) -> Float[Array, "N"]:
    """Distort fractions by Wang's transform, CPW or a power, for risk-sensitive IQN.

    Takes the fractions of one state, returns one fraction for each.

    ::

        β(τ) = { Φ(Φ⁻¹(τ) + η)                           wang
               { τ^η / (τ^η + (1 - τ)^η)^{1/η}           cpw
               { τ^{1/(1+|η|)}                           power, η ≥ 0
               { 1 - (1 - τ)^{1/(1+|η|)}                 power, η < 0

    with the standard normal distribution function :math:`Φ`. Wang's transform and the
    power avert risk if :math:`η` is negative, and seek it if positive. Cumulative
    probability weighting (CPW) takes a positive :math:`η`: below 1 it overweights both
    tails, 0.71 describes human subjects best, and below about 0.28 it is not monotonic.

    Args:
        fractions: Fractions :math:`τ` in [0, 1], shape `[N]`.
        eta: Strength :math:`η`, finite, shape `[]`: 0 leaves the fractions unchanged,
            or 1 for `"cpw"`, which requires a positive one.
        kind: The distortion: `"wang"`, `"cpw"` or `"power"`.

    Returns:
        Fractions, each in [0, 1], shape `[N]`.

    Raises:
        ArgumentError: If a shape, dtype, option or concrete value is wrong.

    Example:
        >>> fractions = jnp.array([0.0, 0.1, 0.9])
        >>> print(rlaxlib.distorted_fractions(fractions, 0.71, "cpw").round(4))
        [0.     0.1656 0.7881]
        >>> print(rlaxlib.distorted_fractions(fractions, -1.0, "wang").round(4))
        [0.     0.0113 0.6109]

    References:
        Will Dabney and others, *Implicit Quantile Networks for Distributional
        Reinforcement Learning*, 2018. https://arxiv.org/abs/1806.06923

        Shaun S. Wang, *A Class of Distortion Operators for Pricing Financial and
        Insurance Risks*, 2000. https://doi.org/10.2307/253675

        Amos Tversky and Daniel Kahneman, *Advances in Prospect Theory: Cumulative
        Representation of Uncertainty*, 1992. https://doi.org/10.1007/BF00122574
    """
    if kind == "cpw":
        checks.fit(eta=(eta, Float[ArrayLike, "in (0, inf)"]))
    return _distort(fractions, eta, kind)


@checked
def _distort(
    fractions: Float[ArrayLike, "N"],
    eta: Float[ArrayLike, ""],
    kind: Literal["wang", "cpw", "power"],
) -> Float[Array, "N"]:
    # 0 and 1 stay, but the formulas have infinite or NaN gradients there.
    inside = (fractions > 0) & (fractions < 1)
    tau = jnp.where(inside, fractions, 0.5)
    if kind == "wang":
        beta = special.ndtr(special.ndtri(tau) + eta)
    elif kind == "cpw":
        beta = tau**eta / (tau**eta + (1 - tau) ** eta) ** (1 / eta)
    else:
        exponent = 1 / (1 + jnp.abs(eta))
        low = -jnp.expm1(exponent * jnp.log1p(-tau))
        beta = jnp.where(eta >= 0, tau**exponent, low)
    return jnp.where(inside, beta, fractions)
