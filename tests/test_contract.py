"""Hold every public function to the contract: what it computes, and how it behaves."""

import functools
import inspect
import operator
import re
import warnings

import chex
import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from absl.testing import parameterized
from contract import SINGLE, each_row
from jax.sharding import NamedSharding, PartitionSpec

import rlaxlib

ROWS = contract.collect()


# --- The table is complete. ---


def test_every_public_function_has_a_row():
    covered = {row.name for row in ROWS}
    assert sorted(set(contract.public_functions()) - covered) == []


@each_row()
def test_no_row_lacks_a_function(row):
    assert callable(row.function(rlaxlib))


def test_no_two_rows_are_the_same():
    assert len(ROWS) == len({row.id for row in ROWS})


# --- What the functions compute. ---


@each_row("defined")
def test_equals_its_definition(row):
    with contract.x64(True):
        function = jax.jit(row.call())
        for seed in range(3):
            inputs = row.inputs(seed, np.float64)
            tolerance = 1e-11 * row.scale(inputs)
            contract.assert_close(
                function(**inputs), row.define(inputs), 1e-11, tolerance
            )


@each_row("compared")
def test_equals_rlax_in_value(row, rlax):
    ours, theirs = jax.jit(row.call()), jax.jit(row.peer_call(rlax))
    for seed in range(2):
        inputs = peer_inputs(row, seed)
        tolerance = SINGLE * row.scale(inputs)
        contract.assert_close(ours(**inputs), theirs(**inputs), SINGLE, tolerance)


@each_row("compared", "differentiable")
def test_equals_rlax_in_gradient(row, rlax):
    inputs = peer_inputs(row, seed=0)
    for flag in row.flags:
        if flag in row.peer_gradient:
            continue
        ours = contract.gradient(row, row.call(**row.setting(flag)), inputs)
        theirs = contract.gradient(
            row, row.peer_call(rlax, **row.setting(flag)), inputs
        )
        for name in ours:
            size = max(1.0, np.abs(theirs[name]).max()) * row.scale(inputs)
            np.testing.assert_allclose(
                ours[name], theirs[name], 8 * SINGLE, SINGLE * size, err_msg=name
            )


@each_row("compared")
def test_takes_the_arguments_of_rlax_by_position(row, rlax):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = parameters((row.peer_of or row.function)(rlax))
    ours = parameters(row.function(rlaxlib))
    assert len(ours) >= len(theirs)
    for one, other in zip(ours, theirs, strict=False):
        assert one[:2] == other[:2]
        assert one[2] or not other[2]  # What may be left out there, may be here.


@each_row("key")
def test_takes_keys_of_both_kinds(row):
    inputs = row.inputs()
    old = inputs | {row.key: jax.random.key_data(inputs[row.key])}
    function = jax.jit(row.call())
    contract.assert_close(function(**inputs), function(**old), 0, 0)


@each_row("numbers")
def test_one_number_stands_for_an_array_full_of_it(row):
    inputs = row.inputs()
    for name in row.numbers:
        full = row.call()(**inputs | {name: jnp.full_like(inputs[name], 0.75)})
        for number in (0.75, np.float32(0.75), jnp.float32(0.75)):
            one = row.call()(**inputs | {name: number})
            contract.assert_close(one, full, SINGLE, SINGLE)


@each_row("over_devices")
def test_devices_give_what_one_device_gives(row):
    inputs = row.inputs()
    whole = row.call()(**inputs)
    function = functools.partial(row.over_devices(rlaxlib, "devices"), **row.settings)

    def on_each(x):
        return x.reshape(2, -1, *x.shape[1:])

    parts = jax.vmap(lambda x: function(**x), axis_name="devices")(
        jax.tree.map(on_each, inputs)
    )
    if np.ndim(whole):
        contract.assert_close(parts, on_each(whole), SINGLE, SINGLE)
    else:
        contract.assert_close(parts, jnp.stack([whole] * 2), SINGLE, SINGLE)


# --- How the functions behave under JAX. ---


GIVEN = [(re.sub(r"\W", "_", row.id), row) for row in ROWS if row.given]


class TestVariants(chex.TestCase):
    @chex.variants(
        without_jit=True, with_device=True, without_device=True, with_pmap=True
    )
    @parameterized.named_parameters(GIVEN)
    def test_is_the_same_in_every_variant(self, row):
        holds(row, self.variant)


@pytest.mark.optimized
class TestCompiled(chex.TestCase):
    @chex.variants(with_jit=True)
    @parameterized.named_parameters(GIVEN)
    def test_is_the_same_in_every_variant(self, row):
        holds(row, self.variant)


def test_there_are_devices_to_map_over():
    assert jax.device_count() >= 4


@each_row("given")
def test_vmap_equals_a_loop_over_the_batch(row):
    batch = [row.inputs(seed) for seed in range(3)]
    stacked = jax.tree.map(lambda *each: jnp.stack(each), *batch)
    function = jax.jit(row.call())
    outputs = jax.jit(jax.vmap(lambda x: function(**x)))(stacked)
    for i, inputs in enumerate(batch):
        tolerance = SINGLE * row.scale(inputs)
        one = jax.tree.map(operator.itemgetter(i), outputs)
        contract.assert_close(one, function(**inputs), SINGLE, tolerance)


@each_row("given")
def test_can_be_mapped_and_differentiated_on_devices_that_share_a_batch(row):
    # JAX sees as it traces whether what differs between devices meets what does not.
    inputs = row.inputs()
    if row.key is not None:
        inputs[row.key] = jax.random.key_data(inputs[row.key])
    devices = jax.device_count()
    batch = {name: jnp.stack([x] * devices) for name, x in inputs.items()}
    names = [name for name in row.moving if row.differentiable]

    def one(batch):
        def total(moved):
            function = row.call(**row.setting(row.flags[-1]))
            outputs = function(**batch | moved)
            return contract.weigh(outputs, 0), outputs

        return jax.grad(total, has_aux=True)({name: batch[name] for name in names})

    mesh, spec = jax.make_mesh((devices,), ("batch",)), PartitionSpec("batch")
    there = jax.shard_map(jax.vmap(one), mesh=mesh, in_specs=spec, out_specs=spec)
    batch = jax.device_put(batch, NamedSharding(mesh, spec))
    jax.eval_shape(jax.jit(there), batch)


@each_row("differentiable", "defined")
def test_gradient_is_the_slope_of_the_definition(row):
    along_all = contract.direction(row.inputs(), row.moving, seed=1)
    with contract.x64(True):
        inputs = row.inputs(dtype=np.float64)
        at = {name: contract.to_numpy(x) for name, x in inputs.items()}
        for flag in row.flags:
            found = contract.gradient(row, row.call(**row.setting(flag)), inputs)
            for name, along in along_all.items():
                expected = contract.slope(
                    lambda x, flag=flag, at=at: contract.weigh(
                        row.held(flag)(x, at), 0, np
                    ),
                    at,
                    {name: along},
                )
                actual = contract.project(found, {name: along})
                np.testing.assert_allclose(
                    actual,
                    expected,
                    rtol=1e-6,
                    atol=1e-7 * row.scale(inputs),
                    err_msg=f"{name}, flag {flag}",
                )


@each_row("twice_differentiable")
def test_derivatives_equal_finite_differences_in_both_modes_and_twice(row):
    with contract.x64(True):
        inputs = row.inputs(dtype=np.float64)
        moved = {name: inputs[name] for name in row.moving}
        fixed = {name: inputs[name] for name in inputs if name not in moved}
        function = row.call(**row.setting(False if row.stops else None))
        along = to_x64(contract.direction(inputs, row.moving, seed=1))
        towards = to_x64(contract.direction(inputs, row.moving, seed=2))

        def total(x):
            return contract.weigh(function(**x, **fixed), 0)

        def forward(x):
            return jax.jvp(total, (x,), (along,))[1]

        def backward(x):
            return inner(jax.grad(total)(x), along)

        def derivatives(x):
            return (
                total(x),
                forward(x),
                backward(x),
                inner(jax.grad(backward)(x), towards),
            )

        derivatives = jax.jit(derivatives)
        _, forwards, backwards, found = derivatives(moved)
        tolerance = 1e-7 * row.scale(inputs)
        expected = contract.slope(lambda x: derivatives(x)[0], moved, along)
        np.testing.assert_allclose(forwards, expected, 1e-6, tolerance)
        np.testing.assert_allclose(backwards, expected, 1e-6, tolerance)
        expected = contract.slope(lambda x: derivatives(x)[1], moved, towards)
        np.testing.assert_allclose(found, expected, 1e-6, tolerance)


@each_row("stops")
@pytest.mark.parametrize("traced", [False, True])
def test_gradient_of_targets_stops_if_and_only_if_the_flag_says_so(row, traced):
    inputs = row.inputs()
    moved = {name: inputs[name] for name in row.moving}
    fixed = {name: inputs[name] for name in inputs if name not in moved}

    def total(moved, flag):
        return contract.weigh(row.call(**row.setting(flag))(**moved, **fixed), 0)

    found = jax.jit(jax.grad(total), static_argnums=() if traced else 1)
    on, off = found(moved, True), found(moved, False)
    for name in moved:
        assert np.isfinite(on[name]).all()
        if name in row.targets:
            assert not np.any(on[name]), name
            assert np.any(off[name]), name


@each_row("stops")
def test_a_target_held_constant_costs_no_derivative(row):
    asked = []

    def backward(_, slope):
        asked.append(slope.shape)
        return (slope,)

    watched = jax.custom_vjp(lambda x: x)
    watched.defvjp(lambda x: (x, None), backward)
    inputs = row.inputs()
    moved = {name: inputs[name] for name in row.targets}

    def total(moved, flag):
        targets = {name: watched(x) for name, x in moved.items()}
        return contract.weigh(row.call(**row.setting(flag))(**inputs | targets), 0)

    jax.eval_shape(lambda x: jax.grad(total)(x, True), moved)
    assert asked == []
    jax.eval_shape(lambda x: jax.grad(total)(x, False), moved)
    assert len(asked) == len(moved)


@each_row("stops")
def test_a_flag_changes_no_value(row):
    inputs = row.inputs()
    tolerance = SINGLE * row.scale(inputs)

    def call(flag):
        return row.call(**row.setting(flag))(**inputs)

    off, on, traced = jax.jit(lambda flag: (call(False), call(True), call(flag)))(True)
    for actual in (on, traced):
        contract.assert_close(actual, off, SINGLE, tolerance)


@each_row("floats")
@pytest.mark.parametrize(
    ("dtype", "x64"),
    [
        (jnp.float16, False),
        (jnp.bfloat16, False),
        (jnp.float32, False),
        (jnp.float32, True),
        (jnp.float64, True),
    ],
    ids=["float16", "bfloat16", "float32", "float32 beside float64", "float64"],
)
def test_dtype_follows_the_arguments(row, dtype, x64):
    with contract.x64(x64):
        inputs = row.inputs(dtype=dtype)
        outputs = jax.tree.leaves(jax.eval_shape(row.call(), **inputs))
    for position, output in enumerate(outputs):
        if jnp.issubdtype(output.dtype, jnp.floating):
            wide = position in row.single_precision and jnp.finfo(dtype).bits < 32
            assert output.dtype == (jnp.float32 if wide else dtype)


@each_row("floats", "deterministic")
@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_half_precision_rounds_once(row, dtype):
    # Compiled, a CPU computes half precision in single: only step by step it shows.
    inputs = row.inputs(dtype=dtype)
    outputs = jax.tree.leaves(row.call()(**inputs))
    # The definition sees the rounded arguments; one more rounding is due at the end,
    # by at most half an eps.
    relative = 0.51 * float(jnp.finfo(dtype).eps)
    absolute = SINGLE * row.scale(inputs)
    contract.assert_close(outputs, row.define(inputs), relative, absolute)


@each_row("mixes")
def test_mixed_precision_gives_the_higher(row):
    inputs = row.inputs()
    mixes = [inputs | {name: inputs[name].astype(jnp.bfloat16)} for name in row.floats]
    function = row.call()
    with jax.numpy_dtype_promotion("standard"):
        found = jax.jit(lambda mixes: [function(**each) for each in mixes])(mixes)
    for name, mixed, outputs in zip(row.floats, mixes, found, strict=True):
        for output in jax.tree.leaves(outputs):
            if jnp.issubdtype(output.dtype, jnp.floating):
                assert output.dtype == jnp.float32, name
        if row.deterministic:
            tolerance = SINGLE * row.scale(mixed)
            contract.assert_close(outputs, row.define(mixed), SINGLE, tolerance)


@each_row()
def test_no_step_on_the_way_is_nan(row):
    inputs = row.inputs()
    function = row.call(**row.setting(row.flags[-1]))
    with jax.debug_nans(True):
        function(**inputs)
        if row.differentiable:
            contract.gradient(row, function, inputs)


# --- What the functions refuse. ---


@each_row("single", "given")
def test_points_a_batch_to_vmap(row):
    inputs = row.inputs()
    batch = {name: jnp.stack([x] * 3) for name, x in inputs.items()}
    with pytest.raises(rlaxlib.ArgumentError) as error:
        row.call()(**batch)
    message = str(error.value)
    assert message.startswith(row.name)
    assert any(f"`{name}`" in message for name in inputs)
    assert "jax.vmap" in message


@each_row("sized")
def test_refuses_a_wrong_length(row):
    inputs = row.inputs()
    for name in set(row.sized) - set(row.any_length):
        x = inputs[name]
        spare = 2 if name in row.spare else 1
        wrong = [jnp.concatenate([x, *[x[:1]] * spare])]
        if len(x) > 1 and name not in row.spreads:
            wrong.append(x[:1])  # It must not broadcast.
        for each in wrong:
            with contract.refused(row, name) as error:
                row.call()(**inputs | {name: each})
            assert f"{each.dtype}{list(each.shape)}" in str(error.value)
            shapes = re.findall(r"\[.*?\]", str(error.value))
            assert len(shapes) > 1, "Both the shape it has and the one it must have."


@each_row("picks", "differentiable")
def test_an_index_out_of_range_is_refused_or_gives_nan(row):
    inputs = row.inputs()
    function = jax.jit(row.call())
    for name in row.picks:
        for index in (-1, -100, 1000):
            wrong = inputs | {name: jnp.full_like(inputs[name], index)}
            with contract.refused(row, name) as error:
                row.call()(**wrong)
            assert f"`{name}` must be one of" in str(error.value)
            assert np.isnan(jax.tree.leaves(function(**wrong))[0]).any()


@each_row()
def test_refuses_a_wrong_dtype(row):
    inputs = row.inputs()
    for name in set(inputs) - set(row.any_dtype):
        x = inputs[name]
        other = jnp.ones(x.shape, jnp.int32 if contract.is_float(x) else jnp.float32)
        with contract.refused(row, name) as error:
            row.call()(**inputs | {name: other})
        assert f"`{name}`" in str(error.value)


@each_row()
def test_refuses_what_is_no_array(row):
    inputs = row.inputs()
    for name in set(inputs) - set(row.trees):
        for bad in ([1.0, 2.0], "text", None):
            if bad is None and name in row.optional:
                continue
            with contract.refused(row, name) as error:
                row.call()(**inputs | {name: bad})
            assert f"`{name}`" in str(error.value)


# --- What the tests share. ---


def holds(row, variant):
    """Assert that a function computes in a variant what it should."""
    inputs = row.inputs()
    if row.key is not None:
        inputs[row.key] = jax.random.key_data(inputs[row.key])
    function = row.call()
    outputs = variant(lambda x: jax.tree.leaves(function(**x)))(inputs)
    tolerance = SINGLE * row.scale(inputs)
    expected = row.define(inputs) if row.defined else function(**inputs)
    contract.assert_close(outputs, expected, SINGLE, tolerance)


def to_x64(arguments):
    return {name: jnp.asarray(x, jnp.float64) for name, x in arguments.items()}


def inner(x, y):
    return sum(jnp.sum(x[name] * y[name]) for name in y)


def peer_inputs(row, seed):
    if row.peer_make is None:
        return row.inputs(seed)
    return contract.to_jax(row.peer_make(np.random.default_rng(seed)), np.float32)


def parameters(function):
    """Return name, kind, and whether there is a default, of each argument."""
    return [
        (each.name, each.kind, each.default is not inspect.Parameter.empty)
        for each in inspect.signature(function).parameters.values()
    ]
