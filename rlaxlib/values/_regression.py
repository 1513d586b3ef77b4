"""Hold every prediction of a statistic against every sample of what it is about.

Quantiles and expectiles are both what does best where errors up and errors down do not
weigh the same:

.. math::

    L = ∑_i (1/K) ∑_j |τ_i - 1[y_j < x_i]| ρ(y_j - x_i).

They differ in the penalty :math:`ρ`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax import Array

# What an error costs: the error, any of its shape, and a parameter.
Penalty = Callable[[Array, Array], Array]


def asymmetric_loss(
    penalty: Penalty,
    parameter: Array,
    dist_src: Array,
    tau_src: Array,
    dist_target: Array,
) -> Array:
    """Add up what the predictions cost, on average over the samples.

    There are as many pairs as predictions times samples. They never stand in memory at
    once, and neither does anything of them that a derivative would need.

    Args:
        penalty: What an error costs, the same both ways.
        parameter: Given to `penalty`, shape `[]`.
        dist_src: Predictions :math:`x`, shape `[N]`.
        tau_src: Which statistic each is to be, :math:`τ`, shape `[N]`.
        dist_target: Samples :math:`y`, shape `[K]`.

    Returns:
        Loss, shape `[]`.
    """
    return _compiled(penalty, parameter, dist_src, tau_src, dist_target)


def _mean_over_pairs(
    penalty: Penalty,
    parameter: Array,
    dist_src: Array,
    tau_src: Array,
    dist_target: Array,
) -> Array:
    """Return the loss, computed in the way that suits the device."""
    operands = parameter, dist_src, tau_src, dist_target
    loop = functools.partial(_loop, penalty)
    parallel = functools.partial(_parallel, penalty)
    costs = cast(
        Array, jax.lax.platform_dependent(*operands, cpu=loop, default=parallel)
    )
    return jnp.sum(costs) / dist_target.size


# Compiled as one, so that a call outside of jit, too, traces and compiles only once.
_compiled: Callable[..., Array] = jax.jit(
    _mean_over_pairs, static_argnums=0, inline=True
)


def _loop(
    penalty: Penalty,
    parameter: Array,
    dist_src: Array,
    tau_src: Array,
    dist_target: Array,
) -> Array:
    """Return the cost of each prediction, one sample after the other.

    A CPU adds rows to a row with all the width that it has, where it adds up the
    entries of a row one by one.
    """
    cost = _constant_memory(functools.partial(_cost, penalty, parameter))

    def step(costs: Array, sample: Array) -> tuple[Array, None]:
        return costs + cost(dist_src, tau_src, sample), None

    # So that what the loop carries varies over the same devices as what it adds.
    start = jnp.zeros_like(_cost(penalty, parameter, dist_src, tau_src, dist_target[0]))
    costs, _ = jax.lax.scan(step, start, dist_target, unroll=8)
    return costs


def _parallel(
    penalty: Penalty,
    parameter: Array,
    dist_src: Array,
    tau_src: Array,
    dist_target: Array,
) -> Array:
    """Return the cost of each prediction, all pairs at once."""
    cost = _constant_memory(functools.partial(_cost, penalty, parameter))
    return jnp.sum(
        cost(dist_src[None, :], tau_src[None, :], dist_target[:, None]), axis=0
    )


def _cost(
    penalty: Penalty, parameter: Array, prediction: Array, tau: Array, sample: Array
) -> Array:
    error = sample - prediction
    weight = jnp.where(error < 0, 1 - tau, tau)
    return weight * penalty(error, parameter)


def _constant_memory(function: Callable[..., Array]) -> Callable[..., Array]:
    """Let derivatives compute what they need anew, which is little."""
    return cast(Any, jax.checkpoint)(function, prevent_cse=False)
