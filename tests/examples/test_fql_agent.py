"""Test the FQL example: the flow, its losses and its learning."""

import dataclasses
import functools

import fql_agent as example
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import offline, pendulum

# --- Helpers. ---

SHORT = example.Config(
    data_random_steps=200,
    data_train_steps=200,
    train_steps=30,
    eval_interval=20,
    eval_episodes=2,
    batch_size=32,
    hidden_units=16,
    flow_steps=3,
    tau=0.25,
    weight=2.0,
)


def make_data(steps=2000):
    """Return one-step episodes with actions near -0.8 and 0.8, the latter better."""
    random = np.random.default_rng(0)
    observations = random.normal(size=(steps, 3)).astype(np.float32)
    signs = random.choice([-1.0, 1.0], size=(steps, 1))
    actions = 0.8 * signs + 0.05 * random.normal(size=(steps, 1))
    return offline.Transitions(
        observations=observations,
        actions=np.clip(actions, -1, 1).astype(np.float32),
        rewards=signs[:, 0].astype(np.float32),
        discounts=np.zeros(steps, np.float32),
        truncated=np.zeros(steps, bool),
        next_observations=observations,
    )


def make_batch():
    random = np.random.default_rng(1)
    batch = jax.tree.map(lambda x: x[:8], make_data())
    return batch._replace(
        discounts=np.float32([1, 0] * 4),
        next_observations=random.normal(size=(8, 3)).astype(np.float32),
    )


@functools.cache
def make_agents():
    return example.make_agents(jax.random.key(0), SHORT)


def solve(agent, observations, noise):
    """Solve the flow by Euler's method in three steps."""
    x = noise
    for t in (0.0, 1 / 3, 2 / 3):
        times = np.full((len(x), 1), t, np.float32)
        x = x + np.asarray(agent.flow(observations, x, times)) / 3
    return x


# --- Updates. ---


def test_flow_loss_is_the_error_of_the_velocities_of_straight_paths():
    (agent, _), batch = make_agents(), make_batch()
    _, flow_key = jax.random.split(agent.key)
    sample = jax.vmap(example.rlaxlib.flow_matching_sample)
    x, t, _ = jax.jit(sample)(jax.random.split(flow_key, 8), batch.actions)
    start = (x - t[:, None] * batch.actions) / (1 - t[:, None])
    velocity = batch.actions - start
    prediction = agent.flow(batch.observations, x, t[:, None])
    expected = np.mean(np.sum((prediction - velocity) ** 2, axis=-1))
    new, info = agent.update(batch)
    np.testing.assert_allclose(info["flow_loss"], expected, rtol=1e-3)
    assert new.update(batch)[1]["flow_loss"] != info["flow_loss"]


def test_critic_and_actor_losses_follow_their_definitions():
    (bc, agent), batch = make_agents(), make_batch()
    key, _ = jax.random.split(agent.key)
    _, critic_key, actor_key = jax.random.split(key, 3)
    noise = jax.random.normal(critic_key, (8, 1))
    actions = np.clip(agent.actor(batch.next_observations, noise), -1, 1)
    q_t = np.float64(agent.target_critic(batch.next_observations, actions))
    targets = batch.rewards + 0.99 * batch.discounts * q_t.mean(axis=1)
    q = np.float64(agent.critic(batch.observations, batch.actions))
    new, info = agent.update(batch)
    expected = np.mean(0.5 * (q - targets[:, None]) ** 2)
    np.testing.assert_allclose(info["td_loss"], expected, rtol=1e-4)

    # The actor sees the flow and the critics after their updates.
    noise = np.asarray(jax.random.normal(actor_key, (8, 1)))
    actions = np.asarray(agent.actor(batch.observations, noise))
    ends = solve(new, batch.observations, noise)
    q = new.critic(batch.observations, np.clip(actions, -1, 1))
    expected = 2.0 * np.mean((actions - ends) ** 2) - np.mean(q)
    np.testing.assert_allclose(info["actor_loss"], expected, rtol=1e-3)
    jax.tree.map(
        lambda old, q, target: np.testing.assert_allclose(
            target, 0.75 * old + 0.25 * q, rtol=1e-5, atol=1e-7
        ),
        agent.target_critic.params,
        new.critic.params,
        new.target_critic.params,
    )
    # The flow does not depend on the values.
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-7),
        new.flow.params,
        bc.update(batch)[0].flow.params,
    )


def test_actions_are_the_clipped_ends_of_the_flow_or_those_of_the_actor():
    (bc, fql), batch = make_agents(), make_batch()
    key = jax.random.key(3)
    noise = np.asarray(jax.random.normal(key, (8, 1)))
    ends = np.clip(solve(bc, batch.observations, noise), -1, 1)
    found = bc.sample_actions(batch.observations, seed=key)
    np.testing.assert_allclose(found, ends, rtol=1e-4, atol=1e-6)
    actions = np.clip(fql.actor(batch.observations, noise), -1, 1)
    found = fql.sample_actions(batch.observations, seed=key, temperature=0.0)
    np.testing.assert_allclose(found, actions, rtol=1e-5)


@pytest.mark.slow
def test_flow_imitates_both_modes_and_the_policy_takes_the_better_one():
    data = jax.tree.map(jnp.asarray, make_data())
    config = dataclasses.replace(SHORT, hidden_units=64, flow_steps=10, weight=1.0)
    bc, fql = (
        pendulum.update(agent, data, jax.random.key(1), 2000, 64)
        for agent in example.make_agents(jax.random.key(0), config)
    )
    imitated, chosen = (
        np.asarray(agent.sample_actions(data.observations, seed=jax.random.key(2)))
        for agent in (bc, fql)
    )
    assert 0.35 < np.mean(imitated > 0.5) < 0.65
    assert 0.35 < np.mean(imitated < -0.5) < 0.65
    assert np.mean(chosen > 0.5) > 0.9


# --- Data set and output. ---


@pytest.mark.slow
def test_data_set_is_the_experience_of_sac(tmp_path):
    curves = example.train(dataclasses.replace(SHORT, output=str(tmp_path)))
    assert list(curves) == ["FQL", "BC"]
    assert [point.step for point in curves["FQL"]] == [20, 30]
    data = offline.load(tmp_path / "dataset.npz")
    assert data.rewards.shape == (400,)


@pytest.mark.trust
def test_curves_are_written(tmp_path):
    path = tmp_path / "data.npz"
    offline.save(make_data(), path)
    example.main(dataclasses.replace(SHORT, dataset=str(path), output=str(tmp_path)))
    header = (tmp_path / "curve.csv").read_text().splitlines()[0]
    assert header == "curve,step,data_return,eval_return"


@pytest.mark.slow
def test_final_return_matches_the_docstring(tmp_path):
    curves = example.train(example.Config(output=str(tmp_path)))
    fql, bc = curves["FQL"][-1], curves["BC"][-1]
    assert fql.eval_return > -300
    assert fql.eval_return > fql.data_return + 300
    assert fql.eval_return > bc.eval_return + 300
