"""Rows of `distributions/_gaussian.py`, and their definitions in NumPy."""

import numpy as np
from row import Precision, Row
from rows.distributions._shared import BATCH, DIMENSIONS, RANDOM, made

# --- Continuous distributions. ---


def normal_logprob(sample, mu, sigma):
    z = (sample - mu) / sigma
    return np.sum(-(z**2) / 2 - np.log(sigma) - np.log(2 * np.pi) / 2, axis=-1)


def normal_entropy(mu, sigma):
    each = np.log(np.broadcast_to(sigma, mu.shape)) + np.log(2 * np.pi * np.e) / 2
    return np.sum(each, axis=-1)


def normal_kl(mu_0, sigma_0, mu_1, sigma_1):
    ratio = sigma_0 / sigma_1
    distance = (mu_0 - mu_1) / sigma_1
    return np.sum((ratio**2 + distance**2 - 1) / 2 - np.log(ratio), axis=-1)


def make_normal(*names, bounds=None):
    def make(rng):
        shape = (BATCH, DIMENSIONS)
        sample = rng.normal(size=shape)
        if bounds is not None:
            sample = bounds[0] + (bounds[1] - bounds[0]) * rng.uniform(0.1, 0.9, shape)
        drawn = {
            "sample": sample,
            "mu": rng.normal(size=shape),
            "mu_0": rng.normal(size=shape),
            "mu_1": rng.normal(size=shape),
            "sigma": rng.uniform(0.5, 2.0, shape),
            "sigma_0": rng.uniform(0.5, 2.0, shape),
            "sigma_1": rng.uniform(0.5, 2.0, shape),
        }
        return {name: drawn[name] for name in names}

    return make


def exponential(function):
    return lambda **arguments: np.exp(function(**arguments))


def continuous(name, make_sampled, logprob, before, settings):
    """Make the rows of a Gaussian, whose parameters `before` computes."""

    def entropy(mu, sigma):
        return normal_entropy(*before(mu, sigma))

    def kl_to_standard_normal(mu, sigma):
        mu, sigma = before(mu, sigma)
        return normal_kl(mu, sigma, 0.0, 1.0)

    def kl(mu_0, sigma_0, mu_1, sigma_1):
        return normal_kl(*before(mu_0, sigma_0), *before(mu_1, sigma_1))

    make_one = make_normal("mu", "sigma")
    make_both = make_normal("mu_0", "sigma_0", "mu_1", "sigma_1")
    functions = {
        "sample": (RANDOM, make_one, settings),
        "prob": (exponential(logprob), make_sampled, settings),
        "logprob": (logprob, make_sampled, settings),
        "entropy": (entropy, make_one, {}),
        "kl_to_standard_normal": (kl_to_standard_normal, make_one, {}),
        "kl": (kl, make_both, {}),
    }
    for function, (definition, make, used) in functions.items():
        yield Row(
            definition,
            make,
            name=f"{name}.{function}",
            settings=used,
            find=made(name)(function),
            precision=Precision(condition=16.0),
        )


SAMPLED = ("sample", "mu", "sigma")


ROWS = [
    *continuous(
        "gaussian_diagonal",
        make_normal(*SAMPLED),
        normal_logprob,
        lambda mu, sigma: (mu, sigma),
        {},
    ),
    Row(
        lambda sample, mu: normal_logprob(sample, mu, 0.5),
        make_normal("sample", "mu"),
        "its own sigma",
        name="gaussian_diagonal.logprob",
        find=made("gaussian_diagonal", 0.5)("logprob"),
        precision=Precision(condition=16.0),
    ),
    Row(
        normal_kl,
        make_normal("mu_0", "sigma_0", "mu_1", "sigma_1"),
        name="multivariate_normal_kl_divergence",
        precision=Precision(condition=16.0),
    ),
]
