"""Test what tells how good values are: constants, biases, masks."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib

TARGETS = jnp.array([1.0, 2.0, 4.0, 9.0])
EACH = [
    rlaxlib.explained_variance,
    functools.partial(rlaxlib.explained_variance, count_bias=True),
    rlaxlib.value_bias,
    functools.partial(rlaxlib.value_bias, normalize=True),
]

# --- What the functions compute. ---


@pytest.mark.parametrize("count_bias", [False, True])
def test_perfect_values_explain_all_and_their_mean_explains_nothing(count_bias):
    explained = functools.partial(rlaxlib.explained_variance, count_bias=count_bias)
    assert explained(TARGETS, TARGETS) == 1
    close(explained(jnp.full(4, 4.0), TARGETS), 0.0)


def test_a_constant_bias_counts_only_where_it_is_to():
    close(rlaxlib.explained_variance(TARGETS + 3, TARGETS), 1.0)
    explained = rlaxlib.explained_variance(TARGETS + 3, TARGETS, count_bias=True)
    close(explained, 1 - 9 / jnp.var(TARGETS))


@pytest.mark.parametrize("value", [0.0, 0.1, -1e6])
@pytest.mark.parametrize("count_bias", [False, True])
def test_where_all_targets_are_equal_there_is_nothing_to_explain(value, count_bias):
    explained = functools.partial(rlaxlib.explained_variance, count_bias=count_bias)
    targets = jnp.full(7, value)
    for predictions in (targets, jnp.arange(7.0)):
        result, gradients = jax.value_and_grad(explained, (0, 1))(predictions, targets)
        assert result == 0
        np.testing.assert_array_equal(gradients, 0.0)


def test_targets_far_from_zero_are_explained_as_well():
    rng = np.random.default_rng(0)
    targets = np.float32(1e6 + rng.normal(size=1000))
    predictions = np.float32(targets + 0.5 * rng.normal(size=1000))
    errors = targets.astype(float) - predictions
    expected = 1 - np.var(errors) / np.var(targets.astype(float))
    close(rlaxlib.explained_variance(predictions, targets), expected, rtol=1e-4)


def test_values_that_are_too_large_have_a_positive_bias():
    values, returns = jnp.array([1.0, 3.0]), jnp.array([-2.0, -2.0])
    close(rlaxlib.value_bias(values, returns), 4.0)
    close(rlaxlib.value_bias(values, returns, normalize=True), 2.0)
    close(rlaxlib.value_bias(-values, -returns, normalize=True), -2.0)


def test_a_bias_relative_to_nothing_is_none():
    values, returns = jnp.array([1.0, 3.0]), jnp.array([-2.0, 2.0])
    assert rlaxlib.value_bias(values, returns, normalize=True) == 0


@pytest.mark.parametrize("function", EACH)
def test_what_is_masked_is_as_if_it_were_not_there(function):
    predictions = jnp.array([[0.5, jnp.nan], [3.0, 2.0]])
    targets = jnp.array([[1.0, 2.0], [jnp.inf, 4.0]])
    mask = jnp.array([[True, False], [False, True]])
    result, gradients = jax.value_and_grad(function, (0, 1))(predictions, targets, mask)
    close(result, function(predictions[mask], targets[mask]))
    assert np.all(np.isfinite(gradients))
    np.testing.assert_array_equal(np.asarray(gradients)[:, ~mask], 0.0)
    assert function(predictions, targets, jnp.zeros_like(mask)) == 0


@pytest.mark.parametrize("function", EACH)
def test_what_is_no_number_is_told(function):
    spoiled = TARGETS.at[2].set(jnp.nan)
    assert jnp.isnan(jax.jit(function)(spoiled, TARGETS))
    assert jnp.isnan(jax.jit(function)(TARGETS, spoiled))


# --- How the functions behave under JAX. ---


@pytest.mark.parametrize("function", EACH)
def test_devices_with_unequal_shares_give_what_one_gives(function):
    predictions = jnp.array([[0.5, 7.0], [3.0, 2.0]])
    targets, mask = TARGETS.reshape(2, 2), jnp.array([[True, True], [False, True]])
    over = jax.vmap(functools.partial(function, axis_name="i"), axis_name="i")
    parts = over(predictions, targets, mask)
    close(parts, jnp.full(2, function(predictions, targets, mask)))


# --- What the functions refuse. ---


def test_a_mask_has_the_shape_of_what_it_masks():
    for function in EACH:
        with pytest.raises(rlaxlib.ArgumentError, match=r"`mask` is bool\[2\]"):
            function(TARGETS, TARGETS, jnp.ones(2, bool))
