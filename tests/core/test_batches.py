"""Test the line to paste that maps a function over a batch."""

import re

import chex
import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mistakes import (
    ANY_HINT,
    KEY,
    LAYOUTS,
    LEGACY,
    LEVELS,
    A,
    B,
    T,
    assert_error,
    gae,
    ints,
    mapped,
    mask,
    r,
    softmax,
    vtrace,
    x,
)

import rlaxlib
from rlaxlib import ArgumentError
from rlaxlib._core import signatures, specs

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


def first_axis(row):
    """Return the axis that users may put before that of a batch, or nothing."""
    wanted = signatures.read(row.function(rlaxlib)).arrays
    every = [axes for spec in wanted.values() for axes in spec.shapes if axes]
    firsts = {specs.split(axes[0])[0] for axes in every}
    is_one = len(firsts) == 1 and firsts <= {"N", "C", "G"}
    return "T" if "T" in firsts else firsts.pop() if is_one else ""


def begins_with(row, name, value, first):
    spec = signatures.read(row.function(rlaxlib)).arrays[name]
    every = [axes for axes in spec.shapes if len(axes) == np.ndim(value) > 0]
    return first in [specs.split(axes[0])[0] for axes in every]


SINGLE = [row for row in ROWS if takes_one_example(row)]
# `q_t` is of one critic or several, and a `step_type` may have a batch.
AMBIGUOUS = {"rebrac_critic_target:one critic", "fix_step_type_on_interruptions:one"}
SINGLE = [row for row in SINGLE if not row.id.startswith(tuple(AMBIGUOUS))]


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("row", contract.share(SINGLE, "paste", 12), ids=lambda x: x.id)
def test_the_line_to_paste_maps_the_function(row, is_first):
    examples = [row.inputs(seed) for seed in range(B)]
    first, given = first_axis(row), examples[0].items()
    firsts = {n: begins_with(row, n, value, first) for n, value in given}
    if not is_first and not any(firsts.values()):
        pytest.skip("without streams there is one layout, the other parameter")
    axes = {n: int(not is_first and x) for n, x in firsts.items()}
    layout = f"[B, {first}]" if is_first else f"[{first}, B]"
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
    with pytest.raises(ArgumentError, match=r"with a state for each.* jax.lax.scan\.$"):
        rlaxlib.bandit_update(STATES[0], np.array([0, 1, 1]), np.ones(B, np.float32))


@pytest.mark.parametrize("name", ["a_tm1", "r_t"])
def test_examples_have_no_data_of_a_step_in_common(name):
    q, each = np.ones((B, A), np.float32), np.full(B, 0.5, np.float32)
    data = {"a_tm1": np.zeros(B, np.int32), "r_t": each, "discount_t": each}

    def message(**data):
        with pytest.raises(ArgumentError) as error:
            rlaxlib.q_learning(q, **data, q_t=q)
        return str(error.value)

    assert "jax.vmap(" in message(**data)
    assert "jax.vmap(" not in message(**data | {name: data[name][0]})


# --- Hints of batches. ---

# Mistakes: the call, the words that the error has, and those that it has not.
MISTAKES = {
    "GAE of a batch": (
        lambda: gae(x(B, T), x(B, T), x(B, T), x(B, T), 0.9),
        [LAYOUTS, "in_axes=(0, 0, 0, 0, None)", "in_axes=(1, 1, 1, 1, None)"],
        ["Squeeze"],
    ),
    "λ-returns of one-step streams": (
        lambda: r.lambda_returns(x(B, 1), x(B, 1), x(B, 1)),
        [LAYOUTS],
        ["Squeeze"],
    ),
    "vectors of size 1, a batch of them": (
        lambda: r.tanh_normal_log_prob(x(B, 1), x(B, 1), x(B, 1)),
        ["jax.vmap(rlaxlib.tanh_normal_log_prob, in_axes=(0, 0, 0))"],
        ["Squeeze", "[T, B]"],
    ),
    "V-trace of [T, B], by keyword": (
        lambda: vtrace(
            v_tm1=x(T, B), v_t=x(T, B), r_t=x(T, B), discount_t=x(T, B), rho_tm1=x(T, B)
        ),
        [LAYOUTS, "in_axes=(1, 1, 1, 1, 1), out_axes=1)(v_tm1, v_t, "],
        [],
    ),
    "a mask by keyword": (
        lambda: r.lambda_returns(x(B, T), x(B, T), x(B, T), sample_mask=mask(B, T)),
        ["sample_mask=sample_mask", LAYOUTS],
        [],
    ),
    "DQN without vmap": (
        lambda: r.q_learning(x(B, A), ints(B), x(B), x(B), x(B, A)),
        ["jax.vmap(rlaxlib.q_learning, in_axes=(0, 0, 0, 0, 0))(q_tm1, a_tm1, "],
        ["[T, B]", "Convert"],
    ),
    "DQN of [B, T, A]": (
        lambda: r.q_learning(x(B, T, A), ints(B, T), x(B, T), x(B, T), x(B, T, A)),
        ["jax.vmap(jax.vmap("],
        [],
    ),
    "DQN with one action for all": (
        lambda: r.q_learning(x(B, A), 0, 1.0, 0.9, x(B, A)),
        ["`q_tm1` has shape (3, 2), must be [A]"],
        ANY_HINT,
    ),
    "C51 shares its atoms": (
        lambda: r.categorical_q_learning(
            x(7), x(B, A, 7), ints(B), x(B), x(B), x(7), x(B, A, 7)
        ),
        ["in_axes=(None, 0, 0, 0, 0, None, 0)"],
        [],
    ),
    "a batch shares atoms that look like its logits": (
        lambda: r.categorical_td_learning(LEVELS, x(B, 7), x(B), x(B), LEVELS, x(B, 7)),
        ["in_axes=(None, 0, 0, 0, None, 0))(v_atoms_tm1, "],
        [],
    ),
    "a batch shares the levels of its quantiles": (
        lambda: r.quantile_regression_loss(x(B, 7), LEVELS, x(B, 7)),
        ["in_axes=(0, None, 0))(dist_src, tau_src, "],
        [],
    ),
    "a batch of projections shares both supports": (
        lambda: r.categorical_l2_project(LEVELS, x(B, 7), LEVELS),
        ["in_axes=(None, 0, None))(z_p, probs, z_q)"],
        [],
    ),
    "a batch whose streams all end": (
        lambda: r.discounted_returns(x(B, T), x(B, T), 0.0),
        ["in_axes=(0, 0, None))(r_t, discount_t, 0.0)", "in_axes=(1, 1, None)"],
        [],
    ),
    "a batch shares its standard deviation": (
        lambda: r.tanh_normal_log_prob(x(B, A), x(B, A), x(A)),
        ["in_axes=(0, 0, None))(pre_tanh, mean, stddev)"],
        [],
    ),
    "a batch shares the time of its flow": (
        lambda: r.flow_sde_step(x(B, A), x(B, A), 0.1, 0.2),
        ["in_axes=(0, 0, None, None))(x, velocity, 0.1, 0.2)"],
        [],
    ),
    "a batch shares a state that is read": (
        lambda: r.linucb_scores(r.linear_bandit_init(2), x(B, 4, 2), 1.0),
        ["in_axes=(None, 0, None))(state, contexts, 1.0)"],
        ["update"],
    ),
    "a batch of keys shares a state that is read": (
        lambda: r.linear_thompson_sample(
            jax.random.split(KEY, B), r.linear_bandit_init(2)
        ),
        ["in_axes=(0, None))(key, state)"],
        ["update"],
    ),
    "a batch beside one state with counts": (
        lambda: r.ez_greedy(KEY, r.EzGreedyState(), x(B, A), 0.1),
        ["jax.vmap, with a state for each, or, if examples follow one another, call"],
        ["in_axes"],
    ),
    "a batch beside one state of all devices": (
        lambda: r.rnd_reward(r.RndState(), x(B, T, A), x(B, T, A)),
        ["jax.vmap, and give both an `axis_name` to update one state."],
        ["in_axes", "scan"],
    ),
    "values of critics": (
        lambda: r.ensemble_value(x(2, 4)),
        ["in_axes 0 if the arrays are [B, N], 1 if they are [N, B]", "(0,)", "(1,)"],
        [],
    ),
    "quantiles of critics": (
        lambda: r.tqc_targets(x(2, 3, 5), 1),
        ["in_axes 0 if the arrays are [B, C], 1 if they are [C, B]"],
        [],
    ),
    "quantiles and targets, both of as many": (
        lambda: r.quantile_regression_loss(x(7, 7), LEVELS, x(7, 7)),
        ["in_axes=(0, None, 0))(dist_src, tau_src, dist_target)"],
        ["#", "in_axes=(1"],
    ),
    "one discount for a batch of transitions": (
        lambda: r.q_learning(x(B, A), ints(B), x(B), 0.9, x(B, A)),
        ["`discount_t` is γ times", "a_tm1, r_t, discount_t * (1 - terminated), q_t)"],
        [],
    ),
    "quantiles of a batch": (
        lambda: r.quantile_regression_loss(x(4, 7), x(4, 7), x(4, 7)),
        ["in_axes=(0, 0, 0))(dist_src, tau_src, dist_target)"],
        ["#"],
    ),
    "a column of priorities": (
        lambda: r.prioritized_probabilities(x(4, 1), 1.0),
        ["in_axes=(0, None))(", "in_axes=(1, None), out_axes=1)("],
        [],
    ),
    "a column of values of a batch": (
        lambda: r.td3_bc_weight(x(4, 1), 2.5),
        ["in_axes=(0, None))(", "in_axes=(1, None))("],
        [],
    ),
    "a batch of sequences with statistics": (
        lambda: r.gmpo_loss(x(T, B), x(T, B), x(B)),
        ["in_axes=(0, 0, None))(", "in_axes=(1, 1, 0), out_axes=1)("],
        [],
    ),
    "a batch of trajectories of embeddings": (
        lambda: r.episodic_memory_intrinsic_rewards(x(T, B, A), 1, 1.0),
        ["in_axes=(0, None, None))(", LAYOUTS, "in_axes=(1, None, None))("],
        [],
    ),
    "what may be a mean of a batch": (
        lambda: r.adaptive_kl_coefficient(1.0, x(B), 0.1),
        ["`kl` has shape (3,), must be ()"],
        ANY_HINT,
    ),
    "a one-hot arm": (
        lambda: r.bandit_update(r.bandit_init(3), ints(3), 1.0),
        ["`arm` has shape (3,), must be ()"],
        ANY_HINT,
    ),
    "counts and means, exchanged": (
        lambda: r.ucb_scores(x(A), ints(A)),
        ["`counts` and `means` fit if they are exchanged", "Or convert it: `means.as"],
        [],
    ),
    "classes in place of labels": (
        lambda: r.categorical_cross_entropy(ints(B), x(B, A)),
        ["`labels` is int32[3], must be a floating-point array"],
        ANY_HINT,
    ),
    "a batch shares its temperature": (
        lambda: r.soft_value(x(B, A), 0.5),
        ["in_axes=(0, None))(q, 0.5)"],
        [],
    ),
    "a batch with one key": (
        lambda: r.thompson_beta(KEY, x(B, A), x(B, A)),
        ["jax.random.split(key, 3)"],
        [],
    ),
    "a λ for each stream": (
        lambda: r.lambda_returns(x(B, T), x(B, T), x(B, T), x(B)),
        ["in_axes=(0, 0, 0, 0)", "in_axes=(1, 1, 1, None)"],
        [],
    ),
    "a λ for each stream or step, as many": (
        lambda: r.lambda_returns(x(T, T), x(T, T), x(T, T), x(T)),
        [
            LAYOUTS,
            "in_axes=(0, 0, 0, 0))(r_t, discount_t, v_t, lambda_)  # [B, T], `lambda_` "
            "for each example",
            "in_axes=(0, 0, 0, None))(r_t, discount_t, v_t, lambda_)  # [B, T], "
            "`lambda_` for all",
            "in_axes=(1, 1, 1, 0), out_axes=1)(",
            "in_axes=(1, 1, 1, None), out_axes=1)(",
        ],
        [],
    ),
    "a discount for each stream or step, as many, beside T+1 features": (
        lambda: r.feature_control_rewards(x(T, T + 1, A), "potential", x(T)),
        ["in_axes=(0, None, 0))(", "in_axes=(0, None, None))("],
        ["append"],
    ),
    "some arguments of a batch": (
        lambda: r.lambda_returns(x(B, T), x(B, T), x(T)),
        ["`r_t` has shape (3, 5), must be [T]"],
        ANY_HINT,
    ),
    "streams of several sizes": (
        lambda: r.lambda_returns(x(B, T), x(T, B), x(B, T)),
        ["must be [T]"],
        ANY_HINT,
    ),
    "a batch of streams of a batch": (
        lambda: r.lambda_returns(x(2, B, T), x(2, B, T), x(2, B, T)),
        ["must be [T]"],
        ANY_HINT,
    ),
    "a batch within vmap": (
        lambda: mapped(r.td_learning)(x(2, B), x(2, B), x(2, B), x(2, B)),
        ["jax.vmap(rlaxlib.td_learning"],
        [],
    ),
    "a key for each of the logits": (
        lambda: softmax.sample(jax.random.split(KEY, B), x(B, A)),
        ["`key` has shape (3,)", "One key is enough", "jax.vmap"],
        ["Convert"],
    ),
    "a legacy key for each": (
        lambda: softmax.sample(jax.random.split(LEGACY, B), x(B, A)),
        ["`key` has shape (3,)", "One key is enough"],
        ["Convert"],
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_batch_is_known_as_one_and_nothing_else_is(mistake):
    assert_error(*MISTAKES[mistake])
