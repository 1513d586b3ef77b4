"""Solve the linear recurrence beneath every multistep estimate, backwards in time.

A return looks back from the end of a trajectory: what step :math:`t` was worth follows
from what step :math:`t + 1` was worth,

.. math::

    y_t = b_t + a_t y_{t+1}.

Lambda returns, generalised advantages, importance-corrected errors, Retrace and V-trace
differ only in what they put for :math:`b` and :math:`a`. They all call this module, so
there is one loop over time in the library to read, to test and to make fast.

In all of them a trace says how much of what follows counts: :math:`a_t` is a multiple
of it. Where a stream is cut the trace is 0, and so the estimate rests on what is known
at the cut alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from rlaxlib._core import derivatives, streams

_SHORT = 16  # Windows up to here are faster step by step than by doubling.

Terms = Callable[..., tuple[Array, Array]]


def backward(
    terms: Terms,
    final: ArrayLike,
    trace: Array,
    *sequences: Array,
    truncated_t: Array | None = None,
    sample_mask: Array | None = None,
) -> Array:
    """Solve :math:`y_t = b_t + a_t y_{t+1}` for all steps, from :math:`y_T`.

    On a CPU this is a loop, and :math:`b_t` and :math:`a_t` are computed inside it: a
    return then reads its inputs once and writes its output once. Computing all of them
    beforehand takes up to twice the time, since each travels to memory and back; but
    where sequences are many, a derivative by them takes less. A GPU or TPU pays for
    every step of a loop, so there it is an associative scan: a step maps :math:`y` to
    :math:`b + a y`, two neighbouring runs of steps join into one, and :math:`T` steps
    take a number of rounds logarithmic in :math:`T`.

    Args:
        terms: Function of one element of the trace and of each sequence, giving
            :math:`(b_t, a_t)`, with :math:`a_t` 0 where the trace is. Let it stand at
            module level: a closure is compiled anew at every eager call.
        final: Value :math:`y_T`, shape `[]`.
        trace: Trace, shape `[T]` or `[]`.
        *sequences: Arrays of shape `[T]`.
        truncated_t: Whether the stream is cut after each step, bool `[T]`. There the
            trace is 0, and nothing that follows matters.
        sample_mask: Whether each step is a decision, bool `[T]`. The recurrence passes
            over those that are not; the last that is ends the stream.

    Returns:
        Solution :math:`y_0, …, y_{T-1}`, shape `[T]`, 0 where a step is no decision.
    """
    end = streams.ends(truncated_t, sample_mask)
    trace = jnp.broadcast_to(trace, sequences[0].shape)
    return solve(terms, final, (trace, *sequences), end, sample_mask)


def backward_known(
    final: ArrayLike,
    factor: Array,
    offset: Array,
    end: Array | None,
    sample_mask: Array | None,
) -> Array:
    """Solve the same recurrence, of terms that were computed beforehand.

    Args:
        final: As for `backward`.
        factor: Factors :math:`a_t`, shape `[T]`; whatever they are where no step is a
            decision.
        offset: Offsets :math:`b_t`, shape `[T]`, 0 where a step is no decision.
        end: Whether nothing that follows a step matters, bool `[T]`. The last decision
            need be no end: `final` is what follows it.
        sample_mask: As for `backward`.

    Returns:
        Solution, as from `backward`.
    """
    # What is no decision hands on what follows, so that no mask need enter the loop.
    if sample_mask is not None:
        factor = jnp.where(sample_mask, factor, jnp.ones_like(factor))
    solution = solve(_known, final, (factor, offset), end, None)
    return streams.decisions(solution, sample_mask)


def corrected_errors(
    weighted: Array,
    discount_t: Array,
    trace: Array,
    *,
    truncated_t: Array | None = None,
    sample_mask: Array | None = None,
) -> Array:
    """Sum up the one-step errors that follow: :math:`e_t = d_t + γ c e_{t+1}`.

    Args:
        weighted: One-step errors :math:`d_t`, each times its importance weight, 0 where
            a step is no decision, shape `[T]`.
        discount_t: Discounts :math:`γ`, shape `[T]`.
        trace: Trace :math:`c`, finite in all steps, shape `[T]` or `[]`.
        truncated_t: As for `backward`.
        sample_mask: As for `backward`.

    Returns:
        Errors :math:`e_0, …, e_{T-1}`, shape `[T]`, 0 where a step is no decision.
    """
    if sample_mask is not None:
        # The last decision is no end: behind it stands the 0 that the stream ends with.
        end = None if truncated_t is None else streams.ends(truncated_t, sample_mask)
        return _of_decisions(discount_t * trace, weighted, end, sample_mask)
    if trace.ndim == 0:
        # One number is no array to read: a product inside the loop costs less than a
        # pass over the discounts before it.
        sequences = weighted, discount_t
        return backward(_discounted, 0.0, trace, *sequences, truncated_t=truncated_t)
    return solve(_known, 0.0, (discount_t * trace, weighted), truncated_t, None)


def _of_decisions_jvp(
    primals: tuple[Any, ...], tangents: tuple[Any, ...]
) -> tuple[Array, Array]:
    # To differentiate: a mask in the loop takes up to half as long again.
    total = functools.partial(backward_known, 0.0)
    return cast(tuple[Array, Array], jax.jvp(total, primals, tangents))


@derivatives.derived(_of_decisions_jvp)
def _of_decisions(
    factor: Array, offset: Array, end: Array | None, sample_mask: Array
) -> Array:
    """Solve the recurrence of some rows, from 0, the mask being in the loop."""
    return solve(_known, 0.0, (factor, offset), end, sample_mask)


def _known(factor: Array, offset: Array) -> tuple[Array, Array]:
    """Return terms that were computed beforehand, the factor in place of the trace."""
    return offset, factor


def _discounted(trace: Array, offset: Array, discount: Array) -> tuple[Array, Array]:
    """Return terms whose factor is a discount times the trace."""
    return offset, discount * trace


def _solve(
    terms: Terms,
    final: ArrayLike,
    sequences: tuple[Array, ...],
    end: Array | None,
    mask: Array | None,
) -> Array:
    """Solve the recurrence in the way that suits the device the program runs on."""
    operands = final, sequences, end, mask
    loop = functools.partial(_loop, terms)
    parallel = functools.partial(_parallel, terms)
    return cast(
        Array, jax.lax.platform_dependent(*operands, cpu=loop, default=parallel)
    )


# Compiled as one, so that a call outside of jit, too, traces and compiles only once.
solve: Callable[..., Array] = jax.jit(_solve, static_argnums=0, inline=True)


def _loop(
    terms: Terms,
    final: ArrayLike,
    sequences: tuple[Array, ...],
    end: Array | None,
    mask: Array | None,
) -> Array:
    """Solve the recurrence one step after the other."""

    def step(
        later: Array, row: tuple[tuple[Array, ...], Array | None, Array | None]
    ) -> tuple[Array, Array]:
        elements, end, mask = row
        offset, factor = _terms(terms, elements, end, mask)
        y = offset + factor * (later if end is None else _unless(end, later))
        # Masked here: what the loop returns is transposed, and with a select beside it
        # that takes up to six times as long where the batch is a power of two.
        return y, y if mask is None else _unless(~mask, y)

    # From the last row, so that the carry varies over the same devices as the rows.
    offset, factor = terms(*(each[-1] for each in sequences))
    final = jnp.zeros_like(offset + factor) + final
    # A derivative computes a step anew from its inputs. To keep what it needs would be
    # more to write and to read than there is to compute.
    step = cast(Any, jax.checkpoint)(step, prevent_cse=False)
    _, solution = jax.lax.scan(step, final, (sequences, end, mask), reverse=True)
    return solution


# A derivative names the rounds once more, and a compiler computes them once. Were the
# results of each handed on to it, a loop beside them would have to hand on as many.
@functools.partial(cast(Any, jax.checkpoint), prevent_cse=False, static_argnums=0)
def _parallel(
    terms: Terms,
    final: ArrayLike,
    sequences: tuple[Array, ...],
    end: Array | None,
    mask: Array | None,
) -> Array:
    """Solve the recurrence in rounds, each of which joins neighbouring runs."""
    offset, factor = _terms(terms, sequences, end, mask)
    steps = _Run(offset, factor, end)
    runs: _Run = jax.lax.associative_scan(_join, steps, reverse=True)
    solution = runs.apply(jnp.broadcast_to(final, offset.shape))
    return solution if mask is None else _unless(~mask, solution)


def _terms(
    terms: Terms,
    elements: tuple[Array, ...],
    end: Array | None,
    mask: Array | None,
) -> tuple[Array, Array]:
    """Compute offset and factor, with no trace at an end.

    A step that is no decision hands on what follows, whatever stands in it.
    """
    if mask is not None:
        elements = tuple(_unless(~mask, each) for each in elements)
    if end is not None:
        elements = (_unless(end, elements[0]), *elements[1:])
    offset, factor = terms(*elements)
    if mask is None:
        return offset, factor
    return _unless(~mask, offset), jnp.where(mask, factor, jnp.ones_like(factor))


def backward_window(
    terms: Terms,
    final: Array,
    length: int,
    trace: Array,
    *sequences: Array,
    truncated_t: Array | None = None,
) -> Array:
    """Solve the same recurrence over the next `length` steps only, for every step.

    The window of step :math:`t` covers step :math:`t` and those after it, `length` in
    all or as many as the sequence has, and starts from a final value of its own. A
    short one takes its steps one after the other, all windows at once. In a long one,
    two neighbouring runs of :math:`k` steps make one of :math:`2k`, so doubling reaches
    any length in a logarithmic number of rounds, each on the whole sequence; and as all
    rounds are alike, the program is no longer for a thousand steps than for twenty.

    Args:
        terms: As for `backward`.
        final: Value at the far end of each step's window, shape `[T]`.
        length: Number of steps in a window, from 1 to `T`.
        trace: Trace, shape `[T]` or `[]`.
        *sequences: Arrays of shape `[T]`.
        truncated_t: As for `backward`.

    Returns:
        Value at the near end of each step's window, shape `[T]`.
    """
    size = final.shape[0]
    elements = (jnp.broadcast_to(trace, final.shape), *sequences)
    offset, factor = _terms(terms, elements, truncated_t, None)
    # So that all that the rounds carry varies over the same devices.
    zeros = jnp.zeros_like(offset + factor)
    run, y = _Run(offset + zeros, factor + zeros, truncated_t), final + zeros

    here, run = run, run.ahead(0, length, size + length)
    if length <= _SHORT:
        for start in reversed(range(1, length)):
            y = run.ahead(start, 0, size).apply(y)
        return here.apply(y)

    # The length is a sum of powers of two. From the far end on, a window is made of
    # runs of these lengths, each starting where what is left of the window ends.
    powers = [2**power for power in range(length.bit_length())]
    starts = [length - (length & (2 * power - 1)) for power in powers]
    parts = [bool(length & power) for power in powers]

    def double(
        state: tuple[_Run, Array], this: tuple[Array, Array, Array]
    ) -> tuple[tuple[_Run, Array], None]:
        run, y = state
        power, start, part = this
        y = jnp.where(part, run.ahead(start, 0, size).apply(y), y)
        return (run.after(run.ahead(power, length)), y), None

    rounds = jnp.asarray(powers), jnp.asarray(starts), jnp.asarray(parts)
    (_, y), _ = jax.lax.scan(double, (run, y), rounds)
    return y


def window_ends(values: Array, length: int) -> Array:
    """Return the value at the far end of each step's window.

    Args:
        values: Value after each step, shape `[T]`.
        length: Number of steps in a window, from 1 to `T`.

    Returns:
        The values after the windows' last steps, or after all steps where a window
        would reach beyond, shape `[T]`.
    """
    # Three ways, of which each is the fastest somewhere. Here, to compile.
    if length > _SHORT:
        return jax.lax.pad(values, values[-1], [(1 - length, length - 1, 0)])
    return _short_window_ends(values, length)


def _short_window_ends_jvp(
    length: int, primals: tuple[Array], tangents: tuple[Array]
) -> tuple[Array, Array]:
    # To differentiate: backwards, picking would be scattering.
    def ends(x: Array) -> Array:
        return jnp.pad(x[length - 1 :], (0, length - 1), mode="edge")

    return ends(*primals), ends(*tangents)


@derivatives.derived(_short_window_ends_jvp, nondiff_argnums=(1,))
def _short_window_ends(values: Array, length: int) -> Array:
    # To run: XLA computes what is picked from once, but what is padded at each use.
    last = values.shape[0] - 1
    ends = np.minimum(np.arange(last + 1, dtype=np.int32) + length - 1, last)
    return values.at[ends].get(mode="promise_in_bounds")


class _Run(NamedTuple):
    """A run of steps: what it adds to the value at its far end, and multiplies it by.

    Where the stream is cut within it, nothing comes through, not even a NaN.
    """

    offset: Array
    factor: Array
    cut: Array | None

    def apply(self, y: Array) -> Array:
        """Return the value at the near end from the one at the far end."""
        reached = y if self.cut is None else _unless(self.cut, y)
        return self.offset + self.factor * reached

    def after(self, far: _Run) -> _Run:
        """Join this run with the one that it leads to."""
        offset = self.apply(far.offset)
        if self.cut is None or far.cut is None:
            return _Run(offset, self.factor * far.factor, None)
        factor = self.factor * _unless(self.cut, far.factor)
        return _Run(offset, factor, self.cut | far.cut)

    def ahead(self, steps: ArrayLike, beyond: int, size: int | None = None) -> _Run:
        """Return the runs that start `steps` later.

        Args:
            steps: How much later.
            beyond: How many runs of no steps to put behind the others first.
            size: How many runs to return, by default as many as there are.

        Returns:
            The runs.
        """
        count = self.offset.shape[0] if size is None else size

        def later(x: Array, nothing: float | bool) -> Array:
            longer = jnp.pad(x, (0, beyond), constant_values=nothing)
            return jax.lax.dynamic_slice(longer, (steps,), (count,))

        cut = None if self.cut is None else later(self.cut, False)
        return _Run(later(self.offset, 0), later(self.factor, 1), cut)


def _join(far: _Run, near: _Run) -> _Run:
    """Join a run with the one that leads to it."""
    return near.after(far)


def _unless(condition: Array, x: Array) -> Array:
    """Return `x`, and 0 where the condition holds; no NaN comes through there."""
    return jnp.where(condition, jnp.zeros_like(x), x)
