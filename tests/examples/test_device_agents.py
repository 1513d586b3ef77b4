"""Test that devices and processes do not matter to the agents that use several."""

import dataclasses
import functools
import shutil
import subprocess
import sys
from pathlib import Path

import data_parallel
import jax
import multi_host
import numpy as np
import pytest


def test_data_parallel_agent_does_not_depend_on_the_number_of_devices():
    config = dataclasses.replace(
        data_parallel.SMALL, train_updates=4, report_interval=2
    )

    def agent(devices):
        mesh = jax.sharding.Mesh(np.asarray(jax.devices()[:devices]), ("data",))
        same, spread = data_parallel.SAME, data_parallel.SPREAD
        advance = jax.shard_map(
            functools.partial(data_parallel.advance, config=config),
            mesh=mesh,
            in_specs=(same, spread),
            out_specs=(same, spread, same),
        )
        start = data_parallel.make_agent(config), data_parallel.make_world(config)
        return jax.device_get(jax.jit(advance)(*start)[0])

    one, four = agent(1), agent(4)
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(four), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-4 * np.max(np.abs(x)))


def run(folder, *flags):
    shutil.copy(Path(multi_host.__file__), folder)
    command = [sys.executable, "multi_host.py", "--report-interval", "10", *flags]
    subprocess.run(command, check=True, cwd=folder, capture_output=True, timeout=500)
    return np.genfromtxt(folder / "multi_host.csv", delimiter=",", skip_header=1)


@pytest.mark.trust
def test_resumed_run_of_two_processes_has_the_curve_of_a_whole_one(tmp_path):
    small = ("--devices", "2")
    whole = run(tmp_path, *small, "--train-updates", "40")
    run(tmp_path, *small, "--train-updates", "20")
    resumed = run(tmp_path, *small, "--train-updates", "40", "--resume")
    np.testing.assert_array_equal(whole[2:], resumed)


def test_training_begins_anew_or_after_the_last_checkpoint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = dataclasses.replace(
        multi_host.SMALL, train_updates=2, report_interval=1, steps=2
    )
    longer = dataclasses.replace(config, train_updates=3, resume=True)
    for each, expected in ((config, [1, 2]), (longer, [3]), (config, [1, 2])):
        assert [updates for updates, _ in multi_host.train(each)] == expected
