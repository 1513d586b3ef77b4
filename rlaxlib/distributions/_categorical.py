"""Categorical distributions: softmax policies, KL divergences and ratios.

The last axis holds the actions. All axes before it are batch axes, and are kept.

A logit of minus infinity marks an illegal action, as does a false entry of
`action_mask`, and a logit below -5e8, such as -1e9 or the lowest float of a dtype. An
illegal action has probability 0. If no action is legal, so are all probabilities,
log-probabilities, entropies and losses, with a gradient of 0, so that padding adds
nothing to a sum; a ratio is 1, and a sample -1.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from rlaxlib._core import ratios, safe, streams
from rlaxlib._core.functions import FunctionTuple
from rlaxlib._core.legality import legal
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Bool, Float, Int, Key
from rlaxlib.distributions._shared import Function, kl_terms, legal_softmax

__all__ = [
    "ClippedEntropySoftmax",
    "DiscreteDistribution",
    "Softmax",
    "categorical_cross_entropy",
    "categorical_importance_sampling_ratios",
    "categorical_kl_divergence",
    "categorical_sample",
    "clipped_entropy_softmax",
    "softmax",
]


class DiscreteDistribution(FunctionTuple):
    """A distribution over finitely many actions.

    `softmax`, `greedy` and others make one of settings. One can also be made of any
    functions, in the order below.

    Attributes:
        sample: Samples an action from a key and the parameters.
        probs: Returns the probability of each action.
        logprob: Returns the log-probability of an action. It is also called `log_prob`.
        entropy: Returns the entropy, in nats.
        kl: Returns the KL divergence between two distributions; or None.
    """

    _functions = ("sample", "probs", "logprob", "entropy", "kl")

    def __init__(
        self,
        sample: Function,
        probs: Function,
        logprob: Function,
        entropy: Function,
        kl: Function | None,
    ) -> None:
        self.sample, self.probs = sample, probs
        self.logprob = self.log_prob = logprob
        self.entropy, self.kl = entropy, kl


@checked
def softmax(temperature: Float[ArrayLike, "in (0, inf)"] = 1.0) -> Softmax:
    """Create a softmax (Boltzmann) distribution.

    Takes settings, returns a distribution.

    ::

        π(a) = exp(x_a/τ) / ∑_b exp(x_b/τ)

    Its methods are `sample(key, logits)`, `probs(logits)`, `log_prob(sample, logits)`,
    `entropy(logits)` and `kl(p_logits, q_logits)`, with logits :math:`x` of
    shape `[..., A]`. Each takes a keyword `action_mask`, true for legal actions.

    Args:
        temperature: Temperature :math:`τ`, in (0, inf), shape `[]`.

    Returns:
        A `Softmax`.

    Raises:
        ArgumentError: If `temperature` is wrong, or an argument when called.

    Example:
        >>> legal = jnp.array([True, True, False, False])
        >>> print(rlaxlib.softmax().probs(jnp.zeros(4), action_mask=legal))
        [0.5 0.5 0.  0. ]

    References:
        John S. Bridle, *Probabilistic Interpretation of Feedforward Classification
        Network Outputs, with Relationships to Statistical Pattern Recognition*, 1990.
        https://doi.org/10.1007/978-3-642-76153-9_28
    """
    return Softmax(temperature)


@checked
def clipped_entropy_softmax(
    temperature: Float[ArrayLike, "in (0, inf)"] = 1.0,
    entropy_clip: Float[ArrayLike, "in [0, inf)"] = 1.0,
) -> ClippedEntropySoftmax:
    """Create a softmax distribution with clipped entropy.

    Takes settings, returns a distribution.

    ::

        π(a) = exp(x_a/τ) / ∑_b exp(x_b/τ),
        H = min(-∑_a π(a) log π(a), κ log A)

    An entropy bonus then has no gradient once the policy is random enough. The
    methods are those of `softmax`.

    Args:
        temperature: Temperature :math:`τ`, in (0, inf), shape `[]`.
        entropy_clip: Fraction :math:`κ` of the entropy :math:`log A` of A legal
            actions, in [0, inf), shape `[]`. 1 clips nothing.

    Returns:
        A `ClippedEntropySoftmax`.

    Raises:
        ArgumentError: If a setting is wrong, or an argument when called.

    Example:
        >>> policy = rlaxlib.clipped_entropy_softmax(entropy_clip=0.5)
        >>> print(policy.entropy(jnp.zeros(4)).round(4))
        0.6931

    References:
        Ronald J. Williams and Jing Peng, *Function Optimization Using Connectionist
        Reinforcement Learning Algorithms*, 1991.
        https://doi.org/10.1080/09540099108946587
    """
    return ClippedEntropySoftmax(temperature, entropy_clip)


@checked
def categorical_sample(
    key: Key[ArrayLike, ""],
    probs: Float[ArrayLike, "..., A in [0, inf)"],
    *,
    action_mask: Bool[ArrayLike, "[A] or [..., A]"] | None = None,
) -> Int[Array, "..."]:
    r"""Sample from a categorical distribution, given its probabilities.

    Takes the probabilities of all actions, returns one action.

    ::

        P(a = i) = p_i / ∑_j p_j

    Args:
        key: Random key, shape `[]`.
        probs: Probabilities :math:`p`, in [0, inf), shape `[..., A]`. They need not sum
            to 1.
        action_mask: True for legal actions, shape `[A]` or `[..., A]`; or None.

    Returns:
        Actions in [0, A), shape `[...]`; -1 where a probability is infinite, NaN or
        negative, as logits are, or where all are 0.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a NumPy probability out of
            range. For logits, use `softmax().sample`.

    Example:
        >>> print(rlaxlib.categorical_sample(jax.random.key(0), jnp.array([0.0, 1.0])))
        1

    References:
        Chris J. Maddison, Daniel Tarlow and Tom Minka, *A\* Sampling*, 2014.
        https://arxiv.org/abs/1411.0030
    """
    probs = jnp.where(streams.filled(action_mask, probs), probs, 0)
    is_valid = jnp.all((probs >= 0) & jnp.isfinite(probs), axis=-1)
    is_valid &= jnp.any(probs > 0, axis=-1)
    return jnp.where(is_valid, jax.random.categorical(key, jnp.log(probs)), -1)


@checked
def categorical_cross_entropy(
    labels: Float[ArrayLike, "..., A in [0, inf)"],
    logits: Float[ArrayLike, "..., A"],
    *,
    action_mask: Bool[ArrayLike, "[A] or [..., A]"] | None = None,
) -> Float[Array, "..."]:
    """Compute the softmax cross-entropy loss.

    Takes probabilities and logits of all actions, returns one number.

    ::

        L = -∑_i p_i log q_i,   q = softmax(logits)

    It uses the convention 0 log 0 = 0.

    Args:
        labels: Target probabilities :math:`p`, not normalised here, in [0, inf),
            shape `[..., A]`.
        logits: Logits of the prediction :math:`q`, shape `[..., A]`.
        action_mask: True for legal actions, shape `[A]` or `[..., A]`; or None.

    Returns:
        Losses, shape `[...]`; 1e15 times the label of an illegal action, if positive.

    Raises:
        ArgumentError: If a shape or dtype is wrong.

    Example:
        >>> labels, logits = jnp.array([0.0, 1.0]), jnp.array([5.0, 5.0])
        >>> print(rlaxlib.categorical_cross_entropy(labels, logits).round(4))
        0.6931

    References:
        Ian Goodfellow, Yoshua Bengio and Aaron Courville, *Deep Learning*, section
        3.13, 2016. https://www.deeplearningbook.org/contents/prob.html
    """
    if action_mask is not None:
        labels = jnp.where(jnp.broadcast_to(action_mask, labels.shape), labels, 0)
    return -safe.dot(labels, legal_softmax(logits, action_mask).log_probs)


@checked
def categorical_kl_divergence(
    p_logits: Float[ArrayLike, "..., A"],
    q_logits: Float[ArrayLike, "..., A"],
    temperature: Float[ArrayLike, "in (0, inf)"] = 1.0,
    *,
    action_mask: Bool[ArrayLike, "[A] or [..., A]"] | None = None,
) -> Float[Array, "..."]:
    """Compute the KL divergence between two softmax distributions.

    Takes the logits of all actions of two policies, returns one number.

    ::

        KL(p ‖ q) = ∑_i p_i log (p_i / q_i),
        p = softmax(x/τ),   q = softmax(y/τ)

    It is accurate for distributions that hardly differ, and never negative.

    Args:
        p_logits: Logits :math:`x` of the first distribution, shape `[..., A]`.
        q_logits: Logits :math:`y` of the second distribution, shape `[..., A]`.
        temperature: Temperature :math:`τ` of both, in (0, inf), shape `[]`.
        action_mask: True for legal actions, shape `[A]` or `[..., A]`; or None.

    Returns:
        KL divergences in nats, shape `[...]`; about 1e15 times the probability of an
        action that only :math:`q` rules out.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> p_logits, q_logits = jnp.log(jnp.array([[0.5, 0.5], [0.2, 0.8]]))
        >>> print(f"{rlaxlib.categorical_kl_divergence(p_logits, q_logits):.4f}")
        0.2231

    References:
        Solomon Kullback and Richard A. Leibler, *On Information and Sufficiency*, 1951.
        https://doi.org/10.1214/aoms/1177729694
    """
    one = legal_softmax(p_logits, action_mask, temperature)
    other = legal_softmax(q_logits, action_mask, temperature)
    d = (other.gaps - one.gaps) - jnp.log(other.total / one.total)
    terms = kl_terms(one.probs, other.probs, d)
    return jnp.sum(jnp.where(one.any_legal, terms, 0), axis=-1)


@checked
def categorical_importance_sampling_ratios(
    pi_logits_t: Float[ArrayLike, "..., A"],
    mu_logits_t: Float[ArrayLike, "..., A"],
    a_t: Int[ArrayLike, "... in [0, A)"],
    *,
    action_mask: Bool[ArrayLike, "[A] or [..., A]"] | None = None,
) -> Float[Array, "..."]:
    """Compute the importance sampling ratios of two softmax policies.

    Takes the logits of two policies, returns one ratio for each action taken.

    ::

        ρ_t = π_t(a_t) / μ_t(a_t)

    Args:
        pi_logits_t: Logits of the target policy :math:`π`, shape `[..., A]`.
        mu_logits_t: Logits of the behaviour policy :math:`μ`, shape `[..., A]`.
        a_t: Actions taken, in [0, A), shape `[...]`.
        action_mask: True for legal actions, shape `[A]` or `[..., A]`; or None.

    Returns:
        Ratios of at most e⁴⁰, shape `[...]`: 0 where only the target policy rules out
        the action, and 1 where both do.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a NumPy action out of range.

    Example:
        >>> pi_logits_t, mu_logits_t = jnp.log(jnp.array([[0.5, 0.5], [0.25, 0.75]]))
        >>> ratios = rlaxlib.categorical_importance_sampling_ratios
        >>> print(ratios(pi_logits_t, mu_logits_t, 0))
        2.0

    References:
        Doina Precup, Richard S. Sutton and Satinder Singh, *Eligibility Traces for
        Off-Policy Policy Evaluation*, 2000.
        https://scholarworks.umass.edu/cs_faculty_pubs/80
    """
    log_pi = legal_softmax(pi_logits_t, action_mask).log_prob(a_t)
    log_mu = legal_softmax(mu_logits_t, action_mask).log_prob(a_t)
    return ratios.ratio(ratios.log_ratio(log_pi, log_mu))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Softmax(DiscreteDistribution):
    """A softmax distribution, which `softmax` makes.

    Attributes:
        temperature: Temperature, in (0, inf), shape `[]`.
    """

    temperature: Float[ArrayLike, "in (0, inf)"]

    @checked
    def sample(
        self,
        key: Key[ArrayLike, ""],
        logits: Float[ArrayLike, "..., A"],
        action_spec: Any = None,
        *,
        action_mask: Bool[ArrayLike, "[A] or [..., A]"] | None = None,
    ) -> Int[Array, "..."]:
        """Sample an action.

        Args:
            key: Random key, shape `[]`.
            logits: Logits, shape `[..., A]`.
            action_spec: Ignored.
            action_mask: True for legal actions, shape `[A]` or `[..., A]`; or None.

        Returns:
            Actions in [0, A), shape `[...]`; 0 where no action is legal.

        Raises:
            ArgumentError: If a shape or dtype is wrong.
        """
        del action_spec
        pi = legal_softmax(logits, action_mask, self.temperature)
        return jax.random.categorical(key, pi.gaps)

    @checked
    def probs(
        self,
        logits: Float[ArrayLike, "..., A"],
        action_spec: Any = None,
        *,
        action_mask: Bool[ArrayLike, "[A] or [..., A]"] | None = None,
    ) -> Float[Array, "..., A"]:
        """Return the probability of each action.

        Args:
            logits: Logits, shape `[..., A]`.
            action_spec: Ignored.
            action_mask: True for legal actions, shape `[A]` or `[..., A]`; or None.

        Returns:
            Probabilities, shape `[..., A]`; 0 for illegal actions.

        Raises:
            ArgumentError: If a shape or dtype is wrong.
        """
        del action_spec
        return legal_softmax(logits, action_mask, self.temperature).probs

    @checked
    def log_prob(
        self,
        sample: Int[ArrayLike, "[...] or [N, ...] in [0, A)"],
        logits: Float[ArrayLike, "..., A"],
        action_spec: Any = None,
        *,
        action_mask: Bool[ArrayLike, "[A] or [..., A]"] | None = None,
    ) -> Float[Array, "[...] or [N, ...]"]:
        """Return the log-probability of an action.

        Args:
            sample: Actions in [0, A), one for each row of logits, shape `[...]`; or N
                for each, shape `[N, ...]`.
            logits: Logits, shape `[..., A]`.
            action_spec: Ignored.
            action_mask: True for legal actions, shape `[A]` or `[..., A]`; or None.

        Returns:
            Log-probabilities, shape `[...]` or `[N, ...]`: minus infinity for illegal
            actions, 0 where no action is legal.

        Raises:
            ArgumentError: If a shape, dtype or NumPy action is wrong.
        """
        del action_spec
        return legal_softmax(logits, action_mask, self.temperature).log_prob(sample)

    logprob = log_prob

    @checked
    def entropy(
        self,
        logits: Float[ArrayLike, "..., A"],
        *,
        action_mask: Bool[ArrayLike, "[A] or [..., A]"] | None = None,
    ) -> Float[Array, "..."]:
        """Return the entropy.

        Args:
            logits: Logits, shape `[..., A]`.
            action_mask: True for legal actions, shape `[A]` or `[..., A]`; or None.

        Returns:
            Entropies, in nats, shape `[...]`; 0 where no action is legal.

        Raises:
            ArgumentError: If a shape or dtype is wrong.
        """
        return legal_softmax(logits, action_mask, self.temperature).entropy()

    @checked
    def kl(
        self,
        p_logits: Float[ArrayLike, "..., A"],
        q_logits: Float[ArrayLike, "..., A"],
        *,
        action_mask: Bool[ArrayLike, "[A] or [..., A]"] | None = None,
    ) -> Float[Array, "..."]:
        """Return the KL divergence, as `categorical_kl_divergence` does.

        Args:
            p_logits: Logits of the distribution that the expectation is over,
                shape `[..., A]`.
            q_logits: Logits of the other distribution, shape `[..., A]`.
            action_mask: True for legal actions, shape `[A]` or `[..., A]`; or None.

        Returns:
            KL divergences, in nats, shape `[...]`.

        Raises:
            ArgumentError: If a shape or dtype is wrong.
        """
        return categorical_kl_divergence(
            p_logits=p_logits,
            q_logits=q_logits,
            temperature=self.temperature,
            action_mask=action_mask,
        )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ClippedEntropySoftmax(Softmax):
    """A softmax with clipped entropy, which `clipped_entropy_softmax` makes.

    Attributes:
        temperature: Temperature, in (0, inf), shape `[]`.
        entropy_clip: Fraction of the largest entropy, in [0, inf), shape `[]`.
    """

    entropy_clip: Float[ArrayLike, "in [0, inf)"]

    @checked
    def entropy(
        self,
        logits: Float[ArrayLike, "..., A"],
        *,
        action_mask: Bool[ArrayLike, "[A] or [..., A]"] | None = None,
    ) -> Float[Array, "..."]:
        """Return the entropy, clipped at a fraction of the maximum entropy.

        Args:
            logits: Logits, shape `[..., A]`.
            action_mask: True for legal actions, shape `[A]` or `[..., A]`; or None.

        Returns:
            Entropies, in nats, shape `[...]`; 0 where no action is legal.

        Raises:
            ArgumentError: If a shape or dtype is wrong.
        """
        pi = legal_softmax(logits, action_mask, self.temperature)
        n_legal = jnp.sum(legal(pi.logits), axis=-1, dtype=logits.dtype)
        largest = jnp.log(jnp.maximum(n_legal, 1))
        return jnp.minimum(pi.entropy(), self.entropy_clip * largest)
