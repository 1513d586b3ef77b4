"""Rows of `policies/_gaussian_mpo.py`, and their definitions in NumPy.

The parts of a penalty are separate arguments, named as in errors:
`temperature_constraint.alpha`, `kl_constraints[0][1].epsilon`.
"""

import functools

import numpy as np
from row import Gradients, Loose, Row

MOSTLY_STOPPED = "the gradients of most inputs are stopped"


SAMPLES, DIMENSIONS = 5, 3


def dual(x, name):
    """Return a dual variable, and its bound."""
    return np.log1p(np.exp(x[f"{name}.alpha"])) + 1e-8, x[f"{name}.epsilon"]


# --- E-step and M-step; `c` are the arguments whose gradients are stopped. ---


def e_step(name, values, prior, x, c):
    """Abdolmaleki et al. 2018, 1806.06920, section 4.1; diagnostics are of `c`."""
    (temperature, bound), (constant, constant_bound) = dual(x, name), dual(c, name)
    loss = temperature * (bound + np.log(np.sum(prior * np.exp(values / temperature))))
    raised = prior * np.exp(values / constant)
    weights = raised / np.sum(raised)
    legal = weights > 0
    kl = np.sum(weights[legal] * np.log(weights[legal] / prior[legal]))
    size = 1 / np.sum(weights**2)
    return loss, constant, weights, kl, kl / constant_bound, size


def constraint(name, kl, constant_kl, x, c):
    """Abdolmaleki et al. 2018, 1812.02256, section 4.2."""
    (alpha, bound), (constant, constant_bound) = dual(x, name), dual(c, name)
    kl_loss, alpha_loss = constant * kl, alpha * (bound - constant_kl)
    if alpha.ndim:
        kl_loss, alpha_loss = np.sum(kl_loss), np.sum(alpha_loss)
    return kl_loss, alpha_loss, constant, constant_kl, constant_kl / constant_bound


def log_density(a, mu, sigma):
    terms = -(((a - mu) / sigma) ** 2) / 2 - np.log(sigma) - np.log(2 * np.pi) / 2
    return np.sum(terms, axis=-1)


# --- Functions. ---


def gaussian_mpo_loss(held=None, **x):
    c = held or x
    actions, q_values = c["sample_actions"], c["sample_q_values"]
    mu_0, sigma_0 = c["target_mean"], c["target_stddev"]
    even = np.full(SAMPLES, 1 / SAMPLES)
    temperature = e_step("temperature_constraint", q_values, even, x, c)
    weights, bounds_temperature = temperature[2], ()
    if "bounds_constraint.alpha" in x:
        inside = np.minimum(np.maximum(actions, c["minimum"]), c["maximum"])
        cost = -np.sqrt(np.sum((actions - inside) ** 2, axis=-1))
        bounds_temperature = e_step("bounds_constraint", cost, even, x, c)
        weights = weights + bounds_temperature[2]

    def summed(name, kl):
        return kl if x[f"{name}.alpha"].ndim else np.sum(kl)

    def by_mean(mu):
        return summed("mean_constraint", ((mu - mu_0) / sigma_0) ** 2 / 2)

    def by_stddev(sigma):
        ratio = sigma_0 / sigma
        return summed("stddev_constraint", (ratio**2 - 1) / 2 - np.log(ratio))

    mean_loss = -np.sum(weights * log_density(actions, x["mean"], sigma_0))
    stddev_loss = -np.sum(weights * log_density(actions, mu_0, x["stddev"]))
    mean = constraint("mean_constraint", by_mean(x["mean"]), by_mean(c["mean"]), x, c)
    divergences = by_stddev(x["stddev"]), by_stddev(c["stddev"])
    stddev = constraint("stddev_constraint", *divergences, x, c)
    loss = mean_loss + stddev_loss + temperature[0] + sum(bounds_temperature[:1])
    loss += sum(mean[:2]) + sum(stddev[:2])
    extremes = q_values.min(), q_values.max(), c["stddev"].min(), c["stddev"].max()
    parts = mean_loss, stddev_loss, temperature, bounds_temperature, mean, stddev
    return np.asarray(loss), *parts, *extremes


# --- Arguments. ---


def make_dual(rng, name, *axes):
    return {
        f"{name}.alpha": rng.normal(size=axes),
        f"{name}.epsilon": np.asarray(rng.uniform(0.1, 0.5)),
    }


def make_gaussian(rng, *axes):
    return {
        "mean": rng.normal(size=DIMENSIONS),
        "stddev": rng.uniform(0.5, 1.5, DIMENSIONS),
        "target_mean": rng.normal(size=DIMENSIONS),
        "target_stddev": rng.uniform(0.5, 1.5, DIMENSIONS),
        "sample_actions": rng.normal(size=(SAMPLES, DIMENSIONS)),
        "sample_q_values": rng.normal(size=SAMPLES),
        **make_dual(rng, "temperature_constraint"),
        **make_dual(rng, "mean_constraint", *axes),
        **make_dual(rng, "stddev_constraint", *axes),
    }


def make_bounded(rng):
    return make_gaussian(rng, DIMENSIONS) | {
        **make_dual(rng, "bounds_constraint"),
        "minimum": rng.uniform(-0.9, -0.5, DIMENSIONS),
        "maximum": rng.uniform(0.5, 0.9, DIMENSIONS),
    }


def with_constraints(name):
    """Find a function, and let it take the parts of a constraint as arguments."""

    def find(library):
        function = getattr(library, name)

        @functools.wraps(function)
        def call(**arguments):
            return function(**join_constraints(library.LagrangePenalty, arguments))

        return call

    return find


def join_constraints(penalty, arguments):
    """Make constraints of their parts, per dimension if `alpha` has an axis."""
    plain = {name: x for name, x in arguments.items() if "." not in name}
    for name in [each for each in arguments if each.endswith(".alpha")]:
        where = name.removesuffix(".alpha")
        alpha, bound = arguments[name], arguments[f"{where}.epsilon"]
        plain[where] = penalty(alpha, bound, getattr(alpha, "ndim", 0) == 1)
    return plain


def parametric_row(definition, make, **exceptions):
    name = definition.__name__
    return Row(
        definition,
        make,
        find=with_constraints(name),
        gradients=Gradients(
            free_definition=lambda x, constants: definition(**x, held=constants),
            first_order_only=MOSTLY_STOPPED,
        ),
        **exceptions,
    )


ROWS = [
    parametric_row(gaussian_mpo_loss, make_gaussian, loose=Loose(batches=False)),
    parametric_row(
        gaussian_mpo_loss,
        make_bounded,
        case="bounded, per dimension",
        loose=Loose(batches=False),
    ),
]
