"""Where a stream of experience is cut, and which of its rows are decisions.

A row of a stream is one step: a decision of the agent and what came of it. Two masks
tell what the rows alone cannot:

- `truncated_t` is true where the stream was cut after the row although the episode had
  not ended: a time limit, an automatic reset, the end of a window.
- `sample_mask` is false where a row is no decision: padding, a reset row, a token that
  the environment wrote. An estimate is what it would be if these rows were not there.

A decision is the last before an end if the stream is cut between it and the next
decision, or if there is none.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array


def ends(truncated_t: Array | None, sample_mask: Array | None) -> Array | None:
    """Tell which decisions are the last before the stream is cut.

    Args:
        truncated_t: Whether the stream is cut after each row, bool `[T]`; or None if
            it is nowhere.
        sample_mask: Whether each row is a decision, bool `[T]`; or None if all are.

    Returns:
        A bool for each row, `[T]`, false where the row is no decision; or None if
        there are no masks, and only the last row is an end. Without `sample_mask`,
        what is told of the last row is what `truncated_t` says.
    """
    if sample_mask is None:
        return truncated_t
    rows = jnp.arange(sample_mask.shape[0])
    if truncated_t is None:
        return rows == jnp.max(jnp.where(sample_mask, rows, -1))
    cut = jnp.where(truncated_t, rows, rows.size - 1)
    return sample_mask & (jax.lax.cummin(cut, reverse=True) < following(sample_mask))


def following(sample_mask: Array) -> Array:
    """Return the index of the next decision after each row, or `T` if there is none."""
    steps = sample_mask.shape[0]
    here = jnp.where(sample_mask, jnp.arange(steps), steps)
    return jnp.append(jax.lax.cummin(here, reverse=True)[1:], steps)


def at_following(
    x: Array, truncated_t: Array | None, sample_mask: Array | None
) -> Array:
    """Return what `x` holds at the next decision after each, and 0 before an end.

    Args:
        x: Values, one a row, `[T]`.
        truncated_t: As for `ends`.
        sample_mask: As for `ends`.

    Returns:
        Values, one a row, `[T]`.
    """
    if sample_mask is None:
        later = jnp.append(x[1:], jnp.zeros_like(x[:1]))
    else:
        later = x.at[following(sample_mask)].get(mode="fill", fill_value=0)
    end = ends(truncated_t, sample_mask)
    return later if end is None else jnp.where(end, jnp.zeros_like(later), later)


def decisions(x: Array, sample_mask: Array | None) -> Array:
    """Return `x` with zeros in the rows that are no decisions, whatever stood there.

    Args:
        x: Values, the first axis being time, `[T, ...]`; or any others that a mask
            tells of, whose axes are the first ones of theirs.
        sample_mask: As for `ends`.

    Returns:
        Values, of the shape of `x`.
    """
    if sample_mask is None:
        return x
    mask = sample_mask.reshape(sample_mask.shape + (1,) * (x.ndim - sample_mask.ndim))
    return jnp.where(mask, x, jnp.zeros_like(x))


def clean(sample_mask: Array | None, *arguments: Array) -> tuple[Array, ...]:
    """Put zeros into the rows that are no decisions, whatever stood there.

    A function that computes with its arguments outside the recurrence begins with this:
    else a NaN in a padded row, though no result shows it, comes back in the gradient.

    Args:
        sample_mask: As for `ends`.
        *arguments: Arrays, the first axis being time, `[T, ...]`; or scalars.

    Returns:
        The arguments, in the order given.
    """
    return tuple(
        decisions(each, sample_mask) if each.ndim else each for each in arguments
    )


def gather(x: Array, sample_mask: Array | None) -> Array:
    """Move the decisions of a stream to its front, and put zeros behind them."""
    if sample_mask is None:
        return x
    return jnp.zeros_like(x).at[_ranks(sample_mask)].set(x, mode="drop")


def scatter(x: Array, sample_mask: Array | None) -> Array:
    """Move the decisions from the front of a stream back to where they were."""
    if sample_mask is None:
        return x
    return x.at[_ranks(sample_mask)].get(mode="fill", fill_value=0)


def _ranks(sample_mask: Array) -> Array:
    """Number the decisions from 0 on, and give `T` to all other rows."""
    return jnp.where(sample_mask, jnp.cumsum(sample_mask) - 1, sample_mask.shape[0])
