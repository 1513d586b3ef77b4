"""Rows of `normalization/_moments.py`, and their definitions in NumPy."""

import numpy as np
from row import Gradients, Loose, Precision, Row

DECAY = 0.75


# --- Moving averages. ---


def create_ema(first, second):
    """Average two updates, then their squared distances from the mean."""
    weights = np.array([DECAY * (1 - DECAY), 1 - DECAY]) / (1 - DECAY**2)
    mean = weights @ [np.mean(first), np.mean(second)]
    squares = [np.mean((first - mean) ** 2), np.mean((second - mean) ** 2)]
    return np.asarray(mean), np.asarray(weights @ squares)


def two_updates(library):
    """Return a function that returns the moments after two updates."""

    def moments(first, second):
        init_state, update_moments = library.create_ema(decay=DECAY)
        _, state = update_moments(first, init_state(first))
        moved, _ = update_moments(second, state)
        return moved.mean, moved.variance

    return moments


# --- Running moments. ---


def running_moments(first, second, sample_mask):
    """Compute the moments of all entries at once."""
    entries = np.concatenate([first[sample_mask], second])
    mean = np.mean(entries, axis=0)
    return mean, np.mean((entries - mean) ** 2, axis=0)


def two_batches(library):
    """Return a function that returns the moments of two batches of entries."""

    def moments(first, second, sample_mask):
        init_state, update_moments = library.running_moments()
        _, state = update_moments(init_state(first[0]), first, sample_mask=sample_mask)
        moved, _ = update_moments(state, second)
        return moved

    return moments


ROWS = [
    Row(
        create_ema,
        lambda rng: {
            "first": rng.normal(size=(4, 3)),
            "second": rng.normal(loc=1.0, size=7),
        },
        find=two_updates,
        precision=Precision(single_outputs=(0, 1)),
        loose=Loose(
            lengths=("first", "second"),
            batches=True,
            dtypes=("first", "second"),
            trees=("first", "second"),
        ),
    ),
    Row(
        running_moments,
        lambda rng: {
            "first": rng.normal(size=(4, 3)),
            "second": rng.normal(loc=1.0, size=(7, 3)),
            "sample_mask": np.array([True, False, True, True]),
        },
        find=two_batches,
        gradients=Gradients(exist=False),
        precision=Precision(single_outputs=(0, 1)),
        loose=Loose(
            lengths=("first", "second"),
            batches=True,
            dtypes=("first", "second"),
            trees=("first", "second"),
            none=("sample_mask",),
        ),
    ),
]
