"""Rows of `transforms/_two_hot.py`, and their definitions in NumPy."""

import numpy as np
from row import Loose
from rows.transforms.squashing import elementwise

# --- Bins. ---


def to_bins(x, bins):
    """Share probability between the two bins around a value, which is their mean."""
    rows = []
    for each in np.clip(np.ravel(x), bins[0], bins[-1]):
        k = np.flatnonzero(bins[:-1] <= each)[-1]
        share = (each - bins[k]) / (bins[k + 1] - bins[k])
        row = np.zeros(len(bins))
        row[k], row[k + 1] = 1 - share, share
        rows.append(row)
    return np.reshape(rows, (*np.shape(x), len(bins)))


def transform_to_2hot(scalar, min_value, max_value, num_bins):
    return to_bins(scalar, np.linspace(min_value, max_value, num_bins))


def transform_from_2hot(probs, min_value, max_value, num_bins):
    return probs @ np.linspace(min_value, max_value, num_bins)


def transform_to_2hot_nonlinear(scalar, bins):
    return to_bins(scalar, bins)


def transform_from_2hot_nonlinear(probs, bins):
    return probs @ bins


# --- Arguments. ---


RANGE = {"min_value": -30.0, "max_value": 30.0, "num_bins": 5}


EQUAL = np.linspace(-30.0, 30.0, 5)


def between(bins, name):
    """Draw values between bins, where derivatives exist."""

    def make(rng):
        k = rng.integers(len(bins) - 1, size=(3, 4))
        share = rng.uniform(0.1, 0.9, size=(3, 4))
        return {name: bins[k] + share * (bins[k + 1] - bins[k])}

    return make


def draw_bins(rng):
    return np.cumsum(rng.uniform(0.5, 1.5, 5)) - 3


def to_any_bins(rng):
    bins = draw_bins(rng)
    return between(bins, "scalar")(rng) | {"bins": bins}


def from_equal_bins(rng):
    return {"probs": rng.dirichlet(np.ones(5), 3)}


def from_any_bins(rng):
    return from_equal_bins(rng) | {"bins": draw_bins(rng)}


ROWS = [
    elementwise(
        transform_to_2hot,
        between(EQUAL, "scalar"),
        settings=RANGE,
    ),
    elementwise(
        transform_from_2hot,
        from_equal_bins,
        settings=RANGE,
    ),
    elementwise(
        transform_to_2hot_nonlinear,
        to_any_bins,
        loose=Loose(lengths=("scalar",)),
    ),
    elementwise(
        transform_from_2hot_nonlinear, from_any_bins, loose=Loose(lengths=("probs",))
    ),
]
