"""Rows of `diagnostics.py`, and their definitions in NumPy."""

import numpy as np
from contract import away_from, discounts
from jax.experimental import checkify
from row import Gradients, Peer, Precision, Row

SAMPLES = 8


def unmasked(x, sample_mask):
    return x.reshape(-1) if sample_mask is None else x[sample_mask]


def explained_variance(predictions, targets, sample_mask=None):
    errors = unmasked(targets - predictions, sample_mask)
    return 1 - np.var(errors) / np.var(unmasked(targets, sample_mask))


def effective_sample_size(log_weights, sample_mask=None):
    """Kong 1992."""
    weights = np.exp(unmasked(log_weights, sample_mask))
    return np.sum(weights) ** 2 / np.sum(weights**2)


def importance_statistics(log_ratio, sample_mask=None):
    logs = unmasked(log_ratio, sample_mask)
    statistics = (
        np.mean(np.exp(logs)),
        np.max(logs),
        np.min(logs),
        np.mean(logs),
        np.std(logs),
        np.mean(np.exp(logs) - 1 - logs),
        np.mean(np.exp(logs) ** 2) - 1,
        effective_sample_size(logs) / logs.size,
    )
    return [np.asarray(each) for each in statistics]


def check_trajectory(r_t, discount_t, truncated_t=None, sample_mask=None, v_t=None):
    """Return True for all steps, as `make_trajectory` makes consistent streams."""
    return np.ones(r_t.shape, bool)


# --- Arguments. ---


def make_samples(*names):
    def make(rng):
        sample_mask = rng.permutation([True] * 6 + [False] * 2)
        log_ratio = rng.normal(scale=0.5, size=SAMPLES)
        for bound in np.log([0.8, 1.2, 1.5]):
            log_ratio = away_from(log_ratio, bound)
        drawn = {
            "predictions": rng.normal(size=SAMPLES),
            "targets": rng.normal(size=SAMPLES),
            "log_ratio": log_ratio,
            "log_weights": rng.normal(size=SAMPLES),
            "adv": away_from(rng.normal(size=SAMPLES), 0.0),
            "epsilon": np.asarray(0.2),
            "epsilon_high": np.asarray(0.5),
            "sample_mask": sample_mask,
        }
        return {name: drawn[name] for name in names}

    return make


def make_trajectory(rng):
    discount_t = discounts(rng, SAMPLES)
    truncated_t = (discount_t > 0) & (rng.uniform(size=SAMPLES) < 0.3)
    after_an_end = np.append(False, ((discount_t == 0) | truncated_t)[:-1])
    ignored = after_an_end & (discount_t > 0) & (rng.uniform(size=SAMPLES) < 0.7)
    return {
        "r_t": rng.normal(size=SAMPLES),
        "discount_t": discount_t,
        "truncated_t": truncated_t,
        "sample_mask": ~ignored,
        "v_t": rng.normal(size=SAMPLES),
    }


def checked(library):
    """Find the check, transformed by checkify."""
    function = checkify.checkify(library.check_trajectory)
    return lambda **arguments: function(**arguments)[1]


def over_devices(name):
    """Find a function that takes the name of a mapped axis."""

    def find(library, axis_name):
        function = getattr(library, name)
        return lambda **arguments: function(**arguments, axis_name=axis_name)

    return find


def rows(name, definition, *names, cases=None, **fields):
    """Return a row with a mask, and one without for each case."""
    cases = {"no mask": {}} if cases is None else cases
    shared = {
        "name": name,
        "definition": definition,
        "peer": Peer(why_not="rlax has no such function"),
        **fields,
    }
    with_mask = Row(**{"make": make_samples(*names, "sample_mask"), **shared})
    return [
        with_mask,
        *(
            Row(
                make=make_samples(*names),
                case=case,
                settings=settings,
                over_devices=over_devices(name),
                **shared,
            )
            for case, settings in cases.items()
        ),
    ]


ROWS = [
    *rows(
        "explained_variance",
        explained_variance,
        "predictions",
        "targets",
        precision=Precision(condition=4.0),
    ),
    *rows(
        "effective_sample_size",
        effective_sample_size,
        "log_weights",
        precision=Precision(condition=4.0),
    ),
    Row(
        importance_statistics,
        make_samples("log_ratio", "sample_mask"),
        gradients=Gradients(exist=False),
        precision=Precision(condition=8.0),
    ),
    Row(
        check_trajectory,
        make_trajectory,
        find=checked,
        gradients=Gradients(exist=False),
    ),
]
