"""Test exploratory behaviour: exploration rates, εz-greedy, noise and bootstraps."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlaxlib

PREFERENCES = np.float32([0, 3, 1, 2])


def keys(count, seed=0):
    return jax.random.split(jax.random.key(seed), count)


# --- Ape-X. ---


def test_exploration_rates_reach_from_the_base_to_its_power():
    rates = np.asarray(rlaxlib.apex_epsilons(8))
    np.testing.assert_allclose(rates[[0, -1]], [0.4, 0.4**8], 1e-5)
    np.testing.assert_allclose(rates[1:] / rates[:-1], 0.4, 1e-5)
    np.testing.assert_array_equal(rlaxlib.apex_epsilons(1, 0.3), np.float32([0.3]))
    np.testing.assert_array_equal(rlaxlib.apex_epsilons(3, 0.0), 0)


# --- εz-greedy. ---


@functools.partial(jax.jit, static_argnames="max_duration")
def starts(epsilon, max_duration=3, action_mask=None):
    """Return first actions, and for how long they are repeated."""

    def start(key):
        action, state = rlaxlib.ez_greedy(
            key,
            rlaxlib.ez_greedy_init(),
            PREFERENCES,
            epsilon,
            max_duration=max_duration,
            action_mask=action_mask,
        )
        return action, state.remaining

    return jax.vmap(start)(keys(4000))


@jax.jit
def scanned(state, keys, epsilon):
    """Return the actions of a stream."""

    def step(state, key):
        action, state = rlaxlib.ez_greedy(key, state, PREFERENCES, epsilon)
        return state, action

    return jax.lax.scan(step, state, keys)[1]


def test_ez_greedy_starts_uniform_actions_with_probability_epsilon():
    actions, remaining = starts(0.4)
    shares = np.bincount(actions, minlength=4) / actions.size
    expected = 0.4 / 4 + 0.6 * (np.arange(4) == 1)
    np.testing.assert_allclose(shares, expected, 0, 0.015)
    assert np.min(remaining) >= 0


@pytest.mark.parametrize("max_duration", [3, 10_000])
def test_ez_greedy_durations_have_a_truncated_zeta_distribution(max_duration):
    _, remaining = starts(1.0, max_duration=max_duration)
    durations = np.asarray(remaining) + 1
    expected = np.arange(1.0, max_duration + 1) ** -2
    expected /= expected.sum()
    found = [np.mean(durations == n) for n in (1, 2, 3)]
    np.testing.assert_allclose(found, expected[:3], 0, 0.015)
    assert durations.max() <= max_duration
    assert max_duration == 3 or np.mean(durations > 100) > 0.003


def test_ez_greedy_with_durations_of_one_is_epsilon_greedy():
    actions, remaining = starts(0.4, max_duration=1)
    np.testing.assert_array_equal(remaining, 0)
    np.testing.assert_allclose(np.mean(np.asarray(actions) != 1), 0.3, 0, 0.015)


def test_ez_greedy_repeats_an_action_for_its_duration_and_then_is_greedy():
    state = jax.tree.map(np.int32, rlaxlib.EzGreedyState(3, 2))
    actions = scanned(state, keys(1000), 0.0)
    assert actions[:4].tolist() == [3, 3, 1, 1]


def test_ez_greedy_takes_legal_actions_only():
    legal = np.array([True, False, True, False])
    actions, _ = starts(0.5, action_mask=legal)
    assert set(np.asarray(actions)) == {0, 2}
    held, ez_greedy = rlaxlib.EzGreedyState(3, 5), jax.jit(rlaxlib.ez_greedy)
    action, state = ez_greedy(
        jax.random.key(0), held, PREFERENCES, 0.0, action_mask=legal
    )
    assert (action, state.remaining) == (2, 0)


def test_ez_greedy_can_be_scanned():
    actions = scanned(rlaxlib.ez_greedy_init(), keys(1000), 0.1)
    # The share of random actions is larger than that of ε-greedy.
    assert np.mean(np.asarray(actions) != 1) > 0.1


# --- Noisy networks. ---


def test_factorised_noise_is_a_product_of_signed_roots():
    sample = jax.jit(jax.vmap(lambda key: rlaxlib.factorized_noise(key, 2, 3)))
    weight, bias = (np.asarray(x) for x in sample(keys(20_000)))
    for x, variance in ((bias, np.sqrt(2 / np.pi)), (weight, 2 / np.pi)):
        np.testing.assert_allclose(x.mean(axis=0), 0, 0, 0.03)
        np.testing.assert_allclose(x.var(axis=0), variance, 0.04)
    inputs = weight / bias[:, None]
    np.testing.assert_allclose(inputs, inputs[..., :1] * np.ones(3), 1e-3)


# --- Bootstrapped DQN. ---


def test_bootstrapped_errors_are_those_of_each_head_that_learns():
    rng = np.random.default_rng(0)
    q_tm1, q_t = np.float32(rng.normal(size=(2, 3, 4)))
    q_tm1[1] = np.nan
    mask = np.array([True, False, True])

    def errors(q_tm1):
        found = rlaxlib.bootstrapped_q_learning(q_tm1, 2, 1.0, 0.9, q_t, mask)
        return jnp.sum(found), found

    heads = jax.jit(jax.vmap(rlaxlib.q_learning, (0, None, None, None, 0)))
    expected = np.where(mask, heads(q_tm1, 2, 1.0, 0.9, q_t), 0)
    gradient, found = jax.jit(jax.grad(errors, has_aux=True))(q_tm1)
    np.testing.assert_allclose(found, expected, 1e-6)
    expected = -1.0 * np.outer(mask, np.arange(4) == 2)
    np.testing.assert_array_equal(gradient, expected)


def test_a_duration_fits_the_integer_type_of_the_state():
    state = rlaxlib.EzGreedyState(np.int8(0), np.int8(0))
    keys = jax.random.split(jax.random.key(0), 200)

    def sample(key):
        return rlaxlib.ez_greedy(key, state, np.zeros(3, np.float32), 1.0, 0.1)[1]

    remaining = jax.jit(jax.vmap(sample))(keys).remaining
    assert remaining.dtype == jnp.int8
    assert np.all(remaining >= 0)
    assert np.any(remaining > 50)


def test_memory_of_a_duration_does_not_grow_with_the_longest_one():
    state, q = rlaxlib.ez_greedy_init(), np.zeros(3, np.float32)
    act = jax.vmap(lambda key: rlaxlib.ez_greedy(key, state, q, 0.1))
    program = jax.jit(act).lower(keys(256)).compile()
    assert program.memory_analysis().temp_size_in_bytes < 256 * 10_000


def test_an_action_fits_the_integer_type_of_the_state_or_is_an_error():
    def act(dtype, preferences):
        state = rlaxlib.EzGreedyState(dtype(0), np.int8(0))
        return rlaxlib.ez_greedy(jax.random.key(0), state, preferences, epsilon=0.0)[0]

    q = np.arange(200, dtype=np.float32)
    assert act(np.uint8, q) == 199
    assert act(np.int8, q[:128]) == 127
    with pytest.raises(rlaxlib.ArgumentError, match=r"`state.a` is int8, must hold"):
        act(np.int8, q[:129])
