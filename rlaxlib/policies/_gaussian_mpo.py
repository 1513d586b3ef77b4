"""Maximum a posteriori policy optimisation (MPO) for Gaussian policies.

`gaussian_mpo_loss` takes one state: map it over a batch with `jax.vmap`, with
`in_axes=None` for the dual variables, and average the losses over the states.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
from jax.lax import stop_gradient

from rlaxlib import distributions
from rlaxlib._core import safe
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, Float
from rlaxlib.policies._shared import (
    LagrangePenalty,
    MpoConstraintOutputs,
    MpoWeightOutputs,
    Projection,
    constrain,
    softplus,
    weigh,
)

__all__ = ["GaussianMpoOutputs", "gaussian_mpo_loss"]

Gaussian = tuple[Array, Array]  # Mean and standard deviation.


class GaussianMpoOutputs(NamedTuple):
    """Terms of the MPO loss for a Gaussian policy, and diagnostics.

    The loss is the sum of all losses in it. Other fields have no gradient.

    Attributes:
        mean_policy_loss: Loss of the mean, without its constraint, shape `[]`.
        stddev_policy_loss: Loss of the standard deviation, likewise, shape `[]`.
        temperature: E-step on the values of the actions: their weights and temperature.
        bounds_temperature: E-step on the actions' distances from their bounds; or None.
        mean_constraint: KL constraint on the mean.
        stddev_constraint: KL constraint on the standard deviation.
        min_q: Lowest value of the sampled actions, shape `[]`.
        max_q_value: Highest value of the sampled actions, shape `[]`.
        min_stddev: Smallest standard deviation of the policy, shape `[]`.
        max_stddev: Largest standard deviation of the policy, shape `[]`.
    """

    mean_policy_loss: Float[Array, ""]
    stddev_policy_loss: Float[Array, ""]
    temperature: MpoWeightOutputs
    bounds_temperature: MpoWeightOutputs | None
    mean_constraint: MpoConstraintOutputs
    stddev_constraint: MpoConstraintOutputs
    min_q: Float[Array, ""]
    max_q_value: Float[Array, ""]
    min_stddev: Float[Array, ""]
    max_stddev: Float[Array, ""]


@checked
def gaussian_mpo_loss(
    mean: Float[ArrayLike, "D"],
    stddev: Float[ArrayLike, "D in (0, inf)"],
    target_mean: Float[ArrayLike, "D"],
    target_stddev: Float[ArrayLike, "D in (0, inf)"],
    sample_actions: Float[ArrayLike, "N, D"],
    sample_q_values: Float[ArrayLike, "N"],
    temperature_constraint: LagrangePenalty,
    mean_constraint: LagrangePenalty,
    stddev_constraint: LagrangePenalty,
    projection_operator: Projection = softplus,
    minimum: Float[ArrayLike, "[] or [D]"] = -1.0,
    maximum: Float[ArrayLike, "[] or [D] in [minimum, inf]"] = 1.0,
    *,
    bounds_constraint: LagrangePenalty | None = None,
) -> tuple[Float[Array, ""], GaussianMpoOutputs]:
    """Compute the MPO loss of a Gaussian policy, with decoupled KL constraints.

    Takes one state, returns one loss, and its terms.

    ::

        L = -∑_i w_i [log Normal(a_i; μ, σ_old) + log Normal(a_i; μ_old, σ)]
            + L_η + L_μ + L_σ,
        w_i = e^{q_i/η} / ∑_j e^{q_j/η}
        L_η = η (ε_η + log (1/N) ∑_i e^{q_i/η}),
        L_μ = α_μ KL_μ + α_μ (ε_μ - KL_μ),   L_σ = α_σ KL_σ + α_σ (ε_σ - KL_σ)
        KL_μ = KL(Normal(μ_old, σ_old) ‖ Normal(μ, σ_old)),
        KL_σ = KL(Normal(μ_old, σ_old) ‖ Normal(μ_old, σ))

    *Decoupled updates.* The mean is trained with the standard deviation of the target
    policy, an older copy of the policy, and the standard deviation with its mean, each
    under its own KL bound. The first terms of :math:`L_μ` and :math:`L_σ` train the
    policy, the second the dual variables; other gradients are stopped.

    *Dual variables.* `projection_operator` maps the parameters in the constraints to
    :math:`η, α_μ, α_σ`. The default is :math:`log(1 + e^x) + 10⁻⁸`: to start at
    :math:`y`, initialise with :math:`log(e^y - 1)`, and clip parameters at -18, where
    the gradient vanishes.

    *Constraints per dimension.* With `per_dimension` the bound holds for each
    dimension, which allows D times the divergence in all. Its dual variable has
    shape `[]` or `[D]`.

    *Bounds on actions.* `bounds_constraint` keeps the mean within the bounds, as in
    multi-objective MPO: a second E-step, with the values :math:`-‖a_i - clip(a_i)‖_2`
    and its own temperature, adds its weights to :math:`w_i`, which then sum to 2.

    Args:
        mean: Mean :math:`μ` of the policy, shape `[D]`.
        stddev: Standard deviation :math:`σ` of the policy, in (0, inf), shape `[D]`.
        target_mean: Mean :math:`μ_old` of the target policy, shape `[D]`.
        target_stddev: Standard deviation :math:`σ_old`, in (0, inf), shape `[D]`.
        sample_actions: Unclipped target-policy actions :math:`a_i`, shape `[N, D]`.
        sample_q_values: Values :math:`q_i` of these actions, shape `[N]`.
        temperature_constraint: Bound :math:`ε_η` on KL(weights ‖ uniform) in nats, such
            as 0.1, and the parameter of the temperature, a scalar.
        mean_constraint: Bound :math:`ε_μ` in nats, such as 0.01, and the parameter of
            its dual variable, a scalar, or of shape `[D]` if `per_dimension`.
        stddev_constraint: Bound :math:`ε_σ`, such as 0.0001, and its parameter,
            likewise. A small bound keeps the policy exploring.
        projection_operator: Function that makes the dual variables positive.
        minimum: Lowest action, shape `[]` or `[D]`.
        maximum: Highest action, in [`minimum`, inf], shape `[]` or `[D]`.
        bounds_constraint: Bound on KL(weights by distance ‖ uniform), such as 0.001,
            and the parameter of their temperature; or None for unbounded actions.

    Returns:
        A tuple of two: the loss, shape `[]`, and a `GaussianMpoOutputs`.

    Raises:
        ArgumentError: If a shape, dtype or concrete value is wrong, or a constraint of
            a temperature is per dimension.

    Example:
        >>> policies = [jnp.array([x]) for x in (0.5, 1.0, 0.0, 1.0)]
        >>> actions, q_values = jnp.array([[1.0], [-1.0]]), jnp.log(jnp.array([3.0, 1]))
        >>> constraints = [rlaxlib.LagrangePenalty(1.0, epsilon=0.1)] * 3
        >>> inputs = *policies, actions, q_values, *constraints, jax.nn.relu
        >>> loss, outputs = rlaxlib.gaussian_mpo_loss(*inputs)
        >>> print(outputs.temperature.weights.round(4), outputs.mean_constraint.kl)
        [0.75 0.25] 0.125

    References:
        Abbas Abdolmaleki and others, *Relative Entropy Regularized Policy Iteration*,
        section 4.2, 2018. https://arxiv.org/abs/1812.02256

        Abbas Abdolmaleki and others, *A Distributional View on Multi-Objective Policy
        Optimization*, 2020. https://arxiv.org/abs/2005.07513
    """
    target = target_mean, target_stddev = stop_gradient((target_mean, target_stddev))
    actions, q_values = stop_gradient((sample_actions, sample_q_values))
    uniform = jnp.full_like(q_values, -math.log(q_values.size))
    temperature = weigh(
        "temperature_constraint",
        q_values,
        uniform,
        temperature_constraint,
        projection_operator,
    )
    w, bounds_temperature = temperature.weights, None
    if bounds_constraint is not None:
        bounds_temperature = weigh(
            "bounds_constraint",
            -_distances(actions, minimum, maximum),
            uniform,
            bounds_constraint,
            projection_operator,
        )
        w += bounds_temperature.weights
    log_prob = distributions.gaussian_diagonal().logprob
    mean_kl = _kl(target, (mean, target_stddev), mean_constraint.per_dimension)
    stddev_kl = _kl(target, (target_mean, stddev), stddev_constraint.per_dimension)
    outputs = GaussianMpoOutputs(
        mean_policy_loss=-safe.expectation(w, log_prob(actions, mean, target_stddev)),
        stddev_policy_loss=-safe.expectation(w, log_prob(actions, target_mean, stddev)),
        temperature=temperature,
        bounds_temperature=bounds_temperature,
        mean_constraint=constrain(
            "mean_constraint", mean_kl, mean_constraint, projection_operator
        ),
        stddev_constraint=constrain(
            "stddev_constraint", stddev_kl, stddev_constraint, projection_operator
        ),
        min_q=jnp.min(q_values),
        max_q_value=jnp.max(q_values),
        min_stddev=jnp.min(stop_gradient(stddev)),
        max_stddev=jnp.max(stop_gradient(stddev)),
    )
    return _total(outputs), outputs


def _distances(actions: Array, minimum: Array, maximum: Array) -> Array:
    """Return the Euclidean distance of each action from its bounds."""
    low, high = (jnp.broadcast_to(x, actions.shape) for x in (minimum, maximum))
    outside = actions - jnp.clip(actions, low, high)
    return stop_gradient(jnp.sqrt(jnp.sum(jnp.square(outside), axis=-1)))


def _total(outputs: GaussianMpoOutputs) -> Array:
    """Return the sum of all losses."""
    mean, stddev = outputs.mean_constraint, outputs.stddev_constraint
    loss = outputs.mean_policy_loss + mean.kl_loss + mean.alpha_loss
    loss += outputs.stddev_policy_loss + stddev.kl_loss + stddev.alpha_loss
    loss += outputs.temperature.loss
    bounds = outputs.bounds_temperature
    return loss if bounds is None else loss + bounds.loss


def _kl(target: Gaussian, policy: Gaussian, per_dimension: bool) -> Array:
    """Return KL(target ‖ policy), shape `[]`; or of each dimension, `[D]`."""
    parameters = (*target, *policy)
    if per_dimension:
        parameters = [x[:, None] for x in parameters]
    return distributions.multivariate_normal_kl_divergence(*parameters)
