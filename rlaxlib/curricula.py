"""Curricula of levels: scores and sampling of PLR, ACCEL and SFL.

- `positive_value_loss`, `max_mc`: estimates of the regret on a level.
- `learnability`: the variance of success on a level (SFL).
- `level_probabilities`: the mixture of scores and staleness that PLR samples from.

A level is a parameter of an environment: a seed, a maze. A score takes the stream
of one level, with any number of episodes, and averages over those that ended in it.
All results are data: none of these functions has a gradient.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient

from rlaxlib import replay
from rlaxlib._core import safe, streams
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Bool, Float

__all__ = [
    "learnability",
    "level_probabilities",
    "max_mc",
    "positive_value_loss",
]


@checked
def positive_value_loss(
    adv: Float[ArrayLike, "T"],
    discount_t: Float[ArrayLike, "T in [-1, 1]"],
    *,
    truncated_t: Bool[ArrayLike, "T"] | None = None,
    sample_mask: Bool[ArrayLike, "T"] | None = None,
) -> Float[Array, ""]:
    """Compute the positive value loss of a level, an estimate of regret (PLR, ACCEL).

    Takes the stream of one level, returns its score.

    ::

        S = (1/E) ∑_e (1/T_e) ∑_{t ∈ e} max(Â_t, 0)

    over the E episodes that ended, with :math:`T_e` steps each. The advantages are
    those of `generalized_advantage_estimation`, λ 0.95 in the paper. A level scores
    where the agent does better than its value function expects.

    Args:
        adv: Advantage :math:`Â_t`, shape `[T]`.
        discount_t: Discount in [-1, 1], 0 where an episode terminated, shape `[T]`.
        truncated_t: True where an episode was cut after a step, shape `[T]`; or None.
        sample_mask: False for time steps to ignore, shape `[T]`; or None.

    Returns:
        Score, shape `[]`, 0 if no episode ended.

    Raises:
        ArgumentError: If a shape, dtype or concrete value is wrong.

    Example:
        >>> adv, discount_t = jnp.array([4.0, -8.0, 1.0]), jnp.array([1.0, 0.0, 0.0])
        >>> print(rlaxlib.positive_value_loss(adv, discount_t))
        1.5

    References:
        Minqi Jiang and others, *Replay-Guided Adversarial Environment Design*, section
        3, 2021. https://arxiv.org/abs/2110.02439

        Jack Parker-Holder and others, *Evolving Curricula with Regret-Based Environment
        Design*, 2022. https://arxiv.org/abs/2203.01302
    """
    weight = _weights(discount_t, truncated_t, sample_mask)
    return _mean(jnp.maximum(adv, 0), weight)


@checked
def max_mc(
    v_tm1: Float[ArrayLike, "T"],
    discount_t: Float[ArrayLike, "T in [-1, 1]"],
    max_return: Float[ArrayLike, ""],
    *,
    truncated_t: Bool[ArrayLike, "T"] | None = None,
    sample_mask: Bool[ArrayLike, "T"] | None = None,
) -> Float[Array, ""]:
    """Compute the maximum Monte Carlo regret of a level (MaxMC).

    Takes the stream of one level, returns its score.

    ::

        S = (1/E) ∑_e (1/T_e) ∑_{t ∈ e} (R_max - v(s_t))

    over the E episodes that ended, with :math:`T_e` steps each. :math:`R_max` is the
    highest return that was ever achieved on the level: keep it beside the score. It
    suits sparse rewards, for which the positive value loss is 0 once the value function
    has learned that the agent fails.

    Args:
        v_tm1: Value :math:`v(s_t)` before each step, shape `[T]`.
        max_return: Highest return :math:`R_max` on the level, shape `[]`.
        Other arguments: as `positive_value_loss`.

    Returns:
        Score, shape `[]`, 0 if no episode ended.

    Raises:
        ArgumentError: If a shape, dtype or concrete value is wrong.

    Example:
        >>> v_tm1, discount_t = jnp.array([0.5, 0.0, 1.0]), jnp.array([1.0, 0.0, 0.0])
        >>> print(rlaxlib.max_mc(v_tm1, discount_t, 1.0))
        0.375

    References:
        Minqi Jiang and others, *Replay-Guided Adversarial Environment Design*, section
        3, 2021. https://arxiv.org/abs/2110.02439
    """
    weight = _weights(discount_t, truncated_t, sample_mask)
    return _mean(max_return - v_tm1, weight)


@checked
def learnability(
    is_success: Bool[ArrayLike, "T"],
    discount_t: Float[ArrayLike, "T in [-1, 1]"],
    *,
    truncated_t: Bool[ArrayLike, "T"] | None = None,
    sample_mask: Bool[ArrayLike, "T"] | None = None,
) -> Float[Array, ""]:
    """Compute the learnability of a level, the variance of its success (SFL).

    Takes the stream of one level, returns its score.

    ::

        S = p (1 - p),   p = successes / E

    over the E episodes that ended. It is largest, ¼, for levels that the agent solves
    half of the time, and 0 for those that it always or never solves. SFL trains on the
    levels of the highest scores among many random ones.

    Args:
        is_success: True at the step that solves a level, at most one in an episode,
            shape `[T]`.
        Other arguments: as `positive_value_loss`.

    Returns:
        Score, shape `[]`, 0 if no episode ended.

    Raises:
        ArgumentError: If a shape, dtype or concrete value is wrong.

    Example:
        >>> is_success = jnp.array([False, True, False, True])
        >>> print(rlaxlib.learnability(is_success, jnp.zeros(4)))
        0.25

    References:
        Alexander Rutherford and others, *No Regrets: Investigating and Improving Regret
        Approximations for Curriculum Discovery*, section 4, 2024.
        https://arxiv.org/abs/2408.15099
    """
    weight = _weights(discount_t, truncated_t, sample_mask)
    successes = jnp.sum(is_success & (weight > 0), dtype=weight.dtype)
    p = safe.divide(successes, jnp.sum(weight))
    return p * (1 - p)


@checked
def level_probabilities(
    scores: Float[ArrayLike, "N"],
    ages: Float[ArrayLike, "N in [0, inf)"],
    staleness: Float[ArrayLike, "in [0, 1]"] = 0.1,
    temperature: Float[ArrayLike, "in (0, inf)"] = 0.1,
    *,
    sample_mask: Bool[ArrayLike, "N"] | None = None,
) -> Float[Array, "N"]:
    """Compute the probabilities of levels in prioritised level replay (PLR).

    Takes one score and age for each level, returns one probability for each.

    ::

        P_i = (1 - ρ) k_i^{-1/β} / ∑_j k_j^{-1/β} + ρ c_i / ∑_j c_j,
        k_i = rank of S_i, 1 for the highest

    A level that is not sampled for long has an outdated score, so that its probability
    grows with its age. PLR has :math:`ρ = 0.1` and :math:`β = 0.1` on Procgen, JaxUED
    both at 0.3 on mazes.

    Args:
        scores: Score :math:`S_i` of each level, shape `[N]`; the first of equals is
            higher.
        ages: Age :math:`c_i`, such as the episodes since the level was last sampled,
            in [0, inf), shape `[N]`.
        staleness: Share :math:`ρ` of the ages, in [0, 1], shape `[]`.
        temperature: Temperature :math:`β` of the ranks, in (0, inf), shape `[]`.
        sample_mask: False for levels that do not exist yet, shape `[N]`; or None.

    Returns:
        Probabilities, without a gradient, shape `[N]`, 0 at masked levels.

    Raises:
        ArgumentError: If a shape, dtype or concrete value is wrong.

    Example:
        >>> scores, ages = jnp.array([0.5, 0.1]), jnp.array([0.0, 4.0])
        >>> print(rlaxlib.level_probabilities(scores, ages, 0.25, temperature=1.0))
        [0.5 0.5]

    References:
        Minqi Jiang, Edward Grefenstette and Tim Rocktäschel, *Prioritized Level
        Replay*, section 3, 2020. https://arxiv.org/abs/2010.03934
    """
    by_score = replay.rank_probabilities(
        priorities=scores, exponent=1 / temperature, sample_mask=sample_mask
    )
    by_age = replay.prioritized_probabilities(
        priorities=ages, exponent=1.0, sample_mask=sample_mask
    )
    mixed = (1 - staleness) * by_score + staleness * by_age
    return stop_gradient(mixed)


def _weights(
    discount_t: Array, truncated_t: Array | None, sample_mask: Array | None
) -> Array:
    """Return 1 / length at the valid steps of episodes that ended, and 0 elsewhere."""
    number, last, end = streams.segments(discount_t, truncated_t, sample_mask)
    first = streams.first_of(number, end)
    ended = jax.lax.cummax(end.astype(jnp.int32), reverse=True) > 0
    ended &= streams.filled(sample_mask, ended)
    length = jnp.where(ended, last - first + 1, 1).astype(discount_t.dtype)
    return jnp.where(ended, 1 / length, 0)


def _mean(x: Array, weight: Array) -> Array:
    """Return the weighted mean, 0 without weights, and stop its gradient."""
    mean = safe.divide(safe.dot(weight, x), jnp.sum(weight))
    return stop_gradient(mean)
