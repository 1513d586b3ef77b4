"""Improve a policy by the better half of what it did.

V-MPO is MPO for one action a state, the one that was taken, and for advantages in place
of action values: its weights are over the steps of a batch, not over the actions of a
state. So these functions take the whole batch at once, of any number of axes; where
devices share it, `axis_name` has them work as one.
"""

from __future__ import annotations

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from rlaxlib._core import checks, devices, gradients
from rlaxlib._core.devices import AxisName
from rlaxlib.policies import _constraints, _reweighting
from rlaxlib.policies._constraints import KlConstraints, LagrangePenalty, Projection
from rlaxlib.policies._mpo import MpoOutputs

__all__ = [
    "get_top_k_weights",
    "vmpo_compute_weights_and_temperature_loss",
    "vmpo_loss",
]


def vmpo_loss(
    sample_log_probs: ArrayLike,
    advantages: ArrayLike,
    temperature_constraint: LagrangePenalty,
    kl_constraints: KlConstraints,
    projection_operator: Projection = _constraints.positive,
    restarting_weights: ArrayLike | None = None,
    importance_weights: ArrayLike | None = None,
    top_k_fraction: float = 0.5,
    policy_loss_weight: ArrayLike = 1.0,
    temperature_loss_weight: ArrayLike = 1.0,
    kl_loss_weight: ArrayLike = 1.0,
    alpha_loss_weight: ArrayLike = 1.0,
    axis_name: AxisName | None = None,
    use_stop_gradient: bool = True,
) -> tuple[Array, MpoOutputs]:
    """Improve a policy by the better part of the steps it took (V-MPO).

    .. math::

        L_t = -N ψ_t log π_θ(a_t) + η (ε_η + log (1/K) ∑_{i ∈ D} e^{Â_i/η})
            + ∑_k [α_k KL_{k,t} + α_k (ε_k - KL_{k,t})],
        ψ_t = e^{Â_t/η} / ∑_{i ∈ D} e^{Â_i/η}

    Here :math:`D` are the :math:`K` steps of highest advantage, half of all :math:`N`
    unless told otherwise; the others have no weight :math:`ψ_t`. The mean over the
    steps of the batch is the paper's loss.

    The steps were taken by a target policy :math:`π_old`, a copy of the policy
    :math:`π_θ` that learns from some updates ago. `sample_log_probs` are under the
    policy that learns, and the divergences are :math:`KL(π_old ‖ π_θ)`. `mpo_loss` says
    more on both policies, why a divergence may be 0, why there may be several, and how
    the dual variables stay positive.

    Args:
        sample_log_probs: Log-probabilities :math:`log π_θ(a_t)` of the actions taken,
            shape `[...]`.
        advantages: Advantages :math:`Â_t` of these actions, of the same shape,
            shape `[...]`. The temperature's loss has a gradient in them: hold them
            constant if they depend on parameters that learn.
        temperature_constraint: Bound :math:`ε_η` on how far the weights may be from
            even ones, in nats, say 0.01; and the parameter of the temperature, one
            number.
        kl_constraints: Pairs of divergences :math:`KL_{k,t}`, of the shape of the
            advantages, and of their penalties; or none. A penalty that is per dimension
            goes with divergences that have one more axis, the last, and bounds each by
            itself.
        projection_operator: What makes the dual variables positive.
        restarting_weights: 1 where a step counts, and 0 where it is the first of an
            episode, whose reward no action of the agent brought, shape `[...]`; or None
            if all count. A step that does not has no part in the policy's and the
            temperature's loss, whatever its advantage is; its divergences stay.
        importance_weights: What each step counts in the weights, at least 0,
            shape `[...]`; or None if all count the same.
        top_k_fraction: Part of the steps that count to learn from, in (0, 1]. Their
            number is rounded down; at least one is taken. Of equal advantages, the
            first in the batch come first.
        policy_loss_weight: Weight of the first term, shape `[]`.
        temperature_loss_weight: Weight of the second term, shape `[]`.
        kl_loss_weight: Weight of the third term, shape `[]`.
        alpha_loss_weight: Weight of the last term, shape `[]`.
        axis_name: Name of the axis, or axes, that devices form, if each has a part of
            the batch; or None.
        use_stop_gradient: Whether to hold the weights :math:`ψ_t`, and the importance
            weights, constant. What the last two terms hold constant they always do:
            else they would cancel.

    Returns:
        A tuple of two: the losses of the steps, shape `[...]`, and an `MpoOutputs` of
            what they are made of.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if a bound or a
            weight is out of its range, if the projection does not give positive
            numbers, or if `top_k_fraction` leaves no step.

    Example:
        >>> loss, outputs = rlaxlib.vmpo_loss(
        ...     jnp.log(jnp.array([0.5, 0.5, 0.5, 0.5])),
        ...     advantages=jnp.array([-1.0, 3.0, -2.0, 3.0]),
        ...     temperature_constraint=rlaxlib.LagrangePenalty(2.0, epsilon=0.5),
        ...     kl_constraints=[(jnp.ones(4), rlaxlib.LagrangePenalty(4.0, 0.5))],
        ... )
        >>> print(outputs.normalized_weights, outputs.temperature_loss)
        [0.  0.5 0.  0.5] 4.0
        >>> print(outputs.policy_loss.round(4))
        [0.     1.3863 0.     1.3863]

    References:
        H. Francis Song, Abbas Abdolmaleki, Jost Tobias Springenberg and others, *V-MPO:
        On-Policy Maximum a Posteriori Policy Optimization for Discrete and Continuous
        Control*, 2020. https://arxiv.org/abs/1909.12238
    """
    log_probs, advantages, restarting, importance, *scales = checks.arrays(
        sample_log_probs=(sample_log_probs, "float[...]"),
        advantages=(advantages, "float[...]"),
        restarting_weights=(restarting_weights, "float[...] or None"),
        importance_weights=(importance_weights, "float[...] or None"),
        policy_loss_weight=(policy_loss_weight, "float[]"),
        temperature_loss_weight=(temperature_loss_weight, "float[]"),
        kl_loss_weight=(kl_loss_weight, "float[]"),
        alpha_loss_weight=(alpha_loss_weight, "float[]"),
    )
    checks.binary(restarting_weights=restarting)
    checks.within("[0, inf)", importance_weights=importance)
    constraint = _constraints.check_temperature(temperature_constraint)
    constraints = _constraints.check_constraints(kl_constraints, advantages=advantages)
    chosen = _top_k(top_k_fraction, advantages, restarting, axis_name)
    given = log_probs, advantages, importance, scales, constraint, constraints
    wide, narrow = _constraints.widen(given)
    log_probs, advantages, importance, scales, constraint, constraints = wide
    temperature = _constraints.temperature(constraint, projection_operator)
    temperature_loss, weights, count = _e_step(
        advantages,
        chosen,
        importance,
        temperature,
        constraint,
        axis_name,
        use_stop_gradient,
    )
    surprises = jnp.where(chosen, -log_probs, jnp.zeros_like(log_probs))
    steps = log_probs.size * devices.number(axis_name)
    policy_loss = steps * _reweighting.weighted(surprises, weights)
    total, losses = _constraints.combine(
        temperature_loss, policy_loss, constraints, projection_operator, scales
    )
    return narrow((total, MpoOutputs(*losses, weights, count)))


def vmpo_compute_weights_and_temperature_loss(
    advantages: ArrayLike,
    restarting_weights: ArrayLike,
    importance_weights: ArrayLike,
    temperature_constraint: LagrangePenalty,
    projection_operator: Projection,
    top_k_fraction: float,
    axis_name: AxisName | None = None,
    use_stop_gradient: bool = True,
) -> tuple[Array, Array, Array]:
    """Weigh steps by their advantages, and learn how sharply (V-MPO's E-step).

    .. math::

        ψ_t = (ρ_t e^{Â_t/η}) / ∑_{i ∈ D} ρ_i e^{Â_i/η},
        L_η = η (ε + log (1/K) ∑_{i ∈ D} ρ_i e^{Â_i/η})

    Here :math:`D` are the :math:`K` steps of highest advantage among those that count,
    and :math:`ρ_t` are the importance weights. A high temperature :math:`η` leaves the
    weights even, a low one puts all weight on the best step.

    Args:
        advantages: Advantages :math:`Â_t`, shape `[...]`. An infinite one counts as the
            largest number there is.
        restarting_weights: 1 where a step counts, and 0 where it does not, whatever its
            advantage is, of the same shape, shape `[...]`.
        importance_weights: Importance weights :math:`ρ_t`, at least 0, of the same
            shape, shape `[...]`.
        temperature_constraint: Bound :math:`ε` on how far the weights may be from even
            ones, in nats; and the parameter of the temperature, one number.
        projection_operator: What makes the temperature positive, such as
            `jax.nn.softplus`.
        top_k_fraction: Part of the steps that count to give weight to, in (0, 1]. Their
            number is rounded down; at least one is taken.
        axis_name: Name of the axis, or axes, that devices form, if each has a part of
            the batch; or None.
        use_stop_gradient: Whether to hold the weights, and the importance weights,
            constant.

    Returns:
        A tuple of three: the loss of the temperature, shape `[]`; the weights, which
            add up to 1 over the batch, or are 0 if no step counts, shape `[...]`; and
            the number :math:`K` of steps that they are shared among, shape `[]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if a bound or a
            weight is out of its range, if the projection does not give a positive
            number, or if `top_k_fraction` leaves no step.

    Example:
        >>> loss, weights, num_samples = (
        ...     rlaxlib.vmpo_compute_weights_and_temperature_loss(
        ...         advantages=jnp.array([3.0, -1.0, 3.0, 5.0]),
        ...         restarting_weights=jnp.array([1.0, 1.0, 1.0, 0.0]),
        ...         importance_weights=jnp.ones(4),
        ...         temperature_constraint=rlaxlib.LagrangePenalty(2.0, epsilon=0.5),
        ...         projection_operator=jax.nn.relu,
        ...         top_k_fraction=0.75,
        ...     )
        ... )
        >>> print(loss, weights, num_samples)
        4.0 [0.5 0.  0.5 0. ] 2.0

    References:
        H. Francis Song, Abbas Abdolmaleki, Jost Tobias Springenberg and others, *V-MPO:
        On-Policy Maximum a Posteriori Policy Optimization for Discrete and Continuous
        Control*, section 4.1, 2020. https://arxiv.org/abs/1909.12238
    """
    advantages, restarting, importance = checks.arrays(
        advantages=(advantages, "float[...]"),
        restarting_weights=(restarting_weights, "float[...]"),
        importance_weights=(importance_weights, "float[...]"),
    )
    checks.binary(restarting_weights=restarting)
    checks.within("[0, inf)", importance_weights=importance)
    constraint = _constraints.check_temperature(temperature_constraint)
    chosen = _top_k(top_k_fraction, advantages, restarting, axis_name)
    (advantages, importance, constraint), narrow = _constraints.widen(
        (advantages, importance, constraint)
    )
    temperature = _constraints.temperature(constraint, projection_operator)
    return narrow(
        _e_step(
            advantages,
            chosen,
            importance,
            temperature,
            constraint,
            axis_name,
            use_stop_gradient,
        )
    )


def get_top_k_weights(
    top_k_fraction: float,
    restarting_weights: ArrayLike,
    scaled_advantages: ArrayLike,
    axis_name: AxisName | None = None,
    use_stop_gradient: bool = True,
) -> Array:
    """Mark the steps of highest advantage.

    .. math::

        y_t = { 1   if Â_t is among the ⌊f N⌋ highest of the N steps that count
              { 0   otherwise

    V-MPO learns from these steps alone: with half of them it does so faster, and more
    reliably, than with all.

    Args:
        top_k_fraction: Part :math:`f` of the steps that count to mark, in (0, 1]. Their
            number is rounded down; at least one is marked.
        restarting_weights: 1 where a step counts, and 0 where it does not, whatever its
            advantage is, shape `[...]`.
        scaled_advantages: Advantages, on any scale, of the same shape, shape `[...]`.
            Of equal ones, the first in the batch are marked.
        axis_name: Name of the axis, or axes, that devices form, to choose from the
            steps of all; or None.
        use_stop_gradient: Of no effect: a choice has no gradient to stop.

    Returns:
        The marks, shape `[...]`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if a weight is
            neither 0 nor 1, or if `top_k_fraction` leaves no step.

    Example:
        >>> advantages = jnp.array([3.0, 1.0, 2.0, 9.0])
        >>> print(rlaxlib.get_top_k_weights(0.5, jnp.ones(4), advantages))
        [1. 0. 0. 1.]

    References:
        H. Francis Song, Abbas Abdolmaleki, Jost Tobias Springenberg and others, *V-MPO:
        On-Policy Maximum a Posteriori Policy Optimization for Discrete and Continuous
        Control*, section 4.1, 2020. https://arxiv.org/abs/1909.12238
    """
    del use_stop_gradient
    restarting, advantages = checks.arrays(
        restarting_weights=(restarting_weights, "float[...]"),
        scaled_advantages=(scaled_advantages, "float[...]"),
    )
    checks.binary(restarting_weights=restarting)
    chosen = _top_k(top_k_fraction, advantages, restarting, axis_name)
    return chosen.astype(jnp.result_type(restarting, advantages))


def _e_step(
    advantages: Array,
    chosen: Array,
    importance: Array | None,
    temperature: Array,
    constraint: LagrangePenalty,
    axis_name: AxisName | None,
    stop: ArrayLike,
) -> tuple[Array, Array, Array]:
    """Return the loss of the temperature, the weights, and how many steps have one."""
    if importance is None:
        importance = jnp.ones_like(advantages)
    importance = gradients.stop_if(stop, importance)
    prior = jnp.where(chosen, importance, jnp.zeros_like(importance))

    def total(x: Array) -> Array:
        return devices.total(jnp.sum(x), axis_name)

    advantages = _reweighting.finite(advantages)
    largest = devices.largest(advantages, prior > 0, axis_name)
    advantages = jnp.where(prior > 0, advantages, largest)
    count = total(chosen.astype(advantages.dtype))
    weights, soft_maximum = _reweighting.reweigh(
        advantages, temperature, largest, count, total, prior
    )
    weights = gradients.stop_if(stop, weights)
    return temperature * constraint.epsilon + soft_maximum, weights, count


def _top_k(
    fraction: float,
    advantages: Array,
    restarting: Array | None,
    axis_name: AxisName | None,
) -> Array:
    """Tell which steps are among the best of those that count.

    Args:
        fraction: Part of the steps that count to choose.
        advantages: Advantages, of any shape.
        restarting: Not 0 where a step counts, of the same shape; or None if all do.
        axis_name: Name of the axis that devices form, or None.

    Returns:
        Bools, of the shape of the advantages.
    """
    valid = jnp.ones_like(advantages, bool) if restarting is None else restarting != 0
    steps = advantages.size * devices.number(axis_name)
    checks.static(top_k_fraction=fraction)
    checks.within("(0, 1]", top_k_fraction=np.asarray(fraction))
    if fraction == 1:
        return valid
    # A ratio of whole numbers, so that a part of `n` steps is rounded down exactly, and
    # small enough for 32 bits.
    ratio = Fraction(float(fraction)).limit_denominator((2**31 - 1) // steps)
    part, whole = ratio.as_integer_ratio()
    most = part * steps // whole
    checks.static_int(1, **{f"int(top_k_fraction * {steps})": most})

    here = jax.lax.stop_gradient(jnp.where(valid, advantages, -jnp.inf)).reshape(-1)
    position = jnp.arange(here.size, dtype=jnp.int32)
    everywhere = devices.gather(here, axis_name)
    if axis_name is not None:
        position += jax.lax.axis_index(axis_name) * here.size
    best, order = jax.lax.top_k(everywhere, most)
    count = devices.total(jnp.sum(valid, dtype=jnp.int32), axis_name)
    count = jnp.maximum(1, count * part // whole)
    taken = jnp.arange(order.size, dtype=jnp.int32) < count
    # The last to be taken, and the last of those as good as it. To read one entry would
    # have a compiler make a sort of the top-k, at twice the time.
    least = jnp.min(best, initial=jnp.inf, where=taken)
    last = jnp.max(order, initial=-1, where=taken & (best == least))
    # Equal ones are in the order of their positions: no need to scatter marks.
    worse = (here < least) | ((here == least) & (position > last))
    return valid & ~worse.reshape(advantages.shape)
