"""Restrict a policy to the support of the data: EDAC, BCQ, BEAR, MMD-DQN.

- EDAC makes critics disagree on actions that the data does not have.
- BCQ masks actions that the behaviour policy is unlikely to take.
- BEAR bounds the discrepancy between actions of the policy and of the data.
"""

from __future__ import annotations

from typing import Literal

import jax.numpy as jnp

from rlaxlib._core import legality, safe
from rlaxlib._core.gradients import stop_if
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Bool, Float

__all__ = ["bcq_action_mask", "edac_diversity_loss", "maximum_mean_discrepancy"]


@checked
def edac_diversity_loss(gradients: Float[ArrayLike, "N, D"]) -> Float[Array, ""]:
    """Compute the gradient diversity loss of an ensemble of critics (EDAC).

    Takes the gradients of N critics, returns one loss.

    ::

        L = (1/(N - 1)) ∑_i ∑_{j ≠ i} u_iᵀ u_j = (‖∑_i u_i‖² - ∑_i ‖u_i‖²) / (N - 1),
        u_i = ∇_a q_i(s, a)/‖∇_a q_i(s, a)‖

    Minimising it spreads the directions in which the critics' values increase. The
    minimum over critics then falls in all directions away from the data's actions.

    Args:
        gradients: Gradients :math:`∇_a q_i(s, a)` by the data's action, shape `[N, D]`.

    Returns:
        Loss, from -N/(N - 1) to N, shape `[]`; 0 for one critic. A critic whose
        gradient is 0 does not contribute, and gets a gradient of 0.

    Raises:
        ArgumentError: If `gradients` has the wrong shape or dtype.

    Example:
        >>> gradients = jnp.array([[2.0, 0.0], [0.0, 3.0], [5.0, 0.0]])
        >>> print(rlaxlib.edac_diversity_loss(gradients))
        1.0

    References:
        Gaon An and others, *Uncertainty-Based Offline Reinforcement Learning with
        Diversified Q-Ensemble*, 2021. https://arxiv.org/abs/2110.01548
    """
    u = safe.direction(gradients)
    total = jnp.sum(jnp.square(jnp.sum(u, axis=0))) - jnp.sum(jnp.square(u))
    return total / max(len(gradients) - 1, 1)


@checked
def bcq_action_mask(
    log_prob: Float[ArrayLike, "A"], threshold: Float[ArrayLike, "in [0, 1)"] = 0.3
) -> Bool[Array, "A"]:
    """Mask actions that the behaviour policy is unlikely to take (discrete BCQ).

    Takes the log-probabilities of all actions, returns True or False for each.

    ::

        m(a) = 1[μ(a) > τ max_b μ(b)]

    Pass it as `action_mask`. A threshold of 0 gives Q-learning over the actions of
    positive probability, and one close to 1 behaviour cloning.

    Args:
        log_prob: Log-probabilities :math:`log μ(a)` or logits, shape `[A]`.
        threshold: Threshold :math:`τ`, in [0, 1), shape `[]`.

    Returns:
        True for the actions to consider, always for the most likely one, shape `[A]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> log_prob = jnp.log(jnp.array([0.6, 0.3, 0.1]))
        >>> print(rlaxlib.bcq_action_mask(log_prob, threshold=0.3))
        [ True  True False]

    References:
        Scott Fujimoto and others, *Benchmarking Batch Deep Reinforcement Learning
        Algorithms*, 2019. https://arxiv.org/abs/1910.01708
    """
    gaps = log_prob - legality.largest(log_prob)
    return legality.legal(log_prob) & (gaps > jnp.log(threshold))


@checked
def maximum_mean_discrepancy(
    x: Float[ArrayLike, "N, D"],
    y: Float[ArrayLike, "M, D"],
    kind: Literal["gaussian", "laplacian", "energy"] = "gaussian",
    bandwidth: Float[ArrayLike, "in (0, inf)"] = 1.0,
    *,
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """Compute the squared maximum mean discrepancy (MMD) of two samples.

    Takes two samples of vectors, returns one number.

    ::

        L = (1/N²) ∑_{i,i'} k(x_i, x_{i'}) - (2/(N M)) ∑_{i,j} k(x_i, y_j)
            + (1/M²) ∑_{j,j'} k(y_j, y_{j'}),
        k_gaussian(x, y) = exp(-‖x - y‖² / (2 σ²)),
        k_laplacian(x, y) = exp(-‖x - y‖_1 / σ),   k_energy(x, y) = -‖x - y‖

    BEAR bounds it between actions of the policy and of a model of the data; with 4 to
    10 samples it compares supports more than densities. Its code has :math:`2 σ` in
    place of :math:`2 σ²` and of :math:`σ`, and takes the square root. MMD-DQN minimises
    it between samples of returns, with D = 1; the energy kernel then gives
    `energy_distance_loss`. Apart from rounding, the result is at least 0.

    Args:
        x: N samples, such as actions of the policy, shape `[N, D]`.
        y: M samples of the target, such as actions of the data, shape `[M, D]`.
        kind: Kernel :math:`k`: `"gaussian"`, `"laplacian"` or `"energy"`.
        bandwidth: Bandwidth :math:`σ`, in (0, inf), unused by the energy kernel,
            shape `[]`.
        stop_target_gradients: Whether to stop the gradient of `y`.

    Returns:
        Squared discrepancy, shape `[]`.

    Raises:
        ArgumentError: If a shape, dtype, `kind` or concrete value is wrong.

    Example:
        >>> x, y = jnp.array([[0.0], [2.0]]), jnp.array([[1.0]])
        >>> print(rlaxlib.maximum_mean_discrepancy(x, y, "energy"))
        1.0

    References:
        Arthur Gretton and others, *A Kernel Two-Sample Test*, 2012.
        https://jmlr.org/papers/v13/gretton12a.html

        Aviral Kumar and others, *Stabilizing Off-Policy Q-Learning via Bootstrapping
        Error Reduction*, 2019. https://arxiv.org/abs/1906.00949

        Thanh Tang Nguyen, Sunil Gupta and Svetha Venkatesh, *Distributional
        Reinforcement Learning via Moment Matching*, 2021.
        https://arxiv.org/abs/2007.12354
    """
    y = stop_if(stop_target_gradients, y)

    # Kernels less 1, which cancels: with a large bandwidth they would round to 1.
    def mean(x: Array, y: Array) -> Array:
        difference = x[:, None] - y[None, :]
        if kind == "gaussian":
            squared = jnp.sum(jnp.square(difference / bandwidth), axis=-1)
            return jnp.mean(_less_one(-0.5 * squared))
        if kind == "laplacian":
            # The derivative of JAX's absolute value is 1 at 0, for equal samples.
            absolute = jnp.sum(jnp.sign(difference) * difference, axis=-1)
            return jnp.mean(_less_one(-absolute / bandwidth))
        return jnp.mean(-safe.norm(difference))

    return mean(x, x) - 2 * mean(x, y) + mean(y, y)


def _less_one(x: Array) -> Array:
    """Return `e^x - 1` with a derivative of `e^x`, which that of `expm1` rounds."""
    return jnp.where(x < -1, jnp.exp(x) - 1, jnp.expm1(x))
