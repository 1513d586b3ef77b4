"""Improve a policy in two steps, with actions of the old one that are weighed anew.

The E-step finds out how likely a better policy would make each sampled action. The
M-step teaches that to the policy, which is kept from moving far.

Functions here take any number of states at once, one on each position of the leading
axes. All losses are to be minimised, and averaged over the states.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib._core import checks, gradients
from rlaxlib.policies import _constraints, _reweighting
from rlaxlib.policies._constraints import KlConstraints, LagrangePenalty, Projection

__all__ = ["MpoOutputs", "mpo_compute_weights_and_temperature_loss", "mpo_loss"]


class MpoOutputs(NamedTuple):
    """What MPO's and V-MPO's losses are made of.

    Attributes:
        temperature_loss: Loss of the temperature: of each state in MPO, shape `[...]`;
            of all steps in V-MPO, shape `[]`.
        policy_loss: Loss of the policy, without its constraints, shape `[...]`.
        kl_loss: Penalty on how far the policy moves, shape `[...]`.
        alpha_loss: Loss of the dual variables of those constraints, shape `[...]`.
        normalized_weights: Weights of the samples, of the shape that samples have.
        num_samples: Number of samples of each state in MPO; number of steps that have
            weights, over all devices, in V-MPO.
    """

    temperature_loss: Array
    policy_loss: Array
    kl_loss: Array
    alpha_loss: Array
    normalized_weights: Array
    num_samples: Array | int


def mpo_loss(
    sample_log_probs: ArrayLike,
    sample_q_values: ArrayLike,
    temperature_constraint: LagrangePenalty,
    kl_constraints: KlConstraints,
    projection_operator: Projection = _constraints.positive,
    policy_loss_weight: ArrayLike = 1.0,
    temperature_loss_weight: ArrayLike = 1.0,
    kl_loss_weight: ArrayLike = 1.0,
    alpha_loss_weight: ArrayLike = 1.0,
    sample_axis: int = 0,
    use_stop_gradient: bool = True,
) -> tuple[Array, MpoOutputs]:
    """Improve a policy with sampled actions and their values (MPO).

    .. math::

        L = -∑_i w_i log π_θ(a_i) + η (ε_η + log (1/S) ∑_i e^{q_i/η})
            + ∑_k [α_k KL_k + α_k (ε_k - KL_k)],
        w_i = e^{q_i/η} / ∑_j e^{q_j/η}

    Each term has its own parameters, and holds those of the others constant: the first
    and third are for the policy, the second for the temperature :math:`η`, the last for
    the dual variables :math:`α_k`.

    *Which policy is which.* There are two: the policy :math:`π_θ` that learns, and a
    target policy :math:`π_old`, a copy of it from some updates ago. The actions
    :math:`a_i` are sampled from the target policy, and `sample_log_probs` are their
    log-probabilities under the policy that learns. The divergence is
    :math:`KL(π_old ‖ π_θ)`, the target policy first::

        kl = categorical_kl_divergence(target_logits, logits)

    It is 0, and so is its gradient, just when the target policy has been copied. It
    holds the policy back from the next update on, until the next copy, some hundred
    updates later; a target policy copied at every update would never do so.

    *Why there are several constraints.* A Gaussian policy should find better means
    fast, and lose its width slowly, lest it stop exploring. So its divergence comes in
    two, of the mean and of the covariance, with a much smaller bound on the second, say
    0.01 and 0.0001. For each, the target policy lends what is not looked at: the
    divergence is from :math:`N(μ_old, Σ_old)` to :math:`N(μ_θ, Σ_old)`, and to
    :math:`N(μ_old, Σ_θ)`. The log-probabilities of the samples may be taken apart in
    the same way: then give the sum of both. A categorical policy has one divergence,
    and one constraint. `gaussian_mpo_loss` and `categorical_mpo_loss` do all this by
    themselves.

    *How the dual variables stay positive.* `projection_operator` maps the parameters in
    `alpha` to the numbers :math:`η` and :math:`α_k`. The default clips them from below,
    at a bound where their gradient vanishes: put the parameters themselves back above
    it after each update, since one that has stepped over it does not return.
    `jax.nn.softplus` needs no such care.

    Args:
        sample_log_probs: Log-probabilities :math:`log π_θ(a_i)` of the sampled actions,
            the samples on axis `sample_axis`, shape `[...]`.
        sample_q_values: Values :math:`q_i` of these actions, of the same shape,
            shape `[...]`. The temperature's loss has a gradient in them: hold them
            constant if they depend on parameters that learn.
        temperature_constraint: Bound :math:`ε_η` on how far the weights may be from
            even ones, in nats, say 0.1; and the parameter of the temperature, one
            number.
        kl_constraints: Pairs of divergences :math:`KL_k`, of the shape of the samples
            without `sample_axis`, and of their penalties; or none. A penalty that is
            per dimension goes with divergences that have one more axis, the last, and
            bounds each by itself.
        projection_operator: What makes the dual variables positive.
        policy_loss_weight: Weight of the first term, shape `[]`.
        temperature_loss_weight: Weight of the second term, shape `[]`.
        kl_loss_weight: Weight of the third term, shape `[]`.
        alpha_loss_weight: Weight of the last term, shape `[]`.
        sample_axis: Axis of the samples; those before and after it are of states.
        use_stop_gradient: Whether to hold the weights :math:`w_i` constant. What the
            last two terms hold constant they always do: else they would cancel.

    Returns:
        A tuple of two: the losses of the states, shape `[...]` without `sample_axis`,
            and an `MpoOutputs` of what they are made of.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if there are no
            samples, if a bound is negative, or if the projection does not give positive
            numbers.

    Example:
        >>> log_probs, q_values = jnp.log(jnp.array([0.5, 0.5])), jnp.array([1.0, 1.0])
        >>> loss, outputs = rlaxlib.mpo_loss(
        ...     log_probs,
        ...     q_values,
        ...     temperature_constraint=rlaxlib.LagrangePenalty(2.0, epsilon=0.5),
        ...     kl_constraints=[(jnp.array(0.25), rlaxlib.LagrangePenalty(4.0, 0.5))],
        ... )
        >>> print(outputs.normalized_weights, outputs.policy_loss.round(4))
        [0.5 0.5] 0.6931
        >>> print(outputs.temperature_loss, outputs.kl_loss, outputs.alpha_loss)
        2.0 1.0 1.0

    References:
        Abbas Abdolmaleki, Jost Tobias Springenberg, Yuval Tassa, Rémi Munos, Nicolas
        Heess and Martin Riedmiller, *Maximum a Posteriori Policy Optimisation*, 2018.
        https://arxiv.org/abs/1806.06920

        Abbas Abdolmaleki, Jost Tobias Springenberg, Jonas Degrave, Steven Bohez, Yuval
        Tassa, Dan Belov, Nicolas Heess and Martin Riedmiller, *Relative Entropy
        Regularized Policy Iteration*, 2018. https://arxiv.org/abs/1812.02256
    """
    log_probs, q_values, *scales = checks.arrays(
        sample_log_probs=(sample_log_probs, "float[...]"),
        sample_q_values=(sample_q_values, "float[...]"),
        policy_loss_weight=(policy_loss_weight, "float[]"),
        temperature_loss_weight=(temperature_loss_weight, "float[]"),
        kl_loss_weight=(kl_loss_weight, "float[]"),
        alpha_loss_weight=(alpha_loss_weight, "float[]"),
    )
    axis = _check_axis(q_values, sample_axis)
    states = jax.lax.index_in_dim(q_values, 0, axis, keepdims=False)
    constraint = _constraints.check_temperature(temperature_constraint)
    constraints = _constraints.check_constraints(
        kl_constraints, **{"sample_q_values, one sample": states}
    )
    given = log_probs, q_values, scales, constraint, constraints
    wide, narrow = _constraints.widen(given)
    log_probs, q_values, scales, constraint, constraints = wide
    temperature = _constraints.temperature(constraint, projection_operator)
    temperature_loss, weights = e_step(q_values, temperature, constraint, axis)
    weights = gradients.stop_if(use_stop_gradient, weights)
    policy_loss = jnp.sum(_reweighting.weighted(-log_probs, weights), axis=axis)
    total, losses = _constraints.combine(
        temperature_loss, policy_loss, constraints, projection_operator, scales
    )
    return narrow((total, MpoOutputs(*losses, weights, q_values.shape[axis])))


def mpo_compute_weights_and_temperature_loss(
    sample_q_values: ArrayLike,
    temperature_constraint: LagrangePenalty,
    projection_operator: Projection,
    sample_axis: int = 0,
) -> tuple[Array, Array, int]:
    """Weigh sampled actions by their values, and learn how sharply (MPO's E-step).

    .. math::

        w_i = e^{q_i/η} / ∑_j e^{q_j/η},   L_η = η (ε + log (1/S) ∑_i e^{q_i/η})

    Among all policies that are no further than :math:`ε` from the one the actions were
    sampled from, the one with these weights has the highest value, once the temperature
    :math:`η` minimises :math:`L_η`. A high temperature leaves the weights even, a low
    one puts all weight on the best action.

    Args:
        sample_q_values: Values :math:`q_i` of actions sampled from the target policy,
            the samples on axis `sample_axis`, shape `[...]`. An infinite one counts as
            the largest number there is.
        temperature_constraint: Bound :math:`ε` on how far the weights may be from even
            ones, in nats; and the parameter of the temperature, one number.
        projection_operator: What makes the temperature positive, such as
            `jax.nn.softplus`.
        sample_axis: Axis of the samples; those before and after it are of states.

    Returns:
        A tuple of three: the losses of the temperature, one for each state, shape
            `[...]` without `sample_axis`; the weights, which add up to 1 for each
            state, shape `[...]`; and the number of samples of each state. The weights
            have a gradient: hold them constant where they weigh log-probabilities.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if there are no
            samples, if the bound is negative, or if the projection does not give a
            positive number.

    Example:
        >>> loss, weights, num_samples = (
        ...     rlaxlib.mpo_compute_weights_and_temperature_loss(
        ...         jnp.array([3.0, 3.0, -jnp.inf, -jnp.inf]),
        ...         rlaxlib.LagrangePenalty(alpha=2.0, epsilon=0.5),
        ...         projection_operator=jax.nn.relu,
        ...     )
        ... )
        >>> print(weights, num_samples, loss.round(4), (4 - 2 * jnp.log(2.0)).round(4))
        [0.5 0.5 0.  0. ] 4 2.6137 2.6137

    References:
        Abbas Abdolmaleki, Jost Tobias Springenberg, Yuval Tassa, Rémi Munos, Nicolas
        Heess and Martin Riedmiller, *Maximum a Posteriori Policy Optimisation*, section
        4.1, 2018. https://arxiv.org/abs/1806.06920
    """
    (q_values,) = checks.arrays(sample_q_values=(sample_q_values, "float[...]"))
    axis = _check_axis(q_values, sample_axis)
    constraint = _constraints.check_temperature(temperature_constraint)
    (q_values, constraint), narrow = _constraints.widen((q_values, constraint))
    temperature = _constraints.temperature(constraint, projection_operator)
    loss, weights = e_step(q_values, temperature, constraint, axis)
    return narrow((loss, weights, q_values.shape[axis]))


def _check_axis(q_values: Array, sample_axis: int) -> int:
    """Return the axis of the samples, counted from the first."""
    checks.static_int(-q_values.ndim, q_values.ndim - 1, sample_axis=sample_axis)
    axis = sample_axis % q_values.ndim
    if not q_values.shape[axis]:
        checks.fail(f"`sample_q_values` has no samples on its axis {axis}")
    return axis


def e_step(
    q_values: Array, temperature: Array, constraint: LagrangePenalty, axis: int
) -> tuple[Array, Array]:
    """Return the losses of the temperature, and the weights of the samples."""
    q_values = _reweighting.finite(q_values)
    largest = jax.lax.stop_gradient(jnp.max(q_values, axis=axis, keepdims=True))
    weights, soft_maximum = _reweighting.reweigh(
        q_values,
        temperature,
        largest,
        count=q_values.shape[axis],
        total=lambda x: jnp.sum(x, axis=axis, keepdims=True),
    )
    soft_maximum = jnp.squeeze(soft_maximum, axis=axis)
    return temperature * constraint.epsilon + soft_maximum, weights
