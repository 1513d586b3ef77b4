"""Train the zoo, and write `docs/zoo.md` and its figures: see `zoo/__init__.py`."""

import argparse
import sys
import time
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from unittest import mock

import jax
import numpy as np
from tqdm import tqdm

from zoo.training import FAULTS, Entry, Fault

FAMILIES = (
    *("value_based", "policy_gradient", "continuous", "offline", "imitation"),
    *("exploration", "streaming", "language", "language_updates", "preferences"),
    *("constraints", "phases", "multiagent", "goals", "planning", "flows"),
    *("evaluation", "plasticity", "gflownets"),
)
SEEDS = 5
DOCS = Path(__file__).parents[2] / "docs"


def entries() -> dict[str, Entry]:
    """Return all entries by name, family after family."""
    found = {}
    for family in FAMILIES:
        if not (Path(__file__).parent / f"{family}.py").exists():
            continue
        found |= import_module(f"zoo.{family}").ENTRIES
    return found


def train(entry: Entry, fault: Fault = Fault(), seed: int = 0) -> np.ndarray:
    """Return the curves of five seeds, [5, points + 1]."""
    keys = jax.random.split(jax.random.key(seed), SEEDS)
    if not fault.gradient:
        return np.asarray(jax.jit(jax.vmap(entry.train, (0, None)))(keys, fault))
    jax.clear_caches()  # Of programs whose gradients stop.
    with ExitStack() as stack:
        # Some modules of the library have imported the function itself.
        own = [x for name, x in sys.modules.items() if name.startswith("rlaxlib.")]
        for module in (jax.lax, *own):
            if hasattr(module, "stop_gradient"):
                stack.enter_context(mock.patch.object(module, "stop_gradient", _let))
        curves = np.asarray(jax.jit(jax.vmap(entry.train, (0, None)))(keys, fault))
    jax.clear_caches()
    return curves


def main() -> None:
    """Train the entries that the command line names, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--faults", action="store_true", help="also train with faults")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    zoo = entries()
    names = options.names or list(zoo)
    with tqdm(names, unit="recipe") as progress:
        for name in progress:
            entry = zoo[name]
            progress.set_postfix_str(name)
            start = time.perf_counter()
            curves = train(entry, seed=options.seed)
            seconds = time.perf_counter() - start
            line = f"{name:32} {_show(curves)} states {entry.states:g}, {seconds:.1f} s"
            tqdm.write(
                line + ("" if curves[:, -1].min() >= entry.states else "  FAILS")
            )
            if options.faults:
                for fault in FAULTS:
                    curves = train(entry, FAULTS[fault], options.seed)
                    falls = curves[:, -1].min() < entry.states
                    said = fault in entry.fails
                    mark = "" if falls == said else "  SAYS OTHERWISE"
                    tqdm.write(f"{fault:>32} {_show(curves)}{mark}")


def _let(x):
    return x


def _show(curves):
    reached = np.sort(curves[:, -1])
    return "  ".join(f"{x:+.2f}" for x in reached)


if __name__ == "__main__":
    main()
