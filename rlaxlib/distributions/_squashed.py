"""Tanh-squashed Gaussian policies, as in soft actor-critic (SAC).

The last axis holds the dimensions. All axes before it are batch axes, and are kept.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib._core import checks
from rlaxlib.distributions._gaussian import (
    ContinuousDistribution,
    normal_entropy,
    normal_kl,
    normal_log_density,
    normal_sample,
)

__all__ = [
    "squashed_gaussian",
    "tanh_normal_log_prob",
    "tanh_normal_log_prob_of_action",
]


def squashed_gaussian(
    sigma_min: ArrayLike = -4.0, sigma_max: ArrayLike = 0.0
) -> ContinuousDistribution:
    """Create a tanh-squashed Gaussian distribution over bounded actions.

    Takes settings, returns a named tuple of functions.

    .. math::

        a = l + (h - l) (tanh(u) + 1) / 2,   u ~ Normal(m, s²),
        m = tanh(μ),   log s = σ_min + (σ_max - σ_min) (tanh(σ) + 1) / 2,

    where :math:`μ` and :math:`σ` are outputs of a network, and :math:`l` and :math:`h`
    the bounds of the action. Its functions are `sample(key, mu, sigma, action_spec)`,
    `prob` and `logprob(sample, mu, sigma, action_spec)`, `entropy` and
    `kl_to_standard_normal(mu, sigma)`, and `kl(mu_0, sigma_0, mu_1, sigma_1)`, with
    vectors of shape `[..., D]`.

    The mean :math:`m` is in [-1, 1], so that the second tanh does not saturate: the
    median of the action is within the middle 76 % of its range.

    `prob` and `logprob` are of the squashed action. `entropy` is of the Gaussian
    **before** squashing: estimate the action's entropy by `-logprob` of a sample.
    KL divergences are the same before and after squashing.

    Args:
        sigma_min: Smallest log standard deviation :math:`σ_min`, shape `[]`.
        sigma_max: Largest log standard deviation :math:`σ_max ≥ σ_min`, shape `[]`.

    Returns:
        A `ContinuousDistribution`.

    Raises:
        ArgumentError: If `sigma_max` is less than `sigma_min`, or an argument is wrong
            when called.

    Example:
        >>> policy, zero = rlaxlib.squashed_gaussian(), jnp.zeros(1)
        >>> print(policy.logprob(zero, zero, zero).round(4))
        1.0811

    References:
        Tuomas Haarnoja and others, *Soft Actor-Critic: Off-Policy Maximum Entropy Deep
        Reinforcement Learning with a Stochastic Actor*, appendix C, 2018.
        https://arxiv.org/abs/1801.01290
    """
    sigma_min, sigma_max = checks.arrays(
        sigma_min=(sigma_min, "float[]"), sigma_max=(sigma_max, "float[]")
    )
    checks.ordered(sigma_min=sigma_min, sigma_max=sigma_max)
    each = _SquashedGaussian(sigma_min, sigma_max)
    return ContinuousDistribution(
        each.sample,
        each.prob,
        each.logprob,
        each.entropy,
        each.kl_to_standard_normal,
        each.kl,
    )


def tanh_normal_log_prob(
    pre_tanh: ArrayLike, mu: ArrayLike, stddev: ArrayLike
) -> Array:
    """Compute the log-density of a tanh-Gaussian from its pre-tanh sample.

    Takes one action, returns one log-density.

    .. math:: log π(a) = log Normal(u; μ, σ²) - ∑_i log(1 - tanh² u_i),   a = tanh u

    SAC samples :math:`u = μ + σ ε` and acts by its tanh. Store :math:`u`: it cannot be
    recovered once the tanh saturates. If only the action is known, use
    `tanh_normal_log_prob_of_action`. For actions of another range, subtract the sum of
    the logarithms of their scales.

    The code uses :math:`log(1 - tanh² u) = 2 (log 2 - u - softplus(-2u))`. In single
    precision the left side is minus infinity from :math:`u = 9` on.

    Args:
        pre_tanh: Sample :math:`u` before the tanh, shape `[D]`.
        mu: Mean :math:`μ` of the Gaussian, used as given, shape `[D]`.
        stddev: Standard deviation :math:`σ` of the Gaussian, more than 0, shape `[D]`.

    Returns:
        Log-density of the action, shape `[]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a NumPy `stddev` not positive.

    Example:
        >>> u, stddev = jnp.full(1, 20.0), jnp.ones(1)
        >>> print(jax.grad(rlaxlib.tanh_normal_log_prob)(u, u, stddev))
        [2.]

    References:
        Tuomas Haarnoja and others, *Soft Actor-Critic: Off-Policy Maximum Entropy Deep
        Reinforcement Learning with a Stochastic Actor*, appendix C, 2018.
        https://arxiv.org/abs/1801.01290
    """
    u, mu, stddev, narrow = checks.widened(
        pre_tanh=(pre_tanh, "float[D]"),
        mu=(mu, "float[D]"),
        stddev=(stddev, "float[D] in (0, inf)"),
    )
    log_derivative = 2 * (math.log(2) - u - jax.nn.softplus(-2 * u))  # log(1 - tanh² u)
    return narrow(normal_log_density(u, mu, stddev) - jnp.sum(log_derivative))


def tanh_normal_log_prob_of_action(
    action: ArrayLike, mu: ArrayLike, stddev: ArrayLike
) -> Array:
    """Compute the log-density of a tanh-Gaussian from the action alone.

    Takes one action, returns one log-density.

    .. math:: log π(a) = log Normal(tanh⁻¹ a; μ, σ²) - ∑_i log(1 - a_i²)

    Use it for actions from a data set. For an action that the policy has just sampled,
    `tanh_normal_log_prob` is more accurate.

    Args:
        action: Action :math:`a`, in [-1, 1], shape `[D]`. An entry at or beyond a bound
            is moved to the nearest value inside, and has no gradient.
        mu: Mean :math:`μ` of the Gaussian, shape `[D]`.
        stddev: Standard deviation :math:`σ` of the Gaussian, more than 0, shape `[D]`.

    Returns:
        Log-density of the action, shape `[]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a NumPy `stddev` not positive.

    Example:
        >>> action, mu, stddev = jnp.tanh(jnp.array([0.5])), jnp.zeros(1), jnp.ones(1)
        >>> print(rlaxlib.tanh_normal_log_prob_of_action(action, mu, stddev).round(4))
        -0.8037

    References:
        Tuomas Haarnoja and others, *Soft Actor-Critic: Off-Policy Maximum Entropy Deep
        Reinforcement Learning with a Stochastic Actor*, appendix C, 2018.
        https://arxiv.org/abs/1801.01290
    """
    a, mu, stddev, narrow = checks.widened(
        action=(action, "float[D]"),
        mu=(mu, "float[D]"),
        stddev=(stddev, "float[D] in (0, inf)"),
    )
    low, high = _bounds(None, a)
    return narrow(_log_density(a, mu, stddev, low, high, _margin(action)))


@dataclasses.dataclass(frozen=True, eq=False)
class _SquashedGaussian:
    """The functions of a squashed Gaussian."""

    sigma_min: Array
    sigma_max: Array

    def sample(
        self, key: ArrayLike, mu: ArrayLike, sigma: ArrayLike, action_spec: Any = None
    ) -> Array:
        """Sample an action, differentiable by `mu` and `sigma`.

        Args:
            key: Random key, shape `[]`.
            mu: Mean before its activation, shape `[..., D]`.
            sigma: Standard deviation before its activation, shape `[]`, `[D]` or
                `[..., D]`.
            action_spec: Object with the bounds `minimum` and `maximum`; or None for -1
                and 1.

        Returns:
            Actions within the bounds, shape `[..., D]`.

        Raises:
            ArgumentError: If a shape, dtype or `action_spec` is wrong.
        """
        mu, sigma, key, narrow = checks.widened(
            mu=(mu, "float[..., D]"),
            sigma=(sigma, "float[] or [D] or [..., D]"),
            key=(key, "key[]"),
        )
        low, high = _bounds(action_spec, mu)
        u = normal_sample(key, *self._activate(mu, sigma))
        return narrow(_squash(u, low, high))

    def prob(
        self,
        sample: ArrayLike,
        mu: ArrayLike,
        sigma: ArrayLike,
        action_spec: Any = None,
    ) -> Array:
        """Return the density of an action.

        Args:
            sample: Actions, one for each mean, shape `[..., D]`; or N for each,
                shape `[N, ..., D]`. An entry at or beyond a bound is moved to the
                nearest value inside.
            mu: Mean before its activation, shape `[..., D]`.
            sigma: Standard deviation before its activation, shape `[]`, `[D]` or
                `[..., D]`.
            action_spec: Object with the bounds `minimum` and `maximum`; or None for -1
                and 1.

        Returns:
            Densities, shape `[...]` or `[N, ...]`.

        Raises:
            ArgumentError: If a shape, dtype or `action_spec` is wrong.
        """
        log_density, narrow = self._log_density(sample, mu, sigma, action_spec)
        return narrow(jnp.exp(log_density))

    def logprob(
        self,
        sample: ArrayLike,
        mu: ArrayLike,
        sigma: ArrayLike,
        action_spec: Any = None,
    ) -> Array:
        """Return the log-density of an action.

        Args:
            sample: Actions, one for each mean, shape `[..., D]`; or N for each,
                shape `[N, ..., D]`. An entry at or beyond a bound is moved to the
                nearest value inside.
            mu: Mean before its activation, shape `[..., D]`.
            sigma: Standard deviation before its activation, shape `[]`, `[D]` or
                `[..., D]`.
            action_spec: Object with the bounds `minimum` and `maximum`; or None for -1
                and 1.

        Returns:
            Log-densities, shape `[...]` or `[N, ...]`.

        Raises:
            ArgumentError: If a shape, dtype or `action_spec` is wrong.
        """
        log_density, narrow = self._log_density(sample, mu, sigma, action_spec)
        return narrow(log_density)

    def entropy(self, mu: ArrayLike, sigma: ArrayLike) -> Array:
        """Return the entropy of the Gaussian before squashing.

        Args:
            mu: Mean before its activation, shape `[..., D]`.
            sigma: Standard deviation before its activation, shape `[]`, `[D]` or
                `[..., D]`.

        Returns:
            Entropies, in nats, shape `[...]`. The entropy of the action differs by the
            mean log-derivative of the squashing.

        Raises:
            ArgumentError: If a shape or dtype is wrong.
        """
        mu, sigma, narrow = checks.widened(
            mu=(mu, "float[..., D]"), sigma=(sigma, "float[] or [D] or [..., D]")
        )
        return narrow(normal_entropy(*self._activate(mu, sigma)))

    def kl_to_standard_normal(self, mu: ArrayLike, sigma: ArrayLike) -> Array:
        """Return the KL divergence to the squashed standard normal.

        Args:
            mu: Mean before its activation, shape `[..., D]`.
            sigma: Standard deviation before its activation, shape `[]`, `[D]` or
                `[..., D]`.

        Returns:
            KL divergences, in nats, shape `[...]`: KL(p ‖ N(0, I)) before squashing,
            and the same after.

        Raises:
            ArgumentError: If a shape or dtype is wrong.
        """
        mu, sigma, narrow = checks.widened(
            mu=(mu, "float[..., D]"), sigma=(sigma, "float[] or [D] or [..., D]")
        )
        mean, stddev = self._activate(mu, sigma)
        zeros, ones = jnp.zeros_like(mean), jnp.ones_like(mean)
        return narrow(normal_kl(mean, stddev, zeros, ones))

    def kl(
        self, mu_0: ArrayLike, sigma_0: ArrayLike, mu_1: ArrayLike, sigma_1: ArrayLike
    ) -> Array:
        """Return the KL divergence between two squashed Gaussians.

        Args:
            mu_0: Mean of the one that the expectation is over, before its activation,
                shape `[..., D]`.
            sigma_0: Its standard deviation before its activation, shape `[]`, `[D]` or
                `[..., D]`.
            mu_1: Mean of the other before its activation, shape `[..., D]`.
            sigma_1: Its standard deviation before its activation, shape `[]`, `[D]` or
                `[..., D]`.

        Returns:
            KL divergences, in nats, shape `[...]`; the same before and after squashing.

        Raises:
            ArgumentError: If a shape or dtype is wrong.
        """
        mu_0, sigma_0, mu_1, sigma_1, narrow = checks.widened(
            mu_0=(mu_0, "float[..., D]"),
            sigma_0=(sigma_0, "float[] or [D] or [..., D]"),
            mu_1=(mu_1, "float[..., D]"),
            sigma_1=(sigma_1, "float[] or [D] or [..., D]"),
        )
        first, second = self._activate(mu_0, sigma_0), self._activate(mu_1, sigma_1)
        return narrow(normal_kl(*first, *second))

    def _log_density(
        self, sample: ArrayLike, mu: ArrayLike, sigma: ArrayLike, action_spec: Any
    ) -> tuple[Array, Callable[[Array], Array]]:
        """Return the log-density of an action, and how to cast it back."""
        mu, sigma, a, narrow = checks.widened(
            mu=(mu, "float[..., D]"),
            sigma=(sigma, "float[] or [D] or [..., D]"),
            sample=(sample, "float[..., D] or [N, ..., D]"),
        )
        low, high = _bounds(action_spec, a)
        mean, stddev = self._activate(mu, sigma)
        return _log_density(a, mean, stddev, low, high, _margin(sample)), narrow

    def _activate(self, mu: Array, sigma: Array) -> tuple[Array, Array]:
        """Return the mean and the standard deviation of the Gaussian."""
        low, high = (x.astype(sigma.dtype) for x in (self.sigma_min, self.sigma_max))
        log_stddev = low + 0.5 * (high - low) * (jnp.tanh(sigma) + 1)
        return jnp.tanh(mu), jnp.exp(log_stddev)


def _squash(u: Array, low: Array, high: Array) -> Array:
    """Return `low + (high - low) * (tanh(u) + 1) / 2`."""
    low, high = jnp.broadcast_to(low, u.shape), jnp.broadcast_to(high, u.shape)
    middle, half = 0.5 * low + 0.5 * high, 0.5 * high - 0.5 * low
    return jnp.clip(middle + half * jnp.tanh(u), low, high)  # Rounding may exceed them.


def _log_density(
    action: Array, mean: Array, stddev: Array, low: Array, high: Array, margin: float
) -> Array:
    """Return the log-density of an action, kept away from its bounds."""
    low, high = (jnp.broadcast_to(each, action.shape) for each in (low, high))
    # Distances to both bounds, as fractions of the range: `1 - a²` would round to 0.
    below, above = (action - low) / (high - low), (high - action) / (high - low)
    is_inside = (below >= margin) & (above >= margin)
    below, above = (
        jnp.where(is_inside, x, jax.lax.stop_gradient(jnp.clip(x, margin, 1.0)))
        for x in (below, above)
    )
    u = 0.5 * (jnp.log(below) - jnp.log(above))  # The inverse of the tanh.
    log_slope = jnp.log(2 * (high - low)) + jnp.log(below) + jnp.log(above)
    return normal_log_density(u, mean, stddev) - jnp.sum(log_slope, axis=-1)


def _margin(action: ArrayLike) -> float:
    """Return the smallest distance to a bound in the dtype of an action."""
    return float(cast(Any, jnp.finfo(jnp.result_type(action))).eps) / 4


def _bounds(action_spec: Any, like: Array) -> tuple[Array, Array]:
    """Return the bounds of an action, which broadcast to `like`."""
    if action_spec is None:
        return jnp.full_like(like, -1, shape=()), jnp.full_like(like, 1, shape=())
    bounds = {
        f"action_spec.{end}": getattr(action_spec, end, None)
        for end in ("minimum", "maximum")
    }
    spec = "any[] or [1] or [D] or [..., D] in (-inf, inf)"
    _, low, high = checks.arrays(
        action=(like, "float[..., D]"),
        **{name: (each, spec) for name, each in bounds.items()},
    )
    checks.increasing(**bounds)
    return low.astype(like.dtype), high.astype(like.dtype)
