"""Train ER-DQN agents on Catch: distributional Q-learning by expectile regression.

ER-DQN is DQN with expectiles in place of a mean. Expectiles generalise the mean as
quantiles generalise the median: the squared loss weighs positive errors by τ and
negative errors by 1 - τ, and the expectile at τ = ½ is the mean. Expectiles of the next
state are not samples of its return. Two agents are trained, one after the other: a
naive one that uses expectiles as samples, and one that first imputes samples with the
predicted expectiles.

- `rlaxlib.quantile_midpoints`: the fractions τ of the expectiles,
- `rlaxlib.epsilon_greedy`: the behaviour policy over expectiles at τ = ½,
- `rlaxlib.expectile_q_learning`: the loss of the naive agent,
- `rlaxlib.imputed_expectile_q_learning`: the loss of the agent with imputation,
- `rlaxlib.periodic_update`: the parameters of the target network.

An episode of bsuite's Catch has nine steps and returns +1 for a catch and -1 for a
miss. A random agent averages -0.6. During training, the last reward has noise of +1 or
-1 with equal probability, so that returns have a distribution. Expect +1.00 in both
final evaluations, after about 20 seconds on two cores, imports and compilation
included.

A second plot, in the folder `width`, compares the predicted distributions: the distance
between the largest and the smallest expectile, at each step of an episode. The true
distance is nearly the same at all steps. The naive agent's expectiles collapse to the
mean as the distance from the reward grows.

Every field of `Config` is a flag:

    python examples/er_dqn.py --seed=1 --num_expectiles=21
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from common import catch, curves
from common.flags import flag, run
from common.replay import Replay
from flax import linen as nn
from flax.training.train_state import TrainState

import rlaxlib

LOSSES = {
    "naive": rlaxlib.expectile_q_learning,
    "imputed": rlaxlib.imputed_expectile_q_learning,
}


@dataclasses.dataclass(frozen=True)
class Config:
    """Configuration; each field is a command-line flag."""

    seed: int = flag(0, "Seed of the network, exploration, replay and environment.")
    output: str = flag("results/er_dqn", "Folder for the learning curves.")
    train_episodes: int = flag(1500, "Number of training episodes of each agent.")
    eval_episodes: int = flag(100, "Episodes per evaluation, with greedy actions.")
    eval_interval: int = flag(100, "Training episodes between evaluations.")
    reward_noise: float = flag(1.0, "Magnitude of the noise of the last reward.")
    hidden_units: int = flag(64, "Units of the hidden layer.")
    num_expectiles: int = flag(11, "Number of expectiles; odd, to include τ = ½.")
    learning_rate: float = flag(1e-3, "Learning rate of Adam.")
    batch_size: int = flag(64, "Transitions per batch.")
    capacity: int = flag(10_000, "Capacity of the replay buffer, in transitions.")
    target_period: int = flag(25, "Gradient steps between target network updates.")
    epsilon: float = flag(0.1, "Probability of a random action during training.")
    discount: float = flag(0.99, "Discount factor.")


# --- Agent: network, optimizer and pure functions. ---


class Agent(TrainState):
    """An online and a target network with expectiles of shape `[N, A]`."""

    target_params: Any


class Transition(NamedTuple):
    """A transition, or a batch of transitions."""

    observation_tm1: Any
    a_tm1: Any
    r_t: Any
    discount_t: Any
    observation_t: Any


def make_agent(key, environment, config) -> Agent:
    """Initialise the network and the optimizer."""
    shape = (config.num_expectiles, environment.action_spec().num_values)
    network = nn.Sequential(
        [
            jnp.ravel,
            nn.Dense(config.hidden_units),
            nn.relu,
            nn.Dense(shape[0] * shape[1]),
            lambda expectiles: expectiles.reshape(shape),
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
    """Sample an action from the ε-greedy policy over the mean returns."""
    expectiles = agent.apply_fn(agent.params, observation)
    q_values = expectiles[len(expectiles) // 2]  # At τ = ½: the means.
    key = jax.random.fold_in(key, agent.step)  # A new key after each update.
    return rlaxlib.epsilon_greedy(epsilon).sample(key, q_values)


@functools.partial(jax.jit, static_argnames="expectile_loss")
def learn(agent, batch, expectile_loss, target_period):
    """Take one gradient step on a batch of transitions."""

    def loss(params, transition):
        dist_q_tm1 = agent.apply_fn(params, transition.observation_tm1)
        dist_q_t = agent.apply_fn(agent.target_params, transition.observation_t)
        return expectile_loss(
            dist_q_tm1,
            rlaxlib.quantile_midpoints(len(dist_q_tm1)),
            transition.a_tm1,
            transition.r_t,
            transition.discount_t,
            dist_q_t,  # Selects the next action.
            dist_q_t,  # Evaluates it.
        )

    def mean_loss(params):
        return jnp.mean(jax.vmap(loss, in_axes=(None, 0))(params, batch))

    agent = agent.apply_gradients(grads=jax.grad(mean_loss)(agent.params))
    target_params = rlaxlib.periodic_update(
        agent.params, agent.target_params, agent.step, target_period
    )
    return agent.replace(target_params=target_params)


# --- Training. ---


def train_episode(
    agent, key, environment, replay, random, expectile_loss, config
) -> tuple[Agent, float]:
    """Play one episode, with one update from replay after each step."""
    episode_return = 0.0
    timestep = environment.reset()
    while not timestep.last():
        action = int(act(agent, key, timestep.observation, config.epsilon))
        previous, timestep = timestep, environment.step(action)
        noise = random.choice([-1, 1]) * config.reward_noise * timestep.last()
        transition = Transition(
            previous.observation,
            action,
            timestep.reward + noise,
            config.discount * timestep.discount,  # 0 at a terminal step.
            timestep.observation,
        )
        replay.add(transition)
        batch = replay.sample(config.batch_size)
        agent = learn(agent, batch, expectile_loss, config.target_period)
        episode_return += timestep.reward
    return agent, episode_return


def train_agent(config, expectile_loss) -> tuple[Agent, list[catch.Evaluation]]:
    """Train an agent; return it and its learning curve."""
    init_key, act_key = jax.random.split(jax.random.key(config.seed))
    replay = Replay(config.capacity, config.seed)
    random = np.random.default_rng(config.seed)
    return catch.train(
        make_agent(init_key, catch.Catch(), config),
        lambda agent, environment: train_episode(
            agent, act_key, environment, replay, random, expectile_loss, config
        ),
        lambda agent, observation: act(agent, act_key, observation, epsilon=0.0),
        config,
    )


# --- Width of the predicted distributions. ---


class Width(NamedTuple):
    """Distance between the largest and the smallest expectile before a step."""

    step: int
    width: float


def predicted_widths(agent, config) -> list[Width]:
    """Return the mean predicted width at each step of greedy episodes."""
    key, environment = jax.random.key(config.seed), catch.Catch(seed=config.seed)

    def width(observation):
        expectiles = agent.apply_fn(agent.params, observation)
        best = expectiles[:, jnp.argmax(expectiles[len(expectiles) // 2])]
        return jnp.max(best) - jnp.min(best)

    episodes = [
        catch.play(environment, lambda o: act(agent, key, o, epsilon=0.0))
        for _ in range(config.eval_episodes)
    ]
    observations = np.stack([episode.observation[:-1] for episode in episodes])
    widths = jax.vmap(jax.vmap(width))(observations)
    return [Width(*each) for each in enumerate(np.mean(widths, axis=0).tolist())]


def true_widths(num_steps, config) -> list[Width]:
    """Return the true widths: the expectile of a fair ±1 variable at τ is 2τ - 1."""
    tau = rlaxlib.quantile_midpoints(config.num_expectiles)
    last = config.reward_noise * 2 * float(tau[-1] - tau[0])
    return [
        Width(step, last * config.discount ** (num_steps - 1 - step))
        for step in range(num_steps)
    ]


def train(config: Config):
    """Train both agents; return their learning curves and their widths."""
    learning, widths = {}, {}
    for name, expectile_loss in LOSSES.items():
        agent, learning[name] = train_agent(config, expectile_loss)
        widths[name] = predicted_widths(agent, config)
    return learning, widths | {"true": true_widths(len(widths[name]), config)}


def main(config):
    learning, widths = train(config)
    title = "Expectiles of returns, from the smallest to the largest"
    curves.report(widths, title, f"{config.output}/width", ylabel="distance")
    curves.report(learning, "ER-DQN on Catch", config.output)


if __name__ == "__main__":
    run(main, Config)
