"""Test expectiles: imputed samples, learning from them, and bad input."""

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close
from jax.sharding import NamedSharding, PartitionSpec
from rows.values.expectile import expectiles

import rlaxlib

TAU = np.float32([0.1, 0.5, 0.9])
impute = jax.jit(rlaxlib.impute_expectile_samples, static_argnames="num_samples")
impute_batch = jax.jit(
    jax.vmap(rlaxlib.impute_expectile_samples, in_axes=(0, None, None)),
    static_argnames="num_samples",
)
DRAW = {
    "normal": lambda rng, n: rng.normal(size=n),
    "skewed": lambda rng, n: rng.exponential(size=n),
    "bimodal": lambda rng, n: 0.1 * rng.normal(size=n) + 3 * rng.integers(0, 2, n),
}


def midpoints(number):
    return (np.arange(number) + 0.5) / number


def assert_expectiles(samples, given, tau, tolerance=1e-5):
    """Assert that samples have the given expectiles, relative to the largest."""
    for each, wanted in zip(np.atleast_2d(samples), np.atleast_2d(given), strict=True):
        found = expectiles(np.asarray(each, float), np.asarray(tau, float))
        assert np.max(np.abs(found - wanted)) <= tolerance * np.max(np.abs(wanted))


# --- Imputed samples. ---


@pytest.mark.parametrize("number", [1, 2, 11, 100])
def test_imputed_samples_have_the_expectiles_of_as_many_samples(number):
    rng, tau = np.random.default_rng(number), midpoints(number)
    given = np.float32(
        [expectiles(draw(rng, number), tau) for draw in DRAW.values() for _ in range(3)]
    )
    found = impute_batch(given, tau.astype(np.float32), None)
    assert_expectiles(found, given, tau)


def test_imputed_samples_are_accurate_at_any_scale_and_offset():
    rng, tau = np.random.default_rng(0), midpoints(11)
    samples = rng.normal(size=11)
    given = np.stack(
        [
            expectiles(scale * (offset + samples), tau)
            for scale in (1e-3, 1.0, 1e4)
            for offset in (0.0, 1.0, -30.0)
        ]
    ).astype(np.float32)
    found = impute_batch(given, tau.astype(np.float32), None)
    assert_expectiles(found, given, tau)


def test_a_large_offset_costs_no_more_precision_than_rounding():
    tau, samples = midpoints(51), np.random.default_rng(0).normal(size=51)
    given = (1000 + expectiles(samples, tau)).astype(np.float32)
    found = np.asarray(impute(given, tau.astype(np.float32)), np.float64)
    spread = expectiles(found, tau) - given
    assert np.max(np.abs(spread)) < 1e-3


@pytest.mark.parametrize("draw", ["normal", "skewed"])
@pytest.mark.parametrize("number", [5, 10])
def test_more_samples_have_the_expectiles_of_any_distribution(number, draw):
    tau = midpoints(number)
    given = expectiles(DRAW[draw](np.random.default_rng(0), 1000), tau)
    found = impute(given.astype(np.float32), tau.astype(np.float32), 4 * number)
    assert found.shape == (4 * number,)
    assert_expectiles(found, given, tau)


def test_too_few_samples_have_them_approximately():
    tau = midpoints(11)
    given = expectiles(np.random.default_rng(0).exponential(size=1000), tau)
    found = impute(given.astype(np.float32), tau.astype(np.float32))
    assert_expectiles(found, given, tau, tolerance=5e-3)


@pytest.mark.parametrize("tau", [[0.6, 0.7, 0.9], [0.05, 0.2, 0.4], [0.9], [0.0, 1.0]])
def test_the_mean_need_not_be_given(tau):
    given = expectiles(np.array([-1.0, 0.5, 2.0, 3.0]), np.array(tau))
    found = impute(given.astype(np.float32), np.array(tau, np.float32), 8)
    assert_expectiles(found, given, tau)


def test_a_rounded_half_is_the_mean():
    tau = np.float32([0.1, np.nextafter(np.float32(0.5), np.float32(0)), 0.9])
    given = np.float32([-1.0, 0.0, 1.5])
    np.testing.assert_array_equal(impute(given, tau), impute(given, TAU))


@pytest.mark.parametrize("number", [1, 7])
def test_equal_expectiles_are_those_of_one_value(number):
    for tau in np.float32([TAU, [0.5, 0.5, 0.5], [0.1, 0.2, 0.3]]):
        found = impute(np.full_like(tau, 2.5), tau, number)
        np.testing.assert_array_equal(found, np.full(number, 2.5))


def test_order_does_not_matter():
    given, order = np.float32([1.0, 2.0, 4.0]), np.array([2, 0, 1])
    expected = impute(given, TAU)
    np.testing.assert_array_equal(impute(given[order], TAU[order]), expected)
    np.testing.assert_array_equal(impute(given[order], TAU), expected)  # They cross.


@hypothesis.given(
    st.lists(st.floats(-1e3, 1e3, width=32), min_size=4, max_size=4),
    st.sampled_from([1, 9]),
    st.randoms(use_true_random=False),
)
def test_samples_for_impossible_expectiles_are_finite_and_ascend(given, number, random):
    tau = np.float32([random.uniform(0, 1) for _ in given])
    found = impute(np.float32(given), tau, number)
    size = max(1.0, *map(abs, given))
    assert np.isfinite(found).all()
    assert np.min(np.diff(found), initial=0.0) >= -1e-3 * size


def test_samples_for_impossible_expectiles_have_the_right_mean():
    found = impute(np.float32([1.0, 1.0, 4.0]), TAU, 7)
    close(np.mean(found), 1.0)


def test_imputing_restores_the_width_that_expectiles_lack():
    samples = np.array([-3.0, 0.0, 3.0])
    given = expectiles(samples, midpoints(3)).astype(np.float32)
    assert np.ptp(given) < 0.8 * np.ptp(samples)
    found = impute(given, midpoints(3).astype(np.float32))
    np.testing.assert_allclose(found, samples, atol=1e-5)


def test_imputed_samples_have_no_gradient():
    inputs = np.float32([1.0, 2.0, 4.0]), TAU
    for jacobian in jax.jit(jax.jacobian(impute, argnums=(0, 1)))(*inputs):
        np.testing.assert_array_equal(jacobian, np.zeros((3, 3)))


def test_each_example_of_a_batch_may_have_its_own_fractions():
    rng = np.random.default_rng(0)
    tau = np.stack([midpoints(4), [0.1, 0.2, 0.5, 0.9], [0.2, 0.4, 0.6, 0.7]])
    given = np.stack([expectiles(rng.normal(size=4), each) for each in tau])
    found = jax.jit(jax.vmap(impute))(given.astype(np.float32), tau.astype(np.float32))
    for each in zip(found, given, tau, strict=True):
        assert_expectiles(*each)


def test_a_batch_may_be_spread_over_devices():
    devices = jax.device_count()
    rng, tau = np.random.default_rng(0), np.array([0.1, 0.3, 0.6, 0.9])
    samples = rng.normal(size=(2 * devices, 4))
    given = np.float32([expectiles(each, tau) for each in samples])
    mesh, spec = jax.make_mesh((devices,), ("batch",)), PartitionSpec("batch")
    spread = jax.shard_map(
        jax.vmap(impute, (0, None)),
        mesh=mesh,
        in_specs=(spec, PartitionSpec()),
        out_specs=spec,
    )
    there = jax.device_put(given, NamedSharding(mesh, spec))
    assert_expectiles(jax.jit(spread)(there, np.float32(tau)), given, tau)


# --- Learning. ---


def test_the_minimisers_are_the_expectiles_of_the_samples():
    samples = np.random.default_rng(0).normal(size=50).astype(np.float32)
    best = expectiles(samples.astype(float), TAU.astype(float)).astype(np.float32)
    gradient = jax.jit(jax.grad(rlaxlib.expectile_regression_loss))
    np.testing.assert_allclose(gradient(best, TAU, samples), np.zeros(3), atol=1e-6)


def test_imputed_q_learning_is_q_learning_from_the_imputed_samples():
    now, later = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    later = np.sort(later, axis=0)
    inputs = now, TAU, 2, 0.5, 0.9
    best = np.argmax(later[1])  # The mean is the expectile at 1/2.

    @jax.jit
    def both():
        samples = jnp.stack([impute(later[:, best], TAU)] * 4, axis=1)
        expected = rlaxlib.expectile_q_learning(*inputs, samples, samples)
        found = rlaxlib.imputed_expectile_q_learning(*inputs, later, later)
        return found, expected

    close(*both())


def test_the_best_action_is_found_by_interpolation_without_the_mean():
    tau = np.float32([0.75, 0.25])
    selector = np.float32([[1.0, 9.0], [0.0, -1.0]])  # Means of 0.5 and 4.
    later = np.float32([[0.0, 1.0], [0.0, 1.0]])
    inputs = np.zeros((2, 2)), tau, 0, 0.0, 1.0, selector, later
    close(jax.jit(rlaxlib.imputed_expectile_q_learning)(*inputs), 1.0)


# --- Bad input. ---


@pytest.mark.parametrize("number", [0, 2.5, True])
def test_rejects_a_number_of_samples_that_is_not_a_positive_integer(number):
    with pytest.raises(rlaxlib.ArgumentError, match="`num_samples` is"):
        rlaxlib.impute_expectile_samples(np.zeros(3), TAU, number)
