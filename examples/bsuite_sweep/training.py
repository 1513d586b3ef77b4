"""Training on a setting of an experiment, and scores by bsuite's analysis."""

import functools
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from bsuite import sweep
from bsuite.experiments import summary_analysis
from bsuite.logging import logging_utils

from bsuite_sweep import agents, environments

AGENTS = ("dqn", "bootstrapped_dqn", "actor_critic")
EXPERIMENTS = summary_analysis.BSUITE_INFO
LONG = ("cartpole", "mountain_car")  # Episodes of up to 1,000 steps.
PERIODS = {  # Steps between updates of DQN and bootstrapped DQN, by the first word.
    "bandit": (1, 4),
    "mnist": (1, 4),
    "deep": (1, 8),
    "catch": (1, 16),
    "discounting": (1, 16),
    "memory": (1, 64),
    "umbrella": (1, 16),
    "cartpole": (4, 16),
    "mountain": (4, 16),
}


class Log(NamedTuple):
    """What bsuite's analysis reads, up to the end of an episode."""

    steps: jax.Array | float = 0.0
    total_return: jax.Array | float = 0.0
    raw_return: jax.Array | float = 0.0  # Without reward noise and scale.
    total_regret: jax.Array | float = 0.0
    total_perfect: jax.Array | float = 0.0
    total_bad_episodes: jax.Array | float = 0.0
    best_episode: jax.Array | float = 0.0

    def add(self, reward, raw_reward, episode_return, done, bad) -> "Log":
        """Return the log after one more step."""
        best_episode = jnp.maximum(self.best_episode, episode_return)
        return Log(
            self.steps + 1.0,
            self.total_return + reward,
            self.raw_return + raw_reward,
            self.total_regret + done * (1.0 - raw_reward),
            self.total_perfect + done * (raw_reward > 0),
            self.total_bad_episodes + done * bad,
            jnp.where(done, best_episode, self.best_episode),
        )


def settings(experiment: str) -> list[str]:
    """Return the identifiers of the settings that are run.

    They are every fourth, from the third: the middles of the quarters of a scale. Of
    the long tasks, they are every eighth.
    """
    ids = [x for x in sweep.SWEEP if x.split(sweep.SEPARATOR)[0] == experiment]
    return ids[2 :: 8 if experiment.startswith(LONG) else 4]


def weight(agent: str, experiment: str, bsuite_id: str) -> tuple[bool, bool, int]:
    """Return a sort key that is large for runs that take long."""
    slow = experiment.startswith(("deep_sea", *LONG))
    return slow, agent == "bootstrapped_dqn", int(bsuite_id.split(sweep.SEPARATOR)[1])


def make_agent(
    name: str, experiment: str, env: environments.Environment
) -> agents.Agent:
    """Create an agent by its name."""
    if name == "actor_critic":
        return agents.actor_critic(env)
    period, bootstrapped_period = PERIODS[experiment.partition("_")[0]]
    if name == "dqn":
        return agents.dqn(env, period=period)
    return agents.bootstrapped_dqn(env, bootstrapped_period)


class Loop(NamedTuple):
    """State of a training loop."""

    key: jax.Array
    world: environments.State
    state: Any  # Of the agent.
    log: Log
    logs: jax.Array  # At the end of each episode, [episodes, columns].
    episode: jax.Array
    episode_return: jax.Array


def start(env, agent, episodes, key) -> Loop:
    """Return the state before training."""
    key, reset_key, init_key = jax.random.split(key, 3)
    zero, columns = jnp.float32(0.0), len(Log._fields)
    log, logs = Log(*[zero] * columns), jnp.zeros((episodes, columns))
    world, state = env.reset(reset_key), agent.init(init_key)
    return Loop(key, world, state, log, logs, jnp.int32(0), zero)


def step(env, agent, noise, scale, loop) -> Loop:
    """Take a step in the environment, and update the agent."""
    key, *keys = jax.random.split(loop.key, 6)
    s_tm1 = env.observe(loop.world)
    action, state = agent.act(loop.state, keys[0], s_tm1)
    world, raw_reward, done = env.step(keys[1], loop.world, action)
    reward = scale * raw_reward + noise * jax.random.normal(keys[2])
    s_t = env.observe(world)
    transition = agents.Transition(s_tm1, action, reward, 1.0 - done, s_t)
    episode_return = loop.episode_return + raw_reward
    bad = world.get("bad", False)
    log = loop.log.add(reward, raw_reward, episode_return, done, bad)
    row = jnp.where(done, loop.episode, len(loop.logs))
    first = env.reset(keys[4])
    return Loop(
        key,
        jax.tree.map(lambda x, y: jnp.where(done, x, y), first, world),
        agent.update(state, keys[3], transition),
        log,
        loop.logs.at[row].set(jnp.stack(log), mode="drop"),
        loop.episode + done,
        jnp.where(done, 0.0, episode_return),
    )


@functools.cache
def program(
    agent_name: str, experiment: str, setting: frozenset, episodes: int
) -> Callable[..., jax.Array]:
    """Return jitted training for all seeds, reward noises and reward scales."""
    env = environments.make(experiment, dict(setting))
    agent = make_agent(agent_name, experiment, env)

    def runs(loop):
        # The score of Deep Sea depends on the first of 80% to 90% bad episodes.
        bad = loop.log.total_bad_episodes
        solved = (bad < 0.5 * loop.episode) & (loop.episode >= 200)
        ends = solved if experiment.startswith("deep_sea") else False
        return (loop.episode < episodes) & ~jnp.bool_(ends)

    @jax.jit
    def train_all(key, noise, scale):
        first = start(env, agent, episodes, key)
        advance = functools.partial(step, env, agent, noise, scale)
        return jax.lax.while_loop(runs, advance, first).logs

    return train_all


def train(agent_name: str, bsuite_id: str, episodes: int) -> pd.DataFrame:
    """Return the log of all episodes."""
    experiment, number = bsuite_id.split(sweep.SEPARATOR)
    experiment = experiment.removesuffix("_noise").removesuffix("_scale")
    setting = {**sweep.SETTINGS[bsuite_id], "seed": None}
    noise, scale = setting.pop("noise_scale", 0.0), setting.pop("reward_scale", 1.0)
    train_all = program(agent_name, experiment, frozenset(setting.items()), episodes)
    logs = np.asarray(train_all(jax.random.key(int(number)), noise, scale), float)
    frame = pd.DataFrame(logs[logs[:, 0] > 0], columns=list(Log._fields))
    return frame.assign(bsuite_id=bsuite_id, episode=np.arange(1, len(frame) + 1))


def run(agent: str, experiment: str, bsuite_id: str) -> tuple[pd.DataFrame, float]:
    """Return the log of a whole run, and its seconds."""
    begin = time.perf_counter()
    log = train(agent, bsuite_id, EXPERIMENTS[experiment].episode)
    return log, time.perf_counter() - begin


def score(frames: Sequence[pd.DataFrame]) -> float:
    """Return the score of an experiment from the logs of its settings."""
    frame = logging_utils.join_metadata(pd.concat(frames))
    # bsuite's analysis is written for pandas 1.
    append = mock.patch.object(
        pd.Series, "append", lambda x, y: pd.concat([x, y]), create=True
    )
    with append, warnings.catch_warnings(action="ignore"):
        return float(summary_analysis.bsuite_score(frame).score.item())
