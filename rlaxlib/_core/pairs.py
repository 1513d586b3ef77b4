"""Sums over samples, at once or in a loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax import Array

# A batch of 256 with as many float32 entries each needs 16 MiB.
AT_ONCE = 2**14


def sum_over(function: Callable[..., Array], *samples: Array) -> Array:
    """Sum a function of one sample over all samples.

    Few terms are computed at once. A loop over samples, whose terms are recomputed in
    the backward pass, needs no memory for many.

    Args:
        function: A function of one entry of each array, which returns `[N]`.
        *samples: Arrays, shape `[K]`.

    Returns:
        The sum, shape `[N]`.
    """
    all_terms = jax.vmap(function, out_axes=-1)
    if cast(Any, jax.eval_shape)(all_terms, *samples).size <= AT_ONCE:
        return jnp.sum(all_terms(*samples), axis=-1)
    recomputed = cast(Any, jax.checkpoint)(function, prevent_cse=False)

    def add(total: Array, each: tuple[Array, ...]) -> tuple[Array, None]:
        return total + recomputed(*each), None

    # An accelerator launches kernels for each iteration, here for 8 samples at once.
    zeros = jnp.zeros_like(function(*(x[0] for x in samples)))
    total, _ = jax.lax.scan(add, zeros, samples, unroll=8)
    return total
