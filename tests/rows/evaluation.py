"""Rows of `evaluation.py`, and their definitions in NumPy."""

import functools

import jax
import numpy as np
import scipy.stats
from row import Gradients, Precision, Row

TRAJECTORIES, STEPS, TASKS = 4, 5, 3


def off_policy_evaluation(
    r_t, discount_t, rho_tm1, q_tm1=None, v_tm1=None, kind="wpdis", sample_mask=None
):
    """Thomas and Brunskill 2016, sections 3 to 5, of trajectories of any lengths."""
    given = [r_t, discount_t, rho_tm1, q_tm1, v_tm1]
    data = [np.zeros_like(r_t) if x is None else x for x in given]
    kept = np.ones(r_t.shape, bool) if sample_mask is None else sample_mask
    rows = [
        [
            step
            for step, valid in zip(zip(*row, strict=True), mask, strict=True)
            if valid
        ]
        for *row, mask in zip(*data, kept, strict=True)
    ]
    rows = [row for row in rows if row]
    count, steps = len(rows), max(map(len, rows))
    gamma, r, q, v = np.zeros((4, count, steps))
    w = np.ones((count, steps))
    for i, row in enumerate(rows):
        product, discount = 1.0, 1.0
        for t in range(steps):
            if t < len(row) and discount > 0:
                r[i, t], _, rho, q[i, t], v[i, t] = row[t]
                product *= rho
                gamma[i, t] = discount
                discount *= row[t][1]
            w[i, t] = product
    if kind in ("is", "wis"):
        w = np.repeat(w[:, -1:], steps, axis=1)
    w = w / np.sum(w, axis=0) if kind[0] == "w" else w / count
    before = np.concatenate([np.full((count, 1), 1 / count), w[:, :-1]], axis=1)
    return np.sum(gamma * (w * (r - q) + before * v))


def interquartile_mean(scores):
    return scipy.stats.trim_mean(scores, 0.25, axis=None)


def probability_of_improvement(scores, other_scores):
    """Agarwal et al. 2021, section 4.3: the mean of Mann-Whitney statistics."""
    statistics = [
        scipy.stats.mannwhitneyu(x, y, alternative="greater").statistic
        for x, y in zip(scores.T, other_scores.T, strict=True)
    ]
    return np.mean(statistics) / (len(scores) * len(other_scores))


def bootstrap_interval(key, data, statistic, confidence, num_samples, stratified):
    values = []
    for each in jax.random.split(key, num_samples):
        if stratified:
            own = jax.random.split(each, 1)[0]  # One for each array.
            rows = np.asarray(jax.random.randint(own, data.shape, 0, len(data)))
            drawn = [data[rows[:, m], m] for m in range(data.shape[1])]
            values.append(np.mean(np.stack(drawn, axis=1)))
        else:
            rows = np.asarray(jax.random.randint(each, (len(data),), 0, len(data)))
            values.append(np.mean(data[rows]))
    ends = (1 - confidence) / 2, (1 + confidence) / 2
    return [np.asarray(np.quantile(values, end)) for end in ends]


def mean(x):
    return x.mean()


# --- Arguments. ---


def make_trajectories(*names):
    def make(rng):
        discount = rng.uniform(0.5, 1.0, (TRAJECTORIES, STEPS))
        discount[0, 1] = discount[2, 2] = 0.0  # Two episodes end.
        mask = np.ones((TRAJECTORIES, STEPS), bool)
        mask[0, 0] = mask[1, 3:] = mask[2] = mask[3, 2] = False
        drawn = {
            "r_t": rng.normal(size=(TRAJECTORIES, STEPS)),
            "discount_t": discount,
            "rho_tm1": rng.uniform(0.3, 2.0, (TRAJECTORIES, STEPS)),
            "q_tm1": rng.normal(size=(TRAJECTORIES, STEPS)),
            "v_tm1": rng.normal(size=(TRAJECTORIES, STEPS)),
            "sample_mask": mask,
        }
        return {name: drawn[name] for name in names}

    return make


def make_scores(*names):
    def make(rng):
        drawn = {
            "scores": rng.permutation(18).reshape(6, TASKS) / 10 + 0.05,
            "other_scores": rng.permutation(12).reshape(4, TASKS) / 10,
            "data": rng.normal(size=(6, TASKS)),
        }
        return {name: drawn[name] for name in names}

    return make


def over_devices(library, axis_name):
    return functools.partial(library.off_policy_evaluation, axis_name=axis_name)


DATA = ("r_t", "discount_t", "rho_tm1")


VALUES = ("q_tm1", "v_tm1")


ROWS = [
    *(
        Row(
            off_policy_evaluation,
            make_trajectories(*DATA, *VALUES * (kind in ("dr", "wdr")), *mask),
            " ".join([kind, *mask]),
            settings={"kind": kind},
            gradients=Gradients(constants=("discount_t",)),
            precision=Precision(condition=8.0),
            over_devices=over_devices,
        )
        for kind in ("is", "wis", "pdis", "wpdis", "dr", "wdr")
        for mask in ((), ("sample_mask",))
    ),
    Row(interquartile_mean, make_scores("scores")),
    Row(
        probability_of_improvement,
        make_scores("scores", "other_scores"),
        gradients=Gradients(exist=False),
    ),
    *(
        Row(
            bootstrap_interval,
            make_scores("data"),
            "stratified" if stratified else "",
            settings={
                "statistic": mean,
                "confidence": 0.8,
                "num_samples": 20,
                "stratified": stratified,
            },
            gradients=Gradients(exist=False),
        )
        for stratified in (False, True)
    ),
]
