"""Train an actor-critic on Catch in several processes, with checkpoints by Orbax.

The devices belong to several processes, on one or more machines, and all processes run
this program:

- After `jax.distributed.initialize`, `jax.devices()` returns the devices of all
  processes. A global array has shards in each of them, so that compiled functions
  create arrays where they are needed.
- The agent is replicated, the environments are sharded. By automatic sharding, the
  program is that of one device: means over the batch are means over all devices.
- With each point of the curve, each process writes its shards of a checkpoint to a
  shared folder. `--resume` continues from the last one.
- If a process is lost, the others wait for it. The launcher in this file ends them. On
  a cluster, JAX ends them after 30 seconds without a heartbeat.

The agent uses these functions:

- `rlaxlib.softmax`: the policy,
- `rlaxlib.lambda_returns`: the targets of the values, cut at episode ends,
- `rlaxlib.standardize`: the standardised advantages,
- `rlaxlib.policy_gradient_loss`, `rlaxlib.entropy_loss`: the loss of the policy,
- `rlaxlib.l2_loss`: the loss of the values.

On a cluster, its launcher starts the processes, and JAX detects their number and
addresses (Slurm, Open MPI, Kubernetes and TPUs). A random agent averages -0.6 in
gymnax's Catch. Expect at least +0.95 at the end, after about 40 seconds on two cores.

    python multi_host.py --processes 2
    srun --ntasks=16 python multi_host.py --processes 0 --resume

Packages: flax, gymnax, optax, orbax, tqdm, tyro.
"""

import dataclasses
import functools
import os
import socket
import subprocess
import sys
import time
import traceback
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import tyro
from flax import linen as nn
from flax.training.train_state import TrainState
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tqdm import trange

import rlaxlib


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings; each is a command-line flag."""

    seed: int = 0  # Seed of the network, actions and environments.
    output: str = "multi_host.csv"  # File for the learning curve.
    checkpoints: str = "multi_host_checkpoints"  # Folder that all processes share.
    resume: bool = False  # Whether to continue from the last checkpoint.
    processes: int = 2  # Processes to start; 0 on a cluster.
    devices: int = 4  # CPU devices per process that is started here.
    coordinator: str = ""  # `host:port` of the first process; the launcher sets it.
    process: int = 0  # Index of this process; the launcher sets it.
    environments: int = 64  # Number of environments on all devices.
    steps: int = 16  # Steps per environment and update.
    train_updates: int = 600  # Number of updates.
    report_interval: int = 30  # Updates between points of the curve.
    learning_rate: float = 3e-3  # Learning rate of Adam.
    discount: float = 0.99  # Discount factor.
    lambda_return: float = 0.9  # λ of the returns, in [0, 1].
    entropy_cost: float = 0.01  # Weight of the entropy loss.


# Takes seconds, for tests.
SMALL = Config(processes=1, devices=2, train_updates=20, report_interval=10)


# --- Agent: network, loss and update. ---


class Network(nn.Module):
    """Logits of the policy, and a value."""

    @nn.compact
    def __call__(self, observation):
        x = observation.reshape(*observation.shape[:-2], -1)
        x = nn.relu(nn.Dense(64)(x))
        return nn.Dense(3)(x), nn.Dense(1)(x).squeeze(-1)


def loss(params, batch, config):
    """Return the loss of observations, [B, T+1, ...], and the steps after T of them."""
    observation, action, reward, discount = batch
    logits, value = Network().apply(params, observation)
    target = jax.vmap(rlaxlib.lambda_returns, (0, 0, 0, None))(
        reward, config.discount * discount, value[:, 1:], config.lambda_return
    )
    target = jax.lax.stop_gradient(target)
    adv = rlaxlib.standardize(target - value[:, :-1])
    ones = jnp.ones_like(adv)
    policy_loss = jax.vmap(rlaxlib.policy_gradient_loss)(
        logits[:, :-1], action, adv, ones
    )
    entropy_loss = jax.vmap(rlaxlib.entropy_loss)(logits[:, :-1], ones)
    value_loss = rlaxlib.l2_loss(value[:, :-1], target)
    policy_loss += config.entropy_cost * entropy_loss
    return jnp.mean(policy_loss) + jnp.mean(value_loss)


# --- Environments, each with its own key, so that devices do not matter. ---


@functools.cache
def make_environment():
    """Import gymnax late, because it initialises JAX and so fixes the devices."""
    from gymnax.environments.bsuite.catch import Catch  # noqa: PLC0415 - See above.

    return Catch()


def make(config):
    """Initialise the agent, and the environments: keys, observations and states."""
    keys = jax.random.split(jax.random.key(config.seed + 1), config.environments)
    world = keys, *jax.vmap(make_environment().reset)(keys)
    params = Network().init(jax.random.key(config.seed), world[1])
    adam = optax.adam(config.learning_rate, eps=1e-5)
    return TrainState.create(apply_fn=None, params=params, tx=adam), world


def act(params, world, config):
    """Take T steps in each environment; return them and the environments."""

    def step(world, _):
        keys, observation, state = world
        split = jax.vmap(lambda key: jax.random.split(key, 3), out_axes=1)
        keys, act_keys, step_keys = split(keys)
        logits, _ = Network().apply(params, observation)
        action = jax.vmap(rlaxlib.softmax().sample)(act_keys, logits)
        env_step = jax.vmap(make_environment().step)
        after, state, reward, ended, *_ = env_step(step_keys, state, action)
        return (keys, after, state), (observation, action, reward, 1.0 - ended)

    world, steps = jax.lax.scan(step, world, length=config.steps)
    observation, *rest = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), steps)
    observation = jnp.concatenate([observation, world[1][:, None]], axis=1)
    return (observation, *rest), world


def advance(agent, world, config):
    """Act and update repeatedly; return the mean return of episodes, too."""

    def step(carry, _):
        agent, world = carry
        batch, world = act(agent.params, world, config)
        agent = agent.apply_gradients(grads=jax.grad(loss)(agent.params, batch, config))
        # Only the last step of an episode has a reward.
        *_, reward, discount = batch
        return (agent, world), (jnp.mean(reward), jnp.mean(discount == 0))

    carry, length = (agent, world), config.report_interval
    (agent, world), (reward, ended) = jax.lax.scan(step, carry, length=length)
    return agent, world, jnp.mean(reward) / jnp.mean(ended)


# --- Training on the devices of all processes. ---


def train(config: Config) -> list[tuple[int, float]]:
    """Train an agent; return the training returns over updates."""
    make_environment()  # Its constants must not be created while tracing.
    mesh = Mesh(np.asarray(jax.devices()), ("data",))
    same, spread = (NamedSharding(mesh, PartitionSpec(*x)) for x in ((), ("data",)))
    init = jax.jit(make, static_argnames="config", out_shardings=(same, spread))
    state = init(config=config)
    advance_on_all = jax.jit(
        advance, static_argnames="config", out_shardings=(same, spread, same)
    )
    options = ocp.CheckpointManagerOptions(max_to_keep=1)
    folder, curve = Path(config.checkpoints).absolute(), []
    with ocp.CheckpointManager(folder, options=options) as manager:
        start = (config.resume and manager.latest_step()) or 0
        if start:
            leaves, structure = jax.tree.flatten(state)
            leaves = manager.restore(start, args=ocp.args.StandardRestore(leaves))
            state = jax.tree.unflatten(structure, leaves)
        else:
            for step in manager.all_steps():
                manager.delete(step)
        steps = start, config.train_updates, config.report_interval
        for updates in (progress := trange(*steps, disable=jax.process_index() > 0)):
            *state, train_return = advance_on_all(*state, config=config)
            curve.append((updates + config.report_interval, float(train_return)))
            leaves = ocp.args.StandardSave(jax.tree.leaves(state))
            manager.save(updates + config.report_interval, args=leaves)
            progress.set_postfix_str(f"return {train_return:+.2f}")
    return curve


# --- Processes. ---


def work(config):
    """Run one of the processes."""
    address = config.coordinator, config.processes, config.process
    jax.distributed.initialize(
        *(address if config.coordinator else ()), heartbeat_timeout_seconds=30
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
    settings = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(config.devices)}
    command = [sys.executable, *sys.argv, f"--coordinator={address}", "--process"]
    processes = [
        subprocess.Popen([*command, str(x)], env={**os.environ, **settings})
        for x in range(config.processes)
    ]
    while None in (codes := [x.poll() for x in processes]) and not any(codes):
        time.sleep(0.1)
    for process in processes:
        process.kill()
    if any(codes):
        sys.exit("A process failed. `--resume` continues from the last checkpoint.")


if __name__ == "__main__":
    config = tyro.cli(Config)
    if config.processes and not config.coordinator:
        launch(config)
    else:
        work(config)
