"""Whole steps of training, for effects that no single function shows."""

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from benchmarks.inputs import Input, Shape, Size

OBSERVATION = 64
HIDDEN = 512
ACTIONS = 6
LEARNING_RATE = 1e-3

Parameters = dict[str, Array]
Step = Callable[..., Parameters]


def parameters() -> Input:
    """Return the parameters of one network, which all streams share."""

    def draw(rng: np.random.Generator, shape: Shape, size: Size) -> Any:
        del shape
        widths = (OBSERVATION, HIDDEN, HIDDEN, size.actions)
        layers = enumerate(itertools.pairwise(widths))
        return {
            f"layer_{layer}": (rng.normal(size=(rows, columns)) / rows**0.5).astype(
                np.float32
            )
            for layer, (rows, columns) in layers
        }

    return Input(draw)


def observation() -> Input:
    """Return what the network sees."""
    return Input(
        lambda rng, shape, _: rng.normal(size=(*shape, OBSERVATION)).astype(np.float32)
    )


def q_learning(library: Any) -> Step:
    """Return a step of Q-learning whose target comes from the network it trains.

    The target is held constant, so nothing needs to go back through the second
    evaluation of the network; a library that holds it constant by selecting between
    two values sends zeros back through it all the same.
    """

    def loss(
        parameters: Parameters,
        observation_tm1: Array,
        a_tm1: Array,
        r_t: Array,
        discount_t: Array,
        observation_t: Array,
    ) -> Array:
        q_tm1 = _network(parameters, observation_tm1)
        q_t = _network(parameters, observation_t)
        errors = jax.vmap(library.q_learning)(q_tm1, a_tm1, r_t, discount_t, q_t)
        return jnp.mean(errors**2)

    def step(parameters: Parameters, *batch: Array) -> Parameters:
        gradients = jax.grad(loss)(parameters, *batch)
        return jax.tree.map(lambda p, g: p - LEARNING_RATE * g, parameters, gradients)

    return step


def _network(parameters: Parameters, observation: Array) -> Array:
    """Return action values, from two hidden layers."""
    *hidden, last = parameters.values()
    x = observation
    for layer in hidden:
        x = jax.nn.relu(x @ layer)
    return x @ last
