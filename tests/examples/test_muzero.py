"""Test the MuZero example: its search, its targets, its loss and its learning."""

import csv
import dataclasses
import functools

import jax
import jax.numpy as jnp
import muzero as example
import numpy as np
import pytest

# --- Helpers. ---

SHORT = example.Config(
    evaluations=1,
    iterations=2,
    eval_episodes=4,
    num_envs=4,
    num_simulations=4,
    capacity=8,
    batch_size=6,
    num_updates=1,
    unroll_steps=3,
    n=2,
    hidden_units=8,
    num_bins=5,
)


@functools.cache
def make_agent():
    """Return an agent whose heads are not zero, so that actions differ in value."""
    agent = example.make_agent(jax.random.key(0), SHORT)
    keys = iter(jax.random.split(jax.random.key(1), 100))
    params = jax.tree.map(
        lambda x: x + 0.3 * jax.random.normal(next(keys), x.shape), agent.model.params
    )
    return agent.replace(model=agent.model.replace(params=params))


@functools.cache
def play():
    return jax.jit(lambda agent, key: agent.play(key, 6))(
        make_agent(), jax.random.key(2)
    )


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


# --- Search, targets and loss. ---


@pytest.mark.parametrize("rescale_values", [False, True])
def test_policy_targets_are_those_of_mctx(rescale_values):
    config = dataclasses.replace(SHORT, rescale_values=rescale_values)
    agent = make_agent().replace(config=config)

    @jax.jit
    def targets(key):
        reset = jax.vmap(example.ENVIRONMENT.reset, (0, None))
        observation, _ = reset(jax.random.split(key, 6), example.PARAMS)
        output = agent.search(key, observation)
        return agent.improve_policy(output), output.action_weights, output

    ours, weights, output = targets(jax.random.key(3))
    np.testing.assert_allclose(ours, weights, rtol=1e-4, atol=1e-6)
    prior = softmax(np.float64(output.search_tree.children_prior_logits[:, 0]))
    assert np.abs(ours - prior).max() > 0.01


def test_episodes_have_nine_steps_and_reward_at_the_last():
    episodes = play()
    assert episodes.reward.shape == (6, 9)
    assert np.all(episodes.reward[:, :8] == 0)
    assert np.all(np.abs(episodes.reward[:, 8]) == 1)
    # The ball falls by one row in each step.
    balls = np.asarray(episodes.observation).reshape(6, 9, 10, 5)[:, :, :9]
    rows = np.argmax(balls.sum(axis=3), axis=2)
    assert np.array_equal(rows, np.tile(np.arange(9), (6, 1)))
    np.testing.assert_allclose(episodes.policy.sum(axis=-1), 1, rtol=1e-5)


def test_targets_are_n_step_returns_and_nothing_after_the_end():
    agent, episodes = make_agent(), play()
    starts = np.array([0, 3, 6, 7, 8, 2])
    found = jax.jit(agent.targets)(episodes, starts)
    action, reward, policy, value, valid = map(np.asarray, found)
    for b, start in enumerate(starts):
        for k in range(4):
            t = start + k
            assert valid[b, k] == (t < 9)
            if t >= 9:
                assert value[b, k] == 0
                assert k == 3 or reward[b, k] == 0
                continue
            if t + 2 < 9:
                expected = 0.99**2 * episodes.value[b, t + 2]
            else:
                expected = 0.99 ** (8 - t) * episodes.reward[b, 8]
            assert value[b, k] == pytest.approx(float(expected), rel=1e-4, abs=1e-6)
            assert np.array_equal(policy[b, k], episodes.policy[b, t])
            if k < 3:
                assert action[b, k] == episodes.action[b, t]
                assert reward[b, k] == episodes.reward[b, t]


def test_loss_is_the_cross_entropy_of_the_unrolled_model():
    agent, batch = make_agent(), play()
    starts = jnp.array([0, 3, 6, 7, 8, 2])
    action, reward, policy, value, valid = agent.targets(batch, starts)
    weights = np.asarray(valid) / np.sum(valid)

    def entropy(target, logits):
        return -np.sum(target * np.log(softmax(np.float64(logits))), axis=-1)

    latent = agent.model(
        batch.observation[np.arange(6), np.asarray(starts)], method="encode"
    )
    expected = 0.0
    for k in range(4):
        logits, value_logits = agent.model(latent, method="predict")
        expected += np.sum(weights[:, k] * entropy(policy[:, k], logits))
        target = agent.pair.apply(value[:, k])
        expected += 0.25 * np.mean(entropy(target, value_logits)) / 4
        if k < 3:
            latent, logits = agent.model(latent, action[:, k], method="step")
            target = agent.pair.apply(reward[:, k])
            expected += np.mean(entropy(target, logits)) / 3
    loss = jax.jit(type(agent).loss)(agent, agent.model.params, batch, starts)
    np.testing.assert_allclose(loss, expected, rtol=1e-4)


def test_replay_keeps_the_latest_episodes():
    iterate = jax.jit(lambda agent, key: agent.iterate(key))
    one = iterate(make_agent(), jax.random.key(0))
    two = iterate(one, jax.random.key(1))
    three = iterate(two, jax.random.key(2))
    assert three.added == 12
    before, after = (np.asarray(x.episodes.observation) for x in (two, three))
    assert np.array_equal(before[:4], np.asarray(one.episodes.observation)[:4])
    assert not np.array_equal(after[:4], before[:4])
    assert np.array_equal(after[4:], before[4:])
    assert int(three.model.step) == 3


# --- Training runs. ---


@pytest.mark.trust
def test_curve_is_written(tmp_path):
    example.main(dataclasses.replace(SHORT, output=str(tmp_path)))
    with open(tmp_path / "curve.csv", newline="") as file:
        header, *points = csv.reader(file)
    assert header == ["step", "eval_return"]
    assert [point[0] for point in points] == ["0", "72"]
    assert (tmp_path / "curve.svg").read_bytes().startswith(b"<?xml")


@pytest.mark.slow
def test_final_return_matches_the_docstring():
    assert example.train(example.Config())[-1].eval_return > 0.9
