"""Train an actor-critic on Catch in several processes, with checkpoints.

The agent and its use of rlaxlib are those of `data_parallel.py`, and so is `shard_map`
over a mesh. Here the devices belong to several processes, on one or more machines. All
processes run this program:

- After `jax.distributed.initialize`, `jax.devices()` returns the devices of all
  processes. A global array has shards in each of them, so that compiled functions
  create arrays where they are needed.
- With each point of the curve, each process writes its shards of a checkpoint to a
  shared folder. Only the first process shows the progress and writes the curve.
- If a process is lost, the others wait for it. The launcher in this file notices and
  ends them. On a cluster, JAX ends them after 30 seconds without a heartbeat. A process
  that fails exits immediately, because the usual shutdown waits for the others.
- `--resume` continues from the last checkpoint, if there is one. The curve is identical
  to that of an uninterrupted run.

On a cluster, its launcher starts the processes, and JAX detects their number and
addresses (Slurm, Open MPI, Kubernetes and TPUs). To start them by hand, pass each
`--processes`, `--process`, and the address of the first as `--coordinator`.

The environment is gymnax's Catch, with rewards of 1000 for a catch and -1000 for a
miss. Expect a return of about +1000 at the end, after about 40 seconds on two cores,
imports and compilation included.

    python examples/multi_host.py --processes=2
    srun --ntasks=16 python examples/multi_host.py --processes=0 --resume
"""

import dataclasses
import functools
import os
import signal
import socket
import subprocess
import sys
import time
import traceback

import data_parallel
import jax
import numpy as np
from common import curves
from common.checkpoints import Checkpoints
from common.flags import flag, run
from data_parallel import SAME, SPREAD, Evaluation
from jax.sharding import Mesh, NamedSharding
from tqdm import tqdm

TIMEOUT = 30  # Seconds without a heartbeat after which a process counts as lost.


@dataclasses.dataclass(frozen=True)
class Config:
    """Configuration; `data_parallel.Config` has the hyper-parameters of the agent."""

    seed: int = flag(0, "Seed of the network, actions and environments.")
    output: str = flag("results/multi_host", "Folder for checkpoints and the curve.")
    resume: bool = flag(False, "Whether to continue from the last checkpoint.")
    processes: int = flag(2, "Processes to start; 0 on a cluster.")
    devices: int = flag(4, "CPU devices per process that is started here.")
    coordinator: str = flag("", "`host:port` of the first process, if started by hand.")
    process: int = flag(0, "Index of this process, if started by hand.")
    environments: int = flag(64, "Number of environments on all devices.")
    train_updates: int = flag(600, "Number of updates.")
    report_interval: int = flag(30, "Updates between points of the curve.")


def train(config: Config) -> list[Evaluation]:
    """Train an agent on the devices of all processes; return its learning curve."""
    learner = data_parallel.Config(
        seed=config.seed,
        environments=config.environments,
        report_interval=config.report_interval,
    )
    mesh = Mesh(np.asarray(jax.devices()), ("data",))
    state = make_state(learner, mesh)
    advance = data_parallel.shard(
        functools.partial(data_parallel.advance, updates=learner.report_interval),
        mesh,
        in_specs=(SAME, SPREAD),
        out_specs=(SAME, SPREAD, SAME),
    )
    with Checkpoints(f"{config.output}/checkpoints") as checkpoints:
        updates, state, curve = begin(checkpoints, state, learner, config.resume)
        with tqdm(
            total=config.train_updates,
            initial=updates,
            unit="update",
            disable=jax.process_index() > 0,
        ) as progress:
            while updates < config.train_updates:
                *state, info = advance(*state)
                updates += learner.report_interval
                train_return = float(info["reward"]) / float(info["episodes"])
                curve.append(Evaluation(updates, train_return))
                notes = {"learner": dataclasses.asdict(learner), "curve": curve}
                checkpoints.save(updates, state, notes)
                progress.set_postfix_str(f"return {train_return:+.0f}", refresh=False)
                progress.update(learner.report_interval)
    return curve


def make_state(learner, mesh) -> list:
    """Return a replicated agent and sharded actors."""
    data_parallel.make_environment()  # Its constants must not be created while tracing.

    def make():
        return [data_parallel.make_agent(learner), data_parallel.make_actors(learner)]

    shardings = [NamedSharding(mesh, spec) for spec in (SAME, SPREAD)]
    return jax.jit(make, out_shardings=shardings)()


def begin(checkpoints, state, learner, resume):
    """Return the initial or the resumed number of updates, state and curve."""
    if not resume:
        checkpoints.clear()
    latest = checkpoints.latest()
    if latest is None:
        return 0, state, []
    updates, notes = latest
    now = dataclasses.asdict(learner)
    other = {k: x for k, x in notes["learner"].items() if now.get(k) != x}
    if other:
        raise ValueError(f"The checkpoint belongs to a run with {other}.")
    curve = [Evaluation(*point) for point in notes["curve"]]
    return updates, checkpoints.restore(state), curve


def work(config):
    """Run one of the processes."""
    by_hand = config.coordinator, config.processes, config.process
    jax.distributed.initialize(
        *(by_hand if config.coordinator else ()),
        heartbeat_timeout_seconds=TIMEOUT,
    )
    try:
        curve = train(config)
        if jax.process_index() == 0:
            curves.report(curve, "Actor-critic of several processes", config.output)
    except BaseException:
        # The usual exit would wait for the other processes, for five minutes.
        traceback.print_exc()
        os._exit(1)


def launch(config):
    """Start the processes on this machine; if one fails, end all."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = "{}:{}".format(*free.getsockname())
    settings = {
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": str(config.devices),
        "JAX_COORDINATOR_BIND_ADDRESS": address,
    }
    processes = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("Terminated all processes."))
    try:
        for process in range(config.processes):
            flags = [f"--coordinator={address}", f"--process={process}"]
            command = [sys.executable, *sys.argv, *flags]
            processes.append(subprocess.Popen(command, env={**os.environ, **settings}))
            print(f"Process {process} has PID {processes[-1].pid}.", flush=True)
        wait(processes)
    finally:
        for process in processes:
            process.kill()  # JAX handles SIGTERM as a preemption notice.
            process.wait()


def wait(processes):
    """Wait until all processes end, or one fails."""
    codes = [None]
    while None in codes and not any(codes):
        time.sleep(0.1)
        codes = [process.poll() for process in processes]
    lost = [f"Process {i} ended with code {x}" for i, x in enumerate(codes) if x]
    if lost:
        sys.exit(
            f"{', '.join(lost)}, so all processes were ended. "
            "With --resume, the same command continues from the last checkpoint."
        )


def main(config):
    if config.processes and not config.coordinator:
        launch(config)
    else:
        work(config)


if __name__ == "__main__":
    run(main, Config)
