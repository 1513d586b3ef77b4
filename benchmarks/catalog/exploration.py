"""Exploration: what is measured.

A search for neighbours is in one set of points, or, by many actors, each in its own.
"""

import functools
import types
from collections.abc import Callable
from typing import Any

import jax
from jax import Array

from benchmarks.case import Case
from benchmarks.catalog.shared import row
from benchmarks.inputs import Input, Size, key, normal, probs

_NEIGHBORS = 10
_ONE, _MANY = (Size(batch=1),), (Size(batch=8),)


def _add_dirichlet_noise(library: Any) -> Callable[..., Any]:
    """Give all priors at once, as rlax takes them."""
    return lambda key, prior: library.add_dirichlet_noise(key[0], prior, 0.3, 0.25)


def _knn_query(library: Any) -> Callable[..., Any]:
    def search(data: Array, query_points: Array) -> tuple[Array, ...]:
        result = library.knn_query(data, query_points, _NEIGHBORS)
        return (
            result.neighbors,
            result.neighbor_indices,
            result.neighbor_neg_distances,
        )

    return _over_actors(search)


def _gradient_of_knn_query(library: Any) -> Callable[..., Any]:
    def total(data: Array, query_points: Array) -> Array:
        result = library.knn_query(data, query_points, _NEIGHBORS)
        return (result.neighbor_neg_distances**2).sum()

    return _over_actors(jax.grad(total, (0, 1)))


def _episodic_rewards(library: Any) -> Callable[..., Any]:
    def reward(memory: Array, embeddings: Array) -> tuple[Array, Array]:
        state = types.SimpleNamespace(
            memory=memory, next_memory_index=7, distance_sum=100.0, distance_count=10
        )
        rewards, state = library.episodic_memory_intrinsic_rewards(
            embeddings, _NEIGHBORS, 1.0, state, max_memory_size=len(memory)
        )
        return rewards, state.memory

    return _over_actors(reward)


def _over_actors(function: Callable[..., Any]) -> Callable[..., Any]:
    """Map a function over actors, unless there is only one."""

    def over_actors(*arrays: Array) -> Any:
        if len(arrays[0]) == 1:
            return function(*(each[0] for each in arrays))
        return jax.vmap(function)(*arrays)

    return over_actors


def _search(name: str, make: Callable[..., Any], label: str = "") -> tuple[Case, ...]:
    """Return cases of few points and many, asked by few and many."""
    names = {"knn_query": ("data", "query_points")}.get(name, ("memory", "embeddings"))
    sizes = (
        (_ONE, 30000, 32, 1),
        (_ONE, 30000, 32, 16),
        (_ONE, 30000, 512, 16),
        (_MANY, 1000, 32, 1),
        (_MANY, 3000, 32, 16),
    )
    return tuple(
        Case(
            name=name,
            label=f"{label}{points} x {width}, {asked} asked",
            sizes=size,
            inputs=dict(zip(names, _points(points, asked, width=width), strict=True)),
            step=make,
        )
        for size, points, width, asked in sizes
    )


def _points(*counts: int, width: int) -> list[Input]:
    return [normal(f"{count} {width}") for count in counts]


_continue = functools.partial(row, settings={"damping": 0.15, "stddev": 0.2})

CASES = (
    row("add_gaussian_noise", settings={"stddev": 0.1}, key=key(), action=normal("A")),
    _continue(
        "add_ornstein_uhlenbeck_noise",
        key=key(),
        action=normal("A"),
        noise_tm1=normal("A"),
    ),
    _continue("ornstein_uhlenbeck_noise", key=key(), noise_tm1=normal("A")),
    Case(
        name="add_dirichlet_noise",
        sizes=(Size(batch=256),),
        inputs={"key": key(), "prior": probs("A")},
        step=_add_dirichlet_noise,
    ),
    *_search("knn_query", _knn_query),
    *_search("knn_query", _gradient_of_knn_query, "gradient, "),
    *_search("episodic_memory_intrinsic_rewards", _episodic_rewards),
)
