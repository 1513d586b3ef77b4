"""Rows of `values/_ensembles.py`, and their definitions in NumPy."""

import jax
import numpy as np
from row import Row


def ensemble_value(q, mix=0.75, kind="min"):
    least, greatest = np.sort(q)[[0, -1]]
    return {
        "min": least,
        "mean": np.sum(q) / len(q),
        "min_max_mix": mix * least + (1 - mix) * greatest,
    }[kind]


def subset_minimum(key, q, num_members):
    drawn = np.argsort(jax.random.bits(key, q.shape)) < num_members
    return np.min(q[drawn])


# --- Arguments. ---


CRITICS = 5


def make_critics(*names):
    def make(rng):
        drawn = {"q": rng.normal(size=CRITICS), "mix": rng.uniform(0.2, 0.8)}
        return {name: np.asarray(drawn[name]) for name in names}

    return make


ROWS = [
    *(
        Row(
            ensemble_value,
            make_critics("q", *["mix"] * (kind == "min_max_mix")),
            kind,
            settings={"kind": kind},
            invalid=({"kind": None},),
        )
        for kind in ("min", "mean", "min_max_mix")
    ),
    Row(subset_minimum, make_critics("q"), settings={"num_members": 2}),
]
