"""Soft values and soft TD errors.

Soft value, mellowmax, soft Q-learning and Munchausen Q-learning.

With an entropy bonus of weight :math:`τ`, the temperature, the optimal policy is the
softmax of the action values divided by :math:`τ`, and its value is the soft value

::

    v = τ log ∑_a exp(q(a)/τ).

An action value of minus infinity marks an illegal action here; `greedy` and
`epsilon_greedy` take it as a value, and the legal actions as `action_mask`.

Functions take one state or one transition. Use `jax.vmap` for a batch.
"""

from __future__ import annotations

import jax.numpy as jnp

from rlaxlib import distributions
from rlaxlib._core import devices, legality, safe
from rlaxlib._core.gradients import td_error
from rlaxlib._core.indexing import pick
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Bool, Float, Int

__all__ = ["mellowmax", "munchausen_q_learning", "soft_q_learning", "soft_value"]


@checked
def soft_value(
    q: Float[ArrayLike, "A"],
    temperature: Float[ArrayLike, "in (0, inf)"],
    *,
    action_mask: Bool[ArrayLike, "A"] | None = None,
) -> Float[Array, ""]:
    """Compute the soft value, a log-sum-exp of the action values.

    Takes one state, returns one value.

    ::

        v = τ log ∑_a exp(q(a)/τ) = ∑_a π(a) [q(a) - τ log π(a)],
        π(a) ∝ exp(q(a)/τ)

    The gradient by the action values is the policy :math:`π`. As :math:`τ` tends to 0,
    the soft value tends to :math:`max_a q(a)`.

    Args:
        q: Action values, minus infinity for illegal actions, shape `[A]`.
        temperature: Temperature :math:`τ`, in (0, inf), in units of values, shape `[]`.
        action_mask: True for legal actions, shape `[A]`; or None if all are.

    Returns:
        Soft value :math:`v`, shape `[]`; 0 if no action is legal.

    Raises:
        ArgumentError: If a shape, dtype or concrete `temperature` is wrong.

    Example:
        >>> print(f"{rlaxlib.soft_value(jnp.array([1.0, 1.0]), temperature=0.5):.4f}")
        1.3466

    References:
        Tuomas Haarnoja and others, *Reinforcement Learning with Deep Energy-Based
        Policies*, 2017. https://arxiv.org/abs/1702.08165
    """
    q = legality.masked(q, action_mask)
    largest = legality.largest(q)
    total = jnp.sum(jnp.exp(legality.gaps(q, largest, temperature)))
    return largest[0] + temperature * safe.log(total, otherwise=0)


@checked
def mellowmax(
    q: Float[ArrayLike, "A"],
    omega: Float[ArrayLike, "in (-inf, inf)"],
    *,
    action_mask: Bool[ArrayLike, "A"] | None = None,
) -> Float[Array, ""]:
    """Compute the mellowmax, a smooth maximum that is a non-expansion.

    Takes one state, returns one value.

    ::

        m = (1/ω) log((1/A) ∑_a exp(ω q(a)))

    :math:`A` counts the legal actions. As :math:`ω` tends to infinity, 0 or minus
    infinity, :math:`m` tends to the maximum, mean or minimum. It is `soft_value` at
    temperature :math:`1/ω` minus :math:`log(A)/ω`.

    Args:
        q: Action values, minus infinity for illegal actions, shape `[A]`.
        omega: Sharpness :math:`ω`, finite, in inverse units of the values, shape `[]`.
        action_mask: True for legal actions, shape `[A]`; or None if all are.

    Returns:
        Mellowmax :math:`m`, shape `[]`; 0 if no action is legal.

    Raises:
        ArgumentError: If a shape or dtype is wrong or a concrete `omega` not finite.

    Example:
        >>> print(f"{rlaxlib.mellowmax(jnp.array([1.0, 3.0]), omega=1.0):.3f}")
        2.434

    References:
        Kavosh Asadi and Michael L. Littman, *An Alternative Softmax Operator for
        Reinforcement Learning*, 2017. https://arxiv.org/abs/1612.05628
    """
    legal = legality.legal(q, action_mask)
    n = jnp.maximum(jnp.sum(legal, dtype=q.dtype), 1)
    sign = jnp.where(omega < 0, -1, 1).astype(q.dtype)
    extreme = sign * devices.largest(sign * q, legal, None)
    gaps = jnp.where(legal, q - extreme, 0)
    # Near ω = 0 the derivative by ω cancels: these are the first terms of the series.
    is_near = jnp.max(jnp.abs(omega * gaps)) ** 3 < 256 * float(jnp.finfo(q.dtype).eps)
    mean = jnp.sum(gaps) / n
    d = jnp.where(legal & is_near, gaps - mean, 0)
    near = mean + omega * jnp.sum(d * d * (3 + omega * d)) / (6 * n)
    omega = jnp.where(is_near, sign, omega)
    # `log` is inaccurate at a mean near 1, and `log1p` at one near 0.
    change = jnp.sum(jnp.expm1(omega * gaps)) / n
    total = jnp.sum(jnp.exp(omega * gaps), where=legal)
    log_mean = jnp.where(change > -0.5, jnp.log1p(change), safe.log(total / n))
    return extreme + jnp.where(is_near, near, log_mean / omega)


@checked
def soft_q_learning(
    q_tm1: Float[ArrayLike, "A"],
    a_tm1: Int[ArrayLike, "in [0, A)"],
    r_t: Float[ArrayLike, ""],
    discount_t: Float[ArrayLike, "in [-1, 1]"],
    q_t: Float[ArrayLike, "A"],
    temperature: Float[ArrayLike, "in (0, inf)"],
    *,
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """Compute the soft Q-learning TD error.

    Takes one transition, returns one TD error.

    ::

        δ = r_t + γ_t τ log ∑_a exp(q_t(a)/τ) - q_{t-1}(a_{t-1})

    The target bootstraps from the `soft_value`.

    Args:
        q_tm1: Action values, shape `[A]`.
        a_tm1: Action taken, in [0, A), shape `[]`.
        r_t: Reward, shape `[]`.
        discount_t: Discount in [-1, 1], 0 where the episode ended, shape `[]`.
        q_t: Next action values, minus infinity for illegal actions, shape `[A]`.
        temperature: Temperature :math:`τ`, in (0, inf), in units of values, shape `[]`.
        stop_target_gradients: Whether to stop the gradient of the target.

    Returns:
        TD error :math:`δ`, shape `[]`.

    Raises:
        ArgumentError: If a shape, dtype or concrete value is wrong.

    Example:
        >>> q_tm1, q_t = jnp.array([1.0, 2.0]), jnp.array([4.0, 4.0])
        >>> error = rlaxlib.soft_q_learning(q_tm1, 0, 1.0, 0.5, q_t, temperature=2.0)
        >>> print(f"{error:.4f}")
        2.6931

    References:
        Tuomas Haarnoja and others, *Reinforcement Learning with Deep Energy-Based
        Policies*, 2017. https://arxiv.org/abs/1702.08165
    """
    q_a_tm1, v_t = pick(q_tm1, a_tm1), soft_value(q_t, temperature)
    return td_error(q_a_tm1, r_t, discount_t, v_t, stop_target_gradients)


@checked
def munchausen_q_learning(
    q_tm1: Float[ArrayLike, "A"],
    target_q_tm1: Float[ArrayLike, "A"],
    a_tm1: Int[ArrayLike, "in [0, A)"],
    r_t: Float[ArrayLike, ""],
    discount_t: Float[ArrayLike, "in [-1, 1]"],
    target_q_t: Float[ArrayLike, "A"],
    temperature: Float[ArrayLike, "in (0, inf)"] = 0.03,
    munchausen_coefficient: Float[ArrayLike, "in [0, 1]"] = 0.9,
    min_bonus: Float[ArrayLike, "in [-inf, 0]"] = -1.0,
    *,
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """Compute the Munchausen Q-learning TD error (M-DQN).

    Takes one transition, returns one TD error.

    ::

        δ = r_t + α max(l_0, τ log π̄_{t-1}(a_{t-1}))
            + γ_t ∑_a π̄_t(a) [q̄_t(a) - τ log π̄_t(a)] - q_{t-1}(a_{t-1}),
        π̄ ∝ exp(q̄/τ)

    The sum over actions is the `soft_value` of the target network. The log-policy bonus
    increases action gaps. :math:`α = 0` gives `soft_q_learning`; without the bound, it
    tends to `advantage_learning` as :math:`τ` tends to 0.

    Args:
        target_q_tm1: Target network's :math:`q̄_{t-1}`, -inf if illegal, shape `[A]`.
        target_q_t: Next values :math:`q̄_t`, minus infinity if illegal, shape `[A]`.
        munchausen_coefficient: Weight :math:`α` of the bonus in [0, 1], shape `[]`.
        min_bonus: Lower bound :math:`l_0` of the bonus in [-inf, 0], shape `[]`.
        Other arguments: as `soft_q_learning`.

    Returns:
        TD error :math:`δ`, shape `[]`.

    Raises:
        ArgumentError: If a shape, dtype or concrete value is wrong.

    Example:
        >>> q_tm1, q_t = jnp.array([1.0, 1.5]), jnp.array([4.0, 8.0])
        >>> error = rlaxlib.munchausen_q_learning(q_tm1, q_tm1, 0, 1.0, 0.5, q_t)
        >>> print(error.round(4))  # Almost greedy: 1 - 0.9 * 0.5 + 0.5 * 8 - 1.
        3.55

    References:
        Nino Vieillard, Olivier Pietquin and Matthieu Geist, *Munchausen Reinforcement
        Learning*, 2020. https://arxiv.org/abs/2007.14430
    """
    log_pi = distributions.softmax(temperature).logprob(a_tm1, target_q_tm1)
    bonus = jnp.maximum(temperature * safe.floored(log_pi), min_bonus)
    r_t = r_t + munchausen_coefficient * bonus
    q_a_tm1, v_t = pick(q_tm1, a_tm1), soft_value(target_q_t, temperature)
    return td_error(q_a_tm1, r_t, discount_t, v_t, stop_target_gradients)
