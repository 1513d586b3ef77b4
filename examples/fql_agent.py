"""Train an agent on Pendulum by flow Q-learning (FQL), from recorded data.

A flow policy can represent any distribution of actions, such as that of data which
several policies recorded. It is trained by flow matching: a network predicts the
velocity from noise to an action of the data, and an action is the solution of the flow
from noise, by Euler's method. The gradient of a value through all steps of a flow is
slow and unstable, so FQL trains the flow by behaviour cloning only. Besides, it trains
a policy with one step from noise to an action, which learns both to end where the flow
ends and to maximise the value.

- `rlaxlib.flow_matching_sample`: the points of the paths, and their velocities,
- `rlaxlib.l2_loss`: the loss of the critics.

In the data set, a controller plays, and 40 to 100 % of its actions are random. A random
agent returns about -1200 in gymnax's Pendulum, and the best return is about -150; the
data average about -800. Expect at least -250 in the final evaluation, after about 30
seconds on two cores. The weight of the distillation fits this scale of rewards: a
higher one keeps closer to the data.

    python fql_agent.py --seed 1 --weight 10

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
from gymnax.environments.classic_control.pendulum import Pendulum
from tqdm import trange

import rlaxlib


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings; each is a command-line flag."""

    seed: int = 0  # Seed of the networks, data set and environment.
    output: str = "fql_agent.csv"  # File for the learning curve.
    data_episodes: int = 50  # Episodes in the data set.
    evaluations: int = 8  # Number of evaluations.
    eval_interval: int = 1000  # Gradient steps between evaluations.
    eval_episodes: int = 32  # Episodes per evaluation, with sampled actions.
    batch_size: int = 128  # Transitions per batch.
    learning_rate: float = 1e-3  # Learning rate of Adam.
    discount: float = 0.99  # Discount factor.
    tau: float = 0.01  # Step size of the target critics.
    flow_steps: int = 10  # Steps of Euler's method.
    weight: float = 3.0  # Weight of the distillation loss, relative to values.


# Takes seconds, for tests.
SMALL = Config(data_episodes=2, evaluations=2, eval_interval=20, eval_episodes=2)


class Transition(NamedTuple):
    """Transitions, [N, ...], in any order."""

    observation_tm1: Any
    a_tm1: Any  # In [-1, 1].
    r_t: Any
    discount_t: Any  # 0 at a terminal step, else 1.
    observation_t: Any  # Before a reset.


# --- Agent: networks, loss and update. ---


class MLP(nn.Module):
    """Two hidden layers, and a linear one."""

    outputs: int

    @nn.compact
    def __call__(self, *inputs):
        x = jnp.concatenate(inputs, axis=-1)
        for _ in range(2):
            x = nn.relu(nn.Dense(64)(x))
        return nn.Dense(self.outputs)(x)


ACTION_SIZE = 1
ACTOR, FLOW, CRITIC = MLP(ACTION_SIZE), MLP(ACTION_SIZE), MLP(1)


def loss(params, target_critic, batch, key, config):
    """Return the loss of flow, critics and policy; each trains its own parameters."""
    fixed, keys = jax.lax.stop_gradient(params), jax.random.split(key, 3)
    flow_keys = jax.random.split(keys[0], len(batch.r_t))
    x, t, velocity = jax.vmap(rlaxlib.flow_matching_sample)(flow_keys, batch.a_tm1)
    prediction = FLOW.apply(params["flow"], batch.observation_tm1, x, t[:, None])
    flow_loss = jnp.mean(jnp.sum(jnp.square(prediction - velocity), axis=-1))

    noise = jax.random.normal(keys[1], batch.a_tm1.shape)
    a_t = jnp.clip(ACTOR.apply(fixed["actor"], batch.observation_t, noise), -1.0, 1.0)
    v_t = jnp.mean(values(target_critic, batch.observation_t, a_t), axis=0)
    targets = batch.r_t + config.discount * batch.discount_t * v_t
    q = values(params["critic"], batch.observation_tm1, batch.a_tm1)  # [2, B]
    critic_loss = jnp.mean(rlaxlib.l2_loss(q - targets))

    noise = jax.random.normal(keys[2], batch.a_tm1.shape)
    ends = solve(fixed["flow"], batch.observation_tm1, noise, config)
    action = ACTOR.apply(params["actor"], batch.observation_tm1, noise)
    distillation = jnp.mean(jnp.sum(jnp.square(action - ends), axis=-1))
    action = jnp.clip(action, -1.0, 1.0)
    value = jnp.mean(values(fixed["critic"], batch.observation_tm1, action))
    return flow_loss + critic_loss + config.weight * distillation - value


def values(params, observation, action):
    """Return the values of both critics, [2, B]."""
    q = jax.vmap(CRITIC.apply, (0, None, None))(params, observation, action)
    return q.squeeze(-1)


def solve(params, observation, noise, config):
    """Return the ends of the flow from noise, by Euler's method."""

    def step(x, t):
        t = jnp.full((*x.shape[:-1], 1), t)
        return x + FLOW.apply(params, observation, x, t) / config.flow_steps, None

    times = jnp.arange(config.flow_steps) / config.flow_steps
    return jax.lax.scan(step, noise, times)[0]


class Agent(NamedTuple):
    """Parameters, those of the target critics, and the state of the optimizer."""

    params: Any
    target_critic: Any
    opt_state: Any


def learn(agent, batch, key, config) -> Agent:
    """Take one gradient step on a batch, and move the target critics."""
    params, target_critic, opt_state = agent
    grads = jax.grad(loss)(params, target_critic, batch, key, config)
    updates, opt_state = optax.adam(config.learning_rate).update(grads, opt_state)
    params = optax.apply_updates(params, updates)
    target = optax.incremental_update(params["critic"], target_critic, config.tau)
    return Agent(params, target, opt_state)


def make_agent(key, observation, config) -> Agent:
    """Initialise the networks and the optimizer."""
    keys, action = jax.random.split(key, 4), jnp.zeros(ACTION_SIZE)
    init_critics = jax.vmap(CRITIC.init, (0, None, None))
    params = {
        "actor": ACTOR.init(keys[0], observation, action),
        "flow": FLOW.init(keys[1], observation, action, jnp.zeros(1)),
        "critic": init_critics(keys[2:], observation, action),
    }
    opt_state = optax.adam(config.learning_rate).init(params)
    return Agent(params, params["critic"], opt_state)


# --- Data set and environment. ---

ENVIRONMENT = Pendulum()
EPISODE_STEPS = ENVIRONMENT.default_params.max_steps_in_episode


def play(key, choose, *inputs) -> Transition:
    """Play an episode, with actions `choose(key, observation, *inputs)`."""

    def step(carry, key):
        observation, state = carry
        act_key, key = jax.random.split(key)
        action = choose(act_key, observation, *inputs)
        torque = ENVIRONMENT.default_params.max_torque * action
        after, state, reward, ended, _, info = ENVIRONMENT.step(key, state, torque)
        last = info["final_observation"]
        step = Transition(observation, action, reward, 1.0 - ended, last)
        return (after, state), step

    keys = jax.random.split(key, EPISODE_STEPS)
    return jax.lax.scan(step, ENVIRONMENT.reset(key), keys)[1]


def behave(key, observation, share):
    """Return an action of a controller, or with probability `share` a random one."""
    cos, sin, velocity = observation
    angle, energy = jnp.arctan2(sin, cos), velocity**2 / 2 + 15.0 * (cos - 1.0)
    balance, swing = -3.0 * angle - 0.75 * velocity, -jnp.sign(velocity * energy)
    action = jnp.clip(jnp.where(jnp.abs(angle) < 0.5, balance, swing), -1.0, 1.0)
    if_key, act_key = jax.random.split(key)
    random = jax.random.uniform(act_key, minval=-1.0)
    return jnp.where(jax.random.bernoulli(if_key, share), random, action)[None]


@functools.partial(jax.jit, static_argnames="episodes")
def collect(key, episodes) -> Transition:
    """Return the transitions of episodes with 40 to 100 % of random actions."""
    keys, shares = jax.random.split(key, episodes), jnp.linspace(0.4, 1.0, episodes)
    data = jax.vmap(play, (0, None, 0))(keys, behave, shares)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), data)


# --- Training. ---


@functools.partial(jax.jit, static_argnames="config")
def improve(agent, data, key, config):
    """Return the agent after updates, and its mean return."""

    def step(agent, key):
        batch_key, key = jax.random.split(key)
        indices = jax.random.randint(batch_key, (config.batch_size,), 0, len(data.r_t))
        batch = jax.tree.map(lambda x: x[indices], data)
        return learn(agent, batch, key, config), None

    agent, _ = jax.lax.scan(step, agent, jax.random.split(key, config.eval_interval))

    def act(key, observation):
        noise = jax.random.normal(key, (ACTION_SIZE,))
        action = ACTOR.apply(agent.params["actor"], observation, noise)
        return jnp.clip(action, -1.0, 1.0)

    keys = jax.random.split(key, config.eval_episodes)
    episodes = jax.vmap(play, (0, None))(keys, act)
    return agent, jnp.mean(jnp.sum(episodes.r_t, axis=1))


def train(config: Config) -> list[tuple[int, float]]:
    """Train an agent; return the evaluation returns over updates."""
    data_key, agent_key, key = jax.random.split(jax.random.key(config.seed), 3)
    data = collect(data_key, config.data_episodes)
    agent, curve = make_agent(agent_key, data.observation_t[0], config), []
    for number in (progress := trange(1, config.evaluations + 1)):
        improve_key = jax.random.fold_in(key, number)
        agent, eval_return = improve(agent, data, improve_key, config)
        curve.append((number * config.eval_interval, float(eval_return)))
        progress.set_postfix_str(f"return {eval_return:.0f}")
    return curve


if __name__ == "__main__":
    config = tyro.cli(Config)
    rows, header = train(config), "step,evaluation return"
    np.savetxt(config.output, rows, "%g", ",", header=header, comments="")
