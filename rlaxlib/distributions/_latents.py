"""Discrete latents of world models: unimix, straight-through, KL balancing.

The state of a world model consists of categorical variables with A classes each, the
last axis. The posterior is conditioned on the observation, the prior is not.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from rlaxlib._core import safe, streams
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Bool, Float, Key
from rlaxlib.distributions._categorical import categorical_kl_divergence
from rlaxlib.distributions._shared import legal_softmax, uniform

__all__ = [
    "BalancedKlOutputs",
    "balanced_kl",
    "straight_through_sample",
    "unimix_logits",
]


class BalancedKlOutputs(NamedTuple):
    """The parts of the balanced KL loss.

    Attributes:
        dynamics_loss: KL divergence that trains the prior, at least the free nats,
            unweighted, shape `[]`.
        representation_loss: The same for the posterior, shape `[]`.
        kl: KL divergence, without a gradient, shape `[]`.
    """

    dynamics_loss: Float[Array, ""]
    representation_loss: Float[Array, ""]
    kl: Float[Array, ""]


@checked
def unimix_logits(
    logits: Float[ArrayLike, "..., A"],
    mix: Float[ArrayLike, "in [0, 1]"] = 0.01,
    *,
    action_mask: Bool[ArrayLike, "[A] or [..., A]"] | None = None,
) -> Float[Array, "..., A"]:
    """Mix a softmax with the uniform distribution (unimix).

    Takes the logits of all classes, returns logits.

    ::

        ℓ_i = log((1 - ε) p_i + ε / A),   p = softmax(logits)

    Every possible class has a positive probability, so KL divergences are finite. The
    softmax of the results, which are log-probabilities, is the mixture.

    Args:
        logits: Logits, shape `[..., A]`. A class of minus infinity gets its share too.
        mix: Weight :math:`ε`, in [0, 1], shape `[]`; 0.01 in DreamerV3.
        action_mask: True for possible classes, which the uniform distribution is over,
            shape `[A]` or `[..., A]`; or None.

    Returns:
        Log-probabilities, shape `[..., A]`: minus infinity for impossible classes.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> logits = rlaxlib.unimix_logits(jnp.array([0.0, -jnp.inf]), mix=0.5)
        >>> print(jnp.exp(logits))
        [0.75 0.25]

    References:
        Danijar Hafner and others, *Mastering Diverse Domains through World Models*,
        2023. https://arxiv.org/abs/2301.04104
    """
    p = legal_softmax(logits, action_mask)
    u = uniform(streams.filled(action_mask, logits), logits.dtype)
    return safe.log((1 - mix) * p.probs + mix * u)


@checked
def straight_through_sample(
    key: Key[ArrayLike, ""],
    logits: Float[ArrayLike, "..., A"],
    *,
    action_mask: Bool[ArrayLike, "[A] or [..., A]"] | None = None,
) -> Float[Array, "..., A"]:
    """Sample one-hot classes with the straight-through gradient estimator.

    Takes the logits of all classes, returns one class as a one-hot vector.

    ::

        z = e_i,   i ~ p = softmax(logits),   ∂z / ∂logits := ∂p / ∂logits

    The sample has the gradient of the probabilities, biased unless the rest is linear.

    Args:
        key: Random key, shape `[]`.
        logits: Logits, shape `[..., A]`.
        action_mask: True for possible classes, shape `[A]` or `[..., A]`; or None.

    Returns:
        One-hot vectors, shape `[..., A]`, of the classes that `softmax().sample`
        returns for this key; zeros where no class is possible.

    Raises:
        ArgumentError: If a shape or dtype is wrong.

    Example:
        >>> key, logits = jax.random.key(0), jnp.array([-jnp.inf, 0.0])
        >>> print(rlaxlib.straight_through_sample(key, logits))
        [0. 1.]

    References:
        Yoshua Bengio, Nicholas Léonard and Aaron Courville, *Estimating or Propagating
        Gradients Through Stochastic Neurons for Conditional Computation*, 2013.
        https://arxiv.org/abs/1308.3432
    """
    p = legal_softmax(logits, action_mask)
    i = jnp.where(p.any_legal[..., 0], jax.random.categorical(key, p.gaps), -1)
    z = jax.nn.one_hot(i, logits.shape[-1], dtype=logits.dtype)
    return z + (p.probs - jax.lax.stop_gradient(p.probs))  # Exactly one-hot.


@checked
def balanced_kl(
    posterior_logits: Float[ArrayLike, "G, A"],
    prior_logits: Float[ArrayLike, "G, A"],
    free_nats: Float[ArrayLike, "in [0, inf)"] = 1.0,
    dynamics_weight: Float[ArrayLike, "in [0, inf)"] = 1.0,
    representation_weight: Float[ArrayLike, "in [0, inf)"] = 0.1,
    *,
    action_mask: Bool[ArrayLike, "[A] or [G, A]"] | None = None,
) -> tuple[Float[Array, ""], BalancedKlOutputs]:
    """Compute the KL balancing loss of a world model (DreamerV2, DreamerV3).

    Takes the latent variables of one time step, returns one loss, and its parts.

    ::

        L = β_dyn max(f, ∑_g KL(q̄_g ‖ p_g)) + β_rep max(f, ∑_g KL(q_g ‖ p̄_g))

    A bar stops the gradient. The first term, the dynamics loss, trains the prior
    :math:`p` to predict the posterior :math:`q`; the second, the representation loss,
    trains the posterior to be predictable, with a smaller weight. Below :math:`f` free
    nats, for the sum over the variables of one step, a term has no gradient.

    DreamerV3 uses weights of 1 and 0.1 (0.5 and 0.1 in its first version of 2023), one
    free nat, and `unimix_logits` for both distributions. DreamerV2 uses weights of 0.8
    and 0.2, without free nats.

    Args:
        posterior_logits: Logits of the posterior :math:`q_g`, shape `[G, A]`.
        prior_logits: Logits of the prior :math:`p_g`, shape `[G, A]`.
        free_nats: Free nats :math:`f`, in [0, inf), shape `[]`.
        dynamics_weight: Weight :math:`β_dyn` of the dynamics loss, in [0, inf),
            shape `[]`.
        representation_weight: Weight :math:`β_rep`, in [0, inf), shape `[]`.
        action_mask: True for possible classes, shape `[A]` or `[G, A]`; or None.

    Returns:
        A tuple of two: the loss, shape `[]`, and a `BalancedKlOutputs`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> posterior, prior = jnp.log(jnp.eye(2)), jnp.zeros((2, 2))
        >>> loss, outputs = rlaxlib.balanced_kl(posterior, prior, free_nats=2.0)
        >>> print(f"{loss:.4f} {outputs.kl:.4f}")  # The KL, 2 log 2, is less than 2.
        2.2000 1.3863

    References:
        Danijar Hafner and others, *Mastering Atari with Discrete World Models*,
        algorithm 2, 2020. https://arxiv.org/abs/2010.02193

        Danijar Hafner and others, *Mastering Diverse Domains through World Models*,
        2023. https://arxiv.org/abs/2301.04104
    """
    q, p = posterior_logits, prior_logits
    q_stopped, p_stopped = jax.lax.stop_gradient((q, p))

    def kl(q: Array, p: Array) -> Array:
        return jnp.sum(categorical_kl_divergence(q, p, action_mask=action_mask))

    dynamics_loss = jnp.maximum(kl(q_stopped, p), free_nats)
    representation_loss = jnp.maximum(kl(q, p_stopped), free_nats)
    loss = dynamics_weight * dynamics_loss + representation_weight * representation_loss
    terms = dynamics_loss, representation_loss, kl(q_stopped, p_stopped)
    return loss, BalancedKlOutputs(*terms)
