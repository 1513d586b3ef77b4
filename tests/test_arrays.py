"""Test array utilities: masks, extreme values, dtypes and invalid arguments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib

X = jnp.array([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]])


# --- Means and standardisation. ---


def test_mean_ignores_masked_entries_in_numerator_and_denominator():
    mask = jnp.array([[True, False, True], [False, False, False]])
    np.testing.assert_array_equal(rlaxlib.masked_mean(X, mask), 2.5)
    np.testing.assert_array_equal(rlaxlib.masked_mean(X, mask, axis=1), [2.5, 0.0])
    np.testing.assert_array_equal(rlaxlib.masked_mean(X, mask, axis=(0, 1)), 2.5)
    np.testing.assert_array_equal(rlaxlib.masked_mean(X, mask, axis=-1), [2.5, 0.0])


def test_mask_of_leading_axes_applies_to_whole_rows():
    mask = jnp.array([True, False])
    close(rlaxlib.masked_mean(X, mask), 7 / 3)
    np.testing.assert_array_equal(rlaxlib.standardize(X, mask)[1], 0.0)


def test_means_of_parts_with_a_common_denominator_sum_to_the_mean_of_the_whole():
    mask = jnp.array([[True, True, True], [True, False, False]])
    parts = [rlaxlib.masked_mean(X[i], mask[i], denominator=4) for i in range(2)]
    close(sum(parts), rlaxlib.masked_mean(X, mask))


@pytest.mark.parametrize("function", [rlaxlib.masked_mean, rlaxlib.standardize])
def test_masked_nan_reaches_neither_value_nor_gradient(function):
    x, mask = X.at[0, 1].set(jnp.nan), jnp.ones((2, 3), bool).at[0, 1].set(False)
    value, pullback = jax.vjp(lambda x: function(x, mask), x)
    (gradient,) = pullback(jnp.ones_like(value))
    assert jnp.all(jnp.isfinite(value))
    assert jnp.all(jnp.isfinite(gradient))
    assert gradient[0, 1] == 0


@pytest.mark.parametrize("size", [1, 7])
@pytest.mark.parametrize("value", [0.0, 0.1, -1e4])
def test_standardized_constants_are_zero_with_a_gradient_of_zero(value, size):
    x = jnp.full(size, value)
    np.testing.assert_array_equal(rlaxlib.standardize(x), 0.0)
    jacobian = jax.jit(jax.jacrev(rlaxlib.standardize))(x)
    np.testing.assert_array_equal(jacobian, 0.0)


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf, -jnp.inf])
def test_standardize_does_not_hide_entries_that_are_not_finite(bad):
    standardized = rlaxlib.standardize(jnp.array([1.0, bad, 3.0]))
    np.testing.assert_array_equal(standardized, np.nan)
    mask = jnp.array([True, True, False])
    standardized = rlaxlib.standardize(jnp.array([1.0, bad, 3.0]), mask)
    np.testing.assert_array_equal(standardized, [np.nan, np.nan, 0.0])


def test_standardize_is_precise_far_from_zero():
    noise = np.random.default_rng(0).normal(size=1000)
    x = np.float32(1e5 + noise).astype(np.float64)
    expected = (x - x.mean()) / x.std()
    actual = rlaxlib.standardize(jnp.asarray(x, jnp.float32))
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def test_sums_of_bfloat16_do_not_saturate():
    assert rlaxlib.AllSum()(jnp.ones(1000, jnp.bfloat16)) == 1000
    assert rlaxlib.masked_mean(jnp.ones(1000, jnp.bfloat16)) == 1


# --- Indices and masks. ---


def test_index_out_of_range_encodes_as_zeros_and_picks_nan():
    indices = jnp.array([-1, 0, 2])
    hot = rlaxlib.one_hot(indices, 2)
    np.testing.assert_array_equal(hot, [[0, 0], [1, 0], [0, 0]])
    picked = jax.jit(rlaxlib.batched_index)(jnp.ones((3, 2)), indices)
    np.testing.assert_array_equal(picked, [np.nan, 1.0, np.nan])


@pytest.mark.parametrize("dtype", [jnp.int8, jnp.uint8, jnp.int16, jnp.uint32])
def test_indices_of_any_dtype_pick_one_of_many_entries(dtype):
    values, indices = jnp.arange(600.0).reshape(2, 300), jnp.array([3, 100], dtype)
    picked = jax.jit(rlaxlib.batched_index)(values, indices)
    np.testing.assert_array_equal(picked, [3.0, 400.0])


@pytest.mark.parametrize("dtype", [jnp.int8, jnp.int32, jnp.bfloat16, jnp.float32])
def test_indices_of_any_dtype_encode_one_of_many_classes(dtype):
    hot = rlaxlib.one_hot(jnp.asarray([0, 100], dtype), 600)
    np.testing.assert_array_equal(jnp.argmax(hot, axis=-1), [0, 100])
    np.testing.assert_array_equal(jnp.sum(hot, axis=-1), 1.0)


@pytest.mark.parametrize("dtype", [bool, int, float])
def test_mask_may_consist_of_zeros_and_ones(dtype):
    mask = jnp.asarray([0, 1], dtype)
    np.testing.assert_array_equal(rlaxlib.replace_masked(X, -X, mask), [X[0], -X[1]])


# --- Invalid arguments. ---


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: rlaxlib.lhs_broadcast(jnp.ones((3, 3)), jnp.ones(3)),
            r"^lhs_broadcast: `source` has shape \(3, 3\), must have the first axes of "
            r"`target`, which has shape \(3,\), or size 1",
        ),
        (
            lambda: rlaxlib.lhs_broadcast(jnp.ones(2), jnp.ones((3, 2))),
            r"`source` has shape \(2,\), must have the first axes of `target`",
        ),
        (
            lambda: rlaxlib.replace_masked(X, X[0], jnp.ones(2, bool)),
            r"`replacement` has shape \(3,\), must be \(2, 3\) to match `data`",
        ),
        (
            lambda: rlaxlib.replace_masked(X, None, np.array([0.5, 1.0])),
            r"`mask` is 0\.5, must be 0 or 1",
        ),
        (
            lambda: rlaxlib.batched_index(X, np.array([0, 3])),
            r"`indices` is 3, must be in \[0, 3\)",
        ),
        (
            lambda: rlaxlib.masked_mean(X, jnp.ones(3, bool)),
            r"^masked_mean: `mask` has shape \(3,\), must have the first axes of `x`",
        ),
        (
            lambda: rlaxlib.masked_mean(X, axis=2),
            r"^masked_mean: `axis` is 2, must be at most 1",
        ),
        (
            lambda: rlaxlib.AllSum()(X, axis="rows"),
            r"^AllSum: `axis` is 'rows', must be a Python integer",
        ),
    ],
)
def test_error_names_the_argument_and_what_it_must_be(call, message):
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        call()
