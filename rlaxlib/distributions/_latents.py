"""Keep the discrete states of a world model alive, and learn to predict them.

The state of a world model is a number of categorical variables, each with A classes,
the last axis. The posterior has seen the observation, the prior has not.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib._core import checks, dtypes
from rlaxlib.distributions._categorical import categorical_kl_divergence
from rlaxlib.distributions._logits import over, prepare

__all__ = [
    "BalancedKlOutputs",
    "balanced_kl",
    "straight_through_sample",
    "unimix_logits",
]

_LARGE = 80.0  # Its exponential is finite in single precision.


class BalancedKlOutputs(NamedTuple):
    """What a balanced divergence is made of.

    Attributes:
        dynamics_loss: Divergence that teaches the prior, at least the free nats, before
            it is weighed, shape `[]`.
        representation_loss: The same that teaches the posterior, shape `[]`.
        kl: The divergence itself, a constant under differentiation, shape `[]`.
    """

    dynamics_loss: Array
    representation_loss: Array
    kl: Array


def unimix_logits(
    logits: ArrayLike, mix: ArrayLike = 0.01, *, mask: ArrayLike | None = None
) -> Array:
    """Mix some of the uniform distribution into a softmax, and return its logits.

    .. math::

        ℓ_i = log((1 - ε) p_i + ε / A),   p = softmax(logits)

    No class is left without probability, so no divergence from this distribution is
    infinite, and none is without gradient. The logits that come out are logarithms of
    probabilities, and fit wherever logits go: a softmax of them is the mixture. They
    are found from logarithms, so that they are right with any :math:`ε`, 0 included,
    where they are those of the softmax itself, however small.

    Args:
        logits: Logits, shape `[..., A]`. One of minus infinity is a class of no
            probability, which gets its share of the uniform distribution like any
            other.
        mix: Share :math:`ε` of the uniform distribution, in [0, 1]; DreamerV3's is
            0.01, shape `[]`.
        mask: True where a class is possible, for all rows alike, shape `[A]`; or for
            each, shape `[..., A]`; or None if all are. The uniform distribution is over
            those.

    Returns:
        Log-probabilities, shape `[..., A]`: minus infinity where a class is not
            possible.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if `mix` lies
            outside [0, 1].

    Example:
        >>> logits = rlaxlib.unimix_logits(jnp.array([0.0, -jnp.inf]), mix=0.5)
        >>> print(jnp.exp(logits))
        [0.75 0.25]

    References:
        Danijar Hafner, Jurgis Pasukonis, Jimmy Ba and Timothy Lillicrap, *Mastering
        Diverse Domains through World Models*, 2023. https://arxiv.org/abs/2301.04104
    """
    logits, mix, mask = checks.arrays(
        logits=(logits, "float[..., A]"),
        mix=(mix, "float[]"),
        mask=(mask, "bool[A] or [..., A] or None"),
    )
    checks.within("[0, 1]", mix=mix)
    (logits, mix), narrow = dtypes.widen(logits, mix)
    mask = over(mask, logits)
    p = prepare(logits, jnp.ones_like(logits, shape=()), mask)
    possible = jnp.ones_like(p.legal) if mask is None else mask
    count = jnp.sum(possible, axis=-1, keepdims=True, dtype=logits.dtype)
    log_even = -jnp.log(jnp.maximum(count, 1))
    log_p = jnp.where(p.none[..., None], log_even, p.finite - p.log_total)
    # Both parts are divided by the larger, and multiplied again, so that neither is too
    # small. That is held constant, lest the logarithm of 0 get a derivative.
    still_p, still_mix = jax.lax.stop_gradient((log_p, mix))
    larger = jnp.maximum(jnp.log1p(-still_mix) + still_p, jnp.log(still_mix) + log_even)
    even = jnp.exp(jnp.minimum(log_even - larger, _LARGE))
    mixed = larger + jnp.log((1 - mix) * jnp.exp(log_p - larger) + mix * even)
    likely = possible & (p.legal | (mix > 0))
    return narrow(jnp.where(likely, mixed, -jnp.inf))


def straight_through_sample(
    key: ArrayLike, logits: ArrayLike, *, mask: ArrayLike | None = None
) -> Array:
    """Draw classes, one-hot, with the gradient of their probabilities.

    .. math::

        z = e_i,   i ~ p = softmax(logits),   ∂z / ∂logits := ∂p / ∂logits

    A draw has no gradient. To take that of the probabilities in its place is biased
    unless what follows is linear, and has little variance. The value is one-hot to the
    last digit, which `z + p - stop_gradient(p)`, added up from the left, is not.

    Args:
        key: Random key, shape `[]`.
        logits: Logits, shape `[..., A]`.
        mask: True where a class is possible, for all rows alike, shape `[A]`; or for
            each, shape `[..., A]`; or None if all are.

    Returns:
        One-hot vectors, shape `[..., A]`, of the classes that `softmax` draws with the
            same key; zeros where none is possible.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype.

    Example:
        >>> key, logits = jax.random.key(0), jnp.array([-jnp.inf, 0.0])
        >>> print(rlaxlib.straight_through_sample(key, logits))
        [0. 1.]

    References:
        Yoshua Bengio, Nicholas Léonard and Aaron Courville, *Estimating or Propagating
        Gradients Through Stochastic Neurons for Conditional Computation*, 2013.
        https://arxiv.org/abs/1308.3432

        Danijar Hafner, Timothy Lillicrap, Mohammad Norouzi and Jimmy Ba, *Mastering
        Atari with Discrete World Models*, algorithm 1, 2020.
        https://arxiv.org/abs/2010.02193
    """
    key, logits, mask = checks.arrays(
        key=(key, "key[]"),
        logits=(logits, "float[..., A]"),
        mask=(mask, "bool[A] or [..., A] or None"),
    )
    (logits,), narrow = dtypes.widen(logits)
    p = prepare(logits, jnp.ones_like(logits, shape=()), over(mask, logits))
    drawn = jax.random.categorical(key, p.shifted)
    drawn = jnp.where(p.none, -1, drawn)
    one_hot = jax.nn.one_hot(drawn, logits.shape[-1], dtype=logits.dtype)
    return narrow(one_hot + (p.probs - jax.lax.stop_gradient(p.probs)))


def balanced_kl(
    posterior_logits: ArrayLike,
    prior_logits: ArrayLike,
    free_nats: ArrayLike = 1.0,
    dynamics_weight: ArrayLike = 1.0,
    representation_weight: ArrayLike = 0.1,
    *,
    mask: ArrayLike | None = None,
) -> tuple[Array, BalancedKlOutputs]:
    """Draw prior and posterior of a world model together, the prior faster.

    .. math::

        L = β_dyn max(f, ∑_g KL(q̄_g ‖ p_g)) + β_rep max(f, ∑_g KL(q_g ‖ p̄_g))

    A bar holds constant: the first term teaches the prior :math:`p` to predict the
    posterior :math:`q`, the second the posterior to be predictable. Were both to learn
    alike, the posterior would give up what a prior that has hardly learned cannot
    predict yet.

    Below :math:`f` nats a term has no gradient, so that representations are not made
    trivial only to be predicted. The bound is on the sum over all variables of one
    step. TorchRL had it on each variable until 2026: with 32 of them 32 nats are free
    then, not one. DreamerV2 and STORM have it on the mean over the batch, which lets
    steps that are predicted well make up for others.

    *Which numbers.* DreamerV3 has weights of 1 and 0.1, with one free nat; its first
    version of 2023 had 0.5 and 0.1. DreamerV2 has :math:`α = 0.8` and :math:`1 - α`,
    with no free nats; the loss then has the value of the divergence, its weights adding
    up to 1. DreamerV3 takes the logits of both from `unimix_logits`.

    Args:
        posterior_logits: Logits of the posterior :math:`q_g`, of G variables,
            shape `[G, A]`.
        prior_logits: Logits of the prior :math:`p_g`, shape `[G, A]`.
        free_nats: Bound :math:`f`, at least 0, shape `[]`.
        dynamics_weight: Weight :math:`β_dyn` of the term that teaches the prior, at
            least 0, shape `[]`.
        representation_weight: Weight :math:`β_rep` of the term that teaches the
            posterior, at least 0, shape `[]`.
        mask: True where a class is possible, for all variables alike, shape `[A]`; or
            for each, shape `[G, A]`; or None if all are.

    Returns:
        A tuple of two: the loss, shape `[]`, and a `BalancedKlOutputs`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if a number is
            negative.

    Example:
        >>> posterior, prior = jnp.log(jnp.eye(2)), jnp.zeros((2, 2))
        >>> loss, outputs = rlaxlib.balanced_kl(posterior, prior, free_nats=2.0)
        >>> print(f"{loss:.4f} {outputs.kl:.4f}")  # Two times log 2 is less than 2.
        2.2000 1.3863

    References:
        Danijar Hafner, Timothy Lillicrap, Mohammad Norouzi and Jimmy Ba, *Mastering
        Atari with Discrete World Models*, algorithm 2, 2020.
        https://arxiv.org/abs/2010.02193

        Danijar Hafner, Jurgis Pasukonis, Jimmy Ba and Timothy Lillicrap, *Mastering
        Diverse Domains through World Models*, 2023. https://arxiv.org/abs/2301.04104
    """
    posterior, prior, free_nats, by_dynamics, by_representation, mask = checks.arrays(
        posterior_logits=(posterior_logits, "float[G, A]"),
        prior_logits=(prior_logits, "float[G, A]"),
        free_nats=(free_nats, "float[]"),
        dynamics_weight=(dynamics_weight, "float[]"),
        representation_weight=(representation_weight, "float[]"),
        mask=(mask, "bool[A] or [G, A] or None"),
    )
    checks.within(
        "[0, inf)",
        free_nats=free_nats,
        dynamics_weight=by_dynamics,
        representation_weight=by_representation,
    )
    (posterior, prior, free_nats, by_dynamics, by_representation), narrow = (
        dtypes.widen(posterior, prior, free_nats, by_dynamics, by_representation)
    )
    still_posterior, still_prior = jax.lax.stop_gradient((posterior, prior))

    def divergence(q: Array, p: Array) -> Array:
        return jnp.sum(categorical_kl_divergence(q, p, mask=mask))

    dynamics = jnp.maximum(divergence(still_posterior, prior), free_nats)
    representation = jnp.maximum(divergence(posterior, still_prior), free_nats)
    loss = by_dynamics * dynamics + by_representation * representation
    kl = divergence(still_posterior, still_prior)
    return narrow((loss, BalancedKlOutputs(dynamics, representation, kl)))
