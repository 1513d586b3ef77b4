"""The squashed Gaussian: a policy over actions that have bounds."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib._core import checks, derivatives, dtypes, exponentials, sums
from rlaxlib.distributions import _normal
from rlaxlib.distributions._types import ContinuousDistribution

__all__ = [
    "squashed_gaussian",
    "tanh_normal_log_prob",
    "tanh_normal_log_prob_of_action",
]

_SHORTEST = sums.Shortest(run=6, differentiated=17)
_SHORTEST_TO_STANDARD = sums.Shortest(run=7, differentiated=17)


def squashed_gaussian(
    sigma_min: ArrayLike = -4.0, sigma_max: ArrayLike = 0.0
) -> ContinuousDistribution:
    """Make a Gaussian squashed into the range of the actions by a tanh.

    .. math::

        a = l + (h - l) (tanh(u) + 1) / 2,   u ~ Normal(m, s²),
        m = tanh(μ),   log s = σ_min + (σ_max - σ_min) (tanh(σ) + 1) / 2,

    where :math:`μ` and :math:`σ` are what a network puts out, any real numbers, and
    :math:`l` and :math:`h` bound the action. Its functions are `sample(key, mu, sigma,
    action_spec)`, `prob(sample, mu, sigma, action_spec)`, `logprob(sample, mu, sigma,
    action_spec)`, `entropy(mu, sigma)`, `kl_to_standard_normal(mu, sigma)` and
    `kl(mu_0, sigma_0, mu_1, sigma_1)`, with vectors of shape `[..., D]`.

    Both activations have bounds. The mean stays within [-1, 1], where the tanh that
    follows is steep: a mean far outside would saturate it, and stop learning. (The
    median of the action then stays within 76 % of its range, too; further out is
    reached by chance.) The logarithm of the deviation stays within
    [`sigma_min`, `sigma_max`]: a policy may neither collapse to a point, where
    densities grow without bound, nor spread so wide that all its mass lies at the
    bounds of the action. Soft actor-critic bounds it for the same reasons.

    What is asked of an action, `prob` and `logprob`, is of the squashed distribution.
    The entropy is that of the Gaussian **before** squashing: that of the action has no
    closed form, and is estimated by `-logprob` of a sample. A divergence is the same
    before and after squashing.

    Args:
        sigma_min: Smallest logarithm of a standard deviation, shape `[]`.
        sigma_max: Largest logarithm of a standard deviation, at least `sigma_min`,
            shape `[]`.

    Returns:
        A `ContinuousDistribution`.

    Raises:
        ArgumentError: If an argument has the wrong shape, or if the bounds are the
            wrong way round; from its functions, if an argument has the wrong shape or
            dtype, or if an `action_spec` has no bounds.

    Example:
        >>> policy = rlaxlib.squashed_gaussian()
        >>> mu, sigma, a = jnp.zeros(1), jnp.zeros(1), jnp.zeros(1)
        >>> print(policy.logprob(a, mu, sigma, None).round(4))
        1.0811

    References:
        Tuomas Haarnoja, Aurick Zhou, Pieter Abbeel and Sergey Levine, *Soft
        Actor-Critic: Off-Policy Maximum Entropy Deep Reinforcement Learning with a
        Stochastic Actor*, appendix C, 2018. https://arxiv.org/abs/1801.01290
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


def tanh_normal_log_prob(pre_tanh: ArrayLike, mu: ArrayLike, sigma: ArrayLike) -> Array:
    """Return the log-density of an action, from what it was before the tanh.

    .. math::

        log π(a) = log Normal(u; μ, σ²) - ∑_i log(1 - tanh² u_i),   a = tanh u

    Soft actor-critic draws :math:`u = μ + σ ε`, acts by its tanh, and needs this with
    its gradient. Keep :math:`u`: from the action alone, of which
    `tanh_normal_log_prob_of_action` makes what it can, it does not come back once the
    tanh has rounded to 1.

    :math:`log(1 - tanh² u)` is computed as :math:`2 (log 2 - u - softplus(-2u))`. As it
    is written it would be minus infinity from :math:`u = 9` on, in single precision; to
    add a small number inside the logarithm, as many do, bounds it, but takes its
    gradient away, which should be close to -2 or 2 there.

    For an action scaled to a range other than [-1, 1], subtract the sum of the
    logarithms of the scales. `squashed_gaussian` has bounds of its own on mean and
    deviation; here they are what they are said to be.

    Args:
        pre_tanh: What the action is the tanh of, :math:`u`, shape `[D]`.
        mu: Mean :math:`μ` of the Gaussian, shape `[D]`.
        sigma: Its standard deviation :math:`σ`, more than 0, shape `[D]`.

    Returns:
        Log-density of the action, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if a deviation
            whose value is known is not positive.

    Example:
        >>> u, sigma = jnp.zeros(1), jnp.full(1, (2 * jnp.pi) ** -0.5)
        >>> print(rlaxlib.tanh_normal_log_prob(u, u, sigma).round(4) + 0.0)
        0.0
        >>> print(jax.grad(rlaxlib.tanh_normal_log_prob)(u + 20.0, u + 20.0, sigma))
        [2.]

    References:
        Tuomas Haarnoja, Aurick Zhou, Pieter Abbeel and Sergey Levine, *Soft
        Actor-Critic: Off-Policy Maximum Entropy Deep Reinforcement Learning with a
        Stochastic Actor*, appendix C, 2018. https://arxiv.org/abs/1801.01290
    """
    pre_tanh, mu, sigma = checks.arrays(
        pre_tanh=(pre_tanh, "float[D]"),
        mu=(mu, "float[D]"),
        sigma=(sigma, "float[D]"),
    )
    checks.within("(0, inf)", sigma=sigma)
    (u, mu, sigma), narrow = dtypes.widen(pre_tanh, mu, sigma)
    return narrow(_normal.log_density(u, mu, sigma) - jnp.sum(_log_slope(u)))


def tanh_normal_log_prob_of_action(
    action: ArrayLike, mu: ArrayLike, sigma: ArrayLike
) -> Array:
    """Return the log-density of an action that is the tanh of a Gaussian.

    .. math::

        log π(a) = log Normal(tanh⁻¹ a; μ, σ²) - ∑_i log(1 - a_i²)

    It is for actions of which nothing else is known, such as those in a data set. Of
    one that the policy has just drawn, `tanh_normal_log_prob` knows more.

    Args:
        action: Action :math:`a`, each entry in [-1, 1], shape `[D]`. One at a bound, or
            beyond it, is taken to be the next one within, and has no gradient.
        mu: Mean :math:`μ` of the Gaussian, shape `[D]`.
        sigma: Its standard deviation :math:`σ`, more than 0, shape `[D]`.

    Returns:
        Log-density of the action, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if a deviation
            whose value is known is not positive.

    Example:
        >>> action, mu, sigma = jnp.tanh(jnp.array([0.5])), jnp.zeros(1), jnp.ones(1)
        >>> print(rlaxlib.tanh_normal_log_prob_of_action(action, mu, sigma).round(4))
        -0.8037
        >>> print(rlaxlib.tanh_normal_log_prob(jnp.array([0.5]), mu, sigma).round(4))
        -0.8037

    References:
        Tuomas Haarnoja, Aurick Zhou, Pieter Abbeel and Sergey Levine, *Soft
        Actor-Critic: Off-Policy Maximum Entropy Deep Reinforcement Learning with a
        Stochastic Actor*, appendix C, 2018. https://arxiv.org/abs/1801.01290
    """
    action, mu, sigma = checks.arrays(
        action=(action, "float[D]"),
        mu=(mu, "float[D]"),
        sigma=(sigma, "float[D]"),
    )
    checks.within("(0, inf)", sigma=sigma)
    margin = _margin(action)
    (action, mu, sigma), narrow = dtypes.widen(action, mu, sigma)
    low, high = _bounds(None, action)
    return narrow(_log_density(action, mu, sigma, low, high, margin))


@dataclasses.dataclass(frozen=True, eq=False)
class _SquashedGaussian:
    """The functions of a squashed Gaussian."""

    sigma_min: Array
    sigma_max: Array

    def sample(
        self, key: ArrayLike, mu: ArrayLike, sigma: ArrayLike, action_spec: Any
    ) -> Array:
        """Draw an action.

        Args:
            key: Random key, shape `[]`.
            mu: Mean, before its activation, shape `[..., D]`.
            sigma: Deviation, before its activation, shape `[]` or `[D]` or `[..., D]`.
            action_spec: What has the bounds of the action, as `minimum` and `maximum`;
                or None for -1 and 1.

        Returns:
            Actions, within the bounds, shape `[..., D]`.

        Raises:
            ArgumentError: If an argument has the wrong shape or dtype, or if
                `action_spec` has no finite bounds.
        """
        mu, sigma, key = checks.arrays(
            mu=(mu, "float[..., D]"),
            sigma=(sigma, "float[] or [D] or [..., D]"),
            key=(key, "key[]"),
        )
        (mu, sigma), narrow = dtypes.widen(mu, sigma)
        low, high = _bounds(action_spec, mu)
        u = _normal.draw(key, *self._activate(mu, sigma))
        return narrow(_squash(u, low, high))

    def prob(
        self,
        sample: ArrayLike,
        mu: ArrayLike,
        sigma: ArrayLike,
        action_spec: Any,
    ) -> Array:
        """Return the density of an action, within its bounds.

        Args:
            sample: Actions, one for each mean, shape `[..., D]`; or N,
                shape `[N, ..., D]`. One at a bound, or beyond it, is taken to be the
                next one within.
            mu: Mean, before its activation, shape `[..., D]`.
            sigma: Deviation, before its activation, shape `[]` or `[D]` or `[..., D]`.
            action_spec: What has the bounds of the action, as `minimum` and `maximum`;
                or None for -1 and 1.

        Returns:
            Densities, shape `[...]` or `[N, ...]`.

        Raises:
            ArgumentError: If an argument has the wrong shape or dtype, or if
                `action_spec` has no finite bounds.
        """
        mu, sigma, sample = checks.arrays(
            mu=(mu, "float[..., D]"),
            sigma=(sigma, "float[] or [D] or [..., D]"),
            sample=(sample, "float[..., D] or [N, ..., D]"),
        )
        margin = _margin(sample)
        (sample, mu, sigma), narrow = dtypes.widen(sample, mu, sigma)
        low, high = _bounds(action_spec, sample)
        normal = self._activate(mu, sigma)
        return narrow(jnp.exp(_log_density(sample, *normal, low, high, margin)))

    def logprob(
        self,
        sample: ArrayLike,
        mu: ArrayLike,
        sigma: ArrayLike,
        action_spec: Any,
    ) -> Array:
        """Return the logarithm of the density of an action, within its bounds.

        Args:
            sample: Actions, one for each mean, shape `[..., D]`; or N,
                shape `[N, ..., D]`. One at a bound, or beyond it, is taken to be the
                next one within.
            mu: Mean, before its activation, shape `[..., D]`.
            sigma: Deviation, before its activation, shape `[]` or `[D]` or `[..., D]`.
            action_spec: What has the bounds of the action, as `minimum` and `maximum`;
                or None for -1 and 1.

        Returns:
            Log-densities, shape `[...]` or `[N, ...]`.

        Raises:
            ArgumentError: If an argument has the wrong shape or dtype, or if
                `action_spec` has no finite bounds.
        """
        mu, sigma, sample = checks.arrays(
            mu=(mu, "float[..., D]"),
            sigma=(sigma, "float[] or [D] or [..., D]"),
            sample=(sample, "float[..., D] or [N, ..., D]"),
        )
        margin = _margin(sample)
        (sample, mu, sigma), narrow = dtypes.widen(sample, mu, sigma)
        low, high = _bounds(action_spec, sample)
        normal = self._activate(mu, sigma)
        return narrow(_log_density(sample, *normal, low, high, margin))

    def entropy(self, mu: ArrayLike, sigma: ArrayLike) -> Array:
        """Return the entropy of the Gaussian before squashing.

        Args:
            mu: Mean, before its activation, shape `[..., D]`.
            sigma: Deviation, before its activation, shape `[]` or `[D]` or `[..., D]`.

        Returns:
            Entropies, in nats, shape `[...]`. That of the action is less, by the mean
            of the logarithm of how much the squashing narrows.

        Raises:
            ArgumentError: If an argument has the wrong shape or dtype.
        """
        mu, sigma = checks.arrays(
            mu=(mu, "float[..., D]"), sigma=(sigma, "float[] or [D] or [..., D]")
        )
        (mu, sigma), narrow = dtypes.widen(mu, sigma)
        _, logs = _activated(mu, *self._given(mu, sigma))
        return narrow(_normal.entropy_of_logs(logs))

    def kl_to_standard_normal(self, mu: ArrayLike, sigma: ArrayLike) -> Array:
        """Return the divergence of the squashed standard normal distribution.

        Args:
            mu: Mean, before its activation, shape `[..., D]`.
            sigma: Deviation, before its activation, shape `[]` or `[D]` or `[..., D]`.

        Returns:
            Divergences, in nats, shape `[...]`; the same before and after squashing.

        Raises:
            ArgumentError: If an argument has the wrong shape or dtype.
        """
        mu, sigma = checks.arrays(
            mu=(mu, "float[..., D]"), sigma=(sigma, "float[] or [D] or [..., D]")
        )
        (mu, sigma), narrow = dtypes.widen(mu, sigma)
        sigma, low, high = self._given(mu, sigma)
        given = mu, sigma, low, high
        return narrow(sums.over_last_of(_kl_to_standard, _SHORTEST_TO_STANDARD, *given))

    def kl(
        self, mu_0: ArrayLike, sigma_0: ArrayLike, mu_1: ArrayLike, sigma_1: ArrayLike
    ) -> Array:
        """Return the divergence of one squashed Gaussian from another.

        Args:
            mu_0: Mean of the one that the expectation is over, before its activation,
                shape `[..., D]`.
            sigma_0: Its deviation, before its activation, shape `[]` or `[D]` or
                `[..., D]`.
            mu_1: Mean of the other, before its activation, shape `[..., D]`.
            sigma_1: Its deviation, before its activation, shape `[]` or `[D]` or
                `[..., D]`.

        Returns:
            Divergences, in nats, shape `[...]`; the same before and after squashing.

        Raises:
            ArgumentError: If an argument has the wrong shape or dtype.
        """
        mu_0, sigma_0, mu_1, sigma_1 = checks.arrays(
            mu_0=(mu_0, "float[..., D]"),
            sigma_0=(sigma_0, "float[] or [D] or [..., D]"),
            mu_1=(mu_1, "float[..., D]"),
            sigma_1=(sigma_1, "float[] or [D] or [..., D]"),
        )
        (mu_0, sigma_0, mu_1, sigma_1), narrow = dtypes.widen(
            mu_0, sigma_0, mu_1, sigma_1
        )
        sigma_0, *_ = self._given(mu_0, sigma_0)
        sigma_1, low, high = self._given(mu_1, sigma_1)
        given = mu_0, sigma_0, mu_1, sigma_1, low, high
        return narrow(sums.over_last_of(_kl, _SHORTEST, *given))

    def _activate(self, mu: Array, sigma: Array) -> tuple[Array, Array]:
        """Return mean and standard deviation of the Gaussian, both bounded."""
        mean, log_sigma = _activated(mu, *self._given(mu, sigma))
        return mean, jnp.exp(log_sigma)

    def _given(self, mu: Array, sigma: Array) -> tuple[Array, Array, Array]:
        """Return what the deviation is made of: one number for each entry, and two."""
        low, high = (x.astype(sigma.dtype) for x in (self.sigma_min, self.sigma_max))
        return _normal.over(sigma, mu), low, high


def _activated(mu: Array, sigma: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Return the mean, and the logarithm of the deviation, both bounded."""
    return jnp.tanh(mu), low + 0.5 * (high - low) * (jnp.tanh(sigma) + 1)


def _kl_to_standard(mu: Array, sigma: Array, low: Array, high: Array) -> Array:
    """Return the divergence from the standard normal, in one dimension."""
    zero = jnp.zeros_like(mu)
    return _normal.kl_of_logs(*_activated(mu, sigma, low, high), zero, zero)


def _kl(
    mu_0: Array, sigma_0: Array, mu_1: Array, sigma_1: Array, low: Array, high: Array
) -> Array:
    """Return the divergence in one dimension."""
    first = _activated(mu_0, sigma_0, low, high)
    return _normal.kl_of_logs(*first, *_activated(mu_1, sigma_1, low, high))


def _squash_change(change: Array, y: Array, u: Array, low: Array, high: Array) -> Array:
    del y
    slope = exponentials.sigmoid_slope(2 * u)
    return change * (_normal.over(2 * (high - low), u) * slope)


def _squash_change_by_low(
    change: Array, y: Array, u: Array, low: Array, high: Array
) -> Array:
    del y, low, high
    return _normal.over(change, u) * jax.nn.sigmoid(-2 * u)


def _squash_change_by_high(
    change: Array, y: Array, u: Array, low: Array, high: Array
) -> Array:
    del y, low, high
    return _normal.over(change, u) * jax.nn.sigmoid(2 * u)


@derivatives.derived_by(_squash_change, _squash_change_by_low, _squash_change_by_high)
def _squash(u: Array, low: Array, high: Array) -> Array:
    """Return the action of each number, within bounds."""
    middle = 0.5 * low + 0.5 * high
    half = jnp.minimum(high - middle, middle - low)
    # Rounding must not take an action out of its range. The bounds are few, and mostly
    # constants: to mend the width costs less than to clip the actions.
    rounded_up = (middle + half > high) | (middle - half < low)
    eps = float(cast(Any, jnp.finfo(u.dtype).eps))
    half = jnp.where(rounded_up, half * (1 - eps), half)
    return _normal.over(middle, u) + _normal.over(half, u) * jnp.tanh(u)


def _log_density(
    action: Array,
    mean: Array,
    deviation: Array,
    low: Array,
    high: Array,
    margin: float,
) -> Array:
    """Return the log-density of an action, keeping a margin from its bounds."""
    low, high = _normal.over(low, action), _normal.over(high, action)
    # How far along its range the action is, seen from either end: near a bound one of
    # them is small, and has all its digits.
    below, above = (action - low) / (high - low), (high - action) / (high - low)
    inside = (below >= margin) & (above >= margin)
    below, above = (
        jnp.where(inside, x, jax.lax.stop_gradient(jnp.clip(x, margin, 1.0)))
        for x in (below, above)
    )
    u = 0.5 * (jnp.log(below) - jnp.log(above))  # The inverse of the tanh.
    slope = jnp.log(2 * (high - low)) + jnp.log(below) + jnp.log(above)
    return _normal.log_density(u, mean, deviation) - jnp.sum(slope, axis=-1)


def _margin(action: Array) -> float:
    """Return how close to a bound an action of this dtype can be, of its range."""
    precision = cast(Any, jnp.finfo(action.dtype))
    return float(precision.eps) / 4


def _bounds(action_spec: Any, like: Array) -> tuple[Array, Array]:
    """Return the bounds of an action, of a shape that broadcasts to another array."""
    if action_spec is None:
        return jnp.full_like(like, -1, shape=()), jnp.full_like(like, 1, shape=())
    ends = (getattr(action_spec, end, None) for end in ("minimum", "maximum"))
    minimum, maximum = (
        None if each is None else jnp.asarray(each, like.dtype) for each in ends
    )
    _, low, high = checks.arrays(
        action=(like, "float[..., D]"),
        **{
            "action_spec.minimum": (minimum, "float[] or [1] or [D] or [..., D]"),
            "action_spec.maximum": (maximum, "float[] or [1] or [D] or [..., D]"),
        },
    )
    low, high = jnp.broadcast_arrays(low, high)
    checks.within("(0, inf)", **{"action_spec.maximum - minimum": high - low})
    return low, high


def _log_slope_jvp(
    primals: tuple[Array], tangents: tuple[Array]
) -> tuple[Array, Array]:
    return _log_slope(*primals), -2 * jnp.tanh(primals[0]) * tangents[0]


@derivatives.derived(_log_slope_jvp)
def _log_slope(u: Array) -> Array:
    """Return the logarithm of the derivative of the tanh."""
    return 2 * (math.log(2) - u - jax.nn.softplus(-2 * u))
