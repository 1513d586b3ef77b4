r"""The softmax, to the last digit, with actions that are not legal.

An action whose logit is minus infinity is one that cannot be taken, as is one that a
mask leaves out. Where none is left there is no distribution, and all that is asked of
it is 0: so a row of padding adds nothing to a sum, and no NaN to a gradient.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from rlaxlib._core import indexing


class Logits(NamedTuple):
    """Normalised logits.

    Attributes:
        log_probs: Logarithms of the probabilities, 0 where an action is not legal,
            shape `[..., A]`.
        probs: Probabilities, shape `[..., A]`.
        legal: Whether an action is legal, shape `[..., A]`.
    """

    log_probs: Array
    probs: Array
    legal: Array


def normalize(logits: Array, temperature: Array, mask: Array | None) -> Logits:
    """Return what a softmax makes of logits.

    Args:
        logits: Logits, of at least single precision, shape `[..., A]`.
        temperature: What to divide them by, shape `[]`.
        mask: Whether an action is legal, of the shape of `logits`; or None if all are.

    Returns:
        The logits, normalised.
    """
    legal = logits != -jnp.inf
    if mask is not None:
        legal &= mask
    largest = jax.lax.stop_gradient(
        jnp.max(logits, axis=-1, keepdims=True, initial=-jnp.inf, where=legal)
    )
    largest = jnp.where(largest == -jnp.inf, jnp.zeros_like(largest), largest)
    shifted = (jnp.where(legal, logits, largest) - largest) / temperature
    weights = jnp.where(legal, jnp.exp(shifted), jnp.zeros_like(shifted))
    # The sum of all weights, less 1: what is left of a certain action's competitors
    # would be lost beside its own weight.
    top = legal & (shifted == 0)
    others = weights - top.astype(weights.dtype)
    ties = jnp.sum(top, axis=-1, keepdims=True, dtype=weights.dtype)
    rest = jnp.sum(others, axis=-1, keepdims=True) + (ties - 1)
    rest = jnp.where(ties == 0, jnp.zeros_like(rest), rest)
    log_probs = shifted - jnp.log1p(rest)
    return Logits(
        jnp.where(legal, log_probs, jnp.zeros_like(log_probs)),
        weights / (1 + rest),
        legal,
    )


def log_prob(action: Array, logits: Logits) -> Array:
    """Return the log-probability of an action.

    Args:
        action: Actions, `[...]`.
        logits: Normalised logits, `[..., A]`.

    Returns:
        Log-probabilities, `[...]`: minus infinity where an action is not legal, and 0
        where none is.
    """
    picked = indexing.pick(logits.log_probs, action)
    illegal = jnp.any(logits.legal, axis=-1) & ~indexing.pick(logits.legal, action)
    return jnp.where(illegal, -jnp.inf, picked)


def entropy(logits: Logits) -> Array:
    """Return the entropy of normalised logits, `[...]`."""
    return 0 - jnp.sum(logits.probs * logits.log_probs, axis=-1)


def over(mask: Array | None, logits: Array) -> Array | None:
    """Return a mask for each logit from one for each action."""
    return None if mask is None else jnp.broadcast_to(mask, logits.shape)


def expm1_less(x: Array) -> Array:
    r"""Return :math:`e^x - 1 - x` with all its digits, however small `x` is."""
    small = jnp.abs(x) < 0.5
    near = jnp.where(small, x, jnp.zeros_like(x))
    far = jnp.where(small, jnp.zeros_like(x), x)
    terms = 7 if jnp.finfo(x.dtype).bits <= 32 else 14
    series = jnp.ones_like(x)  # That of Taylor, less its first two terms.
    for n in range(terms + 1, 2, -1):
        series = 1 + series * near / n
    return jnp.where(small, 0.5 * jnp.square(near) * series, jnp.expm1(far) - far)
