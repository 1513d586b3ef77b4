"""Ask of categorical distributions: a sample, a divergence, a ratio.

The actions are the last axis. All axes before it are a batch, and come out again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.custom_derivatives import SymbolicZero
from jax.typing import ArrayLike

from rlaxlib._core import checks, derivatives, dtypes, exponentials, sums
from rlaxlib.distributions._logits import NEVER, Logits, draw, log_prob, over, prepare

__all__ = [
    "categorical_cross_entropy",
    "categorical_importance_sampling_ratios",
    "categorical_kl_divergence",
    "categorical_sample",
]


def categorical_sample(
    key: ArrayLike, probs: ArrayLike, *, mask: ArrayLike | None = None
) -> Array:
    r"""Draw an action from given probabilities.

    .. math::

        P(a = i) = p_i / ∑_j p_j

    Args:
        key: Random key, shape `[]`.
        probs: Probabilities, each at least 0; they need not sum to 1,
            shape `[..., A]`.
        mask: True where an action is legal, for all rows alike, shape `[A]`; or for
            each, shape `[..., A]`; or None if all are.

    Returns:
        Actions, each in [0, A), shape `[...]`; or -1 where there is nothing to draw
            from: if a probability is negative, infinite or not a number, or all are 0.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype.

    Example:
        >>> print(rlaxlib.categorical_sample(jax.random.key(0), jnp.array([0.0, 1.0])))
        1

    References:
        Chris J. Maddison, Daniel Tarlow and Tom Minka, *A\* Sampling*, 2014.
        https://arxiv.org/abs/1411.0030
    """
    key, probs, mask = checks.arrays(
        key=(key, "key[]"),
        probs=(probs, "float[..., A]"),
        mask=(mask, "bool[A] or [..., A] or None"),
    )
    (probs,), _ = dtypes.widen(probs)
    if mask is not None:
        legal = jnp.broadcast_to(mask, probs.shape)
        probs = jnp.where(legal, probs, jnp.zeros_like(probs))
    possible = jnp.all((probs >= 0) & jnp.isfinite(probs), axis=-1)
    possible &= jnp.any(probs > 0, axis=-1)
    logits = jnp.log(jnp.where(possible[..., None], probs, 1.0))
    return jnp.where(possible, draw(key, logits), -1)


def categorical_cross_entropy(
    labels: ArrayLike, logits: ArrayLike, *, mask: ArrayLike | None = None
) -> Array:
    """Penalise logits for not being what the labels say.

    .. math::

        L = -∑_i p_i log q_i,   q = softmax(logits).

    Args:
        labels: Target probabilities :math:`p`, taken as they are: they should sum to 1,
            shape `[..., A]`.
        logits: Logits of the prediction, shape `[..., A]`.
        mask: True where an action is legal, for all rows alike, shape `[A]`; or for
            each, shape `[..., A]`; or None if all are. An action that is not must have
            no label.

    Returns:
        Cross-entropies, shape `[...]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype.

    Example:
        >>> labels, logits = jnp.array([0.0, 1.0]), jnp.array([5.0, 5.0])
        >>> print(rlaxlib.categorical_cross_entropy(labels, logits).round(4))
        0.6931

    References:
        Ian Goodfellow, Yoshua Bengio and Aaron Courville, *Deep Learning*, section
        3.13, 2016. https://www.deeplearningbook.org/contents/prob.html
    """
    labels, logits, mask = checks.arrays(
        labels=(labels, "float[..., A]"),
        logits=(logits, "float[..., A]"),
        mask=(mask, "bool[A] or [..., A] or None"),
    )
    (labels, logits), narrow = dtypes.widen(labels, logits)
    q = prepare(logits, jnp.ones_like(logits, shape=()), over(mask, logits))
    # What is sure is left out of the sum of weights, which is 1 and something small.
    top = q.shifted == 0
    sure = jnp.sum(jnp.where(top, q.weights, 0.0), axis=-1, keepdims=True)
    rest = jnp.sum(jnp.where(top, 0.0, q.weights), axis=-1, keepdims=True) + (sure - 1)
    # A label for an action without probability is an infinite surprise, no label none.
    none = rest < 0
    log_q = q.finite - jnp.log1p(jnp.where(none, 0.0, rest))
    losses = jnp.where(q.legal, -labels * log_q, jnp.where(labels > 0, jnp.inf, 0.0))
    return narrow(jnp.sum(jnp.where(none, 0.0, losses), axis=-1))


def categorical_kl_divergence(
    p_logits: ArrayLike,
    q_logits: ArrayLike,
    temperature: ArrayLike = 1.0,
    *,
    mask: ArrayLike | None = None,
) -> Array:
    """Measure how far one softmax is from another, from their logits.

    .. math::

        KL(p ‖ q) = ∑_i p_i log (p_i / q_i),
        p = softmax(x/τ),   q = softmax(y/τ).

    It is right for policies that hardly differ, too, where the sum as it stands is all
    rounding errors, and never negative.

    Args:
        p_logits: Logits :math:`x` of the first distribution, which the expectation is
            over, shape `[..., A]`.
        q_logits: Logits :math:`y` of the second, shape `[..., A]`.
        temperature: Temperature :math:`τ` of both, more than 0, shape `[]`.
        mask: True where an action is legal, for all rows alike, shape `[A]`; or for
            each, shape `[..., A]`; or None if all are.

    Returns:
        Divergences, in nats, shape `[...]`; infinite where the second rules out an
        action that the first does not.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if `temperature`
            is not positive.

    Example:
        >>> p_logits, q_logits = jnp.log(jnp.array([[0.5, 0.5], [0.2, 0.8]]))
        >>> print(f"{rlaxlib.categorical_kl_divergence(p_logits, q_logits):.4f}")
        0.2231

    References:
        Solomon Kullback and Richard A. Leibler, *On Information and Sufficiency*, 1951.
        https://doi.org/10.1214/aoms/1177729694
    """
    p_logits, q_logits, temperature, mask = checks.arrays(
        p_logits=(p_logits, "float[..., A]"),
        q_logits=(q_logits, "float[..., A]"),
        temperature=(temperature, "float[]"),
        mask=(mask, "bool[A] or [..., A] or None"),
    )
    checks.within("(0, inf)", temperature=temperature)
    (p_logits, q_logits, temperature), narrow = dtypes.widen(
        p_logits, q_logits, temperature
    )
    mask = over(mask, p_logits)
    return narrow(_divergence(p_logits, q_logits, temperature, mask))


def categorical_importance_sampling_ratios(
    pi_logits_t: ArrayLike,
    mu_logits_t: ArrayLike,
    a_t: ArrayLike,
    *,
    mask: ArrayLike | None = None,
) -> Array:
    """Compare how likely two policies were to take an action.

    .. math::

        ρ_t = π_t(a_t) / μ_t(a_t)

    Args:
        pi_logits_t: Logits of the target policy :math:`π`, shape `[..., A]`.
        mu_logits_t: Logits of the behaviour policy :math:`μ`, shape `[..., A]`.
        a_t: Actions taken, each in [0, A), shape `[...]`.
        mask: True where an action is legal, for all rows alike, shape `[A]`; or for
            each, shape `[..., A]`; or None if all are.

    Returns:
        Ratios, shape `[...]`: 0 where the target policy rules out the action, and
        infinite where only the behaviour policy does.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, or if an action
            whose value is known is none of the A.

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
    pi_logits_t, mu_logits_t, a_t, mask = checks.arrays(
        pi_logits_t=(pi_logits_t, "float[..., A]"),
        mu_logits_t=(mu_logits_t, "float[..., A]"),
        a_t=(a_t, "int[...]"),
        mask=(mask, "bool[A] or [..., A] or None"),
    )
    checks.indices(a_t=(a_t, pi_logits_t.shape[-1]))
    (pi_logits_t, mu_logits_t), narrow = dtypes.widen(pi_logits_t, mu_logits_t)
    one, mask = jnp.ones_like(pi_logits_t, shape=()), over(mask, pi_logits_t)
    log_pi = log_prob(a_t, pi_logits_t, one, mask, with_value=True)
    log_mu = log_prob(a_t, mu_logits_t, one, mask, with_value=True)
    never = log_pi == -jnp.inf  # Whatever the other policy did.
    return narrow(jnp.exp(log_pi - jnp.where(never, 0.0, log_mu)))


class _Change(NamedTuple):
    """How one softmax becomes another.

    Attributes:
        p: The first, prepared.
        q: The second, prepared.
        mean: What `p` expects logits less the largest to grow by, shape `[..., 1]`.
        log: What each grows by beyond that, `NEVER` or its opposite if only one of the
            two allows it, shape `[..., A]`.
        close: Whether that is close to 0, shape `[..., A]`.
        excess: `exp(log) - 1 - log` where it is, 0 elsewhere, shape `[..., A]`.
    """

    p: Logits
    q: Logits
    mean: Array
    log: Array
    close: Array
    excess: Array


def _compare(
    p_logits: Array, q_logits: Array, temperature: Array, mask: Array | None
) -> _Change:
    """Tell how the softmax of `p_logits` becomes that of `q_logits`."""
    p = prepare(p_logits, temperature, mask)
    q = prepare(q_logits, temperature, mask)
    # Of what is finite: minus infinity less itself is no number. A select by who allows
    # an action takes up to three times as long: XLA keeps that in bytes, LLVM takes 16
    # of them at a time, and of fewer actions computes all in the loop one by one.
    log = jnp.maximum(q.raw, NEVER) - jnp.maximum(p.raw, NEVER)
    log = jnp.clip((log - (q.largest - p.largest)) / temperature, NEVER, -NEVER)
    mean = sums.over_last(p.probs * log)[..., None]
    log -= mean
    close = jnp.abs(log) < 0.5
    small = jnp.where(close, log, jnp.zeros_like(log))
    excess = exponentials.small_excess(small, most=0.5)
    return _Change(p, q, mean, log, close, excess)


def _divergence_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    divergence: Array = _divergence(*primals)
    p, q, _, log, close, excess = _compare(*primals)
    temperature = primals[2]
    by_p = -p.probs * log
    # Probabilities grow by the factor exp(log - divergence).
    known = divergence[..., None]
    gained = p.probs * ((excess + log) * jnp.exp(-known) + jnp.expm1(-known))
    gained = jnp.where(close, gained, q.probs - p.probs)
    by_q = jnp.where(q.legal & ~p.none[..., None], gained, 0.0)
    change = jnp.zeros_like(by_p)
    if not isinstance(tangents[0], SymbolicZero):
        change += by_p * tangents[0]
    if not isinstance(tangents[1], SymbolicZero):
        change += by_q * tangents[1]
    if not isinstance(tangents[2], SymbolicZero):
        change -= (by_p * p.finite + by_q * q.finite) * tangents[2]
    return divergence, sums.over_last(change) / temperature


# Its derivative, written out, is simpler than that of each step.
@derivatives.derived(_divergence_jvp, symbolic_zeros=True)
def _divergence(
    p_logits: Array, q_logits: Array, temperature: Array, mask: Array | None
) -> Array:
    """Return the divergence of one softmax from another, of prepared arguments.

    With d, what the logits grow by, less its mean under p, that is log E_p[exp d], and
    E_p[exp d] is 1 + E_p[exp d - 1 - d]: no term is negative, and where p and q are
    close, each keeps its digits. An error of the mean, by rounding, matters squared.
    """
    p, q, mean, log, close, excess = _compare(p_logits, q_logits, temperature, mask)
    # The largest exponent that follows, if it is positive, is taken out of them all.
    taken = jnp.maximum(-mean - p.log_total, 0.0)
    weights = jnp.exp(-taken) * p.probs
    far = jnp.exp(q.shifted - mean - p.log_total - taken) - weights * (1 + log)
    terms = jnp.where(close, weights * excess, far)
    terms = jnp.where(p.legal & ~q.legal, jnp.inf, terms)
    taken = taken[..., 0]
    divergence = taken + jnp.log1p(jnp.expm1(-taken) + sums.over_last(terms))
    return jnp.where(p.none, 0.0, divergence)
