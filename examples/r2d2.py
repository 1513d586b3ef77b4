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

Expect more than +0.95 in the final evaluation, after about 40 seconds on two cores,
imports and compilation included. With `--memory=False`, the state is reset at each
step.

    python examples/r2d2.py --seed=1 --memory=False
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from common import curves, loops
from common.flags import flag, run
from common.train_state import TrainState
from flax import linen as nn
from flax import struct

import rlaxlib


@dataclasses.dataclass(frozen=True)
class Config:
    """Configuration; each field is a command-line flag."""

    seed: int = flag(0, "Seed of the network, actions and environments.")
    output: str = flag("results/r2d2", "Folder for the learning curve.")
    evaluations: int = flag(15, "Evaluations, in addition to the initial one.")
    iterations: int = flag(50, "Alternations of acting and updates per evaluation.")
    eval_episodes: int = flag(256, "Episodes per evaluation, without exploration.")
    episode_steps: int = flag(16, "Steps from the cue to the choice, both included.")
    num_envs: int = flag(16, "Environments, each with its own exploration rate.")
    num_steps: int = flag(24, "Steps of a sequence after the burn-in.")
    burn_in: int = flag(8, "Steps that refresh the state of a replayed sequence.")
    capacity: int = flag(2048, "Sequences in replay.")
    batch_size: int = flag(32, "Sequences per update.")
    num_updates: int = flag(2, "Updates after each sequence of all environments.")
    target_period: int = flag(50, "Updates between copies to the target network.")
    n: int = flag(5, "Steps of the n-step returns.")
    hidden_units: int = flag(64, "Units of the recurrent layer.")
    learning_rate: float = flag(2e-3, "Learning rate of Adam.")
    discount: float = flag(0.99, "Discount factor.")
    priority_exponent: float = flag(0.9, "Exponent of the priorities.")
    weight_exponent: float = flag(0.6, "Exponent of the importance-sampling weights.")
    memory: bool = flag(True, "Whether the network keeps its state between steps.")


# --- Environment. ---

NUM_CUES = 4  # And as many actions.


class EnvState(NamedTuple):
    """State of an environment."""

    step: Any  # From 0 to `episode_steps - 1`.
    cue: Any


def reset(key):
    """Return the first state of an episode."""
    return EnvState(jnp.int32(0), jax.random.randint(key, (), 0, NUM_CUES))


def observe(state, key, episode_steps):
    """Return the cue at the first step, else noise; and a flag at the last step."""
    noise = jax.random.normal(key, (NUM_CUES,))
    shown = jnp.where(state.step == 0, 2.0 * jax.nn.one_hot(state.cue, NUM_CUES), noise)
    flags = jnp.stack([state.step == 0, state.step == episode_steps - 1])
    return jnp.concatenate([shown, flags])


def step(state, action, key, episode_steps):
    """Return the next state, of the next episode after the last step; and a reward."""
    last = state.step == episode_steps - 1
    reward = jnp.where(last, jnp.where(action == state.cue, 1.0, -1.0), 0.0)
    state = rlaxlib.tree_select(last, reset(key), EnvState(state.step + 1, state.cue))
    return state, reward, last


# --- Agent. B environments or sequences, T steps, burn-in included. ---


class Network(nn.Module):
    """A recurrent duelling network."""

    hidden_units: int

    def initial_state(self, size):
        """Return the state before the first step of an episode, [B, H]."""
        return jnp.zeros((size, self.hidden_units))

    @nn.compact
    def __call__(self, state, observations):
        """Return the next state, [B, H], and action values, [B, A], of one step."""
        x = nn.relu(nn.Dense(self.hidden_units)(observations))
        state, x = nn.GRUCell(self.hidden_units)(state, x)
        value, advantages = nn.Dense(1)(x).squeeze(-1), nn.Dense(NUM_CUES)(x)
        return state, jax.vmap(rlaxlib.dueling_q_values)(value, advantages)


class Steps(NamedTuple):
    """Steps of all environments, [B, T, ...]."""

    state: Any  # Of the network, before the step.
    observation: Any
    first: Any  # Whether the step is the first of an episode.
    action: Any
    reward: Any
    discount: Any


class Sequences(NamedTuple):
    """Sequences with the recurrent state before their first step."""

    state: Any  # [B, H]
    observation: Any  # [B, T+1, ...]
    first: Any  # [B, T+1]
    action: Any  # [B, T]
    reward: Any  # [B, T]
    discount: Any  # [B, T]


class Replay(NamedTuple):
    """A ring buffer of sequences; the newest replaces the oldest."""

    sequences: Sequences  # [N, ...]
    priorities: jax.Array  # [N], 0 where there is no sequence.
    added: jax.Array

    def add(self, sequences):
        """Add sequences, with the largest priority so far, so that each is replayed."""
        size = len(sequences.reward)
        index = (self.added + jnp.arange(size)) % len(self.priorities)
        stored = jax.tree.map(
            lambda x, y: x.at[index].set(y), self.sequences, sequences
        )
        priority = jnp.maximum(1.0, jnp.max(self.priorities))
        priorities = self.priorities.at[index].set(priority)
        return Replay(stored, priorities, self.added + size)


class Player(NamedTuple):
    """The environments, and the recurrent states of the agent in them."""

    env_state: EnvState  # [B]
    state: jax.Array  # [B, H]
    observation: jax.Array  # [B, ...]
    first: jax.Array  # [B]


class R2D2Agent(struct.PyTreeNode):
    """An R2D2 agent, with its environments and its replay."""

    network: TrainState
    target: TrainState
    player: Player
    latest: Steps  # The last steps of the latest sequences, as many as the burn-in.
    replay: Replay
    config: Config = struct.field(pytree_node=False)

    def iterate(self, key):
        """Return the agent after sequences of all environments, and updates."""
        act_key, key = jax.random.split(key)
        player, steps = self.act(self.player, act_key, self.config.num_steps)
        steps = jax.tree.map(
            lambda x, y: jnp.concatenate([x, y], axis=1), self.latest, steps
        )
        replay = self.replay.add(make_sequences(steps, player))
        latest = jax.tree.map(lambda x: x[:, self.config.num_steps :], steps)
        agent = self.replace(player=player, latest=latest, replay=replay)
        keys = jax.random.split(key, self.config.num_updates)
        return jax.lax.scan(lambda agent, key: (agent.update(key), None), agent, keys)[
            0
        ]

    def act(self, player, key, num_steps):
        """Play steps with exploration."""
        epsilons = rlaxlib.apex_epsilons(len(player.first))
        policy = jax.vmap(rlaxlib.epsilon_greedy().sample)

        def one(player, key):
            act_key, key = jax.random.split(key)
            state, q = self.apply(self.network, *player[1:])
            keys = jax.random.split(act_key, len(q))
            action = policy(keys, q, epsilons)
            new, reward, ended = self.play(player.env_state, action, state, key)
            discount = self.config.discount * (1.0 - ended)
            return new, Steps(*player[1:], action, reward, discount)

        player, steps = jax.lax.scan(one, player, jax.random.split(key, num_steps))
        return player, jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), steps)

    def play(self, env_state, action, state, key):
        """Step all environments; return what follows, rewards, and ends of episodes."""
        keys = jax.random.split(key, (2, len(action)))
        move = jax.vmap(step, (0, 0, 0, None))
        length = self.config.episode_steps
        env_state, reward, ended = move(env_state, action, keys[0], length)
        observation = jax.vmap(observe, (0, 0, None))(env_state, keys[1], length)
        return Player(env_state, state, observation, ended), reward, ended

    def apply(self, network, state, observation, first, params=None):
        """Apply the network for one step; reset its state if an episode begins."""
        if not self.config.memory:
            first = jnp.ones_like(first)
        state = jnp.where(first[:, None], 0.0, state)
        return network(state, observation, params=params)

    def unroll(self, batch, network, params=None):
        """Return the action values of sequences, [B, T+1, A]."""

        def one(state, inputs):
            return self.apply(network, state, *inputs, params)

        inputs = (jnp.swapaxes(x, 0, 1) for x in (batch.observation, batch.first))
        _, q = jax.lax.scan(one, batch.state, tuple(inputs))
        return jnp.swapaxes(q, 0, 1)

    def update(self, key):
        """Update on a batch of replayed sequences."""
        config, replay = self.config, self.replay
        probabilities = rlaxlib.prioritized_probabilities(
            replay.priorities, config.priority_exponent
        )
        index = rlaxlib.stratified_sample(key, probabilities, config.batch_size)
        weights = rlaxlib.importance_sampling_weights(
            probabilities[index], config.weight_exponent
        )
        batch = jax.tree.map(lambda x: x[index], replay.sequences)
        loss = functools.partial(self.loss, batch=batch, weights=weights)
        network, priorities = self.network.apply_loss_fn(loss_fn=loss, has_aux=True)
        replay = replay._replace(priorities=replay.priorities.at[index].set(priorities))
        target = self.target.replace(
            params=rlaxlib.periodic_update(
                network.params, self.target.params, network.step, config.target_period
            )
        )
        return self.replace(network=network, target=target, replay=replay)

    def loss(self, params, batch, weights):
        """Return the loss of sequences, and their new priorities."""
        q, target_q = (
            self.unroll(batch, self.network, params),
            self.unroll(batch, self.target),
        )
        a_t = jnp.argmax(q[:, 1:], axis=-1)
        num_steps = batch.reward.shape[1]
        mask = jnp.arange(num_steps) >= self.config.burn_in

        def learn(*args):
            td_error = rlaxlib.transformed_n_step_q_learning(
                *args,
                self.config.n,
                tx_pair=rlaxlib.SIGNED_HYPERBOLIC_PAIR,
                sample_mask=mask,
            )
            return td_error, rlaxlib.sequence_priority(td_error, sample_mask=mask)

        td_error, priorities = jax.vmap(learn)(
            q[:, :-1], batch.action, target_q[:, 1:], a_t, batch.reward, batch.discount
        )
        losses = weights[:, None] * rlaxlib.l2_loss(td_error)
        masks = jnp.broadcast_to(mask, losses.shape)
        return rlaxlib.masked_mean(losses, mask=masks), priorities


def make_sequences(steps, player):
    """Return the sequences of steps that the state of a player follows."""

    def append(x, last):
        return jnp.concatenate([x, last[:, None]], axis=1)

    return Sequences(
        state=steps.state[:, 0],
        observation=append(steps.observation, player.observation),
        first=append(steps.first, player.first),
        action=steps.action,
        reward=steps.reward,
        discount=steps.discount,
    )


def begin(key, size, config) -> Player:
    """Return the state of a player at the first step of episodes."""
    keys = jax.random.split(key, (2, size))
    env_state = jax.vmap(reset)(keys[0])
    observation = jax.vmap(observe, (0, 0, None))(
        env_state, keys[1], config.episode_steps
    )
    state = Network(config.hidden_units).initial_state(size)
    return Player(env_state, state, observation, jnp.ones(size, bool))


def make_agent(key, config) -> R2D2Agent:
    """Initialise the network and an empty replay, and play the first burn-in."""
    network_key, env_key, act_key = jax.random.split(key, 3)
    player = begin(env_key, config.num_envs, config)
    network = Network(config.hidden_units)
    params = network.init(network_key, player.state, player.observation)["params"]
    agent = R2D2Agent(
        network=TrainState.create(network, params, optax.adam(config.learning_rate)),
        target=TrainState.create(network, params),
        player=player,
        latest=None,
        replay=None,
        config=config,
    )
    length = config.burn_in + config.num_steps
    steps = agent.act(player, act_key, length)[1]
    sequences = make_sequences(steps, player)
    empty = jax.tree.map(
        lambda x: jnp.zeros((config.capacity, *x.shape[1:]), x.dtype), sequences
    )
    player, latest = agent.act(player, act_key, config.burn_in)
    replay = Replay(empty, jnp.zeros(config.capacity), jnp.int32(0))
    return agent.replace(player=player, latest=latest, replay=replay)


# --- Training. ---


def evaluate(agent, key):
    """Return the mean return of episodes without exploration."""
    config = agent.config
    begin_key, key = jax.random.split(key)

    def one(player, key):
        state, q = agent.apply(agent.network, *player[1:])
        action = jnp.argmax(q, axis=-1)
        player, reward, _ = agent.play(player.env_state, action, state, key)
        return player, reward

    player = begin(begin_key, config.eval_episodes, config)
    keys = jax.random.split(key, config.episode_steps)
    return jnp.mean(jnp.sum(jax.lax.scan(one, player, keys)[1], axis=0))


def train(config: Config) -> list[loops.Point]:
    """Train an agent and return its learning curve."""
    agent_key, key = jax.random.split(jax.random.key(config.seed))

    def improve(agent, key):
        keys = jax.random.split(key, config.iterations)
        return jax.lax.scan(lambda a, key: (a.iterate(key), None), agent, keys)[0]

    agent = jax.jit(functools.partial(make_agent, config=config))(agent_key)
    steps = config.iterations * config.num_envs * config.num_steps
    return loops.train(agent, key, improve, evaluate, config.evaluations, steps)[1]


def main(config):
    curves.report(train(config), "R2D2 on a memory task", config.output)


if __name__ == "__main__":
    run(main, Config)
