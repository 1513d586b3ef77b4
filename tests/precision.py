"""Measure the accuracy of elementwise functions, in units in the last place (ulp).

    python tests/precision.py

A function runs in float32, compiled and eager, on floats of its whole range, which are
spaced evenly in their binary representation, and is compared with a definition in
float64. Arguments and results have magnitudes from 1e-30 to 1e30, so that no
intermediate value overflows, or is rounded to 0.
"""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import rlaxlib

POINTS = 1 << 20  # Of each sign.
PIECE = 1 << 12  # XLA computes arrays of other sizes with other instructions.
SMALL, LARGE = 1e-30, 1e30


@dataclasses.dataclass(frozen=True)
class Case:
    """A function of one float, and its definition in float64.

    Attributes:
        text: The call.
        most: The largest error allowed, in ulp: a power of 2, since the last bits
            depend on the processor.
        function: The function, of an array.
        definition: The same in NumPy.
        low: The lowest argument.
        high: The highest argument.
        floor: An error is in ulp of the result, or of this value if that is larger.
    """

    text: str
    most: int
    function: Callable
    definition: Callable
    low: float = -LARGE
    high: float = LARGE
    floor: float = 0.0


# --- Definitions that are accurate in float64. ---


def odd(function):
    return lambda x: np.sign(x) * function(np.abs(x))


def softplus(x):
    return np.logaddexp(0, x)


def hyperbolic(x):
    return x / (np.sqrt(x + 1) + 1) + 1e-3 * x


def parabolic(x):
    w = x / (0.501 + np.sqrt(0.501**2 + 1e-3 * x))
    return w * (w + 2)


def power(x, p):
    q = np.sqrt(p)
    return np.expm1(p * np.log1p(x / q)) / q


def huber(x):
    return np.where(np.abs(x) <= 1, x * x / 2, np.abs(x) - 0.5)


def expectile(x):
    return np.where(x > 0, 0.25, 0.75) * x * x


def gumbel(z):
    series = z**2 / 2 * (1 + z / 3 * (1 + z / 4 * (1 + z / 5)))
    c = np.minimum(z, 7.0)
    linear = np.expm1(7.0) * np.maximum(z - 7.0, 0)
    return np.where(np.abs(z) < 1e-3, series, np.expm1(c) - c + linear)


def with_arguments(function, *after, **settings):
    return lambda x: function(x, *(jnp.full_like(x, y) for y in after), **settings)


def cases() -> list[Case]:
    """Return the functions, with the errors that are allowed."""
    r, take = rlaxlib, with_arguments
    horizon = r.DISCOUNT_TRANSFORM_PAIR
    loss, dpo = r.log_loss, take(r.dpo_loss, 0.0, 0.0, 0.0, beta=1.0)
    return [
        Case("sigmoid(x)", 4, r.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
        Case("logit(x)", 2, r.logit, lambda x: np.log(x / (1 - x)), 0, 1, floor=1),
        Case("signed_logp1(x)", 4, r.signed_logp1, odd(np.log1p)),
        Case("signed_expm1(x)", 8, r.signed_expm1, odd(np.expm1)),
        Case("signed_hyperbolic(x)", 4, r.signed_hyperbolic, odd(hyperbolic)),
        Case("signed_parabolic(x)", 8, r.signed_parabolic, odd(parabolic)),
        Case("hyperbolic_sin(x)", 32, r.hyperbolic_sin, np.sinh),
        Case("hyperbolic_arcsin(x)", 4, r.hyperbolic_arcsin, np.arcsinh),
        *(
            Case(
                f"power(x, {p})",
                most,
                take(r.power, p=p),
                odd(functools.partial(power, p=p)),
            )
            for p, most in ((0.25, 32), (0.5, 64), (2.0, 128), (3.0, 128))
        ),
        Case(
            "DISCOUNT_TRANSFORM_PAIR.apply(x)",
            2,
            horizon.apply,
            lambda x: -np.log1p(-x),
            0,
            1,
        ),
        Case(
            "DISCOUNT_TRANSFORM_PAIR.apply_inv(x)",
            8,
            horizon.apply_inv,
            lambda x: -np.expm1(-x),
            0,
        ),
        Case("l2_loss(x)", 1, r.l2_loss, lambda x: x * x / 2),
        Case("huber_loss(x)", 1, r.huber_loss, huber),
        Case(
            "expectile_loss(x, 0, 0.75)",
            2,
            take(r.expectile_loss, 0.0, expectile=0.75),
            expectile,
        ),
        Case("log_loss(x, 1)", 2, take(loss, 1.0), lambda x: -np.log(x), 0, 1),
        Case("log_loss(x, 0)", 2, take(loss, 0.0), lambda x: -np.log1p(-x), 0, 1),
        Case(
            "likelihood(x, 0.5)",
            4,
            take(r.likelihood, 0.5),
            lambda x: np.sqrt(x * (1 - x)),
            0,
            1,
        ),
        Case("adversarial_reward(x)", 4, r.adversarial_reward, softplus),
        Case(
            "adversarial_reward(x, 'fairl')",
            2,
            take(r.adversarial_reward, kind="fairl"),
            lambda x: -x * np.exp(x),
        ),
        Case(
            "advantage_weights(x, 1, 20)",
            1,
            take(r.advantage_weights, temperature=1.0, max_weight=20.0),
            lambda x: np.minimum(np.exp(x), 20),
        ),
        Case(
            "xql_value_loss(0, x, 1)",
            4,
            lambda x: r.xql_value_loss(0 * x, x, 1.0),
            gumbel,
            -1e6,
            floor=1,
        ),
        Case("dpo_loss(x, 0, 0, 0, 1)", 4, dpo, lambda x: softplus(-x), -1e14),
    ]


# --- Measurements. ---


def floats(low: float, high: float, points: int) -> np.ndarray:
    """Return floats of every magnitude between two bounds."""
    parts = [np.zeros(1, np.float32)] if low <= 0 <= high else []
    for sign, start, stop in ((1, low, high), (-1, -high, -low)):
        if stop > 0:
            first, last = np.array([max(start, SMALL), stop], "float32").view("i4")
            step = (int(last) - int(first)) // points | 1  # Odd: all last bits occur.
            drawn = np.arange(first, last + 1, step, dtype=np.int32)
            parts.append(np.float32(sign) * drawn.view(np.float32))
    return np.concatenate(parts)


def measure(case: Case, points: int = POINTS) -> float:
    """Return the largest error of a function, in ulp."""
    x = floats(case.low, case.high, points)
    x = np.resize(x, (-(-len(x) // PIECE), PIECE))  # It repeats the first.
    with np.errstate(all="ignore"):
        exact = case.definition(x.astype(np.float64))
    size = np.maximum(np.abs(exact), case.floor)
    counted = (size >= SMALL) & (size <= LARGE)
    unit = np.spacing(size[counted].astype(np.float32))
    # A compiled program may round a product and a sum once, an eager call does not.
    errors = [
        np.abs(np.stack([function(piece) for piece in x])[counted] - exact[counted])
        for function in (case.function, jax.jit(case.function))
    ]
    return float(np.max(errors / unit))


if __name__ == "__main__":
    for each in cases():
        print(f"{measure(each):8.2f} of {each.most:3}  {each.text}")
