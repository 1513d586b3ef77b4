"""Learn to catch a falling ball from the expectiles of returns, by ER-DQN.

DQN with one change: the network predicts of each action not the mean of its return
alone, but expectiles. These are to means what quantiles are to medians: an error up
costs τ times its square, one down 1 - τ times, and at τ = ½ the expectile is the mean.
Expectiles are no samples, however, since they lie closer together. Two agents are
trained, one after the other: a naive one that takes expectiles of the next state for
samples of its return, and one that first finds (imputes) samples that have those
expectiles. It shows what rlaxlib has for it:

    rlaxlib.quantile_midpoints            says which expectiles to predict,
    rlaxlib.epsilon_greedy                chooses actions by the expectile at ½,
    rlaxlib.expectile_q_learning          is the loss of the naive agent,
    rlaxlib.imputed_expectile_q_learning  is that of the other,
    rlaxlib.periodic_update               renews the target network now and then.

In bsuite's Catch an episode takes nine steps and returns +1 for a catch, -1 for a miss:
-0.6 on average for a random agent. So that there is something to predict beyond the
mean, a coin adds 1 to the reward that ends an episode of training, or takes 1 away.
Expect +1.00 in both final evaluations, after about a minute on two cores, imports and
compilation included. A second plot, in the folder `width`, tells the two agents apart:
from how far the largest expectile lies above the smallest, at each step of an episode.
The reward is as uncertain at the first step as at the last, but the naive agent gets
surer of it the farther it is away.

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
    """Everything there is to choose."""

    seed: int = flag(0, "Seed of the network, all that is drawn and the environment.")
    output: str = flag("results/er_dqn", "Folder for the learning curves.")
    train_episodes: int = flag(1500, "Episodes to learn from, for each agent.")
    eval_episodes: int = flag(100, "Episodes of each evaluation, played greedily.")
    eval_interval: int = flag(100, "Training episodes between two evaluations.")
    reward_noise: float = flag(1.0, "What a coin adds to the last reward, or takes.")
    hidden_units: int = flag(64, "Units of the network's only hidden layer.")
    num_expectiles: int = flag(11, "Expectiles to predict; odd, so that ½ is one.")
    learning_rate: float = flag(1e-3, "Step size of Adam.")
    batch_size: int = flag(64, "Transitions of each gradient step.")
    capacity: int = flag(10_000, "Transitions to keep.")
    target_period: int = flag(25, "Gradient steps from one target network to the next.")
    epsilon: float = flag(0.1, "Probability of a random action during training.")
    discount: float = flag(0.99, "What a reward is worth one step before it comes.")


# --- The agent: a network, its optimizer, and two pure functions. ---


class Agent(TrainState):
    """A network of expectiles `[N, A]`, as it is and as it was when last copied."""

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
    """Choose a random action with probability ε, the one of highest mean otherwise."""
    expectiles = agent.apply_fn(agent.params, observation)
    q_values = expectiles[len(expectiles) // 2]  # At ½: the means.
    key = jax.random.fold_in(key, agent.step)  # New randomness after each update.
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
            dist_q_t,  # Chooses the next action,
            dist_q_t,  # whose return is the target.
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
    agent, key, environment, replay, random, expectile_loss, config
) -> tuple[Agent, float]:
    """Play one episode, and learn from the past after every step of it."""
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
            config.discount * timestep.discount,  # 0 at the end of the episode.
            timestep.observation,
        )
        replay.add(transition)
        batch = replay.sample(config.batch_size)
        agent = learn(agent, batch, expectile_loss, config.target_period)
        episode_return += timestep.reward
    return agent, episode_return


def train_agent(config, expectile_loss) -> tuple[Agent, list[catch.Evaluation]]:
    """Train an agent, and return it with its learning curve."""
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


# --- How wide are the distributions that it predicts? ---


class Width(NamedTuple):
    """How far the largest expectile lies above the smallest, before a step."""

    step: int
    width: float


def predicted_widths(agent, config) -> list[Width]:
    """Average over greedy episodes the widths that an agent predicts, step by step."""
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
    """Return those of a perfect agent: the expectile of a coin at τ is 2τ - 1."""
    tau = rlaxlib.quantile_midpoints(config.num_expectiles)
    last = config.reward_noise * 2 * float(tau[-1] - tau[0])
    return [
        Width(step, last * config.discount ** (num_steps - 1 - step))
        for step in range(num_steps)
    ]


def train(config: Config):
    """Train both agents; return their learning curves, and their widths."""
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
