"""Trust regions: natural gradients and TRPO, CPO, and the projection of ACER.

TRPO follows the direction :math:`x = F⁻¹ g`, which `jax.scipy.sparse.linalg.cg` finds
from products :math:`F v`, as far as the KL divergence allows:

- `fisher_vector_product`: products with the Fisher matrix, from a KL function.
- `trust_region_step_size`: the length of the step.
- `backtracking_line_search`: a shorter step, if the loss or the KL is too large.
- `cpo_step`: the step under a constraint on costs (CPO).
- `acer_trust_region`: gradients projected onto a bound of the KL (ACER).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp

from rlaxlib._core import checks, devices, dtypes, errors, safe
from rlaxlib._core.signatures import checked
from rlaxlib._core.types import Array, ArrayLike, AxisName, Bool, Float, Static, Tree

__all__ = [
    "CpoStep",
    "LineSearchOutputs",
    "acer_trust_region",
    "backtracking_line_search",
    "cpo_step",
    "fisher_vector_product",
    "trust_region_step_size",
]

ArrayTree = Any


class LineSearchOutputs(NamedTuple):
    """Diagnostics of a line search.

    Attributes:
        fraction: Fraction of the step that was taken, 0 if none was, shape `[]`.
        loss: Loss of the parameters returned, shape `[]`.
        kl: KL divergence of the parameters returned, shape `[]`.
    """

    fraction: Float[Array, ""]
    loss: Float[Array, ""]
    kl: Float[Array, ""]


class CpoStep(NamedTuple):
    """The step of CPO, :math:`a H⁻¹ g + β H⁻¹ b`.

    Attributes:
        gradient_coefficient: Coefficient :math:`a ≤ 0` of :math:`H⁻¹ g`, shape `[]`.
        cost_coefficient: Coefficient :math:`β` of :math:`H⁻¹ b`, shape `[]`.
        feasible: Whether a step in the trust region obeys the constraint, shape `[]`.
    """

    gradient_coefficient: Float[Array, ""]
    cost_coefficient: Float[Array, ""]
    feasible: Bool[Array, ""]


@checked
def fisher_vector_product(
    kl: Callable[[Any], Array],
    params: Tree[ArrayTree, "float"],
    vector: Tree[ArrayTree, "float like params"],
    damping: Float[ArrayLike, "in [0, inf)"] = 0.0,
    *,
    axis_name: AxisName | None = None,
) -> Tree[ArrayTree, "float like vector"]:
    """Compute the product of the Fisher matrix and a vector (TRPO, natural gradient).

    Takes a KL function and two pytrees, returns a pytree.

    ::

        F v + c v,   F = ∇² KL(π_old ‖ π_θ) at θ = θ_old

    It is the Hessian of the divergence times a vector, without the matrix. The old
    policy in `kl` must have no gradient: compute it outside of the function, or stop
    its gradient. If the batch is sharded over devices, give `axis_name`: each device
    computes `kl` of its own states, and the products are averaged.

    Args:
        kl: Function from parameters to the mean divergence
            :math:`KL(π_old ‖ π_θ)` over a batch of states, shape `[]`; on each device,
            over its own states. It gets half precision in float32.
        params: Parameters :math:`θ` of the old policy, a pytree.
        vector: Vector :math:`v`, a pytree of the same structure and shapes.
        damping: Damping :math:`c`, in [0, inf), such as 0.1, which keeps the matrix
            regular, shape `[]`.
        axis_name: Mapped axis name, or names, of the states; or None.

    Returns:
        The product, a pytree like `vector`.

    Raises:
        ArgumentError: If `vector` is not like `params`, or the result of `kl` or the
            concrete `damping` is wrong.

    Example:
        >>> def kl(logits):  # Of two actions, from equal probabilities.
        ...     log_pi = jax.nn.log_softmax(logits)
        ...     return jnp.sum(0.5 * (jnp.log(0.5) - log_pi))
        >>> vector = jnp.array([1.0, 0.0])
        >>> print(rlaxlib.fisher_vector_product(kl, jnp.zeros(2), vector))
        [ 0.25 -0.25]

    References:
        Barak A. Pearlmutter, *Fast Exact Multiplication by the Hessian*, 1994.
        https://doi.org/10.1162/neco.1994.6.1.147

        John Schulman and others, *Trust Region Policy Optimization*, appendix C, 2015.
        https://arxiv.org/abs/1502.05477
    """

    def own(x: Array) -> Array:
        wide = dtypes.raised(x)
        if axis_name is None:
            return wide
        # In `jax.shard_map`, a gradient by an array that devices share is a sum over
        # them, unlike in `jax.vmap`, `jax.pmap`, or with `check_vma=False`.
        return wide + (0 * jax.lax.axis_index(axis_name)).astype(wide.dtype)

    def average(x: Array) -> Array:
        return devices.mean(x, axis_name)

    def divergence(params: ArrayTree) -> Array:
        return checks.result("kl(params)", kl(params))

    at, along = jax.tree.map(own, (params, vector))
    along = jax.tree.map(dtypes.like, along, at)
    product = jax.jvp(jax.grad(divergence), (at,), (along,))[1]
    return _move(jax.tree.map(average, product), damping, vector)


@checked(wide=True)
def trust_region_step_size(
    direction: Tree[ArrayTree, "float"],
    product: Tree[ArrayTree, "float like direction"],
    max_kl: Float[ArrayLike, "in [0, inf)"] = 0.01,
) -> Float[Array, ""]:
    """Compute the size of the step to the boundary of a trust region (TRPO).

    Takes a direction and its product with the Fisher matrix, returns one number.

    ::

        α = √(2 δ / (xᵀ F x))

    A step :math:`α x` has a divergence of :math:`½ α² xᵀ F x = δ`, to second order.

    Args:
        direction: Direction :math:`x`, such as the natural gradient, a pytree.
        product: Product :math:`F x`, a pytree of the same structure and shapes.
        max_kl: Bound :math:`δ` on the divergence, in [0, inf), 0.001 to 0.05,
            shape `[]`.

    Returns:
        Step size :math:`α`, shape `[]`, in single precision at least; 0 if
        :math:`xᵀ F x` is not positive.

    Raises:
        ArgumentError: If `product` is not like `direction`, both of float arrays, or
            the concrete `max_kl` is negative.

    Example:
        >>> direction, product = jnp.array([1.0, 2.0]), jnp.array([4.0, 2.0])
        >>> print(rlaxlib.trust_region_step_size(direction, product, max_kl=1.0))
        0.5

    References:
        John Schulman and others, *Trust Region Policy Optimization*, appendix C, 2015.
        https://arxiv.org/abs/1502.05477
    """
    # GPUs and TPUs multiply in lower precision by default.
    dot = functools.partial(jnp.vdot, precision="highest")
    products = jax.tree.map(dot, direction, product)
    length = cast(Array, sum(jax.tree.leaves(products)))
    return _root_of_ratio(2 * max_kl, length)


@checked(wide=True)
def backtracking_line_search(
    evaluate: Callable[[Any], tuple[Array, Array]],
    params: Tree[ArrayTree, "float"],
    step: Tree[ArrayTree, "float like params"],
    max_kl: Float[ArrayLike, "in [0, inf]"] = 0.01,
    shrink: Float[ArrayLike, "in (0, 1)"] = 0.8,
    num_tries: Static[int, "in [1, inf)"] = 10,
) -> tuple[Tree[ArrayTree, "float like params"], LineSearchOutputs]:
    """Find a step that lowers the loss within a trust region (TRPO).

    Takes parameters and a step, returns new parameters, and diagnostics.

    ::

        θ' = θ + β^j s
        j = min {j : L(θ + β^j s) < L(θ) and KL(θ + β^j s) ≤ δ}

    Without such a :math:`j` below the number of tries, the parameters stay the same.

    Args:
        evaluate: Function from parameters to a tuple of the loss and the divergence
            from the old policy, both of shape `[]`. NaN fails.
        params: Parameters :math:`θ`, a pytree.
        step: Largest step :math:`s`, a pytree of the same structure and shapes.
        max_kl: Bound :math:`δ` on the divergence, in [0, inf], shape `[]`.
        shrink: Factor :math:`β` in (0, 1) from one try to the next, shape `[]`.
        num_tries: Number of tries, a Python integer in [1, inf).

    Returns:
        A tuple of two: parameters :math:`θ'`, in the dtypes of `params`, and a
        `LineSearchOutputs`.

    Raises:
        ArgumentError: If `step` is not like `params`, both of float arrays, or the
            results of `evaluate` or a concrete value are wrong.

    Example:
        >>> def evaluate(x):
        ...     return (x - 1.0) ** 2, x**2
        >>> search = rlaxlib.backtracking_line_search
        >>> x, outputs = search(evaluate, jnp.array(0.0), jnp.array(4.0), 1.0, 0.5)
        >>> print(x, outputs.fraction)
        1.0 0.25

    References:
        John Schulman and others, *Trust Region Policy Optimization*, appendix C, 2015.
        https://arxiv.org/abs/1502.05477
    """

    def evaluated(params: ArrayTree) -> tuple[Array, Array]:
        found: Any = evaluate(params)
        if not (isinstance(found, tuple | list) and len(found) == 2):
            must = "must be a tuple of two: the loss and the divergence"
            checks.fail(f"`evaluate(params)` is {errors.describe(found)}, {must}")
        return (
            checks.result("evaluate(params)[0]", found[0]),
            checks.result("evaluate(params)[1]", found[1]),
        )

    start = evaluated(params)
    dtype = jnp.result_type(*map(dtypes.raised, jax.tree.leaves(params)))
    fractions = shrink.astype(dtype) ** jnp.arange(num_tries, dtype=dtype)

    def is_searching(state: tuple[Any, ...]) -> Array:
        i, is_good, *_ = state
        return ~is_good & (i < num_tries)

    def attempt(state: tuple[Any, ...]) -> tuple[Any, ...]:
        i, *_ = state
        loss, kl = evaluated(_move(params, fractions[i], step))
        return i + 1, (loss < start[0]) & (kl <= max_kl.astype(kl.dtype)), loss, kl

    is_good = start[0] < start[0]  # False, and varies over devices as the loss does.
    first = (jnp.zeros_like(is_good, int), is_good, *start)
    i, is_good, loss, kl = jax.lax.while_loop(is_searching, attempt, first)
    fraction = jnp.where(is_good, fractions[i - 1], 0)

    def select(x: Array, y: Array) -> Array:
        return jnp.where(is_good, x, y)

    # Not by a product with 0: a step may be NaN.
    found = _move(params, fraction, step), loss, kl
    chosen = jax.tree.map(select, found, (params, *start))
    return chosen[0], LineSearchOutputs(fraction, *chosen[1:])


@checked
def cpo_step(
    gradient_square: Float[ArrayLike, "in [0, inf)"],
    gradient_product: Float[ArrayLike, ""],
    cost_square: Float[ArrayLike, "in [0, inf)"],
    cost: Float[ArrayLike, ""],
    max_kl: Float[ArrayLike, "in [0, inf)"] = 0.01,
) -> CpoStep:
    """Solve the trust-region problem of constrained policy optimization (CPO).

    Takes five numbers, returns the coefficients of the step.

    ::

        min_x gᵀ x   subject to   c + bᵀ x ≤ 0,   ½ xᵀ H x ≤ δ
        q = gᵀ H⁻¹ g,   r = gᵀ H⁻¹ b,   s = bᵀ H⁻¹ b

    Here :math:`g` and :math:`b` are the gradients of the loss and of the cost, and
    :math:`H` is the Fisher matrix. The solution is one of three:

    ::

        x = { -√(2 δ / q) H⁻¹ g               if it obeys the constraint
            { -(c/s) H⁻¹ b - t H⁻¹ (g - (r/s) b)   on its boundary, if c² ≤ 2 δ s
            { -√(2 δ / s) H⁻¹ b               otherwise, to lower the cost alone
        t = √((2 δ - c²/s) / (q - r²/s))

    `jax.scipy.sparse.linalg.cg` with `fisher_vector_product` finds :math:`H⁻¹ g` and
    :math:`H⁻¹ b`. Follow the step by a line search.

    Args:
        gradient_square: Product :math:`q = gᵀ H⁻¹ g`, in [0, inf), shape `[]`.
        gradient_product: Product :math:`r = gᵀ H⁻¹ b`, shape `[]`.
        cost_square: Product :math:`s = bᵀ H⁻¹ b`, in [0, inf), shape `[]`.
        cost: Excess :math:`c` of the cost over its limit, negative if it is below,
            shape `[]`.
        max_kl: Bound :math:`δ` on the divergence, in [0, inf), shape `[]`.

    Returns:
        A `CpoStep`: `feasible`, and `gradient_coefficient` and `cost_coefficient`
        without a gradient.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value out of range.

    Example:
        >>> step = rlaxlib.cpo_step(1.0, 0.0, 1.0, cost=0.6, max_kl=0.5)
        >>> print(*step)
        -0.8 -0.6 True

    References:
        Joshua Achiam and others, *Constrained Policy Optimization*, section 6 and
        theorem 2, 2017. https://arxiv.org/abs/1705.10528
    """
    products = gradient_square, gradient_product, cost_square
    given = jax.lax.stop_gradient((*products, cost, 2 * max_kl))
    q, r, s, cost, square = given
    gradient_only, cost_only = -_root_of_ratio(square, q), -_root_of_ratio(square, s)
    is_inactive = cost + gradient_only * r <= 0
    feasible = is_inactive | (jnp.square(cost) <= square * s)
    s = jnp.where(s == 0, 1, s)
    across = q - jnp.square(r) / s
    # Gradients that are parallel but for rounding leave no step along the boundary.
    across = jnp.where(across > 1e-6 * q, across, 0)
    t = _root_of_ratio(jax.nn.relu(square - jnp.square(cost) / s), across)
    along_gradient = jnp.where(feasible, -t, 0)
    along_cost = jnp.where(feasible, (t * r - cost) / s, cost_only)
    return CpoStep(
        jnp.where(is_inactive, gradient_only, along_gradient),
        jnp.where(is_inactive, 0, along_cost),
        feasible,
    )


@checked
def acer_trust_region(
    gradient: Float[ArrayLike, "..., A"],
    kl_gradient: Float[ArrayLike, "..., A"],
    max_change: Float[ArrayLike, "in [0, inf]"] = 1.0,
) -> Float[Array, "..., A"]:
    """Project policy gradients onto a trust region (ACER).

    Takes gradients of any batch, returns projected ones.

    ::

        z = g - max(0, (kᵀ g - δ) / ‖k‖²) k

    It is the closest gradient to :math:`g` that does not raise the divergence by more
    than :math:`δ`, to first order. Both gradients are those with respect to the outputs
    of the policy network, such as logits :math:`φ`: :math:`g` of the objective to
    maximise, the other of :math:`KL(π_avg ‖ π)` from an average of past policies. Then
    :math:`-∑_a z_a φ_a`, with :math:`z` stopped, has the gradient of the loss.

    Args:
        gradient: Gradients :math:`g` of the objective, shape `[..., A]`.
        kl_gradient: Gradients :math:`k` of the divergence, shape `[..., A]`.
        max_change: Bound :math:`δ` on the change, in [0, inf], shape `[]`.

    Returns:
        Projected gradients :math:`z`, shape `[..., A]`.

    Raises:
        ArgumentError: If a shape or dtype is wrong, or a concrete value negative.

    Example:
        >>> gradient, kl_gradient = jnp.array([[3.0, 1.0], [1.0, 0.0]])
        >>> print(rlaxlib.acer_trust_region(gradient, kl_gradient, max_change=1.0))
        [1. 1.]

    References:
        Ziyu Wang and others, *Sample Efficient Actor-Critic with Experience Replay*,
        section 3.3, 2016. https://arxiv.org/abs/1611.01224
    """
    excess = jax.nn.relu(safe.dot(kl_gradient, gradient) - max_change)
    square = jnp.sum(jnp.square(kl_gradient), axis=-1)
    return gradient - safe.divide(excess, square)[..., None] * kl_gradient


def _move(params: ArrayTree, fraction: Array, step: ArrayTree) -> ArrayTree:
    """Add a multiple of one pytree to another."""

    def add(x: Array, y: Array) -> Array:
        wide, y = dtypes.raised(x), dtypes.raised(y)
        return (wide + fraction.astype(y.dtype) * y).astype(x.dtype)

    return jax.tree.map(add, params, step)


def _root_of_ratio(x: Array, y: Array) -> Array:
    """Return :math:`√(x / y)`, and 0 with a gradient of 0 unless `y` is positive."""
    return safe.sqrt(safe.divide(x, jax.nn.relu(y)))
