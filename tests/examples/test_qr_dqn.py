"""Test the QR-DQN example: its update and its learning."""

import dataclasses
import functools

import jax
import numpy as np
import optax
import pytest
import qr_dqn as example
from common import catch
from common.replay import Replay

pytestmark = pytest.mark.usefixtures("one_program")

SHORT = example.Config(train_episodes=4, eval_interval=2, eval_episodes=3)


@functools.cache  # One agent, so that `jax.jit` compiles its functions once.
def make_agent(seed=0):
    return example.make_agent(jax.random.key(seed), catch.Catch(), SHORT)


@jax.jit
def apply(params, observation):
    return make_agent().apply_fn(params, observation)


def random_batch(size):
    random = np.random.default_rng(0)
    return example.Transition(
        random.random((size, 10, 5), np.float32),
        random.integers(3, size=size),
        random.choice([-1, 0, 1], size=size).astype(np.float32),
        random.choice([0, 0.9], size=size).astype(np.float32),
        random.random((size, 10, 5), np.float32),
    )


# --- Updates and learning. ---


@pytest.mark.parametrize("huber_param", [0.0, 0.5, 1.0])
def test_update_follows_the_quantile_huber_loss(huber_param):
    agent, batch = make_agent(), random_batch(8)
    agent = agent.replace(
        tx=optax.sgd(1.0),
        opt_state=optax.sgd(1.0).init(agent.params),
        target_params=make_agent(seed=1).params,
    )
    number = SHORT.num_quantiles
    tau = (np.arange(number)[:, None] + 0.5) / number
    expected = np.zeros((number, 3))
    for each in zip(*batch, strict=True):
        observation_tm1, a_tm1, r_t, discount_t, observation_t = each
        quantiles = np.asarray(apply(agent.params, observation_tm1))
        dist_t = np.asarray(apply(agent.target_params, observation_t))
        target = r_t + discount_t * dist_t[:, dist_t.mean(axis=0).argmax()]
        errors = target[None, :] - quantiles[:, a_tm1, None]
        limit = huber_param or np.inf
        grads = np.clip(errors, -limit, limit) if huber_param else np.sign(errors)
        expected[:, a_tm1] += np.mean(np.abs(tau - (errors < 0)) * grads, axis=1) / 8

    learned = example.learn(agent, batch, huber_param, target_period=10)
    before, after = (x.params["params"]["layers_3"]["bias"] for x in (agent, learned))
    step = np.reshape(after - before, expected.shape)
    np.testing.assert_allclose(step, expected, atol=1e-6)


@pytest.mark.trust
def test_target_network_is_updated_once_per_period():
    agent, batch = make_agent(), random_batch(8)
    first = example.learn(agent, batch, 1.0, target_period=2)
    second = example.learn(first, batch, 1.0, target_period=2)
    jax.tree.map(np.testing.assert_array_equal, first.target_params, agent.params)
    jax.tree.map(np.testing.assert_array_equal, second.target_params, second.params)
    assert first.params["params"]["layers_3"]["bias"].any()


def test_episode_is_stored_in_replay_with_the_discount_of_the_config():
    config = dataclasses.replace(SHORT, discount=0.75)
    replay, key = Replay(100, seed=0), jax.random.key(0)
    _, episode_return = example.train_episode(
        make_agent(), key, catch.Catch(seed=0), replay, 1.0, config
    )
    kept = replay.take(np.arange(9))
    assert len(replay) == 9
    assert kept.discount_t.tolist() == [*8 * [0.75], 0.0]
    assert kept.r_t.tolist() == [*8 * [0.0], episode_return]
    np.testing.assert_array_equal(kept.observation_tm1[1:], kept.observation_t[:-1])


def test_greedy_action_maximises_the_mean_return():
    agent = make_agent()
    observation = random_batch(1).observation_tm1[0]
    means = np.mean(apply(agent.params, observation), axis=0)
    action = example.act(agent, jax.random.key(0), observation, epsilon=0.0)
    assert action == means.argmax()


# --- Reproducibility and output. ---


def test_curve_depends_on_the_seed_only():
    first, again, other = (
        example.train_agent(dataclasses.replace(SHORT, seed=seed), huber_param=1.0)
        for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_both_learning_curves_are_written(tmp_path):
    example.main(dataclasses.replace(SHORT, output=str(tmp_path)))
    header, *rows = (tmp_path / "curve.csv").read_text().splitlines()
    assert header == "curve,episode,train_return,eval_return"
    assert [row.split(",")[:2] for row in rows] == [
        ["Huber", "2"],
        ["Huber", "4"],
        ["no Huber", "2"],
        ["no Huber", "4"],
    ]
    assert (tmp_path / "curve.svg").stat().st_size > 0


@pytest.mark.slow
def test_final_returns_match_the_docstring():
    trained = example.train(example.Config())
    assert all(curve[-1].eval_return >= 0.9 for curve in trained.values())
