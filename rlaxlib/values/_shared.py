"""What the chapters of values share: sums over samples, hat functions, traces."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from rlaxlib._core import platforms, safe
from rlaxlib._core.indexing import pick

# A batch of 256 with as many float32 entries each needs 16 MiB.
AT_ONCE = 2**14


def hats(z: Array, atoms: Array) -> Array:
    """Return the weights of atoms with which a point is interpolated linearly.

    Args:
        z: A point, `[]`. If it is outside of the atoms, the nearest one has weight 1.
        atoms: Atoms, in ascending order, `[K]`. Of equal ones, one has the weight.

    Returns:
        Weights, of sum 1, `[K]`.
    """
    low, high = atoms[:-1], atoms[1:]
    slope = (z - low) / jnp.where(high == low, 1, high - low)
    ramp = jnp.where(z >= high, 1, jnp.where(z < low, 0, slope))
    # A hat is the difference of a ramp that ends at its atom and one that starts there.
    return jnp.pad(ramp, (1, 0), constant_values=1) - jnp.pad(ramp, (0, 1))


def asymmetric_loss(
    rho: Callable[[Array], Array], x: Array, tau: Array, y: Array
) -> Array:
    """Return the sum over i of the mean over j of |τ_i - 1[y_j < x_i]| ρ(y_j - x_i).

    Args:
        rho: Penalty of an error.
        x: Predictions, shape `[N]`.
        tau: Their fractions, shape `[N]`.
        y: Samples, shape `[K]`.

    Returns:
        Loss, shape `[]`.
    """

    def penalties(y_j: Array) -> Array:
        u = y_j - x
        return jnp.where(u < 0, 1 - tau, tau) * rho(u)

    return jnp.sum(sum_over(penalties, y)) / y.size


def retrace_coefficients(
    a_t: Array, pi_t: Array, mu_t: Array, lambda_: Array, eps: Array
) -> Array:
    """Return the trace coefficients of Retrace, 0 for actions of neither policy."""
    return lambda_ * jnp.minimum(1.0, safe.divide(pick(pi_t, a_t), mu_t + eps))


def sum_over(function: Callable[..., Array], *samples: Array) -> Array:
    """Sum a function of one sample over all samples.

    Few terms are computed at once. For many, a CPU loops over samples, and an
    accelerator, for which XLA fuses the terms with their sum, does not. The backward
    pass computes the terms again, so that they need no memory.

    Args:
        function: A function of one entry of each array, which returns `[N]`.
        *samples: Arrays, shape `[K]`.

    Returns:
        The sum, shape `[N]`.
    """
    all_terms = jax.vmap(function, out_axes=-1)

    def at_once(*samples: Array) -> Array:
        return jnp.sum(all_terms(*samples), axis=-1)

    terms = jax.eval_shape(all_terms, *samples)
    if terms.size <= AT_ONCE:
        return at_once(*samples)
    each_again, all_again = (
        jax.checkpoint(f, prevent_cse=False) for f in (function, at_once)
    )

    def loop(*samples: Array) -> Array:
        def add(total: Array, each: tuple[Array, ...]) -> tuple[Array, None]:
            return total + each_again(*each), None

        zeros = jnp.zeros(terms.shape[:-1], terms.dtype)
        return jax.lax.scan(add, zeros, samples, unroll=8)[0]

    return platforms.choose(loop, all_again, *samples)
