"""Test Gaussians over bins: digits, ends, extreme widths, slopes, what is refused."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlaxlib

pytestmark = pytest.mark.optimized  # As digits are.

RANGES = [(-10.0, 10.0, 51), (-1 / 3, 2 / 7, 11)]
each_range = pytest.mark.parametrize(("low", "high", "count"), RANGES)
SIGMAS = (1e-3, 0.1, 0.75, 3.9, 4.1, 50.0)  # In widths of a bin.
to_bins = jax.jit(rlaxlib.transform_to_hl_gauss, static_argnums=(1, 2, 3, 4))


def reference(x, low, high, count, sigma):
    """Return the probabilities in double precision."""
    scaled = (np.linspace(low, high, count + 1) - x) / (math.sqrt(2) * sigma)
    # Of two tails the smaller, which is no difference of numbers near 1.
    below, above = (np.array([math.erfc(s * z) for z in scaled]) for s in (-1, 1))
    shares = np.where(scaled[:-1] < 0, np.diff(below), -np.diff(above))
    return shares / np.sum(shares)


# --- What the functions compute. ---


@each_range
def test_every_width_of_the_gaussian_has_its_digits(low, high, count):
    width = (high - low) / count
    for sigma in SIGMAS:
        x = np.float32(low + (high - low) * np.array([0.0, 0.37, 0.5, 1.0]))
        probs = to_bins(x, low, high, count, sigma * width)
        for one, each in zip(probs, np.clip(np.float64(x), low, high), strict=True):
            exact = reference(each, low, high, count, sigma * width)
            np.testing.assert_allclose(one, exact, rtol=0, atol=6e-7, err_msg=sigma)
            seen = exact > 1e-30
            np.testing.assert_allclose(one[seen], exact[seen], rtol=2e-4)


def test_by_default_the_gaussian_is_three_quarters_of_a_bin_wide():
    x = jnp.array([0.3, 7.7])
    np.testing.assert_array_equal(
        rlaxlib.transform_to_hl_gauss(x, -8.0, 8.0, 32),
        rlaxlib.transform_to_hl_gauss(x, -8.0, 8.0, 32, sigma=0.75 * 0.5),
    )


def test_far_from_the_ends_the_mean_is_the_number_and_at_an_end_it_is_inside():
    x = jnp.array([0.0, 0.13, -6.99, 10.0])
    back = rlaxlib.transform_from_hl_gauss(
        rlaxlib.transform_to_hl_gauss(x, -10.0, 10.0, 20), -10.0, 10.0, 20
    )
    np.testing.assert_allclose(back[:3], x[:3], atol=2e-4)
    np.testing.assert_allclose(back[3], 10 - 0.69, atol=1e-3)


def test_what_lies_beyond_becomes_the_end_and_has_no_slope():
    far = jnp.array([-jnp.inf, -1e30, -8.1, 8.1, 1e30, jnp.inf])
    ends = to_bins(jnp.array([-8.0, 8.0]), -8.0, 8.0, 5, None)
    np.testing.assert_array_equal(
        to_bins(far, -8.0, 8.0, 5, None), np.repeat(ends, 3, axis=0)
    )
    slope = jax.vmap(jax.grad(lambda x: to_bins(x, -8.0, 8.0, 5, None)[0]))
    np.testing.assert_array_equal(slope(far), np.zeros(6))
    assert np.all(slope(jnp.array([-8.0, 8.0])) < 0)


def test_what_is_no_number_has_no_probabilities():
    assert np.isnan(to_bins(jnp.nan, -8.0, 8.0, 5, None)).all()


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_half_precision_is_rounded_once(dtype):
    x = jnp.linspace(-9.0, 9.0, 101).astype(dtype)
    probs = to_bins(x, -10.0, 10.0, 51, None)
    assert probs.dtype == dtype
    exact = to_bins(x.astype(jnp.float32), -10.0, 10.0, 51, None)
    half = float(jnp.finfo(dtype).eps) / 2
    np.testing.assert_allclose(np.float32(probs), exact, rtol=half, atol=1e-7)


# --- How they relate. ---


def test_a_narrow_gaussian_is_the_bin_that_the_number_is_in():
    x = jnp.array([-1.9, -0.5, 0.0, 1.0, 1.4])
    expected = np.array(
        [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0.5, 0.5], [0, 0, 0, 1]]
    )
    np.testing.assert_array_equal(to_bins(x, -2.0, 2.0, 4, 1e-30), expected)


def test_a_wide_gaussian_keeps_the_digits_that_differences_would_lose():
    for sigma in (1.5, 30.0):
        probs = to_bins(jnp.float32(0.375), -8.0, 8.0, 64, sigma)
        exact = reference(0.375, -8.0, 8.0, 64, sigma)
        np.testing.assert_allclose(probs, exact, rtol=3e-6)


def test_a_wide_gaussian_makes_all_bins_alike():
    np.testing.assert_allclose(
        to_bins(jnp.float32(-8.0), -8.0, 8.0, 5, 1e30), np.full(5, 0.2), rtol=2e-7
    )


# --- How they behave under JAX. ---


def test_bounds_and_width_may_be_traced_and_learnt():
    def share(x, low, high, sigma):
        return rlaxlib.transform_to_hl_gauss(x, low, high, 5, sigma)[3]

    slopes = jax.jit(jax.grad(share, argnums=(0, 1, 2, 3)))
    for sigma in (0.3, 5.0):
        at = np.array([0.3, -1.0, 1.2, sigma])
        known = rlaxlib.transform_to_hl_gauss(*at[:3], 5, sigma)[3]
        np.testing.assert_allclose(jax.jit(share)(*at), known, rtol=1e-6)
        for i, slope in enumerate(slopes(*at)):
            step = 1e-3 * np.eye(4)[i]
            ahead, behind = (
                reference(*(at + s * step)[:3], 5, (at + s * step)[3])[3]
                for s in (1, -1)
            )
            np.testing.assert_allclose(slope, (ahead - behind) / 2e-3, rtol=1e-3)


def test_no_derivative_is_nan_however_narrow_or_wide_the_gaussian():
    def total(x, sigma):
        probs = rlaxlib.transform_to_hl_gauss(x, -3.0, 3.0, 6, sigma)
        return jnp.sum(probs * jnp.arange(6, dtype=probs.dtype))

    first, second = jax.grad(total, (0, 1)), jax.grad(jax.grad(total))
    derivatives = jax.jit(
        jax.vmap(lambda x, sigma: (first(x, sigma), second(x, sigma)))
    )
    x, sigma = jnp.meshgrid(
        jnp.array([-4.0, -3.0, 0.0, 0.2, 0.5, 3.0, jnp.inf]),
        jnp.array([1e-30, 1e-3, 0.75, 4.0, 50.0, 1e30]),
    )
    for each in jax.tree.leaves(derivatives(x.ravel(), sigma.ravel())):
        assert np.isfinite(each).all()


# --- What they refuse. ---


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: rlaxlib.transform_to_hl_gauss(0.0, 1.0, 1.0, 5),
            "^transform_to_hl_gauss: `min_value` and `max_value` must increase",
        ),
        (
            lambda: rlaxlib.transform_to_hl_gauss(0.0, -1.0, 1.0, 1),
            "^transform_to_hl_gauss: `num_bins` must be at least 2, but is 1",
        ),
        (
            lambda: rlaxlib.transform_to_hl_gauss(0.0, -1.0, 1.0, 5, -0.5),
            r"`sigma` must lie in \(0, inf\), but is -0.5",
        ),
        (
            lambda: rlaxlib.transform_to_hl_gauss(0.0, -1.0, 1.0, 5, jnp.ones(5)),
            r"`sigma` is float32\[5\], but must be float\[\]",
        ),
        (
            lambda: rlaxlib.transform_from_hl_gauss(jnp.ones((3, 1)), -1.0, 1.0, 7),
            r"`probs` is float32\[3, 1\], but must be float\[\.\.\., 7\]",
        ),
        (
            lambda: rlaxlib.transform_from_hl_gauss(jnp.ones(7), 1.0, -1.0, 7),
            "^transform_from_hl_gauss: `min_value` and `max_value` must increase",
        ),
    ],
)
def test_says_what_is_wrong(call, message):
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        call()
