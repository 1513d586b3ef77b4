"""Linear contextual bandits: LinUCB and linear Thompson sampling.

The state is a ridge regression of rewards on contexts, updated one reward at a time.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from rlaxlib._core import moments, safe
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Float, Key, Static

__all__ = [
    "LinearBanditState",
    "linear_bandit_init",
    "linear_thompson_sample",
    "linucb_scores",
    "linucb_update",
]


class LinearBanditState(NamedTuple):
    """A ridge regression of rewards on contexts.

    Attributes:
        weights: Weights :math:`θ = A⁻¹ b`, shape `[D]`.
        root: Matrix :math:`S` with :math:`S Sᵀ = A⁻¹`, shape `[D, D]`.
        weights_rest: Rounding errors of `weights`, 0 at first, shape `[D]`. Without
            them, both would stop after some million pulls in single precision.
        root_rest: Rounding errors of `root`, likewise, shape `[D, D]`.
    """

    weights: Float[Array, "D"]
    root: Float[Array, "D, D"]
    weights_rest: Float[Array, "D"]
    root_rest: Float[Array, "D, D"]


@checked
def linear_bandit_init(
    num_features: Static[int, "in [1, inf)"],
    regularization: Float[ArrayLike, "in (0, inf)"] = 1.0,
) -> LinearBanditState:
    """Return the state of a linear bandit before the first pull.

    Takes a number of features, returns a state.

    ::

        θ = 0,   A = λ I,   S = I/√λ

    Args:
        num_features: Number :math:`D` of features of a context, a Python integer
            in [1, inf).
        regularization: Ridge regularisation :math:`λ`, in (0, inf), shape `[]`.

    Returns:
        A `LinearBanditState`.

    Raises:
        ArgumentError: If a shape, dtype or concrete value is wrong.

    Example:
        >>> print(rlaxlib.linear_bandit_init(2, regularization=4.0).root)
        [[0.5 0. ]
         [0.  0.5]]

    References:
        Yasin Abbasi-Yadkori, Dávid Pál and Csaba Szepesvári, *Improved Algorithms for
        Linear Stochastic Bandits*, section 3, 2011. https://papers.nips.cc/paper/4417-improved-algorithms-for-linear-stochastic-bandits
    """
    root = jnp.eye(num_features, dtype=regularization.dtype) / jnp.sqrt(regularization)
    zero = jnp.zeros_like(root)
    return LinearBanditState(zero[0], root, zero[0], zero)


@checked
def linucb_scores(
    state: LinearBanditState,
    contexts: Float[ArrayLike, "A, D"],
    bonus_scale: Float[ArrayLike, "in [0, inf)"],
) -> Float[Array, "A"]:
    """Compute the upper confidence bounds of all arms of a linear bandit (LinUCB).

    Takes a state and the contexts of all arms, returns one score for each arm.

    ::

        U_a = θᵀ x_a + c √(x_aᵀ A⁻¹ x_a)

    All arms share the weights :math:`θ`, and the context :math:`x_a` describes arm and
    situation. For the disjoint model, keep one state for each arm: map over the states
    with `jax.vmap`, each with one context, and update the state of the arm pulled.

    Args:
        state: Regression of the rewards, a `LinearBanditState`.
        contexts: Context :math:`x_a` of each arm, shape `[A, D]`.
        bonus_scale: Scale :math:`c` of the bonus, in [0, inf), shape `[]`. For noise of
            standard deviation :math:`σ` the proof needs
            :math:`σ √(D log(1 + t/(λ D)) + 2 log(1/δ)) + √λ ‖θ*‖` if the norm of
            contexts is at most 1; smaller scales are often better.

    Returns:
        Scores :math:`U_a`, shape `[A]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> state = rlaxlib.linear_bandit_init(2, regularization=4.0)
        >>> contexts = jnp.array([[1.0, 0.0], [3.0, 4.0]])
        >>> print(rlaxlib.linucb_scores(state, contexts, bonus_scale=2.0))
        [1. 5.]

    References:
        Lihong Li and others, *A Contextual-Bandit Approach to Personalized News Article
        Recommendation*, section 3, 2010. https://arxiv.org/abs/1003.0146

        Yasin Abbasi-Yadkori, Dávid Pál and Csaba Szepesvári, *Improved Algorithms for
        Linear Stochastic Bandits*, section 3, 2011. https://papers.nips.cc/paper/4417-improved-algorithms-for-linear-stochastic-bandits
    """
    width = safe.norm(_matmul(contexts, state.root))
    return _matmul(contexts, state.weights) + bonus_scale * width


@checked
def linucb_update(
    state: LinearBanditState,
    context: Float[ArrayLike, "D"],
    reward: Float[ArrayLike, ""],
) -> LinearBanditState:
    """Update the regression of a linear bandit with one reward (LinUCB).

    Takes a state, the context of one arm and its reward, returns the next state.

    ::

        A' = A + x xᵀ,   θ' = θ + A'⁻¹ x (R - xᵀ θ)

    The state holds a square root of :math:`A⁻¹`, updated by Potter's formula:

    ::

        S' = S - S φ φᵀ / (β + √β),   φ = Sᵀ x,   β = 1 + φᵀ φ

    It is accurate after many million updates in single precision, where the
    Sherman-Morrison formula and sums of :math:`x xᵀ` are not.

    Args:
        state: Regression of the rewards, a `LinearBanditState`.
        context: Context :math:`x` of the arm that was pulled, shape `[D]`.
        reward: Its reward :math:`R`, shape `[]`.

    Returns:
        Next `LinearBanditState`.

    Raises:
        ArgumentError: If a shape or dtype is wrong.

    Example:
        >>> state = rlaxlib.linear_bandit_init(2)
        >>> state = rlaxlib.linucb_update(state, jnp.array([1.0, 0.0]), 4.0)
        >>> print(state.weights)
        [2. 0.]

    References:
        Lihong Li and others, *A Contextual-Bandit Approach to Personalized News Article
        Recommendation*, section 3, 2010. https://arxiv.org/abs/1003.0146

        Gerald J. Bierman, *Factorization Methods for Discrete Sequential Estimation*,
        section II.6, 1977. https://doi.org/10.1016/S0076-5392(08)60881-6
    """
    theta, s, theta_rest, s_rest = state
    phi = _matmul(context, s)
    beta = 1 + _matmul(phi, phi)
    gain = _matmul(s, phi)
    step = gain / beta * (reward - _matmul(context, theta))
    theta, theta_rest = moments.add(theta, theta_rest, step)
    step = jnp.outer(gain, phi) / (beta + jnp.sqrt(beta))
    s, s_rest = moments.add(s, s_rest, -step)
    return LinearBanditState(theta, s, theta_rest, s_rest)


@checked
def linear_thompson_sample(
    key: Key[ArrayLike, ""],
    state: LinearBanditState,
    scale: Float[ArrayLike, "in [0, inf)"] = 1.0,
) -> Float[Array, "D"]:
    """Sample the weights of a linear bandit from their posterior (Thompson sampling).

    Takes a state, returns one sample of the weights.

    ::

        θ̃ = θ + v S ε ~ Normal(θ, v² A⁻¹),   ε ~ Normal(0, I)

    Pull the arm with the highest :math:`θ̃ᵀ x_a`. For Gaussian rewards with the
    standard deviation :math:`v` and the prior :math:`Normal(0, v² I/λ)` it is exact.

    Args:
        key: Random key, shape `[]`.
        state: Regression of the rewards, a `LinearBanditState`.
        scale: Scale :math:`v` of the posterior, in [0, inf), shape `[]`.

    Returns:
        Sample :math:`θ̃` of the weights, shape `[D]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> state = rlaxlib.linear_bandit_init(2)
        >>> state = rlaxlib.linucb_update(state, jnp.array([1.0, 0.0]), 4.0)
        >>> print(rlaxlib.linear_thompson_sample(jax.random.key(0), state, scale=0.0))
        [2. 0.]

    References:
        Shipra Agrawal and Navin Goyal, *Thompson Sampling for Contextual Bandits with
        Linear Payoffs*, 2012. https://arxiv.org/abs/1209.3352
    """
    theta, s = state.weights, state.root
    noise = jax.random.normal(key, theta.shape, theta.dtype)
    return theta + scale * _matmul(s, noise)


def _matmul(x: Array, y: Array) -> Array:
    """Multiply in full precision, which GPUs and TPUs do not by default."""
    return jnp.matmul(x, y, precision="highest")
