"""Test PPO-penalty, its adaptive coefficient, SPO and DPO. See also `test_ppo`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experience import close

import rlaxlib

RNG = np.random.default_rng(0)
OLD = -RNG.uniform(0.5, 2.0, 64).astype(np.float32)
LOG_PROB = OLD + RNG.normal(scale=0.5, size=64).astype(np.float32)
ADVANTAGES = RNG.normal(size=64).astype(np.float32)


@pytest.mark.parametrize(
    ("kl", "expected"), [(0.6, 2.0), (0.7, 4.0), (1.4, 4.0), (1.6, 8.0), (np.nan, 4.0)]
)
def test_coefficient_changes_only_outside_the_tolerance(kl, expected):
    assert rlaxlib.adaptive_kl_coefficient(4.0, kl, 1.0) == expected


def test_coefficient_uses_the_tolerance_and_factor_given():
    found = [
        rlaxlib.adaptive_kl_coefficient(6.0, kl, 1.0, tolerance=3.0, factor=1.5)
        for kl in (0.2, 0.5, 2.0, 4.0)
    ]
    np.testing.assert_array_equal(found, [4.0, 6.0, 6.0, 9.0])


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float16, jnp.bfloat16])
def test_coefficient_comes_back_from_any_number_of_changes(dtype):
    @jax.jit
    def after(coefficient, kl, number):
        def step(_, x):
            return rlaxlib.adaptive_kl_coefficient(x, kl, 0.01)

        return jax.lax.fori_loop(0, number, step, coefficient)

    low = after(jnp.ones((), dtype), 0.0, 1000)
    high = after(low, 1.0, 1000)
    rtol = float(jnp.finfo(dtype).eps)
    close(low, 1e-6, rtol=max(rtol, 0.06 * (dtype == jnp.float16)))  # A subnormal.
    close(high, 1e4, rtol=rtol)
    close(after(high, 0.0, 1), 5e3, rtol=rtol)
    assert after(jnp.zeros((), dtype), 1.0, 9) == 0


def test_coefficient_has_the_bounds_given():
    bounds = {"minimum": 3.0, "maximum": 5.0}
    found = [
        rlaxlib.adaptive_kl_coefficient(4.0, kl, 1.0, **bounds)
        for kl in (0.1, 1.0, 9.0)
    ]
    np.testing.assert_array_equal(found, [3.0, 4.0, 5.0])


def test_coefficient_is_the_same_on_all_devices():
    def step(kl):
        return rlaxlib.adaptive_kl_coefficient(4.0, kl, 1.0, axis_name="devices")

    # Their mean is 1.6; each alone would give another coefficient.
    step = jax.jit(jax.vmap(step, axis_name="devices"))
    np.testing.assert_array_equal(step(np.array([0.1, 3.1])), [8.0, 8.0])


def test_masked_divergence_may_be_nan():
    mask, bad = np.array([True, False]), np.array([1.0, np.nan])

    def total(log_prob, kl):
        loss, _ = rlaxlib.ppo_penalty_loss(
            log_prob, bad, bad, 3.0, kl=kl, sample_mask=mask
        )
        return jnp.sum(loss), loss

    gradient = jax.jit(jax.grad(total, argnums=(0, 1), has_aux=True))
    found, loss = gradient(bad, bad)
    np.testing.assert_array_equal(loss, [2.0, 0.0])
    np.testing.assert_array_equal(found, [[-1.0, 0.0], [3.0, 0.0]])


def test_spo_loss_is_minimal_at_the_bound():
    ratio = np.array([0.9, 1.25, 1.5, 1.1, 0.75, 0.5])
    adv = np.array([1.0, 1.0, 1.0, -1.0, -1.0, -1.0])

    def total(log_prob):
        loss, _ = rlaxlib.simple_policy_loss(log_prob, np.zeros(6), adv, epsilon=0.25)
        return jnp.sum(loss)

    by_ratio = np.array([-1.4, 0.0, 1.0, 1.4, 0.0, -1.0])
    close(jax.jit(jax.grad(total))(np.log(ratio)), ratio * by_ratio)


def test_drift_is_positive_only_where_a_ratio_moved_with_its_advantage():
    ratio, adv = np.exp(LOG_PROB - OLD), ADVANTAGES
    loss = jax.jit(rlaxlib.discovered_policy_loss)(LOG_PROB, OLD, adv)[0]
    loss = np.asarray(loss)
    favored = (ratio - 1) * adv > 0
    close(loss[~favored], -(ratio * adv)[~favored])
    assert np.all(loss[favored] > -(ratio * adv)[favored])
