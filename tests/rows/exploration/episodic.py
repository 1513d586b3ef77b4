"""Rows of `exploration/_episodic.py`, and their definitions in NumPy."""

import numpy as np
from row import Gradients, Peer, Precision, Row
from rows._shared import of_fields
from rows.exploration.neighbors import knn_query

import rlaxlib

BATCH, DIMENSIONS, SEEN = 5, 3, 7


STATE = [
    f"intrinsic_reward_state.{name}" for name in rlaxlib.IntrinsicRewardState._fields
]


# --- Neighbours and episodic rewards. ---


def episodic_memory_intrinsic_rewards(
    embeddings,
    reward_scale,
    memory,
    next_memory_index,
    distance_sum,
    distance_count,
    num_neighbors,
    constant,
    epsilon,
    cluster_distance,
    max_similarity,
    max_memory_size,
    distance_sum_rest=0.0,
):
    """Badia et al. 2020, algorithm 1, with a constant added to the mean as in rlax."""
    found = [knn_query(memory, x[None], num_neighbors)[2][0] for x in embeddings]
    squares = -np.array(found)
    distance_sum = distance_sum + squares.sum()
    distance_count = distance_count + squares.size
    rewards = []
    for row, beta in zip(squares, reward_scale, strict=True):
        rates = row / (distance_sum / distance_count + constant)
        rates = np.maximum(rates - cluster_distance, 0)
        similarity = np.sqrt(np.sum(epsilon / (rates + epsilon))) + constant
        rewards.append(0.0 if similarity > max_similarity else beta / similarity)
    memory = np.array(memory)
    for step, x in enumerate(embeddings):
        memory[(next_memory_index + step) % max_memory_size] = x
    index = (next_memory_index + len(embeddings)) % max_memory_size
    rest = distance_sum_rest  # In double precision.
    return np.array(rewards), (memory, index, distance_sum, distance_count, rest)


# --- Arguments. ---


def make_episode(rng):
    return {
        "embeddings": rng.normal(size=(BATCH, DIMENSIONS)),
        "reward_scale": rng.uniform(0.5, 2.0, BATCH),
        STATE[0]: rng.normal(size=(SEEN, DIMENSIONS)),
        STATE[1]: np.asarray(rng.integers(SEEN)),
        STATE[2]: np.asarray(rng.uniform(10.0, 30.0)),
        STATE[3]: np.asarray(10),
        STATE[4]: np.asarray(0.0),
    }


def with_state(library):
    """Return the rewards as a function of the entries of the state."""

    def rewards(**arguments):
        state = library.IntrinsicRewardState(*map(arguments.pop, STATE))
        return library.episodic_memory_intrinsic_rewards(
            intrinsic_reward_state=state, **arguments
        )

    return rewards


ROWS = [
    Row(
        of_fields(episodic_memory_intrinsic_rewards),
        make_episode,
        settings={
            "num_neighbors": 3,
            "constant": 0.01,
            "epsilon": 0.1,
            "cluster_distance": 0.2,
            "max_similarity": 1.0,
            "max_memory_size": SEEN,
        },
        find=with_state,
        peer=Peer(why_not="rlax takes negative distances for distances"),
        precision=Precision(
            condition=8.0,
            decisive=("embeddings",),
            carried={name: 1 + i for i, name in enumerate(STATE)},
        ),
        gradients=Gradients(constants=(STATE[4],)),
        invalid=({"num_neighbors": SEEN + 1},),
    ),
]
