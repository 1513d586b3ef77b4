"""Train a stream Q(λ) agent on CartPole: one update per step, without replay.

The agent learns from each transition once, when it arrives, and forgets it. It has no
replay buffer, no target network and no batch. An eligibility trace assigns the TD error
to earlier actions, up to the last exploratory one. ObGD bounds the step size, so that
an update seldom overshoots its target. Observations and rewards are normalised by their
running moments. The network has sparse initial weights and layer normalisation.

- `rlaxlib.epsilon_greedy`: the behaviour policy,
- `rlaxlib.running_moments`: the scale of the observations,
- `rlaxlib.reward_scale`: the scale of the rewards,
- `rlaxlib.q_learning`: the TD error,
- `rlaxlib.accumulating_trace`: the eligibility trace of the parameters,
- `rlaxlib.obgd_step_size`: the step size.

The algorithm is that of Elsayed, Vasan and Mahmood, *Streaming Deep Reinforcement
Learning Finally Works*, 2024. The environment of gymnax is compiled with the agent.

A random agent balances the pole for 22 steps, and the maximum is 500. Expect more than
450 in the final evaluation, after about 25 seconds on two cores, imports and
compilation included.

    python examples/stream_q.py --seed=1 --lambda_=0.5
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import gymnax
import jax
import jax.numpy as jnp
from common import curves
from common.flags import flag, run
from flax import linen as nn
from tqdm import tqdm

import rlaxlib


@dataclasses.dataclass(frozen=True)
class Config:
    """Configuration; each field is a command-line flag."""

    seed: int = flag(0, "Seed of the network, exploration and environment.")
    output: str = flag("results/stream_q", "Folder for the learning curve.")
    environment: str = flag("CartPole-v1", "Environment of gymnax.")
    train_steps: int = flag(150_000, "Number of training steps.")
    eval_episodes: int = flag(32, "Episodes per evaluation, with greedy actions.")
    eval_interval: int = flag(15_000, "Training steps between evaluations.")
    hidden_units: int = flag(64, "Units of each of the two hidden layers.")
    sparsity: float = flag(0.9, "Share of the initial weights that are 0.")
    exploration: float = flag(0.2, "Share of the steps over which ε falls from 1.")
    last_epsilon: float = flag(0.01, "Probability of a random action later.")
    discount: float = flag(0.99, "Discount factor.")
    lambda_: float = flag(0.8, "Trace parameter λ.")
    step_size: float = flag(1.0, "Largest step size α.")
    kappa: float = flag(2.0, "Safety factor κ of the step size.")


# --- Agent: network and pure functions. ---


class Network(nn.Module):
    """Action values. Layer normalisation keeps the scale of the features."""

    hidden_units: int
    num_actions: int
    sparsity: float

    @nn.compact
    def __call__(self, x):
        init = functools.partial(sparse_init, sparsity=self.sparsity)
        for _ in range(2):
            x = nn.Dense(self.hidden_units, kernel_init=init)(x)
            x = nn.leaky_relu(nn.LayerNorm(use_scale=False, use_bias=False)(x))
        return nn.Dense(self.num_actions, kernel_init=init)(x)


def sparse_init(key, shape, dtype=jnp.float32, *, sparsity):
    """Return uniform weights. The same share of the weights of each unit is 0."""
    uniform_key, order_key = jax.random.split(key)
    bound = shape[0] ** -0.5
    weights = jax.random.uniform(uniform_key, shape, dtype, -bound, bound)
    order = jnp.argsort(jax.random.uniform(order_key, shape), axis=0)
    return jnp.where(order < int(sparsity * shape[0]), 0, weights)


class Agent(NamedTuple):
    """Parameters, and what the next update needs. A pytree."""

    params: Any
    trace: Any  # Like the parameters.
    discount: jax.Array  # Of the last transition; 0 if a new episode starts.
    observations: rlaxlib.RunningMomentsState
    rewards: rlaxlib.RewardScaleState


class Transition(NamedTuple):
    """A transition."""

    observation_tm1: jax.Array
    a_tm1: jax.Array
    r_t: jax.Array
    terminated: jax.Array
    truncated: jax.Array  # By the time limit.
    observation_t: jax.Array  # Before a reset.


def make_network(environment, config) -> Network:
    """Return the network."""
    return Network(config.hidden_units, environment.num_actions, config.sparsity)


def make_agent(key, environment, config) -> Agent:
    """Initialise the parameters, the trace and the scales."""
    observation, _ = environment.reset(key)
    params = make_network(environment, config).init(key, observation)
    return Agent(
        params=params,
        trace=jax.tree.map(jnp.zeros_like, params),
        discount=jnp.zeros(()),
        observations=rlaxlib.running_moments().init(observation),
        rewards=rlaxlib.reward_scale().init(jnp.zeros(1)),
    )


def action_values(agent, network, observation, params=None):
    """Return the values of all actions, shape `[A]`."""
    params = agent.params if params is None else params
    return network.apply(params, agent.observations.normalize(observation))


def learn(agent, transition, network, config) -> Agent:
    """Return the agent after one update, on the latest transition."""
    observation_tm1, a_tm1, r_t, terminated, truncated, observation_t = transition
    # A product of Python scalars has a weak type: the next step would compile anew.
    discount_t = jnp.float32(config.discount) * (1.0 - terminated)
    _, observations = rlaxlib.running_moments().update(
        agent.observations, observation_t
    )
    scale, rewards = rlaxlib.reward_scale().update(
        agent.rewards, r_t[None], discount_t[None], truncated_t=truncated[None]
    )
    agent = agent._replace(observations=observations, rewards=rewards)

    q_tm1 = action_values(agent, network, observation_tm1)
    q_t = action_values(agent, network, observation_t)
    td_error = rlaxlib.q_learning(q_tm1, a_tm1, r_t / scale, discount_t, q_t)
    gradient = jax.grad(
        lambda params: action_values(agent, network, observation_tm1, params)[a_tm1]
    )(agent.params)

    # Earlier values follow the best action, not an exploratory one (Watkins).
    is_best = q_tm1[a_tm1] == jnp.max(q_tm1)
    decay = jnp.where(is_best, agent.discount * config.lambda_, 0.0)
    trace = rlaxlib.accumulating_trace(agent.trace, gradient, decay)
    step_size = rlaxlib.obgd_step_size(trace, td_error, config.step_size, config.kappa)
    return agent._replace(
        params=jax.tree.map(
            lambda w, z: w + step_size * td_error * z, agent.params, trace
        ),
        trace=trace,
        discount=jnp.where(truncated, 0.0, discount_t),
    )


# --- Training, compiled with the environment. ---


class Loop(NamedTuple):
    """State of the training loop."""

    agent: Agent
    state: Any  # State of the environment.
    observation: jax.Array
    steps: jax.Array


class Evaluation(NamedTuple):
    """One point of the learning curve."""

    step: int
    train_return: float  # Mean of the episodes since the last point; NaN if none ended.
    eval_return: float  # Mean over evaluation episodes, with greedy actions.


@functools.partial(jax.jit, static_argnames=("environment", "config", "steps"))
def run_steps(loop, key, environment, config, steps):
    """Take steps with one update each; return the loop and the rewards and ends."""
    network = make_network(environment, config)

    def one(loop, key):
        act_key, step_key = jax.random.split(key)
        progress = loop.steps / (config.exploration * config.train_steps)
        epsilon = jnp.maximum(config.last_epsilon, 1.0 - progress)
        q_values = action_values(loop.agent, network, loop.observation)
        action = rlaxlib.epsilon_greedy(epsilon).sample(act_key, q_values)
        observation, state, reward, terminated, truncated, info = environment.step(
            step_key, loop.state, action
        )
        transition = Transition(
            loop.observation,
            action,
            reward,
            terminated,
            truncated & ~terminated,
            info["final_observation"],
        )
        agent = learn(loop.agent, transition, network, config)
        loop = Loop(agent, state, observation, loop.steps + 1)
        return loop, (reward, terminated | truncated)

    return jax.lax.scan(one, loop, jax.random.split(key, steps))


@functools.partial(jax.jit, static_argnames=("environment", "config"))
def evaluate(agent, key, environment, config):
    """Return the mean return over evaluation episodes."""
    network = make_network(environment, config)

    def play(key):
        def one(carry, key):
            observation, state, alive = carry
            action = jnp.argmax(action_values(agent, network, observation))
            observation, state, reward, terminated, truncated, _ = environment.step(
                key, state, action
            )
            ends = terminated | truncated
            return (observation, state, alive & ~ends), reward * alive

        reset_key, key = jax.random.split(key)
        start = (*environment.reset(reset_key), True)
        steps = environment.default_params.max_steps_in_episode
        _, rewards = jax.lax.scan(one, start, jax.random.split(key, steps))
        return jnp.sum(rewards)

    return jnp.mean(jax.vmap(play)(jax.random.split(key, config.eval_episodes)))


def train(config: Config) -> list[Evaluation]:
    """Train an agent and return its learning curve."""
    keys = jax.random.split(jax.random.key(config.seed), 4)
    environment, _ = gymnax.make(config.environment)
    observation, state = environment.reset(keys[0])
    agent = make_agent(keys[1], environment, config)
    loop = Loop(agent, state, observation, jnp.zeros((), jnp.int32))
    curve = []
    with tqdm(total=config.train_steps, unit="step") as progress:
        while progress.n < config.train_steps:
            steps = min(config.eval_interval, config.train_steps - progress.n)
            key = jax.random.fold_in(keys[2], progress.n)
            loop, (rewards, ends) = run_steps(loop, key, environment, config, steps)
            eval_return = float(evaluate(loop.agent, keys[3], environment, config))
            train_return = float(jnp.sum(rewards) / jnp.sum(ends))
            progress.set_postfix_str(f"return {eval_return:+.0f}", refresh=False)
            progress.update(steps)
            curve.append(Evaluation(progress.n, train_return, eval_return))
    return curve


def main(config):
    curves.report(train(config), f"Stream Q(λ) on {config.environment}", config.output)


if __name__ == "__main__":
    run(main, Config)
