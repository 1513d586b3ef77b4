"""The results on MinAtar beside the published ones, `docs/minatar.md`."""

from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

import jax
import jax.numpy as jnp
import numpy as np

import rlaxlib
from minatar import dqn, ppo, pqn

PAGE = Path(__file__).parents[2] / "docs" / "minatar.md"
AGENTS = {"ppo": ppo, "dqn": dqn, "pqn": pqn}
START, END = "<!-- measured: start -->\n", "<!-- measured: end -->\n"
HEADER = (
    "| agent | game | steps | before | half | return (IQM, 95%) | seeds | published "
    "| seconds |\n|---|---|--:|--:|--:|--:|--:|--:|--:|\n"
)


class Run(TypedDict):
    """A run of several seeds of an agent on a game."""

    steps: int
    seconds: float
    returns: list[list[float]]  # [seeds, evaluations], the first before training.


def write(stored: dict[str, dict[str, Run]]) -> None:
    """Replace the measured part of the page."""
    rows = [
        row(agent, game, run)
        for agent, runs in stored.items()
        for game, run in runs.items()
    ]
    lines = [line(agent, runs) for agent, runs in stored.items()]
    before, rest = PAGE.read_text().split(START)
    _, after = rest.split(END)
    measured = f"\n{HEADER}{''.join(rows)}\n{''.join(lines)}"
    PAGE.write_text(before + START + measured + END + after)


def row(agent: str, game: str, run: Run) -> str:
    """Return the row of an agent and a game."""
    module = AGENTS[agent]
    returns = np.asarray(run["returns"])
    first, half = returns[:, 0], returns[:, returns.shape[1] // 2]
    final = returns[:, -1]
    mean, low, high = interval(rlaxlib.interquartile_mean, final[:, None])
    cells = (
        agent.upper(),
        game,
        f"{run['steps']:,}",
        f"{rlaxlib.interquartile_mean(first):.1f}",
        f"{rlaxlib.interquartile_mean(half):.1f}",
        f"{mean:.1f} ({low:.1f} to {high:.1f})",
        f"{final.min():.1f} to {final.max():.1f}",
        f"[{module.PUBLISHED.get(game, 'figure')}]({module.SOURCE})",
        f"{run['seconds']:.0f}",
    )
    return f"| {' | '.join(cells)} |\n"


def line(agent: str, runs: dict[str, Run]) -> str:
    """Return the share of the published returns that an agent reached, if complete."""
    published = AGENTS[agent].PUBLISHED
    if not published or not published.keys() <= runs.keys():
        return ""
    scores = [
        np.asarray(runs[game]["returns"])[:, -1] / value
        for game, value in published.items()
    ]
    mean, low, high = interval(rlaxlib.interquartile_mean, np.stack(scores, axis=1))
    return (
        f"{agent.upper()} reached {mean:.2f} ({low:.2f} to {high:.2f}) of the "
        f"published returns (IQM over games and seeds).\n"
    )


def interval(
    statistic: Callable[[jax.Array], jax.Array], scores: np.ndarray
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return a statistic of scores, [seeds, games], and its 95% interval."""
    data = jnp.asarray(scores)
    key = jax.random.key(0)
    ends = rlaxlib.bootstrap_interval(key, data, statistic, stratified=True)
    return statistic(data), *ends
