"""Test KL constraints, the penalty as a pytree, and the PID Lagrangian."""

import pickle

import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib
from rlaxlib import LagrangePenalty

KL = np.random.default_rng(0).uniform(0.1, 1.0, (5, 3)).astype(np.float32)
PENALTY = LagrangePenalty(2.0, 0.5)


def identity(x):
    return x


def losses(*constraints):
    return rlaxlib.compute_parametric_kl_penalty_and_dual_loss(constraints, identity)


def test_without_constraints_the_losses_are_zero_of_any_dtype():
    zeros = losses()
    assert zeros == (0.0, 0.0)
    sums = [zeros[0] + jnp.ones(2, dtype) for dtype in (jnp.bfloat16, jnp.float32)]
    assert [each.dtype for each in sums] == [jnp.bfloat16, jnp.float32]


def test_a_constraint_per_dimension_equals_one_constraint_for_each_dimension():
    duals = np.float32([1.0, 2.0, 3.0])
    each = [(KL[:, i], LagrangePenalty(duals[i], 0.5)) for i in range(3)]
    whole = KL, LagrangePenalty(duals, 0.5, per_dimension=True)
    close(*jax.jit(lambda whole, each: (losses(whole), losses(*each)))(whole, each))


@pytest.mark.parametrize(
    ("per_dimension", "shapes"),
    [(False, [(5,), (), (1,)]), (True, [(5, 3), (), (1,), (3,)])],
)
def test_a_dual_variable_broadcasts_to_the_divergences(per_dimension, shapes):
    kl = KL if per_dimension else KL[:, 0]

    @jax.jit
    def evaluate():
        duals = [np.full(shape, 2.0, np.float32) for shape in shapes]
        penalties = [LagrangePenalty(alpha, 0.5, per_dimension) for alpha in duals]
        return [rlaxlib.kl_constraint_loss(kl, each, identity) for each in penalties]

    found = evaluate()
    for shape, each in zip(shapes, found, strict=True):
        close(each[:2], found[0][:2])
        assert each[2].shape == shape


# --- Penalties under JAX. ---


def test_per_dimension_stays_a_python_bool_in_transformations():
    @jax.jit
    def loss(penalty):
        return jnp.sum(rlaxlib.kl_constraint_loss(KL, penalty, identity)[1])

    for per_dimension in (True, False):
        penalty = LagrangePenalty(np.float32(2.0), 0.5, per_dimension=per_dimension)
        gradient = jax.grad(loss)(penalty)
        close(gradient.alpha, np.sum(0.5 - KL))
        assert gradient.per_dimension is per_dimension


def test_a_penalty_is_a_named_tuple_and_can_be_pickled():
    penalty = LagrangePenalty(1.0, 0.5)._replace(per_dimension=True)
    alpha, epsilon, per_dimension = penalty
    assert (alpha, epsilon, per_dimension) == (1.0, 0.5, True)
    assert pickle.loads(pickle.dumps(penalty)) == penalty
    assert len(jax.tree.leaves(penalty)) == 2


# --- PID Lagrangian. ---


def control(costs, **settings):
    """Return the multipliers of a sequence of costs."""
    init, update = rlaxlib.pid_lagrangian(**{"limit": 2.0, "k_p": 0.0, **settings})

    @jax.jit
    def run(costs):
        return jax.lax.scan(lambda s, c: update(s, c)[::-1], init(), costs)[1]

    return run(np.asarray(costs))


def test_integral_control_is_gradient_ascent_on_the_multiplier():
    costs = np.array([3.0, 5.0, 1.0, 0.0, 1.0, 4.0])
    expected, multiplier = [], 0.0
    for cost in costs:
        multiplier = max(0.0, multiplier + 0.5 * (cost - 2.0))
        expected.append(multiplier)
    close(control(costs, k_i=0.5), expected)
    assert min(expected) == 0 < expected[-1]


def test_proportional_control_reacts_to_the_present_excess_alone():
    costs = np.array([3.0, 5.0, 1.0, 4.0])
    close(control(costs, k_p=2.0, k_i=0.0), [2.0, 6.0, 0.0, 4.0])


def test_derivative_control_reacts_to_rising_costs_alone():
    costs = np.array([1.0, 1.5, 1.0, 3.0])
    found = control(costs, limit=10.0, k_i=0.0, k_d=4.0)
    close(found, [4.0, 2.0, 0.0, 8.0])
    init, update = rlaxlib.pid_lagrangian(10.0, 0.0, 0.0, 4.0)
    assert jax.jit(lambda cost: update(init(cost=cost), cost)[0])(1.0) == 0


def test_proportional_control_damps_the_oscillation_of_the_cost():
    @jax.jit
    @jax.vmap
    def total_excess(k_p):
        init, update = rlaxlib.pid_lagrangian(limit=1.0, k_p=k_p, k_i=0.02)

        def step(carry, _):
            cost, state = carry
            multiplier, state = update(state, cost)
            cost = cost + 0.1 * (1.0 - multiplier)  # Costs rise until it exceeds 1.
            return (cost, state), jnp.abs(cost - 1.0)

        _, excess = jax.lax.scan(step, (jnp.zeros(()), init()), length=1000)
        return jnp.sum(excess[-100:])

    damped, free = np.asarray(total_excess(np.array([0.5, 0.0])))
    assert damped < 0.1 < free


def test_multiplier_is_of_the_mean_cost_over_devices_and_has_no_gradient():
    init, update = rlaxlib.pid_lagrangian(2.0, 1.0, 0.5, axis_name="devices")
    over = jax.vmap(lambda cost: update(init(), cost)[0], axis_name="devices")

    def total(costs):
        multipliers = over(costs)
        return jnp.sum(multipliers), multipliers

    gradient = jax.jit(jax.grad(total, has_aux=True))
    by_cost, multipliers = gradient(np.array([3.0, 7.0]))
    np.testing.assert_array_equal(multipliers, [4.5, 4.5])
    np.testing.assert_array_equal(by_cost, 0.0)


def test_state_of_half_precision_costs_is_in_single_precision():
    init, update = rlaxlib.pid_lagrangian(2.0, 1.0, 0.5)
    costs = np.full(300, 2.015625, jnp.bfloat16)
    state, multipliers = jax.lax.scan(
        lambda state, cost: update(state, cost)[::-1], init(costs[0]), costs
    )
    assert {x.dtype for x in (multipliers, *state)} == {jnp.dtype(jnp.float32)}
    assert state.integral == 300 * 0.015625


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_state_keeps_its_dtype_whatever_that_of_the_cost(dtype):
    with contract.x64(True), jax.numpy_dtype_promotion("standard"):
        init, update = rlaxlib.pid_lagrangian(1.0, 0.1, 0.1, 0.1)
        costs = np.full(3, 2.0, dtype)
        state, multipliers = jax.lax.scan(
            lambda state, cost: update(state, cost)[::-1], init(), costs
        )
        assert {x.dtype for x in (*init(), *state)} == {np.dtype(np.float64)}
    # 0.1 + 0.1 + 0.1 * 2, since the cost rises from 0; then only the integral does.
    close(multipliers, [0.4, 0.3, 0.4])


def test_controller_can_be_pickled():
    init, update = pickle.loads(pickle.dumps(rlaxlib.pid_lagrangian(2.0, 1.0, 0.5)))
    assert update(init(), 4.0)[0] == 3.0


# --- Errors. ---


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: rlaxlib.kl_constraint_loss(
                KL, LagrangePenalty(np.ones(3), 0.1), identity
            ),
            r"`penalty.alpha` has shape \(3,\), must be \(\) or \(1,\) or \(5, 3\)",
        ),
        (
            lambda: losses(
                (KL, PENALTY._replace(per_dimension=True)), (KL[:4, 0], PENALTY)
            ),
            r"`kl_constraints\[1\]\[0\]` has shape \(4,\), must be \(5,\)",
        ),
    ],
)
def test_names_the_wrong_argument(call, message):
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        call()
