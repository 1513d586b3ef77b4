"""Data sets of transitions, for offline RL and imitation."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np


class Transitions(NamedTuple):
    """N transitions, in order of time in a data set, in any order in a batch.

    A data set is a NumPy `.npz` file of arrays with these names.

    Attributes:
        observations: Observations before each step, shape `[N, ...]`.
        actions: Discrete actions, shape `[N]`; or continuous actions in [-1, 1], shape
            `[N, D]`.
        rewards: Rewards, shape `[N]`.
        discounts: 0 at terminal steps, else 1, shape `[N]`. It is 1 at steps truncated
            by a time limit.
        truncated: True at steps truncated by a time limit, shape `[N]`.
        next_observations: Observations after each step and before a reset, shape
            `[N, ...]`.
    """

    observations: Any
    actions: Any
    rewards: Any
    discounts: Any
    truncated: Any
    next_observations: Any


def save(transitions: Transitions, path: str | Path) -> None:
    """Write a data set and print its path."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    arrays = jax.tree.map(np.asarray, transitions)
    np.savez_compressed(path, **arrays._asdict())
    print(f"Data set of {len(arrays.rewards)} steps: {path}")


def load(path: str | Path) -> Transitions:
    """Read a data set."""
    with np.load(path) as arrays:
        return Transitions(**arrays)


def mean_return(transitions: Transitions) -> float:
    """Return the mean return of the episodes of a data set."""
    ended = (transitions.discounts == 0) | transitions.truncated
    return float(np.sum(transitions.rewards) / np.sum(ended))
