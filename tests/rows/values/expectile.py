"""Rows of `values/_expectile.py`, and their definitions in NumPy."""

import itertools

import numpy as np
from contract import ACTIONS
from row import Gradients, Row
from rows.values.quantile import LEARN, LOSS, samples

MIDPOINTS = np.array([1, 3, 5]) / 6


# --- Expectiles. ---


def expectile_regression_loss(dist_src, tau_src, dist_target):
    """Rowland et al. 2019, definition 3.4."""
    return sum(
        np.mean([abs(tau - (y < x)) * (y - x) ** 2 for y in dist_target])
        for x, tau in zip(dist_src, tau_src, strict=True)
    )


def expectile_q_learning(
    dist_q_tm1, tau_q_tm1, a_tm1, r_t, discount_t, dist_q_t_selector, dist_q_t
):
    a_t = np.argmax(np.mean(dist_q_t_selector, axis=0))
    target = r_t + discount_t * dist_q_t[:, a_t]
    return expectile_regression_loss(dist_q_tm1[:, a_tm1], tau_q_tm1, target)


def expectiles(samples, tau):
    """Find each expectile by bisection."""
    low, high = np.full(len(tau), np.min(samples)), np.full(len(tau), np.max(samples))
    for _ in range(100):
        middle = (low + high) / 2
        errors = samples[None, :] - middle[:, None]
        weights = np.where(errors < 0, 1 - tau[:, None], tau[:, None])
        up = np.sum(weights * errors, axis=1) > 0
        low, high = np.where(up, middle, low), np.where(up, high, middle)
    return (low + high) / 2


def impute_expectile_samples(expectiles, tau):
    """Rowland et al. 2019, equation 10, solved for each possible order."""
    number = len(tau)
    for below in itertools.combinations_with_replacement(range(1, number), number):
        first = np.arange(number) < np.array(below)[:, None]
        weights = np.where(first, 1 - tau[:, None], tau[:, None])
        if np.linalg.matrix_rank(weights) == number:
            samples = np.linalg.solve(weights, np.sum(weights, axis=1) * expectiles)
            if np.array_equal(samples < expectiles[:, None], first):
                return samples
    raise AssertionError("No such samples.")


def imputed_expectile_q_learning(
    dist_q_tm1, tau_q_tm1, a_tm1, r_t, discount_t, dist_q_t_selector, dist_q_t
):
    inputs = dist_q_tm1, tau_q_tm1, a_tm1, r_t, discount_t
    return _with_samples(*inputs, _best_samples(dist_q_t_selector, dist_q_t, tau_q_tm1))


def _best_samples(selector, dist, tau):
    (mean,) = selector[np.isclose(tau, 0.5)]
    return impute_expectile_samples(dist[:, np.argmax(mean)], tau)


def _with_samples(dist_q_tm1, tau_q_tm1, a_tm1, r_t, discount_t, samples):
    target = r_t + discount_t * samples
    return expectile_regression_loss(dist_q_tm1[:, a_tm1], tau_q_tm1, target)


def _with_constant_samples(targets):
    """Stop the gradient of the samples and of these targets."""

    def loss(x, constants):
        names = "dist_q_t_selector", "dist_q_t", "tau_q_tm1"
        samples = _best_samples(*(constants[name] for name in names))
        x = x | {name: constants[name] for name in targets}
        names = "dist_q_tm1", "tau_q_tm1", "a_tm1", "r_t", "discount_t"
        return _with_samples(*(x[name] for name in names), samples)

    return loss


# --- Arguments. ---


def make_expectiles(rng):
    return {"expectiles": _expectiles(rng), "tau": MIDPOINTS}


def make_imputed(rng):
    drawn = samples(*LEARN)(rng)
    return drawn | {
        "dist_q_tm1": rng.normal(size=(3, ACTIONS)),
        "tau_q_tm1": MIDPOINTS,
        "dist_q_t": np.stack([_expectiles(rng) for _ in range(ACTIONS)], axis=1),
    }


def _expectiles(rng):
    spread = np.array([-1.0, 0.0, 1.0]) + rng.uniform(-0.3, 0.3, 3)
    return expectiles(rng.normal() + spread, MIDPOINTS)


ROWS = [
    Row(
        expectile_regression_loss,
        samples(*LOSS),
        gradients=Gradients(targets=("dist_target",)),
    ),
    Row(
        expectile_q_learning,
        samples(*LEARN),
        gradients=Gradients(targets=("r_t", "discount_t", "dist_q_t")),
    ),
    Row(impute_expectile_samples, make_expectiles, gradients=Gradients(exist=False)),
    Row(
        imputed_expectile_q_learning,
        make_imputed,
        gradients=Gradients(
            targets=("r_t", "discount_t"),
            stopped_definition=_with_constant_samples(("r_t", "discount_t")),
            free_definition=_with_constant_samples(()),
            first_order_only="Finite differences would include the samples' gradient.",
            constants=("dist_q_t_selector", "dist_q_t"),
        ),
    ),
]
