"""Test the training benchmark: its process, its training runs and its report."""

import io
import json
import sys

import jax
import jax.numpy as jnp
import pytest

from benchmarks import training

# --- Helpers. ---


def runs(seconds, *final_returns):
    return [training.Run(seconds, [20, 100, 200, 300, each]) for each in final_returns]


# --- Measurements. ---


def test_process_compiles_for_negative_seeds_and_runs_for_others(monkeypatch, capsys):
    traces, cleared = [], []

    def train(seed):
        traces.append(seed)
        return seed + jnp.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])

    monkeypatch.setattr(sys, "stdin", io.StringIO("-1\n0\n7\n-1\n1\n"))
    monkeypatch.setattr(jax, "clear_caches", lambda: cleared.append(True))
    training.serve(train)
    lines = capsys.readouterr().out.splitlines()
    answers = [training.Run(**json.loads(line)) for line in lines]
    assert [answer.returns for answer in answers] == [[], [2, 5], [9, 12], [], [3, 6]]
    assert all(answer.seconds > 0 for answer in answers)
    assert len(cleared) == 2  # Once before each compilation.
    assert len(traces) == 1  # Never in a run.


@pytest.mark.trust
@pytest.mark.parametrize("name", training.SETTINGS)
def test_training_run_has_the_evaluations_and_episodes_of_rejax(name):
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        shape = jax.eval_shape(training.ours(name), 0).shape
    assert shape == (5, 128)


@pytest.mark.parametrize("name", training.SETTINGS)
def test_rounds_divide_steps_and_replay(name):
    settings = training.SETTINGS[name]
    size = settings["num_envs"] * settings.get("num_steps", 1)
    assert settings["total_timesteps"] == training.EVALUATIONS * settings["eval_freq"]
    assert settings["eval_freq"] % size == 0
    assert settings.get("buffer_size", 0) % size == 0


# --- Report. ---


def test_report_has_times_and_returns_of_each_algorithm():
    ours = training.Result([4.0, 5.0, 3.0], runs(2.0, 400, 440))
    theirs = training.Result([12.0, 10.0, 12.0], runs(4.0, 380, 380))
    results = {"PPO": {"rlaxlib": ours, "rejax": theirs}}
    results["SAC"] = {"rlaxlib": theirs, "rejax": ours}
    lines = training.report(results, {"processor": "one"})
    assert "- processor: one" in lines
    assert lines[-2:] == [
        "| PPO, CartPole | 262,144 | 2 | 2.00 / 4.00 | 0.50, 0.50-0.50 "
        "| 4.0 / 12.0 | 0.33, 0.25-0.50 | 200 ± 0 / 200 ± 0 | 420 ± 20 / 380 ± 0 |",
        "| SAC, Pendulum | 20,000 | 2 | 4.00 / 2.00 | 2.00, 2.00-2.00 "
        "| 12.0 / 4.0 | 3.00, 2.00-4.00 | 200 ± 0 / 200 ± 0 | 380 ± 0 / 420 ± 20 |",
    ]
    assert all(line.count("|") == lines[-1].count("|") for line in lines[-4:])
