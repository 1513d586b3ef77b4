"""Test the actor-critic example: its update, its lag and its learning."""

import dataclasses

import actor_critic as example
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import runs
from common import catch
from flax.training.train_state import TrainState

pytestmark = pytest.mark.usefixtures("one_program")

SHORT = example.Config(
    train_episodes=10, eval_interval=5, eval_episodes=3, batch_size=2, lag=3
)


# --- Helpers. ---


def make_agent(config):
    """Return an agent trained by SGD with learning rate 1: the step is -gradient."""
    agent = example.make_agent(jax.random.key(0), catch.Catch(), config)
    return TrainState.create(
        apply_fn=agent.apply_fn, params=agent.params, tx=optax.sgd(1.0)
    )


def make_batch(size=3):
    """Return random episodes, with a reward at each step."""
    random = np.random.default_rng(0)
    discount = np.tile(np.array([1, 1, 1, 1, 0], np.float32), (size, 1))
    episodes = catch.Trajectory(
        observation=random.normal(size=(size, 6, 10, 5)).astype(np.float32),
        action=random.integers(3, size=(size, 5)),
        reward=random.normal(size=(size, 5)).astype(np.float32),
        discount=discount,
    )
    logits = random.normal(size=(size, 5, 3)).astype(np.float32)
    return example.Experience(episodes, logits)


def network(agent):
    """Return the jitted network, for a batch of episodes."""
    return jax.jit(jax.vmap(jax.vmap(agent.apply_fn, (None, 0)), (None, 0)))


def run(config, **changes):
    return example.train(dataclasses.replace(config, **changes))


def estimate(episode, actor_logits, logits, v, gamma):
    """Return the V-trace targets and advantages of an episode, by definition."""
    _, action, reward, discount = episode
    discount, steps = gamma * discount, np.arange(len(reward))
    pi, mu = (
        np.exp(x) / np.exp(x).sum(axis=1)[:, None] for x in (logits, actor_logits)
    )
    clipped = np.minimum(1, (pi / mu)[steps, action])
    target = v.copy()
    for t in reversed(steps):
        error = reward[t] + discount[t] * v[t + 1] - v[t]
        above = target[t + 1] - v[t + 1]
        target[t] += clipped[t] * (error + discount[t] * above)
    return target[:-1], clipped * (reward + discount * target[1:] - v[:-1])


# --- Updates and learning. ---


def test_update_matches_the_gradient_of_the_definition():
    config = dataclasses.replace(SHORT, discount=0.5, critic_cost=2, entropy_cost=3)
    agent, batch = make_agent(config), make_batch()
    episodes = [jax.tree.map(lambda x, i=i: x[i], batch) for i in range(3)]
    predict = network(agent)
    logits, v = map(np.asarray, predict(agent.params, batch.episode.observation))
    target, advantage = np.stack(
        [estimate(*each, logits[i, :-1], v[i], 0.5) for i, each in enumerate(episodes)],
        axis=1,
    )

    def loss(params):
        logits, v = predict(params, batch.episode.observation[:, :-1])
        log_pi = jax.nn.log_softmax(logits)
        taken = jnp.sum(log_pi * np.eye(3)[batch.episode.action], axis=-1)
        entropy = -jnp.sum(jnp.exp(log_pi) * log_pi, axis=-1)
        return jnp.mean(-advantage * taken + (target - v) ** 2 - 3 * entropy)

    learned = example.learn(agent, batch, config)
    steps = jax.tree.map(np.subtract, agent.params, learned.params)
    expected = jax.jit(jax.grad(loss))(agent.params)
    for step, gradient in zip(*map(jax.tree.leaves, (steps, expected)), strict=True):
        assert np.any(gradient)
        np.testing.assert_allclose(step, gradient, rtol=1e-3, atol=1e-6)


def test_batches_are_played_with_lagging_parameters(monkeypatch):
    seen, learn = [], example.learn

    def watched(agent, batch, config):
        seen.append((agent, batch))
        return learn(agent, batch, config)

    monkeypatch.setattr(example, "learn", watched)
    run(SHORT, lag=3, batch_size=2)
    agents, batches = zip(*seen, strict=True)
    assert len(batches) == 5
    predict = network(agents[0])
    for i, (episode, logits) in enumerate(batches):
        for j, agent in enumerate(agents):
            now, _ = predict(agent.params, episode.observation[:, :-1])
            assert np.allclose(now, logits, atol=1e-5) == (j == max(0, i - 3))


# --- Reproducibility and output. ---


def test_runs_with_the_same_seed_are_equal_and_write_their_curve(tmp_path):
    runs.check_that_one_repeats_and_is_written(example, SHORT, tmp_path)


@pytest.mark.slow
def test_final_return_is_high_only_with_the_correction():
    config = example.Config(seed=1)
    assert example.train(config)[-1].eval_return >= 0.9
    assert run(config, correct=False)[-1].train_return < 0.5
