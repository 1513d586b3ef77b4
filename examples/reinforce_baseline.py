"""Train a REINFORCE agent on Catch, with a learned baseline.

REINFORCE is the simplest policy gradient. The agent plays an episode, updates on it and
discards it. Each action's log-probability is weighted by its advantage, the return that
followed it minus the baseline, a state value that the network predicts. The baseline
does not depend on the action, so that it reduces the variance of the gradient without
changing its expectation.

- `rlaxlib.softmax`: the policy,
- `rlaxlib.discounted_returns`: the returns that followed each action,
- `rlaxlib.policy_gradient_loss`: the loss of the policy,
- `rlaxlib.l2_loss`: the loss of the baseline.

Functions of rlaxlib take one stream of experience, here the episode.

In bsuite's Catch, a ball falls through ten rows of five columns, and the agent moves a
paddle in the bottom row. An episode has nine steps and returns +1 for a catch and -1
for a miss. A random agent averages -0.6. Expect at least +0.9 in the final evaluation,
and +1.0 with most seeds, after about 15 seconds on two cores.

    python reinforce_baseline.py --seed 1 --learning-rate 0.001

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

    seed: int = 0  # Seed of the network, actions and environment.
    output: str = "reinforce_baseline.csv"  # File for the learning curve.
    train_episodes: int = 3000  # Number of training episodes.
    eval_interval: int = 250  # Training episodes between evaluations.
    eval_episodes: int = 100  # Episodes per evaluation, with greedy actions.
    learning_rate: float = 3e-3  # Learning rate of Adam.
    discount: float = 0.99  # Discount factor.
    baseline_cost: float = 0.5  # Weight of the loss of the baseline.


SMALL = Config(train_episodes=20, eval_interval=10, eval_episodes=5)  # For tests.


class Episode(NamedTuple):
    """An episode of T steps. `learn` is compiled for each T."""

    observation: np.ndarray  # [T+1, ...]: the last one is after the last step.
    action: np.ndarray  # [T]
    reward: np.ndarray  # [T]
    discount: np.ndarray  # [T]: 0 at the terminal step, else 1.


# --- Agent: network, loss and update. ---


class Network(nn.Module):
    """Logits of the policy and a state value, for one observation."""

    num_actions: int

    @nn.compact
    def __call__(self, observation):
        hidden = nn.relu(nn.Dense(64)(observation.ravel()))
        logits, value = nn.Dense(self.num_actions)(hidden), nn.Dense(1)(hidden)
        return logits, value.squeeze(-1)


def loss(params, apply, episode, config):
    """Return the loss of the policy and the baseline on one episode."""
    logits_t, v_t = jax.vmap(apply, (None, 0))(params, episode.observation[:-1])
    discount_t = config.discount * episode.discount  # 0 at a terminal step.
    return_t = rlaxlib.discounted_returns(episode.reward, discount_t, v_t=0.0)
    # `policy_gradient_loss` stops the gradient of the advantages, and so of v_t.
    policy_loss = rlaxlib.policy_gradient_loss(
        logits_t, episode.action, return_t - v_t, w_t=jnp.ones_like(v_t)
    )
    baseline_loss = jnp.mean(rlaxlib.l2_loss(v_t, return_t))
    return policy_loss + config.baseline_cost * baseline_loss


@functools.partial(jax.jit, static_argnames="config")
def learn(agent, episode, config):
    """Take one gradient step on one episode."""
    grads = jax.grad(loss)(agent.params, agent.apply_fn, episode, config)
    return agent.apply_gradients(grads=grads)


@jax.jit
def act(agent, key, step, observation):
    """Sample an action from the policy."""
    logits, _ = agent.apply_fn(agent.params, observation)
    return rlaxlib.softmax().sample(jax.random.fold_in(key, step), logits)


@jax.jit
def act_greedily(agent, observation):
    """Return the most likely action."""
    logits, _ = agent.apply_fn(agent.params, observation)
    return jnp.argmax(logits)


# --- Agent and environment. ---


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
    network = Network(environment.action_spec().num_values)
    agent = TrainState.create(
        apply_fn=network.apply,
        params=network.init(init_key, environment.reset().observation),
        tx=optax.adam(config.learning_rate),
    )
    steps, curve = itertools.count(), []  # A new key for each step.
    for episode in (progress := trange(1, config.train_episodes + 1)):

        def choose(observation, agent=agent):
            return act(agent, act_key, next(steps), observation)

        agent = learn(agent, play(environment, choose), config)
        if episode % config.eval_interval == 0:
            curve.append((episode, evaluate(agent, eval_environment, config)))
            progress.set_postfix_str(f"return {curve[-1][1]:+.2f}")
    return curve


def evaluate(agent, environment, config) -> float:
    """Return the mean return of greedy episodes."""
    choose = functools.partial(act_greedily, agent)
    episodes = [play(environment, choose) for _ in range(config.eval_episodes)]
    return float(np.mean([np.sum(episode.reward) for episode in episodes]))


if __name__ == "__main__":
    config = tyro.cli(Config)
    rows, header = train(config), "episode,evaluation return"
    np.savetxt(config.output, rows, "%g", ",", header=header, comments="")
