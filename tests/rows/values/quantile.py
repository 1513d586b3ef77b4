"""Rows of `values/_quantile.py`, and their definitions in NumPy."""

import numpy as np
from contract import ACTIONS, actions, probabilities
from row import Gradients, Peer, Row

ATOMS, OTHER_ATOMS, QUANTILES, SAMPLES, BINS = 5, 7, 4, 6, 5


# --- Quantiles. ---


def quantile_regression_loss(
    dist_src, tau_src, dist_target, huber_param=0.0, normalize_huber=False
):
    """Dabney et al. 2017, equation 10, and without a parameter equation 8.

    Normalised, Dabney et al. 2018, equation 3.
    """
    divisor = huber_param if normalize_huber else 1.0

    def penalty(u):
        square = 0.5 * u**2 if abs(u) <= huber_param else None
        beyond = huber_param * (abs(u) - 0.5 * huber_param)
        huber = beyond if square is None else square
        return abs(u) if huber_param == 0 else huber / divisor

    return sum(
        np.mean([abs(tau - (y < x)) * penalty(y - x) for y in dist_target])
        for x, tau in zip(dist_src, tau_src, strict=True)
    )


def quantile_q_learning(
    dist_q_tm1,
    tau_q_tm1,
    a_tm1,
    r_t,
    discount_t,
    dist_q_t_selector,
    dist_q_t,
    **huber,
):
    """Dabney et al. 2017, algorithm 1."""
    a_t = np.argmax(np.mean(dist_q_t_selector, axis=0))
    target = r_t + discount_t * dist_q_t[:, a_t]
    return quantile_regression_loss(dist_q_tm1[:, a_tm1], tau_q_tm1, target, **huber)


def quantile_expected_sarsa(
    dist_q_tm1,
    tau_q_tm1,
    a_tm1,
    r_t,
    discount_t,
    dist_q_t,
    probs_a_t,
    **huber,
):
    losses = [
        quantile_regression_loss(
            dist_q_tm1[:, a_tm1], tau_q_tm1, r_t + discount_t * samples, **huber
        )
        for samples in dist_q_t.T
    ]
    return np.sum(probs_a_t * losses)


# --- Arguments. ---


def samples(*names):
    """Draw predictions, and samples of the target."""

    def make(rng):
        drawn = {
            "dist_src": rng.normal(size=QUANTILES),
            "tau_src": rng.uniform(0.1, 0.9, QUANTILES),
            "dist_target": rng.normal(size=SAMPLES),
            "dist_q_tm1": rng.normal(size=(QUANTILES, ACTIONS)),
            "tau_q_tm1": rng.uniform(0.1, 0.9, QUANTILES),
            "a_tm1": actions(rng),
            "r_t": rng.normal(),
            "discount_t": rng.uniform(0.5, 1.0),
            "dist_q_t_selector": rng.normal(size=(3, ACTIONS)),
            "dist_q_t": rng.normal(size=(SAMPLES, ACTIONS)),
            "probs_a_t": probabilities(rng, ACTIONS),
        }
        return {name: np.asarray(drawn[name]) for name in names}

    return make


LOSS = ("dist_src", "tau_src", "dist_target")


TAKEN = ("dist_q_tm1", "tau_q_tm1", "a_tm1", "r_t", "discount_t")


LEARN = (*TAKEN, "dist_q_t_selector", "dist_q_t")


HUBER = {"huber_param": 1.0}


NORMALIZED = {"huber_param": 0.3, "normalize_huber": True}


ABOVE, BELOW = (np.full(QUANTILES, x, np.float32) for x in (1.1, -0.1))


# --- Fractions. ---


def quantile_midpoints(num_quantiles):
    return np.array(
        [(2 * i - 1) / (2 * num_quantiles) for i in range(1, num_quantiles + 1)],
        np.float32,
    )


def cosine_embedding(fractions, num_features):
    """Dabney et al. 2018, equation 4."""
    return np.cos(np.pi * np.arange(num_features) * fractions[:, None])


def fqf_fraction_loss(fractions, quantiles_at_fractions, quantiles_at_midpoints):
    """Yang et al. 2019, proposition 1: the derivative by each fraction."""
    derivatives = [
        2 * at - quantiles_at_midpoints[i + 1] - quantiles_at_midpoints[i]
        for i, at in enumerate(quantiles_at_fractions)
    ]
    return np.dot(derivatives, fractions[1:-1])


# --- Samples. ---


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


def make_proposal(rng):
    """Draw fractions away from the ends, so that differences stay inside."""
    return {
        "fractions": np.sort(rng.uniform(0.05, 0.95, NUMBER + 1)),
        "quantiles_at_fractions": rng.normal(size=NUMBER - 1),
        "quantiles_at_midpoints": rng.normal(size=NUMBER),
    }


def fraction(name, definition, make, **extra):
    return Row(definition, make, name=name, **extra)


ROWS = [
    *(
        Row(
            quantile_regression_loss,
            samples(*LOSS),
            case,
            settings=settings,
            gradients=Gradients(targets=("dist_target",)),
            peer=Peer(no_gradients={True: "The flag does nothing."}),
        )
        for case, settings in (("", {}), ("huber", HUBER))
    ),
    Row(
        quantile_regression_loss,
        samples(*LOSS),
        "normalized",
        settings=NORMALIZED,
        peer=Peer(why_not="rlax does not divide"),
        gradients=Gradients(targets=("dist_target",)),
    ),
    *(
        Row(
            quantile_q_learning,
            samples(*LEARN),
            case,
            settings=settings,
            gradients=Gradients(targets=("r_t", "discount_t", "dist_q_t")),
        )
        for case, settings in (("", {}), ("huber", HUBER))
    ),
    *(
        Row(
            quantile_expected_sarsa,
            samples(*TAKEN, "dist_q_t", "probs_a_t"),
            case,
            settings=settings,
            gradients=Gradients(targets=("r_t", "discount_t", "dist_q_t", "probs_a_t")),
        )
        for case, settings in (("", {}), ("huber", HUBER))
    ),
    fraction(
        "quantile_midpoints",
        quantile_midpoints,
        lambda rng: {},
        settings={"num_quantiles": NUMBER},
        gradients=Gradients(exist=False),
    ),
    fraction(
        "cosine_embedding",
        cosine_embedding,
        lambda rng: {"fractions": rng.uniform(size=NUMBER)},
        settings={"num_features": 8},
    ),
    fraction(
        "fqf_fraction_loss",
        fqf_fraction_loss,
        make_proposal,
        gradients=Gradients(
            constants=("quantiles_at_fractions", "quantiles_at_midpoints")
        ),
    ),
    Row(
        tqc_targets,
        lambda rng: {"dist_q_t": rng.normal(size=(3, NUMBER))},
        settings={"num_dropped": 2},
    ),
    Row(
        energy_distance_loss,
        lambda rng: {
            "samples": rng.normal(size=NUMBER),
            "targets": rng.normal(size=3),
        },
        gradients=Gradients(targets=("targets",)),
    ),
]
