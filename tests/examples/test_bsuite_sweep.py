"""Test bsuite's environments in JAX beside bsuite's own, and the sweep's page."""

import functools
import json
from unittest import mock

import bsuite
import contract
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from bsuite import sweep
from bsuite.utils import datasets
from bsuite_sweep import agents, environments, page, training
from bsuite_sweep.__main__ import SCORES, main, summarize

# The state of bsuite's environment, by the names of its attributes.
STATES = {
    "bandit": {},
    "mnist": {},
    "catch": {"ball": "_ball_x", "row": "_ball_y", "paddle": "_paddle_x"},
    "deep_sea": {"row": "_row", "column": "_column", "bad": "_bad_episode"},
    "discounting_chain": {"time": "_timestep", "chain": "_context"},
    "memory": {"bits": "_context", "query": "_query", "time": "_timestep"},
    "umbrella": {
        "needs": "_need_umbrella",
        "has": "_has_umbrella",
        "time": "_timestep",
    },
    "mountain_car": {"x": "_position", "v": "_velocity", "time": "_timestep"},
}
WHOLE = "mountain_car", "cartpole_swingup"
POLE = {"x": "x", "x_dot": "x_dot", "angle": "theta", "spin": "theta_dot"}


def state_of(experiment, env, observation):
    """Return the state of bsuite's environment as one of ours."""
    env = getattr(env, "raw_env", env)
    if experiment.startswith("cartpole"):
        state = {ours: getattr(env._state, theirs) for ours, theirs in POLE.items()}
        state["time"] = round(100 * env._state.time_elapsed)
    else:
        [names] = [STATES[name] for name in STATES if experiment.startswith(name)]
        state = {ours: getattr(env, theirs) for ours, theirs in names.items()}
    if experiment.startswith("mnist"):
        state["index"] = round(255 * observation[0, 0])
    if experiment.startswith("memory"):
        state["shown"] = max(state["time"] - 1, 0)
    if experiment.startswith("umbrella"):
        state["distractors"] = observation[0, 3:]
    return jax.tree.map(np.asarray, state)


def observe(env, state):
    """Return an observation as bsuite does, as a vector."""
    observation = env.observe(state)
    if env.num_cells:
        observation = jnp.arange(env.num_cells) == observation
    return jnp.ravel(observation)


@pytest.fixture(autouse=True)
def _digits(monkeypatch):
    """Put images, whose first pixel numbers them, in place of a download."""
    images = np.random.default_rng(0).integers(0, 128, (128, 28, 28), np.int8)
    images[:, 0, 0] = np.arange(128)
    data = images, np.arange(128, dtype=np.uint8) % 10
    monkeypatch.setattr(datasets, "load_mnist", lambda: (data, data))


@pytest.mark.parametrize(
    "experiment", contract.share(list(training.EXPERIMENTS), "bsuite")
)
def test_environment_is_that_of_bsuite(experiment):
    bsuite_id = training.settings(experiment)[1]
    theirs = bsuite.load_from_id(bsuite_id)
    setting = sweep.SETTINGS[bsuite_id]
    noise, scale = setting.get("noise_scale"), setting.get("reward_scale", 1.0)
    name = experiment.removesuffix("_noise").removesuffix("_scale")
    ours = environments.make(name, setting)
    assert ours.num_actions == theirs.action_spec().num_values
    reset, step = jax.jit(ours.reset), jax.jit(ours.step)
    observed = jax.jit(functools.partial(observe, ours))
    first = reset(jax.random.key(0))
    random, num_steps, num_random_rewards = np.random.default_rng(0), 0, 0
    while num_steps < 200:
        timestep = theirs.reset()
        state = state_of(experiment, theirs, timestep.observation)
        same = jax.tree.map(lambda x, y: x.shape == y.shape, state, first)
        assert all(jax.tree.leaves(same))
        # Of the variants of a long task, one has an episode up to its end.
        while not timestep.last() and (num_steps < 200 or experiment in WHOLE):
            num_steps += 1
            np.testing.assert_allclose(
                observed(state), np.ravel(timestep.observation), rtol=1e-4, atol=1e-5
            )
            action = random.integers(ours.num_actions)
            expected, reward, done = step(jax.random.key(0), state, action)
            timestep = theirs.step(action)
            state = state_of(experiment, theirs, timestep.observation)
            assert done == timestep.last()
            noisy = noise or (experiment.startswith("umbrella") and not done)
            if noisy or experiment == "deep_sea_stochastic":
                num_random_rewards += 1
            else:
                np.testing.assert_allclose(scale * reward, timestep.reward, rtol=1e-5)
            if experiment == "deep_sea_stochastic":
                expected["column"] = state["column"]
            if experiment.startswith("mnist"):
                expected["index"] = state["index"]  # bsuite shows zeros at the end.
            if experiment.startswith("umbrella"):
                expected["distractors"] = state["distractors"]
            jax.tree.map(
                lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-4),
                expected,
                state,
            )
    assert num_random_rewards == 0 or "noise" in training.EXPERIMENTS[experiment].tags


def test_wind_and_noise_of_stochastic_deep_sea():
    size, num = 10, 20_000
    env = environments.deep_sea(size, 42, stochastic=True)
    right = np.random.RandomState(42).binomial(1, 0.5, (size, size))
    keys = jax.random.split(jax.random.key(0), num)

    def step(row, column):
        state = {"row": row, "column": column, "bad": jnp.bool_(False)}
        state = jax.tree.map(jnp.asarray, state)
        go = jax.vmap(lambda key: env.step(key, state, right[row, column]))
        later, reward, done = jax.jit(go)(keys)
        assert np.all(done == (row == size - 1))
        return later["column"], reward

    column, reward = step(3, 3)
    np.testing.assert_allclose(np.mean(column == 3), 1 / size, atol=0.01)
    np.testing.assert_allclose(reward, -0.001, rtol=1e-5)
    _, reward = step(size - 1, size - 1)
    np.testing.assert_allclose([reward.mean(), reward.std()], [0.999, 1], atol=0.03)


def test_umbrella_distracts_with_fair_coins():
    env = environments.umbrella_chain(20, 4)
    keys = jax.random.split(jax.random.key(0), 4_000)
    state = env.reset(keys[0])
    later, reward, _ = jax.vmap(lambda key: env.step(key, state, 1))(keys)
    assert set(np.unique(reward)) == {-1.0, 1.0}
    np.testing.assert_allclose(reward.mean(), 0.0, atol=0.06)
    np.testing.assert_allclose(later["distractors"].mean(0), 0.5, atol=0.04)
    assert np.ptp(jax.vmap(env.reset)(keys)["needs"]) == 1


@pytest.mark.parametrize(
    ("name", "episodes", "over_seeds"),
    [
        pytest.param("dqn", 250, np.max, marks=pytest.mark.trust),
        pytest.param("bootstrapped_dqn", 300, np.max, marks=pytest.mark.trust),
        # Of six seeds, one had learned little after 3,000 episodes.
        pytest.param("actor_critic", 2_500, np.mean, marks=pytest.mark.trust),
    ],
)
def test_agents_learn_to_catch(name, episodes, over_seeds):
    with mock.patch.dict(training.PERIODS, catch=(1, 3)):
        logs = [training.train(name, f"catch/{i}", episodes) for i in range(3)]
    for log in logs:
        assert list(log.episode) == list(range(1, episodes + 1))
        assert log.steps.iloc[-1] == 9 * episodes
        assert log.best_episode.iloc[-1] == 1
    regret = np.diff([log.total_regret for log in logs], prepend=0.0)
    assert over_seeds(regret[:, -100:].mean(axis=1)) < 0.6 * regret[:, :50].mean()


def test_the_actor_critic_remembers():
    log = training.train("actor_critic", "memory_len/4", 400)
    regret = np.diff(log.total_regret, prepend=0.0)
    assert regret[-100:].mean() < 0.3  # 1 without a memory.


def test_rewards_are_scaled_and_noisy():
    scaled = training.train("actor_critic", "bandit_scale/18", 50)
    np.testing.assert_allclose(scaled.total_return, 1000 * scaled.raw_return, rtol=1e-3)
    noisy = training.train("actor_critic", "bandit_noise/18", 50)
    noise = np.diff(noisy.total_return - noisy.raw_return)
    assert 7 < np.std(noise) < 13
    np.testing.assert_allclose(noisy.total_regret + noisy.raw_return, noisy.episode)


def test_deep_sea_ends_once_it_is_solved(monkeypatch):
    size = sweep.SETTINGS["deep_sea/2"]["size"]
    right = jnp.asarray(np.random.RandomState(42).binomial(1, 0.5, size**2))
    perfect = agents.Agent(
        init=lambda key: jnp.int32(0),  # Counts steps.
        # Its first 100 episodes are bad.
        act=lambda state, key, s: (right[s] ^ (state < 100 * size), state),
        update=lambda state, key, transition: state + 1,
    )
    monkeypatch.setattr(training, "make_agent", lambda *_: perfect)
    log = training.train("perfect", "deep_sea/2", 1_000)
    assert len(log) == 201
    assert log.total_bad_episodes.iloc[-1] == 100
    assert log.total_return.iloc[-1] == pytest.approx(101 * 0.99, rel=1e-4)
    assert training.score([log]) == 1.0


def test_scores_are_those_of_bsuite():
    steps = np.arange(1.0, 101.0)
    log = pd.DataFrame(dict.fromkeys(training.Log._fields, 0.0), index=range(100))
    log = log.assign(episode=steps, total_regret=0.4 * steps, bsuite_id="catch/2")
    assert training.score([log]) == pytest.approx(0.75)
    log = log.assign(bsuite_id="deep_sea/2", total_bad_episodes=steps)
    assert training.score([log]) == 0.0


def test_the_sweep_scores_what_is_missing(tmp_path, monkeypatch):
    info = training.EXPERIMENTS["bandit"]._replace(episode=30)
    monkeypatch.setitem(training.EXPERIMENTS, "bandit", info)
    result = summarize("bandit", [training.run("actor_critic", "bandit", "bandit/2")])
    assert 0 <= result["score"] <= 1
    assert result["steps"] == 30
    scores = {name: {"bandit": {**result, "score": 0.25}} for name in training.AGENTS}
    file = tmp_path / "scores.json"
    file.write_text(json.dumps(scores), encoding="utf-8")
    monkeypatch.setattr(page, "PAGE", tmp_path / "page.md")
    page.PAGE.write_text(f"above {page.START}{page.END} below", encoding="utf-8")
    main(["--experiments", "bandit", "--scores", str(file)])
    text = page.PAGE.read_text(encoding="utf-8")
    assert "| bandit | 0.25 | 0.88 | 0.25 | 0.98 | 0.25 | 0.94 |" in text
    assert text.startswith("above")
    assert text.endswith("below")


def test_a_tag_has_the_average_score_of_its_experiments():
    scores = {name: 0.1 * i for i, name in enumerate(training.EXPERIMENTS)}
    averages = page.by_tag(scores)
    memory = (scores["memory_len"] + scores["memory_size"]) / 2
    assert averages["memory"] == pytest.approx(memory)
    assert len(averages) == 7


def test_the_page_shows_all_stored_scores():
    text = page.PAGE.read_text(encoding="utf-8")
    scores = json.loads(SCORES.read_text(encoding="utf-8"))
    assert tuple(scores) == tuple(page.PUBLISHED) == training.AGENTS
    assert all(set(x) == set(training.EXPERIMENTS) for x in page.PUBLISHED.values())
    assert page.measured(scores) in text
