"""Rows of `exploration/_neighbors.py`, and their definitions in NumPy."""

import functools

import jax.numpy as jnp
import numpy as np
from row import Peer, Precision, Row

import rlaxlib

BATCH, DIMENSIONS, SEEN = 5, 3, 7


# --- Neighbours and episodic rewards. ---


def knn_query(data, query_points, num_neighbors, metric=None):
    def measure(x, y):
        return np.sum((x - y) ** 2) if metric is None else np.asarray(metric(x, y))

    distances = np.array([[measure(y, x) for x in data] for y in query_points])
    indices = np.argsort(distances, axis=-1, kind="stable")[:, :num_neighbors]
    return data[indices], indices, -np.take_along_axis(distances, indices, axis=-1)


# --- Arguments. ---


def make_points(rng):
    return {
        "data": rng.normal(size=(SEEN, DIMENSIONS)),
        "query_points": rng.normal(size=(BATCH, DIMENSIONS)),
    }


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
        knn_query,
        make_points,
        case,
        settings={"num_neighbors": 2, **settings},
        peer=Peer(find=in_our_order),
        precision=Precision(condition=4.0, decisive=("data",), single_outputs=(2,)),
    )


ROWS = [
    neighbors(),
    neighbors("by another metric", metric=city_block),
]
