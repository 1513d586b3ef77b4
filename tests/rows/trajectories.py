"""Rows of `trajectories.py`, and their definitions in NumPy."""

import numpy as np
from contract import ACTIONS, STEPS, actions
from row import Gradients, Loose, Peer, Row

STREAMS, STARTS, LENGTH = 3, 4, 2


FIRST, MID, LAST = range(3)


def extract_subsequences(trajectories, start_indices, subsequence_len):
    streams, starts = start_indices.shape
    windows = [
        [trajectories[s : s + subsequence_len, b] for s in start_indices[b]]
        for b in range(streams)
    ]
    assert np.shape(windows)[:3] == (streams, starts, subsequence_len)
    return np.moveaxis(windows, 2, 0)


def extract_from_one(trajectories, start_indices, subsequence_len):
    windows = [trajectories[s : s + subsequence_len] for s in start_indices]
    return np.stack(windows, axis=1)


def as_one_of_a_batch(rlax):
    """Call rlax, which takes batches only, with a batch of one trajectory."""

    def extract(trajectories, start_indices, subsequence_len):
        streams = trajectories[:, None], start_indices[None]
        return rlax.extract_subsequences(*streams, subsequence_len)[:, 0]

    return extract


def fix_step_type_on_interruptions(step_type):
    fixed = np.array(step_type)
    for t in range(len(step_type) - 1):
        fixed[t] = np.where(step_type[t + 1] == FIRST, LAST, step_type[t])
    return fixed


def embed_oar(features, action, reward, num_actions):
    marks = np.eye(num_actions)[action]
    return np.concatenate([features, marks, np.tanh(reward)[..., None]], axis=-1)


def draw_windows(rng, *streams):
    return {
        "trajectories": rng.normal(size=(STEPS, *streams, 3)),
        "start_indices": rng.integers(STEPS - LENGTH + 1, size=(*streams, STARTS)),
    }


def draw_one_step_type(rng):
    return {"step_type": rng.choice([FIRST, MID, LAST], size=8)}


def draw_step_types(rng):
    return {"step_type": rng.choice([FIRST, MID, LAST], size=(8, STREAMS))}


def draw_step_types_for_rlax(rng):
    """Draw step types without two consecutive first steps."""
    step_type = draw_step_types(rng)["step_type"]
    again = (step_type[1:] == FIRST) & (step_type[:-1] == FIRST)
    step_type[1:][again] = MID
    return {"step_type": step_type}


def draw_oar(rng):
    return {
        "features": rng.normal(size=(5, 3)),
        "action": actions(rng, 5),
        "reward": rng.normal(size=5),
    }


ROWS = [
    Row(
        extract_subsequences,
        lambda rng: draw_windows(rng, STREAMS),
        settings={"subsequence_len": LENGTH},
    ),
    Row(
        extract_from_one,
        draw_windows,
        "one trajectory",
        name="extract_subsequences",
        settings={"subsequence_len": LENGTH},
        peer=Peer(find=as_one_of_a_batch),
        loose=Loose(lengths=("start_indices",)),
    ),
    Row(
        "its result is random",
        lambda rng: {},
        name="sample_start_indices",
        settings={
            "batch_size": STREAMS,
            "num_start_indices": STARTS,
            "max_valid_start_idx": 9,
        },
        gradients=Gradients(exist=False),
    ),
    Row(
        fix_step_type_on_interruptions,
        draw_step_types,
        peer=Peer(make=draw_step_types_for_rlax),
        gradients=Gradients(exist=False),
        loose=Loose(batches=True),
    ),
    Row(
        fix_step_type_on_interruptions,
        draw_one_step_type,
        "one trajectory",
        peer=Peer(why_not="rlax takes batches only"),
        gradients=Gradients(exist=False),
        loose=Loose(batches=True),
    ),
    Row(embed_oar, draw_oar, settings={"num_actions": ACTIONS}),
]
