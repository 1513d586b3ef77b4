"""Test the online Q-learning example: its script, its updates and its learning."""

import collections
import csv
import dataclasses
import inspect
import subprocess
import sys
from pathlib import Path

import jax
import online_q_learning as example
import pytest

pytestmark = pytest.mark.usefixtures("one_program")

SCRIPT = Path(example.__file__)


# --- Helpers. ---


Call = collections.namedtuple("Call", inspect.signature(example.learn).parameters)
SHORT = example.Config(train_episodes=6, eval_interval=3, eval_episodes=3)


@pytest.fixture
def calls(monkeypatch):
    """Record the arguments of all calls of `learn`."""
    seen, learn = [], example.learn

    def watched(*args):
        seen.append(Call(*args))
        return learn(*args)

    monkeypatch.setattr(example, "learn", watched)
    return seen


def run(config, **changes):
    return example.train(dataclasses.replace(config, **changes))


# --- Updates and learning. ---


def test_script_writes_its_curve_without_warnings(tmp_path):
    folder = tmp_path / "results" / "catch"
    flags = ["--train_episodes=25", "--eval_interval=10", "--eval_episodes=5"]
    strict = ["-W", "error", "-W", "ignore::DeprecationWarning"]
    finished = subprocess.run(
        [sys.executable, *strict, SCRIPT, *flags, f"--output={folder}"],
        capture_output=True,
        check=False,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr
    assert "25/25" in finished.stderr  # The progress bar.
    assert "return " in finished.stderr  # The average return so far.
    assert "warning" not in finished.stderr.lower()

    with open(folder / "curve.csv", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["episode", "train_return", "eval_return"]
    assert [row[0] for row in rows] == ["10", "20", "25"]
    assert all(-1 <= float(number) <= 1 for row in rows for number in row[1:])
    assert (folder / "curve.svg").read_bytes().startswith(b"<?xml")
    assert f"{float(rows[-1][2]):+.2f}" in finished.stdout
    assert str(folder) in finished.stdout


def test_agent_learns_from_every_transition_with_the_discount_of_the_config(calls):
    run(SHORT, train_episodes=2, discount=0.75)
    assert [call.discount_t for call in calls] == 2 * [*8 * [0.75], 0.0]


# --- Reproducibility and output. ---


def test_network_exploration_and_environment_depend_on_the_seed(calls):
    curves, networks, actions, observations = [], [], [], []
    for seed in (1, 1, 2):
        calls.clear()
        curves.append(run(SHORT, seed=seed, epsilon=1.0))
        networks.append(jax.tree.leaves(calls[0].agent.params)[1].tolist())
        actions.append([int(call.a_tm1) for call in calls])
        observations.append([call.observation_tm1.argmax() for call in calls])
    for first, again, other in (curves, networks, actions, observations):
        assert first == again
        assert first != other


def test_evaluation_does_not_affect_training():
    often = run(SHORT, train_episodes=6, eval_interval=3, eval_episodes=3)
    seldom = run(SHORT, train_episodes=6, eval_interval=6, eval_episodes=1)
    first, second = (point.train_return for point in often)
    assert seldom[-1].train_return == pytest.approx((first + second) / 2)


@pytest.mark.slow
def test_final_return_matches_the_docstring():
    assert example.train(example.Config())[-1].eval_return >= 0.9


@pytest.mark.slow
def test_agent_improves_less_with_discount_0():
    """Compare with discount 0, where only the last of the nine steps can be learned.

    A random agent averages -0.6.
    """
    config = example.Config(train_episodes=750, eval_episodes=1)
    far_sighted = run(config)[-1].train_return
    short_sighted = run(config, discount=0.0)[-1].train_return
    assert far_sighted > 0.2
    assert far_sighted > short_sighted + 0.2
