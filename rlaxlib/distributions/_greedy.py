"""Greedy and epsilon-greedy policies."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from rlaxlib._core import checks, indexing, safe, streams
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Bool, Float, Int, Key
from rlaxlib.distributions._categorical import DiscreteDistribution
from rlaxlib.distributions._shared import uniform

__all__ = ["EpsilonGreedy", "Greedy", "epsilon_greedy", "greedy"]


def greedy() -> Greedy:
    """Create a greedy distribution, uniform over the best actions.

    Takes settings, returns a distribution.

    ::

        π(a) = 1[a ∈ B] / |B|,   B = argmax_a x_a

    Its methods are `sample(key, preferences)`, `probs(preferences)`,
    `log_prob(sample, preferences)` and `entropy(preferences)`, with preferences
    :math:`x`, such as action values, of shape `[..., A]`. Each takes a keyword
    `action_mask`, true for legal actions, and returns 0 if no action is legal.

    Returns:
        A `Greedy` distribution, whose `kl` is None.

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
    return Greedy()


@checked
def epsilon_greedy(
    epsilon: Float[ArrayLike, "in [0, 1]"] | None = None,
) -> EpsilonGreedy:
    """Create an epsilon-greedy distribution.

    Takes settings, returns a distribution.

    ::

        π(a) = (1 - ε) 1[a ∈ B] / |B| + ε / A,   B = argmax_a x_a

    Its methods are those of `greedy`, each with one more argument `epsilon`.

    Args:
        epsilon: Probability :math:`ε` of a uniformly random legal action, in [0, 1],
            shape `[]`; or None to give it when called.

    Returns:
        An `EpsilonGreedy` distribution, whose `kl` is None.

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
    return EpsilonGreedy(epsilon)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Greedy(DiscreteDistribution):
    """A greedy distribution, uniform over the best actions, which `greedy` makes."""

    kl = None

    @checked
    def sample(
        self,
        key: Key[ArrayLike, ""],
        preferences: Float[ArrayLike, "..., A"],
        *,
        action_mask: Bool[ArrayLike, "[A] or [..., A]"] | None = None,
    ) -> Int[Array, "..."]:
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
        return _sample(key, _policy(preferences, 0.0, action_mask))

    @checked
    def probs(
        self,
        preferences: Float[ArrayLike, "..., A"],
        *,
        action_mask: Bool[ArrayLike, "[A] or [..., A]"] | None = None,
    ) -> Float[Array, "..., A"]:
        """Return the probability of each action.

        Args:
            preferences: Preferences, such as action values, shape `[..., A]`.
            action_mask: True for legal actions, shape `[A]` or `[..., A]`; or None.

        Returns:
            Probabilities, shape `[..., A]`; 0 for illegal actions.

        Raises:
            ArgumentError: If a shape or dtype is wrong.
        """
        return _policy(preferences, 0.0, action_mask)

    @checked
    def log_prob(
        self,
        sample: Int[ArrayLike, "[...] or [N, ...] in [0, A)"],
        preferences: Float[ArrayLike, "..., A"],
        *,
        action_mask: Bool[ArrayLike, "[A] or [..., A]"] | None = None,
    ) -> Float[Array, "[...] or [N, ...]"]:
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
        return _log_prob(sample, _policy(preferences, 0.0, action_mask))

    logprob = log_prob

    @checked
    def entropy(
        self,
        preferences: Float[ArrayLike, "..., A"],
        *,
        action_mask: Bool[ArrayLike, "[A] or [..., A]"] | None = None,
    ) -> Float[Array, "..."]:
        """Return the entropy.

        Args:
            preferences: Preferences, such as action values, shape `[..., A]`.
            action_mask: True for legal actions, shape `[A]` or `[..., A]`; or None.

        Returns:
            Entropies, in nats, shape `[...]`; 0 where no action is legal.

        Raises:
            ArgumentError: If a shape or dtype is wrong.
        """
        return _entropy(_policy(preferences, 0.0, action_mask))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class EpsilonGreedy(DiscreteDistribution):
    """An epsilon-greedy distribution, which `epsilon_greedy` makes.

    Attributes:
        epsilon: Probability of a random action, in [0, 1], shape `[]`; or None to give
            it when called.
    """

    epsilon: Float[ArrayLike, "in [0, 1]"] | None
    kl = None

    @checked
    def sample(
        self,
        key: Key[ArrayLike, ""],
        preferences: Float[ArrayLike, "..., A"],
        epsilon: Float[ArrayLike, "in [0, 1]"] | None = None,
        *,
        action_mask: Bool[ArrayLike, "[A] or [..., A]"] | None = None,
    ) -> Int[Array, "..."]:
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
        return _sample(key, self._policy(preferences, epsilon, action_mask))

    @checked
    def probs(
        self,
        preferences: Float[ArrayLike, "..., A"],
        epsilon: Float[ArrayLike, "in [0, 1]"] | None = None,
        *,
        action_mask: Bool[ArrayLike, "[A] or [..., A]"] | None = None,
    ) -> Float[Array, "..., A"]:
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
        return self._policy(preferences, epsilon, action_mask)

    @checked
    def log_prob(
        self,
        sample: Int[ArrayLike, "[...] or [N, ...] in [0, A)"],
        preferences: Float[ArrayLike, "..., A"],
        epsilon: Float[ArrayLike, "in [0, 1]"] | None = None,
        *,
        action_mask: Bool[ArrayLike, "[A] or [..., A]"] | None = None,
    ) -> Float[Array, "[...] or [N, ...]"]:
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
        return _log_prob(sample, self._policy(preferences, epsilon, action_mask))

    logprob = log_prob

    @checked
    def entropy(
        self,
        preferences: Float[ArrayLike, "..., A"],
        epsilon: Float[ArrayLike, "in [0, 1]"] | None = None,
        *,
        action_mask: Bool[ArrayLike, "[A] or [..., A]"] | None = None,
    ) -> Float[Array, "..."]:
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
        return _entropy(self._policy(preferences, epsilon, action_mask))

    def _policy(
        self, preferences: Array, epsilon: Array | None, action_mask: Array | None
    ) -> Array:
        """Return the probabilities for the epsilon given, or for its own."""
        if epsilon is None:
            checks.fit(epsilon=(self.epsilon, Float[ArrayLike, ""]))
            epsilon = jnp.asarray(self.epsilon, preferences.dtype)
        return _policy(preferences, epsilon, action_mask)


def _sample(key: Array, probs: Array) -> Array:
    """Sample an action."""
    return jax.random.categorical(key, jnp.log(probs))


def _log_prob(sample: Array, probs: Array) -> Array:
    """Return the log-probability of an action."""
    none_legal = jnp.all(probs == 0, axis=-1, keepdims=True)
    log_probs = jnp.where(none_legal, 0, safe.log(probs))
    shape = (*sample.shape, probs.shape[-1])
    return indexing.pick(jnp.broadcast_to(log_probs, shape), sample)


def _entropy(probs: Array) -> Array:
    """Return the entropy."""
    return -safe.dot(probs, safe.log(probs, 0.0))


def _policy(preferences: Array, epsilon: ArrayLike, action_mask: Array | None) -> Array:
    """Return the epsilon-greedy probabilities, 0 for illegal actions."""
    legal, dtype = streams.filled(action_mask, preferences), preferences.dtype
    x = jnp.where(legal, preferences, -jnp.inf)
    first = jax.nn.one_hot(jnp.argmax(x, axis=-1), x.shape[-1], dtype=bool)
    # XLA of jaxlib 0.10.2 may compute x twice, where its maximum can equal no action.
    best = legal & (first | (x == jnp.max(x, axis=-1, keepdims=True)))
    return (1 - epsilon) * uniform(best, dtype) + epsilon * uniform(legal, dtype)
