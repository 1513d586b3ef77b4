"""Test HL-Gauss encodings: accuracy, ends, extreme widths, gradients, bad input."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlaxlib

RANGES = [(-10.0, 10.0, 51), (-1 / 3, 2 / 7, 11), (-300.0, 300.0, 601)]
each_range = pytest.mark.parametrize(("low", "high", "count"), RANGES)


@functools.partial(jax.jit, static_argnums=3)
def to_bins(x, low, high, count, ratio=0.75):
    return rlaxlib.hl_gauss_pair(low, high, count, ratio).apply(x)


def define(x, low, high, count, sigma):
    """Return the probabilities in double precision."""
    edges = np.linspace(low, high, count + 1)
    cdf = np.array([math.erf(e) for e in (edges - x) / (math.sqrt(2) * sigma)])
    return np.diff(cdf) / (cdf[-1] - cdf[0])


# --- What the functions compute. ---


@each_range
def test_agrees_with_double_precision_at_every_width(low, high, count):
    width = (high - low) / count
    values = np.float32(low + (high - low) * np.array([0.0, 0.37, 0.5, 1.0]))
    for ratio in (1e-3, 0.1, 0.75, 4.0, 50.0):
        probs = to_bins(values, low, high, count, ratio)
        assert np.min(probs) >= 0
        for x, found in zip(np.clip(np.float64(values), low, high), probs, strict=True):
            exact = define(x, low, high, count, ratio * width)
            np.testing.assert_allclose(found, exact, rtol=0, atol=3e-5, err_msg=ratio)


def test_decodes_to_the_value_except_near_the_ends():
    @jax.jit
    def round_trip(x):
        pair = rlaxlib.hl_gauss_pair(-10.0, 10.0, 20)
        return pair.apply_inv(pair.apply(x))

    x = np.float32([0, 0.13, -6.99, 10])
    back = np.asarray(round_trip(x))
    np.testing.assert_allclose(back[:3], x[:3], atol=2e-4)
    np.testing.assert_allclose(back[3], 10 - 0.69, atol=1e-3)


def test_values_outside_the_range_are_clipped_with_zero_gradient():
    far = np.float32([-np.inf, -1e30, -8.1, 8.1, 1e30, np.inf])
    ends = to_bins(np.float32([-8, 8]), -8.0, 8.0, 5)
    np.testing.assert_array_equal(
        to_bins(far, -8.0, 8.0, 5), np.repeat(ends, 3, axis=0)
    )
    gradient = jax.jit(jax.vmap(jax.grad(lambda x: to_bins(x, -8.0, 8.0, 5)[0])))
    np.testing.assert_array_equal(gradient(far), np.zeros(6))
    assert np.max(gradient(np.float32([-8, -7.9, -7, 0, 7, 7.9]))) < 0


def test_nan_is_encoded_as_nan():
    assert np.isnan(to_bins(np.nan, -8.0, 8.0, 5)).all()


def test_half_precision_is_rounded_once():
    encode = jax.jit(rlaxlib.hl_gauss_pair(-10.0, 10.0, 51).apply)
    for dtype in (jnp.bfloat16, jnp.float16):
        x = np.linspace(-9.0, 9.0, 101).astype(dtype)
        probs = encode(x)
        assert probs.dtype == dtype
        exact = encode(np.float32(x))
        half = float(jnp.finfo(dtype).eps) / 2
        np.testing.assert_allclose(np.float32(probs), exact, rtol=half, atol=1e-7)


# --- Limits. ---


def test_a_narrow_gaussian_is_one_hot():
    x = np.float32([-1.9, -0.5, 0, 1, 1.4])
    expected = np.array(
        [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0.5, 0.5], [0, 0, 0, 1]]
    )
    np.testing.assert_array_equal(to_bins(x, -2.0, 2.0, 4, 1e-30), expected)


def test_a_wide_gaussian_is_uniform():
    np.testing.assert_allclose(
        to_bins(np.float32(-8.0), -8.0, 8.0, 5, 1e6), np.full(5, 0.2), rtol=1e-6
    )


# --- How they behave under JAX. ---


def test_bounds_and_stddev_ratio_may_be_traced_and_differentiated():
    def probability(x, low, high, ratio):
        return to_bins(x, low, high, 5, ratio)[3]

    def definition(x, low, high, ratio):
        return define(x, low, high, 5, ratio * (high - low) / 5)[3]

    found = jax.jit(jax.value_and_grad(probability, argnums=(0, 1, 2, 3)))
    for ratio in (0.7, 11.0):
        at = np.array([0.3, -1.0, 1.2, ratio])
        value, gradients = found(*at)
        np.testing.assert_allclose(value, definition(*at), rtol=1e-5)
        for i, gradient in enumerate(gradients):
            step = 1e-3 * np.eye(4)[i]
            ahead, behind = (definition(*(at + s * step)) for s in (1, -1))
            np.testing.assert_allclose(gradient, (ahead - behind) / 2e-3, rtol=1e-3)


def test_derivatives_are_finite_for_narrow_and_wide_gaussians():
    def total(x, ratio):
        probs = rlaxlib.hl_gauss_pair(-3.0, 3.0, 6, ratio).apply(x)
        return jnp.sum(probs * jnp.arange(6, dtype=probs.dtype))

    first, second = jax.grad(total, (0, 1)), jax.grad(jax.grad(total))
    derivatives = jax.jit(
        jax.vmap(lambda x, ratio: (first(x, ratio), second(x, ratio)))
    )
    x, ratio = np.meshgrid(
        np.float32([-4, -3, 0, 0.2, 0.5, 3, np.inf]),
        np.float32([1e-6, 1e-3, 0.75, 4, 50, 1e4]),
    )
    for each in jax.tree.leaves(derivatives(x.ravel(), ratio.ravel())):
        assert np.isfinite(each).all()
