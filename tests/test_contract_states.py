"""Test that what a loop carries keeps its dtype, whatever that of the data."""

import itertools
import re

import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import each_row
from test_states import FACTORIES

import rlaxlib
from rlaxlib._core import specs

STORED = jnp.float32, jnp.bfloat16, jnp.float16, jnp.float64
MIXES = [(x, y) for x, y in itertools.product(STORED, STORED) if x != y]
KINDS = jnp.int8, jnp.uint8, jnp.uint32, jnp.int64
CARRIED = {row.name: row for row in contract.collect() if row.precision.carried}


def successor_of(row, outputs):
    """Return the outputs that the next call takes, by the names of its arguments."""
    found = jax.tree.leaves(outputs)
    return {
        name: found[i] for name, i in row.precision.carried.items() if i < len(found)
    }


def drawn(row, state, data, integer=np.int32):
    """Return arguments with the dtypes of a state and of data, which are in NumPy."""

    def convert(name, x):
        x, is_carried = np.asarray(x), name in row.precision.carried
        if contract.is_float(x):
            x = x.astype(state if is_carried else data)
        elif x.dtype.kind == "i":
            x = x.astype(integer if is_carried else np.int32)
        return jnp.asarray(x) if is_carried else x

    given = row.make(np.random.default_rng(0))
    key = {} if row.key is None else {row.key: jax.random.key(0)}
    return key | {name: convert(name, x) for name, x in given.items()}


def stay(row, arguments, *dtypes):
    """Check the dtypes and the values of a loop of two updates."""
    carried = {
        name: x for name, x in arguments.items() if name in row.precision.carried
    }
    data = {name: x for name, x in arguments.items() if name not in carried}

    def update(state, _):
        found = successor_of(row, row.call()(**data, **state))
        return {name: found[name] for name in state}, None

    with jax.numpy_dtype_promotion("standard"):
        found = jax.eval_shape(lambda state: update(state, None)[0], carried)
        for name, old in carried.items():
            assert found[name].dtype == old.dtype, name
            assert not found[name].weak_type, name
        end = jax.lax.scan(update, carried, None, 2)[0]
    if row.deterministic:
        once = row.define(arguments)
        twice = row.define(
            arguments | {n: once[row.precision.carried[n]] for n in carried}
        )
        eps = max(float(jnp.finfo(x).eps) for x in dtypes)
        scale = row.scale(arguments)
        for name, x in end.items():
            right = twice[row.precision.carried[name]]
            np.testing.assert_allclose(
                contract.to_numpy(x), right, 8 * eps, 8 * eps * scale, err_msg=name
            )


@each_row("precision.carried", sample=True)
@pytest.mark.parametrize(
    ("state", "data"),
    contract.share(MIXES, "mixes", parts=2),
    ids=lambda dtype: dtype.__name__,
)
def test_what_a_loop_carries_keeps_its_dtype(row, state, data):
    if jnp.finfo(state).bits < 32 and row.precision.single_outputs:
        pytest.skip("its state is in single precision at least")
    with contract.x64(True):
        stay(row, drawn(row, state, data), state, data)


@each_row("precision.carried", sample=True)
def test_what_a_loop_counts_keeps_its_dtype(row):
    with contract.x64(True):
        for integer in KINDS:
            arguments = drawn(row, jnp.float32, jnp.float32, integer)
            carried = {n for n in row.precision.carried if n in arguments}
            if all(contract.is_float(arguments[name]) for name in carried):
                pytest.skip("it carries no integers")
            stay(row, arguments, jnp.float32)


@pytest.mark.parametrize("name", FACTORIES)
@pytest.mark.parametrize(
    "dtype", [np.float64, np.float16, jnp.bfloat16, np.int32, np.uint8]
)
def test_the_state_of_a_factory_keeps_its_dtype(name, dtype):
    (init, update), example, data = FACTORIES[name]
    is_integer = np.issubdtype(dtype, np.integer)
    if is_integer and name == "pid_lagrangian":
        pytest.skip("its costs are floats")
    if name == "popart":
        layer, outputs = data[0], np.zeros(3, np.int32)
        data = [np.ones(3, dtype)]

        def one(state, x):
            return update(layer, state, x, outputs)[1]

    else:  # Discounts are no integers.
        data = [
            np.asarray(x, None if i and is_integer else dtype)
            for i, x in enumerate(data)
        ]

        def one(state, *given):
            is_ema = name == "create_ema"  # Its order is that of rlax.
            return update(*((*given, state) if is_ema else (state, *given)))[1]

    with contract.x64(True), jax.numpy_dtype_promotion("standard"):
        state = init(*example)
        found = jax.eval_shape(one, state, *data)
    for new, old in zip(jax.tree.leaves(found), jax.tree.leaves(state), strict=True):
        assert new.dtype == old.dtype


# --- States of default values, which are Python numbers. ---

BEGINNINGS = {
    "episodic_memory_intrinsic_rewards": (
        rlaxlib.IntrinsicRewardState(jnp.ones((8, 3), jnp.float32)),
        lambda s, x: rlaxlib.episodic_memory_intrinsic_rewards(
            x[None], 1, x[0], s, max_memory_size=8
        )[1],
    ),
}


@pytest.mark.parametrize("name", BEGINNINGS)
@pytest.mark.parametrize("dtype", STORED)
def test_a_loop_begins_from_a_state_of_defaults(name, dtype):
    state, update = BEGINNINGS[name]
    with contract.x64(True), jax.numpy_dtype_promotion("standard"):
        x = np.full(3, 0.5, dtype)
        end, _ = jax.lax.scan(lambda s, _: (update(s, x), None), state, None, 3)
    for new, old in zip(jax.tree.leaves(end), jax.tree.leaves(state), strict=True):
        if contract.is_float(old):
            assert new.dtype == old.dtype


def test_all_states_of_defaults_are_tested():
    def has_defaults(name):
        states = getattr(rlaxlib, name).signature().specs.values()
        classes = {part for spec in states for part in parts_of(spec)}
        return any(getattr(x, "_field_defaults", {}) for x in classes)

    names = {name for name in CARRIED if hasattr(getattr(rlaxlib, name), "signature")}
    assert {name for name in names if has_defaults(name)} == BEGINNINGS.keys()


# --- The rows with a state are all there are. ---


def parts_of(spec):
    return {x.type for x in specs.within(spec)}


def has_successor(name):
    """Return whether a function returns the next value of one of its arguments."""
    function = getattr(rlaxlib, name)
    if not hasattr(function, "signature"):
        return False
    signature = function.signature()
    states = set().union(*(parts_of(spec) for spec in signature.specs.values()))
    returned = {x for x in parts_of(signature.result) if hasattr(x, "_fields")}
    text = re.sub(r"\s+", " ", function.__doc__)
    first = text.split("::")[0]
    says = re.search(r"returns? (\S+ )*?(the next\b|new parameters)", first)
    return bool(states & returned) or says is not None or name.endswith("_update")


def test_every_function_that_returns_a_next_state_says_what_it_carries():
    names = [name for name in contract.public_functions() if "." not in name]
    found = {name for name in names if has_successor(name)}
    assert "adaptive_kl_coefficient" in found
    assert found - CARRIED.keys() == set()
