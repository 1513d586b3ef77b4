"""Test V-MPO: the selection and weights of steps, on one device and on many."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close
from jax.sharding import NamedSharding, PartitionSpec

import rlaxlib
from rlaxlib import LagrangePenalty

RNG = np.random.default_rng(0)
LOG_PROBS, ADVANTAGES = RNG.normal(size=(2, 4, 6)).astype(np.float32)
IMPORTANCE, KL = RNG.uniform(0.5, 1.5, (2, 4, 6)).astype(np.float32)
# Some devices have many valid steps, one has none.
VALID = np.arange(24).reshape(4, 6) % 7 < np.array([[7], [3], [0], [5]])
RESTARTING = VALID.astype(np.float32)


def identity(x):
    return x


@functools.partial(jax.jit, static_argnames="fraction")
def e_step(advantages, restarting=None, importance=None, temperature=1.0, fraction=0.5):
    ones = jnp.ones_like(advantages)
    return rlaxlib.vmpo_compute_weights_and_temperature_loss(
        advantages,
        ones if restarting is None else jnp.asarray(restarting, ones.dtype),
        ones if importance is None else importance,
        LagrangePenalty(jnp.asarray(temperature, ones.dtype), 0.0),
        identity,
        fraction,
    )


def loss(inputs, axis_name=None, temperature=0.7, **settings):
    log_probs, advantages, restarting, importance, kl = inputs
    return rlaxlib.vmpo_loss(
        log_probs,
        advantages,
        LagrangePenalty(temperature, 0.1),
        [(kl, LagrangePenalty(2.0, 0.5))],
        restarting_weights=restarting,
        importance_weights=importance,
        axis_name=axis_name,
        **settings,
    )


INPUTS = LOG_PROBS, ADVANTAGES, RESTARTING, IMPORTANCE, KL


@jax.jit
def top_k(fraction, restarting, advantages):
    """Return which steps the E-step selects."""
    _, weights, _ = rlaxlib.vmpo_compute_weights_and_temperature_loss(
        advantages,
        restarting,
        np.ones(np.shape(advantages), np.float32),
        LagrangePenalty(1e3, 0.1),
        jax.nn.relu,
        fraction,
    )
    return weights > 0


@functools.partial(jax.jit, static_argnames="use_stop_gradient")
def gradients_of_mean(inputs, use_stop_gradient=True):
    def mean(inputs):
        return jnp.mean(loss(inputs, use_stop_gradient=use_stop_gradient)[0])

    return jax.grad(mean)(inputs)


# --- Values and gradients. ---


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_ignored_steps_have_no_influence(dtype):
    advantages = np.array([-100.0, -101.0, -102.0, -103.0, 5.0, np.nan], dtype)
    found = e_step(advantages, np.array([1, 1, 1, 1, 0, 0]))
    expected = e_step(advantages[:4])
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[1], [*expected[1], 0.0, 0.0])
    weights = np.exp([1.0, 0.0]) / np.sum(np.exp([1.0, 0.0]))
    np.testing.assert_allclose(np.float32(found[1])[:2], weights, rtol=4e-3)
    assert found[2] == expected[2] == 2


@pytest.mark.parametrize("stop", [True, False])
def test_nan_at_ignored_steps_does_not_reach_the_gradients(stop):
    log_probs, advantages = np.where(VALID, (LOG_PROBS, ADVANTAGES), np.nan)
    inputs = log_probs, advantages, RESTARTING, IMPORTANCE, KL
    gradients = gradients_of_mean(inputs, use_stop_gradient=stop)
    for gradient in gradients:
        assert np.all(np.isfinite(gradient))
    np.testing.assert_array_equal(np.asarray(gradients[0])[~VALID], 0.0)
    np.testing.assert_array_equal(np.asarray(gradients[1])[~VALID], 0.0)


@pytest.mark.parametrize(
    ("fraction", "steps", "expected"),
    [
        (0.5, 2, 1),
        (0.5, 5, 2),
        (0.5, 1, 1),
        (0.1, 30, 3),
        (0.7, 10, 7),
        (0.53, 100, 53),
        (0.29, 100, 29),
        (1.0, 4, 4),
    ],
)
def test_the_fraction_of_the_valid_steps_is_rounded_down(fraction, steps, expected):
    restarting = np.float32(np.arange(120) < steps)
    marks = top_k(fraction, restarting, np.arange(120, dtype=np.float32))
    best = range(steps - expected, steps)
    np.testing.assert_array_equal(np.flatnonzero(marks), best)


@pytest.mark.parametrize("name", ["restarting_weights", "importance_weights"])
def test_without_a_valid_step_the_temperature_stays(name):
    def loss(temperature):
        steps, penalty = np.arange(3.0), LagrangePenalty(temperature, 0.3)
        none = {name: np.zeros(3)}
        return rlaxlib.vmpo_loss(steps, steps, penalty, [], **none)[1].temperature_loss

    value, gradient = jax.jit(jax.value_and_grad(loss))(0.7)
    assert value == gradient == 0


@pytest.mark.parametrize("restarting", [np.ones(6), np.array([0.0, 1, 1, 1, 1, 0])])
def test_ties_go_to_the_first_steps(restarting):
    for advantages in (np.zeros(6), np.array([0.0, 0.0, 1.0, 0.0, 0.0, 1.0])):
        marks = top_k(0.5, restarting, advantages)
        best = np.lexsort((np.arange(6), -advantages, -restarting))
        count = int(np.sum(restarting)) // 2
        np.testing.assert_array_equal(np.flatnonzero(marks), np.sort(best[:count]))


def test_without_a_valid_step_weights_and_gradients_are_zero():
    nothing = np.zeros((4, 6), np.float32)
    temperature_loss, weights, count = e_step(ADVANTAGES, nothing)
    assert temperature_loss == 0
    assert count == 0
    np.testing.assert_array_equal(weights, 0.0)
    inputs = LOG_PROBS, ADVANTAGES, nothing, IMPORTANCE, KL
    gradients = gradients_of_mean(inputs, use_stop_gradient=True)
    np.testing.assert_array_equal(gradients[0], 0.0)
    np.testing.assert_array_equal(gradients[1], 0.0)


def test_a_step_of_importance_weight_zero_has_no_weight():
    importance = np.array([0.0, 1.0, 2.0])
    advantages = np.array([1e3, 0.0, 0.0])
    temperature_loss, weights, count = e_step(
        advantages, importance=importance, fraction=1.0
    )
    close(weights, [0.0, 1 / 3, 2 / 3])
    close(temperature_loss, 0.0)
    assert count == 3


def test_an_advantage_of_minus_infinity_has_no_weight_and_finite_gradients():
    def total(advantages, temperature):
        found = e_step(advantages, temperature=temperature, fraction=1.0)
        return 1e-38 * found[0], found[1]

    advantages = np.array([1.0, -np.inf, 1.0, -1e9])
    gradient = jax.jit(jax.grad(total, argnums=(0, 1), has_aux=True))
    gradients, weights = gradient(advantages, 0.5)
    close(weights, [0.5, 0.0, 0.5, 0.0])
    assert all(np.all(np.isfinite(each)) for each in gradients)


@pytest.mark.parametrize("fraction", [0.5, 1.0])
def test_weights_equal_the_definition_at_any_temperature(fraction):
    # All are below 0, where ignored steps would come first if they counted as 0.
    advantages = ADVANTAGES - 8
    for temperature in (1e-6, 1e-3, 1.0, 1e3):
        scaled = np.asarray(advantages, np.float64) / np.float32(temperature)
        ranked = np.sort(scaled[VALID])[::-1]
        chosen = VALID & (scaled >= ranked[int(fraction * ranked.size) - 1])
        expected = np.exp(np.where(chosen, scaled - ranked[0], -np.inf))
        _, found, _ = e_step(advantages, RESTARTING, None, temperature, fraction)
        np.testing.assert_allclose(found, expected / expected.sum(), 1e-4, 1e-7)


# --- Many devices. ---


@pytest.mark.parametrize(("stop", "fraction"), [(True, 0.3), (False, 1.0)])
def test_a_sharded_batch_equals_the_whole_batch(stop, fraction):
    settings = {"use_stop_gradient": stop, "top_k_fraction": fraction}

    def whole(inputs, temperature):
        return jnp.mean(loss(inputs, None, temperature, **settings)[0])

    def sharded(inputs, temperature):
        def part(inputs):
            return loss(inputs, ["devices"], temperature, **settings)[0]

        return jnp.mean(jax.vmap(part, axis_name="devices")(inputs))

    @jax.jit
    def both(inputs):
        return [jax.value_and_grad(f, (0, 1))(inputs, 0.7) for f in (whole, sharded)]

    for advantages in (ADVANTAGES, np.round(ADVANTAGES)):  # The latter have ties.
        inputs = LOG_PROBS, advantages, RESTARTING, IMPORTANCE, KL
        jax.tree.map(close, *both(inputs))


def test_pmap_and_shard_map_equal_the_whole_batch():
    _, expected = jax.jit(loss)(INPUTS)
    devices = jax.devices()[:4]
    _, found = jax.pmap(
        functools.partial(loss, axis_name="devices"), "devices", devices=devices
    )(INPUTS)
    close(found.normalized_weights, expected.normalized_weights)
    close(found.policy_loss, expected.policy_loss)
    close(found.temperature_loss, np.full(4, expected.temperature_loss))

    mesh = jax.make_mesh((4,), ("devices",), devices=devices)
    rows, whole = PartitionSpec("devices"), PartitionSpec()
    outputs = rlaxlib.MpoOutputs(whole, rows, rows, rows, rows, whole)
    sharded = jax.shard_map(
        functools.partial(loss, axis_name="devices"),
        mesh=mesh,
        in_specs=(rows,),
        out_specs=(rows, outputs),
    )
    placed = jax.device_put(INPUTS, NamedSharding(mesh, rows))
    jax.tree.map(close, jax.jit(sharded)(placed)[1], expected)


@pytest.mark.parametrize(("fraction", "number"), [(0.53, 53), (0.59, 59), (0.001, 1)])
def test_the_fraction_may_be_traced_and_is_rounded_down(fraction, number):
    chosen = top_k(fraction, np.ones(100), np.arange(100, dtype=np.float32))
    np.testing.assert_array_equal(chosen, np.arange(100) >= 100 - number)


# --- Errors. ---


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: loss((LOG_PROBS, ADVANTAGES, None, None, KL[:2])),
            r"^vmpo_loss: `kl_constraints\[0\]\[0\]` has shape \(2, 6\), must",
        ),
        (
            lambda: rlaxlib.vmpo_loss(
                LOG_PROBS, ADVANTAGES, LagrangePenalty(1.0, 0.1, per_dimension=True), []
            ),
            r"`temperature_constraint.per_dimension` is True, must be False",
        ),
    ],
)
def test_names_the_wrong_argument(call, message):
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        call()
