"""Test the closed list of inputs that agents meet, in every function.

CONTRIBUTING has the list, *What arrays may hold* of the guide explains it. Further
lines of it have files of their own: masked logits `test_masked_logits.py`, ratios of
distant policies `test_ratios.py`, ignored steps `test_contract_masks.py`, cuts
`test_contract_streams.py`, half precision `test_contract.py`. That no guard changes
anything elsewhere is tested in `test_contract_smooth.py`.
"""

import annotations
import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from row import EXCEPTIONS

import rlaxlib

ROWS = [row for row in contract.collect() if row.key is None and row.float_names]
LOWEST = float(np.finfo(np.float32).min)


def each(rows, name):
    rows = contract.sampled(rows, name)
    return pytest.mark.parametrize("row", rows, ids=[row.id for row in rows])


def compiled(row):
    """Compile outputs and gradients, with no gradient stopped, as a function."""
    call = row.call(**row.setting(row.flags[-1]))
    if not row.gradients.exist:
        return jax.jit(lambda inputs: ({}, call(**inputs)))
    return jax.jit(lambda inputs: contract.gradient(row, call, inputs))


def numpy_inputs(row):
    return {name: np.array(x) for name, x in row.inputs().items()}


# --- 1. Illegal actions, and whatever belongs to them. ---


def mask_spec(row):
    """Return the spec of the mask of actions, or None."""
    has_mask = "action_mask" in annotations.hints_of(row.annotated)
    return annotations.specs_of(row.annotated, ["action_mask"]) if has_mask else None


def of_actions(row, inputs):
    """Return the names of the floats of which each action has an entry."""
    axes = {shape[-1] for shape in mask_spec(row)["action_mask"].shapes}
    return [
        name
        for name in row.float_names
        if any(shape and shape[-1] in axes for shape in row.specs[name].shapes)
        and inputs[name].ndim
    ]


MASKED = [row for row in ROWS if mask_spec(row)]


def with_an_illegal_action(row):
    """Return arguments in which action 1 is illegal, not taken and not visited."""
    inputs = numpy_inputs(row)
    names = of_actions(row, inputs)
    x = inputs[min(names, key=lambda name: inputs[name].ndim)]
    legal = np.arange(x.shape[-1]) != 1
    inputs["action_mask"] = np.array(np.broadcast_to(legal, x.shape))
    for index in row.index_names:
        inputs[index] = np.where(inputs[index] == 1, 2, inputs[index])
    return inputs, names


def filled(inputs, names, value):
    """Return the arguments with a value for the illegal action."""
    changed = {name: np.array(inputs[name]) for name in names}
    for x in changed.values():
        x[..., 1] = value
    return inputs | changed


@each(MASKED, "illegal")
def test_what_belongs_to_an_illegal_action_may_be_anything(row):
    inputs, names = with_an_illegal_action(row)
    program = compiled(row)
    expected, right = program(filled(inputs, names, 0.0))
    for value in (np.nan, np.inf, -np.inf, LOWEST):
        found, outputs = program(filled(inputs, names, value))
        contract.assert_close(outputs, right, 1e-6, 1e-6)
        for name, slope in found.items():
            np.testing.assert_allclose(slope, expected[name], 1e-5, 1e-6, err_msg=name)


@each([row for row in MASKED if row.gradients.exist], "no legal action")
def test_a_row_without_a_legal_action_is_finite_and_has_no_gradient(row):
    inputs, names = with_an_illegal_action(row)
    inputs["action_mask"] &= False
    gradient, outputs = compiled(row)(inputs)
    for x in jax.tree.leaves(outputs):
        assert not np.any(np.isnan(x))
    for name in gradient.keys() & set(names):
        np.testing.assert_array_equal(gradient[name], 0, err_msg=name)


@pytest.mark.parametrize("mark", [-np.inf, LOWEST, -1e9, -1e12])
def test_probabilities_entropies_and_log_probabilities_of_illegal_actions(mark):
    policy = rlaxlib.softmax(0.5)
    logits = np.float32([[1.0, mark, 0.5], [mark, mark, mark]])
    x = np.exp(np.array([1.0, 0.5]) / 0.5)
    p = x / x.sum()
    probs, by_logits = jax.value_and_grad(lambda x: policy.probs(x)[0, 0])(logits)
    np.testing.assert_allclose(probs, p[0], 1e-6)
    slope = p[0] * (1 - p[0]) / 0.5
    np.testing.assert_allclose(by_logits, [[slope, 0, -slope], [0, 0, 0]], 1e-5)
    np.testing.assert_array_equal(policy.probs(logits)[:, 1], 0)
    np.testing.assert_array_equal(
        policy.log_prob(np.array([1, 1]), logits), [-np.inf, 0]
    )
    entropy = -np.sum(p * np.log(p))
    np.testing.assert_allclose(policy.entropy(logits), [entropy, 0], 1e-6)


# --- 2. Probabilities, labels and weights of 0 beside minus infinity. ---

PROBABILITIES = ("labels", "pi_t", "probs", "probs_a_t", "weights")
ATOMS = ("bins", "q_atoms_t", "v_atoms_t", "z_p", "z_q")  # Of a finite support.


def last_axes(row, name):
    return {axes[-1] for axes in row.specs[name].shapes if axes}


def expectations():
    """Yield a row, its probabilities or logits, and values of the same last axis."""
    for row in contract.of_topic(contract.collect()):
        names = [n for n in row.float_names if np.ndim(row.drawn[n]) and n in row.specs]
        weights = [x for x in names if x in PROBABILITIES or "logits" in x]
        for weight in weights:
            for name in set(names) - set(weights):
                is_alike = row.drawn[weight].shape[-1] == row.drawn[name].shape[-1]
                is_action = last_axes(row, weight) & last_axes(row, name)
                is_value = is_alike and is_action and name not in ATOMS
                if is_value and f"{row.name} {weight}" not in EXCEPTIONS["apart"]:
                    yield row, weight, name


EXPECTATIONS = contract.share(
    sorted(expectations(), key=lambda x: (x[0].id, x[1:])), "expectations"
)


@pytest.mark.parametrize(
    ("row", "weight", "name"),
    EXPECTATIONS,
    ids=[f"{row.id}-{weight}-{name}" for row, weight, name in EXPECTATIONS],
)
def test_an_action_of_probability_0_adds_nothing(row, weight, name):
    inputs = row.inputs()
    actions = inputs[weight].shape[-1]
    for index in row.index_names:  # Another action is taken.
        inputs[index] = jnp.where(inputs[index] == 1, 2 % actions, inputs[index])
    zero = -jnp.inf if "logits" in weight else 0.0
    inputs[weight] = inputs[weight].at[..., 1].set(zero)
    program = compiled(row)

    def results(value):
        return program(inputs | {name: inputs[name].at[..., 1].set(value)})

    (found, outputs), (expected, right) = results(-jnp.inf), results(0.0)
    contract.assert_close(outputs, right, 1e-5, 1e-6)
    for of in found:
        assert not np.any(np.isnan(found[of])), of
        # Those of the probability and of the value itself are free.
        pair = [
            np.delete(x[of], 1, -1) if of in (weight, name) else x[of]
            for x in (found, expected)
        ]
        np.testing.assert_allclose(*pair, 1e-5, 1e-6, err_msg=of)


@pytest.mark.parametrize(
    "loss",
    [
        lambda w, x: rlaxlib.reinforce_loss(x, w),
        lambda w, x: rlaxlib.ppo_clip_loss(x, -1.0, w)[0],
        lambda w, x: rlaxlib.cispo_loss(x, -1.0, w)[0],
        lambda w, x: (
            rlaxlib.mpo_loss(
                jnp.stack([-jnp.inf + w, 0.0 * w]),
                jnp.stack([x, -1.0]),
                rlaxlib.LagrangePenalty(1.0, 0.0),
                [],
            )[1].policy_loss
            - 1.0
        ),
    ],
    ids=["reinforce", "ppo", "cispo", "mpo"],
)
def test_a_weight_of_0_beside_an_impossible_action_adds_nothing(loss):
    value, slopes = jax.value_and_grad(loss, (0, 1))(0.0, -jnp.inf)
    assert abs(value) < 2.0
    assert slopes[1] == 0
    assert np.isfinite(slopes[0])


# --- 5. Ends: a discount of 0 beside the next value. ---

NEXT = {"v_t", "q_t", "target_q_t", "q_t_value", "dist_q_t", "potential_t"}
ENDS = [
    row
    for row in ROWS
    if "discount_t" in row.float_names and NEXT & set(row.float_names)
    if row.name != "check_trajectory"
]


@each(ENDS, "ends")
def test_the_value_after_a_termination_has_no_effect(row):
    inputs, program = numpy_inputs(row), compiled(row)
    step = 2 if inputs["discount_t"].ndim else ()
    inputs["discount_t"][step] = 0.0
    for name in NEXT & inputs.keys():
        # The first axis of critics is not that of steps.
        is_of_steps = row.specs[name].shapes[-1][:1] in [("T",), ("...",)]
        index = step if is_of_steps and inputs[name].ndim else ...

        def results(value, name=name, index=index):
            x = inputs[name].copy()
            x[index] = value
            gradient, outputs = program(inputs | {name: x})
            assert not any(np.any(np.isnan(g)) for g in gradient.values()), name
            rest = {n: gradient[n] for n in gradient.keys() - {"discount_t"}}
            return rest, outputs

        expected = results(0.0)
        large = 20.0 if "tx_pair" in row.settings else 1e6  # Its inverse overflows.
        for value in (large, -large, -np.inf):
            found = results(value)
            scale = contract.SINGLE * row.scale(inputs)
            contract.assert_close(found[1], expected[1], contract.SINGLE, scale)
            for of, slope in found[0].items():
                right = expected[0][of]
                np.testing.assert_allclose(slope, right, 1e-4, scale, err_msg=of)


# --- 6. Quotients, roots, norms and logarithms at exactly 0. ---

# Arguments whose results or derivatives are infinite at 0 by definition.
LOGARITHMS, SCALES = ("likelihood", "log_loss", "logit"), ("normalize", "pop")
NO_ZERO = {
    **dict.fromkeys(LOGARITHMS, ("predictions", "x")),
    **dict.fromkeys(SCALES, ("state.scale", "new.scale")),
    # An arm that was not pulled has an infinite score.
    **dict.fromkeys(("ucb_scores", "ucb_tuned_scores", "kl_ucb_scores"), ("counts",)),
    "trust_region_step_size": ("max_kl",),  # The derivative of a root.
    "distorted_fractions": ("eta",),  # Cumulative probability weighting.
}


def degenerate(row):
    """Yield arguments of which one is 0 throughout, or has equal entries."""
    inputs = numpy_inputs(row)
    for name in row.float_names:
        spec, x = row.specs.get(name), inputs[name]
        rules = spec.rules if spec else ()
        bound = next((rule for rule in rules if hasattr(rule, "has_low")), None)
        is_inside = bound is None or (
            not isinstance(bound.low, str)
            and (bound.low < 0 or (bound.low == 0 and bound.has_low))
        )
        if is_inside and len(rules) <= 1:
            yield name, "zeros", inputs | {name: np.zeros_like(x)}
        if x.size > 1 and not rules:
            yield name, "equal", inputs | {name: np.full_like(x, 0.7)}


@each(ROWS, "zeros")
def test_results_and_gradients_are_finite_at_zeros_and_equal_entries(row):
    program = compiled(row)
    for name, kind, inputs in degenerate(row):
        # A divergence relative to a bound of 0 is infinite, too.
        if name in NO_ZERO.get(row.name, ()) or name.endswith(".epsilon"):
            continue
        for x in jax.tree.leaves(program(inputs)):
            # The values of illegal actions are minus infinity.
            is_right = np.isfinite(x) | (x == -np.inf) if contract.is_float(x) else True
            assert np.all(is_right), (name, kind)


# --- 8. Failed samples and runs. ---


@pytest.mark.parametrize("kind", ["cem", "mppi"])
def test_a_plan_of_return_minus_infinity_has_no_weight(kind):
    actions = np.float32(np.random.default_rng(0).normal(size=(6, 3, 2)))
    returns = np.float32([1.0, 2.0, -np.inf, 0.5, -np.inf, 1.5])
    state, kept = rlaxlib.plan_init(3, 2), np.isfinite(returns)

    def update(actions, returns):
        if kind == "mppi":
            return rlaxlib.mppi_update(state, actions, returns)
        return rlaxlib.cem_update(state, actions, returns, num_elites=4)

    expected = update(actions[kept], returns[kept])
    contract.assert_close(update(actions, returns), expected, 1e-5, 1e-6)


def test_a_failed_run_shows_in_an_evaluation():
    scores = np.float32([[1.0, 2.0], [np.nan, 3.0], [2.0, 4.0]])
    assert np.isnan(rlaxlib.interquartile_mean(scores))
