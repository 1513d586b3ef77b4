"""Rows of `offline/_awr.py`, and their definitions in NumPy."""

import numpy as np
from contract import away_from
from row import Gradients, Loose, Precision, Row
from rows.offline._shared import BATCH, SAMPLES

# --- Advantage-weighted policies. ---


def advantage_weights(adv, temperature, max_weight):
    """Peng et al. 2019, with clipped weights."""
    return np.minimum(np.exp(adv / temperature), max_weight)


def crr_weights(
    q, sample_q_values, kind="exp", baseline="mean", temperature=1.0, max_weight=20.0
):
    """Wang et al. 2020, section 3."""
    baselines = {"mean": np.mean, "max": np.max}
    adv = q - baselines[baseline](sample_q_values)
    if kind == "binary":
        return np.where(adv > 0, 1.0, 0.0)
    return np.minimum(np.exp(adv / temperature), max_weight)


# --- Arguments. ---


def make_weighted(rng):
    """Draw advantages, some of which are clipped."""
    return {
        "adv": away_from(2 * rng.normal(size=BATCH), 0.5 * np.log(4.0)),
        "temperature": np.asarray(0.5),
        "max_weight": np.asarray(4.0),
    }


def make_crr(rng):
    sample_q_values = rng.normal(size=SAMPLES)
    return {"q": np.asarray(rng.normal()), "sample_q_values": sample_q_values}


ROWS = [
    Row(
        advantage_weights,
        make_weighted,
        gradients=Gradients(exist=False),
        precision=Precision(condition=8.0),
    ),
    *[
        Row(
            crr_weights,
            make_crr,
            f"{kind}, {baseline}",
            settings={"kind": kind, "baseline": baseline},
            gradients=Gradients(exist=False),
            precision=Precision(condition=8.0),
            loose=Loose(lengths=("sample_q_values",)),
        )
        for kind in ("exp", "binary")
        for baseline in ("mean", "max")
    ],
]
