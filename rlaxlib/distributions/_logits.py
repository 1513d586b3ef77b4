r"""The softmax, to the last digit, with actions that are not legal.

An action whose logit is minus infinity is one that cannot be taken, as is one that a
mask leaves out. Where none is left there is no distribution, and all that is asked of
it is 0: so a row of padding adds nothing to a sum, and no NaN to a gradient.
"""

from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax import Array

from rlaxlib._core import indexing

# In place of minus infinity: its exponential is 0, and 0 times it is 0 as well.
NEVER = -1e30


class Logits(NamedTuple):
    """Logits, less the largest, and what it takes to normalise them.

    Attributes:
        shifted: Logits less the largest, over the temperature; `NEVER` where an action
            is not legal, shape `[..., A]`.
        weights: Their exponentials, shape `[..., A]`.
        total: Sum of the weights, 0 where no action is legal, shape `[..., 1]`.
        largest: The largest logit, over the temperature, shape `[..., 1]`.
    """

    shifted: Array
    weights: Array
    total: Array
    largest: Array

    @property
    def legal(self) -> Array:
        """Whether an action is legal, `[..., A]`."""
        return self.shifted != NEVER

    @property
    def probs(self) -> Array:
        """Probabilities, 0 where an action is not legal, `[..., A]`."""
        return _probs(self.shifted)

    @property
    def log_total(self) -> Array:
        """Logarithm of the sum of weights, 0 where no action is legal, `[..., 1]`."""
        return jnp.log(_or_one(self.total))

    @property
    def entropy(self) -> Array:
        """Entropy, 0 where no action is legal, `[...]`."""
        mean = jnp.sum(self.probs * self.shifted, axis=-1)
        return self.log_total[..., 0] - mean


def prepare(logits: Array, temperature: Array, mask: Array | None) -> Logits:
    """Take from logits what a softmax needs.

    Args:
        logits: Logits, of at least single precision, shape `[..., A]`.
        temperature: What to divide them by, shape `[]`.
        mask: Whether an action is legal, of the shape of `logits`; or None if all are.

    Returns:
        The logits, prepared.
    """
    if mask is not None:
        logits = jnp.where(mask, logits, -jnp.inf)
    largest = jax.lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True))
    largest = jnp.where(largest == -jnp.inf, 0.0, largest)
    shifted = jnp.maximum(jnp.maximum(logits - largest, NEVER) / temperature, NEVER)
    weights = jnp.exp(shifted)
    total = jnp.sum(weights, axis=-1, keepdims=True)
    return Logits(shifted, weights, total, largest / temperature)


def log_prob(action: Array, logits: Logits) -> Array:
    """Return the log-probability of an action.

    Args:
        action: Actions, `[...]`.
        logits: Prepared logits, `[..., A]`.

    Returns:
        Log-probabilities, `[...]`: minus infinity where an action is not legal, and 0
        where none is.
    """
    picked = indexing.pick(logits.shifted, action)
    log_probs = picked - _log_total(logits.shifted, action)
    log_probs = jnp.where(picked == NEVER, -jnp.inf, log_probs)
    return jnp.where(logits.total[..., 0] == 0, 0.0, log_probs)


def over(mask: Array | None, logits: Array) -> Array | None:
    """Return a mask for each logit from one for each action."""
    return None if mask is None else jnp.broadcast_to(mask, logits.shape)


def _or_one(total: Array) -> Array:
    """Return a sum to divide by, or take the logarithm of."""
    return jnp.where(total == 0, 1.0, total)


# --- With derivatives written out, which are simpler than those of each step. ---


def _softmax(shifted: Array) -> Array:
    """Return the softmax of shifted logits, 0 where no action is legal."""
    weights = jnp.exp(shifted)
    return weights / _or_one(jnp.sum(weights, axis=-1, keepdims=True))


def _softmax_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    probs: Array = _probs(*primals)
    mean = jnp.sum(probs * tangents[0], axis=-1, keepdims=True)
    return probs, probs * (tangents[0] - mean)


def _log_sum(shifted: Array, action: Array) -> Array:
    """Return the logarithm of the sum of weights.

    The weight of a likely action would drown those of the others. They are summed
    apart, so that what is missing from certainty keeps its digits.
    """
    weights = jnp.exp(shifted)
    classes = jax.lax.broadcasted_iota(jnp.int32, weights.shape, weights.ndim - 1)
    taken = classes == action.astype(jnp.int32)[..., None]
    others = jnp.sum(jnp.where(taken, 0.0, weights), axis=-1)
    return jnp.log1p(others + jnp.expm1(indexing.pick(shifted, action)))


def _log_sum_jvp(
    primals: tuple[Array, Array], tangents: tuple[Array, Any]
) -> tuple[Array, Array]:
    probs: Array = _probs(primals[0])
    return _log_total(*primals), jnp.sum(probs * tangents[0], axis=-1)


_probs = cast(Any, jax.custom_jvp)(_softmax)
_probs.defjvp(_softmax_jvp)
_log_total = cast(Any, jax.custom_jvp)(_log_sum)
_log_total.defjvp(_log_sum_jvp)
