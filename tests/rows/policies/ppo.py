"""Rows of `policies/_ppo.py`, and their definitions in NumPy."""

import numpy as np
from contract import STEPS, away_from
from row import Gradients, Precision, Row


def clipped_surrogate_pg_loss(prob_ratios_t, adv_t, epsilon):
    """Schulman et al. 2017, equation 7."""
    clipped_t = np.clip(prob_ratios_t, 1 - epsilon, 1 + epsilon)
    return -np.mean(np.minimum(prob_ratios_t * adv_t, clipped_t * adv_t))


# --- Arguments. ---


def make_surrogate(rng):
    ratios = rng.uniform(0.25, 2.0, STEPS)
    for kink in (0.75, 1.25):
        ratios = away_from(ratios, kink)
    return {"prob_ratios_t": ratios, "adv_t": away_from(rng.normal(size=STEPS), 0.0)}


EPSILON, EPSILON_HIGH = 0.2, 0.3


# --- Losses of log-probabilities. ---


def ratios(log_prob, old_log_prob, sample_mask=None):
    """Return log-ratios, ratios and no clips."""
    difference = log_prob - old_log_prob
    if sample_mask is not None:
        difference = np.where(sample_mask, difference, 0.0)
    ratio = np.exp(difference)
    return difference, ratio, np.zeros_like(ratio, bool)


def valid(sample_mask, loss):
    return loss if sample_mask is None else np.where(sample_mask, loss, 0.0)


def ppo_clip_loss(
    log_prob,
    old_log_prob,
    adv,
    epsilon=0.2,
    epsilon_high=None,
    dual_clip=None,
    sample_mask=None,
):
    """Schulman et al. 2017, equation 7; with the dual clip of Ye et al. 2019."""
    low, high = 1 - epsilon, 1 + (epsilon_high or epsilon)
    log_ratio, ratio, _ = ratios(log_prob, old_log_prob, sample_mask=sample_mask)
    adv = valid(sample_mask, adv)
    objective = np.minimum(ratio * adv, np.clip(ratio, low, high) * adv)
    clipped = objective != ratio * adv
    if dual_clip is not None:
        dual = (adv < 0) & (objective < dual_clip * adv)
        objective = np.where(dual, dual_clip * adv, objective)
        clipped |= dual
    return -objective, log_ratio, valid(sample_mask, ratio), clipped


def decoupled_ppo_loss(log_prob, old_log_prob, proximal_log_prob, adv, **settings):
    """Hilton et al. 2021."""
    mask, max_weight = settings.get("sample_mask"), settings.pop("max_weight", np.inf)
    _, weight, _ = ratios(proximal_log_prob, old_log_prob, sample_mask=mask)
    weight = np.minimum(max_weight, weight)
    loss, *rest = ppo_clip_loss(log_prob, proximal_log_prob, adv, **settings)
    return weight * loss, *rest


# --- Losses of values. ---


def ppo_value_loss(v, old_v, targets, epsilon, huber_delta=None, sample_mask=None):
    """Engstrom et al. 2020."""

    def loss(error):
        magnitude = np.abs(error)
        if huber_delta is None:
            return magnitude**2 / 2
        linear = huber_delta * (magnitude - huber_delta / 2)
        return np.where(magnitude <= huber_delta, magnitude**2 / 2, linear)

    near = old_v + np.clip(v - old_v, -epsilon, epsilon)
    free, near = loss(v - targets), loss(near - targets)
    clipped, outside = near > free, np.abs(v - old_v) > epsilon
    if sample_mask is not None:
        clipped, outside = clipped & sample_mask, outside & sample_mask
    return valid(sample_mask, np.maximum(free, near)), clipped, outside


# --- Arguments. ---


def make_steps(*names):
    """Draw time steps, some of them outside the bounds on either side."""

    def make(rng):
        log_ratio = rng.permutation(np.linspace(-0.8, 1.2, STEPS))
        for kink in (1 - EPSILON, 1 + EPSILON, 1 + EPSILON_HIGH, 1.5):
            log_ratio = away_from(log_ratio, np.log(kink))
        old = -rng.uniform(0.5, 2.0, STEPS)
        drawn = {
            "log_prob": old + log_ratio,
            "old_log_prob": old,
            "adv": away_from(rng.normal(size=STEPS), 0.0, 0.1),
            "kl": rng.uniform(size=STEPS),
            "sample_mask": rng.permutation(np.arange(STEPS) > 1),
        }
        return {name: drawn[name] for name in names}

    return make


def make_three_policies(*names):
    def make(rng):
        drawn = make_steps("log_prob", "old_log_prob", "adv", *names)(rng)
        proximal = drawn["old_log_prob"]
        old = proximal + rng.normal(scale=0.5, size=STEPS)
        return drawn | {"proximal_log_prob": proximal, "old_log_prob": old}

    return make


def make_values(*names):
    """Draw values that moved little or far, towards their targets and away."""

    def make(rng):
        old = rng.normal(size=STEPS)
        moved = rng.permutation([-0.8, -0.4, -0.1, 0.1, 0.4, 0.8])
        errors = away_from(rng.normal(size=STEPS), 0.0, 0.1)
        for kink in (-1.0, 1.0):
            errors = away_from(errors, kink)
        drawn = {
            "v": old + moved,
            "old_v": old,
            "targets": old + moved - errors,
            "sample_mask": rng.permutation(np.arange(STEPS) > 1),
        }
        return {name: drawn[name] for name in names}

    return make


STEP = ("log_prob", "old_log_prob", "adv")


MASKED = ("sample_mask",)


def rows_of(name, definition, make, names, cases, **attributes):
    """Return a row for each case of a function."""
    attributes = {"gradients": Gradients(targets=STEP[1:]), **attributes}
    return [
        Row(
            definition,
            make(*names, *(MASKED if "masked" in case else ())),
            case,
            name=name,
            settings=settings,
            **attributes,
        )
        for case, settings in cases.items()
    ]


CLIPS = {
    "": {},
    "higher": {"epsilon": EPSILON, "epsilon_high": EPSILON_HIGH},
    "dual": {"dual_clip": 1.5},
    "masked": {},
}


ROWS = [
    Row(
        clipped_surrogate_pg_loss,
        make_surrogate,
        settings={"epsilon": 0.25},
        gradients=Gradients(targets=("adv_t",)),
    ),
    *rows_of(
        "ppo_clip_loss",
        ppo_clip_loss,
        make_steps,
        STEP,
        CLIPS,
        precision=Precision(condition=2.0),
    ),
    *rows_of(
        "decoupled_ppo_loss",
        decoupled_ppo_loss,
        make_three_policies,
        (),
        {**CLIPS, "truncated": {"max_weight": 1.25}},
        gradients=Gradients(targets=("old_log_prob", "proximal_log_prob", "adv")),
        precision=Precision(condition=8.0),
    ),
    *rows_of(
        "ppo_value_loss",
        ppo_value_loss,
        make_values,
        ("v", "old_v", "targets"),
        {
            "": {"epsilon": 0.25},
            "Huber": {"epsilon": 0.25, "huber_delta": 1.0},
            "masked": {"epsilon": 0.25},
        },
        gradients=Gradients(targets=("old_v", "targets")),
        precision=Precision(condition=4.0),
    ),
]
