"""Test what errors say of a hundred mistakes, and that they say nothing else."""

import re
from pathlib import Path

import contract
import jax
import numpy as np
import pytest
from foreign import Tensor, TorchTensor, Variable

import rlaxlib as r
from rlaxlib._core import specs

B, T, A = 3, 5, 2


def x(*shape):
    return np.full(shape, 0.5, np.float32)


# What the calls of `mistakes.txt` use, beside `B`, `T`, `A` and `x`.
NAMES = {
    **{"r": r, "jax": jax, "np": np, "B": B, "T": T, "A": A, "x": x},
    **{"Tensor": Tensor, "TorchTensor": TorchTensor, "Variable": Variable},
    "KEY": jax.random.key(0),
    "LEGACY": jax.random.PRNGKey(0),
    "LEVELS": np.linspace(0, 1, 7, dtype=np.float32),
    "PENALTY": r.LagrangePenalty(1.0, 0.1),
    "gae": r.generalized_advantage_estimation,
    "gaussian": r.gaussian_diagonal(),
    "ints": lambda *shape: np.zeros(shape, np.int32),
    "mask": lambda *shape: np.ones(shape, bool),
    "softmax": r.softmax(),
    "truncated_gae": r.truncated_generalized_advantage_estimation,
    "vtrace": r.vtrace_td_error_and_advantage,
}


def mistakes():
    """Read title, call, lines of the error, and whether there is a table."""
    text = Path(__file__).with_name("mistakes.txt").read_text(encoding="utf-8")
    for has_table, part in zip((True, False), text.split("\n# ")[1:], strict=True):
        for each in part.strip().split("\n\n")[1:]:
            title, call, *expected = each.split("\n")
            call = call.removeprefix(">>> ")
            yield pytest.param(call, expected, has_table, id=title)


def lines(call):
    """Return the lines of the error of a call, without its table, and the table."""
    with pytest.raises((r.ArgumentError, TypeError)) as error:
        call()
    every = str(error.value).split("\n")
    table = [line for line in every[1:] if line.startswith("  ")]
    return [line for line in every if line not in table], table


@pytest.mark.parametrize(("call", "expected", "has_table"), [*mistakes()])
def test_an_error_states_facts_and_of_a_shape_has_a_table(call, expected, has_table):
    found, table = lines(lambda: eval(call, NAMES))
    assert found == expected
    assert bool(table) == has_table
    if has_table:
        _, name, is_what = found[0].split("`")[:3]
        row = f"  {name}{is_what.removesuffix('.').partition(', where')[0]}"
        assert row.removesuffix(" and not empty") in table


def test_a_table_has_all_arrays_that_were_passed_and_no_defaults():
    _, table = lines(lambda: r.lambda_returns(x(T), x(T), x(T - 2), 0.9))
    assert table == [
        "  r_t is float32[5], must be float[T]",
        "  discount_t is float32[5], must be float[T] in [-1, 1]",
        "  v_t is float32[3], must be float[T]",
        "  lambda_ is 0.9, must be float[] or [T] in [0, 1]",
    ]


# --- The call of `jax.vmap`. ---


def takes_one_example(row):
    """Return whether a function takes arrays of fixed numbers of axes, and no trees."""
    function = row.function(r)
    if not hasattr(function, "signature"):
        return False
    found = function.signature().specs
    given = [found.get(name) for name in row.inputs()]
    return all(x and x.is_array and not x.is_open for x in given)


# A `step_type` may have a batch, and a second axis of tokens may be several of a step.
AMBIGUOUS = ("fix_step_type_on_interruptions:one", "linear_token_log_probs")
ROWS = [x for x in contract.collect() if x.has_arguments and "." not in x.name]
SINGLE = [x for x in ROWS if takes_one_example(x) and not x.id.startswith(AMBIGUOUS)]


# One number each: it may be a mistake.
SCALARS = {"linear_bandit_init", "plan_init", "clip_cov_mask"}
MAPPED = contract.share([x for x in SINGLE if x.name not in SCALARS], "batch", 12)


def test_the_error_of_a_batch_has_a_call_of_vmap():
    for row in SINGLE:
        batch = contract.stack([row.inputs()] * B)
        (*_, last), _ = lines(lambda row=row, batch=batch: row.call()(**batch))
        assert ("jax.vmap" in last) == (row.name not in SCALARS), (row.id, last)


def stacked(row, examples, is_second):
    """Return a batch of examples, whose axis comes after that of time if it may."""
    found, batch = row.function(r).signature().specs, contract.stack(examples)
    for name, value in examples[0].items():
        axes = [x for x in found[name].shapes if len(x) == np.ndim(value) > 0]
        if is_second and "T" in [specs.split(x[0])[0] for x in axes]:
            batch[name] = np.swapaxes(batch[name], 0, 1)
    return batch


@pytest.mark.parametrize("is_second", [False, True])
@pytest.mark.parametrize("row", MAPPED, ids=lambda x: x.id)
def test_the_call_of_vmap_maps_a_batch(row, is_second):
    examples = [row.inputs(seed) for seed in range(B)]
    given = row.settings | stacked(row, examples, is_second)
    (_, *_, last), _ = lines(lambda: row.function(r)(**given))
    way = re.match(r"A batch fits `jax.vmap\((.*), in_axes=.*?\)\)?`", last)[1]
    function = eval(way, {"rlaxlib": r})
    is_plain = not way.startswith("lambda")
    names = function.signature().positional if is_plain else None
    names = names or re.findall(r"\w+", way.partition(":")[0])[1:]
    axes = [eval(each) for each in re.findall(r"in_axes=(\(.*?\))", last)]
    passed = [given[name] for name in names[: len(axes[0])]]  # No defaults.
    has_time = is_second and any(x.shape[0] != B for x in given.values() if np.ndim(x))
    found = jax.vmap(function, axes[-1 if has_time else 0])(*passed)
    expected = [jax.tree.leaves(row.call()(**each)) for each in examples]
    expected = [np.stack(each) for each in zip(*expected, strict=True)]
    contract.assert_close(jax.tree.leaves(found), expected, 1e-5, 1e-5)
