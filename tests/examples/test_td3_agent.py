"""Test the TD3 example: its losses, its update and its learning."""

import csv
import functools

import jax
import numpy as np
import optax
import pytest
import td3_agent as example
from common import offline

# --- Helpers. ---


@functools.cache
def make_agent():
    config = example.Config(tau=0.25, noise=0.5, target_noise=0.4, target_clip=0.3)
    return example.make_agent(jax.random.key(0), config)


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


def is_same(one, other):
    return all(map(np.array_equal, jax.tree.leaves(one), jax.tree.leaves(other)))


def assert_close(one, other):
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-7), one, other
    )


# --- Updates and learning. ---


def test_critic_loss_uses_smoothed_actions_and_the_minimum_of_target_critics():
    agent, batch = make_agent(), make_batch()
    _, key = jax.random.split(agent.key)
    draw = jax.jit(jax.vmap(lambda key: jax.random.normal(key, (1,))))
    noise = draw(jax.random.split(key, 6))
    noise = np.clip(0.4 * np.float64(noise), -0.3, 0.3)
    assert np.any(np.abs(noise) == 0.3)
    actions = np.clip(agent.target_actor(batch.next_observations) + noise, -1, 1)
    q_t = np.float64(agent.target_critic(batch.next_observations, actions))
    targets = batch.rewards + 0.99 * batch.discounts * q_t.min(axis=1)
    q = np.float64(agent.critic(batch.observations, batch.actions))
    _, info = agent.update(batch)
    expected = np.mean(0.5 * (q - targets[:, None]) ** 2)
    np.testing.assert_allclose(info["critic_loss"], expected, rtol=1e-4)


def test_policy_ascends_the_first_critic_at_every_second_update():
    agent, batch = make_agent(), make_batch()
    first, _ = agent.update(batch)
    assert not is_same(first.critic.params, agent.critic.params)
    for name in ("actor", "target_actor", "target_critic"):
        assert is_same(getattr(first, name), getattr(agent, name))

    second, _ = first.update(batch)

    @jax.jit
    @jax.grad
    def gradient(params):
        actions = first.actor(batch.observations, params=params)
        return -second.critic(batch.observations, actions)[:, 0].mean()

    actor = first.actor.apply_gradients(grads=gradient(first.actor.params))
    assert not is_same(actor.params, agent.actor.params)
    assert_close(second.actor.opt_state, actor.opt_state)
    for name in ("actor", "critic"):
        new = getattr(second, name).params
        old = getattr(agent, f"target_{name}").params
        expected = optax.incremental_update(new, old, 0.25)
        assert_close(getattr(second, f"target_{name}").params, expected)


def test_actions_are_bounded_and_have_noise_unless_temperature_is_0():
    agent, key = make_agent(), jax.random.key(1)
    observations = 3 * np.random.default_rng(0).normal(size=(1000, 3))
    best = agent.sample_actions(observations, seed=key, temperature=0.0)
    np.testing.assert_allclose(best, agent.actor(observations), rtol=1e-6)
    actions = agent.sample_actions(observations, seed=key)
    assert np.all(np.abs(actions) <= 1)
    inner = np.abs(best) < 0.2
    assert np.std((actions - best)[inner]) == pytest.approx(0.5, abs=0.05)


@pytest.mark.trust
def test_curve_is_written(tmp_path):
    config = example.Config(
        output=str(tmp_path),
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


@pytest.mark.slow
def test_final_return_matches_the_docstring():
    assert example.train(example.Config())[-1].eval_return > -250
