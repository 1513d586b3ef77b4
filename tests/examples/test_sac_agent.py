"""Test the SAC example: its losses, its update and its learning."""

import csv
import functools

import jax
import numpy as np
import optax
import pytest
import sac_agent as example
from common import offline

# --- Helpers. ---


@functools.cache
def make_agent():
    """Return an agent with scaled actor parameters, so that no gradient is 0."""
    agent = example.make_agent(jax.random.key(0), example.Config(tau=0.25))
    actor = agent.actor.replace(
        params=jax.tree.map(lambda x: 1.5 * x + 0.05, agent.actor.params)
    )
    return agent.replace(actor=actor)


def make_batch():
    random = np.random.default_rng(0)
    return offline.Transitions(
        observations=random.normal(size=(6, 3)).astype(np.float32),
        actions=random.uniform(-1, 1, size=(6, 1)).astype(np.float32),
        rewards=random.normal(size=6).astype(np.float32),
        discounts=np.float32([1, 1, 1, 0, 1, 0]),
        truncated=np.zeros(6, bool),
        next_observations=random.normal(size=(6, 3)).astype(np.float32),
    )


def sample(agent, observations, key):
    """Sample actions; return them and their log-densities by change of variables."""
    mu, sigma = map(np.float64, agent.actor(observations))
    u = mu + sigma * np.float64(jax.random.normal(key, mu.shape))
    normal = -0.5 * ((u - mu) / sigma) ** 2 - np.log(sigma * np.sqrt(2 * np.pi))
    log_probs = np.sum(normal - np.log(np.cosh(u) ** -2), axis=-1)
    return np.tanh(u), log_probs


def is_same(one, other):
    return all(map(np.array_equal, jax.tree.leaves(one), jax.tree.leaves(other)))


# --- Updates and learning. ---


@pytest.mark.trust
def test_critic_loss_uses_the_minimum_of_the_target_critics():
    agent, batch = make_agent(), make_batch()
    _, key, _ = jax.random.split(agent.key, 3)
    actions, log_probs = sample(agent, batch.next_observations, key)
    q_t = np.float64(agent.target_critic(batch.next_observations, actions))
    assert q_t.shape == (6, 2)
    soft_value = q_t.min(axis=1) - log_probs  # The temperature is 1.
    targets = batch.rewards + 0.99 * batch.discounts * soft_value
    q = np.float64(agent.critic(batch.observations, batch.actions))
    _, info = agent.update(batch)
    expected = np.mean(0.5 * (q - targets[:, None]) ** 2)
    np.testing.assert_allclose(info["critic_loss"], expected, rtol=1e-4)


def test_actor_and_temperature_use_fresh_samples_and_updated_critics():
    agent, batch = make_agent(), make_batch()
    _, _, key = jax.random.split(agent.key, 3)
    actions, log_probs = sample(agent, batch.observations, key)
    new, info = agent.update(batch)
    q = np.float64(new.critic(batch.observations, actions))
    expected = np.mean(log_probs - q.min(axis=1))
    np.testing.assert_allclose(info["actor_loss"], expected, rtol=1e-4)
    np.testing.assert_allclose(info["entropy"], -np.mean(log_probs), rtol=1e-4)
    # The first step of Adam has magnitude 1e-3, and decreases the temperature if
    # the entropy exceeds its target.
    excess = -np.mean(log_probs) - agent.target_entropy
    assert abs(excess) > 0.1
    step = new.log_temperature() - agent.log_temperature()
    np.testing.assert_allclose(step, -np.sign(excess) * 1e-3, rtol=1e-3)


def test_update_changes_all_modules_and_moves_the_target_by_tau():
    agent = make_agent()
    new, _ = agent.update(make_batch())
    for name in ("actor", "critic", "log_temperature", "target_critic"):
        assert not is_same(getattr(agent, name).params, getattr(new, name).params)
    expected = optax.incremental_update(
        new.critic.params, agent.target_critic.params, 0.25
    )
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-7),
        new.target_critic.params,
        expected,
    )


def test_actions_are_bounded_and_the_median_at_temperature_0():
    agent, key = make_agent(), jax.random.key(1)
    observations = 3 * np.random.default_rng(0).normal(size=(1000, 3))
    actions = agent.sample_actions(observations, seed=key)
    assert actions.shape == (1000, 1)
    assert np.all(np.abs(actions) <= 1)
    assert np.std(actions) > 0.1
    median = agent.sample_actions(observations, seed=key, temperature=0.0)
    np.testing.assert_allclose(median, np.tanh(agent.actor(observations)[0]), rtol=1e-6)


@pytest.mark.trust
def test_curve_and_experience_are_written(tmp_path):
    config = example.Config(
        output=str(tmp_path),
        dataset=str(tmp_path / "made" / "pendulum.npz"),
        random_steps=20,
        train_steps=30,
        eval_interval=30,
        eval_episodes=2,
        batch_size=8,
    )
    example.main(config)
    with open(tmp_path / "curve.csv", newline="") as file:
        header, point = csv.reader(file)
    assert header == ["step", "train_return", "eval_return"]
    assert point[0] == "50"
    assert (tmp_path / "curve.svg").read_bytes().startswith(b"<?xml")
    assert offline.load(config.dataset).rewards.shape == (50,)


def test_initial_networks_depend_on_the_key():
    config = example.Config()
    first, again, other = (
        example.make_agent(jax.random.key(seed), config) for seed in (1, 1, 2)
    )
    for name in ("actor", "critic"):
        params = [getattr(agent, name).params for agent in (first, again, other)]
        assert is_same(params[0], params[1])
        assert not is_same(params[0], params[2])


@pytest.mark.slow
def test_final_return_matches_the_docstring():
    assert example.train(example.Config())[-1].eval_return > -250
