"""Test planning: convergence to an optimum, limits, ties and models that diverge."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib

HORIZON, DIMENSIONS = 3, 2
PLAN = rlaxlib.PlanState(
    jnp.zeros((HORIZON, DIMENSIONS)), jnp.full((HORIZON, DIMENSIONS), 2.0)
)
ACTIONS = np.random.default_rng(0).normal(size=(5, 3, 2)).astype(np.float32)
RETURNS = np.float32([1, 3, 2, 5, 4])

cem_update = jax.jit(rlaxlib.cem_update, static_argnames="num_elites")
mppi_update = jax.jit(rlaxlib.mppi_update, static_argnames="num_elites")


@pytest.mark.parametrize(
    "update",
    [
        functools.partial(rlaxlib.cem_update, num_elites=20),
        functools.partial(rlaxlib.mppi_update, temperature=0.1),
        functools.partial(rlaxlib.mppi_update, num_elites=64, temperature=0.5),
    ],
)
def test_iterations_find_the_best_sequence_of_actions(update):
    best = jnp.linspace(-1.0, 1.0, HORIZON * DIMENSIONS).reshape(HORIZON, DIMENSIONS)

    def iterate(state, key):
        noise = jax.random.normal(key, (256, HORIZON, DIMENSIONS))
        actions = state.mean[None] + state.stddev[None] * noise
        returns = -jnp.sum(jnp.square(actions - best[None]), axis=(1, 2))
        return update(state, actions, returns), None

    keys = jax.random.split(jax.random.key(0), 10)
    plan, _ = jax.lax.scan(iterate, PLAN, keys)
    np.testing.assert_allclose(plan.mean, best, atol=0.1)
    assert np.max(plan.stddev) < 0.5


def test_all_samples_with_equal_returns_give_their_moments():
    plan = mppi_update(PLAN, ACTIONS, np.zeros(5, np.float32))
    close(plan.mean, np.mean(ACTIONS, axis=0))
    close(plan.stddev, np.std(ACTIONS, axis=0))
    close(plan, cem_update(PLAN, ACTIONS, RETURNS, 5))


def test_low_temperature_gives_the_best_sample():
    plan = mppi_update(PLAN, ACTIONS, RETURNS, 1e-3)
    close(plan.mean, ACTIONS[3])
    close(plan.stddev, 0.0)
    close(plan, cem_update(PLAN, ACTIONS, RETURNS, 1))


def test_returns_of_any_magnitude_give_finite_weights():
    expected = mppi_update(PLAN, ACTIONS, RETURNS)
    close(mppi_update(PLAN, ACTIONS, RETURNS + 1e6), expected)
    # Beyond -5e8, where a logit marks an illegal action.
    close(mppi_update(PLAN, ACTIONS, RETURNS * 2**16 - 2**30, 2.0**17), expected)


def test_samples_whose_model_fails_have_no_weight():
    returns = np.append(RETURNS, np.float32(-np.inf))
    actions = np.concatenate([ACTIONS, np.ones_like(ACTIONS[:1])])
    close(mppi_update(PLAN, actions, returns), mppi_update(PLAN, ACTIONS, RETURNS))
    for elites in (2, 5, len(returns)):
        expected = cem_update(PLAN, ACTIONS, RETURNS, min(elites, len(RETURNS)))
        close(cem_update(PLAN, actions, returns, elites), expected)


@pytest.mark.parametrize("elites", [None, 2])
def test_the_plan_stays_where_no_sample_has_a_return(elites):
    actions, returns = np.full_like(ACTIONS, np.nan), np.full_like(RETURNS, -np.inf)
    close(mppi_update(PLAN, actions, returns, 0.5, elites), PLAN)
    close(cem_update(PLAN, actions, returns, elites or len(returns)), PLAN)


def test_actions_of_samples_without_a_return_add_nothing():
    returns = np.append(RETURNS, np.float32(-np.inf))
    actions = np.concatenate([ACTIONS, np.full_like(ACTIONS[:1], np.nan)])
    close(mppi_update(PLAN, actions, returns), mppi_update(PLAN, ACTIONS, RETURNS))


@pytest.mark.parametrize("temperature", [1e-10, 0.1, 10.0])
def test_weights_are_accurate_if_returns_are_large(temperature):
    """Also where a compiler makes the constant temperature a factor."""
    returns = np.float32(1e6 + np.arange(8) * 0.05)
    exponents = (np.float64(returns) - np.float64(returns).max()) / temperature
    weights = np.exp(exponents) / np.sum(np.exp(exponents))
    plan = rlaxlib.plan_init(1, 8)
    actions = jnp.eye(8)[:, None]

    def mean(returns):
        return rlaxlib.mppi_update(plan, actions, returns, temperature).mean[0]

    for update in (mean, jax.jit(mean)):
        np.testing.assert_allclose(update(returns), weights, rtol=1e-5, atol=1e-7)


def test_momentum_of_one_keeps_the_plan():
    for update in (cem_update, mppi_update):
        plan = update(PLAN, ACTIONS, RETURNS, num_elites=2, momentum=1.0)
        close(plan, PLAN)


def test_the_next_plan_begins_with_the_rest_of_the_last_one():
    plan = rlaxlib.PlanState(ACTIONS[0], np.abs(ACTIONS[1]))
    shifted = rlaxlib.shift_plan(plan, 0.5)
    np.testing.assert_array_equal(shifted.mean, [*ACTIONS[0][1:], [0, 0]])
    np.testing.assert_array_equal(shifted.stddev, np.full((3, 2), 0.5))


def test_plans_have_no_gradient():
    def total(actions, returns):
        plans = [
            rlaxlib.cem_update(PLAN, actions, returns, 1),
            rlaxlib.mppi_update(PLAN, actions, returns),
        ]
        return sum(map(jnp.sum, jax.tree.leaves(plans)))

    gradient = jax.jit(jax.grad(total, (0, 1)))(ACTIONS, RETURNS)
    assert not any(np.any(x) for x in gradient)
