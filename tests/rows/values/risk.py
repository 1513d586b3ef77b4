"""Rows of `values/_risk.py`, and their definitions in NumPy."""

import numpy as np
from contract import probabilities
from row import Row
from rows.values.quantile import NUMBER
from scipy import stats

# --- Fractions. ---


def distorted_fractions(fractions, eta, kind):
    """Wang 2000; Tversky and Kahneman 1992, equation 6; Dabney et al. 2018."""
    if kind == "wang":
        return stats.norm.cdf(stats.norm.ppf(fractions) + eta)
    if kind == "cpw":
        total = fractions**eta + (1 - fractions) ** eta
        return fractions**eta / total ** (1 / eta)
    exponent = 1 / (1 + np.abs(eta))
    return fractions**exponent if eta >= 0 else 1 - (1 - fractions) ** exponent


# --- Samples. ---


def conditional_value_at_risk(quantiles, fraction, probs=None):
    """Add up the smallest quantiles, until their weights sum to the fraction."""
    probs = np.full(len(quantiles), 1 / len(quantiles)) if probs is None else probs
    total, left = 0.0, fraction
    for quantile, prob in sorted(zip(quantiles, probs, strict=True)):
        share = min(left, prob)
        total, left = total + share * quantile, left - share
    return np.asarray(total / fraction)


# --- Arguments. ---


def distortion(kind, low, high, case=""):
    """Return a row of a kind, with an η in an interval."""

    def make(rng):
        return {
            "fractions": rng.uniform(0.05, 0.95, NUMBER),
            "eta": np.asarray(rng.uniform(low, high)),
        }

    settings = {"kind": kind}
    return Row(distorted_fractions, make, case or kind, settings=settings)


def make_tail(*names):
    """Draw quantiles or atoms, and a fraction at which one of them counts in part."""

    def make(rng):
        drawn = {
            "quantiles": rng.normal(size=NUMBER),
            "fraction": np.asarray(rng.uniform(0.25, 0.35)),
            "probs": probabilities(rng, NUMBER),
            "weights": probabilities(rng, NUMBER),
        }
        return {name: drawn[name] for name in names}

    return make


ROWS = [
    distortion("wang", -1.0, 1.0),
    distortion("cpw", 0.4, 1.5),
    distortion("power", 0.5, 2.0, "power, risk-seeking"),
    distortion("power", -2.0, -0.5, "power, risk-averse"),
    Row(conditional_value_at_risk, make_tail("quantiles", "fraction")),
    Row(
        conditional_value_at_risk, make_tail("quantiles", "fraction", "probs"), "atoms"
    ),
]
