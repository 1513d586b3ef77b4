"""Rows of `policies/_ppo_penalty.py`, and their definitions in NumPy."""

import numpy as np
from row import Precision, Row
from rows.policies.ppo import STEP, make_steps, ratios, rows_of, valid

# --- Losses of log-probabilities. ---


def ppo_penalty_loss(
    log_prob, old_log_prob, adv, coefficient, kl=None, sample_mask=None
):
    """Schulman et al. 2017, equation 8."""
    steps = log_prob, old_log_prob
    log_ratio, ratio, bounded = ratios(*steps, sample_mask=sample_mask)
    if kl is None:
        kl = ratio - 1 - log_ratio
    loss = coefficient * kl - ratio * adv
    ratio = valid(sample_mask, ratio)
    return valid(sample_mask, loss), log_ratio, ratio, bounded


def adaptive_kl_coefficient(
    coefficient, kl, target, tolerance=1.5, factor=2.0, minimum=0.0, maximum=np.inf
):
    """Schulman et al. 2017, section 4, between bounds."""
    if kl < target / tolerance:
        coefficient = coefficient / factor
    elif kl > target * tolerance:
        coefficient = coefficient * factor
    return np.minimum(np.maximum(coefficient, minimum), maximum)


def simple_policy_loss(log_prob, old_log_prob, adv, epsilon=0.2, sample_mask=None):
    """Xie et al. 2024."""
    steps = log_prob, old_log_prob
    log_ratio, ratio, bounded = ratios(*steps, sample_mask=sample_mask)
    penalty = np.abs(adv) / (2 * epsilon) * (ratio - 1) ** 2
    loss = penalty - ratio * adv
    ratio = valid(sample_mask, ratio)
    return valid(sample_mask, loss), log_ratio, ratio, bounded


def discovered_policy_loss(
    log_prob, old_log_prob, adv, alpha=2.0, beta=0.6, sample_mask=None
):
    """Lu et al. 2022."""
    steps = log_prob, old_log_prob
    log_ratio, ratio, bounded = ratios(*steps, sample_mask=sample_mask)

    def drift(x, threshold):
        return np.maximum(x - threshold * np.tanh(x / threshold), 0.0)

    drifts = np.where(
        adv >= 0,
        drift((ratio - 1) * adv, alpha),
        drift(np.log(ratio) * adv, beta),
    )
    loss = drifts - ratio * adv
    ratio = valid(sample_mask, ratio)
    return valid(sample_mask, loss), log_ratio, ratio, bounded


# --- Arguments. ---


def make_coefficient(kl):
    def make(rng):
        return {
            "coefficient": np.asarray(rng.uniform(0.5, 2.0)),
            "kl": np.asarray(kl),
            "target": np.asarray(1.0),
        }

    return make


ROWS = [
    *rows_of(
        "ppo_penalty_loss",
        ppo_penalty_loss,
        make_steps,
        (*STEP, "kl"),
        {"": {"coefficient": 0.5}, "masked": {"coefficient": 0.5}},
        precision=Precision(condition=2.0),
    ),
    *rows_of(
        "ppo_penalty_loss",
        ppo_penalty_loss,
        make_steps,
        STEP,
        {"estimated": {"kl": None, "coefficient": 0.5}},
        precision=Precision(condition=2.0),
    ),
    *rows_of(
        "simple_policy_loss",
        simple_policy_loss,
        make_steps,
        STEP,
        {"": {}, "wider": {"epsilon": 0.5}, "masked": {}},
        precision=Precision(condition=8.0),
    ),
    *rows_of(
        "discovered_policy_loss",
        discovered_policy_loss,
        make_steps,
        STEP,
        {"": {}, "sharper": {"alpha": 0.5, "beta": 0.25}, "masked": {}},
        precision=Precision(condition=4.0),
    ),
    *(
        Row(
            adaptive_kl_coefficient,
            make_coefficient(kl),
            case,
            precision=Precision(carried={"coefficient": 0}),
        )
        for case, kl in {"far": 2.0, "near": 0.25, "right": 1.25}.items()
    ),
]
