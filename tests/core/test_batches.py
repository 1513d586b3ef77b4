"""Test the line to paste that maps a function over a batch."""

import re

import chex
import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlaxlib
from rlaxlib import ArgumentError
from rlaxlib._core import signatures, specs

B, A = 3, 2
ROWS = contract.collect()


def takes_one_example(row):
    """Return whether a function takes arrays of fixed numbers of axes, and no trees."""
    function = row.function(rlaxlib)
    if not hasattr(function, "signature") or not row.has_arguments or "." in row.name:
        return False
    wanted = signatures.read(function).arrays
    names = row.inputs().keys()
    return names <= wanted.keys() and not any(
        specs.is_many(axis) for n in names for axes in wanted[n].shapes for axis in axes
    )


def is_stream(row, name, value):
    spec = signatures.read(row.function(rlaxlib)).arrays[name]
    firsts = [axes[:1] for axes in spec.shapes if len(axes) == np.ndim(value)]
    return ("T",) in firsts or ("T+1",) in firsts


SINGLE = [row for row in ROWS if takes_one_example(row)]
# `q_t` is of one critic or several, and a `step_type` may have a batch.
AMBIGUOUS = {"rebrac_critic_target:one critic", "fix_step_type_on_interruptions:one"}
SINGLE = [row for row in SINGLE if not row.id.startswith(tuple(AMBIGUOUS))]


@pytest.mark.parametrize("layout", ["[B, T]", "[T, B]"])
@pytest.mark.parametrize("row", contract.share(SINGLE, "paste", 12), ids=lambda x: x.id)
def test_the_line_to_paste_maps_the_function(row, layout):
    examples = [row.inputs(seed) for seed in range(B)]
    timed = {n: is_stream(row, n, value) for n, value in examples[0].items()}
    if layout == "[T, B]" and not any(timed.values()):
        pytest.skip("without streams there is one layout, the other parameter")
    axes = {n: int(layout == "[T, B]" and timed[n]) for n in timed}
    given = contract.stack(examples)
    given |= {n: np.asarray(given[n]).swapaxes(0, 1) for n in axes if axes[n]}
    with pytest.raises(ArgumentError) as error:
        row.call()(**given)
    lines = [x for x in str(error.value).split("\n") if x.startswith("  jax.vmap(")]
    line = next((x for x in lines if layout in x), lines[0])
    assert layout in line or "#" not in line
    names = {"jax": jax, "jnp": jnp, "rlaxlib": rlaxlib, **row.settings, **given}
    found = jax.tree.leaves(eval(line.strip(), names))
    each = [jax.tree.leaves(row.call()(**example)) for example in examples]
    out = int("out_axes=1" in line)
    for one, *others in zip(found, *each, strict=True):
        contract.assert_close(one, np.stack(others, out), 1e-5, 1e-5)


def one_of(tree, index):
    return jax.tree.map(lambda leaf: leaf[index], tree)


def batch_of(each):
    return jax.tree.map(lambda *leaves: np.stack(leaves), *each)


STATES = [
    rlaxlib.bandit_update(rlaxlib.bandit_init(A), 0, float(reward))
    for reward in range(B)
]
LINEAR = rlaxlib.linear_bandit_init(2)
CONTEXTS = np.arange(24, dtype=np.float32).reshape(B, 4, 2)
# Functions of states: what they take, mapped over what has a batch.
OF_STATES = {
    "bandit_update": (batch_of(STATES), np.array([0, 1, 1]), np.ones(B, np.float32)),
    "linucb_scores": (LINEAR, CONTEXTS, 0.5),
    "linear_thompson_sample": (jax.random.split(jax.random.key(0), B), LINEAR),
    "ez_greedy": (
        jax.random.split(jax.random.key(0), B),
        batch_of([rlaxlib.EzGreedyState(a=i % 2, remaining=i) for i in range(B)]),
        np.ones((B, A), np.float32),
        0.5,
    ),
}


@pytest.mark.parametrize("name", OF_STATES)
def test_the_line_to_paste_maps_states_or_shares_one(name):
    function, arguments = getattr(rlaxlib, name), OF_STATES[name]
    with pytest.raises(ArgumentError) as error:
        function(*arguments)
    line = str(error.value).split("\n")[-1].strip()
    parameters = signatures.read(function).positional
    given = dict(zip(parameters, arguments, strict=False))
    found = eval(line, {"jax": jax, "rlaxlib": rlaxlib, **given})
    axes = re.findall("0|None", line.partition(")")[0])
    places = [*zip(arguments, axes, strict=True)]
    for i in range(B):
        example = [one_of(x, i) if axis == "0" else x for x, axis in places]
        chex.assert_trees_all_close(one_of(found, i), function(*example), rtol=1e-6)


def test_one_state_beside_a_batch_is_updated_in_turn():
    with pytest.raises(ArgumentError, match=r"to update one state.* jax.lax.scan\.$"):
        rlaxlib.bandit_update(STATES[0], np.array([0, 1, 1]), np.ones(B, np.float32))


@pytest.mark.parametrize("name", ["a_tm1", "r_t", "discount_t"])
def test_examples_have_no_data_of_a_step_in_common(name):
    q, each = np.ones((B, A), np.float32), np.full(B, 0.5, np.float32)
    data = {"a_tm1": np.zeros(B, np.int32), "r_t": each, "discount_t": each}

    def message(**data):
        with pytest.raises(ArgumentError) as error:
            rlaxlib.q_learning(q, **data, q_t=q)
        return str(error.value)

    assert "jax.vmap(" in message(**data)
    assert "jax.vmap(" not in message(**data | {name: data[name][0]})
