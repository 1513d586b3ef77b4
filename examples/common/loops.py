"""Training loop of agents whose environment is compiled together with their updates."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
from tqdm import tqdm

Agent = TypeVar("Agent")


class Point(NamedTuple):
    """One point of the learning curve."""

    step: int  # Environment steps so far, or updates of an agent that learns offline.
    eval_return: float  # Mean over evaluation episodes, without exploration.


def train(
    agent: Agent,
    key: jax.Array,
    improve: Callable[[Agent, jax.Array], Agent],
    evaluate: Callable[[Agent, jax.Array], Any],
    evaluations: int,
    steps: int,
) -> tuple[Agent, list[Point]]:
    """Train an agent with a progress bar and regular evaluations.

    Args:
        agent: Initial agent, a tree of arrays.
        key: Random key. All evaluations have the same key.
        improve: Function from agent and key to the next agent, compiled by this loop.
        evaluate: Function from agent and key to an average return, compiled likewise.
        evaluations: Number of evaluations, in addition to the initial one.
        steps: Steps of `improve`, for the curve and the progress bar.

    Returns:
        The trained agent and its learning curve.
    """
    train_key, eval_key = jax.random.split(key)
    improve, evaluate = jax.jit(improve), jax.jit(evaluate)
    curve = [Point(0, float(evaluate(agent, eval_key)))]
    with tqdm(total=evaluations * steps, unit="step") as progress:
        for number in range(evaluations):
            agent = improve(agent, jax.random.fold_in(train_key, number))
            curve.append(Point((number + 1) * steps, float(evaluate(agent, eval_key))))
            average = curve[-1].eval_return
            progress.set_postfix_str(f"return {average:+.2f}", refresh=False)
            progress.update(steps)
    return agent, curve
