"""Fractions, distortions, risk and samples: NumPy definitions and rows."""

import jax
import jax.numpy as jnp
import numpy as np
from contract import Row, probabilities
from scipy import stats

# --- Fractions. ---


def quantile_midpoints(num_quantiles):
    return np.array(
        [(2 * i - 1) / (2 * num_quantiles) for i in range(1, num_quantiles + 1)],
        np.float32,
    )


def sample_quantile_fractions(key, n):
    return jax.random.uniform(key, (n,), jnp.float32)


def cosine_embedding(fractions, num_features):
    """Dabney et al. 2018, equation 4."""
    return np.cos(np.pi * np.arange(num_features) * fractions[:, None])


def cvar_fractions(fractions, eta):
    return eta * fractions


def wang_fractions(fractions, eta):
    return stats.norm.cdf(stats.norm.ppf(fractions) + eta)


def cpw_fractions(fractions, eta):
    total = fractions**eta + (1 - fractions) ** eta
    return fractions**eta / total ** (1 / eta)


def power_fractions(fractions, eta):
    exponent = 1 / (1 + np.abs(eta))
    return fractions**exponent if eta >= 0 else 1 - (1 - fractions) ** exponent


def fqf_fraction_loss(fractions, quantiles_at_fractions, quantiles_at_midpoints):
    """Yang et al. 2019, proposition 1: the derivative by each fraction."""
    derivatives = [
        2 * at - quantiles_at_midpoints[i + 1] - quantiles_at_midpoints[i]
        for i, at in enumerate(quantiles_at_fractions)
    ]
    return np.dot(derivatives, fractions[1:-1])


# --- Samples. ---


def quantile_mean(quantiles, weights=None):
    """Yang et al. 2019, equation 1."""
    weights = (
        np.full(len(quantiles), 1 / len(quantiles)) if weights is None else weights
    )
    return np.dot(weights, quantiles)


def conditional_value_at_risk(quantiles, eta, probs=None):
    """Add up the smallest quantiles, until their weights sum to η."""
    probs = np.full(len(quantiles), 1 / len(quantiles)) if probs is None else probs
    total, left = 0.0, eta
    for quantile, prob in sorted(zip(quantiles, probs, strict=True)):
        share = min(left, prob)
        total, left = total + share * quantile, left - share
    return np.asarray(total / eta)


def tqc_targets(dist_q_t, num_dropped):
    pool = sorted(dist_q_t.ravel())
    return np.array(pool[: len(pool) - num_dropped * len(dist_q_t)])


def energy_distance_loss(samples, targets):
    def mean_distance(x, y):
        return np.mean(np.abs(x[:, None] - y[None, :]))

    within = mean_distance(samples, samples) + mean_distance(targets, targets)
    return 2 * mean_distance(samples, targets) - within


# --- Arguments. ---

NUMBER = 5
OUTSIDE = tuple({"fractions": np.full(NUMBER, x, np.float32)} for x in (1.1, -0.1))
DESCENDING = {"fractions": np.linspace(1, 0, NUMBER + 1, dtype=np.float32)}
TOO_LARGE = {"fractions": np.linspace(0.0, 1.2, NUMBER + 1, dtype=np.float32)}
NONE = "rlax has no fractions but those that it is given"


def distortion(low, high):
    """Draw fractions, and an η in an interval."""

    def make(rng):
        return {
            "fractions": rng.uniform(0.05, 0.95, NUMBER),
            "eta": np.asarray(rng.uniform(low, high)),
        }

    return make


def make_proposal(rng):
    """Draw fractions away from the ends, so that differences stay inside."""
    return {
        "fractions": np.sort(rng.uniform(0.05, 0.95, NUMBER + 1)),
        "quantiles_at_fractions": rng.normal(size=NUMBER - 1),
        "quantiles_at_midpoints": rng.normal(size=NUMBER),
    }


def make_tail(*names):
    """Draw quantiles or atoms, and an η at which one of them counts in part."""

    def make(rng):
        drawn = {
            "quantiles": rng.normal(size=NUMBER),
            "eta": np.asarray(rng.uniform(0.25, 0.35)),
            "probs": probabilities(rng, NUMBER),
            "weights": probabilities(rng, NUMBER),
        }
        return {name: drawn[name] for name in names}

    return make


def fraction(name, definition, make, **extra):
    return Row(name=name, definition=definition, make=make, peer=NONE, **extra)


ROWS = [
    fraction(
        "quantile_midpoints",
        quantile_midpoints,
        lambda rng: {},
        settings={"num_quantiles": NUMBER},
        differentiable=False,
    ),
    fraction(
        "sample_quantile_fractions",
        sample_quantile_fractions,
        lambda rng: {},
        settings={"n": NUMBER},
        key="key",
        differentiable=False,
    ),
    fraction(
        "cosine_embedding",
        cosine_embedding,
        lambda rng: {"fractions": rng.uniform(size=NUMBER)},
        settings={"num_features": 8},
        invalid=OUTSIDE,
    ),
    fraction(
        "cvar_fractions",
        cvar_fractions,
        distortion(0.2, 0.9),
        invalid=(*OUTSIDE, {"eta": 1.5}, {"eta": -0.5}),
    ),
    fraction(
        "wang_fractions",
        wang_fractions,
        distortion(-1.0, 1.0),
        invalid=(*OUTSIDE, {"eta": float("inf")}),
    ),
    fraction(
        "cpw_fractions",
        cpw_fractions,
        distortion(0.4, 1.5),
        invalid=(*OUTSIDE, {"eta": 0.0}, {"eta": float("inf")}),
    ),
    fraction(
        "power_fractions",
        power_fractions,
        distortion(0.5, 2.0),
        case="risk-seeking",
        invalid=(*OUTSIDE, {"eta": float("-inf")}),
    ),
    fraction(
        "power_fractions",
        power_fractions,
        distortion(-2.0, -0.5),
        case="risk-averse",
    ),
    fraction(
        "fqf_fraction_loss",
        fqf_fraction_loss,
        make_proposal,
        constant=("quantiles_at_fractions", "quantiles_at_midpoints"),
        invalid=(DESCENDING, TOO_LARGE),
    ),
    Row(
        name="conditional_value_at_risk",
        definition=conditional_value_at_risk,
        make=make_tail("quantiles", "eta"),
        peer="rlax has no measures of risk",
        invalid=({"eta": 0.0}, {"eta": 1.5}),
    ),
    Row(
        name="conditional_value_at_risk",
        case="atoms",
        definition=conditional_value_at_risk,
        make=make_tail("quantiles", "eta", "probs"),
        peer="rlax has no measures of risk",
        invalid=tuple({"probs": x["fractions"]} for x in OUTSIDE),
    ),
    Row(
        name="quantile_mean",
        definition=quantile_mean,
        make=make_tail("quantiles"),
        peer="rlax has no such function",
    ),
    Row(
        name="quantile_mean",
        case="weights",
        definition=quantile_mean,
        make=make_tail("quantiles", "weights"),
        peer="rlax has no such function",
        invalid=tuple({"weights": x["fractions"]} for x in OUTSIDE),
    ),
    Row(
        name="tqc_targets",
        definition=tqc_targets,
        make=lambda rng: {"dist_q_t": rng.normal(size=(3, NUMBER))},
        settings={"num_dropped": 2},
        peer="rlax has no ensembles",
    ),
    Row(
        name="energy_distance_loss",
        definition=energy_distance_loss,
        make=lambda rng: {
            "samples": rng.normal(size=NUMBER),
            "targets": rng.normal(size=3),
        },
        peer="rlax has no distance of samples",
        targets=("targets",),
        any_length=("samples", "targets"),
    ),
]
