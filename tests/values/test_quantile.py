"""Test quantiles and samples: minimisers, identities, gradients and bad input."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib

RNG = np.random.default_rng(0)
TAU = np.float32([0.1, 0.5, 0.9])
SAMPLES = np.float32([3.0, -1.0, 2.0, 5.0])
NOW, LATER = RNG.normal(size=(2, 3, 4)).astype(np.float32)
INPUTS = NOW, TAU, 2, 0.5, 0.9
FLAGS = ("stop_target_gradients", "normalize_huber")
loss = jax.jit(rlaxlib.quantile_regression_loss, static_argnames=FLAGS)
loss_and_gradient = jax.jit(
    jax.value_and_grad(rlaxlib.quantile_regression_loss), static_argnames=FLAGS
)
energy_distance = jax.jit(jax.value_and_grad(rlaxlib.energy_distance_loss))
q_learning = jax.jit(rlaxlib.quantile_q_learning, static_argnames=FLAGS)
expected_sarsa = jax.jit(rlaxlib.quantile_expected_sarsa, static_argnames=FLAGS)


# --- Quantile regression. ---


def test_the_minimisers_are_the_quantiles_of_the_samples():
    samples = RNG.normal(size=101).astype(np.float32)
    best = np.quantile(samples, TAU).astype(np.float32)
    lowest = loss(best, TAU, samples)
    for other in (best + np.float32(0.05), best - np.float32(0.05), best[::-1]):
        assert lowest < loss(other, TAU, samples)


def test_the_huber_loss_over_its_parameter_converges_to_the_quantile_loss():
    x, y = np.zeros(3, np.float32), np.float32([2.0, -1.0])
    plain, gradient = loss_and_gradient(x, TAU, y, 0.0, normalize_huber=True)
    close(plain, sum(tau * 2 + (1 - tau) * 1 for tau in TAU) / 2)
    found = loss_and_gradient(x, TAU, y, 1e-3)[0]
    close(np.asarray(found) / 1e-3, plain, rtol=1e-3)
    for huber_param in (1e-30, 1e-6):
        found = loss_and_gradient(x, TAU, y, huber_param, normalize_huber=True)
        jax.tree.map(close, found, (plain, gradient))


def test_q_learning_is_regression_on_the_samples_of_the_best_action():
    q_loss = q_learning(*INPUTS, LATER, LATER, 1.0)
    best = np.argmax(np.mean(LATER, axis=0))
    samples = np.float32(0.5 + 0.9 * LATER[:, best])
    close(q_loss, loss(NOW[:, 2], TAU, samples, 1.0))


def test_normalizing_divides_by_the_huber_parameter():
    probs = np.float32([0.1, 0.2, 0.3, 0.4])
    for learn, last in (q_learning, LATER), (expected_sarsa, probs):
        for huber_param in (1.0, 0.25):
            inputs = *INPUTS, LATER, last, huber_param
            normalized = learn(*inputs, normalize_huber=True)
            close(normalized, np.asarray(learn(*inputs)) / huber_param)


def test_expected_sarsa_with_a_greedy_policy_is_q_learning():
    greedy = np.eye(4, dtype=np.float32)[np.argmax(np.mean(LATER, axis=0))]
    sarsa = expected_sarsa(*INPUTS, LATER, greedy, 1.0)
    close(sarsa, q_learning(*INPUTS, LATER, LATER, 1.0))


def test_the_flag_stops_the_gradient_of_the_samples():
    y = np.float32([2.0, -1.0])

    @jax.jit
    def gradients(y):
        function = jax.grad(rlaxlib.quantile_regression_loss, argnums=2)
        return [function(np.zeros(3), TAU, y, 0.0, flag) for flag in (True, False)]

    stopped, free = gradients(y)
    np.testing.assert_array_equal(stopped, np.zeros(2))
    close(free, [0.75, -0.75])


def test_a_traced_huber_parameter_gives_the_same():
    x, y = np.float32([0.0, 1.0, 2.0]), np.float32([2.5, -1.0])
    huber_params = (0.0, 0.5, 2.0)

    @jax.jit
    def concrete(x):
        function = jax.value_and_grad(rlaxlib.quantile_regression_loss)
        return [function(x, TAU, y, huber_param) for huber_param in huber_params]

    for huber_param, expected in zip(huber_params, concrete(x), strict=True):
        jax.tree.map(close, loss_and_gradient(x, TAU, y, huber_param), expected)


def test_any_number_of_samples_gives_the_definition():
    x, numbers = np.float32([0.3, -0.2, 0.1]), (1, 7, 8, 9, 17)
    samples = [np.linspace(-1.0, 1.0, number, dtype=np.float32) for number in numbers]

    @jax.jit
    def losses():
        return [rlaxlib.quantile_regression_loss(x, TAU, y) for y in samples]

    for y, found in zip(samples, losses(), strict=True):
        error = y[:, None] - x
        expected = np.where(error < 0, TAU - 1, TAU) * error
        close(found, np.sum(np.mean(expected, axis=0)))


@pytest.mark.parametrize("flag", [True, False])
def test_the_gradient_needs_no_memory_for_pairs_of_predictions_and_samples(flag):
    def gradient(x, tau, y):
        function = functools.partial(rlaxlib.quantile_regression_loss, huber_param=1.0)
        stop = {"stop_target_gradients": flag}
        return jax.grad(lambda *x: function(*x, **stop), (0, 1, 2))(x, tau, y)

    x = np.linspace(-1.0, 1.0, 500, dtype=np.float32)
    compiled = jax.jit(gradient).lower(x, (x + 1) / 2, x).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 100 * 500 * 4


# --- Fractions. ---


def test_midpoints_minimise_the_wasserstein_distance():
    # The quantiles of a uniform distribution are the fractions themselves.
    fine = np.linspace(0.0, 1.0, 20001)
    middle = np.asarray(rlaxlib.quantile_midpoints(4))

    def distance(steps):
        return np.mean(np.abs(fine - steps[np.minimum((4 * fine).astype(int), 3)]))

    best = distance(middle)
    for i in range(4):
        for change in (-0.05, 0.05):
            assert distance(middle + change * (np.arange(4) == i)) > best


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32])
def test_fractions_have_the_given_dtype(dtype):
    assert rlaxlib.quantile_midpoints(3, dtype=dtype).dtype == dtype


def test_cosine_features_are_accurate_in_value_and_gradient():
    fractions = np.random.default_rng(0).uniform(size=50).astype(np.float32)
    angles = np.pi * np.arange(64) * fractions[:, None].astype(np.float64)

    @jax.jit
    def evaluate(tau):
        def embed(tau):
            return rlaxlib.cosine_embedding(tau, 64)

        return jax.jvp(embed, (tau,), (jnp.ones(50),))

    found, gradient = evaluate(fractions)
    np.testing.assert_allclose(found, np.cos(angles), rtol=0, atol=2e-5)
    expected = -np.pi * np.arange(64) * np.sin(angles)
    np.testing.assert_allclose(gradient, expected, rtol=0, atol=2e-5 * 64 * np.pi)


def test_the_gradient_of_the_fraction_loss_is_that_of_the_wasserstein_distance():
    def quantile(tau):
        return tau**3

    def distance(tau):
        """Integrate the difference of the quantile function and its steps."""
        total = 0.0
        for low, high in itertools.pairwise(tau):
            fine = low + (high - low) * (np.arange(4000) + 0.5) / 4000
            total += (high - low) * np.mean(
                np.abs(quantile(fine) - quantile((low + high) / 2))
            )
        return total

    tau = np.array([0.0, 0.15, 0.4, 0.8, 1.0])
    midpoints = (tau[:-1] + tau[1:]) / 2
    gradient = np.asarray(
        jax.jit(jax.grad(rlaxlib.fqf_fraction_loss))(
            tau, quantile(tau[1:-1]), quantile(midpoints)
        )
    )
    np.testing.assert_array_equal(gradient[[0, -1]], [0.0, 0.0])
    for i in (1, 2, 3):
        step = 1e-4 * (np.arange(5) == i)
        expected = (distance(tau + step) - distance(tau - step)) / 2e-4
        close(gradient[i], expected, atol=1e-4)


def test_the_fraction_loss_of_a_single_interval_is_zero():
    fractions = np.array([0.0, 1.0])
    assert rlaxlib.fqf_fraction_loss(fractions, np.zeros(0), np.ones(1)) == 0


# --- Samples. ---


def test_quantiles_of_several_critics_are_sorted_together():
    pools = np.float32([[9.0, 8.0, 7.0], [1.0, 3.0, 2.0]])
    for dropped, expected in (
        (0, [1.0, 2.0, 3.0, 7.0, 8.0, 9.0]),
        (1, [1.0, 2.0, 3.0, 7.0]),
        (2, [1.0, 2.0]),
    ):
        actual = rlaxlib.tqc_targets(pools, dropped)
        np.testing.assert_array_equal(actual, expected)


def test_energy_distance_is_twice_the_integral_of_the_squared_difference():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=7), 0.5 + rng.normal(size=4)
    grid = np.sort(np.concatenate([x, y]))
    below = [np.mean(each[:, None] <= grid[:-1], axis=0) for each in (x, y)]
    integral = np.sum(np.square(below[0] - below[1]) * np.diff(grid))
    close(energy_distance(x, y)[0], 2 * integral)


def test_energy_distance_of_equal_distributions_is_zero():
    for targets in (SAMPLES[[2, 0, 3, 1]], np.tile(SAMPLES, 2)):
        close(energy_distance(SAMPLES, targets)[0], 0.0)


def test_energy_distance_of_equal_samples_has_no_gradient():
    """The derivative of `jnp.abs` at 0 is 1: equal samples would all move."""
    zeros = np.zeros(3, np.float32)
    np.testing.assert_array_equal(energy_distance(zeros, zeros)[1], zeros)
    np.testing.assert_array_equal(energy_distance(SAMPLES, SAMPLES)[1], 0)


def test_energy_distance_of_single_samples_is_twice_their_distance():
    close(energy_distance(np.float32([3.0]), np.float32([-1.0]))[0], 8.0)


def test_equal_samples_do_not_repel_each_other():
    _, gradient = energy_distance(np.float32([1.0, 1.0]), np.float32([4.0]))
    close(gradient, [-1.0, -1.0])


# --- Bad input. ---


def test_rejects_a_traced_normalize_huber():
    @jax.jit
    def traced(flag):
        return rlaxlib.quantile_regression_loss(
            np.zeros(3), TAU, np.zeros(3), 1.0, normalize_huber=flag
        )

    with pytest.raises(rlaxlib.ArgumentError, match="`normalize_huber` is traced"):
        traced(True)


@pytest.mark.parametrize("dropped", [-1, 2, 1.0])
def test_rejects_dropping_all_quantiles_of_a_critic(dropped):
    with pytest.raises(rlaxlib.ArgumentError, match=r"`num_dropped` is .*, must be"):
        rlaxlib.tqc_targets(SAMPLES.reshape(2, 2), dropped)


def test_rejects_less_than_one_fraction_or_feature():
    for name, function in (
        ("num_quantiles", rlaxlib.quantile_midpoints),
        ("num_features", lambda dim: rlaxlib.cosine_embedding(TAU, dim)),
    ):
        with pytest.raises(rlaxlib.ArgumentError, match=f"`{name}` is 0, must be in"):
            function(0)
