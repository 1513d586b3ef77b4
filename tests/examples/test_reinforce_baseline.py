"""Test the example of REINFORCE: what its update is, and that it learns by it."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import reinforce_baseline as example
import runs
from common import catch
from flax.training.train_state import TrainState

SHORT = example.Config(train_episodes=25, eval_interval=10, eval_episodes=5)


# --- What the tests share. ---


@functools.cache
def make_optimizer():
    return example.make_agent(jax.random.key(0), catch.Catch(), SHORT).tx


@pytest.fixture(autouse=True)
def _one_optimizer(monkeypatch):
    """Give all agents one optimizer: for each of its own, `jax.jit` compiles anew."""
    make, tx = example.make_agent, make_optimizer()
    monkeypatch.setattr(example, "make_agent", lambda *args: make(*args).replace(tx=tx))


def make_agent(config):
    """Make an agent whose updates are its gradients, with a minus sign."""
    agent = example.make_agent(jax.random.key(0), catch.Catch(), config)
    return TrainState.create(
        apply_fn=agent.apply_fn, params=agent.params, tx=optax.sgd(1.0)
    )


def make_episode():
    """Make an episode of noise, with a reward after each of its steps."""
    random = np.random.default_rng(0)
    return catch.Trajectory(
        observation=random.normal(size=(6, 10, 5)).astype(np.float32),
        action=random.integers(3, size=5),
        reward=random.normal(size=5).astype(np.float32),
        discount=np.array([1, 1, 1, 1, 0], np.float32),
    )


def run(config, **changes):
    return example.train(dataclasses.replace(config, **changes))


# --- What the example computes. ---


def test_an_update_follows_the_gradient_of_the_definition():
    config = dataclasses.replace(SHORT, discount=0.5, baseline_cost=0.25)
    agent, episode = make_agent(config), make_episode()
    weights = [[0.5 ** (j - i) * (j >= i) for j in range(5)] for i in range(5)]
    returns = np.asarray(weights) @ episode.reward

    def loss(params):
        terms = []
        for t in range(5):
            logits, value = agent.apply_fn(params, episode.observation[t])
            log_prob = jax.nn.log_softmax(logits)[episode.action[t]]
            advantage = returns[t] - jax.lax.stop_gradient(value)
            terms.append(-advantage * log_prob + 0.25 * (returns[t] - value) ** 2 / 2)
        return sum(terms) / 5

    learned = example.learn(agent, episode, config)
    steps = jax.tree.map(jnp.subtract, agent.params, learned.params)
    expected = jax.jit(jax.grad(loss))(agent.params)
    for step, gradient in zip(*map(jax.tree.leaves, (steps, expected)), strict=True):
        assert np.any(gradient)
        np.testing.assert_allclose(step, gradient, rtol=1e-3, atol=1e-6)


def test_the_agent_learns_to_catch_within_a_thousand_episodes():
    config = example.Config(train_episodes=1000, eval_episodes=1)
    assert run(config)[-1].train_return > 0.2  # A random agent's is -0.6.


# --- How it runs. ---


def test_a_run_repeats_with_its_seed_and_writes_its_curve(tmp_path):
    runs.check_that_one_repeats_and_is_written(example, SHORT, tmp_path)


@pytest.mark.slow
def test_the_agent_catches_the_ball_as_its_docstring_says():
    assert example.train(example.Config())[-1].eval_return >= 0.9
