"""Test the scale that follows percentiles of returns."""

import functools

import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close
from jax.sharding import Mesh, PartitionSpec

import rlaxlib

INIT, UPDATE = rlaxlib.percentile_scale()


def spread(returns):
    """Return the range of returns from its definition, in double precision."""
    return np.subtract(*np.percentile(np.asarray(returns, np.float64), [95, 5]))


def draw(mean=0.0, size=(4, 40), deviation=10.0):
    drawn = mean + deviation * np.random.default_rng(0).normal(size=size)
    return drawn.astype(np.float32)


# --- What they compute. ---


@pytest.mark.parametrize("mean", [0.0, 1e6])
def test_follows_the_range_of_returns_from_the_first_update_on(mean):
    updates = draw(mean)
    state, spreads = INIT(updates[0]), [spread(update) for update in updates]
    weights = 0.01 * 0.99 ** np.arange(4.0)[::-1]
    for n, update in enumerate(updates, start=1):
        scale, state = UPDATE(update, state)
        used = weights[-n:] / weights[-n:].sum()
        np.testing.assert_allclose(scale, used @ spreads[:n], rtol=1e-5)


def test_small_returns_are_not_blown_up():
    scale, state = UPDATE(0.01 * draw()[0], INIT(0.0))
    assert scale == 1.0
    assert state.mean.spread < 0.5
    scale, _ = UPDATE(jnp.full(9, 1e6 + 0.3), INIT(0.0))
    assert scale == 1.0


def test_the_bound_is_one_on_the_average_and_not_on_each_update():
    _, update = rlaxlib.percentile_scale(decay=0.5, low=0.0, high=100.0)
    _, state = update(jnp.array([0.0, 0.25]), INIT(0.0))
    scale, _ = update(jnp.array([0.0, 2.0]), state)
    close(scale, (0.25 * 0.25 + 0.5 * 2.0) / 0.75)


def test_one_outlier_changes_little():
    returns = draw(size=1000)
    expected, _ = UPDATE(returns, INIT(0.0))
    returns[7] = 1e9
    scale, _ = UPDATE(returns, INIT(0.0))
    np.testing.assert_allclose(scale, expected, rtol=0.02)


@pytest.mark.parametrize("rate", [1e-4, 1e-8])
def test_a_decay_near_one_averages_all_updates_alike(rate):
    init_state, update_scale = rlaxlib.percentile_scale(1 - rate)
    updates = jnp.asarray(draw(1e4, size=(3000, 3)))

    @jax.jit
    def run(state):
        step = lambda state, update: update_scale(update, state)[::-1]  # noqa: E731
        return jax.lax.scan(step, state, updates)[1][-1]

    weights = (1 - rate) ** np.arange(3000.0)[::-1]
    expected = weights @ [spread(update) for update in updates] / weights.sum()
    np.testing.assert_allclose(run(init_state(updates[0])), expected, rtol=1e-5)


def test_returns_may_be_whole_numbers_of_any_shape():
    scale, _ = UPDATE(jnp.arange(202).reshape(2, 101) // 2, INIT(jnp.arange(2)))
    close(scale, spread(np.arange(202) // 2))


# --- How they relate. ---


def test_is_as_large_as_the_returns_beyond_the_bound():
    returns = draw()[0]
    one, _ = UPDATE(returns, INIT(0.0))
    ten, _ = UPDATE(10 * returns + 3, INIT(0.0))
    np.testing.assert_allclose(ten, 10 * one, rtol=1e-6)


def test_what_is_masked_is_as_if_it_were_not_there():
    returns = draw(size=(6, 3))
    mask = np.arange(6) % 3 > 0
    expected, _ = UPDATE(returns[mask], INIT(0.0))
    returns[~mask] = np.nan
    close(UPDATE(returns, INIT(0.0), mask=jnp.asarray(mask))[0], expected)


def test_an_update_of_nothing_changes_nothing():
    _, known = UPDATE(draw()[0], INIT(0.0))
    masked = jnp.array([jnp.nan]), jnp.array([False])
    with jax.debug_nans(True):
        for state in (INIT(0.0), known):
            for returns, mask in (masked, (jnp.zeros(0), None)):
                scale, same = UPDATE(returns, state, mask=mask)
                np.testing.assert_array_equal(
                    jax.tree.leaves(same), jax.tree.leaves(state)
                )
                assert scale >= 1


def test_what_is_not_a_number_does_not_go_unseen():
    returns = jnp.asarray(draw()[0]).at[3].set(jnp.nan)
    assert jnp.isnan(UPDATE(returns, INIT(0.0))[1].mean.low)


# --- How they behave under JAX. ---


def test_the_scale_is_constant():
    gradient = jax.grad(lambda x: UPDATE(x, INIT(0.0))[0])(jnp.asarray(draw()[0]))
    assert not np.any(gradient)


def test_devices_rank_the_returns_of_all():
    returns = draw(size=(4, 6)) * np.arange(4, dtype=np.float32)[:, None]
    mask = returns < 8
    _, update_together = rlaxlib.percentile_scale(axis_name="devices")
    update = jax.pmap(
        lambda x, mask: update_together(x, INIT(0.0), mask=mask)[0], "devices"
    )
    close(update(returns, mask), [spread(returns[mask])] * 4)
    whole = jax.pmap(lambda x: update_together(x, INIT(0.0))[0], "devices")
    close(whole(returns), [spread(returns)] * 4)


@pytest.mark.parametrize("axis_name", [None, "devices"])
def test_can_be_carried_through_a_loop_on_a_mesh(axis_name):
    init_state, update_scale = rlaxlib.percentile_scale(axis_name=axis_name)
    shared = PartitionSpec() if axis_name else PartitionSpec("devices")

    @jax.jit
    @functools.partial(
        jax.shard_map,
        mesh=Mesh(np.array(jax.devices()[:4]), "devices"),
        in_specs=PartitionSpec("devices"),
        out_specs=shared,
    )
    def on_each(updates):
        def step(state, update):
            return update_scale(update, state)[::-1]

        start = init_state(0.0 if axis_name else updates[0, 0])
        return jax.lax.scan(step, start, updates.T)[1][:1]

    updates = jnp.asarray(draw(size=(8, 2)))
    expected = [spread(each[:, 0]) for each in np.split(np.asarray(updates), 4)]
    expected = [spread(updates[:, 0])] if axis_name else expected
    close(on_each(updates), np.maximum(1, expected))


def test_double_precision_is_kept():
    with contract.x64(True):
        scale, state = UPDATE(jnp.float64([1.0, 9.0]), INIT(jnp.float64(0.0)))
    assert {x.dtype for x in jax.tree.leaves((scale, state))} == {np.dtype("float64")}


# --- What they refuse. ---


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"decay": 1.0}, r"`decay` must lie in \[0, 1\)"),
        ({"low": -1.0}, r"`low` must lie in \[0, 100\]"),
        ({"high": 101.0}, r"`high` must lie in \[0, 100\]"),
        ({"low": 60.0, "high": 50.0}, "`high` must be at least `low`"),
        ({"min_scale": 0.0}, r"`min_scale` must lie in \(0, inf\)"),
        ({"decay": jnp.ones(2)}, r"`decay` is float32\[2\]"),
    ],
)
def test_refuses_settings_out_of_range(settings, message):
    with pytest.raises(rlaxlib.ArgumentError, match=f"^percentile_scale: {message}"):
        rlaxlib.percentile_scale(**settings)


@pytest.mark.parametrize(
    ("returns", "mask", "message"),
    [
        (jnp.ones(2, bool), None, r"`returns` is bool\[2\], but must be float"),
        (jnp.ones(2), jnp.ones(3, bool), "the mask shape must be that of the first"),
        (jnp.ones(2), jnp.ones(2), r"`mask` is float32\[2\], but must be bool"),
    ],
)
def test_says_what_is_wrong(returns, mask, message):
    with pytest.raises(rlaxlib.ArgumentError, match=f"^percentile_scale: {message}"):
        UPDATE(returns, INIT(0.0), mask=mask)
