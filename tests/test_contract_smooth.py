"""Test that no guard changes anything where the plain expression is right.

Arguments pass through zeros, ties and the bounds of their ranges. Where a value or a
derivative has the same limit on both sides, it is that at the point itself, too. A
guard that chooses a constant at the point, or clips to one, breaks it.
"""

import zlib

import contract
import jax
import numpy as np
import pytest

from rlaxlib._core.specs import Interval

STEP = 1e-4
BETWEEN = (-2.0, -1.0, 0.0, 1.0, 2.0)
FROM_BOUND = (2.0, 1.0, 0.0, 1.0, 2.0)  # Of each side the same.


def rules_of(row, name):
    return row.specs[name].rules if name in row.specs else ()


def range_of(row, name):
    """Return the bounds that the signature states for an argument."""
    rules = [rule for rule in rules_of(row, name) if isinstance(rule, Interval)]
    if not rules:
        return -np.inf, np.inf
    low, high, *is_closed = rules[0]
    ends = zip((low, high), is_closed, strict=True)
    return [x if closed and isinstance(x, float) else np.nan for x, closed in ends]


def points(row, inputs):
    """Yield arguments at a point, the argument that moves, and a direction of it."""
    rng = np.random.default_rng(zlib.crc32(row.id.encode()))
    floats = [name for name in row.variables if np.size(inputs[name])]
    for name in floats:
        x, (low, high) = inputs[name], range_of(row, name)
        is_special = bool(rules_of(row, name))
        entry = tuple(rng.integers(size) for size in x.shape)
        one = np.zeros_like(x)
        one[entry] = 1.0
        noise = rng.normal(size=x.shape)
        if low <= 0 <= high:
            yield at(inputs, name, np.where(one, 0.0, x)), name, one, low == 0
            inward = np.abs(noise) if low == 0 else noise
            yield at(inputs, name, 0 * x), name, inward, low == 0
        if low <= 1 == high:
            yield at(inputs, name, np.where(one, 1.0, x)), name, -one, True
        if x.size > 1 and not is_special:
            yield at(inputs, name, np.full_like(x, 0.3)), name, noise, False
        for other in floats:
            alike = inputs[other].shape == x.shape and not is_special
            if other > name and alike and not rules_of(row, other):
                yield at(inputs, name, inputs[other]), name, noise, False


def at(inputs, name, x):
    return inputs | {name: np.asarray(x)}


def program_of(row, call):
    """Compile values and derivatives as a function of arguments and a direction."""

    @jax.jit
    @jax.vmap
    def program(inputs, moved):
        free = {each: inputs[each] for each in row.variables}

        def outputs(free):
            found = jax.tree.leaves(call(**inputs | free))
            return [x for x in found if contract.is_float(x)]

        def gradient(free):
            return jax.grad(lambda free: contract.weigh(outputs(free), 0))(free)

        if row.twice_differentiable:
            first, second = jax.jvp(gradient, (free,), (moved,))
        else:
            first, second = gradient(free), {}
        return outputs(free), first, second

    return program


def assert_continuous(found, label):
    """Compare the third of five results with the limits from both sides."""
    with np.errstate(invalid="ignore"):
        left, right = 2 * found[1] - found[0], 2 * found[3] - found[4]
        scale = 1 + np.max(np.abs(found[[0, 1, 3, 4]]), initial=0)
        spread = np.max(np.abs(left - right) + np.ptp(found[:2], 0), initial=0)
        distance = np.max(np.abs(found[2] - left), initial=0)
    has_limit = spread < 1e-2 * scale
    assert not has_limit or distance <= 10 * spread + 1e-6 * scale, label


ROWS = [
    row
    for row in contract.collect()
    if row.gradients.exist and row.key is None and row.variables
    if "smooth" not in row.excused and row.specs
]


@pytest.mark.parametrize(
    ("row", "flag"),
    [(row, row.flags[-1]) for row in contract.sampled(ROWS, "smooth")],
    ids=lambda x: getattr(x, "id", ""),
)
def test_values_and_derivatives_are_continuous_at_zeros_ties_and_bounds(row, flag):
    with contract.x64(True):
        given = row.inputs(dtype=np.float64)
        inputs = {n: np.asarray(x) for n, x in given.items()}
        call = row.call(**row.setting(flag))
        program = program_of(row, call)
        for point, name, along, is_bound in points(row, inputs):
            label = name, point[name].tolist(), along.tolist()
            steps = STEP * np.array(FROM_BOUND if is_bound else BETWEEN)
            moved = {n: np.zeros_like(inputs[n]) for n in row.variables}
            batch, along_all = contract.stack([point] * 5), contract.stack([moved] * 5)
            batch[name] = batch[name] + np.multiply.outer(steps, along)
            along_all[name] = np.stack([along] * 5)
            results = program(batch, along_all)
            for order, of in zip(("value", "first", "second"), results, strict=True):
                for path, x in jax.tree_util.tree_leaves_with_path(of):
                    where = (*label, order, jax.tree_util.keystr(path))
                    assert_continuous(np.asarray(x, np.float64), where)
