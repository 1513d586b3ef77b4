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
- `rlaxlib.eligibility_trace`: the eligibility trace of the parameters,
- `rlaxlib.obgd_step_size`: the step size.

The algorithm is that of Elsayed, Vasan and Mahmood, *Streaming Deep Reinforcement
Learning Finally Works*, 2024. The environment of gymnax is compiled with the agent.

A random agent balances the pole for 22 steps, and the maximum is 500. Expect at least
450 in the final evaluation, after about 20 seconds on two cores.

    python stream_q.py --seed 1 --lambda-trace 0.5

Packages: flax, gymnax, tqdm, tyro.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import tyro
from flax import linen as nn
from tqdm import trange

import rlaxlib


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings; each is a command-line flag."""

    seed: int = 0  # Seed of the network, exploration and environment.
    output: str = "stream_q.csv"  # File for the learning curve.
    environment: str = "CartPole-v1"  # Environment of gymnax, with discrete actions.
    evaluations: int = 10  # Number of evaluations.
    eval_interval: int = 15_000  # Training steps between evaluations.
    eval_episodes: int = 32  # Episodes per evaluation, with greedy actions.
    exploration_steps: int = 30_000  # Steps over which ε falls from 1.
    last_epsilon: float = 0.01  # Probability of a random action later.
    discount: float = 0.99  # Discount factor.
    lambda_trace: float = 0.8  # λ of the eligibility trace.
    step_size: float = 1.0  # Largest step size α.
    kappa: float = 2.0  # Safety factor κ of the step size.


SMALL = Config(evaluations=2, eval_interval=100, eval_episodes=2)  # For tests.


# --- Agent: network and update. ---


class Network(nn.Module):
    """Action values of one observation. Layer normalisation keeps the scale."""

    num_actions: int

    @nn.compact
    def __call__(self, observation):
        x = observation.ravel()
        for _ in range(2):
            x = nn.Dense(64, kernel_init=sparse_init)(x)
            x = nn.leaky_relu(nn.LayerNorm(use_scale=False, use_bias=False)(x))
        return nn.Dense(self.num_actions, kernel_init=sparse_init)(x)


def sparse_init(key, shape, dtype=jnp.float32):
    """Return uniform weights, of which each unit has 90 % set to 0."""
    uniform_key, order_key = jax.random.split(key)
    bound = shape[0] ** -0.5
    weights = jax.random.uniform(uniform_key, shape, dtype, -bound, bound)
    order = jnp.argsort(jax.random.uniform(order_key, shape), axis=0)
    return jnp.where(order < int(0.9 * shape[0]), 0, weights)


class Agent(NamedTuple):
    """Parameters, trace, and the scales of observations and rewards."""

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


def learn(agent, transition, network, config) -> Agent:
    """Return the agent after one update, on the latest transition."""
    observation_tm1, a_tm1, r_t, terminated, truncated, observation_t = transition
    discount_t = config.discount * (1.0 - terminated)
    _, observations = rlaxlib.running_moments().update(
        agent.observations, observation_t
    )
    scale, rewards = rlaxlib.reward_scale().update(
        agent.rewards, r_t[None], discount_t[None], truncated_t=truncated[None]
    )

    def action_values(params, observation):
        return network.apply(params, observations.normalize(observation))

    q_tm1 = action_values(agent.params, observation_tm1)
    q_t = action_values(agent.params, observation_t)
    td_error = rlaxlib.q_learning(q_tm1, a_tm1, r_t / scale, discount_t, q_t)
    gradient = jax.grad(lambda params: action_values(params, observation_tm1)[a_tm1])(
        agent.params
    )

    # Earlier values follow the best action, not an exploratory one (Watkins).
    is_best = a_tm1 == jnp.argmax(q_tm1)
    decay = jnp.where(is_best, agent.discount * config.lambda_trace, 0.0)
    trace = rlaxlib.eligibility_trace(agent.trace, gradient, decay)
    step = rlaxlib.obgd_step_size(trace, td_error, config.step_size, config.kappa)
    return Agent(
        jax.tree.map(lambda w, z: w + step * td_error * z, agent.params, trace),
        trace,
        jnp.where(truncated, 0.0, discount_t),
        observations,
        rewards,
    )


def make_agent(key, network, observation) -> Agent:
    """Initialise the parameters, the trace and the scales."""
    params = network.init(key, observation)
    return Agent(
        params=params,
        trace=jax.tree.map(jnp.zeros_like, params),
        discount=jnp.zeros(()),
        observations=rlaxlib.running_moments().init(observation),
        rewards=rlaxlib.reward_scale().init(jnp.zeros(1)),
    )


def act(agent, key, observation, epsilon, network):
    """Sample an action from the ε-greedy policy."""
    q_values = network.apply(agent.params, agent.observations.normalize(observation))
    return rlaxlib.epsilon_greedy(epsilon).sample(key, q_values)


# --- Agent and environment, compiled together. ---


@functools.partial(jax.jit, static_argnames="config")
def run(loop, key, config):
    """Take steps with one update each, from agent, observation, state and step."""
    environment, _ = gymnax.make(config.environment)
    network = Network(environment.num_actions)

    def step(loop, key):
        agent, observation, state, steps = loop
        act_key, step_key = jax.random.split(key)
        progress = steps / config.exploration_steps
        epsilon = jnp.maximum(config.last_epsilon, 1.0 - progress)
        action = act(agent, act_key, observation, epsilon, network)
        next_observation, state, reward, terminated, truncated, info = environment.step(
            step_key, state, action
        )
        transition = Transition(
            *(observation, action, reward, terminated, truncated & ~terminated),
            info["final_observation"],
        )
        agent = learn(agent, transition, network, config)
        return (agent, next_observation, state, steps + 1), None

    return jax.lax.scan(step, loop, jax.random.split(key, config.eval_interval))[0]


@functools.partial(jax.jit, static_argnames="config")
def evaluate(agent, key, config):
    """Return the mean return of greedy episodes."""
    environment, _ = gymnax.make(config.environment)
    network = Network(environment.num_actions)

    def play(key):
        def step(carry, key):
            observation, state, alive = carry
            action = act(agent, key, observation, 0.0, network)
            observation, state, reward, terminated, truncated, _ = environment.step(
                key, state, action
            )
            return (
                observation,
                state,
                alive & ~(terminated | truncated),
            ), reward * alive

        reset_key, key = jax.random.split(key)
        start = (*environment.reset(reset_key), True)
        steps = environment.default_params.max_steps_in_episode
        _, rewards = jax.lax.scan(step, start, jax.random.split(key, steps))
        return jnp.sum(rewards)

    return jnp.mean(jax.vmap(play)(jax.random.split(key, config.eval_episodes)))


def train(config: Config) -> list[tuple[int, float]]:
    """Train an agent; return the evaluation returns over training steps."""
    keys = jax.random.split(jax.random.key(config.seed), 4)
    environment, _ = gymnax.make(config.environment)
    observation, state = environment.reset(keys[0])
    agent = make_agent(keys[1], Network(environment.num_actions), observation)
    loop, curve = (agent, observation, state, jnp.int32(0)), []
    for number in (progress := trange(1, config.evaluations + 1)):
        loop = run(loop, jax.random.fold_in(keys[2], number), config)
        eval_return = float(evaluate(loop[0], keys[3], config))
        curve.append((number * config.eval_interval, eval_return))
        progress.set_postfix_str(f"return {eval_return:.0f}")
    return curve


if __name__ == "__main__":
    config = tyro.cli(Config)
    rows, header = train(config), "step,evaluation return"
    np.savetxt(config.output, rows, "%g", ",", header=header, comments="")
