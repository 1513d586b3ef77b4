"""Test trajectory utilities: edge cases, identities and invalid arguments."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import rlaxlib

STREAMS = np.arange(42, dtype=np.float32).reshape(7, 3, 2)
STARTS = np.array([[0, 5], [2, 2], [4, 1]], np.int32)
FIRST, MID, LAST = range(3)
EXTRACT = jax.jit(rlaxlib.extract_subsequences, static_argnums=2)
EMBED = jax.jit(rlaxlib.embed_oar, static_argnums=3)
SAMPLE = jax.jit(rlaxlib.sample_start_indices, static_argnums=(1, 2, 3))
FIX = jax.jit(rlaxlib.fix_step_type_on_interruptions)


# --- Values. ---


def test_subsequence_may_be_as_long_as_the_trajectory():
    whole = EXTRACT(STREAMS, 0 * STARTS, 7)
    np.testing.assert_array_equal(np.asarray(whole)[:, :, 0], STREAMS)


def test_single_trajectory_needs_no_batch_axis():
    windows = EXTRACT(STREAMS[:, 0, 0], np.array([1, 4]), 2)
    np.testing.assert_array_equal(windows, [[6, 24], [12, 30]])


@pytest.mark.parametrize("start", [-1, -100, 6, 100])
@pytest.mark.parametrize(
    ("dtype", "missing"),
    [
        (jnp.float32, np.nan),
        (jnp.bfloat16, np.nan),
        (jnp.int8, -128),
        (jnp.uint8, 255),
        (bool, True),
    ],
)
def test_start_out_of_range_is_rejected_or_gives_nan(start, dtype, missing):
    streams, starts = STREAMS.astype(dtype), STARTS.copy()
    starts[1, 0] = start
    with pytest.raises(
        rlaxlib.ArgumentError,
        match=rf"^extract_subsequences: `start_indices` is {start}, must be in \[0, 5]",
    ):
        rlaxlib.extract_subsequences(streams, starts, 2)
    windows, expected = (
        np.array(EXTRACT(streams, each, 2), float) for each in (starts, STARTS)
    )
    expected[:, 1, 0] = missing
    np.testing.assert_array_equal(windows, expected)


def test_start_beyond_the_largest_allowed_is_rejected_or_gives_nan():
    extract = functools.partial(
        rlaxlib.extract_subsequences, subsequence_len=2, max_valid_start_idx=4
    )
    with pytest.raises(rlaxlib.ArgumentError, match=r"is 5, must be in \[0, 4\]"):
        extract(STREAMS, STARTS)
    windows = np.asarray(jax.jit(extract)(STREAMS, STARTS))
    assert np.isnan(windows[:, 0, 1]).all()
    assert np.isfinite(windows[:, :, 0]).all()


def test_small_integer_dtypes_do_not_overflow():
    stream, starts = np.arange(400), np.array([120, 255], np.uint8)
    windows = np.asarray(EXTRACT(stream, starts, 100))
    np.testing.assert_array_equal(windows[-1], [219, 354])


@pytest.mark.parametrize(("size", "last"), [(1, 0), (1, 49), (50, 49)])
def test_starts_are_distinct_and_in_range(size, last):
    starts = SAMPLE(jax.random.key(0), 8, size, last)
    assert all(len(set(row)) == size for row in starts.tolist())
    assert np.min(starts) >= 0
    assert np.max(starts) <= last


def test_starts_are_uniform():
    starts = np.asarray(SAMPLE(jax.random.key(0), 6000, 2, 3))
    pairs = np.bincount(starts[:, 0] * 4 + starts[:, 1], minlength=16)
    expected = 500 * (1 - np.eye(4)).ravel()  # Twelve pairs, none of equal starts.
    np.testing.assert_allclose(pairs, expected, atol=5 * np.sqrt(500))
    np.testing.assert_array_equal(pairs[expected == 0], 0)


@pytest.mark.parametrize(
    ("given", "fixed"),
    [
        ([FIRST, MID, LAST, FIRST, MID], [FIRST, MID, LAST, FIRST, MID]),
        ([FIRST, MID, MID, FIRST, MID], [FIRST, MID, LAST, FIRST, MID]),
        ([FIRST, FIRST, MID, MID], [LAST, FIRST, MID, MID]),
        ([MID, FIRST, FIRST, FIRST], [LAST, LAST, LAST, FIRST]),
        ([MID, LAST, MID, MID], [MID, LAST, MID, MID]),
        ([MID], [MID]),
    ],
)
@pytest.mark.parametrize("dtype", [jnp.uint8, jnp.int32])
def test_step_before_a_first_step_becomes_a_last_step(given, fixed, dtype):
    found = FIX(np.array(given, dtype))
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, fixed)
    again = FIX(found)
    np.testing.assert_array_equal(again, fixed)


@pytest.mark.parametrize("action", [-1, 4, 9])
def test_action_out_of_range_is_rejected_or_gives_nan(action):
    features, reward = np.float32([1, 2]), np.float32(0.5)
    with pytest.raises(
        rlaxlib.ArgumentError,
        match=rf"^embed_oar: `action` is {action}, must be in \[0, 4\)",
    ):
        rlaxlib.embed_oar(features, action, reward, 4)
    embedded = EMBED(features, action, reward, 4)
    expected = [1.0, 2.0, *[np.nan] * 4, np.tanh(0.5)]
    np.testing.assert_allclose(embedded, expected, rtol=1e-6)


def test_embedded_reward_is_bounded():
    embedded = EMBED(np.float32([0]), 0, -1e30, 2)
    np.testing.assert_array_equal(embedded, [0, 1, 0, -1])


# --- Identities. ---


def test_batch_of_trajectories_equals_vmap_over_single_ones():
    windows = EXTRACT(STREAMS, STARTS, 2)
    assert windows.shape == (2, 3, 2, 2)
    extract = functools.partial(rlaxlib.extract_subsequences, subsequence_len=2)
    each = jax.jit(jax.vmap(extract, in_axes=(1, 0), out_axes=1))
    np.testing.assert_array_equal(windows, each(STREAMS, STARTS))


def test_batch_of_starts_equals_vmap_over_split_keys():
    key = jax.random.key(5)
    starts = SAMPLE(key, 4, 3, 9)
    draw = functools.partial(
        rlaxlib.sample_start_indices,
        batch_size=None,
        num_start_indices=3,
        max_valid_start_idx=9,
    )
    each = jax.jit(jax.vmap(draw))(jax.random.split(key, 4))
    np.testing.assert_array_equal(starts, each)


def test_sampled_starts_are_valid_for_extraction():
    starts = SAMPLE(jax.random.key(0), 3, 6, 5)
    windows = rlaxlib.extract_subsequences(STREAMS, starts, 2, max_valid_start_idx=5)
    assert np.isfinite(windows).all()


def test_batch_of_step_types_equals_vmap_over_single_ones():
    step_type = np.random.default_rng(0).integers(3, size=(9, 5), dtype=np.int32)
    each = jax.jit(jax.vmap(rlaxlib.fix_step_type_on_interruptions, 1, 1))(step_type)
    fixed = FIX(step_type)
    np.testing.assert_array_equal(fixed, each)


# --- Behaviour under JAX. ---


def test_gradients_of_overlapping_subsequences_add_up():
    def loss(stream):
        return jnp.sum(rlaxlib.extract_subsequences(stream, np.array([0, 1, 1]), 2))

    gradient = jax.jit(jax.grad(loss))(np.ones(4, np.float32))
    np.testing.assert_array_equal(gradient, [1, 3, 2, 0])


def test_batch_may_be_spread_over_devices():
    mesh = jax.make_mesh((3,), ("batch",), devices=jax.devices()[:3])
    keys = jax.random.split(jax.random.key(0), 3)
    key_spec, stream_spec = PartitionSpec("batch"), PartitionSpec(None, "batch")

    @functools.partial(
        jax.shard_map,
        mesh=mesh,
        in_specs=(key_spec, stream_spec),
        out_specs=(stream_spec, key_spec),
    )
    def cut(keys, streams):
        starts = rlaxlib.sample_start_indices(keys[0], 1, 2, 5)
        return rlaxlib.extract_subsequences(streams, starts, 2), starts

    windows, starts = jax.jit(cut)(
        jax.device_put(keys, NamedSharding(mesh, key_spec)),
        jax.device_put(STREAMS, NamedSharding(mesh, stream_spec)),
    )
    expected = EXTRACT(STREAMS, np.asarray(starts), 2)
    np.testing.assert_array_equal(windows, expected)


# --- Invalid arguments. ---


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: rlaxlib.extract_subsequences(STREAMS[:, :2], STARTS),
            r"^extract_subsequences: `start_indices` is int32\[3, 2\], must be "
            r"int\[B, N\] or \[N\]",
        ),
        (
            lambda: rlaxlib.extract_subsequences(STREAMS[:, 0, 0], STARTS),
            r"^extract_subsequences: `trajectories` has shape \(7,\), must be "
            r"\[T, B, \.\.\.\]",
        ),
        (
            lambda: rlaxlib.extract_subsequences(
                STREAMS, STARTS, 2, max_valid_start_idx=6
            ),
            r"^extract_subsequences: `max_valid_start_idx` is 6, must be in \[0, 5\]",
        ),
        (
            lambda: rlaxlib.sample_start_indices(jax.random.key(0), 2, 5, 3),
            r"^sample_start_indices: `num_start_indices` is 5, must be at most 4",
        ),
    ],
)
def test_error_names_the_argument_and_what_it_must_be(call, message):
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        call()
