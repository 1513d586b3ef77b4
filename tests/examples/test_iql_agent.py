"""Test the IQL example: its losses, its update, its data set and its learning."""

import dataclasses
import functools

import iql_agent as example
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import offline, pendulum

# --- Helpers. ---

SHORT = example.Config(
    data_random_steps=300,
    data_train_steps=100,
    train_steps=30,
    eval_interval=20,
    eval_episodes=2,
    batch_size=32,
)


def make_data(steps=2000):
    """Return one-step episodes, in which an action of 0.5 is the best."""
    random = np.random.default_rng(0)
    observations = random.normal(size=(steps, 3)).astype(np.float32)
    actions = random.uniform(-1, 1, size=(steps, 1)).astype(np.float32)
    return offline.Transitions(
        observations=observations,
        actions=actions,
        rewards=-4 * np.abs(actions[:, 0] - 0.5),
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
    config = dataclasses.replace(SHORT, expectile=0.75, temperature=0.5, tau=0.25)
    return example.make_agents(jax.random.key(0), config)


def log_probs(agent, batch):
    mu, sigma = map(np.float64, agent.actor(batch.observations))
    normal = -0.5 * ((batch.actions - mu) / sigma) ** 2
    return np.sum(normal - np.log(sigma * np.sqrt(2 * np.pi)), axis=1)


# --- Updates and learning. ---


def test_losses_follow_their_definitions():
    (_, agent), batch = make_agents(), make_batch()
    agent, _ = agent.update(batch)  # The target differs from the critic.
    q = np.float64(agent.target_critic(batch.observations, batch.actions))
    assert q.shape == (8, 2)
    q = q.min(axis=1)
    error = q - np.float64(agent.value(batch.observations))
    new, info = agent.update(batch)
    value_loss = np.mean(np.where(error < 0, 0.25, 0.75) * error**2)
    np.testing.assert_allclose(info["value_loss"], value_loss, rtol=1e-4)

    adv = q - np.float64(new.value(batch.observations))
    weights = np.minimum(np.exp(adv / 0.5), 100)
    actor_loss = np.mean(-weights * log_probs(agent, batch))
    np.testing.assert_allclose(info["actor_loss"], actor_loss, rtol=1e-4)

    v_t = np.float64(new.value(batch.next_observations))
    targets = batch.rewards + 0.99 * batch.discounts * v_t
    q = np.float64(agent.critic(batch.observations, batch.actions))
    critic_loss = np.mean(0.5 * (q - targets[:, None]) ** 2)
    np.testing.assert_allclose(info["critic_loss"], critic_loss, rtol=1e-4)


def test_update_changes_all_modules_and_moves_the_target_by_tau():
    (_, agent), batch = make_agents(), make_batch()
    new, _ = agent.update(batch)
    for name in ("actor", "value", "critic", "target_critic"):
        before, after = (jax.tree.leaves(getattr(x, name).params) for x in (agent, new))
        assert not all(map(np.array_equal, before, after))
    jax.tree.map(
        lambda old, q, target: np.testing.assert_allclose(
            target, 0.75 * old + 0.25 * q, rtol=1e-5, atol=1e-7
        ),
        agent.target_critic.params,
        new.critic.params,
        new.target_critic.params,
    )


def test_behaviour_cloning_loss_is_the_mean_negative_log_likelihood():
    (agent, _), batch = make_agents(), make_batch()
    new, info = agent.update(batch)
    expected = -np.mean(log_probs(agent, batch))
    np.testing.assert_allclose(info["actor_loss"], expected, rtol=1e-5)
    assert new.update(batch)[1]["actor_loss"] < info["actor_loss"]


def test_actions_are_bounded_and_the_mean_at_temperature_0():
    (agent, _), key = make_agents(), jax.random.key(1)
    observations = jax.random.normal(key, (100, 3))
    actions = agent.sample_actions(observations, seed=key)
    assert np.all(np.abs(actions) <= 1)
    assert np.std(actions) > 0.1
    mean = agent.sample_actions(observations, seed=key, temperature=0.0)
    np.testing.assert_allclose(mean, agent.actor(observations)[0], rtol=1e-6)


@pytest.mark.trust
def test_policy_prefers_better_actions_and_the_clone_does_not():
    data = jax.tree.map(jnp.asarray, make_data())
    clone, policy = (
        float(jnp.mean(trained.actor(data.observations)[0]))
        for trained in (
            pendulum.update(agent, data, jax.random.key(1), 400, 64)
            for agent in example.make_agents(jax.random.key(0), example.Config())
        )
    )
    assert clone == pytest.approx(0.0, abs=0.15)
    assert policy == pytest.approx(0.5, abs=0.15)


# --- Data set, reproducibility and output. ---


@pytest.mark.slow
def test_data_set_is_the_experience_of_sac(tmp_path):
    curves = example.train(dataclasses.replace(SHORT, output=str(tmp_path)))
    assert list(curves) == ["IQL", "BC"]
    assert [point.step for point in curves["IQL"]] == [20, 30]
    data = offline.load(tmp_path / "dataset.npz")
    assert data.rewards.shape == (400,)
    assert data.truncated.sum() == 2
    for curve in curves.values():
        assert curve[0].data_return == pytest.approx(data.rewards.sum() / 2)


@pytest.mark.trust
def test_curves_are_written(tmp_path):
    path = tmp_path / "data.npz"
    offline.save(make_data(), path)
    example.main(dataclasses.replace(SHORT, dataset=str(path), output=str(tmp_path)))
    header = (tmp_path / "curve.csv").read_text().splitlines()[0]
    assert header == "curve,step,data_return,eval_return"


@pytest.mark.slow
def test_curves_depend_on_the_seed(tmp_path):
    path = tmp_path / "data.npz"
    offline.save(make_data(), path)
    config = dataclasses.replace(SHORT, dataset=str(path), output=str(tmp_path))
    first, again, other = (
        example.train(dataclasses.replace(config, seed=seed)) for seed in (0, 0, 1)
    )
    assert first == again
    assert first != other


@pytest.mark.slow
def test_final_return_matches_the_docstring(tmp_path):
    curves = example.train(example.Config(output=str(tmp_path)))
    iql, bc = curves["IQL"][-1], curves["BC"][-1]
    assert iql.eval_return > -400
    assert iql.eval_return > iql.data_return + 300
    assert iql.eval_return > bc.eval_return + 300
