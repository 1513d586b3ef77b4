"""Test the DQN example: its replay, its update and its learning."""

import dataclasses

import dqn as example
import jax
import numpy as np
import optax
import pytest
import runs
from common import catch

pytestmark = pytest.mark.usefixtures("one_program")

SHORT = example.Config(
    train_episodes=6, eval_interval=3, eval_episodes=3, capacity=100, batch_size=8
)


# --- Helpers. ---


def make_agent(config):
    """Return an agent trained by SGD with learning rate 1: the step is -gradient.

    Its target network differs from its online network.
    """
    agent, other = (
        example.make_agent(jax.random.key(seed), catch.Catch(), config)
        for seed in (3, 4)
    )
    tx = optax.sgd(1.0)
    return agent.replace(
        tx=tx, opt_state=tx.init(agent.params), target_params=other.params
    )


def make_batch(size):
    """Return random transitions, some of them terminal, with small and large errors."""
    random = np.random.default_rng(0)
    observation_tm1, observation_t = random.normal(size=(2, size, 10, 5))
    return example.Transition(
        observation_tm1,
        random.integers(3, size=size),
        random.normal(size=size) * 2,
        random.choice([0.0, 0.9], size=size),
        observation_t,
    )


def predict(params, observations):
    """Return the activations of the hidden layer and the action values."""
    hidden, head = params["params"].values()
    flat = observations.reshape(len(observations), -1)
    active = np.maximum(flat @ hidden["kernel"] + hidden["bias"], 0)
    return active, active @ head["kernel"] + head["bias"]


def run(config, **changes):
    return example.train(dataclasses.replace(config, **changes))


@pytest.fixture
def memories(monkeypatch):
    """Record the replay memory of each agent that is trained."""
    made, make = [], example.Memory
    monkeypatch.setattr(
        example, "Memory", lambda *args: made.append(make(*args)) or made[-1]
    )
    return made


# --- Updates and learning. ---


def test_update_follows_the_weighted_huber_loss_of_double_q_learning():
    size, agent = 16, make_agent(SHORT)
    batch, weights = make_batch(size), np.linspace(0.1, 1.0, size, dtype=np.float32)
    learnt, td_errors = example.learn(agent, batch, weights, SHORT)

    rows = np.arange(size)
    hidden, q_tm1 = predict(agent.params, batch.observation_tm1)
    _, q_t_selector = predict(agent.params, batch.observation_t)
    _, q_t_value = predict(agent.target_params, batch.observation_t)
    v_t = q_t_value[rows, q_t_selector.argmax(axis=-1)]
    expected = batch.r_t + batch.discount_t * v_t - q_tm1[rows, batch.a_tm1]
    assert np.abs(expected).min() < 1 < np.abs(expected).max()
    assert not np.allclose(v_t, q_t_value.max(axis=-1))
    np.testing.assert_allclose(td_errors, expected, rtol=1e-4, atol=1e-5)

    clipped = weights * np.clip(expected, -1, 1)
    step = clipped[:, None] * np.eye(3)[batch.a_tm1] / size
    change = jax.tree.map(np.subtract, learnt.params, agent.params)
    first, last = change["params"].values()
    np.testing.assert_allclose(last["bias"], step.sum(axis=0), atol=1e-5)
    np.testing.assert_allclose(last["kernel"], hidden.T @ step, rtol=1e-4, atol=1e-5)
    assert np.abs(first["kernel"]).max() > 1e-3


def test_target_network_is_copied_once_per_period():
    config = dataclasses.replace(SHORT, target_period=3)
    agent = make_agent(config)
    batch, weights = make_batch(8), np.ones(8, np.float32)
    old = jax.tree.leaves(agent.target_params)
    for updates in (1, 2, 3):
        agent, _ = example.learn(agent, batch, weights, config)
        new = jax.tree.leaves(agent.params if updates == 3 else old)
        jax.tree.map(
            np.testing.assert_array_equal, jax.tree.leaves(agent.target_params), new
        )


def test_transitions_are_sampled_by_priority_with_importance_weights():
    config = dataclasses.replace(
        SHORT, batch_size=4000, priority_exponent=2.0, importance_steps=10
    )
    priorities = np.array([1.0, 0.0, 3.0, 2.0], np.float32)
    for updates, exponent in ((0, 0.4), (5, 0.7), (10, 1.0), (99, 1.0)):
        key = jax.random.key(0)
        indices, weights = example.draw(key, updates, priorities, config)
        counts = np.bincount(indices, minlength=4) / 4000
        probabilities = np.array([1, 0, 9, 4]) / 14
        np.testing.assert_allclose(counts, probabilities, atol=1e-3)
        expected = (1 / np.array([1, np.inf, 9, 4])) ** exponent
        np.testing.assert_allclose(weights, expected[indices], rtol=1e-5)


def test_new_transitions_have_the_largest_priority():
    memory = example.Memory(jax.random.key(0), SHORT)
    transition = jax.tree.map(lambda x: x[0], make_batch(1))
    memory.add(transition)
    memory.add(transition)
    memory.update(np.array([0]), np.array([-2.0]))
    memory.add(transition)
    np.testing.assert_allclose(memory.priorities[:4], [2.01, 1.0, 2.01, 0.0])


def test_memory_has_all_steps_with_priorities_from_td_errors(memories):
    run(SHORT, train_episodes=5, capacity=1000, discount=0.75)
    (memory,) = memories
    kept = memory.transitions.take(np.arange(45))
    np.testing.assert_array_equal(kept.discount_t, 5 * [*8 * [0.75], 0.0])
    np.testing.assert_array_equal(kept.r_t != 0, 5 * [*8 * [False], True])
    inside = kept.discount_t[:-1] > 0
    np.testing.assert_array_equal(
        kept.observation_t[:-1][inside], kept.observation_tm1[1:][inside]
    )
    assert np.all(memory.priorities[:45] > 0)
    assert np.all(memory.priorities[45:] == 0)
    assert len(np.unique(memory.priorities[:45])) > 10


# --- Reproducibility and output. ---


def test_runs_with_the_same_seed_are_equal_and_write_their_curve(memories, tmp_path):
    runs.check_that_one_repeats_and_is_written(example, SHORT, tmp_path)
    one, different, same = (memory.priorities.tolist() for memory in memories)
    assert one == same
    assert one != different


@pytest.mark.slow
def test_final_return_matches_the_docstring():
    assert run(example.Config())[-1].eval_return >= 0.9


@pytest.mark.slow
def test_agent_improves_less_with_discount_0():
    """Compare with discount 0, where only the last of the nine steps can be learned.

    A random agent averages -0.6.
    """
    config = example.Config(train_episodes=300, eval_interval=300, capacity=2000)
    far_sighted = run(config)[-1].eval_return
    short_sighted = run(config, discount=0.0)[-1].eval_return
    assert far_sighted > 0.2
    assert far_sighted > short_sighted + 0.4
