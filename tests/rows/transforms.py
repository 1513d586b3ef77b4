"""Transforms: definitions in NumPy, and their rows of the contract."""

import functools
import importlib
import math

import numpy as np
from contract import Row, away_from

import rlaxlib

# --- Elementwise transforms and their inverses. ---


def identity(x):
    return x


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def logit(x):
    return np.log(x / (1 - x))


def signed_logp1(x):
    return np.sign(x) * np.log(np.abs(x) + 1)


def signed_expm1(x):
    return np.sign(x) * (np.exp(np.abs(x)) - 1)


def symlog(x):
    """Hafner et al. 2023."""
    return np.where(x < 0, -1, 1) * np.log(1 + np.abs(x))


def symexp(x):
    """Hafner et al. 2023."""
    return np.where(x < 0, -1, 1) * (np.exp(np.abs(x)) - 1)


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


def transform_to_hl_gauss(scalar, min_value, max_value, num_bins, sigma_ratio=0.75):
    """Farebrother et al. 2024, appendix A."""
    edges = np.linspace(min_value, max_value, num_bins + 1)
    sigma = sigma_ratio * (edges[1] - edges[0])
    erf = np.vectorize(math.erf)
    shares = np.diff(erf((edges - scalar[..., None]) / (math.sqrt(2) * sigma)))
    return shares / np.sum(shares, axis=-1, keepdims=True)


def transform_from_hl_gauss(probs, min_value, max_value, num_bins):
    edges = np.linspace(min_value, max_value, num_bins + 1)
    return probs @ (0.5 * (edges[:-1] + edges[1:]))


# --- Pairs, each with its `apply`. ---


def hl_gauss_pair(scalar):
    return transform_to_hl_gauss(scalar, **RANGE, sigma_ratio=1.5)


def outside_support(x):
    y = symlog(x)
    return (y < -2.0) | (y > 2.0)


def compose_tx(x):
    return signed_logp1(signed_hyperbolic(x))


def twohot_pair(scalar):
    return to_bins(scalar, EQUAL)


def muzero_pair(x):
    return to_bins(signed_hyperbolic(x), EQUAL)


def unbiased_transform_pair(x):
    return to_bins(x, signed_parabolic(EQUAL))


def composed(library):
    return library.compose_tx(
        library.SIGNED_HYPERBOLIC_PAIR, library.SIGNED_LOGP1_PAIR
    ).apply


def two_hot(library):
    return library.twohot_pair(**RANGE).apply


def hl_gauss(library):
    return library.hl_gauss_pair(**RANGE, sigma_ratio=1.5).apply


def beyond(library):
    bins = library.hl_gauss_pair(-2.0, 2.0, 5)
    pair = library.compose_tx(library.SYMLOG_PAIR, bins)
    return functools.partial(library.outside_support, tx_pair=pair)


def two_hot_of_rlax(library):
    """Return a function whose signature has the one argument that is not set."""
    apply = two_hot(library)
    return lambda scalar: apply(scalar=scalar)


def muzero(library):
    return library.muzero_pair(**RANGE, tx=library.SIGNED_HYPERBOLIC_PAIR).apply


def unbiased(library):
    return library.unbiased_transform_pair(
        **RANGE, tx=library.SIGNED_HYPERBOLIC_PAIR
    ).apply


# --- Arguments. ---

RANGE = {"min_value": -30.0, "max_value": 30.0, "num_bins": 5}
EQUAL = np.linspace(-30.0, 30.0, 5)


def draw(name="x", scale=2.0, **parameters):
    """Draw values on both sides of 0, where second derivatives do not exist."""

    def make(rng):
        x = away_from(rng.normal(scale=scale, size=(3, 4)), 0.0)
        return {name: x} | {name: np.asarray(p) for name, p in parameters.items()}

    return make


def draw_unit(rng):
    return {"x": rng.uniform(0.05, 0.95, (3, 4))}


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


def private_too(name):
    """Find a function by its name, also one that rlax does not export."""

    def find(library):
        if library is rlaxlib:
            return getattr(rlaxlib, name)
        return getattr(importlib.import_module("rlax._src.transforms"), name)

    return find


def elementwise(definition, make, **options):
    return Row(
        name=definition.__name__,
        definition=definition,
        make=make,
        of=private_too(definition.__name__),
        elementwise=True,
        **options,
    )


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
NEW = "rlax has none"
ROUNDING = "rlax's formula cancels (audit, 1.1)"

ROWS = [
    elementwise(identity, draw()),
    elementwise(sigmoid, draw()),
    elementwise(logit, draw_unit, invalid=({"x": -0.1}, {"x": 1.1})),
    elementwise(signed_logp1, draw()),
    elementwise(signed_expm1, draw()),
    elementwise(symlog, draw(), peer="rlax calls it signed_logp1"),
    elementwise(symexp, draw(), peer="rlax calls it signed_expm1"),
    elementwise(
        signed_hyperbolic, draw(eps=0.3), case="with eps", invalid=({"eps": -1.0},)
    ),
    elementwise(signed_hyperbolic, draw()),
    elementwise(
        signed_parabolic, draw(eps=0.3), case="with eps", invalid=({"eps": -1.0},)
    ),
    elementwise(signed_parabolic, draw(), condition=100.0, peer=ROUNDING),
    elementwise(hyperbolic_sin, draw()),
    elementwise(hyperbolic_arcsin, draw()),
    elementwise(power, draw(p=0.7), invalid=({"p": 0.0}, {"p": -1.0})),
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
        any_length=("scalar", "bins"),
        invalid=INVALID_BINS,
    ),
    elementwise(
        transform_from_2hot_nonlinear,
        from_any_bins,
        any_length=("probs",),
        invalid=INVALID_BINS + INVALID_PROBS,
    ),
    elementwise(
        transform_to_hl_gauss,
        between(EQUAL, "scalar"),
        settings=RANGE,
        peer=NEW,
        invalid=(*INVALID_RANGES, {"sigma_ratio": 0.0}, {"sigma_ratio": -0.5}),
    ),
    elementwise(
        transform_from_hl_gauss,
        from_equal_bins,
        settings=RANGE,
        peer=NEW,
        invalid=INVALID_RANGES + INVALID_PROBS,
    ),
    Row(
        name="hl_gauss_pair",
        definition=hl_gauss_pair,
        make=between(EQUAL, "scalar"),
        of=hl_gauss,
        elementwise=True,
        peer=NEW,
    ),
    Row(
        name="outside_support",
        definition=outside_support,
        make=draw(scale=8.0),
        of=beyond,
        elementwise=True,
        differentiable=False,
        peer=NEW,
    ),
    Row(
        name="compose_tx",
        definition=compose_tx,
        make=draw(),
        of=composed,
        elementwise=True,
    ),
    Row(
        name="twohot_pair",
        definition=twohot_pair,
        make=between(EQUAL, "scalar"),
        of=two_hot,
        peer_of=two_hot_of_rlax,
        elementwise=True,
    ),
    Row(
        name="muzero_pair",
        definition=muzero_pair,
        make=draw(scale=100.0),
        of=muzero,
        elementwise=True,
    ),
    Row(
        name="unbiased_transform_pair",
        definition=unbiased_transform_pair,
        make=between(signed_parabolic(EQUAL), "x"),
        of=unbiased,
        elementwise=True,
    ),
]
