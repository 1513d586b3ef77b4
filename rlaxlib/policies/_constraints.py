"""Constraints with Lagrange multipliers: KL (MPO, V-MPO) and costs (PID Lagrangian).

A constraint :math:`KL ≤ ε` enters the loss as the penalty :math:`α KL`. Its dual
variable :math:`α ≥ 0` is learned: it rises while the divergence exceeds :math:`ε`, and
falls while it is below. `pid_lagrangian` controls the multiplier of a cost instead.
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
from rlaxlib._core.devices import AxisName
from rlaxlib.normalization import StateFunctions

__all__ = [
    "LagrangePenalty",
    "PidLagrangianState",
    "compute_parametric_kl_penalty_and_dual_loss",
    "kl_constraint_loss",
    "pid_lagrangian",
]

Projection = Callable[[Array], Array]
Tree = TypeVar("Tree")

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
        epsilon: Bound :math:`ε` on the divergence, at least 0.
        per_dimension: Whether each action dimension has its own constraint with this
            bound. Divergences then have one more axis, the last.
    """

    alpha: ArrayLike
    epsilon: ArrayLike
    per_dimension: bool = False


# As an ordinary named tuple, `per_dimension` would be traced.
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
    """Compute the losses of a KL constraint and of its dual variable (MPO).

    Takes divergences of any shape, returns two losses of each, and the dual variable.

    .. math:: L_KL = α KL,   L_α = α (ε - KL),   α = project(`penalty.alpha`)

    The first loss trains the policy, the second :math:`α`; other gradients are stopped.

    Args:
        kl: Divergences, shape `[...]`; with a last axis if `penalty.per_dimension`.
        penalty: Bound, and one dual variable, or one for each divergence or dimension.
        projection_operator: Projection onto positive values, such as `jax.nn.softplus`.
        use_stop_gradient: Whether to stop the other gradients. If not, the divergence
            cancels in the sum of both losses.

    Returns:
        A tuple of three: both losses, shape `[...]`, summed over dimensions; and the
            projected dual variable, of the shape of `penalty.alpha`.

    Raises:
        ArgumentError: If a shape, dtype, concrete bound or projected value is wrong.

    Example:
        >>> penalty = rlaxlib.LagrangePenalty(alpha=2.0, epsilon=0.5)
        >>> losses = rlaxlib.kl_constraint_loss(jnp.array([1.0]), penalty, jax.nn.relu)
        >>> print(*losses)
        [2.] [-1.] 2.0

    References:
        Abbas Abdolmaleki and others, *Maximum a Posteriori Policy Optimisation*,
        section 4.2, 2018. https://arxiv.org/abs/1806.06920
    """
    constraint = check_constraint("kl", kl, "penalty", penalty)
    constraint, narrow = widen(constraint)
    return narrow(
        losses_of("penalty", *constraint, projection_operator, use_stop_gradient)
    )


def compute_parametric_kl_penalty_and_dual_loss(
    kl_constraints: KlConstraints,
    projection_operator: Projection,
    use_stop_gradient: bool = True,
) -> tuple[Array, Array]:
    """Compute the losses of several KL constraints and their dual variables (MPO).

    Takes divergences of any shape, returns two losses of each.

    .. math:: L_KL = ∑_k α_k KL_k,   L_α = ∑_k α_k (ε_k - KL_k)

    `mpo_loss` describes the divergences, `kl_constraint_loss` the gradients.

    Args:
        kl_constraints: Pairs of divergences :math:`KL_k` and penalties; may be empty.
            Divergences have one shape, and a last axis if per dimension.
        projection_operator: Projection onto positive values, such as `jax.nn.softplus`.
        use_stop_gradient: Whether to stop the gradients, as in `kl_constraint_loss`.

    Returns:
        A tuple of two: both losses, summed over dimensions; 0 without constraints.

    Raises:
        ArgumentError: If a shape, dtype, concrete bound or projected value is wrong.

    Example:
        >>> constraint = rlaxlib.LagrangePenalty(alpha=2.0, epsilon=0.5)
        >>> constraints = [(jnp.array(kl), constraint) for kl in (1.0, 0.25)]
        >>> loss = rlaxlib.compute_parametric_kl_penalty_and_dual_loss
        >>> print(*loss(constraints, jax.nn.relu))
        2.5 -0.5

    References:
        Abbas Abdolmaleki and others, *Relative Entropy Regularized Policy Iteration*,
        section 4.2, 2018. https://arxiv.org/abs/1812.02256
    """
    constraints, narrow = widen(check_constraints(kl_constraints))
    zero = jnp.asarray(0.0)  # Weakly typed, so that it adds to any dtype.
    return narrow(
        total_losses(constraints, projection_operator, use_stop_gradient, zero)
    )


class PidLagrangianState(NamedTuple):
    """State of `pid_lagrangian`, in single precision at least.

    Attributes:
        integral: Sum :math:`I_k ≥ 0` of the excess costs, shape `[]`.
        cost: Cost :math:`C_k` of the last update, shape `[]`.
    """

    integral: Array
    cost: Array


def pid_lagrangian(
    limit: ArrayLike,
    k_p: ArrayLike,
    k_i: ArrayLike,
    k_d: ArrayLike = 0.0,
    *,
    axis_name: AxisName | None = None,
) -> StateFunctions[Array, PidLagrangianState]:
    """Create a PID controller of the Lagrange multiplier of a cost (constrained RL).

    Takes one mean cost at each update, returns the multiplier.

    .. math::

        λ_k = [K_P Δ_k + K_I I_k + K_D (C_k - C_{k-1})⁺]⁺,
        Δ_k = C_k - d,   I_k = (I_{k-1} + Δ_k)⁺

    The policy maximises its return subject to :math:`C ≤ d`. Its loss is
    :math:`(L_return + λ L_cost) / (1 + λ)`, where :math:`L_cost` is the policy-gradient
    loss with negated advantages of the cost.

    :math:`K_P = K_D = 0` is gradient ascent on the multiplier, which oscillates. The
    proportional term damps the oscillation, the derivative term acts on a rising cost
    before it exceeds the limit. Smooth noisy costs first, for example by `create_ema`.

    Args:
        limit: Limit :math:`d` of the cost, shape `[]`.
        k_p: Proportional gain :math:`K_P`, at least 0, shape `[]`.
        k_i: Integral gain :math:`K_I`, at least 0, shape `[]`.
        k_d: Derivative gain :math:`K_D`, at least 0, shape `[]`.
        axis_name: Mapped axis name, or names, to average the cost over; or None.

    Returns:
        A `StateFunctions` pair. `init(cost=0.0)` takes the cost :math:`C_0` and returns
        a `PidLagrangianState`. `update(cost, state)` takes the mean cost of an episode,
        shape `[]`, and returns the multiplier :math:`λ_k`, shape `[]`, with its
        gradient stopped, and the next state.

    Raises:
        ArgumentError: If a shape or dtype is wrong or a concrete gain negative.

    Example:
        >>> init, update = rlaxlib.pid_lagrangian(limit=2.0, k_p=1.0, k_i=0.5)
        >>> multiplier, state = update(4.0, init())
        >>> print(multiplier, update(1.0, state)[0])
        3.0 0.0

    References:
        Adam Stooke, Joshua Achiam and Pieter Abbeel, *Responsive Safety in
        Reinforcement Learning by PID Lagrangian Methods*, 2020.
        https://arxiv.org/abs/2007.03964
    """
    limit, k_p, k_i, k_d = checks.arrays(
        limit=(limit, "float[]"),
        k_p=(k_p, "float[] in [0, inf)"),
        k_i=(k_i, "float[] in [0, inf)"),
        k_d=(k_d, "float[] in [0, inf)"),
    )

    def init(cost: ArrayLike = 0.0) -> PidLagrangianState:
        """Return the initial state.

        Args:
            cost: Cost before the first update, `[]`.

        Returns:
            The state.
        """
        last_cost, _ = checks.widened(cost=(cost, "float[]"))
        zero = jnp.zeros((), last_cost.dtype)
        return PidLagrangianState(zero, zero + last_cost)  # Not weakly typed.

    def update(
        cost: ArrayLike, state: PidLagrangianState
    ) -> tuple[Array, PidLagrangianState]:
        """Compute the multiplier from the cost of one update.

        Args:
            cost: Mean cost of an episode, `[]`.
            state: State of the controller.

        Returns:
            The multiplier, and the next state.
        """
        integral, last_cost, _ = checks.widened(
            **{f"state.{name}": (x, "float[]") for name, x in state._asdict().items()}
        )
        mean, _ = checks.widened(cost=(cost, "float[]"))
        mean = mean if axis_name is None else jax.lax.pmean(mean, axis_name)
        mean = jax.lax.stop_gradient(mean)
        delta = mean - limit
        integral = jax.nn.relu(integral + delta)
        derivative = jax.nn.relu(mean - last_cost)
        multiplier = jax.nn.relu(k_p * delta + k_i * integral + k_d * derivative)
        return multiplier, PidLagrangianState(integral, mean)

    return StateFunctions(init, update)


# --- Losses, shared by MPO and V-MPO. ---


def losses_of(
    name: str,
    kl: Array,
    penalty: LagrangePenalty,
    operator: Projection,
    stop: ArrayLike = True,
) -> tuple[Array, Array, Array]:
    """Return both losses of a constraint, and its projected dual variable."""
    projected = _project(name, penalty, "[0, inf)", operator)
    alpha = projected.reshape(()) if projected.size == 1 else projected
    alpha = jnp.broadcast_to(alpha, kl.shape)
    kl_loss = gradients.stop_if(stop, alpha) * kl
    alpha_loss = alpha * (penalty.epsilon - gradients.stop_if(stop, kl))
    if penalty.per_dimension:
        kl_loss, alpha_loss = jnp.sum(kl_loss, axis=-1), jnp.sum(alpha_loss, axis=-1)
    return kl_loss, alpha_loss, projected


def total_losses(
    constraints: list[Constraint], operator: Projection, stop: ArrayLike, zero: Array
) -> tuple[Array, Array]:
    """Return the sums of both losses over constraints, or `zero` if there are none."""
    losses = [
        losses_of(f"kl_constraints[{i}][1]", kl, penalty, operator, stop)
        for i, (kl, penalty) in enumerate(constraints)
    ]
    kl_loss = sum((each[0] for each in losses), zero)
    alpha_loss = sum((each[1] for each in losses), zero)
    return kl_loss, alpha_loss


def temperature(
    constraint: LagrangePenalty,
    operator: Projection,
    name: str = "temperature_constraint",
) -> Array:
    """Return the temperature of an E-step, shape `[]`."""
    return _project(name, constraint, "(0, inf)", operator).reshape(())


def _project(
    name: str, penalty: LagrangePenalty, interval: str, operator: Projection
) -> Array:
    """Return the dual variable of a penalty."""
    projected = jnp.asarray(operator(jnp.asarray(penalty.alpha)))
    checks.within(interval, **{f"projection_operator({name}.alpha)": projected})
    return projected


# --- Checks. ---


def check_constraints(
    kl_constraints: KlConstraints, **example: Array
) -> list[Constraint]:
    """Check the KL constraints of an M-step, and convert them to JAX arrays.

    Args:
        kl_constraints: Pairs of divergences and penalties, as given by the user.
        **example: An array of the shape that the divergences must have, under a name
            for error messages. By default the first divergence.

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
    kl_name: str, kl: ArrayLike, name: str, penalty: LagrangePenalty, **example: Array
) -> Constraint:
    """Check one KL constraint, and convert it to JAX arrays."""
    per_dimension = _per_dimension(name, penalty)
    shape = "[..., D]" if per_dimension else "[...]"
    duals = f"[] or [1]{' or [D]' if per_dimension else ''} or {shape}"
    others = {each: (array, "float[...]") for each, array in example.items()}
    *_, divergence, alpha, epsilon = checks.arrays(
        **others, **{kl_name: (kl, f"float{shape}")}, **_specs(name, penalty, duals)
    )
    return divergence, LagrangePenalty(alpha, epsilon, per_dimension)


def check_penalty(
    name: str, penalty: LagrangePenalty, **example: Array
) -> LagrangePenalty:
    """Check the penalty of a constraint for one state, and convert it to JAX arrays.

    Args:
        name: The name of its argument.
        penalty: The penalty.
        **example: If the penalty may be per dimension, an array of the shape of the
            divergences per dimension, under its name.

    Returns:
        The penalty.
    """
    per_dimension = _per_dimension(name, penalty)
    if per_dimension and not example:
        checks.fail(f"`{name}.per_dimension` is True, must be False")
    duals = "[] or [1] or [D]" if per_dimension else "[] or [1]"
    others = {each: (array, "float[D]") for each, array in example.items()}
    *_, alpha, epsilon = checks.arrays(**others, **_specs(name, penalty, duals))
    return LagrangePenalty(alpha, epsilon, per_dimension)


def _per_dimension(name: str, penalty: LagrangePenalty) -> bool:
    """Return whether a penalty is per dimension, a Python bool."""
    per_dimension = getattr(penalty, "per_dimension", False)
    checks.static(**{f"{name}.per_dimension": per_dimension})
    return bool(per_dimension)


def _specs(
    name: str, penalty: LagrangePenalty, duals: str
) -> dict[str, tuple[Any, str]]:
    """Return the parts of a penalty under their names, with their specs."""
    alpha = getattr(penalty, "alpha", None)
    epsilon = getattr(penalty, "epsilon", None)
    return {
        f"{name}.alpha": (alpha, f"float{duals}"),
        f"{name}.epsilon": (epsilon, "float[] in [0, inf)"),
    }


def widen(tree: Tree) -> tuple[Tree, Callable[[Any], Any]]:
    """Do what `checks.widened` does, for the arrays of a pytree."""
    leaves, structure = cast(Any, jax.tree.flatten(tree))
    wide, narrow = dtypes.widen(*leaves)
    return jax.tree.unflatten(structure, wide), narrow
