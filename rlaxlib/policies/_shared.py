"""Lagrange penalties and the steps of MPO, which the chapters of policies share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient

from rlaxlib import diagnostics, distributions
from rlaxlib._core import checks, safe
from rlaxlib._core.gradients import stop_if
from rlaxlib._core.types import Array, ArrayLike, Float, Static

__all__ = ["LagrangePenalty", "MpoConstraintOutputs", "MpoWeightOutputs"]

Projection = Callable[[Array], Array]


# Applied in single precision at least: 1e-10 is 0 in float16.
positive = functools.partial(jnp.clip, min=1e-10)


def softplus(x: Array) -> Array:
    """Return :math:`log(1 + e^x) + 10⁻⁸`, which is positive for any `x`."""
    return jax.nn.softplus(x) + 1e-8


class LagrangePenalty(NamedTuple):
    """A bound on a divergence, and the dual variable that enforces it.

    In JAX transformations `per_dimension` stays a Python bool.

    Attributes:
        alpha: Parameter of the dual variable :math:`α`, before the projection.
        epsilon: Bound :math:`ε` on the divergence, in [0, inf), shape `[]`.
        per_dimension: Whether each action dimension has its own constraint with this
            bound. Divergences then have one more axis, the last.
    """

    alpha: Float[ArrayLike, "*_"]
    epsilon: Float[ArrayLike, "in [0, inf)"]
    per_dimension: Static[bool, ""] = False


# As an ordinary named tuple, `per_dimension` would be traced.
jax.tree_util.register_dataclass(
    LagrangePenalty, data_fields=("alpha", "epsilon"), meta_fields=("per_dimension",)
)


KlConstraints = Sequence[tuple[Float[ArrayLike, "*_"], LagrangePenalty]]


class MpoWeightOutputs(NamedTuple):
    """E-step diagnostics of MPO: the weights of the actions and their temperature.

    Fields other than the loss have no gradient.

    Attributes:
        loss: Loss of the temperature, shape `[]`.
        temperature: Temperature :math:`η`, shape `[]`.
        weights: Weights of the N samples, shape `[N]`, or of all actions, shape `[A]`.
        kl: KL(weights ‖ target policy) in nats, shape `[]`. From samples it is at most
            :math:`log N`; with a larger bound the temperature falls to 0.
        relative_kl: `kl` divided by its bound, shape `[]`. Its mean approaches 1.
        effective_sample_size: Effective sample size :math:`1/∑_i w_i²`, shape `[]`.
    """

    loss: Float[Array, ""]
    temperature: Float[Array, ""]
    weights: Float[Array, "*_"]
    kl: Float[Array, ""]
    relative_kl: Float[Array, ""]
    effective_sample_size: Float[Array, ""]


class MpoConstraintOutputs(NamedTuple):
    """M-step diagnostics of MPO: a KL constraint and its dual variable.

    Fields other than the losses have no gradient.

    Attributes:
        kl_loss: Penalty on the divergence, shape `[]`.
        alpha_loss: Loss of the dual variable, shape `[]`.
        alpha: Dual variable :math:`α`, of the shape of its parameter.
        kl: KL(target policy ‖ policy) in nats, shape `[]`; or `[D]` if per dimension.
        relative_kl: `kl` divided by its bound. `alpha` rises if its mean is above 1.
    """

    kl_loss: Float[Array, ""]
    alpha_loss: Float[Array, ""]
    alpha: Float[Array, "*_"]
    kl: Float[Array, "*_"]
    relative_kl: Float[Array, "*_"]


# --- Losses of penalties. ---


def project(operator: Projection, alpha: Array) -> Array:
    """Return a projected dual variable, after checking its shape."""
    return checks.result("projection_operator(alpha)", operator(alpha), alpha.shape)


def losses_of(
    kl: Array, penalty: LagrangePenalty, operator: Projection, stop: bool = True
) -> tuple[Array, Array, Array]:
    """Return both losses of a constraint, and its projected dual variable."""
    dual = project(operator, penalty.alpha)
    alpha = jnp.broadcast_to(dual.reshape(()) if dual.size == 1 else dual, kl.shape)
    kl_loss = stop_if(stop, alpha) * kl
    alpha_loss = alpha * (penalty.epsilon - stop_if(stop, kl))
    if penalty.per_dimension:
        kl_loss, alpha_loss = jnp.sum(kl_loss, axis=-1), jnp.sum(alpha_loss, axis=-1)
    return kl_loss, alpha_loss, dual


def total_losses(
    kl_constraints: KlConstraints,
    operator: Projection,
    stop: bool = True,
    states: tuple[str, Array] | None = None,
) -> tuple[Array, Array]:
    """Return the sums of both losses over constraints.

    Args:
        kl_constraints: Pairs of divergences and penalties.
        operator: Function that makes the dual variables positive.
        stop: Whether to stop the gradients.
        states: An argument with the axes of the states, and its name. By default the
            divergences of the first constraint.

    Returns:
        Both sums, 0 if there are no constraints.
    """
    zero = jnp.asarray(0.0)  # Weakly typed, so that it adds to any dtype.
    kl_loss = alpha_loss = zero if states is None else jnp.zeros_like(states[1])
    for i, (kl, penalty) in enumerate(kl_constraints):
        path = f"kl_constraints[{i}]"
        check_dual(f"{path}[1]", penalty, f"{path}[0]", kl)
        states = states or (f"{path}[0]", kl[..., 0] if penalty.per_dimension else kl)
        axes = states[1].shape + kl.shape[-1:] * penalty.per_dimension
        check_shape(f"{path}[0]", kl, [axes], *states)
        losses = losses_of(kl, penalty, operator, stop)
        kl_loss, alpha_loss = kl_loss + losses[0], alpha_loss + losses[1]
    return kl_loss, alpha_loss


def temperature(name: str, constraint: LagrangePenalty, operator: Projection) -> Array:
    """Return the temperature of an E-step, shape `[]`."""
    check_dual(name, constraint, "temperature", jnp.zeros(()))
    return project(operator, constraint.alpha).reshape(())


# --- The E-step and the M-step. ---


def exponents(values: Array, best: Array, eta: Array) -> Array:
    """Return :math:`(x - max x) / η`, finite for a value of minus infinity.

    Its weight is 0, and the gradient by the temperature would be `0 * inf`.
    """
    return safe.floored(values - best) / eta


def e_step(
    values: Array,
    eta: Array,
    epsilon: Array,
    log_prior: Array | float,
    axis: int = 0,
) -> tuple[Array, Array]:
    """Return the temperature loss and the weights: p e^{x/η}, normalised."""
    # Relative to the best value: terms of size x/η cancel in the gradient by η.
    best = stop_gradient(jnp.max(values, axis=axis, keepdims=True))
    logits = log_prior + exponents(values, best, eta)
    soft_maximum = jnp.squeeze(best, axis) + eta * jax.nn.logsumexp(logits, axis=axis)
    return eta * epsilon + soft_maximum, jax.nn.softmax(logits, axis=axis)


def weigh(
    name: str,
    values: Array,
    log_prior: Array,
    constraint: LagrangePenalty,
    operator: Projection,
) -> MpoWeightOutputs:
    """Do the E-step for one state, and return its diagnostics.

    Args:
        name: Name of the argument that is the constraint.
        values: Values of the actions, without gradient, `[N]`.
        log_prior: Log-probabilities of the actions before the E-step, `[N]`.
        constraint: The constraint on the weights, checked.
        operator: Function that makes the temperature positive.
    """
    eta = temperature(name, constraint, operator)
    loss, weights = e_step(values, eta, constraint.epsilon, log_prior)
    weights, eta = stop_gradient((weights, eta))
    log_weights = jnp.log(weights)
    kl = distributions.categorical_kl_divergence(log_weights, log_prior)
    size = diagnostics.effective_sample_size(log_weights)
    return MpoWeightOutputs(loss, eta, weights, kl, _relative(kl, constraint), size)


def constrain(
    name: str, kl: Array, constraint: LagrangePenalty, operator: Projection
) -> MpoConstraintOutputs:
    """Compute the losses of a KL constraint for one state, and its diagnostics."""
    check_dual(name, constraint, "divergences", kl)
    kl_loss, alpha_loss, alpha = losses_of(kl, constraint, operator)
    alpha, kl = stop_gradient((alpha, kl))
    relative = _relative(kl, constraint)
    return MpoConstraintOutputs(kl_loss, alpha_loss, alpha, kl, relative)


def _relative(kl: Array, constraint: LagrangePenalty) -> Array:
    """Return divergences divided by their bound, with the convention 0 / 0 = 0."""
    epsilon = stop_gradient(constraint.epsilon)
    return kl / jnp.where(kl > 0, epsilon, 1)


# --- Checks of shapes. ---


def check_dual(name: str, penalty: LagrangePenalty, kl_name: str, kl: Array) -> None:
    """Check that a dual variable is one for all divergences, or one for each."""
    if penalty.per_dimension and not kl.ndim:
        checks.fail(f"`{name}.per_dimension` is True, must be False")
    dimensions = [kl.shape[-1:]] if penalty.per_dimension else []
    shapes = [(), (1,), *dimensions, kl.shape]
    check_shape(f"{name}.alpha", penalty.alpha, shapes, kl_name, kl)


def check_shape(
    name: str, x: Array, shapes: list[tuple[int, ...]], other: str, like: Array
) -> None:
    """Check that an array has one of the shapes that fit to another array."""
    if x.shape not in shapes:
        needed = " or ".join(map(str, dict.fromkeys(shapes)))
        match = f" to match `{other}`, which has shape {like.shape}" * bool(like.ndim)
        checks.fail(f"`{name}` has shape {x.shape}, must be {needed}{match}")
