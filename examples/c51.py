"""Train a C51 agent on Catch: categorical distributional Q-learning.

C51 is DQN with a distribution in place of a mean: for each action, the network predicts
the probabilities of 51 fixed returns, the atoms. The target distribution of the next
step is projected onto the atoms, and the loss is the cross-entropy.

- `rlaxlib.softmax`: the probabilities of the atoms,
- `rlaxlib.epsilon_greedy`: the behaviour policy over the mean returns,
- `rlaxlib.categorical_q_learning`: the loss of one transition, with the projection,
- `rlaxlib.periodic_update`: the parameters of the target network.

An episode of bsuite's Catch has nine steps and returns +1 for a catch and -1 for a
miss, so the atoms span [-1, 1]. A random agent averages -0.6. Expect +1.00 in the final
evaluation, after about 45 seconds on two cores, imports and compilation included.

Every field of `Config` is a flag:

    python examples/c51.py --seed=1 --num_atoms=21
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
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
    output: str = flag("results/c51", "Folder for the learning curve.")
    train_episodes: int = flag(1500, "Number of training episodes.")
    eval_episodes: int = flag(100, "Episodes per evaluation, with greedy actions.")
    eval_interval: int = flag(100, "Training episodes between evaluations.")
    hidden_units: int = flag(64, "Units of the hidden layer.")
    num_atoms: int = flag(51, "Number of atoms.")
    min_return: float = flag(-1.0, "Smallest atom.")
    max_return: float = flag(1.0, "Largest atom.")
    learning_rate: float = flag(1e-3, "Learning rate of Adam.")
    batch_size: int = flag(64, "Transitions per batch.")
    capacity: int = flag(10_000, "Capacity of the replay buffer, in transitions.")
    target_period: int = flag(25, "Gradient steps between target network updates.")
    epsilon: float = flag(0.1, "Probability of a random action during training.")
    discount: float = flag(0.99, "Discount factor.")


# --- Agent: network, optimizer and pure functions. ---


class Agent(TrainState):
    """An online and a target network with logits of shape `[A, K]`."""

    target_params: Any
    atoms: jax.Array  # [K]: the support of the distributions.


class Transition(NamedTuple):
    """A transition, or a batch of transitions."""

    observation_tm1: Any
    a_tm1: Any
    r_t: Any
    discount_t: Any
    observation_t: Any


def make_agent(key, environment, config) -> Agent:
    """Initialise the network and the optimizer."""
    shape = (environment.action_spec().num_values, config.num_atoms)
    network = nn.Sequential(
        [
            jnp.ravel,
            nn.Dense(config.hidden_units),
            nn.relu,
            nn.Dense(shape[0] * shape[1]),
            lambda logits: logits.reshape(shape),
        ]
    )
    params = network.init(key, environment.observation_spec().generate_value())
    return Agent.create(
        apply_fn=network.apply,
        params=params,
        tx=optax.adam(config.learning_rate),
        target_params=params,
        atoms=jnp.linspace(config.min_return, config.max_return, config.num_atoms),
    )


@jax.jit
def act(agent, key, observation, epsilon):
    """Sample an action from the ε-greedy policy over the mean returns."""
    logits = agent.apply_fn(agent.params, observation)
    q_values = rlaxlib.softmax().probs(logits) @ agent.atoms
    key = jax.random.fold_in(key, agent.step)  # A new key after each update.
    return rlaxlib.epsilon_greedy(epsilon).sample(key, q_values)


@jax.jit
def learn(agent, batch, target_period):
    """Take one gradient step on a batch of transitions."""

    def loss(params, transition):
        return rlaxlib.categorical_q_learning(
            agent.atoms,
            agent.apply_fn(params, transition.observation_tm1),
            transition.a_tm1,
            transition.r_t,
            transition.discount_t,
            agent.atoms,
            agent.apply_fn(agent.target_params, transition.observation_t),
        )

    def mean_loss(params):
        return jnp.mean(jax.vmap(loss, in_axes=(None, 0))(params, batch))

    agent = agent.apply_gradients(grads=jax.grad(mean_loss)(agent.params))
    target_params = rlaxlib.periodic_update(
        agent.params, agent.target_params, agent.step, target_period
    )
    return agent.replace(target_params=target_params)


# --- Training. ---


def train_episode(agent, key, environment, replay, config) -> tuple[Agent, float]:
    """Play one episode, with one update from replay after each step."""
    episode_return = 0.0
    timestep = environment.reset()
    while not timestep.last():
        action = int(act(agent, key, timestep.observation, config.epsilon))
        previous, timestep = timestep, environment.step(action)
        transition = Transition(
            previous.observation,
            action,
            timestep.reward,
            config.discount * timestep.discount,  # 0 at a terminal step.
            timestep.observation,
        )
        replay.add(transition)
        batch = replay.sample(config.batch_size)
        agent = learn(agent, batch, config.target_period)
        episode_return += timestep.reward
    return agent, episode_return


def train(config: Config) -> list[catch.Evaluation]:
    """Train an agent and return its learning curve."""
    init_key, act_key = jax.random.split(jax.random.key(config.seed))
    replay = Replay(config.capacity, config.seed)
    _, curve = catch.train(
        make_agent(init_key, catch.Catch(), config),
        lambda agent, environment: train_episode(
            agent, act_key, environment, replay, config
        ),
        lambda agent, observation: act(agent, act_key, observation, epsilon=0.0),
        config,
    )
    return curve


def main(config):
    curves.report(train(config), "C51 on Catch", config.output)


if __name__ == "__main__":
    run(main, Config)
