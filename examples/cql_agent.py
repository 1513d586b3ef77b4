"""Train an agent on Pendulum by conservative Q-learning (CQL), from recorded data.

A soft actor-critic (SAC) that learns offline overestimates actions that are not in the
data. CQL adds a loss to the critics: it lowers the values of actions that the policy
would take, and raises those of the data's actions. With weight 0, it is SAC.

- `rlaxlib.tanh_normal_log_prob`: the log-densities of the policy's actions,
- `rlaxlib.sac_critic_target`: the targets of the critics,
- `rlaxlib.l2_loss`: the TD loss of the critics,
- `rlaxlib.cql_loss`: the conservative loss of the critics,
- `rlaxlib.sac_policy_loss`: the loss of the policy.

In the data set, a controller plays, and 40 to 100 % of its actions are random. A random
agent returns about -1200 in gymnax's Pendulum, and the best return is about -150; the
data average about -800. Expect at least -250 in the final evaluation, after about 40
seconds on two cores.

    python cql_agent.py --seed 1 --conservative-weight 1

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

    seed: int = 0  # Seed of the networks, data set and environment.
    output: str = "cql_agent.csv"  # File for the learning curve.
    data_episodes: int = 50  # Episodes in the data set.
    evaluations: int = 8  # Number of evaluations.
    eval_interval: int = 1000  # Gradient steps between evaluations.
    eval_episodes: int = 32  # Episodes per evaluation, with median actions.
    batch_size: int = 128  # Transitions per batch.
    learning_rate: float = 1e-3  # Learning rate of Adam.
    discount: float = 0.99  # Discount factor.
    tau: float = 0.01  # Step size of the target critics.
    temperature: float = 0.1  # Weight of the entropy of the policy.
    conservative_weight: float = 5.0  # Weight of the conservative loss.
    num_samples: int = 4  # Actions of each kind in the conservative loss.


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
ACTOR, CRITIC = MLP(2 * ACTION_SIZE), MLP(1)


def policy(params, observation):
    """Return the mean and the standard deviation before the tanh."""
    mean, log_stddev = jnp.split(ACTOR.apply(params, observation), 2, axis=-1)
    return mean, jnp.exp(jnp.clip(log_stddev, -5.0, 2.0))


def sample(params, key, observation):
    """Sample an action for each observation; return it and its log-density, [B]."""
    mean, stddev = policy(params, observation)
    u = mean + stddev * jax.random.normal(key, mean.shape)
    return jnp.tanh(u), jax.vmap(rlaxlib.tanh_normal_log_prob)(u, mean, stddev)


def values(params, observation, action):
    """Return the values of both critics, [2, B]."""
    q = jax.vmap(CRITIC.apply, (0, None, None))(params, observation, action)
    return q.squeeze(-1)


def loss(params, target_critic, batch, key, config):
    """Return the loss of critics and policy; each trains its own parameters."""
    fixed, keys = jax.lax.stop_gradient(params), jax.random.split(key, 3)
    a_t, log_prob_t = sample(fixed["actor"], keys[0], batch.observation_t)
    q_t = values(target_critic, batch.observation_t, a_t)  # The minimum counts.
    discount_t = config.discount * batch.discount_t
    targets = rlaxlib.sac_critic_target(
        batch.r_t, discount_t, q_t, log_prob_t, config.temperature
    )
    q = values(params["critic"], batch.observation_tm1, batch.a_tm1)  # [2, B]
    td_loss = jnp.mean(rlaxlib.l2_loss(q - targets))
    actions, log_probs = sample_for_critic(fixed["actor"], keys[1], batch, config)
    values_of_each = jax.vmap(values, (None, None, 0))  # [K, 2, B]
    q_samples = values_of_each(params["critic"], batch.observation_tm1, actions)
    over_batch = jax.vmap(rlaxlib.cql_loss, (0, 1, 1))
    gap = jax.vmap(over_batch, (0, 1, None))(q, q_samples, log_probs)  # Over critics.
    action, log_prob = sample(params["actor"], keys[2], batch.observation_tm1)
    q = values(fixed["critic"], batch.observation_tm1, action)
    actor_loss = rlaxlib.sac_policy_loss(log_prob, q, config.temperature)
    return td_loss + config.conservative_weight * jnp.mean(gap) + jnp.mean(actor_loss)


def sample_for_critic(actor, key, batch, config):
    """Sample actions to lower, [K, B, D]; return them and log-densities, [K, B]."""
    keys = jax.random.split(key, (3, config.num_samples))
    sample_each = jax.vmap(sample, (None, 0, None))
    here, log_here = sample_each(actor, keys[0], batch.observation_tm1)
    there, log_there = sample_each(actor, keys[1], batch.observation_t)
    uniform = jax.random.uniform(keys[2, 0], here.shape, minval=-1.0)
    log_uniform = jnp.full_like(log_here, ACTION_SIZE * jnp.log(0.5))  # On [-1, 1].
    actions = jnp.concatenate([here, there, uniform])
    return actions, jnp.concatenate([log_here, log_there, log_uniform])


class Agent(TrainState):
    """Parameters with their optimizer, and the parameters of the target critics."""

    target_critic: Any


def learn(agent, batch, key, config) -> Agent:
    """Take one gradient step on a batch, and move the target critics."""
    grads = jax.grad(loss)(agent.params, agent.target_critic, batch, key, config)
    agent = agent.apply_gradients(grads=grads)
    critics = agent.params["critic"], agent.target_critic
    return agent.replace(target_critic=optax.incremental_update(*critics, config.tau))


def make_agent(key, observation, config) -> Agent:
    """Initialise the networks and the optimizer."""
    keys, action = jax.random.split(key, 3), jnp.zeros(ACTION_SIZE)
    params = {
        "actor": ACTOR.init(keys[0], observation),
        "critic": jax.vmap(CRITIC.init, (0, None, None))(keys[1:], observation, action),
    }
    adam, critic = optax.adam(config.learning_rate), params["critic"]
    return Agent.create(apply_fn=None, params=params, tx=adam, target_critic=critic)


# --- Data set, environment and training. ---

ENVIRONMENT = Pendulum()


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

    keys = jax.random.split(key, ENVIRONMENT.default_params.max_steps_in_episode)
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


@functools.partial(jax.jit, static_argnames="config")
def improve(agent, data, key, config):
    """Return the agent after updates, and its mean return with median actions."""

    def step(agent, key):
        batch_key, key = jax.random.split(key)
        indices = jax.random.randint(batch_key, (config.batch_size,), 0, len(data.r_t))
        batch = jax.tree.map(lambda x: x[indices], data)
        return learn(agent, batch, key, config), None

    agent, _ = jax.lax.scan(step, agent, jax.random.split(key, config.eval_interval))

    def act(_, observation):
        return jnp.tanh(policy(agent.params["actor"], observation)[0])

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
