"""Test the CQL example: its losses, its update, its data set and its learning."""

import dataclasses
import functools

import cql_agent as example
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
    num_samples=2,
)


def make_data(steps=2000):
    """Return one-step episodes with actions near 0 only, all of the same reward."""
    random = np.random.default_rng(0)
    observations = random.normal(size=(steps, 3)).astype(np.float32)
    return offline.Transitions(
        observations=observations,
        actions=random.uniform(-0.2, 0.2, size=(steps, 1)).astype(np.float32),
        rewards=np.ones(steps, np.float32),
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
    config = dataclasses.replace(SHORT, tau=0.25)
    return example.make_agents(jax.random.key(0), config)


def log_density(mu, sigma, u):
    """Return the log-densities of tanh u by change of variables."""
    normal = -0.5 * ((u - mu) / sigma) ** 2 - np.log(sigma * np.sqrt(2 * np.pi))
    return np.sum(normal - np.log(np.cosh(u) ** -2), axis=-1)


# --- Updates and learning. ---


@pytest.mark.trust
def test_critic_losses_follow_their_definitions():
    (_, agent), batch = make_agents(), make_batch()
    _, critic_key, _ = jax.random.split(agent.key, 3)
    target_key, key = jax.random.split(critic_key)
    mu, sigma = map(np.float64, agent.actor(batch.next_observations))
    u = mu + sigma * np.float64(jax.random.normal(target_key, mu.shape))
    q_t = np.float64(agent.target_critic(batch.next_observations, np.tanh(u)))
    soft_value = q_t.min(axis=1) - 0.1 * log_density(mu, sigma, u)
    targets = batch.rewards + 0.99 * batch.discounts * soft_value
    q = np.float64(agent.critic(batch.observations, batch.actions))
    _, info = agent.update(batch)
    td_loss = np.mean(0.5 * (q - targets[:, None]) ** 2)
    np.testing.assert_allclose(info["td_loss"], td_loss, rtol=1e-4)

    samples, log_prob_samples = agent._sample_for_critic(batch, key)
    q_samples = np.stack([agent.critic(batch.observations, a) for a in samples])
    assert q_samples.shape == (6, 8, 2)
    logits = np.float64(q_samples) - np.float64(log_prob_samples)[:, :, None]
    gap = np.mean(np.log(np.sum(np.exp(logits), axis=0)) - q)
    np.testing.assert_allclose(info["gap"], gap, rtol=1e-4)


def test_sampled_actions_are_from_both_policies_and_uniform():
    (_, agent), batch = make_agents(), make_batch()
    sample = jax.jit(type(agent)._sample_for_critic)
    actions, log_probs = sample(
        agent.replace(num_samples=500), batch, jax.random.key(2)
    )
    assert actions.shape == (1500, 8, 1)
    places = (batch.observations, batch.next_observations)
    for part, observations in zip((0, 500), places, strict=True):
        mu, sigma = map(np.float64, agent.actor(observations))
        u = np.arctanh(np.float64(actions[part : part + 500]))
        assert np.all(np.abs(u.mean(axis=0) - mu) < 0.25 * sigma)
        expected = log_density(mu, sigma, u)
        np.testing.assert_allclose(log_probs[part : part + 500], expected, atol=1e-2)
    np.testing.assert_allclose(log_probs[1000:], np.log(0.5), rtol=1e-6)
    np.testing.assert_allclose(np.mean(actions[1000:]), 0, atol=0.05)
    np.testing.assert_allclose(np.std(actions[1000:]), 3**-0.5, atol=0.05)


def test_update_changes_all_modules_and_moves_the_target_by_tau():
    (_, agent), batch = make_agents(), make_batch()
    new, _ = agent.update(batch)
    for name in ("actor", "critic", "target_critic"):
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
    mu, sigma = map(np.float64, agent.actor(batch.observations))
    expected = -np.mean(log_density(mu, sigma, np.arctanh(np.float64(batch.actions))))
    new, info = agent.update(batch)
    np.testing.assert_allclose(info["actor_loss"], expected, rtol=1e-4)
    assert new.update(batch)[1]["actor_loss"] < info["actor_loss"]


@pytest.mark.slow
def test_values_are_lower_outside_the_data_with_the_conservative_loss_only():
    data = jax.tree.map(jnp.asarray, make_data())
    differences = []
    for weight in (0.0, 5.0):
        config = dataclasses.replace(SHORT, conservative_weight=weight)
        _, agent = example.make_agents(jax.random.key(0), config)
        agent = pendulum.update(agent, data, jax.random.key(1), 300, 64)
        inside, outside = (
            agent.critic(data.observations, jnp.full_like(data.actions, action))
            for action in (0.0, 0.9)
        )
        differences.append(float(jnp.mean(inside - outside)))
    assert abs(differences[0]) < 0.5
    assert differences[1] > 1


# --- Data set, reproducibility and output. ---


@pytest.mark.slow
def test_data_set_is_the_experience_of_sac(tmp_path):
    curves = example.train(dataclasses.replace(SHORT, output=str(tmp_path)))
    assert list(curves) == ["CQL", "BC"]
    assert [point.step for point in curves["CQL"]] == [20, 30]
    data = offline.load(tmp_path / "dataset.npz")
    assert data.rewards.shape == (400,)
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
    cql, bc = curves["CQL"][-1], curves["BC"][-1]
    assert cql.eval_return > -300
    assert cql.eval_return > cql.data_return + 300
    assert cql.eval_return > bc.eval_return + 300
