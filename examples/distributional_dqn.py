"""Train a distributional DQN agent on Catch: C51, QR-DQN or ER-DQN.

A distributional agent is DQN with a distribution of the return in place of its mean.
For each action, the network predicts N numbers, and `--loss` says which:

- `c51`: logits of the probabilities of N fixed returns, the atoms. The target
  distribution is projected onto the atoms, and the loss is the cross-entropy.
- `qr_dqn`: quantiles, which need no range of returns, by quantile regression.
- `er_dqn`: expectiles, by expectile regression. Expectiles of the next state are not
  samples of its return, so samples are imputed first.
- `naive_er_dqn`: the same without imputation, whose expectiles collapse to the mean.

The functions that it uses:

- `rlaxlib.epsilon_greedy`: the behaviour policy over the mean returns,
- `rlaxlib.softmax`, `rlaxlib.categorical_q_learning`: C51,
- `rlaxlib.quantile_midpoints`: the fractions τ of quantiles and expectiles,
- `rlaxlib.quantile_q_learning`: QR-DQN,
- `rlaxlib.imputed_expectile_q_learning`: ER-DQN,
- `rlaxlib.expectile_q_learning`: ER-DQN without imputation,
- `rlaxlib.periodic_update`: the parameters of the target network.

An episode of bsuite's Catch has nine steps and returns +1 for a catch and -1 for a
miss, so the atoms span [-1, 1]. A random agent averages -0.6. Expect at least +0.9 in
the final evaluation, and +1.0 with most seeds, after about 20 seconds on two cores.

    python distributional_dqn.py --loss qr_dqn --num-outputs 21

Packages: bsuite, flax, optax, tqdm, tyro.
"""

import collections
import dataclasses
import functools
from typing import Any, Literal, NamedTuple

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

    seed: int = 0  # Seed of the network, exploration, replay and environment.
    output: str = "distributional_dqn.csv"  # File for the learning curve.
    loss: Literal["c51", "qr_dqn", "er_dqn", "naive_er_dqn"] = "c51"  # The algorithm.
    train_episodes: int = 1500  # Number of training episodes.
    eval_interval: int = 100  # Training episodes between evaluations.
    eval_episodes: int = 100  # Episodes per evaluation, with greedy actions.
    num_outputs: int = 51  # Atoms, quantiles or expectiles; odd for expectiles.
    min_return: float = -1.0  # Smallest atom of C51.
    max_return: float = 1.0  # Largest atom of C51.
    huber_param: float = 1.0  # Threshold of the Huber loss of QR-DQN; 0 for none.
    learning_rate: float = 1e-3  # Learning rate of Adam.
    batch_size: int = 64  # Transitions per batch.
    capacity: int = 10_000  # Capacity of the replay buffer, in transitions.
    target_period: int = 25  # Updates between copies to the target network.
    epsilon: float = 0.1  # Probability of a random action in training.
    discount: float = 0.99  # Discount factor.


SMALL = Config(train_episodes=20, eval_interval=10, eval_episodes=5)  # For tests.


class Transition(NamedTuple):
    """A transition, or a batch of transitions."""

    observation_tm1: np.ndarray
    a_tm1: np.ndarray
    r_t: np.ndarray
    discount_t: np.ndarray
    observation_t: np.ndarray


# --- Agent: network, losses and update. ---


class Network(nn.Module):
    """N numbers for each action of one observation, [N, A]."""

    num_outputs: int
    num_actions: int

    @nn.compact
    def __call__(self, observation):
        hidden = nn.relu(nn.Dense(64)(observation.ravel()))
        outputs = nn.Dense(self.num_outputs * self.num_actions)(hidden)
        return outputs.reshape(self.num_outputs, self.num_actions)


def loss(config, dist_q_tm1, a_tm1, r_t, discount_t, dist_q_t):
    """Return the loss of one transition, for predictions of shape [N, A]."""
    if config.loss == "c51":
        atoms = atoms_of(config)
        return rlaxlib.categorical_q_learning(
            *(atoms, dist_q_tm1.T, a_tm1, r_t, discount_t, atoms, dist_q_t.T)
        )
    tau = rlaxlib.quantile_midpoints(config.num_outputs)
    # The last two: the values that select the next action, and those that evaluate it.
    inputs = dist_q_tm1, tau, a_tm1, r_t, discount_t, dist_q_t, dist_q_t
    if config.loss == "qr_dqn":
        return rlaxlib.quantile_q_learning(*inputs, config.huber_param)
    if config.loss == "er_dqn":
        return rlaxlib.imputed_expectile_q_learning(*inputs)
    return rlaxlib.expectile_q_learning(*inputs)


def mean_returns(config, dist_q):
    """Return the means of the predicted distributions, [A]."""
    if config.loss == "c51":
        return rlaxlib.softmax().probs(dist_q.T) @ atoms_of(config)
    if config.loss == "qr_dqn":
        return jnp.mean(dist_q, axis=0)
    return dist_q[config.num_outputs // 2]  # The expectile at τ = ½ is the mean.


def atoms_of(config):
    """Return the support of the distributions of C51."""
    return jnp.linspace(config.min_return, config.max_return, config.num_outputs)


class Agent(TrainState):
    """An online network, its optimizer, and the parameters of a target network."""

    target_params: Any


@functools.partial(jax.jit, static_argnames="config")
def learn(agent, batch, config):
    """Take one gradient step on a batch of transitions."""
    network = jax.vmap(agent.apply_fn, (None, 0))

    def mean_loss(params):
        losses = jax.vmap(functools.partial(loss, config))(
            network(params, batch.observation_tm1),
            *(batch.a_tm1, batch.r_t, batch.discount_t),
            network(agent.target_params, batch.observation_t),
        )
        return jnp.mean(losses)

    agent = agent.apply_gradients(grads=jax.grad(mean_loss)(agent.params))
    target_params = rlaxlib.periodic_update(
        agent.params, agent.target_params, agent.step, config.target_period
    )
    return agent.replace(target_params=target_params)


@functools.partial(jax.jit, static_argnames="config")
def act(agent, key, observation, epsilon, config):
    """Sample an action from the ε-greedy policy over the mean returns."""
    q_values = mean_returns(config, agent.apply_fn(agent.params, observation))
    key = jax.random.fold_in(key, agent.step)  # A new key after each update.
    return rlaxlib.epsilon_greedy(epsilon).sample(key, q_values)


# --- Agent and environment. ---


def make_agent(key, environment, config) -> Agent:
    """Initialise the networks and the optimizer."""
    network = Network(config.num_outputs, environment.action_spec().num_values)
    params = network.init(key, environment.reset().observation)
    return Agent.create(
        apply_fn=network.apply,
        params=params,
        tx=optax.adam(config.learning_rate),
        target_params=params,
    )


def train(config: Config) -> list[tuple[int, float]]:
    """Train an agent; return the evaluation returns over training episodes."""
    environment, eval_environment = Catch(seed=config.seed), Catch(seed=config.seed + 1)
    init_key, act_key = jax.random.split(jax.random.key(config.seed))
    agent = make_agent(init_key, environment, config)
    random, curve = np.random.default_rng(config.seed), []
    replay = collections.deque(maxlen=config.capacity)
    for episode in (progress := trange(1, config.train_episodes + 1)):
        timestep = environment.reset()
        while not timestep.last():
            observation = timestep.observation
            action = int(act(agent, act_key, observation, config.epsilon, config))
            timestep = environment.step(action)
            discount = config.discount * timestep.discount  # 0 at a terminal step.
            new = observation, action, timestep.reward, discount, timestep.observation
            replay.append(new)
            indices = random.integers(len(replay), size=config.batch_size)
            batch = [
                np.stack(x) for x in zip(*(replay[i] for i in indices), strict=True)
            ]
            agent = learn(agent, Transition(*batch), config)
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
            action = act(agent, key, timestep.observation, 0.0, config)
            timestep = environment.step(int(action))
            total += timestep.reward
    return total / config.eval_episodes


if __name__ == "__main__":
    config = tyro.cli(Config)
    rows, header = train(config), "episode,evaluation return"
    np.savetxt(config.output, rows, "%g", ",", header=header, comments="")
