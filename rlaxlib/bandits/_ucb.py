"""Upper confidence bounds of arms: UCB1, UCB-tuned and KL-UCB.

Pull the arm with the highest score. The scores take the statistics of `bandit_update`
or `sliding_window_update`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.special import xlog1py

from rlaxlib._core import safe
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Float, Real

__all__ = ["kl_ucb_scores", "ucb_scores", "ucb_tuned_scores"]


@checked
def ucb_scores(
    counts: Real[ArrayLike, "A in [0, inf)"],
    means: Float[ArrayLike, "A"],
    bonus_scale: Float[ArrayLike, "in [0, inf)"] = 2.0**0.5,
) -> Float[Array, "A"]:
    """Compute the upper confidence bounds of all arms (UCB1).

    Takes statistics of all arms, returns one score for each.

    ::

        U_a = μ̂_a + c √(log t / N_a),   t = ∑_a N_a

    With :math:`c = √2` and rewards in [0, 1], the regret grows with :math:`log t`; a
    smaller :math:`c` is often better. For rewards of another range, multiply :math:`c`
    by its width. With the statistics of a sliding window, or discounted ones, this is
    sliding-window UCB or discounted UCB.

    Args:
        counts: Number :math:`N_a` of pulls of each arm, floats or integers,
            in [0, inf), shape `[A]`.
        means: Mean reward :math:`μ̂_a` of each arm, shape `[A]`.
        bonus_scale: Scale :math:`c` of the exploration bonus, in [0, inf), shape `[]`.

    Returns:
        Scores :math:`U_a`, shape `[A]`; infinite for arms that have not been pulled.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> counts, means = jnp.array([4.0, 4.0, 0.0]), jnp.array([0.5, 0.75, 0.0])
        >>> print(rlaxlib.ucb_scores(counts, means, bonus_scale=0.0))
        [0.5  0.75  inf]

    References:
        Peter Auer, Nicolò Cesa-Bianchi and Paul Fischer, *Finite-time Analysis of the
        Multiarmed Bandit Problem*, section 2, 2002.
        https://doi.org/10.1023/A:1013689704352
    """
    log_t, size = _log_total(counts), _at_least_one_pull(counts)
    scores = means + bonus_scale * jnp.sqrt(log_t / size)
    return jnp.where(counts == 0, jnp.inf, scores)


@checked
def ucb_tuned_scores(
    counts: Real[ArrayLike, "A in [0, inf)"],
    means: Float[ArrayLike, "A"],
    variances: Float[ArrayLike, "A in [0, inf)"],
) -> Float[Array, "A"]:
    """Compute the upper confidence bounds of all arms from variances (UCB1-tuned).

    Takes statistics of all arms, returns one score for each.

    ::

        U_a = μ̂_a + √((log t / N_a) min(¼, V_a)),
        V_a = σ̂²_a + √(2 log t / N_a),   t = ∑_a N_a

    For rewards in [0, 1]. Arms whose rewards vary little are explored less than by
    `ucb_scores`. The regret is lower in practice, without a proof.

    Args:
        counts: Number :math:`N_a` of pulls of each arm, floats or integers,
            in [0, inf), shape `[A]`.
        means: Mean reward :math:`μ̂_a` of each arm, shape `[A]`.
        variances: Variance :math:`σ̂²_a` of the rewards of each arm, in [0, inf),
            shape `[A]`.

    Returns:
        Scores :math:`U_a`, shape `[A]`; infinite for arms that have not been pulled.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> counts, means = jnp.array([1.0, 0.0]), jnp.array([0.5, 0.0])
        >>> print(rlaxlib.ucb_tuned_scores(counts, means, jnp.zeros(2)))
        [0.5 inf]

    References:
        Peter Auer, Nicolò Cesa-Bianchi and Paul Fischer, *Finite-time Analysis of the
        Multiarmed Bandit Problem*, section 4, 2002.
        https://doi.org/10.1023/A:1013689704352
    """
    log_t, size = _log_total(counts), _at_least_one_pull(counts)
    bound = variances + safe.sqrt(2 * log_t / size)
    scores = means + safe.sqrt(log_t / size * jnp.minimum(bound, 0.25))
    return jnp.where(counts == 0, jnp.inf, scores)


@checked
def kl_ucb_scores(
    counts: Real[ArrayLike, "A in [0, inf)"],
    means: Float[ArrayLike, "A in [0, 1]"],
    log_log_scale: Float[ArrayLike, "in [0, inf)"] = 0.0,
) -> Float[Array, "A"]:
    """Compute the upper confidence bounds of Bernoulli arms (KL-UCB).

    Takes statistics of all arms, returns one score for each.

    ::

        U_a = max {q : N_a d(μ̂_a, q) ≤ log t + c max(0, log log t)},   t = ∑_a N_a,
        d(p, q) = p log(p/q) + (1 - p) log((1 - p)/(1 - q))

    The bound is found by bisection. The inner maximum has no effect from the third pull
    on. For rewards in {0, 1} the regret is asymptotically optimal; for any rewards in
    [0, 1] it is at most that of `ucb_scores`.

    Args:
        counts: Number :math:`N_a` of pulls of each arm, floats or integers,
            in [0, inf), shape `[A]`.
        means: Mean reward :math:`μ̂_a` of each arm, in [0, 1], shape `[A]`.
        log_log_scale: Scale :math:`c`, in [0, inf), 3 in the proof and 0 in practice,
            shape `[]`.

    Returns:
        Scores :math:`U_a` in [0, 1], shape `[A]`, infinite for new arms; no gradient.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> counts, means = jnp.array([2.0, 2.0, 0.0]), jnp.array([0.0, 1.0, 0.0])
        >>> print(rlaxlib.kl_ucb_scores(counts, means))  # The first is 1 - √(1/t).
        [0.5 1.  inf]

    References:
        Aurélien Garivier and Olivier Cappé, *The KL-UCB Algorithm for Bounded
        Stochastic Bandits and Beyond*, 2011. https://arxiv.org/abs/1102.2490
    """
    counts, p = jax.lax.stop_gradient((counts, means))
    log_t, size = _log_total(counts), _at_least_one_pull(counts)
    budget = (log_t + log_log_scale * jnp.log(jnp.maximum(log_t, 1))) / size

    def divergence(x: Array) -> Array:
        # As a function of q - p, it does not cancel where q is near p.
        return -xlog1py(p, safe.divide(x, p)) - xlog1py(1 - p, safe.divide(-x, 1 - p))

    def halve(_: int, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = (low + high) / 2
        inside = divergence(middle) <= budget
        return jnp.where(inside, middle, low), jnp.where(inside, high, middle)

    bits = jnp.finfo(p.dtype).nmant + 1
    low, _ = jax.lax.fori_loop(0, bits, halve, (jnp.zeros_like(p), 1 - p))
    scores = p + low
    return jnp.where(counts == 0, jnp.inf, scores)


def _log_total(counts: Array) -> Array:
    """Return the logarithm of the number of pulls, 0 before the first."""
    return jnp.log(jnp.maximum(jnp.sum(counts), 1))


def _at_least_one_pull(counts: Array) -> Array:
    """Return the counts, and 1 for arms that have not been pulled."""
    return jnp.where(counts == 0, 1, counts)
