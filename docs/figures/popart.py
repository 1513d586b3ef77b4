"""Learning with PopArt, ART alone and neither, with growing or rare large targets.

Adam trains a network with one hidden layer on a function of two variables, with 16 new
examples at each step. On the left, all targets are 100 times larger after step 1000. On
the right, one target of 100 occurs every 250 steps, at an input of its own. The error
is measured on new examples, relative to the scale of the function.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import style
from jax import Array
from matplotlib.figure import Figure

import rlaxlib

STEPS, CHANGE, PERIOD, LARGE = 2000, 1000, 250, 100.0
BATCH, HIDDEN, SEEDS, BIN = 16, 32, 8, 10
OPTIMIZER = optax.adam(3e-3)
CURVES = {"ART and POP": style.BLUE, "ART alone": style.ORANGE, "neither": style.INK}


def draw() -> Figure:
    """Draw the error during training, with both parts of PopArt, one or neither."""
    figure = style.figure(3.0)
    panels = figure.subplots(1, 2, sharey=True)
    sides = {"all targets grow": growing, "rare large targets": rare}
    keys = jax.random.split(jax.random.key(0), SEEDS)
    for axes, (title, examples) in zip(panels, sides.items(), strict=True):
        for name, color in CURVES.items():
            errors = jax.jit(jax.vmap(partial(train, name, examples)))(keys)
            median = np.median(errors, axis=0).reshape(-1, BIN).mean(axis=1)
            steps = np.arange(0, STEPS, BIN) + BIN / 2
            axes.plot(steps, median, color=color, label=name, lw=1.4)
        axes.set(title=title, xlabel="step", yscale="log")
    panels[0].set(ylabel="error", yticks=[0.1, 1], yticklabels=["0.1", "1"])
    panels[0].legend(fontsize="small", loc=(0.1, 0.66))
    return figure


def growing(key: Array, step: Array) -> tuple[Array, Array, Array]:
    """Return examples whose targets grow at some step, and the scale of the targets."""
    x = jax.random.uniform(key, (BATCH, 2), minval=-1, maxval=1)
    size = jnp.where(step < CHANGE, 1.0, LARGE)
    return x, size * (truth(x) + 2), size


def rare(key: Array, step: Array) -> tuple[Array, Array, Array]:
    """Return examples with a rare large target, and the scale of the others."""
    x = jax.random.uniform(key, (BATCH, 2), minval=-1, maxval=1)
    large = (jnp.arange(BATCH) == 0) & (step % PERIOD == PERIOD - 1)
    y = jnp.where(large, LARGE, truth(x))
    return jnp.where(large[:, None], 2.0, x), y, jnp.array(1.0)


def truth(x: Array) -> Array:
    """Return the function to learn."""
    return jnp.sin(3 * x[:, 0]) + x[:, 1]


def train(name: str, examples: Callable, key: Array) -> Array:
    """Train a network, and return the error at each step."""
    initial_state, update = rlaxlib.popart(1, 3e-3, scale_lb=1e-4, scale_ub=1e6)
    output = jnp.zeros(BATCH, int)

    def step(carry: tuple, i: Array) -> tuple[tuple, Array]:
        params, popart, optimizer = carry
        train_key, test_key = jax.random.split(jax.random.fold_in(key, i))
        x, y, size = examples(test_key, i)
        values = rlaxlib.unnormalize(popart, predict(params, x), output)
        usual = jnp.abs(y) < LARGE if examples is rare else jnp.full(BATCH, True)
        error = jnp.sqrt(jnp.mean(jnp.square(values - y), where=usual)) / size

        x, y, _ = examples(train_key, i)
        if name != "neither":
            head, popart = update(params["head"], popart, y, output)
            if name == "ART and POP":
                params = {**params, "head": head}
        targets = rlaxlib.normalize(popart, y, output)
        grads = jax.grad(loss)(params, x, targets)
        updates, optimizer = OPTIMIZER.update(grads, optimizer)
        params = optax.apply_updates(params, updates)
        return (params, popart, optimizer), error

    params = initialize(key)
    start = params, initial_state(), OPTIMIZER.init(params)
    return jax.lax.scan(step, start, jnp.arange(STEPS))[1]


# --- The network. ---


def initialize(key: Array) -> dict[str, Any]:
    """Return the parameters of the hidden and the last layer."""
    sizes = {"hidden": (2, HIDDEN), "head": (HIDDEN, 1)}
    keys = jax.random.split(key, len(sizes))
    return {
        name: {
            "w": jax.random.normal(each, size) / np.sqrt(size[0]).astype(np.float32),
            "b": jnp.zeros(size[1]),
        }
        for each, (name, size) in zip(keys, sizes.items(), strict=True)
    }


def predict(params: dict[str, Any], x: Array) -> Array:
    """Return the outputs of the last layer."""
    hidden, head = params["hidden"], params["head"]
    x = jnp.tanh(x @ hidden["w"] + hidden["b"][None])
    return (x @ head["w"] + head["b"][None])[:, 0]


def loss(params: dict[str, Any], x: Array, targets: Array) -> Array:
    """Return the mean squared error."""
    return jnp.mean(rlaxlib.l2_loss(predict(params, x), targets))
