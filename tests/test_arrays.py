"""Test array utilities: masks, extreme values, dtypes and invalid arguments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib

X = np.float32([[1, 2, 4], [8, 16, 32]])
masked_mean = jax.jit(rlaxlib.masked_mean, static_argnames="axis")
standardize = jax.jit(rlaxlib.standardize)


# --- Means and standardisation. ---


def test_mean_ignores_masked_entries_in_numerator_and_denominator():
    mask = np.array([[True, False, True], [False, False, False]])
    for axis in (None, (0, 1)):
        assert masked_mean(X, mask=mask, axis=axis) == 2.5
    for axis in (1, -1, np.int64(1)):
        np.testing.assert_array_equal(masked_mean(X, mask=mask, axis=axis), [2.5, 0.0])


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 1)])
def test_without_a_mask_it_is_the_mean_on_one_device_and_on_several(axis):
    expected = np.mean(X, axis=axis)
    close(masked_mean(X, axis=axis), expected)

    def on_each(x):
        return rlaxlib.masked_mean(x, axis=axis, axis_name="devices")

    parts = jax.jit(jax.vmap(on_each, axis_name="devices"))(np.stack([X, 3 * X]))
    close(parts, np.stack([2 * expected] * 2))


def test_mask_of_leading_axes_applies_to_whole_rows():
    mask = np.array([True, False])
    close(masked_mean(X, mask=mask), 7 / 3)
    np.testing.assert_array_equal(np.asarray(standardize(X, mask=mask))[1], 0.0)


@pytest.mark.parametrize("function", [rlaxlib.masked_mean, rlaxlib.standardize])
def test_masked_nan_reaches_neither_value_nor_gradient(function):
    mask = np.array([[True, False, True], [True, True, True]])
    x = np.where(mask, X, np.float32(np.nan))

    def total(x):
        value = function(x, mask=mask)
        return jnp.sum(value), value

    gradient, value = jax.jit(jax.grad(total, has_aux=True))(x)
    assert np.isfinite(value).all()
    assert np.isfinite(gradient).all()
    assert np.asarray(gradient)[0, 1] == 0


def test_a_mask_by_position_is_an_error_that_names_the_keyword():
    with pytest.raises(
        TypeError, match=r"too many .* are \(x, \*, mask=None, axis=None"
    ):
        rlaxlib.masked_mean(X, X > 0)


JACOBIAN = jax.jit(jax.jacrev(rlaxlib.standardize))


@pytest.mark.parametrize("size", [1, 7])
@pytest.mark.parametrize("value", [0.0, 0.1, -1e4])
def test_standardized_constants_are_zero_with_a_gradient_of_zero(value, size):
    x = np.full(size, value, np.float32)
    np.testing.assert_array_equal(standardize(x), 0.0)
    np.testing.assert_array_equal(JACOBIAN(x), 0.0)


def test_standardize_is_precise_far_from_zero():
    noise = np.random.default_rng(0).normal(size=1000)
    x = np.float32(1e5 + noise).astype(np.float64)
    expected = (x - x.mean()) / x.std()
    actual = standardize(np.float32(x))
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def test_sums_of_bfloat16_do_not_saturate():
    ones = np.ones(1000, jnp.bfloat16)
    assert jax.jit(rlaxlib.AllSum())(ones) == 1000
    assert masked_mean(ones) == 1


# --- Indices and masks. ---


one_hot = jax.jit(rlaxlib.one_hot, static_argnums=1)
batched_index = jax.jit(rlaxlib.batched_index)


def test_index_out_of_range_encodes_as_zeros_and_picks_nan():
    indices = np.array([-1, 0, 2])
    np.testing.assert_array_equal(one_hot(indices, 2), [[0, 0], [1, 0], [0, 0]])
    picked = batched_index(np.ones((3, 2), np.float32), indices)
    np.testing.assert_array_equal(picked, [np.nan, 1.0, np.nan])


@pytest.mark.parametrize("dtype", [jnp.int8, jnp.uint8, jnp.int16, jnp.uint32])
def test_indices_of_any_dtype_pick_one_of_many_entries(dtype):
    values, indices = np.arange(600).reshape(2, 300), np.array([3, 100], dtype)
    picked = batched_index(np.float32(values), indices)
    np.testing.assert_array_equal(picked, [3.0, 400.0])


def test_half_an_index_is_an_error():
    with pytest.raises(rlaxlib.ArgumentError, match="indices"):
        rlaxlib.one_hot(np.array([0.5]), 2)


@pytest.mark.parametrize("dtype", [jnp.int8, jnp.uint8, jnp.int16, jnp.int32])
def test_indices_of_any_dtype_encode_one_of_many_classes(dtype):
    hot = np.asarray(one_hot(np.array([0, 100], dtype), 600))
    np.testing.assert_array_equal(hot, np.arange(600) == [[0], [100]])


@pytest.mark.parametrize("dtype", [bool, int, float])
def test_mask_may_consist_of_zeros_and_ones(dtype):
    mask, replace = np.array([0, 1], dtype), jax.jit(rlaxlib.replace_masked)
    np.testing.assert_array_equal(replace(X, -X, mask), [X[0], -X[1]])


# --- Invalid arguments. ---


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: rlaxlib.lhs_broadcast(np.ones((3, 3)), np.ones(3)),
            r"^lhs_broadcast: `source` has shape \(3, 3\), must have the first axes of "
            r"`target`, which has shape \(3,\), or size 1",
        ),
        (
            lambda: rlaxlib.lhs_broadcast(np.ones(2), np.ones((3, 2))),
            r"`source` has shape \(2,\), must have the first axes of `target`",
        ),
        (
            lambda: rlaxlib.masked_mean(X, mask=np.ones(3, bool)),
            r"^masked_mean: `mask` has shape \(3,\), must have the first axes of `x`",
        ),
        (
            lambda: rlaxlib.masked_mean(X, axis=2),
            r"^masked_mean: `axis` is 2, must be an integer in \[-2, 2\)",
        ),
        (
            lambda: rlaxlib.AllSum()(X, axis="rows"),
            r"^AllSum: `axis` is 'rows', must be an integer in ",
        ),
    ],
)
def test_error_names_the_argument_and_what_it_must_be(call, message):
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        call()
