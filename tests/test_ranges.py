"""Test that docstrings state the ranges that are checked, and that siblings agree.

An entry states a range as the annotation does, before the shape: `Discounts :math:`γ_t`
in [0, 1], shape `[T]`.` A range of all finite numbers is stated as "finite".
"""

import inspect
import re

import catalog
import pytest

import rlaxlib
from rlaxlib._core import specs

# Ranges that a function checks, since no annotation can state them.
CHECKED_BY_FUNCTIONS = {
    ("extract_subsequences", "start_indices"): "in [0, T - L]",
}

# The range of a quantity, under its name.
QUANTITIES = {
    "group_ids": "in [0, G)",
    "segment_ids": "in [0, T)",
    "tokens": "in [0, V)",
    "a": "in [0, A)",
    "a_t": "in [0, A)",
    "clip": "in [0, inf]",
    "discount": "in [0, 1]",
    "discount_factor": "in [0, 1]",
    "discount_t": "in [-1, 1]",
    "epsilon": "in [0, inf]",
    "epsilon_high": "in [0, inf]",
    "exponent": "in [0, inf)",
    "fraction": "in [0, 1]",
    "fractions": "in [0, 1]",
    "indices": "in [0, N)",
    "k": "in [1, inf)",
    "label_smoothing": "in [0, 0.5)",
    "lambda_": "in [0, 1]",
    "lambda_t": "in [0, 1]",
    "max_kl": "in [0, inf)",
    "mix": "in [0, 1]",
    "max_weight": "in (0, inf]",
    "maximum": "in [minimum, inf]",
    "mu_t": "in [0, 1]",
    "num_samples": "in [1, inf)",
    "pi_t": "in [0, 1]",
    "probability": "in (0, 1]",
    "probs": "in [0, 1]",
    "probs_a_t": "in [0, 1]",
    "rho_tm1": "in [0, inf)",
    "sigma": "in (0, inf)",
    "sigma_0": "in (0, inf)",
    "sigma_1": "in (0, inf)",
    "stddev": "in (0, inf)",
    "step_size": "in [0, inf)",
    "temperature": "in (0, inf)",
}

# Functions in which a quantity has another range, and the reason.
UNUSED = "The action of the last state is not used, and may be padding."
CLIPPED = "The ratio is clipped, so that an infinite one has an effect of its bound."
NOISE = "Noise of standard deviation 0 is no noise."
ENTROPY = "A temperature of 0 is no entropy bonus."
BEFORE = "A number of any sign, of which an activation makes a standard deviation."
DIVIDES = "It divides by the range of actions."
UNNORMALIZED = "They need not sum to 1."
RATE = "The probability of a random action."
ADDED = "A constant that is added to a divisor."
SHARE = "The weight of one target in a moving average."
OTHERWISE = {
    ("general_off_policy_returns_from_action_values", "a_t"): UNUSED,
    ("transformed_general_off_policy_returns_from_action_values", "a_t"): UNUSED,
    ("tree_backup", "a_t"): UNUSED,
    ("retrace", "a_t"): UNUSED,
    ("transformed_retrace", "a_t"): UNUSED,
    ("epsilon_greedy", "epsilon"): RATE,
    ("ez_greedy", "epsilon"): RATE,
    ("LagrangePenalty", "epsilon"): "A bound on a divergence, of any constraint.",
    ("EpsilonGreedy.sample", "epsilon"): RATE,
    ("EpsilonGreedy.probs", "epsilon"): RATE,
    ("EpsilonGreedy.log_prob", "epsilon"): RATE,
    ("EpsilonGreedy.entropy", "epsilon"): RATE,
    ("episodic_memory_intrinsic_rewards", "epsilon"): ADDED,
    ("group_advantages", "epsilon"): ADDED,
    ("reward_scale", "epsilon"): ADDED,
    ("standardize", "epsilon"): ADDED,
    ("simple_policy_loss", "epsilon"): "It divides by the range.",
    ("check_answers", "group_ids"): "It reports ids out of range.",
    ("check_answers", "segment_ids"): "It reports ids out of range.",
    ("check_answers", "tokens"): "The size of the vocabulary is unknown.",
    ("check_trajectory", "discount_t"): "It reports the steps that are out of range.",
    ("off_policy_evaluation", "discount_t"): "Returns are of one agent.",
    ("backtracking_line_search", "max_kl"): "Infinity is no bound.",
    ("EmphaticTraceState", "discount"): "It is the `discount_t` of a transition.",
    ("TrueOnlineTdState", "discount"): "It is the `discount_t` of a transition.",
    ("fqf_fraction_loss", "fractions"): "They are bounds of intervals, in order.",
    ("batched_index", "indices"): "The axis has another name.",
    ("one_hot", "indices"): "An index out of range gives zeros.",
    ("pass_at_k_rewards", "k"): "There are G answers.",
    ("sub_trajectory_balance_loss", "lambda_"): "It weighs longer parts, also by more.",
    ("invert_gradients", "maximum"): DIVIDES,
    ("SquashedGaussian.log_prob", "maximum"): DIVIDES,
    ("SquashedGaussian.prob", "maximum"): DIVIDES,
    ("SquashedGaussian.sample", "maximum"): DIVIDES,
    ("acer_policy_loss", "max_weight"): "At 0 the correction of the bias is left.",
    ("pass_at_k", "num_samples"): "There are k answers at least.",
    ("categorical_sample", "probs"): UNNORMALIZED,
    ("importance_sampling_weights", "probs"): UNNORMALIZED,
    ("stratified_sample", "probs"): UNNORMALIZED,
    ("conditional_value_at_risk", "fraction"): "No tail has no mean.",
    ("vtrace", "rho_tm1"): CLIPPED,
    ("vtrace_td_error_and_advantage", "rho_tm1"): CLIPPED,
    ("leaky_vtrace", "rho_tm1"): CLIPPED,
    ("leaky_vtrace_td_error_and_advantage", "rho_tm1"): CLIPPED,
    ("SquashedGaussian.entropy", "sigma"): BEFORE,
    ("SquashedGaussian.kl", "sigma_0"): BEFORE,
    ("SquashedGaussian.kl", "sigma_1"): BEFORE,
    ("SquashedGaussian.kl_to_standard_normal", "sigma"): BEFORE,
    ("SquashedGaussian.log_prob", "sigma"): BEFORE,
    ("SquashedGaussian.prob", "sigma"): BEFORE,
    ("SquashedGaussian.sample", "sigma"): BEFORE,
    ("PlanState", "stddev"): NOISE,
    ("add_gaussian_noise", "stddev"): NOISE,
    ("add_ornstein_uhlenbeck_noise", "stddev"): NOISE,
    ("ornstein_uhlenbeck_noise", "stddev"): NOISE,
    ("plan_init", "stddev"): NOISE,
    ("shift_plan", "stddev"): NOISE,
    ("td3_target_action", "stddev"): NOISE,
    ("art", "step_size"): SHARE,
    ("popart", "step_size"): SHARE,
    ("discrete_sac_policy_loss", "temperature"): ENTROPY,
    ("discrete_sac_value", "temperature"): ENTROPY,
    ("sac_critic_target", "temperature"): ENTROPY,
    ("sac_policy_loss", "temperature"): ENTROPY,
}

# Names that are words or letters of a paper, and not of one quantity.
WORDS = """
action actions alpha damping decay margin max_return means minimum predictions
priorities sample scale shrink target targets threshold weight weights x
"""


def documented():
    """Yield name, docstring and specs of all functions, methods and states."""
    things = {name: getattr(rlaxlib, name) for name in rlaxlib.__all__}
    for name, thing in dict(things).items():
        if inspect.isclass(thing):
            methods = [x for n, x in vars(thing).items() if n[0] != "_"]
            methods = filter(is_checked, methods)
            things |= {f"{name}.{method.__name__}": method for method in methods}
    checked = {n: x.signature() for n, x in things.items() if is_checked(x)}
    for name, signature in checked.items():
        own = {n: x for n, x in signature.specs.items() if not (x.parts or x.is_tree)}
        yield name, catalog.complete(things[name]), own
    nested = [x for each in checked.values() for x in each.specs.values()]
    states = {x.type: x for each in nested for x in specs.within(each) if x.parts}
    for state, spec in states.items():
        if inspect.isclass(state):
            found = {n: x for n, x in spec.parts.items() if not (x.parts or x.is_bare)}
            yield state.__name__, inspect.getdoc(state), found


def is_checked(thing):
    return inspect.isroutine(thing) and hasattr(thing, "signature")


def arguments():
    """Yield function, argument, spec and docstring entry of what may have a range."""
    for name, docstring, found in documented():
        for argument, spec in found.items():
            if spec.kind == "Static" or spec.kind in ("Float", "Int", "Real", "Shaped"):
                entry = rf"^    {argument}: (.*?)(?=^    \w|^\w|\Z)"
                text = re.search(entry, docstring, re.M | re.S)[1]
                yield name, argument, spec, " ".join(text.split())


ARGUMENTS = list(arguments())


def what_it_is(entry, spec):
    """Return the part of an entry that describes the values, without its marks."""
    part = entry.partition(" shape `")[0] if spec.is_array else entry
    return re.sub(r":math:|`", "", part)


def stated(entry, spec):
    """Return the rules that an entry states."""
    text = re.sub(r"\bfinite\b", "in (-inf, inf)", what_it_is(entry, spec))
    rules = r"\bin [\[({][^\])}]*[\])}]|\bascending\b|\bincreasing\b"
    return set(re.findall(rules, text))


def test_docstrings_state_the_ranges_that_are_checked():
    assert len(ARGUMENTS) > 1000
    wrong = {}
    for name, argument, spec, entry in ARGUMENTS:
        checked = {CHECKED_BY_FUNCTIONS.get((name, argument))} - {None}
        checked |= set(map(str, spec.rules))
        if stated(entry, spec) != checked:
            wrong[name, argument] = checked, entry
    assert wrong == {}


def test_docstrings_state_ranges_in_one_form():
    words = r"at least|at most|more than|above|below|positive|non-negative"
    wrong = {
        (name, argument): entry
        for name, argument, spec, entry in ARGUMENTS
        if re.search(
            rf"(, (of )?|^|of )({words})\b|(?<!if) [^\s`]+ [<>≤≥]( |$)",
            what_it_is(entry, spec),
            re.IGNORECASE,
        )
    }
    assert wrong == {}


@pytest.mark.parametrize(
    ("entry", "rules"),
    [
        ("Discount :math:`γ` in [0, 1], shape `[]`.", {"in [0, 1]"}),
        ("Bound, in [`low`, inf], shape `[]`; or 2.", {"in [low, inf]"}),
        ("Bins, finite and increasing, shape `[K]`.", {"in (-inf, inf)", "increasing"}),
        ("Loss, shape `[]`, such as a reward in [0, 1].", set()),
    ],
)
def test_ranges_are_found_in_an_entry(entry, rules):
    assert stated(entry, specs.Spec("Float", ((),))) == rules


def test_a_quantity_has_one_range():
    ranges = {}
    for name, argument, spec, _ in ARGUMENTS:
        if not (argument in ("a", "a_t") and spec.kind == "Float"):  # Continuous.
            ranges.setdefault(argument, {})[name] = " ".join(map(str, spec.rules))
    exceptions = {
        (name, argument)
        for argument, expected in QUANTITIES.items()
        for name, rules in ranges[argument].items()
        if rules != expected
    }
    assert exceptions == set(OTHERWISE)
    differing = {argument for argument, of in ranges.items() if len({*of.values()}) > 1}
    assert differing - set(QUANTITIES) == set(WORDS.split())
