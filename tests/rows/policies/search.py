"""Rows of `policies/_search.py`, and their definitions in NumPy."""

import numpy as np
from contract import ACTIONS, away_from
from row import Gradients, Precision, Row
from rows.policies.sac import softmax

CLIP = 1.0


def cmpo_policy_targets(prior_logits, q, v, clip, action_mask=None):
    """Hessel et al. 2021, equation 8."""
    weights = softmax(prior_logits, action_mask) * np.exp(np.clip(q - v, -clip, clip))
    return weights / np.sum(weights)


def mixed_value(logits, q, visits, v, action_mask=None):
    """Danihelka et al. 2022, equation 33."""
    action_mask = np.ones(len(q), bool) if action_mask is None else action_mask
    pi = softmax(logits, action_mask)
    visited = np.flatnonzero(action_mask & (visits > 0))
    total = sum(visits[a] for a in visited)
    if not total:
        return v
    mean = sum(pi[a] * q[a] for a in visited) / sum(pi[a] for a in visited)
    return (v + total * mean) / (1 + total)


def gumbel_policy_targets(
    logits, q, visits, v, c_visit, c_scale, rescale_values=False, action_mask=None
):
    """Danihelka et al. 2022, equations 8, 10 and 11."""
    mixed = mixed_value(logits, q, visits, v, action_mask)
    action_mask = np.ones(len(q), bool) if action_mask is None else action_mask
    completed = np.where(action_mask & (visits > 0), q, mixed)
    if rescale_values:
        low, high = np.min(completed[action_mask]), np.max(completed[action_mask])
        completed = (completed - low) / (high - low)
    sigma = (c_visit + np.max(visits[action_mask])) * c_scale * completed
    return softmax(logits + sigma, action_mask)


def make_prior(rng):
    """Draw advantages, some of them clipped, none close to the bound."""
    advantages = 2 * rng.normal(size=ACTIONS)
    for bound in (-CLIP, CLIP):
        advantages = away_from(advantages, bound)
    advantages[rng.integers(ACTIONS)] = 0.5
    v = rng.normal()
    return {
        "prior_logits": rng.normal(size=ACTIONS),
        "q": v + advantages,
        "v": np.asarray(v),
    }


def make_search(rng):
    """Draw the results of a search with one unvisited action."""
    return {
        "logits": rng.normal(size=ACTIONS),
        "q": rng.normal(size=ACTIONS),
        "visits": rng.permutation([0, 1, 2, 3]),
        "v": np.asarray(rng.normal()),
    }


def masked(make):
    """Add a mask without the most visited action."""

    def make_masked(rng):
        drawn = make(rng)
        action_mask = np.ones(ACTIONS, bool)
        action_mask[np.argmax(drawn.get("visits", action_mask))] = False
        return {**drawn, "action_mask": action_mask}

    return make_masked


SIGMA = {"c_visit": 2.0, "c_scale": 0.25}


SEARCH = ("logits", "q", "v")


ROWS = [
    Row(
        cmpo_policy_targets,
        masked(make_prior),
        case="mask",
        settings={"clip": CLIP},
        gradients=Gradients(targets=("prior_logits", "q", "v")),
    ),
    Row(
        mixed_value,
        make_search,
        precision=Precision(condition=4.0),
    ),
    Row(
        mixed_value,
        masked(make_search),
        case="mask",
        precision=Precision(condition=4.0),
    ),
    Row(
        gumbel_policy_targets,
        make_search,
        settings=SIGMA,
        gradients=Gradients(targets=SEARCH),
        precision=Precision(condition=4.0),
    ),
    Row(
        gumbel_policy_targets,
        masked(make_search),
        case="mask, rescaled",
        settings={**SIGMA, "rescale_values": True},
        gradients=Gradients(targets=SEARCH),
        precision=Precision(condition=16.0),
    ),
]
