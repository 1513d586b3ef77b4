"""Rows of `curricula.py`, and their definitions in NumPy."""

import numpy as np
from contract import STEPS, away_from
from row import Gradients, Peer, Row

LEVELS = 5


def episodes(discount_t, truncated_t=None, sample_mask=None):
    """Return the steps of each episode that ended."""
    cut = np.zeros(len(discount_t), bool) if truncated_t is None else truncated_t
    mask = np.ones(len(discount_t), bool) if sample_mask is None else sample_mask
    ended, now = [], []
    for t in range(len(discount_t)):
        now += [t] if mask[t] else []
        if (mask[t] and discount_t[t] == 0) or cut[t]:
            ended += [now] if now else []
            now = []
    return ended


def positive_value_loss(adv, discount_t, **masks):
    """Jiang et al. 2021, section 3, of each episode."""
    scores = [np.mean(np.maximum(adv[e], 0)) for e in episodes(discount_t, **masks)]
    return np.mean(scores) if scores else np.zeros(())


def max_mc(v_tm1, discount_t, max_return, **masks):
    """Jiang et al. 2021, section 3, of each episode."""
    scores = [np.mean(max_return - v_tm1[e]) for e in episodes(discount_t, **masks)]
    return np.mean(scores) if scores else np.zeros(())


def learnability(is_success, discount_t, **masks):
    """Rutherford et al. 2024, section 4."""
    solved = [np.sum(is_success[e]) for e in episodes(discount_t, **masks)]
    p = np.mean(solved) if solved else np.zeros(())
    return p * (1 - p)


def level_probabilities(scores, ages, staleness, temperature, sample_mask=None):
    """Jiang et al. 2020, equations 1 to 3."""
    mask = np.ones(len(scores), bool) if sample_mask is None else sample_mask
    ranks = [1 + np.sum(scores[mask] > x) for x in scores]
    by_score = mask * np.power(ranks, -1 / temperature)
    by_age = np.where(mask, ages, 0.0)
    parts = by_score / np.sum(by_score), by_age / np.sum(by_age)
    return (1 - staleness) * parts[0] + staleness * parts[1]


def make_stream(*names, masks=False):
    def make(rng):
        is_end = rng.permutation([True, True] + [False] * (STEPS - 2))
        drawn = {
            "adv": away_from(rng.normal(size=STEPS), 0.0),
            "v_tm1": rng.normal(size=STEPS),
            "is_success": is_end & (rng.random(STEPS) < 0.5),
            "discount_t": np.where(is_end, 0.0, rng.uniform(0.5, 1.0, STEPS)),
            "max_return": np.asarray(rng.normal()),
            "truncated_t": rng.permutation([True] + [False] * (STEPS - 1)),
            "sample_mask": rng.permutation([True] * (STEPS - 2) + [False] * 2),
        }
        masked = ("truncated_t", "sample_mask") if masks else ()
        return {name: drawn[name] for name in names + masked}

    return make


def make_levels(*names):
    def make(rng):
        drawn = {
            "scores": rng.permutation(LEVELS) / 4 + rng.normal(),
            "ages": rng.uniform(1.0, 9.0, LEVELS),
            "staleness": np.asarray(rng.uniform(0.1, 0.9)),
            "temperature": np.asarray(rng.uniform(0.5, 2.0)),
            "sample_mask": rng.permutation([True] * 3 + [False] * 2),
        }
        return {name: drawn[name] for name in names}

    return make


MIXTURE = "scores", "ages", "staleness", "temperature"


def row(definition, make, **fields):
    return Row(
        name=definition.__name__,
        definition=definition,
        make=make,
        gradients=Gradients(exist=False),
        peer=Peer(why_not="rlax has none"),
        **fields,
    )


def of_stream(definition, *names):
    return (
        row(
            definition,
            make_stream(*names, "discount_t"),
            stream=None,
        ),
        row(
            definition,
            make_stream(*names, "discount_t", masks=True),
            case="masked",
            stream=None,
        ),
    )


ROWS = [
    *of_stream(positive_value_loss, "adv"),
    *of_stream(max_mc, "v_tm1", "max_return"),
    *of_stream(learnability, "is_success"),
    row(level_probabilities, make_levels(*MIXTURE)),
    row(level_probabilities, make_levels(*MIXTURE, "sample_mask"), case="masked"),
]
