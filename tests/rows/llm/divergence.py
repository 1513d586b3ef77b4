"""Rows of `llm/_divergence.py`, and their definitions in NumPy."""

import numpy as np
from contract import STEPS
from row import Gradients, Precision, Row


def divergence_ppo_mask(
    log_prob,
    old_log_prob,
    adv,
    epsilon=0.2,
    epsilon_high=0.2,
    kind="tv",
    sample_mask=None,
):
    """Qi et al. 2026, the binary divergences and the mask."""
    keep = []
    adv = np.broadcast_to(adv, log_prob.shape)
    for p, q, a in zip(np.exp(log_prob), np.exp(old_log_prob), adv, strict=True):
        divergence = abs(p - q)
        if kind == "kl":
            divergence = q * np.log(q / p) + (1 - q) * np.log((1 - q) / (1 - p))
        leaves_up = a > 0 and p > q and divergence > epsilon_high
        leaves_down = a < 0 and p < q and divergence > epsilon
        keep.append(not (leaves_up or leaves_down))
    mask = np.ones(log_prob.shape, bool) if sample_mask is None else sample_mask
    return np.array(keep) & mask


def vespo_weight(
    log_prob,
    old_log_prob,
    adv,
    k_positive=2.0,
    lambda_positive=3.0,
    k_negative=3.0,
    lambda_negative=2.0,
    sample_mask=None,
):
    """Shen et al. 2026: a gamma-shaped kernel that is 1 on-policy."""
    mask = np.ones(log_prob.shape, bool) if sample_mask is None else sample_mask
    w = np.prod(np.exp(log_prob - old_log_prob)[mask])
    k, rate = k_negative, lambda_negative
    if adv >= 0:
        k, rate = k_positive, lambda_positive
    return np.where(mask, w**k * np.exp(rate * (1 - w)), 0)


# --- Arguments. ---


def make_tokens(*names):
    def make(rng):
        old = rng.uniform(0.05, 0.95, STEPS)
        new = np.clip(old + rng.uniform(-0.4, 0.4, STEPS), 0.02, 0.98)
        drawn = {
            "log_prob": np.log(new),
            "old_log_prob": np.log(old),
            "adv": rng.choice([-1.0, 1.0], STEPS) * rng.uniform(0.2, 0.9, STEPS),
            "epsilon": np.asarray(rng.uniform(0.05, 0.15)),
            "epsilon_high": np.asarray(rng.uniform(0.05, 0.15)),
            "sample_mask": rng.permutation([True] * 4 + [False] * 2),
        }
        return {name: drawn[name] for name in names}

    return make


def make_sequence(*names, sign=1.0):
    def make(rng):
        old = -rng.uniform(0.1, 3.0, STEPS)
        drawn = {
            "log_prob": old + rng.uniform(-0.2, 0.2, STEPS),
            "old_log_prob": old,
            "adv": np.asarray(sign * rng.uniform(0.2, 0.9)),
            "k_positive": np.asarray(rng.uniform(1.0, 2.0)),
            "lambda_positive": np.asarray(rng.uniform(1.0, 2.0)),
            "k_negative": np.asarray(rng.uniform(1.0, 2.0)),
            "lambda_negative": np.asarray(rng.uniform(1.0, 2.0)),
            "sample_mask": rng.permutation([True] * 4 + [False] * 2),
        }
        return {name: drawn[name] for name in names}

    return make


def row(definition, make, case="", **fields):
    return Row(definition, make, case, gradients=Gradients(exist=False), **fields)


PAIR = ("log_prob", "old_log_prob", "adv")


SHAPE = ("k_positive", "lambda_positive", "k_negative", "lambda_negative")


ROWS = [
    *(
        row(
            divergence_ppo_mask,
            make_tokens(*PAIR, *names),
            " ".join([kind, *names]),
            settings={"kind": kind},
        )
        for kind in ("tv", "kl")
        for names in (("epsilon", "epsilon_high", "sample_mask"), ())
    ),
    *(
        row(
            vespo_weight,
            make_sequence(*PAIR, *names, sign=sign),
            case,
            precision=Precision(single_outputs=(0,), condition=8.0),
        )
        for case, sign, names in (
            ("positive", 1.0, ("sample_mask", *SHAPE)),
            ("negative", -1.0, ("sample_mask", *SHAPE)),
            ("defaults", 1.0, ()),
            ("negative, defaults", -1.0, ()),
        )
    ),
]
