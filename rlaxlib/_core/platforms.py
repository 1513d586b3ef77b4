"""Ways to compute one thing, of which each suits a platform."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax import Array, lax
from jax.extend import backend


def choose(
    on_cpu: Callable[..., Array], elsewhere: Callable[..., Array], *operands: Any
) -> Array:
    """Return the result of the function that suits the platform of the program.

    Where there is only a CPU, one function is traced.
    """
    if set(backend.backends()) == {"cpu"}:
        return on_cpu(*operands)
    return lax.platform_dependent(*operands, cpu=on_cpu, default=elsewhere)
