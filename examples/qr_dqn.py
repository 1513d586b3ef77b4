"""Learn to catch a falling ball from the quantiles of returns, by QR-DQN.

DQN with one change: the network predicts of each action not the mean of its return, but
its quantiles. No range of returns has to be chosen, as it has for C51. The loss is that
of quantile regression, in which an error up costs τ times its size and one down 1 - τ
times. Two agents are trained, one after the other: with the square of errors up to
`huber_param` (the Huber loss, as the paper recommends), and with their size alone. It
shows what rlaxlib has for it:

    rlaxlib.quantile_midpoints   says which quantiles to predict,
    rlaxlib.epsilon_greedy       chooses actions by the means of the quantiles,
    rlaxlib.quantile_q_learning  is the loss of one transition, with Huber or without,
    rlaxlib.periodic_update      renews the target network now and then.

In bsuite's Catch an episode takes nine steps and returns +1 for a catch, -1 for a miss:
-0.6 on average for a random agent. Expect +1.00 in both final evaluations, after about
30 seconds on two cores, imports and compilation included. Every field of `Config` is a
flag:

    python examples/qr_dqn.py --seed=1 --num_quantiles=11
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
    output: str = flag("results/qr_dqn", "Folder for the learning curves.")
    train_episodes: int = flag(1000, "Episodes to learn from, for each agent.")
    eval_episodes: int = flag(100, "Episodes of each evaluation, played greedily.")
    eval_interval: int = flag(100, "Training episodes between two evaluations.")
    hidden_units: int = flag(64, "Units of the network's only hidden layer.")
    num_quantiles: int = flag(21, "Quantiles that the network predicts.")
    huber_param: float = flag(1.0, "Size of the error where the square ends.")
    learning_rate: float = flag(1e-3, "Step size of Adam.")
    batch_size: int = flag(64, "Transitions of each gradient step.")
    capacity: int = flag(10_000, "Transitions to keep.")
    target_period: int = flag(25, "Gradient steps from one target network to the next.")
    epsilon: float = flag(0.1, "Probability of a random action during training.")
    discount: float = flag(0.99, "What a reward is worth one step before it comes.")


# --- The agent: a network, its optimizer, and two pure functions. ---


class Agent(TrainState):
    """A network of quantiles `[N, A]`, as it is and as it was when last copied."""

    target_params: Any


class Transition(NamedTuple):
    """What there is to learn from one step, or from a batch of them."""

    observation_tm1: Any
    a_tm1: Any
    r_t: Any
    discount_t: Any
    observation_t: Any


def make_agent(key, environment, config) -> Agent:
    """Initialise the network and its optimizer."""
    shape = (config.num_quantiles, environment.action_spec().num_values)
    network = nn.Sequential(
        [
            jnp.ravel,
            nn.Dense(config.hidden_units),
            nn.relu,
            nn.Dense(shape[0] * shape[1]),
            lambda quantiles: quantiles.reshape(shape),
        ]
    )
    params = network.init(key, environment.observation_spec().generate_value())
    return Agent.create(
        apply_fn=network.apply,
        params=params,
        tx=optax.adam(config.learning_rate),
        target_params=params,
    )


@jax.jit
def act(agent, key, observation, epsilon):
    """Choose a random action with probability ε, the one of highest mean otherwise."""
    q_values = jnp.mean(agent.apply_fn(agent.params, observation), axis=0)
    key = jax.random.fold_in(key, agent.step)  # New randomness after each update.
    return rlaxlib.epsilon_greedy(epsilon).sample(key, q_values)


@jax.jit
def learn(agent, batch, huber_param, target_period):
    """Take one gradient step on a batch of transitions."""

    def loss(params, transition):
        dist_q_tm1 = agent.apply_fn(params, transition.observation_tm1)
        dist_q_t = agent.apply_fn(agent.target_params, transition.observation_t)
        return rlaxlib.quantile_q_learning(
            dist_q_tm1,
            rlaxlib.quantile_midpoints(len(dist_q_tm1)),
            transition.a_tm1,
            transition.r_t,
            transition.discount_t,
            dist_q_t,  # Chooses the next action,
            dist_q_t,  # whose return is the target.
            huber_param,
        )

    def mean_loss(params):
        return jnp.mean(jax.vmap(loss, in_axes=(None, 0))(params, batch))

    agent = agent.apply_gradients(grads=jax.grad(mean_loss)(agent.params))
    target_params = rlaxlib.periodic_update(
        agent.params, agent.target_params, agent.step, target_period
    )
    return agent.replace(target_params=target_params)


# --- The agent meets its environment. ---


def train_episode(
    agent, key, environment, replay, huber_param, config
) -> tuple[Agent, float]:
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
        agent = learn(agent, batch, huber_param, config.target_period)
        episode_return += timestep.reward
    return agent, episode_return


def train_agent(config: Config, huber_param: float) -> list[catch.Evaluation]:
    """Train an agent, and return its learning curve."""
    init_key, act_key = jax.random.split(jax.random.key(config.seed))
    replay = Replay(config.capacity, config.seed)
    _, curve = catch.train(
        make_agent(init_key, catch.Catch(), config),
        lambda agent, environment: train_episode(
            agent, act_key, environment, replay, huber_param, config
        ),
        lambda agent, observation: act(agent, act_key, observation, epsilon=0.0),
        config,
    )
    return curve


def train(config: Config) -> dict[str, list[catch.Evaluation]]:
    """Train an agent with the Huber loss and one without, and return both curves."""
    return {
        "Huber": train_agent(config, config.huber_param),
        "no Huber": train_agent(config, 0.0),
    }


def main(config):
    curves.report(train(config), "QR-DQN on Catch", config.output)


if __name__ == "__main__":
    run(main, Config)
