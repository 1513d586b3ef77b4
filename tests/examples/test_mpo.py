"""Test the MPO example: its KL divergences, its update and its learning."""

import functools

import jax
import mpo as example
import numpy as np
import pytest
import runs
from common import catch

pytestmark = pytest.mark.usefixtures("one_program")

SHORT = example.Config(
    train_episodes=6, eval_interval=3, eval_episodes=3, target_period=3
)


# --- Helpers. ---


def make_batch(size=16):
    """Return random transitions."""
    random = np.random.default_rng(0)
    observations = random.normal(size=(2, size, 10, 5)).astype(np.float32)
    return example.Transition(
        observation_tm1=observations[0],
        a_tm1=random.integers(3, size=size),
        r_t=random.normal(size=size).astype(np.float32),
        discount_t=np.ones(size, np.float32),
        observation_t=observations[1],
    )


@functools.cache
def updates(number=4):
    """Return the agents before and after each update, and the MPO outputs of each."""
    agents = [example.make_agent(jax.random.key(0), catch.Catch(), SHORT)]
    outputs = []
    for _ in range(number):
        agent, output = example.learn(agents[-1], make_batch(), SHORT)
        agents.append(agent)
        outputs.append(output)
    return agents, outputs


def softmax(x):
    x = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return x / np.sum(x, axis=-1, keepdims=True)


def leaves(tree):
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)])


# --- Updates and learning. ---


def test_kl_is_0_only_in_the_first_update_after_each_copy():
    agents, outputs = updates()
    divergences = [np.max(output.policy_constraint.kl) for output in outputs]
    np.testing.assert_allclose(divergences[::3], 0, atol=1e-9)
    assert all(kl > 1e-7 for i, kl in enumerate(divergences) if i % 3)
    for i, agent in enumerate(agents):
        copied = agents[i - i % 3].params["online"]
        np.testing.assert_array_equal(leaves(agent.target_params), leaves(copied))


def test_kl_is_from_the_target_to_the_online_policy():
    agents, outputs = updates()
    agent, observations = agents[2], make_batch().observation_tm1
    network = jax.jit(jax.vmap(agent.apply_fn, in_axes=(None, 0)))
    target_logits, q_values = network(agent.target_params, observations)
    logits, _ = network(agent.params["online"], observations)
    p, q = (softmax(np.asarray(x, np.float64)) for x in (target_logits, logits))
    forward, backward = (np.sum(x * np.log(x / y), -1) for x, y in ((p, q), (q, p)))
    np.testing.assert_allclose(outputs[2].policy_constraint.kl, forward, rtol=1e-3)
    assert not np.allclose(outputs[2].policy_constraint.kl, backward, rtol=1e-2)

    temperature = np.logaddexp(agent.params["duals"]["temperature"], 0)
    better = softmax(np.log(p) + q_values / temperature)
    np.testing.assert_allclose(outputs[2].temperature.weights, better, rtol=1e-3)


def test_update_changes_all_parameters():
    (before, _, after, *_), _ = updates()  # The KL divergence is 0 in the first update.
    parts = map(jax.tree.leaves, (before.params, after.params))
    for old, new in zip(*parts, strict=True):
        assert np.any(old != new)


# --- Reproducibility and output. ---


def test_runs_with_the_same_seed_are_equal_and_write_their_curve(tmp_path):
    runs.check_that_one_repeats_and_is_written(example, SHORT, tmp_path)


@pytest.mark.slow
def test_final_return_matches_the_docstring():
    assert example.train(example.Config())[-1].eval_return >= 0.9
