"""Categorical values, quantile and expectile losses: NumPy definitions and rows."""

import functools
import itertools

import numpy as np
from contract import ACTIONS, Row, actions, probabilities

from rows import transforms
from rows.distributions import categorical_cross_entropy, softmax

ATOMS, OTHER_ATOMS, QUANTILES, SAMPLES, BINS = 5, 7, 4, 6, 5
MIDPOINTS = np.array([1, 3, 5]) / 6

# --- Categorical. ---


def categorical_l2_project(z_p, probs, z_q):
    """Bellemare et al. 2017: a hat function over each new atom, 0 at all others."""
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


def two_hot_loss(logits, target):
    """Schrittwieser et al. 2019, appendix F: a transform, then two-hot."""
    probs = transforms.to_bins(
        transforms.signed_hyperbolic(target), np.linspace(-3, 3, BINS)
    )
    return categorical_cross_entropy(probs, logits)


def hl_gauss_loss(logits, target):
    """Farebrother et al. 2024, equation 3.1, after the symlog of DreamerV3."""
    probs = transforms.transform_to_hl_gauss(transforms.symlog(target), -3.0, 3.0, BINS)
    return categorical_cross_entropy(probs, logits)


def with_two_hot(library):
    tx = library.SIGNED_HYPERBOLIC_PAIR
    return _with_pair(library, library.muzero_pair(-3.0, 3.0, BINS, tx))


def with_hl_gauss(library):
    bins = library.hl_gauss_pair(-3.0, 3.0, BINS)
    return _with_pair(library, library.compose_tx(library.SYMLOG_PAIR, bins))


def _with_pair(library, tx_pair):
    return functools.partial(library.categorical_regression_loss, tx_pair=tx_pair)


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
    weights=None,
    q_t_selector=None,
    **huber,
):
    """Dabney et al. 2017, algorithm 1; with weights, Yang et al. 2019, equation 1."""
    if q_t_selector is None:
        q_t_selector = np.average(dist_q_t_selector, axis=0, weights=weights)
    target = r_t + discount_t * dist_q_t[:, np.argmax(q_t_selector)]
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


def make_project(rng):
    return {
        "z_p": rng.normal(scale=2.0, size=OTHER_ATOMS),
        "probs": probabilities(rng, OTHER_ATOMS),
        "z_q": np.sort(rng.normal(size=ATOMS)),
    }


def categorical(of, *names):
    """Draw the arguments of categorical TD or Q-learning."""
    axes = (ACTIONS,) if of == "q" else ()

    def make(rng):
        drawn = {
            f"{of}_atoms_tm1": np.linspace(-2, 2, ATOMS) + rng.uniform(0, 0.5, ATOMS),
            f"{of}_logits_tm1": rng.normal(size=(*axes, ATOMS)),
            "a_tm1": actions(rng),
            "r_t": rng.normal(),
            "discount_t": rng.uniform(0.5, 1.0),
            f"{of}_atoms_t": np.sort(rng.normal(size=OTHER_ATOMS)),
            f"{of}_logits_t": rng.normal(size=(*axes, OTHER_ATOMS)),
            "q_t_selector": rng.normal(size=ACTIONS),
        }
        return {name: np.asarray(drawn[name]) for name in names}

    return make


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
            "weights": probabilities(rng, 3),
            "q_t_selector": rng.normal(size=ACTIONS),
        }
        return {name: np.asarray(drawn[name]) for name in names}

    return make


def make_bins(rng):
    target = rng.uniform(0.3, 1.2) * rng.choice([-1.0, 1.0])
    return {"logits": rng.normal(size=BINS), "target": np.asarray(target)}


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
DESCENDING = np.linspace(1, -1, ATOMS, dtype=np.float32)
ABOVE, BELOW = (np.full(QUANTILES, x, np.float32) for x in (1.1, -0.1))
BAD_LOSS = ({"tau_src": ABOVE}, {"tau_src": BELOW})
BAD_LEARN = ({"tau_q_tm1": ABOVE}, {"tau_q_tm1": BELOW})
BAD_HUBER = ({"huber_param": -1.0},)

ROWS = [
    Row(
        name="categorical_l2_project",
        definition=categorical_l2_project,
        make=make_project,
        any_length=("z_q",),
        invalid=({"probs": np.full(OTHER_ATOMS, -0.1)}, {"z_q": DESCENDING}),
    ),
    Row(
        name="categorical_td_learning",
        definition=categorical_td_learning,
        make=categorical("v", *V),
        targets=("v_atoms_tm1", "r_t", "discount_t", "v_atoms_t", "v_logits_t"),
        peer_gradient=LOG_OF_ZERO,
        invalid=({"v_atoms_tm1": DESCENDING},),
    ),
    Row(
        name="categorical_q_learning",
        definition=categorical_q_learning,
        make=categorical("q", *Q),
        targets=("q_atoms_tm1", "r_t", "discount_t", "q_atoms_t", "q_logits_t"),
        peer_gradient=LOG_OF_ZERO,
        invalid=({"q_atoms_tm1": DESCENDING},),
    ),
    Row(
        name="categorical_double_q_learning",
        definition=categorical_double_q_learning,
        make=categorical("q", *Q, "q_t_selector"),
        targets=("q_atoms_tm1", "r_t", "discount_t", "q_atoms_t", "q_logits_t"),
        peer_gradient=LOG_OF_ZERO,
        invalid=({"q_atoms_tm1": DESCENDING},),
    ),
    *(
        Row(
            name="categorical_regression_loss",
            case=case,
            definition=definition,
            make=make_bins,
            of=of,
            targets=("target",),
            peer="rlax has none",
        )
        for case, definition, of in (
            ("two-hot", two_hot_loss, with_two_hot),
            ("HL-Gauss", hl_gauss_loss, with_hl_gauss),
        )
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
            invalid=BAD_LOSS + BAD_HUBER,
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
            invalid=BAD_LEARN + BAD_HUBER,
        )
        for case, settings in (("", {}), ("huber", HUBER))
    ),
    Row(
        name="quantile_q_learning",
        case="weights",
        definition=quantile_q_learning,
        make=samples(*LEARN, "weights"),
        peer="rlax weights all samples alike",
        targets=("r_t", "discount_t", "dist_q_t"),
        any_length=("dist_q_t",),
        invalid=({"weights": np.full(SAMPLES, -0.1)},),
    ),
    Row(
        name="quantile_q_learning",
        case="selector",
        definition=quantile_q_learning,
        make=samples(*TAKEN, "dist_q_t", "q_t_selector"),
        settings={"dist_q_t_selector": None},
        peer="rlax selects by samples",
        targets=("r_t", "discount_t", "dist_q_t"),
        any_length=("dist_q_t",),
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
            invalid=(
                *BAD_LEARN,
                *BAD_HUBER,
                *({"probs_a_t": np.full(ACTIONS, x)} for x in (-0.1, 1.1)),
            ),
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
        invalid=BAD_LOSS,
    ),
    Row(
        name="expectile_q_learning",
        definition=expectile_q_learning,
        make=samples(*LEARN),
        peer="rlax has no expectiles.",
        targets=("r_t", "discount_t", "dist_q_t"),
        any_length=("dist_q_t_selector", "dist_q_t"),
        invalid=BAD_LEARN,
    ),
    Row(
        name="impute_expectile_samples",
        definition=impute_expectile_samples,
        make=make_expectiles,
        peer="rlax has no expectiles.",
        differentiable=False,
        invalid=({"tau": ABOVE[:3]}, {"tau": BELOW[:3]}),
    ),
    Row(
        name="imputed_expectile_q_learning",
        definition=imputed_expectile_q_learning,
        make=make_imputed,
        peer="rlax has no expectiles.",
        targets=("r_t", "discount_t"),
        flagged=_with_constant_samples(("r_t", "discount_t")),
        unflagged=_with_constant_samples(()),
        differences="Finite differences would include the samples' gradient.",
        constant=("dist_q_t_selector", "dist_q_t"),
        invalid=({"tau_q_tm1": ABOVE[:3]}, {"tau_q_tm1": BELOW[:3]}),
    ),
]
