"""Rows of `llm/_token_baseline.py`, and their definitions in NumPy."""

import numpy as np
from contract import STEPS
from row import Precision
from rows.llm.divergence import row

GROUP = 4


def optimal_token_baseline(returns, log_prob, sum_squared_probs, sample_mask=None):
    """Li et al. 2026: weights are cumulative norms of the gradients of logits."""
    mask = np.ones(returns.shape, bool) if sample_mask is None else sample_mask
    baselines = []
    for t in range(returns.shape[1]):
        above, below = 0.0, 0.0
        for i in np.flatnonzero(mask[:, t]):
            past = np.arange(t + 1)[mask[i, : t + 1]]
            p = np.exp(log_prob[i, past])
            weight = np.sum(1 - 2 * p + sum_squared_probs[i, past])
            above, below = above + weight * returns[i, t], below + weight
        baselines.append(above / below if below else 0.0)
    return np.array(baselines)


# --- Arguments. ---


def make_group(*names):
    def make(rng):
        probs = rng.dirichlet(np.ones(5), (GROUP, STEPS))
        drawn = {
            "returns": rng.normal(size=(GROUP, STEPS)),
            "log_prob": np.log(probs[..., 0]),
            "sum_squared_probs": np.sum(probs**2, axis=-1),
            "sample_mask": rng.uniform(size=(GROUP, STEPS)) > 0.3,
        }
        return {name: drawn[name] for name in names}

    return make


DATA = ("returns", "log_prob", "sum_squared_probs")


ROWS = [
    row(
        optimal_token_baseline,
        make_group(*DATA, "sample_mask"),
        precision=Precision(single_outputs=(0,), condition=4.0),
    ),
    row(
        optimal_token_baseline,
        make_group(*DATA),
        "no mask",
        precision=Precision(single_outputs=(0,), condition=4.0),
    ),
]
