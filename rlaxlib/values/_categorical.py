"""Categorical distributions of returns: C51, D4PG, Rainbow, two-hot and HL-Gauss.

- `categorical_l2_project`: projection of a distribution onto other atoms;
- `categorical_td_learning`: loss for state values (D4PG);
- `categorical_q_learning`: loss for action values (C51);
- `categorical_double_q_learning`: the same with double Q-learning (Rainbow);
- `categorical_regression_loss`: cross-entropy loss for a scalar target (two-hot,
  HL-Gauss).

Logits :math:`x_k` give each return :math:`z_k`, called an atom, the probability
:math:`p_k = softmax(x)_k`. Functions here take one transition. Use `jax.vmap` for a
batch.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rlaxlib import distributions, transforms
from rlaxlib._core import checks, gradients, indexing, safe
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Float, Int
from rlaxlib.values._shared import hats, sum_over

__all__ = [
    "categorical_double_q_learning",
    "categorical_l2_project",
    "categorical_q_learning",
    "categorical_regression_loss",
    "categorical_td_learning",
]


@checked
def categorical_l2_project(
    z_p: Float[ArrayLike, "M"],
    probs: Float[ArrayLike, "M in [0, 1]"],
    z_q: Float[ArrayLike, "K ascending"],
) -> Float[Array, "K"]:
    """Project a categorical distribution onto other atoms (C51).

    Takes one distribution, returns its probabilities on the new atoms.

    ::

        q_i = ∑_j p_j h_i(z_j),
        h_i(z) = { (z - z'_{i-1}) / (z'_i - z'_{i-1})   if z'_{i-1} < z ≤ z'_i
                 { (z'_{i+1} - z) / (z'_{i+1} - z'_i)   if z'_i ≤ z < z'_{i+1}
                 { 0                                    otherwise

    The projection preserves the mean, and minimises the Cramér distance. Atoms outside
    the new range are clipped to it. If new atoms are equal, one gets their probability.

    Args:
        z_p: Atoms :math:`z` of the distribution, in any order, shape `[M]`.
        probs: Their probabilities :math:`p`, in [0, 1], shape `[M]`.
        z_q: New atoms :math:`z'`, in ascending order, shape `[K]`.

    Returns:
        Probabilities :math:`q` of the new atoms, shape `[K]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> z_p, probs = jnp.array([[0.5, 9.0], [0.5, 0.5]])
        >>> z_q = jnp.array([0.0, 2.0, 4.0])
        >>> print(rlaxlib.categorical_l2_project(z_p, probs, z_q))
        [0.375 0.125 0.5  ]

    References:
        Marc G. Bellemare, Will Dabney and Rémi Munos, *A Distributional Perspective on
        Reinforcement Learning*, 2017. https://arxiv.org/abs/1707.06887
    """

    def share(z: Array, p: Array) -> Array:
        return p * hats(z, z_q)

    return sum_over(share, z_p, probs)


@checked
def categorical_td_learning(
    v_atoms_tm1: Float[ArrayLike, "K ascending"],
    v_logits_tm1: Float[ArrayLike, "K"],
    r_t: Float[ArrayLike, ""],
    discount_t: Float[ArrayLike, "in [-1, 1]"],
    v_atoms_t: Float[ArrayLike, "M"],
    v_logits_t: Float[ArrayLike, "M"],
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """Compute the categorical TD learning loss (D4PG).

    Takes one transition, returns one loss.

    ::

        L = -∑_k q_k log softmax(x)_k,   q = Π_z(r_t + γ_t z', softmax(x')),

    where :math:`Π_z` is `categorical_l2_project` onto the atoms :math:`z`.

    Args:
        v_atoms_tm1: Atoms :math:`z` of the return, in ascending order, shape `[K]`.
        v_logits_tm1: Logits :math:`x` of those atoms, shape `[K]`.
        r_t: Reward, shape `[]`.
        discount_t: Discount in [-1, 1], 0 where the episode ended, shape `[]`.
        v_atoms_t: Atoms :math:`z'` of the next state's return, shape `[M]`.
        v_logits_t: Their logits :math:`x'`, in D4PG of the next action, shape `[M]`.
        stop_target_gradients: Whether to stop the gradient of target and `v_atoms_tm1`.

    Returns:
        Loss, shape `[]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> atoms, logits = jnp.array([0.0, 1.0]), jnp.log(jnp.array([0.25, 0.75]))
        >>> inputs = atoms, logits, 1.0, 0.0, atoms, logits
        >>> print(rlaxlib.categorical_td_learning(*inputs).round(4))  # -log(0.75).
        0.2877

    References:
        Gabriel Barth-Maron and others, *Distributed Distributional Deterministic Policy
        Gradients*, 2018. https://arxiv.org/abs/1804.08617
    """
    probs_t = jax.nn.softmax(v_logits_t)
    z = r_t + discount_t * v_atoms_t
    target = categorical_l2_project(z, probs_t, v_atoms_tm1)
    target = gradients.stop_if(stop_target_gradients, target)
    return distributions.categorical_cross_entropy(target, v_logits_tm1)


@checked
def categorical_q_learning(
    q_atoms_tm1: Float[ArrayLike, "K ascending"],
    q_logits_tm1: Float[ArrayLike, "A, K"],
    a_tm1: Int[ArrayLike, "in [0, A)"],
    r_t: Float[ArrayLike, ""],
    discount_t: Float[ArrayLike, "in [-1, 1]"],
    q_atoms_t: Float[ArrayLike, "M"],
    q_logits_t: Float[ArrayLike, "A, M"],
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """Compute the categorical Q-learning loss (C51).

    Takes one transition, returns one loss.

    ::

        L = -∑_k q_k log softmax(x(a_{t-1}))_k,
        q = Π_z(r_t + γ_t z', softmax(x'(a^*))),
        a^* = argmax_a ∑_k softmax(x'(a))_k z'_k,

    where :math:`Π_z` is `categorical_l2_project` onto the atoms :math:`z`. Atoms are
    arrays, and may be traced: the support may depend on the task or change in training.

    Args:
        q_atoms_tm1: Atoms :math:`z` of the returns, in ascending order, shape `[K]`.
        q_logits_tm1: Logits :math:`x` of those atoms, shape `[A, K]`.
        a_tm1: Action taken, in [0, A), shape `[]`.
        r_t: Reward, shape `[]`.
        discount_t: Discount in [-1, 1], 0 where the episode ended, shape `[]`.
        q_atoms_t: Atoms :math:`z'` of the next returns, shape `[M]`.
        q_logits_t: Logits :math:`x'` of those atoms, shape `[A, M]`.
        stop_target_gradients: Whether to stop the gradient of target and `q_atoms_tm1`.

    Returns:
        Loss, shape `[]`; NaN if a traced action is outside [0, A).

    Raises:
        ArgumentError: If a shape, dtype or concrete value is wrong.

    Example:
        >>> atoms, logits = jnp.array([0.0, 1.0]), jnp.log(jnp.array([[0.25, 0.75]]))
        >>> inputs = atoms, logits, 0, 1.0, 0.0, atoms, logits
        >>> print(rlaxlib.categorical_q_learning(*inputs).round(4))  # -log(0.75).
        0.2877

    References:
        Marc G. Bellemare, Will Dabney and Rémi Munos, *A Distributional Perspective on
        Reinforcement Learning*, 2017. https://arxiv.org/abs/1707.06887
    """
    probs_t = jax.nn.softmax(q_logits_t)
    q_t = safe.dot(probs_t, q_atoms_t[None])
    step = q_atoms_tm1, q_logits_tm1, a_tm1, r_t, discount_t, q_atoms_t, q_logits_t
    return categorical_double_q_learning(*step, q_t, stop_target_gradients)


@checked
def categorical_double_q_learning(
    q_atoms_tm1: Float[ArrayLike, "K ascending"],
    q_logits_tm1: Float[ArrayLike, "A, K"],
    a_tm1: Int[ArrayLike, "in [0, A)"],
    r_t: Float[ArrayLike, ""],
    discount_t: Float[ArrayLike, "in [-1, 1]"],
    q_atoms_t: Float[ArrayLike, "M"],
    q_logits_t: Float[ArrayLike, "A, M"],
    q_t_selector: Float[ArrayLike, "A"],
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """Compute the categorical double Q-learning loss (Rainbow).

    Takes one transition, returns one loss.

    ::

        L = -∑_k q_k log softmax(x(a_{t-1}))_k,
        q = Π_z(r_t + γ_t z', softmax(x'(a^*))),   a^* = argmax_a s_t(a),

    where :math:`Π_z` is `categorical_l2_project` onto the atoms :math:`z`.

    Args:
        q_t_selector: Action values :math:`s_t` to select by, shape `[A]`.
        Other arguments: as `categorical_q_learning`.

    Returns:
        Loss, shape `[]`; NaN if a traced action is outside [0, A).

    Raises:
        ArgumentError: If a shape, dtype or concrete value is wrong.

    Example:
        >>> atoms, logits = jnp.array([0.0, 1.0]), jnp.log(jnp.array([[0.25, 0.75]]))
        >>> inputs = atoms, logits, 0, 1.0, 0.0, atoms, logits, jnp.ones(1)
        >>> print(rlaxlib.categorical_double_q_learning(*inputs).round(4))  # -log 0.75
        0.2877

    References:
        Matteo Hessel and others, *Rainbow: Combining Improvements in Deep Reinforcement
        Learning*, 2017. https://arxiv.org/abs/1710.02298
    """
    a_t = jnp.argmax(q_t_selector)
    logits_a_t = indexing.pick_slice(q_logits_t, a_t)
    x = indexing.pick_slice(q_logits_tm1, a_tm1)
    return categorical_td_learning(
        q_atoms_tm1, x, r_t, discount_t, q_atoms_t, logits_a_t, stop_target_gradients
    )


@checked
def categorical_regression_loss(
    logits: Float[ArrayLike, "M"],
    targets: Float[ArrayLike, ""],
    tx_pair: transforms.TxPair,
    *,
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """Compute the cross-entropy loss for a scalar target (two-hot, HL-Gauss).

    Takes one prediction and one target, returns one loss.

    ::

        L = -∑_k f(y)_k log softmax(x)_k

    Decode the predicted value by `tx_pair.apply_inv(softmax(x))`. It estimates the mean
    of the targets; with `muzero_pair`, the inverse transform of their mean transform. A
    target outside the bins is clipped to their range: see `outside_support`.

    Args:
        logits: Logits :math:`x`, one for each bin, shape `[M]`.
        targets: Target :math:`y`, such as a return, shape `[]`.
        tx_pair: Transform :math:`f` from scalars to distributions over M bins, and its
            inverse, such as `hl_gauss_pair`, or a `compose_tx` that ends in it.
        stop_target_gradients: Whether to stop the gradient of `targets`.

    Returns:
        Loss, shape `[]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong or `tx_pair` does not have M bins.

    Example:
        >>> pair = rlaxlib.twohot_pair(-1.0, 1.0, num_bins=5)
        >>> logits = jnp.log(jnp.array([0.1, 0.1, 0.1, 0.5, 0.2]))
        >>> print(rlaxlib.categorical_regression_loss(logits, 0.5, pair).round(4))
        0.6931

    References:
        Ehsan Imani and Martha White, *Improving Regression Performance with
        Distributional Losses*, 2018. https://arxiv.org/abs/1806.04613

        Jesse Farebrother and others, *Stop Regressing: Training Value Functions via
        Classification for Scalable Deep RL*, 2024. https://arxiv.org/abs/2403.03950
    """
    probs = tx_pair.apply(targets)
    if probs.shape != logits.shape:
        checks.fail(
            f"`tx_pair` gives probabilities of shape {probs.shape}, must be "
            f"{logits.shape} to match `logits`"
        )
    probs = gradients.stop_if(stop_target_gradients, probs)
    return distributions.categorical_cross_entropy(probs, logits)
