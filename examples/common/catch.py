"""The loop of every agent on bsuite's Catch: episodes of training, then an evaluation.

A ball drops through ten rows of five columns, and the agent moves a paddle below it. An
episode takes nine steps and returns +1 for a catch, -1 for a miss: -0.6 on average for
a random agent.
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
    """The fields that the loop needs of an example's config."""

    seed: int
    train_episodes: int
    eval_episodes: int
    eval_interval: int


class Evaluation(NamedTuple):
    """One point of the learning curve."""

    episode: int
    train_return: float  # Of the latest training episodes, as the agent explores.
    eval_return: float  # Of the policy that the agent would choose.


class Trajectory(NamedTuple):
    """An episode of T steps."""

    observation: np.ndarray  # [T+1, ...]: what is seen before each step, and at last.
    action: np.ndarray  # [T]
    reward: np.ndarray  # [T]: what each step returns.
    discount: np.ndarray  # [T]: 1, but 0 after the step that ends the episode.


def play(environment: dm_env.Environment, choose: Callable[..., Any]) -> Trajectory:
    """Play an episode, with a function that chooses an action for an observation."""
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
    """Train an agent behind a progress bar, and evaluate it now and then.

    Args:
        agent: The agent to begin with.
        train_episode: Plays an episode and learns from it; returns the agent that it
            made and the episode's return.
        choose: Chooses an action for an observation, in evaluation.
        config: How long, and from which seed.
        make_environment: Makes an environment from a seed, if it is another one.

    Returns:
        The trained agent, and its learning curve.
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
    """Average the return over episodes that nothing is learnt from."""
    episodes = [
        play(environment, lambda observation: choose(agent, observation))
        for _ in range(config.eval_episodes)
    ]
    return float(np.mean([np.sum(episode.reward) for episode in episodes]))
