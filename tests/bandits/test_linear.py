"""Test linear bandits: LinUCB and linear Thompson sampling."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import x64
from regret import SEEDS, growth, many_samples, run_updates

import rlaxlib

FEATURES, NOISE = 4, 0.3


@functools.cache
def linear_regret(kind):
    """Return regrets, errors relative to the confidence radius, and a bound."""
    steps, delta = 1000, 0.05
    spread = FEATURES * np.log(1 + steps / FEATURES) + 2 * np.log(1 / delta)
    radius = NOISE * np.sqrt(spread) + 1
    bound = 4 * np.sqrt(steps * FEATURES * np.log(1 + steps / FEATURES)) * radius

    def run(key):
        of_weights, key = jax.random.split(key)
        weights = jax.random.normal(of_weights, (FEATURES,))
        weights = weights / jnp.linalg.norm(weights)

        def step(state, key):
            of_contexts, of_noise, of_sample = jax.random.split(key, 3)
            contexts = jax.random.normal(of_contexts, (5, FEATURES))
            contexts = contexts / jnp.linalg.norm(contexts, axis=1, keepdims=True)
            if kind == "linucb":
                scores = rlaxlib.linucb_scores(state, contexts, radius)
            else:
                sample = rlaxlib.linear_thompson_sample(of_sample, state, NOISE)
                scores = contexts @ sample
            arm = jnp.argmax(scores)
            means = contexts @ weights
            reward = means[arm] + NOISE * jax.random.normal(of_noise)
            state = rlaxlib.linucb_update(state, contexts[arm], reward)
            return state, (jnp.max(means) - means[arm], state.root, state.weights)

        state = rlaxlib.linear_bandit_init(FEATURES)
        _, (regret, *estimates) = jax.lax.scan(
            step, state, jax.random.split(key, steps)
        )
        return jnp.cumsum(regret), *estimates, weights

    keys = jax.random.split(jax.random.key(1), SEEDS)
    regret, roots, estimates, weights = map(np.asarray, jax.jit(jax.vmap(run))(keys))
    difference = estimates - weights[:, None]
    error = np.linalg.norm(np.linalg.solve(roots, difference[..., None]), axis=(2, 3))
    return regret, np.max(error, axis=1) / radius, bound


def test_linucb_is_right_with_its_confidence_and_regret_is_within_the_bound():
    regret, error, bound = linear_regret("linucb")
    assert np.mean(error < 1) > 0.95
    assert np.mean(regret[:, -1] < bound) > 0.95
    assert growth(regret) < 0.6


def test_linear_thompson_regret_is_within_the_bound_of_linucb_and_sublinear():
    regret, _, bound = linear_regret("thompson")
    assert np.mean(regret[:, -1] < bound) > 0.95
    assert growth(regret) < 0.6


def test_linear_thompson_samples_have_the_moments_of_the_posterior():
    root = np.float32([[1, 0], [0.5, 0.25]])
    weights, rests = np.float32([1, -2]), np.zeros((3, 2), np.float32)
    state = rlaxlib.LinearBanditState(weights, root, rests[0], rests[1:])
    samples = many_samples(lambda key: rlaxlib.linear_thompson_sample(key, state, 2.0))
    np.testing.assert_allclose(samples.mean(axis=0), state.weights, 0, 0.05)
    np.testing.assert_allclose(np.cov(samples.T), 4 * root @ root.T, 0.05, 0.02)


def contexts_of(kind, steps, rng):
    """Draw contexts: alike in all directions, or nearly the same all the time."""
    x = rng.normal(size=(steps, 6))
    if kind == "concentrated":
        x = rng.normal(size=6) + 1e-4 * x
        x[:500] += 1e-2 * rng.normal(size=(500, 6))
    return x.astype(np.float32)


@pytest.mark.parametrize(
    ("kind", "tolerances"),
    [("isotropic", (2e-5, 5e-5)), ("concentrated", (5e-3, 5e-4))],
)
def test_linucb_is_accurate_after_100_000_updates_in_single_precision(kind, tolerances):
    steps, rng = 100_000, np.random.default_rng(0)
    contexts, weights = contexts_of(kind, steps, rng), rng.normal(size=6)
    rewards = (contexts @ weights + 0.1 * rng.normal(size=steps)).astype(np.float32)
    x = contexts.astype(np.float64)
    precision = np.eye(6) + x.T @ x
    exact = np.linalg.solve(precision, x.T @ rewards)
    probes = rng.normal(size=(20, 6))
    widths = np.sqrt(np.sum(probes * np.linalg.solve(precision, probes.T).T, axis=1))

    def update(state, inputs):
        return rlaxlib.linucb_update(state, *inputs), None

    def shermann_morrison(inverse, x):
        y = inverse @ x
        return inverse - jnp.outer(y, y) / (1 + x @ y), None

    @jax.jit
    def run(contexts, rewards):
        state = rlaxlib.linear_bandit_init(6)
        state, _ = jax.lax.scan(update, state, (contexts, rewards))
        inverse, _ = jax.lax.scan(shermann_morrison, jnp.eye(6), contexts)
        return state, inverse @ (contexts.T @ rewards)

    state, plain = run(contexts, rewards)
    size = np.abs(exact).max()
    np.testing.assert_allclose(state.weights, exact, 0, tolerances[0] * size)
    state = state._replace(weights=np.zeros(6, np.float32))
    unit = jax.jit(rlaxlib.linucb_scores)(state, np.float32(probes), 1.0)
    np.testing.assert_allclose(unit, widths, tolerances[1])
    if kind == "concentrated":  # Where the plain formula returns anything.
        assert np.abs(plain - exact).max() > 0.1 * size


def test_linucb_weights_are_the_ridge_regression():
    rng = np.random.default_rng(0)
    x, r = rng.normal(size=(30, 3)), rng.normal(size=30)
    with x64(True):
        state = rlaxlib.linear_bandit_init(3, regularization=2.5)
        state = run_updates(rlaxlib.linucb_update, state, x, r)
    precision = 2.5 * np.eye(3) + x.T @ x
    root = np.asarray(state.root)
    np.testing.assert_allclose(
        state.weights, np.linalg.solve(precision, x.T @ r), 1e-10
    )
    np.testing.assert_allclose(root @ root.T, np.linalg.inv(precision), 1e-10, 1e-12)


def test_a_context_of_zeros_has_no_width_and_no_gradient():
    state = rlaxlib.linear_bandit_init(2)

    def scores(x):
        return rlaxlib.linucb_scores(state, x, 1.0).sum()

    value, gradient = jax.jit(jax.value_and_grad(scores))(np.float32([[0, 0]]))
    assert value == 0
    np.testing.assert_array_equal(gradient, 0)
