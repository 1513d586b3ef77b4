"""Test the data-parallel example: several devices agree with one."""

import csv
import dataclasses
import functools
import re
import subprocess
import sys

import data_parallel as example
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common.devices import replicate, shard_batch, unreplicate, unshard_batch

# --- Helpers. ---

SHORT = example.Config(
    environments=8, steps=12, train_updates=6, report_interval=3, hidden_units=16
)


@functools.cache
def reference_update():
    """Return an agent, a batch, and the update and metrics on one device."""
    agent = example.make_agent(SHORT)
    batch, _ = jax.jit(example.act)(agent, example.make_actors(SHORT))
    return agent, batch, *jax.jit(example.Agent.update)(agent, batch)


def assert_close(one, other):
    """Compare trees, with a tolerance relative to the maximum of each leaf."""

    def compare(x, y):
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-5 * np.max(np.abs(y)))

    jax.tree.map(compare, one, other)


def run_script(folder, **changes):
    """Run the script and return its output."""
    config = dataclasses.replace(SHORT, output=str(folder), **changes)
    flags = [f"--{name}={value}" for name, value in dataclasses.asdict(config).items()]
    finished = subprocess.run(
        [sys.executable, example.__file__, *flags],
        capture_output=True,
        check=False,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


# --- Updates and learning. ---


@pytest.mark.parametrize("method", ["shard_map", "pmap"])
def test_update_on_several_devices_equals_that_on_one(method):
    agent, batch, expected, expected_info = reference_update()
    specs = (example.SAME, example.SPREAD), (example.SAME, example.SAME)
    update = example.spread(example.Agent.update, 4, method, *specs)
    new, info = update(agent, batch)
    assert_close(new, expected)
    assert_close(info, expected_info)


def test_update_changes_the_network_and_both_statistics():
    agent, batch, new, _ = reference_update()
    assert new.network.step == 1
    assert new.popart.shift != agent.popart.shift
    assert new.advantages.weight == pytest.approx(0.01)
    change = jax.tree.map(
        lambda x, y: np.max(np.abs(x - y)), new.network.params, agent.network.params
    )
    assert all(x > 0 for x in jax.tree.leaves(change))
    # λ-returns minus values, by the backward recursion.
    _, outputs = agent.network(batch.observations)
    v = np.float64(outputs[..., 0])
    after, targets = v[:, -1], []
    for t in reversed(range(12)):
        mixed = 0.1 * v[:, t + 1] + 0.9 * after
        after = batch.rewards[:, t] + 0.99 * batch.discounts[:, t] * mixed
        targets.append(after)
    advantages = np.stack(targets[::-1], axis=1) - v[:, :-1]
    np.testing.assert_allclose(
        new.advantages.debiased_moments().variance, np.var(advantages), rtol=1e-4
    )


def test_shard_and_replicate_are_inverted():
    tree = {"x": np.arange(24.0).reshape(12, 2)}
    parts = shard_batch(tree, 4)
    assert parts["x"].shape == (4, 3, 2)
    assert np.array_equal(unshard_batch(parts)["x"], tree["x"])
    copies = replicate(tree, 3)
    assert np.array_equal(copies["x"][2], tree["x"])
    assert np.array_equal(unreplicate(copies)["x"], tree["x"])


# --- Reproducibility and output. ---


@pytest.mark.slow
def test_curve_does_not_depend_on_the_number_of_devices(tmp_path):
    """Compare one device with `shard_map` and with a script that creates devices."""
    one = example.train(dataclasses.replace(SHORT, devices=1))
    many = example.train(dataclasses.replace(SHORT, devices=4, method="shard_map"))
    run_script(tmp_path, method="pmap")
    with open(tmp_path / "curve.csv", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["update", "train_return"]
    assert [point.update for point in one] == [3, 6]
    np.testing.assert_allclose(many, one, rtol=1e-3)
    np.testing.assert_allclose(np.array(rows, float), one, rtol=1e-3)


# --- Invalid input. ---


def test_rejects_a_batch_that_the_devices_do_not_divide():
    with pytest.raises(ValueError, match="batch size is 12, must be divisible by 5"):
        shard_batch(jnp.zeros(12), 5)


def test_rejects_an_unknown_method():
    with pytest.raises(ValueError, match="`method` is 'xmap'"):
        example.spread(example.Agent.update, 2, "xmap", (), ())


@pytest.mark.slow
def test_final_return_matches_the_docstring():
    assert example.train(example.Config())[-1].train_return >= 900


@pytest.mark.slow
def test_compare_prints_small_differences(tmp_path):
    printed = re.findall(r"(\S+) on (\d): (\S+)", run_script(tmp_path, compare=8))
    assert [each[:2] for each in printed] == [
        (method, number) for method in ("shard_map", "pmap") for number in "1248"
    ]
    assert all(float(difference) < 1e-5 for *_, difference in printed)
