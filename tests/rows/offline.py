"""Offline RL: definitions in NumPy, and the rows of the functions."""

import functools

import numpy as np
from contract import ACTIONS, STEPS, Row, actions, away_from, discounts

SAMPLES, DIMENSIONS, CRITICS, BATCH = 5, 3, 4, 8


# --- Advantage-weighted policies. ---


def advantage_weights(adv, temperature, max_weight):
    """Peng et al. 2019, with clipped weights."""
    return np.minimum(np.exp(adv / temperature), max_weight)


def advantage_weighted_loss(log_prob, adv, temperature, max_weight):
    return -advantage_weights(adv, temperature, max_weight) * log_prob


def crr_weights(
    q, q_samples, kind="exp", baseline="mean", temperature=1.0, max_weight=20.0
):
    """Wang et al. 2020, section 3."""
    baselines = {"mean": np.mean, "max": np.max}
    adv = q - baselines[baseline](q_samples)
    if kind == "binary":
        return np.where(adv > 0, 1.0, 0.0)
    return np.minimum(np.exp(adv / temperature), max_weight)


# --- In-sample values. ---


def iql_value_loss(v, q, expectile):
    """Kostrikov et al. 2021, section 4."""
    u = q - v
    return np.abs(expectile - (u < 0)) * u**2


def xql_value_loss(v, q, temperature, max_clip=7.0):
    """Garg et al. 2023, Gumbel regression; with the tangent at the clip above it."""
    z = (q - v) / temperature
    c = np.minimum(z, max_clip)
    return np.exp(c) - c - 1 + (np.exp(c) - 1) * (z - c)


def sql_value_loss(v, q, temperature):
    """Xu et al. 2023, sparse Q-learning."""
    w = 1 + (q - v) / (2 * temperature)
    return (w > 0) * w**2 + v / temperature


# --- Conservative Q-learning. ---


def cql_loss(q, q_samples, log_prob_samples, temperature=1.0, lower_bound=-np.inf):
    """Kumar et al. 2020, appendix F; bounded as in Nakamoto et al. 2023."""
    bounded = np.maximum(q_samples, lower_bound)
    ratios = np.exp(bounded / temperature) / np.exp(log_prob_samples)
    return temperature * np.log(np.sum(ratios)) - q


def discrete_cql_loss(q, a, action_mask=None):
    """Kumar et al. 2020, CQL(H)."""
    legal = np.ones(q.shape, bool) if action_mask is None else action_mask.copy()
    legal[a] = True
    return np.log(np.sum(np.exp(q[legal]))) - q[a]


def cql_temperature_loss(log_temperature, gap, target_gap):
    """Kumar et al. 2020, appendix F."""
    return np.exp(log_temperature) * (target_gap - gap)


# --- Policies close to the data. ---


def td3_bc_loss(q, action, data_action, weight):
    """Fujimoto and Gu 2021, section 5."""
    return -weight * q + np.linalg.norm(action - data_action) ** 2


def td3_bc_weight(q, alpha):
    """Fujimoto and Gu 2021, section 5."""
    return alpha / np.mean(np.abs(q))


def rebrac_critic_target(r_t, discount_t, q_t, action_t, data_action_t, penalty_weight):
    """Tarasov et al. 2023."""
    distance = np.linalg.norm(action_t - data_action_t) ** 2
    return r_t + discount_t * (np.min(q_t) - penalty_weight * distance)


# --- Support of the data. ---


def edac_diversity_loss(gradients):
    """An et al. 2021: the mean cosine of two critics' gradients, times N."""
    total, count = 0.0, len(gradients)
    for i in range(count):
        for j in range(count):
            norms = np.linalg.norm(gradients[i]) * np.linalg.norm(gradients[j])
            total += (i != j) * np.dot(gradients[i], gradients[j]) / norms
    return total / (count - 1)


def bcq_action_mask(log_prob, threshold):
    """Fujimoto et al. 2019, discrete BCQ."""
    probs = np.exp(log_prob)
    return probs / np.max(probs) > threshold


def maximum_mean_discrepancy(x, y, kernel="gaussian", bandwidth=1.0):
    """Gretton et al. 2012, the biased estimate."""
    kernels = {
        "gaussian": lambda d: np.exp(-(np.linalg.norm(d) ** 2) / (2 * bandwidth**2)),
        "laplacian": lambda d: np.exp(-np.linalg.norm(d, 1) / bandwidth),
        "energy": lambda d: -np.linalg.norm(d),
    }

    def mean(x, y):
        return np.mean([[kernels[kernel](a - b) for b in y] for a in x])

    return mean(x, x) - 2 * mean(x, y) + mean(y, y)


# --- Decision transformer. ---


def returns_to_go(r_t, discount_t):
    """Chen et al. 2021."""
    weights = [
        [np.prod(discount_t[t:k]) if k >= t else 0.0 for k in range(len(r_t))]
        for t in range(len(r_t))
    ]
    return np.asarray(weights) @ r_t


# --- Arguments. ---


def make_weighted(*names):
    """Return a function that draws log-probabilities and advantages, some clipped."""

    def make(rng):
        drawn = {
            "log_prob": -rng.exponential(size=BATCH),
            "adv": away_from(2 * rng.normal(size=BATCH), 0.5 * np.log(4.0)),
            "temperature": np.asarray(0.5),
            "max_weight": np.asarray(4.0),
        }
        return {name: drawn[name] for name in names}

    return make


def make_crr(rng):
    q_samples = rng.normal(size=SAMPLES)
    return {"q": np.asarray(rng.normal()), "q_samples": q_samples}


def make_values(*kinks):
    """Return a function that draws values whose errors are away from kinks."""

    def make(rng):
        v, error = rng.normal(size=BATCH), rng.normal(size=BATCH)
        for kink in kinks:
            error = away_from(error, kink)
        return {"v": v, "q": v + error, "temperature": np.asarray(0.5)}

    return make


def make_expectile(rng):
    drawn = make_values(0.0)(rng)
    return {"v": drawn["v"], "q": drawn["q"], "expectile": np.asarray(0.75)}


def make_cql(*names):
    def make(rng):
        drawn = {
            "q": np.asarray(rng.normal()),
            "q_samples": away_from(rng.normal(size=SAMPLES), 0.25),
            "log_prob_samples": rng.normal(size=SAMPLES),
            "temperature": np.asarray(rng.uniform(0.5, 2.0)),
        }
        return drawn | {name: BOUNDS[name] for name in names}

    return make


def make_discrete(*names):
    def make(rng):
        drawn = {
            "q": rng.normal(size=ACTIONS),
            "a": actions(rng),
            "action_mask": np.array([True, False, True, True]),
        }
        return {name: drawn[name] for name in names}

    return make


def make_numbers(*names):
    def make(rng):
        return {name: np.asarray(rng.normal()) for name in names}

    return make


def make_policy(rng):
    return {
        "q": np.asarray(rng.normal()),
        "action": rng.normal(size=DIMENSIONS),
        "data_action": rng.normal(size=DIMENSIONS),
        "weight": np.asarray(rng.uniform(0.5, 2.0)),
    }


def make_target(q_shape):
    def make(rng):
        return {
            "r_t": np.asarray(rng.normal()),
            "discount_t": np.asarray(rng.uniform(0.5, 1.0)),
            "q_t": rng.normal(size=q_shape),
            "action_t": rng.normal(size=DIMENSIONS),
            "data_action_t": rng.normal(size=DIMENSIONS),
            "penalty_weight": np.asarray(rng.uniform(0.1, 1.0)),
        }

    return make


def make_samples(rng):
    return {
        "x": rng.normal(size=(SAMPLES, DIMENSIONS)),
        "y": rng.normal(size=(SAMPLES - 1, DIMENSIONS)),
        "bandwidth": np.asarray(rng.uniform(0.5, 2.0)),
    }


def make_energy(rng):
    drawn = make_samples(rng)
    return {"x": drawn["x"], "y": drawn["y"]}


def make_stream(rng):
    return {"r_t": rng.normal(size=STEPS), "discount_t": discounts(rng)}


BOUNDS = {
    "lower_bound": np.asarray(0.25),
    "lower_bounds": np.array([0.25, 0.25, 0.25, -np.inf, -np.inf]),
}
row = functools.partial(Row, peer="rlax has none")
WEIGHT = (
    {"temperature": 0.0},
    {"temperature": -1.0},
    {"max_weight": 0.0},
    {"max_weight": -1.0},
)
TEMPERATURE = ({"temperature": 0.0}, {"temperature": -1.0})
TARGET = (
    "r_t",
    "discount_t",
    "q_t",
    "action_t",
    "data_action_t",
    "penalty_weight",
)

ROWS = [
    row(
        name="advantage_weights",
        definition=advantage_weights,
        make=make_weighted("adv", "temperature", "max_weight"),
        differentiable=False,
        condition=8.0,
        elementwise=True,
        invalid=WEIGHT,
    ),
    row(
        name="advantage_weighted_loss",
        definition=advantage_weighted_loss,
        make=make_weighted("log_prob", "adv", "temperature", "max_weight"),
        constant=("adv", "temperature", "max_weight"),
        condition=8.0,
        elementwise=True,
        invalid=WEIGHT,
    ),
    *[
        row(
            name="crr_weights",
            case=f"{kind}, {baseline}",
            definition=crr_weights,
            make=make_crr,
            settings={"kind": kind, "baseline": baseline},
            differentiable=False,
            condition=8.0,
            any_length=("q_samples",),
            invalid=(
                {"kind": "exponential"},
                {"baseline": "min"},
                {"temperature": 0.0},
                {"max_weight": 0.0},
            )
            if (kind, baseline) == ("exp", "mean")
            else (),
        )
        for kind in ("exp", "binary")
        for baseline in ("mean", "max")
    ],
    row(
        name="iql_value_loss",
        definition=iql_value_loss,
        make=make_expectile,
        targets=("q",),
        elementwise=True,
        invalid=({"expectile": -0.1}, {"expectile": 1.1}),
    ),
    row(
        name="xql_value_loss",
        definition=xql_value_loss,
        make=make_values(),
        targets=("q",),
        condition=32.0,
        elementwise=True,
        invalid=(*TEMPERATURE, {"max_clip": 0.0}, {"max_clip": -1.0}),
    ),
    row(
        name="xql_value_loss",
        case="clipped",
        definition=xql_value_loss,
        make=make_values(0.25),
        settings={"max_clip": 0.5},
        targets=("q",),
        condition=4.0,
        elementwise=True,
    ),
    row(
        name="sql_value_loss",
        definition=sql_value_loss,
        make=make_values(-1.0),
        targets=("q",),
        condition=4.0,
        elementwise=True,
        invalid=TEMPERATURE,
    ),
    row(
        name="cql_loss",
        definition=cql_loss,
        make=make_cql(),
        constant=("log_prob_samples",),
        condition=4.0,
        invalid=TEMPERATURE,
    ),
    row(
        name="cql_loss",
        case="lower bound",
        definition=cql_loss,
        make=make_cql("lower_bound"),
        constant=("log_prob_samples", "lower_bound"),
        condition=4.0,
    ),
    row(
        name="discrete_cql_loss",
        definition=discrete_cql_loss,
        make=make_discrete("q", "a"),
    ),
    row(
        name="discrete_cql_loss",
        case="masked",
        definition=discrete_cql_loss,
        make=make_discrete("q", "a", "action_mask"),
    ),
    row(
        name="cql_temperature_loss",
        definition=cql_temperature_loss,
        make=make_numbers("log_temperature", "gap", "target_gap"),
        constant=("gap", "target_gap"),
        condition=4.0,
    ),
    row(
        name="td3_bc_loss",
        definition=td3_bc_loss,
        make=make_policy,
        constant=("weight",),
        condition=4.0,
        invalid=({"weight": -1.0},),
    ),
    row(
        name="td3_bc_weight",
        definition=td3_bc_weight,
        make=lambda rng: {"q": rng.normal(size=BATCH)},
        settings={"alpha": 2.5},
        differentiable=False,
        over_devices=lambda library, axis_name: functools.partial(
            library.td3_bc_weight, axis_name=axis_name
        ),
        condition=4.0,
        invalid=({"alpha": -1.0},),
    ),
    row(
        name="rebrac_critic_target",
        definition=rebrac_critic_target,
        make=make_target(CRITICS),
        targets=TARGET,
        condition=4.0,
        any_length=("q_t",),
        invalid=({"penalty_weight": -1.0},),
    ),
    row(
        name="rebrac_critic_target",
        case="one critic",
        definition=rebrac_critic_target,
        make=make_target(()),
        targets=TARGET,
        condition=4.0,
        invalid=({"discount_t": -0.5},),
    ),
    row(
        name="edac_diversity_loss",
        definition=edac_diversity_loss,
        make=lambda rng: {"gradients": rng.normal(size=(CRITICS, DIMENSIONS))},
    ),
    row(
        name="bcq_action_mask",
        definition=bcq_action_mask,
        make=lambda rng: {"log_prob": rng.normal(size=ACTIONS)},
        settings={"threshold": 0.3},
        differentiable=False,
        invalid=({"threshold": 1.0}, {"threshold": -0.1}),
    ),
    *[
        row(
            name="maximum_mean_discrepancy",
            case=kernel,
            definition=maximum_mean_discrepancy,
            make=make_energy if kernel == "energy" else make_samples,
            settings={"kernel": kernel},
            targets=("y",),
            any_length=("x", "y"),
            invalid=({"kernel": "cosine"}, {"bandwidth": 0.0}, {"bandwidth": -1.0})
            if kernel == "gaussian"
            else (),
        )
        for kernel in ("gaussian", "laplacian", "energy")
    ],
    row(
        name="returns_to_go",
        definition=returns_to_go,
        make=make_stream,
        multistep=True,
        invalid=({"discount_t": np.full(STEPS, 1.5)},),
    ),
]
