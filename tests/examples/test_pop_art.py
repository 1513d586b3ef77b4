"""Test the PopArt example: its normalisation, its update and its learning."""

import dataclasses
import functools

import jax
import numpy as np
import optax
import pop_art as example
import pytest
from common import catch

SHORT = example.Config(train_episodes=6, eval_interval=3, eval_episodes=3)


# --- Helpers. ---

sgd = functools.cache(optax.sgd)


@pytest.fixture(autouse=True)
def _one_optimizer(monkeypatch):
    """Share optimizers, because `jax.jit` compiles anew for each optimizer."""
    monkeypatch.setattr(optax, "sgd", sgd)


def make_agent(config):
    return example.make_agent(jax.random.key(3), catch.Catch(), config)


def play(seed):
    random = np.random.default_rng(seed)
    return catch.play(catch.Catch(seed=seed), lambda _: random.integers(3))


def predict(agent, observations):
    """Return the activations of the hidden layer and the normalised values."""
    layers = agent.params["params"]
    hidden, head = layers["Dense_0"], layers["head"]
    flat = observations.reshape(len(observations), -1)
    active = np.maximum(flat @ hidden["kernel"] + hidden["bias"], 0)
    return active, active @ head["kernel"] + head["bias"]


predict_all = jax.jit(jax.vmap(example.predict, (None, 0)))


def values(agent, observations):
    return np.asarray(predict_all(agent, observations))


def run(config, **changes):
    return example.train_agent(dataclasses.replace(config, **changes))


# --- Updates and learning. ---


def test_values_are_preserved_when_the_scale_changes():
    """With a learning rate of 0, only PopArt changes parameters.

    It fails if the parameters that POP returns are not stored.
    """
    config = dataclasses.replace(SHORT, learning_rate=0.0, step_size=0.1)
    agent = make_agent(config)
    observations = np.concatenate([play(seed).observation for seed in range(3)])
    before = values(agent, observations)
    for seed in range(5):
        agent = example.learn(agent, play(seed), config)
    assert np.all(agent.popart.scale > 1000)
    np.testing.assert_allclose(values(agent, observations), before, atol=0.01)


def test_update_uses_targets_normalized_by_the_updated_statistics():
    config = dataclasses.replace(
        SHORT, learning_rate=1.0, step_size=0.1, lambda_=0.0, discount=0.8
    )
    agent = example.learn(make_agent(config), play(0), config)
    episode = play(1)
    learnt = example.learn(agent, episode, config)

    actions, popart = episode.action, learnt.popart
    v_t = np.asarray(values(agent, episode.observation)).max(axis=-1)[1:]
    targets = 10_000 * episode.reward + 0.8 * episode.discount * v_t
    for action in range(3):  # The statistics of ART.
        own = targets[actions == action].astype(np.float64)
        rate, mean = 1 - 0.9**own.size, agent.popart.shift[action]
        moment = agent.popart.second_moment[action]
        mean = (1 - rate) * mean + rate * own.mean()
        moment = (1 - rate) * moment + rate * np.mean(own**2)
        np.testing.assert_allclose(popart.shift[action], mean, rtol=1e-3)
        scale = np.sqrt(moment - mean**2)
        np.testing.assert_allclose(popart.scale[action], scale, rtol=1e-3)

    normalized = (targets - popart.shift[actions]) / popart.scale[actions]
    layers = agent.params["params"]
    ratio = agent.popart.scale / popart.scale  # The last layer rescaled by POP.
    kernel = layers["head"]["kernel"] * ratio
    shifted = (agent.popart.shift - popart.shift) / popart.scale
    bias = layers["head"]["bias"] * ratio + shifted
    hidden, _ = predict(agent, episode.observation[:-1])
    predictions = (hidden @ kernel + bias)[np.arange(len(actions)), actions]
    errors = normalized - predictions

    step = errors[:, None] * np.eye(3)[actions] / len(errors)
    head = learnt.params["params"]["head"]
    np.testing.assert_allclose(head["bias"], bias + step.sum(axis=0), atol=1e-4)
    np.testing.assert_allclose(head["kernel"], kernel + hidden.T @ step, atol=1e-4)
    first = learnt.params["params"]["Dense_0"]["kernel"] - layers["Dense_0"]["kernel"]
    assert np.abs(first).max() > 1e-3


def test_step_size_0_disables_popart():
    config = dataclasses.replace(SHORT, step_size=0.0)
    agent = make_agent(config)
    learnt = example.learn(agent, play(0), config)
    jax.tree.map(np.testing.assert_array_equal, learnt.popart, agent.popart)
    np.testing.assert_array_equal(agent.popart.scale, np.ones(3))
    np.testing.assert_array_equal(agent.popart.shift, np.zeros(3))


def test_actions_are_selected_by_unnormalized_values():
    agent, observation = make_agent(SHORT), play(0).observation[0]
    outputs = np.asarray(agent.apply_fn(agent.params, observation))
    scale, shift = np.array([7.0, 8.0, 9.0]), np.zeros(3)
    shift[outputs.argmin()] = 100.0  # The smallest output has the largest value.
    popart = agent.popart._replace(scale=scale, shift=shift)
    agent = agent.replace(popart=popart)
    expected = scale * outputs + shift
    np.testing.assert_allclose(example.predict(agent, observation), expected, rtol=1e-6)
    action = example.act(agent, jax.random.key(0), 0, observation, 0.0)
    assert action == outputs.argmin() != outputs.argmax()


def test_learning_is_invariant_to_the_reward_scale():
    """The initial statistics of both agents match their reward scales."""
    curves = []
    for reward_scale in (1.0, 2.0**14):
        config = dataclasses.replace(SHORT, reward_scale=reward_scale, step_size=0.1)
        agent = make_agent(config)
        popart = agent.popart._replace(
            scale=agent.popart.scale * reward_scale,
            second_moment=agent.popart.second_moment * reward_scale**2,
        )
        agent = agent.replace(popart=popart)
        for seed in range(5):
            agent = example.learn(agent, play(seed), config)
        curves.append(values(agent, play(9).observation) / reward_scale)
    np.testing.assert_allclose(*curves, rtol=1e-3, atol=1e-4)


# --- Reproducibility and output. ---


def test_curve_depends_on_the_seed_only():
    first, again, other = (run(SHORT, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_both_learning_curves_are_written(monkeypatch, tmp_path):
    curve = [catch.Evaluation(10, -0.5, 0.25), catch.Evaluation(20, 0.0, 1.0)]
    monkeypatch.setattr(example, "train_agent", lambda config: curve)
    example.main(dataclasses.replace(SHORT, output=str(tmp_path / "new")))
    header, *rows = (tmp_path / "new" / "curve.csv").read_text().splitlines()
    assert header == "curve,episode,train_return,eval_return"
    points = ["10,-0.5,0.25", "20,0.0,1.0"]
    assert rows == [
        f"{name},{p}" for name in ("with PopArt", "without") for p in points
    ]
    assert (tmp_path / "new" / "curve.svg").stat().st_size > 0


@pytest.mark.slow
def test_final_returns_match_the_docstring():
    curves = example.train(example.Config())
    assert curves["with PopArt"][-1].eval_return >= 0.9
    assert curves["without"][-1].eval_return < 0
