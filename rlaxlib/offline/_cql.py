"""Conservative Q-learning: CQL, discrete CQL and Cal-QL.

The loss lowers the values of actions that the policy would take and raises the values
of the data's actions, so that the critic does not overestimate actions unseen in the
data. Add it to the TD loss, with a weight :math:`α` that is fixed, or learned by the
loss :math:`-α (g - ḡ)`, in which only the multiplier :math:`α` has a gradient: it rises
while the loss :math:`g` is above its target :math:`ḡ`, such as 5.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient

from rlaxlib import distributions
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Bool, Float, Int

__all__ = ["cql_loss", "discrete_cql_loss"]


@checked
def cql_loss(
    q: Float[ArrayLike, ""],
    sample_q_values: Float[ArrayLike, "K"],
    sample_log_probs: Float[ArrayLike, "K"],
    temperature: Float[ArrayLike, "in (0, inf)"] = 1.0,
    *,
    min_q: Float[ArrayLike, "[] or [K]"] | None = None,
) -> Float[Array, ""]:
    """Compute the conservative loss of CQL(H) and Cal-QL, from sampled actions.

    Takes the values of one action of the data and of K samples, returns one loss.

    ::

        L = τ log ∑_j exp(max(q(s, a_j), b_j)/τ - log p(a_j)) - q(s, a)

    The sum estimates :math:`K ∫ exp(q(s, a)/τ) da` by importance sampling. As in the
    authors' code it is a sum and not a mean: the constant :math:`τ log K` has no
    gradient, but counts in the target of a learned weight.

    In the paper a third of the actions is uniform, a third from the policy in this
    state, and a third from the policy in the next state; :math:`p` is the density that
    each was sampled from. For uniform actions in a box, :math:`log p` is minus the sum
    of the logarithms of its sides. Cal-QL bounds the values of the policy's actions
    from below by the data's return.

    Args:
        q: Value :math:`q(s, a)` of the data's action, shape `[]`.
        sample_q_values: Values :math:`q(s, a_j)` of K sampled actions, shape `[K]`.
        sample_log_probs: Log-densities :math:`log p(a_j)`, gradient stopped,
            shape `[K]`.
        temperature: Temperature :math:`τ`, in (0, inf), shape `[]`.
        min_q: Lower bound :math:`b`, without a gradient, shape `[]`; or one for
            each action, minus infinity for uniform ones, shape `[K]`; or None for CQL.

    Returns:
        Loss, shape `[]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> sample_q_values, sample_log_probs = jnp.array([1.0, -9.0]), jnp.zeros(2)
        >>> loss = rlaxlib.cql_loss(3.0, sample_q_values, sample_log_probs, min_q=1.0)
        >>> print(loss.round(4), (jnp.log(2.0) - 2.0).round(4))
        -1.3069 -1.3069

    References:
        Aviral Kumar and others, *Conservative Q-Learning for Offline Reinforcement
        Learning*, appendix F, 2020. https://arxiv.org/abs/2006.04779

        Mitsuhiko Nakamoto and others, *Cal-QL: Calibrated Offline RL Pre-Training for
        Efficient Online Fine-Tuning*, 2023. https://arxiv.org/abs/2303.05479
    """
    if min_q is not None:
        sample_q_values = jnp.maximum(sample_q_values, stop_gradient(min_q))
    # Differences first: the softmax of values of 10,000 would lose 5e-4.
    logits = (sample_q_values - q) / temperature - stop_gradient(sample_log_probs)
    return temperature * jax.nn.logsumexp(logits)


@checked
def discrete_cql_loss(
    q: Float[ArrayLike, "A"],
    a: Int[ArrayLike, "in [0, A)"],
    *,
    action_mask: Bool[ArrayLike, "A"] | None = None,
) -> Float[Array, ""]:
    """Compute the conservative loss of CQL(H) for discrete actions.

    Takes the values of all actions and one action, returns one loss.

    ::

        L = log ∑_b exp(q(b)) - q(a)

    It is the cross-entropy of the softmax policy on the data's action.

    Args:
        q: Action values, shape `[A]`.
        a: Action in the data, in [0, A), shape `[]`.
        action_mask: True for legal actions, plus the data's, shape `[A]`; or None.

    Returns:
        Loss, at least 0, shape `[]`; infinite if :math:`q(a)` alone is minus
        infinity, NaN if a traced action is outside [0, A).

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> print(rlaxlib.discrete_cql_loss(jnp.array([2.0, 2.0]), 0).round(4))
        0.6931

    References:
        Aviral Kumar and others, *Conservative Q-Learning for Offline Reinforcement
        Learning*, 2020. https://arxiv.org/abs/2006.04779
    """
    if action_mask is not None:
        action_mask = action_mask | (jnp.arange(q.size) == a.astype(int))
    return -distributions.softmax().log_prob(a, q, action_mask=action_mask)
