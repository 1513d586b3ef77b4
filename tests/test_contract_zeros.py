"""Test in every function that a weight of 0 removes what it multiplies.

One entry of a weight is 0, then one entry of the data is replaced by finite values. A
result that does not depend on these may not depend on infinity or NaN, though `0 * inf`
is NaN. The weight may be a mask, a discount or a coefficient; the entry may follow an
end.
"""

import re

import annotations
import contract
import jax
import numpy as np
import pytest

# The last two on either side show whether a result still changes there.
FINITE = (0.3, 1.0, -1.0, -7.0, 60.0, 1e5, -60.0, -1e5)
ALIKE = {
    np.inf: [0, 4, 5],
    -np.inf: [0, 6, 7],
    np.nan: list(range(len(FINITE))),
}
# Weights whose signature states no bound of 0.
WEIGHTS = frozenset(
    (
        *("a", "c_t", "coefficient", "discount", "discount_t", "interest", "pi_t"),
        *("probs", "probs_a_t", "rho_t", "rho_tm1", "state.discount", "state.rho"),
        *("w_t", "weight", "weights"),
    )
)
# Weights that are swept also where a row has a value of its own.
COEFFICIENTS = frozenset(
    (
        *("action_gap_scale", "centering", "coefficient", "desirable_weight"),
        *("dynamics_weight", "expectile", "label_smoothing", "max_weight", "mix"),
        *("representation_weight", "undesirable_weight"),
    )
)
RATIOS = frozenset(["rho_t", "rho_tm1", "state.rho"])  # They may be infinite.
LAMBDAS = frozenset(["lambda_", "lambda_t"])
# Neither weights nor data.
NEITHER = frozenset(["mu_t", "state.scale", "state.num_steps", "tau_src", "tau_q_tm1"])
ENTRIES = 16  # Entries of each argument that are tried.

# Calls in which infinity or NaN has an effect, each with the reason.
EXCEPTIONS = {
    # A value that cancels: infinity minus infinity.
    "truncated_generalized_advantage_estimation lambda_=1 values": "γ v' - γ v'",
    r"persistent_advantage_learning \S+ target_q_tm1": "the gap of the greedy action",
    # NaN in data is shown, not sorted, clipped or compared away.
    r"impute\w+ tau\w*=1": "sorted",
    r"td3_target_action stddev=0 minimum=nan": "compared",
    r"dormant_fraction threshold=0": "compared",
    r"trust_region_step_size max_kl=0": "compared",
    r"leaky_vtrace\S* \S+ rho_tm1=nan": "clipped",
    r"rank_probabilities \S+ priorities": "sorted",
    r"diffusion_reverse_step clip=0 predictions": "clipped",
    r"acer_policy_loss max_weight=0 mu_logits": "clipped, behind a softmax",
    r"munchausen_q_learning \S+ target_q_tm1": "clipped, behind a softmax",
    r"categorical_q_learning discount_t=1 q_logits_t": "an action that is not greedy",
    r"vmpo\w+ importance_weights=0": "ranked",
    r"(cem|mppi)_update \S+ actions": "the deviation of elites, clipped",
    r"\w*mpo_\w+ \S+epsilon=0": "the bound of a relative divergence",
    r"acer_trust_region max_change=0 kl_gradient": "clipped",
    r"mppi_update momentum=0 returns=inf": "a softmax",
    r"(cmpo_policy_targets|completed_q_values) action_mask=0": "a legal action",
    r"(gumbel_policy_targets|categorical_mpo_loss) action_mask=0": "a legal action",
    r"(mixed_value|straight_through_sample) action_mask=": "a legal action",
    r"(\w*softmax|\w*greedy)\.\w+ action_mask=": "a legal action",
    r"off_policy_evaluation rho_tm1=0 rho_tm1=": "products of ratios are finite",
    # The state of a statistic is finite, a standard deviation and a product positive.
    r"(rnd_reward|sliding_window_update) \S+ state": "state",
    r"bandit_update discount=0 reward": "another arm",
    r"(exp3_update|tsallis_inf_update) probability=1": "another arm",
    r"gaussian_mpo_loss (target_)?stddev=0 target_mean": "positive",
    r"cpo_step ": "compared, and NaN shows in all results",
    r"rnd_reward discount=\S+ (predictions|targets)": "the deviation of all errors",
    r"episodic_memory_intrinsic_rewards reward_scale=0": "a mean distance",
    # A product of two data, of which the other is NaN.
    r"(dutch_trace|emphatic_trace|true_online_td_lambda) .* gradient": "a trace",
    r"(obgd_step_size|linucb_scores) .* gradient": "a step size, and a score",
    r"transformed_lambda_returns lambda_=1 v_t=nan gradient": "a transform",
    r"(exp3_prob|unimix_log)\w+ \w+=1 .* gradient of (exploration|mix)": "a softmax",
    # At an infinite value a gradient of -1, as that of a prediction, is 0.
    r"(leaky_)?vtrace\S* rho_tm1=0 v_tm1\S+ gradient of v_tm1": "stopped",
}

# Streams whose outputs are linear in their data: if one is NaN, the gradients of the
# others are finite.
LINEAR = (
    "discounted_returns",
    "lambda_returns",
    "n_step_bootstrapped_returns",
    "generalized_advantage_estimation",
    "truncated_generalized_advantage_estimation",
    "importance_corrected_td_errors",
    "vtrace",
    "td_lambda",
    "returns_to_go",
)

# Functions for `make test`; `make trust` sweeps all.
FEW = (
    "airl_logit",
    "icm_loss",
    "lambda_returns",
    "q_learning",
    "sac_critic_target",
    "tdc_loss",
    "vtrace",
)


def bounds(row, name):
    """Return the bounds that the signature states for an argument, such as `[0, 1]`."""
    spec = annotations.specs_of(row.annotated, [name]).get(name)
    rules = spec.rules if spec else ()
    found = [re.fullmatch(r"in ([\[(]\S+), (\S+[\])])", str(rule)) for rule in rules]
    return found[0].groups() if found and found[0] else ("(-inf", "inf)")


def is_weight(row, name):
    return bounds(row, name)[0] == "[0" or name in WEIGHTS


def weights_of(row, inputs):
    """Yield name, index and value of the entries at which a weight is 0."""
    for name, x in inputs.items():
        high = bounds(row, name)[1]
        index = tuple(size // 2 for size in x.shape)
        if x.dtype == bool:
            yield name, index, not x[index]
        elif contract.is_float(x) and is_weight(row, name):
            yield name, index, 0.0
        if contract.is_float(x) and bounds(row, name)[0][1:] == "0" and high == "1]":
            yield name, index, 1.0  # Then `1 - x` is 0.


def data_of(row, inputs):
    """Yield name and index of the entries to replace."""
    rng = np.random.default_rng(0)
    for name, x in inputs.items():
        is_data = bounds(row, name)[0] == "(-inf" and name not in WEIGHTS | NEITHER
        if contract.is_float(x) and (is_data or name in RATIOS):
            every = list(np.ndindex(x.shape))
            chosen = rng.permutation(len(every))[:ENTRIES]
            yield from ((name, every[i]) for i in sorted(chosen))


def inputs_of(row):
    """Sample arguments, with the coefficients and masks that may be left out.

    No discount is 0.
    """
    inputs = {
        name: np.array(x) for name, x in row.make(np.random.default_rng(0)).items()
    }
    for name, each in row.parameters.items():
        is_set = name in inputs or name in row.settings.keys() - COEFFICIENTS
        value = row.settings.get(name, each.default)
        if isinstance(value, float) and not is_set and is_weight(row, name):
            inputs[name] = np.array(value)
    if row.multistep:
        steps = np.ones(contract.STEPS, bool)
        inputs = {"sample_mask": steps, "truncated_t": ~steps} | inputs
    for name, x in inputs.items():
        if "discount" in name and x.dtype.kind == "f":
            inputs[name] = np.maximum(x, 0.3)
    return inputs


def cases_of(row, inputs):
    """Yield a label and the arguments of each case."""
    for weight, index, value in weights_of(row, inputs):
        for name, entry in data_of(row, inputs):
            if (weight, index) != (name, entry):
                changed = {n: np.array(x) for n, x in inputs.items()}
                changed[weight][index] = value
                label = (weight, value, name, entry)
                yield (
                    label,
                    [replaced(changed, name, entry, x) for x in (*FINITE, *ALIKE)],
                )


def replaced(inputs, name, entry, value):
    x = inputs[name].copy()
    x[entry] = abs(value) if name in RATIOS else value
    return inputs | {name: x}


def program_of(row, leaf):
    """Return a function that is compiled for many cases.

    Args:
        row: The function's row.
        leaf: The output to differentiate, the others are not used.

    Returns:
        A function of arguments and weights, which returns the output and the gradient
        of its weighted sum.
    """
    call = row.call()
    key = {} if row.key is None else {row.key: jax.random.key(0)}

    def program(inputs, weights):
        free = {name: inputs[name] for name in row.variables}

        def output(free):
            return floats(call(**key | inputs | free))[leaf]

        found, pull = jax.vjp(output, free)
        return found, pull(weights)[0]

    return jax.jit(jax.vmap(program))


def floats(outputs):
    return [x for x in jax.tree.leaves(outputs) if contract.is_float(x)]


def faults(found):
    """Return where results that are the same for all finite values change.

    Args:
        found: Results, `[cases, values, ...]`, of finite values and then of the others.

    Returns:
        Which results are the same for all finite values, `[cases, 1, ...]`; and pairs
        of a case and a value at which a result changes.
    """
    with np.errstate(invalid="ignore"):
        close = np.abs(found - found[:, :1]) <= 1e-5 * (1 + np.abs(found[:, :1]))
    wrong = []
    for k, (value, alike) in enumerate(ALIKE.items(), len(FINITE)):
        bad = close[:, alike].all(1) & ~close[:, k]
        cases = np.flatnonzero(bad.reshape(len(bad), -1).any(1))
        wrong += [(case, value) for case in cases]
    return close[:, : len(FINITE)].all(1, keepdims=True), wrong


def faults_of(row):
    """Return all cases in which infinity or NaN has an effect, unlike finite values."""
    inputs = inputs_of(row)
    labels, cases = zip(*cases_of(row, inputs), strict=True)
    shape = len(cases), len(cases[0])
    joined = {n: np.stack([x[n] for case in cases for x in case]) for n in inputs}
    batch = contract.to_jax(joined, np.float32)
    key = {} if row.key is None else {row.key: jax.random.key(0)}
    one = contract.to_jax(inputs, np.float32)
    leaves = floats(jax.eval_shape(row.call(), **key | one))
    found = []

    def split(x):
        return np.array(x).reshape(*shape, *x.shape[1:])

    for leaf, x in enumerate(leaves):
        program = program_of(row, leaf)

        def evaluate(weights, program=program):
            weights = weights.reshape(-1, *weights.shape[2:]).astype(np.float32)
            return jax.tree.map(split, program(batch, weights))

        outputs, _ = evaluate(np.zeros((*shape, *x.shape)))
        unaffected, wrong = faults(outputs)
        found += [(*labels[case], value) for case, value in wrong]
        _, gradient = evaluate(np.broadcast_to(unaffected, outputs.shape))
        for by, slope in gradient.items():
            _, wrong = faults(slope)
            found += [
                (*labels[case], value, f"gradient of {by}")
                for case, value in wrong
                if unaffected[case].all() or is_linear(row, by, labels[case][2])
            ]
    return found


def is_linear(row, by, name):
    """Return whether a NaN output keeps the gradients of the others finite.

    Elsewhere it has the gradient `0 * NaN`.
    """
    return row.name in LINEAR and not {by, name} & (WEIGHTS | RATIOS | LAMBDAS)


def has_weights(row):
    return any(cases_of(row, inputs_of(row)))


def assert_zeros_remove(row):
    found = [fault for fault in faults_of(row) if not is_exception(row, *fault)]
    assert not found, found[:10]


def is_exception(row, weight, value, name, entry, x, *gradient):
    text = " ".join([row.name, f"{weight}={value:.0f}", f"{name}={x}", *gradient])
    return any(re.match(pattern, text) for pattern in EXCEPTIONS)


ROWS = [row for row in contract.collect() if row.has_arguments and has_weights(row)]


@pytest.mark.trust
@pytest.mark.parametrize("row", contract.of_topic(ROWS), ids=lambda row: row.id)
def test_a_weight_of_0_removes_what_it_multiplies(row):
    assert_zeros_remove(row)


@pytest.mark.parametrize("name", FEW)
def test_a_weight_of_0_removes_what_it_multiplies_in_some_functions(name):
    assert_zeros_remove(next(row for row in ROWS if row.name == name))
