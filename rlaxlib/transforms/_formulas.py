"""What the functions that squash compute, written so that no digits are lost.

All take arrays of single or double precision. Their derivatives are written out: to
derive step by step would lose what the functions are written to keep, for the sign of 0
has no slope, and what does not cancel or overflow in a function would there.
"""

from __future__ import annotations

import math
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax import Array

from rlaxlib._core import derivatives, exponentials


def _sigmoid_change(change: Array, y: Array, x: Array) -> Array:
    del y
    return change * exponentials.sigmoid_slope(x)


@derivatives.derived_by(_sigmoid_change)
def sigmoid(x: Array) -> Array:
    """Return 1 / (1 + exp(-x))."""
    return jax.nn.sigmoid(x)


def _logit_change(change: Array, y: Array, x: Array) -> Array:
    del y
    return change / (x * (1 - x))


@derivatives.derived_by(_logit_change)
def logit(x: Array) -> Array:
    """Return log(x / (1 - x))."""
    info = cast(Any, jnp.finfo(x.dtype))
    rest = 1 - x
    lost = (1 - rest) - x  # By rounding.
    # The odds are 2**e times near / rest, both of which are of one size. No number is
    # so small that it has not all of its bits when it is enlarged.
    digits = info.nmant + 1
    enlarged = _bits(x * 2.0**digits)
    e = (enlarged - _bits(rest) + (1 << (info.nmant - 1))) >> info.nmant
    near = jax.lax.bitcast_convert_type(enlarged - (e << info.nmant), x.dtype)
    log_of_odds = (e - digits).astype(x.dtype) * math.log(2) + _log_of_ratio(
        ((near - rest) - lost) / (near + rest)
    )
    # Infinite at the ends, and beyond them nothing: infinity less itself.
    end = jnp.where(x < 0.5, -jnp.inf, jnp.inf).astype(x.dtype)
    beyond = jnp.where((x >= 0) & (x <= 1), jnp.zeros_like(x), end)
    return jnp.where((x > 0) & (x < 1), log_of_odds, end - beyond)


def _log_of_ratio(s: Array) -> Array:
    """Return log(a / b) by its series, where s = (a - b) / (a + b).

    The bits of two numbers differ by the logarithm of their ratio to within 0.087 of
    a bit: where they are as near as whole powers of two make them, s is at most 0.201.
    """
    terms, eps = 1, float(cast(Any, jnp.finfo(s.dtype).eps))
    while 0.201 ** (2 * terms) / (2 * terms + 1) > eps / 8:
        terms += 1
    square = jnp.square(s)
    series = jnp.full_like(s, 2 / (2 * terms - 1))
    for n in range(terms - 2, -1, -1):
        series = 2 / (2 * n + 1) + series * square
    return s * series


def _signed_logp1_change(change: Array, y: Array, x: Array) -> Array:
    del y
    return change * (1 / (1 + jnp.abs(x)))


@derivatives.derived_by(_signed_logp1_change)
def signed_logp1(x: Array) -> Array:
    """Return sign(x) log(|x| + 1)."""
    return jnp.sign(x) * jnp.log1p(jnp.abs(x))


def _signed_expm1_change(change: Array, y: Array, x: Array) -> Array:
    del x
    return change * (jnp.abs(y) + 1)


@derivatives.derived_by(_signed_expm1_change)
def signed_expm1(x: Array) -> Array:
    """Return sign(x) (exp(|x|) - 1)."""
    return jnp.sign(x) * jnp.expm1(jnp.abs(x))


def _hyperbolic_change(change: Array, y: Array, x: Array, eps: Array) -> Array:
    del y
    return change * (0.5 / _root(1 + jnp.abs(x)) + eps)


def _hyperbolic_change_by_eps(change: Array, y: Array, x: Array, eps: Array) -> Array:
    del y, eps
    return change * x


@derivatives.derived_by(_hyperbolic_change, _hyperbolic_change_by_eps)
def signed_hyperbolic(x: Array, eps: Array) -> Array:
    """Return sign(x) (sqrt(|x| + 1) - 1) + eps x."""
    return x * (1 / (_root(jnp.abs(x) + 1) + 1) + eps)  # In which nothing cancels.


def _parabolic_parts(x: Array, eps: Array) -> tuple[Array, Array, Array]:
    """Return the size, and the two numbers to whose sum it is held for the root."""
    size, half = jnp.abs(x), 0.5 + eps
    return size, half, _root(jnp.square(half) + eps * size)


def _parabolic_change(change: Array, y: Array, x: Array, eps: Array) -> Array:
    del y
    size, half, root = _parabolic_parts(x, eps)
    # Bounded, so that infinity is not divided by infinity.
    size = jnp.minimum(size, _largest(x))
    return change * ((size + (half + root)) / ((half + root) * root))


def _parabolic_change_by_eps(change: Array, y: Array, x: Array, eps: Array) -> Array:
    return -y * _parabolic_change(change, y, x, eps)


@derivatives.derived_by(_parabolic_change, _parabolic_change_by_eps)
def signed_parabolic(x: Array, eps: Array) -> Array:
    """Return what `signed_hyperbolic` makes x of."""
    size, half, root = _parabolic_parts(x, eps)
    factor = 1 / (half + root)
    return (x * factor) * (size * factor + 2)


def _half_exponential(x: Array) -> Array:
    """Return the exponential of half the size, less 1."""
    # Bounded, so that its square overflows and itself does not.
    largest = 1.9 * math.log(_largest(x))
    return jnp.expm1(0.5 * jnp.minimum(jnp.abs(x), largest))


def _sinh_change(change: Array, y: Array, x: Array) -> Array:
    del y
    # As squares of half the exponentials, which overflow only at the end.
    rising, falling = jnp.exp(0.5 * x), jnp.exp(-0.5 * x)
    return change * ((0.5 * rising) * rising + (0.5 * falling) * falling)


@derivatives.derived_by(_sinh_change)
def sinh(x: Array) -> Array:
    """Return the hyperbolic sine."""
    # As twice the sine and cosine of half the argument, which overflows only at the
    # end. A single exponential would lose digits to the size of its argument.
    growth = _half_exponential(x)
    grown = growth + 1
    inverse = 1 / grown
    sine = 0.5 * (growth + growth * inverse)
    return _unless_tiny(x, jnp.sign(x) * sine * (grown + inverse))


def _arcsinh_change(change: Array, y: Array, x: Array) -> Array:
    del y
    # Nothing is squared whose square would overflow: 1 is nothing beside it.
    size, large = jnp.abs(x), 1e18
    near = change * jax.lax.rsqrt(1 + jnp.square(jnp.minimum(size, large)))
    return jnp.where(size < large, near, change / jnp.maximum(size, large))


@derivatives.derived_by(_arcsinh_change)
def arcsinh(x: Array) -> Array:
    """Return the inverse of the hyperbolic sine."""
    return jnp.arcsinh(x)


def _square_change(change: Array, y: Array, x: Array) -> Array:
    del y
    return change * (math.sqrt(0.5) * jnp.abs(x) + 1)


@derivatives.derived_by(_square_change)
def square(x: Array) -> Array:
    """Return the power of 2, in which nothing cancels."""
    size = jnp.abs(x)
    return jnp.sign(x) * (size * (math.sqrt(0.125) * size + 1))


def _square_root_change(change: Array, y: Array, x: Array) -> Array:
    del y
    return (2**-0.25 * change) * jax.lax.rsqrt(jnp.abs(x) + math.sqrt(0.5))


@derivatives.derived_by(_square_root_change)
def square_root(x: Array) -> Array:
    """Return the power of 1/2, in which nothing cancels."""
    return x * (2 / (2**0.25 * _root(jnp.abs(x) + math.sqrt(0.5)) + 1))


def _power_change(change: Array, y: Array, x: Array, p: Array) -> Array:
    del y
    q = jnp.sqrt(p)
    within = jnp.where(p < 1, 1, 1 / q)
    beyond = jnp.where(p < 1, jnp.power(q, 1 - p), 1)
    return change * jnp.power((jnp.abs(x) + q) * within, p - 1) * beyond


def _power_change_by_p(change: Array, y: Array, x: Array, p: Array) -> Array:
    del y
    q = jnp.sqrt(p)
    base = jnp.abs(x) / q + 1
    grown = jnp.power(base, p)
    slope = grown * (jnp.log(base) - (base - 1) / (2 * base)) / q
    return change * jnp.sign(x) * (slope - (grown - 1) / (2 * p * q))


@derivatives.derived_by(_power_change, _power_change_by_p)
def power(x: Array, p: Array) -> Array:
    """Return sign(x) ((|x| / q + 1)**p - 1) / q, where q is the root of p."""
    size, q = jnp.abs(x), jnp.sqrt(p)
    # The one has no digits where it is small, the other where it is large.
    exponent = p * jnp.log1p(size / q)
    small = jnp.expm1(jnp.minimum(exponent, 1)) / q
    # What is divided by q is the power or its base, whichever makes it no larger.
    within = jnp.where(p < 1, 1, jnp.power(p, -0.5 * (1 + 1 / p)))
    beyond = jnp.where(p < 1, jnp.power(p, -0.5 * (1 + p)), 1)
    large = jnp.power((size + q) * within, p) * beyond - 1 / q
    return _unless_tiny(x, jnp.sign(x) * jnp.where(exponent < 1, small, large))


def _power_below_one_change(change: Array, y: Array, x: Array, p: Array) -> Array:
    q = jnp.sqrt(p)  # The value knows the power: the slope is that over its base.
    grown = q * jnp.abs(jnp.where(jnp.isinf(x), jnp.zeros_like(y), y)) + 1
    return change * (grown / (jnp.abs(x) + q) * q)


@derivatives.derived_by(_power_below_one_change, _power_change_by_p)
def power_below_one(x: Array, p: Array) -> Array:
    """Return the same where p is below 1, by one logarithm and one exponential."""
    info = cast(Any, jnp.finfo(x.dtype))
    size, q = jnp.minimum(jnp.abs(x), _largest(x)), jnp.sqrt(p)
    # The base is 2**e m, in a unit in which it does not overflow, and m is near 1.
    large = size > 2.0 ** (info.maxexp // 2)
    unit = jnp.where(large, 2.0 ** -(info.maxexp // 2), 1.0).astype(x.dtype)
    scaled = size * unit / q
    base = scaled + unit
    lost = jnp.where(large, 0, scaled - (base - unit)) / base
    m, e = _parts_of(base, info)
    e = jnp.where(large, e + info.maxexp // 2, e)
    # Of p e, which has more digits than a number holds, a whole part n is taken off, so
    # that what is left for the exponential is small, and positive: nothing cancels.
    rough = jax.lax.reduce_precision(p, info.nexp, info.nmant // 2)
    n = jnp.maximum(jnp.floor(rough * e - 0.5), 0)
    rest = ((rough * e - n) + (p - rough) * e) * math.log(2) + p * (jnp.log(m) + lost)
    factor = _power_of_two(n, info)
    # By its series, the exponential has more digits than from XLA, and sooner.
    grown = rest + exponentials.small_excess(rest, most=2 * math.log(2))
    y = (factor * grown + (factor - 1)) / q
    return jnp.where(jnp.isinf(x), x, _unless_tiny(x, jnp.sign(x) * y))


def _parts_of(x: Array, info: Any) -> tuple[Array, Array]:
    """Return m, between the roots of 1/2 and 2, and e, of a positive 2**e m."""
    whole = _bits(x)
    e = (whole - _bits(jnp.asarray(math.sqrt(0.5), x.dtype))) >> info.nmant
    m = jax.lax.bitcast_convert_type(whole - (e << info.nmant), x.dtype)
    return m, e.astype(x.dtype)


def _power_of_two(n: Array, info: Any) -> Array:
    """Return 2**n, if that is a number of full precision."""
    bits = (n.astype(_bits(n).dtype) + (info.maxexp - 1)) << info.nmant
    return jax.lax.bitcast_convert_type(bits, n.dtype)


def _bits(x: Array) -> Array:
    """Return the bits of numbers, as integers."""
    return jax.lax.bitcast_convert_type(x, jnp.dtype(f"int{8 * x.dtype.itemsize}"))


def _log_horizon_change(change: Array, y: Array, x: Array) -> Array:
    del y
    return change / (1 - x)


@derivatives.derived_by(_log_horizon_change)
def log_horizon(x: Array) -> Array:
    """Return the logarithm of the horizon that a discount gives."""
    # What rounding takes off 1 - x comes back, at half the price of a log1p.
    rest = jnp.minimum(1 - x, _largest(x))
    lost = ((1 - rest) - x) / jnp.maximum(rest, cast(float, jnp.finfo(x.dtype).tiny))
    return -(jnp.log(rest) + lost)


def _discount_of_log_horizon_change(change: Array, y: Array, x: Array) -> Array:
    del y
    return change * jnp.exp(-x)


@derivatives.derived_by(_discount_of_log_horizon_change)
def discount_of_log_horizon(x: Array) -> Array:
    """Return the discount that gives a horizon of this logarithm."""
    return 0 - jnp.expm1(-x)


def _root(x: Array) -> Array:
    """Return the root of a positive number: by its inverse it takes half the time."""
    x = jnp.minimum(x, _largest(x))  # Infinity by its inverse is no number.
    return x * jax.lax.rsqrt(x)


def _unless_tiny(x: Array, y: Array) -> Array:
    """Return what a function with a slope of 1 gives, without halves of tiny numbers.

    Half the smallest number of full precision is 0 on many devices.
    """
    return jnp.where(jnp.abs(x) < float(cast(Any, jnp.finfo(x.dtype).eps)), x, y)


def _largest(x: Array) -> float:
    """Return the largest number of an array's dtype."""
    return float(cast(Any, jnp.finfo(x.dtype).max))
