"""Train a TD3 agent on Pendulum.

TD3 keeps a deterministic policy from exploiting errors of the critics in three ways:
targets take the minimum of two critics, target actions are smoothed with noise, and the
policy is updated less often than the critics.

- `rlaxlib.add_gaussian_noise`: the exploratory actions,
- `rlaxlib.td3_target_action`: the target actions, smoothed with clipped noise,
- `rlaxlib.l2_loss`: the loss of the critics,
- `rlaxlib.dpg_loss`: the loss of the policy,
- `rlaxlib.tree_select`: the delay of the policy.

A random agent returns about -1200 in gymnax's Pendulum, and the best return is about
-150. Expect at least -200 in the final evaluation, after about 20 seconds on two cores.

    python td3_agent.py --seed 1 --policy-period 1

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
    output: str = "td3_agent.csv"  # File for the learning curve.
    random_steps: int = 1000  # Steps with random actions, before training.
    evaluations: int = 10  # Number of evaluations.
    eval_interval: int = 1000  # Training steps between evaluations.
    eval_episodes: int = 32  # Episodes per evaluation, without noise.
    batch_size: int = 128  # Transitions per batch.
    learning_rate: float = 1e-3  # Learning rate of Adam.
    discount: float = 0.99  # Discount factor.
    tau: float = 0.01  # Step size of the target networks.
    noise: float = 0.3  # Standard deviation of the exploration noise.
    target_noise: float = 0.2  # Standard deviation of the target noise.
    target_clip: float = 0.5  # Bound on the magnitude of the target noise.
    policy_period: int = 2  # Critic updates per policy update.


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
ACTOR, CRITIC = MLP(ACTION_SIZE), MLP(1)


def policy(params, observation):
    """Return the actions, in [-1, 1]."""
    return jnp.tanh(ACTOR.apply(params, observation))


def values(params, observation, action):
    """Return the values of both critics, [2, B]."""
    q = jax.vmap(CRITIC.apply, (0, None, None))(params, observation, action)
    return q.squeeze(-1)


class Networks(NamedTuple):
    """Parameters of the policy and of two critics, or a state of each."""

    actor: Any
    critic: Any


def loss(params, target, batch, key, config):
    """Return the loss of critics and policy; each trains its own parameters."""
    smooth = jax.vmap(rlaxlib.td3_target_action, (0, 0, None, None))
    keys = jax.random.split(key, len(batch.r_t))
    a_t = policy(target.actor, batch.observation_t)
    a_t = smooth(keys, a_t, config.target_noise, config.target_clip)
    q_t = jnp.min(values(target.critic, batch.observation_t, a_t), axis=0)
    targets = batch.r_t + config.discount * batch.discount_t * q_t
    q = values(params.critic, batch.observation_tm1, batch.a_tm1)
    critic_loss = jnp.mean(rlaxlib.l2_loss(q - targets))

    def value(action):
        fixed = jax.lax.stop_gradient(params.critic)
        return jnp.sum(values(fixed, batch.observation_tm1, action)[0])

    action = policy(params.actor, batch.observation_tm1)
    actor_losses = jax.vmap(rlaxlib.dpg_loss)(action, jax.grad(value)(action))
    return critic_loss + jnp.mean(jnp.sum(actor_losses, axis=-1))


class Agent(NamedTuple):
    """Parameters, those of the target networks, and the states of the optimizers."""

    params: Networks
    target: Networks
    opt_state: Networks
    updates: jax.Array  # Number of updates of the critics.


def learn(agent, batch, key, config) -> Agent:
    """Update the critics on a batch and, every `policy_period` times, all else."""
    grads = jax.grad(loss)(agent.params, agent.target, batch, key, config)
    adam = optax.adam(config.learning_rate)
    steps = map(adam.update, grads, agent.opt_state)
    updates, states = map(Networks._make, zip(*steps, strict=True))
    params = optax.apply_updates(agent.params, updates)
    target = optax.incremental_update(params, agent.target, config.tau)
    count = agent.updates + 1
    actor, actor_state, target = rlaxlib.tree_select(
        count % config.policy_period == 0,
        (params.actor, states.actor, target),
        (agent.params.actor, agent.opt_state.actor, agent.target),
    )
    params = Networks(actor, params.critic)
    return Agent(params, target, Networks(actor_state, states.critic), count)


def make_agent(key, observation, config) -> Agent:
    """Initialise the networks and the optimizers."""
    keys, action = jax.random.split(key, 3), jnp.zeros(ACTION_SIZE)
    init_critics = jax.vmap(CRITIC.init, (0, None, None))
    params = Networks(
        actor=ACTOR.init(keys[0], observation),
        critic=init_critics(keys[1:], observation, action),
    )
    opt_state = Networks(*map(optax.adam(config.learning_rate).init, params))
    return Agent(params, params, opt_state, jnp.int32(0))


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
            action = policy(agent.params.actor, observation)
            action = rlaxlib.add_gaussian_noise(act_key, action, config.noise)
            action = jnp.clip(action, -1.0, 1.0)
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
    """Return the mean return of episodes without noise."""

    def step(carry, key):
        observation, state, alive = carry
        action = policy(agent.params.actor, observation)
        after, state, reward, ended, cut, _ = env_step(key, state, action)
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
