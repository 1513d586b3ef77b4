"""Test the PPO benchmark: its process, its training function and its report."""

import io
import json
import sys

import jax
import jax.numpy as jnp

from benchmarks import ppo

# --- Helpers. ---


def runs(seconds, *final_returns):
    return [ppo.Run(seconds, [20, 100, 200, 300, each]) for each in final_returns]


# --- Measurements. ---


def test_process_compiles_for_negative_seeds_and_runs_for_others(monkeypatch, capsys):
    traces, cleared = [], []

    def train(seed):
        traces.append(seed)
        return seed + jnp.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])

    monkeypatch.setattr(sys, "stdin", io.StringIO("-1\n0\n7\n-1\n1\n"))
    monkeypatch.setattr(jax, "clear_caches", lambda: cleared.append(True))
    ppo.serve(train)
    lines = capsys.readouterr().out.splitlines()
    answers = [ppo.Run(**json.loads(line)) for line in lines]
    assert [answer.returns for answer in answers] == [[], [2, 5], [9, 12], [], [3, 6]]
    assert all(answer.seconds > 0 for answer in answers)
    assert len(cleared) == 2  # Once before each compilation.
    assert len(traces) == 1  # Never in a run.


def test_training_function_has_the_evaluations_and_episodes_of_rejax():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        shape = jax.eval_shape(ppo._ours(), 0).shape
    assert shape == (5, 128)


# --- Report. ---


def test_report_has_compile_times_speeds_and_returns():
    results = {
        "rlaxlib": ppo.Result([4.0, 5.0, 3.0], runs(2.0, 400, 440)),
        "rejax": ppo.Result([12.0, 10.0, 12.0], runs(4.0, 380, 380)),
    }
    lines = ppo.report(results, {"processor": "one"})
    assert "- processor: one" in lines
    table = lines[lines.index("| --- | ---: | ---: | ---: |") - 1 :]
    assert table == [
        "|  | rlaxlib | rejax | ratio |",
        "| --- | ---: | ---: | ---: |",
        "| compile, s | 4.0 | 12.0 | 0.33, 0.25-0.50 |",
        "| run, s | 2.00 | 4.00 | 0.50, 0.50-0.50 |",
        "| steps a second | 131,072 | 65,536 | 2.00, 2.00-2.00 |",
        "| return after 0 steps | 20 ± 0 | 20 ± 0 |  |",
        "| return after 65,536 steps | 100 ± 0 | 100 ± 0 |  |",
        "| return after 131,072 steps | 200 ± 0 | 200 ± 0 |  |",
        "| return after 196,608 steps | 300 ± 0 | 300 ± 0 |  |",
        "| return after 262,144 steps | 420 ± 20 | 380 ± 0 |  |",
    ]
