"""Test two-hot encodings: probabilities, round trips, gradients and bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlaxlib

RANGES = [
    (-300.0, 300.0, 601),
    (-0.3, 0.7, 11),
    (-1 / 3, 2 / 7, 101),
]
each_range = pytest.mark.parametrize(("low", "high", "count"), RANGES)
transform_to_2hot = jax.jit(rlaxlib.transform_to_2hot, static_argnums=(1, 2, 3))
transform_from_2hot = jax.jit(rlaxlib.transform_from_2hot, static_argnums=(1, 2, 3))
transform_to_2hot_nonlinear = jax.jit(rlaxlib.transform_to_2hot_nonlinear)
transform_from_2hot_nonlinear = jax.jit(rlaxlib.transform_from_2hot_nonlinear)
BINS = np.array([-8.0, 0.0, 2.0, 8.0], np.float32)


def values_within(low, high, count):
    """Return random values, all bins, their neighbours, and values around 0."""
    bins = np.linspace(low, high, count).astype(np.float32)
    tiny = np.geomspace(1e-12, 0.1, 30)
    uniform = np.random.default_rng(0).uniform(low, high, 2000)
    return np.concatenate(
        [uniform, bins, np.nextafter(bins, 1e9), np.nextafter(bins, -1e9), tiny, -tiny]
    ).astype(np.float32)


def gradient_of(function):
    """Return the gradient of a weighted sum of probabilities, at each value."""

    def total(x):
        probs = function(x)
        return jnp.sum(probs * jnp.arange(probs.size, dtype=probs.dtype))

    return jax.jit(jax.vmap(jax.grad(total)))


# --- What the functions compute. ---


@each_range
def test_probabilities_are_valid_and_decode_to_the_value(low, high, count):
    x = values_within(low, high, count)
    probs = np.asarray(transform_to_2hot(x, low, high, count))
    assert np.min(probs) >= 0
    assert np.max(np.sum(probs > 0, axis=-1)) <= 2
    np.testing.assert_allclose(np.sum(np.float64(probs), axis=-1), 1.0, rtol=1.2e-7)
    back = transform_from_2hot(probs, low, high, count)
    largest = max(abs(low), abs(high))
    np.testing.assert_allclose(back, np.clip(x, low, high), rtol=0, atol=3e-7 * largest)


@pytest.mark.parametrize(
    ("low", "high", "count"), [(-300.0, 300.0, 601), (0.0, 1.0, 2)]
)
def test_values_near_zero_are_accurate(low, high, count):
    x = np.geomspace(1e-30, 0.1, 100).astype(np.float32)
    x = np.concatenate([x, -x]) if low < 0 else x
    probs = transform_to_2hot(x, low, high, count)
    back = transform_from_2hot(probs, low, high, count)
    np.testing.assert_allclose(back, x, rtol=1e-6)


@each_range
def test_a_bin_is_encoded_as_one_hot(low, high, count):
    step = (high - low) / (count - 1)
    bins = np.float32([low - 1, low, low + step, high - step, high])
    np.testing.assert_allclose(
        transform_to_2hot(bins, low, high, count),
        np.eye(count)[[0, 0, 1, -2, -1]],
        atol=3e-7 * max(abs(low), abs(high)) / step,
    )


@pytest.mark.parametrize(("low", "high", "count"), RANGES[1:])
def test_half_precision_is_rounded_once(low, high, count):
    for dtype in (jnp.bfloat16, jnp.float16):
        x = values_within(low, high, count).astype(dtype)
        probs = transform_to_2hot(x, low, high, count)
        assert probs.dtype == dtype
        exact = transform_to_2hot(np.float32(x), low, high, count)
        eps = float(jnp.finfo(dtype).eps)
        np.testing.assert_allclose(np.float32(probs), exact, rtol=eps / 2, atol=1e-7)


def test_values_outside_the_range_are_clipped():
    x = np.float32([-np.inf, -9, 9, np.inf])
    expected = np.eye(4)[[0, 0, 3, 3]]
    np.testing.assert_array_equal(transform_to_2hot(x, -8.0, 8.0, 4), expected)
    np.testing.assert_array_equal(transform_to_2hot_nonlinear(x, BINS), expected)


def test_nan_is_encoded_as_a_distribution_whose_mean_is_nan():
    probs = transform_to_2hot(np.nan, -8.0, 8.0, 4)
    assert np.isnan(transform_from_2hot(probs, -8.0, 8.0, 4))
    probs = transform_to_2hot_nonlinear(np.nan, BINS)
    assert np.isnan(transform_from_2hot_nonlinear(probs, BINS))


def test_gradient_at_a_bin_is_the_derivative_from_the_right():
    gradient = gradient_of(lambda x: transform_to_2hot(x, -1.0, 1.0, 5))
    x = np.float32([-1.5, -1.0, -0.9, -0.5, 0.0, 0.2, 0.5, 0.9, 1.0, 1.5])
    np.testing.assert_allclose(gradient(x), [0, 1, 2, 2, 2, 2, 2, 2, 1, 0], rtol=1e-6)
    gradient = gradient_of(lambda x: transform_to_2hot_nonlinear(x, BINS))
    x = np.float32([-9.0, -8.0, -7.0, 0.0, 2.0, 7.0, 8.0, 9.0])
    expected = [0, 1 / 16, 1 / 8, 1 / 2, 1 / 6, 1 / 6, 1 / 12, 0]
    np.testing.assert_allclose(gradient(x), expected, rtol=1e-6)


def test_a_scalar_is_encoded_as_one_distribution():
    probs = transform_to_2hot(0.25, -1.0, 1.0, 5)
    assert probs.shape == (5,)
    assert transform_from_2hot(probs, -1.0, 1.0, 5).shape == ()
    probs = transform_to_2hot_nonlinear(0.25, BINS[:2])
    np.testing.assert_array_equal(probs, [0, 1])
    assert transform_from_2hot_nonlinear(probs, BINS[:2]).shape == ()


# --- How they relate. ---


@each_range
def test_evenly_spaced_bins_agree_with_bins_of_any_spacing(low, high, count):
    x = values_within(low, high, count)
    bins = np.linspace(low, high, count).astype(np.float32)
    np.testing.assert_allclose(
        transform_to_2hot(x, low, high, count),
        transform_to_2hot_nonlinear(x, bins),
        atol=1e-4,
    )


# --- How they behave under JAX. ---


def test_bounds_may_be_traced_and_differentiated():
    encode = jax.jit(rlaxlib.transform_to_2hot, static_argnums=3)
    concrete = transform_to_2hot(0.3, -1.0, 1.0, 5)
    np.testing.assert_allclose(encode(0.3, -1.0, 1.0, 5), concrete, rtol=1e-6)
    decode = jax.jit(rlaxlib.transform_from_2hot, static_argnums=3)
    np.testing.assert_allclose(decode(concrete, -1.0, 1.0, 5), 0.3, rtol=1e-6)

    @jax.jit
    @jax.value_and_grad
    def probability(high):
        return encode(0.3, -1.0, high, 5)[3]

    step = 1e-2
    ahead, behind = (float(probability(1.0 + s * step)[0]) for s in (1, -1))
    difference = (ahead - behind) / (2 * step)
    np.testing.assert_allclose(probability(1.0)[1], difference, rtol=1e-3)


# --- Bad input. ---


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: rlaxlib.transform_from_2hot(
                np.ones((3, 1), np.float32), -1.0, 1.0, 7
            ),
            r"^transform_from_2hot: `probs` is float32\[3, 1\], must be "
            r"float\[\.\.\., num_bins\]",
        ),
        (
            lambda: rlaxlib.transform_from_2hot_nonlinear(
                np.ones(1, np.float32), np.ones(1, np.float32)
            ),
            r"^transform_from_2hot_nonlinear: `bins` has shape \(1,\), must have",
        ),
    ],
)
def test_rejects_bad_input(call, message):
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        call()
