"""Test plasticity: dormant neurons, pytrees of parameters and invalid leaves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlaxlib

RANDOM = np.random.default_rng(0)
W, FRESH_W = RANDOM.normal(size=(2, 3, 2)).astype(np.float32)
PARAMS = {"w": W, "b": np.ones(2, np.float32)}
FRESH = {"w": FRESH_W, "b": np.zeros(2, np.float32)}


def test_dormant_neurons_are_scored_relative_to_the_layer():
    x, mask = np.float32([[1, -1, 0.01, 0], [-1, 1, -0.01, 0]]), rlaxlib.redo_mask
    for scale in np.float32([1e-20, 1, 1e20]):
        np.testing.assert_array_equal(mask(scale * x), [False, False, True, True])
    np.testing.assert_array_equal(mask(x, 0.0), [False, False, False, True])
    assert np.all(mask(x, 2.0))


def test_neurons_of_a_convolution_are_its_channels():
    images = np.zeros((2, 5, 5, 3), np.float32)
    images[..., 0], images[0, 2, 2, 1] = 1, 9
    mask = rlaxlib.redo_mask
    np.testing.assert_array_equal(mask(images), [False, False, True])
    np.testing.assert_array_equal(mask(images, 0.6), [False, True, True])


def test_recycled_neurons_do_not_change_the_output():
    x = RANDOM.normal(size=(20, 3)).astype(np.float32)
    w_in = RANDOM.normal(size=(3, 8)).astype(np.float32)
    w_in[:, :3] = -np.abs(w_in[:, :3])
    x = np.abs(x)  # Three neurons never fire.
    w_out = RANDOM.normal(size=(8, 2)).astype(np.float32)
    before = np.maximum(x @ w_in, 0)
    mask = rlaxlib.redo_mask(before)
    assert np.all(mask[:3])
    fresh = np.abs(RANDOM.normal(size=(3, 8))).astype(np.float32)
    after = np.maximum(x @ np.where(mask, fresh, w_in), 0)
    w_recycled = np.where(mask[:, None], 0, w_out)
    np.testing.assert_allclose(after @ w_recycled, before @ w_out, rtol=1e-5)
    assert not np.any(rlaxlib.redo_mask(after)[:3])


def test_a_layer_without_activity_is_dormant():
    assert np.all(rlaxlib.redo_mask(np.zeros((4, 3), np.float32)))


def test_inputs_over_devices_are_averaged():
    x = RANDOM.normal(size=(4, 5, 6)).astype(np.float32)
    mapped = jax.vmap(lambda x: rlaxlib.redo_mask(x, 1.0, axis_name="i"), axis_name="i")
    expected = rlaxlib.redo_mask(x.reshape(-1, 6), 1.0)
    np.testing.assert_array_equal(mapped(x), np.stack([expected] * 4))


def test_parameters_are_mixed_leaf_by_leaf():
    mixed = rlaxlib.shrink_and_perturb(PARAMS, FRESH, 0.75, 0.5)
    for name, leaf in mixed.items():
        expected = 0.75 * PARAMS[name] + 0.5 * FRESH[name]
        np.testing.assert_allclose(leaf, expected, rtol=1e-6)


def test_each_leaf_keeps_its_dtype():
    params = {"w": jnp.ones(2, jnp.bfloat16), "b": jnp.ones(2)}
    mixed = rlaxlib.shrink_and_perturb(params, params)
    assert [mixed[name].dtype for name in params] == [jnp.bfloat16, jnp.float32]
    assert rlaxlib.l2_init_loss(params, params).dtype == jnp.float32


def test_the_distance_sums_over_all_leaves():
    expected = sum(np.sum((PARAMS[name] - FRESH[name]) ** 2) for name in PARAMS)
    np.testing.assert_allclose(rlaxlib.l2_init_loss(PARAMS, FRESH), expected, rtol=1e-6)
    gradient = jax.grad(rlaxlib.l2_init_loss, argnums=(0, 1))(PARAMS, FRESH)
    np.testing.assert_allclose(gradient[0]["b"], 2.0)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(gradient[1]))


@pytest.mark.parametrize(
    ("other", "text"),
    [
        ({"w": FRESH["w"]}, "must have the same tree structure"),
        (
            {**FRESH, "b": np.zeros(3, np.float32)},
            r"\['b'\]` is float32\[3\], must be",
        ),
        ({**FRESH, "b": np.zeros(2, np.int32)}, r"\['b'\]` is int32\[2\]"),
    ],
)
def test_leaves_must_match(other, text):
    for function in (rlaxlib.shrink_and_perturb, rlaxlib.l2_init_loss):
        with pytest.raises(rlaxlib.ArgumentError, match=text):
            function(PARAMS, other)
