"""Gaussians with independent dimensions, the last axis."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib._core import checks, dtypes
from rlaxlib.distributions import _normal
from rlaxlib.distributions._types import ContinuousDistribution

__all__ = ["gaussian_diagonal", "multivariate_normal_kl_divergence"]


def multivariate_normal_kl_divergence(
    mu_0: ArrayLike, sigma_0: ArrayLike, mu_1: ArrayLike, sigma_1: ArrayLike
) -> Array:
    """Measure how far one Gaussian is from another, with independent dimensions.

    .. math::

        KL(p_0 ‖ p_1) = ∑_i [log (σ_{1,i} / σ_{0,i})
            + (σ_{0,i}² + (μ_{0,i} - μ_{1,i})²) / (2 σ_{1,i}²) - ½]

    It is right for Gaussians that hardly differ, too, and never negative.

    Args:
        mu_0: Mean of the Gaussian that the expectation is over, shape `[..., D]`.
        sigma_0: Its standard deviation, more than 0: one for all dimensions,
            shape `[]`; or for each, shape `[D]`; or for each and each row,
            shape `[..., D]`.
        mu_1: Mean of the other, shape `[..., D]`.
        sigma_1: Its standard deviation, likewise, shape `[]`, or shape `[D]`, or
            shape `[..., D]`.

    Returns:
        Divergences, in nats, shape `[...]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if a standard
            deviation whose value is known is not positive.

    Example:
        >>> mu_0, mu_1 = jnp.array([0.0, 0.0]), jnp.array([1.0, 1.0])
        >>> print(rlaxlib.multivariate_normal_kl_divergence(mu_0, 1.0, mu_1, 1.0))
        1.0

    References:
        Solomon Kullback and Richard A. Leibler, *On Information and Sufficiency*, 1951.
        https://doi.org/10.1214/aoms/1177729694
    """
    mu_0, sigma_0, mu_1, sigma_1 = checks.arrays(
        mu_0=(mu_0, "float[..., D]"),
        sigma_0=(sigma_0, "float[] or [D] or [..., D]"),
        mu_1=(mu_1, "float[..., D]"),
        sigma_1=(sigma_1, "float[] or [D] or [..., D]"),
    )
    checks.within("(0, inf)", sigma_0=sigma_0, sigma_1=sigma_1)
    (mu_0, sigma_0, mu_1, sigma_1), narrow = dtypes.widen(mu_0, sigma_0, mu_1, sigma_1)
    return narrow(_normal.divergence(mu_0, sigma_0, mu_1, sigma_1))


def gaussian_diagonal(sigma: ArrayLike | None = None) -> ContinuousDistribution:
    """Make a Gaussian with independent dimensions.

    .. math::

        p(x) = ∏_i (1 / (√(2 π) σ_i)) exp(-(x_i - μ_i)² / (2 σ_i²))

    Its functions are `sample(key, mu, sigma)`, `prob(sample, mu, sigma)`,
    `logprob(sample, mu, sigma)`, `entropy(mu, sigma)`,
    `kl_to_standard_normal(mu, sigma)` and `kl(mu_0, sigma_0, mu_1, sigma_1)`, with
    vectors of shape `[..., D]`. In all but the last `sigma` may be left out if the
    distribution was made with one.

    Args:
        sigma: Standard deviation, more than 0, for all dimensions or each,
            shape `[...]`; or None to give it at each call.

    Returns:
        A `ContinuousDistribution`.

    Raises:
        ArgumentError: If `sigma` has the wrong dtype or is not positive; from its
            functions, if an argument has the wrong shape or dtype, or if no `sigma` was
            given.

    Example:
        >>> policy, mu = rlaxlib.gaussian_diagonal(sigma=1.0), jnp.array([0.0])
        >>> print(policy.prob(mu, mu).round(4), policy.entropy(mu).round(4))
        0.3989 1.4189

    References:
        Christopher M. Bishop, *Pattern Recognition and Machine Learning*, section 2.3,
        2006. https://www.microsoft.com/en-us/research/publication/pattern-recognition-machine-learning/
    """
    (sigma,) = checks.arrays(sigma=(sigma, "float[...] or None"))
    checks.within("(0, inf)", sigma=sigma)
    each = _GaussianDiagonal(sigma)
    return ContinuousDistribution(
        each.sample,
        each.prob,
        each.logprob,
        each.entropy,
        each.kl_to_standard_normal,
        each.kl,
    )


@dataclasses.dataclass(frozen=True, eq=False)
class _GaussianDiagonal:
    """The functions of a Gaussian."""

    sigma: Array | None

    def sample(
        self, key: ArrayLike, mu: ArrayLike, sigma: ArrayLike | None = None
    ) -> Array:
        """Draw a vector.

        Args:
            key: Random key, shape `[]`.
            mu: Mean, shape `[..., D]`.
            sigma: Standard deviation, more than 0, shape `[]` or `[D]` or `[..., D]`;
                or None for the one that the distribution was made with.

        Returns:
            Vectors, shape `[..., D]`.

        Raises:
            ArgumentError: If an argument has the wrong shape or dtype, or if `sigma` is
                not positive.
        """
        mu, sigma, key = checks.arrays(
            mu=(mu, "float[..., D]"),
            sigma=(self._or_mine(sigma), "float[] or [D] or [..., D]"),
            key=(key, "key[]"),
        )
        checks.within("(0, inf)", sigma=sigma)
        (mu, sigma), narrow = dtypes.widen(mu, sigma)
        return narrow(_normal.draw(key, mu, sigma))

    def prob(
        self, sample: ArrayLike, mu: ArrayLike, sigma: ArrayLike | None = None
    ) -> Array:
        """Return the density of a vector.

        Args:
            sample: Vectors, one for each mean, shape `[..., D]`; or N,
                shape `[N, ..., D]`.
            mu: Mean, shape `[..., D]`.
            sigma: Standard deviation, more than 0, shape `[]` or `[D]` or `[..., D]`;
                or None for the one that the distribution was made with.

        Returns:
            Densities, shape `[...]` or `[N, ...]`.

        Raises:
            ArgumentError: If an argument has the wrong shape or dtype, or if `sigma` is
                not positive.
        """
        mu, sigma, sample = checks.arrays(
            mu=(mu, "float[..., D]"),
            sigma=(self._or_mine(sigma), "float[] or [D] or [..., D]"),
            sample=(sample, "float[..., D] or [N, ..., D]"),
        )
        checks.within("(0, inf)", sigma=sigma)
        (sample, mu, sigma), narrow = dtypes.widen(sample, mu, sigma)
        return narrow(jnp.exp(_normal.log_density(sample, mu, sigma)))

    def logprob(
        self, sample: ArrayLike, mu: ArrayLike, sigma: ArrayLike | None = None
    ) -> Array:
        """Return the logarithm of the density of a vector.

        Args:
            sample: Vectors, one for each mean, shape `[..., D]`; or N,
                shape `[N, ..., D]`.
            mu: Mean, shape `[..., D]`.
            sigma: Standard deviation, more than 0, shape `[]` or `[D]` or `[..., D]`;
                or None for the one that the distribution was made with.

        Returns:
            Log-densities, shape `[...]` or `[N, ...]`.

        Raises:
            ArgumentError: If an argument has the wrong shape or dtype, or if `sigma` is
                not positive.
        """
        mu, sigma, sample = checks.arrays(
            mu=(mu, "float[..., D]"),
            sigma=(self._or_mine(sigma), "float[] or [D] or [..., D]"),
            sample=(sample, "float[..., D] or [N, ..., D]"),
        )
        checks.within("(0, inf)", sigma=sigma)
        (sample, mu, sigma), narrow = dtypes.widen(sample, mu, sigma)
        return narrow(_normal.log_density(sample, mu, sigma))

    def entropy(self, mu: ArrayLike, sigma: ArrayLike | None = None) -> Array:
        """Return the entropy.

        Args:
            mu: Mean, shape `[..., D]`.
            sigma: Standard deviation, more than 0, shape `[]` or `[D]` or `[..., D]`;
                or None for the one that the distribution was made with.

        Returns:
            Entropies, in nats, shape `[...]`.

        Raises:
            ArgumentError: If an argument has the wrong shape or dtype, or if `sigma` is
                not positive.
        """
        mu, sigma = checks.arrays(
            mu=(mu, "float[..., D]"),
            sigma=(self._or_mine(sigma), "float[] or [D] or [..., D]"),
        )
        checks.within("(0, inf)", sigma=sigma)
        (mu, sigma), narrow = dtypes.widen(mu, sigma)
        return narrow(_normal.entropy(mu, sigma))

    def kl_to_standard_normal(
        self, mu: ArrayLike, sigma: ArrayLike | None = None
    ) -> Array:
        """Return the divergence of the standard normal distribution from this one.

        Args:
            mu: Mean, shape `[..., D]`.
            sigma: Standard deviation, more than 0, shape `[]` or `[D]` or `[..., D]`;
                or None for the one that the distribution was made with.

        Returns:
            Divergences, in nats, shape `[...]`.

        Raises:
            ArgumentError: If an argument has the wrong shape or dtype, or if `sigma` is
                not positive.
        """
        mu, sigma = checks.arrays(
            mu=(mu, "float[..., D]"),
            sigma=(self._or_mine(sigma), "float[] or [D] or [..., D]"),
        )
        checks.within("(0, inf)", sigma=sigma)
        (mu, sigma), narrow = dtypes.widen(mu, sigma)
        return narrow(_normal.divergence_from_standard(mu, sigma))

    def kl(
        self, mu_0: ArrayLike, sigma_0: ArrayLike, mu_1: ArrayLike, sigma_1: ArrayLike
    ) -> Array:
        """Return the divergence of one Gaussian from another.

        Args:
            mu_0: Mean of the Gaussian that the expectation is over, shape `[..., D]`.
            sigma_0: Its standard deviation, more than 0, shape `[]` or `[D]` or
                `[..., D]`.
            mu_1: Mean of the other, shape `[..., D]`.
            sigma_1: Its standard deviation, more than 0, shape `[]` or `[D]` or
                `[..., D]`.

        Returns:
            Divergences, in nats, shape `[...]`, as of
            `multivariate_normal_kl_divergence`.

        Raises:
            ArgumentError: If an argument has the wrong shape or dtype, or if a standard
                deviation is not positive.
        """
        mu_0, sigma_0, mu_1, sigma_1 = checks.arrays(
            mu_0=(mu_0, "float[..., D]"),
            sigma_0=(sigma_0, "float[] or [D] or [..., D]"),
            mu_1=(mu_1, "float[..., D]"),
            sigma_1=(sigma_1, "float[] or [D] or [..., D]"),
        )
        checks.within("(0, inf)", sigma_0=sigma_0, sigma_1=sigma_1)
        return multivariate_normal_kl_divergence(mu_0, sigma_0, mu_1, sigma_1)

    def _or_mine(self, sigma: ArrayLike | None) -> ArrayLike | None:
        """Return the deviation given, or else the one this was made with."""
        return self.sigma if sigma is None else sigma
