"""Train an actor-critic on Catch, data-parallel over devices.

Each device steps its own environments and computes the gradient on their trajectories.
Quantities that depend on the whole batch are reduced over the mapped axis by its name:
the gradients, the PopArt statistics, and the moving averages that scale the advantages.
All devices hold the same agent, and up to rounding it equals the agent that one device
trains on the whole batch. `--compare=8` prints the differences.

- `rlaxlib.softmax`: the policy,
- `rlaxlib.lambda_returns`: the targets of the values, cut at episode ends,
- `rlaxlib.popart`: the PopArt statistics, reduced over the axis,
- `rlaxlib.create_ema`: the moments of the advantages, reduced over the axis,
- `rlaxlib.normalize`: normalised targets,
- `rlaxlib.unnormalize_linear`: values in the scale of the rewards,
- `rlaxlib.policy_gradient_loss`: the loss of the policy,
- `rlaxlib.entropy_loss`: the entropy regularisation,
- `rlaxlib.l2_loss`: the loss of the values.

There are two methods. `jax.shard_map` over a mesh is the recommended one: arrays stay
whole, and a specification names the axis that is sharded. `jax.pmap` is found in older
code: arrays have a leading axis of devices, which `replicate`, `shard_batch` and
`unreplicate` in `common/devices.py` add and remove. A CPU can simulate any number of
devices, which tests correctness, not speed.

The environment is gymnax's Catch, with rewards of 1000 for a catch and -1000 for a
miss. Expect a return of about +1000 at the end, after about 15 seconds on two cores,
imports and compilation included.

    python examples/data_parallel.py --devices=4 --method=pmap
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from common import curves
from common.devices import replicate, shard_batch, unreplicate, unshard_batch
from common.flags import flag, run
from common.train_state import TrainState
from flax import linen as nn
from flax import struct
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tqdm import tqdm

import rlaxlib

SAME, SPREAD = PartitionSpec(), PartitionSpec("data")


@dataclasses.dataclass(frozen=True)
class Config:
    """Configuration; each field is a command-line flag."""

    seed: int = flag(0, "Seed of the network, actions and environments.")
    output: str = flag("results/data_parallel", "Folder for the learning curve.")
    devices: int = flag(4, "Number of devices, simulated on a CPU.")
    method: str = flag("shard_map", "`shard_map` or `pmap`.")
    compare: int = flag(0, "Compare 1, 2, 4, ... devices first, up to this number.")
    environments: int = flag(64, "Number of environments on all devices.")
    steps: int = flag(16, "Steps per environment and update.")
    train_updates: int = flag(600, "Number of updates.")
    report_interval: int = flag(30, "Updates between points of the curve.")
    hidden_units: int = flag(64, "Units of the hidden layer.")
    learning_rate: float = flag(3e-3, "Learning rate of Adam.")
    discount: float = flag(0.99, "Discount factor.")
    lambda_: float = flag(0.9, "λ of the returns, in [0, 1].")
    entropy_cost: float = flag(0.01, "Weight of the entropy loss.")
    popart_step_size: float = flag(1e-4, "Step size of PopArt, per target.")
    ema_decay: float = flag(0.99, "Decay of the moving averages, per update.")
    reward_scale: float = flag(1000.0, "Reward of a catch.")


class Evaluation(NamedTuple):
    """One point of the learning curve."""

    update: int
    train_return: float  # Mean over training episodes since the last point.


class Trajectories(NamedTuple):
    """Trajectories of T steps in B environments."""

    observations: Any  # [B, T+1, ...]
    actions: Any  # [B, T]
    rewards: Any  # [B, T]
    discounts: Any  # [B, T], 0 at terminal steps.


class Actors(NamedTuple):
    """B environments, each with its own key, so that devices do not matter."""

    states: Any
    observations: Any
    keys: Any


# --- Agent. ---


class Network(nn.Module):
    """Logits of the policy, and a value normalised by PopArt."""

    hidden_units: int

    @nn.compact
    def __call__(self, observations):
        x = observations.reshape(*observations.shape[:-2], -1)
        x = nn.relu(nn.Dense(self.hidden_units)(x))
        logits = nn.Dense(make_environment().num_actions)(x)
        return logits, nn.Dense(1, name="value")(x)


class Agent(struct.PyTreeNode):
    """An actor-critic with PopArt, which depends on devices by the axis name only."""

    network: TrainState
    popart: rlaxlib.PopArtState
    advantages: rlaxlib.EmaState
    config: Config = struct.field(pytree_node=False)

    def sample_actions(self, observations, *, seed):
        """Sample an action in each environment, with one key each."""
        logits, _ = self.network(observations)
        return jax.vmap(rlaxlib.softmax().sample)(seed, logits)

    def update(self, batch, axis=None):
        """Take one gradient step on trajectories; `axis` is the mapped axis name."""
        config = self.config
        _, popart_update = make_popart(config, axis)
        _, ema_update = rlaxlib.create_ema(config.ema_decay, axis)

        _, outputs = self.network(batch.observations)
        indices = jnp.zeros(outputs.shape[:-1], int)
        v = rlaxlib.unnormalize_linear(self.popart, outputs, indices).unnormalized
        targets = jax.vmap(rlaxlib.lambda_returns, (0, 0, 0, None))(
            batch.rewards, config.discount * batch.discounts, v[:, 1:], config.lambda_
        )
        advantages = targets - v[:, :-1]
        moments, ema = ema_update(advantages, self.advantages)
        advantages = advantages / jnp.sqrt(moments.variance + 1e-8)

        # The loss uses the updated statistics and the rescaled last layer.
        params = self.network.params
        value, popart = popart_update(
            params["value"], self.popart, targets, indices[:, 1:]
        )
        network = self.network.replace(params={**params, "value": value})
        targets = rlaxlib.normalize(popart, targets, indices[:, 1:])

        def loss(params):
            logits, outputs = network(batch.observations[:, :-1], params=params)
            ones = jnp.ones_like(advantages)
            policy_loss = jax.vmap(rlaxlib.policy_gradient_loss)(
                logits, batch.actions, advantages, ones
            )
            entropy_loss = jax.vmap(rlaxlib.entropy_loss)(logits, ones)
            value_loss = rlaxlib.l2_loss(outputs[..., 0], targets)
            info = {
                "policy_loss": jnp.mean(policy_loss),
                "entropy_loss": jnp.mean(entropy_loss),
                "value_loss": jnp.mean(value_loss),
                # Only the last step has a reward: return = reward / episodes.
                "reward": jnp.mean(batch.rewards),
                "episodes": jnp.mean(batch.discounts == 0),
            }
            total = info["policy_loss"] + info["value_loss"]
            return total + config.entropy_cost * info["entropy_loss"], info

        network, info = network.apply_loss_fn(
            loss_fn=loss, has_aux=True, pmap_axis=axis
        )
        return self.replace(network=network, popart=popart, advantages=ema), info


def make_popart(config, axis=None):
    """Return the initial state and the update of PopArt."""
    return rlaxlib.popart(1, config.popart_step_size, 1e-4, 1e6, axis)


def make_agent(config) -> Agent:
    """Initialise the network, the optimizer and the statistics."""
    network = Network(config.hidden_units)
    observation, _ = make_environment().reset(jax.random.key(0))
    params = network.init(jax.random.key(config.seed), observation)["params"]
    tx = optax.adam(config.learning_rate, eps=1e-5)
    initial_popart, _ = make_popart(config)
    initial_ema, _ = rlaxlib.create_ema(config.ema_decay)
    return Agent(
        TrainState.create(network, params, tx),
        initial_popart(),
        initial_ema(jnp.zeros(())),
        config,
    )


# --- Environments. ---


@functools.cache
def make_environment():
    """Import gymnax late, because it initialises JAX and so fixes the devices."""
    from gymnax.environments.bsuite.catch import Catch  # noqa: PLC0415 - See above.

    return Catch()


def make_actors(config) -> Actors:
    """Reset all environments."""
    keys = jax.random.split(jax.random.key(config.seed + 1), config.environments)
    observations, states = jax.vmap(make_environment().reset)(keys)
    return Actors(states, observations, keys)


def act(agent, actors) -> tuple[Trajectories, Actors]:
    """Take T steps in each environment."""

    def one(actors, _):
        keys, act_keys, step_keys = jax.vmap(
            lambda key: jax.random.split(key, 3), out_axes=1
        )(actors.keys)
        actions = agent.sample_actions(actors.observations, seed=act_keys)
        observations, states, rewards, ended, *_ = jax.vmap(make_environment().step)(
            step_keys, actors.states, actions
        )
        rewards = agent.config.reward_scale * rewards
        step = actors.observations, actions, rewards, 1.0 - ended
        return Actors(states, observations, keys), step

    actors, steps = jax.lax.scan(one, actors, length=agent.config.steps)
    steps = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), steps)  # [B, T, ...]
    observations, *rest = steps
    last = actors.observations[:, None]
    return Trajectories(jnp.concatenate([observations, last], 1), *rest), actors


def advance(agent, actors, updates, axis=None):
    """Act and update repeatedly; return the agent, the actors and mean metrics."""

    def one(carry, _):
        agent, actors = carry
        batch, actors = act(agent, actors)
        agent, info = agent.update(batch, axis)
        return (agent, actors), info

    (agent, actors), info = jax.lax.scan(one, (agent, actors), length=updates)
    return agent, actors, jax.tree.map(jnp.mean, info)


# --- Parallelism. ---


def shard(function, mesh, in_specs, out_specs):
    """Compile a function with an `axis` argument for a mesh, by `jax.shard_map`."""
    mapped = jax.shard_map(
        functools.partial(function, axis="data"),
        mesh=mesh,
        in_specs=in_specs,
        out_specs=out_specs,
    )
    shardings = tuple(NamedSharding(mesh, spec) for spec in in_specs)
    return jax.jit(mapped, in_shardings=shardings)


def spread(function, num_devices, method, in_specs, out_specs):
    """Compile a function with an `axis` argument to run on several devices.

    Args:
        function: Function of trees, with the axis name as `axis`.
        num_devices: Number of devices.
        method: `shard_map` or `pmap`.
        in_specs: For each argument, `SAME` if it is replicated, or `SPREAD` if its
            first axis is sharded over devices.
        out_specs: The same for each result.

    Returns:
        A function that takes and returns whole trees.
    """
    if method == "shard_map":
        mesh = Mesh(np.asarray(jax.devices()[:num_devices]), ("data",))
        return shard(function, mesh, in_specs, out_specs)
    if method != "pmap":
        raise ValueError(f"`method` is {method!r}, must be 'shard_map' or 'pmap'.")
    mapped = jax.pmap(
        functools.partial(function, axis="data"),
        "data",
        devices=jax.devices()[:num_devices],
    )

    def call(*args):
        args = [
            (replicate if spec == SAME else shard_batch)(arg, num_devices)
            for arg, spec in zip(args, in_specs, strict=True)
        ]
        return tuple(
            (unreplicate if spec == SAME else unshard_batch)(result)
            for result, spec in zip(mapped(*args), out_specs, strict=True)
        )

    return call


# --- Training and comparison. ---


def compare(config) -> dict[tuple[str, int], float]:
    """Compare one update on several devices with the update on one device.

    Returns:
        For each method and number of devices, the largest difference in an array of the
        agent, relative to the largest magnitude in that array.
    """
    agent = make_agent(config)
    batch, _ = jax.jit(act)(agent, make_actors(config))
    whole, _ = jax.jit(Agent.update)(agent, batch)

    def difference(x, y):
        return float(jnp.max(jnp.abs(x - y)) / jnp.maximum(jnp.max(jnp.abs(y)), 1e-8))

    differences = {}
    for method in ("shard_map", "pmap"):
        for num_devices in (2**i for i in range(config.compare.bit_length())):
            specs = (SAME, SPREAD), (SAME, SAME)
            update = spread(Agent.update, num_devices, method, *specs)
            parts, _ = update(agent, batch)
            differences[method, num_devices] = max(
                jax.tree.leaves(jax.tree.map(difference, parts, whole))
            )
    return differences


def train(config: Config) -> list[Evaluation]:
    """Train an agent and return its learning curve."""
    agent, actors = make_agent(config), make_actors(config)
    specs = (SAME, SPREAD), (SAME, SPREAD, SAME)
    advance_on_all = spread(
        functools.partial(advance, updates=config.report_interval),
        config.devices,
        config.method,
        *specs,
    )
    curve = []
    with tqdm(total=config.train_updates, unit="update") as progress:
        while progress.n < config.train_updates:
            agent, actors, info = advance_on_all(agent, actors)
            progress.update(config.report_interval)
            train_return = float(info["reward"] / info["episodes"])
            curve.append(Evaluation(progress.n, train_return))
            progress.set_postfix_str(f"return {train_return:+.0f}", refresh=False)
    return curve


def main(config):
    jax.config.update("jax_num_cpu_devices", max(config.devices, config.compare))
    if config.compare:
        print("Largest relative difference from one device, after an update:")
        for (method, num_devices), difference in compare(config).items():
            print(f"{method:>9} on {num_devices}: {difference:.1e}")
    curves.report(train(config), "Data-parallel actor-critic on Catch", config.output)


if __name__ == "__main__":
    run(main, Config)
