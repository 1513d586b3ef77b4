"""Thompson sampling: a sample of the mean reward of each arm from its posterior.

Pull the arm with the highest sample. The functions take the statistics of
`bandit_update` or `sliding_window_update`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Float, Key, Real

__all__ = ["thompson_beta", "thompson_gaussian"]


@checked
def thompson_beta(
    key: Key[ArrayLike, ""],
    counts: Real[ArrayLike, "A in [0, inf)"],
    means: Float[ArrayLike, "A in [0, 1]"],
    prior_alpha: Float[ArrayLike, "[] or [A] in (0, inf)"] = 1.0,
    prior_beta: Float[ArrayLike, "[] or [A] in (0, inf)"] = 1.0,
) -> Float[Array, "A"]:
    """Sample the mean rewards of all arms for Bernoulli rewards (Thompson sampling).

    Takes statistics of all arms, returns one sample for each.

    ::

        θ_a ~ Beta(α + N_a μ̂_a, β + N_a (1 - μ̂_a))

    The posterior of success probabilities for rewards in {0, 1} and the prior
    :math:`Beta(α, β)`. For rewards in [0, 1], update the statistics with a sample from
    Bernoulli(reward) in place of the reward.

    Args:
        key: Random key, shape `[]`.
        counts: Number :math:`N_a` of pulls of each arm, floats or integers,
            in [0, inf), shape `[A]`.
        means: Mean reward :math:`μ̂_a` of each arm, in [0, 1], shape `[A]`.
        prior_alpha: Successes :math:`α` in the prior, in (0, inf), shape `[]` or `[A]`.
        prior_beta: Failures :math:`β` in the prior, in (0, inf), shape `[]` or `[A]`.

    Returns:
        Samples :math:`θ_a` in [0, 1], without a gradient, shape `[A]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> counts, means = jnp.array([1e6, 1e6]), jnp.array([0.25, 0.75])
        >>> print(rlaxlib.thompson_beta(jax.random.key(0), counts, means).round(2))
        [0.25 0.75]

    References:
        William R. Thompson, *On the Likelihood that One Unknown Probability Exceeds
        Another in View of the Evidence of Two Samples*, 1933.
        https://doi.org/10.1093/biomet/25.3-4.285
    """
    alpha = prior_alpha + counts * means
    beta = prior_beta + counts * (1 - means)
    alpha, beta = jax.lax.stop_gradient((alpha, beta))
    return jax.random.beta(key, alpha, beta, dtype=alpha.dtype)


@checked
def thompson_gaussian(
    key: Key[ArrayLike, ""],
    counts: Real[ArrayLike, "A in [0, inf)"],
    means: Float[ArrayLike, "A"],
    stddev: Float[ArrayLike, "in (0, inf)"] = 1.0,
    prior_mean: Float[ArrayLike, ""] = 0.0,
    prior_stddev: Float[ArrayLike, "in (0, inf)"] = 1.0,
) -> Float[Array, "A"]:
    """Sample the mean rewards of all arms for Gaussian rewards (Thompson sampling).

    Takes statistics of all arms, returns one sample for each.

    ::

        θ_a ~ Normal(m_a, 1/Λ_a),   Λ_a = 1 / σ_0² + N_a / σ²,
        m_a = (μ_0 / σ_0² + N_a μ̂_a / σ²) / Λ_a

    The posterior of means for rewards of standard deviation :math:`σ` and the prior
    :math:`Normal(μ_0, σ_0²)`. With the defaults the regret is at most of order
    :math:`√(A t log A)` for any rewards in [0, 1].

    Args:
        key: Random key, shape `[]`.
        counts: Number :math:`N_a` of pulls of each arm, floats or integers,
            in [0, inf), shape `[A]`.
        means: Mean reward :math:`μ̂_a` of each arm, shape `[A]`.
        stddev: Standard deviation :math:`σ` of the rewards of an arm, in (0, inf),
            shape `[]`.
        prior_mean: Mean :math:`μ_0` of the prior, shape `[]`.
        prior_stddev: Standard deviation :math:`σ_0` of the prior, in (0, inf),
            shape `[]`.

    Returns:
        Samples :math:`θ_a`, shape `[A]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> counts, means = jnp.array([1e8, 1e8]), jnp.array([-2.0, 3.0])
        >>> print(rlaxlib.thompson_gaussian(jax.random.key(0), counts, means).round(2))
        [-2.  3.]

    References:
        Shipra Agrawal and Navin Goyal, *Further Optimal Regret Bounds for Thompson
        Sampling*, 2012. https://arxiv.org/abs/1209.3353
    """
    prior, data = 1 / jnp.square(prior_stddev), counts / jnp.square(stddev)
    precision = prior + data
    mean = (prior * prior_mean + data * means) / precision
    noise = jax.random.normal(key, mean.shape, mean.dtype)
    return mean + noise / jnp.sqrt(precision)
