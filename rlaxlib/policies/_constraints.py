"""Constraints with Lagrange multipliers: KL (MPO, V-MPO) and costs (PID Lagrangian).

A constraint :math:`KL ≤ ε` enters the loss as the penalty :math:`α KL`. Its dual
variable :math:`α ≥ 0` is learned: it rises while the divergence exceeds :math:`ε`, and
falls while it is below. `pid_lagrangian` controls the multiplier of a cost instead.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient

from rlaxlib._core import devices, moments
from rlaxlib._core.functions import FunctionTuple
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, AxisName, Float
from rlaxlib.policies._shared import (
    KlConstraints,
    LagrangePenalty,
    Projection,
    check_dual,
    losses_of,
    total_losses,
)

__all__ = [
    "PidLagrangian",
    "PidLagrangianState",
    "compute_parametric_kl_penalty_and_dual_loss",
    "kl_constraint_loss",
    "pid_lagrangian",
]


@checked
def kl_constraint_loss(
    kl: Float[ArrayLike, "..."],
    penalty: LagrangePenalty,
    projection_operator: Projection,
    use_stop_gradient: bool = True,
) -> tuple[Float[Array, "*_"], Float[Array, "*_"], Float[Array, "*_"]]:
    """Compute the losses of a KL constraint and of its dual variable (MPO).

    Takes divergences of any shape, returns two losses of each, and the dual variable.

    ::

        L_KL = α KL,   L_α = α (ε - KL),   α = project(`penalty.alpha`)

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
        ArgumentError: If a shape, dtype or concrete bound is wrong.

    Example:
        >>> penalty = rlaxlib.LagrangePenalty(alpha=2.0, epsilon=0.5)
        >>> losses = rlaxlib.kl_constraint_loss(jnp.array([1.0]), penalty, jax.nn.relu)
        >>> print(*losses)
        [2.] [-1.] 2.0

    References:
        Abbas Abdolmaleki and others, *Maximum a Posteriori Policy Optimisation*,
        section 4.2, 2018. https://arxiv.org/abs/1806.06920
    """
    check_dual("penalty", penalty, "kl", kl)
    return losses_of(kl, penalty, projection_operator, use_stop_gradient)


@checked
def compute_parametric_kl_penalty_and_dual_loss(
    kl_constraints: KlConstraints,
    projection_operator: Projection,
    use_stop_gradient: bool = True,
) -> tuple[Float[Array, "*_"], Float[Array, "*_"]]:
    """Compute the losses of several KL constraints and their dual variables (MPO).

    Takes divergences of any shape, returns two losses of each.

    ::

        L_KL = ∑_k α_k KL_k,   L_α = ∑_k α_k (ε_k - KL_k)

    `mpo_loss` describes the divergences, `kl_constraint_loss` the gradients.

    Args:
        kl_constraints: Pairs of divergences :math:`KL_k` and penalties; may be empty.
            Divergences have one shape, and a last axis if per dimension.
        projection_operator: Projection onto positive values, such as `jax.nn.softplus`.
        use_stop_gradient: Whether to stop the gradients, as in `kl_constraint_loss`.

    Returns:
        A tuple of two: both losses, summed over dimensions; 0 without constraints.

    Raises:
        ArgumentError: If a shape, dtype or concrete bound is wrong.

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
    return total_losses(kl_constraints, projection_operator, use_stop_gradient)


class PidLagrangianState(NamedTuple):
    """State of `pid_lagrangian`, in single precision at least.

    Attributes:
        integral: Sum :math:`I_k` of the excess costs, in [0, inf), shape `[]`.
        cost: Cost :math:`C_k` of the last update, shape `[]`.
        integral_rest: Rounding error of `integral`, shape `[]`. Without it, a large
            integral would not change by a small excess.
    """

    integral: Float[Array, "in [0, inf)"]
    cost: Float[Array, ""]
    integral_rest: Float[ArrayLike, ""] = 0.0


@checked
def pid_lagrangian(
    limit: Float[ArrayLike, ""],
    k_p: Float[ArrayLike, "in [0, inf)"],
    k_i: Float[ArrayLike, "in [0, inf)"],
    k_d: Float[ArrayLike, "in [0, inf)"] = 0.0,
    *,
    axis_name: AxisName | None = None,
) -> PidLagrangian:
    """Create a PID controller of the Lagrange multiplier of a cost (constrained RL).

    Takes one mean cost at each update, returns the multiplier.

    ::

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
        k_p: Proportional gain :math:`K_P`, in [0, inf), shape `[]`.
        k_i: Integral gain :math:`K_I`, in [0, inf), shape `[]`.
        k_d: Derivative gain :math:`K_D`, in [0, inf), shape `[]`.
        axis_name: Mapped axis name, or names, to average the cost over; or None.

    Returns:
        A `PidLagrangian`. `init(cost=0.0)` takes the cost :math:`C_0` and returns a
        `PidLagrangianState`. `update(state, cost)` takes the mean cost of an episode,
        shape `[]`, and returns the multiplier :math:`λ_k`, shape `[]`, with its
        gradient stopped, and the next state.

    Raises:
        ArgumentError: If a shape or dtype is wrong or a concrete gain negative.

    Example:
        >>> init, update = rlaxlib.pid_lagrangian(limit=2.0, k_p=1.0, k_i=0.5)
        >>> multiplier, state = update(init(), 4.0)
        >>> print(multiplier, update(state, 1.0)[0])
        3.0 0.0

    References:
        Adam Stooke, Joshua Achiam and Pieter Abbeel, *Responsive Safety in
        Reinforcement Learning by PID Lagrangian Methods*, 2020.
        https://arxiv.org/abs/2007.03964
    """
    return PidLagrangian(limit, k_p, k_i, k_d, axis_name)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PidLagrangian(FunctionTuple):
    """A PID controller of a Lagrange multiplier, which `pid_lagrangian` makes.

    Attributes:
        limit: Limit of the cost, shape `[]`.
        k_p: Proportional gain, in [0, inf), shape `[]`.
        k_i: Integral gain, in [0, inf), shape `[]`.
        k_d: Derivative gain, in [0, inf), shape `[]`.
        axis_name: Mapped axis name, or names, to average the cost over; or None.
    """

    limit: Float[ArrayLike, ""]
    k_p: Float[ArrayLike, "in [0, inf)"]
    k_i: Float[ArrayLike, "in [0, inf)"]
    k_d: Float[ArrayLike, "in [0, inf)"]
    axis_name: AxisName | None = dataclasses.field(metadata={"static": True})
    _functions = ("init", "update")

    @checked(wide=True)
    def init(self, cost: Float[ArrayLike, ""] = 0.0) -> PidLagrangianState:
        """Return the initial state.

        Args:
            cost: Cost before the first update, shape `[]`.

        Returns:
            The state.

        Raises:
            ArgumentError: If the cost is not a number.
        """
        zero = jnp.zeros((), cost.dtype)
        return PidLagrangianState(zero, zero + cost, zero)  # Not weakly typed.

    @checked(wide=True)
    def update(
        self, state: PidLagrangianState, cost: Float[ArrayLike, ""]
    ) -> tuple[Float[Array, ""], PidLagrangianState]:
        """Compute the multiplier from the cost of one update.

        Args:
            state: State of the controller.
            cost: Mean cost of an episode, shape `[]`.

        Returns:
            The multiplier, shape `[]`, and the next state.

        Raises:
            ArgumentError: If the cost or the state does not fit.
        """
        cost = stop_gradient(devices.mean(cost, self.axis_name))
        cost = cost.astype(state.cost.dtype)
        delta = cost - self.limit
        rest = state.integral_rest.astype(cost.dtype)
        integral, rest = moments.add(state.integral, rest, delta)
        rest = jnp.where(integral > 0, rest, 0)
        integral = jax.nn.relu(integral)
        derivative = jax.nn.relu(cost - state.cost)
        multiplier = self.k_p * delta + self.k_i * integral
        multiplier += self.k_d * derivative
        state = PidLagrangianState(integral, cost, rest)
        return jax.nn.relu(multiplier), state
