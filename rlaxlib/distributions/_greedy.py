"""Greedy and epsilon-greedy policies."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib._core import checks, indexing
from rlaxlib._core.programs import compiled
from rlaxlib.distributions._categorical import DiscreteDistribution, legal_actions

__all__ = ["epsilon_greedy", "greedy"]


def greedy() -> DiscreteDistribution:
    """Create a greedy distribution, uniform over the best actions.

    Takes settings, returns a named tuple of functions.

    .. math:: π(a) = 1[a ∈ B] / |B|,   B = argmax_a x_a

    Its functions are `sample(key, preferences)`, `probs(preferences)`,
    `logprob(sample, preferences)` and `entropy(preferences)`, with preferences
    :math:`x`, such as action values, of shape `[..., A]`. Each takes a keyword
    `action_mask`, true for legal actions, and returns 0 if no action is legal.

    Returns:
        A `DiscreteDistribution` whose `kl` is None.

    Raises:
        ArgumentError: If a shape, dtype or NumPy action is wrong when called.

    Example:
        >>> print(rlaxlib.greedy().probs(jnp.array([1.0, 3.0, 3.0])))
        [0.  0.5 0.5]

    References:
        Richard S. Sutton and Andrew G. Barto, *Reinforcement Learning: An
        Introduction*, second edition, section 2.2, 2018.
        http://incompleteideas.net/book/the-book-2nd.html
    """
    each = _Greedy()
    return DiscreteDistribution(
        each.sample, each.probs, each.logprob, each.entropy, None
    )


def epsilon_greedy(epsilon: ArrayLike | None = None) -> DiscreteDistribution:
    """Create an epsilon-greedy distribution.

    Takes settings, returns a named tuple of functions.

    .. math:: π(a) = (1 - ε) 1[a ∈ B] / |B| + ε / A,   B = argmax_a x_a

    Its functions are those of `greedy`, each with one more argument `epsilon`.

    Args:
        epsilon: Probability :math:`ε` of a uniformly random legal action, in [0, 1],
            shape `[]`; or None to give it when called.

    Returns:
        A `DiscreteDistribution` whose `kl` is None.

    Raises:
        ArgumentError: If `epsilon` is wrong, or an argument is wrong or missing when
            called.

    Example:
        >>> policy, q = rlaxlib.epsilon_greedy(0.5), jnp.array([1.0, 3.0])
        >>> print(policy.probs(q), policy.probs(q, epsilon=0.0))
        [0.25 0.75] [0. 1.]

    References:
        Richard S. Sutton and Andrew G. Barto, *Reinforcement Learning: An
        Introduction*, second edition, section 2.2, 2018.
        http://incompleteideas.net/book/the-book-2nd.html
    """
    (epsilon,) = checks.arrays(epsilon=(epsilon, "float[] in [0, 1] or None"))
    each = _EpsilonGreedy(epsilon)
    return DiscreteDistribution(
        each.sample, each.probs, each.logprob, each.entropy, None
    )


@dataclasses.dataclass(frozen=True, eq=False)
class _Greedy:
    """The functions of a greedy distribution, where epsilon is 0."""

    def sample(
        self,
        key: ArrayLike,
        preferences: ArrayLike,
        *,
        action_mask: ArrayLike | None = None,
    ) -> Array:
        """Sample an action.

        Args:
            key: Random key, shape `[]`.
            preferences: Preferences, such as action values, shape `[..., A]`.
            action_mask: True for legal actions, shape `[A]` or `[..., A]`; or None.

        Returns:
            Actions in [0, A), shape `[...]`; 0 where no action is legal.

        Raises:
            ArgumentError: If a shape or dtype is wrong.
        """
        return _sample(key, preferences, 0.0, action_mask)

    def probs(
        self, preferences: ArrayLike, *, action_mask: ArrayLike | None = None
    ) -> Array:
        """Return the probability of each action.

        Args:
            preferences: Preferences, such as action values, shape `[..., A]`.
            action_mask: True for legal actions, shape `[A]` or `[..., A]`; or None.

        Returns:
            Probabilities, shape `[..., A]`; 0 for illegal actions.

        Raises:
            ArgumentError: If a shape or dtype is wrong.
        """
        return _probs(preferences, 0.0, action_mask)

    def logprob(
        self,
        sample: ArrayLike,
        preferences: ArrayLike,
        *,
        action_mask: ArrayLike | None = None,
    ) -> Array:
        """Return the log-probability of an action.

        Args:
            sample: Actions in [0, A), one for each row of preferences, shape `[...]`;
                or N for each, shape `[N, ...]`.
            preferences: Preferences, such as action values, shape `[..., A]`.
            action_mask: True for legal actions, shape `[A]` or `[..., A]`; or None.

        Returns:
            Log-probabilities, shape `[...]` or `[N, ...]`: minus infinity for actions
            of probability 0, and 0 where no action is legal.

        Raises:
            ArgumentError: If a shape, dtype or NumPy action is wrong.
        """
        return _logprob(sample, preferences, 0.0, action_mask)

    def entropy(
        self, preferences: ArrayLike, *, action_mask: ArrayLike | None = None
    ) -> Array:
        """Return the entropy.

        Args:
            preferences: Preferences, such as action values, shape `[..., A]`.
            action_mask: True for legal actions, shape `[A]` or `[..., A]`; or None.

        Returns:
            Entropies, in nats, shape `[...]`; 0 where no action is legal.

        Raises:
            ArgumentError: If a shape or dtype is wrong.
        """
        return _entropy(preferences, 0.0, action_mask)


@dataclasses.dataclass(frozen=True, eq=False)
class _EpsilonGreedy:
    """The functions of an epsilon-greedy distribution."""

    epsilon: Array | None

    def sample(
        self,
        key: ArrayLike,
        preferences: ArrayLike,
        epsilon: ArrayLike | None = None,
        *,
        action_mask: ArrayLike | None = None,
    ) -> Array:
        """Sample an action.

        Args:
            key: Random key, shape `[]`.
            preferences: Preferences, such as action values, shape `[..., A]`.
            epsilon: Probability of a random action, in [0, 1], shape `[]`; or None for
                that of `epsilon_greedy`.
            action_mask: True for legal actions, shape `[A]` or `[..., A]`; or None.

        Returns:
            Actions in [0, A), shape `[...]`; 0 where no action is legal.

        Raises:
            ArgumentError: If a shape, dtype or `epsilon` is wrong or missing.
        """
        return _sample(key, preferences, self._or_own(epsilon), action_mask)

    def probs(
        self,
        preferences: ArrayLike,
        epsilon: ArrayLike | None = None,
        *,
        action_mask: ArrayLike | None = None,
    ) -> Array:
        """Return the probability of each action.

        Args:
            preferences: Preferences, such as action values, shape `[..., A]`.
            epsilon: Probability of a random action, in [0, 1], shape `[]`; or None for
                that of `epsilon_greedy`.
            action_mask: True for legal actions, shape `[A]` or `[..., A]`; or None.

        Returns:
            Probabilities, shape `[..., A]`; 0 for illegal actions.

        Raises:
            ArgumentError: If a shape, dtype or `epsilon` is wrong or missing.
        """
        return _probs(preferences, self._or_own(epsilon), action_mask)

    def logprob(
        self,
        sample: ArrayLike,
        preferences: ArrayLike,
        epsilon: ArrayLike | None = None,
        *,
        action_mask: ArrayLike | None = None,
    ) -> Array:
        """Return the log-probability of an action.

        Args:
            sample: Actions in [0, A), one for each row of preferences, shape `[...]`;
                or N for each, shape `[N, ...]`.
            preferences: Preferences, such as action values, shape `[..., A]`.
            epsilon: Probability of a random action, in [0, 1], shape `[]`; or None for
                that of `epsilon_greedy`.
            action_mask: True for legal actions, shape `[A]` or `[..., A]`; or None.

        Returns:
            Log-probabilities, shape `[...]` or `[N, ...]`: minus infinity for actions
            of probability 0, and 0 where no action is legal.

        Raises:
            ArgumentError: If a shape, dtype, NumPy action or `epsilon` is wrong or
                missing.
        """
        return _logprob(sample, preferences, self._or_own(epsilon), action_mask)

    def entropy(
        self,
        preferences: ArrayLike,
        epsilon: ArrayLike | None = None,
        *,
        action_mask: ArrayLike | None = None,
    ) -> Array:
        """Return the entropy.

        Args:
            preferences: Preferences, such as action values, shape `[..., A]`.
            epsilon: Probability of a random action, in [0, 1], shape `[]`; or None for
                that of `epsilon_greedy`.
            action_mask: True for legal actions, shape `[A]` or `[..., A]`; or None.

        Returns:
            Entropies, in nats, shape `[...]`; 0 where no action is legal.

        Raises:
            ArgumentError: If a shape, dtype or `epsilon` is wrong or missing.
        """
        return _entropy(preferences, self._or_own(epsilon), action_mask)

    def _or_own(self, epsilon: ArrayLike | None) -> ArrayLike | None:
        """Return the epsilon given, or else the epsilon of the distribution."""
        return self.epsilon if epsilon is None else epsilon


def _sample(
    key: ArrayLike,
    preferences: ArrayLike,
    epsilon: ArrayLike | None,
    action_mask: ArrayLike | None,
) -> Array:
    """Sample an action."""
    key, preferences, epsilon, action_mask, _ = checks.widened(
        key=(key, "key[]"),
        preferences=(preferences, "float[..., A]"),
        epsilon=(epsilon, "float[] in [0, 1]"),
        action_mask=(action_mask, "bool[A] or [..., A] or None"),
    )
    return jax.random.categorical(
        key, jnp.log(_policy(preferences, epsilon, action_mask))
    )


def _probs(
    preferences: ArrayLike, epsilon: ArrayLike | None, action_mask: ArrayLike | None
) -> Array:
    """Return the probability of each action."""
    preferences, epsilon, action_mask, narrow = checks.widened(
        preferences=(preferences, "float[..., A]"),
        epsilon=(epsilon, "float[] in [0, 1]"),
        action_mask=(action_mask, "bool[A] or [..., A] or None"),
    )
    return narrow(_policy(preferences, epsilon, action_mask))


def _logprob(
    sample: ArrayLike,
    preferences: ArrayLike,
    epsilon: ArrayLike | None,
    action_mask: ArrayLike | None,
) -> Array:
    """Return the log-probability of an action."""
    preferences, sample, epsilon, action_mask, narrow = checks.widened(
        preferences=(preferences, "float[..., A]"),
        sample=(sample, "int[...] or [N, ...] in [0, A)"),
        epsilon=(epsilon, "float[] in [0, 1]"),
        action_mask=(action_mask, "bool[A] or [..., A] or None"),
    )
    probs = _policy(preferences, epsilon, action_mask)
    none_legal = jnp.all(probs == 0, axis=-1, keepdims=True)
    probs = jnp.where(none_legal, 1, probs)  # Their logarithm is 0.
    probs = jnp.broadcast_to(probs, (*sample.shape, probs.shape[-1]))
    return narrow(jnp.log(indexing.pick(probs, sample)))


def _entropy(
    preferences: ArrayLike, epsilon: ArrayLike | None, action_mask: ArrayLike | None
) -> Array:
    """Return the entropy."""
    preferences, epsilon, action_mask, narrow = checks.widened(
        preferences=(preferences, "float[..., A]"),
        epsilon=(epsilon, "float[] in [0, 1]"),
        action_mask=(action_mask, "bool[A] or [..., A] or None"),
    )
    probs = _policy(preferences, epsilon, action_mask)
    log_probs = jnp.log(jnp.where(probs > 0, probs, 1))  # 0 log 0 = 0.
    return narrow(-jnp.sum(probs * log_probs, axis=-1))


@compiled()
def _policy(preferences: Array, epsilon: Array, action_mask: Array | None) -> Array:
    """Return the epsilon-greedy probabilities, 0 for illegal actions."""
    legal, dtype = legal_actions(preferences, action_mask), preferences.dtype
    largest = jnp.max(
        preferences, axis=-1, keepdims=True, where=legal, initial=-jnp.inf
    )
    best = (legal & (preferences == largest)).astype(dtype)
    n_best = jnp.sum(best, axis=-1, keepdims=True)
    n_legal = jnp.sum(legal, axis=-1, keepdims=True, dtype=dtype)
    probs = (1 - epsilon) * best / jnp.maximum(n_best, 1)
    probs = jnp.where(legal, probs + epsilon / jnp.maximum(n_legal, 1), 0)
    # If no legal action is the best, preferences are NaN. XLA may turn 0 / 0 into 0.
    return jnp.where(legal & (n_best == 0), jnp.nan, probs)
