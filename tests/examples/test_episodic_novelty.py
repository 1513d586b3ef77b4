"""Test the episodic-novelty example: its bonus, its update and its learning."""

import dataclasses
import functools

import episodic_novelty as example
import jax
import numpy as np
import optax
import pytest
from bsuite.environments.deep_sea import DeepSea
from common.replay import Replay

pytestmark = pytest.mark.usefixtures("one_program")

SHORT = example.Config(size=5, train_episodes=10, eval_interval=5, memory_size=500)
CELLS = np.eye(25, dtype=np.float32).reshape(25, 5, 5)


@functools.cache  # One agent, so that `jax.jit` compiles its functions once.
def make_agent(seed=0):
    environment = DeepSea(SHORT.size, mapping_seed=0)
    return example.make_agent(jax.random.key(seed), environment, SHORT)


def judge(memory, cells, actions):
    """Return the novelty of actions in cells, and the next memory."""
    novelty, memory = example.judge_novelty(
        make_agent(), memory, CELLS[np.array(cells)], np.array(actions), SHORT
    )
    return np.asarray(novelty), memory


def play_one(novelty_scale, memory=None):
    """Play an episode; return its transitions, the memory and the return."""
    replay, environment = Replay(100, seed=0), DeepSea(SHORT.size, mapping_seed=0)
    _, memory, episode_return = example.train_episode(
        make_agent(),
        memory,
        jax.random.key(0),
        environment,
        replay,
        novelty_scale,
        dataclasses.replace(SHORT, discount=0.75),
    )
    return replay.take(np.arange(5)), memory, episode_return


# --- Updates and learning. ---


def test_novelty_decreases_for_repeated_pairs_only():
    memory, seen = None, []
    for _ in range(6):
        novelty, memory = judge(memory, [3], [0])
        seen.append(novelty[0])
    assert seen[0] > 10 * seen[1]
    assert seen[1] > seen[2] > seen[3] > 0
    assert seen[5] == 0  # The similarity exceeds 2, the square root of 4.
    novelty, _ = judge(memory, [3, 3, 4], [0, 1, 0])
    assert novelty[0] == 0
    assert min(novelty[1:]) > 10


def test_untried_actions_are_preferred_with_the_bonus_only():
    agent, observation = make_agent(), CELLS[3]
    best = int(example.exploit(agent, observation))
    assert best == np.argmax(agent.apply_fn(agent.params, observation))
    _, memory = judge(None, [3, 3], [best, best])
    config = dataclasses.replace(SHORT, epsilon=0.0)
    for scale, action in ((1.0, 1 - best), (0.0, best)):
        for step in range(5):
            key = jax.random.key(0)
            chosen = example.explore(
                agent, memory, key, step, observation, scale, config
            )
            assert chosen == action


def test_stored_rewards_include_the_bonus():
    plain, _, episode_return = play_one(novelty_scale=0.0)
    assert plain.r_t.sum() == pytest.approx(episode_return)
    assert plain.discount_t.tolist() == [*4 * [0.75], 0.0]
    np.testing.assert_array_equal(plain.observation_tm1[1:], plain.observation_t[:-1])

    scaled, memory, episode_return = play_one(novelty_scale=0.5)
    cells = scaled.observation_tm1.reshape(5, 25).argmax(axis=1)
    novelty, expected = judge(None, cells, scaled.a_tm1)
    assert scaled.r_t.sum() - episode_return == pytest.approx(0.5 * novelty.sum())
    np.testing.assert_array_equal(memory.memory, expected.memory)


def test_update_follows_the_squared_errors_of_double_q_learning():
    random = np.random.default_rng(0)
    batch = example.Transition(
        random.random((1, 8, 5, 5), np.float32),
        random.integers(2, size=(1, 8)),
        random.random((1, 8), np.float32),
        random.choice([0, 0.9], size=(1, 8)).astype(np.float32),
        random.random((1, 8, 5, 5), np.float32),
    )
    agent = make_agent()
    agent = agent.replace(
        tx=optax.sgd(1.0),
        opt_state=optax.sgd(1.0).init(agent.params),
        target_params=make_agent(seed=1).params,
    )
    expected = np.zeros(2)
    for observation_tm1, a_tm1, r_t, discount_t, observation_t in zip(
        *(x[0] for x in batch), strict=True
    ):
        best = np.argmax(agent.apply_fn(agent.params, observation_t))
        target = agent.apply_fn(agent.target_params, observation_t)[best]
        value = agent.apply_fn(agent.params, observation_tm1)[a_tm1]
        expected[a_tm1] += (r_t + discount_t * target - value) / 8

    learned = example.learn(agent, batch, target_period=10)
    before, after = (x.params["params"]["layers_3"]["bias"] for x in (agent, learned))
    np.testing.assert_allclose(after - before, expected, atol=1e-6)


def test_each_batch_is_one_step_and_the_target_network_is_updated_periodically():
    agent = make_agent()
    batches = example.Transition(
        np.ones((3, 4, 5, 5), np.float32),
        np.zeros((3, 4), int),
        np.ones((3, 4), np.float32),
        np.ones((3, 4), np.float32),
        np.ones((3, 4, 5, 5), np.float32),
    )
    two = jax.tree.map(lambda x: x[:2], batches)
    after_two, after_three = (
        example.learn(agent, each, target_period=2) for each in (two, batches)
    )
    assert (after_two.step, after_three.step) == (2, 3)
    same = np.testing.assert_array_equal
    jax.tree.map(same, after_two.target_params, after_two.params)
    jax.tree.map(same, after_three.target_params, after_two.params)
    assert after_three.params["params"]["layers_3"]["bias"].any()


# --- Reproducibility and output. ---


@pytest.mark.trust
def test_curves_depend_on_the_seed_and_are_written(tmp_path):
    written = []
    for run, seed in enumerate((1, 1, 2)):
        folder = tmp_path / str(run)
        example.main(dataclasses.replace(SHORT, seed=seed, output=str(folder)))
        written.append((folder / "curve.csv").read_text())
        assert (folder / "curve.svg").stat().st_size > 0
    first, again, other = written
    assert first == again
    assert first != other
    header, *rows = first.splitlines()
    assert header == "curve,episode,train_return,eval_return"
    assert [row.split(",")[:2] for row in rows] == [
        ["novelty", "5"],
        ["novelty", "10"],
        ["no novelty", "5"],
        ["no novelty", "10"],
    ]


@pytest.mark.slow
def test_final_return_matches_the_docstring():
    novel, plain = (curve[-1] for curve in example.train(example.Config()).values())
    assert novel.eval_return >= 0.9
    assert plain.eval_return < 0.1
