"""Uniform replay buffer in NumPy arrays."""

from typing import Any

import jax
import numpy as np


class Replay:
    """A ring buffer of transitions; the newest replaces the oldest.

    A transition is a pytree of scalars and arrays, such as a named tuple. The first one
    sets the structure, shapes and dtypes.
    """

    def __init__(self, capacity: int, seed: int):
        self._capacity = capacity
        self._random = np.random.default_rng(seed)
        self._added = 0
        self._data: Any = None

    def __len__(self) -> int:
        return min(self._added, self._capacity)

    def add(self, transition: Any) -> int:
        """Add a transition and return its index."""
        if self._data is None:
            self._data = jax.tree.map(self._allocate, transition)
        index = self._added % self._capacity
        for array, value in zip(
            jax.tree.leaves(self._data), jax.tree.leaves(transition), strict=True
        ):
            array[index] = value
        self._added += 1
        return index

    def sample(self, size: int) -> Any:
        """Return a batch of transitions, sampled uniformly with replacement."""
        return self.take(self._random.integers(len(self), size=size))

    def take(self, indices: np.ndarray) -> Any:
        """Return the batch of transitions at `indices`."""
        return jax.tree.map(lambda x: x[indices], self._data)

    def _allocate(self, value: Any) -> np.ndarray:
        value = np.asarray(value)
        return np.zeros((self._capacity, *value.shape), value.dtype)
