"""The softmax: probabilities that grow with the exponential of a preference."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib._core import checks, dtypes
from rlaxlib.distributions._categorical import categorical_kl_divergence
from rlaxlib.distributions._logits import Logits, log_prob, over, prepare
from rlaxlib.distributions._types import DiscreteDistribution

__all__ = ["clipped_entropy_softmax", "softmax"]


def softmax(temperature: ArrayLike = 1.0) -> DiscreteDistribution:
    """Make a softmax distribution.

    .. math::

        π(a) = exp(x_a/τ) / ∑_b exp(x_b/τ)

    Its functions are `sample(key, logits)`, `probs(logits)`, `logprob(sample, logits)`,
    `entropy(logits)` and `kl(p_logits, q_logits)`, with logits of shape `[..., A]`. All
    of them take a `mask` of legal actions, by keyword. A logit of minus infinity, too,
    marks an action that is not legal. Where none is, all that is asked is 0.

    Args:
        temperature: Temperature :math:`τ`, more than 0: small ones are greedy, large
            ones uniform, shape `[]`.

    Returns:
        A `DiscreteDistribution`.

    Raises:
        ArgumentError: If `temperature` has the wrong shape or is not positive; from its
            functions, if an argument has the wrong shape or dtype.

    Example:
        >>> policy, logits = rlaxlib.softmax(), jnp.zeros(4)
        >>> print(policy.probs(logits))
        [0.25 0.25 0.25 0.25]
        >>> mask = jnp.array([True, True, False, False])
        >>> print(policy.probs(logits, mask=mask), policy.logprob(2, logits, mask=mask))
        [0.5 0.5 0.  0. ] -inf

    References:
        John S. Bridle, *Probabilistic Interpretation of Feedforward Classification
        Network Outputs, with Relationships to Statistical Pattern Recognition*, 1990.
        https://doi.org/10.1007/978-3-642-76153-9_28
    """
    (temperature,) = checks.arrays(temperature=(temperature, "float[]"))
    checks.within("(0, inf)", temperature=temperature)
    each = _Softmax(temperature)
    return DiscreteDistribution(
        each.sample, each.probs, each.logprob, each.entropy, each.kl
    )


def clipped_entropy_softmax(
    temperature: ArrayLike = 1.0, entropy_clip: ArrayLike = 1.0
) -> DiscreteDistribution:
    """Make a softmax distribution whose entropy counts only up to a share of the most.

    .. math::

        π(a) = exp(x_a/τ) / ∑_b exp(x_b/τ),
        H = min(-∑_a π(a) log π(a), κ log A)

    An entropy bonus with this entropy stops pushing where a policy is undecided enough.
    Its functions are those of `softmax`.

    Args:
        temperature: Temperature :math:`τ`, more than 0, shape `[]`.
        entropy_clip: Share :math:`κ` of the largest entropy, that of the uniform
            distribution over the legal actions, at least 0; 1 clips nothing,
            shape `[]`.

    Returns:
        A `DiscreteDistribution`.

    Raises:
        ArgumentError: If an argument has the wrong shape or is out of range; from its
            functions, if an argument has the wrong shape or dtype.

    Example:
        >>> policy = rlaxlib.clipped_entropy_softmax(entropy_clip=0.5)
        >>> print(policy.entropy(jnp.zeros(4)).round(4))
        0.6931

    References:
        Ronald J. Williams and Jing Peng, *Function Optimization Using Connectionist
        Reinforcement Learning Algorithms*, 1991.
        https://doi.org/10.1080/09540099108946587
    """
    temperature, entropy_clip = checks.arrays(
        temperature=(temperature, "float[]"), entropy_clip=(entropy_clip, "float[]")
    )
    checks.within("(0, inf)", temperature=temperature)
    checks.within("[0, inf]", entropy_clip=entropy_clip)
    each = _ClippedEntropySoftmax(temperature, entropy_clip)
    return DiscreteDistribution(
        each.sample, each.probs, each.logprob, each.entropy, each.kl
    )


@dataclasses.dataclass(frozen=True, eq=False)
class _Softmax:
    """The functions of a softmax distribution."""

    temperature: Array
    entropy_clip: Array | None = None

    def sample(
        self,
        key: ArrayLike,
        logits: ArrayLike,
        action_spec: Any = None,
        *,
        mask: ArrayLike | None = None,
    ) -> Array:
        """Draw an action.

        Args:
            key: Random key, shape `[]`.
            logits: Logits, shape `[..., A]`.
            action_spec: Ignored, here so that all distributions can be called alike.
            mask: True where an action is legal, for all rows alike, shape `[A]`; or for
                each, shape `[..., A]`; or None if all are.

        Returns:
            Actions, each in [0, A), shape `[...]`; 0 where none is legal.

        Raises:
            ArgumentError: If an argument has the wrong shape or dtype.
        """
        del action_spec
        key, logits, mask = checks.arrays(
            key=(key, "key[]"),
            logits=(logits, "float[..., A]"),
            mask=(mask, "bool[A] or [..., A] or None"),
        )
        prepared, _ = self._prepare(logits, mask)
        return jax.random.categorical(key, prepared.shifted)

    def probs(
        self,
        logits: ArrayLike,
        action_spec: Any = None,
        *,
        mask: ArrayLike | None = None,
    ) -> Array:
        """Return the probability of each action.

        Args:
            logits: Logits, shape `[..., A]`.
            action_spec: Ignored, here so that all distributions can be called alike.
            mask: True where an action is legal, for all rows alike, shape `[A]`; or for
                each, shape `[..., A]`; or None if all are.

        Returns:
            Probabilities, shape `[..., A]`; 0 where an action is not legal.

        Raises:
            ArgumentError: If an argument has the wrong shape or dtype.
        """
        del action_spec
        logits, mask = checks.arrays(
            logits=(logits, "float[..., A]"),
            mask=(mask, "bool[A] or [..., A] or None"),
        )
        prepared, narrow = self._prepare(logits, mask)
        return narrow(prepared.probs)

    def logprob(
        self,
        sample: ArrayLike,
        logits: ArrayLike,
        action_spec: Any = None,
        *,
        mask: ArrayLike | None = None,
    ) -> Array:
        """Return the logarithm of the probability of an action.

        Args:
            sample: Actions, each in [0, A), one for each row of logits, shape `[...]`;
                or N, shape `[N, ...]`.
            logits: Logits, shape `[..., A]`.
            action_spec: Ignored, here so that all distributions can be called alike.
            mask: True where an action is legal, for all rows alike, shape `[A]`; or for
                each, shape `[..., A]`; or None if all are.

        Returns:
            Log-probabilities, shape `[...]` or `[N, ...]`: minus infinity where the
            action is not legal, 0 where none is.

        Raises:
            ArgumentError: If an argument has the wrong shape or dtype, or if an action
                whose value is known is none of the A.
        """
        del action_spec
        logits, sample, mask = checks.arrays(
            logits=(logits, "float[..., A]"),
            sample=(sample, "int[...] or [N, ...]"),
            mask=(mask, "bool[A] or [..., A] or None"),
        )
        checks.indices(sample=(sample, logits.shape[-1]))
        logits = jnp.broadcast_to(logits, (*sample.shape, logits.shape[-1]))
        (logits, temperature), narrow = dtypes.widen(logits, self.temperature)
        return narrow(log_prob(sample, logits, temperature, over(mask, logits)))

    def entropy(self, logits: ArrayLike, *, mask: ArrayLike | None = None) -> Array:
        """Return the entropy.

        Args:
            logits: Logits, shape `[..., A]`.
            mask: True where an action is legal, for all rows alike, shape `[A]`; or for
                each, shape `[..., A]`; or None if all are.

        Returns:
            Entropies, in nats, shape `[...]`; 0 where no action is legal.

        Raises:
            ArgumentError: If an argument has the wrong shape or dtype.
        """
        logits, mask = checks.arrays(
            logits=(logits, "float[..., A]"),
            mask=(mask, "bool[A] or [..., A] or None"),
        )
        prepared, narrow = self._prepare(logits, mask)
        entropies = prepared.entropy
        if self.entropy_clip is not None:
            legal = jnp.ones_like(logits, bool) if mask is None else mask
            actions = jnp.sum(legal, axis=-1, dtype=entropies.dtype)
            largest = jnp.log(jnp.maximum(actions, 1))
            entropies = jnp.minimum(entropies, self.entropy_clip * largest)
        return narrow(entropies)

    def kl(
        self,
        p_logits: ArrayLike,
        q_logits: ArrayLike,
        *,
        mask: ArrayLike | None = None,
    ) -> Array:
        """Return the divergence of one softmax from another.

        Args:
            p_logits: Logits of the distribution that the expectation is over,
                shape `[..., A]`.
            q_logits: Logits of the other, shape `[..., A]`.
            mask: True where an action is legal, for all rows alike, shape `[A]`; or for
                each, shape `[..., A]`; or None if all are.

        Returns:
            Divergences, in nats, shape `[...]`, as of `categorical_kl_divergence`.

        Raises:
            ArgumentError: If an argument has the wrong shape or dtype.
        """
        p_logits, q_logits, mask = checks.arrays(
            p_logits=(p_logits, "float[..., A]"),
            q_logits=(q_logits, "float[..., A]"),
            mask=(mask, "bool[A] or [..., A] or None"),
        )
        return categorical_kl_divergence(
            p_logits, q_logits, self.temperature, mask=mask
        )

    def _prepare(
        self, logits: Array, mask: Array | None
    ) -> tuple[Logits, Callable[[Any], Any]]:
        """Return prepared logits, and the way back to their dtype."""
        (logits, temperature), narrow = dtypes.widen(logits, self.temperature)
        return prepare(logits, temperature, over(mask, logits)), narrow


class _ClippedEntropySoftmax(_Softmax):
    """The functions of a softmax distribution whose entropy is clipped."""
