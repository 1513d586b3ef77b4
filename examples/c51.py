"""Learn to catch a falling ball from the distribution of returns, by C51.

DQN with one change: the network predicts of each action not the mean of its return, but
how likely each of 51 returns is, the atoms. What the next step says of the return lies
between the atoms, is moved to those around it, and is learned as a class is: by
cross-entropy. It shows what rlaxlib has for it:

    rlaxlib.softmax                 turns logits into probabilities of the atoms,
    rlaxlib.epsilon_greedy          chooses actions by the means of the distributions,
    rlaxlib.categorical_q_learning  is the loss of one transition, projection included,
    rlaxlib.periodic_update         renews the target network now and then.

In bsuite's Catch an episode takes nine steps and returns +1 for a catch, -1 for a miss:
-0.6 on average for a random agent. Returns lie in [-1, 1], and so do the atoms. Expect
+1.00 in the final evaluation, after about 20 seconds on two cores, imports and
compilation included. Every field of `Config` is a flag:

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
    """Everything there is to choose."""

    seed: int = flag(0, "Seed of network, exploration, environment and replay.")
    output: str = flag("results/c51", "Folder for the learning curve.")
    train_episodes: int = flag(1500, "Episodes to learn from.")
    eval_episodes: int = flag(100, "Episodes of each evaluation, played greedily.")
    eval_interval: int = flag(100, "Training episodes between two evaluations.")
    hidden_units: int = flag(64, "Units of the network's only hidden layer.")
    num_atoms: int = flag(51, "Returns that the network tells apart.")
    min_return: float = flag(-1.0, "The least of them.")
    max_return: float = flag(1.0, "The largest of them.")
    learning_rate: float = flag(1e-3, "Step size of Adam.")
    batch_size: int = flag(64, "Transitions of each gradient step.")
    capacity: int = flag(10_000, "Transitions to keep.")
    target_period: int = flag(25, "Gradient steps from one target network to the next.")
    epsilon: float = flag(0.1, "Probability of a random action during training.")
    discount: float = flag(0.99, "What a reward is worth one step before it comes.")


# --- The agent: a network, its optimizer, and two pure functions. ---


class Agent(TrainState):
    """A network of logits `[A, K]`, as it is and as it was when last copied."""

    target_params: Any
    atoms: jax.Array  # [K]: the returns whose probabilities it predicts.


class Transition(NamedTuple):
    """What there is to learn from one step, or from a batch of them."""

    observation_tm1: Any
    a_tm1: Any
    r_t: Any
    discount_t: Any
    observation_t: Any


def make_agent(key, environment, config) -> Agent:
    """Initialise the network and its optimizer."""
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
    """Choose a random action with probability ε, the one of highest mean otherwise."""
    logits = agent.apply_fn(agent.params, observation)
    q_values = rlaxlib.softmax().probs(logits) @ agent.atoms
    key = jax.random.fold_in(key, agent.step)  # New randomness after each update.
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


# --- The agent meets its environment. ---


def train_episode(agent, key, environment, replay, config) -> tuple[Agent, float]:
    """Play one episode, and learn from the past after every step of it."""
    episode_return = 0.0
    timestep = environment.reset()
    while not timestep.last():
        action = int(act(agent, key, timestep.observation, config.epsilon))
        previous, timestep = timestep, environment.step(action)
        transition = Transition(
            previous.observation,
            action,
            timestep.reward,
            config.discount * timestep.discount,  # 0 at the end of the episode.
            timestep.observation,
        )
        replay.add(transition)
        batch = replay.sample(config.batch_size)
        agent = learn(agent, batch, config.target_period)
        episode_return += timestep.reward
    return agent, episode_return


def train(config: Config) -> list[catch.Evaluation]:
    """Train an agent, and return its learning curve."""
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
