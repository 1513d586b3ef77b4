"""Predict the distribution of returns over fixed values, its atoms.

Logits :math:`x_k` make a return of :math:`z_k` as likely as :math:`p_k = softmax(x)_k`.
What a step later says of the return lies between the atoms, and is projected on them;
the logits learn from it by cross-entropy, as in classification.

Functions here take one transition. Use `jax.vmap` for a batch.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib import distributions
from rlaxlib._core import checks, dtypes, gradients, indexing

__all__ = [
    "categorical_double_q_learning",
    "categorical_l2_project",
    "categorical_q_learning",
    "categorical_td_learning",
]


def categorical_l2_project(z_p: ArrayLike, probs: ArrayLike, z_q: ArrayLike) -> Array:
    """Move the probabilities of a distribution to other atoms.

    .. math::

        q_i = ∑_j p_j h_i(z_j),
        h_i(z) = { (z - z'_{i-1}) / (z'_i - z'_{i-1})   if z'_{i-1} < z ≤ z'_i
                 { (z'_{i+1} - z) / (z'_{i+1} - z'_i)   if z'_i ≤ z < z'_{i+1}
                 { 0                                    otherwise

    for atoms :math:`z` with probabilities :math:`p`, and new atoms :math:`z'`. The two
    new atoms around an old one share its probability, the nearer getting more, so that
    within their range the mean stays what it was; what lies outside goes to the first
    or the last. Of all distributions over the new atoms, this is the one whose
    cumulative distribution function is closest to the old one's, by the integral of the
    squared difference (the Cramér distance).

    No probability is lost, whatever the atoms: of equal new ones, one or the other
    takes it. Where an old atom meets a new one there are two slopes, and the derivative
    is that to the right, at the last that to the left. The time is in
    :math:`O(M log K)`.

    Args:
        z_p: Atoms :math:`z` of the distribution, in any order, shape `[M]`.
        probs: Their probabilities :math:`p`, shape `[M]`.
        z_q: New atoms :math:`z'`, in ascending order, shape `[K]`. If they are traced,
            that cannot be checked: other orders give other probabilities.

    Returns:
        Probabilities :math:`q` of the new atoms, shape `[K]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if `z_q`
            decreases.

    Example:
        >>> z_p, probs = jnp.array([0.5, 9.0]), jnp.array([0.5, 0.5])
        >>> z_q = jnp.array([0.0, 2.0, 4.0])
        >>> print(rlaxlib.categorical_l2_project(z_p, probs, z_q))
        [0.375 0.125 0.5  ]

    References:
        Marc G. Bellemare, Will Dabney and Rémi Munos, *A Distributional Perspective on
        Reinforcement Learning*, 2017. https://arxiv.org/abs/1707.06887

        Mark Rowland, Marc G. Bellemare, Will Dabney, Rémi Munos and Yee Whye Teh, *An
        Analysis of Categorical Distributional Reinforcement Learning*, 2018.
        https://arxiv.org/abs/1802.08163
    """
    z_p, probs, z_q = checks.arrays(
        z_p=(z_p, "float[M]"), probs=(probs, "float[M]"), z_q=(z_q, "float[K]")
    )
    checks.ascending(z_q=z_q)
    (z_p, probs, z_q), narrow = dtypes.widen(z_p, probs, z_q)
    return narrow(_project(z_p, probs, z_q))


def categorical_td_learning(
    v_atoms_tm1: ArrayLike,
    v_logits_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    v_atoms_t: ArrayLike,
    v_logits_t: ArrayLike,
    stop_target_gradients: bool = True,
) -> Array:
    """Hold the distribution of a state's return against the next state's.

    .. math::

        L = -∑_k q_k log softmax(x)_k,   q = Π_z(r_t + γ_t z', softmax(x')),

    where :math:`Π_z` projects on the atoms :math:`z`: see `categorical_l2_project`. The
    critic of D4PG learns like this, from the next action of its policy.

    Args:
        v_atoms_tm1: Atoms :math:`z` of the state's return, in ascending order,
            shape `[K]`.
        v_logits_tm1: Logits :math:`x` of those atoms, shape `[K]`.
        r_t: Reward, shape `[]`.
        discount_t: Discount in [0, 1], 0 where the episode ended, shape `[]`.
        v_atoms_t: Atoms :math:`z'` of the next state's return, shape `[M]`.
        v_logits_t: Logits :math:`x'` of those atoms, shape `[M]`.
        stop_target_gradients: Whether to hold the target constant under
            differentiation, as a function of `v_atoms_tm1` too.

    Returns:
        Loss, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if `v_atoms_tm1`
            decreases.

    Example:
        >>> atoms, logits = jnp.array([0.0, 1.0]), jnp.log(jnp.array([0.25, 0.75]))
        >>> learn = rlaxlib.categorical_td_learning
        >>> loss = learn(atoms, logits, 1.0, 0.0, atoms, logits)
        >>> print(loss.round(4), -jnp.log(0.75).round(4))
        0.2877 0.2877

    References:
        Marc G. Bellemare, Will Dabney and Rémi Munos, *A Distributional Perspective on
        Reinforcement Learning*, 2017. https://arxiv.org/abs/1707.06887

        Gabriel Barth-Maron and others, *Distributed Distributional Deterministic Policy
        Gradients*, 2018. https://arxiv.org/abs/1804.08617
    """
    inputs = checks.arrays(
        v_atoms_tm1=(v_atoms_tm1, "float[K]"),
        v_logits_tm1=(v_logits_tm1, "float[K]"),
        r_t=(r_t, "float[]"),
        discount_t=(discount_t, "float[]"),
        v_atoms_t=(v_atoms_t, "float[M]"),
        v_logits_t=(v_logits_t, "float[M]"),
    )
    inputs, narrow = dtypes.widen(*inputs)
    atoms_tm1, logits_tm1, r_t, discount_t, atoms_t, logits_t = inputs
    checks.ascending(v_atoms_tm1=atoms_tm1)
    probs_t = distributions.softmax().probs(logits_t)
    target = _project(r_t + discount_t * atoms_t, probs_t, atoms_tm1)
    return narrow(_cross_entropy(target, logits_tm1, stop_target_gradients))


def categorical_q_learning(
    q_atoms_tm1: ArrayLike,
    q_logits_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_atoms_t: ArrayLike,
    q_logits_t: ArrayLike,
    stop_target_gradients: bool = True,
) -> Array:
    """Hold the distribution of an action's return against the best next one's (C51).

    .. math::

        L = -∑_k q_k log softmax(x(a_{t-1}))_k,
        q = Π_z(r_t + γ_t z', softmax(x'(a^*))),
        a^* = argmax_a ∑_k softmax(x'(a))_k z'_k,

    where :math:`Π_z` projects on the atoms :math:`z`: see `categorical_l2_project`.

    Args:
        q_atoms_tm1: Atoms :math:`z` of the actions' returns, in ascending order,
            shape `[K]`.
        q_logits_tm1: Logits :math:`x` of those atoms, shape `[A, K]`.
        a_tm1: Action taken, in [0, A), shape `[]`.
        r_t: Reward, shape `[]`.
        discount_t: Discount in [0, 1], 0 where the episode ended, shape `[]`.
        q_atoms_t: Atoms :math:`z'` of the next actions' returns, shape `[M]`.
        q_logits_t: Logits :math:`x'` of those atoms, shape `[A, M]`.
        stop_target_gradients: Whether to hold the target constant under
            differentiation, as a function of `q_atoms_tm1` too.

    Returns:
        Loss, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if `q_atoms_tm1`
            decreases, or if an action whose value is known is none of the A.

    Example:
        >>> atoms, logits = jnp.array([0.0, 1.0]), jnp.log(jnp.array([[0.25, 0.75]]))
        >>> c51 = rlaxlib.categorical_q_learning
        >>> loss = c51(atoms, logits, 0, 1.0, 0.0, atoms, logits)
        >>> print(loss.round(4), -jnp.log(0.75).round(4))
        0.2877 0.2877

    References:
        Marc G. Bellemare, Will Dabney and Rémi Munos, *A Distributional Perspective on
        Reinforcement Learning*, 2017. https://arxiv.org/abs/1707.06887
    """
    *inputs, a_tm1 = checks.arrays(
        q_atoms_tm1=(q_atoms_tm1, "float[K]"),
        q_logits_tm1=(q_logits_tm1, "float[A, K]"),
        r_t=(r_t, "float[]"),
        discount_t=(discount_t, "float[]"),
        q_atoms_t=(q_atoms_t, "float[M]"),
        q_logits_t=(q_logits_t, "float[A, M]"),
        a_tm1=(a_tm1, "int[]"),
    )
    inputs, narrow = dtypes.widen(*inputs)
    atoms_tm1, logits_tm1, r_t, discount_t, atoms_t, logits_t = inputs
    checks.ascending(q_atoms_tm1=atoms_tm1)
    checks.indices(a_tm1=(a_tm1, logits_tm1.shape[0]))
    probs_t = distributions.softmax().probs(logits_t)
    a_t = jnp.argmax(jnp.sum(probs_t * atoms_t[None, :], axis=-1))
    p_t = indexing.pick_slice(probs_t, a_t)
    target = _project(r_t + discount_t * atoms_t, p_t, atoms_tm1)
    loss = _cross_entropy(
        target, indexing.pick_slice(logits_tm1, a_tm1), stop_target_gradients
    )
    return narrow(_if_action(a_tm1, logits_tm1, loss))


def categorical_double_q_learning(
    q_atoms_tm1: ArrayLike,
    q_logits_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_atoms_t: ArrayLike,
    q_logits_t: ArrayLike,
    q_t_selector: ArrayLike,
    stop_target_gradients: bool = True,
) -> Array:
    """Do as `categorical_q_learning`, but let other values choose the next action.

    .. math::

        L = -∑_k q_k log softmax(x(a_{t-1}))_k,
        q = Π_z(r_t + γ_t z', softmax(x'(a^*))),
        a^* = argmax_a s_t(a),

    where :math:`Π_z` projects on the atoms :math:`z`: see `categorical_l2_project`. To
    choose with the online network and to evaluate with the target network keeps the
    errors of the two apart, as in `double_q_learning`. Rainbow learns like this.

    Args:
        q_atoms_tm1: Atoms :math:`z` of the actions' returns, in ascending order,
            shape `[K]`.
        q_logits_tm1: Logits :math:`x` of those atoms, shape `[A, K]`.
        a_tm1: Action taken, in [0, A), shape `[]`.
        r_t: Reward, shape `[]`.
        discount_t: Discount in [0, 1], 0 where the episode ended, shape `[]`.
        q_atoms_t: Atoms :math:`z'` of the next actions' returns, shape `[M]`.
        q_logits_t: Logits :math:`x'` of those atoms, shape `[A, M]`.
        q_t_selector: Action values :math:`s_t` in the next state, to choose the action
            by, shape `[A]`.
        stop_target_gradients: Whether to hold the target constant under
            differentiation, as a function of `q_atoms_tm1` too.

    Returns:
        Loss, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if `q_atoms_tm1`
            decreases, or if an action whose value is known is none of the A.

    Example:
        >>> atoms, logits = jnp.array([0.0, 1.0]), jnp.log(jnp.array([[0.25, 0.75]]))
        >>> double_c51 = rlaxlib.categorical_double_q_learning
        >>> loss = double_c51(atoms, logits, 0, 1.0, 0.0, atoms, logits, jnp.ones(1))
        >>> print(loss.round(4), -jnp.log(0.75).round(4))
        0.2877 0.2877

    References:
        Marc G. Bellemare, Will Dabney and Rémi Munos, *A Distributional Perspective on
        Reinforcement Learning*, 2017. https://arxiv.org/abs/1707.06887

        Matteo Hessel and others, *Rainbow: Combining Improvements in Deep Reinforcement
        Learning*, 2017. https://arxiv.org/abs/1710.02298
    """
    *inputs, a_tm1 = checks.arrays(
        q_atoms_tm1=(q_atoms_tm1, "float[K]"),
        q_logits_tm1=(q_logits_tm1, "float[A, K]"),
        r_t=(r_t, "float[]"),
        discount_t=(discount_t, "float[]"),
        q_atoms_t=(q_atoms_t, "float[M]"),
        q_logits_t=(q_logits_t, "float[A, M]"),
        q_t_selector=(q_t_selector, "float[A]"),
        a_tm1=(a_tm1, "int[]"),
    )
    inputs, narrow = dtypes.widen(*inputs)
    atoms_tm1, logits_tm1, r_t, discount_t, atoms_t, logits_t, selector = inputs
    checks.ascending(q_atoms_tm1=atoms_tm1)
    checks.indices(a_tm1=(a_tm1, selector.size))
    logits_a_t = indexing.pick_slice(logits_t, jnp.argmax(selector))
    probs_t = distributions.softmax().probs(logits_a_t)
    target = _project(r_t + discount_t * atoms_t, probs_t, atoms_tm1)
    loss = _cross_entropy(
        target, indexing.pick_slice(logits_tm1, a_tm1), stop_target_gradients
    )
    return narrow(_if_action(a_tm1, logits_tm1, loss))


def _cross_entropy(target: Array, logits: Array, stop: ArrayLike) -> Array:
    target = gradients.stop_if(stop, target)
    return distributions.categorical_cross_entropy(target, logits)


def _if_action(action: Array, logits: Array, loss: Array) -> Array:
    """Return the loss, or NaN for an action that is none.

    Its logits are NaN, but that alone does not tell: a maximum over nothing but NaN is
    minus infinity in some programs of XLA, as it is for a row of padding.
    """
    exists = (action >= 0) & (action < logits.shape[0])
    return jnp.where(exists, loss, jnp.nan)


def _project(z_p: Array, probs: Array, z_q: Array) -> Array:
    """Share out each atom's probability between the two new atoms around it."""
    last = z_q.size - 1
    below = jnp.searchsorted(z_q, jax.lax.stop_gradient(z_p), side="right") - 1
    below = jnp.clip(below, 0, max(0, last - 1))
    above = jnp.minimum(below + 1, last)
    low = z_q.at[below].get(mode="promise_in_bounds")
    high = z_q.at[above].get(mode="promise_in_bounds")
    outside = (z_p < low) | (z_p > high)
    # Between equal atoms there is nothing to share: what meets them goes to the lower.
    gap = jnp.where(low == high, jnp.ones_like(low), high - low)
    share = (jnp.where(outside, low, z_p) - low) / gap
    share = jnp.where(z_p > high, jnp.ones_like(share), share)
    shares = jnp.stack([probs * (1 - share), probs * share], axis=-1)
    moved = jax.ops.segment_sum(shares, below, z_q.size, mode="promise_in_bounds")
    return moved[:, 0] + jnp.roll(moved[:, 1], 1)
