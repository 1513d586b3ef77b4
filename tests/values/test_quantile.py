"""Test quantiles and samples: minimisers, identities, gradients and bad input."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close
from jax.sharding import NamedSharding, PartitionSpec

import rlaxlib

TAU = jnp.array([0.1, 0.5, 0.9])
SAMPLES = jnp.array([3.0, -1.0, 2.0, 5.0])
FLAGS = ("stop_target_gradients", "normalize_huber")
loss = jax.jit(rlaxlib.quantile_regression_loss, static_argnames=FLAGS)
loss_and_gradient = jax.jit(
    jax.value_and_grad(rlaxlib.quantile_regression_loss), static_argnames=FLAGS
)
energy_distance = jax.jit(jax.value_and_grad(rlaxlib.energy_distance_loss))


# --- Quantile regression. ---


def test_the_minimisers_are_the_quantiles_of_the_samples():
    samples = jax.random.normal(jax.random.key(0), (101,))
    best = jnp.quantile(samples, TAU)
    for other in (best + 0.05, best - 0.05, jnp.sort(best)[::-1]):
        assert loss(best, TAU, samples) < loss(other, TAU, samples)


def test_the_huber_loss_over_its_parameter_converges_to_the_quantile_loss():
    x, y = jnp.array([0.0, 0.0, 0.0]), jnp.array([2.0, -1.0])
    plain, gradient = loss_and_gradient(x, TAU, y)
    close(plain, sum(tau * 2 + (1 - tau) * 1 for tau in TAU) / 2)
    close(loss(x, TAU, y, huber_param=1e-3) / 1e-3, plain, rtol=1e-3)
    for huber_param in (0.0, 1e-30, 1e-6):
        found = loss_and_gradient(x, TAU, y, huber_param, normalize_huber=True)
        jax.tree.map(close, found, (plain, gradient))


@pytest.mark.parametrize("normalize_huber", [False, True])
def test_an_infinite_sample_has_the_gradient_of_a_distant_one(normalize_huber):
    def gradient(y):
        y = jnp.array([y, 0.5])
        flag = {"normalize_huber": normalize_huber}
        return loss_and_gradient(jnp.zeros(3), TAU, y, 0.25, **flag)[1]

    for sign in (1, -1):
        np.testing.assert_array_equal(gradient(sign * jnp.inf), gradient(sign * 9.0))


def test_q_learning_is_regression_on_the_samples_of_the_best_action():
    now, later = jax.random.normal(jax.random.key(0), (2, 3, 4))
    q_loss = rlaxlib.quantile_q_learning(now, TAU, 2, 0.5, 0.9, later, later, 1.0)
    best = jnp.argmax(jnp.mean(later, axis=0))
    close(q_loss, loss(now[:, 2], TAU, 0.5 + 0.9 * later[:, best], 1.0))


def test_weights_and_a_selector_choose_the_best_action():
    now, later = jax.random.normal(jax.random.key(0), (2, 3, 4))
    inputs = now, TAU, 2, 0.5, 0.9
    q_loss = rlaxlib.quantile_q_learning
    for m in range(3):
        weighted = q_loss(*inputs, later, later, weights=jnp.eye(3)[m])
        selected = q_loss(*inputs, None, later, q_t_selector=later[m])
        by_one = q_loss(*inputs, later[m : m + 1], later)
        np.testing.assert_array_equal(weighted, by_one)
        np.testing.assert_array_equal(selected, by_one)


def test_normalizing_divides_by_the_huber_parameter():
    now, later = jax.random.normal(jax.random.key(0), (2, 3, 4))
    for function, last in (
        (rlaxlib.quantile_q_learning, later),
        (rlaxlib.quantile_expected_sarsa, jnp.array([0.1, 0.2, 0.3, 0.4])),
    ):
        learn = jax.jit(function, static_argnames="normalize_huber")
        for huber_param in (1.0, 0.25):
            inputs = now, TAU, 2, 0.5, 0.9, later, last, huber_param
            normalized = learn(*inputs, normalize_huber=True)
            close(normalized, learn(*inputs) / huber_param)


def test_expected_sarsa_with_a_greedy_policy_is_q_learning():
    now, later = jax.random.normal(jax.random.key(0), (2, 3, 4))
    greedy = rlaxlib.one_hot(jnp.argmax(jnp.mean(later, axis=0)), 4)
    sarsa = rlaxlib.quantile_expected_sarsa(now, TAU, 2, 0.5, 0.9, later, greedy)
    close(sarsa, rlaxlib.quantile_q_learning(now, TAU, 2, 0.5, 0.9, later, later))


def test_the_flag_stops_the_gradient_of_the_samples():
    y = jnp.array([2.0, -1.0])
    stopped, free = (
        jax.grad(loss, argnums=2)(jnp.zeros(3), TAU, y, 0.0, flag)
        for flag in (True, False)
    )
    np.testing.assert_array_equal(stopped, jnp.zeros(2))
    close(free, [0.75, -0.75])


@pytest.mark.parametrize("huber_param", [0.0, 0.5, 2.0])
def test_a_traced_huber_parameter_gives_the_same(huber_param):
    inputs = jnp.array([0.0, 1.0, 2.0]), TAU, jnp.array([2.5, -1.0]), huber_param
    expected = jax.value_and_grad(rlaxlib.quantile_regression_loss)(*inputs)
    jax.tree.map(close, loss_and_gradient(*inputs), expected)


@pytest.mark.parametrize("number", [1, 7, 8, 9, 17])
def test_any_number_of_samples_gives_the_definition(number):
    y = jnp.linspace(-1.0, 1.0, number)
    x = jnp.array([0.3, -0.2, 0.1])
    error = y[:, None] - x[None]
    expected = jnp.where(error < 0, TAU[None] - 1, TAU[None]) * error
    close(loss(x, TAU, y), jnp.sum(jnp.mean(expected, axis=0)))


@pytest.mark.parametrize("flag", [True, False])
def test_the_gradient_needs_no_memory_for_pairs_of_predictions_and_samples(flag):
    def gradient(x, tau, y):
        function = functools.partial(rlaxlib.quantile_regression_loss, huber_param=1.0)
        stop = {"stop_target_gradients": flag}
        return jax.grad(lambda *x: function(*x, **stop), (0, 1, 2))(x, tau, y)

    x = jnp.linspace(-1.0, 1.0, 500)
    compiled = jax.jit(gradient).lower(x, (x + 1) / 2, x).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 100 * 500 * 4


def test_a_batch_may_be_spread_over_devices():
    devices = jax.device_count()
    now, later = jax.random.normal(jax.random.key(0), (2, 2 * devices, 3, 4))

    def learn(now, later):
        def one(now, later):
            return rlaxlib.quantile_q_learning(now, TAU, 2, 0.5, 0.9, later, later)

        return jax.vmap(jax.value_and_grad(one))(now, later)

    mesh, spec = jax.make_mesh((devices,), ("batch",)), PartitionSpec("batch")
    spread = jax.shard_map(learn, mesh=mesh, in_specs=spec, out_specs=spec)
    there = jax.device_put((now, later), NamedSharding(mesh, spec))
    jax.tree.map(close, jax.jit(spread)(*there), learn(now, later))


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
    assert rlaxlib.quantile_midpoints(3, dtype).dtype == dtype
    sampled = rlaxlib.sample_quantile_fractions(jax.random.key(0), 3, dtype)
    assert sampled.dtype == dtype


def test_sampled_fractions_are_uniform_and_uncorrelated():
    sampled = np.asarray(rlaxlib.sample_quantile_fractions(jax.random.key(0), 10000))
    assert sampled.min() >= 0
    assert sampled.max() < 1
    # Five standard deviations of a share of a tenth.
    shares = np.histogram(sampled, 10, (0, 1))[0] / 10000
    assert np.all(np.abs(shares - 0.1) < 5 * np.sqrt(0.09 / 10000))
    assert abs(np.corrcoef(sampled[1:], sampled[:-1])[0, 1]) < 0.05


def test_cosine_features_are_accurate_in_value_and_gradient():
    fractions = np.random.default_rng(0).uniform(size=50).astype(np.float32)
    angles = np.pi * np.arange(64) * fractions[:, None].astype(np.float64)
    tangents = jnp.ones_like(fractions)
    found, gradient = jax.jvp(
        lambda tau: rlaxlib.cosine_embedding(tau, 64),
        (jnp.asarray(fractions),),
        (tangents,),
    )
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
    gradient = jax.grad(rlaxlib.quantile_fraction_loss)(
        jnp.asarray(tau, jnp.float32),
        jnp.asarray(quantile(tau[1:-1]), jnp.float32),
        jnp.asarray(quantile(midpoints), jnp.float32),
    )
    np.testing.assert_array_equal(gradient[jnp.array([0, -1])], [0.0, 0.0])
    for i in (1, 2, 3):
        step = 1e-4 * (np.arange(5) == i)
        expected = (distance(tau + step) - distance(tau - step)) / 2e-4
        close(gradient[i], expected, atol=1e-4)


def test_the_fraction_loss_of_a_single_interval_is_zero():
    fractions = jnp.array([0.0, 1.0])
    assert rlaxlib.quantile_fraction_loss(fractions, jnp.zeros(0), jnp.ones(1)) == 0


# --- Samples. ---


def test_quantiles_of_several_critics_are_sorted_together():
    pools = jnp.array([[9.0, 8.0, 7.0], [1.0, 3.0, 2.0]])
    for dropped, expected in (
        (0, [1.0, 2.0, 3.0, 7.0, 8.0, 9.0]),
        (1, [1.0, 2.0, 3.0, 7.0]),
        (2, [1.0, 2.0]),
    ):
        actual = rlaxlib.truncated_quantile_targets(pools, dropped)
        np.testing.assert_array_equal(actual, expected)


def test_energy_distance_is_twice_the_integral_of_the_squared_difference():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=7), 0.5 + rng.normal(size=4)
    grid = np.sort(np.concatenate([x, y]))
    below = [np.mean(each[:, None] <= grid[:-1], axis=0) for each in (x, y)]
    integral = np.sum(np.square(below[0] - below[1]) * np.diff(grid))
    x, y = jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)
    close(rlaxlib.energy_distance_loss(x, y), 2 * integral)


def test_energy_distance_of_equal_distributions_is_zero():
    for targets in (SAMPLES[jnp.array([2, 0, 3, 1])], jnp.tile(SAMPLES, 2)):
        close(rlaxlib.energy_distance_loss(SAMPLES, targets), 0.0)


def test_energy_distance_of_single_samples_is_twice_their_distance():
    close(rlaxlib.energy_distance_loss(jnp.array([3.0]), jnp.array([-1.0])), 8.0)


def test_equal_samples_do_not_repel_each_other():
    _, gradient = energy_distance(jnp.array([1.0, 1.0]), jnp.array([4.0]))
    close(gradient, [-1.0, -1.0])


# --- Bad input. ---


@pytest.mark.parametrize("q_t_selector", [None, jnp.ones(4)])
def test_needs_exactly_one_selector(q_t_selector):
    dist = jnp.ones((3, 4))
    selector = None if q_t_selector is None else dist
    with pytest.raises(rlaxlib.ArgumentError, match="`dist_q_t_selector` and `q_t_"):
        rlaxlib.quantile_q_learning(
            dist, TAU, 0, 0.5, 0.9, selector, dist, q_t_selector=q_t_selector
        )


def test_rejects_a_traced_normalize_huber():
    @jax.jit
    def traced(flag):
        return rlaxlib.quantile_regression_loss(
            jnp.zeros(3), TAU, jnp.zeros(3), 1.0, normalize_huber=flag
        )

    with pytest.raises(rlaxlib.ArgumentError, match="`normalize_huber` is traced"):
        traced(True)


@pytest.mark.parametrize("dropped", [-1, 2, 1.0])
def test_rejects_dropping_all_quantiles_of_a_critic(dropped):
    with pytest.raises(rlaxlib.ArgumentError, match=r"`num_dropped` is .*, must be"):
        rlaxlib.truncated_quantile_targets(SAMPLES.reshape(2, 2), dropped)


def test_rejects_less_than_one_fraction_or_feature():
    for name, function in (
        ("n", rlaxlib.quantile_midpoints),
        ("n", lambda n: rlaxlib.sample_quantile_fractions(jax.random.key(0), n)),
        ("dim", lambda dim: rlaxlib.cosine_embedding(TAU, dim)),
    ):
        with pytest.raises(rlaxlib.ArgumentError, match=f"`{name}` is 0, must be at l"):
            function(0)
