"""Train an actor-critic on Catch in several processes, with checkpoints.

The devices belong to several processes, on one or more machines, and all processes run
this program:

- After `jax.distributed.initialize`, `jax.devices()` returns the devices of all
  processes. A global array has shards in each of them, so that compiled functions
  create arrays where they are needed.
- The agent is replicated, the environments are sharded. By automatic sharding, the
  program is that of one device: means over the batch are means over all devices.
- With each point of the curve, each process writes its shards of a checkpoint to a
  shared folder. Only the first process shows the progress and writes the curve.
- If a process is lost, the others wait for it. The launcher in this file notices and
  ends them. On a cluster, JAX ends them after 30 seconds without a heartbeat. A process
  that fails exits immediately, because the usual shutdown waits for the others.
- `--resume` continues from the last checkpoint, if there is one. The curve is identical
  to that of an uninterrupted run.

The functions that the agent uses:

- `rlaxlib.softmax`: the policy,
- `rlaxlib.lambda_returns`: the targets of the values, cut at episode ends,
- `rlaxlib.standardize`: the standardised advantages,
- `rlaxlib.policy_gradient_loss`: the loss of the policy,
- `rlaxlib.entropy_loss`: the entropy regularisation,
- `rlaxlib.l2_loss`: the loss of the values.

On a cluster, its launcher starts the processes, and JAX detects their number and
addresses (Slurm, Open MPI, Kubernetes and TPUs). To start them by hand, pass each
`--processes`, `--process`, and the address of the first as `--coordinator`.

A random agent averages -0.6 in gymnax's Catch. Expect at least +0.95 at the end, after
about 40 seconds on two cores.

    python multi_host.py --processes 2
    srun --ntasks=16 python multi_host.py --processes 0 --resume

Packages: flax, gymnax, optax, orbax, tqdm, tyro.
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
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import tyro
from flax import linen as nn
from flax.training.train_state import TrainState
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tqdm import tqdm

import rlaxlib

TIMEOUT = 30  # Seconds without a heartbeat after which a process counts as lost.


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings; each is a command-line flag."""

    seed: int = 0  # Seed of the network, actions and environments.
    output: str = "multi_host.csv"  # File for the learning curve.
    checkpoints: str = "multi_host_checkpoints"  # Folder that all processes share.
    resume: bool = False  # Whether to continue from the last checkpoint.
    processes: int = 2  # Processes to start; 0 on a cluster.
    devices: int = 4  # CPU devices per process that is started here.
    coordinator: str = ""  # `host:port` of the first process, if started by hand.
    process: int = 0  # Index of this process, if started by hand.
    environments: int = 64  # Number of environments on all devices.
    steps: int = 16  # Steps per environment and update.
    train_updates: int = 600  # Number of updates.
    report_interval: int = 30  # Updates between points of the curve.
    learning_rate: float = 3e-3  # Learning rate of Adam.
    discount: float = 0.99  # Discount factor.
    lambda_return: float = 0.9  # λ of the returns, in [0, 1].
    entropy_cost: float = 0.01  # Weight of the entropy loss.


SMALL = Config(
    processes=1, devices=2, train_updates=20, report_interval=10
)  # For tests.


class Trajectories(NamedTuple):
    """Trajectories of T steps in B environments."""

    observation: Any  # [B, T+1, ...]
    action: Any  # [B, T]
    reward: Any  # [B, T]
    discount: Any  # [B, T], 0 at terminal steps.


# --- Agent: network, loss and update. ---


class Network(nn.Module):
    """Logits of the policy, and a value."""

    @nn.compact
    def __call__(self, observation):
        x = observation.reshape(*observation.shape[:-2], -1)
        x = nn.relu(nn.Dense(64)(x))
        return nn.Dense(3)(x), nn.Dense(1)(x).squeeze(-1)


def loss(params, batch, config):
    """Return the loss of trajectories."""
    logits, value = Network().apply(params, batch.observation)
    target = jax.vmap(rlaxlib.lambda_returns, (0, 0, 0, None))(
        *(batch.reward, config.discount * batch.discount, value[:, 1:]),
        config.lambda_return,
    )
    target = jax.lax.stop_gradient(target)
    adv = rlaxlib.standardize(target - value[:, :-1])
    ones = jnp.ones_like(adv)
    policy_loss = jax.vmap(rlaxlib.policy_gradient_loss)(
        logits[:, :-1], batch.action, adv, ones
    )
    entropy_loss = jax.vmap(rlaxlib.entropy_loss)(logits[:, :-1], ones)
    value_loss = rlaxlib.l2_loss(value[:, :-1], target)
    policy_loss += config.entropy_cost * entropy_loss
    return jnp.mean(policy_loss) + jnp.mean(value_loss)


def make_agent(config) -> TrainState:
    """Initialise the network and the optimizer."""
    observation, _ = make_environment().reset(jax.random.key(0))
    return TrainState.create(
        apply_fn=None,
        params=Network().init(jax.random.key(config.seed), observation),
        tx=optax.adam(config.learning_rate, eps=1e-5),
    )


# --- Environments, each with its own key, so that devices do not matter. ---


@functools.cache
def make_environment():
    """Import gymnax late, because it initialises JAX and so fixes the devices."""
    from gymnax.environments.bsuite.catch import Catch  # noqa: PLC0415 - See above.

    return Catch()


class World(NamedTuple):
    """B environments."""

    state: Any
    observation: Any
    key: Any


def make_world(config) -> World:
    """Reset all environments."""
    keys = jax.random.split(jax.random.key(config.seed + 1), config.environments)
    observation, state = jax.vmap(make_environment().reset)(keys)
    return World(state, observation, keys)


def act(params, world, config) -> tuple[Trajectories, World]:
    """Take T steps in each environment."""

    def step(world, _):
        split = jax.vmap(lambda key: jax.random.split(key, 3), out_axes=1)
        keys, act_keys, step_keys = split(world.key)
        logits, _ = Network().apply(params, world.observation)
        action = jax.vmap(rlaxlib.softmax().sample)(act_keys, logits)
        observation, state, reward, ended, *_ = jax.vmap(make_environment().step)(
            step_keys, world.state, action
        )
        steps = world.observation, action, reward, 1.0 - ended
        return World(state, observation, keys), steps

    world, steps = jax.lax.scan(step, world, length=config.steps)
    observation, *rest = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), steps)
    observation = jnp.concatenate([observation, world.observation[:, None]], axis=1)
    return Trajectories(observation, *rest), world


def advance(agent, world, config):
    """Act and update repeatedly; return the mean return of episodes, too."""

    def step(carry, _):
        agent, world = carry
        batch, world = act(agent.params, world, config)
        agent = agent.apply_gradients(grads=jax.grad(loss)(agent.params, batch, config))
        # Only the last step of an episode has a reward.
        return (agent, world), (jnp.mean(batch.reward), jnp.mean(batch.discount == 0))

    carry, length = (agent, world), config.report_interval
    (agent, world), (reward, ended) = jax.lax.scan(step, carry, length=length)
    return agent, world, jnp.mean(reward) / jnp.mean(ended)


# --- Training on the devices of all processes. ---


def train(config: Config) -> list[tuple[int, float]]:
    """Train an agent; return the training returns over updates."""
    make_environment()  # Its constants must not be created while tracing.
    mesh = Mesh(np.asarray(jax.devices()), ("data",))
    same, spread = (NamedSharding(mesh, PartitionSpec(*x)) for x in ((), ("data",)))
    state = jax.jit(
        lambda: [make_agent(config), make_world(config)], out_shardings=[same, spread]
    )()
    advance_on_all = jax.jit(
        functools.partial(advance, config=config),
        in_shardings=(same, spread),
        out_shardings=(same, spread, same),
    )
    options = ocp.CheckpointManagerOptions(
        max_to_keep=1,
        cleanup_tmp_directories=True,
        enable_async_checkpointing=False,  # `save` returns after the write.
    )
    folder = Path(config.checkpoints).absolute()
    with ocp.CheckpointManager(folder, options=options) as manager:
        updates, state, curve = begin(manager, state, config)
        progress = tqdm(
            total=config.train_updates,
            initial=updates,
            disable=jax.process_index() > 0,
        )
        while updates < config.train_updates:
            *state, train_return = advance_on_all(*state)
            updates += config.report_interval
            curve.append((updates, float(train_return)))
            save = ocp.args.Composite(
                state=ocp.args.StandardSave(jax.tree.leaves(state)),
                notes=ocp.args.JsonSave({"config": learner(config), "curve": curve}),
            )
            manager.save(updates, args=save)
            progress.set_postfix_str(f"return {train_return:+.2f}", refresh=False)
            progress.update(config.report_interval)
        progress.close()
    return curve


def begin(manager, state, config):
    """Return the initial or the resumed number of updates, state and curve."""
    updates = manager.latest_step()
    if updates is None or not config.resume:
        for step in manager.all_steps():
            manager.delete(step)
        return 0, state, []
    leaves, structure = jax.tree.flatten(state)
    restore = ocp.args.Composite(
        state=ocp.args.StandardRestore(leaves), notes=ocp.args.JsonRestore()
    )
    found = manager.restore(updates, args=restore)
    if found["notes"]["config"] != learner(config):
        raise ValueError(f"The checkpoint is of a run with {found['notes']['config']}.")
    curve = list(map(tuple, found["notes"]["curve"]))
    return updates, jax.tree.unflatten(structure, found["state"]), curve


def learner(config) -> dict[str, Any]:
    """Return the settings that a run must keep when it is resumed."""
    free = ("output", "checkpoints", "resume", "processes", "devices", "coordinator")
    settings = dataclasses.asdict(config)
    return {
        k: x
        for k, x in settings.items()
        if k not in (*free, "process", "train_updates")
    }


# --- Processes. ---


def work(config):
    """Run one of the processes."""
    by_hand = config.coordinator, config.processes, config.process
    jax.distributed.initialize(
        *(by_hand if config.coordinator else ()),
        heartbeat_timeout_seconds=TIMEOUT,
    )
    try:
        rows, header = train(config), "update,training return"
        if jax.process_index() == 0:
            np.savetxt(config.output, rows, "%g", ",", header=header, comments="")
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


if __name__ == "__main__":
    config = tyro.cli(Config)
    if config.processes and not config.coordinator:
        launch(config)
    else:
        work(config)
