"""Test that streams of thousands of steps keep their precision.

Powers such as :math:`γ^T` and products of ratios underflow or overflow, and sums lose
precision. Values and gradients in single precision are compared with those in double.
"""

import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest

REPEATS = 200
TIMES = ("T", "T+1")


def axis_of(row, name, x):
    """Return the time axis of an argument, or None."""
    shapes = row.specs[name].shapes if name in row.specs else ()
    for shape in shapes:
        for time in TIMES:
            if len(shape) == np.ndim(x) and time in shape:
                return shape.index(time), time
    return None


def repeated(row):
    """Return arguments of which all time steps occur many times, without an end."""
    arguments = row.make(np.random.default_rng(0))
    for name, x in arguments.items():
        if (found := axis_of(row, name, x)) is None:
            continue
        axis, time = found
        steps = np.delete(x, -1, axis) if time == "T+1" else x
        last = [np.take(x, [-1], axis)] * (time == "T+1")
        arguments[name] = np.concatenate([steps] * REPEATS + last, axis)
        if name.startswith("discount"):
            arguments[name] = np.where(arguments[name] == 0, 0.99, arguments[name])
    return arguments


def evaluate(row, dtype):
    """Return outputs, and gradients of their mean."""
    arguments = repeated(row)
    exact = jax.default_matmul_precision("highest")
    with contract.x64(dtype == np.float64), exact:
        given = contract.to_jax(arguments, dtype)
        given |= {} if row.key is None else {row.key: jax.random.key(0)}
        moving = row.variables

        def total(moved):
            outputs = row.call()(**given | moved)
            floats = [x for x in jax.tree.leaves(outputs) if contract.is_float(x)]
            return sum(jnp.mean(x) for x in floats), outputs

        moved = {name: given[name] for name in moving}
        if not moving:
            return contract.leaves(jax.jit(lambda: total({})[1])())
        gradient = jax.jit(jax.grad(total, has_aux=True))
        return contract.leaves(gradient(moved))


def rows():
    """Return the rows with a time axis, or those of a sixth of the functions."""
    long = [
        row
        for row in contract.collect()
        if any(axis_of(row, *x) for x in row.make(np.random.default_rng(0)).items())
        and "long" not in row.excused
        and "sample_mask" not in row.settings
    ]
    return [pytest.param(row, id=row.id) for row in contract.sampled(long, __name__)]


@pytest.mark.parametrize("row", rows())
def test_values_and_gradients_of_long_streams_are_those_in_double_precision(row):
    single, double = evaluate(row, np.float32), evaluate(row, np.float64)
    for one, other in zip(single, double, strict=True):
        size = np.max(np.abs(other), initial=0.0)
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4 * size + 1e-30)
