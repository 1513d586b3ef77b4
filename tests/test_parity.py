"""Test that every name of rlax exists, with the same arguments and fields.

`test_api.py` compares arguments with rlax's, and `test_contract.py` results. Tests here
ensure that neither leaves out a name.
"""

import dataclasses
import importlib
import inspect
import pkgutil
import types

import contract
import jax
import numpy as np
import pytest

import rlaxlib

# Private in rlax, although its functions return or take them.
HIDDEN = (
    "ContinuousDistribution",
    "DiscreteDistribution",
    "IntrinsicRewardState",
    "KNNQueryResult",
    "MpoOutputs",
    "PopArtOutput",
    "VTraceOutput",
    "hyperbolic_arcsin",
    "hyperbolic_sin",
    "importance_corrected_td_errors",
    "kl_constraint_loss",
    "transform_from_2hot_nonlinear",
    "transform_to_2hot_nonlinear",
)

# Data with other fields, where rlax's are properties, with the reason.
OTHER_FIELDS = {"EmaState": "a variance from moments about 0 cancels"}

# Functions that no row compares with rlax, each with the reason.
NOT_COMPARED = {
    "add_ornstein_uhlenbeck_noise": "rlax takes a vector only: see `test_noise.py`",
    "episodic_memory_intrinsic_rewards": "rlax uses negative distances as distances",
}

# Signatures of rlax that do not list all arguments.
HIDES_ALL, HIDES_REST = ("args", "kwargs"), ("tx_pair", "args", "kwargs")


# --- Helpers. ---


@pytest.fixture(scope="module")
def hidden(rlax):
    """Return the private names of rlax."""
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
    """Return the public names of rlax."""
    named = {name: getattr(rlax, name) for name in dir(rlax) if name[0] != "_"}
    return {
        name: thing
        for name, thing in named.items()
        if not isinstance(thing, types.ModuleType)
    }


def is_function(thing):
    return callable(thing) and not inspect.isclass(thing)


def is_pair(thing):
    names = ("apply", "apply_inv")
    return not inspect.isclass(thing) and all(hasattr(thing, name) for name in names)


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
    return [
        (each.name, each.default is not each.empty)
        for each in inspect.signature(data).parameters.values()
    ]


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


# --- Names. ---


def test_every_public_name_of_rlax_exists(rlax):
    assert sorted(set(public(rlax)) - set(rlaxlib.__all__)) == []


def test_every_private_name_of_rlax_exists(hidden):
    assert sorted(set(hidden) - set(rlaxlib.__all__)) == []


def test_every_name_is_of_the_same_kind(rlax, hidden):
    for name, theirs in (public(rlax) | hidden).items():
        ours = getattr(rlaxlib, name)
        assert inspect.isclass(ours) == inspect.isclass(theirs), name
        assert callable(ours) == callable(theirs), name


# --- Arguments and fields. ---


def test_every_function_has_comparable_arguments(rlax):
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


def test_private_functions_of_rlax_take_the_same_arguments(hidden):
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


# --- Values. ---


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
    pairs = {
        name: (getattr(rlaxlib, name), theirs)
        for name, theirs in public(rlax).items()
        if is_pair(theirs)
    }
    assert pairs
    assert all(is_pair(ours) for ours, _ in pairs.values())
    with contract.x64(True), jax.numpy_dtype_promotion("standard"):
        # In double precision, where rlax is accurate enough.
        x = np.linspace(-0.9, 0.9, 18)

        @jax.jit
        def results(x):
            return {
                name: [(one(x), other(x)) for one, other in zip(*both, strict=True)]
                for name, both in pairs.items()
            }

        for name, each in results(x).items():
            for one, other in each:
                np.testing.assert_allclose(one, other, 1e-9, 1e-12, err_msg=name)
