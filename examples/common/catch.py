"""Training loop of agents on bsuite's Catch, with regular evaluations.

A ball falls through ten rows of five columns, and the agent moves a paddle in the
bottom row. An episode has nine steps and returns +1 for a catch and -1 for a miss. A
random agent averages -0.6.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

import dm_env
import numpy as np
from bsuite.environments.catch import Catch
from tqdm import trange

Agent = TypeVar("Agent")
EnvironmentMaker = Callable[[int], dm_env.Environment]  # From a seed.


class Config(Protocol):
    """Fields of an example's config that the loop reads."""

    seed: int
    train_episodes: int
    eval_episodes: int
    eval_interval: int


class Evaluation(NamedTuple):
    """One point of the learning curve."""

    episode: int
    train_return: float  # Mean over the latest training episodes, with exploration.
    eval_return: float  # Mean over evaluation episodes, without exploration.


class Trajectory(NamedTuple):
    """An episode of T steps."""

    observation: np.ndarray  # [T+1, ...]: the last one is after the last step.
    action: np.ndarray  # [T]
    reward: np.ndarray  # [T]
    discount: np.ndarray  # [T]: 0 at the terminal step, else 1.


def play(environment: dm_env.Environment, choose: Callable[..., Any]) -> Trajectory:
    """Play an episode with `choose`, a function from observation to action."""
    timestep = environment.reset()
    observations, steps = [timestep.observation], []
    while not timestep.last():
        action = int(choose(timestep.observation))
        timestep = environment.step(action)
        observations.append(timestep.observation)
        steps.append((action, timestep.reward, timestep.discount))
    actions, *numbers = zip(*steps, strict=True)
    rewards, discounts = (np.asarray(each, np.float32) for each in numbers)
    return Trajectory(np.stack(observations), np.asarray(actions), rewards, discounts)


def train(
    agent: Agent,
    train_episode: Callable[[Agent, dm_env.Environment], tuple[Agent, float]],
    choose: Callable[[Agent, np.ndarray], Any],
    config: Config,
    make_environment: EnvironmentMaker = lambda seed: Catch(seed=seed),
) -> tuple[Agent, list[Evaluation]]:
    """Train an agent with a progress bar and regular evaluations.

    Args:
        agent: Initial agent.
        train_episode: Function that plays one episode with updates, and returns the
            next agent and the return of the episode.
        choose: Function from agent and observation to an action, for evaluation.
        config: Seed, number of episodes and evaluation settings.
        make_environment: Function from a seed to an environment.

    Returns:
        The trained agent and its learning curve.
    """
    train_seed, eval_seed = np.random.SeedSequence(config.seed).generate_state(2)
    environment, eval_environment = map(make_environment, (train_seed, eval_seed))
    returns, curve = [], []
    with trange(1, config.train_episodes + 1, unit="episode") as progress:
        for episode in progress:
            agent, episode_return = train_episode(agent, environment)
            returns.append(episode_return)
            train_return = float(np.mean(returns[-config.eval_interval :]))
            progress.set_postfix_str(f"return {train_return:+.2f}", refresh=False)
            if episode % config.eval_interval == 0 or episode == config.train_episodes:
                eval_return = evaluate(agent, choose, eval_environment, config)
                curve.append(Evaluation(episode, train_return, eval_return))
    return agent, curve


def evaluate(
    agent: Agent,
    choose: Callable[[Agent, np.ndarray], Any],
    environment: dm_env.Environment,
    config: Config,
) -> float:
    """Return the mean return over evaluation episodes."""
    episodes = [
        play(environment, lambda observation: choose(agent, observation))
        for _ in range(config.eval_episodes)
    ]
    return float(np.mean([np.sum(episode.reward) for episode in episodes]))
