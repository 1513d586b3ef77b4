"""Find a treasure in the deep sea by a reward for what is new.

In bsuite's deep sea a diver sinks through a grid, one row a step, and moves left or
right meanwhile; which of two actions does which differs from cell to cell. At the lower
right lies a treasure, worth 1. Every move to the right costs a little, so all that is
felt on the way says: turn back. Of 2 ** 20 dives one leads to it.

Two DQN agents look for it, alike but for one number: the scale of their reward for what
is new. A memory keeps embeddings of the pairs of a state and an action that were tried,
here random projections of them, and a pair is as new as its nearest neighbours there
are far. Novelty is asked for twice: once done, it is part of the reward, so that values
tell where to find more of it; and before, it is added to the values of the actions, so
that of two that lead to nothing known the untried is chosen.

    rlaxlib.episodic_memory_intrinsic_rewards  judges what is new, and remembers it,
    rlaxlib.epsilon_greedy                     chooses the actions,
    rlaxlib.double_q_learning                  says by how much transitions surprised,
    rlaxlib.l2_loss                            turns that surprise into a loss,
    rlaxlib.periodic_update                    renews the target network now and then.

Never Give Up forgets all at the end of an episode. In deep sea, where no dive visits a
cell twice, all would be as new as ever; so here the memory lasts.

Expect +0.99 in the final evaluation with novelty, the best there is, and about 0
without, after about 40 seconds on two cores, imports and compilation included. Every
field of `Config` is a flag:

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
    """Everything there is to choose."""

    seed: int = flag(0, "Seed of the network, all that is drawn and the environment.")
    output: str = flag("results/episodic_novelty", "Folder for the learning curves.")
    size: int = flag(20, "Rows of the sea, and columns.")
    train_episodes: int = flag(1000, "Dives to learn from, for each agent.")
    eval_episodes: int = flag(1, "Dives of each evaluation; more would be the same.")
    eval_interval: int = flag(50, "Dives of training between two evaluations.")
    novelty_scale: float = flag(0.01, "Scale of the reward for what is new.")
    num_neighbors: int = flag(10, "Neighbours in memory to look at.")
    max_similarity: float = flag(2.0, "Similarity beyond which nothing is new.")
    memory_size: int = flag(20_000, "Pairs of state and action to remember.")
    embedding_size: int = flag(16, "Numbers to remember of each.")
    hidden_units: int = flag(64, "Units of the network's only hidden layer.")
    learning_rate: float = flag(3e-3, "Step size of Adam.")
    batch_size: int = flag(32, "Transitions of each gradient step.")
    capacity: int = flag(20_000, "Transitions to keep.")
    target_period: int = flag(5, "Gradient steps from one target network to the next.")
    epsilon: float = flag(0.1, "Probability of a random action during training.")
    discount: float = flag(0.99, "What a reward is worth one step before it comes.")


# --- The agent: a network, its optimizer, an embedding, and pure functions. ---


class Agent(TrainState):
    """A network of action values, and what it takes to tell what is new."""

    target_params: Any
    projections: jax.Array  # [A, D, E]: from observations to embeddings, for an action.


class Transition(NamedTuple):
    """What there is to learn from one step, or from a batch of them."""

    observation_tm1: Any
    a_tm1: Any
    r_t: Any
    discount_t: Any
    observation_t: Any


def make_agent(key, environment, config) -> Agent:
    """Initialise the network, its optimizer and the embedding."""
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
    """Say how new it is to do this there, and return a memory that includes it."""

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
    """Choose by value and novelty; with probability ε, at random."""
    q_values = agent.apply_fn(agent.params, observation)
    actions = jnp.arange(q_values.size)
    here = jnp.stack([observation] * q_values.size)
    novelty, _ = judge_novelty(agent, memory, here, actions, config)
    key = jax.random.fold_in(key, agent.step + step)
    policy = rlaxlib.epsilon_greedy(config.epsilon)
    return policy.sample(key, q_values + novelty_scale * novelty)


@jax.jit
def exploit(agent, observation):
    """Choose by value alone."""
    return jnp.argmax(agent.apply_fn(agent.params, observation))


@jax.jit
def learn(agent, batches, target_period):
    """Take a gradient step on each of several batches of transitions."""

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


# --- The agent meets its environment. ---


def train_episode(agent, memory, key, environment, replay, novelty_scale, config):
    """Play one episode, judge it, learn; return agent, memory, and the true return."""
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
        config.discount * episode.discount,  # 0 at the end of the episode.
        episode.observation[1:],
    )
    for transition in zip(*transitions, strict=True):
        replay.add(Transition(*transition))
    batches = replay.sample((len(novelty), config.batch_size))
    agent = learn(agent, batches, config.target_period)
    return agent, memory, float(np.sum(episode.reward))


def train_agent(config: Config, novelty_scale: float) -> list[catch.Evaluation]:
    """Train an agent, and return its learning curve."""
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
        (agent, None),  # A memory of None remembers nothing.
        train_one,
        lambda agent_and_memory, observation: exploit(agent_and_memory[0], observation),
        config,
        make_environment,
    )
    return curve


def train(config: Config) -> dict[str, list[catch.Evaluation]]:
    """Train an agent with the reward for novelty, one without; return both curves."""
    return {
        "novelty": train_agent(config, config.novelty_scale),
        "no novelty": train_agent(config, 0.0),
    }


def main(config):
    curves.report(train(config), "DQN in the deep sea", config.output)


if __name__ == "__main__":
    run(main, Config)
