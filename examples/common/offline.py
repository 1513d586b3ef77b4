"""Experience that an agent made, in a file that another learns from."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np


class Transitions(NamedTuple):
    """N steps, in the order in which they were taken; or a batch of them, in none.

    A data set is a file of NumPy, `.npz`, of arrays with these names.

    Attributes:
        observations: What the agent saw before each step, shape `[N, ...]`.
        actions: What it did: a whole number, shape `[N]`; or a vector in [-1, 1],
            shape `[N, D]`.
        rewards: What the step returned, shape `[N]`.
        discounts: 0 where the step ended the episode, else 1, shape `[N]`. It is 1
            where a time limit cut the episode: there is more to come, had it gone on.
        truncated: Whether a time limit cut the episode after the step, shape `[N]`.
        next_observations: What the agent saw after the step, and not after the reset
            that may have followed, shape `[N, ...]`.
    """

    observations: Any
    actions: Any
    rewards: Any
    discounts: Any
    truncated: Any
    next_observations: Any


def save(transitions: Transitions, path: str | Path) -> None:
    """Write a data set, and say where."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    arrays = jax.tree.map(np.asarray, transitions)
    np.savez_compressed(path, **arrays._asdict())
    print(f"Data set of {len(arrays.rewards)} steps: {path}")


def load(path: str | Path) -> Transitions:
    """Read a data set."""
    with np.load(path) as arrays:
        return Transitions(**arrays)
