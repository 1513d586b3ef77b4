"""Test what tells how much of a network is in use."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib

# --- What the functions compute. ---


def test_a_neuron_is_dormant_relative_to_the_others_and_not_in_itself():
    activations = jnp.array([[1.0, -1.0, 0.01, 0.0], [-1.0, 1.0, -0.01, 0.0]])
    for scale in (1e-20, 1.0, 1e20):
        assert rlaxlib.dormant_fraction(scale * activations) == 0.5
    assert rlaxlib.dormant_fraction(activations, 0.0) == 0.25
    assert rlaxlib.dormant_fraction(activations, 2.0) == 1


def test_a_silent_layer_is_dormant_and_an_even_one_is_not():
    assert rlaxlib.dormant_fraction(jnp.zeros((3, 4))) == 1
    assert rlaxlib.dormant_fraction(jnp.ones((3, 4))) == 0


def test_the_neurons_of_a_convolution_are_its_channels():
    images = jnp.zeros((2, 5, 5, 3)).at[..., 0].set(1.0).at[0, 2, 2, 1].set(9.0)
    close(rlaxlib.dormant_fraction(images), 1 / 3)
    close(rlaxlib.dormant_fraction(images, 0.6), 2 / 3)
    close(rlaxlib.dormant_fraction(images[0, 2, 2]), 1 / 3)


@pytest.mark.parametrize("rank", [1, 3, 5])
def test_the_rank_of_exact_features_is_their_rank(rank):
    rng = np.random.default_rng(rank)
    base, _ = np.linalg.qr(rng.normal(size=(20, rank)))
    features = jnp.asarray(base @ rng.permutation(np.eye(6)[:rank]), jnp.float32)
    assert rlaxlib.effective_rank(features) == rank
    assert rlaxlib.effective_rank(features.T) == rank
    assert rlaxlib.effective_rank(1e-6 * features) == rank


def test_directions_that_hold_no_more_than_delta_are_left_out():
    features = jnp.diag(jnp.array([4.0, 3.0, 2.0, 1.0]))
    rank = rlaxlib.effective_rank
    assert [rank(features, delta) for delta in (0.0, 0.05, 0.2, 0.4, 0.9)] == [
        4,
        4,
        3,
        2,
        1,
    ]
    # It is the singular values that are added up, and not their squares.
    assert rank(jnp.diag(jnp.array([10.0, 1.0])), 0.05) == 2


def test_features_that_are_all_zero_have_no_rank():
    assert rlaxlib.effective_rank(jnp.zeros((3, 4))) == 0
    assert rlaxlib.effective_rank(jnp.zeros((3, 4)), 0.0) == 0


def test_what_is_masked_is_as_if_it_were_not_there():
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(6, 4)), jnp.float32).at[1].set(jnp.nan)
    x = x.at[:, 2].set(0.0).at[1, 2].set(jnp.inf)
    mask = jnp.array([True, False, True, True, False, True])
    assert rlaxlib.dormant_fraction(x, mask=mask) == 0.25
    assert rlaxlib.effective_rank(x, mask=mask) == 3


def test_what_is_no_number_is_not_taken_for_a_neuron_that_is_awake():
    x = jnp.ones((3, 4)).at[1, 1].set(jnp.nan)
    assert jnp.isnan(rlaxlib.dormant_fraction(x))
    assert rlaxlib.effective_rank(x) == 0


# --- How the functions behave under JAX. ---


def test_devices_share_the_inputs_and_not_the_neurons():
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(2, 3, 8)), jnp.float32).at[..., 5].set(0.0)
    mask = jnp.array([[True, True, True], [True, False, False]])
    for function in (rlaxlib.dormant_fraction, rlaxlib.effective_rank):
        parts = jax.vmap(
            lambda x, mask, function=function: function(x, mask=mask, axis_name="i"),
            axis_name="i",
        )(x, mask)
        whole = function(x.reshape(6, 8), mask=mask.ravel())
        np.testing.assert_array_equal(parts, whole)
    assert whole == 4


# --- What the functions refuse. ---


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: rlaxlib.dormant_fraction(jnp.ones((2, 3)), -0.1),
            r"^dormant_fraction: `threshold` must lie in \[0, inf\)",
        ),
        (
            lambda: rlaxlib.dormant_fraction(jnp.ones((2, 3)), mask=jnp.ones(3, bool)),
            r"`mask` is bool\[3\]",
        ),
        (
            lambda: rlaxlib.effective_rank(jnp.ones((2, 3)), 1.0),
            r"^effective_rank: `delta` must lie in \[0, 1\)",
        ),
        (
            lambda: rlaxlib.effective_rank(jnp.ones(3)),
            r"`features` is float32\[3\]",
        ),
    ],
)
def test_says_what_is_wrong(call, message):
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        call()
