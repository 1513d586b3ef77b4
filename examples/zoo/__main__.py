"""Train the zoo, and write its results and curves: see `zoo/__init__.py`."""

import argparse
import sys
import time
from contextlib import ExitStack
from importlib import import_module
from typing import Any
from unittest import mock

import jax
import numpy as np
from tqdm import tqdm

from zoo import results
from zoo.training import FAULTS, Entry, Fault

FAMILIES = (
    *("value_based", "policy_gradient", "continuous", "offline", "imitation"),
    *("exploration", "streaming", "language", "language_updates", "preferences"),
    *("constraints", "phases", "multiagent", "goals", "planning", "search", "flows"),
    *("evaluation", "plasticity", "gflownets", "curricula"),
)
SEEDS = 5


def families() -> dict[str, dict[str, Entry]]:
    """Return all entries by name, of each family."""
    return {family: import_module(f"zoo.{family}").ENTRIES for family in FAMILIES}


def train(entry: Entry, fault: str = "", seed: int = 0) -> np.ndarray:
    """Return the curves of five seeds, [5, points + 1], with a fault if named."""
    made = FAULTS.get(fault, Fault())
    keys = jax.random.split(jax.random.key(seed), SEEDS)

    def curves() -> np.ndarray:
        curve = jax.vmap(lambda key: entry.run(key, made).curve())
        return np.asarray(jax.jit(curve)(keys))

    if not made.gradient:
        return curves()
    jax.clear_caches()  # Of programs whose gradients stop.
    with ExitStack() as stack:
        for name, module in list(sys.modules.items()):
            if name.split(".")[0] in ("jax", "rlaxlib") and "stop_gradient" in vars(
                module
            ):
                stack.enter_context(mock.patch.object(module, "stop_gradient", _let))
        faulty = curves()
    jax.clear_caches()
    return faulty


def _let(x):
    return x


def main() -> None:
    """Train the entries that the command line names, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--faults", action="store_true", help="try what must fail")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    zoo = families()
    entries = {name: entry for each in zoo.values() for name, entry in each.items()}
    family = {name: file for file, each in zoo.items() for name in each}
    with tqdm(options.names or list(entries), unit="recipe") as progress:
        for name in progress:
            progress.set_postfix_str(name)
            if options.faults:
                try_faults(name, entries[name], options.seed)
            else:
                found = measure(name, entries[name], options.seed)
                if options.seed == 0:
                    found = results.about(family[name], entries[name]) | found
                    results.write(entries, {name: found})


def measure(name: str, entry: Entry, seed: int) -> dict[str, Any]:
    """Train an entry, draw its curves, and return what it reaches."""
    start = time.perf_counter()
    curves = train(entry, seed=seed)
    seconds = time.perf_counter() - start
    _print(name, entry, curves, f"states {entry.states:g}, {seconds:.0f} s")
    if seed == 0:
        results.draw(name, entry, curves)
    return results.reached(curves, seconds)


def try_faults(name: str, entry: Entry, seed: int) -> None:
    """Train an entry with each fault, and say whether its median falls as it states."""
    for fault in FAULTS:
        said = "falls" if fault in entry.fails else "may stay"
        _print(f"{name}, {fault}", entry, train(entry, fault, seed), said, np.median)
    for part, run in entry.without.items():
        curves = train(entry._replace(run=run), seed=seed)
        _print(f"{name}, {part}", entry, curves, "falls", np.median)


def _print(name, entry, curves, text, judge=np.min):
    reached = np.sort(curves[:, -1])
    numbers = "  ".join(f"{x:+.2f}" for x in reached)
    below = "" if judge(reached) >= entry.states else "  BELOW"
    tqdm.write(f"{name:40} {numbers}  {text}{below}")


if __name__ == "__main__":
    main()
