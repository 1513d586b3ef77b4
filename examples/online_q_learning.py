"""Train a Q-learning agent on Catch, online: one gradient step per transition.

The simplest agent of deep RL: an ε-greedy policy over the action values of a small
network, without replay buffer, target network or batches. It shows how functions of
rlaxlib connect a network, an optimizer and an environment:

- `rlaxlib.epsilon_greedy`: the behaviour policy,
- `rlaxlib.q_learning`: the TD error,
- `rlaxlib.l2_loss`: the loss of the TD error.

In bsuite's Catch, a ball falls through ten rows of five columns, and the agent moves a
paddle in the bottom row. An episode has nine steps and returns +1 for a catch and -1
for a miss. A random agent averages -0.6. Expect at least +0.9 in the final evaluation,
and +1.0 with most seeds, after about 20 seconds on two cores.

    python online_q_learning.py --seed 1 --epsilon 0.05

Packages: bsuite, flax, optax, tqdm, tyro.
"""

import dataclasses

import jax
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
    output: str = "online_q_learning.csv"  # File for the learning curve.
    train_episodes: int = 4000  # Number of training episodes.
    eval_interval: int = 250  # Training episodes between evaluations.
    eval_episodes: int = 100  # Episodes per evaluation, with greedy actions.
    learning_rate: float = 1e-3  # Learning rate of Adam.
    epsilon: float = 0.1  # Probability of a random action in training.
    discount: float = 0.99  # Discount factor.


SMALL = Config(train_episodes=20, eval_interval=10, eval_episodes=5)  # For tests.


# --- Agent: network, loss and update. ---


class Network(nn.Module):
    """Action values of one observation."""

    num_actions: int

    @nn.compact
    def __call__(self, observation):
        hidden = nn.relu(nn.Dense(64)(observation.ravel()))
        return nn.Dense(self.num_actions)(hidden)


def loss(params, apply, observation_tm1, a_tm1, r_t, discount_t, observation_t):
    """Return the Q-learning loss of one transition."""
    q_tm1 = apply(params, observation_tm1)
    q_t = apply(params, observation_t)
    td_error = rlaxlib.q_learning(q_tm1, a_tm1, r_t, discount_t, q_t)
    return rlaxlib.l2_loss(td_error)


@jax.jit
def learn(agent, *transition):
    """Take one gradient step on one transition."""
    grads = jax.grad(loss)(agent.params, agent.apply_fn, *transition)
    return agent.apply_gradients(grads=grads)


@jax.jit
def act(agent, key, observation, epsilon):
    """Sample an action from the ε-greedy policy."""
    q_values = agent.apply_fn(agent.params, observation)
    key = jax.random.fold_in(key, agent.step)  # A new key after each update.
    return rlaxlib.epsilon_greedy(epsilon).sample(key, q_values)


# --- Agent and environment. ---


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
    curve = []
    for episode in (progress := trange(1, config.train_episodes + 1)):
        timestep = environment.reset()
        while not timestep.last():
            action = act(agent, act_key, timestep.observation, config.epsilon)
            previous, timestep = timestep, environment.step(int(action))
            discount = config.discount * timestep.discount  # 0 at a terminal step.
            agent = learn(
                agent,
                *(previous.observation, action, timestep.reward),
                *(discount, timestep.observation),
            )
        if episode % config.eval_interval == 0:
            curve.append((episode, evaluate(agent, eval_environment, config)))
            progress.set_postfix_str(f"return {curve[-1][1]:+.2f}")
    return curve


def evaluate(agent, environment, config) -> float:
    """Return the mean return of greedy episodes."""
    total, key = 0.0, jax.random.key(0)
    for _ in range(config.eval_episodes):
        timestep = environment.reset()
        while not timestep.last():
            action = act(agent, key, timestep.observation, 0.0)
            timestep = environment.step(int(action))
            total += timestep.reward
    return total / config.eval_episodes


if __name__ == "__main__":
    config = tyro.cli(Config)
    rows, header = train(config), "episode,evaluation return"
    np.savetxt(config.output, rows, "%g", ",", header=header, comments="")
