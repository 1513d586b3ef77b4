"""Planning by sampling: the cross-entropy method (CEM) and MPPI.

- `plan_init`: return the first plan.
- `cem_update`: move a plan to the best of its samples.
- `mppi_update`: move a plan to the weighted mean of its samples (MPPI, TD-MPC2).
- `shift_plan`: start the next step from the rest of the plan.

A plan is a Gaussian distribution of sequences of actions. Each iteration samples
sequences, evaluates them in a model, and updates the plan; the agent takes the first
action. Functions plan for one state; use `jax.vmap` for a batch. Plans have no
gradient.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rlaxlib import distributions
from rlaxlib._core import safe
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Float, Static

__all__ = ["PlanState", "cem_update", "mppi_update", "plan_init", "shift_plan"]


class PlanState(NamedTuple):
    """A plan: a Gaussian distribution of the actions of the next T time steps.

    Attributes:
        mean: Mean of each action :math:`μ`, shape `[T, D]`.
        stddev: Standard deviation of each action :math:`σ`, in [0, inf),
            shape `[T, D]`.
    """

    mean: Float[Array, "T, D"]
    stddev: Float[Array, "T, D in [0, inf)"]


@checked
def plan_init(
    num_steps: Static[int, "in [1, inf)"],
    num_dimensions: Static[int, "in [1, inf)"],
    stddev: Float[ArrayLike, "in [0, inf)"] = 1.0,
) -> PlanState:
    """Return a plan of zeros, before the first sample.

    Takes the numbers of steps and dimensions, returns a plan.

    ::

        μ = 0,   σ = σ_0

    Args:
        num_steps: Number :math:`T` of steps, a Python integer in [1, inf).
        num_dimensions: Number :math:`D` of dimensions of an action, a Python integer in
            [1, inf).
        stddev: Standard deviation :math:`σ_0` of each action, in [0, inf), shape `[]`.

    Returns:
        A `PlanState`.

    Raises:
        ArgumentError: If a shape, dtype or concrete value is wrong.

    Example:
        >>> print(rlaxlib.plan_init(2, 1, stddev=0.5).stddev.ravel())
        [0.5 0.5]

    References:
        Kurtland Chua and others, *Deep Reinforcement Learning in a Handful of Trials
        using Probabilistic Dynamics Models*, 2018. https://arxiv.org/abs/1805.12114
    """
    mean = jnp.zeros((num_steps, num_dimensions), stddev.dtype)
    return PlanState(mean, jnp.full_like(mean, stddev))


@checked
def cem_update(
    state: PlanState,
    actions: Float[ArrayLike, "N, T, D"],
    returns: Float[ArrayLike, "N"],
    num_elites: Static[int, "in [1, N]"],
    momentum: Float[ArrayLike, "in [0, 1]"] = 0.0,
    min_stddev: Float[ArrayLike, "in [0, inf)"] = 0.0,
    max_stddev: Float[ArrayLike, "in [min_stddev, inf]"] = jnp.inf,
) -> PlanState:
    """Update a plan by the cross-entropy method (CEM).

    Takes a plan and N samples of it with their returns, returns the next plan.

    ::

        m = (1/K) ∑_{i ∈ elites} a_i,   s² = (1/K) ∑_{i ∈ elites} (a_i - m)²
        μ' = β μ + (1 - β) m,   σ' = clip(β σ + (1 - β) s, σ_min, σ_max)

    The elites are the :math:`K` samples of the highest returns, of which the first of
    equals. One whose model failed has no weight; if all failed, the plan stays. A usual
    plan has 5 iterations, 500 samples and 50 elites. `min_stddev` keeps exploring when
    the elites agree.

    Args:
        state: Plan :math:`μ, σ`, a `PlanState`.
        actions: Sampled sequences of actions :math:`a_i`, shape `[N, T, D]`.
        returns: Return of each sequence in the model, shape `[N]`; minus infinity if
            the model failed.
        num_elites: Number :math:`K` of elites, a Python integer in [1, N].
        momentum: Weight :math:`β` of the old plan, in [0, 1], shape `[]`.
        min_stddev: Least standard deviation :math:`σ_min`, in [0, inf), shape `[]`.
        max_stddev: Greatest standard deviation :math:`σ_max`, in [`min_stddev`, inf],
            shape `[]`.

    Returns:
        The next plan, a `PlanState`, without a gradient.

    Raises:
        ArgumentError: If a shape, dtype, integer or concrete value is wrong.

    Example:
        >>> state = rlaxlib.plan_init(1, 1)
        >>> actions = jnp.array([[[1.0]], [[3.0]], [[9.0]]])
        >>> state = rlaxlib.cem_update(state, actions, jnp.array([5.0, 4.0, 0.0]), 2)
        >>> print(state.mean, state.stddev)
        [[2.]] [[1.]]

    References:
        Pieter-Tjerk de Boer and others, *A Tutorial on the Cross-Entropy Method*, 2005.
        https://doi.org/10.1007/s10479-005-5724-z

        Kurtland Chua and others, *Deep Reinforcement Learning in a Handful of Trials
        using Probabilistic Dynamics Models*, 2018. https://arxiv.org/abs/1805.12114
    """
    elites = _best(returns, num_elites)
    succeeded = (returns[elites] > -jnp.inf).astype(returns.dtype)
    weights = succeeded / jnp.maximum(jnp.sum(succeeded), 1)
    plan = _fit(state, actions[elites], weights)
    return _mix(state, plan, momentum, min_stddev, max_stddev)


@checked
def mppi_update(
    state: PlanState,
    actions: Float[ArrayLike, "N, T, D"],
    returns: Float[ArrayLike, "N"],
    temperature: Float[ArrayLike, "in (0, inf)"] = 2.0,
    num_elites: Static[int, "in [1, N]"] | None = None,
    momentum: Float[ArrayLike, "in [0, 1]"] = 0.0,
    min_stddev: Float[ArrayLike, "in [0, inf)"] = 0.0,
    max_stddev: Float[ArrayLike, "in [min_stddev, inf]"] = jnp.inf,
) -> PlanState:
    """Update a plan by model predictive path integral control (MPPI, TD-MPC2).

    Takes a plan and N samples of it with their returns, returns the next plan.

    ::

        w_i = exp(R_i / τ) / ∑_j exp(R_j / τ)
        m = ∑_i w_i a_i,   s² = ∑_i w_i (a_i - m)²
        μ' = β μ + (1 - β) m,   σ' = clip(β σ + (1 - β) s, σ_min, σ_max)

    If no sample has a return above minus infinity, the plan keeps its mean and standard
    deviation.

    - MPPI: all samples. It keeps the standard deviation: put the one of the old plan
      into the result.
    - TD-MPC2: 6 iterations of 512 samples, 24 of which its policy proposes, 64 elites,
      a horizon of 3, and standard deviations in [0.05, 2]. Its temperature of 0.5 is
      the inverse of :math:`τ`.

    Args:
        returns: Return :math:`R_i` of each in the model, shape `[N]`. Minus infinity
            has weight 0.
        temperature: Temperature :math:`τ`, in (0, inf), in units of the returns,
            shape `[]`.
        num_elites: Number of samples of the highest returns to sum over, a Python
            integer in [1, N]; or None for all.
        Other arguments: as `cem_update`.

    Returns:
        The next plan, a `PlanState`, without a gradient.

    Raises:
        ArgumentError: If a shape, dtype, integer or concrete value is wrong.

    Example:
        >>> state = rlaxlib.PlanState(jnp.zeros((1, 1)), jnp.ones((1, 1)))
        >>> actions = jnp.array([[[0.0]], [[4.0]], [[9.0]]])
        >>> returns = jnp.array([5.0, 5.0, -jnp.inf])
        >>> state = rlaxlib.mppi_update(state, actions, returns)
        >>> print(state.mean, state.stddev)
        [[2.]] [[2.]]

    References:
        Grady Williams, Andrew Aldrich and Evangelos Theodorou, *Model Predictive Path
        Integral Control using Covariance Variable Importance Sampling*, 2015.
        https://arxiv.org/abs/1509.01149

        Nicklas Hansen, Hao Su and Xiaolong Wang, *TD-MPC2: Scalable, Robust World
        Models for Continuous Control*, 2023. https://arxiv.org/abs/2310.16828
    """
    if num_elites is not None:
        elites = _best(returns, num_elites)
        actions, returns = actions[elites], returns[elites]
    best = jnp.max(returns)
    # Relative to the best: a softmax takes large negative logits for illegal actions.
    gaps = returns - safe.floored(best)
    weights = distributions.softmax(temperature).probs(gaps)
    plan = _fit(state, actions, weights)
    return _mix(state, plan, momentum, min_stddev, max_stddev)


@checked
def shift_plan(
    state: PlanState,
    stddev: Float[ArrayLike, "in [0, inf)"],
) -> PlanState:
    """Move a plan on by one time step, to start the next planning from it.

    Takes the plan of one step, returns the plan to start the next step with.

    ::

        μ'_t = μ_{t+1},   μ'_{T-1} = 0,   σ'_t = σ_0

    At the start of an episode, begin with a mean of zeros instead.

    Args:
        state: Plan after its last iteration, a `PlanState`.
        stddev: Initial standard deviation :math:`σ_0` of each step, in [0, inf),
            shape `[]`.

    Returns:
        The first plan of the next time step, a `PlanState`, without a gradient.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value negative.

    Example:
        >>> plan = jnp.array([[1.0], [2.0], [3.0]])
        >>> state = rlaxlib.shift_plan(rlaxlib.PlanState(plan, plan), stddev=2.0)
        >>> print(state.mean.ravel(), state.stddev.ravel())
        [2. 3. 0.] [2. 2. 2.]

    References:
        Nicklas Hansen, Hao Su and Xiaolong Wang, *TD-MPC2: Scalable, Robust World
        Models for Continuous Control*, 2023. https://arxiv.org/abs/2310.16828
    """
    mean = jnp.concatenate([state.mean[1:], jnp.zeros_like(state.mean[:1])])
    return PlanState(*jax.lax.stop_gradient((mean, jnp.full_like(mean, stddev))))


def _best(returns: Array, number: int) -> Array:
    """Return the indices of the samples of the highest returns."""
    return jnp.argsort(-returns)[:number]


def _fit(state: PlanState, actions: Array, weights: Array) -> PlanState:
    """Return the weighted mean and standard deviation of sampled actions.

    Args:
        state: The plan that stays if all samples failed.
        actions: Sequences of actions, `[K, T, D]`.
        weights: Their weights, 0 for those that failed, `[K]`.

    Returns:
        A plan.
    """
    # A failed sample may have actions of NaN, and `0 * NaN` would be NaN.
    actions = jnp.where((weights > 0)[:, None, None], actions, 0)
    # GPUs and TPUs multiply matrices in lower precision by default.
    average = functools.partial(jnp.tensordot, weights, axes=1, precision="highest")
    mean = average(actions)
    variance = average(jnp.square(actions - mean[None]))
    plan = PlanState(mean, jnp.sqrt(variance))
    is_any = jnp.max(weights) > 0
    return jax.tree.map(functools.partial(jnp.where, is_any), plan, state)


def _mix(
    old: PlanState, new: PlanState, momentum: Array, low: Array, high: Array
) -> PlanState:
    """Average the old and the new plan, and clip the standard deviation."""
    mean, stddev = (
        momentum * x + (1 - momentum) * y for x, y in zip(old, new, strict=True)
    )
    return jax.lax.stop_gradient(PlanState(mean, jnp.clip(stddev, low, high)))
