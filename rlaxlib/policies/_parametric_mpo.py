"""Improve a policy of a known form by MPO: a Gaussian, or one over discrete actions.

Functions here are `mpo_loss` with everything that it leaves to its user: which
divergences to bound, which parameters each holds constant, and what to watch. They take
one state; `jax.vmap` makes the batch. All that they return is linear in the states, so
that the mean over a batch, of the loss and of its gradient, is the loss of the batch,
on one device or many. The dual variables are shared by all states, `in_axes=None`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib import diagnostics, distributions
from rlaxlib._core import checks
from rlaxlib.policies import _constraints, _mpo, _reweighting
from rlaxlib.policies._constraints import LagrangePenalty, Projection

__all__ = [
    "CategoricalMpoOutputs",
    "GaussianMpoOutputs",
    "MpoConstraintOutputs",
    "MpoWeightOutputs",
    "categorical_mpo_loss",
    "gaussian_mpo_loss",
]


class MpoWeightOutputs(NamedTuple):
    """How MPO weighs actions: its E-step, to watch while a policy learns.

    All but the loss are constant under differentiation.

    Attributes:
        loss: Loss of the temperature, shape `[]`.
        temperature: Temperature :math:`η`, shape `[]`.
        weights: Weights of the actions, which add up to 1: N sampled ones, shape `[N]`;
            or all, the policy to learn from, shape `[A]`.
        kl: Divergence of the weighted actions from those of the target policy, in nats,
            shape `[]`. From samples it is estimated, and never more than :math:`log N`:
            a larger bound cannot be reached, and lets the temperature fall to 0.
        relative_kl: The same over its bound. Its mean over states goes to 1 as the
            temperature learns; until then, weights are too even below 1, and too uneven
            above. Shape `[]`.
        effective_sample_size: How many actions of equal weight they are worth,
            shape `[]`. Close to 1, there is but one to learn from.
    """

    loss: Array
    temperature: Array
    weights: Array
    kl: Array
    relative_kl: Array
    effective_sample_size: Array


class MpoConstraintOutputs(NamedTuple):
    """How a divergence keeps to its bound in MPO's M-step, to watch.

    All but the losses are constant under differentiation.

    Attributes:
        kl_loss: Penalty on the divergence, shape `[]`.
        alpha_loss: Loss of the dual variable, shape `[]`.
        alpha: Dual variable :math:`α`, of the shape of its parameter.
        kl: Divergence of the policy from the target policy, in nats, shape `[]`; or of
            each dimension, shape `[D]`.
        relative_kl: The same over its bound, of the same shape. Where its mean over
            states is above 1, the constraint is broken, and the dual variable rises.
    """

    kl_loss: Array
    alpha_loss: Array
    alpha: Array
    kl: Array
    relative_kl: Array


class GaussianMpoOutputs(NamedTuple):
    """What the loss of MPO for a Gaussian policy is made of, and what to watch.

    The loss is the sum of `mean_policy_loss`, `stddev_policy_loss`, and of all losses
    in `by_value`, `by_bounds`, `mean` and `stddev`. What is no loss is constant under
    differentiation.

    Attributes:
        mean_policy_loss: What the mean learns from, shape `[]`.
        stddev_policy_loss: What the standard deviation learns from, shape `[]`.
        by_value: How the actions are weighed by their values.
        by_bounds: How they are weighed by how far they are out of bounds; or None.
        mean: How the mean keeps to its bound.
        stddev: How the standard deviation does.
        min_q_value: Lowest value of the sampled actions, shape `[]`.
        max_q_value: Highest value of the sampled actions, shape `[]`.
        min_stddev: Smallest standard deviation of the policy's dimensions, shape `[]`.
        max_stddev: Largest standard deviation of the policy's dimensions, shape `[]`.
    """

    mean_policy_loss: Array
    stddev_policy_loss: Array
    by_value: MpoWeightOutputs
    by_bounds: MpoWeightOutputs | None
    mean: MpoConstraintOutputs
    stddev: MpoConstraintOutputs
    min_q_value: Array
    max_q_value: Array
    min_stddev: Array
    max_stddev: Array


class CategoricalMpoOutputs(NamedTuple):
    """What the loss of MPO for a policy over discrete actions is made of.

    The loss is the sum of `policy_loss`, and of all losses in `by_value` and `policy`.
    What is no loss is constant under differentiation.

    Attributes:
        policy_loss: What the policy learns from, shape `[]`.
        by_value: How the actions are weighed by their values.
        policy: How the policy keeps to its bound.
        min_q_value: Lowest value of the legal actions, shape `[]`.
        max_q_value: Highest value of the legal actions, shape `[]`.
        entropy: Entropy of the policy, in nats, shape `[]`.
        target_entropy: Entropy of the target policy, in nats, shape `[]`.
    """

    policy_loss: Array
    by_value: MpoWeightOutputs
    policy: MpoConstraintOutputs
    min_q_value: Array
    max_q_value: Array
    entropy: Array
    target_entropy: Array


def gaussian_mpo_loss(
    mu: ArrayLike,
    sigma: ArrayLike,
    target_mu: ArrayLike,
    target_sigma: ArrayLike,
    sample_actions: ArrayLike,
    sample_q_values: ArrayLike,
    temperature_constraint: LagrangePenalty,
    mean_constraint: LagrangePenalty,
    stddev_constraint: LagrangePenalty,
    projection_operator: Projection = _constraints.softplus,
    *,
    bounds_constraint: LagrangePenalty | None = None,
    minimum: ArrayLike = -1.0,
    maximum: ArrayLike = 1.0,
) -> tuple[Array, GaussianMpoOutputs]:
    """Improve a Gaussian policy with sampled actions and their values (MPO).

    .. math::

        L = -∑_i w_i [log Normal(a_i; μ, σ_old) + log Normal(a_i; μ_old, σ)]
            + L_η + L_μ + L_σ,
        w_i = e^{q_i/η} / ∑_j e^{q_j/η}
        L_η = η (ε_η + log (1/N) ∑_i e^{q_i/η}),
        L_μ = α_μ KL_μ + α_μ (ε_μ - KL_μ),   L_σ = α_σ KL_σ + α_σ (ε_σ - KL_σ)
        KL_μ = KL(Normal(μ_old, σ_old) ‖ Normal(μ, σ_old)),
        KL_σ = KL(Normal(μ_old, σ_old) ‖ Normal(μ_old, σ))

    *Who learns from what.* The actions are drawn from the target policy, a copy of the
    policy from some updates ago. It lends the mean what it lacks to be a policy, its
    standard deviation, and the standard deviation its mean: so each learns by itself,
    under its own bound, and the policy cannot narrow because its mean is about to move.
    In each of the three :math:`L`, the first term is for the policy or the temperature;
    the second, of :math:`L_μ` and :math:`L_σ`, for the dual variable, and each holds
    constant what the other is for. The target policy, the actions, their values and
    weights are constant throughout.

    *Where dual variables come from.* `projection_operator` makes :math:`η, α_μ, α_σ` of
    the parameters in the constraints. The default is :math:`log(1 + e^x) + 10⁻⁸`: to
    start at :math:`y`, start the parameter at :math:`log(e^y - 1)`. Its slope fades far
    below 0, so keep parameters above -18, where it is the floor that counts, after each
    update. Give them a higher learning rate than the policy's, 0.01 in Acme.

    *One bound for all dimensions, or one for each.* With `per_dimension` in the
    constraint, each dimension has the bound by itself, and its own dual variable if the
    parameter has shape `[D]`. This is what Acme does by default, as no dimension can
    then use up what the others would need. It allows D times the divergence in all: the
    same bound for both is another constraint.

    *Bounds on actions.* A Gaussian does not know that the actions are clipped before
    they are taken, and its mean may stray beyond. `bounds_constraint` weighs the
    actions once more, by :math:`-‖a_i - clip(a_i)‖_2` in place of the value, with a
    temperature of its own. Both weights are added up, as in multi-objective MPO, so
    that the policy learns twice as fast, too. A comment in Acme calls this cost
    quadratic; it is linear, there and here.

    Args:
        mu: Mean :math:`μ` of the policy, shape `[D]`.
        sigma: Standard deviation :math:`σ` of the policy, more than 0, shape `[D]`.
        target_mu: Mean of the target policy, shape `[D]`.
        target_sigma: Standard deviation of the target policy, more than 0, shape `[D]`.
        sample_actions: Actions :math:`a_i` drawn from the target policy, N of them,
            before they are clipped, shape `[N, D]`.
        sample_q_values: Values :math:`q_i` of these actions, shape `[N]`.
        temperature_constraint: Bound :math:`ε_η` on how far the weights may be from
            even ones, in nats, say 0.1; and the parameter of the temperature, one
            number.
        mean_constraint: Bound :math:`ε_μ` on the divergence by the mean, in nats, say
            0.01; and the parameter of its dual variable, one number, or one for each
            dimension if `per_dimension`.
        stddev_constraint: The same for the standard deviation, :math:`ε_σ`, a much
            smaller bound, say 0.0001: what is lost of it is no longer explored.
        projection_operator: What makes the dual variables positive.
        bounds_constraint: Bound on how far the weights by distance may be from even
            ones, in nats, say 0.001; and the parameter of their temperature. Or None to
            let actions be anything.
        minimum: Lowest action, for all dimensions or each, shape `[]` or shape `[D]`.
        maximum: Highest action, at least `minimum`, shape `[]` or shape `[D]`.

    Returns:
        A tuple of two: the loss, shape `[]`, and a `GaussianMpoOutputs`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if a bound is
            negative, a standard deviation not positive, or `maximum` below `minimum`,
            or if the projection does not give positive numbers.

    Example:
        >>> loss, outputs = rlaxlib.gaussian_mpo_loss(
        ...     mu=jnp.array([0.5]),
        ...     sigma=jnp.array([1.0]),
        ...     target_mu=jnp.array([0.0]),
        ...     target_sigma=jnp.array([1.0]),
        ...     sample_actions=jnp.array([[1.0], [-1.0]]),
        ...     sample_q_values=jnp.array([jnp.log(3.0), 0.0]),
        ...     temperature_constraint=rlaxlib.LagrangePenalty(1.0, epsilon=0.1),
        ...     mean_constraint=rlaxlib.LagrangePenalty(4.0, epsilon=0.25),
        ...     stddev_constraint=rlaxlib.LagrangePenalty(8.0, epsilon=0.01),
        ...     projection_operator=jax.nn.relu,
        ... )
        >>> print(outputs.by_value.weights.round(4), outputs.by_value.temperature)
        [0.75 0.25] 1.0
        >>> print(outputs.mean.kl, outputs.mean.relative_kl, outputs.mean.kl_loss)
        0.125 0.5 0.5

    References:
        Abbas Abdolmaleki, Jost Tobias Springenberg, Yuval Tassa, Rémi Munos, Nicolas
        Heess and Martin Riedmiller, *Maximum a Posteriori Policy Optimisation*, 2018.
        https://arxiv.org/abs/1806.06920

        Abbas Abdolmaleki, Jost Tobias Springenberg, Jonas Degrave, Steven Bohez, Yuval
        Tassa, Dan Belov, Nicolas Heess and Martin Riedmiller, *Relative Entropy
        Regularized Policy Iteration*, section 4.2, 2018.
        https://arxiv.org/abs/1812.02256

        Abbas Abdolmaleki, Sandy H. Huang and others, *A Distributional View on
        Multi-Objective Policy Optimization*, 2020. https://arxiv.org/abs/2005.07513
    """
    mu, sigma, target_mu, target_sigma, actions, q_values, low, high = checks.arrays(
        mu=(mu, "float[D]"),
        sigma=(sigma, "float[D]"),
        target_mu=(target_mu, "float[D]"),
        target_sigma=(target_sigma, "float[D]"),
        sample_actions=(sample_actions, "float[N, D]"),
        sample_q_values=(sample_q_values, "float[N]"),
        minimum=(minimum, "float[] or [D]"),
        maximum=(maximum, "float[] or [D]"),
    )
    checks.within("(0, inf)", sigma=sigma, target_sigma=target_sigma)
    checks.ordered(minimum=low, maximum=high)
    duals = (
        _constraints.check_temperature(temperature_constraint),
        _constraints.check_bound("mean_constraint", mean_constraint, mu=mu),
        _constraints.check_bound("stddev_constraint", stddev_constraint, mu=mu),
    )
    if bounds_constraint is not None:
        bounds_constraint = _constraints.check_temperature(
            bounds_constraint, "bounds_constraint"
        )
    given = (mu, sigma), (target_mu, target_sigma), (actions, q_values, low, high)
    wide, narrow = _constraints.widen((*given, duals, bounds_constraint))
    policy, target, samples, duals, bounds_constraint = wide
    target, samples = jax.lax.stop_gradient((target, samples))
    actions, q_values, low, high = samples
    operator = projection_operator

    by_value = _weigh("temperature_constraint", q_values, duals[0], operator)
    weights, by_bounds = by_value.weights, None
    if bounds_constraint is not None:
        low, high = (jnp.broadcast_to(each, actions.shape) for each in (low, high))
        outside = actions - jnp.clip(actions, low, high)
        distances = jnp.sqrt(jnp.sum(jnp.square(outside), axis=-1))
        by_bounds = _weigh("bounds_constraint", -distances, bounds_constraint, operator)
        weights += by_bounds.weights

    def learn(
        name: str, mu: Array, sigma: Array, constraint: LagrangePenalty
    ) -> tuple[Array, MpoConstraintOutputs]:
        log_probs = distributions.gaussian_diagonal().logprob(actions, mu, sigma)
        loss = jnp.sum(_reweighting.weighted(-log_probs, weights))
        policies = *target, mu, sigma
        if constraint.per_dimension:  # A dimension is a Gaussian of its own.
            policies = [each[:, None] for each in policies]
        kl = distributions.multivariate_normal_kl_divergence(*policies)
        return loss, _constrain(name, kl, constraint, operator)

    mean_loss, mean = learn("mean_constraint", policy[0], target[1], duals[1])
    stddev_loss, stddev = learn("stddev_constraint", target[0], policy[1], duals[2])
    loss = mean_loss + stddev_loss + by_value.loss
    loss += mean.kl_loss + mean.alpha_loss + stddev.kl_loss + stddev.alpha_loss
    if by_bounds is not None:
        loss += by_bounds.loss
    widths = jax.lax.stop_gradient(policy[1])
    outputs = GaussianMpoOutputs(
        mean_policy_loss=mean_loss,
        stddev_policy_loss=stddev_loss,
        by_value=by_value,
        by_bounds=by_bounds,
        mean=mean,
        stddev=stddev,
        min_q_value=jnp.min(q_values),
        max_q_value=jnp.max(q_values),
        min_stddev=jnp.min(widths),
        max_stddev=jnp.max(widths),
    )
    return narrow((loss, outputs))


def categorical_mpo_loss(
    logits: ArrayLike,
    target_logits: ArrayLike,
    q_values: ArrayLike,
    temperature_constraint: LagrangePenalty,
    policy_constraint: LagrangePenalty,
    projection_operator: Projection = _constraints.softplus,
    *,
    mask: ArrayLike | None = None,
) -> tuple[Array, CategoricalMpoOutputs]:
    """Improve a policy over discrete actions, by the values of all of them (MPO).

    .. math::

        L = -∑_a w_a log π(a) + η (ε_η + log ∑_a π_old(a) e^{q_a/η})
            + α KL + α (ε - KL)
        w_a = (π_old(a) e^{q_a/η}) / ∑_b π_old(b) e^{q_b/η},
        KL = KL(π_old ‖ π),   π = softmax(logits)

    It is what `mpo_loss` is on average, over actions that :math:`π_old` samples, as
    their number grows. As all actions are there, none needs to be sampled; but each
    then counts as often as the target policy would take it. To give all the same
    weight, as a mean over the actions does, is right for samples only.

    The first and third term are for the policy, the second is for the temperature
    :math:`η`, the last for the dual variable :math:`α`; each holds constant what the
    others are for. The target policy, a copy of the policy from some updates ago, and
    the values are constant throughout. `gaussian_mpo_loss` says how dual variables stay
    positive.

    Args:
        logits: Logits of the policy, shape `[A]`.
        target_logits: Logits of the target policy :math:`π_old`, shape `[A]`.
        q_values: Values :math:`q_a` of all actions, shape `[A]`.
        temperature_constraint: Bound :math:`ε_η` on how far the weights may be from the
            target policy, in nats, say 0.1; and the parameter of the temperature, one
            number.
        policy_constraint: Bound :math:`ε` on how far the policy may be, in nats, say
            0.01; and the parameter of its dual variable, one number.
        projection_operator: What makes the dual variables positive.
        mask: True where an action is legal, shape `[A]`; or None if all are.

    Returns:
        A tuple of two: the loss, shape `[]`, and a `CategoricalMpoOutputs`. Where no
            action is legal, all losses are 0.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if a bound is
            negative, if a constraint is per dimension, or if the projection does not
            give positive numbers.

    Example:
        >>> loss, outputs = rlaxlib.categorical_mpo_loss(
        ...     logits=jnp.zeros(2),
        ...     target_logits=jnp.log(jnp.array([0.25, 0.75])),
        ...     q_values=jnp.array([jnp.log(9.0), 0.0]),
        ...     temperature_constraint=rlaxlib.LagrangePenalty(1.0, epsilon=0.5),
        ...     policy_constraint=rlaxlib.LagrangePenalty(4.0, epsilon=0.25),
        ...     projection_operator=jax.nn.relu,
        ... )
        >>> print(outputs.by_value.weights.round(4), f"{outputs.policy_loss:.4f}")
        [0.75 0.25] 0.6931
        >>> print(f"{outputs.by_value.loss:.4f} {0.5 + jnp.log(3.0):.4f}")
        1.5986 1.5986

    References:
        Abbas Abdolmaleki, Jost Tobias Springenberg, Yuval Tassa, Rémi Munos, Nicolas
        Heess and Martin Riedmiller, *Maximum a Posteriori Policy Optimisation*, 2018.
        https://arxiv.org/abs/1806.06920

        Abbas Abdolmaleki, Jost Tobias Springenberg, Jonas Degrave, Steven Bohez, Yuval
        Tassa, Dan Belov, Nicolas Heess and Martin Riedmiller, *Relative Entropy
        Regularized Policy Iteration*, 2018. https://arxiv.org/abs/1812.02256
    """
    logits, target_logits, q_values, mask = checks.arrays(
        logits=(logits, "float[A]"),
        target_logits=(target_logits, "float[A]"),
        q_values=(q_values, "float[A]"),
        mask=(mask, "bool[A] or None"),
    )
    duals = (
        _constraints.check_temperature(temperature_constraint),
        _constraints.check_bound("policy_constraint", policy_constraint),
    )
    given = logits, target_logits, q_values, duals
    (logits, target_logits, q_values, duals), narrow = _constraints.widen(given)
    target_logits, q_values = jax.lax.stop_gradient((target_logits, q_values))
    legal = target_logits != -jnp.inf
    legal = legal if mask is None else legal & mask
    some = jnp.any(legal)
    duals = [  # A state without actions is no constraint.
        each._replace(
            epsilon=jnp.where(some, each.epsilon, jnp.zeros_like(each.epsilon))
        )
        for each in duals
    ]
    operator = projection_operator

    never = jnp.where(some, -jnp.inf, jnp.zeros_like(target_logits))
    log_prior = jax.nn.log_softmax(jnp.where(legal, target_logits, never))
    log_prior = jnp.where(legal, log_prior, -jnp.inf)
    q_values = jnp.where(legal, q_values, jnp.zeros_like(q_values))
    by_value = _weigh("temperature_constraint", q_values, duals[0], operator, log_prior)
    policy_loss = distributions.categorical_cross_entropy(
        by_value.weights, logits, mask=mask
    )
    kl = distributions.categorical_kl_divergence(target_logits, logits, mask=mask)
    policy = _constrain("policy_constraint", kl, duals[1], operator)
    loss = policy_loss + by_value.loss + policy.kl_loss + policy.alpha_loss
    entropy, largest = distributions.softmax().entropy, _largest(q_values, legal)
    outputs = CategoricalMpoOutputs(
        policy_loss=policy_loss,
        by_value=by_value,
        policy=policy,
        min_q_value=jnp.min(jnp.where(legal, q_values, largest)),
        max_q_value=largest,
        entropy=entropy(jax.lax.stop_gradient(logits), mask=mask),
        target_entropy=entropy(target_logits, mask=mask),
    )
    return narrow((loss, outputs))


def _weigh(
    name: str,
    values: Array,
    constraint: LagrangePenalty,
    operator: Projection,
    log_prior: Array | None = None,
) -> MpoWeightOutputs:
    """Weigh the actions of a state, the E-step.

    Args:
        name: Name of the argument that is the constraint.
        values: Values of the actions, constant, `[N]`.
        constraint: The constraint, checked.
        operator: What makes the temperature positive.
        log_prior: Logarithms of the probabilities that actions have before, minus
            infinity where one is not legal, `[N]`; or None if they are samples.

    Returns:
        The weights, and what to watch.
    """
    temperature = _constraints.temperature(constraint, operator, name)
    if log_prior is None:
        loss, weights = _mpo.e_step(values, temperature, constraint, axis=0)
        log_prior = jnp.zeros_like(values)
    else:
        soft_maximum, weights = _tilt(log_prior, values, temperature)
        loss = temperature * constraint.epsilon + soft_maximum
    weights = jax.lax.stop_gradient(weights)
    log_weights = jnp.log(weights)
    kl = distributions.categorical_kl_divergence(log_weights, log_prior)
    return MpoWeightOutputs(
        loss=loss,
        temperature=jax.lax.stop_gradient(temperature),
        weights=weights,
        kl=kl,
        relative_kl=_relative(kl, constraint),
        effective_sample_size=diagnostics.effective_sample_size(log_weights),
    )


def _tilt(log_prior: Array, values: Array, temperature: Array) -> tuple[Array, Array]:
    """Return the soft maximum of values under a prior, and the weights of actions."""
    legal = log_prior != -jnp.inf
    values = _reweighting.finite(values)
    finite = jnp.where(legal, log_prior, jnp.zeros_like(log_prior))

    def tilt(zero: Array) -> Array:
        above = jnp.where(legal, values - zero, jnp.zeros_like(values))
        return above + temperature * finite

    # Count from the value of the action with the most weight: beside large values, the
    # prior would lose its digits.
    first = tilt(_largest(values, legal))
    best = _largest(values, legal & (first == _largest(first, legal)))
    tilted = tilt(best)
    weights, soft_maximum = _reweighting.reweigh(
        tilted,
        temperature,
        jax.lax.stop_gradient(_largest(tilted, legal)),
        count=1,
        total=lambda x: jnp.sum(x, keepdims=True),
        prior=legal.astype(values.dtype),
    )
    return best + soft_maximum[0], weights


def _constrain(
    name: str, kl: Array, constraint: LagrangePenalty, operator: Projection
) -> MpoConstraintOutputs:
    """Penalise a divergence, and tell what to watch of it."""
    kl_loss, alpha_loss, alpha = _constraints.constrain(
        name, (kl, constraint), operator, True
    )
    alpha, kl = jax.lax.stop_gradient((alpha, kl))
    relative = _relative(kl, constraint)
    return MpoConstraintOutputs(kl_loss, alpha_loss, alpha, kl, relative)


def _relative(kl: Array, constraint: LagrangePenalty) -> Array:
    """Return divergences over their bound; 0 where 0 is the bound, and kept to."""
    bound = jax.lax.stop_gradient(jnp.asarray(constraint.epsilon))
    none = bound == 0
    relative = kl / jnp.where(none, jnp.ones_like(bound), bound)
    broken = jnp.where(kl > 0, jnp.full_like(kl, jnp.inf), jnp.zeros_like(kl))
    return jnp.where(none, broken, relative)


def _largest(x: Array, mask: Array) -> Array:
    """Return the largest entry that counts, 0 if none does."""
    largest = jnp.max(x, initial=-jnp.inf, where=mask)
    return jnp.where(jnp.any(mask), largest, jnp.zeros_like(largest))
