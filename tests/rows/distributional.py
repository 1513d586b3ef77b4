"""Distributional values: definitions in NumPy, and the rows that hold to them."""

import itertools

import numpy as np
from contract import ACTIONS, Row, actions, probabilities

from rows.distributions import categorical_cross_entropy, softmax

ATOMS, OTHER_ATOMS, QUANTILES, SAMPLES = 5, 7, 4, 6
MIDPOINTS = np.array([1, 3, 5]) / 6

# --- Categorical. ---


def categorical_l2_project(z_p, probs, z_q):
    """Bellemare et al. 2017: a hat over each new atom, which falls to 0 at the next."""
    hats = [np.interp(z_p, z_q, indicator) for indicator in np.eye(len(z_q))]
    return np.array([np.sum(probs * hat) for hat in hats])


def categorical_td_learning(
    v_atoms_tm1, v_logits_tm1, r_t, discount_t, v_atoms_t, v_logits_t
):
    z_t, probs_t = r_t + discount_t * v_atoms_t, softmax(v_logits_t)
    target = categorical_l2_project(z_t, probs_t, v_atoms_tm1)
    return categorical_cross_entropy(target, v_logits_tm1)


def categorical_q_learning(
    q_atoms_tm1, q_logits_tm1, a_tm1, r_t, discount_t, q_atoms_t, q_logits_t
):
    means = np.sum(softmax(q_logits_t) * q_atoms_t, axis=-1)
    return categorical_double_q_learning(
        q_atoms_tm1, q_logits_tm1, a_tm1, r_t, discount_t, q_atoms_t, q_logits_t, means
    )


def categorical_double_q_learning(
    q_atoms_tm1,
    q_logits_tm1,
    a_tm1,
    r_t,
    discount_t,
    q_atoms_t,
    q_logits_t,
    q_t_selector,
):
    logits_t = q_logits_t[np.argmax(q_t_selector)]
    return categorical_td_learning(
        q_atoms_tm1, q_logits_tm1[a_tm1], r_t, discount_t, q_atoms_t, logits_t
    )


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
    """Halve the interval in which each expectile lies."""
    low, high = np.full(len(tau), np.min(samples)), np.full(len(tau), np.max(samples))
    for _ in range(100):
        middle = (low + high) / 2
        errors = samples[None, :] - middle[:, None]
        weights = np.where(errors < 0, 1 - tau[:, None], tau[:, None])
        up = np.sum(weights * errors, axis=1) > 0
        low, high = np.where(up, middle, low), np.where(up, high, middle)
    return (low + high) / 2


def impute_expectile_samples(expectiles, tau):
    """Rowland et al. 2019, equation 10, solved for each order that there can be."""
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


def _held(targets):
    """Hold the samples constant, and these targets."""

    def held(x, constants):
        names = "dist_q_t_selector", "dist_q_t", "tau_q_tm1"
        samples = _best_samples(*(constants[name] for name in names))
        x = x | {name: constants[name] for name in targets}
        names = "dist_q_tm1", "tau_q_tm1", "a_tm1", "r_t", "discount_t"
        return _with_samples(*(x[name] for name in names), samples)

    return held


# --- What they are called with. ---


def make_project(rng):
    return {
        "z_p": rng.normal(scale=2.0, size=OTHER_ATOMS),
        "probs": probabilities(rng, OTHER_ATOMS),
        "z_q": np.sort(rng.normal(size=ATOMS)),
    }


def categorical(of, *names):
    """Draw atoms and logits of values or of action values, and of what follows."""
    rows = (ACTIONS,) if of == "q" else ()

    def make(rng):
        drawn = {
            f"{of}_atoms_tm1": np.linspace(-2, 2, ATOMS) + rng.uniform(0, 0.5, ATOMS),
            f"{of}_logits_tm1": rng.normal(size=(*rows, ATOMS)),
            "a_tm1": actions(rng),
            "r_t": rng.normal(),
            "discount_t": rng.uniform(0.5, 1.0),
            f"{of}_atoms_t": np.sort(rng.normal(size=OTHER_ATOMS)),
            f"{of}_logits_t": rng.normal(size=(*rows, OTHER_ATOMS)),
            "q_t_selector": rng.normal(size=ACTIONS),
        }
        return {name: np.asarray(drawn[name]) for name in names}

    return make


def samples(*names):
    """Draw predictions, and samples to hold them against."""

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


LOSS = ("dist_src", "tau_src", "dist_target")
TAKEN = ("dist_q_tm1", "tau_q_tm1", "a_tm1", "r_t", "discount_t")
LEARN = (*TAKEN, "dist_q_t_selector", "dist_q_t")
V = ("v_atoms_tm1", "v_logits_tm1", "r_t", "discount_t", "v_atoms_t", "v_logits_t")
Q = (
    "q_atoms_tm1",
    "q_logits_tm1",
    "a_tm1",
    "r_t",
    "discount_t",
    "q_atoms_t",
    "q_logits_t",
)
HUBER = {"huber_param": 1.0}
NORMALIZED = {"huber_param": 0.3, "normalize_huber": True}
LOG_OF_ZERO = {False: "NaN: the logarithm of a label that is 0."}

ROWS = [
    Row(
        name="categorical_l2_project",
        definition=categorical_l2_project,
        make=make_project,
        any_length=("z_q",),
    ),
    Row(
        name="categorical_td_learning",
        definition=categorical_td_learning,
        make=categorical("v", *V),
        targets=("v_atoms_tm1", "r_t", "discount_t", "v_atoms_t", "v_logits_t"),
        peer_gradient=LOG_OF_ZERO,
    ),
    Row(
        name="categorical_q_learning",
        definition=categorical_q_learning,
        make=categorical("q", *Q),
        targets=("q_atoms_tm1", "r_t", "discount_t", "q_atoms_t", "q_logits_t"),
        peer_gradient=LOG_OF_ZERO,
    ),
    Row(
        name="categorical_double_q_learning",
        definition=categorical_double_q_learning,
        make=categorical("q", *Q, "q_t_selector"),
        targets=("q_atoms_tm1", "r_t", "discount_t", "q_atoms_t", "q_logits_t"),
        peer_gradient=LOG_OF_ZERO,
    ),
    *(
        Row(
            name="quantile_regression_loss",
            case=case,
            definition=quantile_regression_loss,
            make=samples(*LOSS),
            settings=settings,
            targets=("dist_target",),
            any_length=("dist_target",),
            peer_gradient={True: "The flag does nothing."},
        )
        for case, settings in (("", {}), ("huber", HUBER))
    ),
    Row(
        name="quantile_regression_loss",
        case="normalized",
        definition=quantile_regression_loss,
        make=samples(*LOSS),
        settings=NORMALIZED,
        peer="rlax does not divide",
        targets=("dist_target",),
        any_length=("dist_target",),
    ),
    *(
        Row(
            name="quantile_q_learning",
            case=case,
            definition=quantile_q_learning,
            make=samples(*LEARN),
            settings=settings,
            targets=("r_t", "discount_t", "dist_q_t"),
            any_length=("dist_q_t_selector", "dist_q_t"),
        )
        for case, settings in (("", {}), ("huber", HUBER))
    ),
    *(
        Row(
            name="quantile_expected_sarsa",
            case=case,
            definition=quantile_expected_sarsa,
            make=samples(*TAKEN, "dist_q_t", "probs_a_t"),
            settings=settings,
            targets=("r_t", "discount_t", "dist_q_t", "probs_a_t"),
            any_length=("dist_q_t",),
        )
        for case, settings in (("", {}), ("huber", HUBER))
    ),
    Row(
        name="expectile_regression_loss",
        definition=expectile_regression_loss,
        make=samples(*LOSS),
        peer="rlax has no expectiles.",
        targets=("dist_target",),
        any_length=("dist_target",),
    ),
    Row(
        name="expectile_q_learning",
        definition=expectile_q_learning,
        make=samples(*LEARN),
        peer="rlax has no expectiles.",
        targets=("r_t", "discount_t", "dist_q_t"),
        any_length=("dist_q_t_selector", "dist_q_t"),
    ),
    Row(
        name="impute_expectile_samples",
        definition=impute_expectile_samples,
        make=make_expectiles,
        peer="rlax has no expectiles.",
        differentiable=False,
    ),
    Row(
        name="imputed_expectile_q_learning",
        definition=imputed_expectile_q_learning,
        make=make_imputed,
        peer="rlax has no expectiles.",
        targets=("r_t", "discount_t"),
        flagged=_held(("r_t", "discount_t")),
        unflagged=_held(()),
        differences="The samples are constants, which differences do not see.",
        constant=("dist_q_t_selector", "dist_q_t"),
    ),
]
