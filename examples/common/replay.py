"""Keep the latest transitions, in plain arrays, and draw from them."""

from typing import Any

import jax
import numpy as np


class Replay:
    """A ring of transitions: the newest takes the place of the oldest.

    What a transition is, the first one says: any named tuple, or other pytree, of
    numbers and arrays.
    """

    def __init__(self, capacity: int, seed: int):
        self._capacity = capacity
        self._random = np.random.default_rng(seed)
        self._added = 0
        self._data: Any = None

    def __len__(self) -> int:
        return min(self._added, self._capacity)

    def add(self, transition: Any) -> int:
        """Keep a transition, and return its index."""
        if self._data is None:
            self._data = jax.tree.map(self._make_room, transition)
        index = self._added % self._capacity
        for place, value in zip(
            jax.tree.leaves(self._data), jax.tree.leaves(transition), strict=True
        ):
            place[index] = value
        self._added += 1
        return index

    def sample(self, size: int) -> Any:
        """Return transitions drawn with replacement, all alike likely, as a batch."""
        return self.take(self._random.integers(len(self), size=size))

    def take(self, indices: np.ndarray) -> Any:
        """Return the transitions of these indices, as a batch."""
        return jax.tree.map(lambda x: x[indices], self._data)

    def _make_room(self, value: Any) -> np.ndarray:
        value = np.asarray(value)
        return np.zeros((self._capacity, *value.shape), value.dtype)
