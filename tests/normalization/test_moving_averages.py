"""Test the moving averages: far from zero, close to a decay of one, with masks."""

import functools

import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close
from jax.sharding import Mesh, PartitionSpec

import rlaxlib


def moments(batches, decay):
    """Return mean and variance from their definition, in double precision."""
    batches = [np.asarray(x, np.float64) for x in batches]
    weights = np.float64(decay) ** np.arange(len(batches))[::-1]
    weights /= weights.sum()
    mean = weights @ [x.mean() for x in batches]
    return mean, weights @ [np.mean((x - mean) ** 2) for x in batches]


def average(batches, decay, **settings):
    """Return the state after one update for each batch, and what it says."""
    init_state, update_moments = rlaxlib.create_ema(decay, **settings)

    @jax.jit
    def run(batches):
        def step(state, batch):
            return update_moments(batch, state)[::-1]

        state, said = jax.lax.scan(step, init_state(batches[0]), batches)
        return state, jax.tree.map(lambda x: x[-1], said)

    return run(jnp.asarray(batches))


def draw(mean, steps=500, size=8, dtype=np.float32):
    return (mean + np.random.default_rng(0).normal(size=(steps, size))).astype(dtype)


# --- What they compute. ---


@pytest.mark.parametrize("decay", [0.0, 0.9, 0.999])
@pytest.mark.parametrize("mean", [0.0, 1e2, 1e4, 1e6])
def test_the_variance_keeps_its_digits_far_from_zero(mean, decay):
    batches = draw(mean)
    _, said = average(batches, decay)
    expected = moments(batches, decay)
    np.testing.assert_allclose(said.mean, expected[0], rtol=1e-7, atol=1e-6)
    np.testing.assert_allclose(said.variance, expected[1], rtol=1e-5)


def test_the_moments_of_long_streams_keep_their_digits_when_mapped():
    init_state, update_moments = rlaxlib.create_ema()
    x = draw(0.0, steps=8, size=100_000)
    each = jax.jit(jax.vmap(lambda x: update_moments(x, init_state(x))[0]))
    said, exact = each(x), x.astype(np.float64)
    np.testing.assert_allclose(said.mean, exact.mean(axis=1), rtol=0, atol=3e-7)
    np.testing.assert_allclose(said.variance, exact.var(axis=1), rtol=7e-7)


def test_a_mean_of_a_million_follows_steps_of_a_thousandth():
    batches = draw(1e6, steps=5000, size=1, dtype=np.float64)
    batches = np.float32(batches + 1e-3 * np.arange(5000)[:, None])
    _, said = average(batches, 0.999)
    expected = moments(batches, 0.999)
    np.testing.assert_allclose(said.mean, expected[0], rtol=1e-7)
    np.testing.assert_allclose(said.variance, expected[1], rtol=1e-4)


@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_a_jump_leaves_the_next_variance_its_digits(decay):
    batches = np.float32([[0.0, 1.0], [1e5, 1e5 + 2]])
    _, said = average(batches, decay)
    np.testing.assert_allclose(said.variance, moments(batches, decay)[1], rtol=1e-6)


@pytest.mark.parametrize("rate", [1e-3, 1e-6, 1e-7, 1e-8])
def test_moments_are_right_from_the_first_update_on_however_slow_they_are(rate):
    state, said = average(jnp.full((1, 1), 3.0), 1 - rate)
    assert said == (3.0, 0.0)
    state, said = average(jnp.full((20_000, 1), 3.0), 1 - rate)
    np.testing.assert_allclose(said.mean, 3.0, rtol=1e-6)
    weight = -np.expm1(20_000 * np.log1p(-rate))
    np.testing.assert_allclose(state.weight, weight, rtol=1e-6)


def test_every_update_weighs_the_same_in_a_slow_average():
    batches = draw(0.0, steps=2000, size=1)
    _, said = average(batches, 1 - 1e-8)
    np.testing.assert_allclose(said.mean, np.mean(batches, dtype=float), rtol=1e-4)
    np.testing.assert_allclose(said.variance, np.var(batches, dtype=float), rtol=1e-4)


@pytest.mark.parametrize("value", [100.0, 300.0])
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_half_precision_is_averaged_in_single(dtype, value):
    batches = jnp.full((3000, 2), value, dtype)
    state, said = average(batches, 0.999)
    assert {x.dtype for x in jax.tree.leaves(state)} == {jnp.dtype(jnp.float32)}
    assert said == (float(batches[0, 0]), 0.0)


def test_there_is_nothing_to_say_before_the_first_update():
    init_state, _ = rlaxlib.create_ema()
    assert init_state(jnp.full(3, 5.0)).debiased_moments() == (0.0, 0.0)


def test_each_leaf_has_its_own_moments_and_may_hold_whole_numbers():
    init_state, update_moments = rlaxlib.create_ema(0.5)
    tree = {"a": jnp.array([[1, 3]]), "b": (2.0, 4), "c": np.array([1.0, 2.0, 6.0])}
    said, state = update_moments(tree, init_state(tree))
    assert said.mean == {"a": 2.0, "b": (2.0, 4.0), "c": 3.0}
    close(said.variance["a"], 1.0)
    close(said.variance["c"], 14 / 3)
    assert state.debiased_moments() == said


def test_the_state_tells_what_that_of_rlax_holds():
    batches = draw(1.0, steps=3)
    state, _ = average(batches, 0.75)
    weights = 0.25 * 0.75 ** np.array([2, 1, 0])
    close(state.mu, weights @ batches.mean(axis=1))
    close(state.nu, weights @ np.mean(batches**2, axis=1))
    close(state.decay_product, 0.75**3)


# --- How they relate. ---


def test_what_is_masked_is_as_if_it_were_not_there():
    init_state, update_moments = rlaxlib.create_ema(0.9)
    x = jnp.array([[1.0, 2.0], [jnp.nan, jnp.inf], [4.0, 9.0]])
    mask = jnp.array([True, False, True])
    masked = kept = init_state(x)
    for shift in (1e4, 0.0):
        masked_said, masked = update_moments(x + shift, masked, mask=mask)
        kept_said, kept = update_moments(x[mask] + shift, kept)
        np.testing.assert_allclose(masked_said, kept_said, rtol=1e-6)


def test_an_update_of_nothing_changes_nothing():
    init_state, update_moments = rlaxlib.create_ema(0.9)
    x, nothing = jnp.array([1.0, jnp.nan]), jnp.array([False, False])
    start = init_state(x)
    with jax.debug_nans(True):
        _, state = update_moments(x, start, mask=nothing)
    np.testing.assert_array_equal(jax.tree.leaves(state), jax.tree.leaves(start))
    _, known = update_moments(jnp.array([3.0, 5.0]), start)
    _, state = update_moments(x, known, mask=nothing)
    np.testing.assert_array_equal(jax.tree.leaves(state), jax.tree.leaves(known))


def test_the_weights_of_updates_with_different_decays_add_up():
    start = rlaxlib.create_ema()[0](0.0)
    _, state = rlaxlib.create_ema(0.5)[1](1.0, start)
    said, state = rlaxlib.create_ema(0.25)[1](3.0, state)
    close(state.decay_product, 0.125)
    close(said.mean, (0.5 * 0.25 * 1.0 + 0.75 * 3.0) / 0.875)


# --- How they behave under JAX. ---


def test_a_nan_that_is_masked_does_not_reach_the_gradient():
    init_state, update_moments = rlaxlib.create_ema(0.9)
    mask = jnp.array([True, False, True])

    def loss(x):
        _, state = update_moments(x, init_state(x), mask=mask)
        return sum(update_moments(2 * x, state, mask=mask)[0])

    gradient = jax.grad(loss)(jnp.array([1.0, jnp.nan, 2.0]))
    assert jnp.all(jnp.isfinite(gradient))
    assert gradient[1] == 0
    assert gradient[0] != 0


@pytest.mark.parametrize("mean", [0.0, 1e5])
def test_devices_take_in_the_numbers_of_all(mean):
    batches = jnp.asarray(draw(mean, steps=4, size=8))
    mask = jnp.arange(8) % 4 > jnp.arange(8) // 4
    init_state, update_alone = rlaxlib.create_ema(0.9)
    _, update_together = rlaxlib.create_ema(0.9, "devices")
    for masks in (mask, None):
        split = None if masks is None else masks.reshape(4, 2)
        state = alone = init_state(batches[0])

        @functools.partial(jax.pmap, axis_name="devices", in_axes=(0, None, 0))
        def update(x, state, mask):
            return update_together(x, state, mask=mask)

        for x in batches:
            expected, alone = update_alone(x, alone, mask=masks)
            said, states = update(x.reshape(4, 2), state, split)
            state = jax.tree.map(lambda x: x[2], states)
            for i in range(4):
                actual = jax.tree.map(lambda x, i=i: x[i], said)
                np.testing.assert_allclose(actual, expected, rtol=1e-5)


@pytest.mark.parametrize("axis_name", [None, "devices"])
def test_can_be_carried_through_a_loop_on_a_mesh(axis_name):
    init_state, update_moments = rlaxlib.create_ema(0.9, axis_name)
    mesh = Mesh(np.array(jax.devices()[:4]), "devices")
    spec = PartitionSpec("devices")

    @jax.jit
    @functools.partial(jax.shard_map, mesh=mesh, in_specs=(spec,), out_specs=spec)
    def on_each(batches):
        def step(state, batch):
            return update_moments(batch, state, mask=batch > 0)[::-1]

        _, said = jax.lax.scan(step, init_state(batches[:, 0]), batches.T)
        return said.variance[-1:]

    batches = jnp.abs(jnp.asarray(draw(1.0, steps=8, size=5)))
    parts = batches.reshape(1, 8, 5) if axis_name else batches.reshape(4, 2, 5)
    expected = [moments(part.T, 0.9)[1] for part in np.asarray(parts)]
    close(on_each(batches), np.broadcast_to(expected, 4))


def test_a_traced_decay_is_taken_as_it_is():
    @jax.jit
    def two(decay):
        init_state, update_moments = rlaxlib.create_ema(decay)
        _, state = update_moments(1.0, init_state(0.0))
        return update_moments(2.0, state)[0].mean

    close(two(0.5), 5 / 3)
    close(two(jnp.bfloat16(0.5)), 5 / 3)


def test_double_precision_is_kept_where_any_leaf_has_it():
    with jax.numpy_dtype_promotion("standard"), contract.x64(True):
        tree = (jnp.ones(2, jnp.float32), jnp.ones(2, jnp.float64))
        init_state, update_moments = rlaxlib.create_ema(0.9)
        _, state = update_moments(tree, init_state(tree))
    assert state.weight.dtype == jnp.float64
    assert [x.dtype for x in state.mean] == [jnp.float32, jnp.float64]


# --- What they refuse. ---


@pytest.mark.parametrize("decay", [1.0, 1.1, -0.1, jnp.nan, np.float32(1.0)])
def test_a_decay_must_lie_below_one(decay):
    with pytest.raises(rlaxlib.ArgumentError, match=r"^create_ema: `decay` .*\[0, 1\)"):
        rlaxlib.create_ema(decay)


@pytest.mark.parametrize(
    ("tree", "mask", "message"),
    [
        ("text", None, r"`tree` is 'text', but must be float"),
        (jnp.ones(2, bool), None, r"`tree` is bool\[2\], but must be float"),
        (jnp.ones(0), None, r"`tree.size` must be at least 1"),
        ((1.0, 2.0), None, r"`state` and `tree` must share the same tree structure"),
        (jnp.ones(2), jnp.ones(3, bool), r"the mask shape must be that of the first"),
        (jnp.ones(2), jnp.ones(2), r"`mask` is float32\[2\], but must be bool"),
    ],
)
def test_says_what_is_wrong(tree, mask, message):
    init_state, update_moments = rlaxlib.create_ema()
    with pytest.raises(rlaxlib.ArgumentError, match=f"^create_ema: {message}"):
        update_moments(tree, init_state(1.0), mask=mask)
