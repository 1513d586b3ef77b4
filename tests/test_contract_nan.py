"""Test that NaN in any argument shows in every result that depends on it.

A comparison with NaN is false, and `argmax`, `sort` and `top_k` rank NaN highest, so a
selection may hide it.
"""

import contract
import conversion
import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
import pytest
import shared_product
from contract import each_row

import rlaxlib
from rlaxlib._core import indexing, safe

# Arguments of which NaN is hidden from some results, each with the reason.
FAR = "a point that is not finite is infinitely far, as of an empty row of the memory"
LOWEST = "a sample whose return is NaN, where a model diverges, ranks lowest"
MASK = "a mask, whose values are 0 and 1"
REFUSED = "a step whose loss or divergence is NaN is not taken"
UNREACHED = "an atom that no sample is near has no weight"
NO_CHANGE = "a divergence of NaN does not change the coefficient, for ever"
HIDDEN = {
    "adaptive_kl_coefficient": {"kl": NO_CHANGE},
    "backtracking_line_search": dict.fromkeys(
        ("params", "step", "max_kl", "shrink"), REFUSED
    ),
    "categorical_double_q_learning": {"q_atoms_tm1": UNREACHED},
    "categorical_q_learning": {"q_atoms_tm1": UNREACHED},
    "cem_update": {"returns": LOWEST},
    "episodic_memory_intrinsic_rewards": {
        "embeddings": FAR,
        "intrinsic_reward_state.memory": FAR,
    },
    "get_top_k_weights": {"restarting_weights": MASK},
    "knn_entropy_reward": {"x": FAR},
    "knn_query": {"data": FAR, "query_points": FAR},
    "mppi_update": {"returns": LOWEST},
    "vmpo_compute_weights_and_temperature_loss": {"restarting_weights": MASK},
    "vmpo_loss": {"restarting_weights": MASK},
}
CHANGES = (-3.0, -0.3, -0.01, 0.01, 0.3, 3.0)
ENTRIES = 4 * (1 + 4 * contract.TRUST)


def variants(row, inputs):
    """Return arguments in which one entry is NaN, or has another value.

    Returns:
        The arguments, each with a first axis of changes, and the name and entry of each
        group of changes, the first of which is NaN, the second none.
    """
    rng = np.random.default_rng(0)
    groups = [
        (name, entry)
        for name in row.float_names
        for entry in rng.permutation(inputs[name].size)[:ENTRIES]
    ]
    batch = []
    for changed, entry in groups:
        for change in (np.nan, 0.0, *CHANGES):
            moved = np.array(inputs[changed]).ravel()
            moved[entry] += np.float32(change)
            batch.append({**inputs, changed: moved.reshape(inputs[changed].shape)})
    return conversion.stack(batch), groups


@each_row("float_names", sample=True)
def test_nan_shows_in_all_results_that_depend_on_it(row):
    function = row.call()
    batch, groups = variants(row, row.inputs())
    call = jax.jit(jax.vmap(lambda x: jax.tree.leaves(function(**x))))
    for output in call(batch):
        if not contract.is_float(output):
            continue  # An index or a flag cannot be NaN.
        found = np.asarray(output).reshape(len(groups), 2 + len(CHANGES), -1)
        for (name, entry), (bad, base, *others) in zip(groups, found, strict=True):
            with np.errstate(invalid="ignore"):
                gap = np.abs(np.array(others) - base)
            moved = np.any(np.isfinite(gap) & (gap > 1e-6 * (1 + np.abs(base))), 0)
            if name not in HIDDEN.get(row.name, {}):
                assert np.isnan(bad[moved]).all(), (name, entry)


def test_all_exceptions_are_functions_and_arguments():
    floats = {row.name: set() for row in contract.collect()}
    for row in contract.collect():
        floats[row.name] |= set(row.float_names)
    for name, reasons in HIDDEN.items():
        assert reasons.keys() <= floats[name]


# --- Results that cannot be NaN. ---


NAN = jnp.array([1.0, jnp.nan, 0.0])
# XLA drops NaN from a minimum or maximum that it fuses with a sum of this many entries.
MANY = 6000


SAMPLE = {
    "softmax": rlaxlib.softmax().sample,
    "clipped_entropy_softmax": rlaxlib.clipped_entropy_softmax(0.5).sample,
    "greedy": rlaxlib.greedy().sample,
    "epsilon_greedy": rlaxlib.epsilon_greedy(0.5).sample,
    "categorical_sample": rlaxlib.categorical_sample,
    "ez_greedy": lambda key, q: rlaxlib.ez_greedy(
        key, rlaxlib.EzGreedyState(0, 0), q, 0.0
    )[0],
}


@pytest.mark.parametrize("sample", SAMPLE.values(), ids=SAMPLE)
def test_a_sampled_action_is_out_of_range(sample):
    assert jax.jit(sample)(jax.random.key(0), NAN) == -1
    assert sample(jax.random.key(0), jnp.array([0.0, 1.0, 0.0])) in (0, 1, 2)


def test_a_value_of_an_illegal_action_may_be_nan():
    legal = np.array([True, False, True])
    for policy in (rlaxlib.softmax(), rlaxlib.greedy()):
        assert policy.sample(jax.random.key(0), NAN, action_mask=legal) >= 0


def test_flags_do_not_select_nan():
    assert not rlaxlib.high_entropy_mask(NAN, 0.5)[1]
    assert rlaxlib.high_entropy_mask(NAN, 0.5)[0]
    assert rlaxlib.outside_support(NAN, rlaxlib.twohot_pair(-1.0, 1.0, 3))[1]


# --- Reductions. ---


def test_maxima_and_minima_of_many_entries_show_nan():
    x = np.zeros((3000, 4), np.float32)
    x[5, 2] = np.nan
    for reduce in (safe.largest, safe.smallest):
        assert np.isnan(jax.jit(reduce)(x))
        found = jax.jit(lambda x, reduce=reduce: reduce(x, -1))(x)
        assert np.flatnonzero(np.isnan(found)) == [5]
    assert jax.jit(indexing.best)(x)[5] == -1


def test_xla_ignores_nan_in_large_maxima_in_some_versions_only():
    if jax.default_backend() != "cpu":
        pytest.skip("It is a fault of XLA on a CPU.")
    x = np.zeros((3000, 4), np.float32)
    x[5, 2] = np.nan
    # Where it is right, `safe.largest` and `safe.smallest` are not needed.
    is_right = bool(np.isnan(jax.jit(jnp.max)(x)))
    assert is_right == (jaxlib.__version__ not in shared_product.WRONG)


def test_nan_shows_in_losses_of_a_comparison():
    for found in (
        rlaxlib.expectile_loss(np.nan, 1.0, 0.0),
        rlaxlib.iql_value_loss(np.nan, 1.0, 0.0),
        rlaxlib.quantile_regression_loss(NAN, np.linspace(0, 1, 3), jnp.ones(3)),
        rlaxlib.quasimetric_distance(NAN[None], jnp.ones((1, 3))),
    ):
        assert np.isnan(found)


def test_nan_shows_in_a_temperature_loss_of_many_steps():
    @jax.jit
    def loss(x):
        penalty = rlaxlib.LagrangePenalty(1.0, 0.1)
        return rlaxlib.vmpo_loss(x, x, penalty, [])[1].temperature_loss

    ones = np.ones(MANY, np.float32)
    assert np.isfinite(loss(ones))
    assert np.isnan(loss(np.where(np.arange(MANY) == 7, np.float32(np.nan), ones)))


# --- A mean over a large batch. ---

# Functions for `make test`, of those that hid NaN; `make trust` sweeps all.
FEW = (
    *("advantage_weights", "balanced_kl", "crr_weights", "importance_weights"),
    "reward_scale",
)


def shows_nan_in_the_mean_of_a_batch(row):
    """Compare a compiled mean over a batch with the batch, whose first has NaN."""
    inputs, function = row.inputs(), row.call(**row.setting(row.flags[-1]))
    batch = {n: jnp.broadcast_to(x, (MANY, *x.shape)) for n, x in inputs.items()}

    def outputs(batch):
        call = jax.vmap(lambda x: jax.tree.leaves(function(**x)))
        return [x for x in call(batch) if contract.is_float(x)]

    mean = jax.jit(lambda batch: [jnp.mean(x, 0) for x in outputs(batch)])
    for name in row.float_names:
        first = np.array(inputs[name])
        for index in range(min(first.size, 2)):
            bad = first.copy()
            bad.ravel()[index] = np.nan
            one = {**inputs, name: bad}
            expected = outputs({key: x[None] for key, x in one.items()})
            many = {**batch, name: batch[name].at[0].set(bad)}
            for found, (single,) in zip(mean(many), expected, strict=True):
                is_nan = np.isnan(np.asarray(single))
                assert np.isnan(np.asarray(found)[is_nan]).all(), (name, index)


def each_of(rows):
    return pytest.mark.parametrize("row", rows, ids=[row.id for row in rows])


@each_of([row for row in contract.collect() if row.name in FEW])
def test_nan_shows_in_the_mean_of_a_batch(row):
    shows_nan_in_the_mean_of_a_batch(row)


@pytest.mark.trust
@each_of([row for row in contract.of_topic(contract.collect()) if row.float_names])
def test_nan_of_any_argument_shows_in_the_mean_of_a_batch(row):
    shows_nan_in_the_mean_of_a_batch(row)
