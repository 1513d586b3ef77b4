"""Test the losses and the loops of the agents of Catch."""

import functools

import actor_critic
import bc_agent
import distributional_dqn
import dqn
import jax
import jax.numpy as jnp
import numpy as np
import online_q_lambda
import pop_art
import pytest
import reinforce_baseline
from bsuite.environments.catch import Catch

# --- Helpers. ---


def transitions(example, size=5):
    rng = np.random.default_rng(0)
    return example.Transition(
        observation_tm1=rng.normal(size=(size, 10, 5)).astype(np.float32),
        a_tm1=rng.integers(3, size=size),
        r_t=rng.normal(size=size).astype(np.float32),
        discount_t=np.float32([0.9, 0.0, 0.9, 0.9, 0.9]),
        observation_t=rng.normal(size=(size, 10, 5)).astype(np.float32),
    )


def network(params, x):
    """Return the output of a network with one hidden layer of ReLU, in float64."""
    x, layers = x.reshape(len(x), -1).astype(float), params["params"]
    for i in range(2):
        layer = jax.tree.map(np.float64, layers[f"Dense_{i}"])
        x = x @ layer["kernel"] + layer["bias"]
        x = np.maximum(x, 0) if i == 0 else x
    return x


def moved(tree):
    return jax.tree.map(lambda x: 1.3 * x + 0.05, tree)


def episode_of(example, seed=0):
    rng = np.random.default_rng(seed)
    actions = iter(rng.integers(3, size=20))
    return example.play(Catch(seed=seed), lambda _: next(actions))


# --- DQN. ---


def test_dqn_loss_is_double_q_learning_with_weights():
    config = dqn.Config()
    agent = dqn.make_agent(jax.random.key(0), Catch(), config)
    agent = agent.replace(target_params=moved(agent.params))
    batch, weights = transitions(dqn), np.linspace(0.1, 1, 5)
    best = np.argmax(network(agent.params, batch.observation_t), axis=1)
    q_t = network(agent.target_params, batch.observation_t)[np.arange(5), best]
    q_tm1 = network(agent.params, batch.observation_tm1)[np.arange(5), batch.a_tm1]
    errors = batch.r_t + batch.discount_t * q_t - q_tm1
    size = np.abs(errors)
    huber = np.where(size <= 1, 0.5 * errors**2, size - 0.5)
    loss, found = jax.jit(dqn.loss)(agent.params, agent, batch, jnp.float32(weights))
    np.testing.assert_allclose(found, errors, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(loss, np.mean(weights * huber), rtol=1e-4)


def test_dqn_never_draws_free_slots_and_prefers_large_errors():
    config = dqn.Config(batch_size=64, priority_exponent=1.0)
    priorities = np.float32([1, 0, 3, 0])
    indices, weights = dqn.draw(jax.random.key(0), 0, priorities, config)
    counts = np.bincount(indices, minlength=4)
    np.testing.assert_array_equal(counts, [16, 0, 48, 0])
    assert np.all(weights[indices == 0] > weights[indices == 2][0])


@pytest.mark.parametrize(
    "loss",
    [
        *("c51", "er_dqn"),
        *(pytest.param(x, marks=pytest.mark.trust) for x in ("qr_dqn", "naive_er_dqn")),
    ],
)
def test_distributional_agent_predicts_the_reward_of_terminal_steps(loss):
    config = distributional_dqn.Config(loss=loss, num_outputs=11, learning_rate=3e-3)
    agent = distributional_dqn.make_agent(jax.random.key(0), Catch(), config)
    batch = transitions(distributional_dqn)
    rewards = np.float32([1.0, -1.0, 0.5, 0.0, -0.5])
    batch = batch._replace(r_t=rewards, discount_t=np.zeros(5, np.float32))
    for _ in range(300):
        agent = distributional_dqn.learn(agent, batch, config)
    for observation, action, reward in zip(*batch[:3], strict=True):
        dist_q = agent.apply_fn(agent.params, observation)
        q = distributional_dqn.mean_returns(config, dist_q)
        np.testing.assert_allclose(q[action], reward, atol=0.1)


# --- Episodes. ---


@pytest.mark.parametrize("example", [online_q_lambda, reinforce_baseline, pop_art])
def test_episode_has_one_more_observation_and_ends_with_discount_0(example):
    episode = episode_of(example)
    assert episode.observation.shape == (10, 10, 5)
    np.testing.assert_array_equal(episode.discount, [1] * 8 + [0])
    assert abs(episode.reward[-1]) == 1
    assert not episode.reward[:-1].any()


def test_watkins_cuts_returns_before_actions_that_are_not_greedy():
    q = jnp.float32([[0, 1, 2], [2, 1, 0], [0, 1, 0], [5, 1, 0]])
    config = online_q_lambda.Config(watkins=True, lambda_return=0.5)
    traces = online_q_lambda.traces(q, jnp.array([2, 1, 1, 0]), config)
    np.testing.assert_array_equal(traces, [0, 0.5, 0.5, 0])


def test_actor_critic_without_lag_does_not_need_the_correction():
    environment, key = Catch(seed=0), jax.random.key(0)
    net = actor_critic.Network(3)
    params = jax.jit(net.init)(key, environment.reset().observation)
    agent = actor_critic.TrainState.create(
        apply_fn=net.apply, params=params, tx=actor_critic.optax.sgd(1.0)
    )
    episode = actor_critic.play(environment, agent, key, iter(range(20)))

    @functools.partial(jax.jit, static_argnames="correct")
    def gradient(params, correct):
        config = actor_critic.Config(correct=correct)
        return jax.grad(actor_critic.loss)(params, net.apply, episode, config)

    for x, y in zip(
        *(jax.tree.leaves(gradient(params, each)) for each in (True, False)),
        strict=True,
    ):
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-6)
    other = moved(params)
    corrected, plain = (
        jax.flatten_util.ravel_pytree(gradient(other, each))[0]
        for each in (True, False)
    )
    assert not np.allclose(corrected, plain, rtol=0.01, atol=1e-4)


# --- Others. ---


def test_pop_preserves_all_values_and_art_follows_the_targets():
    config = pop_art.Config(step_size=0.5)
    agent = pop_art.make_agent(jax.random.key(0), Catch(), config)
    episode = episode_of(pop_art)
    before = pop_art.predict(agent, episode.observation[0])
    targets, actions = jnp.full(9, 5000.0), jnp.zeros(9, int)
    new = pop_art.renormalize(agent, targets, actions, config)
    after = pop_art.predict(new, episode.observation[0])
    np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-2)
    assert new.popart.shift[0] > 4000
    assert new.popart.shift[1] == 0
    off = pop_art.Config(popart=False)
    same = pop_art.renormalize(agent, targets, actions, off)
    np.testing.assert_array_equal(same.popart.shift, agent.popart.shift)


def test_expert_of_behaviour_cloning_catches_every_ball():
    config = bc_agent.Config(data_episodes=20, data_epsilon=0.0)
    observations, actions, mean_return = bc_agent.collect(Catch(seed=0), config)
    assert mean_return == 1.0
    assert observations.shape == (180, 10, 5)
    assert set(actions) <= {0, 1, 2}


def test_bc_loss_is_the_negative_log_likelihood():
    net, rng = bc_agent.Network(3), np.random.default_rng(0)
    observation = rng.normal(size=(4, 10, 5)).astype(np.float32)
    action = np.array([0, 2, 1, 1])
    params = jax.jit(net.init)(jax.random.key(0), observation)
    loss = jax.jit(bc_agent.loss, static_argnums=1)
    loss, entropy = loss(params, net.apply, observation, action)
    logits = network(params, observation)
    log_probs = logits - np.log(np.sum(np.exp(logits), axis=1, keepdims=True))
    np.testing.assert_allclose(loss, -np.mean(log_probs[range(4), action]), rtol=1e-5)
    expected = -np.mean(np.sum(np.exp(log_probs) * log_probs, axis=1))
    np.testing.assert_allclose(entropy, expected, rtol=1e-5)
