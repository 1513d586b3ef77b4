"""Test the losses of the agents of Pendulum against their equations in NumPy."""

import cql_agent
import fql_agent
import iql_agent
import jax
import jax.numpy as jnp
import numpy as np
import ppo_continuous
import pytest
import sac_agent
import td3_agent

B = 6
OBSERVATION = np.zeros(3, np.float32)


# --- Helpers. ---


def make_batch(example):
    rng = np.random.default_rng(0)
    return example.Transition(
        observation_tm1=rng.normal(size=(B, 3)).astype(np.float32),
        a_tm1=rng.uniform(-0.9, 0.9, size=(B, 1)).astype(np.float32),
        r_t=rng.normal(size=B).astype(np.float32),
        discount_t=np.float32([1, 1, 1, 0, 1, 0]),
        observation_t=rng.normal(size=(B, 3)).astype(np.float32),
    )


def make_agent(example):
    """Return an agent whose target critics differ from the critics."""
    return example.make_agent(jax.random.key(0), OBSERVATION, example.Config())


def moved(tree):
    return jax.tree.map(lambda x: 1.3 * x + 0.05, tree)


def mlp(params, *inputs):
    """Return the output of a network with two hidden layers of ReLU, in float64."""
    x, layers = np.concatenate(inputs, axis=-1).astype(float), params["params"]
    for i in range(3):
        layer = jax.tree.map(np.float64, layers[f"Dense_{i}"])
        x = x @ layer["kernel"] + layer["bias"]
        x = np.maximum(x, 0) if i < 2 else x
    return x


def critics(params, *inputs):
    each = [jax.tree.map(lambda x, i=i: x[i], params) for i in range(2)]
    return np.stack([mlp(x, *inputs)[:, 0] for x in each])


def tanh_gaussian(params, key, observation):
    """Sample actions; return them and their log-densities by change of variables."""
    mean, log_stddev = np.split(mlp(params, observation), 2, axis=-1)
    stddev = np.exp(np.clip(log_stddev, -5, 2))
    u = mean + stddev * np.float64(jax.random.normal(key, mean.shape))
    normal = -0.5 * ((u - mean) / stddev) ** 2 - np.log(stddev * np.sqrt(2 * np.pi))
    return np.tanh(u), np.sum(normal - np.log(np.cosh(u) ** -2), axis=-1)


# --- Losses. ---


def test_sac_loss_is_its_equation():
    agent, batch = make_agent(sac_agent), make_batch(sac_agent)
    params = {**agent.params, "log_temperature": jnp.float32(-0.7)}
    target, key = moved(agent.target_critic), jax.random.key(1)
    critic_key, actor_key = jax.random.split(key)
    temperature = np.exp(-0.7)

    a_t, log_prob_t = tanh_gaussian(params["actor"], critic_key, batch.observation_t)
    q_t = np.min(critics(target, batch.observation_t, a_t), axis=0)
    y = batch.r_t + 0.99 * batch.discount_t * (q_t - temperature * log_prob_t)
    q = critics(params["critic"], batch.observation_tm1, batch.a_tm1)
    action, log_prob = tanh_gaussian(params["actor"], actor_key, batch.observation_tm1)
    value = np.min(critics(params["critic"], batch.observation_tm1, action), axis=0)
    expected = np.mean((q - y) ** 2) / 2 + np.mean(temperature * log_prob - value)
    expected += temperature * np.mean(-log_prob + 1)  # The target entropy is -1.
    loss = jax.jit(sac_agent.loss, static_argnames="config")
    loss = loss(params, target, batch, key, sac_agent.Config())
    np.testing.assert_allclose(loss, expected, rtol=1e-4)


def test_td3_targets_are_those_of_smoothed_actions_and_the_lower_critic():
    agent, batch = make_agent(td3_agent), make_batch(td3_agent)
    target, config = moved(agent.target), td3_agent.Config(target_noise=0.0)
    a_t = np.tanh(mlp(target.actor, batch.observation_t))
    q_t = np.min(critics(target.critic, batch.observation_t, a_t), axis=0)
    y = batch.r_t + 0.99 * batch.discount_t * q_t
    q = critics(agent.params.critic, batch.observation_tm1, batch.a_tm1)
    # The loss of the policy has the value 0.5 * (dq/da) ** 2, which is subtracted.
    key = jax.random.key(0)
    loss = td3_agent.loss(agent.params, target, batch, key, config)

    def value(action):
        values = td3_agent.values(agent.params.critic, batch.observation_tm1, action)
        return jnp.sum(values[0])

    action = td3_agent.policy(agent.params.actor, batch.observation_tm1)
    policy_loss = np.mean(np.float64(jax.grad(value)(action)) ** 2) / 2
    expected = np.mean((q - y) ** 2) / 2 + policy_loss
    np.testing.assert_allclose(loss, expected, rtol=1e-4)


def test_td3_policy_and_targets_wait_for_their_turn():
    agent, batch = make_agent(td3_agent), make_batch(td3_agent)
    config, key = td3_agent.Config(policy_period=2), jax.random.key(0)
    learn = jax.jit(td3_agent.learn, static_argnums=3)
    first = learn(agent, batch, key, config)
    second = learn(first, batch, key, config)

    def same(x, y):
        return all(map(np.array_equal, jax.tree.leaves(x), jax.tree.leaves(y)))

    assert not same(agent.params.critic, first.params.critic)
    assert same(agent.params.actor, first.params.actor)
    assert same(agent.target, first.target)
    assert not same(first.params.actor, second.params.actor)
    assert not same(first.target.critic, second.target.critic)


@pytest.mark.parametrize("bc", [False, True])
def test_iql_loss_is_its_equation(bc):
    agent, batch = make_agent(iql_agent), make_batch(iql_agent)
    params, target = agent.params, moved(agent.target_critic)
    inputs = batch.observation_tm1, batch.a_tm1
    q_target = np.min(critics(target, *inputs), axis=0)
    v = mlp(params["value"], batch.observation_tm1)[:, 0]
    adv = q_target - v
    value_loss = np.mean(np.where(adv > 0, 0.8, 0.2) * adv**2)
    v_t = mlp(params["value"], batch.observation_t)[:, 0]
    y = batch.r_t + 0.99 * batch.discount_t * v_t
    critic_loss = np.mean((critics(params["critic"], *inputs) - y) ** 2) / 2
    mean = np.tanh(mlp(params["actor"], batch.observation_tm1))  # Of deviation 1.
    log_prob = -0.5 * (batch.a_tm1 - mean) ** 2 - 0.5 * np.log(2 * np.pi)
    weight = np.ones(B) if bc else np.minimum(np.exp(adv), 100)
    expected = value_loss + critic_loss - np.mean(weight * log_prob[:, 0])
    loss = iql_agent.loss(params, target, batch, iql_agent.Config(bc=bc))
    np.testing.assert_allclose(loss, expected, rtol=1e-4)


def test_cql_adds_the_gap_of_sampled_and_recorded_actions():
    agent, batch = make_agent(cql_agent), make_batch(cql_agent)
    target, key = moved(agent.target_critic), jax.random.key(1)
    config = cql_agent.Config(conservative_weight=2.0, num_samples=3)
    plain = cql_agent.Config(conservative_weight=0.0, num_samples=3)
    gap = (
        cql_agent.loss(agent.params, target, batch, key, config)
        - cql_agent.loss(agent.params, target, batch, key, plain)
    ) / 2
    actions, log_probs = cql_agent.sample_for_critic(
        agent.params["actor"], jax.random.split(key, 3)[1], batch, config
    )
    assert actions.shape == (9, B, 1)
    np.testing.assert_allclose(log_probs[6:], np.log(0.5), rtol=1e-6)  # Uniform.
    critic = agent.params["critic"]
    q_samples = np.stack([critics(critic, batch.observation_tm1, a) for a in actions])
    q = critics(critic, batch.observation_tm1, batch.a_tm1)
    shifted = q_samples - np.float64(log_probs)[:, None]
    expected = np.mean(np.log(np.sum(np.exp(shifted), axis=0)) - q)
    np.testing.assert_allclose(gap, expected, rtol=1e-3)


def test_fql_flow_is_solved_by_euler_and_the_policy_is_distilled():
    agent, batch = make_agent(fql_agent), make_batch(fql_agent)
    config, noise = fql_agent.Config(flow_steps=4), 0.3 * batch.a_tm1
    x = np.float64(noise)
    for t in range(4):
        time = np.full((B, 1), t / 4)
        x = x + mlp(agent.params["flow"], batch.observation_tm1, x, time) / 4
    ends = fql_agent.solve(agent.params["flow"], batch.observation_tm1, noise, config)
    np.testing.assert_allclose(ends, x, rtol=1e-4, atol=1e-5)

    def loss(weight):
        config = fql_agent.Config(flow_steps=4, weight=weight)
        key, target = jax.random.key(1), agent.target_critic
        return fql_agent.loss(agent.params, target, batch, key, config)

    noise = jax.random.normal(jax.random.split(jax.random.key(1), 3)[2], (B, 1))
    ends = fql_agent.solve(agent.params["flow"], batch.observation_tm1, noise, config)
    action = mlp(agent.params["actor"], batch.observation_tm1, noise)
    distillation = np.mean(np.sum((action - np.float64(ends)) ** 2, axis=-1))
    np.testing.assert_allclose(loss(3.0) - loss(2.0), distillation, rtol=1e-3)


# --- Data. ---


def test_data_are_better_than_random_and_worse_than_the_controller():
    data = iql_agent.collect(jax.random.key(0), 20)
    assert np.all(np.abs(data.a_tm1) <= 1)
    assert -1100 < np.sum(data.r_t) / 20 < -600

    keys = jax.random.split(jax.random.key(1), 8)
    episodes = jax.vmap(lambda key: iql_agent.play(key, iql_agent.behave, 0.0))(keys)
    assert np.mean(np.sum(episodes.r_t, axis=1)) > -250


def test_ppo_normalises_by_the_moments_of_earlier_observations():
    config = ppo_continuous.Config(num_envs=2, num_steps=8)
    keys = jax.random.split(jax.random.key(0), 3)
    world = jax.vmap(ppo_continuous.ENVIRONMENT.reset)(jax.random.split(keys[0], 2))
    agent = ppo_continuous.make_agent(keys[1], world[0][0], config)
    agent, world, first = ppo_continuous.collect(agent, world, keys[2], config)
    again, _, second = ppo_continuous.collect(agent, world, keys[2], config)
    moments = agent.moments
    expected = (np.float64(world[0]) - moments.mean) / np.sqrt(moments.variance)
    np.testing.assert_allclose(second.observation[0], expected, rtol=1e-2, atol=1e-2)
    assert not np.allclose(again.moments.mean, moments.mean)
    assert np.all(np.isfinite(first.advantage))
