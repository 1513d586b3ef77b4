"""Test bins: probabilities, round trips, slopes, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlaxlib

RANGES = [
    (-300.0, 300.0, 601),
    (-10.0, 10.0, 51),
    (-0.3, 0.7, 11),
    (-1 / 3, 2 / 7, 101),
]
each_range = pytest.mark.parametrize(("low", "high", "count"), RANGES)
BINS = np.array([-8.0, 0.0, 2.0, 8.0], np.float32)


def numbers_within(low, high, count):
    """Return numbers at random, all bins, their neighbours, and numbers around 0."""
    bins = np.linspace(low, high, count).astype(np.float32)
    tiny = np.geomspace(1e-12, 0.1, 30)
    drawn = np.random.default_rng(0).uniform(low, high, 2000)
    return np.concatenate(
        [drawn, bins, np.nextafter(bins, 1e9), np.nextafter(bins, -1e9), tiny, -tiny]
    ).astype(np.float32)


def weigh(function):
    """Return the slope of a weighted sum of probabilities, at each of some numbers."""

    def total(x):
        probs = function(x)
        return jnp.sum(probs * jnp.arange(probs.size, dtype=probs.dtype))

    return jax.jit(jax.vmap(jax.grad(total)))


# --- What the functions compute. ---


@each_range
def test_probabilities_are_probabilities_and_bring_the_number_back(low, high, count):
    x = numbers_within(low, high, count)
    probs = jax.jit(lambda x: rlaxlib.transform_to_2hot(x, low, high, count))(x)
    assert np.min(probs) >= 0
    assert np.max(np.sum(probs > 0, axis=-1)) <= 2
    np.testing.assert_allclose(np.sum(np.float64(probs), axis=-1), 1.0, rtol=1.2e-7)
    back = rlaxlib.transform_from_2hot(probs, low, high, count)
    size = max(abs(low), abs(high))
    np.testing.assert_allclose(back, np.clip(x, low, high), rtol=0, atol=3e-7 * size)


@pytest.mark.parametrize(
    ("low", "high", "count"), [(-300.0, 300.0, 601), (0.0, 1.0, 2)]
)
def test_numbers_next_to_zero_keep_their_digits(low, high, count):
    x = np.geomspace(1e-30, 0.1, 100).astype(np.float32)
    x = np.concatenate([x, -x]) if low < 0 else x
    probs = rlaxlib.transform_to_2hot(x, low, high, count)
    back = rlaxlib.transform_from_2hot(probs, low, high, count)
    np.testing.assert_allclose(back, x, rtol=1e-6)


@each_range
def test_a_bin_is_itself(low, high, count):
    step = (high - low) / (count - 1)
    ends = jnp.asarray([low, low + step, high - step, high], jnp.float32)
    size = max(abs(low), abs(high)) / step
    np.testing.assert_allclose(
        rlaxlib.transform_to_2hot(ends, low, high, count),
        np.eye(count)[[0, 1, -2, -1]],
        atol=1.2e-7 * size,
    )
    np.testing.assert_array_equal(
        rlaxlib.transform_to_2hot(ends[:1] - 1, low, high, count),
        np.eye(count)[:1],
    )


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
@each_range
def test_half_precision_finds_the_right_bins(low, high, count, dtype):
    x = jnp.asarray(numbers_within(low, high, count), dtype)
    find = jax.jit(lambda x: rlaxlib.transform_to_2hot(x, low, high, count))
    probs = find(x)
    assert probs.dtype == dtype
    exact = find(x.astype(jnp.float32))
    half = jnp.finfo(dtype).eps / 2
    np.testing.assert_allclose(np.float32(probs), exact, rtol=float(half), atol=1e-7)
    bins = jnp.asarray(BINS, dtype)
    probs = rlaxlib.transform_to_2hot_nonlinear(jnp.asarray(-6.0, dtype), bins)
    np.testing.assert_array_equal(np.float32(probs), [0.75, 0.25, 0, 0])


def test_what_lies_beyond_becomes_the_outermost_bin():
    x = jnp.array([-jnp.inf, -9.0, 9.0, jnp.inf])
    expected = np.eye(4)[[0, 0, 3, 3]]
    np.testing.assert_array_equal(rlaxlib.transform_to_2hot(x, -8.0, 8.0, 4), expected)
    np.testing.assert_array_equal(
        rlaxlib.transform_to_2hot_nonlinear(x, BINS), expected
    )


def test_what_is_no_number_has_no_probabilities():
    for probs in (
        rlaxlib.transform_to_2hot(jnp.nan, -8.0, 8.0, 4),
        rlaxlib.transform_to_2hot_nonlinear(jnp.nan, BINS),
    ):
        assert jnp.isnan(jnp.sum(probs))


def test_on_a_bin_the_slope_is_that_of_its_right_side_and_at_the_end_of_its_left():
    slope = weigh(lambda x: rlaxlib.transform_to_2hot(x, -1.0, 1.0, 5))
    x = jnp.array([-1.5, -1.0, -0.5, 0.0, 0.2, 0.5, 1.0, 1.5])
    np.testing.assert_array_equal(slope(x), [0, 2, 2, 2, 2, 2, 2, 0])
    slope = weigh(lambda x: rlaxlib.transform_to_2hot_nonlinear(x, BINS))
    np.testing.assert_allclose(
        slope(jnp.array([-9.0, -8.0, 0.0, 2.0, 8.0, 9.0])),
        [0, 1 / 8, 1 / 2, 1 / 6, 1 / 6, 0],
        rtol=1e-6,
    )


@each_range
def test_rounding_at_either_end_takes_no_slope_away(low, high, count):
    slope = weigh(lambda x: rlaxlib.transform_to_2hot(x, low, high, count))
    expected = (count - 1) / (high - low)
    ends = jnp.asarray([low, high], jnp.float32)
    np.testing.assert_allclose(slope(ends), expected, rtol=1e-5)


def test_a_single_number_is_a_single_stream():
    probs = rlaxlib.transform_to_2hot(0.25, -1.0, 1.0, 5)
    assert probs.shape == (5,)
    assert rlaxlib.transform_from_2hot(probs, -1.0, 1.0, 5).shape == ()
    probs = rlaxlib.transform_to_2hot_nonlinear(0.25, BINS)
    assert probs.shape == (4,)
    assert rlaxlib.transform_from_2hot_nonlinear(probs, BINS).shape == ()


# --- How they relate. ---


@each_range
def test_equal_bins_are_bins_like_any_others(low, high, count):
    x = numbers_within(low, high, count)
    bins = np.linspace(low, high, count).astype(np.float32)
    np.testing.assert_allclose(
        rlaxlib.transform_to_2hot(x, low, high, count),
        rlaxlib.transform_to_2hot_nonlinear(x, bins),
        atol=1e-4,
    )


# --- How they behave under JAX. ---


def test_bounds_may_be_traced_and_learnt():
    traced = jax.jit(rlaxlib.transform_to_2hot, static_argnums=3)(0.3, -1.0, 1.0, 5)
    known = rlaxlib.transform_to_2hot(0.3, -1.0, 1.0, 5)
    np.testing.assert_allclose(traced, known, rtol=1e-6)

    def share(high):
        return rlaxlib.transform_to_2hot(0.3, -1.0, high, 5)[3]

    step = 1e-2
    slope = (share(1.0 + step) - share(1.0 - step)) / (2 * step)
    np.testing.assert_allclose(jax.grad(share)(1.0), slope, rtol=1e-3)
    mean = jax.jit(rlaxlib.transform_from_2hot, static_argnums=3)
    np.testing.assert_allclose(mean(known, -1.0, 1.0, 5), 0.3, rtol=1e-6)


def test_the_gradient_is_looked_up_and_not_summed():
    x, cotangents = jnp.zeros(7), jnp.ones((7, 601))

    def function(x):
        return rlaxlib.transform_to_2hot(x, -300.0, 300.0, 601)

    def gradient(x):
        return jax.vjp(function, x)[1](cotangents)

    operations = jax.jit(gradient).lower(x).as_text()
    assert "gather" in operations
    assert "reduce" not in operations


# --- What they refuse. ---


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: rlaxlib.transform_to_2hot(0.0, 1.0, 1.0, 5),
            "^transform_to_2hot: `min_value` and `max_value` must increase",
        ),
        (
            lambda: rlaxlib.transform_to_2hot(0.0, 1.0, -1.0, 5),
            "^transform_to_2hot: `min_value` and `max_value` must increase",
        ),
        (
            lambda: jax.jit(lambda x: rlaxlib.transform_to_2hot(x, 1.0, -1.0, 5))(0.0),
            "^transform_to_2hot: `min_value` and `max_value` must increase",
        ),
        (
            lambda: rlaxlib.transform_to_2hot(0.0, -jnp.inf, 1.0, 5),
            "`min_value` must lie in",
        ),
        (
            lambda: rlaxlib.transform_to_2hot(0.0, -1.0, 1.0, 1),
            "`num_bins` must be at least 2, but is 1",
        ),
        (
            lambda: rlaxlib.transform_from_2hot(jnp.ones((3, 1)), -1.0, 1.0, 7),
            r"`probs` is float32\[3, 1\], but must be float\[\.\.\., 7\]",
        ),
        (
            lambda: rlaxlib.transform_to_2hot_nonlinear(
                0.0, jnp.array([0.0, 2.0, 1.0])
            ),
            "`bins` must increase: .* but is 1.0",
        ),
        (
            lambda: rlaxlib.transform_to_2hot_nonlinear(0.0, jnp.array([0.0, 0.0])),
            "`bins` must increase",
        ),
        (
            lambda: rlaxlib.transform_from_2hot_nonlinear(jnp.ones(1), jnp.ones(1)),
            "`bins.size` must be at least 2, but is 1",
        ),
        (
            lambda: rlaxlib.transform_from_2hot_nonlinear(
                jnp.ones(2), jnp.array([0.0, jnp.inf])
            ),
            r"`bins` must lie in \(-inf, inf\)",
        ),
    ],
)
def test_says_what_is_wrong(call, message):
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        call()
