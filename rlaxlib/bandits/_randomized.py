"""Randomised bandit policies: Exp3, Tsallis-INF, gradient bandits and Boltzmann.

The functions named `*_probabilities` return the probability of each arm. Sample an arm,
and pass it to the update with its reward and the probability it was pulled with.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from rlaxlib._core import moments
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Float, Int, Static
from rlaxlib.bandits._shared import one_hot

__all__ = [
    "GradientBanditState",
    "exp3_probabilities",
    "exp3_update",
    "gradient_bandit_init",
    "gradient_bandit_update",
    "tsallis_inf_probabilities",
    "tsallis_inf_update",
]


class GradientBanditState(NamedTuple):
    """Preferences of a gradient bandit, and its baseline.

    `gradient_bandit_init` returns the first.

    Attributes:
        preferences: Preferences :math:`H_a`, whose softmax is the policy, shape `[A]`.
        baseline: Mean :math:`R̄` of all rewards so far, shape `[]`.
        num_pulls: Number of pulls so far, an integer, shape `[]`.
        baseline_rest: Rounding error of `baseline`, shape `[]`. Without it, the mean
            would stop after some million pulls in single precision.
    """

    preferences: Float[ArrayLike, "A"]
    baseline: Float[ArrayLike, ""]
    num_pulls: Int[ArrayLike, ""]
    baseline_rest: Float[ArrayLike, ""]


@checked
def exp3_probabilities(
    log_weights: Float[ArrayLike, "A"], exploration: Float[ArrayLike, "in [0, 1]"]
) -> Float[Array, "A"]:
    """Compute the probabilities of exponential weights with exploration (Exp3).

    Takes one log-weight for each arm, returns one probability for each.

    ::

        p_a = (1 - γ) w_a / ∑_b w_b + γ/A

    Args:
        log_weights: Log-weights :math:`log w_a`, 0 before the first pull, shape `[A]`.
        exploration: Share :math:`γ` of uniform exploration, in [0, 1], shape `[]`; for
            rewards in [0, 1] and T pulls, :math:`γ = min(1, √(A log A / ((e - 1) T)))`.

    Returns:
        Probabilities :math:`p_a`, shape `[A]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> log_weights = jnp.log(jnp.array([1.0, 3.0]))
        >>> print(rlaxlib.exp3_probabilities(log_weights, exploration=0.5))
        [0.375 0.625]

    References:
        Peter Auer and others, *The Nonstochastic Multiarmed Bandit Problem*, section 3,
        2002. https://doi.org/10.1137/S0097539701398375
    """
    probs = jax.nn.softmax(log_weights)
    return (1 - exploration) * probs + exploration / log_weights.size


@checked
def exp3_update(
    log_weights: Float[ArrayLike, "A"],
    arm: Int[ArrayLike, "in [0, A)"],
    reward: Float[ArrayLike, ""],
    probability: Float[ArrayLike, "in (0, 1]"],
    step_size: Float[ArrayLike, "in [0, inf)"],
) -> Float[Array, "A like log_weights"]:
    """Update the log-weights of Exp3 with one reward.

    Takes the log-weights of all arms and one pull, returns the next log-weights.

    ::

        log w_a' = log w_a + η r̂_a,   r̂_a = 1[a = A] R / p_A

    The estimates :math:`r̂` are unbiased, even if an adversary chooses the rewards.
    With :math:`η = γ/A` and rewards in [0, 1], the regret is at most
    :math:`2 √((e - 1) T A log A)` for the :math:`γ` of `exp3_probabilities`.

    Args:
        log_weights: Log-weights :math:`log w_a`, 0 at first, shape `[A]`. Only
            differences matter: over many millions of pulls, subtract the largest.
        arm: Arm :math:`A` that was pulled, in [0, A), shape `[]`.
        reward: Its reward :math:`R`, shape `[]`.
        probability: Probability :math:`p_A` of having pulled it, in (0, 1], shape `[]`.
        step_size: Learning rate :math:`η`, in [0, inf), shape `[]`.

    Returns:
        Next log-weights, shape `[A]`; NaN if a traced `arm` is out of range.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> update = rlaxlib.exp3_update
        >>> print(update(jnp.zeros(2), 1, 1.0, probability=0.5, step_size=0.25))
        [0.  0.5]

    References:
        Peter Auer and others, *The Nonstochastic Multiarmed Bandit Problem*, section 3,
        2002. https://doi.org/10.1137/S0097539701398375
    """
    estimate = step_size * reward / probability
    return log_weights + one_hot(arm, log_weights) * estimate


@checked
def tsallis_inf_probabilities(
    losses: Float[ArrayLike, "A"], step_size: Float[ArrayLike, "in [0, inf)"]
) -> Float[Array, "A"]:
    """Compute the probabilities of the Tsallis-INF bandit.

    Takes the loss estimate of each arm, returns one probability for each.

    ::

        p_a = 4 / (η (L̂_a - x))²,   x < min_a L̂_a   such that   ∑_a p_a = 1

    It minimises :math:`∑_a p_a L̂_a - (4/η) ∑_a √p_a`. With :math:`η = 2/√t` at pull
    :math:`t` its regret is of order :math:`log t` if the losses of an arm are
    independent and identically distributed, and at most :math:`4 √(A t) + 1` if an
    adversary chooses them.

    Args:
        losses: Sums :math:`L̂_a` of the loss estimates, 0 at first, shape `[A]`.
        step_size: Learning rate :math:`η`, in [0, inf), shape `[]`.

    Returns:
        Probabilities :math:`p_a`, shape `[A]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> losses = jnp.array([0.0, 5.0**0.5])
        >>> print(rlaxlib.tsallis_inf_probabilities(losses, step_size=1.0).round(3))
        [0.8 0.2]

    References:
        Julian Zimmert and Yevgeny Seldin, *Tsallis-INF: An Optimal Algorithm for
        Stochastic and Adversarial Bandits*, 2018. https://arxiv.org/abs/1807.07623
    """
    gap = step_size * (losses - jnp.min(losses))

    def newton(_: int, y: Array) -> Array:
        # Newton's method on `total ** -0.5 = 1`, which is linear in y without gaps.
        total = jnp.sum(4 / jnp.square(gap + y))
        slope = jnp.sum(4 / (gap + y) ** 3)
        return y + total * (jnp.sqrt(total) - 1) / slope

    # y = η (min L̂ - x) is 2 if one arm has all probability, 2 √A if none has more.
    y = jax.lax.fori_loop(0, 8, newton, jnp.full_like(gap[0], 2))
    p = 4 / jnp.square(gap + y)
    return p / jnp.sum(p)


@checked
def tsallis_inf_update(
    losses: Float[ArrayLike, "A"],
    arm: Int[ArrayLike, "in [0, A)"],
    loss: Float[ArrayLike, ""],
    probability: Float[ArrayLike, "in (0, 1]"],
    baseline: Float[ArrayLike, "[] or [A]"] = 0.0,
) -> Float[Array, "A like losses"]:
    """Update the loss estimates of Tsallis-INF with one loss.

    Takes the loss estimates of all arms and one pull, returns the next estimates.

    ::

        L̂_a' = L̂_a + 1[a = A] (ℓ - B_a) / p_A + B_a

    The estimates are unbiased. For losses in [0, 1], the baselines
    :math:`B_a = ½ 1[p_a ≥ η²]` reduce their variance; then use :math:`η = 4/√t`.

    Args:
        losses: Sums :math:`L̂_a` of the loss estimates, 0 at first, shape `[A]`. Only
            differences matter: over many millions of pulls, subtract the smallest.
        arm: Arm :math:`A` that was pulled, in [0, A), shape `[]`.
        loss: Its loss :math:`ℓ`, shape `[]`; such as 1 minus a reward in [0, 1].
        probability: Probability :math:`p_A` of having pulled it, in (0, 1], shape `[]`.
        baseline: Baseline :math:`B`, shape `[]`; or one for each arm, shape `[A]`.

    Returns:
        Next sums, shape `[A]`; NaN if a traced `arm` is out of range.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> print(rlaxlib.tsallis_inf_update(jnp.zeros(2), 1, 0.5, probability=0.25))
        [0. 2.]

    References:
        Julian Zimmert and Yevgeny Seldin, *Tsallis-INF: An Optimal Algorithm for
        Stochastic and Adversarial Bandits*, 2018. https://arxiv.org/abs/1807.07623
    """
    excess = one_hot(arm, losses) * (loss - baseline) / probability
    return losses + excess + baseline


@checked
def gradient_bandit_init(num_arms: Static[int, "in [1, inf)"]) -> GradientBanditState:
    """Return the state of a gradient bandit before the first pull.

    Takes a number of arms, returns a state.

    ::

        H_a = 0,   R̄ = 0

    Args:
        num_arms: Number of arms, a Python integer in [1, inf).

    Returns:
        A `GradientBanditState` of zeros, whose policy is uniform.

    Raises:
        ArgumentError: If `num_arms` is not a Python integer of at least 1.

    Example:
        >>> print(rlaxlib.gradient_bandit_init(2).preferences)
        [0. 0.]

    References:
        Richard S. Sutton and Andrew G. Barto, *Reinforcement Learning: An
        Introduction*, second edition, section 2.8, 2018.
        http://incompleteideas.net/book/the-book-2nd.html
    """
    return GradientBanditState(jnp.zeros(num_arms), 0.0, 0, 0.0)


@checked
def gradient_bandit_update(
    state: GradientBanditState,
    arm: Int[ArrayLike, "in [0, A)"],
    reward: Float[ArrayLike, ""],
    step_size: Float[ArrayLike, "in [0, inf)"],
) -> GradientBanditState:
    """Update the preferences of a gradient bandit with one reward.

    Takes a state and one pull, returns the next state.

    ::

        H_a' = H_a + α (R - R̄) (1[a = A] - π_a),   π = softmax(H)

    A stochastic gradient step on the expected reward, as REINFORCE, with a baseline:
    the mean :math:`R̄` of the rewards before, or the reward itself at the first pull.
    Sample arms by `jax.random.categorical` of the preferences.

    Args:
        state: Preferences and baseline, a `GradientBanditState`.
        arm: Arm :math:`A` that was pulled, in [0, A), shape `[]`.
        reward: Its reward :math:`R`, shape `[]`.
        step_size: Step size :math:`α`, in [0, inf), shape `[]`.

    Returns:
        Next `GradientBanditState`; its preferences are NaN if a traced `arm` is wrong.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> state = rlaxlib.gradient_bandit_init(2)._replace(baseline=1.0, num_pulls=1)
        >>> state = rlaxlib.gradient_bandit_update(state, 0, 3.0, step_size=0.5)
        >>> print(state.preferences, state.baseline)
        [ 0.5 -0.5] 2.0

    References:
        Richard S. Sutton and Andrew G. Barto, *Reinforcement Learning: An
        Introduction*, second edition, section 2.8, 2018.
        http://incompleteideas.net/book/the-book-2nd.html
    """
    preferences, baseline, pulls, rest = state
    baseline = jnp.where(pulls > 0, baseline, reward)
    direction = one_hot(arm, preferences) - jax.nn.softmax(preferences)
    gain = step_size * (reward - baseline)
    preferences = preferences + gain * direction
    step = (reward - baseline) / (pulls.astype(baseline.dtype) + 1)
    baseline, rest = moments.add(baseline, rest, step)
    # A narrow dtype stays at its largest value.
    pulls = jnp.where(pulls == jnp.iinfo(pulls.dtype).max, pulls, pulls + 1)
    return GradientBanditState(preferences, baseline, pulls, rest)
