"""Train an actor-critic on Catch, data-parallel over devices, by `jax.shard_map`.

Each device steps its own environments and computes the gradient on their trajectories.
Quantities that depend on the whole batch are reduced over the mapped axis by its name:
the loss, the PopArt statistics, and the moving averages that scale the advantages. All
devices hold the same agent, and up to rounding it equals the agent that one device
trains on the whole batch.

- `rlaxlib.softmax`: the policy,
- `rlaxlib.lambda_returns`: the targets of the values, cut at episode ends,
- `rlaxlib.popart`: the PopArt statistics, reduced over the axis,
- `rlaxlib.create_ema`: the moments of the advantages, reduced over the axis,
- `rlaxlib.normalize`: normalised targets,
- `rlaxlib.unnormalize_linear`: values in the scale of the rewards,
- `rlaxlib.policy_gradient_loss`: the loss of the policy,
- `rlaxlib.entropy_loss`: the entropy regularisation,
- `rlaxlib.l2_loss`: the loss of the values.

A CPU simulates any number of devices, which tests correctness, not speed. The
environment is gymnax's Catch, with rewards of 1000 for a catch and -1000 for a miss.
Expect at least +990 at the end, after about 15 seconds on two cores.

    python data_parallel.py --devices 4

Packages: flax, gymnax, optax, tqdm, tyro.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tyro
from flax import linen as nn
from jax.sharding import Mesh, PartitionSpec
from tqdm import trange

import rlaxlib

SAME, SPREAD = PartitionSpec(), PartitionSpec("data")


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings; each is a command-line flag."""

    seed: int = 0  # Seed of the network, actions and environments.
    output: str = "data_parallel.csv"  # File for the learning curve.
    devices: int = 4  # Number of devices, simulated on a CPU.
    environments: int = 64  # Number of environments on all devices.
    steps: int = 16  # Steps per environment and update.
    train_updates: int = 600  # Number of updates.
    report_interval: int = 30  # Updates between points of the curve.
    learning_rate: float = 3e-3  # Learning rate of Adam.
    discount: float = 0.99  # Discount factor.
    lambda_return: float = 0.9  # λ of the returns, in [0, 1].
    entropy_cost: float = 0.01  # Weight of the entropy loss.
    popart_step_size: float = 1e-4  # Step size of PopArt, per target.
    ema_decay: float = 0.99  # Decay of the moving averages, per update.
    reward_scale: float = 1000.0  # Reward of a catch.


SMALL = Config(devices=2, train_updates=20, report_interval=10)  # For tests.


class Trajectories(NamedTuple):
    """Trajectories of T steps in B environments."""

    observation: Any  # [B, T+1, ...]
    action: Any  # [B, T]
    reward: Any  # [B, T]
    discount: Any  # [B, T], 0 at terminal steps.


# --- Agent: network, loss and update. ---


class Network(nn.Module):
    """Logits of the policy, and a value normalised by PopArt."""

    @nn.compact
    def __call__(self, observation):
        x = observation.reshape(*observation.shape[:-2], -1)
        x = nn.relu(nn.Dense(64)(x))
        return nn.Dense(3)(x), nn.Dense(1, name="value")(x)


def loss(params, batch, advantage, target, config):
    """Return the loss of the trajectories of all devices."""
    logits, value = Network().apply({"params": params}, batch.observation[:, :-1])
    ones = jnp.ones_like(advantage)
    policy_loss = jax.vmap(rlaxlib.policy_gradient_loss)(
        logits, batch.action, advantage, ones
    )
    entropy_loss = jax.vmap(rlaxlib.entropy_loss)(logits, ones)
    value_loss = rlaxlib.l2_loss(value[..., 0], target)
    total = jnp.mean(policy_loss + config.entropy_cost * entropy_loss)
    # The gradient of a mean over devices is the same on all of them.
    return jax.lax.pmean(total + jnp.mean(value_loss), "data")


class Agent(NamedTuple):
    """An actor-critic with PopArt, the same on all devices."""

    params: Any
    opt_state: Any
    popart: rlaxlib.PopArtState
    advantages: rlaxlib.EmaState


def learn(agent, batch, config) -> Agent:
    """Update the statistics, then take one gradient step on trajectories."""
    _, value = Network().apply({"params": agent.params}, batch.observation)
    indices = jnp.zeros(value.shape[:-1], int)
    v = rlaxlib.unnormalize_linear(agent.popart, value, indices).unnormalized
    target = jax.vmap(rlaxlib.lambda_returns, (0, 0, 0, None))(
        *(batch.reward, config.discount * batch.discount, v[:, 1:]),
        config.lambda_return,
    )
    advantage = target - v[:, :-1]
    _, update_ema = rlaxlib.create_ema(config.ema_decay, "data")
    moments, advantages = update_ema(advantage, agent.advantages)
    advantage = advantage / jnp.sqrt(moments.variance + 1e-8)

    # The loss uses the updated statistics and the rescaled last layer.
    _, update_popart = make_popart(config, "data")
    indices = indices[:, 1:]
    layer, popart = update_popart(agent.params["value"], agent.popart, target, indices)
    params = {**agent.params, "value": layer}
    target = rlaxlib.normalize(popart, target, indices)

    grads = jax.grad(loss)(params, batch, advantage, target, config)
    updates, opt_state = make_optimizer(config).update(grads, agent.opt_state)
    return Agent(optax.apply_updates(params, updates), opt_state, popart, advantages)


def make_popart(config, axis=None):
    """Return the initial state and the update of PopArt."""
    return rlaxlib.popart(1, config.popart_step_size, 1e-4, 1e6, axis)


def make_optimizer(config):
    """Return the optimizer."""
    return optax.adam(config.learning_rate, eps=1e-5)


def make_agent(config) -> Agent:
    """Initialise the network, the optimizer and the statistics."""
    observation, _ = make_environment().reset(jax.random.key(0))
    params = Network().init(jax.random.key(config.seed), observation)["params"]
    initial_popart, _ = make_popart(config)
    initial_ema, _ = rlaxlib.create_ema(config.ema_decay)
    opt_state, ema = make_optimizer(config).init(params), initial_ema(jnp.zeros(()))
    return Agent(params, opt_state, initial_popart(), ema)


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


def act(agent, world, config) -> tuple[Trajectories, World]:
    """Take T steps in each environment."""

    def step(world, _):
        split = jax.vmap(lambda key: jax.random.split(key, 3), out_axes=1)
        keys, act_keys, step_keys = split(world.key)
        logits, _ = Network().apply({"params": agent.params}, world.observation)
        action = jax.vmap(rlaxlib.softmax().sample)(act_keys, logits)
        observation, state, reward, ended, *_ = jax.vmap(make_environment().step)(
            step_keys, world.state, action
        )
        steps = world.observation, action, config.reward_scale * reward, 1.0 - ended
        return World(state, observation, keys), steps

    world, steps = jax.lax.scan(step, world, length=config.steps)
    observation, *rest = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), steps)
    observation = jnp.concatenate([observation, world.observation[:, None]], axis=1)
    return Trajectories(observation, *rest), world


# --- Training. ---


def advance(agent, world, config):
    """Act and update repeatedly on each device; return the mean return of episodes."""

    def step(carry, _):
        agent, world = carry
        batch, world = act(agent, world, config)
        # Only the last step of an episode has a reward.
        sums = jnp.sum(batch.reward), jnp.sum(batch.discount == 0.0)
        return (learn(agent, batch, config), world), sums

    carry = agent, world
    (agent, world), sums = jax.lax.scan(step, carry, length=config.report_interval)
    rewards, episodes = (jax.lax.psum(jnp.sum(x), "data") for x in sums)
    return agent, world, rewards / episodes


def train(config: Config) -> list[tuple[int, float]]:
    """Train an agent; return the training returns over updates."""
    agent, world = make_agent(config), make_world(config)
    mesh = Mesh(np.asarray(jax.devices()[: config.devices]), ("data",))
    advance_on_all = jax.jit(
        jax.shard_map(
            functools.partial(advance, config=config),
            mesh=mesh,
            in_specs=(SAME, SPREAD),  # The agent is replicated, the world is sharded.
            out_specs=(SAME, SPREAD, SAME),
        )
    )
    reports, curve = config.train_updates // config.report_interval, []
    for number in (progress := trange(1, reports + 1)):
        agent, world, train_return = advance_on_all(agent, world)
        curve.append((number * config.report_interval, float(train_return)))
        progress.set_postfix_str(f"return {train_return:+.0f}")
    return curve


if __name__ == "__main__":
    config = tyro.cli(Config)
    jax.config.update("jax_num_cpu_devices", config.devices)
    rows, header = train(config), "update,training return"
    np.savetxt(config.output, rows, "%g", ",", header=header, comments="")
