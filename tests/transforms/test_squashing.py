"""Test the functions that squash: digits, slopes, edges, and what is refused."""

import decimal
import functools
from decimal import Decimal

import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlaxlib

pytestmark = pytest.mark.optimized  # As digits are.

inf = jnp.inf

# --- The functions once more, and their slopes, in a hundred digits. ---


def sigmoid(x):
    return 1 / (1 + (-x).exp())


def sigmoid_slope(x):
    return sigmoid(x) * sigmoid(-x)


def logit(x):
    return (x / (1 - x)).ln()


def logit_slope(x):
    return 1 / (x * (1 - x))


def signed_logp1(x):
    return (1 + abs(x)).ln().copy_sign(x)


def signed_logp1_slope(x):
    return 1 / (1 + abs(x))


def signed_expm1(x):
    return (abs(x).exp() - 1).copy_sign(x)


def signed_expm1_slope(x):
    return abs(x).exp()


def signed_hyperbolic(x):
    return ((abs(x) + 1).sqrt() - 1).copy_sign(x) + x / 1000


def signed_hyperbolic_slope(x):
    return 1 / (2 * (abs(x) + 1).sqrt()) + Decimal(1) / 1000


def parabolic_root(x):
    eps = Decimal(1) / 1000
    return ((1 + 4 * eps * (abs(x) + 1 + eps)).sqrt() - 1) / (2 * eps)


def signed_parabolic(x):
    return (parabolic_root(x) ** 2 - 1).copy_sign(x)


def signed_parabolic_slope(x):
    return 1 / (Decimal(1) / 1000 + 1 / (2 * parabolic_root(x)))


def hyperbolic_sin(x):
    return (x.exp() - (-x).exp()) / 2


def hyperbolic_sin_slope(x):
    return (x.exp() + (-x).exp()) / 2


def hyperbolic_arcsin(x):
    return (abs(x) + (x * x + 1).sqrt()).ln().copy_sign(x)


def hyperbolic_arcsin_slope(x):
    return 1 / (x * x + 1).sqrt()


def power(x, p):
    q = p.sqrt()
    return (((abs(x) / q + 1) ** p - 1) / q).copy_sign(x)


def power_slope(x, p):
    return (abs(x) / p.sqrt() + 1) ** (p - 1)


def discount(x):
    return -(1 - x).ln()


def discount_slope(x):
    return 1 / (1 - x)


def inverse_discount(x):
    return 1 - (-x).exp()


def inverse_discount_slope(x):
    return (-x).exp()


# --- What the tests share. ---

POWERS = (0.25, 10018925 / 2**25, 0.5, 0.75, 2.0, 3.0)  # One of 24 bits.
CASES = {
    "sigmoid": (rlaxlib.sigmoid, sigmoid, sigmoid_slope),
    "logit": (rlaxlib.logit, logit, logit_slope),
    "signed_logp1": (rlaxlib.signed_logp1, signed_logp1, signed_logp1_slope),
    "signed_expm1": (rlaxlib.signed_expm1, signed_expm1, signed_expm1_slope),
    "signed_hyperbolic": (
        rlaxlib.signed_hyperbolic,
        signed_hyperbolic,
        signed_hyperbolic_slope,
    ),
    "signed_parabolic": (
        rlaxlib.signed_parabolic,
        signed_parabolic,
        signed_parabolic_slope,
    ),
    "hyperbolic_sin": (rlaxlib.hyperbolic_sin, hyperbolic_sin, hyperbolic_sin_slope),
    "hyperbolic_arcsin": (
        rlaxlib.hyperbolic_arcsin,
        hyperbolic_arcsin,
        hyperbolic_arcsin_slope,
    ),
    "discount": (
        rlaxlib.DISCOUNT_TRANSFORM_PAIR.apply,
        discount,
        discount_slope,
    ),
    "inverse discount": (
        rlaxlib.DISCOUNT_TRANSFORM_PAIR.apply_inv,
        inverse_discount,
        inverse_discount_slope,
    ),
    **{
        f"power of {p}": (
            functools.partial(rlaxlib.power, p=p),
            functools.partial(power, p=Decimal(p)),
            functools.partial(power_slope, p=Decimal(p)),
        )
        for p in POWERS
    },
}
each_case = pytest.mark.parametrize("case", CASES)
each_dtype = pytest.mark.parametrize(
    "dtype", [jnp.float16, jnp.bfloat16, jnp.float32, jnp.float64]
)
SIGNED = [
    name for name in CASES if name not in ("logit", "discount", "inverse discount")
]


def grid(case, dtype):
    """Return numbers of all sizes that a function takes, down to the smallest."""
    info = jnp.finfo(dtype)
    tiny, largest = 1.01 * float(info.tiny), 0.99 * float(info.max)
    if case in ("logit", "discount"):
        small = np.geomspace(max(tiny, 1e-40), 0.5, 40)
        middle = 0.5 + np.linspace(-0.3, 0.3, 61)
        near_one = 1 - np.geomspace(float(info.eps), 0.5, 20)
        numbers = np.concatenate([small, middle, near_one])
    else:
        exponents = case in ("sigmoid", "signed_expm1", "hyperbolic_sin")
        exponents |= case == "inverse discount"
        most = np.log(largest) if exponents else min(largest, 1e40)
        numbers = np.geomspace(max(tiny, 1e-40), most, 100)
        numbers = np.concatenate([-numbers, numbers])
    numbers = np.asarray(jnp.asarray(numbers, dtype), np.float64)
    return numbers[(numbers < 1) | (case not in ("logit", "discount"))]


def assert_digits(function, reference, numbers, dtype):
    """Hold a function to within 4 eps, where the dtype has all of its digits."""
    found = np.asarray(jax.jit(function)(jnp.asarray(numbers, dtype)), np.float64)
    info = jnp.finfo(dtype)
    held = 0
    for x, y in zip(numbers, found, strict=True):
        expected = reference(Decimal(float(x)))
        if Decimal(float(info.tiny)) <= abs(expected) <= Decimal(float(info.max)):
            error = abs(Decimal(float(y)) / expected - 1) / Decimal(float(info.eps))
            assert error <= 4, (x, y, float(expected))
            held += 1
    assert held > 0.4 * len(numbers)


# --- What the functions compute. ---


@each_dtype
@each_case
def test_values_and_slopes_keep_their_digits_over_the_whole_range(case, dtype):
    function, value, slope = CASES[case]
    with contract.x64(dtype == jnp.float64), decimal.localcontext(prec=100):
        numbers = grid(case, dtype)
        assert_digits(function, value, numbers, dtype)
        assert_digits(jax.vmap(jax.grad(function)), slope, numbers, dtype)


@pytest.mark.parametrize(
    ("case", "slope"),
    [
        ("signed_logp1", 1.0),
        ("signed_expm1", 1.0),
        ("signed_hyperbolic", 0.501),
        ("signed_parabolic", 1 / 0.501),
        ("hyperbolic_sin", 1.0),
        ("hyperbolic_arcsin", 1.0),
        ("power of 0.75", 1.0),
        ("power of 0.5", 1.0),
        ("power of 2.0", 1.0),
        ("sigmoid", 0.25),
    ],
)
def test_zero_has_the_slope_that_it_should_have(case, slope):
    function, *_ = CASES[case]
    for zero in (0.0, -0.0):
        np.testing.assert_allclose(jax.grad(function)(zero), slope, rtol=1e-6)
        np.testing.assert_allclose(
            jax.jvp(function, (zero,), (1.0,))[1], slope, rtol=1e-6
        )
        if case != "sigmoid":
            assert function(zero) == 0


@pytest.mark.parametrize("case", [name for name in SIGNED if name != "sigmoid"])
def test_infinity_stays_infinity(case):
    function, *_ = CASES[case]
    infinite = np.array([-inf, inf], np.float32)
    np.testing.assert_array_equal(function(infinite), infinite)
    assert not jnp.any(jnp.isnan(jax.vmap(jax.grad(function))(infinite)))


def test_logit_ends_at_the_infinities_and_is_nothing_beyond():
    np.testing.assert_array_equal(
        rlaxlib.logit(jnp.array([-0.5, 0.0, 1.0, 1.5])), [jnp.nan, -inf, inf, jnp.nan]
    )
    with jax.debug_nans(True):
        assert rlaxlib.logit(0.0) == -inf


def test_without_a_linear_part_the_parabola_is_still_the_inverse():
    x = jnp.array([-9.0, 0.0, 1e-6, 16.0])
    squashed = rlaxlib.signed_hyperbolic(x, eps=0.0)
    np.testing.assert_allclose(
        rlaxlib.signed_parabolic(squashed, eps=0.0), x, rtol=1e-6
    )


@pytest.mark.parametrize("p", [0.3, 0.5, 2.0])
def test_a_power_that_is_known_is_the_one_that_is_traced(p):
    x = jnp.linspace(-5.0, 5.0, 21)
    traced = jax.jit(rlaxlib.power)(x, p)
    np.testing.assert_allclose(rlaxlib.power(x, p), traced, rtol=1e-6)
    np.testing.assert_allclose(rlaxlib.power(x, jnp.float32(p)), traced, rtol=1e-6)


# --- How the functions relate. ---


@pytest.mark.parametrize(
    "pair",
    [
        rlaxlib.SIGNED_HYPERBOLIC_PAIR,
        rlaxlib.SIGNED_LOGP1_PAIR,
        rlaxlib.HYPERBOLIC_SIN_PAIR,
        rlaxlib.IDENTITY_PAIR,
        rlaxlib.TxPair(
            functools.partial(rlaxlib.power, p=0.5),
            functools.partial(rlaxlib.power, p=2.0),
        ),
        rlaxlib.TxPair(
            functools.partial(rlaxlib.power, p=0.75),
            functools.partial(rlaxlib.power, p=1 / 0.75),
        ),
    ],
    ids=["hyperbolic", "log", "sinh", "identity", "square", "power"],
)
def test_pairs_undo_each_other_however_small_the_number(pair):
    x = jnp.asarray(np.geomspace(1e-30, 1e4, 100), jnp.float32)
    x = jnp.concatenate([-x, jnp.zeros(1), x])
    np.testing.assert_allclose(pair.apply_inv(pair.apply(x)), x, rtol=5e-6)
    small = x[jnp.abs(x) < 10]
    np.testing.assert_allclose(pair.apply(pair.apply_inv(small)), small, rtol=5e-6)


def test_half_precision_brings_back_what_was_squashed():
    x = jnp.asarray([1e-2, 1.0, 100.0, 1e4], jnp.bfloat16)
    back = rlaxlib.signed_parabolic(rlaxlib.signed_hyperbolic(x))
    assert back.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.float32(back), np.float32(x), rtol=0.01)


# --- What the functions refuse. ---


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rlaxlib.signed_hyperbolic(1.0, -1.0), r"`eps` must lie in \[0, inf\)"),
        (lambda: rlaxlib.signed_parabolic(1.0, -1.0), r"`eps` must lie in \[0, inf\)"),
        (lambda: rlaxlib.power(1.0, 0.0), r"`p` must lie in \(0, inf\)"),
        (lambda: rlaxlib.power(1.0, "2"), r"^power: `p` is '2', but must be float"),
    ],
)
def test_says_what_is_wrong(call, message):
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        call()
