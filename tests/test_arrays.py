"""Test the handling of arrays: masks, extremes, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib

X = jnp.array([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]])


# --- What the functions compute. ---


def test_a_mean_leaves_padding_out_of_both_sums():
    mask = jnp.array([[True, False, True], [False, False, False]])
    np.testing.assert_array_equal(rlaxlib.masked_mean(X, mask), 2.5)
    np.testing.assert_array_equal(rlaxlib.masked_mean(X, mask, axis=1), [2.5, 0.0])
    np.testing.assert_array_equal(rlaxlib.masked_mean(X, mask, axis=(0, 1)), 2.5)
    np.testing.assert_array_equal(rlaxlib.masked_mean(X, mask, axis=-1), [2.5, 0.0])


def test_a_mask_for_each_row_goes_with_all_of_it():
    mask = jnp.array([True, False])
    close(rlaxlib.masked_mean(X, mask), 7 / 3)
    np.testing.assert_array_equal(rlaxlib.standardize(X, mask)[1], 0.0)


def test_a_mean_over_parts_of_a_batch_adds_up_to_that_of_the_whole():
    mask = jnp.array([[True, True, True], [True, False, False]])
    parts = [rlaxlib.masked_mean(X[i], mask[i], denominator=4) for i in range(2)]
    close(sum(parts), rlaxlib.masked_mean(X, mask))


@pytest.mark.parametrize("function", [rlaxlib.masked_mean, rlaxlib.standardize])
def test_a_nan_that_is_masked_reaches_neither_value_nor_gradient(function):
    x, mask = X.at[0, 1].set(jnp.nan), jnp.ones((2, 3), bool).at[0, 1].set(False)
    value, pullback = jax.vjp(lambda x: function(x, mask), x)
    (gradient,) = pullback(jnp.ones_like(value))
    assert jnp.all(jnp.isfinite(value))
    assert jnp.all(jnp.isfinite(gradient))
    assert gradient[0, 1] == 0


@pytest.mark.parametrize("size", [1, 7])
@pytest.mark.parametrize("value", [0.0, 0.1, -1e4])
def test_equal_numbers_become_zeros_with_a_gradient_of_zero(value, size):
    x = jnp.full(size, value)
    np.testing.assert_array_equal(rlaxlib.standardize(x), 0.0)
    jacobian = jax.jit(jax.jacrev(rlaxlib.standardize))(x)
    np.testing.assert_array_equal(jacobian, 0.0)


def test_numbers_far_from_zero_keep_their_scale():
    noise = np.random.default_rng(0).normal(size=1000)
    x = np.float32(1e5 + noise).astype(np.float64)
    expected = (x - x.mean()) / x.std()
    actual = rlaxlib.standardize(jnp.asarray(x, jnp.float32))
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def test_a_sum_in_bfloat16_does_not_stop_at_256():
    assert rlaxlib.AllSum()(jnp.ones(1000, jnp.bfloat16)) == 1000
    assert rlaxlib.masked_mean(jnp.ones(1000, jnp.bfloat16)) == 1


def test_an_index_out_of_range_marks_nothing_and_picks_nan():
    indices = jnp.array([-1, 0, 2])
    hot = rlaxlib.one_hot(indices, 2)
    np.testing.assert_array_equal(hot, [[0, 0], [1, 0], [0, 0]])
    picked = jax.jit(rlaxlib.batched_index)(jnp.ones((3, 2)), indices)
    np.testing.assert_array_equal(picked, [np.nan, 1.0, np.nan])


@pytest.mark.parametrize("dtype", [jnp.int8, jnp.uint8, jnp.int16, jnp.uint32])
def test_indices_of_any_dtype_pick_one_entry_of_many(dtype):
    values, indices = jnp.arange(600.0).reshape(2, 300), jnp.array([3, 100], dtype)
    picked = jax.jit(rlaxlib.batched_index)(values, indices)
    np.testing.assert_array_equal(picked, [3.0, 400.0])


@pytest.mark.parametrize("dtype", [jnp.int8, jnp.int32, jnp.bfloat16, jnp.float32])
def test_indices_of_any_dtype_mark_one_class_of_many(dtype):
    hot = rlaxlib.one_hot(jnp.asarray([0, 100], dtype), 600)
    np.testing.assert_array_equal(jnp.argmax(hot, axis=-1), [0, 100])
    np.testing.assert_array_equal(jnp.sum(hot, axis=-1), 1.0)


def test_a_mask_may_be_of_zeros_and_ones():
    for dtype in (bool, int, float):
        mask = jnp.asarray([0, 1], dtype)
        np.testing.assert_array_equal(
            rlaxlib.replace_masked(X, -X, mask), [X[0], -X[1]]
        )


# --- What the functions refuse. ---


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: rlaxlib.lhs_broadcast(jnp.ones((3, 3)), jnp.ones(3)),
            r"^lhs_broadcast: the source shape must be that of the first axes of "
            r"target, or 1, but `source` is float32\[3, 3\], and `target` is "
            r"float32\[3\]",
        ),
        (
            lambda: rlaxlib.lhs_broadcast(jnp.ones(2), jnp.ones((3, 2))),
            r"`source` is float32\[2\], and `target` is float32\[3, 2\]",
        ),
        (
            lambda: rlaxlib.replace_masked(X, X[0], jnp.ones(2, bool)),
            r"`replacement` is float32\[3\], .*\.\.\. = 2, 3",
        ),
        (
            lambda: rlaxlib.replace_masked(X, None, jnp.array([0.5, 1.0])),
            r"`mask` must hold 0 or 1, but is 0\.5",
        ),
        (
            lambda: rlaxlib.batched_index(X, jnp.array([0, 3])),
            r"`indices` must be one of 3, from 0 to 2, but is 3",
        ),
        (
            lambda: rlaxlib.one_hot(jnp.array([0]), 0),
            r"^one_hot: `num_classes` must be at least 1, but is 0",
        ),
        (
            lambda: rlaxlib.masked_mean(X, jnp.ones(3, bool)),
            r"^masked_mean: the mask shape .* `mask` is bool\[3\], and `x`",
        ),
        (
            lambda: rlaxlib.masked_mean(X, axis=2),
            r"^masked_mean: `axis` must be at most 1, but is 2",
        ),
        (
            lambda: rlaxlib.masked_mean(X, denominator=0),
            r"`denominator` must lie in \(0, inf\)",
        ),
        (
            lambda: rlaxlib.AllSum()(X, axis="rows"),
            r"^AllSum: `axis` must be a Python integer",
        ),
    ],
)
def test_says_what_is_wrong(call, message):
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        call()
