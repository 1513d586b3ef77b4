"""Rows of `normalization/_scales.py`, and their definitions in NumPy."""

import numpy as np
from row import Gradients, Loose, Precision, Row
from rows.normalization.moments import DECAY

# --- Scales. ---


def percentile_scale(returns, sample_mask):
    """Average the ranges of two updates."""
    weights = np.array([DECAY * (1 - DECAY), 1 - DECAY]) / (1 - DECAY**2)
    updates = returns[sample_mask], 2 * returns
    ranges = [np.subtract(*np.percentile(x, [90, 20])) for x in updates]
    return np.asarray(max(0.25, weights @ ranges))


def two_ranges(library):
    """Return a function that returns the scale after two updates."""

    def scale(returns, sample_mask):
        init_state, update_scale = library.percentile_scale(DECAY, 20.0, 90.0, 0.25)
        _, state = update_scale(init_state(returns), returns, sample_mask=sample_mask)
        return update_scale(state, 2 * returns)[0]

    return scale


def reward_scale(r_t, discount_t, truncated_t, sample_mask, max_return=np.inf):
    """Sum the rewards of each episode so far, step by step, in two chunks."""
    sums, so_far = [], 0.0
    for t in [*range(len(r_t))] * 2:
        if sample_mask[t]:
            so_far += r_t[t]
            sums.append(so_far)
            so_far *= discount_t[t]
        so_far *= not truncated_t[t]
    return max(np.sqrt(np.var(sums) + 1e-8), np.max(np.abs(sums)) / max_return)


def two_chunks(library):
    """Return a function that returns the scale after two chunks."""

    def scale(r_t, discount_t, max_return=np.inf, **masks):
        init_state, update_scale = library.reward_scale(max_return=max_return)
        _, state = update_scale(init_state(r_t), r_t, discount_t, **masks)
        return update_scale(state, r_t, discount_t, **masks)[0]

    return scale


def return_based_scale(r_t, discount_t, returns, sample_mask, returns_mask):
    """Schaul et al. 2021, on numbers with masks and then on all of them."""
    r_t, discount_t = (np.append(x, x[sample_mask]) for x in (r_t, discount_t))
    returns = np.append(returns, returns[returns_mask])
    return np.sqrt(np.var(r_t) + np.var(discount_t) * np.mean(returns**2))


def two_updates_of_scale(library):
    """Return a function that returns the scale after updates with and without masks."""

    def scale(r_t, discount_t, returns, **masks):
        init_state, update_scale = library.return_based_scale()
        _, state = update_scale(init_state(r_t), r_t, discount_t, returns, **masks)
        return update_scale(state, r_t, discount_t, returns)[0]

    return scale


ROWS = [
    Row(
        percentile_scale,
        lambda rng: {
            "returns": rng.normal(size=6),
            "sample_mask": np.array([True, False, True, True, True, False]),
        },
        find=two_ranges,
        gradients=Gradients(exist=False),
        precision=Precision(single_outputs=(0,)),
        loose=Loose(batches=True, dtypes=("returns",), none=("sample_mask",)),
    ),
    Row(
        return_based_scale,
        lambda rng: {
            "r_t": rng.normal(size=6),
            "discount_t": rng.uniform(size=6),
            "returns": rng.normal(loc=2.0, size=4),
            "sample_mask": np.array([True, True, False, True, True, False]),
            "returns_mask": np.array([True, False, True, True]),
        },
        find=two_updates_of_scale,
        gradients=Gradients(exist=False),
        precision=Precision(single_outputs=(0,)),
        loose=Loose(
            batches=True,
            dtypes=("r_t", "returns"),
            none=("returns_mask", "sample_mask"),
        ),
    ),
    Row(
        reward_scale,
        lambda rng: {
            "r_t": rng.normal(size=6),
            "discount_t": rng.uniform(0.5, 1.0, size=6),
            "truncated_t": np.array([False, True, False, False, False, False]),
            "sample_mask": np.array([True, True, True, False, True, True]),
        },
        find=two_chunks,
        gradients=Gradients(exist=False),
        precision=Precision(single_outputs=(0,)),
        loose=Loose(dtypes=("r_t",), none=("sample_mask", "truncated_t")),
    ),
    Row(
        reward_scale,
        lambda rng: {
            "r_t": 1.0 + rng.uniform(size=6),
            "discount_t": rng.uniform(0.5, 1.0, size=6),
            "truncated_t": np.array([False, True, False, False, False, False]),
            "sample_mask": np.array([True, True, True, False, True, True]),
        },
        "max_return",
        settings={"max_return": 0.5},
        find=two_chunks,
        gradients=Gradients(exist=False),
        precision=Precision(single_outputs=(0,)),
        loose=Loose(dtypes=("r_t",), none=("sample_mask", "truncated_t")),
    ),
]
