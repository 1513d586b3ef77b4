"""Train a Q(λ) agent on Catch with rewards of 10,000, with or without PopArt.

Learning rates that suit values near 1 diverge with values near 10,000. PopArt learns
normalised values instead, and has two parts. ART adapts a shift and a scale per action
to the targets. This alone would change the values that the network represents, so that
POP rescales the last layer to preserve them.

- `rlaxlib.epsilon_greedy`: the behaviour policy,
- `rlaxlib.lambda_returns`: the targets,
- `rlaxlib.popart`: the initial state and the update of PopArt,
- `rlaxlib.PopArtState`: the statistics of the targets of each action,
- `rlaxlib.normalize`: normalised targets,
- `rlaxlib.unnormalize`: values in the scale of the rewards,
- `rlaxlib.batched_index`: the outputs for the actions taken,
- `rlaxlib.l2_loss`: the losses.

Three points are easy to get wrong:

- The loss must be differentiated with respect to the parameters that POP returns, and
  these must be stored. If the old parameters are updated instead, each change of the
  scale changes the values.
- Targets are normalised by the updated statistics.
- The loss compares normalised values. Bootstrapping and action selection use values in
  the scale of the rewards.

Returns are in units of 10,000. Expect at least +0.9 in the final evaluation, and +1.0
with most seeds, after about 15 seconds on two cores. Without PopArt, it is about -0.6,
the return of a random agent: the first gradient steps are 10,000 times too large and
leave all hidden units inactive (dead ReLUs). Adam, whose step size does not depend on
the scale of the loss, hides part of the problem.

    python pop_art.py --seed 1 --no-popart
    python pop_art.py --optimizer adam --learning-rate 0.003

Packages: bsuite, flax, optax, tqdm, tyro.
"""

import dataclasses
import functools
import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tyro
from bsuite.environments.catch import Catch
from flax import linen as nn
from flax.training.train_state import TrainState
from tqdm import trange

import rlaxlib


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings; each is a command-line flag."""

    seed: int = 0  # Seed of the network, exploration and environment.
    output: str = "pop_art.csv"  # File for the learning curve.
    popart: bool = True  # Whether to use PopArt.
    train_episodes: int = 3000  # Number of training episodes.
    eval_interval: int = 150  # Training episodes between evaluations.
    eval_episodes: int = 100  # Episodes per evaluation, with greedy actions.
    optimizer: str = "sgd"  # Name of the optimizer in optax.
    learning_rate: float = 0.05  # Learning rate of the optimizer.
    epsilon: float = 0.1  # Probability of a random action in training.
    discount: float = 0.99  # Discount factor.
    lambda_return: float = 0.9  # λ of the returns, in [0, 1].
    reward_scale: float = 10_000.0  # Factor of the rewards.
    step_size: float = 1e-3  # Step size of ART.


SMALL = Config(train_episodes=20, eval_interval=10, eval_episodes=5)  # For tests.


class Episode(NamedTuple):
    """An episode of T steps. `learn` is compiled for each T."""

    observation: np.ndarray  # [T+1, ...]: the last one is after the last step.
    action: np.ndarray  # [T]
    reward: np.ndarray  # [T]
    discount: np.ndarray  # [T]: 0 at the terminal step, else 1.


# --- Agent: network, loss and update. ---


class Network(nn.Module):
    """Normalised action values of one observation; POP rescales the layer `head`."""

    num_actions: int

    @nn.compact
    def __call__(self, observation):
        hidden = nn.relu(nn.Dense(64)(observation.ravel()))
        return nn.Dense(self.num_actions, name="head")(hidden)


class Agent(TrainState):
    """A network, its optimizer, and the PopArt statistics of each action."""

    popart: rlaxlib.PopArtState


def loss(params, agent, episode, targets):
    """Return the loss of an episode, which compares normalised values."""
    normalized = rlaxlib.normalize(agent.popart, targets, episode.action)
    q_tm1 = jax.vmap(agent.apply_fn, (None, 0))(params, episode.observation[:-1])
    q_a_tm1 = rlaxlib.batched_index(q_tm1, episode.action)
    return jnp.mean(rlaxlib.l2_loss(q_a_tm1, normalized))


@functools.partial(jax.jit, static_argnames="config")
def learn(agent, episode, config):
    """Update PopArt, then take one gradient step on all steps of an episode."""
    q_t = jax.vmap(predict, (None, 0))(agent, episode.observation[1:])
    targets = rlaxlib.lambda_returns(
        config.reward_scale * episode.reward,
        config.discount * episode.discount,  # 0 at a terminal step.
        jnp.max(q_t, axis=-1),
        config.lambda_return,
    )
    agent = renormalize(agent, targets, episode.action, config)
    grads = jax.grad(loss)(agent.params, agent, episode, targets)
    return agent.apply_gradients(grads=grads)


def make_popart(num_actions, config):
    """Return the initial state and the update of PopArt."""
    step_size = config.step_size if config.popart else 0.0
    return rlaxlib.popart(num_actions, step_size, scale_lb=1e-4, scale_ub=1e6)


def renormalize(agent, targets, actions, config) -> Agent:
    """Update the statistics and the last layer, which preserves all values.

    The new statistics and parameters belong together: the gradient step must update the
    returned agent, not the one before.
    """
    layers = agent.params["params"]
    _, update = make_popart(agent.popart.shift.size, config)
    head, popart = update(layers["head"], agent.popart, targets, actions)
    return agent.replace(params={"params": {**layers, "head": head}}, popart=popart)


def predict(agent, observation):
    """Return the action values in the scale of the rewards."""
    q = agent.apply_fn(agent.params, observation)
    return rlaxlib.unnormalize(agent.popart, q, jnp.arange(q.size))


@jax.jit
def act(agent, key, step, observation, epsilon):
    """Sample an action from the ε-greedy policy."""
    key = jax.random.fold_in(key, step)
    # Each action has its own scale, so normalised values are not comparable.
    return rlaxlib.epsilon_greedy(epsilon).sample(key, predict(agent, observation))


# --- Agent and environment. ---


def make_agent(key, environment, config) -> Agent:
    """Initialise the network, the optimizer and the statistics."""
    network = Network(environment.action_spec().num_values)
    initial_state, _ = make_popart(network.num_actions, config)
    return Agent.create(
        apply_fn=network.apply,
        params=network.init(key, environment.reset().observation),
        tx=getattr(optax, config.optimizer)(config.learning_rate),
        popart=initial_state(),
    )


def play(environment, choose) -> Episode:
    """Play an episode with `choose`, a function from observation to action."""
    timestep = environment.reset()
    observations, steps = [timestep.observation], []
    while not timestep.last():
        action = int(choose(timestep.observation))
        timestep = environment.step(action)
        observations.append(timestep.observation)
        steps.append((action, timestep.reward, timestep.discount))
    action, reward, discount = map(np.array, zip(*steps, strict=True))
    return Episode(np.stack(observations), action, reward, discount)


def train(config: Config) -> list[tuple[int, float]]:
    """Train an agent; return the evaluation returns over training episodes."""
    environment, eval_environment = Catch(seed=config.seed), Catch(seed=config.seed + 1)
    init_key, act_key = jax.random.split(jax.random.key(config.seed))
    agent = make_agent(init_key, environment, config)
    steps, curve = itertools.count(), []  # A new key for each step.
    for episode in (progress := trange(1, config.train_episodes + 1)):

        def explore(observation, agent=agent):
            return act(agent, act_key, next(steps), observation, config.epsilon)

        agent = learn(agent, play(environment, explore), config)
        if episode % config.eval_interval == 0:
            curve.append((episode, evaluate(agent, eval_environment, config)))
            progress.set_postfix_str(f"return {curve[-1][1]:+.2f}")
    return curve


def evaluate(agent, environment, config) -> float:
    """Return the mean return of greedy episodes, in units of the reward scale."""

    def choose(observation):
        return act(agent, jax.random.key(0), 0, observation, 0.0)

    episodes = [play(environment, choose) for _ in range(config.eval_episodes)]
    return float(np.mean([np.sum(episode.reward) for episode in episodes]))


if __name__ == "__main__":
    config = tyro.cli(Config)
    rows, header = train(config), "episode,evaluation return"
    np.savetxt(config.output, rows, "%g", ",", header=header, comments="")
