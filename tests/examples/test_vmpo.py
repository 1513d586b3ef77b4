"""Test the V-MPO example: its weights, its update and its learning."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
import runs
import vmpo as example
from common import catch

pytestmark = pytest.mark.usefixtures("one_program")

SHORT = example.Config(
    train_episodes=6,
    eval_interval=3,
    eval_episodes=3,
    batch_size=4,
    target_period=3,
    lambda_=1.0,
    discount=0.5,
)


# --- Helpers. ---


def make_batch(size=4):
    """Return random episodes, with a reward at each step."""
    random = np.random.default_rng(0)
    return catch.Trajectory(
        observation=random.normal(size=(size, 6, 10, 5)).astype(np.float32),
        action=random.integers(3, size=(size, 5)),
        reward=random.normal(size=(size, 5)).astype(np.float32),
        discount=np.tile(np.array([1, 1, 1, 1, 0], np.float32), (size, 1)),
    )


@functools.cache
def updates(number=4):
    """Return the agents before and after each update, and the V-MPO outputs of each."""
    agents = [example.make_agent(jax.random.key(0), catch.Catch(), SHORT)]
    outputs = []
    for _ in range(number):
        agent, output = example.learn(agents[-1], make_batch(), SHORT)
        agents.append(agent)
        outputs.append(output)
    return agents, outputs


def leaves(tree):
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)])


def run(config, **changes):
    return example.train(dataclasses.replace(config, **changes))


# --- Updates and learning. ---


def test_weights_are_the_softmax_of_advantages_above_the_median():
    (agent, *_), (output, *_) = updates()
    batch = make_batch()
    network = jax.jit(jax.vmap(jax.vmap(agent.apply_fn, (None, 0)), (None, 0)))
    _, values = network(agent.params["online"], batch.observation[:, :-1])
    powers = [[0.5 ** (j - i) * (j >= i) for j in range(5)] for i in range(5)]
    advantages = batch.reward @ np.asarray(powers).T - values
    temperature = np.logaddexp(agent.params["duals"]["temperature"], 0)
    weights = np.exp(advantages / temperature) * (advantages > np.median(advantages))
    weights /= np.sum(weights)
    np.testing.assert_allclose(output.normalized_weights, weights, rtol=1e-3)


def test_kl_is_0_only_in_the_first_update_of_each_batch():
    agents, outputs = updates()
    for i, (agent, output) in enumerate(zip(agents[:-1], outputs, strict=True)):
        assert np.all((output.kl_loss > 1e-8) == (i % 3 > 0))
        copied = agents[i - i % 3].params["online"]
        np.testing.assert_array_equal(leaves(agent.target_params), leaves(copied))


def test_update_changes_all_parameters():
    (before, _, after, *_), _ = updates()  # The KL divergence is 0 in the first update.
    parts = map(jax.tree.leaves, (before.params, after.params))
    for old, new in zip(*parts, strict=True):
        assert np.any(old != new)


def test_target_policy_acts_and_is_updated_after_each_batch(monkeypatch):
    acted, act = [], example.act

    def watched(agent, *args):
        acted.append(agent)
        return act(agent, *args)

    monkeypatch.setattr(example, "act", watched)
    run(SHORT, train_episodes=9)
    steps = [int(agent.step) for agent in acted]
    assert steps == 4 * 9 * [0] + 4 * 9 * [3] + 9 * [6]
    for agent in acted[:: 4 * 9]:
        np.testing.assert_array_equal(
            leaves(agent.target_params), leaves(agent.params["online"])
        )


# --- Reproducibility and output. ---


def test_runs_with_the_same_seed_are_equal_and_write_their_curve(tmp_path):
    runs.check_that_one_repeats_and_is_written(example, SHORT, tmp_path)


@pytest.mark.slow
def test_final_return_matches_the_docstring():
    assert example.train(example.Config())[-1].eval_return >= 0.9
