"""Test V-MPO: which steps it learns from, on one device and on many."""

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
LOG_PROBS, ADVANTAGES = jnp.asarray(RNG.normal(size=(2, 4, 6)), jnp.float32)
IMPORTANCE, KL = jnp.asarray(RNG.uniform(0.5, 1.5, (2, 4, 6)), jnp.float32)
# Some devices have many steps that count, one has none.
COUNTS = jnp.asarray(np.arange(24).reshape(4, 6) % 7 < np.array([[7], [3], [0], [5]]))
RESTARTING = COUNTS.astype(jnp.float32)


def identity(x):
    return x


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


# --- What the functions compute. ---


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32])
def test_a_step_that_does_not_count_is_as_good_as_not_there(dtype):
    advantages = jnp.array([-100.0, -101.0, -102.0, -103.0, 5.0, jnp.nan], dtype)
    found = e_step(advantages, [1, 1, 1, 1, 0, 0])
    expected = e_step(advantages[:4])
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[1], [*expected[1], 0.0, 0.0])
    weights = np.exp([1.0, 0.0]) / np.sum(np.exp([1.0, 0.0]))
    np.testing.assert_allclose(found[1][:2].astype(jnp.float32), weights, rtol=4e-3)
    assert found[2] == expected[2] == 2


def test_a_step_that_does_not_count_poisons_no_gradient():
    log_probs = LOG_PROBS.at[~COUNTS].set(jnp.nan)
    advantages = ADVANTAGES.at[~COUNTS].set(jnp.nan)
    inputs = log_probs, advantages, RESTARTING, IMPORTANCE, KL
    for stop in (True, False):
        gradients = jax.grad(
            lambda x, stop=stop: jnp.mean(loss(x, use_stop_gradient=stop)[0])
        )(inputs)
        for gradient in gradients:
            assert jnp.all(jnp.isfinite(gradient))
        np.testing.assert_array_equal(gradients[0][~COUNTS], 0.0)
        np.testing.assert_array_equal(gradients[1][~COUNTS], 0.0)


@pytest.mark.parametrize(
    ("fraction", "steps", "expected"),
    [(0.5, 2, 1), (0.5, 5, 2), (0.5, 1, 1), (0.1, 30, 3), (0.7, 10, 7), (1.0, 4, 4)],
)
def test_the_fraction_is_of_the_steps_that_count(fraction, steps, expected):
    restarting = (jnp.arange(40) < steps).astype(jnp.float32)
    marks = rlaxlib.get_top_k_weights(fraction, restarting, jnp.arange(40.0))
    np.testing.assert_array_equal(jnp.sum(marks), expected)
    best = range(steps - expected, steps)
    np.testing.assert_array_equal(jnp.flatnonzero(marks), best)


@pytest.mark.parametrize("restarting", [jnp.ones(6), jnp.array([0.0, 1, 1, 1, 1, 0])])
def test_of_equal_advantages_the_first_are_marked(restarting):
    for advantages in (jnp.zeros(6), jnp.array([0.0, 0.0, 1.0, 0.0, 0.0, 1.0])):
        marks = rlaxlib.get_top_k_weights(0.5, restarting, advantages)
        best = np.lexsort((np.arange(6), -advantages, -restarting))
        count = int(jnp.sum(restarting)) // 2
        np.testing.assert_array_equal(jnp.flatnonzero(marks), np.sort(best[:count]))


def test_no_step_at_all_leaves_the_temperature_alone():
    temperature_loss, weights, count = e_step(ADVANTAGES, jnp.zeros((4, 6)))
    assert temperature_loss == 0
    assert count == 0
    np.testing.assert_array_equal(weights, 0.0)
    inputs = LOG_PROBS, ADVANTAGES, jnp.zeros((4, 6)), IMPORTANCE, KL
    gradients = jax.grad(lambda x: jnp.mean(loss(x)[0]))(inputs)
    np.testing.assert_array_equal(gradients[0], 0.0)
    np.testing.assert_array_equal(gradients[1], 0.0)


def test_an_importance_weight_of_zero_leaves_no_weight_and_no_nan():
    importance = jnp.array([0.0, 1.0, 2.0])
    advantages = jnp.array([1e3, 0.0, 0.0])
    temperature_loss, weights, count = e_step(
        advantages, importance=importance, fraction=1.0
    )
    close(weights, [0.0, 1 / 3, 2 / 3])
    close(temperature_loss, 0.0)
    assert count == 3


@pytest.mark.parametrize("temperature", [1e-6, 1e-3, 1.0, 1e3])
def test_weights_are_right_at_any_temperature(temperature):
    # All are below 0, as which steps that do not count must not take part.
    advantages = ADVANTAGES - 8
    scaled = np.asarray(advantages, np.float64) / np.float32(temperature)
    ranked = np.sort(scaled[np.asarray(COUNTS)])[::-1]
    for fraction in (0.5, 1.0):
        chosen = COUNTS & (scaled >= ranked[int(fraction * ranked.size) - 1])
        expected = np.exp(np.where(chosen, scaled - ranked[0], -np.inf))
        _, weights, _ = e_step(advantages, RESTARTING, None, temperature, fraction)
        np.testing.assert_allclose(weights, expected / expected.sum(), 1e-4, 1e-7)


def test_an_advantage_that_is_no_number_shows():
    _, weights, _ = e_step(jnp.array([1.0, jnp.nan, 2.0, 3.0]))
    assert jnp.all(jnp.isnan(weights[jnp.array([1, 2, 3])]))


# --- How the functions behave on many devices. ---


@pytest.mark.parametrize("stop", [True, False])
@pytest.mark.parametrize("fraction", [0.3, 0.5, 1.0])
@pytest.mark.parametrize("ties", [True, False])
def test_devices_give_what_one_device_gives(stop, fraction, ties):
    settings = {"use_stop_gradient": stop, "top_k_fraction": fraction}
    advantages = jnp.round(ADVANTAGES) if ties else ADVANTAGES
    inputs = LOG_PROBS, advantages, RESTARTING, IMPORTANCE, KL

    def mean(inputs, temperature, axis_name):
        settled = functools.partial(loss, temperature=temperature, **settings)
        if axis_name is None:
            return jnp.mean(settled(inputs)[0])
        each = jax.vmap(lambda x: settled(x, axis_name)[0], axis_name=axis_name)
        return jnp.mean(each(inputs))

    one, other = (
        jax.jit(jax.value_and_grad(mean, (0, 1)), static_argnums=2)(
            inputs, 0.7, axis_name
        )
        for axis_name in (None, "devices")
    )
    jax.tree.map(close, one, other)


def test_devices_agree_under_pmap_and_shard_map():
    _, expected = loss(INPUTS)
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


# --- What the functions refuse. ---


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: rlaxlib.get_top_k_weights(0.01, jnp.ones(4), jnp.ones(4)),
            r"^get_top_k_weights: `int\(top_k_fraction \* 4\)` must be at least 1",
        ),
        (
            lambda: e_step(ADVANTAGES, fraction=1.5),
            r"`top_k_fraction` must lie in \(0, 1\], but is 1.5",
        ),
        (
            lambda: jax.jit(lambda fraction: e_step(ADVANTAGES, fraction=fraction))(
                0.5
            ),
            r"`top_k_fraction` must be a Python value, but is traced",
        ),
        (
            lambda: e_step(ADVANTAGES, 0.5 * RESTARTING),
            r"`restarting_weights` must hold 0 or 1, but is 0.5",
        ),
        (
            lambda: e_step(ADVANTAGES, importance=-IMPORTANCE),
            r"`importance_weights` must lie in \[0, inf\)",
        ),
        (
            lambda: loss((LOG_PROBS, ADVANTAGES, None, None, KL[:2])),
            r"^vmpo_loss: `kl_constraints\[0\]\[0\]` is float32\[2, 6\], .*= 4, 6",
        ),
    ],
)
def test_says_what_is_wrong(call, message):
    with pytest.raises(rlaxlib.ArgumentError, match=message):
        call()
