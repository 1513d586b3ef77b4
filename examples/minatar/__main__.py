"""Train the agents on MinAtar, and write `docs/minatar.md`: see `__init__.py`.

Each agent and game is one run of several seeds. It is skipped if `returns.json` has it
with at least as many steps, and is stored as soon as it is done. After an interruption,
the same command continues.
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np
from tqdm import tqdm

from minatar import games, page

RETURNS = Path(__file__).parent / "returns.json"
STEPS, SEEDS = 200_000, 5


def main(arguments: Sequence[str] | None = None) -> None:
    """Train what the command line names and is missing."""
    names = list(page.AGENTS)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", nargs="*", choices=names, default=names)
    parser.add_argument("--games", nargs="*", choices=games.GAMES, default=games.GAMES)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    options = parser.parse_args(arguments)
    pairs = [(agent, game) for agent in options.agents for game in options.games]
    with tqdm(pairs, unit="run") as progress:
        for agent, game in progress:
            progress.set_postfix_str(f"{agent} on {game}")
            stored = json.loads(RETURNS.read_text())
            if stored[agent].get(game, {"steps": 0})["steps"] < options.steps:
                stored[agent][game] = run(agent, game, options.steps, options.seeds)
                RETURNS.write_text(json.dumps(stored, indent=1) + "\n")
    page.write(json.loads(RETURNS.read_text()))


def run(agent_name: str, game_name: str, steps: int, seeds: int) -> page.Run:
    """Return the steps, seconds and returns of an agent on a game."""
    start = time.perf_counter()
    returns = train(agent_name, game_name, steps, seeds)
    seconds = round(time.perf_counter() - start)
    return {"steps": steps, "seconds": seconds, "returns": returns.round(2).tolist()}


def train(agent_name: str, game_name: str, steps: int, seeds: int) -> np.ndarray:
    """Return the average returns of the evaluations, [seeds, EVALUATIONS + 1]."""
    game = games.make(game_name)
    agent = page.AGENTS[agent_name].make(game, steps)
    keys = jax.random.split(jax.random.key(0), seeds)
    train_all = jax.jit(jax.vmap(lambda key: games.train(game, agent, key, steps)))
    return np.asarray(train_all(keys), float)


if __name__ == "__main__":
    main()
