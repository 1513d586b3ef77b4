"""The temperature of MPO: weights of the E-step, and the temperature loss."""

import jax
import jax.numpy as jnp
import numpy as np
import style
from matplotlib.figure import Figure

import rlaxlib

Q_VALUES = jnp.array([0.0, 0.2, 0.4, 0.6, 1.0])
LINES = ":", "-.", "--", "-", "-"
BOUNDS = {0.02: style.BLUE, 0.1: style.GREEN, 0.5: style.ORANGE}  # In nats.
TEMPERATURES = np.geomspace(0.03, 10, 200)


def draw() -> Figure:
    """Draw the weights of five actions, and the temperature loss for three bounds."""
    figure = style.figure(3.0)
    left, right = figure.subplots(1, 2, sharex=True)
    _, weights = e_step(0.0)
    for value, each, line in zip(Q_VALUES, weights.T, LINES, strict=True):
        options = {"color": style.INK, "lw": 1.6, "label": f"{value:.1f}"}
        left.plot(TEMPERATURES, each, line, **options)
    left.legend(title="value", fontsize="small", title_fontsize="small", reverse=True)
    left.set(title="weights of actions", ylim=(-0.03, 1.03))
    for bound, color in BOUNDS.items():
        losses, _ = e_step(bound)
        best = np.argmin(losses)
        right.plot(TEMPERATURES, losses, color=color, label=f"{bound} nats")
        right.plot(TEMPERATURES[best], losses[best], "o", color=color)
        left.axvline(TEMPERATURES[best], color=color, lw=1, ls="--")
    right.set(title="temperature loss", ylim=(0.4, 1.6))
    right.legend(title="bound", fontsize="small", title_fontsize="small")
    right.set(xscale="log")
    for axes in (left, right):
        axes.set_xlabel("temperature")
        axes.set_xticks([0.1, 1, 10], ["0.1", "1", "10"])
    return figure


def e_step(bound: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the loss and the weights at each temperature."""

    def weigh(temperature: jax.Array) -> tuple[jax.Array, jax.Array]:
        loss, weights, _ = rlaxlib.mpo_compute_weights_and_temperature_loss(
            Q_VALUES, rlaxlib.LagrangePenalty(temperature, bound), jnp.positive
        )
        return loss, weights

    losses, weights = jax.vmap(weigh)(jnp.asarray(TEMPERATURES, jnp.float32))
    return np.asarray(losses), np.asarray(weights)
