"""Rows of `llm/_checks.py`, and their definitions in NumPy."""

import numpy as np
from contract import STEPS
from jax.experimental import checkify
from row import Gradients, Precision, Row

ANSWERS = 4


def check_answers(
    tokens, log_prob, old_log_prob, rewards, sample_mask, group_ids, end_token
):
    """Yao et al. 2025; the fractions count answers and groups."""
    log_ratio = (log_prob - old_log_prob)[sample_mask]
    ratio = np.exp(log_ratio)
    groups = [rewards[group_ids == i] for i in np.unique(group_ids)]
    valid = [x[m] for x, m in zip(tokens, sample_mask, strict=True)]
    return (
        np.asarray(np.mean(log_ratio)),
        np.mean(ratio) ** 2 / np.mean(ratio**2),
        np.mean([x[-1] == end_token for x in valid]),
        np.mean([x.size == 1 for x in groups]),
        np.mean([np.ptp(x) == 0 for x in groups]),
    )


def make_batch(rng):
    mask = np.ones((ANSWERS, STEPS), bool)
    mask[0, -1] = False
    tokens = rng.integers(1, 9, size=mask.shape)
    tokens[0, -2] = tokens[1, -1] = 0
    log_prob = -rng.uniform(0.1, 3.0, mask.shape)
    return {
        "tokens": tokens,
        "log_prob": log_prob,
        "old_log_prob": log_prob + rng.normal(scale=0.01, size=mask.shape),
        "rewards": rng.normal(size=ANSWERS),
        "sample_mask": mask,
        "group_ids": np.array([0, 0, 0, 1]),
    }


def checked(library):
    """Find the check, transformed by checkify."""

    def call(**arguments):
        return checkify.checkify(library.check_answers)(**arguments)[1]

    return call


ROWS = [
    Row(
        check_answers,
        make_batch,
        settings={"end_token": 0},
        find=checked,
        gradients=Gradients(exist=False),
        precision=Precision(single_outputs=tuple(range(5)), condition=100.0),
    )
]
