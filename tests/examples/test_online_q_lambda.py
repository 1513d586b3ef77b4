"""Test the Q(λ) example: its update and its learning."""

import dataclasses

import jax
import numpy as np
import online_q_lambda as example
import optax
import pytest
import runs
from common import catch

pytestmark = pytest.mark.usefixtures("one_program")

SHORT = example.Config(train_episodes=6, eval_interval=3, eval_episodes=3)


# --- Helpers. ---


def make_agent(config):
    """Return an agent trained by SGD with learning rate 1: the step is -gradient."""
    agent = example.make_agent(jax.random.key(3), catch.Catch(), config)
    tx = optax.sgd(1.0)
    return agent.replace(tx=tx, opt_state=tx.init(agent.params))


def play(seed=0):
    random = np.random.default_rng(seed)
    return catch.play(catch.Catch(seed=seed), lambda _: random.integers(3))


def predict(agent, observations):
    """Return the activations of the hidden layer and the action values."""
    hidden, head = agent.params["params"].values()
    flat = observations.reshape(len(observations), -1)
    active = np.maximum(flat @ hidden["kernel"] + hidden["bias"], 0)
    return active, active @ head["kernel"] + head["bias"]


def errors(q, episode, discount, lambda_, watkins):
    """Return the TD errors of Q(λ), by the definition of λ-returns."""
    steps, result = len(episode.reward), np.zeros(len(episode.reward))
    target = q[steps].max()
    for t in reversed(range(steps)):
        best, mix = q[t + 1].max(), lambda_
        if watkins and t + 1 < steps and q[t + 1, episode.action[t + 1]] < best:
            mix = 0.0
        following = (1 - mix) * best + mix * target
        target = episode.reward[t] + discount * episode.discount[t] * following
        result[t] = target - q[t, episode.action[t]]
    return result


def run(config, **changes):
    return example.train(dataclasses.replace(config, **changes))


# --- Updates and learning. ---


@pytest.mark.parametrize("watkins", [False, True])
def test_update_follows_the_mean_l2_loss(watkins):
    config = dataclasses.replace(SHORT, discount=0.8, lambda_=0.6, watkins=watkins)
    agent, episode = make_agent(config), play()
    learnt = example.learn(agent, episode, config)

    hidden, q = predict(agent, episode.observation)
    error = errors(q, episode, 0.8, 0.6, watkins)
    assert not np.allclose(error, errors(q, episode, 0.8, 0.6, not watkins))
    step = error[:, None] * np.eye(3)[episode.action] / len(error)
    change = jax.tree.map(np.subtract, learnt.params, agent.params)
    first, last = change["params"].values()
    np.testing.assert_allclose(last["bias"], step.sum(axis=0), atol=1e-6)
    np.testing.assert_allclose(last["kernel"], hidden[:-1].T @ step, atol=1e-6)
    assert np.abs(first["kernel"]).max() > 1e-3


def test_agent_takes_one_step_per_episode(monkeypatch):
    seen, learn = [], example.learn

    def watched(agent, episode, config):
        seen.append((int(agent.step), episode))
        return learn(agent, episode, config)

    monkeypatch.setattr(example, "learn", watched)
    curve = run(SHORT, train_episodes=6, eval_interval=6)
    steps, episodes = zip(*seen, strict=True)
    assert steps == tuple(range(6))
    assert all(len(episode.action) == 9 for episode in episodes)
    returns = [episode.reward.sum() for episode in episodes]
    assert curve[-1].train_return == pytest.approx(np.mean(returns))


# --- Reproducibility and output. ---


def test_runs_with_the_same_seed_are_equal_and_write_their_curve(tmp_path):
    runs.check_that_one_repeats_and_is_written(example, SHORT, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("watkins", [False, True])
def test_final_return_matches_the_docstring(watkins):
    assert run(example.Config(), watkins=watkins)[-1].eval_return >= 0.9


@pytest.mark.slow
def test_agent_improves_faster_than_one_step_q_learning():
    """Compare with λ = 0. A random agent averages -0.6."""
    config = example.Config(train_episodes=600, eval_episodes=1)
    far, near = (run(config, lambda_=each)[-1].train_return for each in (0.9, 0.0))
    assert far > 0.2
    assert far > near + 0.2
