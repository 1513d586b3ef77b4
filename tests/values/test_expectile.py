"""Test expectile values: that samples have the expectiles they were made from."""

import functools

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close
from jax.sharding import NamedSharding, PartitionSpec
from rows.distributional import expectiles

import rlaxlib

TAU = jnp.array([0.1, 0.5, 0.9])
impute = rlaxlib.impute_expectile_samples
impute_batch = jax.jit(
    jax.vmap(impute, in_axes=(0, None, None)), static_argnames="num_samples"
)
DRAW = {
    "normal": lambda rng, n: rng.normal(size=n),
    "skewed": lambda rng, n: rng.exponential(size=n),
    "two peaks": lambda rng, n: 0.1 * rng.normal(size=n) + 3 * rng.integers(0, 2, n),
}


def midpoints(number):
    return (np.arange(number) + 0.5) / number


def worst(samples, given, tau):
    """Return by how much the expectiles of samples miss those given, of their size."""
    found = expectiles(np.asarray(samples, np.float64), np.asarray(tau, np.float64))
    return np.max(np.abs(found - given)) / max(np.max(np.abs(given)), 1e-30)


# --- What the functions compute. ---


@pytest.mark.parametrize("draw", DRAW.values(), ids=DRAW)
@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 8, 11, 20, 51, 200])
def test_samples_have_the_expectiles_of_as_many_samples(number, draw):
    rng, tau = np.random.default_rng(number), midpoints(number)
    many = 20 if number < 50 else 3
    given = np.stack([expectiles(draw(rng, number), tau) for _ in range(many)])
    given = given.astype(np.float32)
    for found, wanted in zip(
        impute_batch(given, tau.astype(np.float32), None), given, strict=True
    ):
        assert worst(found, wanted, tau) < 1e-5


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("offset", [0.0, 1.0, -30.0])
def test_samples_have_them_at_any_scale(scale, offset):
    rng, tau = np.random.default_rng(0), midpoints(11)
    given = expectiles(scale * (offset + rng.normal(size=11)), tau).astype(np.float32)
    assert worst(impute(given, tau.astype(np.float32)), given, tau) < 1e-5


@pytest.mark.parametrize(
    "draw", [DRAW["normal"], DRAW["skewed"]], ids=["normal", "skewed"]
)
@pytest.mark.parametrize("number", [5, 10, 11])
def test_more_samples_have_those_of_what_is_no_sample_of_so_few(number, draw):
    tau = midpoints(number)
    given = expectiles(draw(np.random.default_rng(0), 1000), tau).astype(np.float32)
    found = impute(given, tau.astype(np.float32), 4 * number)
    assert found.shape == (4 * number,)
    assert worst(found, given, tau) < 1e-5


def test_too_few_samples_come_close():
    tau = midpoints(11)
    given = expectiles(np.random.default_rng(0).exponential(size=1000), tau)
    given = given.astype(np.float32)
    assert 1e-5 < worst(impute(given, tau.astype(np.float32)), given, tau) < 5e-3


@pytest.mark.parametrize("tau", [[0.6, 0.7, 0.9], [0.05, 0.2, 0.4], [0.9], [0.0, 1.0]])
def test_the_mean_need_not_lie_among_them(tau):
    samples = np.array([-1.0, 0.5, 2.0, 3.0])
    given = expectiles(samples, np.array(tau)).astype(np.float32)
    found = impute(given, np.array(tau, np.float32), 8)
    assert worst(found, given, tau) < 1e-5


def test_no_sample_is_thrown_far_away_where_there_are_many():
    tau = midpoints(5)
    given = expectiles(np.random.default_rng(0).normal(size=1000), tau)
    found = impute(given.astype(np.float32), tau.astype(np.float32), 500)
    assert np.max(np.abs(found)) < 4


def test_equal_expectiles_are_those_of_one_value():
    for number in (1, 3, 7):
        found = impute(jnp.full(3, 2.5), TAU, number)
        np.testing.assert_array_equal(found, jnp.full(number, 2.5))


def test_half_alone_tells_the_mean_and_no_more():
    np.testing.assert_array_equal(impute(jnp.array([2.5]), jnp.array([0.5]), 3), 2.5)
    twice = impute(jnp.array([2.5, 2.5]), jnp.array([0.5, 0.5]))
    np.testing.assert_array_equal(twice, jnp.array([2.5, 2.5]))


def test_the_order_does_not_matter():
    given = jnp.array([1.0, 2.0, 4.0])
    expected = impute(given, TAU)
    order = jnp.array([2, 0, 1])
    np.testing.assert_array_equal(impute(given[order], TAU[order]), expected)


def test_expectiles_that_cross_are_put_in_order():
    expected = impute(jnp.array([1.0, 2.0, 4.0]), TAU)
    np.testing.assert_array_equal(impute(jnp.array([4.0, 1.0, 2.0]), TAU), expected)


@hypothesis.given(
    st.lists(st.floats(-1e3, 1e3, width=32), min_size=4, max_size=4),
    st.sampled_from([1, 4, 9]),
    st.randoms(use_true_random=False),
)
def test_what_no_distribution_has_gives_finite_samples_in_order(given, number, random):
    tau = jnp.array([random.uniform(0, 1) for _ in given], jnp.float32)
    found = impute(jnp.array(given, jnp.float32), tau, number)
    size = max(1.0, *map(abs, given))
    assert np.isfinite(found).all()
    assert np.min(np.diff(found), initial=0.0) >= -1e-3 * size


def test_samples_where_no_distribution_fits_have_the_right_mean():
    found = impute(jnp.array([1.0, 1.0, 4.0]), TAU, 6)
    close(jnp.mean(found), 1.0)


def test_expectiles_do_best():
    samples = jax.random.normal(jax.random.key(0), (50,))
    best = jnp.asarray(expectiles(np.asarray(samples, float), np.asarray(TAU, float)))
    best = best.astype(jnp.float32)
    gradient = jax.grad(rlaxlib.expectile_regression_loss)(best, TAU, samples)
    np.testing.assert_allclose(gradient, jnp.zeros(3), atol=1e-6)


# --- How they relate. ---


def test_what_is_imputed_is_learned_from_as_samples_are():
    now, later = jax.random.normal(jax.random.key(0), (2, 3, 4))
    later = jnp.sort(later, axis=0)
    inputs = now, TAU, 2, 0.5, 0.9
    best = int(jnp.argmax(later[1]))  # The mean is the expectile at 1/2.
    for number in (None, 5):
        samples = impute(later[:, best], TAU, number)
        columns = jnp.stack([samples] * 4, axis=1)
        expected = rlaxlib.expectile_q_learning(*inputs, columns, columns)
        learn = functools.partial(
            rlaxlib.imputed_expectile_q_learning, num_samples=number
        )
        close(learn(*inputs, later, later), expected)


def test_taking_expectiles_for_samples_narrows_and_imputing_does_not():
    samples = jnp.array([-3.0, 0.0, 3.0])
    given = expectiles(np.asarray(samples, float), midpoints(3)).astype(np.float32)
    assert np.ptp(given) < 0.8 * np.ptp(samples)
    np.testing.assert_allclose(
        impute(given, midpoints(3).astype(np.float32)), samples, atol=1e-5
    )


def test_the_best_action_is_judged_between_expectiles_if_the_mean_is_none():
    tau = jnp.array([0.75, 0.25])
    selector = jnp.array([[1.0, 9.0], [0.0, -1.0]])  # Means of 0.5 and 4.
    later = jnp.array([[0.0, 1.0], [0.0, 1.0]])
    inputs = jnp.zeros((2, 2)), tau, 0, 0.0, 1.0, selector, later
    close(rlaxlib.imputed_expectile_q_learning(*inputs), 1.0)


# --- How they behave under JAX. ---


def test_samples_are_constants():
    moved = jax.jacobian(impute, argnums=(0, 1))(jnp.array([1.0, 2.0, 4.0]), TAU)
    for each in moved:
        np.testing.assert_array_equal(each, jnp.zeros((3, 3)))


def test_each_of_a_batch_may_have_its_own_levels():
    rng = np.random.default_rng(0)
    tau = np.stack([midpoints(4), [0.1, 0.2, 0.5, 0.9], [0.2, 0.4, 0.6, 0.7]])
    given = np.stack([expectiles(rng.normal(size=4), each) for each in tau])
    tau, given = tau.astype(np.float32), given.astype(np.float32)
    for found, wanted, each in zip(
        jax.vmap(impute)(given, tau), given, tau, strict=True
    ):
        assert worst(found, wanted, each) < 1e-5


def test_each_device_may_have_a_part_of_the_batch():
    devices = jax.device_count()
    given = jnp.sort(jax.random.normal(jax.random.key(0), (2 * devices, 4)))
    tau = jnp.array([0.1, 0.3, 0.6, 0.9])
    mesh, spec = jax.make_mesh((devices,), ("batch",)), PartitionSpec("batch")
    batch = jax.vmap(impute, (0, None))
    spread = jax.shard_map(
        batch, mesh=mesh, in_specs=(spec, PartitionSpec()), out_specs=spec
    )
    there = jax.device_put(given, NamedSharding(mesh, spec))
    close(jax.jit(spread)(there, tau), batch(given, tau), rtol=1e-4)


# --- What they refuse. ---


def test_a_level_that_is_no_probability_is_refused():
    tau, dist = jnp.array([0.1, 0.5, 1.5]), jnp.zeros((3, 2))
    with pytest.raises(rlaxlib.ArgumentError, match="`tau` must lie"):
        impute(jnp.zeros(3), tau)
    with pytest.raises(rlaxlib.ArgumentError, match="`tau_src` must lie"):
        rlaxlib.expectile_regression_loss(jnp.zeros(3), tau, jnp.zeros(3))
    for learn in (rlaxlib.expectile_q_learning, rlaxlib.imputed_expectile_q_learning):
        with pytest.raises(rlaxlib.ArgumentError, match="`tau_q_tm1` must lie"):
            learn(dist, tau, 0, 0.0, 0.9, dist, dist)


@pytest.mark.parametrize("number", [0, 2.5, True])
def test_a_number_of_samples_that_is_none_is_refused(number):
    with pytest.raises(rlaxlib.ArgumentError, match="num_samples"):
        impute(jnp.zeros(3), TAU, number)
    dist = jnp.zeros((3, 2))
    inputs = dist, TAU, 0, 0.0, 0.9, dist, dist
    with pytest.raises(rlaxlib.ArgumentError, match="num_samples"):
        rlaxlib.imputed_expectile_q_learning(*inputs, num_samples=number)
