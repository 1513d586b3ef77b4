"""Learn on many devices what one would, with the environments spread over them.

Every device steps environments of its own, and takes the gradient on what they return.
What must know of all of them is reduced over the axis that the devices form, by its
name: the gradients, the statistics of PopArt, and the moving averages that advantages
are scaled by. The rest of the agent need not know how many devices there are. Then the
agent is the same on all of them, and, to rounding, the one that a single device makes
of the whole batch: `--compare=8` shows by how much they differ.

    rlaxlib.softmax                the policy,
    rlaxlib.lambda_returns         returns, cut where episodes end,
    rlaxlib.popart                 learns values of any size; takes the axis, as does
    rlaxlib.create_ema             which follows the scale of advantages,
    rlaxlib.normalize              puts returns in terms of these statistics, and
    rlaxlib.unnormalize_linear     values in terms of rewards,
    rlaxlib.policy_gradient_loss   what the policy learns,
    rlaxlib.entropy_loss           which keeps it from certainty,
    rlaxlib.l2_loss                what the values learn.

There are two ways to spread the work. `jax.shard_map` over a mesh is today's: arrays
stay whole, and a specification says which axis of them is spread. `jax.pmap` is what
older code has: arrays have an axis for the devices, which `replicate`, `shard_batch`
and `unreplicate` in `common/devices.py` add and take off. A CPU is made to look like as
many devices as one likes, which shows that a program is right, not that it is fast.

The environment is gymnax's Catch, with rewards of 1000 for a catch and -1000 for a
miss. Expect about +1000 at the end, after about 30 seconds on two cores.

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
    """Everything there is to choose."""

    seed: int = flag(0, "Seed of the network, the actions and the environments.")
    output: str = flag("results/data_parallel", "Folder for the learning curve.")
    devices: int = flag(4, "Devices to learn on; a CPU is made to look like so many.")
    method: str = flag("shard_map", "How to use them: `shard_map` or `pmap`.")
    compare: int = flag(0, "Compare 1, 2, 4, ... devices at first, up to so many.")
    environments: int = flag(64, "Environments, on all devices together.")
    steps: int = flag(16, "Steps in each environment between two updates.")
    train_updates: int = flag(600, "Updates to learn from.")
    report_interval: int = flag(30, "Updates between two points of the curve.")
    hidden_units: int = flag(64, "Units of the network's only hidden layer.")
    learning_rate: float = flag(3e-3, "Step size of Adam.")
    discount: float = flag(0.99, "What a reward is worth one step before it comes.")
    lambda_: float = flag(0.9, "How far returns reach before they trust the values.")
    entropy_cost: float = flag(0.01, "Weight of the entropy.")
    popart_step_size: float = flag(1e-4, "Step size of PopArt, for one target.")
    ema_decay: float = flag(0.99, "Decay of the moving averages, for one update.")
    reward_scale: float = flag(1000.0, "What a catch is worth.")


class Evaluation(NamedTuple):
    """One point of the learning curve."""

    update: int
    train_return: float  # Of episodes since the point before, as the agent explores.


class Trajectories(NamedTuple):
    """What B environments returned in T steps."""

    observations: Any  # [B, T+1, ...]
    actions: Any  # [B, T]
    rewards: Any  # [B, T]
    discounts: Any  # [B, T], 0 after the last step of an episode.


class Actors(NamedTuple):
    """B environments, each with randomness of its own, wherever it is."""

    states: Any
    observations: Any
    keys: Any


# --- The agent, which knows the axis by its name, and no more. ---


class Network(nn.Module):
    """Logits of the actions, and a value that PopArt normalises."""

    hidden_units: int

    @nn.compact
    def __call__(self, observations):
        x = observations.reshape(*observations.shape[:-2], -1)
        x = nn.relu(nn.Dense(self.hidden_units)(x))
        logits = nn.Dense(make_environment().num_actions)(x)
        return logits, nn.Dense(1, name="value")(x)


class Agent(struct.PyTreeNode):
    """An actor-critic."""

    network: TrainState
    popart: rlaxlib.PopArtState
    advantages: rlaxlib.EmaState
    config: Config = struct.field(pytree_node=False)

    def sample_actions(self, observations, *, seed):
        """Draw an action in each environment, from keys of their own."""
        logits, _ = self.network(observations)
        return jax.vmap(rlaxlib.softmax().sample)(seed, logits)

    def update(self, batch, axis=None):
        """Learn from the trajectories here and, over an axis, on other devices."""
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

        # First new statistics, then a loss in their terms, on the popped parameters.
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
                # The return of an episode is its last reward.
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
    """Return the two functions of PopArt."""
    return rlaxlib.popart(1, config.popart_step_size, 1e-4, 1e6, axis)


def make_agent(config) -> Agent:
    """Initialise the network, its optimizer, and the statistics."""
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


# --- The environments, as many as a device has. ---


@functools.cache
def make_environment():
    """Import the environment, which starts JAX: how many devices is settled then."""
    from gymnax.environments.bsuite.catch import Catch  # noqa: PLC0415

    return Catch()


def make_actors(config) -> Actors:
    """Reset all environments."""
    keys = jax.random.split(jax.random.key(config.seed + 1), config.environments)
    observations, states = jax.vmap(make_environment().reset)(keys)
    return Actors(states, observations, keys)


def act(agent, actors) -> tuple[Trajectories, Actors]:
    """Take steps in each environment."""

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
    """Act and learn a number of times; return the mean of what there is to know."""

    def one(carry, _):
        agent, actors = carry
        batch, actors = act(agent, actors)
        agent, info = agent.update(batch, axis)
        return (agent, actors), info

    (agent, actors), info = jax.lax.scan(one, (agent, actors), length=updates)
    return agent, actors, jax.tree.map(jnp.mean, info)


# --- Two ways to spread them over devices. ---


def shard(function, mesh, in_specs, out_specs):
    """Compile a function that takes an axis, for a mesh; `spread` says the rest."""
    mapped = jax.shard_map(
        functools.partial(function, axis="data"),
        mesh=mesh,
        in_specs=in_specs,
        out_specs=out_specs,
    )
    shardings = tuple(NamedSharding(mesh, spec) for spec in in_specs)
    return jax.jit(mapped, in_shardings=shardings)


def spread(function, num_devices, method, in_specs, out_specs):
    """Compile a function that takes an axis, to run on several devices.

    Args:
        function: Function of trees, and of the name of the axis.
        num_devices: How many.
        method: `shard_map` or `pmap`.
        in_specs: Of each argument, whether it is the `SAME` on all devices, or
            `SPREAD` over them along its first axis.
        out_specs: The same of each result.

    Returns:
        A function of whole trees, that returns whole trees.
    """
    if method == "shard_map":
        mesh = Mesh(np.asarray(jax.devices()[:num_devices]), ("data",))
        return shard(function, mesh, in_specs, out_specs)
    if method != "pmap":
        raise ValueError(f"There is no method {method!r}.")
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


# --- The agent meets its environments, and itself on other devices. ---


def compare(config) -> dict[tuple[str, int], float]:
    """Update once on one device and on several, and say how far apart they end up.

    Returns:
        For each way and number of devices, the largest difference of an array in the
        agent, relative to the largest number in it.
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
    """Train an agent, and return its learning curve."""
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
    curves.report(train(config), "Actor-critic on many devices", config.output)


if __name__ == "__main__":
    run(main, Config)
