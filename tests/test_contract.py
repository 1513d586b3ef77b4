"""Test every public function: values, gradients, and invalid arguments."""

import functools
import inspect
import warnings

import annotations
import contract
import jax
import jax.numpy as jnp
import new_row
import numpy as np
import pytest
from contract import SINGLE, each_row
from row import EXCEPTIONS

import rlaxlib

ROWS = contract.collect()


# --- Completeness. ---


def test_every_public_function_has_a_row():
    covered = {row.name for row in ROWS}
    assert sorted(set(contract.public_functions()) - covered) == []


def test_every_row_has_a_function():
    for row in ROWS:
        assert callable(row.function(rlaxlib)), row.id


def test_no_two_rows_are_the_same():
    assert len(ROWS) == len({row.id for row in ROWS})


def test_every_exception_is_of_a_function():
    functions = (
        {row.name for row in ROWS} | {row.id for row in ROWS} | set(dir(rlaxlib))
    )
    for section in EXCEPTIONS.keys() - {"quantities", "names"}:
        for key in EXCEPTIONS[section]:
            name, whole = key.partition(" ")[0], {key, key.partition(" ")[0]}
            assert whole & functions or name.partition(".")[0] in functions, key


def test_every_row_says_whose_gradient_the_flag_stops():
    for row in ROWS:
        if "stop_target_gradients" in annotations.hints_of(row.annotated):
            assert row.gradients.targets, (
                f"the row {row.id} needs `gradients=Gradients(targets=(...))`, the "
                "arguments whose gradient the flag stops"
            )


def test_a_first_row_of_every_function_can_be_printed():
    for name in {row.name for row in ROWS if "." not in row.name}:
        text = "\n".join(new_row.lines(name))
        compile(text, name, "exec")


# --- Values and gradients. ---


@each_row("defined")
def test_value_and_gradient_equal_the_definition(row):
    # Under `vmap` over three seeds; the gradient of the first is compared.
    with contract.x64(True):
        each = [row.inputs(seed, np.float64) for seed in range(3)]

        @jax.jit
        @functools.partial(jax.vmap, axis_size=3)
        def program(inputs):
            calls = [row.call(**row.setting(flag)) for flag in row.flags]
            return [contract.gradient(row, call, inputs) for call in calls]

        results = jax.tree.map(np.asarray, program(contract.stack(each)))
        at = {name: contract.to_numpy(x) for name, x in each[0].items()}
        for flag, (gradient, outputs) in zip(row.flags, results, strict=True):
            for seed, inputs in enumerate(each):
                output = jax.tree.map(lambda x, seed=seed: np.array(x[seed]), outputs)
                tolerance = 1e-11 * row.scale(inputs)
                contract.assert_close(output, row.define(inputs), 1e-11, tolerance)
            for name, slope in gradient.items():
                along = contract.direction(at, (name,), seed=1)
                expected = contract.directional_derivative(
                    lambda x, flag=flag: contract.weigh(
                        row.to_differentiate(flag)(x, at), 0, np
                    ),
                    at,
                    along,
                )
                if flag and row.gradients.stopped_definition is None:
                    assert_stops_targets_alone(row, name, slope[0], expected)
                np.testing.assert_allclose(
                    contract.project({name: slope[0]}, along),
                    expected,
                    rtol=1e-6,
                    atol=1e-7 * row.scale(each[0]),
                    err_msg=f"{name}, flag {flag}",
                )


@each_row("compared")
def test_value_and_gradient_equal_those_of_rlax(row, rlax):
    inputs = contract.peer_inputs(row)
    flags = contract.share(row.flags, row.id, parts=len(row.flags))

    @jax.jit
    def program(inputs):
        calls = row.call, functools.partial(row.peer_call, rlax)
        return [
            [
                contract.gradient(row, call(**row.setting(flag)), inputs)
                for call in calls
            ]
            for flag in flags
        ]

    for flag, results in zip(flags, program(inputs), strict=True):
        (ours, our_outputs), (theirs, their_outputs) = results
        tolerance = SINGLE * row.scale(inputs)
        contract.assert_close(our_outputs, their_outputs, SINGLE, tolerance)
        for name in ours if flag not in row.peer.no_gradients else ():
            size = max(1.0, np.abs(theirs[name]).max())
            np.testing.assert_allclose(
                ours[name], theirs[name], 8 * SINGLE, tolerance * size, err_msg=name
            )


@each_row("compared")
def test_takes_the_arguments_of_rlax_by_position(row, rlax):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = parameters((row.peer.find or row.function)(rlax))
    ours = parameters(row.function(rlaxlib))
    assert len(ours) >= len(theirs)
    for one, other in zip(ours, theirs, strict=False):
        assert one[:2] == other[:2]
        assert one[2] or not other[2]  # Optional there, optional here.


@each_row("key", sample=True)
def test_takes_keys_of_both_kinds(row):
    inputs = row.inputs()
    old = inputs | {row.key: jax.random.key_data(inputs[row.key])}
    function = jax.jit(row.call())
    contract.assert_close(function(**inputs), function(**old), 0, 0)


@each_row("may_be_scalars", sample=True)
def test_a_scalar_equals_a_constant_array(row):
    inputs = row.inputs()
    for name in row.may_be_scalars:
        full = row.call()(**inputs | {name: jnp.full_like(inputs[name], 0.75)})
        for number in (0.75, np.float32(0.75), jnp.float32(0.75)):
            one = row.call()(**inputs | {name: number})
            contract.assert_close(one, full, SINGLE, SINGLE)


# --- Invalid arguments. ---


@each_row("has_single_shapes", "has_arguments")
def test_rejects_a_batch(row):
    inputs = row.inputs()
    batch = contract.stack([inputs] * 3)
    with pytest.raises(rlaxlib.ArgumentError) as error:
        row.call()(**batch)
    message = str(error.value)
    assert message.startswith(row.shown)
    assert any(f"`{name}`" in message for name in inputs)


@each_row("sized_names")
def test_rejects_a_wrong_length(row):
    inputs = row.inputs()
    for name in set(row.sized_names) - row.any_length:
        x = np.asarray(inputs[name])
        spare = 2 if name in row.loose.spare else 1
        wrong = [jax.device_put(np.concatenate([x, *[x[:1]] * spare]))]
        if len(x) > 1 and name not in row.broadcast_names:
            wrong.append(jax.device_put(x[:1]))  # It must not broadcast.
        for each in wrong:
            hint = f", or state it: `Loose(lengths=({name!r},))` in {row.id}"
            with contract.refused(row, name, hint) as error:
                row.call()(**inputs | {name: each})
            shown = f"{each.dtype}{list(each.shape)}", f"has shape {each.shape}"
            assert any(text in str(error.value) for text in shown)


@each_row("out_of_range")
def test_rejects_values_out_of_range_in_traced_programs_too(row):
    inputs = row.inputs()
    if "sample_mask" in inputs:  # Values are checked at valid steps.
        inputs["sample_mask"] = np.ones(inputs["sample_mask"].shape, bool)
    mask = {name: inputs[name] for name in {"sample_mask"} & inputs.keys()}

    def program(traced):
        for bad in row.out_of_range:
            name = next(iter(bad))
            with contract.refused(row, name) as error:
                row.call()(**traced | mask | bad)
            assert f"`{name}" in str(error.value)  # Or a field of it.

    jax.eval_shape(program, inputs)


@each_row("index_names", "gradients.exist")
def test_an_index_out_of_range_is_rejected_or_gives_nan(row):
    inputs = row.inputs()
    function = jax.jit(row.call())
    for name in row.index_names:
        others = {key: x for key, x in inputs.items() if key != name}
        shape = inputs[name].shape
        for index in (-1, -100, 1000):
            wrong = function(**others, **{name: np.full(shape, index, np.int32)})
            assert np.isnan(jax.tree.leaves(wrong)[0]).any()
            # Padding may hold any index.
            if not shape or not (row.multistep or "sample_mask" in inputs):
                bad = {name: np.full(shape, index) if shape else index}
                with contract.refused(row, name) as error:
                    jax.eval_shape(
                        lambda others, bad=bad: row.call()(**others, **bad), others
                    )
                assert f"`{name}` is {index}, must be in [0, " in str(error.value)


@each_row()
def test_rejects_a_wrong_dtype(row):
    inputs = row.inputs()
    for name in set(inputs) - set(row.any_dtype):
        x = inputs[name]
        kind = np.int32 if contract.is_float(x) else np.float32
        other = jax.device_put(np.ones(x.shape, kind))
        with contract.refused(row, name) as error:
            row.call()(**inputs | {name: other})
        assert f"`{name}`" in str(error.value)


@each_row()
def test_rejects_lists_strings_and_none(row):
    inputs = row.inputs()
    for name in set(inputs) - set(row.trees):
        for bad in ([1.0, 2.0], "text", None):
            if bad is None and name in row.may_be_none:
                continue
            with contract.refused(row, name) as error:
                row.call()(**inputs | {name: bad})
            text = str(error.value)
            assert f"`{name}`" in text or f"['{name}']`" in text


# --- Helpers. ---


def assert_stops_targets_alone(row, name, slope, expected):
    """Assert that the flag stops the gradient of the targets that a row names."""
    is_target = name in row.gradients.targets
    assert not (is_target and np.any(slope)), (
        f"`{name}` is a target of the row {row.id}, but the flag does not stop its "
        "gradient: stop it, or take it out of `Gradients(targets=...)`"
    )
    assert is_target or np.any(slope) or abs(expected) < 1e-6, (
        f"the flag stops the gradient of `{name}`, which is no target of the row "
        f"{row.id}: add it to `Gradients(targets=...)`, or do not stop it"
    )


def parameters(function):
    """Return name, kind, and whether there is a default, of each argument."""
    return [
        (each.name, each.kind, each.default is not inspect.Parameter.empty)
        for each in inspect.signature(function).parameters.values()
    ]
