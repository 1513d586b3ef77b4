"""Train an R2D2 agent on a memory task: a cue at the start, a choice many steps later.

The observation at the first step of an episode shows one of four cues, those that
follow are noise, and a flag marks the last step: there the action that matches the cue
returns +1, any other -1. A network without memory cannot do better than chance, -0.5.

R2D2 learns action values of a recurrent network from replayed sequences. A sequence is
stored with the recurrent state of the agent that played it, which older parameters
made. So the first steps of a sequence, the burn-in, only refresh the state, and have no
loss. Sequences overlap by the burn-in, and run across the ends of episodes, where the
state is reset. Their priorities mix the largest and the mean TD error.

- `rlaxlib.tree_select`: the reset of environments,
- `rlaxlib.epsilon_greedy`: the actions,
- `rlaxlib.apex_epsilons`: the exploration rates of the environments,
- `rlaxlib.dueling_q_values`: the output of the network,
- `rlaxlib.prioritized_probabilities`: the replay probabilities,
- `rlaxlib.stratified_sample`: the replayed sequences,
- `rlaxlib.importance_sampling_weights`: the weights of their losses,
- `rlaxlib.transformed_n_step_q_learning`: the TD errors, of rescaled values,
- `rlaxlib.l2_loss`: the loss,
- `rlaxlib.masked_mean`: its mean over the steps after the burn-in,
- `rlaxlib.sequence_priority`: the priorities of the replayed sequences,
- `rlaxlib.periodic_update`: the copies to the target network.

Expect at least +0.95 in the final evaluation, after about 30 seconds on two cores. With
`--no-memory`, the state is reset at each step.

    python r2d2.py --seed 1 --no-memory

Packages: flax, optax, tqdm, tyro.
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
from flax.training.train_state import TrainState
from tqdm import trange

import rlaxlib


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings; each is a command-line flag."""

    seed: int = 0  # Seed of the network, actions and environments.
    output: str = "r2d2.csv"  # File for the learning curve.
    memory: bool = True  # Whether the network keeps its state between steps.
    evaluations: int = 15  # Number of evaluations.
    iterations: int = 50  # Alternations of acting and updates between evaluations.
    eval_episodes: int = 256  # Episodes per evaluation, without exploration.
    episode_steps: int = 16  # Steps from the cue to the choice, both included.
    num_envs: int = 16  # Environments, each with its own exploration rate.
    num_steps: int = 24  # Steps of a sequence after the burn-in.
    burn_in: int = 8  # Steps that refresh the state of a replayed sequence.
    capacity: int = 2048  # Sequences in replay.
    batch_size: int = 32  # Sequences per update.
    num_updates: int = 2  # Updates after each sequence of all environments.
    target_period: int = 50  # Updates between copies to the target network.
    n: int = 5  # Steps of the n-step returns.
    learning_rate: float = 2e-3  # Learning rate of Adam.
    discount: float = 0.99  # Discount factor.
    priority_exponent: float = 0.9  # Exponent of the priorities.
    weight_exponent: float = 0.6  # Exponent of the importance-sampling weights.


SMALL = Config(
    evaluations=2, iterations=30, episode_steps=4, num_envs=8, capacity=512
)  # For tests.


class Sequences(NamedTuple):
    """Sequences of B environments, with the recurrent state before each step."""

    state: Any  # [B, T+1, H]; in replay, only the first one is kept: [B, H].
    observation: Any  # [B, T+1, ...]
    first: Any  # [B, T+1]: whether the step is the first of an episode.
    action: Any  # [B, T]
    reward: Any  # [B, T]
    discount: Any  # [B, T]: 0 at a terminal step.


# --- Agent: network, loss and update. B sequences, T steps, burn-in included. ---

NUM_CUES, HIDDEN = 4, 64  # There are as many actions as cues.


class Network(nn.Module):
    """A recurrent duelling network, for one step."""

    @nn.compact
    def __call__(self, state, observation, first):
        """Return the next state, [B, H], and action values, [B, A]."""
        state = jnp.where(first[:, None], 0.0, state)  # An episode begins.
        x = nn.relu(nn.Dense(HIDDEN)(observation))
        state, x = nn.GRUCell(HIDDEN)(state, x)
        value, advantages = nn.Dense(1)(x).squeeze(-1), nn.Dense(NUM_CUES)(x)
        return state, jax.vmap(rlaxlib.dueling_q_values)(value, advantages)


class Agent(TrainState):
    """An online network, its optimizer, and the parameters of a target network."""

    target_params: Any


def unroll(agent, params, batch):
    """Return the action values of sequences, [B, T+1, A]."""

    def step(state, inputs):
        return agent.apply_fn(params, state, *inputs)

    inputs = (jnp.swapaxes(x, 0, 1) for x in (batch.observation, batch.first))
    return jnp.swapaxes(jax.lax.scan(step, batch.state, tuple(inputs))[1], 0, 1)


def loss(params, agent, batch, weights, config):
    """Return the loss of sequences, and their new priorities."""
    q = unroll(agent, params, batch)
    target_q = unroll(agent, agent.target_params, batch)
    mask = jnp.arange(batch.reward.shape[1]) >= config.burn_in

    def errors(*inputs):
        td_error = rlaxlib.transformed_n_step_q_learning(
            *(*inputs, config.n),
            tx_pair=rlaxlib.SIGNED_HYPERBOLIC_PAIR,
            sample_mask=mask,
        )
        return td_error, rlaxlib.sequence_priority(td_error, sample_mask=mask)

    a_t = jnp.argmax(q[:, 1:], axis=-1)
    td_error, priorities = jax.vmap(errors)(
        q[:, :-1], batch.action, target_q[:, 1:], a_t, batch.reward, batch.discount
    )
    losses = weights[:, None] * rlaxlib.l2_loss(td_error)
    masks = jnp.broadcast_to(mask, losses.shape)
    return rlaxlib.masked_mean(losses, mask=masks), priorities


class Replay(NamedTuple):
    """A ring buffer of sequences; the newest replaces the oldest."""

    sequences: Sequences  # [N, ...]
    priorities: jax.Array  # [N], 0 where there is no sequence.
    added: jax.Array


def learn(agent, replay, key, config):
    """Update on a batch of replayed sequences; return the agent and the replay."""
    probabilities = rlaxlib.prioritized_probabilities(
        replay.priorities, config.priority_exponent
    )
    index = rlaxlib.stratified_sample(key, probabilities, config.batch_size)
    weights = rlaxlib.importance_sampling_weights(
        probabilities[index], config.weight_exponent
    )
    batch = jax.tree.map(lambda x: x[index], replay.sequences)
    grads, priorities = jax.grad(loss, has_aux=True)(
        agent.params, agent, batch, weights, config
    )
    agent = agent.apply_gradients(grads=grads)
    target_params = rlaxlib.periodic_update(
        agent.params, agent.target_params, agent.step, config.target_period
    )
    replay = replay._replace(priorities=replay.priorities.at[index].set(priorities))
    return agent.replace(target_params=target_params), replay


def add(replay, sequences) -> Replay:
    """Add sequences, with the largest priority so far, so that each is replayed."""
    size = len(sequences.reward)
    index = (replay.added + jnp.arange(size)) % len(replay.priorities)
    stored = jax.tree.map(lambda x, y: x.at[index].set(y), replay.sequences, sequences)
    priority = jnp.maximum(1.0, jnp.max(replay.priorities))
    priorities = replay.priorities.at[index].set(priority)
    return Replay(stored, priorities, replay.added + size)


# --- Environment: B episodes. ---


class World(NamedTuple):
    """The environments, and the recurrent states of the agent in them."""

    step: jax.Array  # From 0 to `episode_steps - 1`.
    cue: jax.Array
    state: jax.Array  # Of the network, [B, H].
    observation: jax.Array
    first: jax.Array


def begin(key, size, config) -> World:
    """Return the first step of episodes."""
    cue = jax.random.randint(key, (size,), 0, NUM_CUES)
    step, state = jnp.zeros(size, int), jnp.zeros((size, HIDDEN))
    return observe(World(step, cue, state, None, None), key, config)


def observe(world, key, config) -> World:
    """Show the cue at the first step, else noise; and a flag at the last step."""
    first, last = world.step == 0, world.step == config.episode_steps - 1
    noise = jax.random.normal(key, (len(first), NUM_CUES))
    shown = jnp.where(first[:, None], 2.0 * jax.nn.one_hot(world.cue, NUM_CUES), noise)
    observation = jnp.concatenate([shown, jnp.stack([first, last], axis=1)], axis=1)
    first = first if config.memory else jnp.ones_like(first)
    return world._replace(observation=observation, first=first)


def env_step(world, action, key, config):
    """Return the next step, of the next episode after the last; rewards, and ends."""
    last = world.step == config.episode_steps - 1
    reward = jnp.where(last, jnp.where(action == world.cue, 1.0, -1.0), 0.0)
    cue = jax.random.randint(key, last.shape, 0, NUM_CUES)
    step, cue = jax.vmap(rlaxlib.tree_select)(
        last, (jnp.zeros_like(cue), cue), (world.step + 1, world.cue)
    )
    world = observe(world._replace(step=step, cue=cue), key, config)
    return world, reward, last


# --- Agent and environment, compiled together. ---


def act(agent, world, key, steps, config, epsilons):
    """Play steps in all environments; return the environments and the steps."""

    def one(world, key):
        act_key, key = jax.random.split(key)
        state, q = agent.apply_fn(
            agent.params, world.state, world.observation, world.first
        )
        keys = jax.random.split(act_key, len(q))
        action = jax.vmap(rlaxlib.epsilon_greedy().sample)(keys, q, epsilons)
        new, reward, ended = env_step(world._replace(state=state), action, key, config)
        discount = config.discount * (1.0 - ended)
        return new, Sequences(*world[2:], action, reward, discount)

    world, played = jax.lax.scan(one, world, jax.random.split(key, steps))
    return world, jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), played)


def make_sequences(played, world) -> Sequences:
    """Return the sequences of steps that `world` follows, as they are stored."""

    def append(x, last):
        return jnp.concatenate([x, last[:, None]], axis=1)

    return played._replace(
        state=played.state[:, 0],
        observation=append(played.observation, world.observation),
        first=append(played.first, world.first),
    )


def iterate(carry, key, config):
    """Act in all environments, store the sequences, and update."""
    agent, replay, world, latest = carry
    act_key, key = jax.random.split(key)
    epsilons = rlaxlib.apex_epsilons(config.num_envs)
    world, played = act(agent, world, act_key, config.num_steps, config, epsilons)
    played = jax.tree.map(lambda *x: jnp.concatenate(x, axis=1), latest, played)
    replay = add(replay, make_sequences(played, world))
    latest = jax.tree.map(lambda x: x[:, config.num_steps :], played)

    def update(carry, key):
        return learn(*carry, key, config), None

    keys = jax.random.split(key, config.num_updates)
    (agent, replay), _ = jax.lax.scan(update, (agent, replay), keys)
    return agent, replay, world, latest


@functools.partial(jax.jit, static_argnames="config")
def improve(carry, key, config):
    """Alternate acting and updates; return the next state and the mean return."""
    keys = jax.random.split(key, config.iterations)
    carry, _ = jax.lax.scan(lambda x, key: (iterate(x, key, config), None), carry, keys)
    world = begin(key, config.eval_episodes, config)
    epsilons = jnp.zeros(config.eval_episodes)
    _, played = act(carry[0], world, key, config.episode_steps, config, epsilons)
    return carry, jnp.mean(jnp.sum(played.reward, axis=1))


@functools.partial(jax.jit, static_argnames="config")
def start(key, config):
    """Initialise the network and an empty replay, and play the first burn-in."""
    network_key, env_key, act_key = jax.random.split(key, 3)
    world = begin(env_key, config.num_envs, config)
    params = Network().init(network_key, *world[2:])
    adam = optax.adam(config.learning_rate)
    agent = Agent.create(
        apply_fn=Network().apply, params=params, tx=adam, target_params=params
    )
    epsilons = rlaxlib.apex_epsilons(config.num_envs)
    length = config.burn_in + config.num_steps
    _, played = act(agent, world, act_key, length, config, epsilons)
    empty = jax.tree.map(
        lambda x: jnp.zeros((config.capacity, *x.shape[1:]), x.dtype),
        make_sequences(played, world),
    )
    replay = Replay(empty, jnp.zeros(config.capacity), jnp.int32(0))
    world, latest = act(agent, world, act_key, config.burn_in, config, epsilons)
    return agent, replay, world, latest


def train(config: Config) -> list[tuple[int, float]]:
    """Train an agent; return the evaluation returns over environment steps."""
    start_key, key = jax.random.split(jax.random.key(config.seed))
    carry, curve = start(start_key, config), []
    for number in (progress := trange(1, config.evaluations + 1)):
        carry, eval_return = improve(carry, jax.random.fold_in(key, number), config)
        steps = number * config.iterations * config.num_envs * config.num_steps
        curve.append((steps, float(eval_return)))
        progress.set_postfix_str(f"return {eval_return:+.2f}")
    return curve


if __name__ == "__main__":
    config = tyro.cli(Config)
    rows, header = train(config), "step,evaluation return"
    np.savetxt(config.output, rows, "%g", ",", header=header, comments="")
