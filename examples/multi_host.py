"""Learn on the devices of several processes, and go on where one of them was lost.

The agent is that of `data_parallel.py`, with its use of rlaxlib, and so is the way it
is spread over a mesh. But here the devices belong to several processes, on one machine
or on many, all of which run this program. What there is to know:

- After `jax.distributed.initialize`, `jax.devices()` are those of all processes. An
  array on them has parts in each, so that a compiled function makes it where it lies.
- Each process writes its parts of a checkpoint, with each point of the curve, into a
  folder that all must see. Only the first shows the progress and writes the curve.
- The others wait for a process that is lost. The one that started them here notices,
  and ends them. On a cluster JAX does, when nothing was heard of it for 30 seconds. A
  process that fails must end at once: Python would have it wait for the others first.
- `--resume` goes on from the last checkpoint, if there is one. The curve is the one of
  a run that nothing disturbed, to the last digit.

On a cluster, its launcher starts the processes: JAX knows Slurm, Open MPI, Kubernetes
and TPUs, and finds out how many there are, and where. To start them by hand, give each
`--processes`, `--process` and the `--coordinator` that the first one is to be.

The environment is gymnax's Catch, with rewards of 1000 for a catch and -1000 for a
miss. Expect about +1000 at the end, after about 40 seconds on two cores.

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

PATIENCE = 30  # Seconds without a sign of life after which a process is lost.


@dataclasses.dataclass(frozen=True)
class Config:
    """What there is to choose; for the rest of the agent, see `data_parallel.py`."""

    seed: int = flag(0, "Seed of the network, the actions and the environments.")
    output: str = flag("results/multi_host", "Folder for checkpoints and the curve.")
    resume: bool = flag(False, "Whether to go on from the last checkpoint there.")
    processes: int = flag(2, "Processes to start here; 0 if a cluster's launcher did.")
    devices: int = flag(4, "Devices of each that is started here, all of them CPUs.")
    coordinator: str = flag("", "Address, `host:port`, of the first, if by hand.")
    process: int = flag(0, "Which of the processes this is, if by hand.")
    environments: int = flag(64, "Environments, on all devices together.")
    train_updates: int = flag(600, "Updates to learn from.")
    report_interval: int = flag(30, "Updates from one point of the curve to the next.")


def train(config: Config) -> list[Evaluation]:
    """Train an agent on the devices of all processes, and return its learning curve."""
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
    """Make an agent that is the same everywhere, and actors that are spread."""
    data_parallel.make_environment()  # Whose constants must not be made while tracing.

    def make():
        return [data_parallel.make_agent(learner), data_parallel.make_actors(learner)]

    shardings = [NamedSharding(mesh, spec) for spec in (SAME, SPREAD)]
    return jax.jit(make, out_shardings=shardings)()


def begin(checkpoints, state, learner, resume):
    """Return the updates, the state and the curve to begin with."""
    if not resume:
        checkpoints.clear()
    latest = checkpoints.latest()
    if latest is None:
        return 0, state, []
    updates, notes = latest
    now = dataclasses.asdict(learner)
    other = {k: x for k, x in notes["learner"].items() if now.get(k) != x}
    if other:
        raise ValueError(f"The checkpoint is of a run with {other}.")
    curve = [Evaluation(*point) for point in notes["curve"]]
    return updates, checkpoints.restore(state), curve


def work(config):
    """Be one of the processes."""
    by_hand = config.coordinator, config.processes, config.process
    jax.distributed.initialize(
        *(by_hand if config.coordinator else ()), heartbeat_timeout_seconds=PATIENCE
    )
    try:
        curve = train(config)
        if jax.process_index() == 0:
            curves.report(curve, "Actor-critic of several processes", config.output)
    except BaseException:
        # The usual end waits for the others, who wait for this one: for five minutes.
        traceback.print_exc()
        os._exit(1)


def launch(config):
    """Start the processes on this machine, and see to it that they end together."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = "{}:{}".format(*free.getsockname())
    settings = {
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": str(config.devices),
        "JAX_COORDINATOR_BIND_ADDRESS": address,
    }
    processes = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("Ended, and the processes too."))
    try:
        for process in range(config.processes):
            flags = [f"--coordinator={address}", f"--process={process}"]
            command = [sys.executable, *sys.argv, *flags]
            processes.append(subprocess.Popen(command, env={**os.environ, **settings}))
            print(f"Process {process} is {processes[-1].pid}.", flush=True)
        wait(processes)
    finally:
        for process in processes:
            process.kill()  # Not `terminate`: JAX takes that for an announcement.
            process.wait()


def wait(processes):
    """Wait for the end of all processes, or for one that fails."""
    codes = [None]
    while None in codes and not any(codes):
        time.sleep(0.1)
        codes = [process.poll() for process in processes]
    lost = [f"Process {i} ended with code {x}" for i, x in enumerate(codes) if x]
    if lost:
        sys.exit(
            f"{', '.join(lost)}: all others are ended too. "
            "With --resume, the same command goes on from the last checkpoint."
        )


def main(config):
    if config.processes and not config.coordinator:
        launch(config)
    else:
        work(config)


if __name__ == "__main__":
    run(main, Config)
