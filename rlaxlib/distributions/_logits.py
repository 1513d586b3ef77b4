"""The softmax, to the last digit, with actions that are not legal.

An action whose logit is minus infinity is one that cannot be taken, as is one that a
mask leaves out. Where none is left there is no distribution, and all that is asked of
it is 0: so a row of padding adds nothing to a sum, and no NaN to a gradient.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_derivatives import SymbolicZero

from rlaxlib._core import derivatives, indexing, sums

# In place of minus infinity, where it is multiplied: 0 times it is 0.
NEVER = -1e30
# Up to so many actions, `draw` is as fast with the largest logit left on.
_FEW = 10


class Logits(NamedTuple):
    """Logits, and what it takes to normalise them.

    Attributes:
        raw: Logits, minus infinity where an action is not legal, shape `[..., A]`.
        temperature: What they are to be divided by, shape `[]`.
        largest: The largest logit, shape `[..., 1]`.
        shifted: Logits less the largest, over the temperature; minus infinity where an
            action is not legal, shape `[..., A]`.
        weights: Their exponentials, shape `[..., A]`.
        total: Sum of the weights, at least 1, or 0 where no action is legal,
            shape `[..., 1]`.
    """

    raw: Array
    temperature: Array
    largest: Array
    shifted: Array
    weights: Array
    total: Array

    @property
    def none(self) -> Array:
        """Whether no action is legal, `[...]`."""
        return self.total[..., 0] == 0

    @property
    def legal(self) -> Array:
        """Whether an action is legal, `[..., A]`."""
        return self.shifted != -jnp.inf

    @property
    def finite(self) -> Array:
        """The shifted logits, `NEVER` where an action is not legal, `[..., A]`."""
        return _floor(self.shifted, NEVER)

    @property
    def probs(self) -> Array:
        """Probabilities, 0 where an action is not legal, `[..., A]`."""
        return self.weights / _floor(self.total, 1.0)

    @property
    def log_total(self) -> Array:
        """Logarithm of the sum of weights, 0 where no action is legal, `[..., 1]`."""
        return jnp.log(_floor(self.total, 1.0))

    @property
    def entropy(self) -> Array:
        """Entropy, 0 where no action is legal, `[...]`."""
        return _entropy(self.shifted)


def prepare(logits: Array, temperature: Array, mask: Array | None) -> Logits:
    """Take from logits what a softmax needs.

    Args:
        logits: Logits, of at least single precision, shape `[..., A]`.
        temperature: What to divide them by, shape `[]`.
        mask: Whether an action is legal, of the shape of `logits`; or None if all are.

    Returns:
        The logits, prepared.
    """
    logits = _masked(logits, mask)
    largest = _largest(jax.lax.stop_gradient(logits))
    shifted = _scaled(logits - largest, temperature)
    weights = jnp.exp(shifted)
    total = jnp.sum(weights, axis=-1, keepdims=True)
    return Logits(logits, temperature, largest, shifted, weights, total)


def log_prob(
    action: Array,
    logits: Array,
    temperature: Array,
    mask: Array | None,
    *,
    with_value: bool = False,
) -> Array:
    """Return the log-probability of an action.

    The weight of a likely action would drown those of the others. They are summed
    apart, so that what is missing from certainty keeps its digits.

    Args:
        action: Actions, `[...]`.
        logits: Logits, of at least single precision, shape `[..., A]`.
        temperature: What to divide them by, shape `[]`.
        mask: Whether an action is legal, of the shape of `logits`; or None if all are.
        with_value: Whether who differentiates it always needs its value as well.

    Returns:
        Log-probabilities, `[...]`: minus infinity where an action is not legal, and 0
        where none is.
    """
    # Step by step, the derivative shares what the value needs, and is slow without it;
    # but for what fits in one vector.
    stepwise = with_value or logits.shape[-1] <= sums.VECTOR
    found = _log_prob if stepwise else _log_prob_with_slope
    return found(_masked(logits, mask), temperature, action)


def draw(key: Array, logits: Array) -> Array:
    """Draw actions by their logits.

    Among many, XLA would make the noise where it looks for the largest sum, one number
    at a time. With the largest logit taken off before, it takes half the time or less.

    Args:
        key: Random key, `[]`.
        logits: Logits, minus infinity where an action is not legal, `[..., A]`.

    Returns:
        Actions, `[...]`.
    """
    if logits.shape[-1] > _FEW:
        logits = logits - _largest(logits)
    return jax.random.categorical(key, logits)


def over(mask: Array | None, logits: Array) -> Array | None:
    """Return a mask for each logit from one for each action."""
    return None if mask is None else jnp.broadcast_to(mask, logits.shape)


def _masked(logits: Array, mask: Array | None) -> Array:
    """Return logits, minus infinity where an action is not legal."""
    return logits if mask is None else jnp.where(mask, logits, -jnp.inf)


def _largest(logits: Array) -> Array:
    """Return the largest logit, at least `NEVER`, `[..., 1]`.

    To begin at `NEVER`, rather than to compare with it, leaves nothing between this and
    the exponentials that follow: XLA computes all in one go, in half the time.
    """
    least = jnp.full_like(logits, NEVER, shape=())
    largest = jax.lax.reduce(logits, least, jax.lax.max, (logits.ndim - 1,))
    return jnp.expand_dims(largest, -1)


def _taken(action: Array, logits: Array) -> Array:
    """Return a mask of the action among all, `[..., A]`."""
    classes = jax.lax.broadcasted_iota(jnp.int32, logits.shape, logits.ndim - 1)
    return classes == action.astype(jnp.int32)[..., None]


def _log_prob(raw: Array, temperature: Array, action: Array) -> Array:
    """Return the log-probability of an action, differentiable step by step."""
    logits, taken = prepare(raw, temperature, None), _taken(action, raw)
    picked = _pick(raw, action, taken) - logits.largest[..., 0]
    # Left out before the quotient: a select between it and the exponentials is slow.
    gaps = jnp.where(taken, -jnp.inf, raw - logits.largest)
    others = jnp.sum(jnp.exp(_scaled(gaps, temperature)), axis=-1)
    return _normalized(_scaled(picked, temperature), others)


def _normalized(picked: Array, others: Array) -> Array:
    """Return a log-probability from a shifted logit, and the sum of other weights."""
    # Where the weight less 1 would cancel, another action's is 1, and nothing is lost.
    log_probs = picked - jnp.log1p(_floor(others + (jnp.exp(picked) - 1), 0.0))
    none = (picked == -jnp.inf) & (others == 0)
    return jnp.where(none, 0.0, log_probs)


def _log_prob_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    raw, temperature, action = primals
    logits, taken = prepare(raw, temperature, None), _taken(action, raw)
    # All from one set of weights, which their sum and the slope have in common.
    others = jnp.sum(jnp.where(taken, 0.0, logits.weights), axis=-1)
    log_probs = _normalized(indexing.pick(logits.shifted, action), others)
    change = jnp.zeros_like(raw)
    if not isinstance(tangents[0], SymbolicZero):
        change += tangents[0]
    if not isinstance(tangents[1], SymbolicZero):
        change -= _legal_only(logits.shifted) * tangents[1]
    # Two sums, since XLA multiplies the second backwards where it computes the weights.
    grown = jnp.sum(jnp.where(taken, change, 0.0), axis=-1)
    mean = jnp.sum(logits.weights * change, axis=-1)
    grown -= mean / _floor(logits.total, 1.0)[..., 0]
    return log_probs, grown / temperature


_log_prob_with_slope = derivatives.derived(_log_prob_jvp, symbolic_zeros=True)(
    _log_prob
)


def _entropy_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (shifted,), (change,) = primals, tangents
    weights, total, finite, mean = _moments(shifted)
    change = sums.over_last(weights * (finite - mean[..., None]) * change)
    return _entropy(shifted), -change / total


@derivatives.derived(_entropy_jvp)
def _entropy(shifted: Array) -> Array:
    """Return the entropy, whose slope is shorter than that of its steps."""
    _, total, _, mean = _moments(shifted)
    return jnp.log(total) - mean


def _moments(shifted: Array) -> tuple[Array, Array, Array, Array]:
    """Return weights, their sum, the shifted logits, finite, and their mean."""
    weights, finite = jnp.exp(shifted), _floor(shifted, NEVER)
    total = _floor(sums.over_last(weights), 1.0)
    return weights, total, finite, sums.over_last(weights * finite) / total


# --- What is plain but for its derivative, where a weight is 0. ---


def _floor_jvp(
    least: float, primals: tuple[Array], tangents: tuple[Array]
) -> tuple[Array, Array]:
    return _floor(*primals, least), tangents[0]


@derivatives.derived(_floor_jvp, nondiff_argnums=(1,))
def _floor(x: Array, least: float) -> Array:
    """Return the larger of the two, with the derivative of the first."""
    return jnp.maximum(x, least)


def _legal_only(shifted: Array) -> Array:
    """Return shifted logits, 0 where an action is not legal."""
    return jnp.where(shifted == -jnp.inf, 0.0, shifted)


def _pick_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    # Backwards a pick would scatter. All logits have a slope here, so this is sooner.
    change, taken = tangents[0], primals[2]
    change = jnp.sum(jnp.where(taken, change, jnp.zeros_like(change)), axis=-1)
    return _pick(*primals), change


@derivatives.derived(_pick_jvp)
def _pick(logits: Array, action: Array, taken: Array) -> Array:
    """Return the logit of an action, which is also told by a mask."""
    del taken
    return indexing.pick(logits, action)


def _scaled_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    gap, temperature = primals
    quotient = _scaled(gap, temperature)
    change = jnp.zeros_like(quotient)
    if not isinstance(tangents[0], SymbolicZero):
        change = tangents[0] / temperature
    if not isinstance(tangents[1], SymbolicZero):
        change = change - _legal_only(quotient) * (tangents[1] / temperature)
    return quotient, change


@derivatives.derived(_scaled_jvp, symbolic_zeros=True)
def _scaled(gap: Array, temperature: Array) -> Array:
    """Return a quotient whose derivative by the temperature is always finite."""
    return gap / temperature
