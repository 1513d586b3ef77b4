"""Training loops of agents on gymnax's Pendulum, online and offline, compiled.

The agent swings up a pendulum and balances it, with a torque too weak to lift it
directly. The reward is 0 upright and at least about -16. Episodes are truncated after
200 steps and never terminate. A random agent returns about -1200, a good agent -150.
"""

import functools
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from gymnax.environments.classic_control.pendulum import Pendulum
from tqdm import tqdm

from common.offline import Transitions, mean_return

ENVIRONMENT = Pendulum()
OBSERVATION_SIZE, ACTION_SIZE, EPISODE_STEPS = 3, 1, 200


class OfflineConfig(Protocol):
    """Fields of an example's config that the offline loop reads."""

    seed: int
    train_steps: int
    eval_episodes: int
    eval_interval: int
    batch_size: int


class Config(OfflineConfig, Protocol):
    """Fields of an example's config that the online loop reads."""

    random_steps: int


class Agent(Protocol):
    """A pytree that acts and learns."""

    def sample_actions(
        self, observations: jax.Array, *, seed: jax.Array, temperature: float = 1.0
    ) -> jax.Array:
        """Return actions in [-1, 1], without exploration at a temperature of 0."""

    def update(self, batch: Transitions) -> tuple["Agent", dict[str, jax.Array]]:
        """Return the agent after an update on a batch, and metrics."""


class Evaluation(NamedTuple):
    """One point of the learning curve."""

    step: int  # Environment steps so far.
    train_return: float  # Mean per episode since the last point, with exploration.
    eval_return: float  # Mean over evaluation episodes, without exploration.


class OfflineEvaluation(NamedTuple):
    """One point of the learning curve of an agent that learns offline."""

    step: int  # Training batches so far.
    data_return: float  # Mean return in the data set.
    eval_return: float  # Mean over evaluation episodes, without exploration.


class Loop(NamedTuple):
    """State of the training loop."""

    agent: Any
    state: Any  # State of the environment.
    observation: jax.Array
    replay: Transitions  # Preallocated for all steps of the run.
    num_steps: jax.Array


def train(agent: Agent, config: Config) -> tuple[Agent, list[Evaluation], Transitions]:
    """Train an agent with a progress bar and regular evaluations.

    Args:
        agent: Initial agent.
        config: Seed, number of steps and evaluation settings. After `random_steps` with
            random actions, the agent is updated once per step, for `train_steps`.

    Returns:
        The trained agent, its learning curve, and all its experience.
    """
    reset_key, random_key, train_key, eval_key = jax.random.split(
        jax.random.key(config.seed), 4
    )
    observation, state = ENVIRONMENT.reset(reset_key)
    replay = _empty_replay(config.random_steps + config.train_steps)
    loop = Loop(agent, state, observation, replay, jnp.zeros((), jnp.int32))
    loop, _ = run(loop, random_key, config.random_steps)
    curve = []
    with tqdm(total=config.train_steps, unit="step") as progress:
        while progress.n < config.train_steps:
            steps = min(config.eval_interval, config.train_steps - progress.n)
            key = jax.random.fold_in(train_key, progress.n)
            loop, reward = run(loop, key, steps, config.batch_size)
            eval_return = float(evaluate(loop.agent, eval_key, config.eval_episodes))
            train_return = float(reward) * EPISODE_STEPS
            curve.append(Evaluation(int(loop.num_steps), train_return, eval_return))
            progress.set_postfix_str(f"return {eval_return:+.0f}", refresh=False)
            progress.update(steps)
    return loop.agent, curve, loop.replay


def train_offline(
    agent: Agent, data: Transitions, config: OfflineConfig
) -> tuple[Agent, list[OfflineEvaluation]]:
    """Train an agent on a data set, with a progress bar and regular evaluations.

    Args:
        agent: Initial agent.
        data: Data set.
        config: Seed, number of batches and evaluation settings.

    Returns:
        The trained agent and its learning curve.
    """
    train_key, eval_key = jax.random.split(jax.random.key(config.seed))
    data_return = mean_return(data)
    data = jax.tree.map(jnp.asarray, data)
    curve = []
    with tqdm(total=config.train_steps, unit="batch") as progress:
        while progress.n < config.train_steps:
            steps = min(config.eval_interval, config.train_steps - progress.n)
            key = jax.random.fold_in(train_key, progress.n)
            agent = update(agent, data, key, steps, config.batch_size)
            eval_return = float(evaluate(agent, eval_key, config.eval_episodes))
            progress.set_postfix_str(f"return {eval_return:+.0f}", refresh=False)
            progress.update(steps)
            curve.append(OfflineEvaluation(progress.n, data_return, eval_return))
    return agent, curve


@functools.partial(jax.jit, static_argnames=("steps", "batch_size"))
def update(
    agent: Agent, data: Transitions, key: jax.Array, steps: int, batch_size: int
) -> Agent:
    """Return the agent after updates on random batches of a data set."""

    def one(agent: Agent, key: jax.Array) -> tuple[Agent, None]:
        indices = jax.random.randint(key, (batch_size,), 0, len(data.rewards))
        agent, _ = agent.update(jax.tree.map(lambda x: x[indices], data))
        return agent, None

    agent, _ = jax.lax.scan(one, agent, jax.random.split(key, steps))
    return agent


@functools.partial(jax.jit, static_argnames=("steps", "batch_size"))
def run(
    loop: Loop, key: jax.Array, steps: int, batch_size: int | None = None
) -> tuple[Loop, jax.Array]:
    """Take steps with one update each; without `batch_size`, random steps only.

    Returns:
        The next state of the loop, and the mean reward per step.
    """

    def one(loop: Loop, key: jax.Array) -> tuple[Loop, jax.Array]:
        act_key, step_key, sample_key = jax.random.split(key, 3)
        if batch_size is None:
            action = jax.random.uniform(act_key, (ACTION_SIZE,), minval=-1)
            return step(loop, step_key, action)
        action = loop.agent.sample_actions(loop.observation, seed=act_key)
        loop, reward = step(loop, step_key, action)
        indices = jax.random.randint(sample_key, (batch_size,), 0, loop.num_steps)
        agent, _ = loop.agent.update(jax.tree.map(lambda x: x[indices], loop.replay))
        return loop._replace(agent=agent), reward

    loop, rewards = jax.lax.scan(one, loop, jax.random.split(key, steps))
    return loop, jnp.mean(rewards)


def step(loop: Loop, key: jax.Array, action: jax.Array) -> tuple[Loop, jax.Array]:
    """Take one step and store it in replay."""
    observation, state, reward, terminated, truncated, info = ENVIRONMENT.step(
        key, loop.state, _torque(action)
    )
    transition = Transitions(
        loop.observation,
        action,
        reward,
        1.0 - terminated,
        truncated,
        info["final_observation"],
    )
    replay = jax.tree.map(
        lambda buffer, x: buffer.at[loop.num_steps].set(x), loop.replay, transition
    )
    return Loop(loop.agent, state, observation, replay, loop.num_steps + 1), reward


@functools.partial(jax.jit, static_argnames="episodes")
def evaluate(agent: Agent, key: jax.Array, episodes: int) -> jax.Array:
    """Return the mean return over evaluation episodes."""

    def play(key: jax.Array) -> jax.Array:
        def one(carry: Any, key: jax.Array) -> tuple[Any, jax.Array]:
            observation, state = carry
            action = agent.sample_actions(observation, seed=key, temperature=0.0)
            observation, state, reward, *_ = ENVIRONMENT.step(
                key, state, _torque(action)
            )
            return (observation, state), reward

        reset_key, key = jax.random.split(key)
        keys = jax.random.split(key, EPISODE_STEPS)
        _, rewards = jax.lax.scan(one, ENVIRONMENT.reset(reset_key), keys)
        return jnp.sum(rewards)

    return jnp.mean(jax.vmap(play)(jax.random.split(key, episodes)))


def _torque(action: jax.Array) -> jax.Array:
    """Scale an action in [-1, 1] to the torque of the environment."""
    return ENVIRONMENT.default_params.max_torque * action


def _empty_replay(steps: int) -> Transitions:
    return Transitions(
        observations=jnp.zeros((steps, OBSERVATION_SIZE)),
        actions=jnp.zeros((steps, ACTION_SIZE)),
        rewards=jnp.zeros(steps),
        discounts=jnp.zeros(steps),
        truncated=jnp.zeros(steps, bool),
        next_observations=jnp.zeros((steps, OBSERVATION_SIZE)),
    )
