"""Test the multi-process example: sharding, checkpoints and lost processes."""

import csv
import dataclasses
import functools
import os
import re
import signal
import socket
import subprocess
import sys
import time

import data_parallel
import jax
import jax.numpy as jnp
import multi_host as example
import numpy as np
import pytest
from common.checkpoints import Checkpoints
from jax.sharding import Mesh

# --- Helpers. ---

SHORT = example.Config(
    processes=2, devices=2, environments=16, train_updates=80, report_interval=16
)


def start(folder, log="log", **changes):
    """Start the script, with its output in a file in `folder`."""
    config = dataclasses.replace(SHORT, output=str(folder), **changes)
    flags = [f"--{name}={value}" for name, value in dataclasses.asdict(config).items()]
    folder.mkdir(exist_ok=True)
    command = [sys.executable, example.__file__, *flags]
    with open(folder / log, "a") as file:
        return subprocess.Popen(command, stdout=file, stderr=file)


def end(process, folder, log="log", seconds=300):
    """Return the exit code and the output of the script."""
    try:
        return process.wait(seconds), (folder / log).read_text()
    finally:
        process.kill()


def curve(folder):
    with open(folder / "curve.csv", newline="") as file:
        _, *rows = csv.reader(file)
    return np.array(rows, float)


def wait_for_a_checkpoint(process, folder):
    while not any(path.name.isdecimal() for path in folder.glob("checkpoints/*")):
        assert process.poll() is None
        time.sleep(0.02)


def break_off(folder):
    """Start the script, kill a process after a checkpoint, and check that all end."""
    process = start(folder)
    wait_for_a_checkpoint(process, folder)
    pids = [
        int(x) for x in re.findall(r" has PID (\d+)\.", (folder / "log").read_text())
    ]
    os.kill(pids[1], signal.SIGKILL)
    code, log = end(process, folder, seconds=10)
    assert code == 1
    assert "Process 1 ended with code -9" in log
    assert "--resume" in log
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)
    assert not (folder / "curve.csv").exists()


@functools.cache
def state():
    """Return a state on one device."""
    learner = data_parallel.Config(environments=SHORT.environments)
    return example.make_state(learner, Mesh(np.asarray(jax.devices()[:1]), ("data",)))


def last_state(folder):
    """Return the arrays of the last checkpoint of a run."""
    with Checkpoints(folder / "checkpoints") as checkpoints:
        return [as_numpy(x) for x in jax.tree.leaves(checkpoints.restore(state()))]


def as_numpy(x):
    is_key = jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(x) if is_key else x)


def assert_close(x, y):
    np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-5)


# --- Updates and learning. ---


@pytest.mark.trust
def test_a_run_that_lost_a_process_resumes_in_one_process(tmp_path):
    folder, whole = tmp_path / "broken", tmp_path / "whole"
    break_off(folder)
    config = dataclasses.replace(SHORT, output=str(whole))
    undisturbed = example.train(config)
    assert undisturbed[-1].train_return > -400  # A random agent averages -600.
    # Four devices of one process equal two devices each of two processes.
    config = dataclasses.replace(SHORT, output=str(folder), resume=True)
    assert_close(example.train(config), undisturbed)
    for x, y in zip(last_state(folder), last_state(whole), strict=True):
        assert_close(x, y)


def test_only_the_latest_checkpoint_is_kept(tmp_path):
    first, last = ({"x": jnp.arange(3.0) + i, "y": [jnp.int32(i)]} for i in range(2))
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.latest() is None
        checkpoints.save(1, first, {"name": "first"})
        checkpoints.save(2, last, {"name": "last", "numbers": [0.1, 2]})
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.latest() == (2, {"name": "last", "numbers": [0.1, 2]})
        restored = checkpoints.restore(first)
        jax.tree.map(np.testing.assert_array_equal, restored, last)
        checkpoints.clear()
        assert checkpoints.latest() is None
        checkpoints.save(1, first, {})
        assert checkpoints.latest() == (1, {})


def test_error_names_the_failed_process():
    failing = [sys.executable, "-c", "raise SystemExit(3)"]
    waiting = [sys.executable, "-c", "import time; time.sleep(300)"]
    processes = [subprocess.Popen(command) for command in (waiting, failing)]
    try:
        with pytest.raises(SystemExit, match="Process 1 ended with code 3, so all"):
            example.wait(processes)
    finally:
        processes[0].kill()
        processes[0].wait()


# --- Invalid input. ---


def test_rejects_the_checkpoint_of_another_seed(tmp_path):
    with Checkpoints(tmp_path) as checkpoints:
        learner = data_parallel.Config(seed=1)
        notes = {"learner": dataclasses.asdict(learner), "curve": []}
        checkpoints.save(1, {"x": jnp.zeros(3)}, notes)
        with pytest.raises(ValueError, match=r"belongs to a run with {'seed': 1}"):
            example.begin(checkpoints, {}, data_parallel.Config(), resume=True)


# --- Slow tests. ---


@pytest.mark.slow
def test_final_return_matches_the_docstring(tmp_path):
    command = [sys.executable, example.__file__, f"--output={tmp_path}"]
    subprocess.run(command, check=True)
    assert curve(tmp_path)[-1, 1] >= 900


@pytest.mark.slow
def test_resumed_run_equals_an_uninterrupted_run(tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    code, log = end(start(whole), whole)
    assert code == 0, log
    # Only the first process prints.
    assert log.count("Learning curve:") == 1

    break_off(broken)
    code, log = end(start(broken, resume=True), broken)
    assert code == 0, log
    files = [(folder / "curve.csv").read_bytes() for folder in (whole, broken)]
    assert files[0] == files[1]
    for x, y in zip(last_state(broken), last_state(whole), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.slow
def test_results_do_not_depend_on_the_number_of_processes(tmp_path):
    folders = []
    for processes in (1, 2, 4):
        folder = tmp_path / f"of {processes}"
        process = start(folder, processes=processes, devices=8 // processes)
        code, log = end(process, folder)
        assert code == 0, log
        folders.append(folder)
    for other in folders[1:]:
        assert_close(curve(other), curve(folders[0]))
        for x, y in zip(last_state(other), last_state(folders[0]), strict=True):
            assert_close(x, y)


@pytest.mark.slow
@pytest.mark.parametrize("lost", [0, 1])
def test_processes_end_without_heartbeats_of_another(lost, tmp_path):
    """There is no launcher, and the connections of the stopped process stay open."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        coordinator = "{}:{}".format(*free.getsockname())
    processes = [
        start(tmp_path, str(i), coordinator=coordinator, process=i, train_updates=10**6)
        for i in range(2)
    ]
    try:
        wait_for_a_checkpoint(processes[0], tmp_path)
        processes[lost].send_signal(signal.SIGSTOP)
        code, log = end(processes[1 - lost], tmp_path, str(1 - lost), seconds=60)
        assert code != 0
        assert "another task died" in log
    finally:
        for process in processes:
            process.kill()
            process.wait()
