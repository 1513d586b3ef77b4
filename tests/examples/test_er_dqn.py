"""Test the ER-DQN example: its update, its widths and its learning."""

import dataclasses
import functools

import er_dqn as example
import jax
import numpy as np
import optax
import pytest
from common import catch
from common.replay import Replay

import rlaxlib

pytestmark = pytest.mark.usefixtures("one_program")

SHORT = example.Config(train_episodes=4, eval_interval=2, eval_episodes=3)
AGENTS = list(example.LOSSES)
impute = jax.jit(rlaxlib.impute_expectile_samples)


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


@pytest.mark.parametrize("name", AGENTS)
def test_update_follows_the_asymmetric_squared_errors(name):
    agent, batch = make_agent(), random_batch(8)
    agent = agent.replace(
        tx=optax.sgd(1.0),
        opt_state=optax.sgd(1.0).init(agent.params),
        target_params=make_agent(seed=1).params,
    )
    number = SHORT.num_expectiles
    tau = (np.arange(number, dtype=np.float32) + 0.5) / number
    expected = np.zeros((number, 3))
    for each in zip(*batch, strict=True):
        observation_tm1, a_tm1, r_t, discount_t, observation_t = each
        expectiles = np.asarray(apply(agent.params, observation_tm1))
        dist_t = np.asarray(apply(agent.target_params, observation_t))
        means = dist_t.mean(axis=0) if name == "naive" else dist_t[number // 2]
        samples = dist_t[:, means.argmax()]
        if name == "imputed":
            samples = np.asarray(impute(samples, tau))
        errors = (r_t + discount_t * samples)[None, :] - expectiles[:, a_tm1, None]
        weights = np.abs(tau[:, None] - (errors < 0))
        expected[:, a_tm1] += np.mean(2 * weights * errors, axis=1) / 8

    learned = example.learn(agent, batch, example.LOSSES[name], target_period=10)
    before, after = (x.params["params"]["layers_3"]["bias"] for x in (agent, learned))
    step = np.reshape(after - before, expected.shape)
    np.testing.assert_allclose(step, expected, atol=1e-5)


def test_target_network_is_updated_once_per_period():
    agent, batch = make_agent(), random_batch(8)
    loss = rlaxlib.expectile_q_learning
    first = example.learn(agent, batch, loss, target_period=2)
    second = example.learn(first, batch, loss, target_period=2)
    jax.tree.map(np.testing.assert_array_equal, first.target_params, agent.params)
    jax.tree.map(np.testing.assert_array_equal, second.target_params, second.params)
    assert first.params["params"]["layers_3"]["bias"].any()


def test_only_the_last_reward_is_noisy_and_returns_are_not():
    config = dataclasses.replace(SHORT, discount=0.75, reward_noise=0.25)
    replay, key = Replay(900, seed=0), jax.random.key(0)
    agent, environment = make_agent(), catch.Catch(seed=0)
    random = np.random.default_rng(0)
    returns = []
    for _ in range(20):
        agent, episode_return = example.train_episode(
            agent,
            key,
            environment,
            replay,
            random,
            rlaxlib.expectile_q_learning,
            config,
        )
        returns.append(episode_return)
    kept = replay.take(np.arange(180))
    assert kept.discount_t.reshape(20, 9).tolist() == 20 * [[*8 * [0.75], 0.0]]
    rewards = kept.r_t.reshape(20, 9)
    assert not rewards[:, :-1].any()
    assert {-1.0, 1.0} >= set(returns)
    assert set(rewards[:, -1] - returns) == {-0.25, 0.25}


def test_greedy_action_maximises_the_expectile_at_one_half():
    agent = make_agent()
    observation = random_batch(1).observation_tm1[0]
    middle = apply(agent.params, observation)[SHORT.num_expectiles // 2]
    action = example.act(agent, jax.random.key(0), observation, epsilon=0.0)
    assert action == middle.argmax()


def test_true_widths_are_discounted():
    """The expectiles of a fair ±1 variable at 1/6 and 5/6 are -2/3 and 2/3."""
    config = example.Config(num_expectiles=3, reward_noise=3.0, discount=0.5)
    widths = example.true_widths(3, config)
    assert [each.width for each in widths] == pytest.approx([1.0, 2.0, 4.0])
    assert [each.step for each in widths] == [0, 1, 2]


# --- Reproducibility and output. ---


def test_curve_depends_on_the_seed_only():
    loss = example.LOSSES["naive"]
    (_, first), (_, again), (_, other) = (
        example.train_agent(dataclasses.replace(SHORT, seed=seed), loss)
        for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


@pytest.mark.trust
def test_learning_curves_and_widths_are_written(tmp_path):
    example.main(dataclasses.replace(SHORT, output=str(tmp_path)))
    header, *rows = (tmp_path / "curve.csv").read_text().splitlines()
    assert header == "curve,episode,train_return,eval_return"
    assert [row.split(",")[:2] for row in rows] == [
        [name, episode] for name in AGENTS for episode in ("2", "4")
    ]
    header, *rows = (tmp_path / "width" / "curve.csv").read_text().splitlines()
    assert header == "curve,step,width"
    assert [row.split(",")[0] for row in rows[::9]] == [*AGENTS, "true"]
    assert len(rows) == 27
    for folder in (tmp_path, tmp_path / "width"):
        assert (folder / "curve.svg").stat().st_size > 0


@pytest.mark.slow
def test_both_agents_solve_catch_and_only_imputation_predicts_true_widths():
    learning, widths = example.train(example.Config())
    assert all(curve[-1].eval_return >= 0.9 for curve in learning.values())
    naive, imputed, true = (np.array(each)[:, 1] for each in widths.values())
    np.testing.assert_allclose(imputed, true, rtol=0.2)
    assert naive[0] < 0.3 * true[0]
