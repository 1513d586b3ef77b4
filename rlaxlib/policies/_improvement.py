"""Find a better policy than the one at hand, from the values of actions.

The policy learns it by `categorical_cross_entropy` or `categorical_kl_divergence`, or
where actions are sampled, by `sampled_policy_distillation_loss`.

Functions here take one state; `jax.vmap` makes the batch.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib import distributions
from rlaxlib._core import checks, dtypes, gradients

__all__ = [
    "cmpo_policy_targets",
    "cmpo_sample_weights",
    "completed_q_values",
    "gumbel_policy_targets",
]

_SMALLEST_RANGE = 1e-8  # Of values that are stretched to [0, 1].


def cmpo_policy_targets(
    prior_logits: ArrayLike,
    q: ArrayLike,
    v: ArrayLike,
    clip: ArrayLike = 1.0,
    *,
    mask: ArrayLike | None = None,
    stop_target_gradients: bool = True,
) -> Array:
    """Raise the probability of actions by their advantage, within bounds (CMPO).

    .. math::

        π_CMPO(a) = (1/z) π_prior(a) exp(clip(q(a) - v, -c, c)),
        z = ∑_a π_prior(a) exp(clip(q(a) - v, -c, c))

    However wrong the values are, the target is no farther than :math:`tanh(c/2)` from
    the prior in total variation. With :math:`c = 0` it is the prior, and with no bound
    that of MPO at a temperature of 1.

    The bound means advantages of size 1. Muesli divides them by the square root of a
    moving average of their squares: give :math:`q` and :math:`v` divided by it. Its
    prior is a target network, and :math:`v` the value of that. Where there are too many
    actions to sum over, `cmpo_sample_weights` does with samples.

    Args:
        prior_logits: Logits of the prior, shape `[A]`.
        q: Action values of the prior, shape `[A]`.
        v: Value :math:`v` of the prior, shape `[]`.
        clip: Bound :math:`c`, at least 0, shape `[]`.
        mask: True where an action is legal, shape `[A]`; or None if all are.
        stop_target_gradients: Whether to hold the targets constant under
            differentiation.

    Returns:
        Probabilities of the target, shape `[A]`; all 0 where no action is legal.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if `clip` is
            negative.

    Example:
        >>> q, v = jnp.log(jnp.array([1.0, 2.0, 1.0])), jnp.array(0.0)
        >>> print(rlaxlib.cmpo_policy_targets(jnp.zeros(3), q, v))
        [0.25 0.5  0.25]

    References:
        Matteo Hessel, Ivo Danihelka, Fabio Viola, Arthur Guez, Simon Schmitt, Laurent
        Sifre, Theophane Weber, David Silver and Hado van Hasselt, *Muesli: Combining
        Improvements in Policy Optimization*, section 4.1, 2021.
        https://arxiv.org/abs/2104.06159
    """
    prior_logits, q, v, clip, mask = checks.arrays(
        prior_logits=(prior_logits, "float[A]"),
        q=(q, "float[A]"),
        v=(v, "float[]"),
        clip=(clip, "float[]"),
        mask=(mask, "bool[A] or None"),
    )
    checks.within("[0, inf]", clip=clip)
    (prior_logits, q, v, clip), narrow = dtypes.widen(prior_logits, q, v, clip)
    # Of the prior's logits: where the value is a NaN, so is their sum.
    legal = _legal(prior_logits, mask)
    logits = prior_logits + jnp.clip(q - v, -clip, clip)
    targets = distributions.softmax().probs(logits, mask=legal)
    return narrow(gradients.stop_if(stop_target_gradients, targets))


def cmpo_sample_weights(
    q: ArrayLike,
    v: ArrayLike,
    clip: ArrayLike = 1.0,
    z_init: ArrayLike = 1.0,
    *,
    stop_target_gradients: bool = True,
) -> Array:
    """Weigh actions that are sampled from a prior by their advantage (sampled CMPO).

    .. math::

        w_i = e_i / z̃_i,   e_i = exp(clip(q_i - v, -c, c)),
        z̃_i = (1/N) (z_init + ∑_{j ≠ i} e_j)

    A weight estimates the ratio of `cmpo_policy_targets` to the prior, for an action
    that is sampled from the prior. Divided by the mean of all, the weight of a single
    sample would always be 1. So each is left out of its own mean, and a first guess of
    the normaliser takes its place.

    Put into a `PolicyTarget` with the actions, they are learned by
    `sampled_policy_distillation_loss`. Scale :math:`q` and :math:`v` as for
    `cmpo_policy_targets`.

    Args:
        q: Values :math:`q_i` of N actions that are sampled from the prior, with
            replacement, shape `[N]`.
        v: Value :math:`v` of the prior, shape `[]`.
        clip: Bound :math:`c`, at least 0, shape `[]`.
        z_init: First guess :math:`z_init` of the normaliser, more than 0, shape `[]`.
            It is 1 where all advantages are 0.
        stop_target_gradients: Whether to hold the weights constant under
            differentiation.

    Returns:
        Weights :math:`w_i`, about 1, shape `[N]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if a number is
            out of its range.

    Example:
        >>> q = jnp.log(jnp.array([1.0, 2.0]))
        >>> print(rlaxlib.cmpo_sample_weights(q, 0.0))  # 2 / (1 + 2), and 4 / (1 + 1).
        [0.6666667 2.       ]

    References:
        Matteo Hessel, Ivo Danihelka, Fabio Viola, Arthur Guez, Simon Schmitt, Laurent
        Sifre, Theophane Weber, David Silver and Hado van Hasselt, *Muesli: Combining
        Improvements in Policy Optimization*, section 4.2, 2021.
        https://arxiv.org/abs/2104.06159
    """
    q, v, clip, z_init = checks.arrays(
        q=(q, "float[N]"),
        v=(v, "float[]"),
        clip=(clip, "float[]"),
        z_init=(z_init, "float[]"),
    )
    checks.within("[0, inf]", clip=clip)
    checks.within("(0, inf)", z_init=z_init)
    (q, v, clip, z_init), narrow = dtypes.widen(q, v, clip, z_init)
    advantages = jnp.clip(q - v, -clip, clip)
    # All exponentials are divided by the largest, or by that of 0.
    largest = jax.lax.stop_gradient(jnp.maximum(jnp.max(advantages), 0.0))
    raised = jnp.exp(advantages - largest)
    # Not the sum less each: where one is all of it, nothing of the others is left.
    itself = jnp.eye(q.size, dtype=bool)
    others = jnp.where(itself, 0.0, jnp.broadcast_to(raised, itself.shape))
    total = z_init * jnp.exp(-largest) + jnp.sum(others, axis=-1)
    weights = q.size * raised / total
    return narrow(gradients.stop_if(stop_target_gradients, weights))


def completed_q_values(
    logits: ArrayLike,
    q: ArrayLike,
    visits: ArrayLike,
    v: ArrayLike,
    *,
    mask: ArrayLike | None = None,
) -> Array:
    """Give the actions that a search has not visited a value.

    .. math::

        q̄(a) = { q(a)    if N(a) > 0
                { v_mix   otherwise
        v_mix = (v + n m) / (1 + n),   n = ∑_b N(b),
        m = (∑_{N(a) > 0} π(a) q(a)) / ∑_{N(a) > 0} π(a)

    An action without a value gets that of the policy, so that nothing is gained or lost
    by it: a value of 0, or the lowest there is, would make the policy forget what the
    search had no time for. :math:`v_mix` mixes the network's value of the state with
    the values that the search found; it is :math:`v` where nothing has been visited.

    mctx's function of a similar name returns the transformed values that
    `gumbel_policy_targets` adds to the logits.

    Args:
        logits: Logits of the policy :math:`π`, shape `[A]`.
        q: Action values from the search, shape `[A]`. Whatever stands where an action
            has not been visited, it does not matter.
        visits: Number :math:`N` of visits of each action, at least 0, shape `[A]`.
        v: Value :math:`v` of the state, from the network, shape `[]`.
        mask: True where an action is legal, shape `[A]`; or None if all are. Visits of
            others do not count.

    Returns:
        Completed action values :math:`q̄`, shape `[A]`; :math:`v_mix` where an action
            is not legal.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if a number of
            visits is negative.

    Example:
        >>> q, visits = jnp.array([2.0, 6.0, jnp.nan]), jnp.array([1, 2, 0])
        >>> print(rlaxlib.completed_q_values(jnp.zeros(3), q, visits, 0.0))
        [2. 6. 3.]

    References:
        Ivo Danihelka, Arthur Guez, Julian Schrittwieser and David Silver, *Policy
        Improvement by Planning with Gumbel*, equation 10 and appendix D, 2022.
        https://openreview.net/forum?id=bERaNdoegnO
    """
    logits, q, visits, v, mask = checks.arrays(
        logits=(logits, "float[A]"),
        q=(q, "float[A]"),
        visits=(visits, "int[A]"),
        v=(v, "float[]"),
        mask=(mask, "bool[A] or None"),
    )
    checks.within("[0, inf)", visits=visits)
    (logits, q, v), narrow = dtypes.widen(logits, q, v)
    return narrow(_complete(logits, q, visits, v, _legal(logits, mask)))


def gumbel_policy_targets(
    logits: ArrayLike,
    q: ArrayLike,
    visits: ArrayLike,
    v: ArrayLike,
    c_visit: ArrayLike = 50.0,
    c_scale: ArrayLike = 1.0,
    *,
    rescale_values: bool = False,
    mask: ArrayLike | None = None,
    stop_target_gradients: bool = True,
) -> Array:
    """Improve a policy by the values that a search found (Gumbel MuZero).

    .. math::

        π' = softmax(logits + σ(q̄)),   σ(x) = (c_visit + max_b N(b)) c_scale x

    :math:`q̄` are the `completed_q_values`. The policy that comes out is never worse by
    these values than the one before, however few actions were visited; shares of
    visits, which AlphaZero learns, may be. The more the search visits, the more its
    values count.

    The paper's :math:`σ` takes values in [0, 1]. Its :math:`c_scale` is 1 on board
    games and 0.1 on Atari. mctx's default is 0.1, with `rescale_values`.

    Args:
        logits: Logits of the policy, shape `[A]`.
        q: Action values from the search, shape `[A]`. Whatever stands where an action
            has not been visited, it does not matter.
        visits: Number :math:`N` of visits of each action, at least 0, shape `[A]`.
        v: Value of the state, from the network, shape `[]`.
        c_visit: What is added to the most visits, :math:`c_visit`, at least 0,
            shape `[]`.
        c_scale: How much values count, :math:`c_scale`, at least 0, shape `[]`.
        rescale_values: Whether to stretch the completed values of the legal actions to
            [0, 1] first, the lowest to 0 and the highest to 1, unless they are less
            than 1e-8 apart.
        mask: True where an action is legal, shape `[A]`; or None if all are.
        stop_target_gradients: Whether to hold the targets constant under
            differentiation.

    Returns:
        Probabilities of the target :math:`π'`, shape `[A]`; all 0 where no action is
            legal.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if a number is
            negative.

    Example:
        >>> q, visits = jnp.log(jnp.array([0.5, 1.0])), jnp.array([1, 1])
        >>> targets = rlaxlib.gumbel_policy_targets(
        ...     jnp.zeros(2), q, visits, 0.0, c_visit=0.0
        ... )
        >>> print(targets.round(4))
        [0.3333 0.6667]

    References:
        Ivo Danihelka, Arthur Guez, Julian Schrittwieser and David Silver, *Policy
        Improvement by Planning with Gumbel*, section 3.4 and section 4, 2022.
        https://openreview.net/forum?id=bERaNdoegnO
    """
    logits, q, visits, v, c_visit, c_scale, mask = checks.arrays(
        logits=(logits, "float[A]"),
        q=(q, "float[A]"),
        visits=(visits, "int[A]"),
        v=(v, "float[]"),
        c_visit=(c_visit, "float[]"),
        c_scale=(c_scale, "float[]"),
        mask=(mask, "bool[A] or None"),
    )
    checks.within("[0, inf)", visits=visits, c_visit=c_visit, c_scale=c_scale)
    (logits, q, v, c_visit, c_scale), narrow = dtypes.widen(
        logits, q, v, c_visit, c_scale
    )
    legal = _legal(logits, mask)
    completed = _complete(logits, q, visits, v, legal)
    if rescale_values:
        completed = _stretch(completed, legal)
    most = jnp.max(jnp.where(legal, visits, 0)).astype(logits.dtype)
    logits = logits + (c_visit + most) * c_scale * completed
    targets = distributions.softmax().probs(logits, mask=legal)
    return narrow(gradients.stop_if(stop_target_gradients, targets))


def _legal(logits: Array, mask: Array | None) -> Array:
    """Tell which actions neither the mask nor the logits rule out."""
    possible = logits != -jnp.inf
    return possible if mask is None else mask & possible


def _complete(logits: Array, q: Array, visits: Array, v: Array, legal: Array) -> Array:
    """Return the values of visited actions, and for others that of the policy."""
    visited = legal & (visits > 0)
    total = jnp.sum(jnp.where(visited, visits, 0)).astype(logits.dtype)
    found = jnp.where(visited, q, jnp.zeros_like(q))
    # Of the visited actions only, so that their shares add up to 1 however small.
    shares = distributions.softmax().probs(logits, mask=visited)
    mean = jnp.sum(shares * found)
    mixed = v + total / (1 + total) * (mean - v)
    return jnp.where(visited, q, mixed)


def _stretch(q: Array, legal: Array) -> Array:
    """Return values in [0, 1], the lowest legal one 0 and the highest 1."""
    low = jnp.min(q, initial=jnp.inf, where=legal)
    high = jnp.max(q, initial=-jnp.inf, where=legal)
    low = jnp.where(jnp.isfinite(low), low, 0.0)  # If none is legal.
    return (q - low) / jnp.maximum(high - low, _SMALLEST_RANGE)
