"""Train an agent on Pendulum by implicit Q-learning (IQL), from recorded data.

IQL learns offline, without evaluating an action that is not in the data. The state
value is an expectile of the values of the data's actions, close to their maximum. The
critics learn from it, and the policy imitates the data's actions, weighted by their
advantages. With `--bc`, all weights are 1: behaviour cloning of the same data.

- `rlaxlib.expectile_loss`: the loss of the state value,
- `rlaxlib.l2_loss`: the loss of the critics,
- `rlaxlib.gaussian_diagonal`: the policy,
- `rlaxlib.advantage_weights`, `rlaxlib.reinforce_loss`: the loss of the policy.

In the data set, a controller plays, and 40 to 100 % of its actions are random. A random
agent returns about -1200 in gymnax's Pendulum, and the best return is about -150; the
data average about -800. Expect at least -400 in the final evaluation, after about 20
seconds on two cores.

    python iql_agent.py --seed 1 --expectile 0.7

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
    output: str = "iql_agent.csv"  # File for the learning curve.
    bc: bool = False  # Whether to clone the behaviour, without weights.
    data_episodes: int = 50  # Episodes in the data set.
    evaluations: int = 10  # Number of evaluations.
    eval_interval: int = 2000  # Gradient steps between evaluations.
    eval_episodes: int = 32  # Episodes per evaluation, with mean actions.
    batch_size: int = 128  # Transitions per batch.
    learning_rate: float = 1e-3  # Learning rate of Adam.
    discount: float = 0.99  # Discount factor.
    tau: float = 0.01  # Step size of the target critics.
    expectile: float = 0.8  # Expectile of the values of the data's actions.
    temperature: float = 1.0  # Temperature of the advantage weights.
    max_weight: float = 100.0  # Largest advantage weight.


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
ACTOR, CRITIC, VALUE = MLP(ACTION_SIZE), MLP(1), MLP(1)


def policy(params, observation):
    """Return the mean, in [-1, 1], and the standard deviation."""
    mean = jnp.tanh(ACTOR.apply(params["actor"], observation))
    stddev = jnp.exp(jnp.clip(params["log_stddev"], -5.0, 2.0))
    return mean, jnp.broadcast_to(stddev, mean.shape)


def loss(params, target_critic, batch, config):
    """Return the loss of value, critics and policy; each trains its own parameters."""
    inputs = batch.observation_tm1, batch.a_tm1
    critics = jax.vmap(CRITIC.apply, (0, None, None))
    target_q = jnp.min(critics(target_critic, *inputs), axis=0).squeeze(-1)
    v = VALUE.apply(params["value"], batch.observation_tm1).squeeze(-1)
    value_loss = rlaxlib.expectile_loss(v, target_q, config.expectile)

    fixed = jax.lax.stop_gradient(params["value"])
    v_t = VALUE.apply(fixed, batch.observation_t).squeeze(-1)
    targets = batch.r_t + config.discount * batch.discount_t * v_t
    q = critics(params["critic"], *inputs).squeeze(-1)  # [2, B]
    critic_loss = rlaxlib.l2_loss(q - targets)

    mean, stddev = policy(params, batch.observation_tm1)
    log_prob = rlaxlib.gaussian_diagonal().logprob(batch.a_tm1, mean, stddev)
    adv = jnp.zeros_like(v) if config.bc else target_q - v
    weights = rlaxlib.advantage_weights(adv, config.temperature, config.max_weight)
    actor_loss = rlaxlib.reinforce_loss(log_prob, weights)
    return jnp.mean(value_loss) + jnp.mean(critic_loss) + jnp.mean(actor_loss)


class Agent(NamedTuple):
    """Parameters, those of the target critics, and the state of the optimizer."""

    params: Any
    target_critic: Any
    opt_state: Any


def learn(agent, batch, config) -> Agent:
    """Take one gradient step on a batch, and move the target critics."""
    params, target_critic, opt_state = agent
    grads = jax.grad(loss)(params, target_critic, batch, config)
    updates, opt_state = optax.adam(config.learning_rate).update(grads, opt_state)
    params = optax.apply_updates(params, updates)
    target = optax.incremental_update(params["critic"], target_critic, config.tau)
    return Agent(params, target, opt_state)


def make_agent(key, observation, config) -> Agent:
    """Initialise the networks and the optimizer."""
    keys, action = jax.random.split(key, 4), jnp.zeros(ACTION_SIZE)
    init_critics = jax.vmap(CRITIC.init, (0, None, None))
    params = {
        "actor": ACTOR.init(keys[0], observation),
        "log_stddev": jnp.zeros(ACTION_SIZE),
        "value": VALUE.init(keys[1], observation),
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
    """Return the agent after updates, and its mean return with mean actions."""

    def step(agent, key):
        indices = jax.random.randint(key, (config.batch_size,), 0, len(data.r_t))
        return learn(agent, jax.tree.map(lambda x: x[indices], data), config), None

    agent, _ = jax.lax.scan(step, agent, jax.random.split(key, config.eval_interval))

    def act(_, observation):
        return policy(agent.params, observation)[0]

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
