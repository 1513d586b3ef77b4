"""Test V-trace: truncation, infinite ratios, identities."""

import functools

import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close, make_stream, pick
from rows.returns import vtrace as definitions

import rlaxlib

STEPS = ("v_tm1", "v_t", "r_t", "discount_t")
NAMES = (
    "vtrace",
    "leaky_vtrace",
    "vtrace_td_error_and_advantage",
    "leaky_vtrace_td_error_and_advantage",
)
COMPILED = {
    name: jax.jit(getattr(rlaxlib, name), static_argnames="stop_target_gradients")
    for name in NAMES
}
gae = jax.jit(rlaxlib.generalized_advantage_estimation)
lambda_returns = jax.jit(rlaxlib.lambda_returns)
vtrace, leaky_vtrace, td_error_and_advantage, _ = COMPILED.values()


# --- Values. ---


def test_advantage_at_a_cut_bootstraps_from_the_true_next_value():
    # The stream is cut after the second step, whose next observation has value 40. The
    # next episode starts at 90: 10 + 0.9 * 40 = 46 is right, 10 + 0.9 * 90 = 91 wrong.
    output = td_error_and_advantage(
        v_tm1=np.array([1.0, 2.0, 90.0]),
        v_t=np.array([2.0, 40.0, 3.0]),
        r_t=np.array([0.0, 10.0, 0.0]),
        discount_t=np.full(3, 0.9),
        rho_tm1=np.ones(3),
        truncated_t=np.array([False, True, False]),
    )
    close(output.q_estimate[1], 46.0)
    close(output.pg_advantage[1], 44.0)
    close(output.errors[1], 44.0)


def test_keeps_a_small_reward_beside_large_values():
    large, small, one = np.float32([[1000.0], [1e-3], [1.0]])
    stream = (large, large, small, one, one)
    for function in COMPILED.values():
        output = function(*stream)
        advantage = getattr(output, "pg_advantage", small)
        np.testing.assert_array_equal(getattr(output, "errors", output), small)
        np.testing.assert_array_equal(advantage, small)


def test_infinite_ratio_is_clipped_like_any_other():
    inputs = pick(make_stream(), *STEPS, "rho_tm1")
    at = np.arange(8) == 3
    infinite, clipped = (
        inputs | {"rho_tm1": np.where(at, np.float32(ratio), inputs["rho_tm1"])}
        for ratio in (np.inf, 1.0)
    )
    for function in COMPILED.values():
        jax.tree.map(close, function(**infinite), function(**clipped))


def test_overflowing_ratio_has_a_finite_gradient():
    def loss(log_ratio):
        inputs = pick(make_stream(2), *STEPS)
        return jnp.sum(rlaxlib.vtrace(**inputs, rho_tm1=jnp.exp(log_ratio)) ** 2)

    gradient = jax.jit(jax.grad(loss))(np.array([100.0, 0.0]))
    np.testing.assert_array_equal(gradient, [0.0, 0.0])


@pytest.mark.parametrize("name", NAMES)
def test_derivative_by_a_ratio_of_0_equals_finite_differences(name):
    stream = make_stream()
    inputs = {n: np.float64(x) for n, x in pick(stream, *STEPS).items()}
    rho = np.where(np.arange(8) % 3 == 1, 0.0, np.float64(stream["rho_tm1"]))
    function = getattr(rlaxlib, name)

    @jax.jit
    @jax.value_and_grad
    def total(rho):
        output = function(**inputs, rho_tm1=rho, stop_target_gradients=False)
        return sum(jnp.sum(jnp.sin(x)) for x in jax.tree.leaves(output))

    with contract.x64(True):
        _, found = total(rho)
        steps = 1e-6 * np.eye(8)[np.arange(8) % 3 == 1]
        ahead, behind = ([total(rho + s)[0] for s in x] for x in (steps, -steps))
    expected = (np.array(ahead) - behind) / 2e-6
    np.testing.assert_allclose(found[1::3], expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("threshold", [0.0, 0.5, 1.5])
def test_clips_traces_at_their_own_threshold(threshold):
    for name, settings in (
        ("vtrace", {}),
        ("leaky_vtrace", {"alpha_": 0.3}),
        ("vtrace_td_error_and_advantage", {"clip_pg_rho_threshold": 0.7}),
        ("leaky_vtrace_td_error_and_advantage", {"alpha": 0.3}),
    ):
        inputs = pick(make_stream(), *STEPS, "rho_tm1") | settings
        inputs |= {"lambda_": 0.9, "clip_c_threshold": threshold}
        actual = COMPILED[name](**inputs)
        expected = getattr(definitions, name)(
            **{name: np.asarray(each) for name, each in inputs.items()}
        )
        contract.assert_close(actual, expected, 1e-5, 1e-5)


# --- Identities. ---


@pytest.mark.parametrize("lambda_", [0.0, 0.7, 1.0])
def test_on_policy_errors_are_advantages_and_targets_are_lambda_returns(lambda_):
    stream = make_stream()
    output = td_error_and_advantage(
        **pick(stream, *STEPS), rho_tm1=np.ones(8, np.float32), lambda_=lambda_
    )
    advantages = gae(**pick(stream, *STEPS), lambda_=lambda_)
    returns = lambda_returns(
        **pick(stream, "r_t", "discount_t", "v_t"), lambda_=lambda_
    )
    close(output.errors, advantages)
    close(np.asarray(output.errors) + stream["v_tm1"], returns)
    close(output.q_estimate, returns)
    close(output.pg_advantage, advantages)


def test_errors_equal_those_of_vtrace():
    inputs = pick(make_stream(), *STEPS, "rho_tm1") | {"lambda_": 0.9}
    errors = td_error_and_advantage(**inputs).errors
    np.testing.assert_allclose(errors, vtrace(**inputs), rtol=1e-6, atol=1e-6)


def test_leaky_vtrace_is_vtrace_at_one_and_importance_sampling_at_zero():
    stream = make_stream()
    inputs = pick(stream, *STEPS, "rho_tm1") | {"lambda_": 0.9}
    close(leaky_vtrace(**inputs, alpha_=1.0), vtrace(**inputs))
    corrected = jax.jit(rlaxlib.importance_corrected_td_errors)
    inputs_of_values = pick(stream, "r_t", "discount_t", "rho_tm1", "values")
    expected = corrected(**inputs_of_values, lambda_=0.9)
    close(leaky_vtrace(**inputs, alpha_=0.0), expected)


def test_leaky_vtrace_adds_the_excess_of_a_ratio_times_one_minus_alpha():
    @jax.jit
    @functools.partial(jax.value_and_grad, argnums=1)
    def error(rho, alpha):
        one = jnp.ones(1)
        step = {"v_tm1": 0 * one, "v_t": 0 * one, "r_t": one, "discount_t": one}
        step |= {"rho_tm1": rho * one, "alpha_": alpha}
        return rlaxlib.leaky_vtrace(**step, stop_target_gradients=False)[0]

    # The ratio 3 is clipped to 1, and (1 - α) of the excess 2 is added.
    assert error(3.0, 0.5)[0] == 2.0
    assert error(3.0, 1.0)[1] == -2.0


def test_infinite_threshold_still_clips_the_trace():
    inputs = pick(make_stream(), *STEPS, "rho_tm1")
    free = np.asarray(vtrace(**inputs, clip_rho_threshold=np.inf))
    rho, c = inputs["rho_tm1"], np.minimum(1, inputs["rho_tm1"])
    later = np.append(free[1:], 0)
    delta = inputs["r_t"] + inputs["discount_t"] * inputs["v_t"] - inputs["v_tm1"]
    close(free, rho * delta + inputs["discount_t"] * c * later)


@pytest.mark.parametrize("stop", [False, True])
def test_advantages_have_a_gradient_only_if_targets_do(stop):
    def total(inputs):
        output = rlaxlib.vtrace_td_error_and_advantage(
            **inputs, stop_target_gradients=stop
        )
        return jnp.sum(output.pg_advantage + output.q_estimate)

    gradients = jax.jit(jax.grad(total))(pick(make_stream(), *STEPS, "rho_tm1"))
    assert any(np.any(each) for each in gradients.values()) != stop
