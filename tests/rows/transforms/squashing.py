"""Rows of `transforms/_squashing.py`, and their definitions in NumPy."""

import importlib

import numpy as np
from contract import away_from
from row import Peer, Precision, Row

import rlaxlib

# --- Elementwise transforms and their inverses. ---


def identity(x):
    return x


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def logit(x):
    return np.log(x / (1 - x))


def signed_logp1(x):
    """Hafner et al. 2023."""
    return np.sign(x) * np.log(np.abs(x) + 1)


def signed_expm1(x):
    """Hafner et al. 2023."""
    return np.sign(x) * (np.exp(np.abs(x)) - 1)


def signed_hyperbolic(x, eps=1e-3):
    """Pohlen et al. 2018."""
    return np.sign(x) * (np.sqrt(np.abs(x) + 1) - 1) + eps * x


def signed_parabolic(x, eps=1e-3):
    """Pohlen et al. 2018, proposition A.2."""
    root = np.sqrt(1 + 4 * eps * (np.abs(x) + 1 + eps)) - 1
    return np.sign(x) * ((root / (2 * eps)) ** 2 - 1)


def hyperbolic_sin(x):
    return (np.exp(x) - np.exp(-x)) / 2


def hyperbolic_arcsin(x):
    return np.sign(x) * np.log(np.abs(x) + np.sqrt(x**2 + 1))


def power(x, p):
    return np.sign(x) * ((np.abs(x) / np.sqrt(p) + 1) ** p - 1) / np.sqrt(p)


# --- Arguments. ---


def draw(name="x", scale=2.0, **parameters):
    """Draw values on both sides of 0, where second derivatives do not exist."""

    def make(rng):
        x = away_from(rng.normal(scale=scale, size=(3, 4)), 0.0)
        return {name: x} | {name: np.asarray(p) for name, p in parameters.items()}

    return make


def draw_unit(rng):
    return {"x": rng.uniform(0.05, 0.95, (3, 4))}


def private_too(name):
    """Find a function by its name, also one that rlax does not export."""

    def find(library):
        if library is rlaxlib:
            return getattr(rlaxlib, name)
        return getattr(importlib.import_module("rlax._src.transforms"), name)

    return find


def elementwise(definition, make, **options):
    return Row(definition, make, find=private_too(definition.__name__), **options)


ROUNDING = "rlax's formula cancels"


ROWS = [
    elementwise(identity, draw()),
    elementwise(sigmoid, draw()),
    elementwise(logit, draw_unit),
    elementwise(signed_logp1, draw()),
    elementwise(signed_expm1, draw()),
    elementwise(signed_hyperbolic, draw(eps=0.3), case="with eps"),
    elementwise(signed_hyperbolic, draw()),
    elementwise(signed_parabolic, draw(eps=0.3), case="with eps"),
    elementwise(
        signed_parabolic,
        draw(),
        precision=Precision(condition=100.0),
        peer=Peer(why_not=ROUNDING),
    ),
    elementwise(hyperbolic_sin, draw()),
    elementwise(hyperbolic_arcsin, draw()),
    elementwise(power, draw(p=0.7)),
]
