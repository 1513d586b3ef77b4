"""Test the example of online Q-learning as its reader meets it: run, read, change."""

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

SCRIPT = Path(example.__file__)


# --- What the tests share. ---


Lesson = collections.namedtuple("Lesson", inspect.signature(example.learn).parameters)
SHORT = example.Config(train_episodes=25, eval_interval=10, eval_episodes=5)


@pytest.fixture
def lessons(monkeypatch):
    """Record every transition that an agent learns from, and the agent before it."""
    seen, learn = [], example.learn

    def watched(*args):
        seen.append(Lesson(*args))
        return learn(*args)

    monkeypatch.setattr(example, "learn", watched)
    return seen


def run(config, **changes):
    return example.train(dataclasses.replace(config, **changes))


# --- What the example computes. ---


def test_the_script_writes_its_learning_curve_and_warns_of_nothing(tmp_path):
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
    assert "25/25" in finished.stderr  # The progress bar,
    assert "return " in finished.stderr  # which shows the current average return.
    assert "warning" not in finished.stderr.lower()

    with open(folder / "curve.csv", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["episode", "train_return", "eval_return"]
    assert [row[0] for row in rows] == ["10", "20", "25"]
    assert all(-1 <= float(number) <= 1 for row in rows for number in row[1:])
    assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert f"{float(rows[-1][2]):+.2f}" in finished.stdout
    assert str(folder) in finished.stdout


def test_the_agent_learns_from_every_transition_with_the_discount_it_is_given(lessons):
    run(SHORT, train_episodes=2, discount=0.75)
    assert [lesson.discount_t for lesson in lessons] == 2 * [*8 * [0.75], 0.0]


def test_the_agent_learns_to_catch_but_not_without_foresight():
    """Compare with an agent of discount 0, which sees no further than the next reward.

    That agent can learn the last of the nine steps alone. A random one returns -0.6.
    """
    config = example.Config(train_episodes=750, eval_episodes=1)
    foresighted = run(config)[-1].train_return
    shortsighted = run(config, discount=0.0)[-1].train_return
    assert foresighted > 0.2
    assert foresighted > shortsighted + 0.2


# --- How runs relate. ---


def test_the_seed_decides_the_network_the_exploration_and_the_environment(lessons):
    curves, networks, actions, observations = [], [], [], []
    for seed in (1, 1, 2):
        lessons.clear()
        curves.append(run(SHORT, seed=seed, epsilon=1.0))
        networks.append(jax.tree.leaves(lessons[0].agent.params)[1].tolist())
        actions.append([int(lesson.a_tm1) for lesson in lessons])
        observations.append([lesson.observation_tm1.argmax() for lesson in lessons])
    for first, again, other in (curves, networks, actions, observations):
        assert first == again
        assert first != other


def test_evaluating_changes_nothing_in_training():
    often = run(SHORT, train_episodes=20, eval_interval=10, eval_episodes=5)
    seldom = run(SHORT, train_episodes=20, eval_interval=20, eval_episodes=1)
    first, second = (point.train_return for point in often)
    assert seldom[-1].train_return == pytest.approx((first + second) / 2)


@pytest.mark.slow
def test_the_agent_catches_the_ball_as_its_docstring_says():
    assert example.train(example.Config())[-1].eval_return >= 0.9
