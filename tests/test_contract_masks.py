"""Test that ignored steps are as if deleted, in every function that takes a mask.

`test_contract_streams.py` tests it in multistep estimators.
"""

import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlaxlib

# Positions, among 4 more than there are steps, that are ignored: in front, behind, and
# between.
PLACES = ([0, 1, 2, 3], [-1, -2, -3, -4], [1, 2, 4, 5], [0, 3, 4, -1])


def mask_of(row):
    """Return the name of the mask of a row, and its shape."""
    drawn = row.make(np.random.default_rng(0))
    masks = [name for name in ("sample_mask", "mask") if name in drawn]
    if masks:
        return masks[0], drawn[masks[0]].shape
    signature = getattr(row.function(rlaxlib), "signature", None)
    if signature is None or "sample_mask" not in signature().specs:
        return None, ()
    wanted = signature().specs
    axes = wanted["sample_mask"].shapes[0]
    steps = [
        np.shape(x)[: np.ndim(x) + len(axes) - len(wanted[n].shapes[0])]
        for n, x in drawn.items()
        if n in wanted and wanted[n].shapes[0][: len(axes)] == axes
    ]
    return "sample_mask", min(steps, key=len)


def is_masked(row):
    """Return whether a row has a mask of steps, all of which are alike."""
    _, shape = mask_of(row)
    replaces = "replace" in row.name or row.key is not None
    return bool(shape) and not (row.multistep or replaces or "masks" in row.excused)


ROWS = [row for row in contract.collect() if is_masked(row)]


def widen(x, shape, kept, filler):
    """Return an array with its steps at the places that are kept."""
    if np.shape(x)[: len(shape)] != shape:
        return np.asarray(x)
    wide = np.full((*kept.shape, *x.shape[len(shape) :]), filler(x), x.dtype)
    wide[kept] = x.reshape(-1, *x.shape[len(shape) :])
    return wide


def make_kept(shape, places):
    """Return a mask of more steps, and of two more rows if there are rows."""
    kept = np.ones((*shape[:-1], shape[-1] + len(places)), bool)
    kept[..., places] = False
    if len(shape) > 1:  # Rows that are ignored throughout, in front and behind.
        kept = np.pad(kept, [(1, 1), *[(0, 0)] * (kept.ndim - 1)])
    return kept


def nothing(x):
    """Return what an ignored step may hold."""
    return {"f": np.nan, "i": 0, "b": False}[x.dtype.kind]


def results(row, name):
    """Return a function of arguments and a mask: its value, gradient and outputs."""
    function = row.call(**row.setting(False if row.has_flag else None))

    def valid(x, mask, pick):
        if x.shape[: mask.ndim] == mask.shape:
            return x.reshape(-1, *x.shape[mask.ndim :])[pick]
        if x.ndim and x.shape == mask.shape[1:]:  # A result for each time step.
            return x[np.unique(pick % mask.shape[-1])]
        return x.ravel()

    def run(inputs, mask, pick, weights):
        moved = {n: inputs[n] for n in row.variables}

        def total(moved):
            outputs = jax.tree.leaves(function(**inputs | moved | {name: mask}))
            # Of results for each step, those of the valid steps.
            found = [valid(x, mask, pick) for x in outputs]
            floats = [x.ravel() for x in found if contract.is_float(x)]
            pairs = zip(weights, floats, strict=False)
            value = sum((jnp.sum(w[: x.size] * x) for w, x in pairs), jnp.zeros(()))
            return value, (found, outputs)

        return jax.grad(total, has_aux=True)(moved)

    def compiled(inputs, mask, weights):
        pick = np.flatnonzero(mask)
        return jax.jit(lambda x, w: run(x, mask, pick, w))(inputs, weights)

    return compiled


@pytest.mark.parametrize("row", contract.sampled(ROWS, "masks"), ids=lambda x: x.id)
def test_ignored_steps_are_as_if_deleted(row):
    name, shape = mask_of(row)
    with contract.x64(True):
        drawn = row.make(np.random.default_rng(0))
        drawn.pop(name, None)
        weights = np.random.default_rng(1).normal(size=(9, 999))
        function = results(row, name)
        whole = np.ones(shape, bool)
        inputs = contract.to_jax(drawn, np.float64)
        gradient, (expected, _) = function(inputs, whole, weights)
        for places in contract.share(PLACES, row.id, parts=2):
            kept = make_kept(shape, places)
            wide = {
                n: widen(np.asarray(x), shape, kept, nothing) for n, x in drawn.items()
            }
            wide = contract.to_jax(wide, np.float64)
            slopes, (actual, outputs) = function(wide, kept, weights)
            contract.assert_close(actual, expected, 1e-9, 1e-9)
            for output in outputs:
                # Nothing is wrong with an ignored step of a trajectory.
                is_zero = row.name != "check_trajectory"
                if is_zero and output.shape[: kept.ndim] == kept.shape:
                    assert not np.any(np.asarray(output)[~kept])
            for moved, slope in slopes.items():
                right = np.asarray(gradient[moved])
                if slope.shape != right.shape:
                    right = widen(right, shape, kept, lambda _: 0.0)
                np.testing.assert_allclose(slope, right, 1e-7, 1e-9, err_msg=moved)


@pytest.mark.parametrize(
    "row",
    contract.sampled(ROWS, "nothing"),
    ids=lambda x: x.id,
)
def test_without_valid_steps_results_are_finite_and_have_no_gradient(row):
    name, shape = mask_of(row)
    drawn = row.make(np.random.default_rng(0))
    drawn.pop(name, None)
    nowhere = np.zeros(shape, bool)
    empty = {
        n: np.full_like(x, nothing(x)) if x.shape[: len(shape)] == shape else x
        for n, x in ((n, np.asarray(x)) for n, x in drawn.items())
    }
    function = results(row, name)
    inputs, weights = contract.to_jax(empty, np.float32), np.ones((9, 999), np.float32)
    gradient, (_, outputs) = function(inputs, nowhere, weights)
    for output in outputs:
        assert np.isfinite(np.asarray(output, float)).all()
        if output.shape[: nowhere.ndim] == shape:
            assert not np.any(output)
    for moved, slope in gradient.items():
        assert np.isfinite(slope).all(), moved
        if slope.shape[: len(shape)] == shape:
            assert not np.any(slope), moved
