"""Train a PPO agent with continuous actions on Pendulum, compiled with the environment.

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
- `rlaxlib.l2_loss`: the loss of the values.

A random agent returns about -1200 in gymnax's Pendulum, and the best return is about
-150. Expect at least -200 in the final evaluation, after about 25 seconds on two cores.

    python ppo_continuous.py --seed 1 --num-envs 64

Packages: flax, gymnax, optax, tqdm, tyro.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tyro
from flax import linen as nn
from flax.training.train_state import TrainState
from gymnax.environments.classic_control.pendulum import Pendulum
from tqdm import trange

import rlaxlib


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings; each is a command-line flag."""

    seed: int = 0  # Seed of the networks, actions and environments.
    output: str = "ppo_continuous.csv"  # File for the learning curve.
    evaluations: int = 20  # Number of evaluations.
    iterations: int = 5  # Rollouts between evaluations.
    eval_episodes: int = 64  # Episodes per evaluation, without noise.
    num_envs: int = 32  # Environments.
    num_steps: int = 64  # Steps of each environment in a rollout.
    num_epochs: int = 10  # Passes over the steps of a rollout.
    num_minibatches: int = 16  # Updates per pass.
    learning_rate: float = 3e-4  # Learning rate of Adam, which falls to 0.
    discount: float = 0.95  # Discount factor.
    lambda_gae: float = 0.95  # λ of GAE.
    epsilon: float = 0.2  # Clipping range of the ratios.
    value_cost: float = 0.5  # Weight of the loss of the values.


SMALL = Config(evaluations=2, iterations=1, num_epochs=2, eval_episodes=2)  # For tests.


class Steps(NamedTuple):
    """Steps of all environments: [T, B, ...], or [N, ...] in a minibatch."""

    observation: Any  # Normalised.
    action: Any
    log_prob: Any
    advantage: Any
    target: Any  # Of the value.


# --- Agent: network, loss and update. ---

ACTION_SIZE = 1


class Network(nn.Module):
    """Separate networks for the mean of the policy and the value."""

    @nn.compact
    def __call__(self, x):
        """Return means and standard deviations, [..., D], and values, [...]."""

        def hidden():
            return nn.relu(nn.Dense(64)(nn.relu(nn.Dense(64)(x))))

        small = nn.initializers.variance_scaling(1e-4, "fan_in", "normal")
        mean = nn.Dense(ACTION_SIZE, kernel_init=small)(hidden())
        log_stddev = self.param("log_stddev", nn.initializers.zeros, (ACTION_SIZE,))
        value = nn.Dense(1)(hidden()).squeeze(-1)
        return mean, jnp.broadcast_to(jnp.exp(log_stddev), mean.shape), value


def loss(params, apply, batch, config):
    """Return the loss of a minibatch."""
    mean, stddev, value = apply(params, batch.observation)
    policy_loss, _ = rlaxlib.ppo_clip_loss(
        rlaxlib.gaussian_diagonal().logprob(batch.action, mean, stddev),
        batch.log_prob,
        rlaxlib.standardize(batch.advantage),
        config.epsilon,
    )
    value_loss = rlaxlib.l2_loss(value, batch.target)
    return jnp.mean(policy_loss + config.value_cost * value_loss)


class Agent(TrainState):
    """A network with its optimizer, and the running normalisers."""

    moments: Any  # Of the observations.
    scale: Any  # Of the rewards of each environment, [B].


def learn(agent, steps, key, config) -> Agent:
    """Update on shuffled minibatches of a rollout, for several epochs."""
    steps = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), steps)

    def update(agent, rows):
        batch = jax.tree.map(lambda x: x[rows], steps)
        grads = jax.grad(loss)(agent.params, agent.apply_fn, batch, config)
        return agent.apply_gradients(grads=grads), None

    keys = jax.random.split(key, config.num_epochs)
    order = jax.vmap(jax.random.permutation, (0, None))(keys, len(steps.target))
    order = order.reshape(config.num_epochs * config.num_minibatches, -1)
    return jax.lax.scan(update, agent, order)[0]


def normalize(agent, observation):
    """Normalise observations by the moments of those before this rollout."""
    return agent.moments.normalize(observation, clip=10.0)


# --- Agent and environment, compiled together. ---

ENVIRONMENT = Pendulum()
EPISODE_STEPS = ENVIRONMENT.default_params.max_steps_in_episode


def env_step(keys, state, action):
    """Step all environments; actions are clipped to [-1, 1]."""
    torque = ENVIRONMENT.default_params.max_torque * jnp.clip(action, -1.0, 1.0)
    return jax.vmap(ENVIRONMENT.step)(keys, state, torque)


def collect(agent, world, key, config):
    """Take T steps in each environment; return agent, environments and steps."""
    policy = rlaxlib.gaussian_diagonal()

    def step(world, key):
        observation, state = world
        act_key, step_key = jax.random.split(key)
        x = normalize(agent, observation)
        mean, stddev, value = agent.apply_fn(agent.params, x)
        action = policy.sample(act_key, mean, stddev)
        keys = jax.random.split(step_key, config.num_envs)
        after, state, reward, ended, truncated, info = env_step(keys, state, action)
        next_x = normalize(agent, info["final_observation"])
        *_, next_value = agent.apply_fn(agent.params, next_x)
        log_prob = policy.logprob(action, mean, stddev)
        stream = value, reward, config.discount * (1.0 - ended), next_value, truncated
        return (after, state), (observation, x, action, log_prob, stream)

    world, outputs = jax.lax.scan(step, world, jax.random.split(key, config.num_steps))
    observation, x, action, log_prob, streams = outputs

    def estimate(scale, stream):
        value, reward, discount, next_value, truncated = stream
        divisor, scale = rlaxlib.reward_scale(axis_name="B").update(
            scale, reward, discount, truncated_t=truncated
        )
        advantage = rlaxlib.generalized_advantage_estimation(
            *(value, reward / divisor, discount, next_value, config.lambda_gae),
            truncated_t=truncated,
        )
        return advantage, advantage + value, scale

    estimate = jax.vmap(estimate, (0, 1), (1, 1, 0), axis_name="B")
    *estimates, scale = estimate(agent.scale, streams)
    _, moments = rlaxlib.running_moments().update(agent.moments, observation)
    agent = agent.replace(moments=moments, scale=scale)
    return agent, world, Steps(x, action, log_prob, *estimates)


def evaluate(agent, key, config):
    """Return the mean return of episodes without noise."""
    keys = jax.random.split(key, config.eval_episodes)

    def step(world, _):
        observation, state, alive = world
        mean, *_ = agent.apply_fn(agent.params, normalize(agent, observation))
        after, state, reward, ended, cut, _ = env_step(keys, state, mean)
        return (after, state, alive & ~(ended | cut)), alive * reward

    world = *jax.vmap(ENVIRONMENT.reset)(keys), jnp.ones(config.eval_episodes, bool)
    _, rewards = jax.lax.scan(step, world, length=EPISODE_STEPS)
    return jnp.mean(jnp.sum(rewards, axis=0))


@functools.partial(jax.jit, static_argnames="config")
def improve(agent, world, key, config):
    """Alternate rollouts and updates; return agent, environments and mean return."""

    def iterate(carry, key):
        agent, world = carry
        collect_key, learn_key = jax.random.split(key)
        agent, world, steps = collect(agent, world, collect_key, config)
        return (learn(agent, steps, learn_key, config), world), None

    keys = jax.random.split(key, config.iterations)
    (agent, world), _ = jax.lax.scan(iterate, (agent, world), keys)
    return agent, world, evaluate(agent, key, config)


def make_agent(key, observation, config) -> Agent:
    """Initialise the network, the optimizer and the normalisers."""
    updates = config.num_epochs * config.num_minibatches
    updates *= config.evaluations * config.iterations
    schedule = optax.linear_schedule(config.learning_rate, 0.0, updates)
    rewards = jnp.zeros((config.num_envs, config.num_steps))
    return Agent.create(
        apply_fn=Network().apply,
        params=Network().init(key, observation),
        tx=optax.chain(optax.clip_by_global_norm(0.5), optax.adam(schedule)),
        moments=rlaxlib.running_moments().init(observation),
        scale=jax.vmap(rlaxlib.reward_scale().init)(rewards),
    )


def train(config: Config) -> list[tuple[int, float]]:
    """Train an agent; return the evaluation returns over environment steps."""
    keys = jax.random.split(jax.random.key(config.seed), 3)
    world = jax.vmap(ENVIRONMENT.reset)(jax.random.split(keys[0], config.num_envs))
    agent, curve = make_agent(keys[1], world[0][0], config), []
    for number in (progress := trange(1, config.evaluations + 1)):
        key = jax.random.fold_in(keys[2], number)
        agent, world, eval_return = improve(agent, world, key, config)
        steps = number * config.iterations * config.num_steps * config.num_envs
        curve.append((steps, float(eval_return)))
        progress.set_postfix_str(f"return {eval_return:.0f}")
    return curve


if __name__ == "__main__":
    config = tyro.cli(Config)
    rows, header = train(config), "step,evaluation return"
    np.savetxt(config.output, rows, "%g", ",", header=header, comments="")
