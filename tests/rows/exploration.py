"""Exploration: definitions in NumPy, and their rows of the contract."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from contract import ACTIONS, Row, probabilities

import rlaxlib

BATCH, DIMENSIONS, SEEN = 5, 3, 7
STATE = [
    f"intrinsic_reward_state.{name}" for name in rlaxlib.IntrinsicRewardState._fields
]


# --- Noise, from the same samples. ---


def normal(key, shape):
    return np.asarray(jax.random.normal(key, shape), np.float64)


def add_gaussian_noise(key, action, stddev):
    return action + stddev * normal(key, action.shape)


def ornstein_uhlenbeck_noise(key, noise_tm1, damping, stddev):
    return (1 - damping) * noise_tm1 + stddev * normal(key, noise_tm1.shape)


def add_ornstein_uhlenbeck_noise(key, action, noise_tm1, damping, stddev):
    return action + ornstein_uhlenbeck_noise(key, noise_tm1, damping, stddev)


def add_dirichlet_noise(key, prior, dirichlet_fraction, dirichlet_alpha):
    alphas = jnp.full(prior.shape[-1], dirichlet_alpha)
    noise = np.asarray(jax.random.dirichlet(key, alphas, prior.shape[:-1]), np.float64)
    return (1 - dirichlet_fraction) * prior + dirichlet_fraction * noise


# --- Neighbours and episodic rewards. ---


def knn_query(data, query_points, num_neighbors, metric=None):
    def measure(x, y):
        return np.sum((x - y) ** 2) if metric is None else np.asarray(metric(x, y))

    distances = np.array([[measure(y, x) for x in data] for y in query_points])
    indices = np.argsort(distances, axis=-1, kind="stable")[:, :num_neighbors]
    return data[indices], indices, -np.take_along_axis(distances, indices, axis=-1)


def of_fields(definition):
    def define(**arguments):
        return definition(
            **{name.rpartition(".")[2]: x for name, x in arguments.items()}
        )

    return define


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
    return np.array(rewards), (memory, index, distance_sum, distance_count)


# --- Arguments. ---


def make_noise(*names):
    def make(rng):
        drawn = {
            "action": rng.normal(size=(BATCH, ACTIONS)),
            "noise_tm1": rng.normal(size=(BATCH, ACTIONS)),
            "damping": rng.uniform(0.1, 0.9),
            "stddev": rng.uniform(0.5, 2.0, ACTIONS),
        }
        return {name: np.asarray(drawn[name]) for name in names}

    return make


def make_points(rng):
    return {
        "data": rng.normal(size=(SEEN, DIMENSIONS)),
        "query_points": rng.normal(size=(BATCH, DIMENSIONS)),
    }


def make_episode(rng):
    return {
        "embeddings": rng.normal(size=(BATCH, DIMENSIONS)),
        "reward_scale": rng.uniform(0.5, 2.0, BATCH),
        STATE[0]: rng.normal(size=(SEEN, DIMENSIONS)),
        STATE[1]: np.asarray(rng.integers(SEEN)),
        STATE[2]: np.asarray(rng.uniform(10.0, 30.0)),
        STATE[3]: np.asarray(10),
    }


def with_state(library):
    """Return the rewards as a function of the entries of the state."""

    def rewards(**arguments):
        state = library.IntrinsicRewardState(*map(arguments.pop, STATE))
        return library.episodic_memory_intrinsic_rewards(
            intrinsic_reward_state=state, **arguments
        )

    return rewards


def in_our_order(rlax):
    """Return the search of rlax, with its result in our order."""

    @functools.wraps(rlax.knn_query)
    def knn_query(**arguments):
        return rlaxlib.KNNQueryResult(**rlax.knn_query(**arguments))

    return knn_query


def city_block(x, y):
    return jnp.sum(jnp.abs(x - y))


def neighbors(case="", **settings):
    return Row(
        name="knn_query",
        case=case,
        definition=knn_query,
        make=make_points,
        settings={"num_neighbors": 2, **settings},
        peer_of=in_our_order,
        condition=4.0,
        follows=("data",),  # The neighbours. Distances are never in half precision.
        single_precision=(2,),
        any_length=("data", "query_points"),
        any_dtype=("data", "query_points"),
    )


INVALID_PROCESSES = ({"damping": -0.1}, {"damping": 2.1}, {"stddev": -1.0})

ROWS = [
    Row(
        name="add_gaussian_noise",
        definition=add_gaussian_noise,
        make=make_noise("action", "stddev"),
        key="key",
        elementwise=True,
        any_length=("action",),
        invalid=({"stddev": -0.1}, {"stddev": np.full(ACTIONS, -1.0)}),
    ),
    Row(
        name="ornstein_uhlenbeck_noise",
        definition=ornstein_uhlenbeck_noise,
        make=make_noise("noise_tm1", "damping", "stddev"),
        key="key",
        peer="rlax does not return the noise",
        carried={"noise_tm1": 0},
        elementwise=True,
        any_length=("noise_tm1",),
        invalid=INVALID_PROCESSES,
    ),
    Row(
        name="add_ornstein_uhlenbeck_noise",
        definition=add_ornstein_uhlenbeck_noise,
        make=make_noise("action", "noise_tm1", "damping", "stddev"),
        key="key",
        peer="rlax takes one vector only: see test_noise.py",
        elementwise=True,
        invalid=INVALID_PROCESSES,
    ),
    Row(
        name="add_dirichlet_noise",
        definition=add_dirichlet_noise,
        make=lambda rng: {
            "prior": probabilities(rng, BATCH, ACTIONS),
            "dirichlet_fraction": np.asarray(rng.uniform(0.2, 0.8)),
        },
        settings={"dirichlet_alpha": 0.3},
        key="key",
        elementwise=True,
        invalid=(
            {"dirichlet_alpha": 0.0},
            {"dirichlet_fraction": -0.1},
            {"dirichlet_fraction": 1.1},
            {"prior": np.full((BATCH, ACTIONS), -0.1)},
        ),
    ),
    neighbors(),
    neighbors("by another metric", metric=city_block),
    Row(
        name="episodic_memory_intrinsic_rewards",
        definition=of_fields(episodic_memory_intrinsic_rewards),
        make=make_episode,
        settings={
            "num_neighbors": 3,
            "constant": 0.01,
            "epsilon": 0.1,
            "cluster_distance": 0.2,
            "max_similarity": 1.0,
            "max_memory_size": SEEN,
        },
        of=with_state,
        peer="rlax takes negative distances for distances (audit, 1.9)",
        condition=8.0,
        follows=("embeddings",),  # The rewards. The memory keeps its dtype.
        single_precision=(3,),
        carried={name: 1 + i for i, name in enumerate(STATE)},
        any_dtype=(STATE[2], STATE[3]),
        invalid=(
            {"constant": -1e-3},
            {"epsilon": 0.0},
            {"cluster_distance": -1.0},
            {"max_similarity": 0.0},
            {"reward_scale": -1.0},
            {"num_neighbors": SEEN + 1},
        ),
    ),
]
