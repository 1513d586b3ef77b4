"""Gaussian distributions with a diagonal covariance, and their KL divergence.

The last axis holds the dimensions. All axes before it are batch axes, and are kept.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from rlaxlib._core import checks
from rlaxlib._core.functions import FunctionTuple
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Float, Key
from rlaxlib.distributions import _shared
from rlaxlib.distributions._shared import Function

__all__ = [
    "ContinuousDistribution",
    "GaussianDiagonal",
    "gaussian_diagonal",
    "multivariate_normal_kl_divergence",
]


class ContinuousDistribution(FunctionTuple):
    """A distribution over vectors.

    `gaussian_diagonal` and `squashed_gaussian` make one of settings. One can also be
    made of any functions, in the order below.

    Attributes:
        sample: Samples a vector from a key and the parameters.
        prob: Returns the density of a vector.
        logprob: Returns the log-density of a vector. It is also called `log_prob`.
        entropy: Returns the differential entropy, in nats.
        kl_to_standard_normal: Returns the KL divergence KL(p ‖ N(0, I)).
        kl: Returns the KL divergence between two distributions.
    """

    _functions = (
        "sample",
        "prob",
        "logprob",
        "entropy",
        "kl_to_standard_normal",
        "kl",
    )

    def __init__(
        self,
        sample: Function,
        prob: Function,
        logprob: Function,
        entropy: Function,
        kl_to_standard_normal: Function,
        kl: Function,
    ) -> None:
        self.sample, self.prob = sample, prob
        self.logprob = self.log_prob = logprob
        self.entropy, self.kl = entropy, kl
        self.kl_to_standard_normal = kl_to_standard_normal


@checked
def gaussian_diagonal(
    sigma: Float[ArrayLike, "... in (0, inf)"] | None = None,
) -> GaussianDiagonal:
    """Create a Gaussian distribution with a diagonal covariance matrix.

    Takes settings, returns a distribution.

    ::

        p(x) = ∏_i (1 / (√(2 π) σ_i)) exp(-(x_i - μ_i)² / (2 σ_i²))

    Its methods are `sample(key, mu, sigma)`, `prob(sample, mu, sigma)`,
    `log_prob(sample, mu, sigma)`, `entropy(mu, sigma)`,
    `kl_to_standard_normal(mu, sigma)` and `kl(mu_0, sigma_0, mu_1, sigma_1)`, with
    vectors of shape `[..., D]`. All but `kl` use this `sigma` by default.

    Args:
        sigma: Standard deviations :math:`σ`, in (0, inf), shape `[...]`; or None to
            give it when called.

    Returns:
        A `GaussianDiagonal`.

    Raises:
        ArgumentError: If `sigma` is wrong, or an argument is wrong or missing when
            called.

    Example:
        >>> policy, mu = rlaxlib.gaussian_diagonal(sigma=1.0), jnp.array([0.0])
        >>> print(policy.prob(mu, mu).round(4), policy.entropy(mu).round(4))
        0.3989 1.4189

    References:
        Christopher M. Bishop, *Pattern Recognition and Machine Learning*, section 2.3,
        2006. https://www.microsoft.com/en-us/research/publication/pattern-recognition-machine-learning/
    """
    return GaussianDiagonal(sigma)


@checked
def multivariate_normal_kl_divergence(
    mu_0: Float[ArrayLike, "..., D"],
    sigma_0: Float[ArrayLike, "[] or [D] or [..., D] in (0, inf)"],
    mu_1: Float[ArrayLike, "..., D"],
    sigma_1: Float[ArrayLike, "[] or [D] or [..., D] in (0, inf)"],
) -> Float[Array, "..."]:
    """Compute the KL divergence between two diagonal Gaussians.

    Takes the parameters of two distributions, returns one number.

    ::

        KL(p_0 ‖ p_1) = ∑_i [log (σ_{1,i} / σ_{0,i})
            + (σ_{0,i}² + (μ_{0,i} - μ_{1,i})²) / (2 σ_{1,i}²) - ½]

    It is accurate for Gaussians that hardly differ, and never negative.

    Args:
        mu_0: Mean of the first Gaussian, shape `[..., D]`.
        sigma_0: Its standard deviation, in (0, inf), shape `[]`, `[D]` or `[..., D]`.
        mu_1: Mean of the second Gaussian, shape `[..., D]`.
        sigma_1: Its standard deviation, in (0, inf), shape `[]`, `[D]` or `[..., D]`.

    Returns:
        KL divergences, in nats, shape `[...]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a NumPy `sigma` is not positive.

    Example:
        >>> mu_0, mu_1 = jnp.array([0.0, 0.0]), jnp.array([1.0, 1.0])
        >>> print(rlaxlib.multivariate_normal_kl_divergence(mu_0, 1.0, mu_1, 1.0))
        1.0

    References:
        Solomon Kullback and Richard A. Leibler, *On Information and Sufficiency*, 1951.
        https://doi.org/10.1214/aoms/1177729694
    """
    return _shared.normal_kl(mu_0, sigma_0, mu_1, sigma_1)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class GaussianDiagonal(ContinuousDistribution):
    """A Gaussian with a diagonal covariance matrix, which `gaussian_diagonal` makes.

    Attributes:
        sigma: Standard deviations, in (0, inf), shape `[...]`; or None to give them
            when called.
    """

    sigma: Float[ArrayLike, "[] or [D] or [..., D] in (0, inf)"] | None

    @checked
    def sample(
        self,
        key: Key[ArrayLike, ""],
        mu: Float[ArrayLike, "..., D"],
        sigma: Float[ArrayLike, "[] or [D] or [..., D] in (0, inf)"] | None = None,
    ) -> Float[Array, "..., D"]:
        """Sample a vector, differentiable by `mu` and `sigma`.

        Args:
            key: Random key, shape `[]`.
            mu: Mean, shape `[..., D]`.
            sigma: Standard deviation, in (0, inf), shape `[]`, `[D]` or `[..., D]`; or
                None for that of `gaussian_diagonal`.

        Returns:
            Vectors, shape `[..., D]`.

        Raises:
            ArgumentError: If a shape, dtype or `sigma` is wrong or missing.
        """
        return _shared.normal_sample(key, mu, self._or_own(sigma, mu))

    @checked
    def prob(
        self,
        sample: Float[ArrayLike, "[..., D] or [N, ..., D]"],
        mu: Float[ArrayLike, "..., D"],
        sigma: Float[ArrayLike, "[] or [D] or [..., D] in (0, inf)"] | None = None,
    ) -> Float[Array, "[...] or [N, ...]"]:
        """Return the density of a vector.

        Args:
            sample: Vectors, one for each mean, shape `[..., D]`; or N for each,
                shape `[N, ..., D]`.
            mu: Mean, shape `[..., D]`.
            sigma: Standard deviation, in (0, inf), shape `[]`, `[D]` or `[..., D]`; or
                None for that of `gaussian_diagonal`.

        Returns:
            Densities, shape `[...]` or `[N, ...]`.

        Raises:
            ArgumentError: If a shape, dtype or `sigma` is wrong or missing.
        """
        return jnp.exp(_shared.normal_log_density(sample, mu, self._or_own(sigma, mu)))

    @checked
    def log_prob(
        self,
        sample: Float[ArrayLike, "[..., D] or [N, ..., D]"],
        mu: Float[ArrayLike, "..., D"],
        sigma: Float[ArrayLike, "[] or [D] or [..., D] in (0, inf)"] | None = None,
    ) -> Float[Array, "[...] or [N, ...]"]:
        """Return the log-density of a vector.

        Args:
            sample: Vectors, one for each mean, shape `[..., D]`; or N for each,
                shape `[N, ..., D]`.
            mu: Mean, shape `[..., D]`.
            sigma: Standard deviation, in (0, inf), shape `[]`, `[D]` or `[..., D]`; or
                None for that of `gaussian_diagonal`.

        Returns:
            Log-densities, shape `[...]` or `[N, ...]`.

        Raises:
            ArgumentError: If a shape, dtype or `sigma` is wrong or missing.
        """
        return _shared.normal_log_density(sample, mu, self._or_own(sigma, mu))

    logprob = log_prob

    @checked
    def entropy(
        self,
        mu: Float[ArrayLike, "..., D"],
        sigma: Float[ArrayLike, "[] or [D] or [..., D] in (0, inf)"] | None = None,
    ) -> Float[Array, "..."]:
        """Return the entropy.

        Args:
            mu: Mean, shape `[..., D]`.
            sigma: Standard deviation, in (0, inf), shape `[]`, `[D]` or `[..., D]`; or
                None for that of `gaussian_diagonal`.

        Returns:
            Entropies, in nats, shape `[...]`.

        Raises:
            ArgumentError: If a shape, dtype or `sigma` is wrong or missing.
        """
        return _shared.normal_entropy(mu, self._or_own(sigma, mu))

    @checked
    def kl_to_standard_normal(
        self,
        mu: Float[ArrayLike, "..., D"],
        sigma: Float[ArrayLike, "[] or [D] or [..., D] in (0, inf)"] | None = None,
    ) -> Float[Array, "..."]:
        """Return the KL divergence to the standard normal, KL(p ‖ N(0, I)).

        Args:
            mu: Mean, shape `[..., D]`.
            sigma: Standard deviation, in (0, inf), shape `[]`, `[D]` or `[..., D]`; or
                None for that of `gaussian_diagonal`.

        Returns:
            KL divergences, in nats, shape `[...]`.

        Raises:
            ArgumentError: If a shape, dtype or `sigma` is wrong or missing.
        """
        return _shared.normal_kl(mu, self._or_own(sigma, mu))

    @checked
    def kl(
        self,
        mu_0: Float[ArrayLike, "..., D"],
        sigma_0: Float[ArrayLike, "[] or [D] or [..., D] in (0, inf)"],
        mu_1: Float[ArrayLike, "..., D"],
        sigma_1: Float[ArrayLike, "[] or [D] or [..., D] in (0, inf)"],
    ) -> Float[Array, "..."]:
        """Return the KL divergence, as `multivariate_normal_kl_divergence`.

        Args:
            mu_0: Mean of the Gaussian that the expectation is over, shape `[..., D]`.
            sigma_0: Its standard deviation, in (0, inf), shape `[]`, `[D]` or
                `[..., D]`.
            mu_1: Mean of the other Gaussian, shape `[..., D]`.
            sigma_1: Its standard deviation, in (0, inf), shape `[]`, `[D]` or
                `[..., D]`.

        Returns:
            KL divergences, in nats, shape `[...]`.

        Raises:
            ArgumentError: If a shape, dtype or standard deviation is wrong.
        """
        return multivariate_normal_kl_divergence(
            mu_0=mu_0, sigma_0=sigma_0, mu_1=mu_1, sigma_1=sigma_1
        )

    def _or_own(self, sigma: Array | None, mu: Array) -> Array:
        """Return the sigma given, or else the sigma of the distribution."""
        if sigma is not None:
            return sigma
        own = Float[ArrayLike, "[] or [D] or [..., D]"]
        checks.fit(mu=(mu, Float[ArrayLike, "..., D"]), sigma=(self.sigma, own))
        return jnp.asarray(self.sigma, mu.dtype)
