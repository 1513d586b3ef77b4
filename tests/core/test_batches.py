"""Test the line to paste that maps a function over a batch."""

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


def test_a_batch_of_states_is_mapped_and_one_state_is_updated_in_turn():
    state = rlaxlib.bandit_update(rlaxlib.bandit_init(A), 0, 1.0)
    many = jax.tree.map(lambda leaf: jnp.stack([leaf] * B), state)
    arm, reward = jnp.array([0, 1, 1]), jnp.array([1.0, 2.0, 3.0])
    with pytest.raises(ArgumentError, match=r"over the batch with jax.vmap\.$"):
        rlaxlib.bandit_update(many, arm, reward)
    with pytest.raises(ArgumentError, match=r"to update one state.* jax.lax.scan\.$"):
        rlaxlib.bandit_update(state, arm, reward)


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
