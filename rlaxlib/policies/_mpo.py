"""Maximum a posteriori policy optimisation (MPO): E-step, M-step, discrete actions.

- `mpo_loss`: both steps, given log-probabilities, values and divergences.
- `mpo_compute_weights_and_temperature_loss`: the E-step alone.
- `categorical_mpo_loss`: the whole of MPO for discrete actions.

The first two take any number of states, on axes beside the sample axis. The last
takes one state: map it over a batch with `jax.vmap`, with `in_axes=None` for the
dual variables. Average all losses over the states.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient

from rlaxlib import distributions
from rlaxlib._core import checks, devices, legality, safe
from rlaxlib._core.gradients import stop_if
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Bool, Float, Int, Shaped, Static
from rlaxlib.policies import _shared
from rlaxlib.policies._shared import (
    KlConstraints,
    LagrangePenalty,
    MpoConstraintOutputs,
    MpoWeightOutputs,
    Projection,
)

__all__ = [
    "CategoricalMpoOutputs",
    "MpoOutputs",
    "categorical_mpo_loss",
    "mpo_compute_weights_and_temperature_loss",
    "mpo_loss",
]


class MpoOutputs(NamedTuple):
    """Terms of the MPO and V-MPO losses.

    Attributes:
        temperature_loss: Loss of the temperature: of each state, shape `[...]`; in
            V-MPO one for the batch, shape `[]`.
        policy_loss: Loss of the policy, without its constraints, shape `[...]`.
        kl_loss: Penalty on the divergences, shape `[...]`.
        alpha_loss: Loss of the dual variables of the KL constraints, shape `[...]`.
        normalized_weights: Weights of the samples, of their shape.
        num_samples: Number of samples of a state; in V-MPO, of all steps selected.
    """

    temperature_loss: Float[Array, "*_"]
    policy_loss: Float[Array, "*_"]
    kl_loss: Float[Array, "*_"]
    alpha_loss: Float[Array, "*_"]
    normalized_weights: Float[Array, "*_"]
    num_samples: Shaped[Array, ""]


class CategoricalMpoOutputs(NamedTuple):
    """Terms of the MPO loss for discrete actions, and diagnostics.

    The loss is the sum of all losses in it. Other fields have no gradient.

    Attributes:
        policy_loss: Loss of the policy, without its constraint, shape `[]`.
        temperature: E-step: weights of the actions, and their temperature.
        policy_constraint: KL constraint on the policy.
        min_q: Lowest value of the legal actions, shape `[]`.
        max_q_value: Highest value of the legal actions, shape `[]`.
        entropy: Entropy of the policy in nats, shape `[]`.
        target_entropy: Entropy of the target policy in nats, shape `[]`.
    """

    policy_loss: Float[Array, ""]
    temperature: MpoWeightOutputs
    policy_constraint: MpoConstraintOutputs
    min_q: Float[Array, ""]
    max_q_value: Float[Array, ""]
    entropy: Float[Array, ""]
    target_entropy: Float[Array, ""]


@checked
def mpo_loss(
    sample_log_probs: Float[ArrayLike, "..."],
    sample_q_values: Float[ArrayLike, "..."],
    temperature_constraint: LagrangePenalty,
    kl_constraints: KlConstraints,
    projection_operator: Projection = _shared.positive,
    policy_loss_weight: Float[ArrayLike, ""] = 1.0,
    temperature_loss_weight: Float[ArrayLike, ""] = 1.0,
    kl_loss_weight: Float[ArrayLike, ""] = 1.0,
    alpha_loss_weight: Float[ArrayLike, ""] = 1.0,
    sample_axis: Static[int, ""] = 0,
    use_stop_gradient: bool = True,
) -> tuple[Float[Array, "*_"], MpoOutputs]:
    """Compute the MPO loss from sampled actions and their values.

    Takes sampled actions of any number of states, returns the loss of each state, and
    its terms.

    ::

        L = -∑_i w_i log π_θ(a_i) + η (ε_η + log (1/S) ∑_i e^{q_i/η})
            + ∑_k [α_k KL_k + α_k (ε_k - KL_k)],
        w_i = e^{q_i/η} / ∑_j e^{q_j/η}

    The first and third terms train the policy, the second the temperature :math:`η`,
    the last the dual variables :math:`α_k`, each with the others' gradients stopped.

    *Policies.* The actions are sampled from the target policy :math:`π_old`, a copy of
    the policy :math:`π_θ` made every few hundred updates: directly after a copy the
    divergence :math:`KL(π_old ‖ π_θ)` and its gradient are 0.

    *Constraints.* A Gaussian policy has one for the mean, on
    :math:`KL(N(μ_old, Σ_old) ‖ N(μ_θ, Σ_old))`, and one for the covariance, on
    :math:`KL(N(μ_old, Σ_old) ‖ N(μ_old, Σ_θ))`, with bounds such as 0.01 and 0.0001.
    `gaussian_mpo_loss` and `categorical_mpo_loss` compute these.

    *Dual variables.* `projection_operator` maps the parameters in `alpha` to :math:`η`
    and :math:`α_k`. The default clips them at 1e-10, below which a parameter no longer
    learns: clip the parameters themselves after each update, or use `jax.nn.softplus`.

    Args:
        sample_log_probs: Log-probabilities :math:`log π_θ(a_i)`, shape `[...]`.
        sample_q_values: Values :math:`q_i`, shape `[...]`. Pass them through
            `stop_gradient`, or the temperature loss trains the critic.
        temperature_constraint: Bound :math:`ε_η` on KL(weights ‖ uniform) in nats, such
            as 0.1, and the parameter of the temperature, a scalar.
        kl_constraints: Pairs of divergences and penalties; may be empty. Divergences
            have the axes of the states, and a last one if per dimension.
        projection_operator: Function that makes the dual variables positive.
        policy_loss_weight: Weight of the first term, shape `[]`.
        temperature_loss_weight: Weight of the second term, shape `[]`.
        kl_loss_weight: Weight of the third term, shape `[]`.
        alpha_loss_weight: Weight of the last term, shape `[]`.
        sample_axis: Axis of the samples. All other axes are of states.
        use_stop_gradient: Whether to stop the gradient of the weights :math:`w_i`.

    Returns:
        A tuple of two: the losses of the states, and an `MpoOutputs`.

    Raises:
        ArgumentError: If a shape, dtype or concrete bound is wrong, there are no
            samples, or `temperature_constraint` is per dimension.

    Example:
        >>> log_probs, q_values = jnp.log(jnp.array([0.5, 0.5])), jnp.array([1.0, 1.0])
        >>> constraint = rlaxlib.LagrangePenalty(2.0, epsilon=0.5)
        >>> inputs = log_probs, q_values, constraint, [(jnp.array(0.25), constraint)]
        >>> loss, outputs = rlaxlib.mpo_loss(*inputs)
        >>> print(outputs.temperature_loss, outputs.kl_loss, outputs.alpha_loss)
        2.0 0.5 0.5

    References:
        Abbas Abdolmaleki and others, *Maximum a Posteriori Policy Optimisation*, 2018.
        https://arxiv.org/abs/1806.06920

        Abbas Abdolmaleki and others, *Relative Entropy Regularized Policy Iteration*,
        2018. https://arxiv.org/abs/1812.02256
    """
    temperature_loss, w, count = _sample_weights(
        sample_q_values, temperature_constraint, projection_operator, sample_axis
    )
    w = stop_if(use_stop_gradient, w)
    policy_loss = -safe.expectation(w, sample_log_probs, sample_axis)
    kl_loss, alpha_loss = _shared.total_losses(
        kl_constraints,
        projection_operator,
        states=("sample_q_values, one sample", policy_loss),
    )
    loss = (
        policy_loss_weight * policy_loss
        + temperature_loss_weight * temperature_loss
        + kl_loss_weight * kl_loss
        + alpha_loss_weight * alpha_loss
    )
    terms = temperature_loss, policy_loss, kl_loss, alpha_loss
    return loss, MpoOutputs(*terms, w, count)


@checked
def mpo_compute_weights_and_temperature_loss(
    sample_q_values: Float[ArrayLike, "..."],
    temperature_constraint: LagrangePenalty,
    projection_operator: Projection,
    sample_axis: Static[int, ""] = 0,
) -> tuple[Float[Array, "*_"], Float[Array, "..."], Int[Array, ""]]:
    """Compute the weights and the temperature loss of MPO's E-step.

    Takes sampled actions of any number of states, returns the temperature loss of each
    state, and the weight of each action.

    ::

        w_i = e^{q_i/η} / ∑_j e^{q_j/η},   L_η = η (ε + log (1/S) ∑_i e^{q_i/η})

    At the minimum of :math:`L_η`, the weighted samples have the highest mean value of
    all policies within a divergence of :math:`ε` from the one that was sampled.

    Args:
        sample_q_values: Values :math:`q_i` of actions sampled from the target policy,
            shape `[...]`. Minus infinity has weight 0.
        temperature_constraint: Bound :math:`ε` on KL(weights ‖ uniform) in nats, and
            the parameter of the temperature, a scalar.
        projection_operator: Projection onto positive values, such as `jax.nn.softplus`.
        sample_axis: Axis of the samples. All other axes are of states.

    Returns:
        A tuple of three: the losses of the states; the weights, whose gradient is not
            stopped, shape `[...]`; and the number of samples of each state, shape `[]`.

    Raises:
        ArgumentError: If a shape, dtype or concrete bound is wrong, there are no
            samples, or `temperature_constraint` is per dimension.

    Example:
        >>> q_values = jnp.array([3.0, 3.0, -jnp.inf, -jnp.inf])
        >>> constraint = rlaxlib.LagrangePenalty(alpha=2.0, epsilon=0.5)
        >>> e_step = rlaxlib.mpo_compute_weights_and_temperature_loss
        >>> loss, weights, _ = e_step(q_values, constraint, jax.nn.relu)
        >>> print(weights, loss.round(4), (4 - 2 * jnp.log(2.0)).round(4))
        [0.5 0.5 0.  0. ] 2.6137 2.6137

    References:
        Abbas Abdolmaleki and others, *Maximum a Posteriori Policy Optimisation*,
        section 4.1, 2018. https://arxiv.org/abs/1806.06920
    """
    return _sample_weights(
        sample_q_values, temperature_constraint, projection_operator, sample_axis
    )


@checked
def categorical_mpo_loss(
    logits: Float[ArrayLike, "A"],
    target_logits: Float[ArrayLike, "A"],
    q: Float[ArrayLike, "A"],
    temperature_constraint: LagrangePenalty,
    policy_constraint: LagrangePenalty,
    projection_operator: Projection = _shared.softplus,
    *,
    action_mask: Bool[ArrayLike, "A"] | None = None,
) -> tuple[Float[Array, ""], CategoricalMpoOutputs]:
    """Compute the MPO loss of a policy over discrete actions, from all action values.

    Takes one state, returns one loss, and its terms.

    ::

        L = -∑_a w_a log π(a) + η (ε_η + log ∑_a π_old(a) e^{q_a/η})
            + α KL + α (ε - KL)
        w_a = (π_old(a) e^{q_a/η}) / ∑_b π_old(b) e^{q_b/η},
        KL = KL(π_old ‖ π),   π = softmax(logits)

    This is the limit of `mpo_loss` for many actions sampled from :math:`π_old`. The
    first and third terms train the policy, the second the temperature :math:`η`, the
    last the dual variable :math:`α`; other gradients are stopped. See also
    `gaussian_mpo_loss`.

    Args:
        logits: Logits of the policy, shape `[A]`.
        target_logits: Logits of the target policy :math:`π_old`, shape `[A]`.
        q: Values :math:`q_a` of all actions, shape `[A]`.
        temperature_constraint: Bound :math:`ε_η` on KL(weights ‖ target policy) in
            nats, such as 0.1, and the parameter of the temperature, a scalar.
        policy_constraint: Bound :math:`ε` in nats, such as 0.01, and the parameter of
            its dual variable, a scalar.
        projection_operator: Function that makes the dual variables positive.
        action_mask: True where an action is legal, shape `[A]`; or None if all are.

    Returns:
        A tuple of two: the loss, shape `[]`, and a `CategoricalMpoOutputs`. If no
            action is legal, all losses are 0.

    Raises:
        ArgumentError: If a shape, dtype or concrete bound is wrong, or a constraint is
            per dimension.

    Example:
        >>> logits, target_logits = jnp.log(jnp.array([[0.5, 0.5], [0.25, 0.75]]))
        >>> constraint = rlaxlib.LagrangePenalty(1.0, epsilon=0.5)
        >>> inputs = logits, target_logits, jnp.log(jnp.array([9.0, 1.0])), constraint
        >>> _, outputs = rlaxlib.categorical_mpo_loss(*inputs, constraint, jax.nn.relu)
        >>> print(outputs.temperature.weights.round(4), f"{outputs.policy_loss:.4f}")
        [0.75 0.25] 0.6931

    References:
        Abbas Abdolmaleki and others, *Maximum a Posteriori Policy Optimisation*, 2018.
        https://arxiv.org/abs/1806.06920
    """
    target_logits, q = stop_gradient((target_logits, q))
    legal, log_prior, q = _legal(target_logits, q, action_mask)
    weight_bound, policy_bound = (
        each._replace(epsilon=jnp.where(jnp.any(legal), each.epsilon, 0))
        for each in (temperature_constraint, policy_constraint)
    )
    temperature = _shared.weigh(
        "temperature_constraint", q, log_prior, weight_bound, projection_operator
    )
    w = jnp.where(legal, temperature.weights, 0)
    policy_loss = distributions.categorical_cross_entropy(
        w, logits, action_mask=action_mask
    )
    kl = distributions.categorical_kl_divergence(
        target_logits, logits, action_mask=action_mask
    )
    policy = _shared.constrain(
        "policy_constraint", kl, policy_bound, projection_operator
    )
    loss = policy_loss + temperature.loss + policy.kl_loss + policy.alpha_loss
    entropy = distributions.softmax().entropy
    return loss, CategoricalMpoOutputs(
        policy_loss=policy_loss,
        temperature=temperature._replace(weights=w),
        policy_constraint=policy,
        min_q=jnp.min(q),
        max_q_value=jnp.max(q),
        entropy=entropy(stop_gradient(logits), action_mask=action_mask),
        target_entropy=entropy(target_logits, action_mask=action_mask),
    )


def _sample_weights(
    values: Array, constraint: LagrangePenalty, operator: Projection, sample_axis: int
) -> tuple[Array, Array, Array]:
    """Return the temperature loss, the weights of samples, and their number."""
    if not -values.ndim <= sample_axis < values.ndim:
        checks.fail(
            f"`sample_axis` is {sample_axis}, must be in [-{values.ndim}, "
            f"{values.ndim})"
        )
    axis = sample_axis % values.ndim
    count = values.shape[axis]
    if not count:
        checks.fail(f"`sample_q_values` has no samples on its axis {axis}")
    eta = _shared.temperature("temperature_constraint", constraint, operator)
    log_uniform = -math.log(count)
    losses = _shared.e_step(values, eta, constraint.epsilon, log_uniform, axis)
    return *losses, jnp.asarray(count)


def _legal(
    target_logits: Array, q_values: Array, action_mask: Array | None
) -> tuple[Array, Array, Array]:
    """Return which actions are legal, their prior log-probabilities, and their values.

    Illegal actions have the highest legal value, or 0 if no action is legal.
    """
    logits = legality.masked(target_logits, action_mask)
    legal = legality.legal(logits)
    log_prior = jax.nn.log_softmax(safe.floored(logits))
    best = devices.largest(q_values, legal, None)
    return legal, log_prior, jnp.where(legal, q_values, best)
