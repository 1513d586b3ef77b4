"""Test soft values: limits, identities between them, and edges."""

import functools

import jax
import numpy as np
import pytest
from experience import close

import rlaxlib

Q_TM1 = np.float32([1.0, -2.0, 0.5])
Q_T = np.float32([3.0, -1.0, 2.0])
MASK = np.array([True, False, True])
munchausen = jax.jit(rlaxlib.munchausen_q_learning)
soft_q_learning = jax.jit(rlaxlib.soft_q_learning)
soft_value = jax.jit(jax.value_and_grad(rlaxlib.soft_value, (0, 1)))
mellowmax = jax.jit(jax.value_and_grad(rlaxlib.mellowmax, (0, 1)))
each_value = pytest.mark.parametrize("evaluate", [soft_value, mellowmax])


# --- Values and limits. ---


def test_large_values_do_not_round_a_small_reward_away():
    # One action has no entropy, and division by a power of 2 is exact.
    large = np.float32([1000.0])
    assert soft_q_learning(large, 0, 1e-3, 1.0, large, 0.5) == np.float32(1e-3)
    assert munchausen(large, large, 0, 1e-3, 1.0, large, 0.5) == np.float32(1e-3)


def test_large_values_do_not_round_away_differences_in_units_of_the_temperature():
    q, tau = np.float32([10000.0, 10000.0312, 9999.98, 10000.01]), 0.03
    z = (np.float64(q) - np.float64(q).max()) / tau
    log_probs = z - np.log(np.sum(np.exp(z)))
    probs = np.exp(log_probs)
    _, (by_q, by_temperature) = soft_value(q, tau)
    np.testing.assert_allclose(by_q, probs, rtol=1e-6)
    np.testing.assert_allclose(by_temperature, -np.sum(probs * log_probs), rtol=1e-5)

    @jax.jit
    @jax.grad
    def slope(q_t):
        inputs = q, 0, 0.0, 1.0, q_t, tau
        return rlaxlib.soft_q_learning(*inputs, stop_target_gradients=False)

    np.testing.assert_allclose(slope(q), probs, rtol=1e-6)
    # The bonus alone: without a discount, and without the value of the action.
    error = rlaxlib.munchausen_q_learning(
        np.zeros_like(q), q, 2, 0.0, 0.0, q, tau, 1.0, -np.inf
    )
    np.testing.assert_allclose(error, tau * log_probs[2], rtol=1e-6)


def test_soft_value_is_the_expected_value_plus_the_scaled_entropy():
    probs = np.exp(Q_T / 0.7) / np.sum(np.exp(Q_T / 0.7))
    entropy = -np.sum(probs * np.log(probs))
    value, (by_q, by_temperature) = soft_value(Q_T, 0.7)
    close(value, np.sum(probs * Q_T) + 0.7 * entropy)
    close(by_q, probs)
    close(by_temperature, entropy)


@pytest.mark.parametrize("temperature", [1e-30, 1e-6, 0.01])
def test_soft_value_tends_to_the_maximum_as_the_temperature_tends_to_zero(temperature):
    for q in (Q_T, 1e4 * Q_T):
        value, (by_q, _) = soft_value(q, temperature)
        close(value, np.max(q))
        np.testing.assert_array_equal(by_q, [1.0, 0.0, 0.0])


def test_soft_value_of_equal_values_exceeds_them_by_the_log_of_their_number():
    close(soft_value(np.full(3, 2.0), 0.5)[0], 2.0 + 0.5 * np.log(3))


@pytest.mark.parametrize(
    ("omega", "expected"),
    [(1e4, 3.0), (1e30, 3.0), (0.0, 4 / 3), (-1e4, -1.0), (-1e30, -1.0)],
)
def test_mellowmax_tends_to_minimum_mean_and_maximum(omega, expected):
    close(mellowmax(Q_T, omega)[0], expected, rtol=3e-4)


@pytest.mark.parametrize(("size", "sign"), [(10, 1), (10, -1), (30_000, 1)])
def test_mellowmax_is_accurate_at_every_omega(size, sign):
    for seed, omega in enumerate(sign * np.float32(np.geomspace(1e-6, 100, 21))):
        q = np.random.default_rng(seed).normal(size=size).astype(np.float32)
        gaps = np.float64(q) - (sign * q).max() * sign
        e = np.exp(np.float64(omega) * gaps)
        log_mean = np.log1p(np.mean(np.expm1(omega * gaps)))
        value, (by_q, by_omega) = mellowmax(q, omega)
        close(value, q[0] - gaps[0] + log_mean / omega, atol=2e-6)
        close(by_q, e / e.sum(), rtol=1e-5)
        expected = (e @ gaps / e.sum() - log_mean / omega) / np.float64(omega)
        close(by_omega, expected, rtol=1e-3)


def test_mellowmax_of_equal_values_is_their_value():
    for size, x, omega in ((18, 7.163076e6, 100.0), (6, 3.77e9, -1.0), (3, 4e18, 100)):
        value, (gradient, _) = mellowmax(
            np.full(size, x, np.float32), np.float32(omega)
        )
        assert value == np.float32(x)
        close(gradient, np.full(size, 1 / size))


def test_mellowmax_of_distant_values_has_a_gradient_near_omega_of_zero():
    _, gradients = mellowmax(np.float32([0.0, 1000.0]), np.float32(-1e-6))
    close(gradients[0], 0.5, rtol=1e-3)
    close(gradients[1], 500.0**2 / 2, rtol=1e-3)


@pytest.mark.parametrize("omega", [1e-1, 1e-2, 1e-4, 1e-6, 1e-20, -1e-3])
def test_mellowmax_is_accurate_near_omega_of_zero(omega):
    q = np.asarray(Q_T, np.float64)
    cumulants = np.mean(q), np.var(q), np.mean((q - np.mean(q)) ** 3)
    exact = np.log(np.mean(np.exp(omega * q))) / omega
    series = cumulants[0] + omega * cumulants[1] / 2 + omega**2 * cumulants[2] / 6
    expected = exact if omega == 0.1 else series
    np.testing.assert_allclose(mellowmax(Q_T, omega)[0], expected, rtol=1e-5)


@pytest.mark.parametrize("omega", [0.0, 1e-8, -1e-5])
def test_mellowmax_has_accurate_gradients_near_omega_of_zero(omega):
    _, (by_q, by_omega) = mellowmax(Q_T, omega)
    close(by_q, np.full(3, 1 / 3), atol=1e-4)
    close(by_omega, np.var(Q_T) / 2, rtol=1e-3)


@pytest.mark.parametrize("omega", [0.5, 0.0, -2.0])
def test_mellowmax_is_a_non_expansion(omega):
    rng = np.random.default_rng(0)
    for _ in range(20):
        one, other = 3 * rng.normal(size=(2, 3)).astype(np.float32)
        change = float(mellowmax(one, omega)[0]) - float(mellowmax(other, omega)[0])
        assert np.abs(change) <= np.max(np.abs(one - other)) + 1e-6


def test_munchausen_bonus_is_bounded_below_and_never_positive():
    for coefficient in (0.0, 0.5, 0.9):
        error = munchausen(Q_TM1, Q_TM1, 1, 0.0, 0.0, Q_T, 0.03, coefficient)
        close(error, -coefficient + 2.0)  # The gap is 3, the bound 1.
        error = munchausen(Q_TM1, Q_TM1, 0, 0.0, 0.0, Q_T, 0.03, coefficient)
        close(error, -1.0)  # The best action.
        error = munchausen(Q_TM1, Q_TM1, 1, 0.0, 0.0, Q_T, 0.03, coefficient, -np.inf)
        close(error, -3 * coefficient + 2.0)


# --- Identities. ---


def test_mellowmax_is_the_soft_value_minus_that_of_zeros():
    for omega in (0.3, 1.0, 5.0):
        for mask, count in ((None, 3), (MASK, 2)):
            soft, _ = soft_value(Q_T, 1 / omega, action_mask=mask)
            found, _ = mellowmax(Q_T, omega, action_mask=mask)
            close(found, float(soft) - np.log(count) / omega)


def test_soft_q_learning_is_expected_sarsa_with_an_entropy_bonus():
    @jax.jit
    def expected():
        policy = rlaxlib.softmax(0.7)
        r_t = 0.5 + 0.9 * 0.7 * policy.entropy(Q_T)
        return rlaxlib.expected_sarsa(Q_TM1, 1, r_t, 0.9, Q_T, policy.probs(Q_T))

    close(soft_q_learning(Q_TM1, 1, 0.5, 0.9, Q_T, 0.7), expected())


def test_soft_q_learning_tends_to_q_learning_as_the_temperature_tends_to_zero():
    expected = rlaxlib.q_learning(Q_TM1, 1, 0.5, 0.9, Q_T)
    close(soft_q_learning(Q_TM1, 1, 0.5, 0.9, Q_T, 1e-6), expected)


def test_munchausen_without_a_bonus_is_soft_q_learning():
    actual = munchausen(Q_TM1, Q_T, 1, 0.5, 0.9, Q_T, 0.3, 0.0)
    close(actual, soft_q_learning(Q_TM1, 1, 0.5, 0.9, Q_T, 0.3))


def test_munchausen_tends_to_advantage_learning_as_the_temperature_tends_to_zero():
    advantage_learning = jax.jit(rlaxlib.advantage_learning)
    for action in range(3):
        inputs = Q_TM1, 2 * Q_TM1, action, 0.5, 0.9, Q_T
        actual = munchausen(*inputs, 1e-6, 0.8, -np.inf)
        close(actual, advantage_learning(*inputs, 0.8))


# --- Edges. ---


@each_value
def test_illegal_actions_are_ignored(evaluate):
    expected, (by_q, by_scale) = evaluate(Q_T[MASK], 0.7)
    illegal = np.where(MASK, Q_T, np.float32(-np.inf))
    for bad in (-np.inf, np.nan, np.inf):
        q = np.where(MASK, Q_T, np.float32(bad))
        close(evaluate(q, 0.7, action_mask=MASK)[0], expected)
    value, gradient = evaluate(illegal, 0.7)
    close(value, expected)
    close(np.asarray(gradient[0])[MASK], by_q)
    assert gradient[0][1] == 0
    close(gradient[1], by_scale)


@each_value
def test_value_and_gradients_are_zero_if_no_action_is_legal(evaluate):
    for scale in (0.7, 1e-15, 1e9):
        for q in (Q_T, np.full(3, -np.inf), np.full(3, np.nan)):
            value, gradients = evaluate(q, scale, action_mask=np.zeros(3, bool))
            assert value == 0
            for each in gradients:
                np.testing.assert_array_equal(each, np.zeros_like(each))


@each_value
def test_nan_is_not_hidden(evaluate):
    assert np.isnan(evaluate(np.float32([3.0, np.nan, 2.0]), 0.7)[0])


@pytest.mark.parametrize("omega", [0.0, 1.0, -1.0])
def test_mellowmax_of_distant_values_is_their_mean_or_one_of_them(omega):
    value, (gradient, _) = mellowmax(np.float32([4e8, -4e8]), omega)
    close(value, omega * 4e8)
    close(gradient, [(1 + omega) / 2, (1 - omega) / 2])


@pytest.mark.parametrize("omega", [2.0, 0.0, -2.0])
def test_mellowmax_does_not_count_actions_that_a_network_masks(omega):
    expected, (gradient, _) = mellowmax(np.float32([1.0, 0.0]), omega)
    for mark in (-1e9, -np.inf, float(np.finfo(np.float32).min)):
        value, (by_q, _) = mellowmax(np.float32([1.0, 0.0, mark]), omega)
        close(value, expected)
        close(by_q, np.append(gradient, 0.0))


def test_munchausen_bonus_does_not_change_with_a_constant_added_to_the_values():
    # Division by a power of 2 is exact.
    near, temperature = np.float32([0.0, -0.125]), 1 / 32
    for action in (0, 1):
        expected = munchausen(near, near, action, 0.0, 0.0, near, temperature)
        far = munchausen(near, near + 2**16, action, 0.0, 0.0, near, temperature)
        np.testing.assert_array_equal(far, expected)


def test_munchausen_has_finite_gradients_beside_illegal_actions():
    illegal = np.where(MASK, Q_T, np.float32(-np.inf))
    learn = functools.partial(
        rlaxlib.munchausen_q_learning, stop_target_gradients=False
    )
    gradients = jax.jit(jax.grad(learn, (0, 1, 3, 4, 5, 6, 7, 8)))(
        Q_TM1, illegal, 0, 0.5, 0.9, illegal, 0.7, 0.9, -1.0
    )
    assert all(np.isfinite(each).all() for each in gradients)
