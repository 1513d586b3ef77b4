"""Test quantile values: what does best, what is held constant, what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close
from jax.sharding import NamedSharding, PartitionSpec

import rlaxlib

TAU = jnp.array([0.1, 0.5, 0.9])
loss = rlaxlib.quantile_regression_loss


# --- What the functions compute. ---


def test_the_quantiles_of_the_samples_do_best():
    samples = jax.random.normal(jax.random.key(0), (101,))
    best = jnp.quantile(samples, TAU)
    for other in (best + 0.05, best - 0.05, jnp.sort(best)[::-1]):
        assert loss(best, TAU, samples) < loss(other, TAU, samples)


def test_without_a_parameter_the_loss_is_the_plain_one_which_is_not_the_limit():
    x, y = jnp.array([0.0, 0.0, 0.0]), jnp.array([2.0, -1.0])
    plain = loss(x, TAU, y)
    close(plain, sum(tau * 2 + (1 - tau) * 1 for tau in TAU) / 2)
    close(loss(x, TAU, y, huber_param=1e-3) / 1e-3, plain, rtol=1e-3)


def test_divided_by_the_parameter_the_plain_loss_is_the_limit():
    x, y = jnp.array([0.0, 0.0, 0.0]), jnp.array([2.0, -1.0])
    plain = jax.value_and_grad(loss)(x, TAU, y)
    for huber_param in (0.0, 1e-42, 1e-30, 1e-6):
        found = jax.value_and_grad(loss)(x, TAU, y, huber_param, normalize_huber=True)
        jax.tree.map(close, found, plain)


@pytest.mark.parametrize("normalize_huber", [False, True])
def test_a_sample_at_infinity_pulls_as_any_that_is_far(normalize_huber):
    def gradient(y):
        y = jnp.array([y, 0.5])
        return jax.grad(loss)(
            jnp.zeros(3), TAU, y, 0.25, normalize_huber=normalize_huber
        )

    for sign in (1, -1):
        np.testing.assert_array_equal(gradient(sign * jnp.inf), gradient(sign * 9.0))


def test_a_prediction_that_meets_a_sample_is_not_moved_by_it():
    for huber_param in (0.0, 1.0):
        gradient = jax.grad(loss)(jnp.zeros(3), TAU, jnp.zeros(5), huber_param)
        np.testing.assert_array_equal(gradient, jnp.zeros(3))
    some = jax.grad(loss)(jnp.zeros(3), TAU, jnp.array([0.0, 0.0, 1.0, -1.0]))
    close(some, [(1 - 2 * tau) / 4 for tau in TAU])


# --- How they relate. ---


def test_q_learning_is_regression_of_the_action_taken_on_the_best_one():
    now, later = jax.random.normal(jax.random.key(0), (2, 3, 4))
    q_loss = rlaxlib.quantile_q_learning(now, TAU, 2, 0.5, 0.9, later, later, 1.0)
    best = jnp.argmax(jnp.mean(later, axis=0))
    close(q_loss, loss(now[:, 2], TAU, 0.5 + 0.9 * later[:, best], 1.0))


def test_divided_or_not_is_the_same_where_the_parameter_is_1_and_otherwise_a_factor():
    now, later = jax.random.normal(jax.random.key(0), (2, 3, 4))
    inputs = now, TAU, 2, 0.5, 0.9, later
    for learn, last in (
        (rlaxlib.quantile_q_learning, later),
        (rlaxlib.quantile_expected_sarsa, jnp.array([0.1, 0.2, 0.3, 0.4])),
    ):
        for huber_param in (1.0, 0.25):
            plain = learn(*inputs, last, huber_param)
            normalized = learn(*inputs, last, huber_param, normalize_huber=True)
            close(normalized, plain / huber_param)


def test_a_sure_choice_makes_expected_sarsa_q_learning():
    now, later = jax.random.normal(jax.random.key(0), (2, 3, 4))
    best = jnp.argmax(jnp.mean(later, axis=0))
    sure = rlaxlib.one_hot(best, 4)
    sarsa = rlaxlib.quantile_expected_sarsa(now, TAU, 2, 0.5, 0.9, later, sure)
    close(sarsa, rlaxlib.quantile_q_learning(now, TAU, 2, 0.5, 0.9, later, later))


# --- How they behave under JAX. ---


def test_samples_are_held_constant_if_and_only_if_the_flag_says_so():
    y = jnp.array([2.0, -1.0])
    stopped, free = (
        jax.grad(loss, argnums=2)(jnp.zeros(3), TAU, y, 0.0, flag)
        for flag in (True, False)
    )
    np.testing.assert_array_equal(stopped, jnp.zeros(2))
    close(free, [0.75, -0.75])


@pytest.mark.parametrize("huber_param", [0.0, 0.5, 2.0])
def test_the_parameter_may_be_traced(huber_param):
    x, y = jnp.array([0.0, 1.0, 2.0]), jnp.array([2.5, -1.0])
    traced = jax.jit(jax.value_and_grad(loss))(x, TAU, y, huber_param)
    for one, other in zip(
        traced, jax.value_and_grad(loss)(x, TAU, y, huber_param), strict=True
    ):
        close(one, other)


@pytest.mark.parametrize("number", [1, 2, 7, 8, 9, 17])
def test_any_number_of_samples_will_do(number):
    y = jnp.linspace(-1.0, 1.0, number)
    x = jnp.array([0.3, -0.2, 0.1])
    error = y[:, None] - x[None]
    expected = jnp.where(error < 0, TAU[None] - 1, TAU[None]) * error
    close(loss(x, TAU, y), jnp.sum(jnp.mean(expected, axis=0)))


def test_on_other_devices_than_a_cpu_the_program_means_the_same(monkeypatch):
    now, later = jax.random.normal(jax.random.key(0), (2, 3, 4))

    def learn(now):
        return rlaxlib.quantile_q_learning(now, TAU, 2, 0.5, 0.9, later, later, 1.0)

    here = jax.value_and_grad(learn)(now)
    monkeypatch.setattr(
        jax.lax,
        "platform_dependent",
        lambda *operands, cpu, default: default(*operands),
    )
    jax.clear_caches()  # Of what was compiled for this one.
    there = jax.value_and_grad(learn)(now)
    jax.clear_caches()
    jax.tree.map(close, here, there)


def test_the_program_holds_nothing_for_each_pair_of_prediction_and_sample():
    x = jnp.linspace(-1.0, 1.0, 500)
    for flag in (True, False):
        gradient = jax.jit(
            jax.grad(lambda x, tau, y, flag=flag: loss(x, tau, y, 1.0, flag), (0, 1, 2))
        )
        compiled = gradient.lower(x, (x + 1) / 2, x).compile()
        assert compiled.memory_analysis().temp_size_in_bytes < 100 * 500 * 4


def test_each_device_may_have_a_part_of_the_batch():
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


# --- What they refuse. ---


@pytest.mark.parametrize("tau", [[-0.1, 0.5, 0.9], [0.1, 0.5, 1.1]])
def test_a_level_that_is_no_probability_is_refused(tau):
    with pytest.raises(rlaxlib.ArgumentError, match=r"`tau_src` must lie in \[0, 1\]"):
        loss(jnp.zeros(3), jnp.array(tau), jnp.zeros(3))
    dist = jnp.zeros((3, 2))
    inputs = dist, jnp.array(tau), 0, 0.0, 0.9, dist
    with pytest.raises(rlaxlib.ArgumentError, match=r"quantile_q_learning: `tau_q_tm1"):
        rlaxlib.quantile_q_learning(*inputs, dist)
    with pytest.raises(rlaxlib.ArgumentError, match=r"expected_sarsa: `tau_q_tm1"):
        rlaxlib.quantile_expected_sarsa(*inputs, jnp.ones(2))


def test_one_level_does_not_stand_for_all():
    with pytest.raises(rlaxlib.ArgumentError, match="tau_src"):
        loss(jnp.zeros(3), jnp.array([0.5]), jnp.zeros(3))


def test_a_negative_parameter_is_refused():
    with pytest.raises(rlaxlib.ArgumentError, match="huber_param"):
        loss(jnp.zeros(3), TAU, jnp.zeros(3), -1.0)
    dist = jnp.zeros((3, 2))
    with pytest.raises(rlaxlib.ArgumentError, match="huber_param"):
        rlaxlib.quantile_q_learning(dist, TAU, 0, 0.0, 0.9, dist, dist, -1.0)
    with pytest.raises(rlaxlib.ArgumentError, match="huber_param"):
        rlaxlib.quantile_expected_sarsa(dist, TAU, 0, 0.0, 0.9, dist, jnp.ones(2), -1.0)


def test_whether_to_divide_must_be_known():
    @jax.jit
    def traced(flag):
        return loss(jnp.zeros(3), TAU, jnp.zeros(3), 1.0, normalize_huber=flag)

    with pytest.raises(rlaxlib.ArgumentError, match="`normalize_huber` must be a"):
        traced(True)
