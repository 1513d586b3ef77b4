"""Test what every signature states: annotations, results, flags, options, batches."""

import functools
import typing

import catalogue
import contract
import jax
import numpy as np
import pytest
from contract import each_row

import rlaxlib
from rlaxlib._core import binding, signatures, specs

ROWS = contract.collect()


def functions():
    """Yield name and function of every public function and method."""
    for name in contract.public_functions():
        yield name, functools.reduce(getattr, name.split("."), _made(name))


def _made(name):
    """Return the library, with the objects of factories in place of the factories."""
    factory, _, method = name.partition(".")
    if not method:
        return rlaxlib
    return type("", (), {factory: getattr(rlaxlib, factory)()})


FUNCTIONS = dict(functions())
SIGNATURES = {
    name: function.signature()
    for name, function in FUNCTIONS.items()
    if hasattr(function, "signature")
}

# A pytree, functions or any number of arguments have no shape to state.
UNCHECKED = {"AllSum", "compose_tx", "tree_fn"}


def test_every_function_states_its_arguments():
    assert FUNCTIONS.keys() - SIGNATURES.keys() == UNCHECKED
    for name, signature in SIGNATURES.items():
        hints = typing.get_type_hints(signature.function, include_extras=True)
        for argument, hint in hints.items():
            is_bare = hint in (jax.Array, jax.typing.ArrayLike, str, int, float)
            assert not is_bare, (name, argument, hint)


def test_options_of_the_decorator_have_an_effect():
    for name, plan in SIGNATURES.items():
        leaves = [x for x in specs.within(plan.result) if not x.parts]
        own = [x for x in leaves if x.is_float and not x.like]
        is_state = plan.result.type in plan.states
        assert not plan.program.wide or (own and not is_state), name


def test_a_mask_holds_for_all_shapes_of_a_result_or_for_none():
    for name, plan in SIGNATURES.items():
        for spec in specs.within(plan.result):
            masked = {specs.begins(axes, plan.steps) for axes in spec.shapes}
            assert len(masked) < 2, name
            assert masked != {True} or not spec.optional, name


@pytest.mark.parametrize(
    "row", [row for row in contract.of_topic(ROWS) if row.name not in UNCHECKED]
)
def test_results_have_the_shapes_of_their_annotations(row, monkeypatch):
    calls = []
    original = signatures.Plan.call

    def call(self, args, kwargs):
        result = original(self, args, kwargs)
        calls.append((self, self.bind(args, kwargs), result))
        return result

    monkeypatch.setattr(signatures.Plan, "call", call)
    jax.eval_shape(lambda inputs: jax.tree.leaves(row.call()(**inputs)), row.inputs())
    assert calls
    for signature, given, result in calls:
        assert_fits(result, signature.result, sizes_of(signature, given))


def sizes_of(signature, given):
    static = {n: value for n, value in given.items() if type(value) is int}
    return static | signature.check(given)[2].bound.sizes


def assert_fits(result, spec, sizes):
    """Assert that a result has the shapes and kinds of its annotation."""
    if spec.is_array:
        if result is None and spec.optional:
            return
        found = binding.bind({"": spec}, {"": binding.type_of(result)}, sizes)
        assert not found.misfit, (result, spec, sizes)
    for _, part, value in specs.entries("", spec, result):
        assert_fits(value, part, sizes)


def test_flags_and_options_refuse_what_they_are_not():
    wrong = {"Flag": [np.ones(3, bool)], "Static": [object()]}
    for signature in SIGNATURES.values():
        for argument in signature.options:
            spec = signature.specs[argument]
            fractional = [2.5] if spec.type is int else []
            for bad in [*wrong.get(spec.kind, ["none of these"]), *fractional]:
                with pytest.raises(rlaxlib.ArgumentError, match=f"`{argument}` is"):
                    catalogue.check(signature, **{argument: bad})


WITH_DTYPE = {
    "cosine_noise_schedule": (2,),
    "linear_noise_schedule": (2,),
    "one_hot": (np.arange(2), 2),
    "popart": (1, 0.1, 0.1, 1.0),
    "quantile_midpoints": (2,),
}


def test_a_dtype_is_one_of_floats():
    public = [x for x in catalogue.ALL.values() if "dtype" in x.names]
    assert {x.function.__name__ for x in public} == WITH_DTYPE.keys()
    for name, arguments in WITH_DTYPE.items():
        for bad in (np.int32, bool, complex, object):
            message = f"^{name}: `dtype` is .*, must be one of floats"
            with pytest.raises(rlaxlib.ArgumentError, match=message):
                getattr(rlaxlib, name)(*arguments, dtype=bad)


def test_every_option_says_what_it_may_be():
    for name, signature in SIGNATURES.items():
        for argument, default in signature.defaults.items():
            if isinstance(default, str):
                assert default in signature.specs[argument].options, name


COMPILATIONS = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, seconds, **_: COMPILATIONS.append(event)
)


@each_row(sample=True)
def test_a_second_call_compiles_nothing(row):
    if row.name in ("backtracking_line_search", "bootstrap_interval"):
        pytest.skip("A loop over calls of a function of the user is compiled anew.")
    inputs = row.inputs()
    row.call()(**inputs)
    COMPILATIONS.clear()
    row.call()(**inputs)
    assert not [event for event in COMPILATIONS if "backend_compile" in event]
