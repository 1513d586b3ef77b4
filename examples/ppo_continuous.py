"""Train a PPO agent with continuous actions on Pendulum, in jitted loops.

Three parts of continuous PPO are easy to get wrong.
Observations are normalised by the moments of all observations so far: those that the
policy acts with are also those that it learns with. Rewards are divided by the standard
deviation of their discounted sums, without subtracting a mean. Episodes that a time
limit cuts are truncated, not terminated: advantages bootstrap from the value of the
true next observation, which is not the first one of the next episode.

- `rlaxlib.gaussian_diagonal`: the policy,
- `rlaxlib.running_moments`: the moments of the observations,
- `rlaxlib.reward_scale`: the divisor of the rewards,
- `rlaxlib.generalized_advantage_estimation`: the advantages (GAE),
- `rlaxlib.standardize`: the standardised advantages,
- `rlaxlib.ppo_clip_loss`: the loss of the policy,
- `rlaxlib.ppo_value_loss`: the loss of the values.

A random agent returns about -1200 in gymnax's Pendulum, and the best return is about
-150. Expect more than -200 in the final evaluation, after about 25 seconds on two
cores, imports and compilation included. Pendulum, whose observations are of the order
of 1, needs neither normalisation: the flags show it.

    python examples/ppo_continuous.py --seed=1 --scale_rewards=False
"""

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from common import curves, loops
from common.flags import flag, run
from common.networks import MLP
from common.pendulum import ACTION_SIZE, ENVIRONMENT, EPISODE_STEPS, OBSERVATION_SIZE
from common.train_state import TrainState
from flax import linen as nn
from flax import struct

import rlaxlib


@dataclasses.dataclass(frozen=True)
class Config:
    """Configuration; each field is a command-line flag."""

    seed: int = flag(0, "Seed of the networks, actions and environments.")
    output: str = flag("results/ppo_continuous", "Folder for the learning curve.")
    evaluations: int = flag(20, "Evaluations, in addition to the initial one.")
    iterations: int = flag(5, "Rollouts between evaluations.")
    eval_episodes: int = flag(64, "Episodes per evaluation, without noise.")
    num_envs: int = flag(32, "Environments.")
    num_steps: int = flag(64, "Steps of each environment in a rollout.")
    num_epochs: int = flag(10, "Passes over the steps of a rollout.")
    num_minibatches: int = flag(16, "Updates per pass.")
    hidden_units: int = flag(64, "Units of each of the two hidden layers.")
    learning_rate: float = flag(3e-4, "Learning rate of Adam.")
    discount: float = flag(0.95, "Discount factor.")
    lambda_: float = flag(0.95, "Parameter λ of GAE.")
    epsilon: float = flag(0.2, "Clipping range of the ratios.")
    value_cost: float = flag(0.5, "Weight of the loss of the values.")
    normalize_observations: bool = flag(True, "Whether to normalise observations.")
    scale_rewards: bool = flag(True, "Whether to scale rewards.")


# --- Agent. B environments, T steps, D action dimensions. ---


class Network(nn.Module):
    """Separate networks for the mean of the policy and the value."""

    hidden_units: int

    @nn.compact
    def __call__(self, observations):
        """Return means, standard deviations, both [..., D], and values, [...]."""
        layers = (self.hidden_units, self.hidden_units)
        small = nn.initializers.variance_scaling(1e-4, "fan_in", "normal")
        mean = nn.Dense(ACTION_SIZE, kernel_init=small)(MLP(layers)(observations))
        log_stddev = self.param("log_stddev", nn.initializers.zeros, (ACTION_SIZE,))
        value = nn.Dense(1)(MLP(layers)(observations)).squeeze(-1)
        return mean, jnp.broadcast_to(jnp.exp(log_stddev), mean.shape), value


class Rollout(NamedTuple):
    """Steps of all environments, [B, T, ...]."""

    observation: Any
    action: Any
    log_prob: Any
    reward: Any
    terminated: Any  # No bootstrap.
    truncated: Any  # Time limit: bootstrap from the next observation.
    next_observation: Any  # Before a reset.


class Minibatch(NamedTuple):
    """A batch of steps, [N, ...]; observations are normalised."""

    observation: Any
    action: Any
    log_prob: Any
    value: Any
    advantage: Any


class PPOAgent(struct.PyTreeNode):
    """A PPO agent for continuous actions, with its environments."""

    network: TrainState
    moments: Any  # Of the observations.
    scale: Any  # Of the rewards of each environment, [B].
    env_state: Any
    observation: jax.Array  # [B, ...]
    config: Config = struct.field(pytree_node=False)

    def normalize(self, observations):
        """Normalise observations by the moments of those before this rollout."""
        if not self.config.normalize_observations:
            return observations
        return self.moments.normalize(observations, clip=10.0)

    def iterate(self, key):
        """Return the agent after a rollout and the updates on it."""
        act_key, learn_key = jax.random.split(key)
        agent, rollout = self.collect(act_key)
        agent, steps = agent.estimate(rollout)
        agent = agent.learn(steps, learn_key)
        _, moments = rlaxlib.running_moments().update(self.moments, rollout.observation)
        return agent.replace(moments=moments)

    def collect(self, key):
        """Take T steps in each environment."""
        policy = rlaxlib.gaussian_diagonal()

        def step(agent, key):
            act_key, step_key = jax.random.split(key)
            mean, stddev, _ = self.network(self.normalize(agent.observation))
            action = policy.sample(act_key, mean, stddev)
            keys = jax.random.split(step_key, len(action))
            observation, env_state, reward, terminated, truncated, info = jax.vmap(
                ENVIRONMENT.step
            )(keys, agent.env_state, torque(action))
            rollout = Rollout(
                observation=agent.observation,
                action=action,
                log_prob=policy.logprob(action, mean, stddev),
                reward=reward,
                terminated=terminated,
                truncated=truncated,
                next_observation=info["final_observation"],
            )
            agent = agent.replace(observation=observation, env_state=env_state)
            return agent, rollout

        keys = jax.random.split(key, self.config.num_steps)
        agent, rollout = jax.lax.scan(step, self, keys)
        return agent, jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), rollout)

    def estimate(self, rollout):
        """Scale the rewards, and estimate the advantages of all steps by GAE."""
        discounts = self.config.discount * (1.0 - rollout.terminated)
        update = jax.vmap(rlaxlib.reward_scale(axis_name="B").update, axis_name="B")
        divisor, scale = update(
            self.scale, rollout.reward, discounts, truncated_t=rollout.truncated
        )
        rewards = rollout.reward
        if self.config.scale_rewards:
            rewards = rewards / divisor[:, None]
        observations = self.normalize(rollout.observation)
        *_, value = self.network(observations)
        *_, next_value = self.network(self.normalize(rollout.next_observation))
        gae = jax.vmap(rlaxlib.generalized_advantage_estimation, (0, 0, 0, 0, None))
        inputs = value, rewards, discounts, next_value, self.config.lambda_
        advantage = gae(*inputs, truncated_t=rollout.truncated)
        steps = Minibatch(
            observations, rollout.action, rollout.log_prob, value, advantage
        )
        return self.replace(scale=scale), steps

    def learn(self, steps, key):
        """Update on shuffled minibatches, for several epochs."""
        steps = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), steps)
        size = len(steps.value)

        def update(network, rows):
            minibatch = jax.tree.map(lambda x: x[rows], steps)

            def loss(params):
                return self.loss(params, minibatch)

            return network.apply_loss_fn(loss_fn=loss), None

        keys = jax.random.split(key, self.config.num_epochs)
        order = jax.vmap(lambda key: jax.random.permutation(key, size))(keys)
        order = order.reshape(len(keys) * self.config.num_minibatches, -1)
        network, _ = jax.lax.scan(update, self.network, order)
        return self.replace(network=network)

    def loss(self, params, batch):
        """Return the loss of a minibatch."""
        mean, stddev, value = self.network(batch.observation, params=params)
        policy_loss, _ = rlaxlib.ppo_clip_loss(
            rlaxlib.gaussian_diagonal().logprob(batch.action, mean, stddev),
            batch.log_prob,
            rlaxlib.standardize(batch.advantage),
            self.config.epsilon,
        )
        target = batch.value + batch.advantage
        value_loss, _ = rlaxlib.ppo_value_loss(value, batch.value, target, math.inf)
        return jnp.mean(policy_loss + self.config.value_cost * value_loss)


def torque(action):
    """Scale actions, [..., D], to torques; bounds are [-1, 1]."""
    return ENVIRONMENT.default_params.max_torque * jnp.clip(action, -1.0, 1.0)


def make_agent(key, config) -> PPOAgent:
    """Initialise the network, the normalisation and the environments."""
    network_key, env_key = jax.random.split(key)
    network = Network(config.hidden_units)
    observation = jnp.zeros(OBSERVATION_SIZE)
    params = network.init(network_key, observation)["params"]
    updates = config.num_epochs * config.num_minibatches
    updates *= config.evaluations * config.iterations
    optimizer = optax.chain(
        optax.clip_by_global_norm(0.5),
        optax.adam(optax.linear_schedule(config.learning_rate, 0.0, updates)),
    )
    rewards = jnp.zeros((config.num_envs, config.num_steps))
    keys = jax.random.split(env_key, config.num_envs)
    observations, env_state = jax.vmap(ENVIRONMENT.reset)(keys)
    return PPOAgent(
        network=TrainState.create(network, params, optimizer),
        moments=rlaxlib.running_moments().init(observation),
        scale=jax.vmap(rlaxlib.reward_scale().init)(rewards),
        env_state=env_state,
        observation=observations,
        config=config,
    )


# --- Training. ---


def evaluate(agent, key):
    """Return the mean return of episodes without noise."""

    def step(carry, _):
        observation, env_state = carry
        mean, *_ = agent.network(agent.normalize(observation))
        observation, env_state, reward, *_ = jax.vmap(ENVIRONMENT.step)(
            keys, env_state, torque(mean)
        )
        return (observation, env_state), reward

    keys = jax.random.split(key, agent.config.eval_episodes)
    start = jax.vmap(ENVIRONMENT.reset)(keys)
    _, rewards = jax.lax.scan(step, start, length=EPISODE_STEPS)
    return jnp.mean(jnp.sum(rewards, axis=0))


def train(config: Config) -> list[loops.Point]:
    """Train an agent and return its learning curve."""
    agent_key, key = jax.random.split(jax.random.key(config.seed))

    def improve(agent, key):
        keys = jax.random.split(key, config.iterations)
        return jax.lax.scan(lambda a, key: (a.iterate(key), None), agent, keys)[0]

    steps = config.iterations * config.num_envs * config.num_steps
    agent = make_agent(agent_key, config)
    return loops.train(agent, key, improve, evaluate, config.evaluations, steps)[1]


def main(config):
    curves.report(train(config), "Continuous PPO on Pendulum", config.output)


if __name__ == "__main__":
    run(main, Config)
