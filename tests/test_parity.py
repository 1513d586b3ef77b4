"""Hold the library to rlax: whoever knows that one finds everything in this one.

`test_api.py` compares the arguments of functions with rlax's, and `test_contract.py`
what they compute. Here is what makes sure that nothing is left out of either.
"""

import dataclasses
import importlib
import inspect
import pkgutil
import types

import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlaxlib

# What rlax makes and takes, but keeps to itself.
HIDDEN = (
    "ContinuousDistribution",
    "DiscreteDistribution",
    "IntrinsicRewardState",
    "KNNQueryResult",
    "MpoOutputs",
    "PopArtOutput",
    "VTraceOutput",
    "get_top_k_weights",
    "hyperbolic_arcsin",
    "hyperbolic_sin",
    "importance_corrected_td_errors",
    "kl_constraint_loss",
    "transform_from_2hot_nonlinear",
    "transform_to_2hot_nonlinear",
)

# Data with other fields, where rlax's can be read all the same, each with the reason.
OTHER_FIELDS = {"EmaState": "rlax keeps moments about 0, in which a variance drowns"}

# Functions that no row compares with rlax, each with the reason.
NOT_COMPARED = {
    "add_ornstein_uhlenbeck_noise": "rlax takes a vector only: see `test_noise.py`",
    "episodic_memory_intrinsic_rewards": "rlax takes negative distances for distances",
}

# How functions of rlax show their arguments that show not all of them.
HIDES_ALL, HIDES_REST = ("args", "kwargs"), ("tx_pair", "args", "kwargs")


# --- What the tests share. ---


@pytest.fixture(scope="module")
def hidden(rlax):
    """Return what rlax keeps to itself, under its names."""
    found = {}
    for module in pkgutil.iter_modules(importlib.import_module("rlax._src").__path__):
        if not module.name.endswith("_test") and module.name != "test_utils":
            source = importlib.import_module(f"rlax._src.{module.name}")
            found |= {
                name: getattr(source, name) for name in HIDDEN if hasattr(source, name)
            }
    assert sorted(found) == sorted(HIDDEN)
    return found


def public(rlax):
    """Return all that rlax offers, under its names."""
    named = {name: getattr(rlax, name) for name in dir(rlax) if name[0] != "_"}
    return {
        name: thing
        for name, thing in named.items()
        if not isinstance(thing, types.ModuleType)
    }


def is_function(thing):
    return callable(thing) and not inspect.isclass(thing)


def is_pair(thing):
    return isinstance(thing, tuple) and thing._fields == ("apply", "apply_inv")


def arguments(function, *, shown=False):
    """Return name, kind and default of each argument.

    Args:
        function: Any function.
        shown: Whether those that it shows itself are meant, not those of one it wraps.
    """
    signature = inspect.signature(function, follow_wrapped=not shown)
    return [
        (each.name, each.kind, each.default) for each in signature.parameters.values()
    ]


def fields(data):
    """Return the fields of a kind of data, each with whether it has a default."""
    if dataclasses.is_dataclass(data):
        missing = dataclasses.MISSING
        return [
            (each.name, each.default is not missing)
            for each in dataclasses.fields(data)
        ]
    return [(name, name in data._field_defaults) for name in data._fields]


def differing_fields(theirs):
    """Return the names of data that lack fields, or have them in another order."""
    data = {name: thing for name, thing in theirs.items() if _is_data(thing)}
    assert data
    return {
        name
        for name, thing in data.items()
        if fields(getattr(rlaxlib, name))[: len(fields(thing))] != fields(thing)
    }


def _is_data(thing):
    return inspect.isclass(thing) and (
        dataclasses.is_dataclass(thing) or issubclass(thing, tuple)
    )


# --- Every name. ---


def test_every_name_of_rlax_is_here(rlax):
    assert sorted(set(public(rlax)) - set(rlaxlib.__all__)) == []


def test_what_rlax_keeps_to_itself_is_here(hidden):
    assert sorted(set(hidden) - set(rlaxlib.__all__)) == []


def test_every_name_stands_for_a_thing_of_the_same_kind(rlax, hidden):
    for name, theirs in (public(rlax) | hidden).items():
        ours = getattr(rlaxlib, name)
        assert inspect.isclass(ours) == inspect.isclass(theirs), name
        assert callable(ours) == callable(theirs), name


# --- Its arguments, and its fields. ---


def test_every_function_has_arguments_that_one_can_compare(rlax):
    for name, theirs in public(rlax).items():
        if is_function(theirs) and not is_pair(theirs):
            # Else `test_api.py` passes over it.
            assert inspect.isfunction(getattr(rlaxlib, name)), name


def test_a_function_that_wraps_another_takes_the_arguments_of_both(rlax):
    kinds = {}
    for name, theirs in public(rlax).items():
        if is_function(theirs):
            own = [argument for argument, *_ in arguments(theirs, shown=True)]
            kinds.setdefault(tuple(own), []).append(name)
    # `test_api.py` passes over all whose arguments are hidden.
    assert [own for own in kinds if "args" in own] == [HIDES_ALL, HIDES_REST]
    assert kinds[HIDES_ALL] == ["clip_gradient"]
    for name in kinds[HIDES_REST]:
        theirs = arguments(getattr(rlax, name))
        (first, _, _), *ours = arguments(getattr(rlaxlib, name))
        assert first == "tx_pair"
        assert ours[: len(theirs)] == theirs, name


def test_what_rlax_keeps_to_itself_takes_the_same_arguments(hidden):
    for name, theirs in hidden.items():
        if is_function(theirs):
            expected = arguments(theirs)
            ours = arguments(getattr(rlaxlib, name))
            assert ours[: len(expected)] == expected, name


def test_data_has_the_fields_of_rlax(rlax, hidden):
    theirs = public(rlax) | hidden
    assert differing_fields(theirs) == set(OTHER_FIELDS)
    for name in OTHER_FIELDS:
        for field, _ in fields(theirs[name]):
            assert hasattr(getattr(rlaxlib, name), field), name


# --- Its numbers. ---


def test_every_function_is_compared_with_rlax_in_value(rlax):
    compared = {
        row.name.partition(".")[0] for row in contract.collect() if row.compared
    }
    functions = {
        name
        for name, thing in public(rlax).items()
        if callable(thing) and not _is_data(thing)
    }
    assert functions - compared == set(NOT_COMPARED)


def test_pairs_are_those_of_rlax(rlax):
    pairs = {name: thing for name, thing in public(rlax).items() if is_pair(thing)}
    assert pairs
    with contract.x64(True), jax.numpy_dtype_promotion("standard"):
        # In double precision, where rlax has digits to lose.
        x = jnp.linspace(-0.9, 0.9, 18, dtype=jnp.float64)
        for name, theirs in pairs.items():
            ours = getattr(rlaxlib, name)
            assert is_pair(ours), name
            for one, other in zip(ours, theirs, strict=True):
                np.testing.assert_allclose(one(x), other(x), 1e-9, 1e-12, err_msg=name)
