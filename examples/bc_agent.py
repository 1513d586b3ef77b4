"""Train an agent on Catch by behaviour cloning (BC), from recorded experience.

A Q-learning agent learns Catch and then plays a hundred episodes with ε-greedy
exploration. The clone is trained on these actions by maximum likelihood, without
rewards or an environment. With greedy actions it performs better than the data, because
the random actions are not predictable. The agent is a pytree: `agent.update(batch)`
returns a new agent.

- `rlaxlib.softmax`: the policy: samples, log-probabilities and entropy.

The agent to clone is that of `online_q_learning.py`. The data set is written to a file
in the format of `common/offline.py`. `--dataset` reads any other data set with discrete
actions. In bsuite's Catch, a random agent averages -0.6 and a perfect agent returns +1.
Expect about +0.6 in the data and +1.00 in the final evaluation, after about 25 seconds
on two cores, imports and compilation included.

    python examples/bc_agent.py --seed=1 --data_episodes=20
"""

import dataclasses
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import online_q_learning
import optax
from common import catch, curves, offline
from common.flags import flag, run
from common.networks import MLP
from common.train_state import TrainState
from flax import linen as nn
from flax import struct
from tqdm import trange

import rlaxlib


@dataclasses.dataclass(frozen=True)
class Config:
    """Configuration; each field is a command-line flag."""

    seed: int = flag(0, "Seed of the networks, actions and environments.")
    output: str = flag("results/bc_agent", "Folder for data set and learning curve.")
    dataset: str = flag("", "Data set to read; if empty, one is made.")
    expert_episodes: int = flag(2000, "Training episodes of the agent to clone.")
    data_episodes: int = flag(100, "Episodes in the data set.")
    data_epsilon: float = flag(0.3, "Probability of a random action in the data set.")
    train_steps: int = flag(1000, "Training batches of the clone.")
    eval_episodes: int = flag(100, "Episodes per evaluation, with greedy actions.")
    eval_interval: int = flag(100, "Batches between evaluations.")
    batch_size: int = flag(64, "Transitions per batch.")
    hidden_units: int = flag(64, "Units of the hidden layer.")
    learning_rate: float = flag(1e-3, "Learning rate of Adam.")


class Evaluation(NamedTuple):
    """One point of the learning curve."""

    step: int  # Training batches so far.
    accuracy: float  # On held-out data, a tenth of the data set.
    data_return: float  # Mean return in the data set.
    eval_return: float  # Mean return of the clone, with greedy actions.


# --- Agent: module and loss. ---


class Policy(nn.Module):
    """Logits of the actions."""

    hidden_units: int
    num_actions: int

    @nn.compact
    def __call__(self, observations):
        x = observations.reshape(*observations.shape[:-2], -1)
        return nn.Dense(self.num_actions)(MLP((self.hidden_units,))(x))


class BCAgent(struct.PyTreeNode):
    """An agent trained by behaviour cloning."""

    actor: TrainState

    @jax.jit
    def sample_actions(self, observations, *, seed, temperature=1.0):
        """Sample actions, shape `[...]`; greedy ones at a temperature of 0."""
        policy = rlaxlib.softmax(jnp.maximum(temperature, 1e-6))  # Avoids 0 / 0.
        return policy.sample(seed, self.actor(observations))

    @jax.jit
    def update(self, batch):
        """Return the agent after an update on a batch, and metrics."""

        def loss(params):
            logits = self.actor(batch.observations, params=params)
            policy = rlaxlib.softmax()
            bc_loss = -jnp.mean(policy.logprob(batch.actions, logits))
            entropy = jnp.mean(policy.entropy(logits))
            return bc_loss, {"loss": bc_loss, "entropy": entropy}

        actor, info = self.actor.apply_loss_fn(loss_fn=loss, has_aux=True)
        return self.replace(actor=actor), info

    @jax.jit
    def accuracy(self, batch):
        """Return the fraction of steps whose action is the most likely one."""
        best = jnp.argmax(self.actor(batch.observations), axis=-1)
        return jnp.mean(best == batch.actions)


def make_agent(key, observations, config) -> BCAgent:
    """Initialise the module and the optimizer."""
    num_actions = catch.Catch().action_spec().num_values
    actor = Policy(config.hidden_units, num_actions)
    params = actor.init(key, observations)["params"]
    return BCAgent(TrainState.create(actor, params, optax.adam(config.learning_rate)))


# --- Data set. ---


def make_dataset(config: Config) -> offline.Transitions:
    """Train a Q-learning agent and record its ε-greedy episodes."""
    expert_config = online_q_learning.Config(
        seed=config.seed,
        train_episodes=config.expert_episodes,
        eval_interval=config.expert_episodes,
    )
    init_key, act_key, key = jax.random.split(jax.random.key(config.seed), 3)
    expert, _ = catch.train(
        online_q_learning.make_agent(init_key, catch.Catch(), expert_config),
        lambda agent, environment: online_q_learning.train_episode(
            agent, act_key, environment, expert_config
        ),
        lambda agent, observation: online_q_learning.act(
            agent, act_key, observation, epsilon=0.0
        ),
        expert_config,
    )
    keys = iter(jax.random.split(key, 9 * config.data_episodes))
    environment = catch.Catch(seed=config.seed)
    episodes = [
        catch.play(
            environment,
            lambda observation: online_q_learning.act(
                expert, next(keys), observation, config.data_epsilon
            ),
        )
        for _ in range(config.data_episodes)
    ]
    steps = [
        offline.Transitions(
            observations=episode.observation[:-1],
            actions=episode.action,
            rewards=episode.reward,
            discounts=episode.discount,
            truncated=np.zeros(len(episode.reward), bool),
            next_observations=episode.observation[1:],
        )
        for episode in episodes
    ]
    return jax.tree.map(lambda *xs: np.concatenate(xs), *steps)


# --- Training. ---


def train(config: Config) -> list[Evaluation]:
    """Read or make a data set, clone its policy, and return the learning curve."""
    data = offline.load(config.dataset) if config.dataset else make_dataset(config)
    if not config.dataset:
        offline.save(data, Path(config.output) / "dataset.npz")
    data_return = offline.mean_return(data)
    seen = len(data.rewards) * 9 // 10
    training, held_out = (
        jax.tree.map(lambda x, part=part: x[part], data)
        for part in (slice(seen), slice(seen, None))
    )

    random = np.random.default_rng(config.seed)
    key = jax.random.key(config.seed)
    agent = make_agent(key, data.observations[:1], config)
    environment = catch.Catch(seed=config.seed + 1)
    curve = []
    with trange(1, config.train_steps + 1, unit="batch") as progress:
        for step in progress:
            indices = random.integers(seen, size=config.batch_size)
            batch = jax.tree.map(lambda x, i=indices: x[i], training)
            agent, info = agent.update(batch)
            if step % config.eval_interval == 0 or step == config.train_steps:
                eval_return = catch.evaluate(agent, choose, environment, config)
                accuracy = float(agent.accuracy(held_out))
                curve.append(Evaluation(step, accuracy, data_return, eval_return))
                progress.set_postfix_str(f"loss {info['loss']:.2f}", refresh=False)
    return curve


def choose(agent, observation):
    """Return the most likely action."""
    return agent.sample_actions(observation, seed=jax.random.key(0), temperature=0.0)


def main(config):
    curves.report(train(config), "Behaviour cloning on Catch", config.output)


if __name__ == "__main__":
    run(main, Config)
