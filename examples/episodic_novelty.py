"""Train DQN agents on Deep Sea, with and without an episodic novelty bonus (NGU).

Deep Sea of bsuite is a hard exploration problem. The agent descends one row per step
through a grid of 20 x 20 cells, and moves left or right; the meaning of the two actions
differs between cells. The reward of 1 is in the lower right corner, and each move to
the right costs a little. One of 2 ** 20 action sequences reaches the reward.

The two agents differ only in the scale of their novelty bonus. A memory holds
embeddings (random projections) of the state-action pairs visited so far. The novelty of
a pair decreases with its similarity to its nearest neighbours in memory. The bonus is
used twice. It is added to the reward, so that action values lead to novel states. It is
also added to the action values when the agent acts, so that it prefers untried actions.

- `rlaxlib.episodic_memory_intrinsic_rewards`: the novelty bonus, and the next memory,
- `rlaxlib.epsilon_greedy`: the behaviour policy,
- `rlaxlib.double_q_learning`: the TD errors,
- `rlaxlib.l2_loss`: the losses of the TD errors,
- `rlaxlib.periodic_update`: the parameters of the target network.

Never Give Up clears the memory after each episode. In Deep Sea, no episode visits a
cell twice, so the memory here is kept.

Expect +0.99 in the final evaluation with novelty, the maximum, and about 0 without,
after about a minute on two cores, imports and compilation included.

Every field of `Config` is a flag:

    python examples/episodic_novelty.py --seed=1 --size=10
"""

import dataclasses
import functools
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from bsuite.environments.deep_sea import DeepSea
from common import catch, curves
from common.flags import flag, run
from common.replay import Replay
from flax import linen as nn
from flax.training.train_state import TrainState

import rlaxlib


@dataclasses.dataclass(frozen=True)
class Config:
    """Configuration; each field is a command-line flag."""

    seed: int = flag(0, "Seed of the network, exploration, replay and environment.")
    output: str = flag("results/episodic_novelty", "Folder for the learning curves.")
    size: int = flag(20, "Rows and columns of the grid.")
    train_episodes: int = flag(1000, "Number of training episodes of each agent.")
    eval_episodes: int = flag(1, "Episodes per evaluation, all with one return.")
    eval_interval: int = flag(50, "Training episodes between evaluations.")
    novelty_scale: float = flag(0.01, "Scale of the novelty bonus.")
    num_neighbors: int = flag(10, "Nearest neighbours in the similarity.")
    max_similarity: float = flag(2.0, "Similarity above which the bonus is 0.")
    memory_size: int = flag(20_000, "Capacity of the memory, in embeddings.")
    embedding_size: int = flag(16, "Size of an embedding.")
    hidden_units: int = flag(64, "Units of the hidden layer.")
    learning_rate: float = flag(3e-3, "Learning rate of Adam.")
    batch_size: int = flag(32, "Transitions per batch.")
    capacity: int = flag(20_000, "Capacity of the replay buffer, in transitions.")
    target_period: int = flag(5, "Gradient steps between target network updates.")
    epsilon: float = flag(0.1, "Probability of a random action during training.")
    discount: float = flag(0.99, "Discount factor.")


# --- Agent: network, optimizer, embedding and pure functions. ---


class Agent(TrainState):
    """An online and a target network of action values, and an embedding."""

    target_params: Any
    projections: jax.Array  # [A, D, E]: one matrix of the embedding per action.


class Transition(NamedTuple):
    """A transition, or a batch of transitions."""

    observation_tm1: Any
    a_tm1: Any
    r_t: Any
    discount_t: Any
    observation_t: Any


def make_agent(key, environment, config) -> Agent:
    """Initialise the network, the optimizer and the embedding."""
    init_key, embed_key = jax.random.split(key)
    num_actions = environment.action_spec().num_values
    network = nn.Sequential(
        [jnp.ravel, nn.Dense(config.hidden_units), nn.relu, nn.Dense(num_actions)]
    )
    observation = environment.observation_spec().generate_value()
    params = network.init(init_key, observation)
    shape = (num_actions, observation.size, config.embedding_size)
    return Agent.create(
        apply_fn=network.apply,
        params=params,
        tx=optax.adam(config.learning_rate),
        target_params=params,
        projections=jax.random.normal(embed_key, shape),
    )


@functools.partial(jax.jit, static_argnames="config")
def judge_novelty(agent, memory, observations, actions, config):
    """Return the novelty of state-action pairs, and the memory with them added."""

    def embed(observation, action):
        return jnp.ravel(observation) @ agent.projections[action]

    return rlaxlib.episodic_memory_intrinsic_rewards(
        jax.vmap(embed)(observations, actions),
        config.num_neighbors,
        reward_scale=1.0,
        intrinsic_reward_state=memory,
        max_similarity=config.max_similarity,
        max_memory_size=config.memory_size,
    )


@functools.partial(jax.jit, static_argnames="config")
def explore(agent, memory, key, step, observation, novelty_scale, config):
    """Sample an ε-greedy action with respect to action value plus novelty bonus."""
    q_values = agent.apply_fn(agent.params, observation)
    actions = jnp.arange(q_values.size)
    here = jnp.stack([observation] * q_values.size)
    novelty, _ = judge_novelty(agent, memory, here, actions, config)
    key = jax.random.fold_in(key, agent.step + step)
    policy = rlaxlib.epsilon_greedy(config.epsilon)
    return policy.sample(key, q_values + novelty_scale * novelty)


@jax.jit
def exploit(agent, observation):
    """Return the greedy action with respect to the action values."""
    return jnp.argmax(agent.apply_fn(agent.params, observation))


@jax.jit
def learn(agent, batches, target_period):
    """Take one gradient step on each batch of transitions."""

    def loss(params, target_params, transition):
        td_error = rlaxlib.double_q_learning(
            agent.apply_fn(params, transition.observation_tm1),
            transition.a_tm1,
            transition.r_t,
            transition.discount_t,
            q_t_value=agent.apply_fn(target_params, transition.observation_t),
            q_t_selector=agent.apply_fn(params, transition.observation_t),
        )
        return rlaxlib.l2_loss(td_error)

    def mean_loss(params, target_params, batch):
        return jnp.mean(jax.vmap(loss, (None, None, 0))(params, target_params, batch))

    def step(agent, batch):
        grads = jax.grad(mean_loss)(agent.params, agent.target_params, batch)
        agent = agent.apply_gradients(grads=grads)
        target_params = rlaxlib.periodic_update(
            agent.params, agent.target_params, agent.step, target_period
        )
        return agent.replace(target_params=target_params), None

    agent, _ = jax.lax.scan(step, agent, batches)
    return agent


# --- Training. ---


def train_episode(agent, memory, key, environment, replay, novelty_scale, config):
    """Play one episode and update; return the agent, the memory and the return."""
    steps = itertools.count()
    episode = catch.play(
        environment,
        lambda observation: explore(
            agent, memory, key, next(steps), observation, novelty_scale, config
        ),
    )
    observations_tm1 = episode.observation[:-1]
    novelty, memory = judge_novelty(
        agent, memory, observations_tm1, episode.action, config
    )
    transitions = Transition(
        observations_tm1,
        episode.action,
        episode.reward + novelty_scale * np.asarray(novelty),
        config.discount * episode.discount,  # 0 at a terminal step.
        episode.observation[1:],
    )
    for transition in zip(*transitions, strict=True):
        replay.add(Transition(*transition))
    batches = replay.sample((len(novelty), config.batch_size))
    agent = learn(agent, batches, config.target_period)
    return agent, memory, float(np.sum(episode.reward))


def train_agent(config: Config, novelty_scale: float) -> list[catch.Evaluation]:
    """Train an agent and return its learning curve."""
    init_key, act_key = jax.random.split(jax.random.key(config.seed))
    replay = Replay(config.capacity, config.seed)

    def make_environment(seed):
        return DeepSea(config.size, seed=seed, mapping_seed=config.seed)

    def train_one(agent_and_memory, environment):
        agent, memory, episode_return = train_episode(
            *agent_and_memory, act_key, environment, replay, novelty_scale, config
        )
        return (agent, memory), episode_return

    agent = make_agent(init_key, make_environment(config.seed), config)
    _, curve = catch.train(
        (agent, None),  # None is an empty memory.
        train_one,
        lambda agent_and_memory, observation: exploit(agent_and_memory[0], observation),
        config,
        make_environment,
    )
    return curve


def train(config: Config) -> dict[str, list[catch.Evaluation]]:
    """Train agents with and without the bonus; return both learning curves."""
    return {
        "novelty": train_agent(config, config.novelty_scale),
        "no novelty": train_agent(config, 0.0),
    }


def main(config):
    curves.report(train(config), "DQN on Deep Sea", config.output)


if __name__ == "__main__":
    run(main, Config)
