"""Test the C51 example: its update and its learning."""

import dataclasses
import functools

import c51 as example
import jax
import numpy as np
import optax
import pytest
import runs
from common import catch
from common.replay import Replay

import rlaxlib

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
        random.choice([-1, 0, 0.3, 1], size=size).astype(np.float32),
        random.choice([0, 0.9], size=size).astype(np.float32),
        random.random((size, 10, 5), np.float32),
    )


def project(atoms, probs):
    """Project a distribution over `atoms` onto the atoms -1, ..., 1."""
    places = (np.clip(atoms, -1, 1) + 1) / 2 * (SHORT.num_atoms - 1)
    apart = np.abs(places[None, :] - np.arange(SHORT.num_atoms)[:, None])
    return np.maximum(1 - apart, 0) @ probs


# --- Updates and learning. ---


def test_update_follows_the_cross_entropy_with_the_projected_target():
    """The gradient of cross-entropy is the probabilities minus the target."""
    agent, batch = make_agent(), random_batch(8)
    agent = agent.replace(
        tx=optax.sgd(1.0),
        opt_state=optax.sgd(1.0).init(agent.params),
        target_params=make_agent(seed=1).params,
    )
    expected = np.zeros((3, SHORT.num_atoms))
    atoms = np.linspace(-1, 1, SHORT.num_atoms)
    for each in zip(*batch, strict=True):
        observation_tm1, a_tm1, r_t, discount_t, observation_t = each
        logits_tm1 = apply(agent.params, observation_tm1)
        logits_t = apply(agent.target_params, observation_t)
        probs_tm1, probs_t = np.asarray(
            jax.nn.softmax(np.stack([logits_tm1, logits_t]))
        )
        best = np.argmax(probs_t @ atoms)
        target = project(r_t + discount_t * atoms, probs_t[best])
        expected[a_tm1] += (probs_tm1[a_tm1] - target) / 8

    learned = example.learn(agent, batch, target_period=10)
    before, after = (x.params["params"]["layers_3"]["bias"] for x in (agent, learned))
    gradient = np.reshape(before - after, expected.shape)
    np.testing.assert_allclose(gradient, expected, atol=1e-6)


def test_target_network_is_updated_once_per_period():
    agent, batch = make_agent(), random_batch(8)
    first = example.learn(agent, batch, target_period=2)
    second = example.learn(first, batch, target_period=2)
    jax.tree.map(np.testing.assert_array_equal, first.target_params, agent.params)
    jax.tree.map(np.testing.assert_array_equal, second.target_params, second.params)
    assert first.params["params"]["layers_3"]["bias"].any()


def test_episode_is_stored_in_replay_with_the_discount_of_the_config():
    config = dataclasses.replace(SHORT, discount=0.75)
    replay, key = Replay(100, seed=0), jax.random.key(0)
    _, episode_return = example.train_episode(
        make_agent(), key, catch.Catch(seed=0), replay, config
    )
    kept = replay.take(np.arange(9))
    assert len(replay) == 9
    assert kept.discount_t.tolist() == [*8 * [0.75], 0.0]
    assert kept.r_t.tolist() == [*8 * [0.0], episode_return]
    np.testing.assert_array_equal(kept.observation_tm1[1:], kept.observation_t[:-1])


def test_greedy_action_maximises_the_mean_return():
    agent = make_agent()
    observation = random_batch(1).observation_tm1[0]
    probs = rlaxlib.softmax().probs(apply(agent.params, observation))
    action = example.act(agent, jax.random.key(0), observation, epsilon=0.0)
    assert action == np.argmax(probs @ np.linspace(-1, 1, SHORT.num_atoms))


# --- Reproducibility and output. ---


def test_runs_with_the_same_seed_are_equal_and_write_their_curve(tmp_path):
    runs.check_that_one_repeats_and_is_written(example, SHORT, tmp_path)


@pytest.mark.slow
def test_final_return_matches_the_docstring():
    assert example.train(example.Config())[-1].eval_return >= 0.9
