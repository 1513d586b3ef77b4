"""Test the R2D2 example: its task, its sequences, its loss and its learning."""

import csv
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import r2d2 as example

# --- Helpers. ---

SHORT = example.Config(
    evaluations=1,
    iterations=2,
    eval_episodes=8,
    episode_steps=5,
    num_envs=4,
    num_steps=6,
    burn_in=3,
    capacity=8,
    batch_size=4,
    num_updates=1,
    target_period=2,
    n=2,
    hidden_units=8,
)


@functools.cache
def make_agent():
    make = functools.partial(example.make_agent, config=SHORT)
    return jax.jit(make)(jax.random.key(0))


@functools.cache
def iterate(times):
    """Return the agent after some iterations."""
    agent = make_agent() if times == 1 else iterate(times - 1)
    return _iterate(agent, jax.random.key(times))


_iterate = jax.jit(lambda agent, key: agent.iterate(key))


def unroll(agent, batch):
    """Return the action values of sequences, one step at a time."""
    state, values = np.asarray(batch.state), []
    for t in range(batch.first.shape[1]):
        state = np.where(batch.first[:, t, None], 0, state)
        state, q = agent.network(state, batch.observation[:, t])
        values.append(q)
    return np.float64(np.stack(values, axis=1))


# --- Task. ---


def test_cue_is_shown_at_the_first_step_and_rewarded_at_the_last():
    state = example.EnvState(jnp.int32(0), jnp.int32(2))
    key = jax.random.key(0)
    first = example.observe(state, key, 3)
    assert first.tolist() == [0, 0, 2, 0, 1, 0]
    for number, action, reward in ((0, 2, 0), (1, 2, 0), (2, 2, 1), (2, 3, -1)):
        state = state._replace(step=jnp.int32(number), cue=jnp.int32(2))
        _, earned, ended = example.step(state, action, key, 3)
        assert earned == reward
        assert ended == (number == 2)
    last = example.observe(state, key, 3)
    assert last[4:].tolist() == [0, 1]
    others = example.observe(state._replace(cue=jnp.int32(0)), key, 3)
    assert np.array_equal(last, others)


# --- Sequences and updates. ---


def test_sequences_overlap_by_the_burn_in_and_keep_the_state_before_them():
    agent = iterate(2)
    first, second = (
        jax.tree.map(lambda x, i=i: x[i : i + 4], agent.replay.sequences)
        for i in (0, 4)
    )
    assert agent.replay.added == 8
    for name in ("observation", "first"):
        one, two = (np.asarray(getattr(each, name)) for each in (first, second))
        assert one.shape[1] == 10
        np.testing.assert_array_equal(one[:, 6:], two[:, :4])
    np.testing.assert_array_equal(first.action[:, 6:], second.action[:, :3])
    assert np.all(np.asarray(first.state) == 0)  # Before the first step of all.
    state = np.zeros((4, 8), np.float32)
    for t in range(6):  # Played by the first parameters.
        state = np.where(first.first[:, t, None], 0, state)
        state, _ = make_agent().network(state, first.observation[:, t])
    np.testing.assert_allclose(second.state, state, atol=1e-5)
    ends = np.asarray(first.discount) == 0
    np.testing.assert_array_equal(ends, first.first[:, 1:])
    assert np.all(np.asarray(first.discount)[~ends] == np.float32(0.99))


def test_loss_and_priorities_match_their_definitions():
    agent = iterate(2)
    batch = jax.tree.map(lambda x: x[:4], agent.replay.sequences)
    agent = agent.replace(target=agent.network)
    weights = np.float32([1, 0.5, 0.25, 1])
    q = unroll(agent, batch)

    def transform(x):
        return np.sign(x) * (np.sqrt(np.abs(x) + 1) - 1) + 1e-3 * x

    def inverse(x):
        root = np.sqrt(1 + 4e-3 * (np.abs(x) + 1 + 1e-3))
        return np.sign(x) * (((root - 1) / 2e-3) ** 2 - 1)

    errors = np.zeros((4, 6))
    for b in range(4):
        for t in range(3, 9):
            target, scale = 0.0, 1.0
            for k in range(t, min(t + 2, 9)):
                target += scale * batch.reward[b, k]
                scale *= batch.discount[b, k]
            target += scale * inverse(q[b, k + 1].max())
            errors[b, t - 3] = transform(target) - q[b, t, batch.action[b, t]]
    loss, priorities = jax.jit(type(agent).loss)(
        agent, agent.network.params, batch, weights
    )
    expected = np.mean(weights[:, None] * 0.5 * errors**2)
    np.testing.assert_allclose(loss, expected, rtol=1e-3)
    errors = np.abs(errors)
    expected = 0.9 * errors.max(axis=1) + 0.1 * errors.mean(axis=1)
    np.testing.assert_allclose(priorities, expected, rtol=1e-3)


def test_replay_overwrites_the_oldest_sequences_and_sets_priorities():
    replay = iterate(2).replay
    sequences = jax.tree.map(lambda x: x[:4][::-1], replay.sequences)
    new = replay.add(sequences)
    assert new.added == 12
    assert np.array_equal(new.sequences.reward[:4], sequences.reward)
    assert np.array_equal(new.sequences.reward[4:], replay.sequences.reward[4:])
    assert np.all(new.priorities[:4] == max(1, replay.priorities.max()))
    # Each update replaces the priorities of the sequences that it replays.
    assert np.any(np.asarray(replay.priorities) != 1)


def test_target_network_is_copied_after_every_second_update():
    start, one, two = make_agent(), iterate(1), iterate(2)

    def is_same(x, y):
        return all(map(np.array_equal, jax.tree.leaves(x), jax.tree.leaves(y)))

    assert is_same(one.target.params, start.target.params)
    assert not is_same(one.network.params, start.network.params)
    assert is_same(two.target.params, two.network.params)


# --- Training runs. ---


@pytest.mark.trust
def test_curve_is_written(tmp_path):
    example.main(dataclasses.replace(SHORT, output=str(tmp_path)))
    with open(tmp_path / "curve.csv", newline="") as file:
        header, *points = csv.reader(file)
    assert header == ["step", "eval_return"]
    assert [point[0] for point in points] == ["0", "48"]
    assert (tmp_path / "curve.svg").read_bytes().startswith(b"<?xml")


@pytest.mark.slow
@pytest.mark.parametrize(("memory", "low", "high"), [(True, 0.95, 1), (False, -1, 0)])
def test_final_return_matches_the_docstring(memory, low, high):
    curve = example.train(example.Config(memory=memory))
    assert low <= curve[-1].eval_return <= high
