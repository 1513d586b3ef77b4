"""Train a soft actor-critic (SAC) agent on Pendulum.

SAC learns a stochastic policy over continuous actions that maximises reward and
entropy. The temperature, the weight of the entropy, is learned too. One gradient step
updates all parameters: the loss of the critics, that of the policy and that of the
temperature each have a gradient with respect to their own parameters only.

- `rlaxlib.tanh_normal_log_prob`: the log-densities of tanh-Gaussian actions,
- `rlaxlib.sac_critic_target`: the targets of the critics,
- `rlaxlib.l2_loss`: the loss of the critics,
- `rlaxlib.sac_policy_loss`: the loss of the policy,
- `rlaxlib.sac_temperature_loss`: the loss of the temperature.

The environment of gymnax is compiled with the agent. A random agent returns about -1200
in Pendulum, and the best return is about -150. Expect at least -200 in the final
evaluation, after about 20 seconds on two cores.

    python sac_agent.py --seed 1 --target-entropy -2

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

    seed: int = 0  # Seed of the networks, actions and environment.
    output: str = "sac_agent.csv"  # File for the learning curve.
    random_steps: int = 1000  # Steps with random actions, before training.
    evaluations: int = 10  # Number of evaluations.
    eval_interval: int = 1000  # Training steps between evaluations.
    eval_episodes: int = 32  # Episodes per evaluation, with median actions.
    batch_size: int = 128  # Transitions per batch.
    learning_rate: float = 1e-3  # Learning rate of Adam.
    discount: float = 0.99  # Discount factor.
    tau: float = 0.01  # Step size of the target critics.
    target_entropy: float = -1.0  # Target entropy, often minus the action size.


# Takes seconds, for tests.
SMALL = Config(random_steps=50, evaluations=2, eval_interval=50, eval_episodes=2)


class Transition(NamedTuple):
    """A transition, or a batch of transitions."""

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
    """Return the loss of critics, policy and temperature on a batch."""
    fixed = jax.lax.stop_gradient(params)
    temperature = jnp.exp(fixed["log_temperature"])
    critic_key, actor_key = jax.random.split(key)

    a_t, log_prob_t = sample(fixed["actor"], critic_key, batch.observation_t)
    target = rlaxlib.sac_critic_target(
        batch.r_t,
        config.discount * batch.discount_t,
        values(target_critic, batch.observation_t, a_t),  # The minimum counts.
        log_prob_t,
        temperature,
    )
    q = values(params["critic"], batch.observation_tm1, batch.a_tm1)
    critic_loss = jnp.mean(rlaxlib.l2_loss(q - target))

    action, log_prob = sample(params["actor"], actor_key, batch.observation_tm1)
    q = values(fixed["critic"], batch.observation_tm1, action)
    actor_loss = jnp.mean(rlaxlib.sac_policy_loss(log_prob, q, temperature))

    temperature_loss = rlaxlib.sac_temperature_loss(
        params["log_temperature"], log_prob, config.target_entropy
    )
    return critic_loss + actor_loss + jnp.mean(temperature_loss)


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
    keys, action = jax.random.split(key, 3), jnp.zeros(ACTION_SIZE)
    init_critics = jax.vmap(CRITIC.init, (0, None, None))
    params = {
        "actor": ACTOR.init(keys[0], observation),
        "critic": init_critics(keys[1:], observation, action),
        "log_temperature": jnp.zeros(()),
    }
    opt_state = optax.adam(config.learning_rate).init(params)
    return Agent(params, params["critic"], opt_state)


# --- Agent and environment, compiled together. ---

ENVIRONMENT = Pendulum()
EPISODE_STEPS = ENVIRONMENT.default_params.max_steps_in_episode


def env_step(key, state, action):
    """Step the environment with an action in [-1, 1]."""
    torque = ENVIRONMENT.default_params.max_torque * action
    return ENVIRONMENT.step(key, state, torque)


@functools.partial(jax.jit, static_argnames=("config", "steps", "random"))
def run(loop, key, config, steps, random=False):
    """Take steps with one update each; with `random`, random actions and no updates.

    `loop` is the agent, an observation, the state of the environment, the replay buffer
    and the number of transitions in it.
    """

    def step(loop, key):
        agent, observation, state, replay, size = loop
        act_key, step_key, batch_key, learn_key = jax.random.split(key, 4)
        if random:
            action = jax.random.uniform(act_key, (ACTION_SIZE,), minval=-1.0)
        else:
            action = sample(agent.params["actor"], act_key, observation[None])[0][0]
        after, state, reward, ended, _, info = env_step(step_key, state, action)
        last = info["final_observation"]
        new = Transition(observation, action, reward, 1.0 - ended, last)
        replay = jax.tree.map(lambda x, y: x.at[size].set(y), replay, new)
        size = size + 1
        if not random:
            indices = jax.random.randint(batch_key, (config.batch_size,), 0, size)
            batch = jax.tree.map(lambda x: x[indices], replay)
            agent = learn(agent, batch, learn_key, config)
        return (agent, after, state, replay, size), None

    return jax.lax.scan(step, loop, jax.random.split(key, steps))[0]


@functools.partial(jax.jit, static_argnames="episodes")
def evaluate(agent, key, episodes):
    """Return the mean return of episodes with median actions."""

    def step(carry, key):
        observation, state, alive = carry
        mean, _ = policy(agent.params["actor"], observation)
        after, state, reward, ended, cut, _ = env_step(key, state, jnp.tanh(mean))
        return (after, state, alive & ~(ended | cut)), alive * reward

    def play(key):
        keys, start = jax.random.split(key, EPISODE_STEPS), ENVIRONMENT.reset(key)
        return jnp.sum(jax.lax.scan(step, (*start, True), keys)[1])

    return jnp.mean(jax.vmap(play)(jax.random.split(key, episodes)))


def train(config: Config) -> list[tuple[int, float]]:
    """Train an agent; return the evaluation returns over environment steps."""
    keys = jax.random.split(jax.random.key(config.seed), 4)
    observation, state = ENVIRONMENT.reset(keys[0])
    agent = make_agent(keys[1], observation, config)
    capacity = config.random_steps + config.evaluations * config.eval_interval
    shapes = (observation.shape, (ACTION_SIZE,), (), (), observation.shape)
    replay = Transition(*(jnp.zeros((capacity, *shape)) for shape in shapes))
    loop = agent, observation, state, replay, jnp.int32(0)
    loop, curve = run(loop, keys[2], config, config.random_steps, random=True), []
    for number in (progress := trange(1, config.evaluations + 1)):
        key = jax.random.fold_in(keys[3], number)
        loop = run(loop, key, config, config.eval_interval)
        eval_return = float(evaluate(loop[0], keys[3], config.eval_episodes))
        curve.append((int(loop[-1]), eval_return))
        progress.set_postfix_str(f"return {eval_return:.0f}")
    return curve


if __name__ == "__main__":
    config = tyro.cli(Config)
    rows, header = train(config), "step,evaluation return"
    np.savetxt(config.output, rows, "%g", ",", header=header, comments="")
