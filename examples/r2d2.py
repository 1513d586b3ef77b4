"""Train an R2D2 agent on the memory chain of bsuite, where it has to remember a cue.

An episode begins with a cue of -1 or 1. The action 15 steps later returns +1 if it
matches the cue, else -1. An agent without memory averages 0.

R2D2 learns action values of a recurrent network from replayed sequences, which start
from the state that older parameters made. So their first steps, the burn-in, only
refresh the state. They overlap by the burn-in, and run across the ends of episodes.

- `rlaxlib.epsilon_greedy`, `rlaxlib.apex_epsilons`: the exploration,
- `rlaxlib.dueling_q_values`: the output of the network,
- `rlaxlib.prioritized_probabilities`: the replay probabilities,
- `rlaxlib.stratified_sample`: the replayed sequences,
- `rlaxlib.importance_sampling_weights`: the weights of their losses,
- `rlaxlib.transformed_n_step_q_learning`: the TD errors, of rescaled values,
- `rlaxlib.l2_loss`, `rlaxlib.masked_mean`: the loss of the steps after the burn-in,
- `rlaxlib.sequence_priority`: the priorities of the replayed sequences,
- `rlaxlib.periodic_update`: the copies to the target network.

Expect at least +0.95 in the final evaluation, after about 30 seconds on two cores.

    python r2d2.py --seed 1 --memory-length 30

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
from flax.training.train_state import TrainState
from gymnax.environments.bsuite.memory_chain import EnvParams, MemoryChain
from tqdm import trange

import rlaxlib


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings; each is a command-line flag."""

    seed: int = 0  # Seed of the network, actions and environments.
    output: str = "r2d2.csv"  # File for the learning curve.
    evaluations: int = 15  # Number of evaluations.
    iterations: int = 50  # Alternations of acting and updates between evaluations.
    eval_episodes: int = 256  # Episodes per evaluation, without exploration.
    memory_length: int = 15  # Steps from the cue to the choice.
    num_envs: int = 16  # Environments, each with its own exploration rate.
    num_steps: int = 24  # Steps of a sequence after the burn-in.
    burn_in: int = 8  # Steps that refresh the state of a replayed sequence.
    capacity: int = 2048  # Sequences in replay.
    batch_size: int = 64  # Sequences per update, one for each `num_steps` steps.
    target_period: int = 50  # Updates between copies to the target network.
    n: int = 5  # Steps of the n-step returns.
    learning_rate: float = 2e-3  # Learning rate of Adam.
    discount: float = 0.99  # Discount factor.


# Takes seconds, for tests.
SMALL = Config(evaluations=2, iterations=10, memory_length=3, num_envs=8, capacity=512)


class Sequences(NamedTuple):
    """Sequences of T + 1 steps in B environments."""

    state: Any  # Recurrent, before each step; in replay, only the first: [B, H].
    observation: Any  # [B, T+1, ...]
    first: Any  # [B, T+1]: whether the step is the first of an episode.
    action: Any  # [B, T+1]
    reward: Any  # [B, T+1]
    discount: Any  # [B, T+1]: 0 at a terminal step.


# --- Agent: network, loss and update. B sequences, T steps, burn-in included. ---

NUM_ACTIONS, HIDDEN = 2, 64


class Network(nn.Module):
    """A recurrent duelling network, for one step."""

    @nn.compact
    def __call__(self, state, observation, first):
        """Return the next state, [B, H], and action values, [B, A]."""
        state = jnp.where(first[:, None], 0.0, state)  # An episode begins.
        x = nn.relu(nn.Dense(HIDDEN)(observation))
        state, x = nn.GRUCell(HIDDEN)(state, x)
        value, advantages = nn.Dense(1)(x).squeeze(-1), nn.Dense(NUM_ACTIONS)(x)
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
    mask = jnp.arange(q.shape[1] - 1) >= config.burn_in

    def errors(q, target_q, a, r, discount):
        td_error = rlaxlib.transformed_n_step_q_learning(
            *(q[:-1], a[:-1], target_q[1:], jnp.argmax(q[1:], axis=-1)),
            *(r[:-1], discount[:-1], config.n),
            tx_pair=rlaxlib.SIGNED_HYPERBOLIC_PAIR,
            sample_mask=mask,
        )
        return td_error, rlaxlib.sequence_priority(td_error, sample_mask=mask)

    steps = batch.action, batch.reward, batch.discount
    td_error, priorities = jax.vmap(errors)(q, target_q, *steps)
    losses = weights[:, None] * rlaxlib.l2_loss(td_error)
    masks = jnp.broadcast_to(mask, losses.shape)
    return rlaxlib.masked_mean(losses, mask=masks), priorities


class Replay(NamedTuple):
    """The newest N sequences, and their priorities: 0 where there is no sequence."""

    sequences: Sequences
    priorities: jax.Array


def learn(agent, replay, key, config):
    """Update on a batch of replayed sequences; return the agent and the replay."""
    probabilities = rlaxlib.prioritized_probabilities(replay.priorities, 0.9)
    index = rlaxlib.stratified_sample(key, probabilities, config.batch_size)
    weights = rlaxlib.importance_sampling_weights(probabilities[index], 0.6)
    batch = jax.tree.map(lambda x: x[index], replay.sequences)
    grad = jax.grad(loss, has_aux=True)
    grads, priorities = grad(agent.params, agent, batch, weights, config)
    agent = agent.apply_gradients(grads=grads)
    target_params = rlaxlib.periodic_update(
        agent.params, agent.target_params, agent.step, config.target_period
    )
    replay = replay._replace(priorities=replay.priorities.at[index].set(priorities))
    return agent.replace(target_params=target_params), replay


def add(replay, sequences) -> Replay:
    """Add sequences, with the largest priority so far, so that each is replayed."""
    priority = jnp.maximum(1.0, jnp.max(replay.priorities))
    new = Replay(sequences, jnp.full(len(sequences.reward), priority))
    return jax.tree.map(lambda *x: jnp.concatenate(x)[len(x[1]) :], replay, new)


# --- Agent and environment, compiled together. ---

ENVIRONMENT = MemoryChain()


def begin(key, size, config):
    """Return recurrent states, observations, environments, and that episodes begin."""
    reset, params = ENVIRONMENT.reset, EnvParams(memory_length=config.memory_length)
    world = jax.vmap(reset, (0, None))(jax.random.split(key, size), params)
    return jnp.zeros((size, HIDDEN)), *world, jnp.ones(size, bool)


def act(agent, world, key, steps, config, epsilons):
    """Play steps in all environments; return the environments and the steps."""
    params = EnvParams(memory_length=config.memory_length)

    def one(world, key):
        state, observation, env_state, first = world
        keys, step_keys = jax.random.split(key, (2, len(first)))
        after, q = agent.apply_fn(agent.params, state, observation, first)
        action = jax.vmap(rlaxlib.epsilon_greedy().sample)(keys, q, epsilons)
        step = jax.vmap(ENVIRONMENT.step, (0, 0, 0, None))
        new, env_state, reward, ended, *_ = step(step_keys, env_state, action, params)
        discount = config.discount * (1.0 - ended)
        played = Sequences(state, observation, first, action, reward, discount)
        return (after, new, env_state, ended), played

    world, played = jax.lax.scan(one, world, jax.random.split(key, steps))
    return world, jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), played)


def iterate(carry, key, config):
    """Act in all environments, store the sequences, and update."""
    agent, replay, world, latest = carry
    act_key, key = jax.random.split(key)
    epsilons = rlaxlib.apex_epsilons(config.num_envs)
    world, played = act(agent, world, act_key, config.num_steps, config, epsilons)
    played = jax.tree.map(lambda *x: jnp.concatenate(x, axis=1), latest, played)
    replay = add(replay, played._replace(state=played.state[:, 0]))
    latest = jax.tree.map(lambda x: x[:, config.num_steps :], played)
    return *learn(agent, replay, key, config), world, latest


@functools.partial(jax.jit, static_argnames="config")
def improve(carry, key, config):
    """Alternate acting and updates; return the next state and the mean return."""
    keys = jax.random.split(key, config.iterations)
    carry, _ = jax.lax.scan(lambda x, key: (iterate(x, key, config), None), carry, keys)
    world = begin(key, config.eval_episodes, config)
    epsilons, steps = jnp.zeros(config.eval_episodes), config.memory_length + 1
    _, played = act(carry[0], world, key, steps, config, epsilons)
    return carry, jnp.mean(jnp.sum(played.reward, axis=1))


@functools.partial(jax.jit, static_argnames="config")
def start(key, config):
    """Initialise network, replay and environments, and play the first burn-in."""
    world, adam = begin(key, config.num_envs, config), optax.adam(config.learning_rate)
    (state, observation, _, first), apply = world, Network().apply
    params = Network().init(key, state, observation, first)
    agent = Agent.create(apply_fn=apply, params=params, tx=adam, target_params=params)
    epsilons, steps = rlaxlib.apex_epsilons(config.num_envs), config.burn_in + 1
    world, latest = act(agent, world, key, steps, config, epsilons)
    shape = config.capacity, steps + config.num_steps
    empty = jax.tree.map(lambda x: jnp.zeros((*shape, *x.shape[2:]), x.dtype), latest)
    empty = empty._replace(state=empty.state[:, 0])
    return agent, Replay(empty, jnp.zeros(config.capacity)), world, latest


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
