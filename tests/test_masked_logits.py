"""Test every function of logits: a masked action is as good as a deleted one."""

import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlaxlib
from rlaxlib._core.specs import Interval

LOGITS = (
    "action_logits",
    "logits",
    "logits_t",
    "mu_logits",
    "mu_logits_t",
    "p_logits",
    "pi_logits_t",
    "posterior_logits",
    "prior_logits",
    "q_logits",
    "student_logits",
    "target_logits",
    "teacher_logits",
)
# Logits of atoms, which no mask rules out.
OF_ATOMS = ("q_logits_t", "q_logits_tm1", "v_logits_t", "v_logits_tm1")
# Other arguments whose softmax a function takes, for which -inf marks illegal actions.
VALUES = {
    "discrete_cql_loss": ("q",),
    "effective_sample_size": ("log_weights",),
    "mellowmax": ("q",),
    "munchausen_q_learning": ("target_q_tm1", "target_q_t"),
    "soft_q_learning": ("q_t",),
    "soft_value": ("q",),
}
RATIOS = ("effective_sample_size",)  # Only those count, of numbers of any size.
LOWEST = float(np.finfo(np.float32).min)
TEMPERATURES = (0.1, 0.5, 0.9, 1.0, 2.0, 10.0)
SCALE = 1e3  # Of a loss: a gradient of 0 times a large number is 0.


def masked_names(row):
    """Return the names of the arguments whose entries are masked."""
    names = VALUES.get(row.name, LOGITS)
    return [name for name in row.specs if name in names]


ROWS = [row for row in contract.collect() if masked_names(row)]
DRAWN = [row for row in ROWS if row.name.endswith(".sample")]
ALIKE = [row for row in ROWS if row.key is None and "deletion" not in row.excused]


def each(rows):
    return pytest.mark.parametrize("row", rows, ids=[row.id for row in rows])


def call_of(row):
    """Return the function of a temperature, and of arguments; the former may be None.

    Distributions have their temperature as a setting.
    """
    factory, _, method = row.name.partition(".")
    settings = {"clipped_entropy_softmax": (0.75,)}.get(factory, ())

    def call(temperature, arguments):
        if "temperature" in row.specs:
            return row.call()(**arguments, temperature=temperature)
        if factory.endswith("softmax"):
            made = getattr(rlaxlib, factory)(temperature, *settings)
            return getattr(made, method)(**arguments)
        return row.call()(**arguments)

    return call


def spread(row, arguments):
    """Return the names of all arguments whose last axis holds the actions."""
    axes = {axes[-1] for name in masked_names(row) for axes in row.specs[name].shapes}
    size = arguments[masked_names(row)[0]].shape[-1]
    return [
        name
        for name, x in arguments.items()
        if name in row.specs
        and any(each and each[-1] in axes for each in row.specs[name].shapes)
        and x.ndim
        and x.shape[-1] == size
    ]


def sampled(row, kept, dtype):
    """Sample arguments that have no use for the actions from `kept` on."""
    arguments = row.inputs(1, dtype)
    arguments.pop("temperature", None)
    for name, x in arguments.items():
        if name in (*row.index_names, "tokens"):
            arguments[name] = np.minimum(x, kept - 1)
        elif name == "labels":
            left = replaced(x, kept, 0)
            arguments[name] = left / np.sum(left, axis=-1, keepdims=True)
        elif name == "visits":
            arguments[name] = replaced(x, kept, 0)
        elif name == "action_mask":
            arguments[name] = np.asarray(x) | (np.arange(x.shape[-1]) == 0)
    return arguments


def replaced(x, kept, fill):
    """Return an array with a constant from action `kept` on."""
    x = np.array(x)
    x[..., kept:] = fill
    return x


def differentiate(row):
    """Compile outputs and gradients as a function of the actions that are kept."""
    call = call_of(row)
    names = row.variables

    def total(moved, temperature, arguments, is_kept):
        outputs = jax.tree.leaves(call(temperature, arguments | moved))
        outputs = [only(x, is_kept) for x in outputs]
        return SCALE * weigh(outputs), outputs

    def run(temperature, arguments, is_kept):
        moved = {name: arguments[name] for name in names if name in arguments}
        gradient = jax.grad(total, has_aux=True)
        return gradient(moved, temperature, arguments, is_kept)[::-1]

    return jax.jit(run)


def only(x, is_kept):
    """Return an output with zeros for the actions that are not kept."""
    if not is_wide(x, is_kept.size):
        return x
    return jnp.where(jnp.broadcast_to(is_kept, x.shape), x, jnp.zeros_like(x))


def is_wide(x, size):
    """Return whether the last axis of an output holds the actions."""
    return x.ndim and x.shape[-1] == size


def weigh(outputs):
    """Sum all floats with weights that do not depend on the number of actions."""
    rng = np.random.default_rng(0)
    total = 0.0
    for x in map(jnp.atleast_1d, filter(contract.is_float, outputs)):
        weights = rng.normal(size=(*x.shape[:-1], 100))[..., : x.shape[-1]]
        total += jnp.sum(jnp.asarray(weights, x.dtype) * x)
    return total


def compare(row, run, kept, fills, temperatures, dtype=np.float32):
    """Compare a function of masked actions with that of the others alone."""
    given = sampled(row, kept, dtype)
    logits, wide = masked_names(row), spread(row, given)
    size = given[logits[0]].shape[-1]
    deleted = {n: x[..., :kept] if n in wide else x for n, x in given.items()}
    is_kept = np.arange(size) < kept
    relative = 1e-4 if np.dtype(dtype).itemsize >= 4 else 2e-2
    wide_dtype = np.float64 if dtype == np.float64 else np.float32
    for temperature in np.asarray(temperatures, wide_dtype):
        outputs, gradients = run(temperature, deleted, is_kept[:kept])
        for fill in fills:
            masked = {n: replaced(given[n], kept, fill) for n in logits}
            found, found_gradients = run(temperature, given | masked, is_kept)
            found = [x[..., :kept] if is_wide(x, size) else x for x in found]
            contract.assert_close(found, outputs, relative, relative)
            for name, right in gradients.items():
                whole = np.float64(found_gradients[name])
                rest = whole[..., kept:] if name in wide else np.zeros(1)
                if name not in logits:  # Labels of illegal actions: finite.
                    # It would be about 1e38, which float16 cannot hold.
                    is_half = np.dtype(dtype) == np.float16
                    rest = np.isnan(rest) if is_half else 0.0 * rest
                np.testing.assert_array_equal(rest, 0, err_msg=name)
                gradient = whole[..., :kept] if name in wide else whole
                absolute = relative * SCALE
                np.testing.assert_allclose(
                    gradient, np.float64(right), relative, absolute, err_msg=name
                )


def temperatures_of(row):
    has_one = "temperature" in row.specs or "softmax." in row.name
    return TEMPERATURES if has_one else (1.0,)


def fits(row, kept):
    """Return whether a function has settings for so few actions."""
    size = row.inputs(1)[masked_names(row)[0]].shape[-1]
    return kept < size and row.settings.get("top_k", 0) < kept


def test_all_arguments_of_logits_are_masked():
    names = {name for row in contract.collect() for name in row.specs}
    assert {x for x in names if x.endswith(("logits", "logits_t", "logits_tm1"))} == {
        *LOGITS,
        *OF_ATOMS,
    }


@each(contract.sampled(ALIKE, "masked logits"))
def test_masked_logits_count_as_deleted(row):
    """Values and gradients, for masks of minus infinity and of the lowest float."""
    fills = [-np.inf, LOWEST, -3e38]
    fills += [] if "padding" in row.excused else [-1e9]
    run = differentiate(row)
    for kept in (3, 1):
        if fits(row, kept):
            compare(row, run, kept, fills, temperatures_of(row))
    if "padding" not in row.excused:
        assert_no_nan_without_entries(row, run)


def assert_no_nan_without_entries(row, run):
    """Mask all entries of one argument, and of all: padding has no legal action."""
    given, every = sampled(row, 3, np.float32), masked_names(row)
    is_kept = np.ones(given[every[0]].shape[-1], bool)
    for names in [*((name,) for name in every), every]:
        expected = None
        for fill in (-np.inf, LOWEST)[: 1 if row.name in RATIOS else 2]:
            masked = {n: np.full_like(given[n], fill) for n in names}
            found = jax.tree.leaves(run(np.float32(1), given | masked, is_kept))
            found = [np.asarray(x) for x in found if contract.is_float(x)]
            assert not any(np.any(np.isnan(x)) for x in found)
            expected = expected or found
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_allclose(one, other, 1e-5, 1e-5, err_msg=f"{names}")


@pytest.mark.trust
@each(ALIKE)
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, np.float64])
def test_the_lowest_float_of_any_dtype_masks(row, dtype):
    promotion = jax.numpy_dtype_promotion("standard")  # Temperatures are float32.
    with contract.x64(dtype == np.float64), promotion:
        fills = [float(jnp.finfo(dtype).min), -np.inf]
        if fits(row, 3):
            compare(row, differentiate(row), 3, fills, temperatures_of(row), dtype)


def test_a_masked_action_stays_illegal_beside_nan():
    mask = np.array([True, True, False])
    q, visits = np.float32([1, 1, 7]), np.arange(3)
    v_mix = rlaxlib.mixed_value(
        np.float32([0, np.nan, 0]), q, visits, 0.0, action_mask=mask
    )
    assert np.isnan(v_mix)  # Not the value of the masked action.


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, np.float32])
def test_the_lowest_float_is_no_legal_action(dtype):
    """In float16 it is -65504, which is no more than a low logit in float32."""
    logits = np.array([0.0, 0.0, 0.0, jnp.finfo(dtype).min], dtype)
    policy = rlaxlib.clipped_entropy_softmax(entropy_clip=0.5)
    mean = (
        np.float64(policy.entropy(logits)),
        np.float64(rlaxlib.mellowmax(logits, 1.0)),
    )
    np.testing.assert_allclose(mean, [0.5 * np.log(3), 0.0], atol=3e-3)


@each(DRAWN)
def test_no_masked_action_is_sampled(row):
    call, given = jax.jit(call_of(row)), sampled(row, 2, np.float32)
    for fill in (-np.inf, LOWEST, -1e9):
        masked = given | {"logits": replaced(given["logits"], 2, fill)}
        for temperature in (0.1, 10.0):
            assert np.max(call(temperature, masked)) < 2


@each([row for row in ROWS if "deletion" in row.excused])
def test_masked_logits_give_finite_gradients(row):
    """Where a masked action is not as good as a deleted one."""
    given = sampled(row, 3, np.float32)
    run = differentiate(row)
    for fill in (-np.inf, LOWEST, -3e38, -1e9):
        masked = {n: replaced(given[n], 3, fill) for n in masked_names(row)}
        _, gradients = run(np.float32(1), given | masked, np.arange(4) < 3)
        assert all(np.all(np.isfinite(x)) for x in gradients.values())


# --- Actions of the data that are impossible. ---


# Functions whose value is the mean of all actions: infinity minus infinity.
OF_MEANS = ("acer_policy_loss", "counterfactual_advantage")


def taken(row):
    """Yield the names of values of all actions, and of the actions taken there."""
    for index in filter(row.specs.__contains__, row.index_names):
        of_index = row.specs[index]
        axes = [rule.high for rule in of_index.rules if isinstance(rule, Interval)]
        for name, spec in row.specs.items():
            is_next = index.endswith("_tm1") and name.endswith("_t")
            whole = [each for each in spec.shapes if each and each[-1] in axes]
            is_alike = any(each[:-1] in of_index.shapes for each in whole)
            is_data = spec.is_float and not spec.rules and "." not in name
            if is_alike and is_data and not is_next:
                yield name, index


TAKEN = [
    row
    for row in contract.collect()
    if row.key is None and row.name not in OF_MEANS and any(taken(row))
]


@each([*{row.name: row for row in TAKEN}.values()])
def test_an_impossible_action_of_the_data_gives_no_nan(row):
    """Its value is minus infinity, and then that of another action as well."""
    for name, index in taken(row):
        given = row.inputs()
        if name not in given:
            continue
        first = (0,) * given[index].ndim
        for further in range(2):
            values = np.array(given[name])
            values[first][(given[index][first] + further) % values.shape[-1]] = -np.inf
            given[name] = values
            found = jax.tree.leaves(row.call()(**given))
            nan = [np.any(np.isnan(x)) for x in found if contract.is_float(x)]
            assert not any(nan), (name, index)


def test_the_lowest_float_masks_as_the_definition_says():
    """Entropy H and its gradient -p (log p + H) / τ, by NumPy in double precision."""
    temperature, x = 0.5, np.array([1.0, 0.0])
    p = np.exp(x / temperature) / np.sum(np.exp(x / temperature))
    entropy = -np.sum(p * np.log(p))
    slope = np.append(-p * (np.log(p) + entropy) / temperature, 0.0)
    logits = np.float32([*x, LOWEST])

    def of_tokens(logits):
        log_probs = rlaxlib.token_log_probs
        return log_probs(logits, 0, temperature=temperature, with_entropy=True)[1]

    for function in (rlaxlib.softmax(temperature).entropy, of_tokens):
        value, gradient = jax.jit(jax.value_and_grad(function))(logits)
        np.testing.assert_allclose(value, entropy, rtol=1e-6)
        np.testing.assert_allclose(gradient, slope, rtol=1e-5, atol=1e-7)
    kl = jax.jit(jax.value_and_grad(rlaxlib.categorical_kl_divergence))
    value, gradient = kl(logits, logits, temperature)
    assert value == 0
    np.testing.assert_array_equal(gradient, np.zeros(3))


def test_a_factor_of_the_entropy_leaves_the_gradient_of_a_masked_logit_at_zero():
    @jax.jit
    @jax.grad
    def gradient(logits, scale):
        q = np.ones(3, np.float32)
        return scale * rlaxlib.discrete_sac_policy_loss(logits, q, 2.0)

    for scale in (1.0, 1e4):
        assert gradient(np.float32([1.0, 0.0, LOWEST]), scale)[2] == 0
