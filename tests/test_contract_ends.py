"""Test settings near the ends of their ranges: single precision equals double there.

A formula with a limit cancels near it, such as the logarithm of a mean of exponentials,
divided by a small number.
"""

import contract
import jax
import numpy as np
import pytest
from row import EXCEPTIONS

from rlaxlib._core.specs import Interval


def near_ends(row):
    """Yield the name of each number with a range, and a value near an end of it."""
    given = row.make(np.random.default_rng(0))
    for name, spec in row.specs.items():
        rules = [rule for rule in spec.rules if isinstance(rule, Interval)]
        is_number = spec.is_float and name in given and np.ndim(given[name]) == 0
        if not rules or not is_number or f"{row.name} {name}" in EXCEPTIONS["ends"]:
            continue
        low, high = (x if isinstance(x, float) else np.inf for x in rules[0][:2])
        for near in (1e-3, 1e-2):
            if low <= near <= high:
                yield name, near
            if high in (1, np.inf):
                yield name, 1 - near if high == 1 else 1 / near


ROWS = [
    row
    for row in contract.of_topic(contract.collect())
    if row.has_arguments and row.key is None and any(near_ends(row))
]


def evaluate(row, cases, dtype):
    """Return results and gradients of each case, in double precision."""
    with contract.x64(dtype == np.float64):
        program = jax.jit(lambda given: contract.gradient(row, row.call(), given))
        found = [program(contract.to_jax(each, dtype)) for each in cases]
    leaves = (jax.tree.leaves(each) for each in found)
    return [
        [np.asarray(x, np.float64) for x in each if contract.is_float(x)]
        for each in leaves
    ]


@pytest.mark.parametrize("row", contract.share(ROWS, "ends", 4), ids=lambda row: row.id)
def test_settings_near_the_ends_of_their_ranges_keep_the_precision(row):
    given = {name: np.asarray(x) for name, x in row.inputs().items()}
    ends = list(near_ends(row))
    cases = [{**given, name: np.float32(value)} for name, value in ends]
    both = (evaluate(row, cases, dtype) for dtype in (np.float32, np.float64))
    for (name, value), single, double in zip(ends, *both, strict=True):
        for one, other in zip(single, double, strict=True):
            finite = np.abs(other[np.isfinite(other)])
            atol = 1e-3 * np.max(finite, initial=0) + 1e-6
            message = f"{name} = {value}"
            np.testing.assert_allclose(one, other, 1e-3, atol, err_msg=message)


# --- Games of two players, whose next state is the opponent's: a discount of -1. ---


OF_STREAMS = [
    row
    for row in contract.of_topic(contract.collect())
    if "discount_t" in row.specs and row.deterministic and callable(row.definition)
]


@pytest.mark.parametrize(
    "row", [x for x in OF_STREAMS if "games" not in x.excused], ids=lambda x: x.id
)
def test_discounts_may_be_negative(row):
    given = row.make(np.random.default_rng(0))
    given["discount_t"] = -np.abs(given["discount_t"])
    host = {
        name: np.float32(x) if contract.is_float(x) else x for name, x in given.items()
    }
    found = row.call()(**host)
    expected = row.define(
        {n: np.float64(x) if contract.is_float(x) else x for n, x in host.items()}
    )
    contract.assert_close(found, expected, 1e-4, 1e-4 * row.scale(given))
