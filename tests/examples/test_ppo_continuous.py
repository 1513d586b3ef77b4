"""Test the continuous PPO example: normalisation, time limits, loss and learning."""

import csv
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import ppo_continuous as example
import pytest

# --- Helpers. ---

SHORT = example.Config(
    evaluations=1,
    iterations=2,
    eval_episodes=2,
    num_envs=4,
    num_steps=8,
    num_epochs=2,
    num_minibatches=4,
    hidden_units=8,
)


@functools.cache
def make_agent():
    """Return an agent that has seen observations, near the time limit of episodes."""
    agent = example.make_agent(jax.random.key(0), SHORT)
    agent, rollout = collect(agent, jax.random.key(1))
    agent = estimate(agent, rollout)[0]
    seen = example.rlaxlib.running_moments().update(agent.moments, rollout.observation)
    time = jnp.array([195, 196, 20, 30])
    env_state = agent.env_state.replace(time=time)
    return agent.replace(moments=seen[1], env_state=env_state)


@functools.cache
def make_rollout():
    act_key, _ = jax.random.split(jax.random.key(2))  # As `iterate` splits it.
    return collect(make_agent(), act_key)[1]


collect = jax.jit(lambda agent, key: agent.collect(key))
estimate = jax.jit(lambda agent, rollout: agent.estimate(rollout))


def normalize(agent, observations):
    mean, variance = map(np.float64, agent.moments.moments())
    return np.clip((observations - mean) / np.sqrt(variance), -10, 10)


# --- Rollouts, normalisation and advantages. ---


def test_next_observations_are_those_before_a_reset():
    rollout = make_rollout()
    ends = np.asarray(rollout.truncated)
    assert ends.sum(axis=1).tolist() == [1, 1, 0, 0]
    assert np.flatnonzero(ends[0]).tolist() == [4]
    assert not np.any(rollout.terminated)
    follows = rollout.observation[:, 1:] == rollout.next_observation[:, :-1]
    assert np.array_equal(np.all(follows, axis=-1), ~ends[:, :-1])
    # Physics: speed changes by at most gravity and torque in a step.
    change = rollout.next_observation[..., 2] - rollout.observation[..., 2]
    assert np.all(np.abs(change) <= 0.05 * (15 + 6) + 1e-4)


def test_actions_are_from_the_policy_of_normalised_observations():
    agent, rollout = make_agent(), make_rollout()
    observations = normalize(agent, rollout.observation)
    assert np.abs(observations).max() > 0.5
    mean, stddev, _ = map(np.float64, agent.network(observations))
    noise = (rollout.action - mean) / stddev
    assert np.abs(np.mean(noise)) < 0.8
    expected = -0.5 * noise**2 - np.log(stddev * np.sqrt(2 * np.pi))
    np.testing.assert_allclose(rollout.log_prob, expected[..., 0], rtol=1e-3)


def test_rewards_are_divided_by_the_deviation_of_their_discounted_sums():
    agent, rollout = make_agent(), make_rollout()
    before = agent.scale.moments
    count, mean, variance = (
        np.float64(x[0]) for x in (before.num_entries, before.mean, before.variance)
    )
    sums = []
    for b in range(4):
        total = float(agent.scale.carried[b])
        for t in range(8):
            total += float(rollout.reward[b, t])
            sums.append(total)
            total *= 0.95 * (not rollout.truncated[b, t])
    moments = np.array([np.sum(sums), np.sum(np.square(sums))])
    new = (count * np.array([mean, variance + mean**2]) + moments) / (count + 32)
    divisor = np.sqrt(new[1] - new[0] ** 2)
    after, steps = estimate(agent, rollout)
    np.testing.assert_allclose(
        np.sqrt(after.scale.moments.variance), divisor, rtol=1e-3
    )

    # The advantages, with these rewards: no sum crosses the time limit.
    observations = normalize(agent, rollout.observation)
    following = normalize(agent, rollout.next_observation)
    value, next_value = (
        np.float64(agent.network(each)[2]) for each in (observations, following)
    )
    error = rollout.reward / divisor + 0.95 * next_value - value
    advantage, carry = np.zeros((4, 8)), np.zeros(4)
    for t in reversed(range(8)):
        kept = 1 - np.float64(rollout.truncated[:, t])
        carry = error[:, t] + 0.95 * 0.95 * kept * carry
        advantage[:, t] = carry
    np.testing.assert_allclose(steps.advantage, advantage, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(steps.observation, observations, rtol=1e-3, atol=1e-5)


def test_loss_matches_the_definition_of_ppo():
    agent = make_agent()
    _, steps = estimate(agent, make_rollout())
    batch = jax.tree.map(lambda x: np.asarray(x).reshape(32, *x.shape[2:]), steps)
    shift = 0.3 * np.random.default_rng(0).normal(size=(2, 32)).astype(np.float32)
    batch = batch._replace(
        log_prob=batch.log_prob + shift[0], value=batch.value + shift[1]
    )
    ratio = np.exp(-shift[0])
    adv = (batch.advantage - batch.advantage.mean()) / batch.advantage.std()
    policy_loss = -np.minimum(ratio * adv, np.clip(ratio, 0.8, 1.2) * adv)
    value_loss = 0.5 * (batch.advantage + shift[1]) ** 2
    expected = np.mean(policy_loss + 0.5 * value_loss)
    loss = jax.jit(type(agent).loss)(agent, agent.network.params, batch)
    np.testing.assert_allclose(loss, expected, rtol=1e-3)
    assert 0 < np.mean(np.abs(ratio - 1) > 0.2) < 1


def test_moments_include_the_observations_after_the_updates_on_them():
    agent = make_agent()
    after = jax.jit(lambda agent, key: agent.iterate(key))(agent, jax.random.key(2))
    seen = np.float64(make_rollout().observation).reshape(-1, 3)
    expected = (32 * np.float64(agent.moments.mean) + seen.sum(axis=0)) / 64
    np.testing.assert_allclose(after.moments.mean, expected, rtol=1e-3, atol=1e-5)
    assert after.moments.num_entries == 64
    assert after.network.step == 8


# --- Training runs. ---


@pytest.mark.trust
def test_curve_is_written(tmp_path):
    example.main(dataclasses.replace(SHORT, output=str(tmp_path)))
    with open(tmp_path / "curve.csv", newline="") as file:
        header, *points = csv.reader(file)
    assert header == ["step", "eval_return"]
    assert [point[0] for point in points] == ["0", "64"]
    assert (tmp_path / "curve.svg").read_bytes().startswith(b"<?xml")


@pytest.mark.slow
def test_final_return_matches_the_docstring():
    assert example.train(example.Config())[-1].eval_return > -250
