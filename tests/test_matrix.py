"""Test every row in every transformation, precision and strict mode of JAX.

These tests run by `make trust` alone. `test_contract*.py` test float64 against the
definitions; here half and single precision must agree with them in all transformations.
Derivatives are compared with those of double precision; they are transformed in the
lower of both, where most is converted.
"""

import contextlib
import functools
import re
import zlib

import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import SINGLE
from jax.sharding import NamedSharding, PartitionSpec

# A program has two precisions at once: of both of half precision, a row has one.
HALVES, SINGLES, DOUBLES = ("bfloat16", "float16"), ("float32",), ("float64",)


def each_row(*attributes):
    """Run a test on every row, by `make trust` alone."""

    def decorate(test):
        test = contract.each_row(*attributes)(test)
        if not contract.TRUST:
            test.pytestmark = [pytest.mark.skip(reason="`make trust` runs it")]
        return test

    return decorate


@each_row("has_arguments")
def test_value_is_the_same_in_every_transformation(row):
    define = row.define if row.deterministic else lambda inputs: row.call()(**inputs)
    dtypes = precisions(row)
    with strict(dtypes):
        each = [inputs_of(row, dtypes, seed) for seed in range(4)]
        expected = {
            dtype: stack(contract.leaves(define(x[dtype])) for x in each)
            for dtype in dtypes
        }
        programs = [("", each)]
        if row.key is not None:
            programs.append(("raw", [with_raw_keys(row, x) for x in each]))
        for kind, inputs in programs:
            for name, outputs in transformed(row, inputs):
                for dtype in dtypes:
                    close = tolerance(row, dtype, [x[dtype] for x in each])
                    with noted(f"{name} {kind}, {dtype}"):
                        contract.assert_close(outputs[dtype], expected[dtype], *close)


@each_row("gradients.exist")
def test_derivatives_are_the_same_in_every_transformation(row):
    dtypes = precisions(row)
    # Samples of half precision are those of single precision, not of double.
    above = "float64" if row.key is None else "float32"

    def every(flag, few, inputs):
        return {
            dtype: derivatives(row, flag, dtype, x, few=few or dtype != dtypes[0])
            for dtype, x in inputs.items()
        }

    for flag in row.flags:
        few = flag != row.flags[-1]
        with strict(dtypes):
            inputs = inputs_of(row, dtypes)
            found = jax.jit(functools.partial(every, flag, few))(inputs)
        with strict((above,)):
            higher = {dtype: cast_all(x, above) for dtype, x in inputs.items()}
            expected = jax.jit(functools.partial(every, flag, True))(higher)
        for dtype, each in found.items():
            relative, absolute = tolerance(row, dtype, [inputs[dtype]])
            for name, derivative in each.items():
                with noted(f"{name}, flag {flag}, {dtype}"):
                    other = expected[dtype][name.split(" ")[0]]
                    size = max(1.0, *(np.abs(x).max() for x in jax.tree.leaves(other)))
                    contract.assert_close(derivative, other, relative, absolute * size)


@each_row()
def test_strict_flags_change_no_program(row):
    if row.name in ("check_answers", "check_trajectory"):
        pytest.skip("JAX numbers the errors of all programs")

    def traced(dtype):
        inputs = inputs_of(row, (dtype,))[dtype]
        programs = [jax.make_jaxpr(row.call())(**inputs)]
        if row.gradients.exist:
            total = problem(row, row.flags[-1], dtype, inputs)[1]
            moved = {name: inputs[name] for name in row.variables}
            programs.append(jax.make_jaxpr(jax.grad(total))(moved))
        return re.sub("0x[0-9a-f]+", "", str(programs))  # Addresses of functions.

    for dtype in HALVES + SINGLES + DOUBLES:
        with strict((dtype,)):
            expected = traced(dtype)
        with (
            contract.x64((dtype,) == DOUBLES),
            jax.numpy_dtype_promotion("standard"),
            jax.numpy_rank_promotion("allow"),
        ):
            assert traced(dtype) == expected, dtype


@each_row("defined", "has_arguments")
def test_value_equals_the_definition_for_200_random_arguments(row):
    with strict(DOUBLES):
        each = [row.inputs(seed, jnp.float64) for seed in range(200)]
        function = jax.jit(jax.vmap(lambda inputs: row.call()(**inputs)))
        outputs = contract.leaves(function(stack(each)))
        close = tolerance(row, "float64", each)
        for seed, inputs in enumerate(each):
            with noted(f"seed {seed}"):
                found = [np.array(output[seed]) for output in outputs]
                contract.assert_close(found, row.define(inputs), *close)


# --- Transformations. ---


def transformed(row, each):
    """Yield the outputs of all precisions for four examples, computed in every way."""
    batch = stack(each)
    mesh, spec = jax.make_mesh((4,), ("batch",)), PartitionSpec("batch")

    def function(inputs):
        return {dtype: row.call()(**x) for dtype, x in inputs.items()}

    yield "eager", stack(map(function, each))
    yield "jit", stack(map(jax.jit(function), each))
    yield "pmap", jax.pmap(function)(batch)
    there = jax.shard_map(jax.vmap(function), mesh=mesh, in_specs=spec, out_specs=spec)
    yield "shard_map", jax.jit(there)(jax.device_put(batch, NamedSharding(mesh, spec)))

    def mapped(batch):
        pairs = jax.tree.map(lambda x: x.reshape(2, 2, *x.shape[1:]), batch)
        nested = jax.vmap(jax.vmap(function))(pairs)
        return {
            "vmap": jax.vmap(function)(batch),
            "nested vmap": jax.tree.map(lambda x: x.reshape(4, *x.shape[2:]), nested),
            "scan": jax.lax.scan(lambda _, x: (None, function(x)), None, batch)[1],
            "checkpoint": jax.vmap(jax.checkpoint(function))(batch),
        }

    yield from jax.jit(mapped)(batch).items()


def derivatives(row, flag, dtype, inputs, few=False):
    """Differentiate in every way; all that begin with the same word are equal."""
    outputs, total = problem(row, flag, dtype, inputs)
    x = {name: inputs[name] for name in row.variables}
    along = contract.direction(inputs, row.variables, seed=1)
    along = {name: rounded(v, dtype, x[name].dtype) for name, v in along.items()}
    gradient = jax.grad(total)

    def twice(x):
        return jax.lax.scan(lambda sum, _: (sum + total(x), None), 0.0, length=2)[0]

    def slope(x):
        return sum(jnp.sum(g * along[name]) for name, g in gradient(x).items())

    found = {"gradient": gradient(x)}
    if row.twice_differentiable:
        found["jvp"] = jax.jvp(outputs, (x,), (along,))[1]
        found["second"] = jax.jvp(gradient, (x,), (along,))[1]
    if few:
        return found
    scanned = jax.lax.map(gradient, stack([x, x]))
    found |= {
        "gradient of a checkpoint": jax.grad(jax.checkpoint(total))(x),
        "gradient of a scan": jax.tree.map(lambda g: g / 2, jax.grad(twice)(x)),
        "gradient in a scan": jax.tree.map(lambda g: g[1], scanned),
        "gradient under vmap": unstack(jax.vmap(gradient)(stack([x, x]))),
    }
    if row.twice_differentiable:
        found["jvp linearized"] = jax.linearize(outputs, x)[1](along)
        found["second in reverse"] = jax.grad(slope)(x)
    return found


def problem(row, flag, dtype, inputs):
    """Return the floats of a function's outputs, and their sum with random weights."""
    function = row.call(**row.setting(flag))
    fixed = {name: inputs[name] for name in inputs if name not in row.variables}

    def outputs(x):
        return list(filter(contract.is_float, jax.tree.leaves(function(**x, **fixed))))

    def total(x):
        rng = np.random.default_rng(0)
        weighed = [
            jnp.sum(rounded(rng.normal(size=y.shape), dtype, y.dtype) * y)
            for y in outputs(x)
        ]
        return sum(cast(each, wide(each.dtype)) for each in weighed)

    return outputs, total


# --- Helpers. ---


@contextlib.contextmanager
def strict(dtypes):
    """Reject implicit promotion, broadcasting, NaN, and invalid programs."""
    with (
        contract.x64(dtypes == DOUBLES),
        jax.numpy_dtype_promotion("strict"),
        jax.numpy_rank_promotion("raise"),
        jax.debug_nans(True),
        jax.enable_checks(True),
    ):
        yield


def inputs_of(row, dtypes, seed=0):
    """Return the arguments in several precisions."""
    return {dtype: row.inputs(seed, jnp.dtype(dtype)) for dtype in dtypes}


def with_raw_keys(row, inputs):
    """Return the same arguments with keys that are arrays of integers."""
    return {
        dtype: x | {row.key: jax.random.key_data(x[row.key])}
        for dtype, x in inputs.items()
    }


@contextlib.contextmanager
def noted(name):
    try:
        yield
    except BaseException as failure:
        failure.add_note(f"It fails here: {name}.")
        raise


def tolerance(row, dtype, each):
    """Return relative and absolute tolerances: half precision rounds once."""
    eps = float(jnp.finfo(dtype).eps)
    scale = max(map(row.scale, each))
    if dtype == "float64":
        return 1e-11, 1e-11 * scale
    if dtype == "float32":
        return SINGLE, SINGLE * scale
    return (0.51 if row.deterministic else 1.01) * eps, SINGLE * scale


def wide(dtype):
    return jnp.float64 if dtype == jnp.float64 else jnp.float32


def precisions(row):
    """Return the precisions of a program, the lowest first."""
    half = HALVES[zlib.crc32(row.id.encode()) % 2]
    return (half,) * ("rounding" not in row.excused) + SINGLES


def cast(x, dtype):
    return x.astype(dtype) if contract.is_float(x) else x


def cast_all(inputs, dtype):
    return {name: cast(x, dtype) for name, x in inputs.items()}


def rounded(x, dtype, to):
    """Return an array in one precision with the values of another."""
    return jnp.asarray(x, dtype).astype(to)


def stack(each):
    return jax.tree.map(lambda *x: jnp.stack(x), *each)


def unstack(batch):
    return jax.tree.map(lambda x: x[-1], batch)
