"""Test the REINFORCE example: its update and its learning."""

import dataclasses

import jax
import numpy as np
import optax
import pytest
import reinforce_baseline as example
import runs
from common import catch
from flax.training.train_state import TrainState

pytestmark = pytest.mark.usefixtures("one_program")

SHORT = example.Config(train_episodes=6, eval_interval=3, eval_episodes=3)


# --- Helpers. ---


def make_agent(config):
    """Return an agent trained by SGD with learning rate 1: the step is -gradient."""
    agent = example.make_agent(jax.random.key(0), catch.Catch(), config)
    return TrainState.create(
        apply_fn=agent.apply_fn, params=agent.params, tx=optax.sgd(1.0)
    )


def make_episode():
    """Return a random episode, with a reward at each step."""
    random = np.random.default_rng(0)
    return catch.Trajectory(
        observation=random.normal(size=(6, 10, 5)).astype(np.float32),
        action=random.integers(3, size=5),
        reward=random.normal(size=5).astype(np.float32),
        discount=np.array([1, 1, 1, 1, 0], np.float32),
    )


# --- Updates and learning. ---


def test_update_matches_the_gradient_of_the_definition():
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
    steps = jax.tree.map(np.subtract, agent.params, learned.params)
    expected = jax.jit(jax.grad(loss))(agent.params)
    for step, gradient in zip(*map(jax.tree.leaves, (steps, expected)), strict=True):
        assert np.any(gradient)
        np.testing.assert_allclose(step, gradient, rtol=1e-3, atol=1e-6)


# --- Reproducibility and output. ---


def test_runs_with_the_same_seed_are_equal_and_write_their_curve(tmp_path):
    runs.check_that_one_repeats_and_is_written(example, SHORT, tmp_path)


@pytest.mark.slow
def test_final_return_matches_the_docstring():
    assert example.train(example.Config())[-1].eval_return >= 0.9
