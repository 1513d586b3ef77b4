"""Test the behaviour-cloning example: its data set, its loss and its learning."""

import dataclasses
import functools

import bc_agent as example
import jax
import numpy as np
import optax
import pytest
from common import offline

# --- Helpers. ---

adam = functools.cache(optax.adam)


@pytest.fixture(autouse=True)
def _one_optimizer(monkeypatch):
    """Share optimizers, because `jax.jit` compiles anew for each optimizer."""
    monkeypatch.setattr(optax, "adam", adam)


SHORT = example.Config(
    expert_episodes=4,
    data_episodes=10,
    train_steps=30,
    eval_interval=20,
    eval_episodes=3,
)


def make_data(steps=2000):
    """Return random states of Catch with optimal actions, a tenth of them random."""
    random = np.random.default_rng(0)
    balls, paddles = random.integers(5, size=(2, steps))
    observations = np.zeros((steps, 10, 5), np.float32)
    observations[np.arange(steps), random.integers(9, size=steps), balls] = 1
    observations[np.arange(steps), 9, paddles] = 1
    actions = np.sign(balls - paddles) + 1
    actions = np.where(
        random.random(steps) < 0.1, random.integers(3, size=steps), actions
    )
    zeros = np.zeros(steps, np.float32)  # Each step ends an episode.
    return offline.Transitions(
        observations, actions, zeros, zeros, zeros == 1, observations
    )


def make_agent():
    return example.make_agent(jax.random.key(0), np.zeros((1, 10, 5)), SHORT)


# --- Updates and learning. ---


def test_loss_is_the_mean_negative_log_likelihood_of_the_actions():
    agent, batch = make_agent(), make_data(8)
    logits = np.float64(agent.actor(batch.observations))
    log_probs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    new, info = agent.update(batch)
    expected = -np.mean(log_probs[np.arange(8), batch.actions])
    np.testing.assert_allclose(info["loss"], expected, rtol=1e-5)
    entropy = -np.mean(np.sum(np.exp(log_probs) * log_probs, axis=1))
    np.testing.assert_allclose(info["entropy"], entropy, rtol=1e-5)
    assert new.update(batch)[1]["loss"] < info["loss"]


def test_actions_are_sampled_from_the_policy_and_greedy_at_temperature_0():
    agent, key = make_agent(), jax.random.key(1)
    observation = make_data(1).observations
    logits = np.float64(agent.actor(observation))[0]
    many = np.tile(observation, (5000, 1, 1))
    frequencies = np.bincount(agent.sample_actions(many, seed=key), minlength=3) / 5000
    np.testing.assert_allclose(
        frequencies, np.exp(logits) / np.exp(logits).sum(), atol=0.03
    )
    best = agent.sample_actions(many, seed=key, temperature=0.0)
    assert np.all(best == logits.argmax())


def test_data_set_has_all_steps_of_the_expert(tmp_path):
    config = dataclasses.replace(SHORT, output=str(tmp_path))
    curve = example.train(config)
    assert [point.step for point in curve] == [20, 30]
    data = offline.load(tmp_path / "dataset.npz")
    assert data.observations.shape == data.next_observations.shape == (90, 10, 5)
    ended = np.arange(90) % 9 == 8
    np.testing.assert_array_equal(data.discounts, ~ended)
    np.testing.assert_array_equal(data.rewards != 0, ended)
    follows = data.next_observations[:-1] == data.observations[1:]
    np.testing.assert_array_equal(follows.all(axis=(1, 2)), ~ended[:-1])
    assert curve[0].data_return == pytest.approx(data.rewards.sum() / 10)
    # The paddle moves by the action, within its bounds.
    before, after = (
        x[:, 9].argmax(axis=1) for x in (data.observations, data.next_observations)
    )
    moved = np.clip(before + data.actions - 1, 0, 4)[~ended]
    np.testing.assert_array_equal(after[~ended], moved)


# --- Reproducibility and output. ---


@pytest.mark.trust
def test_clone_of_a_file_outperforms_its_data(tmp_path):
    path = tmp_path / "data.npz"
    offline.save(make_data(), path)
    config = example.Config(
        dataset=str(path),
        output=str(tmp_path),
        train_steps=200,
        eval_interval=40,
        eval_episodes=20,
        learning_rate=5e-3,
    )
    first, other = (
        example.train(dataclasses.replace(config, seed=seed)) for seed in (0, 1)
    )
    assert first[-1].eval_return > 0.9
    assert 0.8 < first[-1].accuracy < 1
    assert first != other
    example.main(config)
    header, *rows = (tmp_path / "curve.csv").read_text().splitlines()
    assert header == "step,accuracy,data_return,eval_return"
    assert [tuple(map(float, row.split(","))) for row in rows] == first


@pytest.mark.slow
def test_final_return_matches_the_docstring(tmp_path):
    last = example.train(example.Config(output=str(tmp_path)))[-1]
    assert last.eval_return >= 0.9
    assert last.eval_return > last.data_return + 0.2
