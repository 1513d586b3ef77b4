"""Policy targets from action values: CMPO (Muesli) and Gumbel MuZero.

- `cmpo_policy_targets`: CMPO.
- `mixed_value`, `gumbel_policy_targets`: Gumbel MuZero, after a tree search.

Train the policy towards the targets with `categorical_cross_entropy` or
`categorical_kl_divergence`. All functions take one state: map them over a batch with
`jax.vmap`.
"""

from __future__ import annotations

import jax.numpy as jnp

from rlaxlib import distributions
from rlaxlib._core import devices, legality, safe
from rlaxlib._core.gradients import stop_if
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Bool, Float, Real, Static

__all__ = [
    "cmpo_policy_targets",
    "gumbel_policy_targets",
    "mixed_value",
]


@checked
def cmpo_policy_targets(
    prior_logits: Float[ArrayLike, "A"],
    q: Float[ArrayLike, "A"],
    v: Float[ArrayLike, ""],
    clip: Float[ArrayLike, "in [0, inf]"] = 1.0,
    *,
    stop_target_gradients: bool = True,
    action_mask: Bool[ArrayLike, "A"] | None = None,
) -> Float[Array, "A"]:
    """Compute the clipped MPO policy targets (CMPO) of Muesli.

    Takes one state, returns the target probability of each action.

    ::

        π_CMPO(a) = (1/z) π_prior(a) exp(clip(q(a) - v, -c, c)),
        z = ∑_a π_prior(a) exp(clip(q(a) - v, -c, c))

    The total variation between target and prior is at most :math:`tanh(c/2)`, however
    wrong the values are. In Muesli the prior is a target network, and :math:`q` and
    :math:`v` are divided by a moving root mean square of the advantages.

    Args:
        prior_logits: Logits of the prior, shape `[A]`.
        q: Action values of the prior, shape `[A]`.
        v: Value :math:`v` of the prior, shape `[]`.
        clip: Bound :math:`c`, in [0, inf], shape `[]`.
        stop_target_gradients: Whether to stop the gradient of the targets.
        action_mask: True where an action is legal, shape `[A]`; or None if all are.

    Returns:
        Target probabilities, shape `[A]`; all 0 if no action is legal.

    Raises:
        ArgumentError: If a shape or dtype is wrong or a concrete `clip` negative.

    Example:
        >>> q = jnp.log(jnp.array([1.0, 2.0, 1.0]))
        >>> print(rlaxlib.cmpo_policy_targets(jnp.zeros(3), q, v=0.0))
        [0.25 0.5  0.25]

    References:
        Matteo Hessel and others, *Muesli: Combining Improvements in Policy
        Optimization*, section 4.1, 2021. https://arxiv.org/abs/2104.06159
    """
    legal = legality.legal(prior_logits, action_mask)
    logits = prior_logits + jnp.clip(q - v, -clip, clip)
    targets = distributions.softmax().probs(logits, action_mask=legal)
    return stop_if(stop_target_gradients, targets)


@checked
def mixed_value(
    logits: Float[ArrayLike, "A"],
    q: Float[ArrayLike, "A"],
    visits: Real[ArrayLike, "A in [0, inf)"],
    v: Float[ArrayLike, ""],
    *,
    action_mask: Bool[ArrayLike, "A"] | None = None,
) -> Float[Array, ""]:
    """Mix the value of a state with the action values of a search (Gumbel MuZero).

    Takes one state, returns its value.

    ::

        v_mix = (v + n m) / (1 + n),   n = ∑_b N(b),
        m = (∑_{N(a) > 0} π(a) q(a)) / ∑_{N(a) > 0} π(a)

    It is the value of unvisited actions in `gumbel_policy_targets`, which then neither
    favours nor avoids them.

    Args:
        logits: Logits of the policy :math:`π`, minus infinity for illegal actions,
            shape `[A]`.
        q: Action values from the search, ignored for unvisited actions, shape `[A]`.
        visits: Visit counts :math:`N`, in [0, inf), ignored if illegal, shape `[A]`.
        v: Value :math:`v` of the state from the network, shape `[]`.
        action_mask: True where an action is legal, shape `[A]`; or None if all are.

    Returns:
        Value :math:`v_mix`, shape `[]`; :math:`v` if no legal action was visited.

    Raises:
        ArgumentError: If a shape, dtype or NumPy visit count is wrong.

    Example:
        >>> q, visits = jnp.array([2.0, 6.0, jnp.nan]), jnp.array([1, 2, 0])
        >>> print(rlaxlib.mixed_value(jnp.zeros(3), q, visits, v=0.0))
        3.0

    References:
        Ivo Danihelka and others, *Policy Improvement by Planning with Gumbel*, appendix
        D, 2022. https://openreview.net/forum?id=bERaNdoegnO
    """
    visited = legality.legal(logits, action_mask) & (visits > 0)
    n = jnp.sum(jnp.where(visited, visits, 0))
    # Normalised over the visited actions, whose total probability may underflow.
    pi = distributions.softmax().probs(logits, action_mask=visited)
    m = safe.expectation(pi, jnp.where(visited, q, 0))
    return (v + n * m) / (1 + n)


@checked
def gumbel_policy_targets(
    logits: Float[ArrayLike, "A"],
    q: Float[ArrayLike, "A"],
    visits: Real[ArrayLike, "A in [0, inf)"],
    v: Float[ArrayLike, ""],
    c_visit: Float[ArrayLike, "in [0, inf)"] = 50.0,
    c_scale: Float[ArrayLike, "in [0, inf)"] = 1.0,
    *,
    stop_target_gradients: bool = True,
    action_mask: Bool[ArrayLike, "A"] | None = None,
    rescale_values: Static[bool, ""] = False,
) -> Float[Array, "A"]:
    """Compute the Gumbel MuZero policy targets from the values of a search.

    Takes one state, returns the target probability of each action.

    ::

        π' = softmax(logits + σ(q̄)),   σ(x) = (c_visit + max_b N(b)) c_scale x,
        q̄(a) = { q(a)    if N(a) > 0
                { v_mix   otherwise

    :math:`v_mix` is the `mixed_value`. Under the completed values :math:`q̄`, the target
    is never worse than the policy. For :math:`q̄` in [0, 1], the paper has
    :math:`c_scale` 1 on board games and 0.1 on Atari.

    Args:
        logits: Logits of the policy, shape `[A]`.
        q: Action values from the search, ignored for unvisited actions, shape `[A]`.
        visits: Visit counts :math:`N`, in [0, inf), shape `[A]`.
        v: Value of the state from the network, shape `[]`.
        c_visit: Offset :math:`c_visit` of the visit count, in [0, inf), shape `[]`.
        c_scale: Scale :math:`c_scale` of the values, in [0, inf), shape `[]`.
        stop_target_gradients: Whether to stop the gradient of the targets.
        action_mask: True where an action is legal, shape `[A]`; or None if all are.
        rescale_values: Whether to rescale :math:`q̄` of legal actions to [0, 1], unless
            their range is below 1e-8.

    Returns:
        Target probabilities :math:`π'`, shape `[A]`; all 0 if no action is legal.

    Raises:
        ArgumentError: If a shape, dtype or concrete value is wrong.

    Example:
        >>> q, visits = jnp.log(jnp.array([0.5, 1.0])), jnp.array([1, 1])
        >>> targets = rlaxlib.gumbel_policy_targets(jnp.zeros(2), q, visits, 0.0, 0.0)
        >>> print(targets.round(4))
        [0.3333 0.6667]

    References:
        Ivo Danihelka and others, *Policy Improvement by Planning with Gumbel*, section
        3.4 and section 4, 2022. https://openreview.net/forum?id=bERaNdoegnO
    """
    legal = legality.legal(logits, action_mask)
    v_mix = mixed_value(logits=logits, q=q, visits=visits, v=v, action_mask=legal)
    completed = jnp.where(legal & (visits > 0), q, v_mix)
    if rescale_values:
        completed = _rescale(completed, legal)
    # Large values would round the logits away.
    completed = completed - devices.largest(completed, legal, None)
    most = jnp.max(jnp.where(legal, visits, 0))
    logits = logits + (c_visit + most) * c_scale * completed
    targets = distributions.softmax().probs(logits, action_mask=legal)
    return stop_if(stop_target_gradients, targets)


def _rescale(q: Array, legal: Array) -> Array:
    """Rescale the values of legal actions to [0, 1]."""
    low = jnp.min(jnp.where(legal, q, jnp.inf))
    high = jnp.max(jnp.where(legal, q, -jnp.inf))
    low = jnp.where(jnp.any(legal), low, 0)
    return (q - low) / jnp.maximum(high - low, 1e-8)
