"""Test soft values: limits, identities between them, and edges."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib

Q_TM1 = jnp.array([1.0, -2.0, 0.5])
Q_T = jnp.array([3.0, -1.0, 2.0])
MASK = jnp.array([True, False, True])
munchausen = rlaxlib.munchausen_q_learning


# --- Values and limits. ---


def test_large_values_do_not_round_a_small_reward_away():
    # One action has no entropy, and division by a power of 2 is exact.
    large = jnp.array([1000.0])
    assert rlaxlib.soft_q_learning(large, 0, 1e-3, 1.0, large, 0.5) == np.float32(1e-3)
    assert munchausen(large, large, 0, 1e-3, 1.0, large, 0.5) == np.float32(1e-3)


def test_soft_value_is_the_expected_value_plus_the_scaled_entropy():
    policy = rlaxlib.softmax(0.7)
    expected = jnp.sum(policy.probs(Q_T) * Q_T) + 0.7 * policy.entropy(Q_T)
    close(rlaxlib.soft_value(Q_T, 0.7), expected)
    close(jax.grad(rlaxlib.soft_value)(Q_T, 0.7), policy.probs(Q_T))
    close(jax.grad(rlaxlib.soft_value, 1)(Q_T, 0.7), policy.entropy(Q_T))


@pytest.mark.parametrize("temperature", [1e-30, 1e-6, 0.01])
def test_soft_value_tends_to_the_maximum_as_the_temperature_tends_to_zero(temperature):
    for q in (Q_T, 1e4 * Q_T):
        close(rlaxlib.soft_value(q, temperature), jnp.max(q))
        gradient = jax.grad(rlaxlib.soft_value)(q, temperature)
        np.testing.assert_array_equal(gradient, [1.0, 0.0, 0.0])


def test_soft_value_of_equal_values_exceeds_them_by_the_log_of_their_number():
    close(rlaxlib.soft_value(jnp.full(4, 2.0), 0.5), 2.0 + 0.5 * np.log(4))


@pytest.mark.parametrize(
    ("omega", "expected"),
    [(1e4, 3.0), (1e30, 3.0), (0.0, 4 / 3), (-1e4, -1.0), (-1e30, -1.0)],
)
def test_mellowmax_tends_to_minimum_mean_and_maximum(omega, expected):
    close(rlaxlib.mellowmax(Q_T, omega), expected, rtol=3e-4)


@pytest.mark.parametrize("omega", [1e-1, 1e-2, 1e-4, 1e-6, 1e-20, -1e-3])
def test_mellowmax_is_accurate_near_omega_of_zero(omega):
    q = np.asarray(Q_T, np.float64)
    cumulants = np.mean(q), np.var(q), np.mean((q - np.mean(q)) ** 3)
    exact = np.log(np.mean(np.exp(omega * q))) / omega
    series = cumulants[0] + omega * cumulants[1] / 2 + omega**2 * cumulants[2] / 6
    expected = exact if omega == 0.1 else series
    np.testing.assert_allclose(rlaxlib.mellowmax(Q_T, omega), expected, rtol=1e-5)


@pytest.mark.parametrize("omega", [0.0, 1e-8, -1e-5])
def test_mellowmax_has_accurate_gradients_near_omega_of_zero(omega):
    by_q, by_omega = jax.grad(rlaxlib.mellowmax, (0, 1))(Q_T, omega)
    close(by_q, np.full(3, 1 / 3), atol=1e-4)
    close(by_omega, np.var(Q_T) / 2, rtol=1e-3)


@pytest.mark.parametrize("omega", [0.5, 0.0, -2.0])
def test_mellowmax_is_a_non_expansion(omega):
    rng = np.random.default_rng(0)
    for _ in range(20):
        one, other = jnp.asarray(3 * rng.normal(size=(2, 4)), jnp.float32)
        change = rlaxlib.mellowmax(one, omega) - rlaxlib.mellowmax(other, omega)
        assert jnp.abs(change) <= jnp.max(jnp.abs(one - other)) + 1e-6


def test_munchausen_bonus_is_bounded_below_and_never_positive():
    for coefficient in (0.0, 0.5, 0.9):
        error = munchausen(Q_TM1, Q_TM1, 1, 0.0, 0.0, Q_T, 0.03, coefficient)
        close(error, -coefficient + 2.0)  # The gap is 3, the bound 1.
        error = munchausen(Q_TM1, Q_TM1, 0, 0.0, 0.0, Q_T, 0.03, coefficient)
        close(error, -1.0)  # The best action.
        error = munchausen(Q_TM1, Q_TM1, 1, 0.0, 0.0, Q_T, 0.03, coefficient, -jnp.inf)
        close(error, -3 * coefficient + 2.0)


# --- Identities. ---


def test_mellowmax_is_the_soft_value_minus_that_of_zeros():
    for omega in (0.3, 1.0, 5.0):
        for mask, count in ((None, 3), (MASK, 2)):
            soft = rlaxlib.soft_value(Q_T, 1 / omega, action_mask=mask)
            found = rlaxlib.mellowmax(Q_T, omega, action_mask=mask)
            close(found, soft - np.log(count) / omega)


def test_soft_q_learning_is_expected_sarsa_with_an_entropy_bonus():
    policy = rlaxlib.softmax(0.7)
    r_t = 0.5 + 0.9 * 0.7 * policy.entropy(Q_T)
    expected = rlaxlib.expected_sarsa(Q_TM1, 1, r_t, 0.9, Q_T, policy.probs(Q_T))
    close(rlaxlib.soft_q_learning(Q_TM1, 1, 0.5, 0.9, Q_T, 0.7), expected)


def test_soft_q_learning_tends_to_q_learning_as_the_temperature_tends_to_zero():
    expected = rlaxlib.q_learning(Q_TM1, 1, 0.5, 0.9, Q_T)
    close(rlaxlib.soft_q_learning(Q_TM1, 1, 0.5, 0.9, Q_T, 1e-6), expected)


def test_munchausen_without_a_bonus_is_soft_q_learning():
    actual = munchausen(Q_TM1, Q_T, 1, 0.5, 0.9, Q_T, 0.3, 0.0)
    close(actual, rlaxlib.soft_q_learning(Q_TM1, 1, 0.5, 0.9, Q_T, 0.3))


def test_munchausen_tends_to_advantage_learning_as_the_temperature_tends_to_zero():
    for action in range(3):
        inputs = Q_TM1, 2 * Q_TM1, action, 0.5, 0.9, Q_T
        actual = munchausen(*inputs, 1e-6, 0.8, -jnp.inf)
        close(actual, rlaxlib.advantage_learning(*inputs, 0.8))


# --- Edges. ---


@pytest.mark.parametrize("function", [rlaxlib.soft_value, rlaxlib.mellowmax])
def test_illegal_actions_are_ignored(function):
    illegal = jnp.where(MASK, Q_T, -jnp.inf)
    expected = function(Q_T[MASK], 0.7)
    for q in (illegal, jnp.where(MASK, Q_T, jnp.nan), jnp.where(MASK, Q_T, jnp.inf)):
        close(function(q, 0.7, action_mask=MASK), expected)
    close(function(illegal, 0.7), expected)
    gradient = jax.grad(function, (0, 1))(illegal, 0.7)
    close(gradient[0][MASK], jax.grad(function)(Q_T[MASK], 0.7))
    assert gradient[0][1] == 0
    close(gradient[1], jax.grad(function, 1)(Q_T[MASK], 0.7))


@pytest.mark.parametrize("function", [rlaxlib.soft_value, rlaxlib.mellowmax])
@pytest.mark.parametrize("scale", [0.7, 1e-15, 1e15])
def test_value_and_gradients_are_zero_if_no_action_is_legal(function, scale):
    function = functools.partial(function, action_mask=jnp.zeros(3, bool))
    for q in (Q_T, jnp.full(3, -jnp.inf), jnp.full(3, jnp.nan)):
        value, gradient = jax.value_and_grad(function, (0, 1))(q, scale)
        assert value == 0
        for each in gradient:
            np.testing.assert_array_equal(each, np.zeros_like(each))


@pytest.mark.parametrize("function", [rlaxlib.soft_value, rlaxlib.mellowmax])
def test_nan_is_not_hidden(function):
    assert jnp.isnan(function(Q_T.at[1].set(jnp.nan), 0.7))


@pytest.mark.parametrize("omega", [0.0, 1.0, -1.0])
def test_mellowmax_of_distant_values_does_not_overflow(omega):
    q = jnp.array([3e30, -3e30])
    value, gradient = jax.value_and_grad(rlaxlib.mellowmax)(q, omega)
    close(value, omega * 3e30)
    assert np.isfinite(gradient).all()


def test_munchausen_bonus_does_not_change_with_a_constant_added_to_the_values():
    # Division by a power of 2 is exact.
    near, temperature = jnp.array([0.0, -0.125]), 1 / 32
    for action in (0, 1):
        expected = munchausen(near, near, action, 0.0, 0.0, near, temperature)
        far = munchausen(near, near + 2.0**16, action, 0.0, 0.0, near, temperature)
        np.testing.assert_array_equal(far, expected)


def test_munchausen_has_finite_gradients_beside_illegal_actions():
    illegal = jnp.where(MASK, Q_T, -jnp.inf)
    gradients = jax.grad(munchausen, (0, 1, 3, 4, 5, 6, 7, 8))(
        Q_TM1,
        illegal,
        0,
        0.5,
        0.9,
        illegal,
        0.7,
        0.9,
        -1.0,
        stop_target_gradients=False,
    )
    assert all(np.isfinite(each).all() for each in gradients)
