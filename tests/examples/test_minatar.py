"""Test the agents on MinAtar: they learn, and the page has what is stored."""

import json
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from minatar import games, page
from minatar.__main__ import RETURNS

SMALL = {
    "ppo": {"NUM_ENVS": 16, "NUM_STEPS": 8, "MINIBATCHES": 4, "LEARNING_RATE": 1e-3},
    "dqn": {
        "TARGET_PERIOD": 64,
        "MIN_STEPS": 64,
        "CAPACITY": 512,
        "EPSILON_STEPS": 512,
        "LEARNING_RATE": 2e-3,
    },
    "pqn": {"NUM_ENVS": 16, "NUM_STEPS": 8, "MINIBATCHES": 4, "LEARNING_RATE": 1e-3},
}
STEPS = 2_048


class Door:
    """Two steps: the first image shows which door to open, the next what is behind it.

    The reward of the first action comes with the second, so that an agent needs the
    value of the second image. A random one returns 0.5.
    """

    num_actions = 2

    def reset(self, key, params):
        state = {"image": jax.random.randint(key, (), 0, 2), "time": jnp.int32(0)}
        return self.observe(state), state

    def observe(self, state):
        return jnp.zeros((10, 10, 4)).at[..., state["image"]].set(1.0)

    def step(self, key, state, action, params):
        behind = jnp.where(action == state["image"], 2, 3)
        terminated = state["time"] == 1
        reward = jnp.where(terminated, 1.0 * (state["image"] == 2), 0.0)
        later = {"image": behind, "time": state["time"] + 1}
        final = self.observe(later)
        first, begun = self.reset(key, params)
        state = jax.tree.map(lambda x, y: jnp.where(terminated, x, y), begun, later)
        observation = jnp.where(terminated, first, final)
        info = {"final_observation": final}
        return observation, state, reward, terminated, jnp.bool_(False), info


@pytest.fixture
def module(request, monkeypatch):
    module = page.AGENTS[request.param]
    for name, value in SMALL[request.param].items():
        monkeypatch.setattr(module, name, value)
    return module


@pytest.mark.trust
@pytest.mark.parametrize("module", page.AGENTS, indirect=True)
def test_all_seeds_learn_which_door_to_open(module):
    game = games.Game(Door(), None)
    agent = module.make(game, STEPS)
    train = jax.jit(
        jax.vmap(lambda key: games.train(game, agent, key, STEPS)),
        compiler_options={"xla_backend_optimization_level": 1},  # It runs for longer.
    )
    scores = train(jax.random.split(jax.random.key(0), 6))
    assert scores.shape == (6, games.EVALUATIONS + 1)
    assert scores[:, 0].mean() < 0.8
    # PPO may forget again, once all advantages are noise.
    assert jnp.median(scores[:, 1:], axis=1).min() > 0.97


@pytest.mark.parametrize("module", page.AGENTS, indirect=True)
def test_training_can_be_traced(module):
    game = games.make(random.Random(module.__name__).choice(games.GAMES))
    agent = module.make(game, 8 * 100)
    scores = jax.eval_shape(
        lambda key: games.train(game, agent, key, 8 * 100), jax.random.key(0)
    )
    assert scores.shape == (games.EVALUATIONS + 1,)


def test_a_dense_layer_on_patches_is_a_convolution():
    x = jax.random.normal(jax.random.key(0), (2, 10, 10, 4))
    kernel = jax.random.normal(jax.random.key(1), (3, 3, 4, 16))
    expected = jax.lax.conv_general_dilated(
        x, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    found = games.patches(x) @ kernel.reshape(-1, 16)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_the_page_shows_all_stored_runs():
    text = page.PAGE.read_text(encoding="utf-8")
    stored = json.loads(RETURNS.read_text(encoding="utf-8"))
    assert set(stored) == set(page.AGENTS)
    for agent, runs in stored.items():
        for game, run in runs.items():
            assert page.row(agent, game, run) in text


def test_the_interval_holds_the_interquartile_mean_of_equal_scores():
    run = {"steps": 7, "seconds": 1, "returns": [[0.0, 1.0, 28.0]] * 5}
    row = page.row("ppo", "Breakout", run)
    assert "| 28.0 (28.0 to 28.0) | 28.0 to 28.0 | [28](" in row
    assert page.line("ppo", {"Breakout": run}) == ""
    runs = {
        game: {**run, "returns": [[value / 2]] * 5}
        for game, value in page.AGENTS["ppo"].PUBLISHED.items()
    }
    assert page.line("ppo", runs).startswith("PPO reached 0.50 (0.50 to 0.50)")
    assert page.line("pqn", runs) == ""
