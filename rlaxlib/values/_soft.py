"""Values of a softmax policy: a maximum that counts all actions, the best ones most.

Where a policy is paid for its entropy at a temperature :math:`τ`, the best one is the
softmax of its action values over :math:`τ`, and what it earns, its pay included, is
their soft value

.. math::

    v = τ log ∑_a exp(q(a)/τ).

An action whose value is minus infinity is one that cannot be taken.

Functions here take one transition. Use `jax.vmap` for a batch.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from rlaxlib import arrays
from rlaxlib._core import checks, dtypes, gradients

__all__ = [
    "mellowmax",
    "munchausen_q_learning",
    "soft_q_learning",
    "soft_value",
]


def soft_value(
    q: ArrayLike, temperature: ArrayLike, mask: ArrayLike | None = None
) -> Array:
    """Value a state by the softmax policy over its action values, and its entropy.

    .. math::

        v = τ log ∑_a exp(q(a)/τ) = ∑_a π(a) [q(a) - τ log π(a)],
        π(a) ∝ exp(q(a)/τ)

    Its derivative by the action values is the policy. It lies between the best value,
    which it tends to as :math:`τ` does to 0, and :math:`τ log A` above it. A policy
    that pays for its divergence from the uniform one, in place of being paid for its
    entropy, earns :math:`τ log A` less: see `mellowmax`.

    Args:
        q: Action values, minus infinity where an action is not legal, shape `[A]`.
        temperature: Temperature :math:`τ`, more than 0, in the unit of the values,
            shape `[]`.
        mask: True where an action is legal, shape `[A]`; or None if all are.

    Returns:
        Value :math:`v`, shape `[]`; 0 if no action is legal.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if `temperature`
            is not positive.

    Example:
        >>> print(f"{rlaxlib.soft_value(jnp.array([1.0, 1.0]), temperature=0.5):.4f}")
        1.3466

    References:
        Brian D. Ziebart, *Modeling Purposeful Adaptive Behavior with the Principle of
        Maximum Causal Entropy*, 2010. https://doi.org/10.1184/R1/6720692.v1

        Tuomas Haarnoja, Haoran Tang, Pieter Abbeel and Sergey Levine, *Reinforcement
        Learning with Deep Energy-Based Policies*, 2017.
        https://arxiv.org/abs/1702.08165
    """
    q, temperature, mask = checks.arrays(
        q=(q, "float[A]"),
        temperature=(temperature, "float[]"),
        mask=(mask, "bool[A] or None"),
    )
    checks.within("(0, inf)", temperature=temperature)
    (q, temperature), narrow = dtypes.widen(q, temperature)
    return narrow(_soften(q, temperature, mask).value)


def mellowmax(q: ArrayLike, omega: ArrayLike, mask: ArrayLike | None = None) -> Array:
    """Take a maximum that is smooth, and never spreads values apart (mellowmax).

    .. math::

        m = (1/ω) log((1/A) ∑_a exp(ω q(a)))

    With :math:`ω` tending to infinity this is the largest value, with 0 the mean, with
    minus infinity the smallest. Two sets of values that differ by no more than
    :math:`ε` anywhere have mellowmaxes that differ by no more than that, which is not
    so of the average of values under their softmax policy: so value iteration with this
    operator has one fixed point.

    It is `soft_value` at the temperature :math:`1/ω`, less :math:`log(A)/ω`, where `A`
    counts the legal actions.

    Args:
        q: Action values, minus infinity where an action is not legal, shape `[A]`.
        omega: How sharp the maximum is, :math:`ω`, finite, in the inverse unit of the
            values, shape `[]`.
        mask: True where an action is legal, shape `[A]`; or None if all are.

    Returns:
        Mellowmax :math:`m`, shape `[]`; 0 if no action is legal.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if `omega` is not
            finite.

    Example:
        >>> q = jnp.array([1.0, 3.0])
        >>> for omega in (0.0, 1.0, 100.0):
        ...     print(f"{rlaxlib.mellowmax(q, omega):.3f}")
        2.000
        2.434
        2.993

    References:
        Kavosh Asadi and Michael L. Littman, *An Alternative Softmax Operator for
        Reinforcement Learning*, 2017. https://arxiv.org/abs/1612.05628
    """
    q, omega, mask = checks.arrays(
        q=(q, "float[A]"),
        omega=(omega, "float[]"),
        mask=(mask, "bool[A] or None"),
    )
    checks.within("(-inf, inf)", omega=omega)
    (q, omega), narrow = dtypes.widen(q, omega)
    sign = jnp.where(omega < 0, -jnp.ones_like(omega), jnp.ones_like(omega))
    legal = q != -jnp.inf if mask is None else mask & (q != -jnp.inf)
    q = sign * jnp.where(legal, q, jnp.zeros_like(q))
    # Less the value that counts most, so that no exponential is more than 1.
    top = _constant_largest(jnp.where(legal, q, -jnp.inf))
    gaps = jnp.where(legal, q - top, jnp.zeros_like(q))
    scaled = sign * omega * gaps
    count = jnp.maximum(jnp.sum(legal, dtype=jnp.int32), 1).astype(q.dtype)
    # The exponentials are near 1 if omega is small: what they lack keeps its digits.
    mellow = jnp.log1p(jnp.sum(jnp.expm1(scaled)) / count)
    # Near 0 it is the mean and, times omega, half the variance, to the last digit.
    near = jnp.sum(jnp.square(scaled)) < float(np.finfo(q.dtype).eps)
    mean = jnp.sum(gaps) / count
    spread = jnp.where(legal & near, gaps - mean, jnp.zeros_like(q))
    flat = mean + jnp.sum(sign * omega * spread * spread) / count / 2
    slope = jnp.where(near, jnp.ones_like(omega), sign * omega)
    return narrow(sign * (top + jnp.where(near, flat, mellow / slope)))


def soft_q_learning(
    q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t: ArrayLike,
    temperature: ArrayLike,
    *,
    stop_target_gradients: bool = True,
) -> Array:
    """Compare the value of an action with the soft value of the next ones.

    .. math::

        δ = r_t + γ_t τ log ∑_a exp(q_t(a)/τ) - q_{t-1}(a_{t-1})

    The action values are those of a policy paid for its entropy, and that policy is
    their softmax over :math:`τ`. With :math:`τ` going to 0 this is `q_learning`.

    Args:
        q_tm1: Action values, shape `[A]`.
        a_tm1: Action taken, in [0, A), shape `[]`.
        r_t: Reward, shape `[]`.
        discount_t: Discount in [0, 1], 0 where the episode ended, shape `[]`.
        q_t: Action values in the next state, of the target network if there is one,
            minus infinity where an action is not legal, shape `[A]`.
        temperature: Temperature :math:`τ`, more than 0, in the unit of the values,
            shape `[]`.
        stop_target_gradients: Whether to hold the target constant under
            differentiation.

    Returns:
        Error :math:`δ`, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if `temperature` is
            not positive, or if an action whose value is known is none of the A.

    Example:
        >>> q_tm1, q_t = jnp.array([1.0, 2.0]), jnp.array([4.0, 4.0])
        >>> error = rlaxlib.soft_q_learning(q_tm1, 0, 1.0, 0.5, q_t, temperature=2.0)
        >>> print(f"{error:.4f}")
        2.6931

    References:
        Tuomas Haarnoja, Haoran Tang, Pieter Abbeel and Sergey Levine, *Reinforcement
        Learning with Deep Energy-Based Policies*, 2017.
        https://arxiv.org/abs/1702.08165

        John Schulman, Xi Chen and Pieter Abbeel, *Equivalence Between Policy Gradients
        and Soft Q-Learning*, 2017. https://arxiv.org/abs/1704.06440
    """
    q_tm1, a_tm1, r_t, discount_t, q_t, temperature = checks.arrays(
        q_tm1=(q_tm1, "float[A]"),
        a_tm1=(a_tm1, "int[]"),
        r_t=(r_t, "float[]"),
        discount_t=(discount_t, "float[]"),
        q_t=(q_t, "float[A]"),
        temperature=(temperature, "float[]"),
    )
    checks.indices(a_tm1=(a_tm1, q_tm1.size))
    checks.within("(0, inf)", temperature=temperature)
    (q_tm1, r_t, discount_t, q_t, temperature), narrow = dtypes.widen(
        q_tm1, r_t, discount_t, q_t, temperature
    )
    target = discount_t * _soften(q_t, temperature).value
    q_a_tm1 = arrays.batched_index(q_tm1, a_tm1)
    return narrow(gradients.error(target, q_a_tm1, stop_target_gradients, r_t))


def munchausen_q_learning(
    q_tm1: ArrayLike,
    target_q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    target_q_t: ArrayLike,
    entropy_temperature: ArrayLike = 0.03,
    munchausen_coefficient: ArrayLike = 0.9,
    clip_value_min: ArrayLike = -1.0,
    *,
    stop_target_gradients: bool = True,
) -> Array:
    """Pay an action for what the policy itself thinks of it (Munchausen Q-learning).

    .. math::

        δ = r_t + α max(l_0, τ log π̄_{t-1}(a_{t-1}))
            + γ_t ∑_a π̄_t(a) [q̄_t(a) - τ log π̄_t(a)] - q_{t-1}(a_{t-1}),

    where both policies are the softmax of the target network's values over :math:`τ`,
    :math:`π̄ ∝ exp(q̄/τ)`, so that the sum over actions is their `soft_value`. The
    bonus holds the policy near its last one, and widens the gap between good and bad
    actions. With :math:`α = 0` this is `soft_q_learning`; with :math:`τ` tending to 0,
    and no bound, it is `advantage_learning`.

    The bound :math:`l_0` is on the logarithm times :math:`τ`, as in the paper, and not
    on the logarithm; the logarithm is never more than 0, so it takes no other. Some
    implementations clip at 1 above, or do not clip: they use another bonus.

    Args:
        q_tm1: Action values, shape `[A]`.
        target_q_tm1: Action values :math:`q̄_{t-1}` of the target network in the same
            state, shape `[A]`.
        a_tm1: Action taken, in [0, A), shape `[]`.
        r_t: Reward, shape `[]`.
        discount_t: Discount in [0, 1], 0 where the episode ended, shape `[]`.
        target_q_t: Action values :math:`q̄_t` of the target network in the next state,
            minus infinity where an action is not legal, shape `[A]`.
        entropy_temperature: Temperature :math:`τ`, more than 0, in the unit of the
            values, shape `[]`.
        munchausen_coefficient: Weight :math:`α` of the bonus in [0, 1], shape `[]`.
        clip_value_min: Smallest bonus :math:`l_0`, at most 0, in the unit of the
            values, shape `[]`; minus infinity for no bound.
        stop_target_gradients: Whether to hold the target constant under
            differentiation.

    Returns:
        Error :math:`δ`, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if
            `entropy_temperature` is not positive, `munchausen_coefficient` lies outside
            [0, 1] or `clip_value_min` is positive, or if an action whose value is known
            is none of the A.

    Example:
        Here the other action is better by 0.5, and the policies are as good as greedy:

        >>> q_tm1, q_t = jnp.array([1.0, 1.5]), jnp.array([4.0, 8.0])
        >>> error = rlaxlib.munchausen_q_learning(q_tm1, q_tm1, 0, 1.0, 0.5, q_t)
        >>> print(error.round(4))
        3.55

    References:
        Nino Vieillard, Olivier Pietquin and Matthieu Geist, *Munchausen Reinforcement
        Learning*, 2020. https://arxiv.org/abs/2007.14430
    """
    *inputs, a_tm1 = checks.arrays(
        q_tm1=(q_tm1, "float[A]"),
        target_q_tm1=(target_q_tm1, "float[A]"),
        r_t=(r_t, "float[]"),
        discount_t=(discount_t, "float[]"),
        target_q_t=(target_q_t, "float[A]"),
        entropy_temperature=(entropy_temperature, "float[]"),
        munchausen_coefficient=(munchausen_coefficient, "float[]"),
        clip_value_min=(clip_value_min, "float[]"),
        a_tm1=(a_tm1, "int[]"),
    )
    inputs, narrow = dtypes.widen(*inputs)
    q_tm1, target_q_tm1, r_t, discount_t, target_q_t, temperature, alpha, least = inputs
    checks.indices(a_tm1=(a_tm1, q_tm1.size))
    checks.within("(0, inf)", entropy_temperature=temperature)
    checks.within("[0, 1]", munchausen_coefficient=alpha)
    checks.within("[-inf, 0]", clip_value_min=least)
    before = _soften(target_q_tm1, temperature)
    after = _soften(target_q_t, temperature)
    # In this order a small difference of large values is not rounded away.
    log_prob = arrays.batched_index(target_q_tm1, a_tm1) - before.best - before.excess
    reward = r_t + alpha * jnp.maximum(log_prob, least)
    target = discount_t * after.value
    q_a_tm1 = arrays.batched_index(q_tm1, a_tm1)
    return narrow(gradients.error(target, q_a_tm1, stop_target_gradients, reward))


class _Soft(NamedTuple):
    """A soft value, in two parts."""

    best: Array  # The largest value, a constant under differentiation.
    excess: Array  # How much more the soft value is.

    @property
    def value(self) -> Array:
        return self.best + self.excess


def _soften(q: Array, temperature: Array, mask: Array | None = None) -> _Soft:
    """Return the soft value of the legal actions, 0 if there is none."""
    q = q if mask is None else jnp.where(mask, q, -jnp.inf)
    legal = q != -jnp.inf
    best = _constant_largest(q)
    gaps = jnp.where(legal, q - best, jnp.zeros_like(q))
    weights = jnp.where(legal, jnp.exp(gaps / temperature), jnp.zeros_like(q))
    total = jnp.sum(weights)
    total = jnp.where(total == 0, jnp.ones_like(total), total)
    return _Soft(best, temperature * jnp.log(total))


def _constant_largest(q: Array) -> Array:
    """Return the largest of the values, 0 if all are minus infinity."""
    largest = jax.lax.stop_gradient(jnp.max(q))
    return jnp.where(largest == -jnp.inf, jnp.zeros_like(largest), largest)
