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


INVALID_RANGES = (
    {"max_value": -30.0},
    {"max_value": np.inf},
    {"min_value": -np.inf},
)


INVALID_BINS = (
    {"bins": np.array([0.0, 1.0, 2.0, 2.0, 3.0])},
    {"bins": np.array([0.0, 1.0, 2.0, 3.0, np.inf])},
)


INVALID_PROBS = ({"probs": np.full(5, -0.1)}, {"probs": np.full(5, 1.1)})


ROWS = [
    elementwise(
        transform_to_2hot,
        between(EQUAL, "scalar"),
        settings=RANGE,
        invalid=INVALID_RANGES,
    ),
    elementwise(
        transform_from_2hot,
        from_equal_bins,
        settings=RANGE,
        invalid=INVALID_RANGES + INVALID_PROBS,
    ),
    elementwise(
        transform_to_2hot_nonlinear,
        to_any_bins,
        loose=Loose(lengths=("scalar", "bins")),
        invalid=INVALID_BINS,
    ),
    elementwise(
        transform_from_2hot_nonlinear,
        from_any_bins,
        loose=Loose(lengths=("probs",)),
        invalid=INVALID_BINS + INVALID_PROBS,
    ),
]
