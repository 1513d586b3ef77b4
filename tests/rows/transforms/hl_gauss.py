"""Rows of `transforms/_hl_gauss.py`, and their definitions in NumPy."""

import math

import numpy as np
from row import Row
from rows.transforms.two_hot import EQUAL, RANGE, between, from_equal_bins

# --- A pair, and its two functions. ---


def hl_gauss(scalar, min_value, max_value, num_bins, stddev_ratio=0.75):
    """Farebrother et al. 2024, appendix A."""
    edges = np.linspace(min_value, max_value, num_bins + 1)
    sigma = stddev_ratio * (edges[1] - edges[0])
    erf = np.vectorize(math.erf)
    shares = np.diff(erf((edges - scalar[..., None]) / (math.sqrt(2) * sigma)))
    return shares / np.sum(shares, axis=-1, keepdims=True)


def encode(scalar):
    return hl_gauss(scalar, **RANGE, stddev_ratio=1.5)


def decode(probs):
    edges = np.linspace(RANGE["min_value"], RANGE["max_value"], RANGE["num_bins"] + 1)
    return probs @ (0.5 * (edges[:-1] + edges[1:]))


def pair(library):
    return library.hl_gauss_pair(**RANGE, stddev_ratio=1.5)


# --- Arguments. ---


ROWS = [
    Row(
        encode,
        between(EQUAL, "scalar"),
        name="hl_gauss_pair",
        find=lambda library: pair(library).apply,
    ),
    Row(
        decode,
        from_equal_bins,
        case="inverse",
        name="hl_gauss_pair",
        find=lambda library: pair(library).apply_inv,
    ),
]
