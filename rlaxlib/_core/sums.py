"""Sum over the last axis, in vectors where a CPU would take one number at a time."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax import Array

from rlaxlib._core import derivatives

_EXACT = jax.lax.Precision.HIGHEST
VECTOR = 8  # Numbers of single precision that most processors take at once.


def over_last(x: Array) -> Array:
    """Return the sum over the last axis.

    A compiler for CPUs computes what is summed inside the sum, one number at a time.
    A product with ones it leaves apart, so that the summands are computed in vectors:
    a divergence of Gaussians takes half the time.

    Args:
        x: Summands, `[..., D]`.

    Returns:
        Sums, `[...]`.
    """
    return jnp.dot(x, jnp.ones_like(x, shape=x.shape[-1:]), precision=_EXACT)


def mean_over_last(x: Array) -> Array:
    """Return the mean over the last axis, `[..., D]` to `[...]`, by such a sum."""
    return over_last(x) / x.shape[-1]


class Shortest(NamedTuple):
    """From how many entries on it is worth it to put ones behind them, measured.

    Attributes:
        run: To run a function.
        differentiated: To differentiate it, whose result is no sum but as long as the
            arguments; or None if it is never worth it.
    """

    run: int
    differentiated: int | None


def _over_last_of_jvp(
    terms: Callable[..., Array],
    shortest: Shortest,
    primals: tuple[Any, ...],
    tangents: tuple[Any, ...],
) -> tuple[Array, Array]:
    total = functools.partial(_total, terms, shortest.differentiated)
    return cast(tuple[Array, Array], jax.jvp(total, primals, tangents))


@derivatives.derived(_over_last_of_jvp, nondiff_argnums=(0, 1))
def over_last_of(
    terms: Callable[..., Array], shortest: Shortest, *arguments: Array
) -> Array:
    """Return the sum over the last axis of what a function makes of each entry.

    What is left over when a row is cut into vectors, a compiler for CPUs computes one
    number at a time, and a row that is short often as a whole. Where the function is
    long, of exponentials and series, that takes up to six times as long. So ones are
    put behind the entries, until there are only vectors, and left out of the sum.

    Args:
        terms: Function of an entry of each argument. Let it stand at module level.
        shortest: From how many entries on that is done.
        *arguments: Arrays, `[..., D]`, the first among them; or scalars.

    Returns:
        Sums, `[...]`.
    """
    size = arguments[0].shape[-1]
    # Of several vectors and one number more, that one is sooner computed alone.
    single = size > 2 * VECTOR and size % VECTOR == 1
    return _total(terms, None if single else shortest.run, *arguments)


def _total(
    terms: Callable[..., Array], shortest: int | None, *arguments: Array
) -> Array:
    """Return that sum, differentiable step by step."""
    size = arguments[0].shape[-1]
    longer = shortest is not None and size >= shortest
    padding = -size % VECTOR if longer else 0
    if padding == 0:
        return over_last(terms(*arguments))
    # A single one would be taken off the loop again, as its last step.
    padding += VECTOR if padding == 1 else 0
    summands = terms(*(_pad(each, padding) for each in arguments))
    given = jnp.arange(size + padding) < size
    return over_last(jnp.where(given, summands, jnp.zeros_like(summands)))


def _pad(x: Array, padding: int) -> Array:
    """Return an array with ones behind the entries of its last axis."""
    if x.ndim == 0:
        return x
    widths = [(0, 0)] * (x.ndim - 1) + [(0, padding)]
    return jnp.pad(x, widths, constant_values=1)
