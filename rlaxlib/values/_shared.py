"""What the chapters of values share: hat functions, asymmetric losses, traces."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array

from rlaxlib._core import pairs, safe
from rlaxlib._core.indexing import pick


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
    rho: Callable[..., Array], x: Array, tau: Array, y: Array, *parameters: Array
) -> Array:
    """Return the sum over i of the mean over j of |τ_i - 1[y_j < x_i]| ρ(y_j - x_i).

    Args:
        rho: Penalty of an error.
        x: Predictions, shape `[N]`.
        tau: Their fractions, shape `[N]`.
        y: Samples, shape `[K]`.
        *parameters: Further arguments of `rho`.

    Returns:
        Loss, shape `[]`.
    """

    def penalties(y_j: Array) -> Array:
        return safe.asymmetric(y_j - x, tau, lambda u: rho(u, *parameters))

    return jnp.sum(pairs.sum_over(penalties, y)) / y.size


def retrace_coefficients(
    a_t: Array, pi_t: Array, mu_t: Array, lambda_: Array, eps: Array
) -> Array:
    """Return the trace coefficients of Retrace, 0 for actions of neither policy."""
    pi, mu = pick(pi_t, a_t), mu_t + eps
    # `0 / 0` is NaN.
    mu = jnp.where((pi == 0) & (mu == 0), 1, mu)
    return safe.product(lambda_, jnp.minimum(1.0, pi / mu))
