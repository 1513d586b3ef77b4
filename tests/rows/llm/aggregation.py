"""Rows of `llm/_aggregation.py`, and their definitions in NumPy."""

import functools

import numpy as np
from contract import STEPS
from row import Gradients, Precision, Row

BATCH = 4


# --- Masks, penalties and aggregation. ---


def aggregate_losses(loss, kind="token_mean", sample_mask=None, denominator=None):
    sequences = [x[m] for x, m in zip(loss, sample_mask, strict=True) if np.any(m)]
    parts, count = {
        "token_mean": (map(np.sum, sequences), np.sum(sample_mask)),
        "sequence_mean_token_mean": (map(np.mean, sequences), len(sequences)),
        "sequence_mean_token_sum": (map(np.sum, sequences), len(sequences)),
        "constant": (map(np.sum, sequences), loss.size),
    }[kind]
    return sum(parts) / (count if denominator is None else denominator)


# --- Arguments. ---


def make_batch(*names):
    def make(rng):
        mask = rng.permuted(np.arange(STEPS) < np.arange(BATCH)[:, None], axis=1)
        drawn = {
            "loss": rng.normal(size=(BATCH, STEPS)),
            "sample_mask": rng.permutation(mask),
            "denominator": np.asarray(rng.uniform(1.0, 9.0)),
        }
        return {name: drawn[name] for name in names}

    return make


def over_devices(name):
    return lambda library, axis: functools.partial(
        getattr(library, name), axis_name=axis
    )


MASKED = ("sample_mask",)


def row(
    name,
    definition,
    make,
    case="",
    settings=None,
    gradient=None,
    constants=(),
    condition=1.0,
    targets=(),
    **attributes,
):
    settings = settings or {}
    gradients = Gradients(constants=constants, targets=targets)
    if gradient is not None:

        def stopped(x, fixed):
            moved = {name: y for name, y in x.items() if name not in targets}
            return gradient(moved, fixed, settings)

        gradients = Gradients(
            stopped_definition=stopped if targets else None,
            free_definition=functools.partial(gradient, settings=settings),
            first_order_only="Part of its gradient is stopped.",
            constants=constants,
            targets=targets,
        )
    return Row(
        definition,
        make,
        case,
        name=name,
        settings=settings,
        precision=Precision(single_outputs=tuple(range(5)), condition=condition),
        **{"gradients": gradients, **attributes},
    )


ROWS = [
    *(
        row(
            "aggregate_losses",
            aggregate_losses,
            make_batch(*names),
            kind,
            {"kind": kind},
            over_devices=over_devices("aggregate_losses"),
        )
        for kind, names in [
            ("token_mean", ("loss", "sample_mask")),
            ("sequence_mean_token_mean", ("loss", "sample_mask")),
            ("sequence_mean_token_sum", ("loss", "sample_mask")),
            ("constant", ("loss", "sample_mask")),
        ]
    ),
    row(
        "aggregate_losses",
        aggregate_losses,
        make_batch("loss", "sample_mask", "denominator"),
        "denominator",
        constants=("denominator",),
    ),
]
