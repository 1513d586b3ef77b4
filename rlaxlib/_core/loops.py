"""Compute again what a faster way did not find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

Result = TypeVar("Result")


def again_unless(
    found: Array, result: Result, compute: Callable[[Array], Result], x: Array
) -> Result:
    """Return a result, or compute it in a way that always finds it.

    Args:
        found: Whether the result is right, shape `[]`.
        result: What the faster way found, a tree of arrays.
        compute: The other way, a function of `x` whose results are of the same shapes.
        x: What the result is of.

    Returns:
        The result. Of a batch, those that are right stay as they are; if one is not,
        the time is that of computing all.
    """

    # A loop of one round or none, and not a branch: of a batch, a branch runs both. Its
    # round must depend on its state, or else XLA runs it before it asks.
    def again(state: Any) -> tuple[Array, Result]:
        asked = jnp.where(state[0], jnp.zeros_like(x), x)
        return jnp.ones_like(state[0]), compute(asked)

    return jax.lax.while_loop(lambda state: ~state[0], again, (found, result))[1]
