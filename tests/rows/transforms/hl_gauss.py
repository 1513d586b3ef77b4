"""Rows of `transforms/_hl_gauss.py`, and their definitions in NumPy."""

import math

import numpy as np
from rows.transforms.squashing import elementwise
from rows.transforms.two_hot import (
    EQUAL,
    RANGE,
    between,
    from_equal_bins,
)

# --- Bins. ---


def transform_to_hl_gauss(scalar, min_value, max_value, num_bins, stddev_ratio=0.75):
    """Farebrother et al. 2024, appendix A."""
    edges = np.linspace(min_value, max_value, num_bins + 1)
    sigma = stddev_ratio * (edges[1] - edges[0])
    erf = np.vectorize(math.erf)
    shares = np.diff(erf((edges - scalar[..., None]) / (math.sqrt(2) * sigma)))
    return shares / np.sum(shares, axis=-1, keepdims=True)


def transform_from_hl_gauss(probs, min_value, max_value, num_bins):
    edges = np.linspace(min_value, max_value, num_bins + 1)
    return probs @ (0.5 * (edges[:-1] + edges[1:]))


# --- Arguments. ---


ROWS = [
    elementwise(
        transform_to_hl_gauss,
        between(EQUAL, "scalar"),
        settings=RANGE,
    ),
    elementwise(
        transform_from_hl_gauss,
        from_equal_bins,
        settings=RANGE,
    ),
]
