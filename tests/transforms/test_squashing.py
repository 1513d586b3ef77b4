"""Test the elementwise transforms: accuracy, gradients at 0, limits and bad input."""

import decimal
import functools
from decimal import Decimal

import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlaxlib

inf, nan = np.inf, np.nan

# --- The definitions, in a hundred decimal places. ---


def sigmoid(x):
    return 1 / (1 + (-x).exp())


def logit(x):
    return (x / (1 - x)).ln()


def signed_logp1(x):
    return (1 + abs(x)).ln().copy_sign(x)


def signed_expm1(x):
    return (abs(x).exp() - 1).copy_sign(x)


def signed_hyperbolic(x):
    return ((abs(x) + 1).sqrt() - 1).copy_sign(x) + x / 1000


def signed_parabolic(x):
    eps = Decimal(1) / 1000
    root = ((1 + 4 * eps * (abs(x) + 1 + eps)).sqrt() - 1) / (2 * eps)
    return (root**2 - 1).copy_sign(x)


def hyperbolic_sin(x):
    return (x.exp() - (-x).exp()) / 2


def hyperbolic_arcsin(x):
    return (abs(x) + (x * x + 1).sqrt()).ln().copy_sign(x)


def power(x, p):
    q = p.sqrt()
    return (((abs(x) / q + 1) ** p - 1) / q).copy_sign(x)


def log_horizon(x):
    return -(1 - x).ln()


def discount(x):
    return 1 - (-x).exp()


def derivative(function, x):
    step = Decimal("1e-30")
    ahead, behind = function(x * (1 + step)), function(x * (1 - step))
    return (ahead - behind) / (2 * step * x)


# --- What the tests share. ---

POWERS = (0.25, 0.75, 2.0, 3.0)
CASES = {
    "sigmoid": (rlaxlib.sigmoid, sigmoid),
    "logit": (rlaxlib.logit, logit),
    "signed_logp1": (rlaxlib.signed_logp1, signed_logp1),
    "signed_expm1": (rlaxlib.signed_expm1, signed_expm1),
    "signed_hyperbolic": (rlaxlib.signed_hyperbolic, signed_hyperbolic),
    "signed_parabolic": (rlaxlib.signed_parabolic, signed_parabolic),
    "hyperbolic_sin": (rlaxlib.hyperbolic_sin, hyperbolic_sin),
    "hyperbolic_arcsin": (rlaxlib.hyperbolic_arcsin, hyperbolic_arcsin),
    "log horizon": (rlaxlib.DISCOUNT_TRANSFORM_PAIR.apply, log_horizon),
    "discount": (rlaxlib.DISCOUNT_TRANSFORM_PAIR.apply_inv, discount),
    **{
        f"power of {p}": (
            functools.partial(rlaxlib.power, p=p),
            functools.partial(power, p=Decimal(p)),
        )
        for p in POWERS
    },
}
ODD = ["signed_logp1", "signed_expm1", "signed_hyperbolic", "signed_parabolic"]
ODD += ["hyperbolic_sin", "hyperbolic_arcsin", *(f"power of {p}" for p in POWERS)]

# Errors in units of the dtype's epsilon, relative but for those of functions that are
# accurate in absolute terms only.
TOLERANCE = dict.fromkeys(CASES, 8)
TOLERANCE |= {"hyperbolic_sin": 32, "logit": 128, "log horizon": 128}
TOLERANCE |= {f"power of {p}": 128 for p in POWERS}
ABSOLUTE = {"logit value", "sigmoid gradient", "discount gradient"}
ABSOLUTE |= {"hyperbolic_arcsin gradient"}


def grid(case):
    """Return values of every magnitude that a function takes."""
    if case in ("logit", "log horizon"):
        small, middle = np.geomspace(1e-30, 0.2, 20), np.linspace(0.2, 0.8, 21)
        return np.concatenate([small, middle, 1 - np.geomspace(1e-6, 0.2, 20)])
    exponential = case in ("sigmoid", "signed_expm1", "hyperbolic_sin", "discount")
    magnitudes = np.geomspace(1e-30, 80.0 if exponential else 1e12, 60)
    return np.concatenate([-magnitudes, magnitudes])


def assert_accurate(found, expected, tolerance, floor):
    for y, exact in zip(found, expected, strict=True):
        error = abs(Decimal(float(y)) - exact) / max(abs(exact), floor)
        assert float(error) <= tolerance, (float(y), float(exact))


# --- What the functions compute. ---


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_accurate_at_every_magnitude(case):
    function, definition = CASES[case]
    value_and_grad = jax.vmap(jax.value_and_grad(function))
    grids = [grid(case).astype(dtype) for dtype in (np.float32, np.float64)]
    with contract.x64(True):
        found = jax.jit(lambda grids: [*map(value_and_grad, grids)])(grids)
    references = definition, functools.partial(derivative, definition)
    names = f"{case} value", f"{case} gradient"
    for x, results in zip(grids, found, strict=True):
        exact = [Decimal(float(each)) for each in x]
        tolerance = TOLERANCE[case] * float(np.finfo(x.dtype).eps)
        for y, reference, name in zip(results, references, names, strict=True):
            with decimal.localcontext(prec=100):
                expected = [reference(each) for each in exact]
                floor = Decimal(name in ABSOLUTE)
                assert_accurate(np.asarray(y), expected, tolerance, floor)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("signed_logp1", 1.0),
        ("signed_expm1", 1.0),
        ("signed_hyperbolic", 0.501),
        ("signed_parabolic", 1 / 0.501),
        ("hyperbolic_sin", 1.0),
        ("hyperbolic_arcsin", 1.0),
        ("power of 0.75", 1.0),
        ("power of 2.0", 1.0),
    ],
)
def test_derivative_at_zero_is_not_zero(case, expected):
    function, _ = CASES[case]

    @jax.jit
    @jax.vmap
    def derivatives(x):
        return *jax.value_and_grad(function)(x), jax.jvp(function, (x,), (1.0,))[1]

    value, gradient, tangent = derivatives(np.float32([0.0, -0.0]))
    np.testing.assert_array_equal(value, 0)
    np.testing.assert_allclose(gradient, expected, rtol=1e-6)
    np.testing.assert_allclose(tangent, expected, rtol=1e-6)


def test_logit_is_infinite_at_the_bounds_and_nan_outside():
    found = jax.jit(rlaxlib.logit)(np.float32([-0.5, 0, 1, 1.5]))
    np.testing.assert_array_equal(found, [nan, -inf, inf, nan])
    with jax.debug_nans(True):
        assert rlaxlib.logit(0.0) == -inf


# --- How the functions relate. ---


@pytest.mark.parametrize(
    "pair",
    [
        rlaxlib.SIGNED_HYPERBOLIC_PAIR,
        rlaxlib.TxPair(
            functools.partial(rlaxlib.signed_hyperbolic, eps=0.0),
            functools.partial(rlaxlib.signed_parabolic, eps=0.0),
        ),
        rlaxlib.SIGNED_LOGP1_PAIR,
        rlaxlib.HYPERBOLIC_SIN_PAIR,
        rlaxlib.TxPair(
            functools.partial(rlaxlib.power, p=0.5),
            functools.partial(rlaxlib.power, p=2.0),
        ),
        rlaxlib.TxPair(
            functools.partial(rlaxlib.power, p=0.75),
            functools.partial(rlaxlib.power, p=1 / 0.75),
        ),
    ],
    ids=["hyperbolic", "square root", "log", "sinh", "square", "power"],
)
def test_inverses_are_accurate_for_small_values(pair):
    @jax.jit
    def round_trips(x):
        return pair.apply_inv(pair.apply(x)), pair.apply(pair.apply_inv(x))

    x = np.float32(np.geomspace(1e-30, 1e4, 100))
    x = np.concatenate([-x, np.float32([0]), x])
    back, forth = map(np.asarray, round_trips(x))
    np.testing.assert_allclose(back, x, rtol=5e-6)
    small = np.abs(x) < 10
    np.testing.assert_allclose(forth[small], x[small], rtol=5e-6)


def test_half_precision_survives_a_round_trip():
    x, pair = (
        np.array([1e-2, 1, 100, 1e4], jnp.bfloat16),
        rlaxlib.SIGNED_HYPERBOLIC_PAIR,
    )
    back = jax.jit(lambda x: pair.apply_inv(pair.apply(x)))(x)
    assert back.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.float32(back), np.float32(x), rtol=0.01)
