"""Rows of `replay.py`, and their definitions in NumPy."""

import jax
import numpy as np
from contract import STEPS, discounts
from row import Gradients, Row

ENTRIES, SAMPLES = 8, 5


def prioritized_probabilities(priorities, exponent, sample_mask=None):
    """Schaul et al. 2015, equation 1."""
    mask = np.ones(priorities.shape, bool) if sample_mask is None else sample_mask
    powers = np.where(mask, priorities, 0.0) ** exponent * mask
    return powers / np.sum(powers)


def rank_probabilities(priorities, exponent, sample_mask=None):
    """Schaul et al. 2015, section 3.3: the priority is 1 over the rank."""
    mask = np.ones(priorities.shape, bool) if sample_mask is None else sample_mask
    ranked = sorted(np.flatnonzero(mask), key=lambda i: -priorities[i])
    shares = np.zeros(priorities.shape)
    for rank, i in enumerate(ranked, start=1):
        shares[i] = (1 / rank) ** exponent
    return shares / np.sum(shares)


def importance_sampling_weights(probs, exponent, sample_mask=None):
    """Schaul et al. 2015, section 3.4, for a buffer of 100 entries."""

    def weigh(p):
        return (1 / 100 * 1 / p) ** exponent

    mask = np.ones(probs.shape, bool) if sample_mask is None else sample_mask
    return np.where(mask, weigh(probs) / np.max(weigh(probs[mask])), 0.0)


def sequence_priority(td_errors, mix=0.9, sample_mask=None):
    """Kapturowski et al. 2019, section 2.3."""
    mask = np.ones(td_errors.shape, bool) if sample_mask is None else sample_mask
    sizes = np.abs(td_errors[mask])
    return mix * np.max(sizes) + (1 - mix) * np.mean(sizes)


def invert(weights, points):
    """Invert the cumulative distribution of the weights at points in [0, 1)."""
    cumulative = np.cumsum(weights) / np.sum(weights)
    return np.array([np.flatnonzero(cumulative > point)[0] for point in points])


def stratified_sample(key, probs, num_samples):
    """Schaul et al. 2015, appendix B.2.1: equal ranges, and a uniform draw in each."""
    draws = np.asarray(jax.random.uniform(key, (num_samples,)))
    points = [(k + draw) / num_samples for k, draw in enumerate(draws)]
    return invert(probs, points)


def systematic_resample(key, weights, num_samples=None):
    """Douc et al. 2005, section 2.4: the same draw in each range."""
    count = weights.size if num_samples is None else num_samples
    draw = float(jax.random.uniform(key, ()))
    return invert(weights, [(k + draw) / count for k in range(count)])


def final_indices(key, discount_t, kind, truncated_t=None, sample_mask=None):
    """Andrychowicz et al. 2017, section 4.5: the last step of the episode."""
    assert kind == "final"
    steps = len(discount_t)
    truncated_t = np.zeros(steps, bool) if truncated_t is None else truncated_t
    mask = np.ones(steps, bool) if sample_mask is None else sample_mask
    episode = np.zeros(steps, int)  # Number of the episode of each step.
    for t in range(1, steps):
        over = (mask[t - 1] and discount_t[t - 1] == 0) or truncated_t[t - 1]
        episode[t] = episode[t - 1] + over
    return np.array(
        [
            max(np.flatnonzero(mask & (episode == episode[t]))) if mask[t] else t
            for t in range(steps)
        ]
    )


def geometric_indices(
    key, discount_t, kind, discount, truncated_t=None, sample_mask=None
):
    """Eysenbach et al. 2022, section 3: distances of probability (1 - γ) γ^k."""
    steps = len(discount_t)
    draws = np.asarray(jax.random.uniform(key, (steps,)), np.float64)
    cut = np.zeros(steps, bool) if truncated_t is None else truncated_t
    mask = np.ones(steps, bool) if sample_mask is None else sample_mask
    goals = []
    for t in range(steps):
        future = []  # Valid steps of the episode, from this one.
        for i in range(t, steps):
            future += [i] if mask[i] else []
            if (mask[i] and discount_t[i] == 0) or cut[i]:
                break
        shares = (1 - discount) * discount ** np.arange(len(future))
        if kind == "truncated_geometric":
            shares = shares / np.sum(shares)
        reached = np.sum(np.cumsum(shares) <= draws[t])
        goals.append(future[min(reached, len(future) - 1)] if mask[t] else t)
    return np.array(goals)


# --- Arguments. ---


def make_buffer(*names):
    def make(rng):
        drawn = {
            "priorities": rng.uniform(0.1, 3.0, ENTRIES),
            "probs": rng.dirichlet(np.full(ENTRIES, 3.0)),
            "weights": rng.uniform(0.1, 1.0, ENTRIES),
            "exponent": np.asarray(rng.uniform(0.3, 0.9)),
            "sample_mask": rng.permutation([True] * 6 + [False] * 2),
        }
        return {name: drawn[name] for name in names}

    return make


def make_errors(rng):
    return {
        "td_errors": rng.normal(size=STEPS),
        "sample_mask": rng.permutation([True] * 4 + [False] * 2),
    }


def make_episodes(*names):
    def make(rng):
        drawn = {
            "discount_t": discounts(rng),
            "discount": np.asarray(rng.uniform(0.3, 0.9)),
            "truncated_t": rng.permutation([True] + [False] * (STEPS - 1)),
            "sample_mask": rng.permutation([True] * 4 + [False] * 2),
        }
        return {name: drawn[name] for name in names}

    return make


def over_devices(name):
    """Find a function that takes the name of a mapped axis."""

    def find(library, axis_name):
        function = getattr(library, name)
        return lambda **arguments: function(**arguments, axis_name=axis_name)

    return find


def prioritized(case, **fields):
    return Row(
        name="prioritized_probabilities",
        case=case,
        definition=prioritized_probabilities,
        gradients=Gradients(exist=False),
        **fields,
    )


def weighted(case, make, **fields):
    return Row(
        importance_sampling_weights,
        make,
        case,
        gradients=Gradients(exist=False),
        **fields,
    )


def hindsight(case, definition, make, **settings):
    return Row(
        definition,
        make,
        case,
        name="hindsight_indices",
        settings=settings,
        gradients=Gradients(exist=False),
        stream=None,
    )


EPISODES = ("discount_t", "truncated_t", "sample_mask")
GEOMETRIC = ("discount_t", "discount")


RANDOM = "its result is random"


ROWS = [
    prioritized("", make=make_buffer("priorities", "exponent", "sample_mask")),
    prioritized(
        "whole buffer",
        make=make_buffer("priorities"),
        settings={"exponent": 0.6},
        over_devices=over_devices("prioritized_probabilities"),
    ),
    Row(
        rank_probabilities,
        make_buffer("priorities", "exponent", "sample_mask"),
        gradients=Gradients(exist=False),
    ),
    Row(
        rank_probabilities,
        make_buffer("priorities", "exponent"),
        "whole buffer",
        gradients=Gradients(exist=False),
    ),
    weighted("", make_buffer("probs", "exponent", "sample_mask")),
    weighted(
        "over devices",
        make_buffer("probs"),
        settings={"exponent": 0.4},
        over_devices=over_devices("importance_sampling_weights"),
    ),
    Row(sequence_priority, make_errors, gradients=Gradients(exist=False)),
    Row(
        sequence_priority,
        lambda rng: {
            "td_errors": rng.normal(size=STEPS),
            "mix": np.asarray(rng.uniform()),
        },
        "all steps",
        gradients=Gradients(exist=False),
    ),
    Row(
        stratified_sample,
        make_buffer("probs"),
        settings={"num_samples": SAMPLES},
        gradients=Gradients(exist=False),
    ),
    Row(systematic_resample, make_buffer("weights"), gradients=Gradients(exist=False)),
    Row(
        systematic_resample,
        make_buffer("weights"),
        "more than before",
        settings={"num_samples": 3 * ENTRIES},
        gradients=Gradients(exist=False),
    ),
    hindsight("", RANDOM, make_episodes(*EPISODES)),
    hindsight("episode", RANDOM, make_episodes(*EPISODES), kind="episode"),
    hindsight("final", final_indices, make_episodes(*EPISODES), kind="final"),
    hindsight(
        "geometric, no masks",
        geometric_indices,
        make_episodes(*GEOMETRIC),
        kind="geometric",
    ),
    *(
        hindsight(
            kind,
            geometric_indices,
            make_episodes(*GEOMETRIC, "truncated_t", "sample_mask"),
            kind=kind,
        )
        for kind in ("geometric", "truncated_geometric")
    ),
    hindsight(
        "final, no masks", final_indices, make_episodes("discount_t"), kind="final"
    ),
]
