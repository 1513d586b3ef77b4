"""Greedy policies: the best action, or now and then any."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib._core import checks, dtypes, indexing
from rlaxlib.distributions._logits import draw, over
from rlaxlib.distributions._types import DiscreteDistribution

__all__ = ["epsilon_greedy", "greedy"]


def greedy() -> DiscreteDistribution:
    """Make a distribution over the best actions.

    .. math::

        π(a) = 1[a ∈ B] / |B|,   B = argmax_a x_a

    Of several that are best, each is as likely. Its functions are
    `sample(key, preferences)`, `probs(preferences)`, `logprob(sample, preferences)` and
    `entropy(preferences)`, with preferences, such as action values, of shape
    `[..., A]`. All of them take a `mask` of legal actions, by keyword. Where none is
    legal, all that is asked is 0.

    Returns:
        A `DiscreteDistribution`, without a divergence.

    Raises:
        ArgumentError: From its functions, if an argument has the wrong shape or dtype.

    Example:
        >>> print(rlaxlib.greedy().probs(jnp.array([1.0, 3.0, 3.0])))
        [0.  0.5 0.5]

    References:
        Richard S. Sutton and Andrew G. Barto, *Reinforcement Learning: An
        Introduction*, second edition, section 2.2, 2018.
        http://incompleteideas.net/book/the-book-2nd.html
    """
    each = _Greedy(0.0)
    return DiscreteDistribution(
        each.sample, each.probs, each.logprob, each.entropy, None
    )


def epsilon_greedy(epsilon: ArrayLike | None = None) -> DiscreteDistribution:
    """Make a distribution over the best actions, and with a small probability any.

    .. math::

        π(a) = (1 - ε) 1[a ∈ B] / |B| + ε / A,   B = argmax_a x_a

    Its functions are those of `greedy`, each with `epsilon` as one more argument, for
    one that changes over time.

    Args:
        epsilon: Probability :math:`ε` of choosing among all legal actions alike, in [0,
            1], shape `[]`; or None to give it at each call.

    Returns:
        A `DiscreteDistribution`, without a divergence.

    Raises:
        ArgumentError: If `epsilon` has the wrong shape or lies outside [0, 1]; from its
            functions, if an argument has the wrong shape or dtype, or if no `epsilon`
            was given.

    Example:
        >>> policy, q = rlaxlib.epsilon_greedy(0.5), jnp.array([1.0, 3.0])
        >>> print(policy.probs(q), policy.probs(q, epsilon=0.0))
        [0.25 0.75] [0. 1.]

    References:
        Richard S. Sutton and Andrew G. Barto, *Reinforcement Learning: An
        Introduction*, second edition, section 2.2, 2018.
        http://incompleteideas.net/book/the-book-2nd.html
    """
    (epsilon,) = checks.arrays(epsilon=(epsilon, "float[] or None"))
    checks.within("[0, 1]", epsilon=epsilon)
    each = _EpsilonGreedy(epsilon)
    return DiscreteDistribution(
        each.sample, each.probs, each.logprob, each.entropy, None
    )


@dataclasses.dataclass(frozen=True, eq=False)
class _EpsilonGreedy:
    """The functions of an epsilon-greedy distribution."""

    epsilon: ArrayLike | None

    def sample(
        self,
        key: ArrayLike,
        preferences: ArrayLike,
        epsilon: ArrayLike | None = None,
        *,
        mask: ArrayLike | None = None,
    ) -> Array:
        """Draw an action.

        Args:
            key: Random key, shape `[]`.
            preferences: What to be greedy for, such as action values, shape `[..., A]`.
            epsilon: Probability of choosing among all, in [0, 1], shape `[]`; or None
                for the one that the distribution was made with.
            mask: True where an action is legal, for all rows alike, shape `[A]`; or for
                each, shape `[..., A]`; or None if all are.

        Returns:
            Actions, each in [0, A), shape `[...]`; 0 where none is legal.

        Raises:
            ArgumentError: If an argument has the wrong shape or dtype, or lies out of
                range, or if no `epsilon` was given.
        """
        key, preferences, epsilon, mask = checks.arrays(
            key=(key, "key[]"),
            preferences=(preferences, "float[..., A]"),
            epsilon=(self._or_mine(epsilon), "float[]"),
            mask=(mask, "bool[A] or [..., A] or None"),
        )
        checks.within("[0, 1]", epsilon=epsilon)
        (preferences, epsilon), _ = dtypes.widen(preferences, epsilon)
        probs = _probs(preferences, epsilon, over(mask, preferences))
        return draw(key, jnp.log(probs))

    def probs(
        self,
        preferences: ArrayLike,
        epsilon: ArrayLike | None = None,
        *,
        mask: ArrayLike | None = None,
    ) -> Array:
        """Return the probability of each action.

        Args:
            preferences: What to be greedy for, such as action values, shape `[..., A]`.
            epsilon: Probability of choosing among all, in [0, 1], shape `[]`; or None
                for the one that the distribution was made with.
            mask: True where an action is legal, for all rows alike, shape `[A]`; or for
                each, shape `[..., A]`; or None if all are.

        Returns:
            Probabilities, shape `[..., A]`; 0 where an action is not legal.

        Raises:
            ArgumentError: If an argument has the wrong shape or dtype, or lies out of
                range, or if no `epsilon` was given.
        """
        preferences, epsilon, mask = checks.arrays(
            preferences=(preferences, "float[..., A]"),
            epsilon=(self._or_mine(epsilon), "float[]"),
            mask=(mask, "bool[A] or [..., A] or None"),
        )
        checks.within("[0, 1]", epsilon=epsilon)
        (preferences, epsilon), narrow = dtypes.widen(preferences, epsilon)
        return narrow(_probs(preferences, epsilon, over(mask, preferences)))

    def logprob(
        self,
        sample: ArrayLike,
        preferences: ArrayLike,
        epsilon: ArrayLike | None = None,
        *,
        mask: ArrayLike | None = None,
    ) -> Array:
        """Return the logarithm of the probability of an action.

        Args:
            sample: Actions, each in [0, A), one for each row of preferences,
                shape `[...]`; or N, shape `[N, ...]`.
            preferences: What to be greedy for, such as action values, shape `[..., A]`.
            epsilon: Probability of choosing among all, in [0, 1], shape `[]`; or None
                for the one that the distribution was made with.
            mask: True where an action is legal, for all rows alike, shape `[A]`; or for
                each, shape `[..., A]`; or None if all are.

        Returns:
            Log-probabilities, shape `[...]` or `[N, ...]`: minus infinity where the
            action is never taken, 0 where none is legal.

        Raises:
            ArgumentError: If an argument has the wrong shape or dtype, or lies out of
                range, or if no `epsilon` was given.
        """
        preferences, sample, epsilon, mask = checks.arrays(
            preferences=(preferences, "float[..., A]"),
            sample=(sample, "int[...] or [N, ...]"),
            epsilon=(self._or_mine(epsilon), "float[]"),
            mask=(mask, "bool[A] or [..., A] or None"),
        )
        checks.indices(sample=(sample, preferences.shape[-1]))
        checks.within("[0, 1]", epsilon=epsilon)
        (preferences, epsilon), narrow = dtypes.widen(preferences, epsilon)
        rows = (*sample.shape, preferences.shape[-1])
        preferences = jnp.broadcast_to(preferences, rows)
        mask = over(mask, preferences)
        picked = indexing.pick(_probs(preferences, epsilon, mask), sample)
        if mask is not None:
            picked = jnp.where(jnp.any(mask, axis=-1), picked, 1.0)
        return narrow(jnp.log(picked))

    def entropy(
        self,
        preferences: ArrayLike,
        epsilon: ArrayLike | None = None,
        *,
        mask: ArrayLike | None = None,
    ) -> Array:
        """Return the entropy.

        Args:
            preferences: What to be greedy for, such as action values, shape `[..., A]`.
            epsilon: Probability of choosing among all, in [0, 1], shape `[]`; or None
                for the one that the distribution was made with.
            mask: True where an action is legal, for all rows alike, shape `[A]`; or for
                each, shape `[..., A]`; or None if all are.

        Returns:
            Entropies, in nats, shape `[...]`; 0 where no action is legal.

        Raises:
            ArgumentError: If an argument has the wrong shape or dtype, or lies out of
                range, or if no `epsilon` was given.
        """
        preferences, epsilon, mask = checks.arrays(
            preferences=(preferences, "float[..., A]"),
            epsilon=(self._or_mine(epsilon), "float[]"),
            mask=(mask, "bool[A] or [..., A] or None"),
        )
        checks.within("[0, 1]", epsilon=epsilon)
        (preferences, epsilon), narrow = dtypes.widen(preferences, epsilon)
        probs = _probs(preferences, epsilon, over(mask, preferences))
        logs = jnp.log(jnp.where(probs > 0, probs, 1.0))
        return narrow(0 - jnp.sum(probs * logs, axis=-1))

    def _or_mine(self, epsilon: ArrayLike | None) -> ArrayLike | None:
        """Return the probability given, or else the one this was made with."""
        return self.epsilon if epsilon is None else epsilon


class _Greedy(_EpsilonGreedy):
    """The functions of a greedy distribution, whose epsilon is 0."""


def _probs(preferences: Array, epsilon: Array, mask: Array | None) -> Array:
    """Share the probability out among the best actions, and a little among all."""
    if mask is None:
        best = preferences == jnp.max(preferences, axis=-1, keepdims=True)
        any_action = epsilon / preferences.shape[-1]
        missing = False
    else:
        largest = jnp.max(
            preferences, axis=-1, keepdims=True, initial=-jnp.inf, where=mask
        )
        best, legal = mask & (preferences == largest), _count(mask, preferences)
        any_action = jnp.where(mask, epsilon / jnp.maximum(legal, 1), 0.0)
        missing = legal == 0
    count = _count(best, preferences)
    # Where none is best although one is legal, preferences are not numbers.
    rest = jnp.where((count > 0) | missing, any_action, jnp.nan)
    return jnp.where(best, (1 - epsilon) / jnp.maximum(count, 1) + any_action, rest)


def _count(among: Array, like: Array) -> Array:
    """Count the actions marked: in integers, which is faster."""
    count = jnp.sum(among, axis=-1, keepdims=True, dtype=jnp.int32)
    return count.astype(like.dtype)
