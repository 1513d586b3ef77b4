"""Rows of `llm/_advantages.py`, and their definitions in NumPy."""

import functools
import itertools
import math

import numpy as np
from contract import STEPS
from row import Gradients, Precision, Row

GROUP = 6


def group_advantages(
    rewards, baseline="mean", scale="stddev", ddof=1, epsilon=1e-6, sample_mask=None
):
    """Shao et al. 2024, section 4.1; Ahmadian et al. 2024; Tajwar et al. 2026."""
    sample_mask = np.ones(len(rewards), bool) if sample_mask is None else sample_mask
    valid = rewards[sample_mask]
    baselines = {
        "mean": np.full(len(rewards), np.mean(valid)),
        "leave_one_out": np.array(
            [
                np.mean(np.delete(rewards, i)[np.delete(sample_mask, i)])
                for i in range(GROUP)
            ]
        ),
        "none": np.zeros(len(rewards)),
    }
    scales = {"stddev": np.std(valid, ddof=ddof), "mean": np.mean(valid)}
    divisor = scales[scale] + epsilon if scale in scales else 1.0
    return np.where(sample_mask, (rewards - baselines[baseline]) / divisor, 0.0)


def length_weighted_baseline(rewards, lengths, sample_mask=None):
    """Hao et al. 2025, equation 8."""
    sample_mask = np.ones(len(rewards), bool) if sample_mask is None else sample_mask
    return np.sum((lengths * rewards)[sample_mask]) / np.sum(lengths[sample_mask])


def pass_at_k(num_correct, num_samples, k):
    """Chen et al. 2021, equation 1."""

    def estimate(c, n):
        return 1 - math.comb(n - c, k) / math.comb(n, k)

    n = np.broadcast_to(num_samples, np.shape(num_correct))
    return np.vectorize(estimate)(num_correct, n)


def pass_at_k_rewards(rewards, k):
    """Walder and Karkhanis 2025: the mean over all sets of k answers."""
    shaped = np.zeros(len(rewards))
    subsets = list(itertools.combinations(range(len(rewards)), k))
    for subset in subsets:
        shaped[list(subset)] += np.max(rewards[list(subset)])
    return shaped / len(subsets)


def kl_shaped_rewards(final_reward, log_prob, ref_log_prob, sample_mask, coefficient):
    """Ouyang et al. 2022, equation 2."""
    r_t = np.zeros(len(sample_mask))
    r_t[sample_mask] = -coefficient * (log_prob - ref_log_prob)[sample_mask]
    r_t[np.flatnonzero(sample_mask)[-1]] += final_reward
    return r_t


def make_group(*names):
    def make(rng):
        drawn = {
            "rewards": rng.permutation(np.arange(GROUP) + rng.uniform(size=GROUP)),
            "epsilon": np.asarray(0.01),
            "lengths": rng.integers(1, 9, size=GROUP),
            "sample_mask": rng.permutation(np.arange(GROUP) > 1),
        }
        return {name: drawn[name] for name in names}

    return make


def make_counts(rng):
    return {"num_correct": rng.integers(6, size=3), "num_samples": np.array([5, 8, 9])}


def make_tokens(rng):
    return {
        "final_reward": np.asarray(rng.normal()),
        "log_prob": -rng.uniform(0.1, 3.0, STEPS),
        "ref_log_prob": -rng.uniform(0.1, 3.0, STEPS),
        "sample_mask": rng.permutation(np.arange(STEPS) > 1),
        "coefficient": np.asarray(rng.uniform(0.1, 1.0)),
    }


def over_devices(library, axis_name):
    return functools.partial(library.group_advantages, axis_name=axis_name)


ALL = ("rewards", "sample_mask")


GROUPS = {
    "GRPO": (("rewards",), {}),
    "GRPO, biased": (("rewards", "epsilon"), {"ddof": 0}),
    "Dr. GRPO": (ALL, {"scale": "none"}),
    "RLOO": (ALL, {"baseline": "leave_one_out", "scale": "none"}),
    "REINFORCE": (("rewards",), {"baseline": "none", "scale": "none"}),
    "scaled": (ALL, {"baseline": "none"}),
    "MaxRL": (ALL, {"scale": "mean"}),
}


ROWS = [
    *(
        Row(
            group_advantages,
            make_group(*names),
            case,
            settings=settings,
            precision=Precision(single_outputs=(0,), condition=8.0),
            over_devices=None if "epsilon" in names else over_devices,
        )
        for case, (names, settings) in GROUPS.items()
    ),
    *(
        Row(
            length_weighted_baseline,
            make_group("rewards", "lengths", *names),
            case,
            precision=Precision(single_outputs=(0,)),
            over_devices=lambda library, axis_name: functools.partial(
                library.length_weighted_baseline, axis_name=axis_name
            ),
        )
        for case, names in {"": (), "masked": ("sample_mask",)}.items()
    ),
    Row(
        pass_at_k,
        make_counts,
        settings={"k": 3},
        gradients=Gradients(exist=False),
        invalid=(
            {"num_correct": np.array([6, 0, 0]), "num_samples": np.array([5, 8, 9])},
        ),
    ),
    *(
        Row(
            pass_at_k_rewards,
            make_group("rewards"),
            f"k = {k}",
            settings={"k": k},
            precision=Precision(single_outputs=(0,)),
        )
        for k in (1, 3, GROUP)
    ),
    Row(
        kl_shaped_rewards,
        make_tokens,
        gradients=Gradients(
            constants=("final_reward", "log_prob", "ref_log_prob", "coefficient"),
            exist=False,
        ),
        precision=Precision(single_outputs=(0,)),
    ),
]
