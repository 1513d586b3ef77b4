"""Keep a policy close to what it was: constraints, and their dual variables.

A constraint :math:`KL ≤ ε` enters a loss as a penalty :math:`α KL`. Its multiplier
:math:`α`, the dual variable, is learned too: it rises while the constraint is broken,
and falls while it is kept.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib._core import checks, dtypes, gradients

__all__ = [
    "LagrangePenalty",
    "compute_parametric_kl_penalty_and_dual_loss",
    "kl_constraint_loss",
]

Projection = Callable[[Array], Array]
Tree = TypeVar("Tree")

# In single precision, which is what it is called in: in half, its bound would be 0.
positive = functools.partial(jnp.clip, min=1e-10)


def softplus(x: Array) -> Array:
    """Return a positive number, smooth in `x`, and never so small as to be 0."""
    return jax.nn.softplus(x) + 1e-8


class LagrangePenalty(NamedTuple):
    """A constraint's bound, and the dual variable that enforces it.

    Through `jax.jit`, `jax.grad` and the like, `alpha` and `epsilon` are arrays, and
    `per_dimension` stays the Python bool that it is.

    Attributes:
        alpha: Dual variable :math:`α`, before it is projected onto the positive
            numbers: a parameter to learn. For the constraint of the E-step it is the
            temperature :math:`η`.
        epsilon: Bound :math:`ε` on the divergence, at least 0.
        per_dimension: Whether each dimension of the actions has a constraint of its
            own, each with the bound `epsilon`. Divergences then have one more axis, the
            last.
    """

    alpha: ArrayLike
    epsilon: ArrayLike
    per_dimension: bool = False


# To JAX a named tuple is a tuple, all of whose fields are traced. Not this one.
jax.tree_util.register_dataclass(
    LagrangePenalty, data_fields=("alpha", "epsilon"), meta_fields=("per_dimension",)
)

KlConstraints = Sequence[tuple[ArrayLike, LagrangePenalty]]
Constraint = tuple[Array, LagrangePenalty]


def kl_constraint_loss(
    kl: ArrayLike,
    penalty: LagrangePenalty,
    projection_operator: Projection,
    use_stop_gradient: bool = True,
) -> tuple[Array, Array, Array]:
    """Penalise a divergence for exceeding its bound, and learn how strongly.

    .. math::

        L_KL = α KL,   L_α = α (ε - KL),   α = project(`penalty.alpha`)

    The first is for the policy, with :math:`α` held constant, the second for :math:`α`,
    with the divergence held constant. Minimised together, the policy moves closer while
    :math:`α` is large; and :math:`α` grows while the divergence is above its bound, and
    shrinks below it.

    Args:
        kl: Divergences :math:`KL`, shape `[...]`; with one more axis for the dimensions
            if `penalty.per_dimension`.
        penalty: The bound, and the dual variable: one number, or one for each
            divergence, or one for each dimension.
        projection_operator: What makes the dual variable positive, such as
            `jax.nn.softplus`.
        use_stop_gradient: Whether to hold constant what is said above to be constant.
            If not, the sum of both losses does not depend on the divergence.

    Returns:
        A tuple of three: the losses of the policy and those of the dual variable, each
            of shape `[...]`, summed over the dimensions if `penalty.per_dimension`; and
            the projected dual variable, of the shape that it has in `penalty`.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if
            `penalty.epsilon` is negative, or if the projection gives a negative number.

    Example:
        >>> penalty = rlaxlib.LagrangePenalty(alpha=2.0, epsilon=0.5)
        >>> losses = rlaxlib.kl_constraint_loss(jnp.array([1.0]), penalty, jax.nn.relu)
        >>> print(*losses)
        [2.] [-1.] 2.0

    References:
        Abbas Abdolmaleki, Jost Tobias Springenberg, Yuval Tassa, Rémi Munos, Nicolas
        Heess and Martin Riedmiller, *Maximum a Posteriori Policy Optimisation*, section
        4.2, 2018. https://arxiv.org/abs/1806.06920
    """
    constraint = check_constraint("kl", kl, "penalty", penalty)
    constraint, narrow = widen(constraint)
    losses = constrain("penalty", constraint, projection_operator, use_stop_gradient)
    return narrow(losses)


def compute_parametric_kl_penalty_and_dual_loss(
    kl_constraints: KlConstraints,
    projection_operator: Projection,
    use_stop_gradient: bool = True,
) -> tuple[Array, Array]:
    """Penalise several divergences at once, and learn how strongly.

    .. math::

        L_KL = ∑_k α_k KL_k,   L_α = ∑_k α_k (ε_k - KL_k)

    These are the M-step's constraints on how far the policy may move; `mpo_loss` tells
    which divergences to take, and why there may be several.

    Args:
        kl_constraints: Pairs of divergences :math:`KL_k` and their penalties. All
            divergences have the same shape, but for the further axis of those that are
            per dimension. There may be none.
        projection_operator: What makes the dual variables positive, such as
            `jax.nn.softplus`.
        use_stop_gradient: Whether to hold the dual variables constant in the first
            loss, and the divergences in the second. If not, the sum of the two does not
            depend on the divergences.

    Returns:
        A tuple of two: the losses of the policy and those of the dual variables, each
            of the divergences' shape without the axis of dimensions; of shape `[]` if
            there are no constraints.

    Raises:
        ArgumentError: If an argument has the wrong shape or dtype, if a bound is
            negative, or if the projection gives a negative number.

    Example:
        >>> mean = rlaxlib.LagrangePenalty(alpha=2.0, epsilon=0.5)
        >>> covariance = rlaxlib.LagrangePenalty(alpha=10.0, epsilon=0.1)
        >>> print(*rlaxlib.compute_parametric_kl_penalty_and_dual_loss(
        ...     [(jnp.array(1.0), mean), (jnp.array(0.1), covariance)], jax.nn.relu
        ... ))
        3.0 -1.0

    References:
        Abbas Abdolmaleki, Jost Tobias Springenberg, Jonas Degrave, Steven Bohez, Yuval
        Tassa, Dan Belov, Nicolas Heess and Martin Riedmiller, *Relative Entropy
        Regularized Policy Iteration*, section 4.2, 2018.
        https://arxiv.org/abs/1812.02256
    """
    constraints = check_constraints(kl_constraints)
    constraints, narrow = widen(constraints)
    none = jnp.asarray(0.0)  # Of a weak type, which gives way to any other.
    losses = dual_losses(constraints, projection_operator, use_stop_gradient, none)
    return narrow(losses)


# --- What MPO and V-MPO share. An error names the function that calls these. ---


def check_constraints(
    kl_constraints: KlConstraints, **example: Array
) -> list[Constraint]:
    """Check the constraints of an M-step, and return them with arrays in them.

    Args:
        kl_constraints: Pairs of divergences and penalties, as they were given.
        **example: An array of the shape that divergences must have, under the name that
            a user knows it by; or nothing, if the first of the divergences says.

    Returns:
        The pairs.
    """
    checked: list[Constraint] = []
    for i, (kl, penalty) in enumerate(kl_constraints):
        names = f"kl_constraints[{i}][0]", f"kl_constraints[{i}][1]"
        constraint = check_constraint(names[0], kl, names[1], penalty, **example)
        checked.append(constraint)
        if not example:
            divergence, checked_penalty = constraint
            first = divergence[..., 0] if checked_penalty.per_dimension else divergence
            example = {"kl_constraints[0][0], without dimensions": first}
    return checked


def check_constraint(
    kl_name: str,
    kl: ArrayLike,
    name: str,
    penalty: LagrangePenalty,
    **example: Array,
) -> Constraint:
    """Check one constraint, and return it with arrays in it."""
    per_dimension = _per_dimension(name, penalty)
    shape = "[..., D]" if per_dimension else "[...]"
    duals = f"[] or [1]{' or [D]' if per_dimension else ''} or {shape}"
    others = {each: (array, "float[...]") for each, array in example.items()}
    *_, divergence, alpha, epsilon = _check(
        name, penalty, duals, **others, **{kl_name: (kl, f"float{shape}")}
    )
    return divergence, LagrangePenalty(alpha, epsilon, per_dimension)


def check_bound(
    name: str, penalty: LagrangePenalty, **example: Array
) -> LagrangePenalty:
    """Check the constraint on the policy of one state, and return it with arrays in it.

    Args:
        name: The name of its argument.
        penalty: The constraint.
        **example: An array of the shape that divergences per dimension must have, under
            the name that a user knows it by; or nothing, if they cannot be.

    Returns:
        The constraint.
    """
    per_dimension = _per_dimension(name, penalty)
    if per_dimension and not example:
        checks.fail(f"`{name}.per_dimension` must be False, but is True")
    duals = "[] or [1] or [D]" if per_dimension else "[] or [1]"
    others = {each: (array, "float[D]") for each, array in example.items()}
    *_, alpha, epsilon = _check(name, penalty, duals, **others)
    return LagrangePenalty(alpha, epsilon, per_dimension)


def check_temperature(
    constraint: LagrangePenalty, name: str = "temperature_constraint"
) -> LagrangePenalty:
    """Check the constraint of an E-step, and return it with arrays in it."""
    alpha, epsilon = _check(name, constraint, "[] or [1]")
    return LagrangePenalty(alpha, epsilon)


def _per_dimension(name: str, penalty: LagrangePenalty) -> bool:
    """Return whether a constraint is one for each dimension."""
    per_dimension = getattr(penalty, "per_dimension", False)
    checks.static(**{f"{name}.per_dimension": per_dimension})
    return bool(per_dimension)


def _check(
    name: str, penalty: LagrangePenalty, duals: str, **others: tuple[ArrayLike, str]
) -> tuple[Array, ...]:
    """Check a penalty, beside arrays, and return these and what is in the penalty."""
    checked = checks.arrays(
        **others,
        **{
            f"{name}.alpha": (getattr(penalty, "alpha", None), f"float{duals}"),
            f"{name}.epsilon": (getattr(penalty, "epsilon", None), "float[]"),
        },
    )
    checks.within("[0, inf)", **{f"{name}.epsilon": checked[-1]})
    return checked


def _project(
    name: str, penalty: LagrangePenalty, interval: str, operator: Projection
) -> Array:
    """Return a dual variable, projected to where it must lie."""
    projected = jnp.asarray(operator(jnp.asarray(penalty.alpha)))
    checks.within(interval, **{f"projection_operator({name}.alpha)": projected})
    return projected


def temperature(
    constraint: LagrangePenalty,
    operator: Projection,
    name: str = "temperature_constraint",
) -> Array:
    """Return the temperature of an E-step, shape `[]`."""
    return _project(name, constraint, "(0, inf)", operator).reshape(())


def dual_losses(
    constraints: list[Constraint], operator: Projection, stop: ArrayLike, none: Array
) -> tuple[Array, Array]:
    """Return the losses of an M-step's constraints, for the policy and for the duals.

    Args:
        constraints: Pairs of divergences and penalties, checked.
        operator: What makes the dual variables positive.
        stop: Whether each loss holds constant what the other is for.
        none: What they are if there are no constraints.

    Returns:
        Both, of the divergences' shape without dimensions.
    """
    losses = [
        constrain(f"kl_constraints[{i}][1]", each, operator, stop)[:2]
        for i, each in enumerate(constraints)
    ]
    kl_losses, dual_losses = zip(*losses or [(none, none)], strict=True)
    return functools.reduce(jnp.add, kl_losses), functools.reduce(jnp.add, dual_losses)


def constrain(
    name: str, constraint: Constraint, operator: Projection, stop: ArrayLike
) -> tuple[Array, Array, Array]:
    """Return both losses of a constraint, and its projected dual variable."""
    kl, penalty = constraint
    projected = _project(name, penalty, "[0, inf)", operator)
    alpha = projected.reshape(()) if projected.size == 1 else projected
    alpha = jnp.broadcast_to(alpha, kl.shape)
    kl_loss = gradients.stop_if(stop, alpha) * kl
    dual_loss = alpha * (penalty.epsilon - gradients.stop_if(stop, kl))
    if penalty.per_dimension:
        kl_loss, dual_loss = jnp.sum(kl_loss, axis=-1), jnp.sum(dual_loss, axis=-1)
    return kl_loss, dual_loss, projected


def combine(
    temperature_loss: Array,
    policy_loss: Array,
    constraints: list[Constraint],
    operator: Projection,
    scales: list[Array],
) -> tuple[Array, tuple[Array, Array, Array, Array]]:
    """Add the losses of an M-step's constraints to those of policy and temperature.

    Args:
        temperature_loss: Loss of the temperature.
        policy_loss: Loss of the policy.
        constraints: Pairs of divergences and penalties, checked.
        operator: What makes the dual variables positive.
        scales: What to multiply the losses by: those of policy, temperature,
            divergences and duals.

    Returns:
        A tuple of two: the sum; and the losses of temperature, policy, divergences and
        duals.
    """
    none = jnp.zeros_like(policy_loss)
    kl_loss, dual_loss = dual_losses(constraints, operator, True, none)
    by_policy, by_temperature, by_kl, by_dual = scales
    total = (
        by_policy * policy_loss
        + by_temperature * temperature_loss
        + by_kl * kl_loss
        + by_dual * dual_loss
    )
    return total, (temperature_loss, policy_loss, kl_loss, dual_loss)


def widen(tree: Tree) -> tuple[Tree, Callable[[Any], Any]]:
    """Raise the half precision in a pytree to single, and say how to go back."""
    leaves, structure = cast(Any, jax.tree.flatten(tree))
    wide, narrow = dtypes.widen(*leaves)
    return jax.tree.unflatten(structure, wide), narrow
