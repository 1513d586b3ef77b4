"""Test that memory grows with each axis no faster than it need.

The program of values and gradients is compiled for an axis of two lengths, one twice
the other. Its temporary arrays may double; where all pairs of entries are compared they
may grow by four, and hold at most a few arrays of that size.
"""

import collections

import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from row import EXCEPTIONS

import rlaxlib
from rlaxlib._core import specs

LENGTH, ARRAYS = 256, 16

# Up to a whole chunk the number of tokens determines what is held.
CHUNKED = {("linear_token_log_probs", "T")}


def axes_of(row):
    """Return the names of axes, with the arrays that have them, and where."""
    found = collections.defaultdict(list)
    for name, x in row.make(np.random.default_rng(0)).items():
        shapes = row.specs[name].shapes if name in row.specs else ()
        for shape in shapes:
            if len(shape) != np.ndim(x) or any(map(specs.is_many, shape)):
                continue
            for place, axis in enumerate(shape):
                base, extra = specs.split(axis)
                if base.isidentifier() and base not in row.settings:
                    found[base].append((name, place, extra))
            break
    return found


def temporary(row, places, length):
    """Return the bytes of temporary arrays for an axis of a length."""
    given = contract.to_jax(row.make(np.random.default_rng(0)), np.float32)
    given |= {} if row.key is None else {row.key: jax.random.key(0)}
    shapes = {name: list(jnp.shape(x)) for name, x in given.items()}
    for name, place, extra in places:
        shapes[name][place] = length + extra
    inputs = {
        name: jax.ShapeDtypeStruct(tuple(shapes[name]), x.dtype)
        for name, x in given.items()
    }
    program = jax.jit(lambda inputs: contract.gradient(row, row.call(), inputs))
    return program.lower(inputs).compile().memory_analysis().temp_size_in_bytes


CASES = [
    pytest.param(row, axis, places, id=f"{row.id}-{axis}")
    for row in contract.collect()
    if row.has_arguments
    for axis, places in axes_of(row).items()
    if (row.name, axis) not in CHUNKED
]


@pytest.mark.trust
@pytest.mark.parametrize(("row", "axis", "places"), contract.share(CASES, "memory"))
def test_memory_doubles_with_the_length_of_an_axis(row, axis, places):
    try:
        one, two = (temporary(row, places, length) for length in (LENGTH, 2 * LENGTH))
    except rlaxlib.ArgumentError:
        pytest.skip("an array that fits several axes determines this one")
    if f"{row.name} {axis}" in EXCEPTIONS["pairs"]:
        assert two <= 4 * ARRAYS * (2 * LENGTH) ** 2
    else:
        assert two <= 2.2 * one + 4 * 64 * LENGTH
