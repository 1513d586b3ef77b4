"""Tanh-squashed Gaussian policies, as in soft actor-critic (SAC).

The last axis holds the dimensions. All axes before it are batch axes, and are kept.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp

from rlaxlib._core import checks, errors
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Float, Key, Shaped, Static
from rlaxlib.distributions import _shared
from rlaxlib.distributions._gaussian import ContinuousDistribution

__all__ = [
    "SquashedGaussian",
    "squashed_gaussian",
    "tanh_normal_log_prob",
    "tanh_normal_log_prob_of_action",
]

Sample = Float[ArrayLike, "[..., D] or [N, ..., D]"]
Minimum = Shaped[ArrayLike, "[] or [1] or [D] or [..., D] in (-inf, inf)"]
Maximum = Shaped[ArrayLike, "[] or [1] or [D] or [..., D] in (minimum, inf)"]


@checked
def squashed_gaussian(
    sigma_min: Float[ArrayLike, "in (-inf, inf)"] = -4.0,
    sigma_max: Float[ArrayLike, "in [sigma_min, inf)"] = 0.0,
) -> SquashedGaussian:
    """Create a tanh-squashed Gaussian distribution over bounded actions.

    Takes settings, returns a distribution.

    ::

        a = l + (h - l) (tanh(u) + 1) / 2,   u ~ Normal(m, s²),
        m = tanh(μ),   log s = σ_min + (σ_max - σ_min) (tanh(σ) + 1) / 2,

    where :math:`μ` and :math:`σ` are outputs of a network, and :math:`l` and :math:`h`
    the bounds of the action. Its methods are `sample(key, mu, sigma, action_spec)`,
    `prob` and `log_prob(sample, mu, sigma, action_spec)`, `entropy` and
    `kl_to_standard_normal(mu, sigma)`, and `kl(mu_0, sigma_0, mu_1, sigma_1)`, with
    vectors of shape `[..., D]`.

    An `action_spec` is any object that has the bounds of the action, each a finite
    number or an array: `minimum` and `maximum`, as a `BoundedArray` of dm_env has them,
    or `low` and `high`, as a `Box` of Gymnasium. Without one, the bounds are the
    keywords `minimum` and `maximum`, -1 and 1 by default.

    This is rlax's distribution, not the policy of SAC: outputs of the network pass an
    activation first. :math:`m` is in [-1, 1], so that the second tanh does not
    saturate: the median of the action is within the middle 76 % of its range. SAC has a
    mean and a standard deviation as they are given: `tanh_normal_log_prob`.

    `prob` and `log_prob` are of the squashed action. `entropy` is of the Gaussian
    **before** squashing: estimate the action's entropy by `-log_prob` of a sample.
    KL divergences are the same before and after squashing.

    Args:
        sigma_min: Smallest log standard deviation :math:`σ_min`, finite, shape `[]`.
        sigma_max: Largest log standard deviation :math:`σ_max`, in [`sigma_min`, inf),
            shape `[]`.

    Returns:
        A `SquashedGaussian`.

    Raises:
        ArgumentError: If `sigma_max` is less than `sigma_min`, or an argument is wrong
            when called.

    Example:
        >>> policy, zero = rlaxlib.squashed_gaussian(), jnp.zeros(1)
        >>> print(policy.log_prob(zero, zero, zero).round(4))
        1.0811

    References:
        Tuomas Haarnoja and others, *Soft Actor-Critic: Off-Policy Maximum Entropy Deep
        Reinforcement Learning with a Stochastic Actor*, appendix C, 2018.
        https://arxiv.org/abs/1801.01290
    """
    return SquashedGaussian(sigma_min, sigma_max)


@checked
def tanh_normal_log_prob(
    pre_tanh: Float[ArrayLike, "D"],
    mean: Float[ArrayLike, "D"],
    stddev: Float[ArrayLike, "D in (0, inf)"],
) -> Float[Array, ""]:
    """Compute the log-density of a tanh-Gaussian from its pre-tanh sample.

    Takes one action, returns one log-density.

    ::

        log π(a) = log Normal(u; μ, σ²) - ∑_i log(1 - tanh² u_i),   a = tanh u

    The policy of SAC samples :math:`u = μ + σ ε` and acts by its tanh. Mean and
    standard deviation are used as given; `squashed_gaussian`, rlax's distribution,
    passes both through an activation first, and has another density.

    Store :math:`u`: it cannot be recovered once the tanh saturates. If only the action
    is known, use `tanh_normal_log_prob_of_action`. For actions of another range,
    subtract the sum of the logarithms of their scales. The entropy has no closed form:
    estimate it by minus the log-density of a sample, as SAC does.

    The code uses :math:`log(1 - tanh² u) = 2 (log 2 - u - softplus(-2u))`. In single
    precision the left side is minus infinity from about :math:`u = 8` on.

    Args:
        pre_tanh: Sample :math:`u` before the tanh, shape `[D]`.
        mean: Mean :math:`μ` of the Gaussian, used as given, shape `[D]`.
        stddev: Standard deviation :math:`σ` of the Gaussian, in (0, inf), shape `[D]`.

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
    u = pre_tanh
    log_derivative = 2 * (math.log(2) - u - jax.nn.softplus(-2 * u))  # log(1 - tanh² u)
    return _shared.normal_log_density(u, mean, stddev) - jnp.sum(log_derivative)


@checked(compiled=False)
def tanh_normal_log_prob_of_action(
    a: Float[ArrayLike, "D"],
    mean: Float[ArrayLike, "D"],
    stddev: Float[ArrayLike, "D in (0, inf)"],
) -> Float[Array, ""]:
    """Compute the log-density of a tanh-Gaussian from the action alone.

    Takes one action, returns one log-density.

    ::

        log π(a) = log Normal(tanh⁻¹ a; μ, σ²) - ∑_i log(1 - a_i²)

    Use it for actions from a data set. For an action that the policy has just sampled,
    `tanh_normal_log_prob` is more accurate.

    Args:
        a: Action :math:`a`, shape `[D]`. An entry at or beyond -1 or 1 is moved to
            the nearest value inside.
        mean: Mean :math:`μ` of the Gaussian, shape `[D]`.
        stddev: Standard deviation :math:`σ` of the Gaussian, in (0, inf), shape `[D]`.

    Returns:
        Log-density of the action, shape `[]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a NumPy `stddev` not positive.

    Example:
        >>> a, mean, stddev = jnp.tanh(jnp.array([0.5])), jnp.zeros(1), jnp.ones(1)
        >>> print(rlaxlib.tanh_normal_log_prob_of_action(a, mean, stddev).round(4))
        -0.8037

    References:
        Tuomas Haarnoja and others, *Soft Actor-Critic: Off-Policy Maximum Entropy Deep
        Reinforcement Learning with a Stochastic Actor*, appendix C, 2018.
        https://arxiv.org/abs/1801.01290
    """
    return _log_prob_of_action(a, mean, stddev, _margin(a))


@checked
def _log_prob_of_action(
    action: Float[ArrayLike, "D"],
    mu: Float[ArrayLike, "D"],
    stddev: Float[ArrayLike, "D"],
    margin: Static[float, ""],
) -> Float[Array, ""]:
    return _log_density(action, mu, stddev, -1.0, 1.0, margin)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class SquashedGaussian(ContinuousDistribution):
    """A tanh-squashed Gaussian distribution, which `squashed_gaussian` makes.

    Attributes:
        sigma_min: Smallest log standard deviation, finite, shape `[]`.
        sigma_max: Largest log standard deviation, in [`sigma_min`, inf), shape `[]`.
    """

    sigma_min: Float[ArrayLike, "in (-inf, inf)"]
    sigma_max: Float[ArrayLike, "in [sigma_min, inf)"]

    @checked(compiled=False)
    def sample(
        self,
        key: Key[ArrayLike, ""],
        mu: Float[ArrayLike, "..., D"],
        sigma: Float[ArrayLike, "[] or [D] or [..., D]"],
        action_spec: Any = None,
        *,
        minimum: Minimum | None = None,
        maximum: Maximum | None = None,
    ) -> Float[Array, "..., D"]:
        """Sample an action, differentiable by `mu` and `sigma`.

        Args:
            key: Random key, shape `[]`.
            mu: Mean before its activation, shape `[..., D]`.
            sigma: Standard deviation before its activation, shape `[]`, `[D]` or
                `[..., D]`.
            action_spec: Object with the bounds `minimum` and `maximum`, or `low` and
                `high`, as for `squashed_gaussian`; or None for the next two.
            minimum: Lower bound, finite, shape `[]`, `[1]`, `[D]` or `[..., D]`; or
                None for -1.
            maximum: Upper bound, in (`minimum`, inf), shape `[]`, `[1]`, `[D]` or
                `[..., D]`; or None for 1.

        Returns:
            Actions within the bounds, shape `[..., D]`.

        Raises:
            ArgumentError: If a shape, dtype or bound is wrong.
        """
        return self._sample(key, mu, sigma, *_bounds(action_spec, minimum, maximum))

    @checked
    def _sample(
        self,
        key: Key[ArrayLike, ""],
        mu: Float[ArrayLike, "..., D"],
        sigma: Float[ArrayLike, "[] or [D] or [..., D]"],
        minimum: Minimum,
        maximum: Maximum,
    ) -> Float[Array, "..., D"]:
        u = _shared.normal_sample(key, *self._activate(mu, sigma))
        return _squash(u, minimum.astype(u.dtype), maximum.astype(u.dtype))

    @checked(compiled=False)
    def prob(
        self,
        sample: Sample,
        mu: Float[ArrayLike, "..., D"],
        sigma: Float[ArrayLike, "[] or [D] or [..., D]"],
        action_spec: Any = None,
        *,
        minimum: Minimum | None = None,
        maximum: Maximum | None = None,
    ) -> Float[Array, "[...] or [N, ...]"]:
        """Return the density of an action.

        Args:
            sample: Actions, one for each mean, shape `[..., D]`; or N for each,
                shape `[N, ..., D]`. An entry at or beyond a bound is moved to the
                nearest value inside.
            mu: Mean before its activation, shape `[..., D]`.
            sigma: Standard deviation before its activation, shape `[]`, `[D]` or
                `[..., D]`.
            action_spec: Object with the bounds `minimum` and `maximum`, or `low` and
                `high`, as for `squashed_gaussian`; or None for the next two.
            minimum: Lower bound, finite, shape `[]`, `[1]`, `[D]` or `[..., D]`; or
                None for -1.
            maximum: Upper bound, in (`minimum`, inf), shape `[]`, `[1]`, `[D]` or
                `[..., D]`; or None for 1.

        Returns:
            Densities, shape `[...]` or `[N, ...]`.

        Raises:
            ArgumentError: If a shape, dtype or bound is wrong.
        """
        bounds = _bounds(action_spec, minimum, maximum)
        return self._prob(sample, mu, sigma, *bounds, _margin(sample))

    @checked
    def _prob(
        self,
        sample: Sample,
        mu: Float[ArrayLike, "..., D"],
        sigma: Float[ArrayLike, "[] or [D] or [..., D]"],
        minimum: Minimum,
        maximum: Maximum,
        margin: Static[float, ""],
    ) -> Float[Array, "[...] or [N, ...]"]:
        log_prob = self._log_prob(sample, mu, sigma, minimum, maximum, margin)
        return jnp.exp(log_prob)

    @checked(compiled=False)
    def log_prob(
        self,
        sample: Sample,
        mu: Float[ArrayLike, "..., D"],
        sigma: Float[ArrayLike, "[] or [D] or [..., D]"],
        action_spec: Any = None,
        *,
        minimum: Minimum | None = None,
        maximum: Maximum | None = None,
    ) -> Float[Array, "[...] or [N, ...]"]:
        """Return the log-density of an action.

        Args:
            sample: Actions, one for each mean, shape `[..., D]`; or N for each,
                shape `[N, ..., D]`. An entry at or beyond a bound is moved to the
                nearest value inside.
            mu: Mean before its activation, shape `[..., D]`.
            sigma: Standard deviation before its activation, shape `[]`, `[D]` or
                `[..., D]`.
            action_spec: Object with the bounds `minimum` and `maximum`, or `low` and
                `high`, as for `squashed_gaussian`; or None for the next two.
            minimum: Lower bound, finite, shape `[]`, `[1]`, `[D]` or `[..., D]`; or
                None for -1.
            maximum: Upper bound, in (`minimum`, inf), shape `[]`, `[1]`, `[D]` or
                `[..., D]`; or None for 1.

        Returns:
            Log-densities, shape `[...]` or `[N, ...]`.

        Raises:
            ArgumentError: If a shape, dtype or bound is wrong.
        """
        bounds = _bounds(action_spec, minimum, maximum)
        return self._log_prob(sample, mu, sigma, *bounds, _margin(sample))

    logprob = log_prob

    @checked
    def _log_prob(
        self,
        sample: Sample,
        mu: Float[ArrayLike, "..., D"],
        sigma: Float[ArrayLike, "[] or [D] or [..., D]"],
        minimum: Minimum,
        maximum: Maximum,
        margin: Static[float, ""],
    ) -> Float[Array, "[...] or [N, ...]"]:
        low, high = (each.astype(sample.dtype) for each in (minimum, maximum))
        return _log_density(sample, *self._activate(mu, sigma), low, high, margin)

    @checked
    def entropy(
        self,
        mu: Float[ArrayLike, "..., D"],
        sigma: Float[ArrayLike, "[] or [D] or [..., D]"],
    ) -> Float[Array, "..."]:
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
        return _shared.normal_entropy(*self._activate(mu, sigma))

    @checked
    def kl_to_standard_normal(
        self,
        mu: Float[ArrayLike, "..., D"],
        sigma: Float[ArrayLike, "[] or [D] or [..., D]"],
    ) -> Float[Array, "..."]:
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
        return _shared.normal_kl(*self._activate(mu, sigma))

    @checked
    def kl(
        self,
        mu_0: Float[ArrayLike, "..., D"],
        sigma_0: Float[ArrayLike, "[] or [D] or [..., D]"],
        mu_1: Float[ArrayLike, "..., D"],
        sigma_1: Float[ArrayLike, "[] or [D] or [..., D]"],
    ) -> Float[Array, "..."]:
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
        first, second = self._activate(mu_0, sigma_0), self._activate(mu_1, sigma_1)
        return _shared.normal_kl(*first, *second)

    def _activate(self, mu: Array, sigma: Array) -> tuple[Array, Array]:
        """Return the mean and the standard deviation of the Gaussian."""
        ends = self.sigma_min, self.sigma_max
        low, high = (jnp.asarray(each, sigma.dtype) for each in ends)
        log_stddev = low + 0.5 * (high - low) * (jnp.tanh(sigma) + 1)
        return jnp.tanh(mu), jnp.exp(log_stddev)


def _squash(u: Array, low: Array, high: Array) -> Array:
    """Return `low + (high - low) * (tanh(u) + 1) / 2`."""
    low, high = jnp.broadcast_to(low, u.shape), jnp.broadcast_to(high, u.shape)
    middle, half = 0.5 * low + 0.5 * high, 0.5 * high - 0.5 * low
    return jnp.clip(middle + half * jnp.tanh(u), low, high)  # Rounding may exceed them.


def _log_density(
    action: Array,
    mean: Array,
    stddev: Array,
    low: ArrayLike,
    high: ArrayLike,
    margin: float,
) -> Array:
    """Return the log-density of an action, kept away from its bounds."""
    low, high = (jnp.broadcast_to(each, action.shape) for each in (low, high))
    # Distances to both bounds, as fractions of the range: `1 - a²` would round to 0.
    below, above = (action - low) / (high - low), (high - action) / (high - low)
    # The logarithm of a distance of 0 would be minus infinity.
    below, above = jnp.clip(below, margin, 1.0), jnp.clip(above, margin, 1.0)
    u = 0.5 * (jnp.log(below) - jnp.log(above))  # The inverse of the tanh.
    log_slope = jnp.log(2 * (high - low)) + jnp.log(below) + jnp.log(above)
    return _shared.normal_log_density(u, mean, stddev) - jnp.sum(log_slope, axis=-1)


def _margin(action: ArrayLike) -> float:
    """Return the smallest distance to a bound in the dtype of an action."""
    return float(jnp.finfo(jnp.result_type(action)).eps) / 4


def _bounds(
    action_spec: Any, minimum: ArrayLike | None, maximum: ArrayLike | None
) -> tuple[ArrayLike, ArrayLike]:
    """Return the bounds of an action, those of an object if there is one."""
    if action_spec is None:
        return -1.0 if minimum is None else minimum, 1.0 if maximum is None else maximum
    if not (minimum is None and maximum is None):
        checks.fail("`minimum` and `maximum` must be None beside an `action_spec`")
    for low, high in (("minimum", "maximum"), ("low", "high")):
        if hasattr(action_spec, low) and hasattr(action_spec, high):
            return getattr(action_spec, low), getattr(action_spec, high)
    found = errors.describe(action_spec)
    pairs = "`minimum` and `maximum`, or `low` and `high`"
    checks.fail(f"`action_spec` is {found}, must be an object with {pairs}")
