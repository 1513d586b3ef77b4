"""Rows of `llm/_off_policy.py`, and their definitions in NumPy."""

import functools

import numpy as np
from contract import STEPS, away_from
from row import Gradients, Precision, Row


def importance_weights(
    log_ratio,
    level="token",
    kind="truncate",
    minimum=0.0,
    maximum=2.0,
    sample_mask=None,
):
    """Yao et al. 2025; Liu et al. 2025; Ling Team 2025, equation 5."""
    mask = np.ones(len(log_ratio), bool) if sample_mask is None else sample_mask
    ratio = {
        "token": np.exp(log_ratio),
        "sequence": np.full(STEPS, np.prod(np.exp(log_ratio[mask]))),
        "geometric": np.full(STEPS, np.exp(np.mean(log_ratio[mask]))),
    }[level]
    weights = {
        "truncate": np.clip(ratio, minimum, maximum),
        "mask": np.where((ratio > maximum) | (ratio < minimum), 0.0, ratio),
    }[kind]
    return np.where(mask, weights, 0.0)


def off_policy_sequence_mask(log_prob, old_log_prob, adv, threshold, sample_mask=None):
    """DeepSeek-AI 2025, equation 9."""
    mask = np.ones(len(log_prob), bool) if sample_mask is None else sample_mask
    is_far = np.mean(old_log_prob[mask] - log_prob[mask]) > threshold
    return mask & ~((adv < 0) & is_far)


def make_ratios(*names):
    def make(rng):
        log_ratio = rng.normal(size=STEPS)
        for bound in np.log([0.5, 2.0]):
            log_ratio = away_from(log_ratio, bound)
        mask = rng.permutation(np.arange(STEPS) > 1)
        drawn = {"log_ratio": log_ratio, "sample_mask": mask}
        return {name: drawn[name] for name in names}

    return make


def make_tokens(*names, shift=0.5):
    def make(rng):
        old = -rng.uniform(0.5, 2.0, STEPS)
        drawn = {
            "log_prob": old + rng.normal(size=STEPS) - shift,
            "old_log_prob": old,
            "adv": away_from(rng.normal(size=STEPS), 0.0),
            "sample_mask": rng.permutation(np.arange(STEPS) > 1),
        }
        return {name: drawn[name] for name in names}

    return make


def over_devices(name):
    return lambda library, axis: functools.partial(
        getattr(library, name), axis_name=axis
    )


RATIO, MASK = ("log_ratio",), ("sample_mask",)


TOKENS = ("log_prob", "old_log_prob", "adv")


ROWS = [
    *(
        Row(
            importance_weights,
            make_ratios(*names),
            ", ".join([level, kind, *bounds]),
            settings={"level": level, "kind": kind, **bounds},
            gradients=Gradients(constants=RATIO, exist=False),
            precision=Precision(single_outputs=(0,)),
            over_devices=over_devices("importance_weights"),
        )
        for level, kind, names, bounds in [
            ("token", "truncate", RATIO, {}),
            ("token", "truncate", RATIO + MASK, {"minimum": 0.5}),
            ("token", "mask", RATIO + MASK, {}),
            ("token", "mask", RATIO + MASK, {"minimum": 0.5}),
            ("sequence", "mask", RATIO + MASK, {}),
            ("geometric", "mask", RATIO + MASK, {"minimum": 0.5}),
            ("geometric", "truncate", RATIO, {}),
        ]
    ),
    *(
        Row(
            off_policy_sequence_mask,
            make_tokens(*names, shift=shift),
            case,
            settings={"threshold": 0.5},
            gradients=Gradients(exist=False),
            over_devices=over_devices("off_policy_sequence_mask"),
        )
        for case, names, shift in [
            ("far", TOKENS, 3.0),
            ("near", TOKENS, -3.0),
            ("masked", TOKENS + MASK, 3.0),
        ]
    ),
]
