"""The linear recurrence of every multistep estimate, solved backwards in time.

The value of step :math:`t` follows from that of step :math:`t + 1`,

::

    y_t = b_t + a_t y_{t+1}.

λ-returns, generalised advantages, importance-corrected TD errors, Retrace and V-trace
differ only in :math:`b` and :math:`a`. They all call this module, so there is one loop
over time in the library. `streams` describes `truncated_t` and `sample_mask`.

Nothing crosses a cut: where :math:`a_t` is 0, as at the end of an episode,
:math:`y_t = b_t`, even if :math:`y_{t+1}` is infinite or NaN.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from rlaxlib._core import platforms, streams

LONG = 8192  # From so many steps on, a sum one by one loses 1e-4.

Run = tuple[Array, Array]


def backward(
    b: Array,
    a: Array,
    final: ArrayLike,
    truncated_t: Array | None = None,
    sample_mask: Array | None = None,
) -> Array:
    """Solve :math:`y_t = b_t + a_t y_{t+1}` for all `T` steps, from :math:`y_T`.

    Where the stream is cut after a step, and at the last valid step of a
    `sample_mask`, :math:`y_t = b_t`, for any later terms. Invalid steps have the
    solution of the next valid step.
    """
    if sample_mask is not None:  # The carry passes through invalid steps.
        b = jnp.where(sample_mask, b, 0)
        a = jnp.where(sample_mask, a, 1)
    return _solve(b, streams.cut_traces(a, truncated_t, sample_mask), final)


def backward_window(
    b: Array, a: Array, final: Array, length: int, *, end: Array | None = None
) -> Array:
    """Solve the same recurrence over the next `length` steps only, for every step.

    The window of step :math:`t` covers the steps :math:`t` to `t + length - 1`, or to
    :math:`T - 1` near the end, and starts from a final value of its own, of the `[T]`.
    Where `end` is true, nothing that follows a step counts.
    """
    steps = final.shape[0]
    # Steps beyond the end return the value that they are given.
    b_padded = jnp.pad(b, (0, length))
    a = a if end is None else jnp.where(end, 0, a)
    a_padded = jnp.pad(a, (0, length), constant_values=1)

    def step(y: Array, k: Array) -> tuple[Array, None]:
        def later(x: Array) -> Array:
            return jax.lax.dynamic_slice(x, (k,), (steps,))

        return later(b_padded) + carried(later(a_padded), y), None

    y, _ = jax.lax.scan(step, _like(b, final), jnp.arange(length), reverse=True)
    return y


def _solve(b: Array, a: Array, final: ArrayLike) -> Array:
    """Solve the recurrence in the way that suits the platform."""
    on_cpu = _loop if b.size <= LONG else _associative_scan
    return platforms.choose(on_cpu, _associative_scan, b, a, final)


def _loop(b: Array, a: Array, final: ArrayLike) -> Array:
    """Solve the recurrence step by step."""

    def step(y: Array, terms: Run) -> tuple[Array, Array]:
        b, a = terms
        y = b + carried(a, y)
        return y, y

    _, solution = jax.lax.scan(step, _like(b[-1], final), (b, a), reverse=True)
    return solution


def _associative_scan(b: Array, a: Array, final: ArrayLike) -> Array:
    """Solve the recurrence in a number of rounds that is logarithmic in `T`.

    A run of steps maps :math:`y` to :math:`b + a y`, and two neighbouring runs join
    into one.
    """

    def join(far: Run, near: Run) -> Run:
        (b_far, a_far), (b, a) = far, near
        return b + carried(a, b_far), carried(a, a_far)

    runs: Run = jax.lax.associative_scan(join, (b, a), reverse=True)
    b, a = runs
    return b + carried(a, _like(b, final))


def carried(a: Array, y: Array) -> Array:
    """Return `a y`, and 0 where `a` is 0 and `y` infinite or NaN.

    Finite values stay, since they are the derivative by a coefficient of 0.
    """
    return a * jnp.where((a != 0) | jnp.isfinite(y), y, 0)


def _like(x: Array, value: ArrayLike) -> Array:
    """Return a value with the shape of `x`, and varying over the same mesh axes."""
    return jnp.zeros_like(x) + value
