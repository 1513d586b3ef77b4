"""Rows of `policies/_balance.py`, and their definitions in NumPy."""

import numpy as np
from contract import STEPS
from row import Precision, Row


def trajectory_balance_loss(
    log_partition, log_prob, backward_log_prob, log_reward, sample_mask=None
):
    """Malkin et al. 2022, equation 14."""
    mask = np.ones(STEPS, bool) if sample_mask is None else sample_mask
    forward = np.exp(log_partition) * np.prod(np.exp(log_prob[mask]))
    backward = np.exp(log_reward) * np.prod(np.exp(backward_log_prob[mask]))
    return np.log(forward / backward) ** 2


def sub_trajectory_balance_loss(
    log_flow, log_prob, backward_log_prob, lambda_=0.9, sample_mask=None
):
    """Madan et al. 2022, equations 4 and 5, without the ignored steps."""
    if sample_mask is not None:
        (steps,) = np.nonzero(sample_mask)
        log_prob, backward_log_prob = log_prob[steps], backward_log_prob[steps]
        log_flow = log_flow[[*steps, steps[-1] + 1]]
    above, below = 0.0, 0.0
    for i in range(len(log_flow)):
        for j in range(i + 1, len(log_flow)):
            error = log_flow[i] - log_flow[j]
            error += np.sum(log_prob[i:j] - backward_log_prob[i:j])
            above += lambda_ ** (j - i) * error**2
            below += lambda_ ** (j - i)
    return above / below


def make(*names):
    def sample(rng):
        drawn = {
            "log_partition": np.asarray(rng.normal()),
            "log_flow": rng.normal(size=STEPS + 1),
            "log_prob": -rng.uniform(0.1, 2.0, STEPS),
            "backward_log_prob": -rng.uniform(0.1, 2.0, STEPS),
            "log_reward": np.asarray(rng.normal()),
            "lambda_": np.asarray(rng.uniform(0.5, 1.5)),
            "sample_mask": rng.permutation([True] * 4 + [False] * 2),
        }
        return {name: drawn[name] for name in names}

    return sample


def row(definition, names, case="", **fields):
    return Row(
        definition, make(*names), case, precision=Precision(condition=16.0), **fields
    )


WHOLE = ("log_partition", "log_prob", "backward_log_prob", "log_reward")


PARTS = ("log_flow", "log_prob", "backward_log_prob")


ROWS = [
    row(trajectory_balance_loss, (*WHOLE, "sample_mask")),
    row(trajectory_balance_loss, WHOLE, "no mask"),
    row(sub_trajectory_balance_loss, (*PARTS, "lambda_")),
    row(
        sub_trajectory_balance_loss,
        (*PARTS, "lambda_", "sample_mask"),
        "masked",
    ),
    row(sub_trajectory_balance_loss, PARTS, "default"),
]
