"""V-MPO: on-policy maximum a posteriori policy optimisation, from advantages.

- `vmpo_loss`: the whole loss, given log-probabilities, advantages and divergences.
- `vmpo_compute_weights_and_temperature_loss`: the E-step alone.

V-MPO has one action a state, so its weights are over the steps of a batch. These
functions take the whole batch at once, of any number of axes. If it is sharded over
devices, `axis_name` gives the results of the whole batch.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rlaxlib._core import devices, indexing, meshes, safe, streams
from rlaxlib._core.gradients import stop_if
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, AxisName, Float
from rlaxlib.policies import _shared
from rlaxlib.policies._mpo import MpoOutputs
from rlaxlib.policies._shared import KlConstraints, LagrangePenalty, Projection

__all__ = ["vmpo_compute_weights_and_temperature_loss", "vmpo_loss"]


@checked
def vmpo_loss(
    sample_log_probs: Float[ArrayLike, "..."],
    advantages: Float[ArrayLike, "..."],
    temperature_constraint: LagrangePenalty,
    kl_constraints: KlConstraints,
    projection_operator: Projection = _shared.positive,
    restarting_weights: Float[ArrayLike, "... in {0, 1}"] | None = None,
    importance_weights: Float[ArrayLike, "... in [0, inf)"] | None = None,
    top_k_fraction: Float[ArrayLike, "in (0, 1]"] = 0.5,
    policy_loss_weight: Float[ArrayLike, ""] = 1.0,
    temperature_loss_weight: Float[ArrayLike, ""] = 1.0,
    kl_loss_weight: Float[ArrayLike, ""] = 1.0,
    alpha_loss_weight: Float[ArrayLike, ""] = 1.0,
    axis_name: AxisName | None = None,
    use_stop_gradient: bool = True,
) -> tuple[Float[Array, "..."], MpoOutputs]:
    """Compute the V-MPO loss of a batch of steps.

    Takes a batch of steps, returns the loss of each step, and its terms.

    ::

        L_t = -N ψ_t log π_θ(a_t) + η (ε_η + log (1/K) ∑_{i ∈ D} e^{Â_i/η})
            + ∑_k [α_k KL_{k,t} + α_k (ε_k - KL_{k,t})],
        ψ_t = e^{Â_t/η} / ∑_{i ∈ D} e^{Â_i/η}

    :math:`D` are the :math:`K` steps of highest advantage, by default half of all
    :math:`N`; the weight :math:`ψ_t` of the others is 0. The mean over the batch is the
    paper's loss. `mpo_loss` describes policies, constraints and dual variables.

    Args:
        sample_log_probs: Log-probabilities :math:`log π_θ(a_t)`, shape `[...]`.
        advantages: Advantages :math:`Â_t`, shape `[...]`. Pass them through
            `jax.lax.stop_gradient`, or the temperature loss trains the critic.
        temperature_constraint: Bound :math:`ε_η` on KL(weights ‖ uniform) in nats, such
            as 0.01, and the parameter of the temperature, a scalar.
        kl_constraints: Pairs of divergences and penalties; may be empty. Divergences
            have the axes of the steps, and a last one if per dimension.
        restarting_weights: Whether to use each time step, in {0, 1}, 0 to ignore it,
            such as the first after a reset, shape `[...]`; or None. Their divergences
            still count.
        importance_weights: Importance weights, in [0, inf), shape `[...]`; or None.
        top_k_fraction: Fraction :math:`K/N` of the valid steps, in (0, 1], shape `[]`.
            K is rounded down, to 1 at least. Ties go to the first in the batch.
        axis_name: Mapped axis name, or names, over which the batch is sharded; or None.
        use_stop_gradient: Whether to stop the gradients of both kinds of weights.
        Other arguments: as `mpo_loss`.

    Returns:
        A tuple of two: the losses of the steps, shape `[...]`, and an `MpoOutputs`.

    Raises:
        ArgumentError: If a shape, dtype or concrete value is wrong, or
            `temperature_constraint` is per dimension.

    Example:
        >>> log_probs, advantages = jnp.zeros(4), jnp.array([-1.0, 3.0, -2.0, 3.0])
        >>> constraint = rlaxlib.LagrangePenalty(2.0, epsilon=0.5)
        >>> loss, outputs = rlaxlib.vmpo_loss(log_probs, advantages, constraint, [])
        >>> print(outputs.normalized_weights, outputs.temperature_loss)
        [0.  0.5 0.  0.5] 4.0

    References:
        H. Francis Song and others, *V-MPO: On-Policy Maximum a Posteriori Policy
        Optimization for Discrete and Continuous Control*, 2020.
        https://arxiv.org/abs/1909.12238
    """
    if importance_weights is None:
        importance_weights = jnp.ones_like(advantages)
    if restarting_weights is None:
        restarting_weights = jnp.ones_like(advantages)
    else:  # Steps to ignore hold anything.
        sample_log_probs = streams.valid(sample_log_probs, restarting_weights != 0)
    temperature_loss, weights, count = vmpo_compute_weights_and_temperature_loss(
        advantages,
        restarting_weights,
        importance_weights,
        temperature_constraint,
        projection_operator,
        top_k_fraction,
        axis_name,
        use_stop_gradient,
    )
    steps = advantages.size * devices.number(axis_name)
    policy_loss = -steps * weights * safe.floored(sample_log_probs)
    kl_loss, alpha_loss = _shared.total_losses(
        kl_constraints, projection_operator, states=("advantages", policy_loss)
    )
    loss = (
        policy_loss_weight * policy_loss
        + temperature_loss_weight * temperature_loss
        + kl_loss_weight * kl_loss
        + alpha_loss_weight * alpha_loss
    )
    terms = temperature_loss, policy_loss, kl_loss, alpha_loss
    return loss, MpoOutputs(*terms, weights, count)


@checked
def vmpo_compute_weights_and_temperature_loss(
    advantages: Float[ArrayLike, "..."],
    restarting_weights: Float[ArrayLike, "... in {0, 1}"],
    importance_weights: Float[ArrayLike, "... in [0, inf)"],
    temperature_constraint: LagrangePenalty,
    projection_operator: Projection,
    top_k_fraction: Float[ArrayLike, "in (0, 1]"],
    axis_name: AxisName | None = None,
    use_stop_gradient: bool = True,
) -> tuple[Float[Array, ""], Float[Array, "..."], Float[Array, ""]]:
    """Compute the weights and the temperature loss of V-MPO's E-step.

    Takes a batch of steps, returns one temperature loss, and the weight of each step.

    ::

        ψ_t = (ρ_t e^{Â_t/η}) / ∑_{i ∈ D} ρ_i e^{Â_i/η},
        L_η = η (ε + log (1/K) ∑_{i ∈ D} ρ_i e^{Â_i/η})

    :math:`D` are the :math:`K` valid steps of highest advantage.

    Args:
        advantages: Advantages :math:`Â_t`, shape `[...]`.
        restarting_weights: Whether to use each time step, in {0, 1}, 0 to ignore it,
            shape `[...]`.
        importance_weights: Importance weights :math:`ρ_t`, in [0, inf), shape `[...]`.
        temperature_constraint: Bound :math:`ε` on KL(weights ‖ uniform) in nats, and
            the parameter of the temperature, a scalar.
        projection_operator: Projection onto positive values, such as `jax.nn.softplus`.
        top_k_fraction: Fraction of the valid steps to weigh, in (0, 1], shape `[]`.
            Their number :math:`K` is rounded down, to 1 at least.
        axis_name: Mapped axis name, or names, over which the batch is sharded; or None.
        use_stop_gradient: Whether to stop the gradients of :math:`ψ_t` and :math:`ρ_t`.

    Returns:
        A tuple of three: the loss, shape `[]`; the weights, which sum to 1, shape
            `[...]`; and :math:`K`, shape `[]`. Without a valid step, all are 0.

    Raises:
        ArgumentError: If a shape, dtype or concrete value is wrong, or
            `temperature_constraint` is per dimension.

    Example:
        >>> constraint = rlaxlib.LagrangePenalty(alpha=2.0, epsilon=0.5)
        >>> e_step = rlaxlib.vmpo_compute_weights_and_temperature_loss
        >>> advantages, valid = jnp.array([[3.0, -1.0, 3.0, 5.0], [1.0, 1.0, 1.0, 0.0]])
        >>> inputs = advantages, valid, jnp.ones(4), constraint, jax.nn.relu
        >>> print(*e_step(*inputs, top_k_fraction=0.75))
        4.0 [0.5 0.  0.5 0. ] 2.0

    References:
        H. Francis Song and others, *V-MPO: On-Policy Maximum a Posteriori Policy
        Optimization for Discrete and Continuous Control*, section 4.1, 2020.
        https://arxiv.org/abs/1909.12238
    """
    chosen = _top_k(top_k_fraction, advantages, restarting_weights, axis_name)
    eta = _shared.temperature(
        "temperature_constraint", temperature_constraint, projection_operator
    )
    rho = jnp.where(chosen, stop_if(use_stop_gradient, importance_weights), 0)
    # Relative to the best one: terms of size Â/η cancel in the gradient by η.
    best = devices.largest(advantages, rho > 0, axis_name)
    advantages = jnp.where(rho > 0, advantages, best)
    raised = rho * jnp.exp(_shared.exponents(advantages, best, eta))
    count = devices.total(jnp.sum(chosen, dtype=raised.dtype), axis_name)
    mass = devices.total(jnp.sum(raised), axis_name)
    log_mean = safe.log(mass / jnp.maximum(count, 1), otherwise=0)
    loss = eta * temperature_constraint.epsilon + best + eta * log_mean
    loss = jnp.where(mass == 0, 0, loss)
    weights = stop_if(use_stop_gradient, safe.divide(raised, mass))
    return loss, weights, count


def _top_k(
    fraction: Array,
    advantages: Array,
    restarting: Array,
    axis_name: AxisName | None,
) -> Array:
    """Return which valid steps have the highest advantages, over all devices."""
    valid = restarting != 0
    number = devices.total(jnp.sum(valid, dtype=fraction.dtype), axis_name)
    count = jnp.maximum(indexing.part(fraction, number), 1)
    here = jax.lax.stop_gradient(advantages)
    here = jnp.where(valid, here, -jnp.inf).reshape(-1)
    order = jnp.argsort(devices.gather(here, axis_name), descending=True)
    chosen = meshes.unsort(order, jnp.arange(order.size) < count.astype(int))
    if axis_name is not None:
        start = jax.lax.axis_index(axis_name) * here.size
        chosen = jax.lax.dynamic_slice_in_dim(chosen, start, here.size)
    return valid & chosen.reshape(advantages.shape)
