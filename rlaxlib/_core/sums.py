"""Sums of very many terms, with their rounding error carried on."""

from __future__ import annotations

from jax import Array


def add(total: Array, rest: Array, x: Array) -> tuple[Array, Array]:
    """Add `x` to a number of which `rest` is the rounding error so far.

    Single precision alone rounds away every term of less than 6e-8 of the sum, which
    after millions of terms are all of them.

    Args:
        total: The sum so far, of any shape.
        rest: The exact sum minus `total`, of the same shape.
        x: The term to add, of the same shape.

    Returns:
        The next sum, and its rounding error.
    """
    rounded = total + x
    added = rounded - total
    rest = rest + ((total - (rounded - added)) + (x - added))
    total = rounded + rest
    return total, rest - (total - rounded)
