"""Test every public function under JAX: transformations, dtypes, devices, NaN."""

import inspect
import operator
import re

import chex
import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from absl.testing import parameterized
from contract import SINGLE, each_row
from jax.experimental import checkify
from jax.sharding import NamedSharding, PartitionSpec

ROWS = [row for row in contract.of_topic(contract.collect()) if row.has_arguments]
# `test_matrix.py` compares all of them in all transformations.
GIVEN = [(re.sub(r"\W", "_", row.id), row) for row in ROWS[::15]]


class TestVariants(chex.TestCase):
    @chex.variants(
        with_pmap=True,
        # Other tests compile as the first one does; the next three are eager calls, as
        # are the examples of all docstrings.
        with_jit=contract.TRUST,
        without_jit=contract.TRUST,
        with_device=contract.TRUST,
        without_device=contract.TRUST,
    )
    @parameterized.named_parameters(GIVEN)
    def test_is_the_same_in_every_variant(self, row):
        inputs = row.inputs()
        if row.key is not None:
            inputs[row.key] = jax.random.key_data(inputs[row.key])
        function = row.call()
        outputs = self.variant(lambda x: jax.tree.leaves(function(**x)))(inputs)
        tolerance = SINGLE * row.scale(inputs)
        expected = row.define(inputs) if row.defined else function(**inputs)
        contract.assert_close(outputs, expected, SINGLE, tolerance)


def test_there_are_devices_to_map_over():
    assert jax.device_count() >= 4


@each_row("has_arguments", "undefined")
def test_vmap_equals_a_loop_over_the_batch(row):
    # Functions with a definition are compared with it under vmap.
    each = [row.inputs(seed) for seed in range(3)]
    function = jax.jit(row.call())
    outputs = jax.jit(jax.vmap(lambda x: function(**x)))(contract.stack(each))
    for i, inputs in enumerate(each):
        tolerance = SINGLE * row.scale(inputs)
        one = jax.tree.map(operator.itemgetter(i), outputs)
        contract.assert_close(one, function(**inputs), SINGLE, tolerance)


@each_row("has_arguments", sample=True)
def test_can_be_mapped_and_differentiated_on_devices_that_share_a_batch(row):
    # Tracing alone finds carries that vary over devices while others do not.
    inputs = row.inputs()
    if row.key is not None:
        inputs[row.key] = jax.random.key_data(inputs[row.key])
    devices = jax.device_count()
    batch = contract.stack([inputs] * devices)

    def one(inputs):
        return contract.gradient(row, row.call(**row.setting(row.flags[-1])), inputs)

    mesh, spec = jax.make_mesh((devices,), ("batch",)), PartitionSpec("batch")
    there = jax.shard_map(jax.vmap(one), mesh=mesh, in_specs=spec, out_specs=spec)
    batch = jax.device_put(batch, NamedSharding(mesh, spec))
    try:
        jax.eval_shape(there, batch)
    except ValueError as error:
        if "Primitive polynomial requires varying" in str(error):
            pytest.xfail("JAX 0.12.0 itself cannot differentiate erf in shard_map")
        if row.id == "generalized_jsd" and jax.__version_info__ < (0, 7, 1):
            pytest.xfail("JAX 0.7.0 itself cannot differentiate logaddexp there")
        raise


@each_row("key", sample=True)
def test_no_key_is_used_twice(row):
    function = row.call()
    for call in (function, jax.jit(function)):
        inputs = row.inputs()  # A new key: each may be used once.
        with jax.debug_key_reuse(True):
            jax.block_until_ready(call(**inputs))


@each_row("twice_differentiable", sample=True)
def test_derivatives_equal_finite_differences_in_both_modes_and_twice(row):
    with contract.x64(True):
        inputs = row.inputs(dtype=np.float64)
        # In NumPy: JAX would compile the steps of the differences.
        moved = to_x64({name: inputs[name] for name in row.variables})
        fixed = {name: inputs[name] for name in inputs if name not in moved}
        function = row.call(**row.setting(False if row.has_flag else None))
        along = to_x64(contract.direction(inputs, row.variables, seed=1))
        towards = to_x64(contract.direction(inputs, row.variables, seed=2))

        def total(x):
            return contract.weigh(function(**x, **fixed), 0)

        def backward(x):
            return inner(jax.grad(total)(x), along)

        def derivatives(x):
            backwards, gradient = jax.value_and_grad(backward)(x)
            second = inner(gradient, towards)
            return *jax.jvp(total, (x,), (along,)), backwards, second

        derivatives = jax.jit(derivatives)
        _, forwards, backwards, found = derivatives(moved)
        tolerance = 1e-7 * row.scale(inputs)
        expected = contract.directional_derivative(
            lambda x: derivatives(x)[0], moved, along
        )
        np.testing.assert_allclose(forwards, expected, 1e-6, tolerance)
        np.testing.assert_allclose(backwards, expected, 1e-6, tolerance)
        expected = contract.directional_derivative(
            lambda x: derivatives(x)[1], moved, towards
        )
        np.testing.assert_allclose(found, expected, 1e-6, tolerance)


@each_row("has_flag", sample=True)
def test_a_traced_flag_stops_the_gradient_of_targets_and_changes_no_value(row):
    inputs = row.inputs()
    moved = {name: inputs[name] for name in row.variables}
    fixed = {name: inputs[name] for name in inputs if name not in moved}

    def total(moved, flag):
        outputs = row.call(**row.setting(flag))(**moved, **fixed)
        return contract.weigh(outputs, 0), outputs

    @jax.jit
    def program(moved, flag):
        found = jax.grad(total, has_aux=True)
        return found(moved, flag), found(moved, True), found(moved, False)

    for flag in (True, False):
        traced, on, off = program(moved, flag)
        contract.assert_close(
            traced, on if flag else off, SINGLE, SINGLE * row.scale(inputs)
        )
        contract.assert_close(on[1], off[1], SINGLE, SINGLE * row.scale(inputs))
        for name in moved:
            assert np.isfinite(on[0][name]).all()
            if name in row.gradients.targets:
                assert not np.any(on[0][name]), name
                assert np.any(off[0][name]), name


def promises_no_gradient(row):
    """Return whether the docstring says that the result has no gradient."""
    text = inspect.getdoc(row.annotated) or ""
    returns = text.partition("\nReturns:")[2].partition("\nRaises:")[0]
    pattern = r"(without a|; no)\s+gradient(, shape|[.;])"
    return re.search(pattern, returns) is not None


STOPPED = [row for row in contract.collect() if promises_no_gradient(row)]


@pytest.mark.parametrize(
    "row", contract.sampled(STOPPED, "stopped"), ids=lambda row: row.id
)
def test_a_result_without_a_gradient_has_none(row):
    inputs = row.inputs()
    moved = {name: inputs[name] for name in row.float_names}

    def total(moved):
        return contract.weigh(row.call()(**inputs | moved), 0)

    for name, gradient in jax.jit(jax.grad(total))(moved).items():
        assert not np.any(gradient), name


@each_row("has_flag", sample=True)
def test_a_stopped_target_has_no_backward_pass(row):
    asked = []

    def backward(_, cotangent):
        asked.append(cotangent.shape)
        return (cotangent,)

    watched = jax.custom_vjp(lambda x: x)
    watched.defvjp(lambda x: (x, None), backward)
    inputs = row.inputs()
    moved = {name: inputs[name] for name in row.gradients.targets}

    def total(moved, flag):
        targets = {name: watched(x) for name, x in moved.items()}
        return contract.weigh(row.call(**row.setting(flag))(**inputs | targets), 0)

    jax.eval_shape(lambda x: jax.grad(total)(x, True), moved)
    assert asked == []
    jax.eval_shape(lambda x: jax.grad(total)(x, False), moved)
    assert len(asked) == len(moved)


@each_row("float_names", sample=True)
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
            wide = (
                position in row.precision.single_outputs and jnp.finfo(dtype).bits < 32
            )
            assert output.dtype == (jnp.float32 if wide else dtype)
            assert not output.weak_type  # Of a state, it would compile twice.


@each_row("float_names", "deterministic", sample=True)
def test_half_precision_rounds_once(row):
    if "rounding" in row.excused:
        pytest.skip(row.excused["rounding"])
    # A compiled CPU program may keep half precision in float32; eager calls do not.
    function = jax.jit(
        row.call(), compiler_options={"xla_allow_excess_precision": False}
    )
    for dtype in contract.share([jnp.float16, jnp.bfloat16], row.id, parts=2):
        inputs = row.inputs(dtype=dtype)
        outputs = jax.tree.leaves(function(**inputs))
        # The definition has the rounded arguments. The result is rounded once more, by
        # at most half an eps.
        relative = 0.51 * float(jnp.finfo(dtype).eps)
        absolute = SINGLE * row.scale(inputs)
        contract.assert_close(outputs, row.define(inputs), relative, absolute)


@each_row("has_several_floats", sample=True)
def test_mixed_precision_gives_the_higher(row):
    inputs = row.inputs()
    # `test_contract_states.py` tests those that keep their dtype.
    floats = [name for name in row.float_names if name not in row.precision.carried]
    names = contract.share(floats, row.id, parts=len(floats))
    mixes = [inputs | {x: np.asarray(inputs[x], jnp.bfloat16)} for x in names]
    function = row.call()
    with jax.numpy_dtype_promotion("standard"):
        found = jax.jit(lambda mixes: [function(**each) for each in mixes])(mixes)
    for name, mixed, outputs in zip(names, mixes, found, strict=True):
        for output in jax.tree.leaves(outputs):
            if jnp.issubdtype(output.dtype, jnp.floating):
                assert output.dtype == jnp.float32, name
        if row.deterministic:
            tolerance = SINGLE * row.scale(mixed)
            contract.assert_close(outputs, row.define(mixed), SINGLE, tolerance)


@each_row(sample=True)
def test_no_intermediate_value_is_nan(row):
    function = row.call(**row.setting(row.flags[-1]))

    def program(inputs):
        return contract.gradient(row, function, inputs)

    checked = checkify.checkify(program, errors=checkify.nan_checks)
    error, _ = jax.jit(checked)(row.inputs())
    error.throw()


@each_row("multistep")
def test_no_index_is_out_of_range_where_steps_are_ignored(row):
    def program(inputs):
        steps = inputs.get("discount_t", next(iter(inputs.values())))
        mask = jnp.arange(len(steps)) % 2 > 0
        return row.call(**row.setting(row.flags[-1]))(**inputs, sample_mask=mask)

    checked = checkify.checkify(program, errors=checkify.index_checks)
    error, _ = jax.jit(checked)(row.inputs())
    error.throw()


# --- Helpers. ---


def to_x64(arguments):
    return {name: np.asarray(x, np.float64) for name, x in arguments.items()}


def inner(x, y):
    return sum(jnp.sum(x[name] * y[name]) for name in y)
