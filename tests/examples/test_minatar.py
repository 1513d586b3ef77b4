"""Test the agents on MinAtar: they can be trained, and the page has what is stored."""

import json
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from minatar import games, page
from minatar.__main__ import RETURNS

SMALL = {
    "ppo": {"NUM_ENVS": 2, "NUM_STEPS": 4, "EPOCHS": 1, "MINIBATCHES": 2},
    "dqn": {"TARGET_PERIOD": 8, "MIN_STEPS": 4, "CAPACITY": 12, "BATCH_SIZE": 2},
    "pqn": {"NUM_ENVS": 2, "NUM_STEPS": 4, "EPOCHS": 1, "MINIBATCHES": 2},
}


@pytest.fixture(params=page.AGENTS)
def module(request, monkeypatch):
    module = page.AGENTS[request.param]
    for name, value in SMALL[request.param].items():
        monkeypatch.setattr(module, name, value)
    return module


def test_updates_change_all_layers_to_finite_values(module):
    agent = module.make(games.make("Breakout"), 8 * 100)
    first = state = jax.jit(agent.init)(jax.random.key(0))
    update = jax.jit(agent.update)
    for seed in range(2):
        state = update(state, jax.random.key(seed))
    pair = map(jax.tree.leaves, (first.params, state.params))
    for old, new in zip(*pair, strict=True):
        assert jnp.any(old != new)
        assert jnp.all(jnp.isfinite(new))


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
