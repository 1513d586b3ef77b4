"""Test truncation and masks in every multistep estimator."""

import functools

import contract
import jax
import jax.numpy as jnp
import numpy as np
from contract import SINGLE, each_row
from jax.sharding import NamedSharding, PartitionSpec

from rlaxlib._core import recurrence

# Steps after which the stream is truncated (x), and valid steps (1).
STREAMS = [
    ("..x...", "111111"),
    ("x....x", "111111"),
    ("xxxxxx", "111111"),
    ("......", "110111"),
    ("......", "001110"),
    ("..x...", "110111"),
    ("..x...", "110011"),
    ("x.x..x", "011010"),
    ("....x.", "111000"),
    ("x.....", "000100"),
]


def read(stream):
    cuts, valid = stream
    return np.array([c == "x" for c in cuts]), np.array([c == "1" for c in valid])


def stream_rows(row, seed=0):
    return contract.to_jax(
        (row.stream.make or row.make)(np.random.default_rng(seed)), float
    )


def with_masks(row):
    """Return a row's function of arrays and masks, with no gradient stopped."""
    function = row.call(**row.setting(False))

    def masked(rows, truncated, mask):
        inputs = row.stream.assemble(rows, jnp)
        return function(**inputs, truncated_t=truncated, sample_mask=mask)

    return masked


def poison(rows, where):
    """Set all floats of some steps to NaN, and all integers to -1."""

    def spoiled(x):
        bad = np.asarray(np.nan if contract.is_float(x) else -1, x.dtype)
        x = np.where(where.reshape(-1, *[1] * (x.ndim - 1)), bad, x)
        return jax.device_put(x)

    return {name: spoiled(x) if x.ndim else x for name, x in rows.items()}


def row_gradient(function, rows, truncated, mask, until=contract.STEPS):
    """Return the gradient of a weighted sum of the first outputs, and all outputs."""
    moved = {name: x for name, x in rows.items() if contract.is_float(x)}

    def total(moved):
        outputs = function(rows | moved, truncated, mask)
        first = jax.tree.map(lambda x: x[:until], outputs)
        return contract.weigh(first, 0), outputs

    return jax.grad(total, has_aux=True)(moved)


def derivative_of_stream(row, rows, truncated, mask, along, until=contract.STEPS):
    at = {name: np.array(x) for name, x in rows.items()}

    def total(rows):
        outputs = contract.define_stream(row, rows, truncated, mask)
        return contract.weigh([x[:until] for x in outputs], 0, np)

    return contract.directional_derivative(total, at, along)


@each_row("multistep")
def test_cuts_join_streams_and_masked_steps_are_as_if_deleted(row):
    with contract.x64(True):
        rows = stream_rows(row)
        function = jax.jit(functools.partial(row_gradient, with_masks(row)))
        names = tuple(name for name, x in rows.items() if contract.is_float(x))
        along = contract.direction(rows, names, seed=1)
        for stream in STREAMS:
            truncated, mask = read(stream)
            gradient, actual = function(poison(rows, ~mask), truncated, mask)
            expected = contract.define_stream(row, rows, truncated, mask)
            contract.assert_close(actual, expected, 1e-11, 1e-11)
            gradient = jax.tree.map(np.asarray, gradient)
            for name, each in gradient.items():
                assert np.isfinite(each).all(), (stream, name)
                assert each.ndim == 0 or not np.any(each[~mask]), (stream, name)
            actual = contract.project(gradient, along)
            expected = derivative_of_stream(row, rows, truncated, mask, along)
            np.testing.assert_allclose(actual, expected, 1e-6, 1e-7, err_msg=stream)
        nowhere = np.zeros(contract.STEPS, bool)
        for each in jax.tree.leaves(function(poison(rows, ~nowhere), nowhere, nowhere)):
            np.testing.assert_array_equal(each, np.zeros_like(each))


@each_row("multistep", sample=True)
def test_one_mask_alone_cuts_or_deletes(row):
    with contract.x64(True):
        rows = stream_rows(row)
        function = jax.jit(with_masks(row))
        for stream in (STREAMS[0], STREAMS[4]):
            truncated, mask = read(stream)
            masks = (truncated, None) if mask.all() else (None, mask)
            expected = contract.define_stream(row, rows, truncated, mask)
            actual = function(poison(rows, ~mask), *masks)
            contract.assert_close(actual, expected, 1e-11, 1e-11)


@each_row("multistep", sample=True)
def test_nan_in_masked_steps_does_not_spread_where_0_times_nan_is_nan(row):
    # Algebraic simplification may turn `0 * NaN` into 0.
    truncated, mask = read(("..x...", "110111"))
    rows = stream_rows(row)
    expected = contract.define_stream(row, rows, truncated, mask)
    function = with_masks(row)

    def program(rows, truncated, mask):
        gradient, outputs = row_gradient(function, rows, truncated, mask)
        mapped = jax.vmap(lambda rows: function(rows, truncated, mask))
        alone = jax.tree.map(lambda x: x[None], outputs)
        return gradient, alone, mapped(jax.tree.map(lambda x: x[None], rows))

    # XLA needs it to compile the gradient of `jnp.pad`.
    compiled = "n_step" not in row.name
    if compiled:
        options = {"xla_disable_hlo_passes": "algsimp"}
        program = jax.jit(program, compiler_options=options)
    with jax.disable_jit(not compiled):
        gradient, *results = program(poison(rows, ~mask), truncated, mask)
    for each in gradient.values():
        np.testing.assert_array_equal(np.isfinite(each), True)
    for outputs in results:
        found = [x[0] for x in jax.tree.leaves(outputs)]
        contract.assert_close(found, expected, SINGLE, SINGLE * row.scale(rows))


@each_row("multistep", sample=True)
def test_nan_after_a_cut_does_not_reach_earlier_steps(row):
    truncated, every = read(("..x...", "111111"))
    before = np.arange(contract.STEPS) < 3
    with contract.x64(True):
        rows = stream_rows(row)
        bad = poison(rows, ~before)
        # The gradient of a scalar for all steps has contributions from later steps.
        names = [name for name, x in rows.items() if contract.is_float(x) and x.ndim]
        along = contract.direction(rows, tuple(names), seed=1)
        along = {name: np.where(before, x.T, 0).T for name, x in along.items()}
        function = jax.jit(
            functools.partial(row_gradient, with_masks(row), until=contract.STEPS // 2)
        )
        for mask in (None, np.array([True, False, True, True, True, True])):
            kept = every if mask is None else mask
            gradient, outputs = jax.tree.map(np.asarray, function(bad, truncated, mask))
            expected = contract.define_stream(row, rows, truncated, kept)
            first = [x[:3] for x in jax.tree.leaves(outputs)]
            contract.assert_close(first, [x[:3] for x in expected], 1e-11, 1e-11)
            slope = derivative_of_stream(row, rows, truncated, kept, along, until=3)
            gradient = {name: np.where(before, gradient[name].T, 0).T for name in names}
            actual = contract.project(gradient, along)
            np.testing.assert_allclose(actual, slope, 1e-6, 1e-7)


@each_row("multistep")
def test_nan_after_an_end_does_not_reach_earlier_steps(row):
    rows = stream_rows(row)
    steps = np.arange(contract.STEPS)
    for name in {"discount_t", "discount", "a"} & rows.keys():
        rows[name] = jnp.where(steps == 2, 0, rows[name])
    function = jax.jit(with_masks(row))
    first = [
        [x[:3] for x in jax.tree.leaves(function(each, None, None))]
        for each in (poison(rows, steps > 2), rows)
    ]
    contract.assert_close(*first, SINGLE, SINGLE * row.scale(rows))


@each_row("multistep", sample=True)
def test_trivial_masks_change_nothing(row):
    inputs = row.inputs()
    nowhere = np.zeros(contract.STEPS, bool)
    plain = row.call(**row.setting(False))
    masked = functools.partial(plain, truncated_t=nowhere, sample_mask=~nowhere)
    tolerance = SINGLE * row.scale(inputs)

    @jax.jit
    def both(x):
        return [contract.gradient(row, f, x) for f in (masked, plain)]

    found, expected = both(inputs)
    contract.assert_close(found, expected, SINGLE, tolerance)


@each_row("multistep", sample=True)
def test_the_associative_scan_equals_the_definition(row, monkeypatch):
    """A CPU runs a loop, other devices an associative scan."""
    monkeypatch.setattr(recurrence, "_solve", recurrence._associative_scan)
    # With a setting of its own, JAX does not use programs that it traced before.
    with contract.x64(True), jax.default_matmul_precision("highest"):
        rows = stream_rows(row)
        names = tuple(name for name, x in rows.items() if contract.is_float(x))
        along = contract.direction(rows, names, seed=1)
        function = jax.jit(functools.partial(row_gradient, with_masks(row)))
        everywhere = np.ones(contract.STEPS, bool)
        for truncated, mask in ((None, None), *map(read, STREAMS[-5:-2])):
            cuts = ~everywhere if truncated is None else truncated
            kept = everywhere if mask is None else mask
            gradient, outputs = function(poison(rows, ~kept), truncated, mask)
            expected = contract.define_stream(row, rows, cuts, kept)
            contract.assert_close(outputs, expected, 1e-10, 1e-10)
            slope = derivative_of_stream(row, rows, cuts, kept, along)
            actual = contract.project(gradient, along)
            np.testing.assert_allclose(actual, slope, 1e-6, 1e-7)


@each_row("multistep")
def test_rejects_masks_of_a_wrong_length_or_dtype(row):
    inputs = row.inputs()
    for name in ("truncated_t", "sample_mask"):
        for bad in (
            np.ones(7, bool),
            np.ones(6, np.float32),
            np.ones(6, np.int32),
            True,
        ):
            with contract.refused(row, name):
                row.call()(**inputs, **{name: bad})


@each_row("multistep", sample=True)
def test_a_batch_over_devices_equals_one_on_a_single_device(row):
    streams = [row.inputs(seed) for seed in range(jax.device_count())]
    batch = contract.stack(streams)
    mesh, spec = (
        jax.make_mesh((jax.device_count(),), ("batch",)),
        PartitionSpec("batch"),
    )
    here = jax.vmap(lambda inputs: row.call()(**inputs))
    there = jax.shard_map(here, mesh=mesh, in_specs=spec, out_specs=spec)

    def total(function, moved, batch):
        outputs = function(batch | moved)
        return sum(jnp.sum(jnp.sin(x)) for x in jax.tree.leaves(outputs)), outputs

    names = [name for name in batch if contract.is_float(batch[name])]
    results = []
    for function, inputs in (
        (here, batch),
        (there, jax.device_put(batch, NamedSharding(mesh, spec))),
    ):
        moved = {name: inputs[name] for name in names}
        gradient = jax.grad(functools.partial(total, function), has_aux=True)
        results.append(jax.jit(gradient)(moved, inputs))
    contract.assert_close(
        results[1], results[0], SINGLE, SINGLE * row.scale(streams[0])
    )
