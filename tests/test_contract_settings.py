"""Test every public function in the settings in which users run whole programs."""

import contextlib
import dataclasses

import contract
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import SINGLE, STEPS, each_row
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import rlaxlib
from rlaxlib._core import platforms

# Functions that do not run on an explicit mesh without `jax.set_mesh`, as JAX's gamma
# distribution does not.
NOT_ON_A_MESH = ["thompson_beta", "add_dirichlet_noise"]

# Arguments that are often the same for a whole batch.
ATOMS = ("z_q", "v_atoms_tm1", "v_atoms_t", "q_atoms_tm1", "q_atoms_t")
STATE = ("state.shift", "state.scale", "state.second_moment")
WHOLE = (*ATOMS, *STATE, "tau", "tau_src", "tau_q_tm1", "lambda_", "temperature")


# --- Explicit meshes, which `jax.make_mesh` makes. ---

# Older versions of JAX cannot map a select over a mesh if only its mask is mapped.
on_explicit_meshes = pytest.mark.skipif(
    jax.__version_info__ < (0, 10, 2), reason="explicit meshes need jax 0.10.2"
)


@on_explicit_meshes
@each_row("has_arguments", sample=True)
def test_can_be_traced_on_an_explicit_mesh(row):
    # Tracing finds what JAX cannot share over devices.
    mesh, inputs, _ = on_mesh(row)
    whole = tuple(name for name in WHOLE if name in inputs and len(inputs) > 1)
    alone = inputs | {name: row.inputs()[name] for name in whole}
    settings = [(mapped(row, whole), alone, False), (mapped(row), inputs, True)]
    for program, given, is_set in contract.share(settings, row.id, parts=2):
        context = jax.set_mesh(mesh) if is_set else contextlib.nullcontext()
        with unless_to_be_mended(row), context:
            jax.eval_shape(program, given)


# Programs for several devices take long to compile.
FEW = contract.share(
    contract.of_topic([row for row in contract.collect() if row.has_arguments]),
    "mesh",
    parts=24,
)


@on_explicit_meshes
@pytest.mark.parametrize("row", FEW, ids=[row.id for row in FEW])
def test_value_and_gradient_on_an_explicit_mesh_equal_those_on_one_device(row):
    _, inputs, alone = on_mesh(row)
    function = jax.jit(mapped(row))
    with unless_to_be_mended(row):
        actual = function(inputs)
    tolerance = SINGLE * row.scale(row.inputs())
    contract.assert_close(actual, function(alone), SINGLE, tolerance)


# Arguments whose last axis, as that of a vocabulary, devices may share as well.
WIDE_ARGUMENTS = {
    "token_log_probs": ["logits"],
    "policy_gradient_loss": ["logits_t"],
    "entropy_loss": ["logits_t"],
    "categorical_cross_entropy": ["labels", "logits"],
    "categorical_kl_divergence": ["p_logits", "q_logits"],
    "categorical_importance_sampling_ratios": ["pi_logits_t", "mu_logits_t"],
    "generalized_jsd": ["student_logits", "teacher_logits"],
    "q_learning": ["q_tm1", "q_t"],
    "group_advantages": ["rewards"],
}


@on_explicit_meshes
@pytest.mark.parametrize("name", WIDE_ARGUMENTS)
def test_devices_may_share_a_vocabulary_or_a_group(name):
    row = next(row for row in contract.collect() if row.name == name)
    mesh = jax.make_mesh((2, 2), ("batch", "model"), (AxisType.Explicit,) * 2)
    inputs = {name: jnp.asarray(x) for name, x in row.inputs().items()}
    for each in WIDE_ARGUMENTS[name]:
        size = inputs[each].shape[-1]
        inputs[each] = inputs[each][..., : size - size % 2]
    batch = contract.stack([inputs] * 2)

    def share(name, x):
        wide = name in WIDE_ARGUMENTS[row.name]
        middle = [None] * (x.ndim - 1 - wide)
        spec = PartitionSpec("batch", *middle, *["model"] * wide)
        return jax.device_put(x, NamedSharding(mesh, spec))

    shared = {name: share(name, x) for name, x in batch.items()}
    function = jax.jit(mapped(row))
    tolerance = SINGLE * row.scale(row.inputs())
    contract.assert_close(function(shared), function(batch), SINGLE, tolerance)


@on_explicit_meshes
@pytest.mark.parametrize("name", ["policy_gradient_loss", "entropy_loss"])
def test_devices_may_share_the_steps_of_a_mean(name):
    rows = [row.inputs() for row in contract.collect() if row.name == name]
    (inputs,) = (x for x in rows if "sample_mask" in x and "w_t" not in x)
    inputs = {name: x[: len(x) // 2 * 2] for name, x in inputs.items()}
    mesh = jax.make_mesh((2,), ("steps",), (AxisType.Explicit,))
    shared = jax.device_put(inputs, NamedSharding(mesh, PartitionSpec("steps")))
    call = jax.jit(getattr(rlaxlib, name))
    contract.assert_close(call(**shared), call(**inputs), SINGLE, SINGLE)


# --- Others. ---

# Their loop is not one over time or samples: bisections, blocks of tokens, n steps.
LOOPS = {
    *("kl_ucb_scores", "tsallis_inf_probabilities", "impute_expectile_samples"),
    *("imputed_expectile_q_learning", "linear_token_log_probs"),
    *("backtracking_line_search", "n_step_bootstrapped_returns", "n_step_transitions"),
    *("n_step_q_learning", "n_step_double_q_learning"),
    *("transformed_n_step_returns", "transformed_n_step_q_learning"),
}


@each_row("has_arguments", sample=True)
def test_the_program_of_a_gpu_has_no_loop_over_time_or_samples(row, monkeypatch):
    monkeypatch.setattr(platforms.backend, "backends", lambda: {"cpu": 0, "cuda": 1})
    # In a setting of its own: other tests may have traced the function for a CPU.
    with jax.default_matmul_precision("high"):
        traced = jax.jit(lambda inputs: row.call()(**inputs)).trace(row.inputs())
    program = traced.lower(lowering_platforms=("cuda",)).as_text()
    if row.key is None:  # JAX's random numbers have loops.
        assert ("while" in program) == (row.name in LOOPS)
    assert "f64" not in program
    for transfer in ("callback", "infeed", "outfeed", "stablehlo.send"):
        assert transfer not in program


@pytest.mark.parametrize("name", ["quantile_regression_loss", "categorical_l2_project"])
def test_the_program_of_a_gpu_has_no_loop_over_many_samples(name, monkeypatch):
    monkeypatch.setattr(platforms.backend, "backends", lambda: {"cpu": 0, "cuda": 1})
    function = getattr(rlaxlib, name)

    def gradient(x):
        return jax.grad(lambda y: jnp.sum(function(y, x, x) ** 2))(x)

    traced = jax.jit(gradient).trace(jnp.linspace(0.0, 1.0, 200))
    assert "while" in traced.lower(lowering_platforms=("cpu",)).as_text()
    assert "while" not in traced.lower(lowering_platforms=("cuda",)).as_text()


@each_row()
def test_tracing_transfers_nothing_and_products_have_full_precision(row):
    inputs = row.inputs()
    with jax.transfer_guard("disallow"):
        traced = jax.jit(lambda inputs: row.call()(**inputs)).trace(inputs)
    if "dot_general" not in str(traced.jaxpr):
        return
    if row.name == "linear_token_log_probs":
        pytest.skip("the logits are those of the model, in the precision of the user")
    program = traced.lower(lowering_platforms=("cuda",)).as_text()
    products = [line for line in program.splitlines() if "dot_general" in line]
    assert all("precision = [HIGHEST, HIGHEST]" in line for line in products)


@each_row("index_names", "gradients.exist", sample=True)
def test_an_index_may_have_a_dtype_that_cannot_hold_the_number_of_entries(row):
    if not hasattr(row.function(rlaxlib), "signature"):
        pytest.skip("its signature does not say what it indexes")
    specs = row.function(rlaxlib).signature().specs
    inputs = {name: widen(x, specs[name]) for name, x in row.inputs().items()}

    @jax.jit
    def program(inputs):
        return [
            row.call()(
                **inputs
                | {name: inputs[name].astype(dtype) for name in row.index_names}
            )
            for dtype in (jnp.int32, jnp.uint8, jnp.int8)
        ]

    expected, *narrow = program(inputs)
    for actual in narrow:
        contract.assert_close(actual, expected, SINGLE, SINGLE * row.scale(inputs))
    # An action of probability 0 has a log-probability of minus infinity.
    assert not any(np.isnan(x).any() for x in contract.leaves(expected))


# --- Helpers. ---


@contextlib.contextmanager
def unless_to_be_mended(row):
    """Expect that a function of `NOT_ON_A_MESH` may fail."""
    try:
        yield
    except Exception:
        if row.name in NOT_ON_A_MESH:
            pytest.xfail("to be mended")
        raise


def on_mesh(row):
    """Return a mesh, a batch of arguments that its devices share, and it on one."""
    inputs = row.inputs()
    if row.multistep:
        steps = jnp.arange(STEPS)
        inputs |= {"truncated_t": steps == 2, "sample_mask": steps != 4}
    devices = jax.device_count()
    axes = (AxisType.Explicit,)
    mesh = jax.make_mesh((devices,), ("batch",), axes)
    batch = contract.stack([inputs] * devices)
    shared = jax.device_put(batch, NamedSharding(mesh, PartitionSpec("batch")))
    return mesh, shared, batch


def mapped(row, whole=()):
    """Return value and gradient over a batch, some arguments being whole."""
    constants = row.gradients.constants + whole
    gradients = dataclasses.replace(row.gradients, constants=constants)
    row = dataclasses.replace(row, gradients=gradients)
    function = row.call(**row.setting(row.flags[-1]))

    def one(mapped, whole):
        return contract.gradient(row, function, mapped | whole)

    def program(inputs):
        left = {name: inputs[name] for name in whole}
        others = {name: x for name, x in inputs.items() if name not in whole}
        return jax.vmap(one, (0, None))(others, left)

    return program


def widen(x, spec, size=256):
    """Return an array with so many actions, or arms, that an int8 cannot count them."""
    axes = next(axes for axes in spec.shapes if "..." in axes or len(axes) == x.ndim)
    if "A" not in axes:
        return x
    axis = axes.index("A") - len(axes)
    wide = np.repeat(x, -(-size // x.shape[axis]), axis=axis)
    return jnp.asarray(np.take(wide, range(size), axis=axis))
