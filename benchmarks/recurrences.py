"""Multistep estimates of many time-major streams, and the bandwidth that they reach."""

import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.timing import Program


def _program(function: Callable[..., Any], *arguments: jax.Array) -> Program:
    return jax.vmap(function, in_axes=1, out_axes=1), arguments


def _normal(steps: int, batch: int) -> jax.Array:
    return jax.random.normal(jax.random.key(0), (steps, batch))


def lambda_returns(library: Any, steps: int, batch: int) -> Program:
    """λ-returns, with λ = 0.9."""
    v = _normal(steps, batch)
    function = functools.partial(library.lambda_returns, lambda_=0.9)
    return _program(function, v, jnp.full_like(v, 0.99), v)


def gae(library: Any, steps: int, batch: int) -> Program:
    """Generalized advantage estimation, with λ = 0.95."""
    r = _normal(steps, batch)
    function = library.truncated_generalized_advantage_estimation
    return _program(
        lambda r, discount, values: function(r, discount, 0.95, values),
        *(r, jnp.full_like(r, 0.99), _normal(steps + 1, batch)),
    )


def vtrace(library: Any, steps: int, batch: int) -> Program:
    """V-trace errors."""
    v = _normal(steps, batch)
    rho = jnp.exp(0.1 * v)
    return _program(library.vtrace, v, v, v, jnp.full_like(v, 0.99), rho)


def retrace(library: Any, steps: int, batch: int) -> Program:
    """Retrace errors of continuous actions, with λ = 0.9."""
    q, final = _normal(steps, batch), _normal(steps - 1, batch)
    function = functools.partial(library.retrace_continuous, lambda_=0.9)
    discount = jnp.full_like(q, 0.99)
    return _program(function, q, final, q, q, discount, 0.1 * final)


RECURRENCES: dict[str, Callable[[Any, int, int], Program]] = {
    "λ-returns": lambda_returns,
    "GAE": gae,
    "V-trace": vtrace,
    "Retrace": retrace,
}


def moved(program: Program) -> int:
    """Return the bytes of the arguments and results of a program."""
    function, arguments = program
    results = jax.eval_shape(function, *arguments)
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves((arguments, results)))


def copy(size: int) -> Program:
    """Return a program that reads `size` floats and writes as many."""
    return jnp.negative, (jnp.ones(size),)


def bandwidth(program: Program, repetitions: int = 10) -> float:
    """Return the bytes a second that a program moves, at best."""
    function, arguments = program
    compiled = jax.jit(function).lower(*arguments).compile()
    seconds = []
    for _ in range(repetitions):
        start = time.perf_counter()
        jax.block_until_ready(compiled(*arguments))
        seconds.append(time.perf_counter() - start)
    return moved(program) / np.min(seconds)
