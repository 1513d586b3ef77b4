"""Test what is particular to agents whose environment is compiled with them."""

import functools

import bandits
import deep_sea_bonuses
import jax
import jax.numpy as jnp
import muzero
import numpy as np
import ppo_pure_jax
import pytest
import qmix
import r2d2
import stream_q

# --- QMIX. ---


def test_payoffs_are_those_of_the_paper_and_agent_1_chooses_the_matrix():
    def choose(_, state):
        return jnp.array([[1, 0], [1, 1], [0, 1]])[: len(state)]

    steps = qmix.play(choose, jax.random.key(0), 3)
    np.testing.assert_array_equal(steps.next_state[:3], [2, 2, 1])
    np.testing.assert_array_equal(steps.reward, [0, 0, 0, 1, 8, 7])
    np.testing.assert_array_equal(steps.discount, [1, 1, 1, 0, 0, 0])


def test_value_of_the_team_grows_with_each_agent_and_is_a_sum_for_vdn():
    state, action = jnp.array([2]), jnp.array([[0, 1]])
    for units in (8, 0):
        team = qmix.make_team(jax.random.key(1), qmix.Config(mixing_units=units))
        q, weights = team.apply_fn(team.params, state)
        found = qmix.value(team, team.params, state, action)
        if units:
            mix = jax.grad(lambda q, weights=weights: qmix.rlaxlib.qmix(q, *weights))
            gradient = mix(q[0, [0, 1], action[0]], tuple(x[0] for x in weights))
            assert np.all(np.array(gradient) >= 0)
        else:
            np.testing.assert_allclose(found, q[0, 0, 0] + q[0, 1, 1], rtol=1e-5)


# --- R2D2. ---

CONFIG = r2d2.Config(num_envs=3, memory_length=3, burn_in=2, num_steps=6, capacity=9)


def test_stored_sequences_continue_each_other():
    agent, replay, world, latest = r2d2.start(jax.random.key(0), CONFIG)
    assert latest.reward.shape == (3, 3)
    carry = agent, replay, world, latest
    iterate = jax.jit(r2d2.iterate, static_argnames="config")
    carry = iterate(carry, jax.random.key(1), CONFIG)
    stored, last = carry[1].sequences, carry[3]
    assert stored.observation.shape[:2] == (9, 2 + 6 + 1)
    np.testing.assert_array_equal(stored.observation[-3:, :3], latest.observation)
    np.testing.assert_array_equal(stored.observation[-3:, -3:], last.observation)
    ended = np.array(stored.discount[-3:, :-1] == 0)
    np.testing.assert_array_equal(stored.first[-3:, 1:], ended)
    assert ended.any()
    np.testing.assert_array_equal(
        np.array(carry[1].priorities) > 0, [False] * 6 + [True] * 3
    )


def test_network_forgets_at_the_first_step_of_an_episode():
    params = r2d2.Network().init(
        jax.random.key(0), jnp.zeros((2, 64)), jnp.ones((2, 6)), jnp.ones(2, bool)
    )
    states = jnp.stack([jnp.zeros(64), jnp.ones(64)])

    def q(first):
        return r2d2.Network().apply(
            params, states, jnp.ones((2, 6)), jnp.full(2, first)
        )[1]

    np.testing.assert_array_equal(*q(True))
    assert not np.allclose(*q(False))


# --- MuZero. ---


def test_muzero_targets_bootstrap_and_are_0_after_the_end():
    config = muzero.Config(unroll_steps=3, n=2, discount=0.5)
    rng = np.random.default_rng(0)
    reward, value = rng.normal(size=(2, 9)).astype(np.float32)
    policy = np.full((9, 3), 1 / 3, np.float32)
    steps = np.zeros((9, 1)), jnp.arange(9), reward, policy, value
    episode = muzero.make_episode(config, *steps)
    expected = [
        sum(0.5**i * reward[t + i] for i in range(2) if t + i < 9)
        + (0.25 * value[t + 2] if t + 2 < 9 else 0)
        for t in range(9)
    ]
    for found, x in ((episode.value, expected), (episode.reward, reward)):
        np.testing.assert_allclose(found, [*x, 0, 0, 0], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(episode.valid, np.arange(12) < 9)
    assert episode.policy.shape == (12, 3)


# --- Deep Sea. ---


def test_count_bonus_falls_with_visits_and_the_state_counts_them():
    config = deep_sea_bonuses.Config(method="count", size=3)
    state = deep_sea_bonuses.init_bonus(jax.random.key(0), config)
    pairs = jnp.eye(9)[:2], jnp.array([1, 0])
    rewards = []
    for _ in range(3):
        reward, state = deep_sea_bonuses.bonus(state, *pairs, config)
        rewards.append(float(reward[0]))
    assert rewards == sorted(rewards, reverse=True)
    assert state[0, 1] == state[1, 0] == 3
    assert np.sum(state) == 6


@pytest.mark.parametrize("method", ["rnd", "ngu"])
def test_bonus_of_a_pair_falls_when_it_is_visited(method):
    config = deep_sea_bonuses.Config(method=method, size=3, train_episodes=100)
    state = deep_sea_bonuses.init_bonus(jax.random.key(0), config)
    pairs = jnp.eye(9)[:2], jnp.array([1, 0])
    bonus = jax.jit(deep_sea_bonuses.bonus, static_argnums=3)
    for _ in range(60):
        last, state = bonus(state, *pairs, config)
    new, _ = bonus(state, jnp.eye(9)[4:6], jnp.array([1, 0]), config)
    assert np.mean(new) > 2 * np.mean(last)


# --- Bandits, PPO, streams. ---


def test_lai_robbins_constant_of_two_arms():
    kl = 0.4 * np.log(0.4 / 0.6) + 0.6 * np.log(0.6 / 0.4)
    np.testing.assert_allclose(bandits.lai_robbins(np.array([0.6, 0.4])), 0.2 / kl)


def test_every_policy_can_be_played():
    config = bandits.Config(pulls=10)
    for name in bandits.policies(config):
        play = functools.partial(bandits.play, name=name, config=config)
        assert jax.eval_shape(play, jax.random.key(0)).shape == (10,)


def test_regret_is_less_than_that_of_random_arms():
    config = bandits.Config(pulls=400)  # Random arms have a regret of 80.
    keys = jax.random.split(jax.random.key(0), 8)
    regrets = jax.vmap(bandits.play, (0, None, None))(keys, "Thompson", config)
    assert np.all(np.diff(regrets) >= -1e-3)
    assert 0 < np.mean(regrets[:, -1]) < 56


def test_cut_episodes_bootstrap_and_terminated_ones_do_not():
    config = ppo_pure_jax.Config(environment="CartPole-v1", num_envs=4, num_steps=40)
    keys = jax.random.split(jax.random.key(0), 6)
    environment, env_params = ppo_pure_jax.gymnax.make(config.environment)
    world = jax.vmap(environment.reset, (0, None))(keys[:4], env_params)
    network = ppo_pure_jax.Network(2)
    agent = ppo_pure_jax.TrainState.create(
        apply_fn=network.apply,
        params=network.init(keys[4], world[0]),
        tx=ppo_pure_jax.optax.sgd(0.1),
    )
    _, steps = ppo_pure_jax.collect(agent, world, keys[5], config)
    assert steps.advantage.shape == steps.value.shape == (40, 4)
    # At the step before a fall, the advantage is 1 minus the value.
    found = np.array(steps.advantage + steps.value)
    assert np.any(np.isclose(found, 1.0, atol=1e-4))


def test_sparse_weights_are_0_with_the_same_share_for_each_unit():
    weights = stream_q.sparse_init(jax.random.key(0), (50, 8))
    np.testing.assert_array_equal(np.sum(np.array(weights) == 0, axis=0), [45] * 8)
    assert np.max(np.abs(weights)) <= 50**-0.5
