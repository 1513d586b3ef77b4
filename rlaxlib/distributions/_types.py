"""What a distribution is: a tuple of functions, which take its parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from jax import Array

__all__ = ["ContinuousDistribution", "DiscreteDistribution"]


class DiscreteDistribution(NamedTuple):
    """A distribution over a number of actions.

    Attributes:
        sample: Draw an action, from a key and the parameters.
        probs: The probability of each action.
        logprob: The logarithm of the probability of an action.
        entropy: How undecided the distribution is.
        kl: How far another is from it, the Kullback-Leibler divergence; or None.
    """

    sample: Callable[..., Array]
    probs: Callable[..., Array]
    logprob: Callable[..., Array]
    entropy: Callable[..., Array]
    kl: Callable[..., Array] | None


class ContinuousDistribution(NamedTuple):
    """A distribution over vectors.

    Attributes:
        sample: Draw a vector, from a key and the parameters.
        prob: The density of a vector.
        logprob: The logarithm of that density.
        entropy: How spread out the distribution is.
        kl_to_standard_normal: How far the standard normal distribution is from it.
        kl: How far another is from it, the Kullback-Leibler divergence.
    """

    sample: Callable[..., Array]
    prob: Callable[..., Array]
    logprob: Callable[..., Array]
    entropy: Callable[..., Array]
    kl_to_standard_normal: Callable[..., Array]
    kl: Callable[..., Array]
